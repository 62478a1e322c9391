"""Whether what hangs on tags is current: asks for their logs, and judges what these say.

Who asks hears under which versions an entry is current, or why none can be; and where nobody has
written for a while, a window is opened, see `windows`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from sqlcache.cache.log_records import TagState
from sqlcache.cache.outcomes import (
    DISTRUSTED,
    FAILED,
    FENCED,
    OUTDATED,
    UNREACHABLE,
    UNREPORTED,
    Outcome,
    Unversioned,
)
from sqlcache.cache.reads import Seen, TagSet
from sqlcache.cache.slots import BUCKET_TTL_S, GivenVersions
from sqlcache.cache.tag_logs import state_of
from sqlcache.cache.tags import ID_BYTES, Tag
from sqlcache.cache.windows import Windows
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.health import Health
from sqlcache.memcache.protocol import Reply, flag_of

log = logging.getLogger(__name__)

COARSE_S = 2.0
"""What a clock that counts in seconds may be wrong by."""
LONGEST_AGE_S = 600.0
"""For how long a node's clock is relied on: it drifts."""

Judged = bytes | Outcome
"""The versions an entry must have to be current, or why none can be."""


class TagChecks:
    """Those of one process.

    `owes_bump` tells of tags whose value in memcached is behind: a bump of them could not be made
    yet. `on_fenced` is told of fences seen, for those that have lapsed. `given` are the versions
    that this process has given to buckets.
    """

    def __init__(
        self,
        cluster: Cluster,
        windows: Windows,
        owes_bump: Callable[[TagSet], bool],
        on_fenced: Callable[[Tag, TagState], None],
        given: GivenVersions,
    ) -> None:
        self._cluster = cluster
        self._windows = windows
        self._owes_bump = owes_bump
        self._on_fenced = on_fenced
        self._given = given
        self.definitions: Mapping[Tag, bytes | None] | None = None
        """The versions of the schemas' and the root's tags under which reads were planned; None
        while plans do not depend on any."""
        self._loop = asyncio.get_running_loop()
        self._clock = windows.clock
        self._kept_open = windows.kept_open
        self._promises = windows.promises

    def confirm(self, definitions: TagSet, done: Callable[[bool], None]) -> None:
        """Tells whether these are those that reads are planned by, and nobody is about to change
        them: at once where that is known. None are, before any were read."""
        if self.definitions is None:
            done(False)
            return
        if self.knows(definitions):
            done(True)
            return
        self._ask({definitions}, lambda judged: done(isinstance(judged[definitions], bytes)))
        if along := self._kept_open.along() - {definitions}:
            self.ask(along)

    def knows(self, definitions: TagSet) -> bool:
        """Whether `confirm` would say at once that they are."""
        if self.definitions is None or self._clock() >= definitions.window:
            return False
        definitions.uses += 1
        return True

    def ask(self, tag_sets: Iterable[TagSet]) -> None:
        """Looks whether these are current still."""
        self._ask(list(tag_sets), None)

    def _ask(
        self,
        tag_sets: Collection[TagSet],
        done: Callable[[Mapping[TagSet, Judged]], None] | None,
    ) -> None:
        """`done`: is told what was found, by who uses it."""
        sent_at, now = self._windows.clock(), self._loop.time()
        places: dict[bytes, int] = {}
        requests: list[Request] = []
        gather(tag_sets, places, requests)

        def answered(replies: list[Reply | None]) -> None:
            judged = self.judge_all(tag_sets, places, replies, now)
            for tag_set, versions in judged.items():
                self.open_window(tag_set, versions, sent_at, used=done is not None)
            if done is not None:
                done(judged)

        self._cluster.submit(requests, answered)

    def open_window(self, tag_set: TagSet, versions: Judged, sent_at: float, *, used: bool) -> None:
        """`used`: a read has asked, and not only who keeps windows open."""
        seen = tag_set.seen
        if isinstance(versions, bytes) and seen is not None and seen.whole is not None:
            table = tag_set.base or tag_set
            self._windows.saw(table, sent_at, seen.unpromised)
            if used:
                self._kept_open.used(table, seen.unpromised)

    def judge_all(
        self,
        tag_sets: Iterable[TagSet],
        places: dict[bytes, int],
        replies: list[Reply | None],
        sent_at: float,
    ) -> dict[TagSet, Judged]:
        """See `_judge`. What that raises of one concerns none of the others."""
        judged: dict[TagSet, Judged] = {}
        for tag_set in tag_sets:
            try:
                judged[tag_set] = self._judge(tag_set, places, replies, sent_at)
            except Exception:
                log.exception("a look-up failed")
                judged[tag_set] = FAILED
        return judged

    def _judge(
        self,
        tag_set: TagSet,
        places: dict[bytes, int],
        replies: list[Reply | None],
        sent_at: float,
    ) -> Judged:
        """The versions an entry must have to be current, or why none can be."""
        if self._owes_bump(tag_set):
            return UNREPORTED
        logs: list[Reply] = []
        said: list[bytes | None] = []
        for key, _ in tag_set.requests:
            reply = replies[places[key]]
            if reply is None:
                return UNREACHABLE
            logs.append(reply)
            said.append(reply[1])
        seen: Seen | Outcome | None = tag_set.seen
        if not (
            isinstance(seen, Seen) and seen.logs == said and seen.definitions is self.definitions
        ):
            seen = self._read(tag_set, logs)
        now = self._loop.time()
        for node in tag_set.nodes:
            # What one node said may have waited long for another's reply.
            if sent_at <= node.trusted_since or not node.trusts(now):
                return DISTRUSTED
        if not isinstance(seen, Seen):
            return seen
        if tag_set.again and (why := self._not_since(tag_set, said, places, replies)):
            return why
        self._saw(tag_set, seen)
        if tag_set.last_seen is None or tag_set.last_seen[0] != seen.versions:
            told = logs[len(tag_set.tags) :]
            tag_set.seen_since = self._born(tag_set, seen.versions, told, now) if told else now
        tag_set.last_seen = seen.versions, sent_at
        if (base := tag_set.base) is not None:
            if seen.whole is None or base.last_seen is None or base.last_seen[0] != seen.whole:
                base.seen_since = now
            if seen.whole is not None:
                base.last_seen = seen.whole, sent_at
                if base.seen is None or base.seen.versions != seen.whole:
                    own = said[: len(base.tags)]
                    self._saw(base, seen._replace(logs=own, versions=seen.whole))
        return seen.versions

    def _not_since(
        self,
        tag_set: TagSet,
        said: Sequence[bytes | None],
        places: dict[bytes, int],
        replies: list[Reply | None],
    ) -> Outcome | None:
        """Why nothing may be stored under the versions of these buckets, though their tables' logs
        `said` before that no write may touch them: one may by now. Then another may have given a
        bucket its version meanwhile, and this one changes what would be stored under that, and has
        been told of other buckets before."""
        for at, place, _ in tag_set.again:
            reply, pin = replies[places[place]], tag_set.pins[at]
            if reply is None:
                return UNREACHABLE
            if reply[1] != said[at] and pin is not None and (state := state_of(reply)).covers(pin):
                self._on_fenced(tag_set.tags[at], state)
                return FENCED
        return None

    def _saw(self, tag_set: TagSet, seen: Seen) -> None:
        """This may be from before what was seen last, where it has waited for other nodes. And what
        a window is open for is what was seen then."""
        if tag_set.seen is not None and tag_set.seen.versions != seen.versions:
            self._windows.shut(tag_set)
        tag_set.seen = seen

    def _born(
        self, tag_set: TagSet, versions: bytes, buckets: Sequence[Reply], now: float
    ) -> float:
        """When at the latest the versions were there of an answer that pins slots, which this
        process sees for the first time: since it has given each bucket its own, or as long ago as
        the node has had that."""
        base, slots, parts = tag_set.base, tag_set.slots, tag_set.parts(versions)
        if base is None or slots is None or not parts:
            return now
        since = [self._had_since(bucket, tag_set.nodes, now) for bucket in buckets]
        for at, (part, pin) in enumerate(zip_longest(parts, tag_set.pins)):
            if pin is None:
                since.append(base.tag_seen_since(at, part, now))
            else:
                since.append(slots.tables[at].seen_since(pin.slot, part[:ID_BYTES], now))
        return max(since)

    def _had_since(self, bucket: Reply, nodes: Iterable[Health], now: float) -> float:
        given = None if bucket[1] is None else self._given.since(bucket[1])
        return kept_since(bucket, nodes, now) if given is None else given

    def _read(self, tag_set: TagSet, logs: Sequence[Reply]) -> Seen | Outcome:
        """What the logs of these tags say, and the buckets of its pins."""
        states = [state_of(reply) for reply in logs[: len(tag_set.tags)]]
        turns: tuple[int, ...] = ()
        if tag_set.slots is not None:
            turns = tag_set.slots.saw([log for _, log, _ in logs], states, self._loop.time())
        if not tag_set.pins:
            return self._read_states(tag_set, states, logs)
        amid = False
        slots: list[bytes | None] = []
        for at, pin in enumerate(tag_set.pins):
            table = states[at]
            slots.append(None if pin is None else table.slots.get(pin.slot))
            if pin is not None and slots[at] is None:
                turns = ()
            if pin is not None and slots[at] and table.fences and not table.covers(pin):
                # No window may open: its write has not waited for promises made since then.
                self._on_fenced(tag_set.tags[at], table)
                states[at], amid = TagState(table.version, {}), True
        seen = self._read_states(tag_set, states, logs)
        if not isinstance(seen, Seen):
            return seen
        versions, absent = _pinned_versions(tag_set, slots, seen.versions, logs)
        if absent:
            return Unversioned((), absent)
        if amid:  # not to be taken for the same again: the fence may lapse
            return Seen([], seen.definitions, versions, seen.unpromised, None, turns)
        return Seen(seen.logs, seen.definitions, versions, seen.unpromised, seen.whole, turns)

    def _read_states(
        self, tag_set: TagSet, states: Iterable[TagState], logs: Iterable[Reply]
    ) -> Seen | Outcome:
        versions = []
        unversioned = []
        unpromised = []
        fenced = outdated = False
        for tag, state in zip(tag_set.tags, states, strict=True):
            if state.fences:
                fenced = True
                self._on_fenced(tag, state)
            elif state.version is None:
                unversioned.append(tag)
                if tag.node and not tag.schema:
                    self._lost_memory(tag.node)
            else:
                versions.append(state.version)
                if not self._promises.are_promised(state.promises):
                    unpromised.append(tag)
                outdated = outdated or not self._planned_under(tag, state.version)
        if fenced:
            return FENCED
        if outdated:
            return OUTDATED
        if unversioned:
            return Unversioned(tuple(dict.fromkeys(unversioned)))
        told, whole = [reply[1] for reply in logs], b"".join(versions)
        return Seen(told, self.definitions, whole, tuple(dict.fromkeys(unpromised)), whole)

    def _lost_memory(self, node: str) -> None:
        """A node without its copy of the root has forgotten all it knew, fences too."""
        health = self._cluster.health_of(node)
        if not health.recovered:
            log.warning("memcached node has no version of everything any more node=%s", node)
            health.distrust(self._loop.time(), forgot=True)

    def _planned_under(self, tag: Tag, version: bytes) -> bool:
        known = self.definitions
        return known is None or not tag.defines or known.get(tag) == version

    def tables_alone(
        self,
        base: TagSet,
        judged: Judged,
        places: dict[bytes, int],
        replies: list[Reply | None],
    ) -> Seen | Outcome:
        """What the logs of these tags say, as if nobody wrote to their tables just now."""
        if isinstance(judged, bytes):
            assert base.seen is not None
            return base.seen
        if judged is not FENCED:
            return judged
        assert base.slots is not None
        base.seen_since = self._loop.time()
        logs = [reply for key, _ in base.requests if (reply := replies[places[key]]) is not None]
        known = base.seen_amid
        told = [reply[1] for reply in logs]
        if known and known.logs == told and known.definitions is self.definitions:
            return known
        states = [state_of(reply) for reply in logs]
        for at in range(len(base.slots.tables)):
            states[at] = TagState(states[at].version, {})
        seen = self._read_states(base, states, logs)
        if not isinstance(seen, Seen):
            return seen
        base.seen_amid = amid = seen._replace(whole=None)
        return amid

    def under(self, pinned: TagSet, said: Seen | Outcome, sent_at: float) -> Judged | None:
        """What has been judged of pins by what the logs of their tags alone say; None where they do
        not tell."""
        if not isinstance(said, Seen):
            return said
        seen: Seen | Outcome | None = pinned.seen
        if pinned.under(said.whole) is None:
            seen = self._kept(pinned, said)
        if not isinstance(seen, Seen):
            return seen
        if pinned.last_seen is None or pinned.last_seen[0] != seen.versions:
            pinned.seen_since = self._loop.time()
        pinned.seen, pinned.last_seen = seen, (seen.versions, sent_at)
        return seen.versions

    def _kept(self, pinned: TagSet, said: Seen) -> Seen | Outcome | None:
        """The same where there were writes since it was asked for pins, or are just now."""
        known, slots = pinned.seen, pinned.slots
        parts = [] if known is None or not known.turns else pinned.parts(known.versions)
        if known is None or slots is None or not parts:
            return None
        for at, own in enumerate(slots.tables):
            touched, pin = own.touched, pinned.pins[at] if at < len(pinned.pins) else None
            if touched.log != said.logs[at]:
                return None
            state = touched.state
            if state.fences and (pin is None or state.covers(pin)):
                return FENCED
            if pin is not None:
                slot = state.slots.get(pin.slot)
                if slot is None or not parts[at].startswith(slot):
                    return None
                if not touched.leaves(pin, known.turns[at]):
                    return None
        for at in range(len(parts)):
            if at >= len(pinned.pins) or pinned.pins[at] is None:
                parts[at] = said.versions[ID_BYTES * at : ID_BYTES * (at + 1)]
        versions = b"".join(parts)
        return Seen([], said.definitions, versions, said.unpromised, said.whole, slots.turns)


