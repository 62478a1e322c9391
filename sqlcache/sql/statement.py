"""What a statement does, told from its text alone: what it reads, writes and leaves behind.

The laws:

- No text raises. What cannot be read is `Kind.UNKNOWN`: it writes everything, may commit, and
  leaves a session whose settings are unknown.
- Default deny. `cacheable` holds only for a query every word of which was judged; the tables are
  found twice, from our own tokens and by sqlglot, and both must agree.
- Writes err on the side of too many. A function that is not built in may write anything.
- Names stay as written. The default schema, views, triggers, foreign keys, sequences, temporary
  tables, system schemas reached by the default schema, and stored functions that carry the name
  of a function built in elsewhere (`Statement.functions`) are for who knows them to add.

Source: https://dev.mysql.com/doc/refman/9.4/en/sql-statements.html,
https://dev.mysql.com/doc/refman/9.4/en/implicit-commit.html,
https://mariadb.com/kb/en/sql-statements/,
https://mariadb.com/kb/en/sql-statements-that-cause-an-implicit-commit/.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import sqlglot
from sqlglot import exp

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql import functions
from sqlcache.sql.lexer import (
    Dialect,
    Token,
    after_definer,
    split_statements,
    string_value,
    tokenize,
    tokenize_head,
    word_set,
)
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.names import TableRef
from sqlcache.sql.tables import (
    QUERY_STARTS,
    Tables,
    leading_with,
    path_at,
    ref_of,
    scan_tables,
)


class Kind(Enum):
    """What sort of statement it is."""

    READ = "read"
    WRITE = "write"
    DDL = "ddl"
    TRANSACTION = "transaction"
    SESSION = "session"
    OTHER = "other"
    UNKNOWN = "unknown"


class Transaction(Enum):
    """What a statement does to the session's transaction."""

    START = "start"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO_SAVEPOINT = "rollback to savepoint"
    RELEASE_SAVEPOINT = "release savepoint"
    XA = "xa"


class Locks(Enum):
    """What a statement does to the locks a session holds on tables."""

    LOCK = "lock"  # LOCK TABLES, FLUSH TABLES ... WITH READ LOCK and FOR EXPORT, BACKUP LOCK
    UNLOCK = "unlock"
    BACKUP = "backup"  # BACKUP STAGE, LOCK INSTANCE FOR BACKUP


@dataclass(frozen=True, slots=True)
class Statement:
    """What one statement does.

    `reads` are the tables it names to read, `writes` those it names to change; neither holds
    common table expressions. `schemas` are those whose definitions it changes, None being the
    default schema. `functions` are the built-in functions it calls, in upper case: a stored
    function of such a name may be meant where the server does not have it.

    `settings` are session variables it surely sets, in order: the variable's lower-case name and
    its value, quotes off, words in lower case, ON and TRUE as 1, OFF and FALSE as 0. SET NAMES
    gives character_set_client, character_set_results, character_set_connection and
    collation_connection, the last as `default of CHARSET` where the text names none. SET
    TRANSACTION without SESSION concerns the next transaction only: its names start with `next_`.

    `opaque_session`: afterwards the session's settings, roles, prepared statements, temporary
    tables and locks are not known from texts. `diagnostic`: it reads what the statement before it
    left behind. `locking_read`: it takes row locks with FOR UPDATE, FOR SHARE or LOCK IN SHARE
    MODE. `directives` are what `/* sqlcache: ... */` comments say.
    """

    verb: str
    kind: Kind
    reads: frozenset[TableRef] = frozenset()
    cacheable: bool = False
    reason: str = ""
    writes: frozenset[TableRef] = frozenset()
    writes_everything: bool = False
    schemas: frozenset[str | None] = frozenset()
    may_commit: bool = False
    transaction: Transaction | None = None
    settings: tuple[tuple[str, str], ...] = ()
    opaque_session: bool = False
    use_schema: str | None = None
    temporary_created: frozenset[TableRef] = frozenset()
    temporary_dropped: frozenset[TableRef] = frozenset()
    locks: Locks | None = None
    changes_globals: bool = False
    diagnostic: bool = False
    locking_read: bool = False
    functions: frozenset[str] = frozenset()
    directives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IdentifierUse:
    """Every name a text mentions, for who must assume the worst of it, such as a trigger's body.

    `paths` are dotted names, quotes off, words included that are keywords in truth. `functions`
    are what stands before a parenthesis and is no reserved word. `opaque`: it calls routines or
    functions not built in, or runs texts, or cannot be split: it may touch anything.
    """

    paths: frozenset[tuple[str, ...]]
    functions: frozenset[tuple[str, ...]]
    opaque: bool


HEAD_BYTES = 8192  # how much of a large INSERT is read to find its table


def analyse(
    text: bytes,
    dialect: Dialect,
    *,
    multi_statements: bool = True,
    parameters_allowed: bool = False,
    head: bool = False,
) -> tuple[Statement, ...]:
    """Tells what each statement of a text does; one that is empty gives none.

    `multi_statements` is whether the session may send several at once. `parameters_allowed` is
    for the text of COM_STMT_PREPARE, where `?` stands for a value. `head` is for a text that goes
    on: then only an INSERT, REPLACE or LOAD can be known, as far as its head tells, which is
    less a function that is called further on.
    """
    options = _Options(dialect, parameters_allowed)
    try:
        if head:
            return (_analyse_head(tokenize_head(text, dialect), options),)
        if len(text) > HEAD_BYTES and not multi_statements:
            known = _analyse_large_insert(text, options)
            if known is not None:
                return (known,)
        tokens = tokenize(text, dialect)
        pieces = split_statements(tokens)
        if any(token.kind is TokenKind.VERSIONED for token in tokens):
            return _analyse_versioned(tokens, pieces, options)
        if len(pieces) > 1 and not multi_statements:
            return (_unknown("", "it holds several statements"),)
        if len(pieces) == 1:
            return (_analyse_piece(pieces[0], options, alone=not multi_statements),)
        return tuple(
            replace(_analyse_piece(piece, options), cacheable=False, reason=_SEVERAL)
            for piece in pieces
        )
    except SqlSyntaxError as error:
        return (_unknown("", str(error)),)
    except RecursionError:  # EXPLAIN EXPLAIN ..., SET STATEMENT ... FOR SET STATEMENT ...
        return (_unknown("", "it nests too deep"),)


def identifiers_in(text: bytes, dialect: Dialect) -> IdentifierUse:
    """Every dotted name and function a text mentions; never raises."""
    try:
        tokens = tokenize(text, dialect)
    except SqlSyntaxError:
        return IdentifierUse(frozenset(), frozenset(), True)
    paths: set[tuple[str, ...]] = set()
    at = 0
    while at < len(tokens):
        path = path_at(tokens, at)
        if path:
            paths.add(path.parts)
        at = path.end if path else at + 1
    called = list(_calls(tokens, frozenset(), dialect))
    words = {token.word for token in tokens}
    opaque = (
        not words.isdisjoint(_OPAQUE_WORDS)
        or any(call.stored for call in called)
        or any(token.kind in _CODE_KINDS for token in tokens)
    )
    return IdentifierUse(frozenset(paths), frozenset(call.path for call in called), opaque)


class _Options(NamedTuple):
    dialect: Dialect
    parameters_allowed: bool


