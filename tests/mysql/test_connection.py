"""A channel's end, and what it sends ahead of what is written."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import ConnectionLost
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import packet
from sqlcache.mysql.scan import with_number
from sqlcache.mysql.tls import Tls
from sqlcache.mysql.transport import SocketTransport
from tests.certificates import Certificate, self_signed
from tests.costs import costs_at_most
from tests.turns import counted_turns

LONG = b"x" * 16_000_000  # more than the kernel takes
OK = b"\x07\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"
SLOW_OK = b"\x07\x00\x00\x01\x00\x00\x00\x02\x08\x00\x00"
OTHERS = {
    "another state": b"\x07\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00",
    "a warning": b"\x07\x00\x00\x01\x00\x00\x00\x02\x00\x01\x00",
    "an error": b"\x09\x00\x00\x01\xff\x15\x04#28000",
    "nothing but its kind": b"\x01\x00\x00\x01\x00",
    "something longer": b"\x08\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00",
    "a length that never comes": b"\xff\xff\xff\x01\x00\x00\x00\x02\x00\x00\x00",
}
# A column, and a row that looks like an OK; with an EOF behind each, or with an OK behind both.
_COLUMN = b"\x01\x00\x00\x01\x01\x03\x00\x00\x02def"
_ROW = b"\x07\x00\x00\x04\x00\x00\x00\x02\x00\x00\x00"
ROWS = {
    "EOF": _COLUMN + b"\5\0\0\3\xfe\0\0\2\0" + _ROW + b"\5\0\0\5\xfe\0\0\2\0",
    "OK": _COLUMN + _ROW + b"\7\0\0\5\xfe\0\0\2\0\0\0",
}
SLOW_ROWS = {
    "EOF": ROWS["EOF"][:-1] + b"\x08",
    "OK": ROWS["OK"][:-3] + b"\x08\0\0",
}
PREPARE = packet(0, bytes((Command.STMT_PREPARE,)) + b"SELECT a, b FROM t WHERE a = ?")
_EOF = b"\x05\0\0\x07\xfe\0\0\2\0"
_PARAMETER, _COLUMNS = packet(2, b"?"), [packet(4, b"a"), packet(5, b"another column")]


def prepared(number: int, columns: int, *, end: bytes, parameters: int = 1) -> bytes:
    """The answer to a COM_STMT_PREPARE; `end` is behind each kind of definitions."""
    first = b"\0" + number.to_bytes(4, "little") + bytes((columns, 0, parameters, 0, 0, 0, 0))
    told = packet(1, first) + _PARAMETER * parameters + end * bool(parameters)
    return told + b"".join(_COLUMNS[:columns]) + end * bool(columns)


@pytest.mark.parametrize("reads", [True, False])
async def test_a_peer_gets_the_last_bytes_if_it_takes_them_in_time(reads: bool) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel.over(ours, buffer_bytes=1 << 16)
    reader, writer = await asyncio.open_connection(sock=theirs)
    channel.write(LONG)
    channel.close()
    assert not channel.closed
    if reads:
        taken = asyncio.ensure_future(reader.readexactly(len(LONG)))
        await channel.gone(10)
        assert await taken == LONG
    else:
        await channel.gone(0.05)
    await channel.gone(10)
    for _ in range(3):
        await asyncio.sleep(0)
    assert channel.closed
    writer.close()


async def test_a_peer_that_says_nothing_more_has_ended_though_it_takes_nothing() -> None:
    """What was written before it gets all the same, when it takes it."""
    ours, theirs = socket.socketpair()
    channel = Channel.over(ours, buffer_bytes=1 << 16)
    channel.write(LONG)
    theirs.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(20):
        while not channel.closed:
            await channel.wait()
    assert await channel.drain()
    assert channel.unsent_bytes
    reader, writer = await asyncio.open_connection(sock=theirs)
    taken = asyncio.ensure_future(reader.read())
    await channel.gone(20)
    assert await taken == LONG
    writer.close()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return self_signed(tmp_path_factory.mktemp("own"), "own")


@pytest.fixture(scope="module")
def contexts(own: Certificate) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's, and that of a client which trusts anybody."""
    serves = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serves.load_cert_chain(own.certificate, own.key)
    asks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asks.check_hostname, asks.verify_mode = False, ssl.CERT_NONE
    return serves, asks


