"""What sqlcache must know of the upstream's schema: which tables a read or a write really touches.

A statement names tables; this says what lies behind the names. Laws:

* A snapshot: it never changes, whoever follows the schema builds another one. What it remembers
  inside only saves work.
* Names go in as `resolve` gives them or as information_schema spells them; what comes out is folded
  as the server compares names.
* Reads default to "not cacheable", writes to "everything": a name, an engine or a body that is not
  understood never becomes a guess.
* A write may name too many tables, never too few. A read names every table and view whose change
  can change its answer.
"""

import re
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Literal, NamedTuple

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.analysis import analyse, identifiers_in
from sqlcache.sql.facts import (
    NO_COLUMNS,
    BaseTable,
    Cascade,
    Columns,
    Facts,
    Relation,
    StoredRoutine,
    TemporalColumns,
    Trigger,
    View,
    VirtualColumn,
)
from sqlcache.sql.functions import KNOWING_ZONES, KNOWN, XPATH
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import tokenize
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.routines import Declared, Routine
from sqlcache.sql.statement import (
    ANYTHING,
    Changes,
    Kind,
    Markers,
    Operands,
    Statement,
)

MAX_REMEMBERED_CLOSURES = 4096
_REMEMBERED_NAMES = 32  # at most, of a closure that is remembered
_REMEMBERED_BODIES = 128
_TOO_LONG = 65  # characters, for a name
"""Closures a catalog remembers of each kind: one per set of tables that statements name."""

SYSTEM_SCHEMAS = frozenset({"information_schema", "performance_schema", "mysql", "sys", "ndbinfo"})
"""Lower case; the server compares the names of its own schemas without case everywhere."""

SELF_CONTAINED_ENGINES = frozenset({"innodb", "myisam", "aria", "archive", "rocksdb", "tokudb"})
"""Engines (lower case) whose rows change only by statements on the table itself.

Left out on purpose: MRG_MYISAM, OQGRAPH (they read other tables), FEDERATED, CONNECT, SPIDER, NDB,
S3, COLUMNSTORE (others write the same rows), CSV (meant to be written as a file), MEMORY (a restart
of the server empties it), BLACKHOLE (nothing to save), PERFORMANCE_SCHEMA.
"""

_WITH_ROWS_OF_THEIR_OWN = SELF_CONTAINED_ENGINES | {"memory", "csv", "blackhole"}
"""Engines (lower case) a write to whose tables changes no other table."""

_PRINTED = Dialect()
"""How the server prints views' bodies and columns' expressions, whatever the sql_mode."""

NO_ZONES = "and the server has no time zones by name yet"
TAKES_TODAY = "may make a date of a TIME, with the date of today"

_MADE_WHEN_READ = SYSTEM_SCHEMAS - {"mysql"}
"""Those of them whose rows the server makes amid a statement, and only then looks at some of the
rights on them; and whose views call functions."""

_RUNS_UNSEEN_CODE = frozenset({"CALL", "EXECUTE", "PREPARE"})

_FEIGNS_ERRORS = re.compile(rb"\b(?:PREPARE|EXECUTE|MYSQL_ERRNO|AGAINST|sys)\b", re.IGNORECASE)
"""What may raise ER_PARSE_ERROR amid a statement; InnoDB's full-text search does."""

_LOOKS_BACK = re.compile(rb"\b(FOUND_ROWS|ROW_COUNT)\b", re.IGNORECASE)
"""What tells of the statement before; code may ask as well."""

_MOST_SEARCHED = 32_768
_WORD = re.compile(r"[a-z_$][a-z0-9_$]*")
"""In lower case. The version of `/*!50000f()*/` is none of it."""

_ROWS_OF_TRIGGERS = frozenset({"new", "old"})

_TYPES = {"TINYINT", "SMALLINT", "MEDIUMINT", "INTEGER", "BIT", "REAL", "DEC", "FIXED", "DATETIME"}
_TEXT_TYPES = {"TEXT", "BLOB", "ENUM", "NCHAR", "NVARCHAR"}
_PRINTED_FUNCTIONS = {"ROLLUP_GROUP_ITEM", "ROLLUP_SUM_SWITCHER", "JSON_DUALITY_OBJECT"}
_NOT_STORED = KNOWN | _TYPES | _TEXT_TYPES | _PRINTED_FUNCTIONS | {"UNTIL", "DO", "WITH"}
"""What stands before a parenthesis and is a stored function only where one has that very name.

Built-in functions, some of which MySQL prints into bodies of views and knows nowhere else, and
words of trigger bodies that call nothing.
"""

_NONE: frozenset[str] = frozenset()
_BEYOND_UTF8MB3 = re.compile("[\U00010000-\U0010ffff]")

_ROWS = frozenset({"NEW", "OLD", "new", "old", "New", "Old"})
"""What triggers call the rows they see."""

Flavour = Literal["mysql", "mariadb"]


Told = Iterable[tuple[TableName, Changes]]
"""Of some tables what may be done to their rows: of others that is anything."""


