"""A MySQL server that ends and begins anew: other globals, and the last commits perhaps lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pymysql.constants import COMMAND

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.integration.test_binlog import FOLLOWS, settled
from tests.servers import PATIENT, MySQLMissing, PrivateMySQL

ROOTS = 'sqlcache_invalidations_total{kind="root"}'
READ = "SELECT made, v FROM s.t"


@pytest.fixture(params=[PrivateMariaDB, PrivateMySQL], ids=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrivateSqlServer]:
    """One of its own, with a table."""
    try:
        own: PrivateSqlServer = request.param(tmp_path / "server")
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with own:
        own.sql("CREATE DATABASE s; CREATE TABLE s.t (made TIMESTAMP, v INT)")
        own.sql("INSERT INTO s.t VALUES ('2020-06-01 12:00:00', 1)")
        yield own


@pytest.fixture
def relay(server: PrivateSqlServer, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache that reads the catalog only where it must."""
    server.connect().close()  # so that caching_sha2_password knows the password
    return proxy(server, "memory", upstream__catalog_refresh_s=3600)


def read(server: PrivateSqlServer, at: Any) -> Any:
    """The answer to a session that begins now."""
    with (
        closing(at.connect(user=server.user, password=server.password)) as session,
        session.cursor() as cursor,
    ):
        cursor.execute(READ)
        return cursor.fetchall()


def read_hit(server: PrivateSqlServer, relay: PrivateSqlcache) -> Any:
    answers = []

    def was_hit() -> bool:
        before = relay.metrics()["sqlcache_hits_total"]
        answers.append(read(server, relay))
        return relay.metrics()["sqlcache_hits_total"] > before

    wait_until(was_hit, 20, "a hit")
    return answers[-1]


def grow_up(server: PrivateSqlServer) -> None:
    """Until the next beginning is in another second: by these they are told apart."""
    wait_until(lambda: server.status("Uptime") > 0, 10, "its age")


def crash(server: PrivateSqlServer) -> None:
    grow_up(server)
    end_and_begin_anew(server)


def end_and_begin_anew(server: PrivateSqlServer) -> None:
    server.kill()
    server.restart()
    server.connect().close()


def lose_the_last_commit(server: PrivateSqlServer) -> None:
    """As a crash may where commits are not flushed; whether it does is not for a test to say."""
    server.sql("UPDATE s.t SET v = 1")


def test_sessions_of_a_server_that_began_anew_have_its_globals(
    server: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    server.sql("SET GLOBAL time_zone = '+05:00'")
    relay.restart()
    before = read_hit(server, relay)
    assert before == read(server, server)
    crash(server)
    after = read(server, server)
    assert after != before
    assert read(server, relay) == after
    assert read_hit(server, relay) == after


def test_what_a_crash_has_lost_is_forgotten(
    server: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    assert read_hit(server, relay) == read(server, server)
    with closing(relay.connect(user=server.user, password=server.password)) as session:
        session.cursor().execute("UPDATE s.t SET v = 2")
    read_hit(server, relay)
    crash(server)
    lose_the_last_commit(server)
    assert read(server, relay) == read(server, server)
    assert read_hit(server, relay) == read(server, server)


def test_who_starts_then_knows_of_what_others_had_before(
    server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    """Though they have nothing to do, and have not met the server since."""
    idle = proxy(server, memcached, upstream__catalog_refresh_s=3600)
    with closing(idle.connect(user=server.user, password=server.password)) as session:
        session.cursor().execute("UPDATE s.t SET v = 2")
    read_hit(server, idle)
    crash(server)
    lose_the_last_commit(server)
    assert read(server, proxy(server, memcached)) == read(server, server)


def test_contact_that_was_lost_costs_nothing_where_the_server_runs_on(
    server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    """Also where one who lost it is stopped before he looks."""
    one, other = (proxy(server, memcached, upstream__catalog_refresh_s=3600) for _ in range(2))
    read_hit(server, one)
    connections = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{}'"
    for (number,) in server.sql(connections.format(server.service_user)):
        server.sql(f"KILL {number}")
    one.stop()
    read(server, other)  # by who does not know what others begin with, and shares nothing
    read(server, other)
    assert other.metrics()["sqlcache_hits_total"] == 1


def test_what_a_crash_amid_a_reading_of_the_catalog_has_lost_is_forgotten(
    server: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    """Who read it has closed the connection then, on which it was to be seen."""
    session: Any = relay.connect(user=server.user, password=server.password)
    with closing(session):
        cursor = session.cursor()
        cursor.execute("CREATE TABLE s.other (v INT)")
        read_hit(server, relay)
        cursor.execute("UPDATE s.t SET v = 2")
        read_hit(server, relay)
        grow_up(server)
        server.freeze()
        session._execute_command(COMMAND.COM_QUERY, "SELECT v FROM s.other")
        time.sleep(1)  # its definition is asked for meanwhile
        end_and_begin_anew(server)
    lose_the_last_commit(server)
    assert read(server, relay) == read(server, server)
    assert read_hit(server, relay) == read(server, server)


def test_who_follows_the_log_over_a_crash_leaves_nothing_of_what_that_has_lost(
    server: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    """To who goes on where it has followed the log up to, behind that. It has not been up for long
    enough for its age to tell."""
    relay = proxy(server, memcached, **FOLLOWS, upstream__catalog_refresh_s=3600)
    wait_until(lambda: settled(relay, server), 20, "the log")
    with closing(relay.connect(user=server.user, password=server.password)) as session:
        session.cursor().execute("UPDATE s.t SET v = 2")
    read_hit(server, relay)
    server.kill()
    server.restart()
    server.sql("SET SESSION sql_log_bin = 0; UPDATE s.t SET v = 1")
    told = "binary log: the server has begun anew"
    wait_until(lambda: told in relay.log_text(), 20, "that it has come by its beginning")
    relay.restart()
    assert read_hit(server, relay) == read(server, server)


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("server", [PrivateMariaDB], ids=["mariadb"], indirect=True)
def test_its_other_version_is_told(server: PrivateSqlServer, relay: PrivateSqlcache) -> None:
    """At once, if it was before."""
    ahead = "sqlcache_statements_ahead_total"
    asked = "SELECT VERSION()"

    def version() -> tuple[Any, bool]:
        with (
            closing(relay.connect(user=server.user, password=server.password)) as session,
            session.cursor() as cursor,
        ):
            before = relay.metrics()[ahead]
            cursor.execute(asked)
            return cursor.fetchall(), relay.metrics()[ahead] > before

    told = server.sql(asked)
    assert [version() for _ in range(4)] == [(told, False)] * 3 + [(told, True)]
    server.options = ("--version=11.0.99-other",)
    crash(server)
    assert server.sql(asked) != told
    assert version() == (server.sql(asked), False)