async def test_so_has_one_that_says_so_by_tls(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    serves, asks = contexts
    ours, theirs = socket.socketpair()
    channel = Channel.over(ours, buffer_bytes=1 << 16)
    greets = asyncio.to_thread(asks.wrap_socket, theirs)
    _, peer = await asyncio.gather(channel.start_tls(serves, server_side=True), greets)
    channel.write(LONG)
    peer.setblocking(False)
    with suppress(ssl.SSLError):  # what comes is no answer to it
        peer.unwrap()
    async with asyncio.timeout(20):
        while not channel.closed:
            await channel.wait()
    assert channel.unsent_bytes
    await channel.gone(0.05)
    peer.close()


SHORT = bytes(range(256)) * 16
"""What a peer says in records of a byte each."""


@pytest.fixture
def peer() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, which holds all that."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


async def in_short_records(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], channel: Channel, theirs: socket.socket
) -> bytes:
    """That, from a peer that has greeted the channel."""
    serves, asks = contexts
    loop, client = asyncio.get_running_loop(), Tls(asks, False, None)
    greets = asyncio.ensure_future(channel.start_tls(serves, server_side=True))
    client.decrypt()
    while not greets.done():
        await loop.sock_sendall(theirs, client.pending_output())
        if not client.established:
            client.decrypt(await loop.sock_recv(theirs, 1 << 16))
        await asyncio.sleep(0)
    return b"".join(client.encrypt(SHORT[at : at + 1]) for at in range(len(SHORT)))


async def test_others_have_turns_while_many_tls_records_are_decrypted(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], peer: tuple[socket.socket, socket.socket]
) -> None:
    channel = Channel.over(peer[0], buffer_bytes=1 << 20)
    sent = await in_short_records(contexts, channel, peer[1])
    assert peer[1].send(sent) == len(sent)
    with counted_turns() as turns:
        assert await channel.peek(len(SHORT)) == SHORT
    assert turns.count >= len(SHORT) // 256
    channel.abort()


async def test_no_more_of_them_is_decrypted_than_the_buffer_holds(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], peer: tuple[socket.socket, socket.socket]
) -> None:
    """Nor is it noticed before the rest was taken that the peer has gone."""
    channel = Channel.over(peer[0], buffer_bytes=200)
    sent = await in_short_records(contexts, channel, peer[1])
    assert peer[1].send(sent) == len(sent)
    peer[1].close()
    heard = b""
    for at_most in (10, 100, 200, 1_000, 1):
        for _ in range(50):
            await asyncio.sleep(0)
        assert 200 <= channel.buffered_bytes < 300
        assert not channel.closed
        heard += await channel.read(at_most)
    with suppress(ConnectionLost):
        while True:
            heard += await channel.read()
    assert channel.closed
    assert heard == SHORT


async def test_nothing_of_them_comes_after_the_channel_was_closed(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], peer: tuple[socket.socket, socket.socket]
) -> None:
    channel = Channel.over(peer[0], buffer_bytes=1 << 20)
    sent = await in_short_records(contexts, channel, peer[1])
    peer[1].send(sent)
    while not channel.buffered_bytes:
        await asyncio.sleep(0)
    channel.close()
    here = channel.buffered_bytes
    while not channel.closed:
        await channel.wait()
    await asyncio.sleep(0.01)
    assert channel.buffered_bytes == here < len(SHORT)


async def test_what_fails_at_one_of_them_ends_the_connection(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], peer: tuple[socket.socket, socket.socket]
) -> None:
    channel = Channel.over(peer[0], buffer_bytes=1 << 20)
    sent = await in_short_records(contexts, channel, peer[1])
    raised, unhandled = ValueError("a fault"), list[object]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(context["exception"]))
    heard = list[bytes]()

    def fails(data: bytes) -> bool:
        heard.append(data)
        if len(heard) == 2:
            raise raised
        return True

    channel.intercept = fails
    peer[1].send(sent)
    async with asyncio.timeout(20):
        while not channel.closed:
            await channel.wait()
    assert (b"".join(heard), unhandled) == (SHORT[:128], [raised])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("comes"), st.integers(1, 9)),
            st.tuples(st.sampled_from(["take", "head", "unread"]), st.integers(0, 12)),
            st.tuples(st.just("all"), st.just(0)),
        )
    )
)
def test_what_arrives_is_taken_in_order_whatever_its_pieces(steps: list[tuple[str, int]]) -> None:
    channel, waits, said = Channel(buffer_bytes=1 << 16), b"", 0
    for step, size in steps:
        match step:
            case "comes":
                data = bytes((said + at) & 0xFF for at in range(size))
                said += size
                channel.data_received(data)
                waits += data
            case "take":
                size = min(size, len(waits))
                assert channel.take(size) == waits[:size]
                waits = waits[size:]
            case "head":
                assert channel.head(size) == waits[:size]
            case "unread":
                size = min(size, len(waits))
                channel.unread(channel.take(size))
            case _:
                assert channel.buffered == waits
        assert (channel.buffered_bytes, channel.has_some) == (len(waits), bool(waits))
    assert channel.buffered == waits


