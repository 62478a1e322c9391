"""What slots are called, for tests that say which are in use."""

from collections.abc import Iterable

from sqlcache.plan.pins import Table, of_kind
from sqlcache.sql.facts import Columns, Key, Together


def slot_of(key: Key | None, unread: Iterable[str] = (), unindexed: Iterable[str] = ()) -> bytes:
    """The slot of answers that pin this key, or none, and read none of the `unread` of a table's
    `unindexed` columns."""
    columns = Columns(unindexed=tuple(unindexed))
    if isinstance(key, Together):
        columns = columns._replace(together=(key,))
    elif key is not None:
        columns = columns._replace(keys=(key,))
    table = Table(columns, strings=True)
    bits = table.bits(frozenset(unread))
    if key is None:
        return of_kind(table.of_none, bits)
    plain, apart = table.of(key)
    return of_kind(apart if bits else plain, bits)