def what_tells_of(pinned: TagSet, base: TagSet, now: float) -> TagSet:
    """Which tags are to be asked for whether the versions of pins are the same still: those of
    their tables alone, where their logs have told so far that no write has touched them."""
    seen, slots = pinned.seen, pinned.slots
    if seen is None or slots is None or not seen.turns:
        return pinned
    for own, pin, turn in zip(slots.tables, pinned.pins, seen.turns, strict=False):
        touched = own.touched
        if pin is None or turn == touched.turn:
            continue
        if not (touched.follows(now) and touched.leaves(pin, turn)):
            return pinned
    return base


def _pinned_versions(
    tag_set: TagSet, slots: Iterable[bytes | None], whole: bytes, logs: Sequence[Reply]
) -> tuple[bytes, tuple[bytes, ...]]:
    """The versions of the tags, with those of what is pinned in place of the tables' own: of each
    whose slot is in use, these `slots`. And the keys of buckets that are absent."""
    at, versions, absent = len(tag_set.tags), [], []
    for place, (pin, slot) in enumerate(zip(tag_set.pins, slots, strict=True)):
        begin, at = at, at + (0 if pin is None else len(pin.buckets))
        if slot is None:
            versions.append(whole[ID_BYTES * place : ID_BYTES * (place + 1)])
            continue
        buckets = [reply[1] or b"" for reply in logs[begin:at]]
        absent += [
            key
            for (key, _), bucket in zip(tag_set.requests[begin:at], buckets, strict=True)
            if len(bucket) != ID_BYTES
        ]
        versions += [slot, *buckets]
    return b"".join((*versions, whole[ID_BYTES * len(tag_set.pins) :])), tuple(absent)


def kept_since(bucket: Reply, nodes: Iterable[Health], now: float) -> float:
    """Since when a bucket is there at the latest, by its node's clock. That stands while the node
    does, and what comes just after that bears a time of before."""
    left_s = int(flag_of(bucket[2], b"t") or 0)
    age_s = min(BUCKET_TTL_S - left_s, LONGEST_AGE_S) if left_s > 0 else 0
    unsure_s = COARSE_S + max(node.unnoticed_s for node in nodes)
    told = min(now - age_s + unsure_s, now)
    return max(told, *(node.distrusted_at for node in nodes))


def gather(tag_sets: Collection[TagSet], places: dict[bytes, int], requests: list[Request]) -> None:
    """Adds what asks for the tags' logs, once for each, and where their replies will be; and behind
    all buckets what asks for their tables' logs again."""
    for tag_set in tag_sets:
        for request in tag_set.requests:
            if request[0] not in places:
                places[request[0]] = len(requests)
                requests.append(request)
    for tag_set in tag_sets:
        for _, place, request in tag_set.again:
            if place not in places:
                places[place] = len(requests)
                requests.append(request)
