"""Statements that look back at the one before them, and what a query leaves for these, as far as
their texts tell: FOUND_ROWS(), ROW_COUNT(), the warnings."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.lexer import Kind, Token, tokenize, word_set
from sqlcache.sql.pieces import Dialect

MAX_FOUND_ROWS = 100_000  # more than that are not counted again for who asks for them late
_MOST_KEPT_ROWS = 1_000  # likewise, where it is done without a table: in 4 ms
MOST_SEARCHED_BYTES = 32_768
"""Of a text that is searched for words, on the event loop: a longer one may hold any of them."""
_SHORT_BYTES = 1_000
_MOST_SHORT, _MOST_LONG = 500, 16  # texts, of which it is remembered what they leave
ASKS_FOR_ROWS = re.compile(rb"FOUND_ROWS", re.IGNORECASE)
ASKS_FOR_WARNINGS = re.compile(rb"SHOW|_COUNT|DIAGNOSTICS", re.IGNORECASE)
_MAY_LOOK_BACK = re.compile(
    rb"WARNINGS|ERRORS|_COUNT|FOUND_ROWS|DIAGNOSTICS|EXECUTE|CALL|ROLE", re.IGNORECASE
)
_LONGEST_WORD = 16  # and more, of those
_COUNTS = word_set("ROW_COUNT FOUND_ROWS")
ASKS_FOR_COUNT = re.compile(  # a packet, or what one prepares
    rb"(?is)(.{3}\x00.(\x00\x01)?)?\s{0,9}SELECT\s{1,9}FOUND_ROWS\(\)(\s{1,9}(AS\s{1,9})?`?[a-z_]\w{0,63}`?)?\s{0,9};?"
)
_RUN_OTHERS = word_set("EXECUTE CALL")
_BEFORE_STATEMENTS = word_set("FOR ATOMIC BEGIN THEN ELSE DO")
_DIALECTS = (Dialect(), Dialect(no_backslash_escapes=True))

_LIMITS = re.compile(rb"\b(?:LIMIT|FETCH)\b", re.IGNORECASE)
_OFFSET_OR_TIES = re.compile(rb"\b(?:OFFSET|TIES)\b", re.IGNORECASE)
_COMMA = re.compile(rb",")
_UNION = re.compile(rb"\b(UNION|EXCEPT|INTERSECT)\b", re.IGNORECASE)
_AGGREGATE = re.compile(
    rb"\b(?:COUNT|MIN|MAX|SUM|AVG|STD|VAR|BIT_|GROUP_CONCAT|JSON_|ST_COLLECT)", re.IGNORECASE
)
_VALUES = re.compile(rb"\bVALUES\b", re.IGNORECASE)
_INSERTS = re.compile(rb"(?is)\A.{0,7}?\b(?:INSERT|REPLACE)\b")  # a packet, too
_MAY_FIND_NONE = re.compile(rb"\b(?:FROM|WHERE|HAVING|LIMIT|FETCH)\b", re.IGNORECASE)
_GROUPED = re.compile(rb"\bGROUP\s{1,9}BY\b", re.IGNORECASE)
_BEGINS = rb"(?is)\A.{5}(?:\x00\x01)?\s*"  # a packet, without query attributes
RUNS_NO_QUERY = re.compile(
    rb"%b(BEGIN|START|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|USE|DELETE)\b"
    rb"(?!.*(NOT|SELECT|[(;]))" % _BEGINS
)
USES_A_TABLE = re.compile(
    rb"%b(SELECT\b(?!.*\bDUAL\b).*\bFROM\s+[\w`]|(INSERT|REPLACE|UPDATE|DELETE)\b)" % _BEGINS
)


def may_look_back(text: bytes) -> bool:
    """Whether a statement may ask about the one before it, or leave what is there to the next.

    How the server reads it is not known: a word that may be none, for a literal or a name, counts.
    """
    starts = range(0, len(text), MOST_SEARCHED_BYTES)  # one search lets no other thread run
    ends = MOST_SEARCHED_BYTES + _LONGEST_WORD
    if not any(_MAY_LOOK_BACK.search(text, start, start + ends) for start in starts):
        return False
    try:
        read = [tokenize(text, dialect) for dialect in _DIALECTS]
    except SqlSyntaxError:
        return True
    return not text.isascii() or any(map(_look_back, read))


def _look_back(tokens: Sequence[Token]) -> bool:
    """Whether some of these do. SET ROLE leaves all as it is for the next: it keeps ROW_COUNT()."""
    for at, token in enumerate(tokens):
        if token.kind in (Kind.SYSTEM_VARIABLE, Kind.VERSIONED):
            if _MAY_LOOK_BACK.search(token.text):
                return True
            continue
        before = tokens[at - 1] if at else None
        begins = before is None or before.text == b";" or before.word in _BEFORE_STATEMENTS
        told = {each.word for each in tokens[at + 1 : at + 7]}
        asks = token.word == "SHOW" and not told.isdisjoint(("WARNINGS", "ERRORS"))
        asks |= token.word == "GET" and not told.isdisjoint(("DIAGNOSTICS",))
        role = token.word == "ROLE" and before is not None and before.word == "SET"
        runs = token.word in _RUN_OTHERS
        if token.word in _COUNTS or role or (begins and (asks or runs)):
            return True
    return False


def _remembered(judge: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """The same, which searches a text once: what is asked of a hit's is asked again by each command
    that comes behind it."""
    of_short, of_long = lru_cache(_MOST_SHORT)(judge), lru_cache(_MOST_LONG)(judge)

    def judged(text: bytes) -> bool:
        if len(text) <= _SHORT_BYTES:
            return of_short(text)
        return (of_long if len(text) <= MOST_SEARCHED_BYTES else judge)(text)

    return judged


def may_find_others(text: bytes, *, mariadb: bool) -> bool:
    """Whether FOUND_ROWS() may tell another number after a hit's query than that of its rows."""
    return (mariadb and may_keep_rows(text)) or _leaves_some_out(text)


