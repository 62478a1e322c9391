"""Copies of answers that are to be stored."""

from sqlcache.proxy.relay import Kept, Room

MB = 1_000_000


def kept(size: int, room: Room) -> Kept:
    copy = Kept(16 * MB, room)
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
    long = Kept(MB, room)
    for _ in range(20):
        long.add(bytes(100_000))
    assert (long.fits, long.crowded) == (False, False)
    assert room.take(3 * MB)
