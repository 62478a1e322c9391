"""The reads of one event-loop turn, looked up together.

Every read that arrives in a turn of the event loop is answered from one batch: each entry that is
not near is asked for once, each tag is asked for once, and each node gets one write. The batch is
sent after the last of its reads arrived, so what it brings back is never older than any of them.

This is the hot path: a read costs a dictionary look-up, a list append and a comparison here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from sqlcache.cache.entry import HEADER_BYTES, PLAIN
from sqlcache.cache.near import NearCache
from sqlcache.cache.outcomes import (
    FAILED,
    OUTDATED,
    UNREACHABLE,
    Hit,
    Miss,
    Outcome,
    Packed,
    Unversioned,
)
from sqlcache.cache.reads import Read, Seen, TagSet
from sqlcache.cache.seals import Seal
from sqlcache.cache.slots import NEVER
from sqlcache.cache.tag_checks import Judged, TagChecks, gather, what_tells_of
from sqlcache.cache.tag_sets import TagSets
from sqlcache.cache.tags import ID_BYTES
from sqlcache.cache.windows import Windows
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import Reply, flag_of

log = logging.getLogger(__name__)

Waiter = Callable[[Outcome], None]
Batch = list[tuple[Read, TagSet, Waiter, bool, bool]]
"""Each with the tags that it hung on when it was asked for: a read is its sessions' in common.
Whether all these have to be asked for, whatever else tells of them; and whether definitions alone
do where a rule allows that."""


class Lookups:
    """Gathers reads and answers each with an outcome, by what the `checks` say of its tags.

    `tag_sets` say on what it hangs. `give_soon` gives versions to buckets that have none, before
    what is asked next.
    """

    def __init__(
        self,
        cluster: Cluster,
        near: NearCache,
        seal: Seal,
        windows: Windows,
        checks: TagChecks,
        tag_sets: TagSets,
        give_soon: Callable[[Iterable[bytes]], None],
    ) -> None:
        self._cluster = cluster
        self._near = near
        self._seal = seal
        self._checks = checks
        self._tag_sets = tag_sets
        self._kept_open = windows.kept_open
        self._give_soon = give_soon
        self.edition = 0
        """Changes when what was planned before may be wrong by the definitions of now."""
        self._batch: Batch = []
        self._loop = asyncio.get_running_loop()
        self._clock = windows.clock

    def add(self, read: Read, waiter: Waiter) -> None:
        """Calls `waiter` with the read's outcome, once: at once where that is known, else in a
        later turn of the event loop. What it raises then is logged: it is nothing to others."""
        if hit := self.at_once(read):
            waiter(hit)
            return
        self._add(read, waiter, may_be_old=read.may_be_stale)

    def _add(
        self, read: Read, waiter: Waiter, *, all_tags: bool = False, may_be_old: bool = False
    ) -> None:
        if not self._batch:
            self._loop.call_soon(self._send)
        self._batch.append((read, read.tags, waiter, all_tags, may_be_old))

    def ask_about(self, read: Read, waiter: Waiter) -> None:
        """The same, but memcached is always asked, whatever a window or a rule allows."""
        self._tag_sets.bind(read)
        self._add(read, waiter)

    def at_once(self, read: Read) -> Hit | None:
        """The near entry, if nobody need be asked: as it is known to be current at this moment; or
        was a short time ago, and a rule lets it be as old as that, while definitions are known to
        be those of now."""
        if read.pinning:
            self._tag_sets.bind(read)
        tag_set = read.tags
        table = tag_set.base or tag_set
        if table.window == 0.0 or self._clock() >= table.window:
            definitions = tag_set.definitions if read.may_be_stale else None
            if definitions is None or self._clock() >= definitions.window:
                return None
            definitions.uses += 1
            return self._of_before(read, definitions)
        whole = table.seen and table.seen.versions
        versions = whole if table is tag_set else tag_set.under(whole)
        if versions is None or (read.edition != self.edition and read.edition is not None):
            return None
        value = self._near.current(read.key, self._loop.time())
        if value is None or not value.startswith(versions):
            return None
        table.uses += 1
        return Hit(value, len(versions), True, True, tag_set.answer_since, tag_set, whole)

    def _of_before(self, read: Read, definitions: TagSet) -> Hit | None:
        """The near entry, if it was current a short time ago and a rule lets it be as old as that,
        and was stored under these definitions, which are known to be those of now."""
        tag_set = read.tags
        if read.edition != self.edition and read.edition is not None:
            return None
        if tag_set.last_seen is None or definitions.seen is None or not self._is_young(read):
            return None
        versions, _ = tag_set.last_seen
        value = self._near.current(read.key, self._loop.time())
        if value is None or not value.startswith(versions):
            return None
        if not versions.endswith(definitions.seen.versions):
            return None
        return Hit(value, len(versions), True, False, tag_set.answer_since, tag_set)

    def _is_young(self, read: Read) -> bool:
        """Whether a rule lets a read's answer be as old as what was seen of its tags last."""
        seen, longest_s = read.tags.last_seen, read.freshness.max_staleness_s
        return seen is not None and self._loop.time() - seen[1] <= longest_s

    def is_as_defined(self, like: Read) -> bool:
        """Whether what reads like this hang on is as they were planned by, and nobody need be
        asked."""
        if like.edition is not None and like.edition != self.edition:
            return False
        definitions, now = like.tags.definitions, self._clock()
        return now < like.tags.window or (definitions is not None and now < definitions.window)

    def _send(self) -> None:
        batch, self._batch = self._batch, []
        sent_at, now = self._clock(), self._loop.time()
        places: dict[bytes, int] = {}
        requests: list[Request] = []
        tag_sets: set[TagSet] = set()
        asked: list[TagSet] = []
        for read, tag_set, _, all_tags, may_be_old in batch:
            versions = b"" if tag_set.last_seen is None else tag_set.last_seen[0]
            is_near = not all_tags and self._near.has(read.key, now, versions)
            told = tag_set
            if is_near and may_be_old and self._is_young(read) and tag_set.definitions is not None:
                told = tag_set.definitions
            elif is_near and tag_set.base is not None:
                told = what_tells_of(tag_set, tag_set.base, now)
                # Who will have to ask for an entry does not wait until the tags have come.
                is_near = told is not tag_set or tag_set.touched_at == NEVER
            if not is_near and read.key not in places:
                places[read.key] = len(requests)
                requests.append(read.request)
            asked.append(told)
            tag_sets.add(told)
        gather(tag_sets, places, requests)

        def answered(replies: list[Reply | None]) -> None:
            judged = self._checks.judge_all(tag_sets, places, replies, now)
            for tag_set, versions in judged.items():
                self._checks.open_window(tag_set, versions, sent_at, used=True)
            self._answer(batch, asked, judged, places, replies, now)

        self._cluster.submit(requests, answered)
        # In the same write, but no read waits for what only others need, perhaps of another node.
        if along := self._kept_open.along() - tag_sets:
            self._checks.ask(along)

    def _answer(
        self,
        batch: Batch,
        asked: Iterable[TagSet],
        judged: Mapping[TagSet, Judged],
        places: dict[bytes, int],
        replies: list[Reply | None],
        sent_at: float,
    ) -> None:
        """`asked` are the tags that were asked for each read."""
        alone: dict[TagSet, Seen | Outcome] = {}
        for (read, tag_set, waiter, all_tags, _), told in zip(batch, asked, strict=True):
            versions: Judged | None = judged[told]
            try:
                if told is tag_set.definitions:
                    self._answer_of_before(read, waiter, told, judged[told])
                    continue
                if told is not tag_set:
                    if told not in alone:
                        alone[told] = self._checks.tables_alone(told, judged[told], places, replies)
                    versions = self._checks.under(tag_set, alone[told], sent_at)
                if isinstance(versions, Unversioned) and versions.buckets and not all_tags:
                    self._give_soon(versions.buckets)
                    versions = None
                if versions is None:
                    self._tag_sets.bind(read)
                    self._add(read, waiter, all_tags=True)
                    continue
                outcome = self._outcome(read, versions, places, replies, sent_at)
                if type(outcome) is Hit or type(outcome) is Packed:
                    tag_set.has_answer()
                    outcome.since = tag_set.answer_since
                    outcome.tags, outcome.whole = tag_set, tag_set.whole_now
                elif type(outcome) is Miss:
                    outcome.since, outcome.filled_since = tag_set.seen_since, tag_set.answer_since
                    outcome.tags, outcome.whole = tag_set, tag_set.whole_now
            except Exception:
                log.exception("a look-up failed")
                outcome = FAILED
            if outcome is None:
                self.add(read, waiter)
                continue
            _tell(waiter, outcome)

    def _answer_of_before(
        self, read: Read, waiter: Waiter, definitions: TagSet, judged: Judged
    ) -> None:
        """Where definitions alone were asked for, and this is what was found."""
        outcome = self._of_before(read, definitions) if isinstance(judged, bytes) else judged
        if outcome is None:  # that entry will not do any more
            self._add(read, waiter)
        else:
            _tell(waiter, outcome)

    def _outcome(
        self,
        read: Read,
        versions: Judged,
        places: dict[bytes, int],
        replies: list[Reply | None],
        sent_at: float,
    ) -> Outcome | None:
        """What a read's look-up has found; None where it has to be looked up again."""
        if not isinstance(versions, bytes):
            return versions
        if read.edition != self.edition and read.edition is not None:
            return OUTDATED
        place = places.get(read.key)
        if place is not None:
            outcome = self._compare(read, versions, replies[place], sent_at)
            if type(outcome) is Miss and outcome.early:
                replies[place] = _lost(replies[place])  # others of the batch asked for it, too
            return outcome
        value = self._near.get(read.key)
        if value is not None and value.startswith(versions):
            return Hit(value, len(versions), True)
        self._near.drop(read.key)  # memcached may have a newer one
        return None

    def _compare(self, read: Read, versions: bytes, reply: Reply | None, sent_at: float) -> Outcome:
        """What an entry that came from memcached is worth."""
        if reply is None:
            return UNREACHABLE
        if not reply[1]:
            return Miss(versions)
        value = self._seal.opened(read.key, reply[1])
        if value is None:
            return Miss(versions, early=True)
        left_s = int(flag_of(reply[2], b"t") or 0)
        if not value.startswith(versions):
            previous = value if _begins_with_as_many(read.tags, versions, value) else None
            return Miss(versions, previous=previous, age_s=read.freshness.ttl_s - left_s)
        if b"W" in reply[2] or len(value) == len(versions):
            return Miss(versions, early=True)
        until = sent_at + left_s - read.freshness.early_s
        if value[len(versions)] != PLAIN:
            return Packed(value, versions, until)
        if len(value) < len(versions) + HEADER_BYTES:
            return Miss(versions, early=True)
        self._near.put(read.key, value, until)
        return Hit(value, len(versions))


def _tell(waiter: Waiter, outcome: Outcome) -> None:
    try:
        waiter(outcome)
    except Exception:  # the others of its batch wait still
        log.exception("a reader failed")


def _begins_with_as_many(tags: TagSet, versions: bytes, value: bytes) -> bool:
    """Whether an entry surely begins with as many versions as it would now: while other slots are
    in use it has others. The last of them are those of the definitions."""
    if tags.slots is None:
        return True
    end = len(versions)
    at = end - ID_BYTES * (len(tags.tags) - len(tags.slots.tables))
    return value[at:end] == versions[at:]


def _lost(reply: Reply | None) -> Reply | None:
    """The same for one who is not to fetch the entry anew."""
    return reply and (reply[0], reply[1], reply[2].replace(b"W", b""))