_SEVERAL = "it is one of several statements in one text"
_CODE_KINDS = frozenset((TokenKind.VERSIONED, TokenKind.OTHER))
_OPAQUE_WORDS = frozenset(("CALL", "EXECUTE", "PREPARE"))
_SYSTEM_SCHEMAS = frozenset(("information_schema", "performance_schema", "mysql", "sys"))


def _unknown(verb: str, reason: str) -> Statement:
    return Statement(
        verb,
        Kind.UNKNOWN,
        reason=reason,
        writes_everything=True,
        may_commit=True,
        opaque_session=True,
        changes_globals=True,
    )


# --- the whole text ---------------------------------------------------------------------------


_INSIDE_VERSIONED = re.compile(rb"/\*(M?)!([0-9]*)(.*)\*/\Z", re.DOTALL)
_OLDEST_MYSQL = 50600  # MariaDB skips versions from 50700 to 99999, MySQL those above its own


def _analyse_versioned(
    tokens: Sequence[Token], pieces: Sequence[Sequence[Token]], options: _Options
) -> tuple[Statement, ...]:
    """Reads `/*!40101 SET ... */`, as dumps have it: all there is, and every server runs it."""
    unknown = (_unknown("", "it holds a versioned comment"),)
    if len(pieces) != 1 or len(pieces[0]) != 1:
        return unknown
    inside = _INSIDE_VERSIONED.match(tokens[0].text)
    if inside is None or inside[1] or int(inside[2][:7] or b"0") > _OLDEST_MYSQL:
        return unknown
    known = analyse(inside[3], options.dialect, multi_statements=False)
    return tuple(
        replace(s, cacheable=False, reason="it is a versioned comment") for s in known
    ) or (Statement("", Kind.OTHER, reason="it is empty"),)


def _analyse_head(tokens: Sequence[Token], options: _Options) -> Statement:
    cursor = _Cursor(tokens, options)
    verb = cursor.word
    read = {"INSERT": _insert, "REPLACE": _insert, "LOAD": _load}.get(verb)
    if read is None or any(token.kind in _CODE_KINDS for token in tokens):
        return _unknown(verb, "only its head is known")
    statement = read(cursor)
    if not cursor.rest or cursor.rest[0].text == b".":  # the table's name may go on
        return _unknown(verb, "only its head is known")
    return replace(statement, directives=_directives(tokens))


def _analyse_large_insert(text: bytes, options: _Options) -> Statement | None:
    """An INSERT ... VALUES by its head and what follows its rows, if those are plain literals.

    One search steps over the rows: megabytes of them cost milliseconds, not seconds.
    """
    if options.dialect.ansi_quotes:
        return None
    tokens = tokenize_head(text[:HEAD_BYTES], options.dialect)
    cursor = _Cursor(tokens, options)
    if cursor.word not in ("INSERT", "REPLACE"):
        return None
    _insert_target(cursor)
    cursor.skip_group()
    if not (cursor.take("VALUES") or cursor.take("VALUE")) or not cursor.rest:
        return None
    backslashes = not options.dialect.no_backslash_escapes
    rows = (_ROWS_ESCAPED if backslashes else _ROWS_PLAIN).match(text, cursor.rest[0].start)
    end = rows.end() if rows else 0
    if end <= cursor.rest[0].start or _SPLITS_A_TOKEN.match(text, end - 1):
        return None
    before = [token for token in tokens if token.start < cursor.rest[0].start]
    after = tokenize(text[end:], options.dialect)
    pieces = split_statements((*before, *after))
    if len(pieces) != 1 or any(token.kind in _CODE_KINDS for token in pieces[0]):
        return None
    return _analyse_piece(pieces[0], options, alone=True)


_ROW_PART = (
    rb"[ \t-\r.,()+-]++|0x[0-9A-Fa-f]++|[0-9]++(?:[eE][+-]?[0-9]++)?+"
    rb"|(?i:NULL|TRUE|FALSE|DEFAULT)(?=[ \t-\r,)])|(?:(?<=[ ,(])[NnXxBb])?"
)
_ROWS_ESCAPED = re.compile(
    rb"(?:" + _ROW_PART + rb"'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'"
    rb'|"[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+")*+',
    re.DOTALL,
)
_ROWS_PLAIN = re.compile(rb"(?:" + _ROW_PART + rb"'[^']*+'" + rb'|"[^"]*+")*+')
_SPLITS_A_TOKEN = re.compile(rb"[A-Za-z0-9_$.'\"\x80-\xff-][A-Za-z0-9_$'\"\x80-\xff-]")


