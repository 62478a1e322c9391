"""What the bodies of views, triggers and stored routines name."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.analysis import identifiers_in
from sqlcache.sql.analysis.cursor import NAMES
from sqlcache.sql.analysis.session import GLOBAL_SCOPES
from sqlcache.sql.catalog.definitions import MAX_REMEMBERED, Definitions
from sqlcache.sql.catalog.server import LEADING_SCHEMAS, OPEN_SCHEMAS
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.facts import StoredRoutine
from sqlcache.sql.functions import KNOWN
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import Token, tokenize
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.pieces import Dialect

PRINTED = Dialect()
"""How the server prints views' bodies and columns' expressions, whatever the sql_mode."""

_RUNS_UNSEEN_CODE = frozenset({"CALL", "EXECUTE", "PREPARE"})

_TYPES = {"TINYINT", "SMALLINT", "MEDIUMINT", "INTEGER", "BIT", "REAL", "DEC", "FIXED", "DATETIME"}
_TEXT_TYPES = {"TEXT", "BLOB", "ENUM", "NCHAR", "NVARCHAR"}
_PRINTED_FUNCTIONS = {"ROLLUP_GROUP_ITEM", "ROLLUP_SUM_SWITCHER", "JSON_DUALITY_OBJECT"}
NOT_STORED = KNOWN | _TYPES | _TEXT_TYPES | _PRINTED_FUNCTIONS | {"UNTIL", "DO", "WITH"}
"""What stands before a parenthesis and is a stored function only where one has that very name.

Built-in functions, some of which MySQL prints into bodies of views and knows nowhere else, and
words of trigger bodies that call nothing.
"""

_ROWS = frozenset({"NEW", "OLD", "new", "old", "New", "Old"})
"""What triggers call the rows they see."""


class Further(NamedTuple):
    """What running a body may write, one step far. `schemas` are those that a dotted name may begin
    with: there may be tables in them later that are not known."""

    tables: frozenset[TableName] = frozenset()
    schemas: frozenset[str] = frozenset()


class Use(NamedTuple):
    """What a routine's body names: None among the routines is one that is not known."""

    tables: frozenset[TableName]
    schemas: frozenset[str]
    routines: tuple[StoredRoutine | None, ...]
    named: frozenset[str]


class Bodies:
    """By these definitions, and routines. `schemas` are those that have anything in them, or once
    had."""

    def __init__(self, definitions: Definitions, stored: Stored, schemas: frozenset[str]) -> None:
        self._server = definitions.server
        self._definitions = definitions
        self._stored = stored
        self._schemas = schemas
        self.use_in = lru_cache(MAX_REMEMBERED)(self._use_in)
        """What a routine's body names; None for anything."""

    def further(self, body: bytes, dialect: Dialect, schema: str) -> Further | None:
        """Every known table a body mentions; None if it may run code that is not in it, or set what
        sessions begin with."""
        used = identifiers_in(body, dialect)
        if _does_more(body, dialect) or _names_open_schemas(used.paths):
            return None
        written = {name for path in used.paths for name in self._tables_of(path, schema)}
        declared = self._server.declared_under(schema)
        for path in used.functions:
            if not self._may_be_stored(path, schema):
                continue
            routine = declared.find(path)
            if routine is None:
                return None
            written |= self._written(routine.writes, schema)
        schemas = {self._server.fold(path[0]) for path in used.paths if len(path) > 1}
        return Further(frozenset(written), frozenset(schemas - (_ROWS - self._schemas)))

    def _use_in(self, routine: StoredRoutine) -> Use | None:
        if routine.body is None or routine.unruly:
            return None
        names = identifiers_in(routine.body, Dialect.stored_under(routine.sql_mode))
        schema = self._server.fold(routine.name.schema)
        if schema.lower() in LEADING_SCHEMAS or _names_open_schemas(names.paths):
            return None
        tables = {name for path in names.paths for name in self._tables_of(path, schema)}
        schemas = self._schemas_named(names.paths)
        if schemas is None:
            return None
        declared = self._server.declared_under(schema)
        routines = [self._stored.find(path, schema, is_function=False) for path in names.called]
        for path in names.functions:
            if not self._may_be_stored(path, schema):
                continue
            known = declared.find(path)
            if known is None:
                routines.append(self._stored.find(path, schema, is_function=True))
            else:
                tables |= self._written(known.writes, schema)
        parts = frozenset(part.lower() for path in names.paths for part in path)
        return Use(frozenset(tables), schemas, tuple(routines), parts)

    def _written(self, refs: Iterable[TableRef], schema: str) -> set[TableName]:
        return {self._server.folded(TableName(ref.schema or schema, ref.name)) for ref in refs}

    def _schemas_named(self, paths: Iterable[tuple[str, ...]]) -> frozenset[str] | None:
        """The schemas that dotted names may begin with; None where one is not known: a table may
        have been made in it."""
        paths = list(paths)
        bare = {path[-1].lower() for path in paths} | {"new", "old"}
        first = {path[0] for path in paths if len(path) > 1}
        known = {self._server.fold(name) for name in first} & self._schemas
        strange = {name for name in first if self._server.fold(name) not in known}
        return frozenset(known) if {name.lower() for name in strange} <= bare else None

    def _may_be_stored(self, path: tuple[str, ...], schema: str) -> bool:
        """Whether what stands before a parenthesis may be a stored or loadable function.

        `log (a, b)` after INSERT INTO looks like a call too, and is the name of a known table.
        """
        if path[-1].lower() in self._stored.functions:
            return True
        word = path[0].upper() if len(path) == 1 else ""
        return word not in NOT_STORED and not self._tables_of(path, schema)

    def _tables_of(self, path: tuple[str, ...], schema: str) -> list[TableName]:
        """The known tables a dotted name may mean: `t`, `t.column`, `schema.t` and so on."""
        refs = [TableRef(None, path[0])]
        if len(path) > 1:
            refs.append(TableRef(path[0], path[1]))
        names = (self._server.resolve(ref, schema) for ref in refs)
        return [name for name in names if name in self._definitions.relations]


def _names_open_schemas(paths: Iterable[tuple[str, ...]]) -> bool:
    """Whether something may be named that leads anywhere, see `OPEN_SCHEMAS`."""
    return any(len(path) > 1 and path[0].lower() in OPEN_SCHEMAS for path in paths)


def _does_more(body: bytes, dialect: Dialect) -> bool:
    """Whether a body may run code that is not in it, or set a global variable."""
    try:
        tokens = [*tokenize(body, dialect)]
    except SqlSyntaxError:
        return True
    return any(
        token.word in _RUNS_UNSEEN_CODE or token.kind in (TokenKind.VERSIONED, TokenKind.OTHER)
        for token in tokens
    ) or any(_sets_global(tokens, at) for at in range(1, len(tokens)))


def _sets_global(tokens: Sequence[Token], at: int) -> bool:
    """Whether a setting of a global variable begins there; a column may be called GLOBAL, too."""
    before, token, after = tokens[at - 1], tokens[at], tokens[at + 1 : at + 3]
    if before.word != "SET" and not before.is_operator(b","):
        return False
    if token.kind is TokenKind.SYSTEM_VARIABLE:
        scope = token.text[2:].replace(b"`", b"").partition(b".")[0]
        return scope.upper().decode() in GLOBAL_SCOPES
    if token.word not in GLOBAL_SCOPES or not after:
        return False
    assigned = any(after[-1].is_operator(sign) for sign in (b"=", b":="))
    return after[0].word == "TRANSACTION" or (after[0].kind in NAMES and assigned)
