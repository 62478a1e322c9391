"""Where a statement names tables, told from its tokens, common table expressions set apart.

The laws:

- A name counts as a common table expression only where it surely is one. Doubt is kept in
  `Tables.doubt`; where the scan cannot go on, every name counts as a table's.
- Only words that every MySQL and MariaDB reserves end a list of tables: a word that could be an
  alias never hides the table after it.
- It reads table lists and parentheses, nothing else: it accepts far more than SQL, so a second
  opinion on whether the text parses is its user's business.

Source: https://dev.mysql.com/doc/refman/9.4/en/join.html,
https://dev.mysql.com/doc/refman/9.4/en/with.html, https://mariadb.com/kb/en/join-syntax/, https://mariadb.com/kb/en/with/.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlcache.sql.lexer import Kind, Token, word_set
from sqlcache.sql.names import TableRef

MAX_NESTING = 60  # of parentheses; beyond it a statement is doubtful rather than a stack overflow


class Factor(NamedTuple):
    """One place where a table, or a common table expression, is named."""

    ref: TableRef
    alias: str | None
    nested: bool  # in a subquery, not in the list of tables that was scanned
    is_cte: bool


@dataclass(frozen=True, slots=True)
class Tables:
    """What a scan found. `doubt` is "" or says what could not be read."""

    factors: tuple[Factor, ...]
    column_lists: frozenset[int]  # indices of names whose parenthesis holds names of columns
    doubt: str

    @property
    def refs(self) -> frozenset[TableRef]:
        """The tables that are no common table expressions."""
        return frozenset(factor.ref for factor in self.factors if not factor.is_cte)


class PathEnd(NamedTuple):
    """A dotted name's parts and the index after it."""

    parts: tuple[str, ...]
    end: int


def path_at(tokens: Sequence[Token], at: int) -> PathEnd | None:
    """The dotted name that starts there, such as `t`, `db.t`, `db . t` or `.t`, if one does."""
    if at < len(tokens) and tokens[at].is_operator(b"."):
        at += 1
    parts: list[str] = []
    while at < len(tokens) and tokens[at].kind in (Kind.WORD, Kind.NAME):
        parts.append(tokens[at].name)
        at += 1
        dot = at + 1 < len(tokens) and tokens[at].is_operator(b".")
        if not dot or tokens[at + 1].kind not in (Kind.WORD, Kind.NAME):
            break
        at += 1
    return PathEnd(tuple(parts), at) if parts else None


def ref_of(parts: tuple[str, ...]) -> TableRef | None:
    """The table a dotted name of one or two parts names."""
    if len(parts) == 1:
        return TableRef(None, parts[0])
    return TableRef(parts[0], parts[1]) if len(parts) == 2 else None


def scan_tables(
    tokens: Sequence[Token], *, in_list: bool = False, ctes: frozenset[str] = frozenset()
) -> Tables:
    """Finds every place where a statement's part names a table.

    The part is a query, or with `in_list` starts in a list of tables, as after UPDATE or FROM.
    `ctes` are the common table expressions defined before it.
    """
    scanner = _Scanner(tokens)
    doubt = ""
    try:
        scanner.pair_parentheses()
        scanner.scan(0, len(tokens), _Scope(ctes), expecting=in_list, nested=not in_list)
    except _DoubtfulError as error:
        doubt = str(error)
        scanner.factors = [Factor(ref, None, True, False) for ref in _all_named(tokens)]
    return Tables(tuple(scanner.factors), frozenset(scanner.column_lists), doubt or scanner.doubt)


def _all_named(tokens: Sequence[Token]) -> frozenset[TableRef]:
    """All that may be tables among some tokens, and more."""
    found = set()
    at = 0
    while at < len(tokens):
        path = path_at(tokens, at)
        at += 1 if path is None else path.end - at
        if path is not None and (ref := ref_of(path.parts)) is not None:
            found.add(ref)
    return frozenset(found)


class LeadingWith(NamedTuple):
    """A statement's WITH clause: the index after it and the names it defines."""

    end: int
    ctes: frozenset[str]


def leading_with(tokens: Sequence[Token]) -> LeadingWith | None:
    """The WITH clause a statement starts with; None if it cannot be read."""
    scanner = _Scanner(tokens)
    try:
        scanner.pair_parentheses()
        end, scope = scanner.with_clause(0, _Scope())
    except _DoubtfulError:
        return None
    return LeadingWith(end, scope.ctes)


