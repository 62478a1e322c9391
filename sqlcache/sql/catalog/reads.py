"""What a read depends on, and why it is not cacheable where it is not."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sqlcache.sql.analysis import analyse, literals
from sqlcache.sql.catalog.bodies import NOT_STORED, PRINTED
from sqlcache.sql.catalog.definitions import MAX_REMEMBERED, MOST_NAMES, Definitions
from sqlcache.sql.catalog.server import is_of_system
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.facts import (
    NO_COLUMNS,
    SELF_CONTAINED_ENGINES,
    BaseTable,
    Columns,
    Relation,
    View,
    VirtualColumn,
)
from sqlcache.sql.functions import KNOWING_ZONES, KNOWN, XPATH
from sqlcache.sql.lexer import tokenize
from sqlcache.sql.names import TableName
from sqlcache.sql.routines import Declared
from sqlcache.sql.statement import Kind, Markers, Operands, Statement, Told, changed

NO_ZONES = "and the server has no time zones by name yet"
TAKES_TODAY = "may make a date of a TIME, with the date of today"
OF_USED_SCHEMA = "makes texts of the character set that its schema had when it was used"

_REMEMBERED_BODIES = 128


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


class _Assessment(NamedTuple):
    """A view assessed by its body alone: `reason` as in ReadClosure."""

    reads: tuple[TableName, ...]
    routine_schemas: frozenset[str]
    reason: str | None
    may_write: bool


class Reads:
    """By these definitions, and functions."""

    def __init__(self, definitions: Definitions, stored: Stored) -> None:
        self._server = definitions.server
        self._definitions = definitions
        self._stored = stored
        self._remembered = lru_cache(MAX_REMEMBERED)(self._close)
        self._assess = lru_cache(MAX_REMEMBERED)(self._assess_view)

    def closure(self, names: Iterable[TableName]) -> ReadClosure:
        """What a read of these tables depends on, views opened down to base tables."""
        folded = frozenset(map(self._server.folded, names))
        return self._remembered(folded) if len(folded) <= MOST_NAMES else self._close(folded)

    def is_transactional(self, name: TableName) -> bool:
        """Whether a rollback undoes a write to it. A view's is that of all it reads."""
        tables = self.closure([name]).base_tables
        return all(map(self._definitions.rolls_back, tables)) and bool(tables)

    def columns(self, name: TableName) -> Columns:
        """Those of a table by which its answers can be told apart, for whoever reads it: none of
        what is not a plain table, or may compute columns of rows that are not asked for."""
        relation = self._definitions.relations.get(name)
        if not isinstance(relation, BaseTable) or relation.virtual_columns:
            return NO_COLUMNS
        if not relation.has_rows_of_its_own:
            return NO_COLUMNS
        known = self._definitions.columns.get(name, NO_COLUMNS)
        return known if self.tells_rows(name) else known._replace(unindexed=())

    def tells_rows(self, name: TableName) -> bool:
        """Whether it is a table whose rows any query tells as they are: neither as they were once,
        nor as a statement has them that is not through."""
        return self._definitions.rolls_back(name) and not self._definitions.keeps_history(name)

    def may_take_today(self, operands: Operands, names: Iterable[TableName]) -> bool:
        """Whether a query of these tables may make a date of a TIME, which takes today's."""
        temporal = self._definitions.temporal
        known = [temporal[name] for name in names if name in temporal]
        times = frozenset[str]().union(*(columns.times for columns in known))
        dates = frozenset[str]().union(*(columns.dates for columns in known))
        return (operands.times or _is_among(times, operands)) and (
            operands.dates or _is_among(dates, operands)
        )

    def dateless(self, markers: Markers, names: Iterable[TableName]) -> tuple[bool, ...]:
        """For each marker of a query of these tables, whether no date can be wanted there."""
        temporal = self._definitions.temporal
        known = [temporal[name] for name in names if name in temporal]
        wanting = {name.lower() for columns in known for name in columns.times | columns.dates}
        if wanting.isdisjoint(markers.names) and not markers.dates:
            return (True,) * len(markers.columns)
        return tuple(name is not None and name not in wanting for name in markers.columns)

    def lacks_zones_of(self, statement: Statement) -> str:
        """The function it calls that would answer otherwise once there are zones; else ""."""
        none_needed = self._server.zones or Told.OFFSETS in statement.told
        return "" if none_needed else min(statement.functions & KNOWING_ZONES, default="")

    def is_of_used_schema(self, statement: Statement) -> bool:
        """Whether it hangs on the character set that the default schema had when the session began
        to use it, which nothing tells: after an ALTER DATABASE, sessions may differ in that."""
        return statement.of_used_schema and self._server.flavour == "mariadb"

    def _close(self, names: frozenset[TableName]) -> ReadClosure:
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
            relation = self._definitions.relations.get(name)
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
        return reason if unseen or self._server.flavour == "mariadb" else None

    def _assess_view(self, view: View) -> _Assessment:
        shown = _shown(view.name)
        if view.body is None or not self._server.triggers_visible:
            hidden = f"view {shown}: the service account may not see its body"
            return _Assessment((), frozenset(), hidden, True)
        assessment = self._assess_query(view.body, self._server.fold(view.name.schema))
        return assessment._replace(
            reason=assessment.reason and f"view {shown}: {assessment.reason}"
        )

    def _assess_query(self, text: bytes, schema: str) -> _Assessment:
        server = self._server
        statements = _analysed(text, server.declared_under(schema))
        if len(statements) != 1:
            return _Assessment((), frozenset(), "is not one statement", True)
        (statement,) = statements
        reason = None if statement.cacheable else statement.reason
        stored = self._stored.functions.intersection(name.lower() for name in statement.functions)
        if stored:
            reason = reason or f"calls {min(stored)}(), which is a stored or loadable function"
        if calls := self.lacks_zones_of(statement):
            reason = reason or f"calls {calls}(), {NO_ZONES}"
        if self.is_of_used_schema(statement):
            reason = reason or OF_USED_SCHEMA
        reads = tuple(name for ref in statement.reads if (name := server.resolve(ref, schema)))
        if self.may_take_today(statement.operands, reads):
            reason = reason or TAKES_TODAY
        unknown = statement.functions - KNOWN
        harmless = statement.kind is Kind.READ and bool(unknown) and unknown <= NOT_STORED
        writes = bool(stored) or any(routine.writes for routine in statement.routines)
        may_write = writes or (statement.writes_everything and not harmless)
        return _Assessment(reads, server.schemas_of(statement.routines), reason, may_write)


@lru_cache(_REMEMBERED_BODIES)
def _analysed(text: bytes, declared: Declared) -> tuple[Statement, ...]:
    """What a body says, whichever catalog asks: a long one takes a tenth of a second, and each
    definition anywhere makes another catalog. As one that may be prepared, for its readers may be.

    A view's literals are of the character set that its maker had, in which formats may be others.
    """
    statements = analyse(
        text, PRINTED, multi_statements=False, parameters_allowed=True, declared=declared
    )
    if all(statement.may_tell is Told.NOTHING for statement in statements):
        return statements
    offsets = literals.tell(tokenize(text, PRINTED)) & Told.OFFSETS
    return tuple(changed(statement, told=offsets & statement.may_tell) for statement in statements)


def _is_among(columns: frozenset[str], operands: Operands) -> bool:
    return bool(columns) if operands.unnamed else not columns.isdisjoint(operands.names)


def _of_system(name: TableName) -> str | None:
    return f"{_shown(name)} is in a system schema" if is_of_system(name) else None


def _names_xpath(expression: bytes) -> bool:
    return any(name.encode() in expression.upper() for name in XPATH)


def _shown(name: TableName) -> str:
    return f"{name.schema}.{name.name}"
