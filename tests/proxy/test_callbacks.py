"""What a session's callbacks raise, where other sessions are served in the same turn."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from sqlcache.app import App
from sqlcache.demo.servers import HOST, PrivateSqlServer
from sqlcache.mysql.constants import Command
from sqlcache.proxy.straight.exchange import Exchange
from sqlcache.proxy.straight.hits import Hits
from sqlcache.proxy.straight.inflight import InFlight
from sqlcache.proxy.straight.path import StraightPath
from sqlcache.settings import Settings
from tests.fakes.raw_client import RawClient, packets_of

READ = "SELECT v FROM t WHERE v >= 0"
ODD = "SELECT v FROM t WHERE v >= 0 /* odd */"
WRITE = "UPDATE t SET v = v + 1"
ODD_WRITE = "UPDATE t SET v = v + 1 /* odd */"
LogIn = Callable[[], RawClient]


class Fault(Exception):
    """What is not to happen."""


@pytest.fixture
async def app(upstream: PrivateSqlServer) -> AsyncIterator[App]:
    """sqlcache in the loop of the test."""
    settings = Settings.model_validate(
        {
            "upstream": {"url": upstream.service_url, "catalog_refresh_s": 3600},
            "memcached": {"nodes": ["memory"]},
            "proxy": {"listen": f"{HOST}:0"},
            "cache": {"write_deadline_s": 1, "near_bytes": 0},
            "binlog": {"follow": "off"},  # it would tell of new tables amid a test
        }
    )
    made = App(settings)
    await made.get_ready()
    yield made
    await made.stop()


@pytest.fixture
async def clients(app: App, upstream: PrivateSqlServer, schema: str) -> AsyncIterator[Any]:
    """Three sessions, to which all texts are known."""
    address = SimpleNamespace(host=HOST, port=await app.listen())
    account = upstream.user, upstream.password, schema
    upstream.connect().close()  # so that caching_sha2_password knows the password
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (0)", schema)
    with ExitStack() as stack:
        made = []
        for _ in range(3):
            client = await asyncio.to_thread(RawClient.logged_in, address, *account)
            client.socket.settimeout(20)
            made.append(stack.enter_context(client))
        for each in made:
            for text in (READ, ODD, WRITE, ODD_WRITE) * 3:
                await asyncio.to_thread(each.sql, text)
        yield made


def raises_for_the_odd(monkeypatch: pytest.MonkeyPatch, room: type, name: str) -> None:
    """From here on this step of the straight path fails for the odd texts."""
    sound: Callable[..., Any] = getattr(room, name)

    def unsound(self: Any, now: Any, *args: Any) -> Any:
        packet = now.packet if isinstance(now, InFlight) else now
        if b"odd" in packet:
            raise Fault(name)
        return sound(self, now, *args)

    monkeypatch.setattr(room, name, unsound)


@pytest.mark.parametrize(
    ("room", "step", "odd", "others", "hits"),
    [
        (Hits, "answer", ODD, READ, True),
        (Exchange, "send", ODD, READ, False),
        (Exchange, "_finish", ODD, READ, False),
        (Exchange, "send", ODD_WRITE, READ, True),
        (Exchange, "_finish", ODD_WRITE, READ, True),
        (Exchange, "_finish", ODD_WRITE, WRITE, True),
    ],
)
async def test_what_a_callback_raises_ends_its_session_and_no_other(
    app: App,
    clients: list[RawClient],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    room: type,
    step: str,
    odd: str,
    others: str,
    hits: bool,
) -> None:
    first, *rest = clients
    if hits:
        for text in (READ, ODD):
            await asyncio.to_thread(first.sql, text)
    raises_for_the_odd(monkeypatch, room, step)
    first.query(odd)  # all are read in the same turn of the loop
    for each in rest:
        each.query(others)
    for each in rest:
        each.send(each.sentinel())
        assert await asyncio.to_thread(each.read_to_sentinel)
    assert await asyncio.to_thread(first.read_to_end) == b""
    failed = [each for each in caplog.records if each.exc_info and "failed" in each.message]
    assert [type(each.exc_info[1]) for each in failed if each.exc_info] == [Fault]
    async with asyncio.timeout(20):
        while app.snapshot()["connections_open"] != 2:
            await asyncio.sleep(0.01)
    monkeypatch.undo()
    for each in rest:  # of a write the fence ends, of a fill the lease
        before = app.metrics.hits
        async with asyncio.timeout(60):
            while app.metrics.hits == before:
                await asyncio.to_thread(each.sql, ODD)


@pytest.mark.parametrize(
    ("command", "first", "rest"),
    [
        pytest.param(Command.STMT_CLOSE, 1, b"", id="closes"),
        pytest.param(Command.STMT_CLOSE, 1_000_000, b"", id="closes of none"),
        pytest.param(Command.STMT_SEND_LONG_DATA, 1_000_000, b"\0\0", id="long data of none"),
    ],
)
async def test_of_what_one_client_sends_at_once_little_is_done_in_a_turn(
    app: App, clients: list[RawClient], command: Command, first: int, rest: bytes
) -> None:
    client, count = clients[0], 500

    def prepare() -> None:
        client.send(packets_of(bytes((Command.STMT_PREPARE,)) + b"DO 1") * count)
        for _ in range(count):
            client.read_packet()

    await asyncio.to_thread(prepare)
    numbers = (number.to_bytes(4, "little") for number in range(first, first + count))
    client.send(b"".join(packets_of(bytes((command,)) + each + rest) for each in numbers))
    client.query("DO 2")
    answer = asyncio.create_task(asyncio.to_thread(client.read_packet))
    served = [app.metrics.statements_relayed]
    while not answer.done():
        await asyncio.sleep(0)
        served.append(app.metrics.statements_relayed)
    assert served[-1] - served[0] == count + 1
    assert max(after - before for before, after in pairwise(served)) <= 100


async def test_a_session_that_ends_is_freed_without_the_garbage_collector(
    app: App, clients: list[RawClient]
) -> None:
    """Which would have to look at all that is remembered, for many who come and go."""
    gc.collect()
    gc.disable()
    try:
        for client in clients:
            client.close()
        while app.metrics.connections_open:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(20):  # its last callbacks have yet to run
            while any(isinstance(each, StraightPath) for each in gc.get_objects()):
                await asyncio.sleep(0.1)
    finally:
        gc.enable()