class _DoubtfulError(Exception):
    """The scan cannot go on."""


class _Scope(NamedTuple):
    ctes: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()  # defined further on in the same WITH: servers differ


QUERY_STARTS = frozenset(("SELECT", "WITH", "VALUES", "TABLE"))
_LIST_ENDS = word_set(
    "WHERE GROUP HAVING ORDER LIMIT PROCEDURE INTO FOR LOCK UNION EXCEPT INTERSECT SET"
)
_NOT_A_NAME = _LIST_ENDS | word_set(
    "SELECT FROM JOIN INNER LEFT RIGHT CROSS NATURAL STRAIGHT_JOIN ON USING USE FORCE IGNORE"
    " PARTITION AS WITH VALUES TABLE UPDATE INSERT DELETE REPLACE AND OR NOT IN IS LIKE NULL CASE"
    " DISTINCT ALL BY EXISTS BETWEEN OUTER READ WRITE"
)
_INDEX_HINT_SCOPES = frozenset(("JOIN", "ORDER", "GROUP"))


class _Scanner:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.words = [token.word for token in tokens]
        self.closing: dict[int, int] = {}
        self.factors: list[Factor] = []
        self.column_lists: set[int] = set()
        self.doubt = ""

    def pair_parentheses(self) -> None:
        opened: list[int] = []
        for at, token in enumerate(self.tokens):
            if self.is_at(at, b"("):
                opened.append(at)
                if len(opened) > MAX_NESTING:
                    raise _DoubtfulError("it nests too deep")
            elif token.is_operator(b")"):
                if not opened:
                    raise _DoubtfulError("its parentheses do not match")
                self.closing[opened.pop()] = at
        if opened:
            raise _DoubtfulError("its parentheses do not match")

    def is_at(self, at: int, operator: bytes) -> bool:
        return at < len(self.tokens) and self.tokens[at].is_operator(operator)

    def word_at(self, at: int) -> str:
        return self.words[at] if at < len(self.words) else ""

    def scan(self, at: int, end: int, scope: _Scope, *, expecting: bool, nested: bool) -> None:
        """Reads one level of parentheses; `expecting` where the next thing is a table."""
        listing = expecting
        query = False
        while at < end:
            if expecting:
                at, expecting = self.factor(at, end, scope, nested)
                continue
            word = self.words[at]
            if word == "SELECT":
                query, listing = True, False
            elif word == "WITH" and self.starts_cte(at):
                at, scope = self.with_clause(at, scope)
                continue
            elif word == "TABLE" or (word == "FROM" and query):
                listing = expecting = True
            elif word == "FOR" and self.word_at(at + 1) in _INDEX_HINT_SCOPES:
                at += 1
            elif word == "FOR" and self.word_at(at + 1) == "SYSTEM_TIME":
                self.doubt = "it reads another time's rows"
                at += 1 + (self.word_at(at + 2) == "FROM")  # FROM one time TO another
            elif word in ("JOIN", "STRAIGHT_JOIN") or self.tokens[at].is_operator(b","):
                expecting = listing
            elif word in _LIST_ENDS or (word == "WINDOW" and self.word_at(at + 2) == "AS"):
                listing = False
            elif self.is_at(at, b"("):
                close = self.closing[at]
                self.scan(at + 1, close, scope, expecting=False, nested=True)
                at = close
            at += 1
        if expecting:
            raise _DoubtfulError("a table's name is missing")

    def factor(self, at: int, end: int, scope: _Scope, nested: bool) -> tuple[int, bool]:
        """Reads one table factor; gives where it ends and whether another is expected there."""
        word = self.words[at]
        if self.is_at(at, b"("):
            close = self.closing[at]
            query = self.word_at(at + 1) in QUERY_STARTS
            self.scan(at + 1, close, scope, expecting=not query, nested=nested or query)
            self.doubt = self.doubt or ("" if close > at + 1 else "it has an empty parenthesis")
            return self.alias(close + 1, end)[1], False
        if self.is_at(at, b"{"):
            return at + 2, True
        if word == "LATERAL" and self.is_at(at + 1, b"("):
            return at + 1, True
        path = path_at(self.tokens, at)
        ref = ref_of(path.parts) if path else None
        if path is None or ref is None or path.end > end or word in _NOT_A_NAME:
            raise _DoubtfulError(f"{self.tokens[at].name!r} stands where a table is named")
        if self.is_at(path.end, b"("):
            return self.table_function(path, end, scope), False
        at = path.end
        if self.word_at(at) == "PARTITION" and self.is_at(at + 1, b"("):
            at = self.closing[at + 1] + 1
        alias, at = self.alias(at, end)
        if word != "DUAL" or ref.schema is not None:
            self.add(ref, alias, nested, scope)
        return at, False

    def add(self, ref: TableRef, alias: str | None, nested: bool, scope: _Scope) -> None:
        bare = ref.schema is None
        if bare and ref.name in scope.later:
            self.doubt = f"{ref.name!r} is used before WITH defines it"
        self.factors.append(Factor(ref, alias, nested, bare and ref.name in scope.ctes))

    def table_function(self, path: PathEnd, end: int, scope: _Scope) -> int:
        if self.word_at(path.end - 1) != "JSON_TABLE":
            raise _DoubtfulError(f"{path.parts[-1]!r} is no known table function")
        close = self.closing[path.end]
        self.scan(path.end + 1, close, scope, expecting=False, nested=True)
        return self.alias(close + 1, end)[1]

    def alias(self, at: int, end: int) -> tuple[str | None, int]:
        """The alias that may stand there, its column list behind it, and where both end."""
        written = self.word_at(at) == "AS"
        start = at + written
        if start >= end or self.tokens[start].kind not in (Kind.WORD, Kind.NAME):
            return None, at
        word = self.words[start]
        if word in _NOT_A_NAME or (word == "WINDOW" and self.word_at(start + 2) == "AS"):
            return None, at
        name = self.tokens[start].name
        if self.is_at(start + 1, b"("):
            self.column_lists.add(start)
            # MariaDB's clause of that name may hold a query.
            is_clause = word == "RETURNING"
            return name, start + 1 if is_clause else self.closing[start + 1] + 1
        return name, start + 1

    def starts_cte(self, at: int) -> bool:
        at += 1 + (self.word_at(at + 1) == "RECURSIVE" and self.word_at(at + 2) != "AS")
        return self.cte_body(at) is not None

    def cte_body(self, at: int) -> int | None:
        """The index of the parenthesis that opens the body of the expression named there."""
        if at >= len(self.tokens) or self.tokens[at].kind not in (Kind.WORD, Kind.NAME):
            return None
        at += 1
        if self.is_at(at, b"("):
            at = self.closing[at] + 1
        return at + 1 if self.word_at(at) == "AS" and self.is_at(at + 1, b"(") else None

    def with_clause(self, at: int, scope: _Scope) -> tuple[int, _Scope]:
        recursive = self.word_at(at + 1) == "RECURSIVE" and self.word_at(at + 2) != "AS"
        named: list[tuple[str, int, int]] = []
        at += 1 + recursive
        while True:
            body = self.cte_body(at)
            if body is None:
                raise _DoubtfulError("its WITH clause cannot be read")
            if self.is_at(at + 1, b"("):
                self.column_lists.add(at)
            close = self.closing[body]
            named.append((self.tokens[at].name, body, close))
            at = close + 1
            if not self.is_at(at, b","):
                break
            at += 1
        return at, self.scan_bodies(named, scope, recursive)

    def scan_bodies(
        self, named: list[tuple[str, int, int]], scope: _Scope, recursive: bool
    ) -> _Scope:
        names = [name for name, _, _ in named]
        if len(scope.ctes) + len(names) > MAX_NESTING:
            raise _DoubtfulError("its WITH clause defines too many")
        if len(set(names)) < len(names):
            raise _DoubtfulError("its WITH clause names two alike")
        for position, (name, body, close) in enumerate(named):
            visible = scope.ctes | ({name} if recursive else frozenset())
            later = (scope.later | frozenset(names[position + 1 :])) - visible
            inner = _Scope(visible, later)
            self.scan(body + 1, close, inner, expecting=False, nested=True)
            scope = _Scope(scope.ctes | {name}, scope.later - {name})
        return scope
