"""Both implementations of the transport, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import uvloop

from sqlcache.mysql import transport as pure
from sqlcache.mysql.transport import SocketTransport
from tests.kernels import compiled

LONG = bytes(range(256)) * 60_000  # more than the kernel takes
HIGH = 100_000
DEADLINE_S = 10
Make = Callable[[], "Side"]


class Side:
    """A receiver that notes what it is called with."""

    def __init__(self, implementation: type[SocketTransport], sock: socket.socket) -> None:
        sock.setblocking(False)
        self.received = b""
        self.ended: list[Exception | None] = []
        self.eofs = self.pauses = self.resumes = 0
        self.keeps_open = False
        self.changed = asyncio.Event()
        self.transport = implementation(asyncio.get_running_loop(), sock, self)
        self.transport.set_write_buffer_limits(HIGH)
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def eof_received(self) -> bool:
        self.eofs += 1
        self.changed.set()
        return self.keeps_open

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        self.resumes += 1
        self.changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.append(error)
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture(params=["pure", "compiled"])
def implementation(request: pytest.FixtureRequest) -> type[SocketTransport]:
    return pure.SocketTransport if request.param == "pure" else compiled().SocketTransport


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        peer = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    yield ours, peer
    ours.close()
    peer.close()


@pytest.fixture
async def side(
    implementation: type[SocketTransport], ends: tuple[socket.socket, socket.socket]
) -> AsyncIterator[Side]:
    made = Side(implementation, ends[0])
    yield made
    made.transport.abort()
    await asyncio.sleep(0)


@pytest.fixture
async def peer(ends: tuple[socket.socket, socket.socket]) -> socket.socket:
    ends[1].setblocking(False)
    return ends[1]


async def taken(peer: socket.socket, size: int) -> bytes:
    """The next `size` bytes that come, or fewer where the connection ends before."""
    loop, came = asyncio.get_running_loop(), bytearray()
    async with asyncio.timeout(DEADLINE_S):
        while len(came) < size and (data := await loop.sock_recv(peer, size - len(came))):
            came += data
    return bytes(came)


async def test_what_comes_can_be_for_another(
    side: Side, peer: socket.socket, implementation: type[SocketTransport]
) -> None:
    spare, _other = socket.socketpair()
    another = Side(implementation, spare)
    peer.send(b"first")
    await side.until(lambda: side.received == b"first")
    side.transport.set_protocol(another)
    peer.send(b"second")
    await another.until(lambda: another.received == b"second")
    side.transport.write(LONG)
    assert (another.pauses, side.pauses) == (1, 0)
    peer.close()
    await another.until(lambda: another.ended)
    assert not side.ended
    another.transport.abort()
    _other.close()


async def test_what_comes_is_told_as_it_comes(side: Side, peer: socket.socket) -> None:
    for text in (b"first", b"second"):
        before = len(side.received)
        peer.send(text)
        await side.until(lambda: len(side.received) > before)  # noqa: B023
    assert side.received == b"firstsecond"


@pytest.mark.parametrize("form", [bytes, memoryview])
async def test_what_the_kernel_does_not_take_at_once_is_sent_when_it_does(
    side: Side, peer: socket.socket, form: type
) -> None:
    side.transport.write(form(LONG))
    side.transport.write(b"")
    side.transport.write(form(b"the end"))
    waiting = side.transport.get_write_buffer_size()
    assert HIGH < waiting <= len(LONG) + 7
    assert (side.pauses, side.resumes) == (1, 0)
    assert await taken(peer, len(LONG) + 7) == LONG + b"the end"
    await side.until(lambda: side.resumes)
    assert side.transport.get_write_buffer_size() == 0
    side.transport.write(b"more")
    assert await taken(peer, 4) == b"more"
    assert (side.pauses, side.resumes) == (1, 1)


async def test_close_sends_what_was_written_first(side: Side, peer: socket.socket) -> None:
    side.transport.write(LONG)
    side.transport.close()
    side.transport.write(b"too late")
    assert side.transport.is_closing()
    assert side.ended == []
    assert await taken(peer, len(LONG) + 1) == LONG
    await side.until(lambda: side.ended)
    assert side.ended == [None]


async def test_the_end_is_told_once_and_not_within_a_call(side: Side) -> None:
    side.transport.close()
    side.transport.abort()
    side.transport.close()
    assert side.ended == []
    await side.until(lambda: side.ended)
    await asyncio.sleep(0)
    assert side.ended == [None]
    side.transport.write(b"nobody is there")
    side.transport.resume_reading()
    assert side.transport.socket.fileno() == -1


async def test_abort_throws_away_what_waits(side: Side, peer: socket.socket) -> None:
    side.transport.write(LONG)
    side.transport.abort()
    assert side.transport.get_write_buffer_size() == 0
    await side.until(lambda: side.ended)
    assert len(await taken(peer, len(LONG))) < len(LONG)


async def test_a_peer_that_says_no_more_ends_the_connection(
    side: Side, peer: socket.socket
) -> None:
    side.transport.write(b"answer")
    peer.shutdown(socket.SHUT_WR)
    await side.until(lambda: side.ended)
    assert (side.eofs, side.ended) == (1, [None])
    assert await taken(peer, 7) == b"answer"


async def test_a_receiver_may_go_on_after_its_peer_says_no_more(
    side: Side, peer: socket.socket
) -> None:
    side.keeps_open = True
    peer.shutdown(socket.SHUT_WR)
    await side.until(lambda: side.eofs)
    side.transport.write(b"answer")
    assert await taken(peer, 6) == b"answer"
    assert (side.eofs, side.ended) == (1, [])


@pytest.mark.parametrize("reads", [True, False])
async def test_a_reset_is_told_as_an_error(side: Side, peer: socket.socket, reads: bool) -> None:
    if not reads:
        side.transport.pause_reading()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    if not reads:
        side.transport.write(b"nobody takes it")
        side.transport.write(b"nor this")
    await side.until(lambda: side.ended)
    assert [type(error) for error in side.ended] in ([ConnectionResetError], [BrokenPipeError])


async def test_nothing_is_read_while_that_is_paused(side: Side, peer: socket.socket) -> None:
    side.transport.pause_reading()
    side.transport.pause_reading()
    peer.send(b"wait")
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert side.received == b""
    side.transport.resume_reading()
    await side.until(lambda: side.received)
    assert side.received == b"wait"


@pytest.mark.parametrize("size", [5, len(LONG)])
async def test_after_what_was_written_the_peer_is_told_that_no_more_comes(
    side: Side, peer: socket.socket, size: int
) -> None:
    side.transport.write(LONG[:size])
    side.transport.write_eof()
    side.transport.write(b"too late")
    assert await taken(peer, size + 1) == LONG[:size]
    peer.send(b"goodbye")
    await side.until(lambda: side.received)
    assert (side.received, side.ended) == (b"goodbye", [])


async def test_a_socket_that_is_detached_is_anothers(side: Side, peer: socket.socket) -> None:
    sock = side.transport.detach()
    peer.send(b"for another")
    await asyncio.sleep(0.01)
    assert (side.received, side.ended) == (b"", [])
    assert await asyncio.get_running_loop().sock_recv(sock, 20) == b"for another"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_reset_behind_what_came_is_told_by_every_event_loop(
    implementation: type[SocketTransport],
    ends: tuple[socket.socket, socket.socket],
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Also where nothing is written that would find it."""

    async def told() -> Side:
        side = Side(implementation, ends[0])
        ends[1].send(b"the beginning of an answer")
        ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ends[1].close()
        await side.until(lambda: side.ended)
        return side

    with asyncio.Runner(loop_factory=new_loop) as runner:
        side = runner.run(told())
    assert [type(error) for error in side.ended] == [ConnectionResetError]


