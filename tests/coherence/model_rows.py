"""Rows in the model: a table of two, with an id and a column k, both of which are slots, and one
more that some answers do not read, which is a slot, too; and another table, with a slot j, of which
answers are read together with rows of the first.

What an answer brings is told by registers, as everywhere in the model: of each bucket the number of
the commits that have changed a row in it, into it or out of it; and of the table that of all.
"""

import re
from collections.abc import Iterable, Mapping, Set
from functools import reduce
from typing import NamedTuple

from sqlcache.cache import slots
from sqlcache.cache.tags import SLOT_BYTES, Cover, Pin

TABLES = ("a", "b")
"""Those without slots."""
TABLE, OTHER = ROW_TABLES = ("r", "q")
BUCKETS = ("k0", "k1", "i0", "i1", "j0", "j1")
"""By slot and value: a query for one of the first table is of the rows in it."""
LIST = "i1i0"
"""A query for the rows in two."""
UNREAD = "u"
"""A query for all rows, but not for what `set` changes."""
JOINS = ("k1j0", "i0j1")
"""Queries for the rows of both tables in these: what they bring both registers tell."""
QUERIES = (TABLE, *BUCKETS[:4], LIST, UNREAD, *JOINS)
REGISTERS = (TABLE, *BUCKETS, LIST, UNREAD)
WRITES = (
    *("set i0", "set k0", "set k1", "move k0", "move k1", "move i0", "move i1", "set r"),
    *("drop i0", "drop k1", "add i0k0", "add i0k1", "new k0"),
    *("set i0, set k1", "drop i0, add i0k1", "move k0, set i1", "set i0, move i1", "set k1, a"),
    *("set j0", "set j1", "set q", "set j1, move k0", "set i0, set j0", "set k1, set j0"),
    *("put i0k0", "put i0k1", "put i1k0", "set k1, put i0k1"),
)
"""Transactions, of one statement or two, perhaps of two tables. `set` changes
what no slot has, `move` the rows' k to the other value, `drop` deletes, `add` inserts if there is
no such row, and `new` one whose id the server gives it. A `move` by id computes the new k: the text
does not tell it. `put` sets it to a value. The rows of the other table are but `set`."""

_OTHERS = ("j0", "j1", f" {OTHER}")
"""What ends a statement of the other table."""

NUMBERING = "new k0"
"""The write that has the server give an id."""

Rows = dict[int, int]
"""Each row's k by its id."""


def slot_of(letter: str) -> bytes:
    """The slot of this column."""
    return letter.encode().rjust(SLOT_BYTES, b"_")


def table_of(slot: str) -> str:
    """The table of a slot."""
    return OTHER if slot == "j" else TABLE


def tables_read(query: str) -> list[str]:
    """The tables of a query, in the order of its tags."""
    return sorted({table_of(part[0]) for part in parts_of(query)})


def parts_of(query: str) -> list[str]:
    """What a query is of: a join of a bucket of each table."""
    return re.findall("..", query) if query in JOINS else [query]


def pin_of(query: str) -> Pin:
    """The pin of a query for the rows of one table in some buckets."""
    named = re.findall("[ijk][01]", query)
    return Pin(slot_of(query[0]), tuple(map(bucket_of, named)), witnessed=query[0] == "i")


def pinning_of(query: str) -> "tuple[Pinned, ...]":
    """What the answers to a query pin of each of its tables."""
    by_table = sorted(parts_of(query), key=lambda part: table_of(part[0]))
    return () if query == TABLE else tuple(map(Pinned, by_table))


def bucket_of(bucket: str) -> bytes:
    """What names it beside its slot."""
    return bucket.encode().rjust(4, b"_")


class Pinned:
    """Reads for the rows of one table in some buckets."""

    def __init__(self, query: str) -> None:
        self._pin = pin_of(query)
        self.witnessed = self._pin.witnessed

    def pin(self, in_use: Set[bytes], field: bytes) -> Pin | None:
        return self._pin if self._pin.slot in in_use else None

    def wants(self, in_use: Set[bytes], spared: Iterable[bytes], field: bytes) -> bytes | None:
        return None if self._pin.slot in in_use else self._pin.slot


def count(query: str, rows: Rows) -> int:
    """How many rows an answer has, of one by id; else some."""
    return sum(int(id) in rows for id in re.findall("i([01])", query)) if query[0] == "i" else 1


