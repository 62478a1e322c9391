"""Changes of rows (INSERT, UPDATE, DELETE, LOAD) and what may hide them (CALL, DO, HANDLER)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from sqlcache.sql.analysis.calls import function_use, with_functions
from sqlcache.sql.analysis.cursor import Cursor
from sqlcache.sql.lexer import Token
from sqlcache.sql.names import TableRef
from sqlcache.sql.pins import set_columns
from sqlcache.sql.statement import (
    ADDS,
    ANYTHING,
    DELETES,
    MOST_COLUMNS,
    Changes,
    Kind,
    Statement,
    unknown,
)
from sqlcache.sql.tables import Tables, scan_tables

_INSERT_WORDS = frozenset(("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"))


def insert_target(cursor: Cursor) -> TableRef | None:
    """Steps over INSERT or REPLACE and the name of its table."""
    cursor.at += 1
    cursor.take_any(_INSERT_WORDS)
    target = cursor.table()
    if cursor.take("PARTITION"):
        cursor.skip_group()
    return target


def insert(cursor: Cursor) -> Statement:
    """INSERT and REPLACE, their sources included."""
    verb = cursor.word
    words = cursor.fork(cursor.at + 1).take_any(_INSERT_WORDS)
    target = insert_target(cursor)
    if target is None:
        return unknown(verb, "its table cannot be read")
    after = cursor.rest
    tables = scan_tables(after) if _holds_query(after) else scan_tables(())
    value = frozenset((0,)) if after and after[0].word == "VALUE" else frozenset()
    columns = tables.column_lists | value
    statement = Statement(
        verb,
        Kind.WRITE,
        reads=tables.refs,
        writes=frozenset((target,)),
        delays="DELAYED" in words,
        changes=ANYTHING if verb == "REPLACE" else _changes_of_insert(after),
    )
    return with_functions(statement, function_use(cursor, after, columns))


def _changes_of_insert(tokens: Sequence[Token]) -> Changes:
    """Those of rows that are there already, which it may set columns of in place of its own."""
    at = [place for place, token in enumerate(tokens) if token.word == "DUPLICATE"]
    if not at:
        return ADDS
    (place, *others) = at
    words = [token.word for token in tokens[max(place - 1, 0) : place + 3]]
    if others or words != ["ON", "DUPLICATE", "KEY", "UPDATE"]:
        return ANYTHING
    return _changes_of(set_columns(tokens[place + 3 :]))


def _changes_of(columns: frozenset[str] | None) -> Changes:
    known = columns is not None and len(columns) <= MOST_COLUMNS
    return Changes(columns if known else None)


def _holds_query(tokens: Sequence[Token]) -> bool:
    return any(token.word == "TABLE" for token in tokens) or asks(tokens)


def asks(tokens: Sequence[Token]) -> bool:
    """Whether a query is in it, that may name no table: a SELECT, or MariaDB's list of VALUES.
    Behind ON DUPLICATE KEY that word is a function."""
    if any(token.word == "SELECT" for token in tokens):
        return True
    for before, token in pairwise(tokens):
        if before.word == "ON" and token.word == "DUPLICATE":
            break
        if before.is_operator(b"(") and token.word == "VALUES":
            return True
    return False


def update(cursor: Cursor, ctes: frozenset[str] = frozenset()) -> Statement:
    """UPDATE of one table or of several joined; all that are listed count as written."""
    changes = _changes_of(set_columns(cursor.rest))
    cursor.at += 1
    cursor.take_any(frozenset(("LOW_PRIORITY", "IGNORE")))
    found = scan_tables(cursor.rest, in_list=True, ctes=ctes)
    writes = frozenset(f.ref for f in found.factors if not f.nested and not f.is_cte)
    if found.doubt or not writes:
        return unknown("UPDATE", f"its tables are not certain: {found.doubt}")
    plain = len(found.factors) == 1 and not _holds_query(cursor.rest) and not ctes
    return with_functions(
        Statement(
            "UPDATE",
            Kind.WRITE,
            reads=found.refs,
            writes=writes,
            changes=changes,
            one_table=plain,
        ),
        function_use(cursor, cursor.rest, found.column_lists),
    )


def delete(cursor: Cursor, ctes: frozenset[str] = frozenset()) -> Statement:
    """DELETE FROM t, DELETE a, b FROM tables and DELETE FROM a, b USING tables."""
    cursor.at += 1
    cursor.take_any(frozenset(("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY")))
    several = cursor.word != "FROM"
    cursor.take("FROM")
    using = cursor.find("USING") if not several else None
    where = cursor.find("WHERE", "ORDER", "LIMIT", "RETURNING")
    targets: list[TableRef] = []
    if several or (using is not None and (where is None or using < where)):
        targets = _delete_targets(cursor)
        if not targets or not (cursor.take("FROM") or cursor.take("USING")):
            return unknown("DELETE", "its tables cannot be read")
    found = scan_tables(cursor.rest, in_list=True, ctes=ctes)
    if found.doubt:
        return unknown("DELETE", f"its tables are not certain: {found.doubt}")
    plain = len(found.factors) == 1 and not _holds_query(cursor.rest) and not (targets or ctes)
    plain &= not any(token.word == "RETURNING" for token in cursor.rest)
    deleted = _deleted(targets, found)
    # FOR PORTION OF a period leaves the rest of a row.
    changes = ANYTHING if "PORTION" in cursor.words else DELETES
    return with_functions(
        Statement(
            "DELETE",
            Kind.WRITE,
            reads=found.refs,
            writes=deleted,
            changes=changes,
            one_table=plain,
        ),
        function_use(cursor, cursor.rest, found.column_lists),
    )


def _delete_targets(cursor: Cursor) -> list[TableRef]:
    targets: list[TableRef] = []
    while (ref := cursor.table()) is not None:
        targets.append(ref)
        if cursor.take_operator(b"."):
            cursor.take_operator(b"*")
        if not cursor.take_operator(b","):
            break
    return targets


def _deleted(targets: Sequence[TableRef], found: Tables) -> frozenset[TableRef]:
    """The tables that targets mean; all that are listed where one is not clear."""
    listed = [factor for factor in found.factors if not factor.nested and not factor.is_cte]
    everything = frozenset(factor.ref for factor in listed)
    if not targets:
        return everything
    # Some servers compare them without case: of two that differ in it alone either may be meant.
    named: dict[str | None, set[TableRef]] = {}
    for factor in listed:
        named.setdefault(_folded(factor.alias or factor.ref.name), set()).add(factor.ref)
    if None in named:
        return everything | frozenset(targets)
    deleted: set[TableRef] = set()
    for target in targets:
        meant = named.get(_folded(target.name), set())
        if len(meant) != 1:
            return everything | frozenset(targets)
        deleted |= meant
    return frozenset(deleted)


def _folded(name: str) -> str | None:
    """A name in one case; None where each server has its own idea of that."""
    return name.lower() if name.isascii() else None


def with_change(cursor: Cursor, end: int, ctes: frozenset[str]) -> Statement:
    """WITH ... UPDATE and WITH ... DELETE."""
    before = scan_tables(cursor.tokens[:end])
    use = function_use(cursor, cursor.tokens[:end], before.column_lists)
    cursor.at = end
    statement = update(cursor, ctes) if cursor.word == "UPDATE" else delete(cursor, ctes)
    joined = with_functions(statement, use)
    return replace(
        joined,
        reads=statement.reads | before.refs,
        functions=statement.functions | use.names,
    )


def load(cursor: Cursor) -> Statement:
    """LOAD DATA, LOAD XML and LOAD INDEX INTO CACHE."""
    cursor.at += 1
    if cursor.take("INDEX"):
        return Statement("LOAD", Kind.OTHER, may_commit=True)
    into = cursor.find("INTO")
    if into is None or cursor.word not in ("DATA", "XML"):
        return unknown("LOAD", "its table cannot be read")
    replaces = any(token.word == "REPLACE" for token in cursor.tokens[:into])
    cursor.at = into + 1
    target = cursor.table() if cursor.take("TABLE") else None
    if target is None:
        return unknown("LOAD", "its table cannot be read")
    if cursor.take("PARTITION"):
        cursor.skip_group()
    fields = cursor.find("SET")
    computed = cursor.tokens[fields:] if fields is not None else ()
    tables = scan_tables(computed)
    return with_functions(
        Statement(
            "LOAD",
            Kind.WRITE,
            reads=tables.refs,
            writes=frozenset((target,)),
            changes=ANYTHING if replaces else ADDS,
        ),
        function_use(cursor, computed, tables.column_lists),
    )


def handler(cursor: Cursor) -> Statement:
    """HANDLER: it reads, and sees what a SELECT would not."""
    cursor.at += 1
    ref = cursor.table()
    use = function_use(cursor, cursor.rest)
    reads = frozenset((ref,)) if ref else frozenset()
    return with_functions(Statement("HANDLER", Kind.READ, reads=reads), use)


def unseen(cursor: Cursor) -> Statement:
    """BINLOG, and of CALL what is not known."""
    return replace(unknown(cursor.word, "what it runs is not in its text"), kind=Kind.OTHER)


def call(cursor: Cursor) -> Statement:
    """CALL: who knows the routines may know that the session stays as it is.

    A declared procedure's writes are known; but it may commit, and what it does to the session is
    not declared.
    """
    statement = unseen(cursor)
    cursor.at += 1
    called = cursor.table()
    path = tuple(part for part in called or () if part is not None)
    routine = cursor.options.declared.find(path) if path else None
    arguments = scan_tables(cursor.rest)
    if routine is None:
        unread = replace(statement, called=called, reads=arguments.refs, by_code=called is not None)
        return with_functions(unread, function_use(cursor, cursor.rest))
    known = replace(
        statement,
        called=called,
        reads=routine.reads | arguments.refs,
        writes=routine.writes,
        writes_everything=False,
        routines=frozenset((routine,)),
    )
    return with_functions(known, function_use(cursor, cursor.tokens))


def do(cursor: Cursor) -> Statement:
    """DO: expressions, whose functions may write."""
    tables = scan_tables(cursor.rest)
    statement = Statement("DO", Kind.OTHER, reads=tables.refs)
    return with_functions(statement, function_use(cursor, cursor.rest, tables.column_lists))
