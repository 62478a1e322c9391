"""What a client has sent is done though it goes before the answer, as MySQL would do it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Fault, Middleman
from tests.fakes.raw_client import RawClient


@pytest.fixture
def middleman(upstream: PrivateSqlServer) -> Iterator[Middleman]:
    """The network to MySQL."""
    with Middleman(upstream) as between:
        yield between


@pytest.fixture
def relay(middleman: Middleman, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache that reaches MySQL through the middleman only, who can read what is said."""
    return proxy(middleman, "memory", upstream__catalog_refresh_s=3600, upstream__tls="disabled")


def logged_in(upstream: PrivateSqlServer, relay: PrivateSqlcache, schema: str) -> RawClient:
    upstream.connect().close()  # it remembers the password now
    return RawClient.logged_in(relay, upstream.user, upstream.password, schema)


def heard_of_by(relay: PrivateSqlcache) -> None:
    """What has come there before is known there when this returns."""
    for _ in range(3):
        relay.metrics()


def test_its_write_is_made_amid_what_is_to_be_run_before_that(
    upstream: PrivateSqlServer, middleman: Middleman, relay: PrivateSqlcache, schema: str
) -> None:
    """As where it asks what a hit has left behind."""
    upstream.sql(f"CREATE TABLE {schema}.t (a INT); INSERT INTO {schema}.t VALUES (1), (2)")
    read, write = "SELECT a FROM t WHERE a < 3", "INSERT INTO t SELECT 100 + FOUND_ROWS()"
    with logged_in(upstream, relay, schema) as client:
        for _ in range(3):
            client.query(read)
            ends = 0
            while ends < 2:  # behind the column, and the rows
                ends += client.read_packet()[1][:1] == b"\xfe"
        trap = middleman.set_trap(b"UNION ALL SELECT 1", Fault.HOLD)
        client.query(write)
        assert trap.sprung.wait(30)
        client.reset()
    heard_of_by(relay)
    trap.released.set()
    wait_until(lambda: (102,) in upstream.sql(f"SELECT a FROM {schema}.t"), 30, "the write")


@pytest.mark.parametrize("write", ["INSERT INTO t VALUES (1)", "SELECT b FROM v"])
def test_its_write_is_made_amid_the_reading_of_its_tables(
    upstream: PrivateSqlServer,
    middleman: Middleman,
    relay: PrivateSqlcache,
    schema: str,
    write: str,
) -> None:
    with logged_in(upstream, relay, schema) as client:
        client.sql("SELECT 1")
        upstream.sql(
            "CREATE TABLE t (a INT); CREATE FUNCTION writes() RETURNS INT DETERMINISTIC"
            " MODIFIES SQL DATA BEGIN INSERT INTO t VALUES (1); RETURN 1; END;"
            " CREATE VIEW v AS SELECT writes() AS b",
            schema,
        )
        trap = middleman.set_trap(schema.encode(), Fault.HOLD)
        client.query(write)
        assert trap.sprung.wait(30)
        client.reset()
    heard_of_by(relay)
    trap.released.set()
    wait_until(lambda: upstream.sql(f"SELECT a FROM {schema}.t") == ((1,),), 30, "the write")
