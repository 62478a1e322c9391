"""Which values a statement pins columns to: those that all rows have that it reads, or changes.

Told from the tokens alone, and only of statements that are written plainly: all else pins nothing.

- A query of one table, whose WHERE is comparisons of columns with values, or with lists of these,
  joined by AND. Or of several, where what they are joined by are equal columns.
- UPDATE and DELETE of one table, with such a WHERE. Which columns an UPDATE sets is told with any,
  and to what with such a one.
- INSERT and REPLACE of rows of values into columns that are named.

Whether a word is a column, and whether a value is one that the column can have, is for who knows
the table.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from sqlcache.sql import functions
from sqlcache.sql.lexer import Kind, Token, word_set
from sqlcache.sql.names import TableRef

MOST_ROWS = 64
"""Of an INSERT that is read; and values of a list."""

_NAMES = (Kind.WORD, Kind.NAME)
_BEGIN_LITERALS = frozenset(bytes((byte,)) for byte in b"'0123456789")
_VALUES = (Kind.NUMBER, Kind.STRING, Kind.PARAMETER)
_COMPARISONS = frozenset((b"=", b"<=>", b"<>", b"!=", b"<", b"<=", b">", b">="))
_EQUALITIES = frozenset((b"=", b"<=>"))
_MEAN_NO_COLUMN = functions.BARE | word_set("FALSE NULL ROWNUM TRUE")
_NOT_PLAIN = frozenset((Kind.HINT, Kind.VERSIONED, Kind.DIRECTIVE, Kind.OTHER))
_BEHIND = word_set("GROUP HAVING ORDER LIMIT RETURNING WINDOW")
_BEHIND_SET = word_set("WHERE ORDER LIMIT RETURNING")
_MORE = word_set("UNION EXCEPT INTERSECT MINUS TABLE WITH PROCEDURE ROLLUP CUBE GROUPING")
"""What a query may have more tables by, without another SELECT, or rows that are no table's."""
_READ_ALL = word_set("NATURAL TABLE PROCEDURE PARTITION")
"""What a query may read columns by that it does not name."""
_OTHER_NAME = "_rowid"
"""Another one of a table's key, where that is one integer that is never NULL."""
_MODIFIERS = word_set("LOW_PRIORITY HIGH_PRIORITY QUICK IGNORE")
_SIDES = word_set("LEFT RIGHT")
_SAY_BY_WHAT = word_set("ON USING")
_JOINS = word_set("INNER CROSS LEFT RIGHT JOIN STRAIGHT_JOIN")
_NO_ALIASES = _JOINS | word_set(
    "WHERE SET USE FORCE IGNORE PARTITION FOR AS NATURAL TABLESAMPLE ON USING FULL"
)


class Value(NamedTuple):
    """Where a value stands: which of the literals, or of the parameters, of its text it is."""

    place: int
    is_parameter: bool
    negative: bool
    text: bytes


NULL = Value(-1, False, False, b"NULL")
"""That of a NULL that is written out."""
AS_GIVEN = Value(-2, False, False, b"VALUES")
"""That of a column which is set, behind ON DUPLICATE KEY UPDATE, to what its row has there."""

SetTo = Mapping[str, Value | None]
"""The columns that are set, and to what; None where that is computed."""
_NOTHING: SetTo = {}


class Column(NamedTuple):
    """By its name, and how its table is called there; "" where that is not said."""

    name: str
    table: str


class Condition(NamedTuple):
    """What a column is compared with; nothing where it only must not be NULL. `equal`: it has to be
    one of these."""

    column: str
    values: tuple[Value, ...]
    equal: bool
    table: str = ""


class Source(NamedTuple):
    """A table that is read, and how it is called in its query."""

    ref: TableRef
    name: str


class Equality(NamedTuple):
    """Two columns that a query compares. In an outer join's ON, to this `side`, of what stands
    before and the `last` table. Those that do not name their table are of the first `among` of the
    sources; with None it is not known of which."""

    one: Column
    other: Column
    among: int | None = None
    side: str = ""
    last: str = ""


