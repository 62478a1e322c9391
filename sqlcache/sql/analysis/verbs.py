"""Which reader a statement's first word calls for, and the statements that hold another one."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from sqlcache.sql import functions
from sqlcache.sql.analysis import changes, definitions, session, transactions
from sqlcache.sql.analysis.calls import function_use, with_functions
from sqlcache.sql.analysis.cursor import Cursor
from sqlcache.sql.analysis.queries import query
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import word_set
from sqlcache.sql.statement import (
    ANY_CONNECTION,
    TEMPORARY_TOLD_APART_BY,
    FoundRows,
    Kind,
    Statement,
    Transaction,
    changed,
    unknown,
)
from sqlcache.sql.tables import leading_with, scan_tables


def read_statement(cursor: Cursor) -> Statement:
    """What one statement does."""
    if cursor.at >= len(cursor.tokens):
        return Statement("", Kind.OTHER, reason="it is empty")
    verb = cursor.word
    if cursor.nested > _MAX_NESTED:
        return unknown(verb, "it nests too deep")
    reader = query if cursor.tokens[cursor.at].is_operator(b"(") else _READERS.get(verb)
    if reader is None:
        return unknown(verb, "its first word is not known")
    statement = reader(cursor)
    none = "" if statement.cacheable else f"{statement.verb} is not a query"
    diagnostic = _is_diagnostic(cursor)
    return changed(
        statement,
        reason=statement.reason or none,
        locking_read=statement.locking_read or _locks_rows(cursor),
        diagnostic=statement.diagnostic or diagnostic,
        found_rows="FOUND_ROWS" in cursor.words if diagnostic else statement.found_rows,
        after=FoundRows.KEPT if _asks_nothing(statement, cursor) else statement.after,
    )


def _asks_nothing(statement: Statement, cursor: Cursor) -> bool:
    """Whether it is no query, and has none in it."""
    if statement.kind not in _NO_QUERIES and statement.verb not in _NO_EXPRESSIONS:
        return False
    return not statement.reads and not changes.asks(cursor.tokens)


_NO_QUERIES = frozenset({Kind.TRANSACTION, Kind.SESSION, Kind.WRITE, Kind.DDL})
_NO_EXPRESSIONS = word_set("BACKUP FLUSH LOCK UNLOCK")
_HOW_HARD = frozenset({"HARD", "SOFT"})
_MAX_NESTED = 3  # SET STATEMENT ... FOR EXPLAIN SELECT


def _locks_rows(cursor: Cursor) -> bool:
    locking = (("FOR", "UPDATE"), ("FOR", "SHARE"), ("LOCK", "IN"))
    if not any(map(cursor.words.issuperset, locking)):
        return False
    return any(pair in locking for pair in pairwise(token.word for token in cursor.tokens))


_DIAGNOSTIC_VARIABLE = re.compile(rb"@@.*\b(?:warning_count|error_count)\b", re.IGNORECASE)


def _is_diagnostic(cursor: Cursor) -> bool:
    variables = (t.text for t in cursor.tokens if t.kind is TokenKind.SYSTEM_VARIABLE)
    asked = any(_DIAGNOSTIC_VARIABLE.match(text.replace(b"`", b"")) for text in variables)
    return asked or not cursor.words.isdisjoint(functions.DIAGNOSTIC)


# Statements that hold another.


def _with(cursor: Cursor) -> Statement:
    """WITH before a query, an UPDATE or a DELETE."""
    clause = leading_with(cursor.rest)
    verb = cursor.tokens[clause.end].word if clause and clause.end < len(cursor.rest) else ""
    if clause is None or verb not in ("", "SELECT", "TABLE", "VALUES", "UPDATE", "DELETE"):
        return unknown("WITH", "its WITH clause cannot be read")
    if verb in ("UPDATE", "DELETE"):
        return changes.with_change(cursor, clause.end, clause.ctes)
    return query(cursor)


def _explain(cursor: Cursor) -> Statement:
    """EXPLAIN and DESCRIBE; with ANALYZE, and MariaDB's ANALYZE, the statement does run."""
    verb = cursor.word
    cursor.at += 1
    runs = _skip_explain_options(cursor) or verb == "ANALYZE"
    if cursor.take("FOR"):  # a schema in which its names are, or CONNECTION
        if cursor.word in ("SCHEMA", "DATABASE"):
            return unknown(verb, "its names are those of another schema")
        cursor.at += 1
    begins = cursor.word in _READERS or (cursor.rest and cursor.rest[0].is_operator(b"("))
    if not begins:
        reads = frozenset() if runs else frozenset(filter(None, (cursor.table(),)))
        return Statement(verb, Kind.READ, reads=reads)
    inner = read_statement(cursor.inside(cursor.at))
    if runs:
        return replace(inner, verb=verb, cacheable=False, reason=f"{verb} is not a query")
    use = function_use(cursor, cursor.rest)  # whose constant ones are called to make the plan
    return Statement(
        verb,
        Kind.READ,
        reads=inner.reads | inner.writes,
        writes=frozenset().union(*(routine.writes for routine in use.declared)),
        writes_everything=bool(use.stored) and inner.writes_everything,
        functions=inner.functions,
    )