def _directives(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(
        token.text.decode("utf-8", "replace")
        for token in tokens
        if token.kind is TokenKind.DIRECTIVE
    )


def _analyse_piece(tokens: Sequence[Token], options: _Options, *, alone: bool = False) -> Statement:
    """One statement. `alone`: the session cannot send several, so `;` only stands in a body."""
    cursor = _Cursor(tokens, options)
    if any(token.kind is TokenKind.OTHER for token in cursor.tokens):
        return _unknown(cursor.word, "it holds a byte the grammar has no use for")
    statement = _read_statement(cursor)
    bodies = any(token.text == b";" for token in cursor.tokens[:-1])
    if bodies and not alone:  # the body may end before the text does
        statement = replace(statement, writes_everything=True, may_commit=True, opaque_session=True)
    return replace(statement, directives=_directives(tokens))


def _read_statement(cursor: "_Cursor") -> Statement:
    if cursor.at >= len(cursor.tokens):
        return Statement("", Kind.OTHER, reason="it is empty")
    verb = cursor.word
    reader = _query if cursor.tokens[cursor.at].is_operator(b"(") else _READERS.get(verb)
    if reader is None:
        return _unknown(verb, "its first word is not known")
    statement = reader(cursor)
    if not statement.cacheable and not statement.reason:
        statement = replace(statement, reason=f"{statement.verb} is not a query")
    if _locks_rows(cursor.tokens):
        statement = replace(statement, locking_read=True)
    if any(_is_diagnostic(token) for token in cursor.tokens):
        statement = replace(statement, diagnostic=True)
    return statement


def _locks_rows(tokens: Sequence[Token]) -> bool:
    words = [token.word for token in tokens]
    locking = (("FOR", "UPDATE"), ("FOR", "SHARE"), ("LOCK", "IN"))
    return any(pair in locking for pair in pairwise(words))


_DIAGNOSTIC_VARIABLE = re.compile(rb"@@.*\b(?:warning_count|error_count)\b", re.IGNORECASE)


def _is_diagnostic(token: Token) -> bool:
    if token.kind is TokenKind.SYSTEM_VARIABLE:
        return _DIAGNOSTIC_VARIABLE.match(token.text.replace(b"`", b"")) is not None
    return token.word in functions.DIAGNOSTIC


# --- reading tokens ---------------------------------------------------------------------------


class _Cursor:
    """A place in a statement's tokens, hints and directives left out."""

    def __init__(self, tokens: Sequence[Token], options: _Options) -> None:
        self.hints = [token for token in tokens if token.kind is TokenKind.HINT]
        skipped = (TokenKind.HINT, TokenKind.DIRECTIVE)
        self.tokens = [token for token in tokens if token.kind not in skipped]
        self.options = options
        self.at = 0

    @property
    def word(self) -> str:
        """The word that comes next, in upper case; "" if none does."""
        return self.tokens[self.at].word if self.at < len(self.tokens) else ""

    @property
    def rest(self) -> list[Token]:
        return self.tokens[self.at :]

    def take(self, *words: str) -> bool:
        """Steps over these words if they all come next."""
        ahead = [token.word for token in self.tokens[self.at : self.at + len(words)]]
        if ahead != list(words):
            return False
        self.at += len(words)
        return True

    def take_any(self, words: frozenset[str]) -> frozenset[str]:
        """Steps over any of these words, in any order; gives those it met."""
        met = set()
        while self.word in words:
            met.add(self.word)
            self.at += 1
        return frozenset(met)

    def take_operator(self, *texts: bytes) -> bool:
        if self.at < len(self.tokens) and any(map(self.tokens[self.at].is_operator, texts)):
            self.at += 1
            return True
        return False

    def skip_group(self) -> None:
        """Steps over a parenthesis and all in it, if one comes next."""
        depth = 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            depth += token.is_operator(b"(") - token.is_operator(b")")
            if depth <= 0 and not token.is_operator(b")"):
                return
            self.at += 1
            if depth <= 0:
                return

    def skip_exists(self) -> None:
        """Steps over IF EXISTS and IF NOT EXISTS."""
        if not self.take("IF", "EXISTS"):
            self.take("IF", "NOT", "EXISTS")

    def table(self) -> TableRef | None:
        """Steps over a table's name."""
        path = path_at(self.tokens, self.at)
        ref = ref_of(path.parts) if path else None
        if path is not None and ref is not None:
            self.at = path.end
        return ref

    def tables(self) -> frozenset[TableRef] | None:
        """Steps over names of tables with commas between them; None if one cannot be read."""
        refs: set[TableRef] = set()
        while True:
            ref = self.table()
            if ref is None:
                return None
            refs.add(ref)
            if not self.take_operator(b","):
                return frozenset(refs)

    def name(self) -> str | None:
        """Steps over one undotted name."""
        if self.at < len(self.tokens) and self.tokens[self.at].kind in _NAMES:
            self.at += 1
            return self.tokens[self.at - 1].name
        return None

    def find(self, *words: str) -> int | None:
        """The index of the first of these words outside parentheses, from here on."""
        depth = 0
        for at in range(self.at, len(self.tokens)):
            token = self.tokens[at]
            depth += token.is_operator(b"(") - token.is_operator(b")")
            if depth == 0 and token.word in words:
                return at
        return None


_NAMES = (TokenKind.WORD, TokenKind.NAME)


# --- functions --------------------------------------------------------------------------------


class _Call(NamedTuple):
    path: tuple[str, ...]
    at: int
    name: str  # in upper case
    stored: bool  # surely or possibly a stored or loadable function
    empty: bool  # called without arguments


# Reserved by MySQL and MariaDB alike: before a parenthesis they are no function's name.
_NOT_CALLED = word_set(
    "ALL AND AS BETWEEN BY CASE DISTINCT DIV ELSE EXISTS FROM GROUP HAVING IN INDEX INTO IS JOIN"
    " KEY LIKE LIMIT NOT ON OR ORDER PARTITION REGEXP RETURN RLIKE SELECT SET STRAIGHT_JOIN THEN"
    " UNION USING VALUES WHEN WHERE WHILE XOR BINARY CHAR DECIMAL DOUBLE FLOAT INT NUMERIC"
    " VARCHAR VARBINARY BIGINT ELSEIF IF UNIQUE CHECK KEYS FOREIGN PRIMARY REFERENCES"
)
_QUERY_WORDS = QUERY_STARTS - {"VALUES"}  # which is a function in ON DUPLICATE KEY UPDATE
# A type, or a name with columns, follows these.
_BEFORE_COLUMN_LIST = word_set("AS INTO INSERT REPLACE IGNORE DELAYED LOW_PRIORITY")
# Not reserved everywhere, so a function may have such a name; but none follows a parenthesis.
_NOT_CALLED_AFTER_PARENTHESIS = frozenset(("OVER", "AGAINST", "VALUE"))


def _calls(
    tokens: Sequence[Token], column_lists: frozenset[int], dialect: Dialect
) -> Iterator[_Call]:
    """Every call of a function: a name before a parenthesis that means nothing else there."""
    for at in range(1, len(tokens)):
        if not tokens[at].is_operator(b"(") or at - 1 in column_lists:
            continue
        token = tokens[at - 1]
        if token.kind not in _NAMES:
            continue
        start = at - 1
        while (
            start >= 2 and tokens[start - 1].is_operator(b".") and tokens[start - 2].kind in _NAMES
        ):
            start -= 2
        before = tokens[start - 1] if start else None
        if token.kind is TokenKind.WORD and _means_no_call(token, before, tokens[at + 1 : at + 2]):
            continue
        name = token.word
        spaced = token.end != tokens[at].start and not dialect.ignore_space
        stored = name not in functions.KNOWN or (spaced and name in functions.ADJACENT_ONLY)
        empty = at + 1 < len(tokens) and tokens[at + 1].is_operator(b")")
        path = tuple(part.name for part in tokens[start:at:2])
        yield _Call(path, at - 1, name or token.name, stored, empty)


def _means_no_call(token: Token, before: Token | None, after: Sequence[Token]) -> bool:
    word = token.word
    if word in _NOT_CALLED and word not in functions.KNOWN:
        return True
    if after and after[0].word in _QUERY_WORDS:
        return True  # no function takes a query without parentheses of its own
    if before is None:
        return False
    if word in _NOT_CALLED_AFTER_PARENTHESIS and before.is_operator(b")"):
        return True
    if word == "COLUMNS":
        return before.kind in (TokenKind.STRING, TokenKind.PARAMETER)
    return before.word in _BEFORE_COLUMN_LIST or (before.word == "MEMBER" and word == "OF")


class _Use(NamedTuple):
    """What the functions of a statement mean for it."""

    names: frozenset[str]
    stored: str  # the name of one that may be a stored function, or ""
    not_cacheable: str  # the name of one whose answers must not be cached, or ""
    sequences: frozenset[TableRef]
    odd_sequence: bool


def _function_use(
    cursor: "_Cursor", tokens: Sequence[Token], column_lists: frozenset[int] = frozenset()
) -> _Use:
    names: set[str] = set()
    stored = not_cacheable = ""
    sequences: set[TableRef] = set()
    odd = False
    for call in _calls(tokens, column_lists, cursor.options.dialect):
        names.add(call.name)
        if call.stored:
            stored = stored or call.name
        elif call.name in functions.SEQUENCE:
            path = path_at(tokens, call.at + 2)
            ref = ref_of(path.parts) if path else None
            odd = odd or ref is None
            sequences |= {ref} if ref else set()
        if call.name not in functions.DETERMINISTIC and not (
            call.name in functions.CLOCK_WITHOUT_ARGUMENTS and not call.empty
        ):
            not_cacheable = not_cacheable or call.name
    for at, token in enumerate(tokens):
        if token.word in functions.BARE:
            not_cacheable = not_cacheable or token.word
        if token.word == "VALUE" and at + 1 < len(tokens) and tokens[at + 1].word == "FOR":
            path = path_at(tokens, at + 2)  # NEXT VALUE FOR, PREVIOUS VALUE FOR
            ref = ref_of(path.parts) if path else None
            odd = odd or ref is None
            sequences |= {ref} if ref else set()
        if token.kind is TokenKind.NAME and token.text.upper() in (b"NEXTVAL", b"CURRVAL"):
            odd = True  # s.NEXTVAL under sql_mode ORACLE
    return _Use(frozenset(names), stored, not_cacheable, frozenset(sequences), odd)


def _with_functions(statement: Statement, use: _Use) -> Statement:
    """Adds what a statement's functions may write."""
    return replace(
        statement,
        writes=statement.writes | use.sequences,
        writes_everything=statement.writes_everything or bool(use.stored) or use.odd_sequence,
        may_commit=statement.may_commit,
        functions=use.names,
        reason=statement.reason
        or (f"calls {use.stored}(), which is not built in" if use.stored else ""),
    )


# --- queries ----------------------------------------------------------------------------------


_REFUSED_WORDS = {
    "INTO": "stores its answer with INTO",
    "LOCK": "locks what it reads",
    "SQL_CALC_FOUND_ROWS": "leaves a count for FOUND_ROWS()",
    "SQL_NO_CACHE": "asks for SQL_NO_CACHE",
    "PROCEDURE": "calls a PROCEDURE",
    "SYSTEM_TIME": "reads another time's rows",
    "TABLESAMPLE": "reads a sample",
}
_REFUSED_KINDS = {
    TokenKind.USER_VARIABLE: "uses a user variable",
    TokenKind.SYSTEM_VARIABLE: "uses a system variable",
    TokenKind.VERSIONED: "holds a versioned comment",
    TokenKind.OTHER: "holds a byte the grammar has no use for",
}
_REFUSED_OPERATORS = {
    b":=": "assigns a variable",
    b"{": "holds an ODBC escape",
    b"}": "holds an ODBC escape",
    b":": "holds a colon",
    b";": "holds a semicolon",
}
_INDEX_HINT_SCOPES = frozenset(("JOIN", "ORDER", "GROUP"))


def _query(cursor: _Cursor) -> Statement:
    """SELECT, WITH, TABLE, VALUES and what starts with a parenthesis."""
    if cursor.word == "WITH":
        clause = leading_with(cursor.rest)
        verb = cursor.tokens[clause.end].word if clause and clause.end < len(cursor.rest) else ""
        if clause is None or verb not in ("", "SELECT", "TABLE", "VALUES", "UPDATE", "DELETE"):
            return _unknown("WITH", "its WITH clause cannot be read")
        if verb in ("UPDATE", "DELETE"):
            return _with_change(cursor, clause.end, clause.ctes)
    tables = scan_tables(cursor.tokens)
    use = _function_use(cursor, cursor.tokens, tables.column_lists)
    reason = _refusal(cursor, tables, use)
    verb = cursor.word or "SELECT"
    statement = Statement(verb, Kind.READ, reads=tables.refs, cacheable=not reason, reason=reason)
    return _with_functions(statement, use)


def _refusal(cursor: _Cursor, tables: Tables, use: _Use) -> str:
    """Why a query must not be cached; "" if it may."""
    for at, token in enumerate(cursor.tokens):
        reason = _token_refusal(cursor, at, token)
        if reason:
            return reason
    if any(b"SET_VAR" in hint.text.upper() for hint in cursor.hints):
        return "sets a variable in a hint"
    if use.stored:
        return f"calls {use.stored}(), which is not built in"
    if use.not_cacheable:
        return f"calls {use.not_cacheable}(), which is not deterministic"
    if use.sequences or use.odd_sequence:
        return "uses a sequence"
    if tables.doubt:
        return f"its tables are not certain: {tables.doubt}"
    if not tables.refs:
        return "reads no table"
    for ref in tables.refs:
        if ref.schema is not None and ref.schema.lower() in _SYSTEM_SCHEMAS:
            return f"reads {ref.schema}"
    return _disagreement(cursor, tables)


def _token_refusal(cursor: _Cursor, at: int, token: Token) -> str:
    word = token.word
    if word == "FOR":
        following = cursor.tokens[at + 1] if at + 1 < len(cursor.tokens) else None
        length = following is not None and following.kind in (
            TokenKind.NUMBER,
            TokenKind.PARAMETER,
        )
        index_hint = following is not None and following.word in _INDEX_HINT_SCOPES
        return "" if length or index_hint else "locks what it reads, or reads another time's rows"
    if word:
        return _REFUSED_WORDS.get(word, "")
    if token.kind is TokenKind.OPERATOR:
        return _REFUSED_OPERATORS.get(token.text, "")
    if token.kind is TokenKind.PARAMETER and not cursor.options.parameters_allowed:
        return "holds a parameter marker outside a prepared statement"
    return _REFUSED_KINDS.get(token.kind, "")


def _disagreement(cursor: _Cursor, tables: Tables) -> str:
    """Why sqlglot's reading of a query differs from ours; "" if it does not.

    sqlglot reads our tokens, written anew so that it needs to know neither sql_mode nor comments.
    Both must name the same tables, common table expressions included.
    """
    try:
        trees = sqlglot.parse(_plain_text(cursor.tokens), dialect="mysql")
    except Exception:  # a parser of many dialects may fail in any way on odd text
        return "sqlglot cannot parse it"
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query) or tree.find(exp.Command):
        return "sqlglot does not read it as a query"
    theirs = set()
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.JSONTable):
            continue
        if not isinstance(table.this, exp.Identifier):
            return "sqlglot reads a table that is no name"
        if table.name.upper() != "DUAL" or table.db or table.this.quoted:
            theirs.add((table.catalog, table.db, table.name))
    ours = {("", factor.ref.schema or "", factor.ref.name) for factor in tables.factors}
    return "" if ours == theirs else "sqlglot reads other tables in it"


