"""Watches over the nodes: asks each for a sign of life, and disowns one that was away.

On every node there are, beside its copy of the root's tag, some small items:

- its *memento*, which is there for as long as the node has its memory. Who finds neither that nor
  itself in the membership knows that the node was restarted.
- the *membership*, the ids of the proxies at work. One that ends with nothing left to do takes its
  id out: without an id there is nobody who could have written and not told. Where there is none
  beside a copy of the root, as of a node that gave it up for want of room, nobody knows who is at
  work: it stands for somebody who answers no question, and so does the one that is made anew.
- a *roll*, of questions whether anybody has gone on without the node and not told it of it yet.
  Each proxy that has not answers each question, with its id; and one that has never lost sight of
  the node *vouches* for it.
- a *hold*, while a proxy has the node in quarantine: one that starts meanwhile joins in.

A process that starts and finds a node empty waits until any other that the node was away to would
have reached it.

Who lost sight of a node, or has just started, has missed nothing if somebody vouches for the node,
or everybody in the membership has answered, to a question that was put after that. So a busy host,
on which all proxies are late, costs a moment's look. Whoever reads a question has heard of the node
after it was put, and who put it watches the node from then on: so it counts for nothing when the
node carries out what waited in its sockets while it was frozen, and no clock decides. Where
somebody does not answer, as who has died, the node is disowned.

Where MySQL's log is followed, that tells what was written meanwhile, by whomever. So a node that
would have been disowned is not, once it is *proven* that all has been bumped on it that is in the
log by now (`Prover`). For the same reason a process that starts uses no node before that is proven:
while nobody was at work, nobody has read the log either.

To disown a node is to give that copy a new version: everything that hangs on it is forgotten.
"""

import asyncio
import logging
import math
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.cache.tags import ID_BYTES, ROOT
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.health import ASKS_PER_OUTAGE, Health
from sqlcache.memcache.protocol import (
    STORED,
    Reply,
    flag_of,
    meta_append,
    meta_delete,
    meta_get,
    meta_set,
)
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

_CHANGED = b"EX"
_ROLL_TTL_S = 30
_LOOK_AGAIN_S = 0.05
_PATIENCE_S = 10.0  # with a node that lives and refuses, as one without memory does
_VOUCHED = bytes(ID_BYTES)  # among the ids of those who answer
_SOMEBODY = b"\xff" * ID_BYTES  # among those of the membership: who else is at work is not known


class Verdict(Enum):
    """What is known of what a node remembers."""

    PROVEN = "it has missed nothing"
    NOT_YET = "it may be proven soon"
    NEVER = "it will not be proven"
    WITHOUT = "there is no log to prove it by"


class Proof(Protocol):
    """That a node has missed nothing of what was written before it was asked for."""

    async def verdict(self) -> Verdict:
        """What is known by now; to be asked again where that is `NOT_YET`."""


class Prover(Protocol):
    """What proves that nodes have missed nothing."""

    def about(self, node: str, *, owed: bool) -> Proof:
        """A proof that begins now. `owed`: somebody may have written and not told the node."""

    async def note_unlogged(self) -> None:
        """A client is about to write what is not in the log: of what is owed it proves nothing."""


@dataclass(frozen=True, slots=True)
class _Survey:
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


class _Question:
    """Whether anybody owes a node a bump; put since this process lost sight of it at a time, or
    began.

    `known` are all that the membership has named since.
    """

    __slots__ = ("about", "id", "known")

    def __init__(self, about: float) -> None:
        self.about = about
        self.id = fresh_id()
        self.known: frozenset[bytes] = frozenset()


