"""Hits for which nothing has to be asked."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from sqlcache.app import App
from sqlcache.cache.reads import Read, Template
from sqlcache.demo.servers import HOST, PrivateSqlServer
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import packet
from sqlcache.plan.meanings import Meanings
from sqlcache.plan.prepared import Prepared
from sqlcache.proxy.session import Session
from sqlcache.settings import Settings
from tests.fakes.raw_client import RawClient

READ = b"SELECT v FROM t WHERE v = 1"
PREPARED = b"SELECT v FROM t WHERE v = ?"
WRITE = "UPDATE t SET v = 2"


@pytest.fixture
async def app(upstream: PrivateSqlServer, request: pytest.FixtureRequest) -> AsyncIterator[App]:
    """sqlcache in the loop of the test, by default with answers that may be old."""
    rules = getattr(request, "param", [{"max_staleness_ms": 60_000}])
    made = App(
        Settings.model_validate(
            {
                "upstream": {"url": upstream.service_url},
                "memcached": {"nodes": ["memory"]},
                "proxy": {"listen": f"{HOST}:0", "tls_auto": False},
                "binlog": {"follow": "off"},  # it would tell of new tables amid a test
                "rules": rules,
            }
        )
    )
    await made.get_ready()
    yield made
    await made.stop()


@pytest.fixture
async def client(app: App, upstream: PrivateSqlServer, schema: str) -> AsyncIterator[RawClient]:
    address = SimpleNamespace(host=HOST, port=await app.listen())
    upstream.connect().close()  # so that caching_sha2_password knows the password
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1), (1)", schema)
    account = upstream.user, upstream.password, schema
    with await asyncio.to_thread(RawClient.logged_in, address, *account) as made:
        yield made
    while app._server.sessions._all:  # a transaction would keep its schema from being dropped
        await asyncio.sleep(0.01)


def session_of(app: App) -> Session:
    (session,) = app._server.sessions._all.values()
    assert session is not None
    return session


def keep_windows_open(app: App, until: float = math.inf) -> None:
    """The read leases of what reads hang on do not end before that; of those that may be old, those
    of their definitions."""
    context = session_of(app).way.standing.context
    assert context is not None
    for plan in context.plans.values():
        read = plan.like if isinstance(plan, Template) else plan
        if isinstance(read, Read):
            tags = read.tags.definitions if read.may_be_stale else read.tags
            assert tags is not None
            tags.window = until


async def told_within_the_call(app: App, command: bytes, *, and_soon: bool = False) -> bytes:
    """What a client is told in the very call that takes its command; `and_soon`: or as soon as it
    is told anything."""
    told: list[bytes] = []
    channel = session_of(app)._client
    while channel.intercept is None:  # the session is still at the command before
        await asyncio.sleep(0)
    transport = channel._transport
    channel._transport = SimpleNamespace(write=told.append)
    try:
        channel.data_received(command)
        async with asyncio.timeout(10):
            while and_soon and not told:
                await asyncio.sleep(0)
    finally:
        channel._transport = transport
    return b"".join(told)


async def executions(client: RawClient) -> tuple[bytes, bytes]:
    """The first of a statement with a number, which says its type, and those that follow."""
    prepared = await asyncio.to_thread(client.ask, bytes((Command.STMT_PREPARE,)) + PREPARED)
    head = bytes((Command.STMT_EXECUTE,)) + prepared[5:9] + b"\0" + struct.pack("<I", 1)
    value = struct.pack("<i", 1)
    return head + b"\0\x01\x03\0" + value, head + b"\0\0" + value


async def test_a_hit_that_needs_no_question_is_told_at_once(app: App, client: RawClient) -> None:
    query = bytes((Command.QUERY,)) + READ
    answers = [await asyncio.to_thread(client.ask, query) for _ in range(4)]
    keep_windows_open(app)
    assert await told_within_the_call(app, packet(0, query)) == answers[0]
    assert len(set(answers)) == 1


async def test_so_is_an_execution_like_the_last_one(app: App, client: RawClient) -> None:
    first, like_it = await executions(client)
    answers = [await asyncio.to_thread(client.ask, each) for each in (first, *[like_it] * 4)]
    keep_windows_open(app)
    assert await told_within_the_call(app, packet(0, like_it)) == answers[0]
    assert len(set(answers)) == 1


@pytest.mark.parametrize("app", [[]], indirect=True)
@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED"])
async def test_so_is_one_of_a_transaction_that_the_server_is_in(
    app: App, client: RawClient, isolation: str
) -> None:
    query = bytes((Command.QUERY,)) + READ
    steps = f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}", *[READ.decode()] * 4, "BEGIN"
    for text in steps:
        await asyncio.to_thread(client.sql, text)
    keep_windows_open(app)
    answer = await asyncio.to_thread(client.ask, query)
    assert await told_within_the_call(app, packet(0, query)) == answer
    await asyncio.to_thread(client.sql, WRITE)
    keep_windows_open(app)
    assert await told_within_the_call(app, packet(0, query)) == b""


async def test_what_was_prepared_is_asked_for_after_a_definition(
    app: App, client: RawClient, upstream: PrivateSqlServer
) -> None:
    first, like_it = await executions(client)
    for each in (first, *[like_it] * 3):
        await asyncio.to_thread(client.ask, each)
    await asyncio.to_thread(client.sql, "ALTER TABLE t ADD COLUMN w INT")
    assert await told_within_the_call(app, packet(0, like_it)) == b""


async def test_an_execution_without_parameters_is_told_at_once(
    app: App, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = await asyncio.to_thread(client.ask, bytes((Command.STMT_PREPARE,)) + READ)
    bare = bytes((Command.STMT_EXECUTE,)) + prepared[5:9] + b"\0" + struct.pack("<I", 1)
    answers = [await asyncio.to_thread(client.ask, bare) for _ in range(4)]
    keep_windows_open(app)
    answers.append(await told_within_the_call(app, packet(0, bare)))
    monkeypatch.setattr(Prepared, "read", None)  # from here on it is one like the last
    assert await told_within_the_call(app, packet(0, bare)) == answers[0]
    assert len(set(answers)) == 1


@pytest.mark.parametrize("app", [[]], indirect=True)
async def test_an_execution_like_the_last_one_is_looked_up_without_being_planned(
    app: App, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, like_it = await executions(client)
    answers = [await asyncio.to_thread(client.ask, each) for each in (first, *[like_it] * 3)]
    keep_windows_open(app)
    answers.append(await told_within_the_call(app, packet(0, like_it)))
    keep_windows_open(app, until=0.0)
    monkeypatch.setattr(Meanings, "plan_for", None)
    assert await told_within_the_call(app, packet(0, like_it), and_soon=True) == answers[0]
    assert len(set(answers)) == 1
