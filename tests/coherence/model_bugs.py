"""The protocol broken on purpose, one step at a time: the model has to find each.

Each function takes a `MonkeyPatch` and breaks what it is named for, in every process.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sqlcache.cache import log_records, tag_checks, tag_logs, windows
from sqlcache.cache.fence import Fence, IsOver, Told
from sqlcache.cache.fences import Fences
from sqlcache.cache.leases import Lease, Leases, Wait
from sqlcache.cache.log_records import (
    TagState,
    compact,
    lift_record,
    log_record,
    undo_record,
    version_record,
)
from sqlcache.cache.lookups import Lookups, Waiter
from sqlcache.cache.marks import Logs, Marks
from sqlcache.cache.node_items import NodeItems
from sqlcache.cache.node_mementos import Mementos
from sqlcache.cache.node_questions import _VOUCHED, NodeQuestions, Word
from sqlcache.cache.node_watch import NodeWatch
from sqlcache.cache.outcomes import Hit, Miss, Outcome
from sqlcache.cache.owed_bumps import OwedBumps, _always
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.promises import Promises
from sqlcache.cache.reads import Read, TagSet
from sqlcache.cache.shared_fences import SharedFences
from sqlcache.cache.tag_checks import TagChecks
from sqlcache.cache.tag_logs import TagLogs, fresh_id
from sqlcache.cache.tags import ID_BYTES, Tag
from sqlcache.cache.windows import Windows
from sqlcache.errors import WriteRefused
from sqlcache.memcache.health import Health
from sqlcache.memcache.protocol import Reply, meta_get, meta_set

Bug = Callable[[pytest.MonkeyPatch], None]

_ZERO = bytes(8)


def _fill(
    patch: pytest.MonkeyPatch, fill: Callable[[Lease, bytes], Coroutine[Any, Any, None]]
) -> None:
    """Fills are like this, whether they are waited for or not."""
    patch.setattr(Lease, "fill", fill)
    patch.setattr(
        Lease, "fill_soon", lambda self, entry: self._leases.tasks.spawn(fill(self, entry))
    )


def skip_the_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sqlcache.cache.fence.fence_record", lambda fence, _: undo_record(fence))


def reuse_a_version(patch: pytest.MonkeyPatch) -> None:
    """Where there is none, counting begins again at the first."""
    right = TagLogs.give_versions

    async def give_versions(self: TagLogs, tags: Iterable[Tag]) -> None:
        first = version_record(_ZERO)
        keys = [self._placement.key(tag) for tag in tags]
        await self._cluster.ask([(k, meta_set(k, first, mode=b"E", ttl_s=0)) for k in keys])
        await right(self, tags)  # for logs without a version

    patch.setattr(TagLogs, "give_versions", give_versions)


def read_versions_after_the_query(patch: pytest.MonkeyPatch) -> None:
    right = Lease.fill

    async def fill(self: Lease, entry: bytes) -> None:
        now = await self._leases._look(self.read)
        if isinstance(now, Miss):
            entry = now.versions + entry[len(self.versions) :]
            await self._leases.store.put(self.read, now.versions, entry)
            await self.release()
        else:
            await right(self, entry)

    _fill(patch, fill)


def lift_the_fences_of_others(patch: pytest.MonkeyPatch) -> None:
    """Fences carry no id: one's end is the end of all."""
    patch.setattr(Fence, "id", property(lambda _: _ZERO))


def bump_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sqlcache.cache.fence.lift_record", lambda fence, _: undo_record(fence))


def acknowledge_before_the_bump(patch: pytest.MonkeyPatch) -> None:
    """The fence comes down, the client has its OK, and the new version is on its way.

    Were the fence to stand meanwhile, no one would be the wiser.
    """

    async def lift(self: Fences, fence: Fence) -> None:
        await self.undo(fence)
        self._tasks.spawn(self.bump(fence.tags))

    def lift_soon(self: SharedFences, fence: Fence, marks: Marks, done: Told) -> None:
        async def lift_it() -> None:
            await lift(self._fences, fence)
            done(())

        self._fences._tasks.spawn(lift_it())

    patch.setattr(Fences, "lift", lift)
    patch.setattr(SharedFences, "lift_soon", lift_soon)


