"""Places for clients that several processes have in common."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import pytest

from sqlcache.process.seats import Seats

MANY = 3_000  # users, more than there are places to note them


@pytest.mark.parametrize("processes", [1, 3])
def test_no_more_are_taken_than_may_be(processes: int) -> None:
    seats = Seats(processes)
    each = [seats.of(number) for number in range(processes)]
    for number in range(5):
        assert each[number % processes].take(5)
    assert not any(one.take(5) for one in each)
    assert each[0].taken == 5
    each[0].leave()
    assert each[-1].take(5)
    assert not each[0].take(5)


@pytest.mark.parametrize("processes", [1, 3])
def test_users_are_counted_apart(processes: int) -> None:
    seats = Seats(processes)
    each = [seats.of(number) for number in range(processes)]
    for user in (b"a", b"b", b""):
        assert each[0].take_as(user, 2)
        assert each[-1].take_as(user, 2)
        assert not each[0].take_as(user, 2)
    each[-1].leave_as(b"a")
    assert each[0].take_as(b"a", 2)
    assert not each[-1].take_as(b"b", 2)


def test_what_a_process_had_is_free_again_when_it_has_gone() -> None:
    seats = Seats(2)
    here, there = seats.of(0), seats.of(1)
    assert [there.take(2), there.take(2), there.take_as(b"a", 1)] == [True] * 3
    assert not here.take(2)
    assert not here.take_as(b"a", 1)
    seats.of(1).clear()
    assert [here.take(2), here.take(2), here.take_as(b"a", 1)] == [True] * 3


def test_a_process_has_room_for_more_users_than_it_can_show_others() -> None:
    here, there = (Seats(2).of(number) for number in range(2))
    for number in range(MANY):
        assert here.take_as(b"%d" % number, 1)
        assert not here.take_as(b"%d" % number, 1), "its own are always counted"
    for number in range(MANY):
        here.leave_as(b"%d" % number)
    assert all(there.take_as(b"%d" % number, 1) for number in range(MANY)), "nothing is left behind"


def test_the_shares_of_all_processes_are_the_whole() -> None:
    seats = Seats(3)
    assert [seats.of(number).share_of(10) for number in range(3)] == [4, 3, 3]


def _take(seats: Seats, pipe: Connection) -> None:
    pipe.send([seats.take(2), seats.take_as(b"a", 1)])
    signal.pause()


def test_another_process_has_them_too_and_may_be_killed() -> None:
    context = multiprocessing.get_context("spawn")
    seats = Seats(2)
    ours, theirs = context.Pipe()
    process = context.Process(target=_take, args=(seats.of(1), theirs))
    process.start()
    assert ours.recv() == [True, True]
    here = seats.of(0)
    assert here.take(2)
    assert not here.take(2)
    assert not here.take_as(b"a", 1)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    seats.of(1).clear()
    assert here.take(2)
    assert here.take_as(b"a", 1)
