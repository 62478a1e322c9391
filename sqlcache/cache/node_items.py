"""What is on each node for who watches over it, beside its copy of the root's tag.

- Its *memento*, an id that is there for as long as the node has its memory. Who finds another one,
  or neither that nor itself in the membership, knows that this is not the memory that it was, see
  `node_mementos`.
- The *membership*, the ids of the proxies at work. One that ends with nothing left to do takes its
  id out: without an id there is nobody who could have written and not told. Where there is none
  beside a copy of the root, as of a node that gave it up for want of room, nobody knows who is at
  work: it stands for somebody who answers no question, and so does the one that is made anew.
- A *roll*, of questions whether anybody has gone on without the node and not told it of it yet, and
  the *answers* to each, see `node_questions`.
- A *hold*, while a proxy has the node in quarantine: one that starts meanwhile joins in.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from sqlcache.cache.keys import Keyspace
from sqlcache.cache.node_mementos import Mementos
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.cache.tags import ID_BYTES
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import (
    STORED,
    Reply,
    flag_of,
    meta_append,
    meta_delete,
    meta_get,
    meta_set,
)

_CHANGED = b"EX"
_ROLL_TTL_S = 30
_SOMEBODY = b"\xff" * ID_BYTES  # among those of the membership: who else is at work is not known


@dataclass(frozen=True, slots=True)
class Survey:
    """What a node tells about the time in which one did not watch it."""

    others: frozenset[bytes] = frozenset()
    """Those in its membership."""
    held: bool = False
    """There is a hold."""
    remembers: bool = False
    """It has its copy of the root."""

    @property
    def empty(self) -> bool:
        """Nobody uses it, or nobody has noticed yet that it is back."""
        return not (self.others or self.held or self.remembers)


@dataclass(frozen=True, slots=True)
class Look:
    """What a node tells who watches over it."""

    asked: frozenset[bytes]
    """The questions on its roll."""
    is_enrolled: bool
    """This process is in its membership."""
    memento: bytes | None


class NodeItems:
    """One process's way to them. What a node does not answer is None, or False.

    `lost` is told of nodes that have another memento than they had.
    """

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        placement: TagPlacement,
        lost: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._placement = placement
        self._keyspace = keyspace
        self.id = fresh_id()
        """This process's, in memberships and answers."""
        self._hold_ttl_s = math.ceil(cluster.quarantine_s) + 1
        roots = {name: placement.root_key(name) for name in cluster.nodes}
        mementos = {name: keyspace.memento(key) for name, key in roots.items()}
        self.mementos = Mementos(mementos, lost)
        self._holds = {name: keyspace.hold(key) for name, key in roots.items()}
        self._memberships = {name: keyspace.membership(key) for name, key in roots.items()}
        self._rolls = {name: keyspace.roll(key) for name, key in roots.items()}

    async def survey(self, name: str) -> Survey | None:
        """What is on the node for the watch; None if it does not answer."""
        root_key = self._placement.root_key(name)
        keys = self._memberships[name], self._holds[name], root_key
        membership, hold, root = await self.ask(name, list(map(meta_get, keys)))
        if membership is None or hold is None or root is None:
            return None
        remembers = root[1] is not None
        lost = _SOMEBODY if remembers else b""
        others = frozenset(_split(lost if membership[1] is None else membership[1])) - {self.id}
        return Survey(others, held=hold[1] is not None, remembers=remembers)

    async def look(self, name: str) -> Look | None:
        """What is to be done about a node."""
        asking = meta_get(self._rolls[name]), meta_get(self._memberships[name])
        replies = await self.ask(name, [*asking, self.mementos.asking(name)])
        roll, membership, memento = replies
        if roll is None or membership is None or memento is None:
            return None
        is_enrolled = self.id in _split(membership[1] or b"")
        return Look(frozenset(_split(roll[1] or b"")), is_enrolled, memento[1])

    async def said_to(
        self, name: str, question: bytes
    ) -> tuple[frozenset[bytes], frozenset[bytes]] | None:
        """The questions on a node's roll, and what was answered to this one."""
        keys = self._rolls[name], self._answers(name, question)
        roll, answers = await self.ask(name, list(map(meta_get, keys)))
        if roll is None or answers is None:
            return None
        return frozenset(_split(roll[1] or b"")), frozenset(_split(answers[1] or b""))

    async def put(self, name: str, question: bytes) -> None:
        """Puts a question on a node's roll."""
        await self._append(name, self._rolls[name], question)

    async def answer(self, name: str, question: bytes, ids: bytes) -> bool:
        """Adds ids to the answers to a question; whether that was done."""
        return await self._append(name, self._answers(name, question), ids)

    def _answers(self, name: str, question: bytes) -> bytes:
        return self._keyspace.answers(self._placement.root_key(name), question)

    async def _append(self, name: str, key: bytes, ids: bytes) -> bool:
        """Adds ids to a list that is kept for a while; whether that was done."""
        _, added = await self.ask(name, meta_append(key, ids, ttl_s=_ROLL_TTL_S))
        return added is not None and added[0] == STORED

    async def enrol(self, name: str, *, anew: bool = False) -> bool:
        """Adds this process to the membership. `anew`: nobody was in one before. Whether the node
        answered.

        A membership that the node has no room to make longer is taken away: others would go by it.
        """
        key = self._memberships[name]
        joins = meta_append(key, self.id, begins=b"" if anew else _SOMEBODY)
        *_, joined = replies = await self.ask(name, list(joins))
        if joined is not None and joined[0] != STORED:
            replies = await self.ask(name, [meta_delete(key)])
        return None not in replies

    async def membership(self, name: str) -> int | None:
        """The token of the membership that a node has now, for `enrol_alone`."""
        (membership,) = await self.ask(name, [meta_get(self._memberships[name], b"c")])
        return None if membership is None else int(flag_of(membership[2], b"c") or 0)

    async def enrol_alone(self, name: str, membership: int) -> bool:
        """Puts this process in the place of all in that membership. Whether that was done: not
        where somebody else has changed it since."""
        alone = meta_set(self._memberships[name], self.id, ttl_s=0, cas=membership)
        (replaced,) = await self.ask(name, [alone])
        return replaced is not None and replaced[0] == STORED

    async def leave(self, name: str) -> None:
        """Takes this process out of the membership, and nobody else, however late the node does
        it."""
        key = self._memberships[name]
        while True:  # others come and go
            (membership,) = await self.ask(name, [meta_get(key, b"v c")])
            ids = _split((membership and membership[1]) or b"")
            if membership is None or self.id not in ids:
                return
            others = b"".join(id for id in ids if id != self.id)
            cas = int(flag_of(membership[2], b"c") or 0)
            if not cas:  # the node compares nothing, see `Roster`
                return
            (done,) = await self.ask(name, [meta_set(key, others, ttl_s=0, cas=cas)])
            if done is None or done[0] != _CHANGED:
                return

    async def hold(self, name: str) -> bool:
        """Says that this process has a node in quarantine; whether that was done."""
        hold = meta_set(self._holds[name], b"", ttl_s=self._hold_ttl_s)
        (held,) = await self.ask(name, [hold])
        return held is not None and held[0] == STORED

    async def remember(self, name: str) -> bool:
        """Sees to it that the node has its memento, and that this process knows it. Not where it
        is another than the one that was known, or the node does not answer."""
        mementos = self.mementos
        _, found = await self.ask(name, [mementos.putting(name), mementos.asking(name)])
        return found is not None and mementos.is_known(name, found[1])

    async def is_known(self, name: str) -> bool:
        """Whether the node is the memory that it was so far."""
        (found,) = await self.ask(name, [self.mementos.asking(name)])
        return found is not None and self.mementos.is_known(name, found[1])

    def recognise_soon(self, name: str) -> None:
        """The same of a node that has just been connected with, before anything else is heard of
        it."""

        def told(replies: list[Reply | None]) -> None:
            if replies[0] is not None:
                self.mementos.connected(name, replies[0][1])

        asking = self._batch(name, [self.mementos.asking(name)])
        self._cluster.submit(asking, told, for_life=True)

    async def ask(self, name: str, requests: list[bytes]) -> list[Reply | None]:
        """The replies of a node, each None where it does not answer."""
        return await self._cluster.ask(self._batch(name, requests), for_life=True)

    def _batch(self, name: str, requests: list[bytes]) -> list[Request]:
        route = self._placement.root_key(name)
        return [(route, request) for request in requests]


def _split(ids: bytes) -> list[bytes]:
    """The ids of one after another."""
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]
