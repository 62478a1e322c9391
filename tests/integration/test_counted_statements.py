"""What the counters of statements and hits say, against what was sent."""

from __future__ import annotations

from contextlib import closing

import pytest

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache, PrivateSqlServer, wait_until
from tests.coherence.sessions import ask, run
from tests.conftest import ProxyFactory

HITS, NEAR = "sqlcache_hits_total", "sqlcache_near_hits_total"
WINDOW, RELAYED = "sqlcache_window_hits_total", "sqlcache_statements_relayed_total"
READ = "SELECT SUM(v) FROM t"
ROUNDS = 20


@pytest.fixture(
    params=[(True, 5), (True, 0), (False, 5)],
    ids=["straight", "without read leases", "the long way"],
)
def relay(
    request: pytest.FixtureRequest,
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
) -> PrivateSqlcache:
    straight, lease_ms = request.param
    settings = {"proxy__straight_path": straight, "cache__read_lease_ms": lease_ms}
    return proxy(upstream, memcached, **settings, upstream__catalog_refresh_s=3600)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
def test_a_command_is_either_a_hit_or_relayed_and_no_hit_is_near_twice(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, schema: str, level: str
) -> None:
    upstream.sql("CREATE TABLE t (v INT)", schema)
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    with closing(relay.connect(**account)) as session:
        run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")

        def is_hit() -> bool:
            before = relay.metrics()[HITS]
            ask(session, READ)
            return relay.metrics()[HITS] > before

        wait_until(is_hit, 10, "a hit")
        before = relay.metrics()
        statements = ("BEGIN", READ, READ, "COMMIT", READ, "SELECT 1", "DO 0")
        for _ in range(ROUNDS):
            for statement in statements:
                run(session, statement)
        after = relay.metrics()
        counted = {name: after[name] - before[name] for name in (HITS, NEAR, WINDOW, RELAYED)}
        assert counted[HITS] >= ROUNDS
        assert counted[HITS] + counted[RELAYED] == ROUNDS * len(statements)
        assert 0 < counted[NEAR] <= counted[HITS]
        assert counted[WINDOW] <= counted[NEAR]