@_remembered
def _leaves_some_out(text: bytes) -> bool:
    """Whether a query may: it counts those that an offset leaves out; MariaDB's also those that a
    UNION's LIMIT or WITH TIES does."""
    if may_hold(_OFFSET_OR_TIES, text) or _comes_before(_LIMITS, _COMMA, text):
        return True
    return _comes_before(_UNION, _LIMITS, text)


def may_keep_rows(text: bytes | None) -> bool:
    """Whether MariaDB may leave FOUND_ROWS() as it was after a query, as after VALUES, or after an
    aggregate of no rows. The text is None where that is not known."""
    return text is None or _may_keep_rows(text)


@_remembered
def _may_keep_rows(text: bytes) -> bool:
    if may_hold(_VALUES, text) and not holds(_INSERTS, text):
        return True
    none = may_hold(_AGGREGATE, text) and may_hold(_MAY_FIND_NONE, text)
    return none and not holds(_GROUPED, text)


def holds(words: re.Pattern[bytes], text: bytes) -> bool:
    return len(text) <= MOST_SEARCHED_BYTES and words.search(text) is not None


def may_hold(words: re.Pattern[bytes], text: bytes) -> bool:
    return len(text) > MOST_SEARCHED_BYTES or words.search(text) is not None


def _comes_before(first: re.Pattern[bytes], then: re.Pattern[bytes], text: bytes) -> bool:
    found = first.search(text)
    return found is not None and then.search(text, found.end()) is not None


def query_finding(rows: int, *, counted: bool = False, limited: bool) -> bytes | None:
    """A query that reads no table, and after which FOUND_ROWS() is `rows`; None for too many.

    `counted`: it leaves what SQL_CALC_FOUND_ROWS does, which spares the rows. MySQL warns of it.
    `limited`: MariaDB is to run it whatever the session's max_join_size is. From version 11 on it
    may then tell the client, with what is next, that autocommit is set to what it was.
    """
    if rows > MAX_FOUND_ROWS:
        return None
    ten = "(SELECT 1" + " UNION ALL SELECT 1" * 9 + ")"
    tables = ", ".join(f"{ten} AS t{place}" for place in range(len(str(rows))))
    finding = f"SELECT 1 FROM {tables} LIMIT {rows}"
    if counted:
        finding = f"SELECT SQL_CALC_FOUND_ROWS 1 FROM ({finding}) AS t LIMIT 0"
    if limited:
        finding = f"SET STATEMENT sql_big_selects = 1 FOR {finding}"
    return finding.encode()


def query_keeping(rows: int) -> bytes | None:
    """The same for one that uses no table at all: MariaDB's warnings and errors outlast it."""
    if rows > _MOST_KEPT_ROWS:
        return None
    return b" UNION ALL ".join([b"SELECT 1"] * rows) or b"SELECT 1 LIMIT 0"
