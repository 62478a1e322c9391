"""What statements write, by the names in them."""

from dataclasses import dataclass

from sqlcache.sql.names import TableName


@dataclass(frozen=True, slots=True)
class WriteSet:
    """What statements write, before triggers and foreign keys are thought of.

    `tables` are those whose rows they write, `redefined` those whose definitions they change: that
    alone fires no trigger. `schemas` are the ones that have other definitions then, `unnamed` those
    of them where a statement does not say of which tables, `leading` those where a write may lead
    to tables in other schemas by it. `reads` are what else they name, where views may call
    functions. `defined_in` are the schemas of the routines by whose bodies the rest is known.
    """

    tables: frozenset[TableName] = frozenset()
    schemas: frozenset[str] = frozenset()
    everything: bool = False
    redefined: frozenset[TableName] = frozenset()
    unnamed: frozenset[str] = frozenset()
    leading: frozenset[str] = frozenset()
    reads: frozenset[TableName] = frozenset()
    defined_in: frozenset[str] = frozenset()

    def __or__(self, other: "WriteSet") -> "WriteSet":
        return WriteSet(
            self.tables | other.tables,
            self.schemas | other.schemas,
            self.everything or other.everything,
            self.redefined | other.redefined,
            self.unnamed | other.unnamed,
            self.leading | other.leading,
            self.reads | other.reads,
            self.defined_in | other.defined_in,
        )

    def __bool__(self) -> bool:
        return self.everything or bool(
            self.tables or self.schemas or self.redefined or self.defined_in
        )


EVERYTHING = WriteSet(everything=True)
NOTHING = WriteSet()
