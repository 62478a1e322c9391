"""Copies of answers that are to be stored, files that pass by, and clients that take nothing."""

import asyncio
import socket

import pytest

from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Command
from sqlcache.mysql.response import MOST_ENDS, ResponseTracker
from sqlcache.proxy import relay as module
from sqlcache.proxy.copies import ResponseCopy
from sqlcache.proxy.relay import Relay
from sqlcache.proxy.room import Room
from tests.fakes.scripted_channel import ScriptedChannel
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


def test_an_answer_that_many_are_sent_takes_room_once_until_the_last_has_it() -> None:
    room, one, other = Room(3 * MB), bytes(2 * MB), bytearray(2 * MB)
    assert all(room.take_for(one, 2 * MB) for _ in range(3))
    assert not room.take_for(other, 2 * MB)
    for _ in range(2):
        room.give_back_of(one, 2 * MB)
        assert not room.take_for(other, 2 * MB)
    room.give_back_of(one, 2 * MB)
    assert room.take_for(other, 2 * MB)


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


# --- files --------------------------------------------------------------------------------------

END = b"\0\0\0\x03"


def packets(*lengths: int) -> bytes:
    return b"".join(length.to_bytes(3, "little") + b"\x02" + bytes(length) for length in lengths)


async def passed(parts: list[bytes]) -> tuple[list[bytes], bytes, int]:
    """What MySQL is sent of these parts, what is left of them, and how many turns others had."""
    client, upstream = ScriptedChannel(parts[:1]), ScriptedChannel([])
    relay = Relay(client, upstream, Room(MB), Metrics())
    passing = asyncio.ensure_future(relay.pass_file())
    turns = 0
    while not passing.done():
        await asyncio.sleep(0)
        if turns + 1 < len(parts):
            client.data_received(parts[turns + 1])
        turns += 1
    await passing
    return upstream.written, client.buffered, turns


@pytest.mark.parametrize(
    "file",
    [
        packets(),
        packets(1),
        packets(7, 300, 1, 2),
        packets(70_000, 2),
        packets(MAX_PAYLOAD_BYTES, 0, 1),
    ],
    ids=["empty", "short", "several", "long", "of the longest packets"],
)
@pytest.mark.parametrize("step", [1, 3, 1_000, 1 << 30])
async def test_a_file_ends_with_an_empty_packet_however_it_is_cut(file: bytes, step: int) -> None:
    whole = file + END + b"next"
    step = max(step, len(whole) // 1_000)
    parts = [whole[at : at + step] for at in range(0, len(whole), step)]
    sent, left, _ = await passed(parts)
    assert b"".join(sent) == file + END
    assert b"next".startswith(left)


async def test_a_file_in_the_smallest_packets_leaves_others_their_turns() -> None:
    file = packets(*[1] * 100_000)
    sent, left, turns = await passed([file + END])
    assert b"".join(sent) == file + END
    assert not left
    assert len(sent) < 20
    assert turns >= 5


# --- answers of many statements -----------------------------------------------------------------


@pytest.mark.parametrize("hides_tracking", [False, True])
async def test_many_ends_at_once_leave_others_their_turns(hides_tracking: bool) -> None:
    answer = stream(*[ok(MORE)] * 20_000, ok())
    client, upstream = ScriptedChannel([]), ScriptedChannel([answer + b"next"])
    upstream.hides_tracking = hides_tracking
    relay = Relay(client, upstream, Room(MB), Metrics())
    ends, parts, turns = 0, list[bytes](), 0

    async def read() -> None:
        nonlocal ends
        tracker = ResponseTracker(Command.QUERY, OLD)
        while not tracker.done:
            parts.append(await relay.read(tracker))
            assert len(tracker.ends) <= MOST_ENDS
            ends += len(tracker.ends)

    reading = asyncio.ensure_future(read())
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    await reading
    assert b"".join(parts) == answer
    assert upstream.buffered == b"next"
    assert ends == 20_001
    assert turns > 20


# --- clients that take nothing ------------------------------------------------------------------


@pytest.mark.parametrize("reads", [False, True])
async def test_who_takes_nothing_is_cut_off_when_mysql_has_ended(
    monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """Also where it has ended behind what is not read before the client takes what came."""
    monkeypatch.setattr(module, "_UNREAD_S", 0.2)
    ours, clients = socket.socketpair()
    to_mysql, mysqls = socket.socketpair()
    client = Channel.over(ours, buffer_bytes=1 << 16)
    upstream = Channel.over(to_mysql, buffer_bytes=1 << 10)
    relay = Relay(client, upstream, Room(MB), Metrics())
    mysqls.send(bytes(1 << 11))
    while not upstream.buffered:
        await upstream.wait()
    client.write(bytes(8 * MB))
    assert client.congested
    waits = asyncio.ensure_future(relay.let_client_catch_up())
    await asyncio.wait([waits], timeout=1)
    assert not waits.done()
    assert not client.closed
    mysqls.send(b"last")
    clients.setblocking(False)
    taken = 0
    if reads:  # longer than any pause of this process, and shorter than it reads
        monkeypatch.setattr(module, "_UNREAD_S", 1)
    mysqls.close()
    assert not upstream.closed
    async with asyncio.timeout(20):
        while reads and not waits.done():
            taken += len(clients.recv(100_000))
            await asyncio.sleep(0.035)
        await waits
    assert client.closed is not reads
    assert taken >= 7 * MB * reads
    clients.close()
    client.abort()
    upstream.abort()