class CodeReach(NamedTuple):
    """What routines may write, the schemas whose definitions say so, and all names, in lower case,
    that may be tables'."""

    tables: frozenset[TableName]
    schemas: frozenset[str]
    named: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReadClosure:
    """What a read depends on.

    `reason` says why the read is not cacheable, None when it is; then the sets are complete.
    `may_write` says that a view calls, or may call, a function that may change any table.
    `routine_schemas` are those of the declared functions that views call.
    """

    base_tables: frozenset[TableName]
    views: frozenset[TableName]
    routine_schemas: frozenset[str]
    reason: str | None
    may_write: bool

    @property
    def cacheable(self) -> bool:
        return self.reason is None

    @property
    def tables(self) -> frozenset[TableName]:
        """The table tags the answer depends on; a view's own, because it can be redefined."""
        return self.base_tables | self.views

    @property
    def schemas(self) -> frozenset[str]:
        """The schema tags the answer depends on."""
        return self.routine_schemas.union(name.schema for name in self.tables)


_NO_ROUTINE = StoredRoutine(TableName("", ""), is_function=True, body=b"")
"""Stands for a function that is built in, or does not exist."""


class _Use(NamedTuple):
    """What a routine's body names: None among the routines is one that is not known."""

    tables: frozenset[TableName]
    schemas: frozenset[str]
    routines: tuple[StoredRoutine | None, ...]
    named: frozenset[str]


class WriteClosure(NamedTuple):
    """What a write reaches.

    `tables` are all that it may change, None for "any table". `schemas` are those whose definitions
    decide that: a change of any other schema's definitions changes nothing of it.
    """

    tables: frozenset[TableName] | None
    schemas: frozenset[str]


class _Further(NamedTuple):
    """What a write to a table leads to, one step far. `schemas` are named by way of tables that
    are not known: there may be such ones later."""

    tables: frozenset[TableName]
    schemas: frozenset[str]


class _Assessment(NamedTuple):
    """A view assessed by its body alone: `reason` as in ReadClosure."""

    reads: tuple[TableName, ...]
    routine_schemas: frozenset[str]
    reason: str | None
    may_write: bool


class _NamesOfCode(NamedTuple):
    """Functions and views: those whose names are words, and the others."""

    functions: frozenset[str]
    other_functions: list[str]
    views: dict[str, list[TableName]]
    other_views: list[tuple[str, TableName]]


