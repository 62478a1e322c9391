"""The conditions of a WHERE."""

from collections.abc import Sequence

from sqlcache.sql.lexer import Kind, Token, word_set
from sqlcache.sql.pins.found import NULL, Column, Condition, Equality
from sqlcache.sql.pins.words import Words

_COMPARISONS = frozenset((b"=", b"<=>", b"<>", b"!=", b"<", b"<=", b">", b">="))
_EQUALITIES = frozenset((b"=", b"<=>"))
_BEHIND = word_set("GROUP HAVING ORDER LIMIT RETURNING WINDOW")


class Conditions(Words):
    """A statement that may have one."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens)
        self._joined: list[Equality] = []

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

    def _joins(self, column: Column, among: int | None) -> bool:
        """Steps over the column that this one has to be equal to."""
        other = self._column()
        if other is None:
            return False
        self._joined.append(Equality(column, other, among))
        return True
