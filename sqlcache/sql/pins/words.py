"""Steps through the tokens of a statement that is written plainly."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain

from sqlcache.sql import functions
from sqlcache.sql.lexer import Kind, Token, word_set
from sqlcache.sql.names import TableRef
from sqlcache.sql.pins.found import MOST_ROWS, NULL, Column, Source, Value

_NAMES = (Kind.WORD, Kind.NAME)
_BEGIN_LITERALS = frozenset(bytes((byte,)) for byte in b"'0123456789")
_VALUES = (Kind.NUMBER, Kind.STRING, Kind.PARAMETER)
_MEAN_NO_COLUMN = functions.BARE | word_set("FALSE NULL ROWNUM TRUE")
_MODIFIERS = word_set("LOW_PRIORITY HIGH_PRIORITY QUICK IGNORE")
_JOINS = word_set("INNER CROSS LEFT RIGHT JOIN STRAIGHT_JOIN")
_NO_ALIASES = _JOINS | word_set(
    "WHERE SET USE FORCE IGNORE PARTITION FOR AS NATURAL TABLESAMPLE ON USING FULL"
)
_NO_TOKEN = Token(Kind.OTHER, b"", 0)


class Words:
    """Stands behind the statement's first word to begin with. What is stepped over by a method is
    returned, or whether it was there; else it stands anywhere, and no more is to be read."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 1
        self._common: dict[str, str] = {}
        """The columns that a USING names, and of which table they are where none is named."""
        self._literals_before = _counts(map(_is_taken_out, chain((_NO_TOKEN,), tokens), tokens))
        self._parameters_before = _counts(token.kind is Kind.PARAMETER for token in tokens)

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

    def _path(self) -> str | None:
        """The last name of a dotted path, in lower case; None for one that servers may fold in
        other ways."""
        path = self._names()
        return path[-1].lower() if path and path[-1].isascii() else None

    def _column(self) -> Column | None:
        """A column, with the name before it; None for one that servers may fold in other ways."""
        bare = self._token.kind is Kind.WORD and self._token.word in _MEAN_NO_COLUMN
        path = self._names()
        if not path or not path[-1].isascii() or (bare and len(path) == 1):
            return None
        name = path[-1].lower()
        return Column(name, path[-2].lower() if len(path) > 1 else self._common.get(name, ""))

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

    def _modifiers(self) -> None:
        while self._token.word in _MODIFIERS:
            self._at += 1

    def _value(self) -> Value | None:
        """Steps over nothing where there is none: a column may stand there."""
        before = self._at
        negative = self._operator(b"-")
        token = self._token
        if token.kind not in _VALUES or (negative and token.kind is not Kind.NUMBER):
            self._at = before
            return None
        is_parameter = token.kind is Kind.PARAMETER
        counts = self._parameters_before if is_parameter else self._literals_before
        value = Value(counts[self._at], is_parameter, negative, token.text)
        self._at += 1
        return value

    def _value_or_null(self) -> Value | None:
        return NULL if self._take("NULL") else self._value()

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

    def _step_to(self, is_end: Callable[[Token], bool]) -> None:
        """Steps to the next such token that is in no parentheses, or to the end."""
        depth = 0
        while self._at < len(self._tokens):
            token = self._token
            if not depth and is_end(token):
                return
            depth += token.is_operator(b"(") - token.is_operator(b")")
            self._at += 1


def _is_taken_out(before: Token, token: Token) -> bool:
    """Whether `lexer.literals_apart` takes it for a literal, as it does what begins with a digit;
    but for a name in a path without gaps, which is a part of the piece that the path is."""
    if token.text[:1] not in _BEGIN_LITERALS:
        return False
    return token.kind is not Kind.NAME or before.text != b"." or before.end != token.start


def _counts(hits: Iterable[bool]) -> list[int]:
    """How many hits there are before each."""
    return list(accumulate(hits, initial=0))