class Catalog:
    """The upstream's schema at one moment, and the answers that follow from it.

    `server` is what tells this server from all others. `triggers_visible` says that the service
    account sees all there is: triggers, views' bodies and foreign keys. Where it does not, a
    write's reach is unknown and views are not cacheable; `lacks` are the rights it would need, for
    people. `stored_functions` are the names of stored and loadable ones, `routines` the stored
    ones that no loadable one comes before. `unruly_routines` says that some routine may change
    more than rows. `rights` are rows that are other ones when a new session may have other roles
    or rights, `grants` when any session may have others on single tables, columns and routines.
    `declared` are the routines of which the operator has said what they do. `zones`: the server has
    time zones by name. `began` is between which times it began its work. `tells_commits`: it tells
    sessions, where they ask for that, what their commits are called. `tells_columns`: the columns
    of tables are among what it knows.
    """

    def __init__(
        self,
        *,
        flavour: Flavour,
        version: tuple[int, ...],
        lower_case_table_names: int,
        server: str = "",
        relations: Iterable[Relation] = (),
        triggers: Iterable[Trigger] = (),
        cascades: Iterable[Cascade] = (),
        transactional_engines: Iterable[str] = ("InnoDB",),
        stored_functions: Iterable[str] = (),
        routines: Iterable[StoredRoutine] = (),
        triggers_visible: bool = True,
        lacks: str = "",
        unruly_routines: bool = False,
        rights: Iterable[tuple[str, ...]] = (),
        grants: Iterable[tuple[str, ...]] = (),
        declared: Iterable[Routine] = (),
        temporal_columns: Mapping[TableName, TemporalColumns] | None = None,
        columns: Mapping[TableName, Columns] | None = None,
        zones: bool = True,
        began: tuple[float, float] = (0, 0),
        tells_commits: bool = False,
        tells_columns: bool = True,
    ) -> None:
        self.flavour = flavour
        self.version = version
        self.server = server
        self.lower_case_table_names = lower_case_table_names
        self.triggers_visible = triggers_visible
        self.lacks = lacks
        self.unruly_routines = unruly_routines
        self.rights = frozenset(rights)
        self.grants = frozenset(grants)
        self.zones = zones
        self.began = began
        self.tells_commits = tells_commits
        self.tells_columns = tells_columns
        self._declared = frozenset(declared)
        self.stored_functions = frozenset(name.lower() for name in stored_functions)
        self._transactional_engines = frozenset(name.lower() for name in transactional_engines)
        self.schemas = self.schemas_of(self._declared)
        """The schemas that have anything in them, or once had."""
        self._routines = {self._routine_key(each): each for each in routines}
        self._relations: dict[TableName, Relation] = {}
        self._temporal: dict[TableName, TemporalColumns] = {}
        self._columns: dict[TableName, Columns] = {}
        self._triggers: dict[TableName, list[Trigger]] = {}
        self._parents: dict[TableName, frozenset[Cascade]] = {}
        self._children: dict[TableName, frozenset[Cascade]] = {}
        self._learn(Facts(relations, triggers, cascades, temporal_columns or {}, columns or {}))

    def _learn(self, facts: Facts) -> None:
        """Adds facts, and remembers no answer that was given without them."""
        for relation in facts.relations:
            self._relations[self._folded(relation.name)] = relation
        for name, columns in facts.temporal_columns.items():
            folded = TemporalColumns(*(frozenset(map(str.lower, each)) for each in columns))
            self._temporal[self._folded(name)] = folded
        for name, known in facts.columns.items():
            self._columns[self._folded(name)] = known
        for trigger in facts.triggers:
            self._triggers.setdefault(self._folded(trigger.table), []).append(trigger)
        for known_as in facts.cascades:
            parent, child = self._folded(known_as.parent), self._folded(known_as.child)
            cascade = replace(known_as, parent=parent, child=child)
            self._parents[child] = self._parents.get(child, frozenset()) | {cascade}
            self._children[parent] = self._children.get(parent, frozenset()) | {cascade}
        self.schemas |= {name.schema for name in self._relations}
        self.schemas |= {schema for _, schema, _ in self._routines}
        for kept in (
            *("may_feign_errors", "_some_code_looks_back", "_some_ask_others"),
            "_names_of_code",
        ):
            self.__dict__.pop(kept, None)
        self._read = lru_cache(MAX_REMEMBERED_CLOSURES)(self._close_read)
        self._write = lru_cache(MAX_REMEMBERED_CLOSURES)(self._close_write)
        self._assess = lru_cache(MAX_REMEMBERED_CLOSURES)(self._assess_view)
        self._reach = lru_cache(MAX_REMEMBERED_CLOSURES)(self._written_through)
        self._used = lru_cache(MAX_REMEMBERED_CLOSURES)(self._use_in)

    def renewed(
        self, tables: Iterable[TableName], schemas: Iterable[str], facts: Facts
    ) -> "Catalog":
        """The catalog with these facts in place of all that it says of the tables, and of what is
        in the schemas. Costs little beside its size."""
        within = frozenset(schemas)
        other = copy(self)
        other._relations, other._temporal = self._relations.copy(), self._temporal.copy()
        other._columns = self._columns.copy()
        other._triggers, other._parents = self._triggers.copy(), self._parents.copy()
        other._children = self._children.copy()
        known = (self._relations, self._temporal, self._columns, self._triggers, self._parents)
        gone = set(tables)
        if within:
            gone.update(name for each in known for name in each if name.schema in within)
        for name in gone:
            other._forget(name)
        other._learn(facts)
        return other

    def with_routines(
        self, stored_functions: Iterable[str], routines: Iterable[StoredRoutine], *, unruly: bool
    ) -> "Catalog":
        """The catalog with these stored functions and routines in place of its own."""
        other = copy(self)
        other._routines = {self._routine_key(each): each for each in routines}
        other.stored_functions = frozenset(name.lower() for name in stored_functions)
        other.unruly_routines = unruly
        other._learn(Facts())
        return other

    def _forget(self, name: TableName) -> None:
        self._relations.pop(name, None)
        self._temporal.pop(name, None)
        self._columns.pop(name, None)
        self._triggers.pop(name, None)
        for cascade in self._parents.pop(name, ()):
            self._children[cascade.parent] -= {cascade}

    def leaning_on(self, tables: Iterable[TableName], schemas: Iterable[str]) -> set[TableName]:
        """The tables and views of which other things may be true when these tables' definitions, or
        those in these schemas, have changed: foreign keys lead into them, or their bodies name
        such tables. The tables themselves are among them."""
        within = frozenset(schemas)
        bodies = {
            name: (relation.body or b"").lower()
            for name, relation in self._relations.items()
            if isinstance(relation, View)
        }
        reached = {name for schema in within for name in _naming(schema, bodies)} | set(tables)
        pending = [*reached, *(name for name in self._children if name.schema in within)]
        while pending:
            name = pending.pop()
            children = {cascade.child for cascade in self._children.get(name, ())}
            found = _naming(name.name, bodies) | children
            pending += found - reached
            reached |= found
        return {name for name in reached if name.schema not in within}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return (
            (self.flavour, self.version, self.server, self.lower_case_table_names, self.zones),
            (self.triggers_visible, self.lacks),
            (self.unruly_routines, self.rights, self.grants, self._declared),
            (self.stored_functions, self._transactional_engines, self._relations),
            ({table: frozenset(each) for table, each in self._triggers.items()}, self._parents),
            (self._temporal, self._columns, self._routines),
        )

    def _routine_key(self, routine: StoredRoutine) -> tuple[bool, str, str]:
        schema, name = routine.name
        return routine.is_function, self.fold(schema), name.lower()

    def resolve(self, ref: TableRef, default_schema: str | None) -> TableName | None:
        """The full name a statement means; None where it names no schema and there is none."""
        schema = default_schema if ref.schema is None else ref.schema
        if schema is None:
            return None
        # Of a longer name no more is kept than makes it one that cannot be.
        return self._folded(TableName(schema[:_TOO_LONG], ref.name[:_TOO_LONG]))

    def named(self, refs: Iterable[TableRef], default_schema: str | None) -> frozenset[TableName]:
        """The full names of those tables that have one."""
        names = (self.resolve(ref, default_schema) for ref in refs)
        return frozenset(name for name in names if name is not None)

    def knows(self, name: TableName) -> bool:
        """Whether there is such a table, view or sequence, or the name is the server's own."""
        return self._folded(name) in self._relations or name.schema.lower() in SYSTEM_SCHEMAS

    def declared(self, default_schema: str | None) -> Declared:
        """The declared routines, for a text with this default schema."""
        return Declared(self._declared, default_schema, folds=self.lower_case_table_names != 0)

    def schemas_of(self, routines: Iterable[Routine]) -> frozenset[str]:
        """The schemas whose definitions say what these routines are."""
        return frozenset(self.fold(each.schema) for each in routines if each.schema is not None)

    def read_closure(self, names: Iterable[TableName]) -> ReadClosure:
        """What a read of these tables depends on, views opened down to base tables."""
        folded = frozenset(self._folded(name) for name in names)
        return self._read(folded) if len(folded) <= _REMEMBERED_NAMES else self._close_read(folded)

    def write_closure(
        self, names: Iterable[TableName], told: Told = ()
    ) -> frozenset[TableName] | None:
        """Every table a write to these may change, themselves included; None for "any table".

        Through views, triggers and foreign keys, and on from there. A name the catalog does not
        know stands for itself alone.
        """
        return self.reach(names, told).tables

    def reach(self, names: Iterable[TableName], told: Told = ()) -> WriteClosure:
        """The same with the schemas it depends on."""
        changes = dict.fromkeys(map(self._folded, names), ANYTHING)
        changes.update((self._folded(name), each) for name, each in told)
        written = frozenset(changes.items())
        few = len(written) <= _REMEMBERED_NAMES
        return self._write(written) if few else self._close_write(written)

    def leads(self, name: TableName) -> bool:
        """Whether some change of the table's rows changes rows by a foreign key."""
        return bool(self._children.get(name))

    def cascades_from(self, told: Told) -> frozenset[TableName] | None:
        """These tables, and those in which foreign keys change rows when this is done to rows of
        these; None for "any table". What triggers do is left out."""
        if not self.triggers_visible:
            return None
        reached: dict[TableName, Changes] = {}
        pending = [(self._folded(name), changes) for name, changes in told]
        while pending:
            name, changes = pending.pop()
            relation = self._relations.get(name)
            if isinstance(relation, BaseTable) and not _has_rows_of_its_own(relation):
                return None
            if (more := _with_more(reached, name, changes)) is not None:
                pending += self._cascaded(name, more)
        return frozenset(reached)

    @property
    def keys_cross_schemas(self) -> bool:
        """Whether rows of some table may be changed by a foreign key to a table of another
        schema."""
        return any(
            cascade.child.schema != name.schema
            for name, children in self._children.items()
            for cascade in children
        )

    def table_of_trigger(self, name: TableName) -> TableName | None:
        """The table a trigger is on; None if there is no such trigger."""
        for table, triggers in self._triggers.items():
            if table.schema == name.schema and any(
                each.name.lower() == name.name.lower() for each in triggers
            ):
                return table
        return None

    def code_on(self, tables: Iterable[TableName]) -> list[bytes]:
        """The texts of what there is on these tables: the bodies of triggers, and of views."""
        among = frozenset(tables)
        texts = [trigger.body for table in among for trigger in self._triggers.get(table, ())]
        relations = [self._relations.get(table) for table in among]
        return texts + [each.body for each in relations if isinstance(each, View) and each.body]

    def is_view(self, name: TableName) -> bool:
        """Whether it is known to be one."""
        return isinstance(self._relations.get(name), View)

    def merges(self, name: TableName) -> bool:
        """Whether a table `LIKE` this one may have the rows of other tables, too."""
        relation = self._relations.get(name)
        return isinstance(relation, BaseTable) and not _has_rows_of_its_own(relation)

    def fires_unruly_code(self, names: Iterable[TableName]) -> bool:
        """Whether what a write to these tables fires may change more than rows."""
        tables = self.write_closure(names)
        if tables is None:
            return self.unruly_routines or not self.triggers_visible or self._unruly_triggers
        fired = (trigger for table in tables for trigger in self._triggers.get(table, ()))
        return any(trigger.unruly for trigger in fired)

    def runs_code(self, reads: Iterable[TableName], writes: Iterable[TableName]) -> bool:
        """Whether a statement that reads and writes these tables may run code by that, a trigger's
        or what a view calls, or ask another server, or its own for what it knows of itself."""
        written = frozenset(writes)
        reached = self.write_closure(written)
        read = self.read_closure(written.union(reads))
        if reached is None or read.may_write or read.routine_schemas:
            return True
        fired = any(self._triggers.get(table) for table in reached)
        return fired or any(map(self._may_ask_others, read.base_tables))

    def _may_ask_others(self, name: TableName) -> bool:
        """Whether rows of a table, or what is named in place of one, may be made by others."""
        relation = self._relations.get(name)
        elsewhere = isinstance(relation, BaseTable) and not _has_rows_of_its_own(relation)
        return elsewhere or name.schema.lower() in _MADE_WHEN_READ

    @property
    def applies_events_alone(self) -> bool:
        """Whether BINLOG, to whatever tables, fires nothing; MySQL's fires no trigger."""
        fires = self.flavour == "mariadb" and any(self._triggers.values())
        return self.triggers_visible and not fires and not self._some_ask_others

    @cached_property
    def _some_ask_others(self) -> bool:
        return any(map(self._may_ask_others, self._relations))

    def lacks_routine(
        self, path: tuple[str, ...], default_schema: str | None, *, is_function: bool
    ) -> bool:
        """Whether nothing of this name can be called, neither in a schema nor in a package."""
        if not self.triggers_visible or len(path) > 2 or not all(map(str.isascii, path)):
            return False
        schema = path[0] if len(path) == 2 else default_schema or ""
        owner, name = self.fold(schema), path[-1].lower()
        named = {(kind, each) for kind, _, each in self._routines}
        if owner.lower() in SYSTEM_SCHEMAS or not all(each.isascii() for _, each in named):
            return False
        loadable = {n for n in self.stored_functions if (True, n) not in named}  # or a package
        if not loadable.isdisjoint((schema.lower(), name)):
            return False
        return (is_function, owner, name) not in self._routines

    @cached_property
    def may_feign_errors(self) -> bool:
        """Whether some code may say amid its work that a statement cannot be read."""
        bodies = self._bodies
        unseen = not self.triggers_visible or None in bodies
        return unseen or any(may_feign_errors(body) for body in bodies if body is not None)

    @property
    def _bodies(self) -> list[bytes | None]:
        """Those of all routines, triggers and views; None for one that may not be seen."""
        bodies = [each.body for each in self._routines.values()]
        bodies += [trigger.body for triggers in self._triggers.values() for trigger in triggers]
        return bodies + [e.body for e in self._relations.values() if isinstance(e, View)]

    @cached_property
    def _some_code_looks_back(self) -> bool:
        return any(map(_looks_back, self._bodies))

    def looks_back(
        self, reads: Iterable[TableName], writes: Iterable[TableName]
    ) -> frozenset[bytes]:
        """Which of FOUND_ROWS and ROW_COUNT a statement may ask by the code it runs: by views that
        it reads, and what its writes fire."""
        if not self._some_code_looks_back:
            return frozenset()
        written = frozenset(writes)
        read = self.read_closure(written.union(reads))
        reached = self.write_closure(written)
        triggers = chain.from_iterable(
            each for table, each in self._triggers.items() if reached is None or table in reached
        )
        relations = (self._relations.get(name) for name in read.views)
        bodies = [each.body for each in relations if isinstance(each, View)]
        bodies += [trigger.body for trigger in triggers]
        if reached is None or read.may_write:  # it may call any
            bodies += [routine.body for routine in self._routines.values()]
        return frozenset[bytes]().union(*map(_looks_back, bodies))

    def code_reach(
        self,
        procedure: TableRef | None,
        functions: Iterable[tuple[str, ...]],
        default_schema: str | None,
    ) -> CodeReach | None:
        """What a procedure and functions, as a statement names them, may write; None for anything.

        They change nothing else, such as the session.
        """
        if not self.triggers_visible:
            return None
        schema = "" if default_schema is None else self.fold(default_schema)
        pending: list[StoredRoutine | None] = []
        schemas = {schema} - {""}
        if procedure is not None:
            path = tuple(part for part in procedure if part is not None)
            pending.append(self._routine(path, schema, is_function=False))
        pending += [self._routine(path, schema, is_function=True) for path in functions]
        seen: set[StoredRoutine] = set()
        tables: set[TableName] = set()
        named: set[str] = set()
        while pending:
            routine = pending.pop()
            if routine is None:
                return None
            if routine is _NO_ROUTINE or routine in seen:
                continue
            seen.add(routine)
            used = self._used(routine)
            if used is None:
                return None
            schemas |= {self.fold(routine.name.schema), *used.schemas}
            tables |= used.tables
            named |= used.named
            pending += used.routines
        return CodeReach(frozenset(tables), frozenset(schemas), frozenset(named))

    def leaf_reach(self, procedure: TableRef, default_schema: str | None) -> CodeReach | None:
        """The same of a procedure that runs no other code, nor says what it likes in place of the
        server's errors: then it is not told from within that a routine may not be called."""
        reach = self.code_reach(procedure, (), default_schema)
        path = tuple(part for part in procedure if part is not None)
        schema = "" if default_schema is None else self.fold(default_schema)
        routine = self._routine(path, schema, is_function=False)
        used = None if routine is None else self._used(routine)
        if reach is None or used is None or routine is None or routine.body is None:
            return None
        # It is told of one that does not exist, too.
        tells = bool(used.routines) or may_feign_errors(routine.body)
        if tells or self.runs_code(reach.tables, reach.tables):
            return None
        return reach

    def may_call(self, text: str | None) -> bool:
        """Whether a text may call a stored function, or name a view that does; None is one that is
        not known."""
        if self.triggers_visible and not self.stored_functions:
            return False
        if text is None or not self.triggers_visible or len(text) > _MOST_SEARCHED:
            return True
        plain, others, views, other_views = self._names_of_code
        # The server compares other letters in its own way.
        if not text.isascii() or not all(map(str.isascii, others)):
            return True
        lower = text.lower()
        words = set(_WORD.findall(lower))
        if not plain.isdisjoint(words) or any(name in lower for name in others):
            return True
        named = [view for word in words & views.keys() for view in views[word]]
        named += [view for name, view in other_views if not name.isascii() or name in lower]
        return any(self.read_closure([view]).may_write for view in named)

    @cached_property
    def _names_of_code(self) -> "_NamesOfCode":
        """Those of stored functions, and of views, as they stand in texts. Which views call a
        function is found out of those that are named: of thousands it takes seconds."""
        functions = {_in_texts(name) for name in self.stored_functions}
        names = _NamesOfCode(frozenset(filter(_WORD.fullmatch, functions)), [], {}, [])
        names.other_functions.extend(functions - names.functions)
        for view in filter(self.is_view, self._relations):
            name = _in_texts(view.name)
            if _WORD.fullmatch(name):
                names.views.setdefault(name, []).append(view)
            else:
                names.other_views.append((name, view))
        return names

    def _routine(
        self, path: tuple[str, ...], schema: str, *, is_function: bool
    ) -> StoredRoutine | None:
        """The routine that a call means; None where that is not known.

        A function that nobody has is built in, or none: the catalog tells of all others.
        """
        if len(path) > 2 or not all(map(str.isascii, path)):
            return None  # the server compares other letters in its own way
        owner = self.fold(path[0]) if len(path) == 2 else schema
        name = path[-1].lower()
        known = self._routines.get((is_function, owner, name))
        if known is not None:
            return known
        if not all(name.isascii() for _, _, name in self._routines):
            return None
        nobodys = is_function and len(path) == 1 and name not in self.stored_functions
        return _NO_ROUTINE if nobodys else None

    def _use_in(self, routine: StoredRoutine) -> "_Use | None":
        """What a routine's body names."""
        if routine.body is None or routine.unruly:
            return None
        names = identifiers_in(routine.body, Dialect.stored_under(routine.sql_mode))
        schema = self.fold(routine.name.schema)
        tables = {name for path in names.paths for name in self._tables_of(path, schema)}
        schemas = self._schemas_named(names.paths)
        if schemas is None:
            return None
        declared = self.declared(schema)
        routines: list[StoredRoutine | None] = [
            self._routine(path, schema, is_function=False) for path in names.called
        ]
        for path in names.functions:
            if not self._may_be_stored(path, schema) or path in names.called:
                continue
            known = declared.find(path)
            if known is None:
                routines.append(self._routine(path, schema, is_function=True))
            else:
                named = (TableName(ref.schema or schema, ref.name) for ref in known.writes)
                tables |= set(map(self._folded, named))
        parts = frozenset(part.lower() for path in names.paths for part in path)
        return _Use(frozenset(tables), schemas, tuple(routines), parts)

    def _schemas_named(self, paths: Iterable[tuple[str, ...]]) -> frozenset[str] | None:
        """The schemas that dotted names may begin with; None where one is not known: a table may
        have been made in it."""
        paths = list(paths)
        bare = {path[-1].lower() for path in paths} | _ROWS_OF_TRIGGERS
        first = {path[0] for path in paths if len(path) > 1}
        known = {self.fold(name) for name in first} & self.schemas
        strange = {name for name in first if self.fold(name) not in known}
        return frozenset(known) if {name.lower() for name in strange} <= bare else None

    @property
    def _unruly_triggers(self) -> bool:
        return any(each.unruly for triggers in self._triggers.values() for each in triggers)

    def may_take_today(self, operands: Operands, names: Iterable[TableName]) -> bool:
        """Whether a query of these tables may make a date of a TIME, which takes today's."""
        known = [self._temporal[name] for name in names if name in self._temporal]
        times = frozenset[str]().union(*(columns.times for columns in known))
        dates = frozenset[str]().union(*(columns.dates for columns in known))
        return (operands.times or _is_among(times, operands)) and (
            operands.dates or _is_among(dates, operands)
        )

    def dateless(self, markers: Markers, names: Iterable[TableName]) -> tuple[bool, ...]:
        """For each marker of a query of these tables, whether no date can be wanted there."""
        known = [self._temporal[name] for name in names if name in self._temporal]
        temporal = {name.lower() for columns in known for name in columns.times | columns.dates}
        if temporal.isdisjoint(markers.names) and not markers.dates:
            return (True,) * len(markers.columns)
        return tuple(name is not None and name not in temporal for name in markers.columns)

    def columns(self, name: TableName) -> Columns:
        """Those of a table by which its answers can be told apart, for whoever reads it: none of
        what is not a plain table, or may compute columns of rows that are not asked for."""
        relation = self._relations.get(name)
        if not isinstance(relation, BaseTable) or relation.virtual_columns:
            return NO_COLUMNS
        known = self._columns.get(name, NO_COLUMNS)
        if not _has_rows_of_its_own(relation):
            return NO_COLUMNS
        in_place = self._rolls_back(name) and not relation.versioned
        return known if in_place else known._replace(unindexed=())

    def set_with(self, name: TableName, columns: frozenset[str]) -> frozenset[str] | None:
        """All columns of a table that are set where these are; None where that may be any."""
        relation = self._relations.get(name)
        return columns | relation.set_along if isinstance(relation, BaseTable) else None

    def changes_as_told(self, name: TableName, changes: Changes) -> bool:
        """Whether a change of the table's rows is surely what its text says, and no more, if that
        may do this to them."""
        fired = not self.triggers_visible or name in self._triggers
        return not fired and not self._cascaded(name, changes)

    def lacks_zones_of(self, statement: Statement) -> str:
        """The function it calls that would answer otherwise once there are zones; else ""."""
        return "" if self.zones else min(statement.functions & KNOWING_ZONES, default="")

    def is_transactional(self, name: TableName) -> bool:
        """Whether a rollback undoes a write to it. A view's is that of all it reads."""
        closure = self.read_closure([name])
        return all(map(self._rolls_back, closure.base_tables)) and bool(closure.base_tables)

    def fold(self, identifier: str) -> str:
        """A schema's or table's name in the form in which the server compares it: MySQL has none
        with characters of four bytes, and takes others for these.

        Source: MySQL Reference Manual, "Identifier Case Sensitivity".
        """
        if self.flavour == "mysql":
            identifier = _BEYOND_UTF8MB3.sub("?", identifier)
        if self.lower_case_table_names == 0:
            return identifier
        # One character at a time, as the server does: str.lower() knows a final sigma, and makes
        # two characters of a dotted capital I.
        return "".join(character.lower()[0] for character in identifier)

    def _folded(self, name: TableName) -> TableName:
        return TableName(self.fold(name.schema), self.fold(name.name))

    def _rolls_back(self, name: TableName) -> bool:
        match self._relations.get(name):
            case BaseTable(engine=str(engine)):
                return engine.lower() in self._transactional_engines
            case _:
                return False

    def _close_read(self, names: frozenset[TableName]) -> ReadClosure:
        base_tables: set[TableName] = set()
        views: set[TableName] = set()
        routine_schemas: set[str] = set()
        reasons: list[str] = []
        may_write = False
        pending = sorted(names, reverse=True)
        while pending:
            name = pending.pop()
            if name in base_tables or name in views:
                continue
            relation = self._relations.get(name)
            if isinstance(relation, View):
                views.add(name)
                assessment = self._assess(relation)
                pending.extend(assessment.reads)
                routine_schemas |= assessment.routine_schemas
                may_write = may_write or assessment.may_write
                reason = assessment.reason or _of_system(name)
            else:
                base_tables.add(name)
                reason = self._objection(name, relation)
            if reason is not None:
                reasons.append(reason)
        first = reasons[0] if reasons else None
        return ReadClosure(
            frozenset(base_tables), frozenset(views), frozenset(routine_schemas), first, may_write
        )

    def _close_write(self, written: frozenset[tuple[TableName, Changes]]) -> WriteClosure:
        if not self.triggers_visible:
            return WriteClosure(None if written else frozenset(), _NONE)
        reached: dict[TableName, Changes] = {}
        schemas: set[str] = set()
        pending = list(written)
        while pending:
            name, changes = pending.pop()
            if name in self._triggers:  # one may set other columns of the row
                changes = ANYTHING
            if (more := _with_more(reached, name, changes)) is None:
                continue
            further = self._reach(name)
            if further is None:
                return WriteClosure(None, _NONE)
            schemas |= further.schemas
            pending += ((table, ANYTHING) for table in further.tables)
            pending += self._cascaded(name, more)
        schemas.update(name.schema for name in reached)
        return WriteClosure(frozenset(reached), frozenset(schemas))

    def _cascaded(self, name: TableName, changes: Changes) -> list[tuple[TableName, Changes]]:
        """What foreign keys do in other tables, or in the same, where this is done to a table's
        rows."""
        if changes.columns:
            changes = changes._replace(columns=self.set_with(name, changes.columns))
        found = ((each.child, each.changes(changes)) for each in self._children.get(name, ()))
        return [(child, of_child) for child, of_child in found if of_child is not None]

    def _objection(self, name: TableName, relation: Relation | None) -> str | None:
        """Why a read of this table, which is no view, is not cacheable."""
        if (why := _of_system(name)) is not None:
            return why
        shown = _shown(name)
        if relation is None:
            return f"{shown} is not a table known to the catalog"
        if not isinstance(relation, BaseTable):
            return f"{shown} is a sequence"
        if (relation.engine or "").lower() not in SELF_CONTAINED_ENGINES:
            return f"rows of {shown} can change unseen in engine {relation.engine}"
        for column in relation.virtual_columns:
            if why := self._unsteady(column, name):
                return f"a virtual column of {shown} {why}"
        return None

    def _unsteady(self, column: VirtualColumn, table: TableName) -> str | None:
        """Why the column may differ from one read to the next.

        It takes on its own type, as the expression does that of the column in a COALESCE. MySQL
        refuses all that it knows to depend on more than the row: the date of today it does not, nor
        an XPath's user variables.
        """
        name, quoted = (part.replace("`", "``").encode() for part in (table.name, column.name))
        text = b"SELECT COALESCE(`%b`, %b) FROM `%b`" % (quoted, column.expression, name)
        reason = self._assess_query(text, table.schema).reason
        unseen = reason == TAKES_TODAY or _names_xpath(column.expression)
        return reason if unseen or self.flavour == "mariadb" else None

    def _assess_view(self, view: View) -> _Assessment:
        shown = _shown(view.name)
        if view.body is None or not self.triggers_visible:
            return _Assessment(
                (), _NONE, f"view {shown}: the service account may not see its body", True
            )
        assessment = self._assess_query(view.body, self.fold(view.name.schema))
        return assessment._replace(
            reason=assessment.reason and f"view {shown}: {assessment.reason}"
        )

    def _assess_query(self, text: bytes, schema: str) -> _Assessment:
        statements = _analysed(text, self.declared(schema))
        if len(statements) != 1:
            return _Assessment((), _NONE, "is not one statement", True)
        (statement,) = statements
        reason = None if statement.cacheable else statement.reason
        stored = self.stored_functions.intersection(name.lower() for name in statement.functions)
        if stored:
            reason = reason or f"calls {min(stored)}(), which is a stored or loadable function"
        if calls := self.lacks_zones_of(statement):
            reason = reason or f"calls {calls}(), {NO_ZONES}"
        reads = tuple(name for ref in statement.reads if (name := self.resolve(ref, schema)))
        if self.may_take_today(statement.operands, reads):
            reason = reason or TAKES_TODAY
        unknown = statement.functions - KNOWN
        harmless = statement.kind is Kind.READ and bool(unknown) and unknown <= _NOT_STORED
        writes = bool(stored) or any(routine.writes for routine in statement.routines)
        may_write = writes or (statement.writes_everything and not harmless)
        return _Assessment(reads, self.schemas_of(statement.routines), reason, may_write)

    def _written_through(self, name: TableName) -> _Further | None:
        """What a write to this table writes in its turn, one step far and not by foreign keys; None
        for "any table"."""
        relation = self._relations.get(name)
        if isinstance(relation, View):
            body = relation.body
            return None if body is None else self._named_in(body, _PRINTED, name.schema)
        if isinstance(relation, BaseTable) and not _has_rows_of_its_own(relation):
            return None
        further = _Further(frozenset(), _NONE)
        for trigger in self._triggers.get(name, ()):
            written = self._written_by(trigger, name.schema)
            if written is None:
                return None
            further = _Further(further.tables | written.tables, further.schemas | written.schemas)
        return further

    def _written_by(self, trigger: Trigger, schema: str) -> _Further | None:
        if "ORACLE" in trigger.sql_mode.upper().split(","):
            return None  # there a procedure is called by its name alone
        return self._named_in(trigger.body, Dialect.stored_under(trigger.sql_mode), schema)

    def _named_in(self, body: bytes, dialect: Dialect, schema: str) -> _Further | None:
        """Every known table a body mentions; None if it may run code that is not in it."""
        used = identifiers_in(body, dialect)
        if _runs_unseen_code(body, dialect):
            return None
        written = {name for path in used.paths for name in self._tables_of(path, schema)}
        declared = self.declared(schema)
        for path in used.functions:
            if not self._may_be_stored(path, schema):
                continue
            routine = declared.find(path)
            if routine is None:
                return None
            written.update(TableName(ref.schema or schema, ref.name) for ref in routine.writes)
        schemas = {self.fold(path[0]) for path in used.paths if len(path) > 1}
        columns = {each for each in schemas if TableName(schema, each) in self._relations}
        return _Further(frozenset(map(self._folded, written)), frozenset(schemas - columns - _ROWS))

    def _may_be_stored(self, path: tuple[str, ...], schema: str) -> bool:
        """Whether what stands before a parenthesis may be a stored or loadable function.

        `log (a, b)` after INSERT INTO looks like a call too, and is the name of a known table.
        """
        if path[-1].lower() in self.stored_functions:
            return True
        word = path[0].upper() if len(path) == 1 else ""
        return word not in _NOT_STORED and not self._tables_of(path, schema)

    def _tables_of(self, path: tuple[str, ...], schema: str) -> list[TableName]:
        """The known tables a dotted name may mean: `t`, `t.column`, `schema.t` and so on."""
        refs = [TableRef(None, path[0])]
        if len(path) > 1:
            refs.append(TableRef(path[0], path[1]))
        names = (self.resolve(ref, schema) for ref in refs)
        return [name for name in names if name in self._relations]


