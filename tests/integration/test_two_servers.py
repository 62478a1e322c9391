"""Two SQL servers behind one memcached: what one answers is never the other's."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pymysql
import pytest

from sqlcache.binlog.source import Connect, Source
from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from tests.coherence.sessions import run
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Middleman
from tests.fakes.raw_client import RawClient
from tests.integration.test_lost_writers import DEADLINE_S, number_of

READ = "SELECT v FROM t"


Pair = tuple[PrivateSqlServer, PrivateSqlServer]


@pytest.fixture(scope="module")
def pair(upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A server, and one that was restored from its backup; then both were written to."""
    folder = tmp_path_factory.mktemp("pair")
    kind = type(upstream)
    with served(kind(folder / "one"), kind(folder / "other")) as pair:
        yield pair


@contextmanager
def served(one: PrivateSqlServer, other: PrivateSqlServer) -> Iterator[Pair]:
    with one:
        one.sql("CREATE DATABASE shop; CREATE TABLE shop.t (v VARCHAR(20))")
    shutil.copytree(one.data, other.data)
    (other.data / "auto.cnf").unlink(missing_ok=True)  # as one does with a backup
    other.password, other.service_password = one.password, one.service_password
    other._accounts_made = True
    with one, other:
        one.sql("INSERT INTO shop.t VALUES ('one')")
        other.sql("INSERT INTO shop.t VALUES ('other')")
        yield one, other


class Namesake(PrivateMariaDB):
    """Has the port of another one, at another address of the same host."""

    def __init__(self, folder: Path, other: PrivateMariaDB) -> None:
        super().__init__(folder, ("--bind-address=127.0.0.2",))
        self.host = "127.0.0.2"
        self._other = other

    def _take_ports(self) -> None:
        self.port = self._other.port


@pytest.fixture
def namesakes(tmp_path: Path) -> Iterator[Pair]:
    """Two MariaDBs with one `server_uid`, as containers on two hosts may have it."""
    one = PrivateMariaDB(tmp_path / "one")
    with served(one, Namesake(tmp_path / "other", one)) as pair:
        uids = [server.sql("SELECT @@server_uid") for server in pair]
        assert uids == uids[:1] * 2
        yield pair


def connect_to(server: PrivateSqlServer) -> Connect:
    async def connect() -> aiomysql.Connection:
        login = {"user": server.service_user, "password": server.service_password}
        return await aiomysql.connect(host=server.host, port=server.port, **login)

    return connect


def read(proxy: PrivateSqlcache, server: PrivateSqlServer, times: int = 3) -> str:
    login: dict[str, Any] = {"user": server.user, "password": server.password, "database": "shop"}
    with closing(pymysql.connect(host=proxy.host, port=proxy.port, **login)) as connection:
        connection.autocommit(True)
        values = []
        for _ in range(times):
            with connection.cursor() as cursor:
                cursor.execute(READ)
                values.append(cursor.fetchall())
    assert values == values[:1] * times
    return str(values[0][0][0])


def hits(proxy: PrivateSqlcache) -> float:
    return proxy.metrics()["sqlcache_hits_total"]


def hits_of_both(
    servers: Pair, memcached: PrivateMemcached, proxy: ProxyFactory
) -> tuple[float, float]:
    """Of a sqlcache before each, which answer what their own servers do."""
    one, other = servers
    first, second = proxy(one, memcached), proxy(other, memcached)
    for _ in range(2):
        assert read(first, one) == "one"
        assert read(second, other) == "other"
    return hits(first), hits(second)


