"""Tags: for each table, each schema and for everything, each with a version.

An answer is served only while every tag it depends on has the version it was read under and no
fence stands: both are told by the tag's log, see `log_records`. In place of a table's version an
answer may hang on those of what it pins, see `slots`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlcache.sql.names import TableName

ID_BYTES = 8
"""Of a version, and of any other id but a slot's name: it is random, and none is used twice."""

SLOT_BYTES = 12
BUCKET_BYTES = 4

Cover = Mapping[bytes, frozenset[bytes]]
"""Slots, and of each the buckets that a write touches; of a slot that is not named it may touch
any."""

ELSEWHERE = "*"
"""A table that is none: its tag is fenced with its schema's by who may let a write to some table of
the schema lead to tables of others."""


@dataclass(frozen=True, slots=True, order=True)
class Tag:
    """What answers hang on: a table, a schema (no `table`) or everything (neither).

    A table's tag lives on one node. A schema's and the root's have a copy on every node, `node`, so
    that a node that is away costs only the answers from the tables whose tags it holds. The root's
    copy on a node stands for all that hangs on that node: who heard nothing of the node for a
    while gives it a new version, and so disowns what the node remembers.
    """

    schema: str = ""
    table: str = ""
    node: str = ""

    @property
    def kind(self) -> str:
        """`table`, `schema` or `root`, for metrics."""
        return "table" if self.table else "schema" if self.schema else "root"

    @property
    def defines(self) -> bool:
        """Whether it tells of definitions: what the tables, views and settings are."""
        return not self.table

    @property
    def of_table(self) -> str:
        """The table's name with its schema's; "" where it is none's."""
        return f"{self.schema}.{self.table}" if self.table and self.table != ELSEWHERE else ""

    def on(self, node: str) -> "Tag":
        """The copy of it that lives on this node."""
        return Tag(self.schema, self.table, node)

    def __str__(self) -> str:
        on = f" on {self.node}" if self.node else ""
        return f"{self.schema or '*'}.{self.table or '*'}{on}"


ROOT = Tag()


def read_tags(tables: Iterable[TableName], schemas: Iterable[str] = ()) -> tuple[Tag, ...]:
    """The tags an answer hangs on: its tables, the schemas they live in, and the root."""
    tags = {ROOT}
    tags.update(Tag(schema) for schema in schemas)
    for table in tables:
        tags.add(Tag(table.schema))
        tags.add(Tag(table.schema, table.name))
    return tuple(sorted(tags))


def with_first(tags: Iterable[Tag], tables: Iterable[TableName]) -> tuple[Tag, ...]:
    """The same in another order: those of these tables come first."""
    first = dict.fromkeys(Tag(table.schema, table.name) for table in tables)
    return (*first, *(tag for tag in tags if tag not in first))


class Pin(NamedTuple):
    """What an answer hangs on instead of a table's version: a slot's, and those of buckets."""

    slot: bytes
    buckets: tuple[bytes, ...]
    witnessed: bool = False
    """Only answers may that have a row for each: what the server numbers itself is no other's
    number."""


Pins = tuple[Pin | None, ...]
"""Of each of an answer's tables, in order; None of one on which it hangs as a whole."""
