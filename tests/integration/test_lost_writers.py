"""Writers whose connections to MySQL are lost amid a write: what becomes of their fences."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from tests.coherence.sessions import ask, run
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import RawClient

READ = "SELECT SUM(v) FROM t"
DEADLINE_S = 12.0
SLOW = "UPDATE t SET v = v + 1 + SLEEP({})"


@pytest.fixture
def service(upstream: PrivateSqlServer, schema: str) -> Iterator[str]:
    """An account for sqlcache."""
    name = f"{schema}_own"
    rights = "SELECT, SHOW VIEW, TRIGGER ON *.*"
    upstream.sql(f"CREATE USER {name} IDENTIFIED BY ''; GRANT {rights} TO {name}")
    yield name
    upstream.sql(f"DROP USER {name}")


@pytest.fixture
def start(
    upstream: PrivateSqlServer, proxy: ProxyFactory, service: str, schema: str
) -> Iterator[Any]:
    """`start()` is a sqlcache and a session; there is a table `t` with one row, 0, that it reads
    from the cache."""
    upstream.connect().close()  # so that caching_sha2_password knows the password
    opened: list[Any] = []

    def started() -> tuple[PrivateSqlcache, Any]:
        url = f"mysql://{service}@{upstream.address}"
        settings = {"cache__write_deadline_s": DEADLINE_S, "upstream__catalog_refresh_s": 3600}
        relay = proxy(SimpleNamespace(service_url=url), "memory", **settings)
        account = {"user": upstream.user, "password": upstream.password, "database": schema}
        reader = relay.connect(**account)
        opened.append(reader)
        run(reader, "CREATE TABLE t (v INT)")
        run(reader, "INSERT INTO t VALUES (0)")
        wait_until(lambda: is_hit(relay, reader), 10, "a hit")
        return relay, reader

    yield started
    for each in opened:
        each.close()


def is_hit(relay: PrivateSqlcache, session: Any) -> bool:
    before = relay.metrics()["sqlcache_hits_total"]
    ask(session, READ)
    return relay.metrics()["sqlcache_hits_total"] > before


def number_of(upstream: PrivateSqlServer, doing: str) -> int:
    """Of the connection that does this, once it is there."""
    found: list[int] = []

    def is_there() -> bool:
        rows = upstream.sql(
            "SELECT ID FROM information_schema.processlist"
            f" WHERE ID <> CONNECTION_ID() AND INFO LIKE '{doing}%'"
        )
        found[:] = [row[0] for row in rows]
        return bool(found)

    wait_until(is_there, 20, doing)
    return found[0]


def fenced_s(relay: PrivateSqlcache, reader: Any) -> float:
    """How long nothing is a hit from here on."""
    began = time.monotonic()
    wait_until(lambda: is_hit(relay, reader), 2 * DEADLINE_S, "a hit")
    return time.monotonic() - began


def test_the_fence_of_a_writer_that_was_killed_ends_with_it(
    upstream: PrivateSqlServer, start: Any, service: str, schema: str
) -> None:
    upstream.sql(f"GRANT PROCESS ON *.* TO {service}")
    relay, reader = start()
    account = upstream.user, upstream.password, schema
    with RawClient.logged_in(relay, *account) as writer:
        writer.query(SLOW.format(60))
        upstream.sql(f"KILL {number_of(upstream, 'UPDATE')}")
        writer.read_to_end()
    assert fenced_s(relay, reader) < DEADLINE_S / 2
    assert (ask(reader, READ),) == upstream.sql(READ, schema)[0]


def test_the_fence_of_a_writer_that_was_lost_stands_while_mysql_writes(
    upstream: PrivateSqlServer, start: Any, service: str, schema: str
) -> None:
    """Amid a file, of which MySQL has all it needs for the write to go on."""
    upstream.sql(f"GRANT PROCESS ON *.* TO {service}")
    relay, reader = start()
    run(reader, "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 5 + SLEEP(2)")
    run(reader, "ALTER TABLE t ENGINE = MyISAM")
    wait_until(lambda: is_hit(relay, reader), 10, "a hit")
    account = upstream.user, upstream.password, schema
    writer = RawClient.logged_in(relay, *account)
    writer.query("LOAD DATA LOCAL INFILE 'x' INTO TABLE t")
    sequence, _ = writer.read_packet()
    writer.send(b"\4\0\0" + bytes((sequence + 1,)) + b"1\n2\n")
    number_of(upstream, "LOAD DATA")
    writer.close()
    assert not is_hit(relay, reader)
    assert fenced_s(relay, reader) < DEADLINE_S / 2
    assert not upstream.sql(
        "SELECT ID FROM information_schema.processlist WHERE INFO LIKE 'LOAD DATA%'"
    )
    assert (ask(reader, READ),) == upstream.sql(READ, schema)[0]


def test_without_the_right_to_see_its_connection_its_fence_stands_for_the_deadline(
    upstream: PrivateSqlServer, start: Any, schema: str
) -> None:
    relay, reader = start()
    account = upstream.user, upstream.password, schema
    with closing(RawClient.logged_in(relay, *account)) as writer:
        writer.query(SLOW.format(60))
        upstream.sql(f"KILL {number_of(upstream, 'UPDATE')}")
        writer.read_to_end()
    assert fenced_s(relay, reader) > DEADLINE_S / 2
    assert relay.metrics()["sqlcache_upstream_up"] == 1