def test_each_gives_its_own_answers(
    pair: Pair, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    assert hits_of_both(pair, memcached, proxy) == (5, 5)


async def test_so_do_two_that_have_one_uid(
    namesakes: Pair, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    hits_of_both(namesakes, memcached, proxy)
    one, other = namesakes
    source = await Source.open(connect_to(one))
    assert await source.is_left(connect_to(other))
    source.close()


def test_servers_of_one_data_set_share_answers_and_a_switch_forgets_them(
    pair: Pair, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    one, other = pair
    first = proxy(one, memcached, upstream__data_set="shop")
    assert read(first, one) == "one"
    second = proxy(other, memcached, upstream__data_set="shop")
    assert read(second, other) == "other"
    third = proxy(other, memcached, upstream__data_set="shop")
    assert read(third, other) == "other"
    assert hits(third) == 3


def test_who_has_another_servers_log_followed_knows_that_its_own_is_not(
    pair: Pair, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    one, other = pair
    follows = {"binlog__follow": "auto", "binlog__max_lag_s": 2, "binlog__catch_up_s": 1}
    first = proxy(one, memcached, **follows)
    wait_until(lambda: first.metrics()["sqlcache_binlog_following"] == 1, 20, "its turn")
    second = proxy(other, memcached, **follows, binlog__when_lagging="bypass")
    wait_until(lambda: second.metrics()["sqlcache_binlog_lagging"] == 1, 20, "that it lags")
    assert "another server's" in second.readiness()["warnings"]["binlog"]
    assert read(second, other) == "other"
    other.sql("UPDATE shop.t SET v = 'changed'")
    assert read(second, other) == "changed"
    other.sql("UPDATE shop.t SET v = 'other'")
    third = proxy(one, memcached, **follows)
    wait_until(lambda: not third.readiness()["warnings"], 20, "a place that is proven")
    assert third.metrics()["sqlcache_binlog_lagging"] == 0


def test_who_stands_in_has_its_log_followed_though_the_connections_of_before_go_on(
    pair: Pair, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    one, other = pair
    with Middleman(one) as between:
        served = proxy(
            cast(PrivateSqlServer, between),
            memcached,
            binlog__follow="on",
            upstream__data_set="shop",
            upstream__catalog_refresh_s=1,
        )
        wait_until(lambda: served.metrics()["sqlcache_binlog_following"] == 1, 20, "its turn")
        wait_until(lambda: not served.readiness()["warnings"], 20, "what is logged")
        assert read(served, one) == "one"
        between.lead_to(other)
        wait_until(lambda: served.metrics()["sqlcache_binlog_gaps_total"] == 2, 20, "another log")
        wait_until(lambda: not served.readiness()["warnings"], 20, "what is logged")
        wait_until(lambda: read(served, other, 1) == "other", 20, "the other server")
        time.sleep(1.5)  # MySQL's everything is forgotten once more
        assert read(served, other) == "other"
        other.sql("UPDATE shop.t SET v = 'changed'")
        wait_until(lambda: read(served, other, 1) == "changed", 20, "what was written around")
        assert read(served, other) == "changed"
        other.sql("UPDATE shop.t SET v = 'other'")


def test_what_is_defined_after_a_switch_is_read_where_it_was_made(
    pair: Pair, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    one, other = pair
    for server in pair:
        server.sql("CREATE DATABASE audit; CREATE TABLE audit.x (v VARCHAR(20))")
    with Middleman(one) as between:
        served = proxy(
            cast(PrivateSqlServer, between),
            memcached,
            binlog__follow="on",
            upstream__data_set="shop",
            upstream__catalog_refresh_s=3_600,
        )
        wait_until(lambda: served.metrics()["sqlcache_binlog_gaps_total"] == 1, 20, "its log")
        wait_until(lambda: not served.readiness()["warnings"], 20, "what is logged")
        between.lead_to(other)
        wait_until(lambda: served.metrics()["sqlcache_binlog_gaps_total"] == 2, 20, "another log")
        wait_until(lambda: not served.readiness()["warnings"], 20, "what is logged")
        time.sleep(1.5)  # MySQL's everything is forgotten once more
        login: dict[str, Any] = {"user": other.user, "password": other.password}
        with closing(pymysql.connect(host=served.host, port=served.port, **login)) as connection:
            connection.autocommit(True)
            cursor = connection.cursor()
            cursor.execute(
                "CREATE TRIGGER shop.tr AFTER INSERT ON shop.t FOR EACH ROW"
                " INSERT INTO audit.x VALUES (NEW.v)"
            )
            for number in range(3):
                for _ in range(3):
                    cursor.execute("SELECT COUNT(*) FROM audit.x")
                    assert cursor.fetchall() == ((number,),)
                cursor.execute("INSERT INTO shop.t VALUES ('more')")
        other.sql("DROP TRIGGER shop.tr; DELETE FROM shop.t WHERE v = 'more'")
    for server in pair:
        server.sql("DROP DATABASE audit")


def test_a_write_that_goes_on_where_no_new_connection_leads_keeps_its_fence(
    pair: Pair, proxy: ProxyFactory
) -> None:
    """Whoever answers then does not list the writer's connection, and may see all that it has."""
    one, other = pair
    for server in pair:
        server.sql(f"GRANT PROCESS ON *.* TO {server.service_user}")
    with Middleman(one) as between, closing(one.connect(database="shop")) as holder:
        served = proxy(
            cast(PrivateSqlServer, between), "memory", cache__write_deadline_s=DEADLINE_S
        )

        def is_hit(server: PrivateSqlServer) -> bool:
            before = hits(served)
            read(served, server)
            return hits(served) > before

        wait_until(lambda: is_hit(one), 20, "a hit")
        run(holder, "BEGIN")
        run(holder, f"{READ} FOR UPDATE")
        with RawClient.logged_in(served, one.user, one.password, "shop") as writer:
            writer.query("UPDATE t SET v = 'one'")
            number_of(one, "UPDATE t")
            began = time.monotonic()
            between.lead_to(other)
            between.cut()
            writer.read_to_end()
        wait_until(lambda: is_hit(other), 2 * DEADLINE_S, "a hit")
        assert time.monotonic() - began > DEADLINE_S / 2
        number_of(one, "UPDATE t")
    for server in pair:
        server.sql(f"REVOKE PROCESS ON *.* FROM {server.service_user}")


async def test_two_connections_to_two_servers_are_none_to_follow_a_log_by(pair: Pair) -> None:
    """One of them would be asked when a commit of the other can be seen."""
    turns = itertools.cycle(pair)

    async def connect() -> aiomysql.Connection:
        return await connect_to(next(turns))()

    with pytest.raises(UpstreamError, match="another server"):
        await Source.open(connect)
