"""Queries: of one table, or of several that are joined by equal columns."""

from collections.abc import Sequence

from sqlcache.sql.lexer import word_set
from sqlcache.sql.pins.conditions import Conditions
from sqlcache.sql.pins.found import Column, Equality, Pins, Source

_SIDES = word_set("LEFT RIGHT")
_SAY_BY_WHAT = word_set("ON USING")


class Query(Conditions):
    """A SELECT."""

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
