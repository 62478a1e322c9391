"""Watches over the nodes: asks each for a sign of life, and disowns one that was away.

What is on the nodes for that, `node_items` says; whom it asks, and believes, `node_questions`.

A process that starts and finds a node empty waits until any other that the node was away to would
have reached it.

Who lost sight of a node, or has just started, has missed nothing if somebody vouches for the node
after that. Nor has who lost sight of it for so short a time that no stranger can have gone on
without it, or was late itself, if everybody in the membership has answered a question that was put
after that. So a busy host, on which all proxies are late, costs a moment's look. Where somebody
does not answer, as who has died, or the silence was long, the node is disowned.

Where MySQL's log is followed, that tells what was written meanwhile, by whomever. So a node that
would have been disowned is not, once it is *proven* that all has been bumped on it that is in the
log by now (`Prover`). For the same reason a process that starts uses no node before that is proven:
while nobody was at work, nobody has read the log either. Where nobody vouches for the node then, it
is *doubted*: to have no log to prove it by is not enough.

To disown a node is to give that copy a new version: everything that hangs on it is forgotten.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Protocol

from sqlcache.cache.fences import Fences
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.node_items import NodeItems, Survey
from sqlcache.cache.node_questions import NodeQuestions, Word
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.tags import ROOT
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.health import ASKS_PER_OUTAGE, Health
from sqlcache.metrics import Metrics
from sqlcache.tasks import Tasks

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.05
_PATIENCE_S = 10.0  # with a node that lives and refuses, as one without memory does


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


class NodeWatch:
    """The watch of one process over all nodes. Made inside a running event loop."""

    def __init__(
        self,
        cluster: Cluster,
        keyspace: Keyspace,
        fences: Fences,
        placement: TagPlacement,
        metrics: Metrics,
        agrees: Callable[[str], Awaitable[bool]],
    ) -> None:
        """`agrees`: whether a node, as it is to be used from now on, has no answers of another
        server."""
        self._cluster = cluster
        self._fences = fences
        self._metrics = metrics
        self._agrees = agrees
        self._items = NodeItems(cluster, keyspace, placement, self._lost_memory)
        self._questions = NodeQuestions(self._items, fences)
        self._at_work: set[str] = set()
        self._lame: set[str] = set()  # told of
        self._prover: Prover | None = None
        self._proofs: dict[str, tuple[float, Proof]] = {}  # with what they are about
        self._unprovable: set[str] = set()
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._greeted = asyncio.Event()
        for name in cluster.nodes:
            cluster.when_up(name, partial(self._items.recognise_soon, name))
        self._tasks.spawn(self._watch())

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
        if name in self._unprovable:
            return False
        return health.unproven and health.greeted and not health.recovered

    async def close(self, *, clean: bool) -> None:
        """Ends the watch. `clean`: this process owes no bump, and no write of it is under way."""
        await self._tasks.cancel()
        if clean:
            await asyncio.gather(*map(self._items.leave, self._cluster.nodes))

    async def greeted(self) -> None:
        """Returns when it is known of every node what to think of it, or that it is out; or that it
        is not to be known soon, as of one that has no room for what tells it."""
        await self._greeted.wait()

    async def _watch(self) -> None:
        until = self._loop.time() + self._cluster.reach_s + _PATIENCE_S
        while True:
            self._cluster.note_suspends()
            now = self._loop.time()
            for name in self._cluster.nodes:
                health = self._cluster.health_of(name)
                health.asked(now)
                self._tell_of_lameness(name, health)
                if name not in self._at_work:
                    self._at_work.add(name)
                    self._tasks.spawn(self._visit(name, health))
            unknown = list(filter(self._is_unknown, self._cluster.nodes))
            if not unknown or now > until:
                for name in [] if self._greeted.is_set() else unknown:
                    log.warning("memcached node is not used: has it no room at all? node=%s", name)
                self._greeted.set()
            await asyncio.sleep(self._cluster.outage_s / ASKS_PER_OUTAGE)

    def _tell_of_lameness(self, name: str, health: Health) -> None:
        if health.is_lame and name not in self._lame:
            self._lame.add(name)
            log.warning("memcached node takes connections, and answers too late node=%s", name)
        elif name in self._lame and not health.is_lame:
            self._lame.discard(name)

    def _is_unknown(self, name: str) -> bool:
        health = self._cluster.health_of(name)
        return not (health.greeted or health.is_silent)

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
        if not await self._items.is_known(name):
            return
        seen = await self._items.survey(name)
        if seen is not None and seen.empty:
            seen = await self._survey_when_reached(name)
        about = health.distrusted_at
        seen, word = await self._ask_others(name, health, seen)
        if seen is None:
            return
        trusted = word is not Word.NONE and not health.recovered
        # Who does not trust it, and may go on without it, is to be asked by others from now on.
        if not await (self._join(name, seen) if trusted else self._items.enrol(name)):
            return
        if not await self._agrees(name):
            return
        health.doubted = word is Word.TOLD
        if not seen.remembers:
            health.prove(self._loop.time())
        known = health.distrusted_at == about
        health.greet(self._loop.time(), trusted=trusted)
        health.enrolled = known
        if trusted and health.unproven:
            self._tasks.spawn(self._prove(name, health))
        if all(self._cluster.health_of(each).greeted for each in self._cluster.nodes):
            self._greeted.set()

    async def _ask_others(
        self, name: str, health: Health, seen: Survey | None
    ) -> tuple[Survey | None, Word]:
        """What is on the node, and whether others vouch for it, or it remembers nothing that could
        be wrong. What they tell of themselves alone is enough if that is to be proven. Gives them
        the time in which whoever trusts the node looks in on it."""
        about, until = health.distrusted_at, self._loop.time() + health.unnoticed_s
        while seen is not None and not seen.held:
            if not seen.remembers:
                return seen, Word.VOUCHED
            word = await self._questions.word_of_others(name, about, seen)
            if word is Word.VOUCHED or (word is Word.TOLD and self._prover is not None):
                return seen, word
            if not seen.others or health.recovered or self._loop.time() > until:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
            seen = await self._items.survey(name)
        return seen, Word.NONE

    async def _prove(self, name: str, health: Health) -> None:
        """Trusts a node when it is proven that it has missed nothing; or disowns it."""
        assert self._prover is not None
        proof = self._prover.about(name, owed=health.doubted)
        until = self._loop.time() + self._cluster.quarantine_s
        while health.unproven:
            verdict = Verdict.NOT_YET
            try:
                verdict = await proof.verdict()
            except Exception:  # whatever it is, the node is not to stay out for ever
                log.exception("not known whether a memcached node missed anything node=%s", name)
            if health.doubted and verdict in (Verdict.WITHOUT, Verdict.NEVER):
                self._unprovable.add(name)
                # Until then a stranger may be about to tell the node of its writes.
                is_over = self._loop.time() > until
                verdict = Verdict.NEVER if is_over else Verdict.NOT_YET
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
        health.prove(self._loop.time())
        if verdict is Verdict.PROVEN:
            self._metrics.binlog_nodes_kept += 1
            log.info("memcached node has missed nothing, as the log tells node=%s", name)

    async def _survey_when_reached(self, name: str) -> Survey | None:
        """The same once all others could reach the node, which is heard of all the while."""
        until = self._loop.time() + self._cluster.reach_s
        seen: Survey | None = Survey()
        while seen is not None and (left_s := until - self._loop.time()) > 0:
            await asyncio.sleep(min(left_s, self._cluster.outage_s / ASKS_PER_OUTAGE))
            seen = await self._items.survey(name)
        return seen

    async def _bring_back(self, name: str, health: Health) -> None:
        if await self._missed_nothing(name, health):
            health.trust(self._loop.time())
            if health.unproven:
                self._tasks.spawn(self._prove(name, health))
            log.warning("lost sight of a memcached node and missed nothing node=%s", name)
            return
        about = health.distrusted_at
        if not await self._items.hold(name) or self._loop.time() < health.trusted_from:
            return
        verdict = await self._verdict_after(name, health)
        if verdict is Verdict.NOT_YET:
            return
        proven = verdict is Verdict.PROVEN
        if not await self._begin_anew(name, remembers=proven) or health.distrusted_at != about:
            return
        health.trust(self._loop.time())
        self._found(name, health, verdict)
        if not proven:
            self._metrics.node_outages += 1
            log.warning("memcached node was away and is disowned node=%s", name)

    async def _begin_anew(self, name: str, *, remembers: bool) -> bool:
        """Takes up the watch over a node to which nothing is owed any more, once it is disowned
        unless it `remembers` rightly. The living enrol again. Whether that was done."""
        membership = await self._items.membership(name)
        if membership is None or not (remembers or await self._disown(name)):
            return False
        if not await self._items.remember(name):
            return False
        return await self._items.enrol_alone(name, membership)

    async def _disown(self, name: str) -> bool:
        return await self._fences.renew_version(ROOT.on(name))

    async def _verdict_after(self, name: str, health: Health) -> Verdict:
        """Whether a node whose quarantine is over has missed nothing, as the log tells."""
        if self._prover is None or health.forgot:
            return Verdict.WITHOUT
        seen = await self._items.survey(name)
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
        seen = await self._items.survey(name)
        if seen is None or health.forgot or not seen.remembers:
            return False
        word = await self._questions.word_of_others(name, distrusted_at, seen)
        strangers = word is Word.TOLD and health.may_have_strangers(self._loop.time())
        if word is Word.NONE or strangers:
            return False
        return await self._join(name, seen) and health.distrusted_at == distrusted_at

    async def _join(self, name: str, seen: Survey) -> bool:
        """Takes up the watch over a node; gives a new version first to what it does not remember.

        Whether that was done.
        """
        if not (seen.remembers or await self._disown(name)):
            return False
        if not await self._items.remember(name):
            return False
        return await self._items.enrol(name, anew=not seen.remembers)

    async def _look_in(self, name: str, health: Health) -> None:
        """Answers what is asked, and notices where the node has lost its memory.

        Whose place in the membership is taken does not answer: it may have lost fences as well. Who
        does not trust the node yet is to be asked, too.
        """
        about = health.distrusted_at
        seen = await self._items.look(name)
        if seen is None:
            return
        if health.distrusted_at == about:
            health.enrolled = seen.is_enrolled
        is_known = self._items.mementos.is_known(name, seen.memento)
        if not seen.is_enrolled:
            if seen.memento is None:
                self._items.mementos.lose(name)
            await self._items.enrol(name)
            return
        if not is_known:
            return
        if seen.memento is None and health.watches(self._loop.time()):
            await self._items.remember(name)  # it was evicted
        if not health.forgot:
            await self._questions.answer(name, health, seen.asked)

    def _lost_memory(self, name: str) -> None:
        health = self._cluster.health_of(name)
        if not health.forgot:
            log.warning("memcached node lost its memory, or it is another one node=%s", name)
        health.distrust(self._loop.time(), forgot=True)