def _plain_text(tokens: Sequence[Token]) -> str:
    """The tokens written anew: literals without content, long lists of them cut to one."""
    plain: list[str] = []
    for token in tokens:
        text = _plainly(token)
        if text in _PLAIN_LITERALS and plain[-1:] == [","] and plain[-2] == text:
            plain.pop()
        else:
            plain.append(text)
    return " ".join(plain)


_PLAIN_LITERALS = ("'$'", "1")


def _plainly(token: Token) -> str:
    if token.kind is TokenKind.STRING:
        return "'$'"
    if token.kind is TokenKind.NUMBER:
        return "1"
    if token.kind is TokenKind.NAME:
        return "`" + token.name.replace("`", "``") + "`"
    return token.name


# --- changes of rows --------------------------------------------------------------------------


_INSERT_WORDS = frozenset(("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"))


def _insert_target(cursor: _Cursor) -> TableRef | None:
    cursor.at += 1
    cursor.take_any(_INSERT_WORDS)
    target = cursor.table()
    if cursor.take("PARTITION"):
        cursor.skip_group()
    return target


def _insert(cursor: _Cursor) -> Statement:
    """INSERT and REPLACE, their sources included."""
    verb = cursor.word
    target = _insert_target(cursor)
    if target is None:
        return _unknown(verb, "its table cannot be read")
    after = cursor.rest
    tables = scan_tables(after) if _holds_query(after) else scan_tables(())
    value = frozenset((0,)) if after and after[0].word == "VALUE" else frozenset()
    columns = tables.column_lists | value
    return _with_functions(
        Statement(verb, Kind.WRITE, reads=tables.refs, writes=frozenset((target,))),
        _function_use(cursor, after, columns),
    )


def _holds_query(tokens: Sequence[Token]) -> bool:
    return any(token.word in ("SELECT", "TABLE") for token in tokens)


