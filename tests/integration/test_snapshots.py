"""Transactions that open their snapshots for a hit, while others write and fill."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from tests.coherence.sessions import ask, count, run
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Fault, Middleman
from tests.servers import PATIENT

READ = "SELECT SUM(v) FROM t"
TTL_S = 6


@pytest.fixture
def between(upstream: PrivateSqlServer) -> Iterator[Middleman]:
    upstream.connect().close()  # so that caching_sha2_password knows the password
    with Middleman(upstream) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["straight path", "long way"])
def relay(
    request: pytest.FixtureRequest, between: Middleman, proxy: ProxyFactory
) -> PrivateSqlcache:
    straight = request.param and PATIENT["proxy__straight_path"]
    return proxy(between, "memory", cache__ttl_s=TTL_S, proxy__straight_path=straight)


@pytest.fixture
def sessions(
    relay: PrivateSqlcache, upstream: PrivateSqlServer, schema: str
) -> Iterator[tuple[Any, Any, Any]]:
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(closing(relay.connect(**account))) for _ in range(3))
        yield one, two, three


def test_a_snapshot_that_a_hit_opens_holds_nothing_that_another_reads_after_a_write(
    between: Middleman,
    relay: PrivateSqlcache,
    sessions: tuple[Any, Any, Any],
    upstream: PrivateSqlServer,
) -> None:
    """The entry's time is over when the snapshot is open. Another has begun to fill, and MySQL
    answers it after a write that has begun since."""
    own, other, writer = sessions
    run(writer, "CREATE TABLE t (v INT)")
    run(writer, "INSERT INTO t VALUES (1)")
    run(own, "SET autocommit = 0")
    threads, filling = ThreadPoolExecutor(2), list[Future[None]]()

    def is_hit() -> bool:
        hits = count(relay, "hits")
        ask(other, READ)
        return count(relay, "hits") > hits

    def is_asked() -> bool:
        if not filling or filling[0].done():
            filling[:] = [threads.submit(run, other, READ)]
        doing = upstream.sql("SELECT INFO FROM information_schema.processlist WHERE INFO <> ''")
        return any(text == READ for (text,) in doing)

    wait_until(is_hit, 20, "a hit")
    trap = between.set_trap(b"WITH CONSISTENT SNAPSHOT", Fault.HOLD)
    reading = threads.submit(ask, own, READ)
    assert trap.sprung.wait(20)
    run(writer, "LOCK TABLES t WRITE")
    wait_until(is_asked, 20, "the end of the entry")
    waits = count(relay, "lease_waits")
    trap.released.set()
    wait_until(lambda: count(relay, "lease_waits") > waits, 20, "a wait for the fill")
    run(writer, "UPDATE t SET v = 2")
    run(writer, "UNLOCK TABLES")
    assert (filling[0].result(20), reading.result(20)) == (None, 1)
    assert ask(own, READ) == 1
    run(own, "COMMIT")
    assert ask(own, READ) == 2