def _with_more(
    reached: dict[TableName, Changes], name: TableName, changes: Changes
) -> Changes | None:
    """Adds what is done to a table to what is reached. Returns all that is, if that is more."""
    before = reached.get(name)
    after = changes if before is None else before.with_(changes)
    reached[name] = after
    return after if after != before else None


@lru_cache(_REMEMBERED_BODIES)
def _analysed(text: bytes, declared: Declared) -> tuple[Statement, ...]:
    """What a body says, whichever catalog asks: a long one takes a tenth of a second, and each
    definition anywhere makes another catalog. As one that may be prepared, for its readers may be.
    """
    return analyse(
        text, _PRINTED, multi_statements=False, parameters_allowed=True, declared=declared
    )


def _in_texts(name: str) -> str:
    """A name as it stands between backticks, in lower case."""
    return name.replace("`", "``").lower()


def may_feign_errors(text: bytes) -> bool:
    """Whether what a text runs may say amid its work that a statement cannot be read."""
    return _FEIGNS_ERRORS.search(text) is not None


def _looks_back(body: bytes | None) -> frozenset[bytes]:
    if body is None:
        return frozenset((b"FOUND_ROWS", b"ROW_COUNT"))
    return frozenset(map(bytes.upper, _LOOKS_BACK.findall(body)))


