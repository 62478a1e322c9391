"""Watches over the nodes: asks each for a sign of life, and disowns one that was away.

On every node there are, beside its copy of the root's tag, some small items:

- its *heartbeat*, with a TTL shorter than an outage, which every proxy that trusts the node extends
  with each question. Where it is gone, the node has lost its memory, or no proxy could reach it
  for a while. A heartbeat that has lapsed is never extended, so what a frozen node finds in its
  sockets when it thaws does not revive it; but who has never lost sight of the node, and finds
  itself in the membership still, was only late to extend it, and revives it.
- the *membership*, the ids of the proxies at work. One that ends with nothing left to do takes its
  id out: without a heartbeat and without an id there is nobody who could have written and not told.
- a *roll*, of questions whether anybody has gone on without the node and not told it of it yet.
  Each proxy that has not answers each question once, with its id.
- a *hold*, while a proxy has the node in quarantine: one that starts meanwhile joins in.

A process that starts and finds a node empty waits until any other that the node was away to would
have reached it.

Who lost sight of a node has missed nothing if others have kept up its heartbeat, or if everybody in
the membership has answered a question that was put after that. So a busy host, on which all proxies
are late, costs a moment's look. Whoever reads a question has heard of the node after it was put: an
answer, other than a heartbeat, cannot have waited in a frozen node's sockets. Where somebody does
not answer, as who has died, the node is disowned.

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
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.cache.tags import ID_BYTES, ROOT
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.health import ASKS_PER_OUTAGE, Health
from sqlcache.memcache.protocol import Reply, flag_of, meta_append, meta_delete, meta_get, meta_set
from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

_HIT = b"HD"
_LEAST_TTL_S = 2  # memcached counts whole seconds: with 1, an item may be gone at once
_BEATING, _REVIVED = b"!", b"?"
_ROLL_TTL_S = 30
_LOOK_AGAIN_S = 0.05
_CLOCK_CATCHES_UP_S = 1.5  # a node that was stopped may go by its old time for a second


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

    watched: bool = False
    """Its heartbeat is there."""
    others: bool = False
    """Its membership names others."""
    held: bool = False
    """There is a hold."""
    remembers: bool = False
    """It has its copy of the root."""
    membership: frozenset[bytes] = frozenset()
    """The others in its membership."""

    @property
    def empty(self) -> bool:
        """Nobody uses it, or nobody has noticed yet that it is back."""
        return not (self.watched or self.others or self.held or self.remembers)


class _Question:
    """Whether anybody owes a node a bump; put since this process lost sight of it at a time.

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
        self._heartbeat_ttl_s = max(_LEAST_TTL_S, math.floor(cluster.outage_s * 2 / 3))
        self._hold_ttl_s = math.ceil(cluster.quarantine_s) + 1
        roots = {name: placement.root_key(name) for name in cluster.nodes}
        self._heartbeats = {name: keyspace.heartbeat(key) for name, key in roots.items()}
        self._holds = {name: keyspace.hold(key) for name, key in roots.items()}
        self._memberships = {name: keyspace.membership(key) for name, key in roots.items()}
        self._rolls = {name: keyspace.roll(key) for name, key in roots.items()}
        self._keyspace = keyspace
        self._questions: dict[str, _Question] = {}
        self._enrolled: set[str] = set()
        self._roll_seen: dict[str, frozenset[bytes]] = {}
        self._answered: dict[str, frozenset[bytes]] = {}
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
        """Returns when it is known of every node what to think of it, or that it is out."""
        await self._greeted.wait()

    async def _watch(self) -> None:
        while True:
            now = self._loop.time()
            for name in self._cluster.nodes:
                health = self._cluster.health_of(name)
                health.asked(now)
                if name not in self._at_work:
                    self._at_work.add(name)
                    self._spawn(self._visit(name, health))
            healths = map(self._cluster.health_of, self._cluster.nodes)
            if all(health.greeted or health.is_out for health in healths):
                self._greeted.set()
            await asyncio.sleep(self._cluster.outage_s / ASKS_PER_OUTAGE)

    async def _visit(self, name: str, health: Health) -> None:
        try:
            if not health.greeted:
                await self._greet(name, health)
            elif health.recovered:
                await self._answer_roll(name, health)
                await self._bring_back(name, health)
            else:
                await self._extend_heartbeat(name, health)
                await self._answer_roll(name, health)
        finally:
            self._at_work.discard(name)

    async def _greet(self, name: str, health: Health) -> None:
        await self._cluster.nodes[name].wait_connected()
        seen = await self._survey(name)
        if seen is not None and seen.empty:
            seen = await self._survey_when_reached(name)
        if seen is None:
            return
        owed = seen.others and seen.remembers and not seen.watched
        trusted = not owed and not seen.held and not health.recovered
        # Who does not trust it, and may go on without it, is to be asked by others from now on.
        if not await (self._join(name, seen) if trusted else self._enrol(name)):
            return
        health.unproven &= seen.remembers  # else there is nothing to prove
        health.greet(self._loop.time(), trusted=trusted)
        if trusted and health.unproven:
            self._spawn(self._prove(name, health))
        if all(self._cluster.health_of(each).greeted for each in self._cluster.nodes):
            self._greeted.set()

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
        disowned = await self._fences.renew_version(ROOT.on(name))
        if disowned:
            self._metrics.binlog_nodes_disowned += 1
            log.warning("disowned: the log does not tell in time what it missed node=%s", name)
        return disowned

    def _found(self, name: str, health: Health, verdict: Verdict) -> None:
        health.unproven = False
        if verdict is Verdict.PROVEN:
            self._metrics.binlog_nodes_kept += 1
            log.info("memcached node has missed nothing, as the log tells node=%s", name)

    async def _survey_when_reached(self, name: str) -> "_Survey | None":
        """The same once all others could reach the node, which is heard of all the while."""
        until = self._loop.time() + self._cluster.reach_s
        seen: _Survey | None = _Survey()
        while seen is not None and (left_s := until - self._loop.time()) > 0:
            await asyncio.sleep(min(left_s, self._cluster.outage_s / ASKS_PER_OUTAGE))
            seen = await self._survey(name)
        return seen

    async def _survey(self, name: str) -> "_Survey | None":
        """What is on the node for the watch; None if it does not answer."""
        heartbeat, membership, hold, root = await self._ask(
            name,
            [
                meta_get(self._heartbeats[name]),
                meta_get(self._memberships[name]),
                meta_get(self._holds[name]),
                meta_get(self._placement.root_key(name)),
            ],
        )
        if heartbeat is None or membership is None or hold is None or root is None:
            return None
        others = frozenset(_split(membership[1] or b"")) - {self._id}
        return _Survey(
            watched=heartbeat[1] == _BEATING,
            others=bool(others),
            held=hold[1] is not None,
            remembers=root[1] is not None,
            membership=others,
        )

    async def _extend_heartbeat(self, name: str, health: Health) -> None:
        heartbeat, membership = await self._ask(
            name, [self._touch(name), meta_get(self._memberships[name])]
        )
        if heartbeat is None or membership is None or health.recovered:
            return
        enrolled = self._id in _split(membership[1] or b"")
        if heartbeat[1] == _BEATING and not enrolled:
            await self._enrol(name)
        elif heartbeat[1] != _BEATING and enrolled and health.watches(self._loop.time()):
            await self._revive_heartbeat(name, heartbeat)
        elif heartbeat[1] != _BEATING:
            self._lost_memory(name, health)

    async def _revive_heartbeat(self, name: str, heartbeat: Reply) -> None:
        """In two steps, of which the second is refused where the first has lapsed: so neither
        revives it if it lies in the sockets of a node that is frozen meanwhile."""
        again = meta_set(self._heartbeats[name], _REVIVED, mode=b"E", ttl_s=self._heartbeat_ttl_s)
        if heartbeat[1] is not None:
            cas = int(flag_of(heartbeat[2], b"c") or 0)
            again = meta_set(self._heartbeats[name], _BEATING, ttl_s=self._heartbeat_ttl_s, cas=cas)
        await self._ask(name, [again])

    async def _bring_back(self, name: str, health: Health) -> None:
        if await self._missed_nothing(name, health):
            health.trust()
            if health.unproven:
                self._spawn(self._prove(name, health))
            log.warning("lost sight of a memcached node and missed nothing node=%s", name)
            return
        hold = meta_set(self._holds[name], b"", ttl_s=self._hold_ttl_s)
        (held,) = await self._ask(name, [hold])
        if held is None or self._loop.time() < health.trusted_from:
            return
        verdict = await self._verdict_after(name, health)
        if verdict is Verdict.NOT_YET:
            return
        proven = verdict is Verdict.PROVEN
        await self._ask(name, [meta_delete(self._memberships[name])])  # the living enrol again
        if not await self._join(name, _Survey(remembers=proven)):
            return
        health.trust()
        self._found(name, health, verdict)
        if not proven:
            self._metrics.node_outages += 1
            log.warning("memcached node was away and is disowned node=%s", name)

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
        """Whether it was only this process that heard nothing, and takes up the watch again.

        That is so where others have never lost sight of the node, or all others say that they have
        not gone on without it.
        """
        distrusted_at = health.distrusted_at
        seen = await self._survey(name)
        if seen is None or health.forgot or not seen.remembers:
            return False
        if self._loop.time() < distrusted_at + _CLOCK_CATCHES_UP_S:
            seen = replace(seen, watched=False)
        if not seen.watched and not await self._nobody_owes(name, distrusted_at, seen):
            return False
        return await self._join(name, seen) and health.distrusted_at == distrusted_at

    async def _join(self, name: str, seen: "_Survey") -> bool:
        """Takes up the watch over a node; gives a new version first to what it does not remember.

        Whether that was done.
        """
        if not seen.remembers and not await self._fences.renew_version(ROOT.on(name)):
            return False
        heartbeat = meta_set(self._heartbeats[name], _BEATING, ttl_s=self._heartbeat_ttl_s)
        # The heartbeat first: who sees an id and no heartbeat takes it for that of a dead process.
        return await self._enrol(name, *([] if seen.watched else [heartbeat]))

    async def _nobody_owes(self, name: str, about: float, seen: "_Survey") -> bool:
        """Whether all who may have gone on without the node since then have said that they have
        not, or have told it since. Asks them, if that was not done."""
        question = self._questions.get(name)
        if question is None or question.about != about:
            question = self._questions[name] = _Question(about)
        question.known |= seen.membership
        if not question.known:
            return not self._fences.owes(name)
        if question.id not in self._roll_seen.get(name, ()):
            await self._append(name, self._rolls[name], question.id)
            return False
        (answers,) = await self._ask(name, [meta_get(self._answers(name, question.id))])
        said = frozenset(_split((answers and answers[1]) or b""))
        return question.known <= said and not self._fences.owes(name)

    async def _answer_roll(self, name: str, health: Health) -> None:
        """Says that this process owes the node nothing, where that is asked and so.

        Nor does one answer from whom the node has taken its place in the membership: it may have
        lost fences as well. Who does not trust the node yet is to be asked, too.
        """
        keys = self._rolls[name], self._memberships[name], self._heartbeats[name]
        roll, membership, heartbeat = await self._ask(name, list(map(meta_get, keys)))
        if roll is None or membership is None or heartbeat is None:
            return
        self._roll_seen[name] = asked = frozenset(_split(roll[1] or b""))
        if self._id not in _split(membership[1] or b""):
            if name in self._enrolled and heartbeat[1] != _BEATING:
                self._lost_memory(name, health)
            await self._enrol(name)
        elif not health.forgot:
            await self._answer(name, asked)

    async def _answer(self, name: str, asked: frozenset[bytes]) -> None:
        answered = self._answered.get(name, frozenset()) & asked
        for question in asked - answered:
            if not self._fences.owes(name):
                told = await self._append(name, self._answers(name, question), self._id)
                answered |= {question} if told else set()
        self._answered[name] = answered

    def _lost_memory(self, name: str, health: Health) -> None:
        log.warning("memcached node lost its memory node=%s", name)
        health.distrust(self._loop.time(), forgot=True)

    def _answers(self, name: str, question: bytes) -> bytes:
        return self._keyspace.answers(self._placement.root_key(name), question)

    async def _append(self, name: str, key: bytes, id: bytes) -> bool:
        """Adds an id to a list that is kept for a while; whether that was done."""
        _, added = await self._ask(name, meta_append(key, id, ttl_s=_ROLL_TTL_S))
        return added is not None and added[0] == _HIT

    async def _enrol(self, name: str, *first: bytes) -> bool:
        """Adds this process to the membership, behind what is to be asked `first`. Whether all that
        was done."""
        replies = await self._ask(name, [*first, *meta_append(self._memberships[name], self._id)])
        self._enrolled.add(name)
        return None not in replies

    async def _leave(self, name: str) -> None:
        """Takes this process out of the membership; who is taken out with it by chance enrols
        again."""
        (membership,) = await self._ask(name, [meta_get(self._memberships[name])])
        if membership is not None and membership[1]:
            left = b"".join(id for id in _split(membership[1]) if id != self._id)
            await self._ask(name, [meta_set(self._memberships[name], left, ttl_s=0)])

    def _touch(self, name: str) -> bytes:
        return meta_get(self._heartbeats[name], b"v c T%d" % self._heartbeat_ttl_s)

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
