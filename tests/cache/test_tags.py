import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.cache.tags import (
    ABSENT,
    ID_BYTES,
    ROOT,
    Tag,
    compact,
    fence_record,
    lift_record,
    read_log,
    read_tags,
    undo_record,
    version_record,
)
from sqlcache.sql.names import TableName


def id_(number: int) -> bytes:
    return number.to_bytes(ID_BYTES, "big")


records = st.lists(
    st.builds(
        lambda make, fence, other: make(id_(fence), id_(other)),
        st.sampled_from(
            [fence_record, lift_record, lambda f, _: undo_record(f), lambda _, v: version_record(v)]
        ),
        st.integers(1, 4),
        st.integers(10, 1000),
    ),
    max_size=12,
).map(b"".join)


def test_an_answer_hangs_on_its_tables_their_schemas_and_everything() -> None:
    tags = read_tags([TableName("shop", "orders"), TableName("shop", "lines")], ["archive"])
    assert tags == (
        ROOT,
        Tag("archive"),
        Tag("shop"),
        Tag("shop", "lines"),
        Tag("shop", "orders"),
    )


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


def test_a_lapsed_fence_leaves_a_fresh_version() -> None:
    state = read_log(version_record(id_(1)) + fence_record(id_(7), id_(0)))
    assert read_log(compact(state, without=[id_(7)], version=id_(2))).current == id_(2)
    with pytest.raises(AssertionError):
        compact(state, without=[id_(7)])


@pytest.mark.parametrize("log", [b"?", b"V1234567", version_record(id_(1)) + b"F"])
def test_what_is_no_log_is_refused(log: bytes) -> None:
    with pytest.raises(ValueError, match="no record at byte"):
        read_log(log)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_log_or_refused(log: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_log(log)
