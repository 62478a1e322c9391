"""The reads of one event-loop turn, looked up together.

Every read that arrives in a turn of the event loop is answered from one batch: each entry is asked
for once, each tag is asked for once, and each node gets one write. The batch is sent after
the last of its reads arrived, so what it brings back is never older than any of them.

This is the hot path: a read costs a dictionary look-up, a list append and a comparison here.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlcache.cache.tags import ABSENT, Tag, TagState, read_log
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import Reply


class TagSet:
    """The tags one answer hangs on, in the order its entry lists their versions.

    One object per set of tags, made by `Engine.tag_set`: compared by identity.
    """

    __slots__ = ("requests", "tags")

    def __init__(self, tags: tuple[Tag, ...], requests: tuple[Request, ...]) -> None:
        self.tags = tags
        self.requests = requests


class Read:
    """A statement that may be answered from the cache: its key, and the tags it hangs on."""

    __slots__ = ("key", "request", "shape", "tags", "ttl_s")

    def __init__(self, key: bytes, request: bytes, tags: TagSet, shape: bytes, ttl_s: int) -> None:
        self.key = key
        self.request = (key, request)
        self.tags = tags
        self.shape = shape
        self.ttl_s = ttl_s


@dataclass(slots=True)
class Hit:
    """The entry is there and current; its packets begin behind `versions_bytes`."""

    value: bytes
    versions_bytes: int


@dataclass(slots=True)
class Miss:
    """No current entry, but every tag has a version: an answer may be stored under `versions`."""

    versions: bytes


@dataclass(slots=True)
class Unversioned:
    """These tags are absent, or unreadable: nothing can be stored until they get a version."""

    tags: tuple[Tag, ...]


@dataclass(slots=True)
class Bypass:
    """The cache cannot be used for this read now; `reason` is a metric's label."""

    reason: str


@dataclass(slots=True)
class Outdated:
    """A definition changed since the reader learned what its statement reads: it must plan anew."""


Outcome = Hit | Miss | Unversioned | Outdated | Bypass
Waiter = Callable[[Outcome], None]

UNREACHABLE = Bypass("memcached unreachable")
UNREPORTED = Bypass("a bump is still to be made")
FENCED = Bypass("a write is in flight")
OUTDATED = Outdated()


class Lookups:
    """Gathers reads and answers each with an outcome.

    `distrusted` are the tags whose value in memcached is known to be behind: a bump of them could
    not be made yet. `on_fenced` is told of fences seen, for those that have lapsed.
    """

    def __init__(
        self,
        cluster: Cluster,
        distrusted: Callable[[TagSet], bool],
        on_fenced: Callable[[Tag, TagState], None],
    ) -> None:
        self._cluster = cluster
        self._distrusted = distrusted
        self._on_fenced = on_fenced
        self.definitions: Mapping[Tag, bytes | None] | None = None
        """The versions of the schemas' and the root's tags under which reads were planned; None
        while plans do not depend on any."""
        self._batch: list[tuple[Read, Waiter]] = []
        self._loop = asyncio.get_running_loop()

    def add(self, read: Read, waiter: Waiter) -> None:
        """Calls `waiter` with the read's outcome in a later turn of the event loop, once."""
        if not self._batch:
            self._loop.call_soon(self._send)
        self._batch.append((read, waiter))

    def _send(self) -> None:
        batch, self._batch = self._batch, []
        places: dict[bytes, int] = {}
        requests: list[Request] = []
        tag_sets: set[TagSet] = set()
        for read, _ in batch:
            if read.key not in places:
                places[read.key] = len(requests)
                requests.append(read.request)
            tag_sets.add(read.tags)
        for tag_set in tag_sets:
            for request in tag_set.requests:
                if request[0] not in places:
                    places[request[0]] = len(requests)
                    requests.append(request)

        def answered(replies: list[Reply | None]) -> None:
            self._answer(batch, places, replies)

        self._cluster.submit(requests, answered)

    def _answer(
        self,
        batch: list[tuple[Read, Waiter]],
        places: dict[bytes, int],
        replies: list[Reply | None],
    ) -> None:
        judged: dict[TagSet, bytes | Outcome] = {}
        for read, waiter in batch:
            versions = judged.get(read.tags)
            if versions is None:
                versions = judged[read.tags] = self._judge(read.tags, places, replies)
            if not isinstance(versions, bytes):
                waiter(versions)
                continue
            reply = replies[places[read.key]]
            if reply is None:
                waiter(UNREACHABLE)
                continue
            value = reply[1]
            if value is not None and value.startswith(versions):
                waiter(Hit(value, len(versions)))
            else:
                waiter(Miss(versions))

    def _judge(
        self, tag_set: TagSet, places: dict[bytes, int], replies: list[Reply | None]
    ) -> bytes | Outcome:
        """The versions an entry must have to be current, or why none can be."""
        if self._distrusted(tag_set):
            return UNREPORTED
        versions = []
        unversioned = []
        fenced = outdated = False
        for tag, (key, _) in zip(tag_set.tags, tag_set.requests, strict=True):
            reply = replies[places[key]]
            if reply is None:
                return UNREACHABLE
            state = state_of(reply)
            if state.fences:
                fenced = True
                self._on_fenced(tag, state)
            elif state.version is None:
                unversioned.append(tag)
            else:
                versions.append(state.version)
                outdated = outdated or not self._planned_under(tag, state.version)
        if fenced:
            return FENCED
        if outdated:
            return OUTDATED
        return Unversioned(tuple(unversioned)) if unversioned else b"".join(versions)

    def _planned_under(self, tag: Tag, version: bytes) -> bool:
        known = self.definitions
        return known is None or bool(tag.table) or known.get(tag) == version


def state_of(reply: Reply) -> TagState:
    """What the reply to a tag's `mg` says; a log that cannot be read is as good as none."""
    try:
        return ABSENT if reply[1] is None else read_log(reply[1])
    except ValueError:
        return ABSENT
