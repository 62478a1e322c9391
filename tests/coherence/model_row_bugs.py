"""The same for what is known of rows: each left out or turned round, see `model_bugs`."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import pytest

from sqlcache.cache import slots, tag_checks, tag_logs
from sqlcache.cache.engine import Engine
from sqlcache.cache.fence import Fence, SharedFence
from sqlcache.cache.fences import Fences
from sqlcache.cache.log_records import TagState, compact, narrow_lift_record, slot_record
from sqlcache.cache.marks import Marks
from sqlcache.cache.outcomes import FENCED, Outcome
from sqlcache.cache.reads import Read, Seen, TagSet
from sqlcache.cache.shared_fences import SharedFences
from sqlcache.cache.slots import KnownLog, Touched
from sqlcache.cache.tag_checks import TagChecks
from sqlcache.cache.tag_logs import TagLogs, fresh_id, state_of
from sqlcache.cache.tag_sets import TagSets
from sqlcache.cache.tags import ID_BYTES, Cover, Pin, Pins, Tag
from sqlcache.memcache.cluster import Cluster, Request
from sqlcache.memcache.protocol import Reply, meta_set
from tests.coherence import model_rows, model_sessions
from tests.coherence.model_rows import Probe, slot_of
from tests.coherence.model_world import DEADLINE_S, KEYSPACE

Bug = Callable[[pytest.MonkeyPatch], None]

_BOTH = (slot_of("i"), slot_of("k"))


def _tell_of_texts(
    patch: pytest.MonkeyPatch, told: Callable[[str, dict[str, frozenset[str]]], None]
) -> None:
    """Texts are read so."""
    right = model_rows.touched_by_text

    def touched(write: str) -> Mapping[str, frozenset[str]]:
        found = dict(right(write))
        told(write, found)
        return found

    patch.setattr(model_rows, "touched_by_text", touched)


def cover_but_the_new_value_of_what_moves(patch: pytest.MonkeyPatch) -> None:
    def new(write: str, found: dict[str, frozenset[str]]) -> None:
        if write.startswith("move k"):
            found["k"] -= {write[-2:]}

    _tell_of_texts(patch, new)


def cover_but_the_old_value_of_what_moves(patch: pytest.MonkeyPatch) -> None:
    def old(write: str, found: dict[str, frozenset[str]]) -> None:
        if write.startswith("move k"):
            found["k"] &= {write[-2:]}

    _tell_of_texts(patch, old)


def leave_who_reads_what_is_set(patch: pytest.MonkeyPatch) -> None:
    def left(write: str, found: dict[str, frozenset[str]]) -> None:
        found["u"] = frozenset()

    _tell_of_texts(patch, left)


def serve_what_has_no_buckets_amid_any_write(patch: pytest.MonkeyPatch) -> None:
    right = TagState.covers
    patch.setattr(TagState, "covers", lambda self, pin: bool(pin.buckets) and right(self, pin))


def touch_no_more_than_each_statement_tells(patch: pytest.MonkeyPatch) -> None:
    """Of each slot that any statement of a transaction names."""

    def both(one: Cover, other: Cover) -> Cover:
        none: frozenset[bytes] = frozenset()
        return {slot: one.get(slot, none) | other.get(slot, none) for slot in {*one, *other}}

    patch.setattr(slots, "both", both)


def touch_what_the_last_statement_tells(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slots, "both", lambda _, other: other)


def keep_what_no_row_keeps_from_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TagSets, "may_keep", lambda *_: True)


def keep_a_list_with_some_of_its_rows(patch: pytest.MonkeyPatch) -> None:
    right = TagSets.may_keep

    def may_keep(self: TagSets, read: Read, versions: bytes, rows: int) -> bool:
        return right(self, read, versions, 2 * rows)

    patch.setattr(TagSets, "may_keep", may_keep)


def serve_a_list_of_which_a_write_may_touch_a_part(patch: pytest.MonkeyPatch) -> None:
    right = TagState.covers

    def covers(self: TagState, pin: Pin) -> bool:
        return right(self, pin._replace(buckets=pin.buckets[:1]))

    patch.setattr(TagState, "covers", covers)


def forget_no_list_for_a_part_of_it(patch: pytest.MonkeyPatch) -> None:
    right = TagSet.pinned

    def pinned(self: TagSet, pins: Pins, buckets: Iterable[Request]) -> TagSet:
        return right(self, pins, [*buckets][:1])

    patch.setattr(TagSet, "pinned", pinned)


def heed_the_writes_to_one_table_alone(patch: pytest.MonkeyPatch) -> None:
    """Of those whose rows are read together."""
    right = TagChecks._read

    def read(self: TagChecks, tag_set: TagSet, logs: Sequence[Reply]) -> Seen | Outcome:
        if len(tag_set.pins) > 1:
            first, second, *others = logs
            quiet = compact(replace(state_of(second), fences={}, narrow={}))
            logs = [first, (second[0], quiet, second[2]), *others]
        return right(self, tag_set, logs)

    patch.setattr(TagChecks, "_read", read)


def hang_on_the_rows_of_one_table_alone(patch: pytest.MonkeyPatch) -> None:
    right = tag_checks._pinned_versions

    def versions_of(tag_set: TagSet, *args: Any) -> tuple[bytes, tuple[bytes, ...]]:
        versions, absent = right(tag_set, *args)
        parts = tag_set.parts(versions)
        if len(tag_set.pins) > 1 and parts:
            parts[0] = parts[0][:ID_BYTES]
        return b"".join(parts) or versions, absent

    patch.setattr(tag_checks, "_pinned_versions", versions_of)


def forget_the_rows_of_one_table_alone(patch: pytest.MonkeyPatch) -> None:
    """Of those that a transaction has written."""
    right = Marks.narrowed

    def narrowed(self: Marks, touches: Mapping[Tag, Cover], buckets: Iterable[bytes]) -> Marks:
        first = next(iter(touches.values()))
        return right(self, touches, [*buckets][: sum(map(len, first.values()))])

    patch.setattr(Marks, "narrowed", narrowed)


def keep_of_two_tables_what_no_row_keeps_from_others(patch: pytest.MonkeyPatch) -> None:
    right = TagSets.may_keep

    def may_keep(self: TagSets, read: Read, versions: bytes, rows: int) -> bool:
        return len(read.pinning) > 1 or right(self, read, versions, rows)

    patch.setattr(TagSets, "may_keep", may_keep)


def spare_what_nothing_was_forgotten_for(patch: pytest.MonkeyPatch) -> None:
    def lifting(self: Fence, tag: Tag) -> bytes:
        if tag not in self.touches:
            return self.lifting()
        return narrow_lift_record(self.id, fresh_id(), _BOTH)

    patch.setattr(Fence, "lifting_narrowly", lifting)


def forget_no_bucket(patch: pytest.MonkeyPatch) -> None:
    right = Marks.narrowed
    patch.setattr(Marks, "narrowed", lambda self, touches, _: right(self, touches, ()))


def lift_again_narrowly(patch: pytest.MonkeyPatch) -> None:
    """After a lost reply the lift alone is sent again."""
    right = Fence.lifting

    def lifting(self: Fence) -> bytes:
        if not self.touches or self.unheard:
            return right(self)
        return narrow_lift_record(self.id, fresh_id(), _BOTH)

    patch.setattr(Fence, "lifting", lifting)


def give_a_bucket_its_old_version(patch: pytest.MonkeyPatch) -> None:
    def give_buckets_soon(self: TagLogs, keys: Iterable[bytes]) -> None:
        adding = [(key, meta_set(key, b"bucket..", mode=b"E", ttl_s=0)) for key in keys]
        self._cluster.submit(adding, lambda _: None)

    patch.setattr(TagLogs, "give_buckets_soon", give_buckets_soon)


def give_a_slot_its_old_version(patch: pytest.MonkeyPatch) -> None:
    def use_slot_soon(self: TagLogs, tag: Tag, slot: bytes) -> None:
        self.append_soon([tag], slot_record(slot, slot[-ID_BYTES:]))

    patch.setattr(TagLogs, "use_slot_soon", use_slot_soon)


def let_a_lapse_spare_slots(patch: pytest.MonkeyPatch) -> None:
    def spare(state: TagState, **options: Any) -> bytes:
        slots = b"".join(slot_record(slot, own) for slot, own in state.slots.items())
        return compact(replace(state, slots={}), **options) + slots

    patch.setattr(tag_logs, "compact", spare)


def serve_what_a_write_may_touch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TagState, "covers", lambda *_: False)


def open_windows_amid_a_write_to_others(patch: pytest.MonkeyPatch) -> None:
    """What is seen then is taken for what is seen when nobody writes."""
    right = TagChecks._read

    def read(self: TagChecks, tag_set: TagSet, logs: Sequence[Reply]) -> Seen | Outcome:
        seen = right(self, tag_set, logs)
        if not isinstance(seen, Seen) or seen.whole is not None:
            return seen
        versions = [state_of(reply).version for reply in logs[: len(tag_set.tags)]]
        return seen._replace(unpromised=(), whole=b"".join(filter(None, versions)))

    patch.setattr(TagChecks, "_read", read)


def tell_of_a_row_by_its_table_whatever_that_was_then(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TagSet, "under", lambda self, _: self.seen and self.seen.versions)


def tell_of_a_row_by_its_table_amid_a_write(patch: pytest.MonkeyPatch) -> None:
    """Whatever rows that touches."""
    right = TagChecks._kept

    def kept(self: TagChecks, pinned: TagSet, said: Seen) -> Seen | Outcome | None:
        got = right(self, pinned, said)
        return pinned.seen if got is FENCED else got

    patch.setattr(TagChecks, "_kept", kept)


def miss_what_a_log_has_told(patch: pytest.MonkeyPatch) -> None:
    """A write that has begun and ended between two looks."""
    patch.setattr(Touched, "_touch", lambda self, covers, in_use, now: None)


def miss_what_a_log_does_not_name(patch: pytest.MonkeyPatch) -> None:
    """A write that was told which buckets it touches when it had begun."""
    right = Touched._touch

    def touch(self: Touched, covers: Iterable[Cover], in_use: Iterable[bytes], now: float) -> None:
        for cover in covers:
            right(self, [cover], cover, now)

    patch.setattr(Touched, "_touch", touch)


def ask_when_the_write_is_over(patch: pytest.MonkeyPatch) -> None:
    """Or just before: as it comes."""
    right = model_rows.probe_of

    def probe_of(statement: str) -> Probe | None:
        probe = right(statement)
        return None if probe is None else probe._replace(before=False)

    patch.setattr(model_rows, "probe_of", probe_of)


def be_told_of_before_the_fence(patch: pytest.MonkeyPatch) -> None:
    right = model_rows.probed
    patch.setattr(model_rows, "probed", lambda probe, _: right(probe, {0: 0, 1: 1}))


def _be_told(patch: pytest.MonkeyPatch, told: Callable[[Probe, Set[str]], Set[str]]) -> None:
    """What probes tell is taken so."""

    def touched(probe: Probe | None, found: model_rows.Told) -> Mapping[str, Set[str]]:
        if probe is None or probe not in found:
            return {}
        return {probe.column: told(probe, found[probe])}

    patch.setattr(model_rows, "touched_by_probe", touched)


def forget_what_rows_move_to_alone(patch: pytest.MonkeyPatch) -> None:
    _be_told(patch, lambda probe, found: {probe.given} if probe.given else found)


def forget_what_rows_move_from_alone(patch: pytest.MonkeyPatch) -> None:
    _be_told(patch, lambda _, found: found)


def be_narrow_in_a_new_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KnownLog, "is_that_since", lambda *_: True)


def be_told_in_a_new_log(patch: pytest.MonkeyPatch) -> None:
    be_narrow_in_a_new_log(patch)


def be_narrow_in_a_log_that_was_there_for_a_beat(patch: pytest.MonkeyPatch) -> None:
    right = KnownLog.is_that_since
    patch.setattr(
        KnownLog,
        "is_that_since",
        lambda self, log, time: right(self, log, time + DEADLINE_S - 1),
    )


def be_narrow_everywhere_if_one_log_is_known(patch: pytest.MonkeyPatch) -> None:
    right = Fence.narrow

    def narrow(self: Fence, tables: Set[Tag]) -> None:
        right(self, self._in_logs.touches.keys() if tables else tables)

    patch.setattr(Fence, "narrow", narrow)


def ask_for_numbers(patch: pytest.MonkeyPatch) -> None:
    """Though a row may come with one unseen."""
    patch.setitem(model_sessions._ASKED, model_sessions.PROBED, "ik")


def send_under_a_fence_that_may_have_lapsed(patch: pytest.MonkeyPatch) -> None:
    """Since it was raised the row was asked for."""
    patch.setattr(Engine, "still_stands", lambda *_: True)


def forget_nothing_of_what_is_told(patch: pytest.MonkeyPatch) -> None:
    right = Engine.narrow_further

    def narrow_further(
        self: Engine, fence: Fence, marks: Marks, found: Mapping[Tag, Cover]
    ) -> None:
        given, forgetting = marks.given, marks.forgetting
        right(self, fence, marks, found)
        marks.given, marks.forgetting = given, forgetting

    patch.setattr(Engine, "narrow_further", narrow_further)


def miss_what_a_log_tells_no_more(patch: pytest.MonkeyPatch) -> None:
    """It was compacted since."""

    def forget(self: Touched) -> None:
        self._at.clear()

    patch.setattr(Touched, "_forget", forget)


def leave_a_window_open_whatever_is_seen(patch: pytest.MonkeyPatch) -> None:
    def saw(self: TagChecks, tag_set: TagSet, seen: Seen) -> None:
        tag_set.seen = seen

    patch.setattr(TagChecks, "_saw", saw)


def _in_another_order(patch: pytest.MonkeyPatch, place: Callable[[Request], int]) -> None:
    """A node is asked in another order."""
    right = Cluster.submit

    def submit(
        self: Cluster,
        requests: Sequence[Request],
        done: Callable[[list[Reply | None]], None],
        *,
        for_life: bool = False,
    ) -> None:
        order = sorted(range(len(requests)), key=lambda at: place(requests[at]))

        def answered(replies: list[Reply | None]) -> None:
            places = dict(zip(order, replies, strict=True))
            done([places[at] for at in range(len(requests))])

        right(self, [requests[at] for at in order], answered, for_life=for_life)

    patch.setattr(Cluster, "submit", submit)


def share_a_fence_that_covers_the_first_writes_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Marks, "any_rows", property(lambda self: self.touches))


def forget_the_rows_of_the_last_write_alone(patch: pytest.MonkeyPatch) -> None:
    right = SharedFence.touches

    def touches(self: SharedFence, marks: Marks) -> None:
        self.forgetting = ()
        right(self, marks)

    patch.setattr(SharedFence, "touches", touches)


def spare_what_a_write_that_shares_a_fence_does_not_tell(patch: pytest.MonkeyPatch) -> None:
    right = SharedFence.touches

    def touches(self: SharedFence, marks: Marks) -> None:
        if marks.touches:
            right(self, marks)

    patch.setattr(SharedFence, "touches", touches)


def lift_what_stays_though_a_beat_put_it_up_anew(patch: pytest.MonkeyPatch) -> None:
    right_end, right = SharedFences._end_lingering, Fences.may_be_raised_anew
    ending: list[Fence] = []

    def end_lingering(self: SharedFences, fence: Fence) -> None:
        ending.append(fence)
        right_end(self, fence)
        ending.pop()

    def may_be_raised_anew(self: Fences, fence: Fence) -> bool:
        return not ending and right(self, fence)

    patch.setattr(SharedFences, "_end_lingering", end_lingering)
    patch.setattr(Fences, "may_be_raised_anew", may_be_raised_anew)


def fill_without_a_second_look_at_the_table(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TagChecks, "_not_since", lambda *_: None)


def lift_before_the_buckets(patch: pytest.MonkeyPatch) -> None:
    _in_another_order(patch, lambda request: b" MR" in request[1])


def look_at_the_bucket_before_the_table(patch: pytest.MonkeyPatch) -> None:
    _in_another_order(patch, lambda request: not request[0].startswith(f"{KEYSPACE}:k".encode()))


ROW_BUGS: dict[Bug, str] = {
    cover_but_the_new_value_of_what_moves: (
        "rows move, and are read where they come from and go to"
    ),
    cover_but_the_old_value_of_what_moves: (
        "rows move, and are read where they come from and go to"
    ),
    leave_who_reads_what_is_set: "a column is written, and read by some",
    serve_what_has_no_buckets_amid_any_write: "a column is written, and read by some",
    touch_no_more_than_each_statement_tells: "a transaction writes rows by different columns",
    touch_what_the_last_statement_tells: "a transaction writes rows by different columns",
    keep_what_no_row_keeps_from_others: "a row comes that the server numbers",
    keep_a_list_with_some_of_its_rows: "a row comes that the server numbers",
    serve_a_list_of_which_a_write_may_touch_a_part: "a row of a list is written",
    forget_no_list_for_a_part_of_it: "a row of a list is written",
    heed_the_writes_to_one_table_alone: "rows of two tables are written at once",
    hang_on_the_rows_of_one_table_alone: "rows of two tables are read together",
    forget_the_rows_of_one_table_alone: "rows of two tables are written at once",
    keep_of_two_tables_what_no_row_keeps_from_others: (
        "a row comes that the server numbers, and is read with others"
    ),
    spare_what_nothing_was_forgotten_for: "a row moves to where its text does not tell",
    share_a_fence_that_covers_the_first_writes_rows: "writes of rows share a fence",
    forget_the_rows_of_the_last_write_alone: "writes of rows share a fence",
    spare_what_a_write_that_shares_a_fence_does_not_tell: (
        "a write that tells no rows shares a fence with one that does"
    ),
    forget_no_bucket: "rows move, and are read where they come from and go to",
    lift_again_narrowly: "the end of a write of rows is lost",
    give_a_bucket_its_old_version: "a row is written amid a fault",
    give_a_slot_its_old_version: "a slot comes back",
    let_a_lapse_spare_slots: "a row is written amid a fault",
    serve_what_a_write_may_touch: "a row is written, and others are read",
    open_windows_amid_a_write_to_others: "rows, read leases",
    tell_of_a_row_by_its_table_whatever_that_was_then: "a row is written that is near",
    tell_of_a_row_by_its_table_amid_a_write: "a table is written whose rows are near",
    miss_what_a_log_has_told: "a row is written that is near",
    miss_what_a_log_does_not_name: "a row moves, and is near where it comes from",
    ask_when_the_write_is_over: "a row moves from where its text does not tell",
    be_told_of_before_the_fence: "rows are written by a column, and others move there",
    forget_what_rows_move_to_alone: "a row moves from where its text does not tell",
    forget_what_rows_move_from_alone: "a row moves from where its text does not tell",
    be_narrow_in_a_new_log: "a row is written amid its move, whose fence is lost",
    be_told_in_a_new_log: "a row moves amid the move of another, whose fence is lost",
    be_narrow_in_a_log_that_was_there_for_a_beat: (
        "a row is written amid its move, whose process stands still"
    ),
    be_narrow_everywhere_if_one_log_is_known: (
        "rows of two tables are written, and the log of one is new"
    ),
    ask_for_numbers: "rows are written by a column, and one comes that the server numbers",
    send_under_a_fence_that_may_have_lapsed: (
        "a row moves, and its process stood still when it had asked"
    ),
    forget_nothing_of_what_is_told: "a row moves from where its text does not tell",
    miss_what_a_log_tells_no_more: "a row is written that is near, and the log anew",
    leave_a_window_open_whatever_is_seen: "an answer about rows waits for another node",
    lift_what_stays_though_a_beat_put_it_up_anew: (
        "a fence that rows share stays, and a beat puts it up anew"
    ),
    fill_without_a_second_look_at_the_table: (
        "a row moves when a bucket is looked at, and its table was"
    ),
    lift_before_the_buckets: "a write of rows ends, request by request",
    look_at_the_bucket_before_the_table: "a write of rows ends, request by request",
}
"""Each bug, and the case in which, or the profile with which, it is found."""