class Pins(NamedTuple):
    """What was read. A query's rows, or those changed, meet all `conditions`; `changed` is what is
    set, `rows` the values of those inserted, by column. `replaces`: in place of these rows it may
    change those that have a key of theirs. A query of several tables is of these `sources`, which
    are `joined` by that."""

    verb: str
    conditions: tuple[Condition, ...] = ()
    changed: SetTo = _NOTHING
    rows: tuple[dict[str, Value | None], ...] = ()
    replaces: bool = False
    sources: tuple[Source, ...] = ()
    joined: tuple[Equality, ...] = ()


def named_columns(tokens: Sequence[Token]) -> frozenset[str] | None:
    """All names in a query, among which are those of all columns that it reads; None where it may
    read others."""
    names = set()
    for at, token in enumerate(tokens):
        if token.kind in _NOT_PLAIN or token.word in _READ_ALL:
            return None
        if token.is_operator(b"*") and not _is_counted(tokens, at):
            return None
        if token.kind in _NAMES:
            if not token.text.isascii():  # which servers may fold in other ways
                return None
            names.add(token.name.lower())
    return frozenset(names)


def _is_counted(tokens: Sequence[Token], at: int) -> bool:
    """Whether what stands there is that of a COUNT(*)."""
    before, after = tokens[max(at - 2, 0) : at], tokens[at + 1 : at + 2]
    return (
        [each.text.upper() for each in before] == [b"COUNT", b"("]
        and [each.text for each in after] == [b")"]
        and before[0].kind is Kind.WORD
    )


def set_columns(tokens: Sequence[Token]) -> frozenset[str] | None:
    """The columns of one table that an UPDATE sets, or what begins behind ON DUPLICATE KEY UPDATE;
    None where that is not written plainly."""
    return _Reader(tokens).set_columns()


def pins(tokens: Sequence[Token]) -> Pins | None:
    """What a statement pins; None where it is not written plainly."""
    if not tokens or any(each.kind in _NOT_PLAIN or each.is_operator(b";") for each in tokens):
        return None
    reader = _Reader(tokens)
    plain = _is_plain(tokens)
    match tokens[0].word:
        case "UPDATE":
            return reader.update(plain=plain)
        case _ if not plain:
            return None
        case "SELECT":
            return reader.select()
        case "DELETE":
            return reader.delete()
        case "INSERT" | "REPLACE":
            return reader.insert()
    return None


def _is_plain(tokens: Sequence[Token]) -> bool:
    """Whether there is but one query, and only such literals as are found again in other texts of
    this shape."""
    words = [token.word for token in tokens]
    if words.count("SELECT") != (words[0] == "SELECT") or not _MORE.isdisjoint(words):
        return False
    odd = (
        (token.kind is Kind.STRING and token.text[:1] != b"'")
        or (token.kind is Kind.NUMBER and not token.text[:1].isdigit())
        for token in tokens
    )
    return not any(odd)


