"""What a write reaches: through views, by triggers and by foreign keys, and on from there."""

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import NamedTuple

from sqlcache.sql.catalog.bodies import PRINTED, Bodies, Further
from sqlcache.sql.catalog.definitions import MAX_REMEMBERED, MOST_NAMES, Definitions
from sqlcache.sql.catalog.server import OPEN_SCHEMAS
from sqlcache.sql.facts import MERGEABLE_ENGINE, BaseTable, Trigger, View
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import ANYTHING, Changes

_MOST_REMEMBERED_NAMES = 100_000
"""In all that is remembered of what writes reach, which may be all tables from any of them."""

_MOST_MERGED = 1_000
"""Tables that are listed for one write."""

Told = Iterable[tuple[TableName, Changes]]
"""Of some tables what may be done to their rows: of others that is anything."""


class WriteClosure(NamedTuple):
    """What a write reaches.

    `tables` are all that it may change, None for "any table". `schemas` are those whose definitions
    decide that: a change of any other schema's definitions changes nothing of it.
    """

    tables: frozenset[TableName] | None
    schemas: frozenset[str] = frozenset()


class Writes:
    """By these definitions."""

    def __init__(self, definitions: Definitions, bodies: Bodies) -> None:
        self._server = definitions.server
        self._definitions = definitions
        self._bodies = bodies
        self._remembered: dict[frozenset[tuple[TableName, Changes]], WriteClosure] = {}
        self._remembered_names = 0
        self._merged: frozenset[TableName] | None = None
        self._further = lru_cache(MAX_REMEMBERED)(self._written_through)

    def closure(self, names: Iterable[TableName], told: Told = ()) -> frozenset[TableName] | None:
        """Every table a write to these may change, themselves included; None for "any table".

        A name the catalog does not know stands for itself alone.
        """
        return self.reach(names, told).tables

    def reach(self, names: Iterable[TableName], told: Told = ()) -> WriteClosure:
        """The same with the schemas it depends on."""
        folded = self._server.folded
        changes = dict.fromkeys(map(folded, names), ANYTHING)
        changes.update((folded(name), each) for name, each in told)
        written = frozenset(changes.items())
        known = self._remembered.get(written)
        if known is None:
            known = self._close(written)
            if len(written) <= MOST_NAMES:
                self._remember(written, known)
        return known

    def _remember(
        self, written: frozenset[tuple[TableName, Changes]], closure: WriteClosure
    ) -> None:
        self._remembered_names += len(written) + len(closure.tables or ())
        if self._remembered_names > _MOST_REMEMBERED_NAMES:
            self._remembered.clear()
            self._remembered_names = len(written) + len(closure.tables or ())
        self._remembered[written] = closure

    @property
    def by_unknown(self) -> frozenset[TableName] | None:
        """What a write to a table may change besides of which nothing is known, as of a temporary
        one that code has made; None for "any table"."""
        if self._server.has_leading_engines:
            return None
        if self._merged is None:
            self._merged = frozenset(self._definitions.of_engine(MERGEABLE_ENGINE))
        return self._merged if len(self._merged) <= _MOST_MERGED else None

    @cached_property
    def schemas_by_unknown(self) -> frozenset[str] | None:
        """The schemas of these; None for "any schema"."""
        return None if self.by_unknown is None else frozenset(n.schema for n in self.by_unknown)

    def leads(self, name: TableName) -> bool:
        """Whether some change of the table's rows changes rows by a foreign key."""
        return bool(self._definitions.children.get(name))

    def cascades_from(self, told: Told) -> frozenset[TableName] | None:
        """These tables, and those in which foreign keys change rows when this is done to rows of
        these; None for "any table". What triggers do is left out."""
        if not self._server.triggers_visible:
            return None
        reached: dict[TableName, Changes] = {}
        pending = [(self._server.folded(name), changes) for name, changes in told]
        while pending:
            name, changes = pending.pop()
            if self._definitions.merges(name):
                return None
            if (more := _with_more(reached, name, changes)) is not None:
                pending += self._cascaded(name, more)
        return frozenset(reached)

    @cached_property
    def keys_cross_schemas(self) -> bool:
        """Whether rows of some table may be changed by a foreign key to a table of another
        schema."""
        return any(
            cascade.child.schema != name.schema
            for name, children in self._definitions.children.items()
            for cascade in children
        )

    def set_with(self, name: TableName, columns: frozenset[str]) -> frozenset[str] | None:
        """All columns of a table that are set where these are; None where that may be any."""
        relation = self._definitions.relations.get(name)
        return columns | relation.set_along if isinstance(relation, BaseTable) else None

    def are_as_told(self, name: TableName, changes: Changes) -> bool:
        """Whether a change of the table's rows is surely what its text says, and no more, if that
        may do this to them."""
        fired = not self._server.triggers_visible or name in self._definitions.triggers
        return not fired and not self._cascaded(name, changes)

    def _close(self, written: frozenset[tuple[TableName, Changes]]) -> WriteClosure:
        if not self._server.triggers_visible:
            return WriteClosure(None if written else frozenset())
        reached: dict[TableName, Changes] = {}
        schemas: set[str] = set()
        pending = list(written)
        while pending:
            name, changes = pending.pop()
            if name in self._definitions.triggers:  # one may set other columns of the row
                changes = ANYTHING
            if (more := _with_more(reached, name, changes)) is None:
                continue
            further = self._further(name)
            if further is None:
                return WriteClosure(None)
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
        keys = self._definitions.children.get(name, ())
        found = ((each.child, each.changes(changes)) for each in keys)
        return [(child, of_child) for child, of_child in found if of_child is not None]

    def _written_through(self, name: TableName) -> Further | None:
        """What a write to this table writes in its turn, one step far and not by foreign keys; None
        for "any table"."""
        if name.schema.lower() in OPEN_SCHEMAS:
            return None
        relation = self._definitions.relations.get(name)
        if isinstance(relation, View):
            body = relation.body
            return None if body is None else self._bodies.further(body, PRINTED, name.schema)
        if self._definitions.merges(name):
            return None
        further = Further()
        for trigger in self._definitions.triggers.get(name, ()):
            written = self._written_by(trigger, name.schema)
            if written is None:
                return None
            further = Further(further.tables | written.tables, further.schemas | written.schemas)
        return further

    def _written_by(self, trigger: Trigger, schema: str) -> Further | None:
        if "ORACLE" in trigger.sql_mode.upper().split(","):
            return None  # there a procedure is called by its name alone
        return self._bodies.further(trigger.body, Dialect.stored_under(trigger.sql_mode), schema)


def _with_more(
    reached: dict[TableName, Changes], name: TableName, changes: Changes
) -> Changes | None:
    """Adds what is done to a table to what is reached. Returns all that is, if that is more."""
    before = reached.get(name)
    after = changes if before is None else before.with_(changes)
    reached[name] = after
    return after if after != before else None
