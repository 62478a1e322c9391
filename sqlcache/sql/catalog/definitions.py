"""The definitions of tables and views, and what hangs on them, by folded names."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from sqlcache.sql.catalog.server import Server, is_of_system
from sqlcache.sql.facts import (
    BaseTable,
    Cascade,
    Columns,
    Facts,
    Relation,
    TemporalColumns,
    Trigger,
    View,
)
from sqlcache.sql.names import TableName

T = TypeVar("T")

MAX_REMEMBERED = 4096
"""Answers that follow from definitions, of each kind: one for each view, routine, or set of tables
that statements name."""

MOST_NAMES = 32
"""Of such a set, if its answer is remembered."""

_FEW_NAMES = 4


@dataclass(frozen=True, slots=True)
class Definitions:
    """Never changed once it is made. `parents` are the foreign keys that a table has, `children`
    those that lead into it. `on` is the table of each trigger, by its name in lower case."""

    server: Server
    relations: dict[TableName, Relation] = field(default_factory=dict)
    temporal: dict[TableName, TemporalColumns] = field(default_factory=dict)
    columns: dict[TableName, Columns] = field(default_factory=dict)
    triggers: dict[TableName, frozenset[Trigger]] = field(default_factory=dict)
    parents: dict[TableName, frozenset[Cascade]] = field(default_factory=dict)
    children: dict[TableName, frozenset[Cascade]] = field(default_factory=dict, compare=False)
    on: dict[TableName, TableName] = field(default_factory=dict, compare=False)
    views: "_Views" = field(default_factory=lambda: _Views(), compare=False)
    """The same one for all that have the same views."""

    @classmethod
    def of(cls, server: Server, facts: Facts) -> "Definitions":
        """These facts alone."""
        made = cls(server)
        made._learn(facts)
        return made

    def renewed(
        self, tables: Iterable[TableName], schemas: Iterable[str], facts: Facts
    ) -> "Definitions":
        """See `Catalog`."""
        within = frozenset(schemas)
        known = (self.relations, self.temporal, self.columns, self.triggers, self.parents)
        gone = set(tables)
        if within:
            gone.update(name for each in known for name in each if name.schema in within)
        elif not _any(facts) and not any(name in each for each in known for name in gone):
            return self  # nobody had these, nor has now
        facts = replace(facts, relations=tuple(facts.relations))
        renews = any(map(self.is_view, gone)) or any(isinstance(r, View) for r in facts.relations)
        other = Definitions(
            self.server,
            self.relations.copy(),
            self.temporal.copy(),
            self.columns.copy(),
            self.triggers.copy(),
            self.parents.copy(),
            self.children.copy(),
            self.on.copy(),
            _Views() if renews else self.views,
        )
        other._forget(gone)
        other._learn(facts)
        return other

    def _learn(self, facts: Facts) -> None:
        folded = self.server.folded
        for relation in facts.relations:
            self.relations[folded(relation.name)] = relation
        for name, columns in facts.temporal_columns.items():
            lower = TemporalColumns(*(frozenset(map(str.lower, each)) for each in columns))
            self.temporal[folded(name)] = lower
        for name, known in facts.columns.items():
            self.columns[folded(name)] = known
        fired: dict[TableName, set[Trigger]] = {}
        for trigger in facts.triggers:
            table = folded(trigger.table)
            fired.setdefault(table, set()).add(trigger)
            self.on[TableName(table.schema, trigger.name.lower())] = table
        of_parents: dict[TableName, set[Cascade]] = {}
        of_children: dict[TableName, set[Cascade]] = {}
        for known_as in facts.cascades:
            parent, child = folded(known_as.parent), folded(known_as.child)
            cascade = replace(known_as, parent=parent, child=child)
            of_children.setdefault(child, set()).add(cascade)
            of_parents.setdefault(parent, set()).add(cascade)
        _add(self.triggers, fired)
        _add(self.parents, of_children)
        _add(self.children, of_parents)

    def _forget(self, names: Iterable[TableName]) -> None:
        gone: dict[TableName, set[Cascade]] = {}
        for name in names:
            self.relations.pop(name, None)
            self.temporal.pop(name, None)
            self.columns.pop(name, None)
            for trigger in self.triggers.pop(name, ()):
                known_as = TableName(name.schema, trigger.name.lower())
                if self.on.get(known_as) == name:
                    del self.on[known_as]
            for cascade in self.parents.pop(name, ()):
                gone.setdefault(cascade.parent, set()).add(cascade)
        for parent, cascades in gone.items():
            self.children[parent] -= cascades

    def leaning_on(self, tables: Iterable[TableName], schemas: Iterable[str]) -> set[TableName]:
        """The tables and views of which other things may be true when these tables' definitions, or
        those in these schemas, have changed: foreign keys lead into them, or their bodies name
        such tables. The tables themselves are among them."""
        within = frozenset(schemas)
        views = self.views
        views.know(self.relations)
        reached = {name for schema in within for name in views.naming(schema)} | set(tables)
        pending = [*reached]
        if within:
            pending += (name for name in self.children if name.schema in within)
        while pending:
            name = pending.pop()
            children = {cascade.child for cascade in self.children.get(name, ())}
            found = views.naming(name.name) | children
            pending += found - reached
            reached |= found
        return {name for name in reached if name.schema not in within}

    @property
    def has_views(self) -> bool:
        """Whether there are any."""
        self.views.know(self.relations)
        return self.views.are_some

    def is_view(self, name: TableName) -> bool:
        """Whether it is known to be one."""
        return isinstance(self.relations.get(name), View)

    def merges(self, name: TableName) -> bool:
        """Whether a table `LIKE` this one may have the rows of other tables, too."""
        relation = self.relations.get(name)
        return isinstance(relation, BaseTable) and not relation.has_rows_of_its_own

    def of_engine(self, engine: str) -> Iterator[TableName]:
        """The tables of this engine (lower case), but for those of the server's own schemas."""
        for name, relation in self.relations.items():
            if not isinstance(relation, BaseTable) or is_of_system(name):
                continue
            if (relation.engine or "").lower() == engine:
                yield name

    def rolls_back(self, name: TableName) -> bool:
        """Whether it is a table, and a rollback undoes a write to it."""
        match self.relations.get(name):
            case BaseTable(engine=str(engine)):
                return engine.lower() in self.server.transactional_engines
            case _:
                return False

    def keeps_history(self, name: TableName) -> bool:
        """Whether it is a table that keeps rows as they were before they were changed."""
        relation = self.relations.get(name)
        return isinstance(relation, BaseTable) and relation.versioned

    def table_of_trigger(self, name: TableName) -> TableName | None:
        """The table a trigger is on; None if there is no such trigger."""
        return self.on.get(TableName(name.schema, name.name.lower()))

    def triggers_on(self, tables: Iterable[TableName] | None) -> Iterator[Trigger]:
        """Those on these tables; all where that is None."""
        if tables is None:
            return chain.from_iterable(self.triggers.values())
        return chain.from_iterable(self.triggers.get(table, ()) for table in tables)

    def views_among(self, names: Iterable[TableName]) -> list[View]:
        """Those of these that are views."""
        relations = (self.relations.get(name) for name in names)
        return [each for each in relations if isinstance(each, View)]

    def code_on(self, tables: Iterable[TableName]) -> list[bytes]:
        """The texts of what there is on these tables: the bodies of triggers, and of views."""
        among = frozenset(tables)
        texts = [trigger.body for trigger in self.triggers_on(among)]
        return texts + [view.body for view in self.views_among(among) if view.body]


