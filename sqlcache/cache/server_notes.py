"""Which server the answers on a node are from.

Each node has a note of that, by which who starts knows of a server from before that nobody at work
has met, as one that crashed and has lost its last commits.

- Who finds another note on a node, or none, gives the root a new version there, and then puts his
  own. Before that he has no hits from there; so a node that was away as he started is asked before
  it is used.
- Where another server stands in for one that was met, all nodes get a new version of the root,
  whatever is noted: the one from before may come back as it was.
- Who bumps a node later, as it was away, puts the note with that.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tag_logs import Steps
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import CacheUnavailable
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import STORED, meta_get, meta_set


class Origin(NamedTuple):
    """Where answers are from: what shares them by this name, and of that the server that began at
    this time."""

    data_set: str
    server: str
    began: int

    @property
    def note(self) -> bytes:
        """How it is noted."""
        return f"{self.server} {self.began}".encode()


class ServerNotes:
    """Those that one process finds, and puts. `tell` is told, for people, why everything is
    forgotten."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        placement: TagPlacement,
        fences: Fences,
        tell: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._keyspace = keyspace
        self._placement = placement
        self._fences = fences
        self._tell = tell
        self._met: Origin | None = None  # the last one that was seen to
        self._unput: set[str] = set()  # nodes that may have another note than that
        fences.owed.on_made = self._was_bumped

    async def see_to(self, now: Origin) -> Steps:
        """Returns when no node has answers of another server than this one, or of this one before
        it began anew, among those from this set of data; and the steps of the root's versions that
        were made for that. A node that is away is left out, and seen to when it is back. To be
        called at each reading of the catalog: a note that is asked for is not evicted, and one that
        was lost is put back."""
        steps: Steps = {}
        found = await self._found(now, self._cluster.nodes)
        if now == self._met:
            self._unput.update(name for name, note in found.items() if note is None)
        else:
            await self._forget(now, found, steps)
            self._met = now
            self._unput = {name for name in self._cluster.nodes if found.get(name) != now.note}
            for name in self._cluster.nodes - found.keys():
                if self._cluster.health_of(name).greeted:  # else it will be, and is seen to then
                    self._fences.owed.owe(ROOT.on(name))
        owed = {tag.node for tag in self._fences.owed.tags if tag == ROOT.on(tag.node)}
        await self._put(found.keys() & self._unput - owed)  # not before the bump
        return steps

    async def _forget(self, now: Origin, found: Mapping[str, bytes | None], steps: Steps) -> None:
        met = self._met
        if met is not None and met._replace(began=now.began) != now:
            others, blank = list(found), []
        else:
            others = [name for name, note in found.items() if note not in (now.note, None)]
            blank = [name for name, note in found.items() if note is None]
        for name in blank:
            if not await self._fences.renew_version(ROOT.on(name), steps):
                self._fences.owed.owe(ROOT.on(name))
        if others:
            self._tell("the server is another one, or has begun anew")
            with suppress(CacheUnavailable):  # what was not reached is owed
                steps |= await self._fences.bump(map(ROOT.on, others))

    async def agrees(self, name: str) -> bool:
        """Whether a node that is to be used from now on has answers of the server alone that was
        seen to: it is seen to. False where it does not answer."""
        while (met := self._met) is not None:
            found = await self._found(met, [name])
            if not found:
                return False
            if found[name] != met.note:
                self._unput.add(name)
                if not await self._fences.renew_version(ROOT.on(name)):
                    return False
                await self._put([name])
            elif self._met == met:
                self._unput.discard(name)
            if self._met == met:  # else another was met meanwhile
                return name not in self._unput
        return True

    async def _found(self, of: Origin, names: Iterable[str]) -> dict[str, bytes | None]:
        """The notes on those of these nodes that answer."""
        names, ask = list(names), meta_get(self._keyspace.server(of.data_set))
        replies = await self._cluster.ask(self._on_each(names, ask))
        told = zip(names, replies, strict=True)
        return {name: reply[1] for name, reply in told if reply is not None}

    async def _put(self, names: Iterable[str]) -> None:
        names = list(names)
        replies = await self._cluster.ask(self._puts(names))
        for name, reply in zip(names, replies, strict=True):
            if reply is not None and reply[0] == STORED:
                self._unput.discard(name)

    def _was_bumped(self, tag: Tag) -> None:
        """What was owed was made."""
        if tag == ROOT.on(tag.node) and tag.node in self._unput:
            self._cluster.submit(self._puts([tag.node]), lambda _: None)

    def _puts(self, names: Iterable[str]) -> list[Request]:
        """What puts the own note; something was met."""
        assert self._met is not None
        key = self._keyspace.server(self._met.data_set)
        return self._on_each(names, meta_set(key, self._met.note, ttl_s=0))

    def _on_each(self, names: Iterable[str], request: bytes) -> list[Request]:
        return [(self._placement.root_key(name), request) for name in names]
