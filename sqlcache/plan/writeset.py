"""What statements write, by the names in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from typing import TypeVar

from sqlcache.sql.names import TableName
from sqlcache.sql.statement import ANYTHING, Changes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WriteSet:
    """What statements write, before triggers and foreign keys are thought of.

    `tables` are those whose rows they write, `redefined` those whose definitions they change: that
    alone fires no trigger. `schemas` are the ones that have other definitions then, `unnamed` those
    of them where a statement does not say of which tables, `leading` those where a write may lead
    to tables in other schemas by it. `reads` are what else they name, where views may call
    functions. `defined_in` are the schemas of the routines by whose bodies the rest is known.
    `told` says of some of the `tables` what may be done to their rows.
    """

    tables: frozenset[TableName] = frozenset()
    schemas: frozenset[str] = frozenset()
    everything: bool = False
    redefined: frozenset[TableName] = frozenset()
    unnamed: frozenset[str] = frozenset()
    leading: frozenset[str] = frozenset()
    reads: frozenset[TableName] = frozenset()
    defined_in: frozenset[str] = frozenset()
    told: frozenset[tuple[TableName, Changes]] = frozenset()

    def __or__(self, other: "WriteSet") -> "WriteSet":
        return WriteSet(
            _both(self.tables, other.tables),
            _both(self.schemas, other.schemas),
            self.everything or other.everything,
            _both(self.redefined, other.redefined),
            _both(self.unnamed, other.unnamed),
            _both(self.leading, other.leading),
            _both(self.reads, other.reads),
            _both(self.defined_in, other.defined_in),
            self._told_with(other),
        )

    def _told_with(self, other: "WriteSet") -> frozenset[tuple[TableName, Changes]]:
        if not (self.told or other.told):
            return self.told
        each = [(dict(writes.told), writes.tables) for writes in (self, other)]
        told = {
            name: [of.get(name, ANYTHING) for of, tables in each if name in tables]
            for name in each[0][0].keys() | each[1][0].keys()
        }
        both = ((name, reduce(Changes.with_, changes)) for name, changes in told.items())
        return frozenset(changed for changed in both if changed[1] != ANYTHING)

    def changes_of(self, table: TableName) -> Changes:
        """What may be done to the rows of a table that they write."""
        return next((changes for name, changes in self.told if name == table), ANYTHING)

    @property
    def may_change(self) -> bool:
        """Whether they change anything, by some definitions: what they read may call code."""
        return bool(self or self.reads)

    @property
    def rows(self) -> "WriteSet":
        """The tables whose rows they write, and what is done to these."""
        return WriteSet(self.tables, told=self.told)

    def rows_within(self, other: "WriteSet") -> bool:
        """Whether all that they do to rows is among what the other does."""
        if not (self.told or other.told):
            return self.tables <= other.tables
        return other.rows | self.rows == other.rows

    def __bool__(self) -> bool:
        return self.everything or bool(
            self.tables or self.schemas or self.redefined or self.defined_in
        )


def _both(one: frozenset[T], other: frozenset[T]) -> frozenset[T]:
    """Of one and nothing it is no other: each that is kept takes 200 bytes, also where it is empty,
    and clients may prepare very many statements."""
    return one | other if one and other else other or one


EVERYTHING = WriteSet(everything=True)
NOTHING = WriteSet()


def together(writes: Sequence[WriteSet]) -> WriteSet:
    """What all of these write. One added to all before it, again and again, would cost the square
    of how many there are."""
    while len(writes) > 1:
        pairs = zip_longest(writes[::2], writes[1::2], fillvalue=NOTHING)
        writes = [one | other for one, other in pairs]
    return writes[0] if writes else NOTHING
