"""Tags' logs in memcached: appended to, read, and made shorter; `log_records` has what they say."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from sqlcache.cache.log_records import (
    ABSENT,
    COMPACT_AT_BYTES,
    EVERYONE,
    TagState,
    commits_in,
    compact,
    new_log,
    read_log,
    slot_record,
    version_record,
)
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.slots import BUCKET_TTL_S
from sqlcache.cache.tags import ID_BYTES, ROOT, Tag
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import (
    NOT_STORED,
    STORED,
    Reply,
    flag_of,
    meta_append,
    meta_delete,
    meta_get,
    meta_set,
)
from sqlcache.tasks import Tasks

log = logging.getLogger(__name__)

_MOST_KNOWN = 10_000  # tags whose logs' lengths are kept
_LAPSE_TRIES = 20  # for which this process's own writers wait
_LAPSE_S = 0.1  # they take at most, where the node answers

Lapsed = Callable[[Collection[bytes] | None], None]
Record = Callable[[Tag], bytes]
Steps = dict[Tag, tuple[bytes, bytes]]
"""The versions before and after a record, of those tags of definitions whose logs tell."""


def fresh_id() -> bytes:
    """An id no one used before: for a version, a fence or a beat."""
    return os.urandom(ID_BYTES)


class Appended(NamedTuple):
    """What became of an append: the tags that it did not reach, the logs of the others, with what
    was appended, and that."""

    unreached: list[Tag]
    logs: Mapping[Tag, bytes]
    records: Mapping[Tag, bytes]


class TagLogs:
    """One process's way to them. Made inside a running event loop; `close` ends it."""

    def __init__(self, cluster: Cluster, placement: TagPlacement) -> None:
        self._cluster = cluster
        self._placement = placement
        self._shortest: dict[Tag, int] = {}  # bytes of logs when they were last compacted
        self._compacting: set[Tag] = set()
        self._held: list[tuple[frozenset[Tag], Callable[[], None]]] = []
        self._tasks = Tasks()

    async def close(self) -> None:
        """Ends what nobody waits for."""
        await self._tasks.cancel()

    async def look_at(self, tags: Iterable[Tag]) -> dict[Tag, TagState]:
        """What the tags' logs say, of those whose node answers."""
        tags = list(tags)
        keys = map(self._placement.key, tags)
        replies = await self._cluster.ask([(key, meta_get(key)) for key in keys])
        return {
            tag: state_of(reply)
            for tag, reply in zip(tags, replies, strict=True)
            if reply is not None
        }

    async def commits(self, tags: Iterable[Tag]) -> dict[Tag, frozenset[bytes]]:
        """The commits after which all that hangs on the tags was read: those that their logs name,
        each copy's, or that of the root where it lives."""
        places = {tag: self._placement.to_write([tag]) for tag in tags}
        roots = {
            place: ROOT.on(self._placement.node(place))
            for copies in places.values()
            for place in copies
        }
        asked = list({*roots, *roots.values()})
        keys = map(self._placement.key, asked)
        replies = await self._cluster.ask([(key, meta_get(key)) for key in keys])
        named = {
            place: frozenset(commits_in((reply and reply[1]) or b""))
            for place, reply in zip(asked, replies, strict=True)
        }
        return {
            tag: frozenset.intersection(*(named[each] | named[roots[each]] for each in copies))
            for tag, copies in places.items()
        }

    async def append(
        self, tags: Iterable[Tag], record: Record, *, for_life: bool = False
    ) -> Appended:
        """Appends a record to each tag's log, all in one round trip. `for_life`: see
        `Cluster.submit`.

        A log that the node has no room to make longer, as one that may evict nothing, is taken
        away: others would go by what it says. So a record has to be far shorter than an item may
        be: one that is too long itself would take the log away each time it is tried.
        """
        records = {tag: record(tag) for tag in tags}
        requests: list[Request] = []
        for tag, appended in records.items():
            key, begins = self._placement.key(tag), new_log(fresh_id())
            requests += [(key, each) for each in meta_append(key, appended, begins=begins)]
            requests.append((key, meta_get(key)))
        replies = await self._cluster.ask(requests, for_life=for_life)
        unreached = []
        full: list[Request] = []
        logs = {}
        for tag, reply, looked_at in zip(records, replies[1::3], replies[2::3], strict=True):
            log = (looked_at and looked_at[1]) or b""
            if reply is None or looked_at is None or reply[0] != STORED:
                unreached.append(tag)
                if log and reply is not None and reply[0] == NOT_STORED:
                    key = self._placement.key(tag)
                    full.append((key, meta_delete(key)))
            else:
                logs[tag] = log
            # Inline: of many writers one after another, a compaction on the side always loses.
            if self._is_long(tag, log):
                await self.compact(tag)
        if full:
            await self._cluster.ask(full)
        return Appended(unreached, logs, records)

    def append_soon(self, tags: Collection[Tag], record: bytes) -> None:
        """The same for who does not wait for it, of one record."""
        self._tasks.spawn(self._append_alone(tags, record))

    def lapse_soon(self, tag: Tag, lapsed: Mapping[bytes, bytes], done: Lapsed) -> None:
        """Takes these fences, by their last beat, out of a log; the version is new then. Calls
        `done` soon: with those that it took out; with None where that is to be tried again, for
        others wrote all the time, or the log could not be reached."""
        self._tasks.spawn(self._lapse(tag, lapsed, done))

    async def _lapse(self, tag: Tag, lapsed: Mapping[bytes, bytes], done: Lapsed) -> None:
        """While this process's own writers wait, see `_compact_alone`. Those of others come in
        between often, but not always."""
        gone: Collection[bytes] | None = None
        if tag in self._compacting:
            done(None)
            return
        self._compacting.add(tag)
        loop = asyncio.get_running_loop()
        until = loop.time() + _LAPSE_S
        try:
            for _ in range(_LAPSE_TRIES):
                gone = await self.compact(tag, lapsed)
                if gone is not None or loop.time() > until:
                    break
        finally:
            self._let_go_on([tag])
            done(gone)

    async def _append_alone(self, tags: Collection[Tag], record: bytes) -> None:
        await self.append(tags, lambda _: record)

    def when_free(self, tags: frozenset[Tag], append: Callable[[], None]) -> None:
        """Calls what appends to these tags' logs when none of them is being compacted: at once
        mostly."""
        if self._compacting.isdisjoint(tags):
            append()
        else:
            self._held.append((tags, append))

    def compact_soon(self, tags: Iterable[Tag], logs: Iterable[bytes]) -> None:
        """Compacts those of the tags' logs that are worth it."""
        long = [tag for tag, log in zip(tags, logs, strict=True) if self._is_long(tag, log)]
        if long and self._compacting.isdisjoint(long):
            self._compacting.update(long)
            self._tasks.spawn(self._compact_alone(long))

    async def _compact_alone(self, tags: list[Tag]) -> None:
        """While all others wait: else one of many writers would always come in between."""
        try:
            for tag in tags:
                await self.compact(tag)
        finally:
            self._let_go_on(tags)

    def _let_go_on(self, tags: Collection[Tag]) -> None:
        """These are being compacted no more."""
        self._compacting.difference_update(tags)
        held, self._held = self._held, []
        for waiting, append in held:
            try:
                self.when_free(waiting, append)
            except Exception:  # the others wait still
                log.exception("a writer failed")

    def _is_long(self, tag: Tag, log: bytes) -> bool:
        """Whether a log is worth compacting: it is that much longer than it was made."""
        size = len(log)
        return size > COMPACT_AT_BYTES and size > 2 * self._shortest.get(tag, 0)

    async def compact(
        self, tag: Tag, lapsed: Mapping[bytes, bytes] | None = None
    ) -> Collection[bytes] | None:
        """Rewrites a log at its shortest, by compare-and-swap: whoever loses leaves it be.

        `lapsed` are fences to leave out, by their last beat; then the version is new. Returns those
        that it left out, of all that still stood so; None where the log is as it was.
        """
        key = self._placement.key(tag)
        (reply,) = await self._cluster.ask([(key, meta_get(key, b"v c"))])
        if reply is None or reply[1] is None:
            return None if reply is None else ()
        state = state_of(reply)
        if state.version is None:  # new, or it could not be read
            state = replace(state, promises=frozenset({EVERYONE}), log=state.log or fresh_id())
        gone = [f for f, beat in (lapsed or {}).items() if state.fences.get(f) == beat]
        if lapsed and not gone:
            return ()
        version = fresh_id() if gone or state.version is None else None
        commits = commits_in(reply[1])
        shortest = compact(state, without=gone, version=version, commits=commits)
        cas = int(flag_of(reply[2], b"c") or 0)
        (reply,) = await self._cluster.ask([(key, meta_set(key, shortest, ttl_s=0, cas=cas))])
        if len(self._shortest) >= _MOST_KNOWN:
            self._shortest.clear()
        self._shortest[tag] = len(shortest)
        return gone if reply is not None and reply[0] == STORED else None

    def use_slot_soon(self, tag: Tag, slot: bytes) -> None:
        """Takes a slot of the table into use, soon, if its log can be reached."""
        self.append_soon([tag], slot_record(slot, fresh_id()))

    def give_buckets_soon(self, keys: Iterable[bytes]) -> None:
        """Adds each bucket with a fresh version, if there is none: who asks for it next finds
        that."""
        adding = [(key, meta_set(key, fresh_id(), mode=b"E", ttl_s=BUCKET_TTL_S)) for key in keys]
        self._cluster.submit(adding, lambda _: None)

    async def give_versions(self, tags: Iterable[Tag]) -> None:
        """Adds a fresh version to each tag that has none, and mends logs that cannot be read."""
        requests: list[Request] = []
        tags = list(tags)
        for tag in tags:
            key = self._placement.key(tag)
            first = new_log(fresh_id()) + version_record(fresh_id())
            requests.append((key, meta_set(key, first, mode=b"E", ttl_s=0)))
        for tag, reply in zip(tags, await self._cluster.ask(requests), strict=True):
            if reply is not None and reply[0] != STORED:
                await self.compact(tag)


def state_of(reply: Reply) -> TagState:
    """What the reply to a tag's `mg` says."""
    return log_state(reply[1])


def log_state(log: bytes | None) -> TagState:
    """What a tag's log says; one that cannot be read is as good as none."""
    try:
        return ABSENT if log is None else read_log(log)
    except ValueError:
        return ABSENT
