"""The records of a tag's log: how they are made, and what they say together.

A tag's value in memcached is a log of records that only gets atomic appends, and means the sum of
these:

    V version            the tag has this version from here on
    F fence beat         a write is in flight; `beat` changes each time its proxy renews the fence
    X fence version      that write is over: its fence is lifted, and the version is new
    U fence              that write never was: its fence is lifted, the version stays
    U commit             that commit could be seen before the tag got the version it has here
    P process            this process may serve what it has seen for a moment, unasked
    N log                this log is another than all that were lost before it

A table's log may have *slots*, by which answers are told apart (see `slots`). Each has a version of
its own, which is new wherever the tag's is but where a record says otherwise:

    S slot version       the slot is in use from here on, if it was not
    f fence beat cover   a write is in flight; of the slots that its cover names it touches these
                         buckets alone
    g fence beat         it still is; where its `f` does not stand, it may touch anything
    x fence version n slot*n
                         that write is over: the version is new, and that of each slot but those
                         named, whose buckets are new instead; all are where its `f` does not stand

So what is not named is covered and renewed, and whoever knows of no slots is right about all. What
follows a beat or a version in `f` and `x` begins with its length.

Promises (P, see `windows`) end with the lift of a fence that stands, for that write has waited for
them. With that of EVERYONE a log begins, and with its own id: promises, and fences, may have been
lost with the one before it.

A commit is named, by a digest, behind the lift of a fence that stood for it. To `read_log` that is
the end of a fence that is not there, so whoever does not know of it takes it for nothing.

Slots' names say what they are. All other ids are 64 random bits made by the caller, and none is
used twice. An absent tag has no version: everything under it is invalid until a reader adds a fresh
one. So a lost tag costs hits and never a stale answer.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlcache.cache.tags import BUCKET_BYTES, ID_BYTES, SLOT_BYTES, Cover, Pin

COMPACT_AT_BYTES = 512
"""A log longer than this is worth compacting."""

EVERYONE = bytes(ID_BYTES)
"""Who promises where it is not known who has."""

MOST_SLOTS = 7
"""Of a table, in use."""

_HEAD_BYTES = 2 * (1 + ID_BYTES)  # with its own id, or a version, which no other log has
_MOST_READ = 256  # logs that are read on from where they ended
_MOST_PROMISES = 8
_MOST_COMMITS = 8  # that a log still names when it was compacted
_NOBODY: frozenset[bytes] = frozenset()
_VERSION, _FENCE, _LIFT, _UNDO, _PROMISE, _LOG = b"VFXUPN"
_SLOT, _NARROW_FENCE, _BEAT, _NARROW_LIFT = b"Sfgx"
_RECORD_BYTES = {
    _VERSION: 1 + ID_BYTES,
    _FENCE: 1 + 2 * ID_BYTES,
    _LIFT: 1 + 2 * ID_BYTES,
    _UNDO: 1 + ID_BYTES,
    _PROMISE: 1 + ID_BYTES,
    _LOG: 1 + ID_BYTES,
    _SLOT: 1 + SLOT_BYTES + ID_BYTES,
    _NARROW_FENCE: 1 + 2 * ID_BYTES,
    _BEAT: 1 + 2 * ID_BYTES,
    _NARROW_LIFT: 1 + 2 * ID_BYTES,
}
_HAVE_MORE = frozenset((_NARROW_FENCE, _NARROW_LIFT))
_LENGTH_BYTES = 2
_MORE_AT = 2 * ID_BYTES + _LENGTH_BYTES  # of a record without its kind
_FENCES, _ENDS = (b"F", b"f", b"g"), (b"X", b"U", b"x")


@dataclass(frozen=True, slots=True)
class TagState:
    """What a tag's log says: its version, None if it has none yet, the fences that stand, and the
    processes that have given a promise.

    `fences` maps a fence's id to its last beat, `narrow` those of them that do not cover everything
    to what they do, and `slots` each slot in use to its version. `log` tells it from those that
    were there before it, and were lost; empty where nothing does.
    """

    version: bytes | None
    fences: dict[bytes, bytes]
    promises: frozenset[bytes] = _NOBODY
    slots: Mapping[bytes, bytes] = field(default_factory=dict)
    narrow: Mapping[bytes, Cover] = field(default_factory=dict)
    log: bytes = b""

    def but_for(self, fence: bytes) -> "TagState":
        """The same as if this fence did not stand."""
        if fence not in self.fences:
            return self
        others = {f: b for f, b in self.fences.items() if f != fence}
        narrow = {f: cover for f, cover in self.narrow.items() if f != fence}
        return replace(self, fences=others, narrow=narrow)

    @property
    def current(self) -> bytes | None:
        """The version answers may be served and stored under; None while there is none."""
        return None if self.fences else self.version

    def covers(self, pin: Pin) -> bool:
        """Whether a write is in flight that may touch one of its buckets."""
        for fence in self.fences:
            touched = self.narrow.get(fence, {}).get(pin.slot)
            if touched is None or not touched.isdisjoint(pin.buckets):
                return True
        return False


ABSENT = TagState(None, {})


_read: dict[bytes, tuple[bytes, TagState]] = {}


def read_log(log: bytes) -> TagState:
    """What the log says, not to be changed. Raises: ValueError for bytes that are no log.

    A log is met by many look-ups and writers, and mostly as it was, or longer: then what has been
    read of it is not read again.
    """
    head = log[:_HEAD_BYTES]
    known, state = _read.get(head, (b"", ABSENT))
    if log == known:
        return state
    state = _read_on(state, log, len(known)) if log.startswith(known) else _read_on(ABSENT, log, 0)
    if len(_read) >= _MOST_READ:
        _read.clear()
    _read[head] = log, state
    return state


def _read_on(state: TagState, log: bytes, at: int) -> TagState:
    """What the log says that has said this up to there."""
    reading = _Reading(state)
    size = len(log)
    while at < size:
        kind = log[at]
        end = at + _RECORD_BYTES.get(kind, size + 1)
        if kind in _HAVE_MORE:
            _, end = _more(log, end)
        if end > size:
            raise _no_record(at)
        try:
            _TAKE[kind](reading, log[at + 1 : end])
        except ValueError:
            raise _no_record(at) from None
        at = end
    return reading.state()


class _Reading:
    """What a log has said so far. Each method takes a record of one kind, without that."""

    __slots__ = ("_fences", "_log", "_narrow", "_promises", "_slots", "_version")

    def __init__(self, state: TagState) -> None:
        self._version = state.version
        self._fences = dict(state.fences)
        self._promises = state.promises
        self._slots = state.slots
        self._narrow = dict(state.narrow)
        self._log = state.log

    def state(self) -> TagState:
        fences, promises, slots = self._fences, self._promises, self._slots
        return TagState(self._version, fences, promises, slots, self._narrow, self._log)

    def version(self, version: bytes, spared: Collection[bytes] = ()) -> None:
        self._version = version
        if self._slots:
            self._slots = {s: v if s in spared else version for s, v in self._slots.items()}

    def fence(self, record: bytes) -> None:
        fence = record[:ID_BYTES]
        self._fences[fence] = record[ID_BYTES:]
        if self._narrow:
            self._narrow.pop(fence, None)

    def narrow_fence(self, record: bytes) -> None:
        fence, cover = record[:ID_BYTES], _cover(record[_MORE_AT:])
        if self._narrow.pop(fence, None) is None and fence not in self._fences:
            self._narrow[fence] = cover  # a second one may be of another
        self._fences[fence] = record[ID_BYTES : 2 * ID_BYTES]

    def beat(self, record: bytes) -> None:
        self._fences[record[:ID_BYTES]] = record[ID_BYTES:]

    def lift(self, record: bytes) -> None:
        fence, version = record[:ID_BYTES], record[ID_BYTES : 2 * ID_BYTES]
        was_narrow = self._narrow.pop(fence, None) is not None
        self.version(version, _slots(record[_MORE_AT:]) if was_narrow else ())
        if self._fences.pop(fence, None) is not None:
            self._promises = _NOBODY

    def undo(self, record: bytes) -> None:
        self._fences.pop(record, None)
        self._narrow.pop(record, None)

    def promise(self, record: bytes) -> None:
        self._promises |= {record}

    def log(self, record: bytes) -> None:
        self._log = record

    def slot(self, record: bytes) -> None:
        slot = record[:SLOT_BYTES]
        if len(self._slots) < MOST_SLOTS and slot not in self._slots:
            self._slots = {**self._slots, slot: record[SLOT_BYTES:]}


_TAKE: Mapping[int, Callable[[_Reading, bytes], None]] = {
    _VERSION: _Reading.version,
    _FENCE: _Reading.fence,
    _LIFT: _Reading.lift,
    _UNDO: _Reading.undo,
    _PROMISE: _Reading.promise,
    _LOG: _Reading.log,
    _SLOT: _Reading.slot,
    _NARROW_FENCE: _Reading.narrow_fence,
    _BEAT: _Reading.beat,
    _NARROW_LIFT: _Reading.lift,
}


def covers_in(log: bytes, at: int) -> list[Cover]:
    """What the writes cover that have begun behind this place of a log that can be read."""
    covers = []
    while at < len(log):
        kind, more = log[at], at + _RECORD_BYTES[log[at]]
        at = more
        if kind in _HAVE_MORE:
            told, at = _more(log, more)
            if kind == _NARROW_FENCE:
                covers.append(_cover(told))
    return covers


def _no_record(at: int) -> ValueError:
    return ValueError(f"a tag's log has no record at byte {at}")


def _more(log: bytes, at: int) -> tuple[bytes, int]:
    """What follows there with its length, and where that ends."""
    begin = at + _LENGTH_BYTES
    end = begin + int.from_bytes(log[at:begin], "big")
    return log[begin:end], max(begin, end)


def _cover(more: bytes) -> Cover:
    cover: dict[bytes, frozenset[bytes]] = {}
    begin = 0
    while begin < len(more):
        named = begin + SLOT_BYTES + 1
        slot, buckets = more[begin : named - 1], more[named - 1 : named]
        begin = named + BUCKET_BYTES * (buckets[0] if buckets else len(more))
        if begin > len(more):
            raise ValueError("a cover is cut short")
        cover[slot] = frozenset(_split(more[named:begin], BUCKET_BYTES))
    return cover


def _slots(more: bytes) -> Collection[bytes]:
    return frozenset(_split(more[1 : 1 + more[0] * SLOT_BYTES], SLOT_BYTES)) if more else ()


def _split(joined: bytes, size: int) -> list[bytes]:
    return [joined[at : at + size] for at in range(0, len(joined), size)]


def found_standing(log: bytes, fence: bytes) -> bool:
    """Whether what ended this fence, in the log that it led to, found it standing."""
    ends = _places(log, fence, _ENDS)
    begins = _places(log, fence, _FENCES)
    return bool(ends) and bool(begins) and min(begins) < min(ends)


def _places(log: bytes, fence: bytes, kinds: Iterable[bytes]) -> list[int]:
    return [place for kind in kinds if (place := log.find(kind + fence)) >= 0]


def marks_in(log: bytes) -> Counter[bytes]:
    """How often the log says of which fence that it stands; of none where it cannot be read."""
    marks: Counter[bytes] = Counter()
    at, size = 0, len(log)
    while at < size:
        kind, first = log[at], log[at + 1 : at + 1 + ID_BYTES]
        if kind in (_FENCE, _NARROW_FENCE, _BEAT):
            marks[first] += 1
        at += _RECORD_BYTES.get(kind, size + 1)
        if kind in _HAVE_MORE:
            _, at = _more(log, at)
    return marks if at == size else Counter()


def commits_in(log: bytes) -> list[bytes]:
    """The commits that the log names, the last ones last; none where it cannot be read."""
    commits: list[bytes] = []
    fences: set[bytes] = set()
    at, size = 0, len(log)
    while at < size:
        kind, first = log[at], log[at + 1 : at + 1 + ID_BYTES]
        if kind in (_FENCE, _NARROW_FENCE, _BEAT):
            fences.add(first)
        elif kind == _UNDO and first not in fences:
            commits.append(first)
        at += _RECORD_BYTES.get(kind, size + 1)
        if kind in _HAVE_MORE:
            _, at = _more(log, at)
    return commits if at == size else []


def versions_around(log: bytes, step: bytes) -> tuple[bytes, bytes] | None:
    """The versions before and after this record, which no other is like; None where the log no
    longer tells, or the record makes none. Of a log without slots."""
    before = None
    offset = 0
    while offset < len(log):
        kind = log[offset]
        end = offset + _RECORD_BYTES.get(kind, len(log))
        if kind in (_VERSION, _LIFT):
            after = log[end - ID_BYTES : end]
            if log.startswith(step, offset):
                return None if before is None else (before, after)
            before = after
        offset = end
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


def slot_record(slot: bytes, version: bytes) -> bytes:
    """The slot is in use."""
    return b"S" + slot + version


def narrow_fence_record(fence: bytes, beat: bytes, cover: Cover) -> bytes:
    """A write is in flight that touches no more than this."""
    parts = []
    for slot, buckets in sorted(cover.items()):
        parts += [slot, bytes((len(buckets),)), *sorted(buckets)]
    return b"f" + fence + beat + _with_length(b"".join(parts))


def beat_record(fence: bytes, beat: bytes) -> bytes:
    """A write that may be narrow is in flight still."""
    return b"g" + fence + beat


def narrow_lift_record(fence: bytes, version: bytes, slots: Collection[bytes]) -> bytes:
    """The write is over, and the buckets of these slots that it touched are new."""
    named = bytes((len(slots),)) + b"".join(sorted(slots))
    return b"x" + fence + version + _with_length(named)


def _with_length(more: bytes) -> bytes:
    return len(more).to_bytes(_LENGTH_BYTES, "big") + more


def new_log(log: bytes) -> bytes:
    """What every log begins with; this one with this id of its own."""
    return promise_record(EVERYONE) + log_record(log)


def log_record(log: bytes) -> bytes:
    """The log is this one."""
    return b"N" + log


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
    records = [log_record(state.log)] if state.log else []
    records += [version_record(kept)] if kept is not None else []
    records += [slot_record(slot, version or own) for slot, own in state.slots.items()]
    records += [_standing(f, beat, state) for f, beat in state.fences.items() if f not in lapsed]
    many = len(state.promises) > _MOST_PROMISES or EVERYONE in state.promises
    records += map(promise_record, [EVERYONE] if many else sorted(state.promises))
    if kept is not None:
        records += map(commit_record, commits[-_MOST_COMMITS:])
    return b"".join(records)


def _standing(fence: bytes, beat: bytes, state: TagState) -> bytes:
    cover = state.narrow.get(fence)
    return fence_record(fence, beat) if cover is None else narrow_fence_record(fence, beat, cover)
