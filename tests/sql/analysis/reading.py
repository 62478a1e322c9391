"""Reading one statement in a test."""

from sqlcache.sql.analysis import analyse
from sqlcache.sql.names import TableRef
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import Statement

PLAIN = Dialect()


def one(text: str, dialect: Dialect = PLAIN) -> Statement:
    """The only statement of a text."""
    (statement,) = analyse(text.encode(), dialect)
    return statement


def names(refs: frozenset[TableRef]) -> set[str]:
    """Tables' names with dots."""
    return {".".join(filter(None, ref)) for ref in refs}


def written(text: str) -> set[str]:
    """What the only statement of a text writes, which is not cacheable: tables' names, and `*` if
    that may be everything."""
    statement = one(text)
    assert not statement.cacheable
    return names(statement.writes) | ({"*"} if statement.writes_everything else set())
