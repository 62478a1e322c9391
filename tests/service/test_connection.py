"""sqlcache's own questions to MySQL."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import aiomysql
import pytest

from sqlcache.demo.servers import PrivateSqlServer, wait_until
from sqlcache.errors import AccountRefused, UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.sockets import connected
from sqlcache.service import connection as module
from sqlcache.service.connection import ServiceConnection
from sqlcache.service.opening import rows_of
from sqlcache.settings import Settings
from sqlcache.sql.catalog.server import Incarnation
from sqlcache.upstream_errors import UpstreamErrors
from tests.fakes.full_table import no_more_files
from tests.fakes.middleman import Fault, Middleman

NEVER = 2**31
"""A number that no connection has."""
SLEEPS = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'"


def connection_to(url: str, **upstream: float | str) -> ServiceConnection:
    metrics = Metrics()
    settings = {"upstream": {"url": url, **upstream}, "memcached": {"nodes": ["memory"]}}
    return ServiceConnection(Settings.model_validate(settings), metrics, UpstreamErrors(metrics))


async def test_a_reading_that_takes_too_long_is_given_up_and_ended(
    upstream: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(connection: aiomysql.Connection) -> frozenset[str]:
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT SLEEP(600)")
        return frozenset()

    connection = connection_to(upstream.service_url, catalog_timeout_s=0.5)
    with monkeypatch.context() as patched:
        patched.setattr(module, "load_schemas", sleep)
        with pytest.raises(UpstreamError, match=r"within catalog_timeout_s = 0\.5 s"):
            await connection.schemas()
    known: frozenset[str] = frozenset()
    async with asyncio.timeout(20):
        while not known:
            with suppress(UpstreamError):  # on a busy machine it takes too long itself
                known = await connection.schemas()
    assert "mysql" in known
    await asyncio.to_thread(wait_until, lambda: not upstream.sql(SLEEPS), 10, "the query's end")
    connection.close()


async def test_on_another_server_that_answers_by_then_nothing_is_ended(
    mariadb: PrivateSqlServer, mysql: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of the connection that was given up is somebody else's there."""

    def settings(server: PrivateSqlServer) -> Settings:
        upstream = {"url": server.service_url, "catalog_timeout_s": 0.5}
        return Settings.model_validate({"upstream": upstream, "memcached": {"nodes": ["memory"]}})

    account = {"user": mysql.service_user, "password": mysql.service_password}
    metrics = Metrics()
    connection = ServiceConnection(settings(mariadb), metrics, UpstreamErrors(metrics))
    others: Any = mysql.connect(**account)
    with closing(others):

        async def sleep(own: aiomysql.Connection) -> frozenset[str]:
            own.server_thread_id = (others.thread_id(),)
            monkeypatch.setattr(connection._logins, "_upstream", settings(mysql).upstream)
            await rows_of(own, "SELECT SLEEP(2)")
            return frozenset()

        monkeypatch.setattr(module, "load_schemas", sleep)
        with pytest.raises(UpstreamError, match="within catalog_timeout_s"):
            await connection.schemas()
        await asyncio.gather(*connection._tasks._all)
        others.ping(reconnect=False)
    connection.close()


REFUSED = "SELECT 1 FROM information_schema.nosuch"
CUT_SHORT = {
    "mariadbd": "SET STATEMENT max_statement_time = 0.1 FOR SELECT a.seq, SLEEP(0.02)"
    " FROM seq_1_to_5000 a",
    "mysqld": "SELECT /*+ MAX_EXECUTION_TIME(100) */ a.help_keyword_id, SLEEP(0.02)"
    " FROM mysql.help_keyword a",
}