def take_an_absent_tag_for_version_zero(patch: pytest.MonkeyPatch) -> None:
    right = tag_logs.state_of

    def state_of(reply: Reply) -> TagState:
        return TagState(_ZERO, {}) if reply[1] is None else right(reply)

    patch.setattr(tag_checks, "state_of", state_of)


def join_a_flight_of_other_versions(patch: pytest.MonkeyPatch) -> None:
    """Who finds a fill of its key under way takes what it brings."""
    right_take, right_fill = Leases.take, Lease.fill
    brought: dict[int, bytes] = {}

    async def fill(self: Lease, entry: bytes) -> None:
        brought[id(self._flight)] = entry
        await self._leases._look(self.read)  # a moment makes it show
        await right_fill(self, entry)

    async def take(self: Leases, read: Read, miss: Miss, wait: Wait) -> Any:
        for (key, _), flight in self._flights.items():
            if key == read.key:
                await asyncio.wait([flight.landed], timeout=wait.until - self._loop.time())
                if (entry := brought.get(id(flight))) is not None:
                    return Hit(entry, len(miss.versions))
                return None
        return await right_take(self, read, miss, wait)

    _fill(patch, fill)
    patch.setattr(Leases, "take", take)


def trust_a_node_whatever_its_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Health, "trusts", lambda self, *_: True)


def distrust_a_silent_node_late(patch: pytest.MonkeyPatch) -> None:
    """Only just before a writer goes on without it."""
    right = Health.__init__

    def init(self: Health, *args: Any, **settings: Any) -> None:
        right(self, *args, **settings)
        self._gap_s *= 7 / 4

    patch.setattr(Health, "__init__", init)


def skip_the_quarantine(patch: pytest.MonkeyPatch) -> None:
    """A node that is back is disowned, and trusted again at once."""
    right = Health.__init__

    def init(self: Health, *args: Any, **settings: Any) -> None:
        right(self, *args, **(settings | {"quarantine_s": 0.0}))

    patch.setattr(Health, "__init__", init)


def skip_the_disowning(patch: pytest.MonkeyPatch) -> None:
    """After the quarantine what the node remembers counts again."""

    async def renew_version(self: Fences, tag: Tag) -> bool:
        await self._reach._logs.give_versions([tag])
        return True

    patch.setattr(Fences, "renew_version", renew_version)


def deny_what_is_owed(patch: pytest.MonkeyPatch) -> None:
    """Whoever is asked says that it has told the node of all its writes."""
    patch.setattr(Fences, "owes", lambda *_: False)


def forget_a_write_that_has_no_fence(patch: pytest.MonkeyPatch) -> None:
    """What has gone on without the node is owed to it only when MySQL has answered."""

    def owes(self: Fences, node: str) -> bool:
        return any(self._placement.node(tag) == node for tag in self.owed.tags)

    patch.setattr(Fences, "owes", owes)


def ask_nobody(patch: pytest.MonkeyPatch) -> None:
    """Who lost sight of a node takes it that nobody went on without it."""

    async def word_of_others(self: NodeQuestions, *_: object) -> Word:
        return Word.VOUCHED

    patch.setattr(NodeQuestions, "word_of_others", word_of_others)


def take_anybodys_word(patch: pytest.MonkeyPatch) -> None:
    """That of one who answers is enough."""
    right = NodeQuestions.word_of_others

    async def word_of_others(self: NodeQuestions, name: str, about: float, seen: Any) -> Word:
        word = await right(self, name, about, replace(seen, others=frozenset()))
        return Word.NONE if word is Word.NONE else Word.VOUCHED

    patch.setattr(NodeQuestions, "word_of_others", word_of_others)


def believe_a_heartbeat(patch: pytest.MonkeyPatch) -> None:
    """Who watches a node extends an item of two seconds on it. While it is there, others have not
    lost sight of the node."""
    right_look_in, right_word = NodeWatch._look_in, NodeQuestions.word_of_others
    heartbeat = b"model:heartbeat"

    async def look_in(self: NodeWatch, name: str, health: Health) -> None:
        await right_look_in(self, name, health)
        if health.watches(self._loop.time()):
            await self._items.ask(name, [meta_set(heartbeat, b"", ttl_s=2)])

    async def word_of_others(self: NodeQuestions, name: str, about: float, seen: Any) -> Word:
        (beats,) = await self._items.ask(name, [meta_get(heartbeat)])
        there = beats is not None and beats[1] is not None
        return Word.VOUCHED if there else await right_word(self, name, about, seen)

    patch.setattr(NodeWatch, "_look_in", look_in)
    patch.setattr(NodeQuestions, "word_of_others", word_of_others)