def comes_in_pieces(data: bytes) -> None:
    """One long command, of which little comes at once."""
    channel = Channel(buffer_bytes=1 << 10)
    for at in range(0, len(data), 16):
        assert channel.buffered_bytes == at
        channel.data_received(data[at : at + 16])
    assert channel.take(len(data)) == data


def is_taken_in_pieces(data: bytes) -> None:
    """Many commands, which come at once."""
    channel = Channel(buffer_bytes=1 << 10)
    channel.data_received(data)
    while channel.has_some:
        channel.head(5)
        channel.take(min(5, channel.buffered_bytes))


def is_taken_while_more_comes(data: bytes) -> None:
    """Many commands of which one is always waiting, and half of another."""
    channel = Channel(buffer_bytes=1 << 10)
    channel.data_received(data)
    for at in range(0, len(data), 6):
        channel.data_received(data[at : at + 6])
        channel.head(5)
        channel.take(6)


@pytest.mark.parametrize("way", [comes_in_pieces, is_taken_in_pieces, is_taken_while_more_comes])
def test_what_a_byte_costs_does_not_grow_with_how_many_wait(way: Callable[[bytes], None]) -> None:
    some, more = bytes(100_000), bytes(400_000)
    assert costs_at_most(8, lambda: way(more), lambda: way(some))


class Wire(SocketTransport):
    """Keeps what is written."""

    def __init__(self, channel: Channel) -> None:
        self.written: list[bytes] = []
        self.aborted = False
        self._channel = channel

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes | memoryview) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True
        self._channel.connection_lost(None)


@pytest.fixture
def channel() -> Channel:
    return Channel(buffer_bytes=1 << 16)


@pytest.fixture
def wire(channel: Channel) -> Wire:
    wire = Wire(channel)
    channel.connection_made(wire)
    return wire


def test_what_may_wait_goes_with_what_is_written_next(channel: Channel, wire: Wire) -> None:
    channel.write_ahead(b"first", OK)
    channel.write_ahead(b"second", OK)
    assert (wire.written, channel.ahead) == ([], 2)
    channel.write(b"third")
    channel.write(b"fourth")
    assert (wire.written, channel.ahead) == ([b"firstsecondthird", b"fourth"], 0)


def test_what_was_told_ahead_is_unsettled_until_it_is_answered(
    channel: Channel, wire: Wire
) -> None:
    channel.write_ahead(b"first", OK)
    channel.write_ahead(b"second", ROWS["OK"])
    channel.prepare_ahead(PREPARE, prepared(1, 1, end=b""), lambda _: None)
    assert (channel.ahead, channel.unsettled) == (2, 2)
    channel.write(b"which has no answer")
    assert (channel.ahead, channel.unsettled) == (0, 2)
    channel.write_ahead(b"third", OK)
    assert (channel.ahead, channel.unsettled) == (1, 3)
    for answer, left in ((OK, 2), (ROWS["OK"], 1), (prepared(1, 1, end=b""), 1)):
        channel.data_received(answer)
        assert channel.unsettled == left


def test_what_has_no_answer_may_wait_as_well(channel: Channel, wire: Wire) -> None:
    channel.write_ahead(b"first")
    assert (wire.written, channel.holds_back, channel.ahead) == ([], True, 0)
    channel.write_ahead(b"second", OK)
    assert channel.ahead == 1
    channel.write(b"third")
    assert (wire.written, channel.holds_back) == ([b"firstsecondthird"], False)
    channel.data_received(OK + b"answer")
    assert channel.buffered == b"answer"
    channel.write_ahead(b"fourth")
    channel.drop_ahead()
    channel.write(b"last")
    assert wire.written[1:] == [b"last"]