def touched_by_text(write: str) -> Mapping[str, frozenset[str]]:
    """By slot, which buckets a write touches as far as its text says so."""
    verb, what = write.split()
    named = re.findall("[ijk][01]", what)
    touched = {bucket[0]: {bucket} for bucket in named}
    if verb == "put":
        del touched["k"]
    if verb == "move" and what[0] == "k":
        touched["k"] = {"k0", "k1"}
    if verb == "new":
        touched["i"] = set()
    if verb == "set":
        touched[UNREAD] = set()
    return {slot: frozenset(buckets) for slot, buckets in touched.items()}


class Probe(NamedTuple):
    """A query for the rows in a `bucket`, which tells in which of another column's they are."""

    bucket: str
    column: str
    given: str = ""
    """The bucket into which the write puts them."""
    before: bool = False
    """Whether it is to be carried out before the write is sent."""


def probe_of(statement: str) -> Probe | None:
    """What tells the buckets that a statement touches, where its text does not; also of ids, which
    may be asked for only where none is given by the server."""
    verb, what = statement.split() if " " in statement else (statement, "")
    bucket, given = what[:2], what[2:]
    if verb not in ("set", "drop", "put") or bucket not in BUCKETS[:4]:
        return None
    column = "k" if bucket[0] == "i" else "i"
    return Probe(bucket, column, given, before=verb != "set")


def probed(probe: Probe, rows: Rows) -> list[str]:
    """The buckets of the rows that a probe finds."""
    found = [(f"i{id}", f"k{k}") for id, k in rows.items() if probe.bucket in (f"i{id}", f"k{k}")]
    return [bucket for row in found for bucket in row if bucket[0] == probe.column]


Told = Mapping[Probe, Set[str]]
"""What probes have told."""


def cover_of(write: str, table: str, in_use: Set[bytes], told: Told | None = None) -> Cover:
    """What a transaction touches of a table's slots in use, as a fence has it, by its text and what
    probes have told."""
    covers: list[Cover] = [
        {
            slot_of(letter): frozenset(map(bucket_of, buckets))
            for letter, buckets in {
                **touched_by_probe(probe_of(statement), told or {}),
                **touched_by_text(statement),
            }.items()
            if slot_of(letter) in in_use
        }
        for statement in write.split(", ")
        if _table_written(statement) == table
    ]
    return reduce(slots.both, covers)


def touched_by_probe(probe: Probe | None, told: Told) -> Mapping[str, Set[str]]:
    """By slot, which buckets a statement touches as far as its probe tells."""
    if probe is None or probe not in told:
        return {}
    return {probe.column: told[probe] | ({probe.given} if probe.given else set())}


def probes_of(write: str, columns: str) -> list[Probe]:
    """Those of a transaction which tell of these columns."""
    probes = map(probe_of, write.split(", "))
    return [probe for probe in probes if probe is not None and probe.column in columns]


def tables_of(write: str) -> list[str]:
    """The tables that a transaction writes."""
    return [*dict.fromkeys(map(_table_written, write.split(", ")))]


def registers_of(write: str) -> tuple[str, ...]:
    """Those of the tables of rows that a transaction writes."""
    registers = {TABLE: (TABLE, *BUCKETS[:4], LIST, UNREAD), OTHER: BUCKETS[4:]}
    return tuple(each for table in tables_of(write) for each in registers.get(table, ()))


def _table_written(statement: str) -> str:
    return statement if statement in TABLES else OTHER if statement[-2:] in _OTHERS else TABLE


def carry_out(write: str, rows: Rows) -> set[str]:
    """Changes the rows; gives the registers whose rows a transaction changed."""
    changed: set[str] = set()
    for statement in write.split(", "):
        changed |= {statement} if statement in TABLES else _carry_out(statement, rows)
    return changed | ({LIST} if changed & {"i0", "i1"} else set())


def _carry_out(statement: str, rows: Rows) -> set[str]:
    verb, what = statement.split()
    if statement[-2:] in _OTHERS:
        return {what} if what != OTHER else {"j0", "j1"}
    named = re.findall("[ik][01]", what)
    if verb in ("add", "new"):
        id = int(named[0][1]) if verb == "add" else min({0, 1} - rows.keys(), default=2)
        k = int(named[-1][1])
        if id in rows or id == 2:
            return set()
        rows[id] = k
        return {TABLE, UNREAD, f"i{id}", f"k{k}"}
    changed = set()
    for id, k in list(rows.items()):
        if named and named[0] not in (f"i{id}", f"k{k}"):
            continue
        changed |= {TABLE, f"i{id}", f"k{k}"} | ({UNREAD} if verb != "set" else set())
        if verb == "drop":
            del rows[id]
        elif verb == "move":
            rows[id] = 1 - k
            changed.add(f"k{1 - k}")
        elif verb == "put":
            rows[id] = int(named[1][1])
            changed.add(named[1])
    return changed
