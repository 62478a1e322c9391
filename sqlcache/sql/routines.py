"""Routines: what the operator declares of some, and whether code may change more than rows.

A routine or a trigger may set variables of the session that runs it, create temporary tables in
it, change definitions, or commit what another session wrote, and no statement of the client says
so. What is not understood may.

A declaration is complete: what it leaves out the routine does not do. sqlcache believes it.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.functions import KNOWN
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import Token, tokenize, word_set
from sqlcache.sql.names import TableRef
from sqlcache.sql.pieces import Dialect

_TELLING = word_set(
    "PREPARE EXECUTE NAMES CHARSET ROLE TRANSACTION GLOBAL PERSIST CREATE ALTER DROP RENAME",
    "GRANT REVOKE FLUSH INSTALL UNINSTALL XA BINLOG",
)
_WATCHED = re.compile(
    rb"\b(?:FOUND_ROWS|ROW_COUNT|PREPARE|EXECUTE|MYSQL_ERRNO|AGAINST|sys|GET_LOCK)\b", re.IGNORECASE
)
LOOKING_BACK = frozenset((b"FOUND_ROWS", b"ROW_COUNT"))
"""What tells of the statement before."""
FEIGNING_ERRORS = frozenset((b"PREPARE", b"EXECUTE", b"MYSQL_ERRNO", b"AGAINST", b"SYS"))
"""What may raise ER_PARSE_ERROR amid a statement; InnoDB's full-text search does."""
LOCKING = frozenset((b"GET_LOCK",))
"""All that views may leave behind themselves."""
WATCHED = LOOKING_BACK | FEIGNING_ERRORS | LOCKING
_BEFORE_SETTINGS = frozenset((b"SET", b","))
_CHARACTER = frozenset(("CHARACTER", "CHAR"))
_LEAVING = re.compile(rb"@|\b(?:SET|GET_LOCK|HANDLER|LOCK|BACKUP)\b", re.IGNORECASE)
_LEAVING_KINDS = frozenset((TokenKind.USER_VARIABLE, TokenKind.VERSIONED, TokenKind.OTHER))
_BEFORE_STATEMENTS = word_set("BEGIN THEN ELSE DO LOOP REPEAT")
_SETS_COLUMNS = word_set("UPDATE INSERT REPLACE")
_TELLING_KINDS = frozenset((TokenKind.SYSTEM_VARIABLE, TokenKind.VERSIONED, TokenKind.OTHER))


@dataclass(frozen=True, slots=True)
class Routine:
    """A declared routine: a stored one of a schema or, without one, a loadable function.

    `deterministic`: for the same arguments and the same contents of `reads` it answers the same.
    """

    schema: str | None
    name: str
    deterministic: bool = False
    reads: frozenset[TableRef] = frozenset()
    writes: frozenset[TableRef] = frozenset()


@dataclass(frozen=True, slots=True)
class Declared:
    """The declared routines, as a text with this default schema names them.

    `folds`: the server compares schemas' names without case, as `lower_case_table_names` asks.
    """

    routines: frozenset[Routine] = frozenset()
    schema: str | None = None
    folds: bool = False

    def find(self, path: tuple[str, ...]) -> Routine | None:
        """The declared routine that a call means; None where it may be another.

        A built-in function comes before any other of its name, and a loadable one before a stored
        one, unless a schema is named.
        """
        if len(path) > 2 or (len(path) == 1 and path[0].upper() in KNOWN):
            return None
        found = [each for each in self.routines if self._is(each, path)]
        found = [each for each in found if each.schema is None] or found
        return found[0] if len(found) == 1 else None

    def _is(self, routine: Routine, path: tuple[str, ...]) -> bool:
        if routine.name.lower() != path[-1].lower():
            return False
        if routine.schema is None:
            return len(path) == 1
        schema = path[0] if len(path) == 2 else self.schema or ""
        return routine.schema == schema or (self.folds and routine.schema.lower() == schema.lower())


NONE_DECLARED = Declared()