@pytest.mark.parametrize("size", [1, 3, 4, 11, 12, 15, 22, 24, 100])
def test_answers_that_were_foretold_are_taken_however_they_come(
    channel: Channel, wire: Wire, size: int
) -> None:
    for text in (b"first", b"second"):
        channel.write_ahead(text, OK)
    channel.write(b"third")
    came = SLOW_OK + OK + b"answer"
    for at in range(0, len(came), size):
        channel.data_received(came[at : at + size])
    assert channel.buffered == b"answer"
    channel.data_received(OK)
    assert channel.buffered == b"answer" + OK
    assert not wire.aborted


@pytest.mark.parametrize("size", [1, 5, 7, 13, 100])
@pytest.mark.parametrize("form", ROWS)
def test_rows_that_were_foretold_are_taken_however_they_come(
    channel: Channel, wire: Wire, form: str, size: int
) -> None:
    for answer in (ROWS[form], OK, ROWS[form]):
        channel.write_ahead(b"ahead", answer)
    channel.write(b"next")
    came = SLOW_ROWS[form] + OK + ROWS[form] + b"answer"
    for at in range(0, len(came), size):
        channel.data_received(came[at : at + size])
    assert (channel.buffered, wire.aborted) == (b"answer", False)


@pytest.mark.parametrize("size", [1, 3, 4, 11, 12, 15, 22, 24, 100])
def test_what_is_told_of_the_session_is_no_other_answer_where_it_is_not_passed_on(
    channel: Channel, wire: Wire, size: int
) -> None:
    told = packet(OK[3], OK[4:7] + b"\x02\x40\0\0\0\x04\x01\x02\x01d")
    channel.hides_tracking = True
    for text in (b"first", b"second"):
        channel.write_ahead(text, OK)
    channel.write(b"third")
    came = told + OK + b"answer"
    for at in range(0, len(came), size):
        channel.data_received(came[at : at + size])
    assert (channel.buffered, wire.aborted) == (b"answer", False)
    channel.hides_tracking = False
    channel.write_ahead(b"fourth", OK)
    channel.write(b"fifth")
    channel.data_received(told)
    assert wire.aborted


def test_more_than_can_be_told_of_the_session_is_another_answer(
    channel: Channel, wire: Wire
) -> None:
    channel.hides_tracking = True
    channel.write_ahead(b"first", OK)
    channel.write(b"second")
    channel.data_received(b"\xff\xff\xff" + OK[3:])
    assert wire.aborted


@pytest.mark.parametrize("form", ROWS)
def test_other_rows_end_the_connection(form: str) -> None:
    """Whichever byte of theirs is another, also where in an OK that would say how it went."""
    for at in range(len(ROWS[form])):
        for other in (0x01, 0x08):
            came = bytearray(ROWS[form])
            came[at] ^= other
            channel = Channel(buffer_bytes=1 << 16)
            wire = Wire(channel)
            channel.connection_made(wire)
            channel.write_ahead(b"ahead", ROWS[form])
            channel.write(b"next")
            channel.data_received(bytes(came) + ROWS[form])
            assert wire.aborted == (bytes(came) != SLOW_ROWS[form])


@pytest.mark.parametrize("hides_tracking", [False, True])
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_any_other_answer_ends_the_connection(
    channel: Channel, wire: Wire, other: bytes, hides_tracking: bool
) -> None:
    channel.hides_tracking = hides_tracking
    channel.write_ahead(b"first", OK)
    channel.write(b"second")
    channel.data_received(other)
    assert wire.aborted
    assert channel.closed
    assert channel.odd_answer == other
    assert channel.buffered == b""


async def test_they_can_be_waited_for(channel: Channel, wire: Wire) -> None:
    await channel.settle()
    channel.write_ahead(b"first", OK)
    channel.write_ahead(b"second", OK)
    settled = asyncio.ensure_future(channel.settle())
    for came in (OK, OK[:5], OK[5:]):
        await asyncio.sleep(0)
        assert not settled.done()
        channel.data_received(came)
    await settled
    assert (b"".join(wire.written), channel.buffered) == (b"firstsecond", b"")