def _naming(word: str, bodies: Mapping[TableName, bytes]) -> set[TableName]:
    """The views whose bodies, in lower case, have this name in them."""
    written = b"`%b`" % word.replace("`", "``").encode().lower()
    return {name for name, body in bodies.items() if written in body}


def _has_rows_of_its_own(table: BaseTable) -> bool:
    return (table.engine or "").lower() in _WITH_ROWS_OF_THEIR_OWN


def _runs_unseen_code(body: bytes, dialect: Dialect) -> bool:
    try:
        tokens = tokenize(body, dialect)
    except SqlSyntaxError:
        return True
    return any(
        token.word in _RUNS_UNSEEN_CODE or token.kind in (TokenKind.VERSIONED, TokenKind.OTHER)
        for token in tokens
    )


def _is_among(columns: frozenset[str], operands: Operands) -> bool:
    return bool(columns) if operands.unnamed else not columns.isdisjoint(operands.names)


def _of_system(name: TableName) -> str | None:
    is_of_system = name.schema.lower() in SYSTEM_SCHEMAS
    return f"{_shown(name)} is in a system schema" if is_of_system else None


def _names_xpath(expression: bytes) -> bool:
    return any(name.encode() in expression.upper() for name in XPATH)


def _shown(name: TableName) -> str:
    return f"{name.schema}.{name.name}"
