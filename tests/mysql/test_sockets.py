"""Listening sockets, and those that reach a server."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sqlcache import host_names
from sqlcache.mysql import sockets
from sqlcache.mysql.sockets import Listener, connected, route

HOST = "127.0.0.1"
DEADLINE_S = 10


class Accepted:
    """Connections that were accepted, in their order."""

    def __init__(self) -> None:
        self.sock = socket.socket()
        self.sock.bind((HOST, 0))
        self.port: int = self.sock.getsockname()[1]
        self._came: asyncio.Queue[socket.socket] = asyncio.Queue()
        self.listener = Listener(self.sock, self._take)
        self.peers: list[object] = []

    def _take(self, connection: socket.socket, peer: object) -> None:
        self.peers.append(peer)
        self._came.put_nowait(connection)

    async def next(self) -> socket.socket:
        async with asyncio.timeout(DEADLINE_S):
            return await self._came.get()

    @property
    def waiting(self) -> int:
        return self._came.qsize()


@pytest.fixture
async def accepted() -> AsyncIterator[Accepted]:
    made = Accepted()
    yield made
    made.listener.close()


async def test_each_end_finds_a_host_that_has_vanished_and_sends_at_once(
    accepted: Accepted,
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        client = await connected(HOST, accepted.port, None, 5)
    with client, await accepted.next() as server:
        for end in (client, server):
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_each_connection_is_handed_over(accepted: Accepted) -> None:
    loop = asyncio.get_running_loop()
    for text in (b"a", b"b"):
        client = await connected(HOST, accepted.port, None, 5)
        with client, await accepted.next() as server:
            server.setblocking(False)
            await loop.sock_sendall(client, text)
            assert await loop.sock_recv(server, 5) == text
            assert accepted.peers[-1] == client.getsockname()


async def test_who_connects_after_the_end_is_refused(accepted: Accepted) -> None:
    accepted.listener.close()
    with pytest.raises(ConnectionRefusedError):
        await connected(HOST, accepted.port, None, 5)


async def test_who_finds_no_file_left_waits_until_there_is_one(
    accepted: Accepted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sockets, "_LOOKS_AGAIN_S", 0.05)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [await connected(HOST, accepted.port, None, 5)]
    (await accepted.next()).close()
    clients.append(socket.socket())
    clients[-1].setblocking(False)
    free = os.dup(clients[0].fileno())
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))  # the next file would be one too many
    try:
        await asyncio.get_running_loop().sock_connect(clients[-1], (HOST, accepted.port))
        while not caplog.messages:
            await asyncio.sleep(0.01)
        assert accepted.waiting == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (await accepted.next()).close()
    assert set(caplog.messages) == {
        "no connection can be accepted error=[Errno 24] Too many open files"
    }
    for client in clients:
        client.close()


async def test_a_server_is_reached_by_a_socket_of_a_path(tmp_path: Path) -> None:
    path = str(tmp_path / "server.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        (await connected("nowhere.invalid", 1, path, 5)).close()


async def test_a_server_whose_socket_is_busy_is_not_reached(tmp_path: Path) -> None:
    path = str(tmp_path / "server.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(0)
        in_time = [await connected("nowhere.invalid", 1, path, 5)]
        with pytest.raises(BlockingIOError):
            await connected("nowhere.invalid", 1, path, 5)
        in_time.pop().close()


async def test_each_address_of_a_name_is_tried(
    accepted: Accepted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def addresses(host: str, *_: object, **options: object) -> list[object]:
        assert host == "database"
        if options.get("flags"):
            raise socket.gaierror
        told = [("127.0.0.9", 0), (HOST, 0)]  # at the first nobody listens
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", each) for each in told]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    (await connected("database", accepted.port, None, 5)).close()
    (await accepted.next()).close()


async def test_a_server_of_an_address_is_asked_for_nowhere_and_waited_for(
    accepted: Accepted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it takes, where that is not at once."""
    loop = asyncio.get_running_loop()

    async def unknown(*_: object, **__: object) -> list[object]:
        raise AssertionError("nobody need be asked")

    monkeypatch.setattr(loop, "getaddrinfo", unknown, raising=False)
    monkeypatch.setattr(host_names, "Thread", None)
    sock = socket.socket
    slow = 2

    class Slow(socket.socket):
        def connect_ex(self, address: Any) -> int:
            nonlocal slow
            slow -= 1
            return sock.connect_ex(self, address) if slow else errno.EALREADY

    monkeypatch.setattr(socket, "socket", Slow)
    client = await connected(HOST, accepted.port, None, 5)
    with client, await accepted.next() as server:
        assert slow == 0
        assert client.getpeername() == server.getsockname()
    accepted.listener.close()
    slow = 2
    with pytest.raises(ConnectionRefusedError):
        await connected(HOST, accepted.port, None, 5)


async def test_a_server_that_does_not_answer_takes_no_longer_than_allowed() -> None:
    with socket.socket() as full:
        full.bind((HOST, 0))
        full.listen(0)
        port = full.getsockname()[1]
        in_time = [await connected(HOST, port, None, 5)]  # more are not taken
        with pytest.raises(TimeoutError):
            await connected(HOST, port, None, 0.1)
        in_time.pop().close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "fe80::1%lo", "fe80::1%1"])
def test_an_address_is_connected_to_as_it_was_looked_up(address: str) -> None:
    ((family, _, _, _, place),) = socket.getaddrinfo(
        address, 3306, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    ours = sockets._place(address, 3306)
    assert ours == (family, place)


async def test_connections_go_the_same_way_whose_addresses_are_the_same(tmp_path: Path) -> None:
    paths = [str(tmp_path / each) for each in ("one", "other")]
    with (
        socket.create_server((HOST, 0)) as four,
        socket.create_server(("::1", four.getsockname()[1]), family=socket.AF_INET6) as six,
        socket.socket(socket.AF_UNIX) as one,
        socket.socket(socket.AF_UNIX) as other,
    ):
        port = six.getsockname()[1]
        for sock, path in zip((one, other), paths, strict=True):
            sock.bind(path)
            sock.listen()

        async def goes(host: str, path: str | None = None) -> str:
            with await connected(host, port, path, DEADLINE_S) as sock:
                return route(sock, sock.getpeername())

        ways = [(HOST, None), ("::1", None), *((HOST, path) for path in paths)]
        known = [await goes(*each) for each in ways]
        assert len(set(known)) == len(ways)
        assert [await goes(*each) for each in ways] == known