async def test_they_are_not_waited_for_longer_than_the_connection_stands(
    channel: Channel, wire: Wire
) -> None:
    channel.write_ahead(b"first", OK)
    settled = asyncio.ensure_future(channel.settle())
    await asyncio.sleep(0)
    wire.abort()
    with pytest.raises(ConnectionLost):
        await settled


def test_who_intercepts_sees_nothing_of_them(channel: Channel, wire: Wire) -> None:
    seen: list[bytes] = []

    def take(data: bytes) -> bool:
        seen.append(data)
        return True

    channel.intercept = take
    channel.write_ahead(b"first", OK)
    channel.write(b"second")
    channel.data_received(OK)
    channel.data_received(b"answer")
    assert seen == [b"answer"]
    assert wire.written == [b"firstsecond"]


@pytest.mark.parametrize("size", [1, 5, 7, 16, 30, 100])
@pytest.mark.parametrize("end", [b"", _EOF], ids=["new", "old"])
@pytest.mark.parametrize(("told", "columns"), [(2, 2), (1, 2), (2, 1)])
def test_what_is_prepared_may_have_another_number_and_other_columns_by_then(
    channel: Channel, wire: Wire, told: int, columns: int, end: bytes, size: int
) -> None:
    heard: list[bytes] = []
    channel.write_ahead(b"first", OK)
    channel.prepare_ahead(PREPARE, prepared(3, told, end=end), heard.append)
    channel.prepare_ahead(PREPARE, prepared(4, told, end=end), heard.append)
    channel.prepare_ahead(PREPARE, prepared(5, told, end=end), heard.append)
    assert channel.ahead == 1, "what can have but one answer"
    channel.write(b"next")
    answers = [prepared(7, columns, end=end), OTHERS["an error"], prepared(9, told, end=end)]
    came = OK + b"".join(answers) + b"answer"
    for at in range(0, len(came), size):
        channel.data_received(came[at : at + size])
    assert (channel.buffered, wire.aborted) == (b"answer", False)
    assert heard == [answers[0][:16], answers[1], answers[2][:16]]


@pytest.mark.parametrize(
    "other",
    [
        prepared(3, 2, end=_EOF, parameters=2),
        prepared(3, 0, end=_EOF),
        OK,
    ],
    ids=["parameters", "no columns", "no preparation"],
)
def test_another_preparation_ends_the_connection(
    channel: Channel, wire: Wire, other: bytes
) -> None:
    channel.prepare_ahead(PREPARE, prepared(3, 2, end=_EOF), lambda _: None)
    channel.write(b"next")
    channel.data_received(other)
    assert wire.aborted
    assert other.startswith(channel.odd_answer)


def test_what_waits_can_be_taken_back(channel: Channel, wire: Wire) -> None:
    same = bytes(bytearray(PREPARE))
    for command, answer in ((PREPARE, prepared(3, 1, end=_EOF)), (b"close", b""), (same, OK)):
        channel.write_ahead(command, answer)
    assert (channel.ahead, channel.oldest_ahead) == (2, PREPARE)
    assert channel.take_back(PREPARE)
    assert not channel.take_back(PREPARE)
    assert (channel.ahead, channel.oldest_ahead) == (1, b"close")
    assert channel.take_back(same)
    channel.write(b"next")
    assert wire.written == [b"closenext"]
    channel.data_received(b"answer")
    assert channel.buffered == b"answer"


def test_a_number_is_put_into_commands_and_answers() -> None:
    assert with_number(prepared(3, 1, end=_EOF), 70_000) == prepared(70_000, 1, end=_EOF)


async def test_a_server_is_free_for_a_command_if_it_has_said_nothing_and_takes_what_is_sent() -> (
    None
):
    ours, theirs = socket.socketpair()
    channel = Channel.over(ours, buffer_bytes=1 << 16)
    reader, writer = await asyncio.open_connection(sock=theirs)
    assert channel.is_free
    writer.write(OK)
    await channel.wait()
    assert not channel.is_free
    channel.take(len(OK))
    assert channel.is_free
    channel.write(LONG)
    assert channel.congested
    assert not channel.is_free
    assert await reader.readexactly(len(LONG)) == LONG
    assert await channel.drain(10)
    assert not channel.congested
    assert channel.is_free
    writer.close()
    while not channel.closed:
        await channel.wait()
    assert not channel.is_free
