"""Whether a statement is a read that may be a hit, and what its answer depends on; or why not."""

from dataclasses import dataclass
from typing import NamedTuple

from sqlcache.cache.reads import Freshness
from sqlcache.cache.tags import Tag, read_tags
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.reads import NO_ZONES, OF_USED_SCHEMA, TAKES_TODAY
from sqlcache.sql.catalog.server import SYSTEM_SCHEMAS
from sqlcache.sql.names import TableName
from sqlcache.sql.policy import Decision
from sqlcache.sql.statement import Statement


class NotCacheable(NamedTuple):
    """Why a statement is none: `label` is one of a few, for metrics, `why` is for people."""

    label: str
    why: str

    @classmethod
    def since(cls, label: str) -> "NotCacheable":
        """For a label that says it all."""
        return cls(label, label)


@dataclass(frozen=True, slots=True)
class Cacheable:
    """A read that may be a hit. `rolls_back`: all its tables are transactional; or but
    `some_roll_back`. `proof_rows`: see `Statement`."""

    tables: frozenset[TableName]
    views: frozenset[TableName]
    tags: tuple[Tag, ...]
    rolls_back: bool
    some_roll_back: bool
    proof_rows: int | None


Assessment = Cacheable | NotCacheable

CATALOG_UNKNOWN = NotCacheable("catalog unknown", "the catalog could not be read yet")
BINLOG_LAGS = NotCacheable("binlog lags", "writes made around sqlcache are seen late just now")
KILLED = NotCacheable("killed", "a KILL may have ended the session")
PREPARED_ELSEWHERE = NotCacheable("not cacheable", "it was prepared in another default schema")
PREPARED_OTHERWISE = NotCacheable("not cacheable", "it was prepared under other settings")
REWRITTEN = NotCacheable("rewritten", "MySQL's plugin Rewriter may run other statements instead")
SEVERAL = NotCacheable("not cacheable", "several statements in one text")
SWITCHED_OFF = NotCacheable("switched off", "the cache is switched off")


def calls_stored(statement: Statement, catalog: Catalog) -> str:
    """A name that is built in somewhere, and is a stored function on this server; else ""."""
    names = catalog.stored.functions.intersection(map(str.lower, statement.functions))
    return min(names, default="")


def assess(statement: Statement, schema: str | None, catalog: Catalog) -> Assessment:
    """What a statement is under this catalog, in a session with this default schema."""
    if not statement.cacheable:
        return NotCacheable("not cacheable", statement.reason)
    if stored := calls_stored(statement, catalog):
        return NotCacheable("not cacheable", f"calls {stored}(), which is a stored function")
    if calls := catalog.reads.lacks_zones_of(statement):
        return NotCacheable("not cacheable", f"calls {calls}(), {NO_ZONES}")
    if catalog.reads.is_of_used_schema(statement):
        return NotCacheable("not cacheable", OF_USED_SCHEMA)
    names = [catalog.server.resolve(ref, schema) for ref in statement.reads]
    tables = [name for name in names if name is not None]
    if len(tables) < len(names):
        return NotCacheable(
            "no default schema", "names a table without its schema, and there is none"
        )
    closure = catalog.reads.closure(tables)
    if closure.reason is not None:
        return NotCacheable("not cacheable", closure.reason)
    if catalog.reads.may_take_today(statement.converts, closure.tables):
        return NotCacheable("not cacheable", TAKES_TODAY)
    roll_back = list(map(catalog.reads.is_transactional, closure.base_tables))
    return Cacheable(
        closure.base_tables,
        closure.views,
        read_tags(closure.tables, closure.schemas | _defining_schemas(statement, schema, catalog)),
        rolls_back=all(roll_back),
        some_roll_back=any(roll_back),
        proof_rows=None if closure.views else statement.proof_rows,
    )


def _defining_schemas(statement: Statement, schema: str | None, catalog: Catalog) -> frozenset[str]:
    """Those whose definitions say what the functions are that it calls: one that another server
    has built in may have been made in the default schema a moment ago."""
    declared = catalog.server.schemas_of(statement.routines)
    if not statement.functions or schema is None or schema.lower() in SYSTEM_SCHEMAS:
        return declared
    return declared | {catalog.server.fold(schema)}


def freshness(decision: Decision) -> Freshness | NotCacheable:
    """How an answer may age under what was decided."""
    if decision.off is not None:
        return NotCacheable("switched off", f"{decision.off} switches it off")
    return Freshness(
        int(decision.ttl_s.value),
        decision.max_staleness_s.value,
        decision.stale_while_revalidate_s.value,
    )