def vouch_for_a_node_out_of_sight(patch: pytest.MonkeyPatch) -> None:
    """Who has lost sight of a node vouches for it as others do."""
    right = NodeQuestions._says

    def says(self: NodeQuestions, health: Health) -> set[bytes]:
        return {*right(self, health), _VOUCHED}

    patch.setattr(NodeQuestions, "_says", says)


def ask_only_once(patch: pytest.MonkeyPatch) -> None:
    """What others said when sight of a node was lost before is good enough."""
    right = NodeQuestions.word_of_others

    async def word_of_others(self: NodeQuestions, name: str, _: float, seen: Any) -> Word:
        return await right(self, name, 0.0, seen)

    patch.setattr(NodeQuestions, "word_of_others", word_of_others)


def ask_nobody_who_began_in_doubt(patch: pytest.MonkeyPatch) -> None:
    """Who does not trust a node from the start enrols with it only when it looks in again."""
    right = NodeItems.enrol

    async def enrol(self: NodeItems, name: str, **joins: bool) -> bool:
        doubts = not joins and not self._cluster.health_of(name).greeted
        return doubts or await right(self, name, **joins)

    patch.setattr(NodeItems, "enrol", enrol)


def write_at_once_without_a_node(patch: pytest.MonkeyPatch) -> None:
    """A writer does not wait until a silence counts as an outage."""
    patch.setattr(Health, "is_out", True)


def write_at_once_without_a_lame_node(patch: pytest.MonkeyPatch) -> None:
    """That a node was reached and does not answer is enough."""
    right = Health.is_out
    assert isinstance(right, property)

    def is_out(self: Health) -> bool:
        return self._reached or bool(right.__get__(self))

    patch.setattr(Health, "is_out", property(is_out))


def trust_a_node_that_is_reached(patch: pytest.MonkeyPatch) -> None:
    """A new connection is as good as an answer to those who read, and to writers it is not."""
    right = Health.reached

    def reached(self: Health) -> None:
        right(self)
        self._alive_at = asyncio.get_running_loop().time()

    patch.setattr(Health, "reached", reached)


def trust_every_node_from_the_start(patch: pytest.MonkeyPatch) -> None:
    """A process that starts amid an outage, or soon after, takes the node for a good one."""
    right = Health.greet

    def greet(self: Health, now: float, *, trusted: bool) -> None:
        right(self, now, trusted=True)

    patch.setattr(Health, "greet", greet)


def reckon_with_no_strangers(patch: pytest.MonkeyPatch) -> None:
    """Whom the node does not know has not gone on without it."""
    patch.setattr(Health, "may_have_strangers", lambda *_: False)


def have_a_stranger_wait_as_others_do(patch: pytest.MonkeyPatch) -> None:
    """Who has just started goes on without a node when others would."""
    patch.setattr(Health, "enrolled", property(lambda _: True, lambda *_: None))


def trust_at_the_start_what_nobody_vouches_for(patch: pytest.MonkeyPatch) -> None:
    """That all of whom the node knows have told it of their writes is enough, too."""
    right = NodeQuestions.word_of_others

    async def word_of_others(self: NodeQuestions, name: str, about: float, seen: Any) -> Word:
        word = await right(self, name, about, seen)
        starts = not self._items._cluster.health_of(name).greeted
        return Word.VOUCHED if word is Word.TOLD and starts else word

    patch.setattr(NodeQuestions, "word_of_others", word_of_others)


def believe_what_was_said_before_a_node_was_trusted(patch: pytest.MonkeyPatch) -> None:
    """A node that is trusted now is believed whatever it said when it was not."""
    never = property(lambda _: float("-inf"), lambda *_: None)
    patch.setattr(Health, "trusted_since", never)


def compact_whatever_came_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """Without compare-and-swap, and often."""
    right = meta_set

    def set_without_cas(key: bytes, value: bytes, **options: Any) -> bytes:
        return right(key, value, **(options | {"cas": None}))

    patch.setattr(tag_logs, "meta_set", set_without_cas)
    patch.setattr(TagLogs, "_is_long", lambda self, tag, log: len(log) > 40)