def _skip_explain_options(cursor: Cursor) -> bool:
    """Steps over what stands between EXPLAIN and its statement; gives whether ANALYZE does."""
    runs = False
    while cursor.word in ("ANALYZE", "EXTENDED", "PARTITIONS", "FORMAT"):
        runs = runs or cursor.word == "ANALYZE"
        cursor.at += 1
        if cursor.take_operator(b"="):
            cursor.at += 1
    if cursor.take("INTO"):
        cursor.at += 1
    return runs


def _analyze(cursor: Cursor) -> Statement:
    """ANALYZE TABLE, and MariaDB's ANALYZE of a statement."""
    after = {token.word for token in cursor.tokens[cursor.at + 1 : cursor.at + 3]}
    of_tables = not after.isdisjoint((*definitions.MAINTAINED, *definitions.MAINTENANCE_WORDS))
    return definitions.maintain(cursor) if of_tables else _explain(cursor)


def _set(cursor: Cursor) -> Statement:
    """SET, and MariaDB's SET STATEMENT variable = value FOR statement."""
    if cursor.tokens[cursor.at + 1 : cursor.at + 2] and (
        cursor.tokens[cursor.at + 1].word != "STATEMENT"
    ):
        return session.set_variables(cursor)
    cursor.at += 2
    target = cursor.find("FOR")
    if target is None:
        return unknown("SET", "its statement cannot be read")
    use = function_use(cursor, cursor.tokens[cursor.at : target])
    inner = read_statement(cursor.inside(target + 1))
    own = tuple(each for each in inner.settings if each[0].startswith(("next_", "@")))
    assigned = b" ".join(token.text for token in cursor.tokens[cursor.at : target])
    assigns = assigned.decode("utf-8", "replace").lower()
    of_another = any(name in assigns for name in TEMPORARY_TOLD_APART_BY)
    return replace(
        with_functions(inner, use),
        verb=inner.verb if inner.verb == "PREPARE" else "SET",  # MariaDB may run code for that
        cacheable=False,
        reason="it sets variables for itself",
        functions=inner.functions | use.names,
        # Of variables it is not known which are those that it sets for itself, gone when it ends.
        settings=own + session.put_back_in(assigns),
        opaque_session=inner.opaque_session or bool(inner.settings) or of_another,
        untold=frozenset(),
        opens_snapshot=inner.opens_snapshot or inner.transaction is Transaction.START,
        text=None,  # it may be read in another sql_mode
    )


# Statements with little to say.


