"""Changes of one table: UPDATE, DELETE, INSERT and REPLACE."""

from collections.abc import Sequence

from sqlcache.sql.lexer import word_set
from sqlcache.sql.pins.conditions import Conditions
from sqlcache.sql.pins.found import AS_GIVEN, MOST_ROWS, Pins, Value

_BEHIND_SET = word_set("WHERE ORDER LIMIT RETURNING")
_OTHER_NAME = "_rowid"
"""Another one of a table's key, where that is one integer that is never NULL."""


class Change(Conditions):
    """One of these."""

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