def trust_what_is_near(patch: pytest.MonkeyPatch) -> None:
    """A near entry is served whatever its tags' versions."""
    right = Lookups.add

    def add(self: Lookups, read: Read, waiter: Waiter) -> None:
        value = self._near.get(read.key)
        if value is None:
            right(self, read, waiter)
        else:
            self._loop.call_soon(waiter, Hit(value, 8 * len(read.tags.tags)))

    patch.setattr(Lookups, "add", add)


def overlook_that_a_node_lost_its_memory(patch: pytest.MonkeyPatch) -> None:
    """No one looks whether the copy of the root or the memento is there."""
    patch.setattr(TagChecks, "_lost_memory", lambda self, _: None)
    patch.setattr(NodeWatch, "_lost_memory", lambda *_: None)


def take_each_memory_for_the_one_before(patch: pytest.MonkeyPatch) -> None:
    """That some memento is there is enough."""

    def connected(self: Mementos, name: str, memento: bytes | None) -> None:
        if memento is None and name in self._known:
            self.lose(name)

    patch.setattr(Mementos, "connected", connected)
    patch.setattr(Mementos, "is_known", lambda *_: True)


def compare_only_the_first_version(patch: pytest.MonkeyPatch) -> None:
    """An entry that hangs on two tables is current while the first is."""
    right = TagChecks._judge

    def judge(self: TagChecks, *args: Any) -> bytes | Outcome:
        versions = right(self, *args)
        return versions[:8] if isinstance(versions, bytes) else versions

    patch.setattr(TagChecks, "_judge", judge)


def bump_the_root_on_one_node(patch: pytest.MonkeyPatch) -> None:
    right = TagPlacement.to_write

    def to_write(self: TagPlacement, tags: Iterable[Tag]) -> list[Tag]:
        places = right(self, tags)
        return [place for place in places if not place.node or place.node == "n0"]

    patch.setattr(TagPlacement, "to_write", to_write)


def let_a_lapsed_fence_leave_the_version(patch: pytest.MonkeyPatch) -> None:
    def keep(
        state: TagState,
        *,
        without: Iterable[bytes] = (),
        version: bytes | None = None,
        commits: Sequence[bytes] = (),
    ) -> bytes:
        left = {f: beat for f, beat in state.fences.items() if f not in set(without)}
        return compact(TagState(state.version or version, left))

    patch.setattr(tag_logs, "compact", keep)


def lift_a_write_of_unknown_outcome_at_once(patch: pytest.MonkeyPatch) -> None:
    def abandon(self: Fences, fence: Fence, is_over: IsOver | None) -> None:
        self._tasks.spawn(self.lift(fence))

    patch.setattr(Fences, "abandon", abandon)


def renew_no_fence(patch: pytest.MonkeyPatch) -> None:
    async def beat(self: Fences, young_s: float = 0.0) -> None:
        pass

    patch.setattr(Fences, "_beat", beat)


def send_a_write_that_is_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """Under `consistency`."""
    right = Fences._mark

    async def mark(self: Fences, fence: Fence, tags: frozenset[Tag]) -> Collection[Tag]:
        unreached: Collection[Tag] = ()
        with contextlib.suppress(WriteRefused):
            unreached = await right(self, fence, tags)
        self._standing.add(fence)
        return unreached

    patch.setattr(Fences, "_mark", mark)


def lift_a_fence_that_others_share(patch: pytest.MonkeyPatch) -> None:
    """Whoever ends first lifts it for all."""
    right = Fences.leave

    def leave(self: Fences, fence: Fence, *, wrote: bool) -> bool:
        if fence.shared is not None:
            fence.shared.members = 1
        return right(self, fence, wrote=wrote)

    patch.setattr(Fences, "leave", leave)


def join_a_fence_however_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharedFences, "_may_be_joined", lambda _, shared: not shared.over)


def _ask_so(patch: pytest.MonkeyPatch, standing: Callable[..., Logs | None]) -> None:
    patch.setattr(Marks, "standing", standing)


def take_a_shared_fence_for_standing(patch: pytest.MonkeyPatch) -> None:
    """Where others hold it, the OK goes without a look at it."""
    _ask_so(patch, lambda self, replies, fence: replies[len(self.keys) :])


