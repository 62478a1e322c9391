"""What is known of a server's tables and routines: their definitions, as far as they matter."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, NamedTuple

from sqlcache.sql.names import TableName
from sqlcache.sql.statement import DELETES, Changes

SELF_CONTAINED_ENGINES = frozenset({"innodb", "myisam", "aria", "archive", "rocksdb", "tokudb"})
"""Engines (lower case) whose rows change only by statements on the table itself.

Left out on purpose: MRG_MYISAM, OQGRAPH (they read other tables), FEDERATED, CONNECT, SPIDER, NDB,
S3, COLUMNSTORE (others write the same rows), CSV (meant to be written as a file), MEMORY (a restart
of the server empties it), BLACKHOLE (nothing to save), PERFORMANCE_SCHEMA.
"""

WITH_ROWS_OF_THEIR_OWN = SELF_CONTAINED_ENGINES | {"memory", "csv", "blackhole"}
"""Engines (lower case) a write to whose tables changes no other table."""

MERGEABLE_ENGINE = "myisam"
"""That of the tables whose rows a MERGE table may have."""

LEADING_TO_NONE_BUT_THESE = WITH_ROWS_OF_THEIR_OWN | {
    "mrg_myisam",
    "performance_schema",
    "sequence",
    "ndbinfo",
}
"""Engines (lower case) a write to whose tables changes no others than tables of that one."""


class VirtualColumn(NamedTuple):
    """A column and its expression, in UTF-8, as a statement would have it."""

    name: str
    expression: bytes


@dataclass(frozen=True, slots=True)
class BaseTable:
    """A table, not a view or a sequence. `engine` is None when the server cannot open it.

    `virtual_columns` are those computed at every read: they may depend on more than the row
    (today's date; in MariaDB also NOW() and loadable functions). `versioned`: rows can be read as
    they were before they were changed. `set_along` are the names, in lower case, of the columns
    that the server sets with any change of a row: those that are computed, or ON UPDATE.
    """

    name: TableName
    engine: str | None
    virtual_columns: tuple[VirtualColumn, ...] = ()
    versioned: bool = False
    set_along: frozenset[str] = frozenset()

    @property
    def has_rows_of_its_own(self) -> bool:
        """Whether a write to it changes no other table, by its engine."""
        return (self.engine or "").lower() in WITH_ROWS_OF_THEIR_OWN


@dataclass(frozen=True, slots=True)
class View:
    """A view. `body` is the SELECT as information_schema.VIEWS prints it, in UTF-8; None if hidden.

    The server prints bodies with tables' full names and in its default sql_mode, whatever the
    modes were in which the view was made.
    """

    name: TableName
    body: bytes | None
    words: frozenset[bytes] = frozenset()
    """Which of those are in its body that matter; see `routines.watched_words`."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """MariaDB's sequence object: reading it is a read of a counter that moves without a bump."""

    name: TableName


Relation = BaseTable | View | Sequence


class TemporalColumns(NamedTuple):
    """The names of a table's or view's columns that are TIMEs, and of those that have a date."""

    times: frozenset[str] = frozenset()
    dates: frozenset[str] = frozenset()


class IntegerColumn(NamedTuple):
    """A column of integers, of an index, and which of them it can hold. `numbers`: where it is
    given none, or 0, the server may give it one. `identifies`: it is all of the primary key.
    `nullable`: what is given a NULL has one; others may have something else then.
    """

    name: str
    least: int
    most: int
    numbers: bool
    identifies: bool = False
    nullable: bool = False

    @property
    def gives_new(self) -> bool:
        """Whether what the server gives it is what no row has."""
        return self.numbers and self.identifies

    @property
    def parts(self) -> tuple["KeyColumn", ...]:
        """See `Together`."""
        return (self,)


class StringColumn(NamedTuple):
    """A column of strings, of an index, under one of `COLLATIONS`; how many characters it can hold,
    and whether NULL."""

    name: str
    collation: str
    characters: int
    nullable: bool = False

    @property
    def numbers(self) -> bool:
        """See `IntegerColumn`."""
        return False

    @property
    def gives_new(self) -> bool:
        """See `IntegerColumn`."""
        return False

    @property
    def parts(self) -> tuple["KeyColumn", ...]:
        """See `Together`."""
        return (self,)


KeyColumn = IntegerColumn | StringColumn


class Together(NamedTuple):
    """Several columns of a unique index as one, the first of it among them. None `numbers`."""

    parts: tuple[KeyColumn, ...]
    """By name, whatever their order in the index is."""

    @property
    def name(self) -> str:
        """For people."""
        return f"({', '.join(each.name for each in self.parts)})"

    @property
    def gives_new(self) -> bool:
        """See `IntegerColumn`."""
        return False


Key = KeyColumn | Together


class Columns(NamedTuple):
    """What tells a table's rows apart, and what does not. `keys` are the columns that begin its
    indexes, or are of its primary key; `together` those of unique ones that do so as one, the most
    of them first. `unindexed` are those that are in no index, by name, where the place of a row
    depends on its indexes alone and no column on others: who does not read them need not know of
    their change. `only_key` are the columns that no two rows have alike, where there is but one
    such key.
    """

    keys: tuple[KeyColumn, ...] = ()
    unindexed: tuple[str, ...] = ()
    only_key: tuple[str, ...] = ()
    together: tuple[Together, ...] = ()


NO_COLUMNS = Columns()

COLLATIONS: Final = re.compile(
    r"utf8(?:mb[34])?_(?:(?:general|unicode|unicode_520)_(?:nopad_)?ci|(?:nopad_)?bin)"
    r"|utf8mb4_0900_(?:ai_ci|as_ci|as_cs|bin)"
    r"|utf8mb[34]_uca1400_(?:nopad_)?(?:ai|as)_(?:ci|cs)"
    r"|latin1_(?:(?:swedish|general)_(?:nopad_)?ci|general_cs|(?:nopad_)?bin)"
    r"|ascii_(?:general_(?:nopad_)?ci|(?:nopad_)?bin)"
)
"""Those under which it was tried which strings are equal, see `test_collations`."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger on `table`. `body` is its statement in UTF-8, to be read under `sql_mode`.

    Names without a schema in the body belong to the table's schema, where every trigger lives.
    """

    table: TableName
    body: bytes
    sql_mode: str = ""
    unruly: bool = False
    """Whether it may change more than rows; see `routines.is_unruly`."""
    name: str = ""
    leaves: bool = False
    """Whether it may leave something in its session; see `routines.leaves_something`."""
    words: frozenset[bytes] = frozenset()
    """Which of those are in its body that matter; see `routines.watched_words`."""


@dataclass(frozen=True, slots=True)
class StoredRoutine:
    """A stored procedure or function. `body` is its statement in UTF-8, to be read under
    `sql_mode`; None if it may not be seen, or is not SQL.

    Names without a schema in the body belong to the routine's.
    """

    name: TableName
    is_function: bool
    body: bytes | None
    sql_mode: str = ""
    unruly: bool = False
    """Whether it may change more than rows; see `routines.is_unruly`."""
    leaves: bool = False
    """Whether it may leave something in its session; see `routines.leaves_something`."""
    words: frozenset[bytes] = frozenset()
    """Which of those are in its body that matter; see `routines.watched_words`."""


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key by which a change of `parent` changes rows of `child`.

    `on_delete` and `on_update` are its rules, as information_schema calls them. `referred` are the
    columns of the parent to which it refers, and `columns` those of the child that do, by their
    names in lower case; None where they are not known.
    """

    parent: TableName
    child: TableName
    on_delete: str = "CASCADE"
    on_update: str = "CASCADE"
    referred: frozenset[str] | None = None
    columns: frozenset[str] | None = None

    def changes(self, of_parent: Changes) -> Changes | None:
        """What changes of the parent may do to the child; None for nothing."""
        found = []
        if of_parent.deletes and self.on_delete not in _REFUSES:
            found.append(DELETES if self.on_delete == "CASCADE" else Changes(self.columns))
        if self.on_update not in _REFUSES and self._follows(of_parent.columns):
            found.append(Changes(self.columns))
        return reduce(Changes.with_, found) if found else None

    def _follows(self, columns: frozenset[str] | None) -> bool:
        """Whether it refers to one of these."""
        if columns is None or self.referred is None:
            return columns != frozenset()
        return not columns.isdisjoint(self.referred)


_REFUSES = frozenset({"NO ACTION", "RESTRICT"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of some tables: what they are, and what hangs on them. `cascades` are those
    into them."""

    relations: Iterable[Relation] = ()
    triggers: Iterable[Trigger] = ()
    cascades: Iterable[Cascade] = ()
    temporal_columns: Mapping[TableName, TemporalColumns] = field(default_factory=dict)
    columns: Mapping[TableName, Columns] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a catalog is to be read again: all that is in some schemas, some tables, what
    routines there are; or all of it."""

    schemas: frozenset[str] = frozenset()
    tables: frozenset[TableName] = frozenset()
    routines: bool = False
    everywhere: bool = False

    def __or__(self, other: "Scope") -> "Scope":
        return Scope(
            self.schemas | other.schemas,
            self.tables | other.tables,
            self.routines or other.routines,
            self.everywhere or other.everywhere,
        )

    def covers(self, table: TableName) -> bool:
        """Whether the table is read again."""
        return self.everywhere or table in self.tables or table.schema in self.schemas


EVERYWHERE = Scope(everywhere=True)
