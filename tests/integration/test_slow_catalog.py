"""A catalog that cannot be read in time, as one of whose tables another session does not let go."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlcache, wait_until
from tests import web
from tests.conftest import ProxyFactory

CATALOG_S = 8
READ = "SELECT made FROM s.t"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateMariaDB]:
    """One of its own, which has a table, and a view of another one."""
    with PrivateMariaDB(tmp_path / "server") as own:
        own.sql("CREATE DATABASE s; CREATE TABLE s.t (made TIMESTAMP)")
        own.sql("INSERT INTO s.t VALUES ('2020-06-01 12:00:00')")
        own.sql("CREATE TABLE s.held (v INT); CREATE TABLE s.last (v INT)")
        own.sql("CREATE VIEW s.seen AS SELECT v FROM s.held")
        yield own


@pytest.fixture
def relay(server: PrivateMariaDB, proxy: ProxyFactory) -> PrivateSqlcache:
    return proxy(
        server, "memory", upstream__catalog_refresh_s=1, upstream__catalog_timeout_s=CATALOG_S
    )


def session(server: PrivateMariaDB, at: Any) -> Any:
    return closing(at.connect(user=server.user, password=server.password))


def read(connection: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(READ)
        return cursor.fetchall()


@contextmanager
def unreadable(server: PrivateMariaDB, relay: PrivateSqlcache) -> Iterator[None]:
    """Nobody can read a definition meanwhile, and sqlcache has tried. A renaming has one of its
    tables to itself, and waits for the other."""

    def rename() -> None:
        server.sql("RENAME TABLE s.held TO s.gone, s.last TO s.past, s.gone TO s.held")

    with session(server, server) as reader:
        reader.begin()
        reader.cursor().execute("SELECT * FROM s.last")
        renaming = threading.Thread(target=rename)
        renaming.start()
        try:
            wait_until(
                lambda: "was not read within" in str(relay.readiness()["warnings"]),
                10 * CATALOG_S,
                "a reading that takes too long",
            )
            yield
        finally:
            reader.rollback()
            renaming.join()


def login_s(server: PrivateMariaDB, relay: PrivateSqlcache) -> float:
    """The median of five sessions, one after another, that log in and ask something. The catalog is
    read all the while: who waits for that does so each time, and the host may keep one waiting."""
    took_s = []
    for _ in range(5):
        time.sleep(1)
        began = time.monotonic()
        with session(server, relay) as meanwhile:
            read(meanwhile)
        took_s.append(time.monotonic() - began)
    return median(took_s)


def test_who_logs_in_meanwhile_is_served_without_it(
    server: PrivateMariaDB, relay: PrivateSqlcache
) -> None:
    with session(server, relay) as before:
        assert read(before) == read(before)
        with unreadable(server, relay):
            assert relay.readiness()["ready"]
            assert login_s(server, relay) < CATALOG_S / 2


def test_who_has_logged_in_meanwhile_asks_what_it_began_with(
    server: PrivateMariaDB, relay: PrivateSqlcache
) -> None:
    """It may be another server's globals, which were again those of before when they were read."""
    (zone,) = server.sql("SELECT @@GLOBAL.time_zone")[0]
    with unreadable(server, relay):
        server.sql("SET GLOBAL time_zone = '+05:00'")
        other: Any = relay.connect(user=server.user, password=server.password)
        with session(server, server) as direct:
            elsewhere = read(direct)
        server.sql(f"SET GLOBAL time_zone = '{zone}'")
    with closing(other):
        wait_until(lambda: relay.readiness()["warnings"] == {}, 4 * CATALOG_S, "the catalog")
        with session(server, relay) as one:

            def is_hit() -> bool:
                before = relay.metrics()["sqlcache_hits_total"]
                assert read(one) == here
                return relay.metrics()["sqlcache_hits_total"] > before

            with session(server, server) as direct:
                here = read(direct)
            assert here != elsewhere
            wait_until(is_hit, 20, "a hit")
            for _ in range(4):
                assert read(other) == elsewhere
            assert is_hit()


def test_what_the_server_runs_for_who_logs_in_meanwhile_is_seen(
    server: PrivateMariaDB, relay: PrivateSqlcache
) -> None:
    """The last reading that went well has not told of it. By the catalog of that it is known what
    it writes, and all else is kept."""
    server.sql("CREATE TABLE s.logins (n INT); CREATE USER u; GRANT ALL ON s.* TO u")
    server.sql(f"GRANT INSERT ON s.logins TO {server.service_user}")
    notes = 'INSERT INTO s.logins SELECT 1 FROM DUAL WHERE USER() LIKE "u@%"'

    def logins(reader: Any) -> int:
        with reader.cursor() as cursor:
            for _ in range(3):
                cursor.execute("SELECT COUNT(*) FROM s.logins")
                ((count,),) = cursor.fetchall()
            return int(count)

    def is_hit() -> bool:
        before = relay.metrics()["sqlcache_hits_total"]
        return logins(reader) == 0 and relay.metrics()["sqlcache_hits_total"] > before

    with ExitStack() as stack:
        reader = stack.enter_context(session(server, relay))
        wait_until(is_hit, 20, "a hit")
        stack.enter_context(unreadable(server, relay))
        roots = relay.metrics()['sqlcache_invalidations_total{kind="root"}']
        server.sql(f"SET GLOBAL init_connect = '{notes}'")
        for more in range(3):
            assert logins(reader) == more
            relay.connect(user="u").close()
        assert logins(reader) == 3
        assert relay.metrics()['sqlcache_invalidations_total{kind="root"}'] == roots


def test_nor_do_they_wait_for_it_where_all_was_forgotten_meanwhile(
    server: PrivateMariaDB, relay: PrivateSqlcache
) -> None:
    """As after a GRANT elsewhere: then the rights of new sessions are to be read again."""
    with unreadable(server, relay):
        url = f"http://127.0.0.1:{relay.admin_port}/api/flush"
        web.post(url, json={"all": True}).raise_for_status()
        assert login_s(server, relay) < CATALOG_S / 2