def take_any_fence_for_the_shared_one(patch: pytest.MonkeyPatch) -> None:
    def standing(self: Marks, replies: list[Any], fence: bytes) -> Logs | None:
        logs = replies[: len(self.keys)]
        fenced = all(log is not None and tag_logs.state_of(log).fences for log in logs)
        return () if fenced else None

    _ask_so(patch, standing)


def look_at_the_shared_fence_too_early(patch: pytest.MonkeyPatch) -> None:
    """When the write is sent, and not when it is answered."""
    right_raise, right_ask = SharedFences.raise_soon, Marks.standing
    early: dict[Marks, Logs | None] = {}

    def raise_soon(self: SharedFences, fence: Fence, marks: Marks, done: Told) -> None:
        shared = fence.shared
        assert shared is not None

        def asked(replies: list[Any]) -> None:
            early[marks] = right_ask(marks, replies, shared.fence.id)

        def told(logs: Logs | None) -> None:
            self._cluster.submit(marks.asking, asked)
            done(logs)

        right_raise(self, fence, marks, told)

    patch.setattr(SharedFences, "raise_soon", raise_soon)
    _ask_so(patch, lambda self, replies, fence: early[self])


def undo_a_shared_fence_that_others_wrote_under(patch: pytest.MonkeyPatch) -> None:
    """The last did not write: then the version stays."""
    right = Fence.replace

    def replace(self: Fence, other: Fence) -> None:
        right(self, other)
        self.wrote = False

    patch.setattr(Fence, "replace", replace)


def store_under_a_fence(patch: pytest.MonkeyPatch) -> None:
    """Readers do not heed fences."""
    right = tag_logs.state_of

    def state_of(reply: Reply) -> TagState:
        return TagState(right(reply).version, {})

    patch.setattr(tag_checks, "state_of", state_of)


def _read_logs_so(patch: pytest.MonkeyPatch, drops: Callable[[int, bool], bool]) -> None:
    """Promises end with these records, by their kind and whether their fence stood."""

    def read_log(log: bytes) -> TagState:
        state = right(log)
        promises: frozenset[bytes] = frozenset()
        fences = set()
        at = 0
        while at < len(log):
            kind, first = log[at], log[at + 1 : at + 1 + ID_BYTES]
            if kind == b"F"[0]:
                fences.add(first)
            elif kind == b"P"[0]:
                promises |= {first}
            elif drops(kind, first in fences):
                promises = frozenset()
            if kind in b"XU":
                fences.discard(first)
            at += 1 + ID_BYTES * (2 if kind in b"FX" else 1)
        return replace(state, promises=promises)

    right = log_records.read_log
    for module in (tag_logs, windows):
        patch.setattr(module, "read_log", read_log)


def let_any_lift_drop_promises(patch: pytest.MonkeyPatch) -> None:
    """Also one that does not find its fence."""
    _read_logs_so(patch, lambda kind, _: kind == b"X"[0])


def let_an_undone_fence_drop_promises(patch: pytest.MonkeyPatch) -> None:
    _read_logs_so(patch, lambda kind, stood: kind == b"U"[0] or (kind == b"X"[0] and stood))


def let_a_bump_drop_promises(patch: pytest.MonkeyPatch) -> None:
    _read_logs_so(patch, lambda kind, stood: kind == b"V"[0] or (kind == b"X"[0] and stood))


def let_a_compaction_drop_promises(patch: pytest.MonkeyPatch) -> None:
    def forget(state: TagState, **options: Any) -> bytes:
        return compact(replace(state, promises=frozenset()), **options)

    patch.setattr(tag_logs, "compact", forget)
    patch.setattr(TagLogs, "_is_long", lambda self, tag, log: len(log) > 40)


def promise_nothing_for_a_new_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tag_logs, "new_log", log_record)
    patch.setattr(tag_logs, "EVERYONE", _ZERO[:-1] + b"!")


def open_windows_without_a_promise(patch: pytest.MonkeyPatch) -> None:
    """To have promised once is enough, whatever the log says."""
    patch.setattr(Promises, "are_promised", lambda *_: True)


def count_a_window_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    right = Windows.saw

    def saw(self: Windows, tag_set: TagSet, sent_at: float, unpromised: Collection[Tag]) -> None:
        right(self, tag_set, self.clock(), unpromised)

    patch.setattr(Windows, "saw", saw)