class NodeWatch:
    """The watch of one process over all nodes. Made inside a running event loop."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        fences: Fences,
        placement: TagPlacement,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._fences = fences
        self._placement = placement
        self._metrics = metrics
        self._hold_ttl_s = math.ceil(cluster.quarantine_s) + 1
        roots = {name: placement.root_key(name) for name in cluster.nodes}
        self._mementos = {name: keyspace.memento(key) for name, key in roots.items()}
        self._holds = {name: keyspace.hold(key) for name, key in roots.items()}
        self._memberships = {name: keyspace.membership(key) for name, key in roots.items()}
        self._rolls = {name: keyspace.roll(key) for name, key in roots.items()}
        self._keyspace = keyspace
        self._questions: dict[str, _Question] = {}
        self._answered: dict[str, dict[bytes, set[bytes]]] = {}  # questions, and with what
        self._id = fresh_id()
        self._at_work: set[str] = set()
        self._prover: Prover | None = None
        self._proofs: dict[str, tuple[float, Proof]] = {}  # with what they are about
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._greeted = asyncio.Event()
        self._spawn(self._watch())

    def prove_by(self, prover: Prover) -> None:
        """No node is trusted from the start before it is proven that it has missed nothing."""
        self._prover = prover
        for name in self._cluster.nodes:
            self._cluster.health_of(name).unproven = True

    async def note_unlogged(self) -> None:
        """See `Prover.note_unlogged`."""
        if self._prover is not None:
            await self._prover.note_unlogged()

    async def proven(self, within_s: float) -> None:
        """Returns when no node that can be trusted is to be proven still, or after this time."""
        until = self._loop.time() + within_s
        while any(self._is_to_be_proven(name) for name in self._cluster.nodes):
            if self._loop.time() > until:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _is_to_be_proven(self, name: str) -> bool:
        health = self._cluster.health_of(name)
        return health.unproven and health.greeted and not health.recovered

    async def close(self, *, clean: bool) -> None:
        """Ends the watch. `clean`: this process owes no bump, and no write of it is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if clean:
            await asyncio.gather(*map(self._leave, self._cluster.nodes))

    async def greeted(self) -> None:
        """Returns when it is known of every node what to think of it, or that it is out; or that it
        is not to be known soon, as of one that has no room for what tells it."""
        await self._greeted.wait()

    async def _watch(self) -> None:
        until = self._loop.time() + self._cluster.reach_s + _PATIENCE_S
        while True:
            now = self._loop.time()
            for name in self._cluster.nodes:
                health = self._cluster.health_of(name)
                health.asked(now)
                if name not in self._at_work:
                    self._at_work.add(name)
                    self._spawn(self._visit(name, health))
            unknown = list(filter(self._is_unknown, self._cluster.nodes))
            if not unknown or now > until:
                for name in [] if self._greeted.is_set() else unknown:
                    log.warning("memcached node is not used: has it no room at all? node=%s", name)
                self._greeted.set()
            await asyncio.sleep(self._cluster.outage_s / ASKS_PER_OUTAGE)

    def _is_unknown(self, name: str) -> bool:
        health = self._cluster.health_of(name)
        return not (health.greeted or health.is_out)

    async def _visit(self, name: str, health: Health) -> None:
        try:
            if not health.greeted:
                await self._greet(name, health)
                return
            await self._look_in(name, health)
            if health.recovered:
                await self._bring_back(name, health)
        finally:
            self._at_work.discard(name)

    async def _greet(self, name: str, health: Health) -> None:
        await self._cluster.nodes[name].wait_connected()
        seen = await self._survey(name)
        if seen is not None and seen.empty:
            seen = await self._survey_when_reached(name)
        seen, missed_nothing = await self._ask_others(name, health, seen)
        if seen is None:
            return
        trusted = missed_nothing and not health.recovered
        # Who does not trust it, and may go on without it, is to be asked by others from now on.
        if not await (self._join(name, seen) if trusted else self._enrol(name)):
            return
        health.unproven &= seen.remembers  # else there is nothing to prove
        health.greet(self._loop.time(), trusted=trusted)
        if trusted and health.unproven:
            self._spawn(self._prove(name, health))
        if all(self._cluster.health_of(each).greeted for each in self._cluster.nodes):
            self._greeted.set()

    async def _ask_others(
        self, name: str, health: Health, seen: _Survey | None
    ) -> tuple[_Survey | None, bool]:
        """What is on the node, and whether nobody can have gone on without it before this process
        began. Gives the others the time in which whoever trusts the node looks in on it."""
        about, until = health.distrusted_at, self._loop.time() + health.unnoticed_s
        while seen is not None and not seen.held:
            if not (seen.others and seen.remembers):
                return seen, True
            if await self._others_tell(name, about, seen):
                return seen, True
            if health.recovered or self._loop.time() > until:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
            seen = await self._survey(name)
        return seen, False

    async def _prove(self, name: str, health: Health) -> None:
        """Trusts a node when it is proven that it has missed nothing; or disowns it."""
        assert self._prover is not None
        proof = self._prover.about(name, owed=False)
        while health.unproven:
            verdict = Verdict.NOT_YET
            try:
                verdict = await proof.verdict()
            except Exception:  # whatever it is, the node is not to stay out for ever
                log.exception("not known whether a memcached node missed anything node=%s", name)
            decided = verdict is not Verdict.NOT_YET
            if decided and (verdict is not Verdict.NEVER or await self._disown_unproven(name)):
                self._found(name, health, verdict)
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _disown_unproven(self, name: str) -> bool:
        disowned = await self._disown(name)
        if disowned:
            self._metrics.binlog_nodes_disowned += 1
            log.warning("disowned: the log does not tell in time what it missed node=%s", name)
        return disowned

    def _found(self, name: str, health: Health, verdict: Verdict) -> None:
        health.unproven = False
        if verdict is Verdict.PROVEN:
            self._metrics.binlog_nodes_kept += 1
            log.info("memcached node has missed nothing, as the log tells node=%s", name)

    async def _survey_when_reached(self, name: str) -> _Survey | None:
        """The same once all others could reach the node, which is heard of all the while."""
        until = self._loop.time() + self._cluster.reach_s
        seen: _Survey | None = _Survey()
        while seen is not None and (left_s := until - self._loop.time()) > 0:
            await asyncio.sleep(min(left_s, self._cluster.outage_s / ASKS_PER_OUTAGE))
            seen = await self._survey(name)
        return seen

    async def _survey(self, name: str) -> _Survey | None:
        """What is on the node for the watch; None if it does not answer."""
        root_key = self._placement.root_key(name)
        keys = self._memberships[name], self._holds[name], root_key
        membership, hold, root = await self._ask(name, list(map(meta_get, keys)))
        if membership is None or hold is None or root is None:
            return None
        remembers = root[1] is not None
        lost = _SOMEBODY if remembers else b""
        others = frozenset(_split(lost if membership[1] is None else membership[1])) - {self._id}
        return _Survey(others, held=hold[1] is not None, remembers=remembers)

    async def _bring_back(self, name: str, health: Health) -> None:
        if await self._missed_nothing(name, health):
            health.trust()
            if health.unproven:
                self._spawn(self._prove(name, health))
            log.warning("lost sight of a memcached node and missed nothing node=%s", name)
            return
        hold = meta_set(self._holds[name], b"", ttl_s=self._hold_ttl_s)
        (held,) = await self._ask(name, [hold])
        if held is None or held[0] != STORED or self._loop.time() < health.trusted_from:
            return
        verdict = await self._verdict_after(name, health)
        if verdict is Verdict.NOT_YET:
            return
        proven = verdict is Verdict.PROVEN
        if not await self._begin_anew(name, remembers=proven):
            return
        health.trust()
        self._found(name, health, verdict)
        if not proven:
            self._metrics.node_outages += 1
            log.warning("memcached node was away and is disowned node=%s", name)

    async def _begin_anew(self, name: str, *, remembers: bool) -> bool:
        """Takes up the watch over a node to which nothing is owed any more, once it is disowned
        unless it `remembers` rightly. The living enrol again. Whether that was done."""
        key = self._memberships[name]
        (membership,) = await self._ask(name, [meta_get(key, b"c")])
        if membership is None or not (remembers or await self._disown(name)):
            return False
        cas = int(flag_of(membership[2], b"c") or 0)
        alone = meta_set(key, self._id, ttl_s=0, cas=cas)
        _, replaced = await self._ask(name, [self._memento(name), alone])
        return replaced is not None and replaced[0] == STORED

    async def _disown(self, name: str) -> bool:
        return await self._fences.renew_version(ROOT.on(name))

    async def _verdict_after(self, name: str, health: Health) -> Verdict:
        """Whether a node whose quarantine is over has missed nothing, as the log tells."""
        if self._prover is None or health.forgot:
            return Verdict.WITHOUT
        seen = await self._survey(name)
        if seen is None or not seen.remembers:
            return Verdict.NOT_YET if seen is None else Verdict.WITHOUT
        about, proof = self._proofs.get(name, (None, None))
        if proof is None or about != health.distrusted_at:
            proof = self._prover.about(name, owed=True)
            self._proofs[name] = health.distrusted_at, proof
        return await proof.verdict()

    async def _missed_nothing(self, name: str, health: Health) -> bool:
        """Whether it was only this process that heard nothing, and takes up the watch again."""
        distrusted_at = health.distrusted_at
        seen = await self._survey(name)
        if seen is None or health.forgot or not seen.remembers:
            return False
        if not await self._others_tell(name, distrusted_at, seen):
            return False
        return await self._join(name, seen) and health.distrusted_at == distrusted_at

    async def _join(self, name: str, seen: _Survey) -> bool:
        """Takes up the watch over a node; gives a new version first to what it does not remember.

        Whether that was done.
        """
        if not (seen.remembers or await self._disown(name)):
            return False
        return await self._enrol(name, self._memento(name), anew=not seen.remembers)

    async def _others_tell(self, name: str, about: float, seen: _Survey) -> bool:
        """Whether one who has never lost sight of the node says so; or all who may have gone on
        without it since then say that they have not, or have told it since.

        Asks them, if that was not done. This process owes it nothing either.
        """
        question = self._questions.get(name)
        if question is None or question.about != about:
            question = self._questions[name] = _Question(about)
        question.known |= seen.others
        if not question.known:
            return not self._fences.owes(name)
        keys = self._rolls[name], self._answers(name, question.id)
        roll, answers = await self._ask(name, list(map(meta_get, keys)))
        if roll is None or answers is None:
            return False
        if question.id not in _split(roll[1] or b""):
            await self._append(name, self._rolls[name], question.id)
            return False
        said = frozenset(_split(answers[1] or b""))
        vouched = _VOUCHED in said or question.known <= said
        return vouched and not self._fences.owes(name)

    async def _look_in(self, name: str, health: Health) -> None:
        """Answers what is asked, and notices where the node has lost its memory.

        Whose place in the membership is taken does not answer: it may have lost fences as well. Who
        does not trust the node yet is to be asked, too.
        """
        keys = self._rolls[name], self._memberships[name], self._mementos[name]
        roll, membership, memento = await self._ask(name, list(map(meta_get, keys)))
        if roll is None or membership is None or memento is None:
            return
        if self._id not in _split(membership[1] or b""):
            if memento[1] is None:
                self._lost_memory(name, health)
            await self._enrol(name)
            return
        if memento[1] is None and health.watches(self._loop.time()):
            await self._ask(name, [self._memento(name)])  # it was evicted
        if not health.forgot:
            await self._answer(name, health, frozenset(_split(roll[1] or b"")))

    async def _answer(self, name: str, health: Health, asked: frozenset[bytes]) -> None:
        """Says that this process owes the node nothing, and has not lost sight of it, where that is
        so."""
        before = self._answered.get(name, {})
        self._answered[name] = answered = {each: before.get(each, set()) for each in asked}
        for question, said in answered.items():
            says = self._says(health)
            more = b"".join(sorted(says - said))
            if more and not self._fences.owes(name):
                key = self._answers(name, question)
                said |= says if await self._append(name, key, more) else set()

    def _says(self, health: Health) -> set[bytes]:
        """What one who owes a node nothing answers."""
        return {self._id, _VOUCHED} if health.watches(self._loop.time()) else {self._id}

    def _lost_memory(self, name: str, health: Health) -> None:
        log.warning("memcached node lost its memory node=%s", name)
        health.distrust(self._loop.time(), forgot=True)

    def _answers(self, name: str, question: bytes) -> bytes:
        return self._keyspace.answers(self._placement.root_key(name), question)

    async def _append(self, name: str, key: bytes, ids: bytes) -> bool:
        """Adds ids to a list that is kept for a while; whether that was done."""
        _, added = await self._ask(name, meta_append(key, ids, ttl_s=_ROLL_TTL_S))
        return added is not None and added[0] == STORED

    async def _enrol(self, name: str, *first: bytes, anew: bool = False) -> bool:
        """Adds this process to the membership, behind what is to be asked `first`. `anew`: nobody
        was in one before. Whether the node answered.

        A membership that the node has no room to make longer is taken away: others would go by it.
        """
        key = self._memberships[name]
        joins = meta_append(key, self._id, begins=b"" if anew else _SOMEBODY)
        *_, joined = replies = await self._ask(name, [*first, *joins])
        if joined is not None and joined[0] != STORED:
            replies = await self._ask(name, [meta_delete(key)])
        return None not in replies

    async def _leave(self, name: str) -> None:
        """Takes this process out of the membership, and nobody else, however late the node does
        it."""
        key = self._memberships[name]
        while True:  # others come and go
            (membership,) = await self._ask(name, [meta_get(key, b"v c")])
            ids = _split((membership and membership[1]) or b"")
            if membership is None or self._id not in ids:
                return
            others = b"".join(id for id in ids if id != self._id)
            cas = int(flag_of(membership[2], b"c") or 0)
            (done,) = await self._ask(name, [meta_set(key, others, ttl_s=0, cas=cas)])
            if done is None or done[0] != _CHANGED:
                return

    def _memento(self, name: str) -> bytes:
        return meta_set(self._mementos[name], b"", ttl_s=0)

    async def _ask(self, name: str, requests: list[bytes]) -> list[Reply | None]:
        route = self._placement.root_key(name)
        batch: list[Request] = [(route, request) for request in requests]
        return await self._cluster.ask(batch)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _split(ids: bytes) -> list[bytes]:
    """The ids of one after another."""
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]