def _add(known: dict[TableName, frozenset[T]], more: Mapping[TableName, Set[T]]) -> None:
    """Adds to what hangs on tables, which may be much on one."""
    for name, each in more.items():
        known[name] = known.get(name, frozenset()) | each


def _any(facts: Facts) -> bool:
    """Whether there may be any."""
    hanging = facts.triggers or facts.cascades
    return bool(facts.relations or hanging or facts.temporal_columns or facts.columns)


class _Views:
    """Views, by their bodies in lower case. One name after the other is looked for in all of them,
    and the more are found, the more are to be: all names in them are found out at once where it is
    not but a few."""

    def __init__(self) -> None:
        self._bodies: dict[TableName, bytes] | None = None
        self._asked = 0
        self._naming: dict[bytes, set[TableName]] | None = None

    def know(self, relations: Mapping[TableName, Relation]) -> None:
        """The views are those among these. What is known of them already is not found out again."""
        if self._bodies is None:
            self._bodies = {
                name: (relation.body or b"").lower()
                for name, relation in relations.items()
                if isinstance(relation, View)
            }

    @property
    def are_some(self) -> bool:
        """Whether there are any among those that are known."""
        return bool(self._bodies)

    def naming(self, word: str) -> Set[TableName]:
        """Those whose bodies have this name in them."""
        assert self._bodies is not None
        self._asked += 1
        name = word.encode().lower()
        if self._asked <= _FEW_NAMES or b"`" in name:
            written = b"`%b`" % name.replace(b"`", b"``")
            return {view for view, body in self._bodies.items() if written in body}
        if self._naming is None:
            naming: dict[bytes, set[TableName]] = {}
            for view, body in self._bodies.items():
                for between in set(body.split(b"`")[1:-1]):
                    naming.setdefault(between, set()).add(view)
            self._naming = naming  # whole, for other threads to see
        return self._naming.get(name, frozenset())
