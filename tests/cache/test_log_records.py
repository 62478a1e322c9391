import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.cache import log_records
from sqlcache.cache.log_records import (
    ABSENT,
    EVERYONE,
    beat_record,
    commit_record,
    commits_in,
    compact,
    fence_record,
    found_standing,
    lift_record,
    log_record,
    marks_in,
    narrow_fence_record,
    narrow_lift_record,
    new_log,
    promise_record,
    read_log,
    slot_record,
    undo_record,
    version_record,
)
from sqlcache.cache.tags import ID_BYTES, SLOT_BYTES, Pin


def id_(number: int) -> bytes:
    return number.to_bytes(ID_BYTES, "big")


def slot_(number: int) -> bytes:
    return number.to_bytes(SLOT_BYTES, "big")


NEW_LOG = new_log(id_(99))


records = st.lists(
    st.builds(
        lambda make, fence, other: make(id_(fence), id_(other)),
        st.sampled_from(
            [
                *(fence_record, lift_record),
                *(lambda f, _: undo_record(f), lambda _, v: version_record(v)),
                lambda log, _: log_record(log),
                lambda p, _: promise_record(p),
                beat_record,
                lambda s, v: slot_record(s.rjust(SLOT_BYTES, b"s"), v),
                lambda f, b: narrow_fence_record(f, b, {slot_(1): frozenset({b[-4:]})}),
                lambda f, v: narrow_lift_record(f, v, [slot_(1)]),
            ]
        ),
        st.integers(1, 4),
        st.integers(10, 1000),
    ),
    max_size=12,
).map(b"".join)


def test_a_tag_without_a_log_has_no_version() -> None:
    assert read_log(b"") == ABSENT
    assert ABSENT.current is None


def test_a_fence_hides_the_version_until_it_is_lifted() -> None:
    log = version_record(id_(1)) + fence_record(id_(7), id_(8))
    assert read_log(log).current is None
    assert read_log(log + lift_record(id_(7), id_(2))).current == id_(2)
    assert read_log(log + undo_record(id_(7))).current == id_(1)


def test_the_end_of_one_write_does_not_lift_the_fence_of_another() -> None:
    both = fence_record(id_(7), id_(0)) + fence_record(id_(8), id_(0))
    log = version_record(id_(1)) + both + lift_record(id_(7), id_(2))
    assert read_log(log).current is None
    assert read_log(log + lift_record(id_(8), id_(3))).current == id_(3)


def test_a_renewed_fence_is_one_fence() -> None:
    log = fence_record(id_(7), id_(1)) + fence_record(id_(7), id_(2))
    assert read_log(log).fences == {id_(7): id_(2)}


def test_a_lift_that_is_made_twice_never_brings_back_a_version() -> None:
    log = fence_record(id_(7), id_(0)) + lift_record(id_(7), id_(1)) + version_record(id_(2))
    assert read_log(log + lift_record(id_(7), id_(3))).current == id_(3)


@given(records)
def test_a_compacted_log_says_the_same(log: bytes) -> None:
    assert read_log(compact(read_log(log))) == read_log(log)


@given(records, records)
def test_what_is_appended_to_a_compacted_log_means_the_same(log: bytes, more: bytes) -> None:
    assert read_log(compact(read_log(log)) + more) == read_log(log + more)


@given(st.lists(records))
def test_a_log_that_was_read_before_is_read_on(logs: list[bytes]) -> None:
    grown = [b"".join(logs[: at + 1]) for at in range(len(logs))]
    told = list(map(read_log, [*grown, *reversed(grown)]))
    anew = []
    for log in grown:
        log_records._read.clear()
        anew.append(read_log(log))
    assert told == [*anew, *reversed(anew)]


def test_a_promise_is_one_however_often_it_is_given() -> None:
    log = NEW_LOG + version_record(id_(1)) + promise_record(id_(5)) * 2 + promise_record(id_(6))
    state = read_log(log)
    assert state.promises == {EVERYONE, id_(5), id_(6)}
    assert state.current == id_(1), "a promise changes nothing else"
    assert state.but_for(id_(7)).promises == state.promises


def test_a_log_is_the_same_until_another_comes_in_its_place() -> None:
    fenced = NEW_LOG + version_record(id_(1)) + fence_record(id_(7), id_(0))
    logs = [NEW_LOG, fenced, fenced + lift_record(id_(7), id_(2)), compact(read_log(fenced))]
    assert {read_log(each).log for each in logs} == {id_(99)}
    assert read_log(fenced).but_for(id_(7)).log == id_(99)
    assert not read_log(b"").log


