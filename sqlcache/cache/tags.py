"""Tags: for each table, each schema and for everything, each with a version.

An answer is served only while every tag it depends on has the version it was read under and no
fence stands. A tag's value in memcached is a log of fixed-size records that only ever gets atomic
appends; what it means is the sum of its records:

    V version            the tag has this version from here on
    F fence beat         a write is in flight; `beat` changes each time its proxy renews the fence
    X fence version      that write is over: its fence is lifted, and the version is new
    U fence              that write never was: its fence is lifted, the version stays
    U commit             that commit could be seen before the tag got the version it has here
    P process            this process may serve what it has seen for a moment, unasked

Promises (P, see `windows`) end with the lift of a fence that stands, for that write has waited for
them. With that of EVERYONE a log begins: promises may have been lost with the one before it.

A commit is named, by a digest, behind the lift of a fence that stood for it. To `read_log` that is
the end of a fence that is not there, so whoever does not know of it takes it for nothing.

All ids are 64 random bits made by the caller, and none is used twice. An absent tag has no version:
everything under it is invalid until a reader adds a fresh one. So a lost tag costs hits and
never a stale answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlcache.sql.names import TableName

ID_BYTES = 8
COMPACT_AT_BYTES = 512
"""A log longer than this is worth compacting."""

EVERYONE = bytes(ID_BYTES)
"""Who promises where it is not known who has."""

_MOST_PROMISES = 8
_MOST_COMMITS = 8  # that a log still names when it was compacted
_NOBODY: frozenset[bytes] = frozenset()
_VERSION, _FENCE, _LIFT, _UNDO, _PROMISE = b"VFXUP"
_RECORD_BYTES = {
    _VERSION: 1 + ID_BYTES,
    _FENCE: 1 + 2 * ID_BYTES,
    _LIFT: 1 + 2 * ID_BYTES,
    _UNDO: 1 + ID_BYTES,
    _PROMISE: 1 + ID_BYTES,
}


ELSEWHERE = "*"
"""A table that is none: its tag is fenced with its schema's by who may let a write to some table of
the schema lead to tables of others."""


@dataclass(frozen=True, slots=True, order=True)
class Tag:
    """What answers hang on: a table, a schema (no `table`) or everything (neither).

    A table's tag lives on one node. A schema's and the root's have a copy on every node, `node`, so
    that a node that is away costs only the answers from the tables whose tags it holds. The root's
    copy on a node stands for all that hangs on that node: who heard nothing of the node for a
    while gives it a new version, and so disowns what the node remembers.
    """

    schema: str = ""
    table: str = ""
    node: str = ""

    @property
    def kind(self) -> str:
        """`table`, `schema` or `root`, for metrics."""
        return "table" if self.table else "schema" if self.schema else "root"

    @property
    def defines(self) -> bool:
        """Whether it tells of definitions: what the tables, views and settings are."""
        return not self.table

    @property
    def of_table(self) -> str:
        """The table's name with its schema's; "" where it is none's."""
        return f"{self.schema}.{self.table}" if self.table and self.table != ELSEWHERE else ""

    def on(self, node: str) -> "Tag":
        """The copy of it that lives on this node."""
        return Tag(self.schema, self.table, node)

    def __str__(self) -> str:
        on = f" on {self.node}" if self.node else ""
        return f"{self.schema or '*'}.{self.table or '*'}{on}"


ROOT = Tag()


def read_tags(tables: Iterable[TableName], schemas: Iterable[str] = ()) -> tuple[Tag, ...]:
    """The tags an answer hangs on: its tables, the schemas they live in, and the root."""
    tags = {ROOT}
    tags.update(Tag(schema) for schema in schemas)
    for table in tables:
        tags.add(Tag(table.schema))
        tags.add(Tag(table.schema, table.name))
    return tuple(sorted(tags))


@dataclass(frozen=True, slots=True)
class TagState:
    """What a tag's log says: its version, None if it has none yet, the fences that stand, and the
    processes that have given a promise.

    `fences` maps a fence's id to its last beat.
    """

    version: bytes | None
    fences: dict[bytes, bytes]
    promises: frozenset[bytes] = _NOBODY

    def but_for(self, fence: bytes) -> "TagState":
        """The same as if this fence did not stand."""
        if fence not in self.fences:
            return self
        others = {f: b for f, b in self.fences.items() if f != fence}
        return TagState(self.version, others, self.promises)

    @property
    def current(self) -> bytes | None:
        """The version answers may be served and stored under; None while there is none."""
        return None if self.fences else self.version


