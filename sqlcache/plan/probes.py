"""Probes: questions to the server whose answers tell what a write touches, where its text does not.

`UPDATE t SET x = 1 WHERE id = 5` does not say of which category row 5 is. While the write's fence
covers all of the slot, `SELECT category FROM t WHERE id = 5` tells it: then the write has to forget
the bucket of that category alone.

A row may come to be found by the write only after it was asked for, or have another value then. It
is another write that makes it so, which covers the buckets of both values, and forgets them when it
is through: no answer is left, or comes under our fence, from before ours. But where a key is of
several columns, and each write sets others of them, neither knows what both make of these: so such
a key is asked for where all of them are set, or none. And a row that the server numbers touches no
bucket of its number (see `cache.slots`), so numbers are not asked for.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from sqlcache.cache.slots import bounded
from sqlcache.cache.tags import Cover
from sqlcache.plan.executions import Known, Null
from sqlcache.plan.pins import buckets_of_all, same_in, together_of
from sqlcache.sql.facts import IntegerColumn, Key, KeyColumn
from sqlcache.sql.names import TableName

MOST_ROWS: Final = 64
"""Of an answer; a write of more touches anything."""
MOST_BYTES: Final = 2_000
"""Of a statement: an open transaction keeps those of all its writes."""

_INTEGER = re.compile(rb"-?[0-9]{1,255}")  # ZEROFILL gives so many


class Asked(NamedTuple):
    """A key whose values are asked for, the slots of it that these tell of, and what the values are
    the same as that the write puts into each of its columns."""

    key: Key
    slots: tuple[bytes, ...]
    put: tuple[frozenset[bytes], ...]


class Probe:
    """One question: the `statement`, in UTF-8, is of columns of the rows that are `found` by these
    literals. It is to be asked while the write's fence stands, and `before` the server carries out
    the write where that is set. Of its buckets there may be `most`."""

    __slots__ = ("_asked", "_most", "_places", "before", "statement")

    def __init__(
        self,
        table: TableName,
        asked: Sequence[Asked],
        found: Mapping[KeyColumn, Sequence[bytes]],
        *,
        before: bool,
        most: int,
    ) -> None:
        names = dict.fromkeys(part.name for each in asked for part in each.key.parts)
        columns = b", ".join(map(_quoted, names))
        conditions = b" AND ".join(
            b"%b IN (%b)" % (_quoted(column.name), b", ".join(literals))
            for column, literals in found.items()
        )
        self.statement = b"SELECT %b FROM %b WHERE %b LIMIT %d" % (
            columns,
            b".".join(map(_quoted, table)),
            conditions,
            MOST_ROWS + 1,
        )
        self.before = before
        self._asked = tuple(asked)
        self._places = {name: place for place, name in enumerate(names)}
        self._most = most

    def touches(self, rows: Sequence[Sequence[bytes | None]]) -> Cover:
        """What the write touches of the slots asked for, by these rows of the answer; of one that
        is left out it may touch any bucket."""
        if len(rows) > MOST_ROWS:
            return {}
        touched: dict[bytes, frozenset[bytes]] = {}
        for each in self._asked:
            if (buckets := self._buckets(each, rows)) is not None:
                touched |= dict.fromkeys(each.slots, buckets)
        return bounded(touched, self._most)

    def _buckets(
        self, asked: Asked, rows: Sequence[Sequence[bytes | None]]
    ) -> frozenset[bytes] | None:
        """Those of new rows, and of these as they are and as they may be then. None as well for too
        many, of which no more are looked at than it takes to know that."""
        together: set[tuple[bytes, ...]] = set()
        for same in chain([asked.put], (self._same(asked, row) for row in rows)):
            own = None if same is None else together_of(same)
            if own is None:
                return None
            together.update(own)
            if len(together) > self._most:
                return None
        return buckets_of_all(together)

    def _same(self, asked: Asked, row: Sequence[bytes | None]) -> Sequence[frozenset[bytes]] | None:
        """What each of this row's values is the same as, or may be then."""
        same = []
        for part, put in zip(asked.key.parts, asked.put, strict=True):
            told = _told(part, row[self._places[part.name]])
            known = same_in(part, told, given=False, listed=False)
            if known is None:
                return None
            same.append(put | {known})
        return same


def _quoted(name: str) -> bytes:
    return b"`%b`" % name.replace("`", "``").encode()


def _told(column: KeyColumn, value: bytes | None) -> Known:
    """What an answer says in this column."""
    if value is None:
        return Null.NULL
    if not isinstance(column, IntegerColumn):
        return value
    return int(value) if _INTEGER.fullmatch(value) else None