def test_promises_end_with_the_lift_of_a_fence_that_stands() -> None:
    log = NEW_LOG + version_record(id_(1)) + fence_record(id_(7), id_(0)) + promise_record(id_(5))
    assert read_log(log).but_for(id_(7)).promises == {EVERYONE, id_(5)}
    lifted = log + lift_record(id_(7), id_(2))
    assert not read_log(lifted).promises
    later = lifted + promise_record(id_(6))
    assert read_log(later + lift_record(id_(7), id_(3))).promises == {id_(6)}, "lifted twice"


@pytest.mark.parametrize(
    "record",
    [
        *(undo_record(id_(7)), version_record(id_(2)), fence_record(id_(8), id_(0))),
        lift_record(id_(8), id_(2)),
    ],
)
def test_promises_outlive_all_else(record: bytes) -> None:
    log = NEW_LOG + promise_record(id_(5)) + version_record(id_(1)) + fence_record(id_(7), id_(0))
    assert read_log(log + record).promises == {EVERYONE, id_(5)}


@pytest.mark.parametrize("given_by", [0, 1, 8, 9, 100])
@pytest.mark.parametrize("new", [False, True])
def test_in_a_compacted_log_many_promises_are_everyones(given_by: int, new: bool) -> None:
    promises = set(map(id_, range(1, given_by + 1))) | ({EVERYONE} if new else set())
    log = b"".join(map(promise_record, promises)) + version_record(id_(1))
    kept = read_log(compact(read_log(log))).promises
    assert kept == ({EVERYONE} if new or given_by > 8 else promises)


def test_promises_outlive_a_fence_that_lapses() -> None:
    """Nobody knows whether its write has waited for them."""
    state = read_log(promise_record(id_(5)) + fence_record(id_(7), id_(0)))
    shorter = compact(state, without=[id_(7)], version=id_(2))
    assert read_log(shorter).promises == {id_(5)}


@pytest.mark.parametrize("end", ["lift", "undo"])
def test_whether_a_fence_stood_at_its_end_is_told_by_the_log(end: str) -> None:
    ends = lift_record(id_(7), id_(2)) if end == "lift" else undo_record(id_(7))
    fence, other = fence_record(id_(7), id_(0)), fence_record(id_(8), id_(0))
    assert found_standing(NEW_LOG + fence + ends, id_(7))
    assert found_standing(compact(read_log(NEW_LOG + fence + other)) + ends, id_(7))
    assert not found_standing(NEW_LOG + ends, id_(7)), "the log was lost"
    assert not found_standing(NEW_LOG + other + ends, id_(7)), "that is another"
    assert not found_standing(NEW_LOG + ends + fence, id_(7)), "it came later"
    assert not found_standing(NEW_LOG + fence, id_(7)), "it stands still"
    assert not found_standing(b"", id_(7))


NAMED = (
    NEW_LOG
    + version_record(id_(1))
    + fence_record(id_(7), id_(0))
    + lift_record(id_(7), id_(2))
    + commit_record(id_(21))
    + commit_record(id_(22))
)


def test_commits_that_a_lift_names_are_told() -> None:
    assert commits_in(NAMED) == [id_(21), id_(22)]
    assert commits_in(NAMED + fence_record(id_(8), id_(0)) + undo_record(id_(8))) == [
        *(id_(21), id_(22))
    ], "an undone fence is none"
    assert commits_in(b"") == commits_in(NAMED[:-1]) == commits_in(NAMED + b"?") == []


@given(records, st.integers(10, 1000))
def test_who_does_not_know_of_commits_reads_the_log_as_ever(log: bytes, commit: int) -> None:
    assert read_log(log + commit_record(id_(commit))) == read_log(log)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 100])
def test_a_compacted_log_names_the_last_commits(count: int) -> None:
    log = version_record(id_(1)) + b"".join(commit_record(id_(each)) for each in range(count))
    shorter = compact(read_log(log), commits=commits_in(log))
    assert commits_in(shorter) == [id_(each) for each in range(count)][-8:]
    assert read_log(shorter) == read_log(log)
    again = compact(read_log(shorter), commits=commits_in(shorter))
    assert again == shorter


def test_a_log_without_a_version_names_no_commit() -> None:
    assert commits_in(compact(ABSENT, commits=[id_(21)])) == []