@pytest.mark.parametrize("fails", ["at once", "amid its rows"])
async def test_a_query_that_fails_on_a_connection_that_does_not_loses_no_contact(
    upstream: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    async def refused(connection: aiomysql.Connection) -> frozenset[str]:
        await rows_of(connection, REFUSED if fails == "at once" else CUT_SHORT[upstream.name])
        return frozenset()

    connection = connection_to(f"mysql://{upstream.user}:{upstream.password}@{upstream.address}")
    await connection.load()
    with monkeypatch.context() as patched:
        patched.setattr(module, "load_schemas", refused)
        with pytest.raises(UpstreamError):
            await connection.schemas()
    assert not connection.cut()
    assert "mysql" in await connection.schemas()
    connection.close()


@pytest.mark.parametrize("asked", [b"FROM information_schema.SCHEMATA", b"password_lifetime"])
async def test_what_is_no_answer_is_an_error_and_the_next_is_asked_on_another_connection(
    upstream: PrivateSqlServer, asked: bytes
) -> None:
    with Middleman(upstream) as between:
        connection = connection_to(between.service_url, tls="disabled")
        catalog, _ = await connection.load()
        between.set_trap(asked, Fault.GARBAGE)
        with pytest.raises(UpstreamError):
            await (connection.load() if b"password" in asked else connection.schemas())
        assert await connection.schemas() >= catalog.schemas
        connection.close()


async def test_a_reading_that_takes_too_long_loses_no_contact_where_the_server_runs_on(
    upstream: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(connection: aiomysql.Connection) -> frozenset[str]:
        await rows_of(connection, "SELECT SLEEP(600)")
        return frozenset()

    connection = connection_to(upstream.service_url, catalog_timeout_s=20)
    await connection.load()
    with monkeypatch.context() as patched:
        patched.setattr(module, "load_schemas", sleep)
        patched.setattr(connection, "_timeout_s", 0.2)
        with pytest.raises(UpstreamError, match="within catalog_timeout_s"):
            await connection.schemas()
    assert not connection.cut()
    assert "mysql" in await connection.schemas()
    with monkeypatch.context() as patched:
        patched.setattr(module, "load_schemas", sleep)
        patched.setattr(connection, "_timeout_s", 0.2)
        patched.setattr(connection, "_began", 0)
        with pytest.raises(UpstreamError, match="within catalog_timeout_s"):
            await connection.schemas()
    assert connection.cut()
    await asyncio.gather(*connection._tasks._all)
    connection.close()


async def test_no_limit_of_the_servers_cuts_short_what_sqlcache_reads(
    upstream: PrivateSqlServer,
) -> None:
    limit = "max_statement_time" if upstream.name == "mariadbd" else "max_execution_time"
    upstream.sql(f"SET GLOBAL {limit} = 1")
    connection = connection_to(upstream.service_url)
    try:
        own = await connection.connect()
        ((found,),) = await rows_of(own, f"SELECT @@{limit}")
        own.close()
    finally:
        upstream.sql(f"SET GLOBAL {limit} = 0")
    assert not found


async def test_contact_is_lost_with_a_connection_that_ends_amid_a_reading(
    upstream: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until everything has been read anew: MySQL may have begun anew."""

    async def ends(connection: aiomysql.Connection) -> frozenset[str]:
        await rows_of(connection, f"KILL {connection.thread_id()}")
        await rows_of(connection, "SELECT 1")
        return frozenset()

    connection = connection_to(upstream.service_url)
    await connection.load()
    assert not connection.cut()
    with monkeypatch.context() as patched:
        patched.setattr(module, "load_schemas", ends)
        with pytest.raises(UpstreamError):
            await connection.schemas()
    assert connection.cut()
    await connection.schemas()
    assert connection.cut()
    await connection.load()
    assert not connection.cut()
    connection.close()


async def test_who_asks_if_a_connection_has_ended_and_has_lost_his_own_logs_in_anew(
    upstream: PrivateSqlServer,
) -> None:
    url = f"mysql://{upstream.user}:{upstream.password}@{upstream.address}"
    connection = connection_to(url)
    server = (await connection.load())[0].server.incarnation
    assert await connection.has_ended(NEVER, server, 0)
    async with connection._check.asking() as own:
        number = own.thread_id()
    await asyncio.to_thread(upstream.sql, f"KILL {number}")
    with pytest.raises(UpstreamError):
        await connection.has_ended(number, server, 0)
    async with asyncio.timeout(10):
        while not await connection.has_ended(number, server, 0):
            await asyncio.sleep(0.01)
    connection.close()


async def test_of_another_server_than_the_one_that_it_was_to_no_connection_is_known_to_have_ended(
    upstream: PrivateSqlServer,
) -> None:
    url = f"mysql://{upstream.user}:{upstream.password}@{upstream.address}"
    connection = connection_to(url)
    it = (await connection.load())[0].server.incarnation
    before = Incarnation(it.identity, it.began - 1)
    assert not await connection.has_ended(NEVER, before, 0)
    assert not await connection.has_ended(NEVER, Incarnation("another", it.began), 0)
    assert await connection.has_ended(NEVER, it, 0)
    connection.close()


async def test_nor_by_who_was_there_before_it(
    mariadb: PrivateSqlServer, mysql: PrivateSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address may have led to another server by then."""
    loop = asyncio.get_running_loop()
    connection = connection_to(f"mysql://{mariadb.user}:{mariadb.password}@{mariadb.address}")
    server = (await connection.load())[0].server.incarnation
    before = loop.time()
    assert await connection.has_ended(NEVER, server, before)
    url = f"mysql://{mysql.user}:{mysql.password}@{mysql.address}"
    moved = connection_to(url)
    monkeypatch.setattr(connection._logins, "_upstream", moved._logins._upstream)
    assert not await connection.has_ended(NEVER, server, loop.time())
    connection.close()


async def test_who_may_not_see_if_a_connection_has_ended_keeps_his_own(
    upstream: PrivateSqlServer,
) -> None:
    connection = connection_to(upstream.service_url)
    server = (await connection.load())[0].server.incarnation
    async with connection._check.asking() as own:
        number = own.thread_id()
    assert not await connection.has_ended(NEVER, server, 0)
    async with connection._check.asking() as own:
        assert own.thread_id() == number
    connection.close()


async def test_a_login_that_is_made_good_leaves_the_numbers_of_sockets_to_others(
    upstream: PrivateSqlServer,
) -> None:
    connection = connection_to(upstream.service_url)
    greeted = Channel.over(
        await connected(upstream.host, upstream.port, None, 10), buffer_bytes=1_000
    )
    await greeted.peek(1)
    async with asyncio.timeout(20):
        await connection.make_good(greeted)
    ours, theirs = zip(*(socket.socketpair() for _ in range(20)), strict=True)
    loop = asyncio.get_running_loop()
    for each in (*ours, *theirs):  # refused for one that the loop listens to for another
        loop.add_reader(each, str)
        loop.remove_reader(each)
        each.close()
    connection.close()


async def test_where_there_are_no_more_files_a_login_is_not_made_good_and_leaves_none_open(
    mariadb: PrivateSqlServer,
) -> None:
    connection = connection_to(mariadb.service_url)
    sock = await connected(mariadb.host, mariadb.port, None, 10)
    greeted = Channel.over(sock, buffer_bytes=1_000)
    await greeted.peek(1)
    with no_more_files():
        await connection.make_good(greeted)
    assert greeted.closed
    assert sock.fileno() == -1


@pytest.fixture
def limited(upstream: PrivateSqlServer, schema: str) -> Iterator[str]:
    """The URL of an account that may have one connection."""
    upstream.sql(f"CREATE USER {schema}@'%' IDENTIFIED BY 'p' WITH MAX_USER_CONNECTIONS 1")
    yield f"mysql://{schema}:p@{upstream.address}"
    upstream.sql(f"DROP USER {schema}@'%'")


async def test_an_account_that_has_all_its_connections_has_reached_mysql(
    limited: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    connection = connection_to(limited)
    own = await connection.connect()
    for _ in range(2):
        with pytest.raises(AccountRefused, match="1226"):
            await connection.connect()
    assert connection._logins._metrics.upstream_up == 1
    (line,) = caplog.messages
    assert "refuses connections" in line
    assert "MAX_USER_CONNECTIONS" in line
    own.close()
    connection.close()