ABSENT = TagState(None, {})


def read_log(log: bytes) -> TagState:
    """What the log says. Raises: ValueError for bytes that are no log."""
    version: bytes | None = None
    fences: dict[bytes, bytes] = {}
    promises: set[bytes] = set()
    offset = 0
    while offset < len(log):
        kind = log[offset]
        end = offset + _RECORD_BYTES.get(kind, len(log) + 1)
        if end > len(log):
            raise ValueError(f"a tag's log has no record at byte {offset}")
        first, second = log[offset + 1 : offset + 1 + ID_BYTES], log[offset + 1 + ID_BYTES : end]
        if kind == _FENCE:
            fences[first] = second
        elif kind == _VERSION:
            version = first
        elif kind == _PROMISE:
            promises.add(first)
        else:
            stood = fences.pop(first, None) is not None
            if kind == _LIFT:
                version = second
                if stood:
                    promises.clear()
        offset = end
    return TagState(version, fences, frozenset(promises))


def found_standing(log: bytes, fence: bytes) -> bool:
    """Whether what ended this fence, in the log that it led to, found it standing."""
    ends = [place for kind in (b"X", b"U") if (place := log.find(kind + fence)) >= 0]
    return bool(ends) and 0 <= log.find(b"F" + fence) < min(ends)


def marks_in(log: bytes, fence: bytes) -> int:
    """How often the log says that this fence stands."""
    return log.count(b"F" + fence)


def commits_in(log: bytes) -> list[bytes]:
    """The commits that the log names, the last ones last; none where it cannot be read."""
    commits: list[bytes] = []
    fences: set[bytes] = set()
    offset = 0
    while offset < len(log):
        kind, first = log[offset], log[offset + 1 : offset + 1 + ID_BYTES]
        if kind == _FENCE:
            fences.add(first)
        elif kind == _UNDO and first not in fences:
            commits.append(first)
        offset += _RECORD_BYTES.get(kind, len(log) + 1)
    return commits if offset == len(log) else []


def versions_around(log: bytes, fence: bytes) -> tuple[bytes, bytes] | None:
    """The version before this fence was lifted, and the one it was lifted with; None where the log
    no longer tells."""
    version = None
    offset = 0
    while offset < len(log):
        kind = log[offset]
        first = log[offset + 1 : offset + 1 + ID_BYTES]
        second = log[offset + 1 + ID_BYTES : offset + 1 + 2 * ID_BYTES]
        if kind == _LIFT and first == fence:
            return None if version is None else (version, second)
        if kind in (_VERSION, _LIFT):
            version = first if kind == _VERSION else second
        offset += _RECORD_BYTES.get(kind, len(log))
    return None


def version_record(version: bytes) -> bytes:
    """The tag has `version` from here on; fences stay."""
    return b"V" + version


def fence_record(fence: bytes, beat: bytes) -> bytes:
    """A write is in flight, or still is."""
    return b"F" + fence + beat


def lift_record(fence: bytes, version: bytes) -> bytes:
    """The write is over."""
    return b"X" + fence + version


def undo_record(fence: bytes) -> bytes:
    """The write was never sent."""
    return b"U" + fence


def commit_record(commit: bytes) -> bytes:
    """The commit could be seen before the version in force here was made."""
    return b"U" + commit


def promise_record(process: bytes) -> bytes:
    """The process may serve what it has seen for a moment."""
    return b"P" + process


NEW_LOG = promise_record(EVERYONE)
"""What every log begins with."""


def compact(
    state: TagState,
    *,
    without: Iterable[bytes] = (),
    version: bytes | None = None,
    commits: Sequence[bytes] = (),
) -> bytes:
    """The shortest log that says `state`, with lapsed fences left out and the version replaced. Of
    the commits that it named it names the last ones.

    A fence that lapses may have hidden a write that happened, so `without` asks for a `version`.
    """
    lapsed = set(without)
    assert not lapsed or version is not None
    kept = version if version is not None else state.version
    records = [version_record(kept)] if kept is not None else []
    records += [fence_record(f, beat) for f, beat in state.fences.items() if f not in lapsed]
    many = len(state.promises) > _MOST_PROMISES or EVERYONE in state.promises
    records += map(promise_record, [EVERYONE] if many else sorted(state.promises))
    if kept is not None:
        records += map(commit_record, commits[-_MOST_COMMITS:])
    return b"".join(records)
