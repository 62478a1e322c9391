"""The names of hosts, looked up by the system's own resolver or by one that does not answer."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import uvloop

from sqlcache import host_names
from sqlcache.demo.servers import PrivateMemcached
from sqlcache.errors import UpstreamError
from sqlcache.host_names import addresses
from sqlcache.mysql.sockets import connected
from sqlcache.operations import figures_of
from sqlcache.service.opening import connect_service
from sqlcache.settings import HostPort
from tests.fakes.watched_node import Watched


class Resolver:
    """Answers no name before it may; counts who asked."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        self._right = socket.getaddrinfo

    def __call__(self, host: str, *args: Any, **options: Any) -> Any:
        if options.get("flags") == socket.AI_NUMERICHOST or host[:1].isdigit():
            return self._right(host, *args, **options)
        self.asked.append(host)
        self.answers.wait(20)
        if host == "cache":
            return self._right("127.0.0.1", *args, **options)
        raise socket.gaierror(-3, "Temporary failure in name resolution")


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.answers.set()


def connection_to(host: str, port: int) -> Watched:
    return Watched(
        *("node", host, port),
        timeout_s=5,
        connect_timeout_s=0.02,
        reconnect_min_s=0.01,
        reconnect_max_s=0.02,
    )


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    host_names._found.clear()


async def connected_to(host: str) -> object:
    return await connected(host, 1, None, 15)


async def served_at(host: str) -> object:
    return await connect_service(host, 1, "root", "", 15)


async def test_a_name_is_looked_up_once_however_often_it_is_tried(
    resolver: Resolver, memcached: PrivateMemcached
) -> None:
    node = connection_to("cache", memcached.port)
    while node.failed < 5:
        await asyncio.sleep(0.01)
    assert resolver.asked == ["cache"]
    resolver.answers.set()
    await node.wait_connected(20)
    await node.close()


@pytest.mark.parametrize("door", [connected_to, served_at])
async def test_look_ups_of_mysql_leave_others_threads_to_do_their_work(
    resolver: Resolver, door: Callable[[str], Awaitable[object]]
) -> None:
    """Of clients' connections, and of sqlcache's own."""
    hosts = [f"database-{number}" for number in range(40)]
    reaching = [asyncio.ensure_future(door(host)) for host in hosts]
    async with asyncio.timeout(10):
        while len(resolver.asked) < len(hosts):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(len, hosts)
    resolver.answers.set()
    failed = await asyncio.gather(*reaching, return_exceptions=True)
    assert all(isinstance(each, OSError | UpstreamError) for each in failed), failed


async def test_look_ups_of_nodes_leave_others_threads_to_look_up_names(
    resolver: Resolver,
) -> None:
    nodes = [connection_to(f"cache-{number}", 1) for number in range(40)]
    async with asyncio.timeout(10):
        while len(resolver.asked) < len(nodes):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(len, nodes)
    for node in nodes:
        await node.close()


def test_a_look_up_that_fails_too_late_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """The loop of uvloop does its own look-ups, which none of Python's functions is asked for."""

    async def scenario() -> None:
        node = Watched("node", "no.invalid", 1, timeout_s=5, connect_timeout_s=0.000_1)
        while node.failed < 3:
            await asyncio.sleep(0.01)
        await figures_of(HostPort("no.invalid", 1))
        await asyncio.sleep(0.1)
        await node.close()

    uvloop.run(scenario())
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_a_name_is_looked_up_again_where_there_was_no_thread_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="no thread"):
            await addresses("localhost")
    async with asyncio.timeout(20):
        assert await addresses("localhost")


async def test_a_name_is_looked_up_again_when_what_was_found_is_old(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver.answers.set()
    for _ in range(3):
        assert set(await addresses("cache")) == {"127.0.0.1"}
    assert resolver.asked == ["cache"]
    monkeypatch.setattr(host_names, "_KEPT_S", 0)
    host_names._found.clear()
    for _ in range(3):
        await addresses("cache")
    assert len(resolver.asked) == 4


async def test_that_a_name_was_not_found_is_not_kept(resolver: Resolver) -> None:
    resolver.answers.set()
    for _ in range(2):
        with pytest.raises(OSError, match="Temporary"):
            await addresses("database")
    assert len(resolver.asked) == 2


async def test_an_address_is_looked_up_nowhere(resolver: Resolver) -> None:
    assert await addresses("127.0.0.1") == ["127.0.0.1"]
    assert await addresses("::1") == ["::1"]
    assert not resolver.asked


@pytest.mark.parametrize("host", ["no.invalid", "a" * 70 + ".invalid", ".."])
async def test_what_is_no_name_is_an_error(host: str) -> None:
    with pytest.raises(OSError, match=r".+"):
        await addresses(host)


async def test_figures_are_those_of_the_address_that_answers(
    memcached: PrivateMemcached, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = socket.getaddrinfo

    def two(host: str, *args: Any, **options: Any) -> Any:
        if host != "cache":
            return right(host, *args, **options)
        if options.get("flags"):
            raise socket.gaierror
        return [*right("127.0.0.9", *args, **options), *right("127.0.0.1", *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    figures = await figures_of(HostPort("cache", memcached.port))
    assert figures.get("version")


FORKS = """
import asyncio, os, socket, time
from sqlcache.host_names import addresses

plain, answers = socket.getaddrinfo, False

def look_up(host, *args, **options):
    if host == "memcached.test" and not options.get("flags"):
        while not answers:
            time.sleep(0.01)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.9", 0))]
    return plain(host, *args, **options)

socket.getaddrinfo = look_up

loop = asyncio.new_event_loop()
under_way = loop.create_task(addresses("memcached.test"))
loop.run_until_complete(asyncio.sleep(0.05))
if not os.fork():
    try:
        answers = True
        print(asyncio.run(asyncio.wait_for(addresses("memcached.test"), 10)), flush=True)
    finally:
        os._exit(0)
os.wait()
answers = True
print(loop.run_until_complete(under_way))
"""


def test_a_process_that_is_forked_off_amid_a_look_up_makes_its_own() -> None:
    command = [sys.executable, "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["['127.0.0.9']"] * 2, done.stderr