def test_a_lapsed_fence_leaves_a_fresh_version() -> None:
    state = read_log(version_record(id_(1)) + fence_record(id_(7), id_(0)))
    assert read_log(compact(state, without=[id_(7)], version=id_(2))).current == id_(2)
    with pytest.raises(AssertionError):
        compact(state, without=[id_(7)])


@pytest.mark.parametrize(
    "log",
    [
        *(b"?", b"V1234567", version_record(id_(1)) + b"F"),
        *(b"P", NEW_LOG[:-1], NEW_LOG + b"P123"),
        NEW_LOG + b"\0",
    ],
)
def test_what_is_no_log_is_refused(log: bytes) -> None:
    with pytest.raises(ValueError, match="no record at byte"):
        read_log(log)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_log_or_refused(log: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_log(log)


ONE, TWO = b"bkt1", b"bkt2"
IN_USE = version_record(id_(1)) + slot_record(slot_(11), id_(2)) + slot_record(slot_(12), id_(3))
NARROW = narrow_fence_record(id_(7), id_(0), {slot_(11): frozenset({ONE})})


def test_a_narrow_fence_covers_all_but_what_it_names() -> None:
    state = read_log(IN_USE + NARROW)
    assert state.current is None, "who pins nothing"
    assert state.covers(Pin(slot_(11), (ONE,)))
    assert not state.covers(Pin(slot_(11), (TWO,)))
    assert state.covers(Pin(slot_(12), (TWO,))), "a slot that is not named"
    assert not read_log(IN_USE).covers(Pin(slot_(11), (ONE,)))


def test_a_slot_that_is_not_named_is_new_after_a_lift() -> None:
    state = read_log(IN_USE + NARROW + narrow_lift_record(id_(7), id_(4), [slot_(11)]))
    assert state.version == id_(4)
    assert state.slots == {slot_(11): id_(2), slot_(12): id_(4)}


@pytest.mark.parametrize(
    "before",
    [
        b"",
        beat_record(id_(7), id_(5)),
        fence_record(id_(7), id_(5)),
        NARROW + fence_record(id_(7), id_(5)),
        NARROW + undo_record(id_(7)),
        NARROW + undo_record(id_(7)) + beat_record(id_(7), id_(5)),
        NARROW * 2,
    ],
)
def test_a_lift_whose_fence_does_not_stand_as_it_was_raised_renews_every_slot(
    before: bytes,
) -> None:
    state = read_log(IN_USE + before + narrow_lift_record(id_(7), id_(4), [slot_(11)]))
    assert set(state.slots.values()) == {id_(4)}


@pytest.mark.parametrize("end", [lift_record(id_(7), id_(4)), version_record(id_(4))])
def test_who_knows_of_no_slots_renews_all(end: bytes) -> None:
    assert set(read_log(IN_USE + NARROW + end).slots.values()) == {id_(4)}


def test_a_beat_keeps_a_narrow_fence_and_covers_all_where_there_is_none() -> None:
    pin = Pin(slot_(11), (TWO,))
    beat = beat_record(id_(7), id_(5))
    assert not read_log(IN_USE + NARROW + beat).covers(pin)
    assert read_log(IN_USE + NARROW + beat).fences == {id_(7): id_(5)}
    assert read_log(IN_USE + beat).covers(pin)


def test_a_lapse_renews_every_slot() -> None:
    state = read_log(IN_USE + NARROW)
    shorter = read_log(compact(state, without=[id_(7)], version=id_(4)))
    assert set(shorter.slots.values()) == {id_(4)}


def test_a_slot_that_is_in_use_keeps_its_version() -> None:
    assert read_log(IN_USE + slot_record(slot_(11), id_(9))).slots[slot_(11)] == id_(2)


def test_a_narrow_fence_is_seen_to_stand_like_any() -> None:
    lift = narrow_lift_record(id_(7), id_(4), [slot_(11)])
    assert found_standing(IN_USE + NARROW + lift, id_(7))
    assert not found_standing(IN_USE + lift, id_(7))
    marks = marks_in(IN_USE + NARROW + beat_record(id_(7), id_(5)) + fence_record(id_(8), id_(5)))
    assert marks == {id_(7): 2, id_(8): 1}


def test_promises_end_with_a_narrow_lift_too() -> None:
    lift = narrow_lift_record(id_(7), id_(4), [slot_(11)])
    assert not read_log(promise_record(id_(5)) + NARROW + lift).promises
    assert read_log(promise_record(id_(5)) + lift).promises
