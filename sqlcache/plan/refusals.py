"""Which errors of the server prove that a statement has changed nothing.

The server looks at what a statement names, and at its user's rights on all of that, before it
executes any of it. So an error of these proves it, if the statement runs nothing that may say so
itself, amid its work: no code, of a function, a trigger or a view, no other server, and none of the
tables that the server makes when they are read, as those of INFORMATION_SCHEMA. Or if all that it
wrote is taken back, for then it does not matter who said so. Of a transaction that was open nothing
is proved: what ends one does so before anything is looked at. Nor of what MariaDB's CREATE OR
REPLACE has dropped, and then perhaps may not make anew.
"""

from sqlcache.mysql.constants import (
    DENIALS,
    ER_NO_DB,
    ER_PROCACCESS_DENIED,
    ER_SP_DOES_NOT_EXIST,
    ER_TRG_DOES_NOT_EXIST,
    ER_XAER_INVAL,
    ER_XAER_NOTA,
    ER_XAER_OUTSIDE,
    ER_XAER_RMFAIL,
)
from sqlcache.plan.commands import Meaning
from sqlcache.plan.planner import Planner
from sqlcache.plan.writeset import NOTHING, WriteSet
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.statement import Kind, Statement

_REFUSALS = DENIALS | {ER_NO_DB, ER_SP_DOES_NOT_EXIST, ER_TRG_DOES_NOT_EXIST}
_NO_SUCH_BRANCH = frozenset({ER_XAER_NOTA, ER_XAER_INVAL, ER_XAER_RMFAIL, ER_XAER_OUTSIDE})
_OF_ROWS = frozenset({Kind.READ, Kind.WRITE})


def proved_by(code: int, meaning: Meaning, planner: Planner) -> WriteSet | None:
    """What has to be defined as the catalog says, for this error in place of an answer to prove
    that the command changed nothing; None where it proves nothing."""
    catalog = planner.keeper.catalog
    if catalog is None or not meaning.statements:
        return None
    first = meaning.statements[0]  # behind which the server has not come
    if first.verb == "XA":
        return NOTHING if code in _NO_SUCH_BRANCH else None
    if code not in _REFUSALS or first.kind is Kind.UNKNOWN or first.replaces:
        return None
    if first.verb == "PREPARE":  # what it writes is by functions that it calls
        return None
    if first.verb == "BINLOG":
        known = not planner.keeper.has_unread and not catalog.code.is_run_by_events
        return WriteSet(defined_in=catalog.schemas) if known else None
    needed = _names_in(first, meaning.schema, catalog)
    if first.called is not None and code == ER_PROCACCESS_DENIED:
        reach = catalog.code.leaf_reach(first.called, meaning.schema)
        by_arguments = catalog.code.is_run_by(needed.reads, needed.tables)
        calls_nothing = _calls_nothing(first, meaning.schema, catalog)
        if reach is not None and calls_nothing and not by_arguments:
            return needed | WriteSet(reach.tables, reads=reach.tables, defined_in=reach.schemas)
    if not _may_run_code(first, meaning.schema, catalog):
        return needed
    of_rows = first.kind in _OF_ROWS or first.verb == "DO"
    if not of_rows or first.opaque_session or first.changes_globals:
        return None
    writes = planner.tagging.writes([first], meaning.schema)
    lasting = planner.tagging.non_transactional(writes)
    return None if lasting.everything or lasting.tables else needed | writes


def _names_in(one: Statement, schema: str | None, catalog: Catalog) -> WriteSet:
    """What tells which code a statement runs. Rights on definitions are looked at whatever code
    hangs on them."""
    owners = {path[0] if len(path) > 1 else schema or "" for path in one.code}
    if one.called is not None:
        owners.add(one.called.schema or schema or "")
    defined_in = frozenset(map(catalog.server.fold, owners))
    if not one.reads and (one.kind is Kind.DDL or one.verb == "FLUSH"):
        return WriteSet(defined_in=defined_in)
    writes = catalog.server.named(one.writes, schema)
    reads = catalog.server.named(one.reads, schema) | writes
    return WriteSet(writes, reads=reads, defined_in=defined_in)


def _may_run_code(one: Statement, schema: str | None, catalog: Catalog) -> bool:
    """Whether a statement may run code that is not in it."""
    if one.kind is not Kind.DDL and one.called is None:
        known = one.by_code or one.changes_globals or not one.writes_everything
        other = one.kind not in _OF_ROWS and one.opaque_session
        if other or not known:
            return True
    called = () if one.called is None else tuple(filter(None, one.called))
    if called and not catalog.stored.lacks(called, schema, is_function=False):
        return True
    needed = _names_in(one, schema, catalog)
    calls = not _calls_nothing(one, schema, catalog)
    return calls or catalog.code.is_run_by(needed.reads, needed.tables)


def _calls_nothing(one: Statement, schema: str | None, catalog: Catalog) -> bool:
    """Whether all functions that a statement calls are built in, or there are none such."""
    named = {path[-1].lower() for path in one.code}
    stored = catalog.stored.functions.intersection(map(str.lower, one.functions)) - named
    lacking = (catalog.stored.lacks(path, schema, is_function=True) for path in one.code)
    return not stored and not one.routines and all(lacking)
