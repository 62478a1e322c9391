"""What was read by definitions that are later than it, and until when that counts."""

import pytest

from sqlcache.binlog.change import Place
from sqlcache.binlog.hindsight import Hindsight, Stamp

FIRST, SECOND = (1, 1), (2, 1)
S = frozenset({"s"})


def place(at: int) -> Place:
    return "binlog.000001", at


def looked(hindsight: Hindsight, stamp: Stamp, at: int) -> None:
    hindsight.ended(hindsight.look(stamp), place(at))


@pytest.fixture
def sure() -> Hindsight:
    """One that has read all, by the first definitions."""
    hindsight = Hindsight()
    hindsight.reached(place(100))
    looked(hindsight, FIRST, 100)
    return hindsight


def is_late(hindsight: Hindsight, schemas: frozenset[str] = S, *, keys: bool = False) -> bool:
    return hindsight.late(schemas, keys_cross_schemas=keys)


def test_what_is_read_by_the_definitions_of_its_time_is_never_misread(sure: Hindsight) -> None:
    assert sure.is_sure(FIRST)
    sure.read(FIRST, S)
    assert not is_late(sure)


def test_what_is_read_by_others_may_be_where_they_decide_what_it_does(sure: Hindsight) -> None:
    assert not sure.is_sure(SECOND)
    sure.read(SECOND, S)
    assert is_late(sure)
    assert not is_late(sure, frozenset({"other"}))
    assert not is_late(sure, frozenset()), "it defines nothing"
    assert is_late(sure, frozenset({"other"}), keys=True), "they are defined where they lead to"


def test_rows_may_be_misread_by_keys_alone(sure: Hindsight) -> None:
    sure.read(SECOND)
    assert not is_late(sure)
    assert is_late(sure, keys=True)


def test_it_counts_until_the_log_is_read_to_where_it_ended_later(sure: Hindsight) -> None:
    before = sure.look(FIRST)
    sure.read(SECOND, S)
    sure.ended(before, place(100))
    assert is_late(sure), "the log may have gone on since"
    for at in (200, 300):
        looked(sure, SECOND, at)
    sure.reached(place(299))
    assert is_late(sure)
    sure.reached(place(300))
    assert not is_late(sure)
    assert sure.is_sure(SECOND)


def test_at_a_beginning_nothing_is_known_of_the_time(sure: Hindsight) -> None:
    sure.begin_connection()
    sure.read(FIRST, S)
    assert is_late(sure)
    sure.forgotten()
    assert not is_late(sure)


def test_of_very_many_schemas_it_is_any(sure: Hindsight, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlcache.binlog.hindsight._MOST_SCHEMAS", 2)
    sure.read(SECOND, ["a", "b", "c"])
    assert is_late(sure, frozenset({"other"}))