def _update(cursor: _Cursor, ctes: frozenset[str] = frozenset()) -> Statement:
    cursor.at += 1
    cursor.take_any(frozenset(("LOW_PRIORITY", "IGNORE")))
    found = scan_tables(cursor.rest, in_list=True, ctes=ctes)
    writes = frozenset(f.ref for f in found.factors if not f.nested and not f.is_cte)
    if found.doubt or not writes:
        return _unknown("UPDATE", f"its tables are not certain: {found.doubt}")
    return _with_functions(
        Statement("UPDATE", Kind.WRITE, reads=found.refs, writes=writes),
        _function_use(cursor, cursor.rest, found.column_lists),
    )


def _delete(cursor: _Cursor, ctes: frozenset[str] = frozenset()) -> Statement:
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
            return _unknown("DELETE", "its tables cannot be read")
    found = scan_tables(cursor.rest, in_list=True, ctes=ctes)
    if found.doubt:
        return _unknown("DELETE", f"its tables are not certain: {found.doubt}")
    return _with_functions(
        Statement("DELETE", Kind.WRITE, reads=found.refs, writes=_deleted(targets, found)),
        _function_use(cursor, cursor.rest, found.column_lists),
    )


def _delete_targets(cursor: _Cursor) -> list[TableRef]:
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
    deleted: set[TableRef] = set()
    for target in targets:
        meant = {f.ref for f in listed if (f.alias or f.ref.name) == target.name}
        if len(meant) != 1:
            return everything | frozenset(targets)
        deleted |= meant
    return frozenset(deleted)


def _with_change(cursor: _Cursor, end: int, ctes: frozenset[str]) -> Statement:
    """WITH ... UPDATE and WITH ... DELETE."""
    before = scan_tables(cursor.tokens[:end])
    use = _function_use(cursor, cursor.tokens[:end], before.column_lists)
    cursor.at = end
    statement = _update(cursor, ctes) if cursor.word == "UPDATE" else _delete(cursor, ctes)
    joined = _with_functions(statement, use)
    return replace(
        joined,
        reads=statement.reads | before.refs,
        functions=statement.functions | use.names,
    )


def _load(cursor: _Cursor) -> Statement:
    """LOAD DATA, LOAD XML and LOAD INDEX INTO CACHE."""
    cursor.at += 1
    if cursor.take("INDEX"):
        return Statement("LOAD", Kind.OTHER, may_commit=True)
    into = cursor.find("INTO")
    if into is None or cursor.word not in ("DATA", "XML"):
        return _unknown("LOAD", "its table cannot be read")
    cursor.at = into + 1
    target = cursor.table() if cursor.take("TABLE") else None
    if target is None:
        return _unknown("LOAD", "its table cannot be read")
    if cursor.take("PARTITION"):
        cursor.skip_group()
    fields = cursor.find("SET")
    use = _function_use(cursor, cursor.tokens[fields:] if fields is not None else ())
    return _with_functions(Statement("LOAD", Kind.WRITE, writes=frozenset((target,))), use)


def _handler(cursor: _Cursor) -> Statement:
    cursor.at += 1
    ref = cursor.table()
    use = _function_use(cursor, cursor.rest)
    reads = frozenset((ref,)) if ref else frozenset()
    return _with_functions(Statement("HANDLER", Kind.READ, reads=reads), use)


def _call(cursor: _Cursor) -> Statement:
    return replace(
        _unknown(cursor.word, "what it runs is not in its text"),
        kind=Kind.OTHER,
    )


def _do(cursor: _Cursor) -> Statement:
    tables = scan_tables(cursor.rest)
    statement = Statement("DO", Kind.OTHER, reads=tables.refs)
    return _with_functions(statement, _function_use(cursor, cursor.rest, tables.column_lists))


# --- definitions ------------------------------------------------------------------------------