class _Reader:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 1
        self._joined: list[Equality] = []
        self._common: dict[str, str] = {}
        """The columns that a USING names, and of which table they are where none is named."""
        # Names that begin with a digit count as well, see `lexer.literals_apart`.
        self._literals_before = _counts(token.text[:1] in _BEGIN_LITERALS for token in tokens)
        self._parameters_before = _counts(token.kind is Kind.PARAMETER for token in tokens)

    def select(self) -> Pins | None:
        depth = 0
        for at, token in enumerate(self._tokens):
            depth += token.is_operator(b"(") - token.is_operator(b")")
            if token.word == "FROM" and not depth:
                self._at = at + 1
                break
        else:
            return None
        sources = self._sources()
        conditions = self._where(joins=len(sources or ())) if sources else None
        if not sources or not conditions:
            return None
        if len(sources) == 1:
            return Pins("SELECT", conditions)
        return Pins("SELECT", conditions, sources=tuple(sources), joined=tuple(self._joined))

    def _sources(self) -> list[Source] | None:
        """All tables that are listed, up to what follows them."""
        sources: list[Source] = []
        side = ""
        in_order = True  # each is joined with all before it
        while True:
            source = self._source()
            if source is None:
                return None
            sources.append(source)
            in_order &= len(sources) == 1 or self._token.word in _SAY_BY_WHAT
            if not self._joined_by(side, sources, len(sources) if in_order else None):
                return None
            side = self._token.word if self._token.word in _SIDES else ""
            if not (self._operator(b",") or self._join()):
                return sources

    def _joined_by(self, side: str, sources: Sequence[Source], among: int | None) -> bool:
        """Steps over what the last table is joined by. That has to be said just there of an outer
        join, to this side."""
        before, last = len(self._joined), sources[-1].name
        if self._take("USING"):
            said = self._using(side, sources)
        elif self._take("ON"):
            said = self._equalities(among)
        else:
            said = not side
        if side:
            outer = [each._replace(side=side, last=last) for each in self._joined[before:]]
            self._joined[before:] = outer
        return said

    def _using(self, side: str, sources: Sequence[Source]) -> bool:
        """Steps over the columns that the first two tables have in common; where none is named they
        are those of the one that has a row in any case."""
        if len(sources) != 2 or not self._operator(b"("):
            return False
        one, other = (source.name for source in sources)
        while (name := self._path()) is not None:
            self._joined.append(Equality(Column(name, one), Column(name, other)))
            self._common[name] = other if side == "RIGHT" else one
            if not self._operator(b","):
                return self._operator(b")")
        return False

    def _join(self) -> bool:
        """Steps over what stands between two tables that are joined."""
        if self._take("STRAIGHT_JOIN"):
            return True
        if self._take("LEFT") or self._take("RIGHT"):
            self._take("OUTER")
        elif not self._take("INNER"):
            self._take("CROSS")
        return self._take("JOIN")

    def _equalities(self, among: int | None) -> bool:
        """Steps over pairs of equal columns, joined by AND, which are `_joined` then."""
        inside = self._operator(b"(")
        while True:
            column = self._column()
            if column is None or not self._operator(b"=") or not self._joins(column, among):
                return False
            if not self._take("AND"):
                return self._operator(b")") if inside else True

    def _joins(self, column: Column, among: int | None) -> bool:
        """Steps over the column that this one has to be equal to."""
        other = self._column()
        if other is None:
            return False
        self._joined.append(Equality(column, other, among))
        return True

    def set_columns(self) -> frozenset[str] | None:
        self._at = 0
        changed = self._update_of() if self._take("UPDATE") else self._changed()
        return None if changed is None else frozenset(changed)

    def _update_of(self) -> dict[str, Value | None] | None:
        """What an UPDATE of one table sets, up to the WHERE."""
        self._modifiers()
        return self._changed() if self._table() and self._take("SET") else None

    def update(self, *, plain: bool) -> Pins | None:
        changed = self._update_of()
        if not changed:
            return None
        if not plain:
            return Pins("UPDATE", changed=dict.fromkeys(changed))
        return Pins("UPDATE", self._where() or (), changed)

    def delete(self) -> Pins | None:
        self._modifiers()
        plain = self._take("FROM") and self._table()
        conditions = self._where() if plain else None
        return Pins("DELETE", conditions) if conditions else None

    def insert(self) -> Pins | None:
        replaces = self._tokens[0].word == "REPLACE"
        self._modifiers()
        self._take("INTO")
        if self._path() is None or not self._operator(b"("):
            return None
        columns = []
        while (name := self._path()) is not None:
            columns.append(name)
            if not self._operator(b","):
                break
        if not self._operator(b")") or not (self._take("VALUES") or self._take("VALUE")):
            return None
        rows: list[dict[str, Value | None]] = []
        while len(rows) < MOST_ROWS:
            row = self._row(columns)
            if row is None:
                return None
            rows.append(row)
            if self._at == len(self._tokens):
                return Pins("INSERT", rows=tuple(rows), replaces=replaces)
            if not self._operator(b","):
                changed = None if replaces else self._changed_instead()
                if not changed:
                    return None
                return Pins("INSERT", changed=changed, rows=tuple(rows), replaces=True)
        return None

    def _changed_instead(self) -> dict[str, Value | None] | None:
        """What is set of rows that are there already, up to the end."""
        alias = self._path() if self._take("AS") else ""
        if alias is None or not all(map(self._take, ("ON", "DUPLICATE", "KEY", "UPDATE"))):
            return None
        changed = self._changed(alias)
        return changed if self._at == len(self._tokens) else None

    def _row(self, columns: Sequence[str]) -> dict[str, Value | None] | None:
        """The values of one row; None for one that is computed."""
        if not self._operator(b"("):
            return None
        values: list[Value | None] = []
        while True:
            values.append(self._whole_value())
            if self._operator(b")"):
                break
            if not self._operator(b","):
                return None
        return dict(zip(columns, values, strict=True)) if len(values) == len(columns) else None

    def _whole_value(self) -> Value | None:
        """A value, if nothing but that stands up to the next comma; else steps over it."""
        value = self._value_or_null()
        if value is not None and self._token.text in (b",", b")"):
            return value
        self._step_to(lambda token: token.is_operator(b",") or token.is_operator(b")"))
        return None

    def _changed(self, instead_of: str | None = None) -> dict[str, Value | None] | None:
        """What is set, up to the WHERE; of rows that are there `instead_of` new ones that are
        called so. Of a column that is set twice it is not told to what."""
        changed: dict[str, Value | None] = {}
        while True:
            column = self._path()
            if column is None or column == _OTHER_NAME or not self._operator(b"="):
                return None
            value = self._value_set(column, instead_of)
            changed[column] = None if column in changed else value
            if not self._operator(b","):
                return changed

    def _value_set(self, column: str, instead_of: str | None) -> Value | None:
        """To what, if nothing but a value stands there; steps over all that does."""
        given = instead_of is not None and self._is_given(column, instead_of)
        value = AS_GIVEN if given else self._value_or_null()
        ends = self._at == len(self._tokens) or self._token.is_operator(b",")
        whole = ends or self._token.word in _BEHIND_SET
        self._step_to(lambda token: token.word == "WHERE" or token.is_operator(b","))
        return value if whole else None

    def _is_given(self, column: str, alias: str) -> bool:
        """Steps over what means this column of a new row, if that stands there."""
        before = self._at
        if self._take("VALUES"):
            is_given = self._operator(b"(") and self._path() == column and self._operator(b")")
        else:
            is_given = [each.lower() for each in self._names()] == [alias, column]
        if not is_given:
            self._at = before
        return is_given

    def _step_to(self, is_end: Callable[[Token], bool]) -> None:
        """Steps to the next such token that is in no parentheses, or to the end."""
        depth = 0
        while self._at < len(self._tokens):
            token = self._token
            if not depth and is_end(token):
                return
            depth += token.is_operator(b"(") - token.is_operator(b")")
            self._at += 1

    def _where(self, *, joins: int = 0) -> tuple[Condition, ...] | None:
        """The comparisons with values. Where so many tables are joined columns may be compared with
        each other as well."""
        if not self._take("WHERE"):
            return None
        conditions = []
        while True:
            compared = len(self._joined)
            condition = self._condition(joins=joins)
            if condition is not None:
                conditions.append(condition)
            elif compared == len(self._joined):
                return None
            if self._at == len(self._tokens) or self._token.word in _BEHIND:
                return tuple(conditions)
            if not self._take("AND"):
                return None

    def _condition(self, *, joins: int) -> Condition | None:
        """None as well for two equal columns, which are `_joined` then."""
        column = self._column()
        if column is None:
            return None
        name, table = column
        if self._take("IS"):
            equal = not self._take("NOT")
            values = (NULL,) if equal else ()
            return Condition(name, values, equal, table) if self._take("NULL") else None
        if self._take("IN"):
            listed = self._list()
            return Condition(name, listed, True, table) if listed else None
        operator = self._token
        if operator.kind is not Kind.OPERATOR or operator.text not in _COMPARISONS:
            return None
        self._at += 1
        value = self._value_or_null() if operator.text == b"<=>" else self._value()
        if value is not None:
            return Condition(name, (value,), operator.text in _EQUALITIES, table)
        if joins > 1 and operator.text == b"=":
            self._joins(column, joins)
        return None

    def _list(self) -> tuple[Value, ...] | None:
        if not self._operator(b"("):
            return None
        values: list[Value] = []
        while (value := self._value()) is not None and len(values) < MOST_ROWS:
            values.append(value)
            if self._operator(b")"):
                return tuple(values)
            if not self._operator(b","):
                return None
        return None

    def _value(self) -> Value | None:
        negative = self._operator(b"-")
        token = self._token
        if token.kind not in _VALUES or (negative and token.kind is not Kind.NUMBER):
            return None
        is_parameter = token.kind is Kind.PARAMETER
        before = self._parameters_before if is_parameter else self._literals_before
        value = Value(before[self._at], is_parameter, negative, token.text)
        self._at += 1
        return value

    def _value_or_null(self) -> Value | None:
        return NULL if self._take("NULL") else self._value()

    def _table(self) -> bool:
        """Steps over a table and another name for it."""
        if self._path() is None:
            return False
        if self._take("AS") or (self._token.kind in _NAMES and self._token.word not in _NO_ALIASES):
            return self._path() is not None
        return True

    def _source(self) -> Source | None:
        """A table, and what it is called; None where servers may fold that in other ways."""
        path = self._names()
        if not path:
            return None
        name = path[-1]
        if self._take("AS") or (self._token.kind in _NAMES and self._token.word not in _NO_ALIASES):
            if len(alias := self._names()) != 1:
                return None
            (name,) = alias
        ref = TableRef(path[-2] if len(path) > 1 else None, path[-1])
        return Source(ref, name.lower()) if name.isascii() else None

    def _column(self) -> Column | None:
        """A column, with the name before it; None for one that servers may fold in other ways."""
        bare = self._token.kind is Kind.WORD and self._token.word in _MEAN_NO_COLUMN
        path = self._names()
        if not path or not path[-1].isascii() or (bare and len(path) == 1):
            return None
        name = path[-1].lower()
        return Column(name, path[-2].lower() if len(path) > 1 else self._common.get(name, ""))

    def _path(self) -> str | None:
        """The last name of a dotted path, in lower case; None for one that servers may fold in
        other ways."""
        path = self._names()
        return path[-1].lower() if path and path[-1].isascii() else None

    def _names(self) -> list[str]:
        """Those of a dotted path; none where it is no such."""
        names = []
        while self._token.kind in _NAMES:
            names.append(self._token.name)
            self._at += 1
            if not (self._token.text == b"." and self._at < len(self._tokens)):
                return names
            self._at += 1
        return []

    def _modifiers(self) -> None:
        while self._token.word in _MODIFIERS:
            self._at += 1

    def _take(self, word: str) -> bool:
        taken = self._token.word == word
        self._at += taken
        return taken

    def _operator(self, text: bytes) -> bool:
        taken = self._token.is_operator(text)
        self._at += taken
        return taken

    @property
    def _token(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _NO_TOKEN


_NO_TOKEN = Token(Kind.OTHER, b"", 0)


def _counts(hits: Iterable[bool]) -> list[int]:
    """How many hits there are before each."""
    return list(accumulate(hits, initial=0))
