"""Copies of answers that are to be stored."""

import pytest

from sqlcache.mysql.constants import Command
from sqlcache.mysql.response import ResponseTracker
from sqlcache.proxy.relay import ResponseCopy, Room
from tests.mysql.test_response import MORE, OLD, ok, result_set, stream

MB = 1_000_000


def kept(size: int, room: Room) -> ResponseCopy:
    copy = ResponseCopy(16 * MB, room)
    for _ in range(0, size, 10_000):
        copy.add(bytes(10_000))
    return copy


def test_copies_of_answers_have_room_together() -> None:
    room = Room(3 * MB)
    copies = [kept(MB, room) for _ in range(4)]
    assert [copy.fits for copy in copies] == [True, True, True, False]
    assert copies[3].crowded
    copies[0].give_back()
    assert kept(MB, room).fits


def test_who_takes_all_the_room_takes_none_from_short_answers() -> None:
    room = Room(0)
    assert kept(50_000, room).fits
    assert not kept(100_000, room).fits


def test_what_is_too_long_gives_its_room_back() -> None:
    room = Room(3 * MB)
    long = ResponseCopy(MB, room)
    for _ in range(20):
        long.add(bytes(100_000))
    assert (long.fits, long.crowded) == (False, False)
    assert room.take(3 * MB)


ONE = stream(*result_set(OLD, b"\x01a\x01b"))
SEVERAL = stream(*result_set(OLD, b"\x01a\x01b", status=MORE), ok())


@pytest.mark.parametrize(
    ("answer", "storable"), [(ONE, True), (SEVERAL, False)], ids=["one", "several"]
)
def test_what_is_stored_is_one_answer_however_it_is_cut(answer: bytes, storable: bool) -> None:
    for cut in range(1, len(answer)):
        copy = ResponseCopy(MB, Room(MB))
        tracker = ResponseTracker(Command.QUERY, OLD)
        for chunk in (answer[:cut], answer[cut:]):
            tracker.feed(chunk)
            copy.add(chunk)
        assert tracker.done
        assert copy.storable(tracker) is storable
        assert (copy.entry(b"", tracker) is not None) is storable