def hold_no_write_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Windows, "all_over_at", lambda *_: 0.0)


def hold_a_write_back_too_shortly(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Windows, "all_over_at", lambda self, _=None: self.clock() + self._lease_s / 2)


def hold_only_the_ok_back(patch: pytest.MonkeyPatch) -> None:
    right, lift = Windows.over, Fences.lift

    async def go_on(self: Fences, fence: Fence) -> None:
        pass

    async def lift_then_wait(self: Fences, fence: Fence) -> None:
        until = fence.over_at
        await lift(self, fence)
        await right(self._windows, max(until, fence.over_at))

    patch.setattr(Fences, "_until_over", go_on)
    patch.setattr(Fences, "lift", lift_then_wait)


def send_at_once_what_joins_a_fence_that_waits(patch: pytest.MonkeyPatch) -> None:
    right = SharedFences.raise_soon

    def raise_soon(self: SharedFences, fence: Fence, marks: Marks, done: Told) -> None:
        shared = fence.shared
        assert shared is not None
        if shared.fence.over_at > self._windows.clock():
            done(())
        else:
            right(self, fence, marks, done)

    patch.setattr(SharedFences, "raise_soon", raise_soon)


def acknowledge_though_the_fence_was_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Windows, "may_have_opened", lambda *_, **__: False)


def overlook_that_a_beat_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    right = Windows.may_have_opened

    def may_have_opened(self: Windows, log: bytes, fence: bytes, *, stood: bool) -> bool:
        return right(self, log, fence, stood=True)

    def may_be_raised_anew(self: Fences, fence: Fence) -> bool:
        return fence.over_at > self._windows.clock()

    patch.setattr(Windows, "may_have_opened", may_have_opened)
    patch.setattr(Fences, "may_be_raised_anew", may_be_raised_anew)


def overlook_that_a_beat_finds_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fences, "_raised_anew", lambda *_: ())


def publish_though_a_beat_found_no_fence(patch: pytest.MonkeyPatch) -> None:
    """Between the parts of a write that the fence stands is enough."""
    right, right_bump = Fences.may_be_raised_anew, Fences.bump
    publishing: set[Fence | None] = set()

    async def bump(self: Fences, tags: Iterable[Tag], own: Fence | None = None) -> None:
        publishing.add(own)
        try:
            await right_bump(self, tags, own)
        finally:
            publishing.discard(own)

    def may_be_raised_anew(self: Fences, fence: Fence) -> bool:
        return fence not in publishing and right(self, fence)

    patch.setattr(Fences, "bump", bump)
    patch.setattr(Fences, "may_be_raised_anew", may_be_raised_anew)


def leave_own_windows_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Windows, "close", lambda *_: None)


def bump_and_wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    right, right_wait = Fences.bump, Windows.wait_for
    bumping: set[asyncio.Task[object] | None] = set()

    async def bump(self: Fences, tags: Iterable[Tag], own: Fence | None = None) -> None:
        task = asyncio.current_task()
        bumping.add(task)
        try:
            await right(self, tags, own)
        finally:
            bumping.discard(task)

    def wait_for(self: Windows, log: bytes) -> bool:
        return asyncio.current_task() not in bumping and right_wait(self, log)

    patch.setattr(Fences, "bump", bump)
    patch.setattr(Windows, "wait_for", wait_for)


def lift_for_all_though_marks_may_come(patch: pytest.MonkeyPatch) -> None:
    """Promises are dropped also by the lift of a fence that may have been put up without a wait."""
    patch.setattr(Fence, "lifting", lambda self: lift_record(self.id, fresh_id()))

    async def flush(self: OwedBumps) -> None:
        for tag, owed in list(self._owed.items()):
            times = owed.times
            lifts = [lift_record(fence, fresh_id()) for fence in owed.fences]
            told = await self._reach.append([tag], _always(b"".join(lifts)))
            if not told.unreached and owed.times == times:
                del self._owed[tag]

    patch.setattr(OwedBumps, "flush", flush)