def _show(cursor: Cursor) -> Statement:
    verb = cursor.word
    cursor.at += 1
    asked = {token.word for token in cursor.tokens[cursor.at : cursor.at + 6]}
    diagnostic = verb == "SHOW" and not asked.isdisjoint(_DIAGNOSTICS)
    where = cursor.find("WHERE")
    tables = scan_tables(cursor.tokens[where:] if where is not None else ())
    words = [token.word for token in cursor.rest if token.word not in _BEFORE_WHAT_IS_SHOWN]
    shown = words[0] if verb == "SHOW" and words else ""
    after = FoundRows.UNSURE
    if shown in _DIAGNOSTICS:
        after = FoundRows.KEPT
    elif shown in _COUNTED and not diagnostic:
        after = FoundRows.COUNTED
    statement = Statement(verb, Kind.READ, reads=tables.refs, diagnostic=diagnostic, after=after)
    return with_functions(statement, function_use(cursor, cursor.rest))


_BEFORE_WHAT_IS_SHOWN = word_set("FULL EXTENDED SESSION GLOBAL LOCAL")
_DIAGNOSTICS = word_set("WARNINGS ERRORS")
# What servers answer by a query of their own.
_COUNTED = word_set("COLUMNS FIELDS TABLES VARIABLES STATUS INDEX INDEXES KEYS DATABASES SCHEMAS")


def _get_diagnostics(cursor: Cursor) -> Statement:
    return Statement("GET", Kind.READ, diagnostic=True, after=FoundRows.KEPT)


def _harmless(cursor: Cursor) -> Statement:
    """A statement that changes neither rows nor what a session may see, but may commit."""
    statement = Statement(cursor.word, Kind.OTHER, may_commit=True)
    return with_functions(statement, function_use(cursor, cursor.rest))


_MOST_DIGITS = 20  # of 64 bits


def _kill(cursor: Cursor) -> Statement:
    statement = _harmless(cursor)
    cursor.at += 1
    cursor.take_any(_HOW_HARD)
    if cursor.take("QUERY"):
        return statement
    cursor.take("CONNECTION")
    told = [token.text for token in cursor.rest]
    is_number = len(told) == 1 and told[0].isdigit() and len(told[0]) <= _MOST_DIGITS
    return replace(statement, kills=int(told[0]) if is_number else ANY_CONNECTION)


_READERS: dict[str, Callable[[Cursor], Statement]] = {
    **dict.fromkeys(("SELECT", "TABLE", "VALUES"), query),
    **dict.fromkeys(("INSERT", "REPLACE"), changes.insert),
    "BINLOG": changes.unseen,
    "EXECUTE": session.execute,
    **dict.fromkeys(("GRANT", "REVOKE"), definitions.privileges),
    **dict.fromkeys(("OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM"), definitions.maintain),
    **dict.fromkeys(("BEGIN", "START"), transactions.start),
    **dict.fromkeys(("LOCK", "UNLOCK"), transactions.lock),
    **dict.fromkeys(("PREPARE", "DEALLOCATE"), session.prepare),
    **dict.fromkeys(("SHOW", "HELP"), _show),
    **dict.fromkeys(("EXPLAIN", "DESCRIBE", "DESC"), _explain),
    **dict.fromkeys(("INSTALL", "UNINSTALL", "CLONE", "IMPORT"), definitions.server_change),
    **dict.fromkeys(
        word_set("SHUTDOWN RESTART PURGE CHANGE STOP RESET CACHE SIGNAL RESIGNAL"), _harmless
    ),
    "KILL": _kill,
    "WITH": _with,
    "UPDATE": changes.update,
    "DELETE": changes.delete,
    "LOAD": changes.load,
    "HANDLER": changes.handler,
    "CALL": changes.call,
    "DO": changes.do,
    "CREATE": definitions.create,
    "ALTER": definitions.alter,
    "DROP": definitions.drop,
    "RENAME": definitions.rename,
    "TRUNCATE": definitions.truncate,
    "ANALYZE": _analyze,
    "COMMIT": transactions.commit,
    "ROLLBACK": transactions.rollback,
    "SAVEPOINT": transactions.savepoint,
    "RELEASE": transactions.savepoint,
    "XA": transactions.xa,
    "BACKUP": transactions.backup,
    "FLUSH": transactions.flush,
    "USE": session.use_schema,
    "GET": _get_diagnostics,
    "SET": _set,
}