def refuse(side: Side, peer: socket.socket) -> None:
    """The peer says why and closes, and what is written then fails."""
    peer.send(b"too long")
    peer.close()
    while not side.transport.is_closing():  # the first one is answered by a reset
        side.transport.write(b"more")


@pytest.mark.parametrize("hears_out", [False, True])
async def test_what_a_server_said_last_is_told_where_it_takes_no_more(
    side: Side, peer: socket.socket, hears_out: bool
) -> None:
    side.transport.hears_out = hears_out
    refuse(side, peer)
    await side.until(lambda: side.ended)
    assert side.received == (b"too long" if hears_out else b"")
    assert isinstance(side.ended[0], OSError)


@pytest.mark.parametrize("end", ["close", "abort", "detach"])
async def test_who_ends_it_is_told_nothing_any_more(
    side: Side, peer: socket.socket, end: str
) -> None:
    side.transport.hears_out = True
    refuse(side, peer)
    getattr(side.transport, end)()
    await side.until(lambda: side.ended)
    assert side.received == b""


async def test_what_a_receiver_raises_ends_the_connection(side: Side, peer: socket.socket) -> None:
    raised = ValueError("a fault of the receiver")
    loop = asyncio.get_running_loop()
    unhandled: list[object] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context["exception"]))

    def raises() -> bool:
        raise raised

    side.eof_received = raises  # type: ignore[method-assign]
    peer.shutdown(socket.SHUT_WR)
    await side.until(lambda: side.ended)
    assert (side.ended, unhandled) == ([raised], [raised])


async def test_a_receiver_is_freed_as_soon_as_the_connection_has_ended(
    implementation: type[SocketTransport], ends: tuple[socket.socket, socket.socket]
) -> None:
    """And not by the garbage collector some time later."""

    async def ended() -> weakref.ref[Side]:
        side = Side(implementation, ends[0])
        side.transport.write(LONG)
        side.transport.abort()
        await side.until(lambda: side.ended)
        return weakref.ref(side)

    gc.disable()
    try:
        assert (await ended())() is None
    finally:
        gc.enable()


async def test_a_receiver_may_end_the_connection_within_what_it_is_told(
    side: Side, peer: socket.socket
) -> None:
    told = side.data_received

    def ends(data: bytes) -> None:
        told(data)
        side.transport.abort()

    side.data_received = ends  # type: ignore[method-assign]
    again = type(side.transport)(asyncio.get_running_loop(), side.transport.detach(), side)
    side.transport = again
    again.resume_reading()
    peer.send(b"first")
    await side.until(lambda: side.ended)
    assert (side.received, side.ended) == (b"first", [None])