BUGS: dict[Bug, str] = {
    skip_the_fence: "the first read and the first write",
    bump_nothing: "traffic",
    acknowledge_before_the_bump: "traffic",
    reuse_a_version: "a tag is evicted",
    take_an_absent_tag_for_version_zero: "a tag is evicted",
    read_versions_after_the_query: "the first read and the first write",
    lift_the_fences_of_others: "two writes side by side",
    lift_a_fence_that_others_share: "two writes share a fence",
    join_a_fence_however_old: "a shared fence may have lapsed",
    take_a_shared_fence_for_standing: "writes share a fence that is lost",
    look_at_the_shared_fence_too_early: "writes share a fence that is lost",
    take_any_fence_for_the_shared_one: (
        "a fence that is lost is shared, and others mark the table"
    ),
    undo_a_shared_fence_that_others_wrote_under: "a write that is denied shares a fence",
    store_under_a_fence: "the first read and the first write",
    join_a_flight_of_other_versions: "a reader comes to its own process's flight after a write",
    trust_what_is_near: "entries near",
    compare_only_the_first_version: "traffic",
    bump_the_root_on_one_node: "everything is written where there are two nodes",
    compact_whatever_came_meanwhile: "traffic",
    renew_no_fence: "a write takes longer than the deadline",
    let_a_lapsed_fence_leave_the_version: "the writer is killed",
    lift_a_write_of_unknown_outcome_at_once: "the writer loses MySQL",
    believe_a_heartbeat: "a process starts after a moment that the writer missed",
    vouch_for_a_node_out_of_sight: "a process starts after a moment that the writer missed",
    ask_only_once: "nodes",
    ask_nobody_who_began_in_doubt: (
        "who has just started, in a quarantine of others, goes on without a node"
    ),
    write_at_once_without_a_node: "the writer loses memcached",
    write_at_once_without_a_lame_node: "the node is lame for a moment",
    trust_a_node_that_is_reached: "the node is lame, and well before the writer",
    trust_a_node_whatever_its_silence: "the node is cut off",
    deny_what_is_owed: "the node is back before a fence is, which has missed a moment",
    forget_a_write_that_has_no_fence: (
        "the node is back before a fence is, which has missed a moment"
    ),
    ask_nobody: "the node is cut off, and the writer dies",
    take_anybodys_word: "the node is cut off, and the writer dies",
    distrust_a_silent_node_late: "a writer misses a moment in which the node lives",
    skip_the_quarantine: "the node is back before a write has ended",
    skip_the_disowning: "the node is cut off, and the writer dies",
    trust_every_node_from_the_start: "all die that knew of a write",
    reckon_with_no_strangers: "who began while the node was away writes, and is killed",
    have_a_stranger_wait_as_others_do: (
        "who began while the node was away misses a moment in which it lives"
    ),
    trust_at_the_start_what_nobody_vouches_for: (
        "who was alone began while the node was away, and the next starts"
    ),
    believe_what_was_said_before_a_node_was_trusted: (
        "an answer waits for another node while one is trusted again"
    ),
    overlook_that_a_node_lost_its_memory: "the node forgets a fence",
    take_each_memory_for_the_one_before: (
        "another memory answers at a node's address, and the first again"
    ),
    send_a_write_that_is_not_fenced: "consistency",
    hold_no_write_back: "a write waits for the windows of others",
    hold_a_write_back_too_shortly: "a write waits for the windows of others",
    hold_only_the_ok_back: "a write waits for the windows of others",
    open_windows_without_a_promise: "a write waits for the windows of others",
    send_at_once_what_joins_a_fence_that_waits: "two writes wait for windows side by side",
    leave_own_windows_open: "a write has windows in its own process",
    promise_nothing_for_a_new_log: "a log with a promise is made anew",
    let_a_bump_drop_promises: "a log with a promise is made anew",
    count_a_window_from_the_reply: "a reply is long on its way",
    let_any_lift_drop_promises: "windows open while a fence is lost",
    acknowledge_though_the_fence_was_lost: "windows open while a fence is lost",
    overlook_that_a_beat_is_on_its_way: "a beat comes just before the lift",
    lift_for_all_though_marks_may_come: "a mark and a lift come late",
    let_a_compaction_drop_promises: "read leases",
    let_an_undone_fence_drop_promises: "a fence is undone where others have promised",
    bump_and_wait_for_nobody: "read leases, fences are lost",
    overlook_that_a_beat_finds_no_fence: "a beat finds no fence",
    publish_though_a_beat_found_no_fence: "a beat finds no fence amid a write in two parts",
}
"""Each bug, and the case in which, or the profile with which, it is found."""