_IN_SCHEMA = frozenset(("VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "SEQUENCE", "PACKAGE"))
_OBJECTS = _IN_SCHEMA | frozenset(("TABLE", "TABLES", "INDEX", "DATABASE", "SCHEMA"))
_BEFORE_OBJECT = word_set(
    "OR REPLACE TEMPORARY ONLINE OFFLINE IGNORE UNIQUE FULLTEXT SPATIAL VECTOR AGGREGATE"
    " UNDEFINED MERGE TEMPTABLE SQL SECURITY INVOKER"
)


def _everything(verb: str, kind: Kind = Kind.DDL) -> Statement:
    """A statement that may change the answer of any other, such as GRANT, but not its session."""
    return Statement(verb, kind, writes_everything=True, may_commit=True)


def _privileges(cursor: _Cursor) -> Statement:
    return replace(_everything(cursor.word), reason="it changes privileges")


def _object(cursor: _Cursor) -> tuple[frozenset[str], str]:
    """Steps over CREATE's, ALTER's or DROP's options and the word for what it concerns."""
    cursor.at += 1
    options: set[str] = set()
    while True:
        if cursor.word == "DEFINER":
            cursor.at = after_definer(cursor.tokens, cursor.at)
        elif cursor.take("ALGORITHM"):
            cursor.take_operator(b"=")
        elif cursor.word in _BEFORE_OBJECT:
            options.add(cursor.word)
            cursor.at += 1
        elif cursor.take("SQL", "SECURITY", "DEFINER"):
            continue
        else:
            break
        if cursor.take("SECURITY"):
            cursor.at += 1
    word = cursor.word
    cursor.at += 1
    return frozenset(options), word


def _ddl(
    verb: str,
    refs: frozenset[TableRef],
    *,
    schemas: frozenset[str | None] | None = None,
    reads: frozenset[TableRef] = frozenset(),
) -> Statement:
    if schemas is None:
        schemas = frozenset(ref.schema for ref in refs)
    return Statement(verb, Kind.DDL, reads=reads, writes=refs, schemas=schemas, may_commit=True)


def _create(cursor: _Cursor) -> Statement:
    options, word = _object(cursor)
    if word in ("DATABASE", "SCHEMA"):
        return _schema_ddl(cursor, "CREATE")
    if word == "INDEX":
        return _index_ddl(cursor, "CREATE")
    if word not in _OBJECTS:
        return _everything("CREATE")
    if word == "PACKAGE":
        cursor.take("BODY")
    cursor.skip_exists()
    ref = cursor.table()
    if ref is None:
        return _unknown("CREATE", "its name cannot be read")
    if word in ("TABLE", "SEQUENCE"):
        return _create_table(cursor, ref, "TEMPORARY" in options)
    refs = frozenset((ref,))
    if word == "TRIGGER":
        on = cursor.find("ON")
        cursor.at = on + 1 if on is not None else len(cursor.tokens)
        table = cursor.table()
        return _ddl("CREATE", refs | ({table} if table else set()))
    return _ddl("CREATE", refs if word == "VIEW" else frozenset(), schemas=frozenset((ref.schema,)))


def _create_table(cursor: _Cursor, ref: TableRef, temporary: bool) -> Statement:
    query = next((at for at, t in enumerate(cursor.rest) if t.word in ("SELECT", "WITH")), None)
    after = cursor.rest[query:] if query is not None else []
    parts = cursor.rest if query is not None else []
    tables = scan_tables(parts)
    refs = frozenset((ref,))
    if temporary:
        statement = Statement("CREATE", Kind.DDL, reads=tables.refs, temporary_created=refs)
    else:
        merged = _tables_after(cursor, ("UNION",)) if cursor.find("UNION") else frozenset()
        statement = _ddl("CREATE", refs, reads=tables.refs | merged)
    return _with_functions(statement, _function_use(cursor, after))


def _tables_after(cursor: _Cursor, words: tuple[str, ...]) -> frozenset[TableRef]:
    """The tables named after any place where these words follow each other."""
    refs: set[TableRef] = set()
    ahead = [token.word for token in cursor.tokens]
    for at in range(len(ahead) - len(words)):
        if tuple(ahead[at : at + len(words)]) == words:
            path = path_at(cursor.tokens, at + len(words))
            ref = ref_of(path.parts) if path else None
            refs |= {ref} if ref else set()
    return frozenset(refs)


def _schema_ddl(cursor: _Cursor, verb: str) -> Statement:
    cursor.skip_exists()
    path = path_at(cursor.tokens, cursor.at)
    schemas: frozenset[str | None] = frozenset(path.parts if path else ())
    if verb == "ALTER":  # the name may be left out
        schemas |= {None}
    return _ddl(verb, frozenset(), schemas=schemas)


def _index_ddl(cursor: _Cursor, verb: str) -> Statement:
    on = cursor.find("ON")
    cursor.at = on + 1 if on is not None else len(cursor.tokens)
    ref = cursor.table()
    return _ddl(verb, frozenset((ref,))) if ref else _unknown(verb, "its table cannot be read")


def _alter(cursor: _Cursor) -> Statement:
    _, word = _object(cursor)
    if word in ("DATABASE", "SCHEMA"):
        return _schema_ddl(cursor, "ALTER")
    if word not in _OBJECTS:
        return _everything("ALTER")
    cursor.skip_exists()
    ref = cursor.table()
    if ref is None:
        return _unknown("ALTER", "its name cannot be read")
    if word == "EVENT":
        moved = _tables_after(cursor, ("RENAME", "TO"))
        return _ddl("ALTER", frozenset(), schemas=frozenset(r.schema for r in moved | {ref}))
    if word in ("PROCEDURE", "FUNCTION", "PACKAGE"):
        return _ddl("ALTER", frozenset(), schemas=frozenset((ref.schema,)))
    if word != "TABLE":
        return _ddl("ALTER", frozenset((ref,)))
    return _ddl("ALTER", frozenset((ref,)) | _other_tables_of_alter(cursor))


_RENAMED_PARTS = frozenset(("COLUMN", "INDEX", "KEY", "CONSTRAINT"))


def _other_tables_of_alter(cursor: _Cursor) -> frozenset[TableRef]:
    """New names, tables swapped with partitions, tables of a MERGE, tables referred to."""
    refs = set(_tables_after(cursor, ("WITH", "TABLE")) | _tables_after(cursor, ("TO", "TABLE")))
    refs |= _tables_after(cursor, ("CONVERT", "TABLE")) | _tables_after(cursor, ("REFERENCES",))
    for at, token in enumerate(cursor.tokens):
        if token.word == "RENAME":
            follower = _Cursor(cursor.tokens[at + 1 :], cursor.options)
            if follower.word in _RENAMED_PARTS:
                continue
            _ = follower.take("TO") or follower.take("AS") or follower.take_operator(b"=")
            ref = follower.table()
            refs |= {ref} if ref else set()
        if token.word == "UNION":
            follower = _Cursor(cursor.tokens[at + 1 :], cursor.options)
            follower.take_operator(b"=")
            if follower.take_operator(b"("):
                refs |= follower.tables() or frozenset()
    return frozenset(refs)


def _drop(cursor: _Cursor) -> Statement:
    options, word = _object(cursor)
    if word == "PREPARE":
        return Statement("DROP", Kind.SESSION)
    if word in ("DATABASE", "SCHEMA"):
        return _schema_ddl(cursor, "DROP")
    if word == "INDEX":
        return _index_ddl(cursor, "DROP")
    if word not in _OBJECTS:
        return _everything("DROP")
    if word == "PACKAGE":
        cursor.take("BODY")
    cursor.skip_exists()
    refs = cursor.tables()
    if refs is None:
        return _unknown("DROP", "its names cannot be read")
    if "TEMPORARY" in options:
        return Statement("DROP", Kind.DDL, temporary_dropped=refs)
    if word in ("TABLE", "TABLES", "SEQUENCE"):
        return replace(_ddl("DROP", refs), temporary_dropped=refs)
    schemas: frozenset[str | None] = frozenset(ref.schema for ref in refs)
    return _ddl("DROP", refs if word == "VIEW" else frozenset(), schemas=schemas)


def _rename(cursor: _Cursor) -> Statement:
    cursor.at += 1
    if not cursor.take("TABLE") and not cursor.take("TABLES"):
        return _everything("RENAME")
    cursor.skip_exists()
    refs: set[TableRef] = set()
    while True:
        old = cursor.table()
        while cursor.word in ("WAIT", "NOWAIT"):
            cursor.at += 1 + (cursor.word == "WAIT")
        new = cursor.table() if cursor.take("TO") else None
        if old is None or new is None:
            return _unknown("RENAME", "its names cannot be read")
        refs |= {old, new}
        if not cursor.take_operator(b","):
            return _ddl("RENAME", frozenset(refs))


def _truncate(cursor: _Cursor) -> Statement:
    cursor.at += 1
    cursor.take("TABLE")
    ref = cursor.table()
    if ref is None:
        return _unknown("TRUNCATE", "its table cannot be read")
    return _ddl("TRUNCATE", frozenset((ref,)), schemas=frozenset())


_MAINTENANCE_WORDS = frozenset(("NO_WRITE_TO_BINLOG", "LOCAL"))


def _maintain(cursor: _Cursor) -> Statement:
    """OPTIMIZE, REPAIR, CHECK, CHECKSUM and ANALYZE TABLE: the first two may change rows."""
    verb = cursor.word
    cursor.at += 1
    cursor.take_any(_MAINTENANCE_WORDS)
    if not any(cursor.take(word) for word in ("TABLE", "TABLES", "VIEW")):
        cursor.at = 0
        return _explain(cursor) if verb == "ANALYZE" else _unknown(verb, "it is not known")
    refs = cursor.tables()
    if refs is None:
        return _unknown(verb, "its tables cannot be read")
    if verb in ("OPTIMIZE", "REPAIR"):
        return _ddl(verb, refs, schemas=frozenset())
    return Statement(verb, Kind.OTHER, reads=refs, may_commit=verb != "CHECKSUM")


# --- transactions, locks, the session ---------------------------------------------------------


def _transaction(cursor: _Cursor) -> Statement:
    verb = cursor.word
    cursor.at += 1
    if verb == "BEGIN":
        if not cursor.rest or cursor.take("WORK"):
            return Statement(verb, Kind.TRANSACTION, may_commit=True, transaction=Transaction.START)
        return _unknown(verb, "what it runs is not in its text")
    if verb == "START":
        if cursor.take("TRANSACTION"):
            return Statement(verb, Kind.TRANSACTION, may_commit=True, transaction=Transaction.START)
        return Statement(verb, Kind.OTHER, may_commit=True)  # REPLICA, GROUP_REPLICATION
    if verb == "COMMIT":
        return Statement(verb, Kind.TRANSACTION, may_commit=True, transaction=Transaction.COMMIT)
    if verb == "ROLLBACK":
        cursor.take("WORK")
        partly = cursor.word == "TO"
        kind = Transaction.ROLLBACK_TO_SAVEPOINT if partly else Transaction.ROLLBACK
        return Statement(verb, Kind.TRANSACTION, transaction=kind)
    kind = Transaction.SAVEPOINT if verb == "SAVEPOINT" else Transaction.RELEASE_SAVEPOINT
    return Statement(verb, Kind.TRANSACTION, transaction=kind)


_XA_WITHOUT_WRITES = frozenset(("START", "BEGIN", "END", "PREPARE", "RECOVER"))


def _xa(cursor: _Cursor) -> Statement:
    cursor.at += 1
    harmless = cursor.word in _XA_WITHOUT_WRITES
    return Statement(
        "XA",
        Kind.TRANSACTION,
        transaction=None if cursor.word == "RECOVER" else Transaction.XA,
        writes_everything=not harmless,
        may_commit=not harmless,
        reason="it is about an XA transaction",
    )


def _lock(cursor: _Cursor) -> Statement:
    verb = cursor.word
    cursor.at += 1
    if cursor.word not in ("TABLE", "TABLES"):
        return Statement(verb, Kind.OTHER, locks=Locks.BACKUP, may_commit=True)
    return Statement(verb, Kind.OTHER, locks=Locks[verb], may_commit=True)


def _backup(cursor: _Cursor) -> Statement:
    cursor.at += 1
    return Statement("BACKUP", Kind.OTHER, locks=Locks.BACKUP, may_commit=True)


_FLUSHED_WITHOUT_WRITES = word_set(
    "LOGS BINARY ENGINE ERROR GENERAL RELAY SLOW STATUS HOSTS USER_RESOURCES USER_STATISTICS"
    " CLIENT_STATISTICS INDEX_STATISTICS TABLE_STATISTICS QUERY OPTIMIZER_COSTS SSL"
)


def _flush(cursor: _Cursor) -> Statement:
    """FLUSH: of TABLES it may be that their files were replaced, of PRIVILEGES the grants."""
    cursor.at += 1
    cursor.take_any(_MAINTENANCE_WORDS)
    if cursor.word in _FLUSHED_WITHOUT_WRITES:
        return Statement("FLUSH", Kind.OTHER, may_commit=True)
    if not cursor.take("TABLE") and not cursor.take("TABLES"):
        return _everything("FLUSH", Kind.OTHER)
    locks = Locks.LOCK if cursor.find("WITH", "FOR") is not None else None
    refs = None if cursor.word in ("WITH", "") else cursor.tables()
    if refs is None:
        return replace(_everything("FLUSH", Kind.OTHER), locks=locks)
    return Statement("FLUSH", Kind.OTHER, writes=refs, locks=locks, may_commit=True)


def _use(cursor: _Cursor) -> Statement:
    cursor.at += 1
    schema = cursor.name()
    if schema is None:
        return _unknown("USE", "its schema cannot be read")
    return Statement("USE", Kind.SESSION, use_schema=schema)


def _prepare(cursor: _Cursor) -> Statement:
    """PREPARE and DEALLOCATE: no table is touched until EXECUTE."""
    return Statement(cursor.word, Kind.SESSION)


def _show(cursor: _Cursor) -> Statement:
    verb = cursor.word
    cursor.at += 1
    asked = {token.word for token in cursor.tokens[cursor.at : cursor.at + 6]}
    diagnostic = verb == "SHOW" and not asked.isdisjoint(("WARNINGS", "ERRORS"))
    return Statement(verb, Kind.READ, diagnostic=diagnostic)


def _get_diagnostics(cursor: _Cursor) -> Statement:
    return Statement("GET", Kind.READ, diagnostic=True)


def _harmless(cursor: _Cursor) -> Statement:
    """A statement that changes neither rows nor what a session may see, but may commit."""
    return Statement(cursor.word, Kind.OTHER, may_commit=True)


def _server_change(cursor: _Cursor) -> Statement:
    """INSTALL, UNINSTALL, CLONE, IMPORT: what the server can do, or holds, is another."""
    return replace(_everything(cursor.word, Kind.OTHER), changes_globals=True)


def _explain(cursor: _Cursor) -> Statement:
    """EXPLAIN and DESCRIBE; with ANALYZE, and MariaDB's ANALYZE, the statement does run."""
    verb = cursor.word
    runs = verb == "ANALYZE"
    cursor.at += 1
    while cursor.word in ("ANALYZE", "EXTENDED", "PARTITIONS", "FORMAT"):
        runs = runs or cursor.word == "ANALYZE"
        cursor.at += 1
        if cursor.take_operator(b"="):
            cursor.at += 1
    if cursor.take("FOR"):  # CONNECTION, SCHEMA
        if cursor.word in ("SCHEMA", "DATABASE"):
            cursor.at += 1
        if cursor.at + 1 < len(cursor.tokens):
            cursor.at += 1
    begins = cursor.word in _READERS or (cursor.rest and cursor.rest[0].is_operator(b"("))
    if not begins:
        reads = frozenset() if runs else frozenset(filter(None, (cursor.table(),)))
        return Statement(verb, Kind.READ, reads=reads)
    inner = _read_statement(_Cursor(cursor.rest, cursor.options))
    if runs:
        return replace(inner, verb=verb, cacheable=False, reason=f"{verb} is not a query")
    return Statement(
        verb,
        Kind.READ,
        reads=inner.reads | inner.writes,
        writes_everything=bool(_function_use(cursor, cursor.rest).stored)
        and inner.writes_everything,
        functions=inner.functions,
    )


# --- SET --------------------------------------------------------------------------------------


_GLOBAL_SCOPES = frozenset(("GLOBAL", "PERSIST", "PERSIST_ONLY"))
_SESSION_SCOPES = frozenset(("SESSION", "LOCAL"))
_AS_NUMBER = {"ON": "1", "TRUE": "1", "OFF": "0", "FALSE": "0"}


def _set(cursor: _Cursor) -> Statement:
    """SET: an assignment it cannot read makes the session opaque, a global one is everything."""
    cursor.at += 1
    if cursor.take("STATEMENT"):
        return _set_statement(cursor)
    first = cursor.word
    if first in _SESSION_SCOPES and cursor.rest[1:2] and cursor.rest[1].word == "TRANSACTION":
        cursor.at += 1
        return _set_transaction(cursor, "")
    if first == "TRANSACTION":
        return _set_transaction(cursor, "next_")
    if first == "PASSWORD" or cursor.take("DEFAULT", "ROLE"):
        return _everything("SET")
    if first == "ROLE":
        return Statement("SET", Kind.SESSION, opaque_session=True)
    if first == "RESOURCE":
        return Statement("SET", Kind.SESSION)
    use = _function_use(cursor, cursor.rest)
    reads = scan_tables(cursor.rest).refs
    parts = _assignments(cursor)
    settings = tuple(setting for part in parts for setting in part.settings)
    changes_globals = any(part.is_global for part in parts)
    statement = Statement(
        "SET",
        Kind.SESSION,
        reads=reads,
        settings=settings,
        opaque_session=any(part.opaque for part in parts) or bool(use.stored),
        changes_globals=changes_globals,
        writes_everything=changes_globals,
        may_commit=any(token.name.lower().endswith("autocommit") for token in cursor.rest),
    )
    return _with_functions(statement, use)


def _set_statement(cursor: _Cursor) -> Statement:
    """MariaDB's SET STATEMENT variable = value FOR statement."""
    target = cursor.find("FOR")
    if target is None:
        return _unknown("SET", "its statement cannot be read")
    use = _function_use(cursor, cursor.tokens[cursor.at : target])
    inner = _read_statement(_Cursor(cursor.tokens[target + 1 :], cursor.options))
    found = _with_functions(inner, use)
    return replace(
        found,
        verb="SET",
        cacheable=False,
        reason="it sets variables for itself",
        functions=inner.functions | use.names,
    )


def _comma_separated(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.is_operator(b"(") - token.is_operator(b")")
        if depth == 0 and token.is_operator(b","):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class _Assignment(NamedTuple):
    settings: tuple[tuple[str, str], ...] = ()
    opaque: bool = False
    is_global: bool = False


_OPAQUE = _Assignment(opaque=True)


def _assignments(cursor: _Cursor) -> list[_Assignment]:
    """SET's parts: the word GLOBAL also holds for later parts that name no scope."""
    parts: list[_Assignment] = []
    global_scope = False
    for tokens in _comma_separated(cursor.rest):
        part = _Cursor(tokens, cursor.options)
        scope = part.word if len(tokens) > 2 else ""
        if scope in _GLOBAL_SCOPES or scope in _SESSION_SCOPES:
            global_scope = scope in _GLOBAL_SCOPES
            part.at += 1
        assignment = _Assignment(is_global=True) if scope in _GLOBAL_SCOPES else _assignment(part)
        bare = scope not in _SESSION_SCOPES and tokens[:1] and tokens[0].kind in _NAMES
        parts.append(_Assignment(is_global=True) if global_scope and bare else assignment)
    return parts


def _assignment(cursor: _Cursor) -> _Assignment:
    if cursor.take("NAMES"):
        return _names_settings(cursor)
    if cursor.take("CHARACTER", "SET") or cursor.take("CHARSET"):
        return _charset_settings(cursor)
    if cursor.rest and cursor.rest[0].kind is TokenKind.USER_VARIABLE:
        return _Assignment()
    name, is_global = _variable_name(cursor)
    if is_global:
        return _Assignment(is_global=True)
    if not name or not cursor.take_operator(b"=", b":="):
        return _OPAQUE
    value = _value(cursor)
    return _Assignment(((name, value),)) if value is not None else _OPAQUE


def _variable_name(cursor: _Cursor) -> tuple[str, bool]:
    """Steps over a variable's name: it in lower case, and whether it is the global one."""
    if cursor.at >= len(cursor.tokens):
        return "", False
    token = cursor.tokens[cursor.at]
    if token.kind is TokenKind.SYSTEM_VARIABLE:
        cursor.at += 1
        scope, _, name = token.text[2:].replace(b"`", b"").decode().rpartition(".")
        if scope.upper() in _GLOBAL_SCOPES:
            return name.lower(), True
        plain = name.isidentifier() and scope.upper() in ("", *_SESSION_SCOPES)
        return (name.lower() if plain else ""), False
    path = path_at(cursor.tokens, cursor.at)
    cursor.at = path.end if path else cursor.at
    return (path.parts[0].lower() if path and len(path.parts) == 1 else ""), False


def _value(cursor: _Cursor) -> str | None:
    """Steps over a literal that ends the assignment: its normal form, or None."""
    sign = "-" if cursor.take_operator(b"-") else ""
    if cursor.at != len(cursor.tokens) - 1:
        return None
    token = cursor.tokens[cursor.at]
    if token.kind is TokenKind.NUMBER:
        return sign + token.text.decode()
    if sign:
        return None
    if token.kind is TokenKind.STRING and token.text[:1] in (b"'", b'"'):
        return string_value(token, cursor.options.dialect)
    if token.kind is TokenKind.WORD and token.word not in ("DEFAULT", "NULL", *functions.BARE):
        return _AS_NUMBER.get(token.word, token.name.lower())
    return None


def _charset_name(cursor: _Cursor) -> str | None:
    if cursor.at >= len(cursor.tokens):
        return None
    token = cursor.tokens[cursor.at]
    cursor.at += 1
    if token.kind is TokenKind.STRING and token.text[:1] in (b"'", b'"'):
        return string_value(token, cursor.options.dialect).lower()
    if token.kind is TokenKind.WORD and token.word != "DEFAULT":
        return token.name.lower()
    return None


def _names_settings(cursor: _Cursor) -> _Assignment:
    charset = _charset_name(cursor)
    collation = f"default of {charset}"
    if cursor.take("COLLATE"):
        collation = _charset_name(cursor) or ""
    if charset is None or not collation or cursor.rest:
        return _OPAQUE
    return _Assignment(
        (
            ("character_set_client", charset),
            ("character_set_results", charset),
            ("character_set_connection", charset),
            ("collation_connection", collation),
        )
    )


def _charset_settings(cursor: _Cursor) -> _Assignment:
    """SET CHARACTER SET: the connection's own set becomes the default schema's, not in the text."""
    charset = _charset_name(cursor)
    if charset is None or cursor.rest:
        return _OPAQUE
    known = (("character_set_client", charset), ("character_set_results", charset))
    return _Assignment(known, opaque=True)


_ISOLATION_LEVELS = {
    ("READ", "UNCOMMITTED"): "read-uncommitted",
    ("READ", "COMMITTED"): "read-committed",
    ("REPEATABLE", "READ"): "repeatable-read",
    ("SERIALIZABLE",): "serializable",
}


def _set_transaction(cursor: _Cursor, prefix: str) -> Statement:
    """SET [SESSION] TRANSACTION: an isolation level, an access mode, or both."""
    cursor.at += 1
    settings: list[tuple[str, str]] = []
    for tokens in _comma_separated(cursor.rest):
        words = tuple(token.word for token in tokens)
        if words[:2] == ("ISOLATION", "LEVEL") and words[2:] in _ISOLATION_LEVELS:
            settings.append((prefix + "transaction_isolation", _ISOLATION_LEVELS[words[2:]]))
        elif words in (("READ", "ONLY"), ("READ", "WRITE")):
            settings.append((prefix + "transaction_read_only", str(int(words[1] == "ONLY"))))
        else:
            return Statement("SET", Kind.SESSION, opaque_session=True)
    return Statement("SET", Kind.SESSION, settings=tuple(settings))


_READERS: dict[str, Callable[[_Cursor], Statement]] = {
    **dict.fromkeys(("SELECT", "WITH", "TABLE", "VALUES"), _query),
    **dict.fromkeys(("INSERT", "REPLACE"), _insert),
    **dict.fromkeys(("CALL", "EXECUTE", "BINLOG"), _call),
    **dict.fromkeys(("GRANT", "REVOKE"), _privileges),
    **dict.fromkeys(("OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "ANALYZE"), _maintain),
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"), _transaction),
    **dict.fromkeys(("LOCK", "UNLOCK"), _lock),
    **dict.fromkeys(("PREPARE", "DEALLOCATE"), _prepare),
    **dict.fromkeys(("SHOW", "HELP"), _show),
    **dict.fromkeys(("EXPLAIN", "DESCRIBE", "DESC"), _explain),
    **dict.fromkeys(("INSTALL", "UNINSTALL", "CLONE", "IMPORT"), _server_change),
    **dict.fromkeys(
        word_set("KILL SHUTDOWN RESTART PURGE CHANGE STOP RESET CACHE SIGNAL RESIGNAL"), _harmless
    ),
    "UPDATE": _update,
    "DELETE": _delete,
    "LOAD": _load,
    "HANDLER": _handler,
    "DO": _do,
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "XA": _xa,
    "BACKUP": _backup,
    "FLUSH": _flush,
    "USE": _use,
    "GET": _get_diagnostics,
    "SET": _set,
}
