from __future__ import annotations

import pytest

from sqlcache.binlog.change import Change, Commit
from sqlcache.binlog.names import Names
from sqlcache.cache.keys import commit_id

READING = b"reading"


def named(names: Names, *commits: tuple[str, int] | None, server: int = 1) -> list[bytes | None]:
    """What changes by these commits are called."""
    changes = [Change(commit=commit and Commit(*commit, server)) for commit in commits]
    names.give(changes, READING)
    return [change.name for change in changes]


def test_a_commit_is_called_as_those_call_it_who_have_made_it() -> None:
    assert named(Names(1), ("uuid:", 5)) == [commit_id(READING, b"uuid:5")]
    assert named(Names(1), ("0-1-", 29)) == [commit_id(READING, b"0-1-29")]


def test_in_another_reading_it_is_called_otherwise() -> None:
    other = Change(commit=Commit("uuid:", 5, 1))
    Names(1).give([other], b"another")
    assert [other.name] != named(Names(1), ("uuid:", 5))


def test_without_a_gtid_or_a_reading_it_has_no_name() -> None:
    assert named(Names(1), None) == [None]
    change = Change(commit=Commit("uuid:", 5, 1))
    Names(1).give([change], b"")
    assert change.name is None


@pytest.mark.parametrize("again", [5, 4, 1])
def test_where_numbers_do_not_rise_nothing_of_that_source_has_a_name(again: int) -> None:
    names = Names(1)
    assert None not in named(names, ("0-1-", 5))
    assert named(names, ("0-1-", again), ("0-1-", 6), ("0-1-", 7)) == [None, None, None]
    assert None not in named(names, ("0-2-", 5), ("1-1-", 1), ("0-2-", 6))


def test_numbers_may_leave_some_out() -> None:
    assert None not in named(Names(1), ("0-1-", 5), ("0-1-", 9), ("0-1-", 1 << 63))


def test_sources_beyond_number_have_no_names() -> None:
    told = named(Names(1), *((f"{number}:", 1) for number in range(2_000)))
    assert None not in told[:1_000]
    assert set(told[1_000:]) == {None}


def test_what_was_made_on_another_server_has_no_name() -> None:
    names = Names(1)
    assert named(names, ("uuid:", 5), server=2) == [None]
    assert named(names, ("uuid:", 5)) == [None], "it does not rise"
    assert None not in named(names, ("uuid: ", 5))