def is_unruly(body: bytes | None, sql_mode: str, variables: Set[str]) -> bool:
    """Whether a body, read under `sql_mode`, may; `variables` are those that matter, lower case.

    A column or a local variable of such a name counts too. None is a body that may not be seen.
    """
    if body is None or "ORACLE" in sql_mode.upper().split(","):
        return True
    try:
        tokens = tokenize(body, Dialect.stored_under(sql_mode))
    except SqlSyntaxError:
        return True
    names = {t.name.lower() for t in tokens if t.kind in (TokenKind.WORD, TokenKind.NAME)}
    return (
        not names.isdisjoint(variables)
        or "sys" in names
        or any(token.word in _TELLING for token in tokens)
        or any(token.kind in _TELLING_KINDS for token in tokens)
        or any(map(_sets_character_set, zip(tokens, tokens[1:], tokens[2:], strict=False)))
    )


def _sets_character_set(tokens: tuple[Token, Token, Token]) -> bool:
    """Whether SET CHARACTER SET, or the like among other settings, begins there; not a type's."""
    before, word, after = tokens
    sets = word.word in _CHARACTER and after.word == "SET"
    return sets and before.text.upper() in _BEFORE_SETTINGS


def leaves_something(body: bytes | None, sql_mode: str) -> bool:
    """Whether a body that is not unruly, read under `sql_mode`, may leave in its session what no
    answer depends on, and only who ran it knows of: a variable of any kind, a lock, a handler.

    A parameter that it sets counts too. None is a body that may not be seen.
    """
    if body is None:
        return True
    if not _LEAVING.search(body):
        return False
    try:
        tokens = [*tokenize(body, Dialect.stored_under(sql_mode))]
    except SqlSyntaxError:
        return True
    if any(each.kind in _LEAVING_KINDS or _is_named(each, "GET_LOCK") for each in tokens):
        return True
    for token, behind in pairwise(tokens):
        lasts = (token.word == "HANDLER" and behind.word != "FOR") or token.word == "BACKUP"
        if lasts or (token.word == "LOCK" and behind.word != "IN"):
            return True
    return _sets_others(tokens)


def watched_words(body: bytes | None) -> frozenset[bytes]:
    """Which of the `WATCHED` words are in a body; None is one that may not be seen."""
    return WATCHED if body is None else frozenset(map(bytes.upper, _WATCHED.findall(body)))


def _is_named(token: Token, name: str) -> bool:
    return token.kind in (TokenKind.WORD, TokenKind.NAME) and token.name.upper() == name


def _sets_others(tokens: Sequence[Token]) -> bool:
    """Whether a SET is there that sets anything but columns, a trigger's row and what the body
    declares itself."""
    declared = {
        name for at, t in enumerate(tokens) if t.word == "DECLARE" for name in _listed(tokens, at)
    }
    first = ""
    begins = True
    for at, token in enumerate(tokens):
        if begins:
            first = token.word
        begins = token.is_operator(b";") or token.word in _BEFORE_STATEMENTS
        sets = token.word == "SET" and first not in _SETS_COLUMNS
        if sets and not declared.issuperset(_targets(tokens, at)):
            return True
    return False


def _listed(tokens: Sequence[Token], at: int) -> Iterator[str]:
    """The names that begin behind there, as far as commas are between them."""
    while at + 1 < len(tokens):
        yield tokens[at + 1].name.lower()
        at += 2
        if at >= len(tokens) or not tokens[at].is_operator(b","):
            return


def _targets(tokens: Sequence[Token], at: int) -> Iterator[str]:
    """What a SET that stands there sets, but columns of a trigger's row."""
    depth = 0
    awaited = True
    for place in range(at + 1, len(tokens)):
        token = tokens[place]
        if awaited:
            dotted = place + 1 < len(tokens) and tokens[place + 1].is_operator(b".")
            if not (dotted and token.name.upper() == "NEW"):
                yield token.name.lower()
        depth += token.is_operator(b"(") - token.is_operator(b")")
        awaited = not depth and token.is_operator(b",")
        if token.is_operator(b";"):
            return
