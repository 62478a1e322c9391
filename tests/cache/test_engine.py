"""The engine over the embedded store: one process, several engines as several proxies."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sqlcache.cache.engine import LEASE_TIMEOUT, NOT_STORABLE, Engine, Lease, Limits
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.lookups import FENCED, UNREACHABLE, UNREPORTED, Bypass, Hit, Outcome, Read
from sqlcache.cache.tags import ROOT, Tag, read_tags
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import Metrics
from sqlcache.sql.names import TableName

ORDERS = Tag("shop", "orders")
LINES = Tag("shop", "lines")
LIMITS = Limits(ttl_s=60, lease_ttl_s=10, lease_wait_s=2, write_deadline_s=0.3)


class Node(MemoryNode):
    """A store that can be away, and forgets nothing meanwhile."""

    away = False

    def submit(self, payload, count, done):  # type: ignore[no-untyped-def]
        if self.away:
            asyncio.get_running_loop().call_soon(done, None)
        else:
            super().submit(payload, count, done)


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def engines(node: Node, metrics: Metrics) -> AsyncIterator[list[Engine]]:
    made = [Engine(Cluster([node]), Keyspace("test"), LIMITS, metrics) for _ in range(2)]
    yield made
    for engine in made:
        await engine.close()


@pytest.fixture
def engine(engines: list[Engine]) -> Engine:
    return engines[0]


def read_of(engine: Engine, *names: str, text: bytes = b"SELECT") -> Read:
    tags = read_tags([TableName("shop", name) for name in names])
    return engine.read(b"session", text, tags, text)


async def filled(engine: Engine, read: Read, answer: bytes) -> None:
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    await lease.fill(lease.versions + answer)


async def answer_to(engine: Engine, read: Read) -> bytes | None:
    got = await engine.obtain(read)
    if isinstance(got, Lease):
        await got.release()
    return got.value[got.versions_bytes :] if isinstance(got, Hit) else None


async def test_a_filled_answer_is_a_hit_for_every_engine(engines: list[Engine]) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    for engine in engines:
        assert await answer_to(engine, read_of(engine, "orders")) == b"answer"


@pytest.mark.parametrize("tag", [ORDERS, Tag("shop"), ROOT])
async def test_a_bump_of_any_of_its_tags_forgets_an_answer(engines: list[Engine], tag: Tag) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    await engines[1].bump([tag])
    assert await answer_to(engines[0], read) is None


@pytest.mark.parametrize("tag", [LINES, Tag("blog"), Tag("blog", "orders")])
async def test_a_bump_of_another_tag_forgets_nothing(engine: Engine, tag: Tag) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    await engine.bump([tag])
    assert await answer_to(engine, read) == b"answer"


async def test_an_answer_that_a_write_overtook_is_never_served(engine: Engine) -> None:
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    await (await engine.fence([ORDERS])).lift()
    await lease.fill(lease.versions + b"from before the write")
    assert await answer_to(engine, read) is None


async def test_while_a_fence_stands_nothing_is_served_or_stored(engines: list[Engine]) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    fence = await engines[1].fence([ORDERS])
    assert await engines[0].obtain(read) == FENCED
    await fence.lift()
    assert isinstance(got := await engines[0].obtain(read), Lease)
    await got.release()


async def test_a_write_that_was_never_sent_forgets_nothing(engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    await (await engine.fence([ORDERS])).undo()
    assert await answer_to(engine, read) == b"answer"


async def test_a_part_of_a_write_is_published_under_its_fence(engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    fence = await engine.fence([ORDERS])
    await fence.publish()
    assert await engine.obtain(read) == FENCED
    await fence.lift()
    assert await answer_to(engine, read) is None


async def test_an_unknown_outcome_keeps_its_fence_for_the_deadline(engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    (await engine.fence([ORDERS])).abandon()
    assert await engine.obtain(read) == FENCED
    await eventually_not(engine, read, FENCED)
    assert await answer_to(engine, read) is None


async def test_the_fence_of_a_dead_process_lapses(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    dead = Engine(Cluster([node]), Keyspace("test"), LIMITS, Metrics())
    await dead.fence([ORDERS])
    await dead.close()
    assert await engine.obtain(read) == FENCED
    await eventually_not(engine, read, FENCED)
    assert await answer_to(engine, read) is None


async def test_the_fence_of_a_long_write_is_renewed(engines: list[Engine]) -> None:
    read = read_of(engines[0], "orders")
    fence = await engines[1].fence([ORDERS])
    deadline = asyncio.get_running_loop().time() + 4 * LIMITS.write_deadline_s
    while asyncio.get_running_loop().time() < deadline:
        assert await engines[0].obtain(read) == FENCED
        await asyncio.sleep(0.02)
    await fence.lift()


async def eventually_not(engine: Engine, read: Read, outcome: Bypass) -> None:
    async with asyncio.timeout(10):
        while await engine.obtain(read) == outcome:
            await asyncio.sleep(0.01)


async def test_one_miss_leads_and_the_others_get_its_answer(engines: list[Engine]) -> None:
    waiters = []
    lease = await engines[0].obtain(read_of(engines[0], "orders"))
    assert isinstance(lease, Lease)
    for engine in engines * 50:
        waiters.append(asyncio.ensure_future(engine.obtain(read_of(engine, "orders"))))
    done, _ = await asyncio.wait(waiters, timeout=0.05)
    assert not done
    await lease.fill(lease.versions + b"answer")
    for got in await asyncio.gather(*waiters):
        assert isinstance(got, Hit)


async def test_an_answer_that_cannot_be_stored_frees_the_others_at_once(
    engines: list[Engine], metrics: Metrics
) -> None:
    lease = await engines[0].obtain(read_of(engines[0], "orders"))
    assert isinstance(lease, Lease)
    waiters = [asyncio.ensure_future(e.obtain(read_of(e, "orders"))) for e in engines * 5]
    async with asyncio.timeout(10):
        while metrics.lease_waits < len(waiters):
            await asyncio.sleep(0)
    await lease.decline()
    assert await asyncio.gather(*waiters) == [NOT_STORABLE] * 10


async def test_a_shape_whose_answers_cannot_be_stored_takes_no_lease(engine: Engine) -> None:
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    await lease.decline()
    both = await asyncio.gather(engine.obtain(read), engine.obtain(read))
    assert all(isinstance(got, Lease) for got in both)


async def test_a_lease_given_back_goes_to_the_next(engines: list[Engine]) -> None:
    lease = await engines[0].obtain(read_of(engines[0], "orders"))
    assert isinstance(lease, Lease)
    waiter = asyncio.ensure_future(engines[1].obtain(read_of(engines[1], "orders")))
    await asyncio.sleep(0)
    await lease.release()
    got = await waiter
    assert isinstance(got, Lease)
    await got.release()


async def test_a_lease_taken_after_the_fill_is_given_back(engine: Engine) -> None:
    read = read_of(engine, "orders")
    before: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    engine.lookup(read, before.set_result)
    outcome = await before
    await filled(engine, read, b"answer")
    assert isinstance(await engine.obtain(read, outcome), Hit)
    assert await answer_to(engine, read) == b"answer"


async def test_a_waiter_goes_to_mysql_when_the_wait_is_over(node: Node) -> None:
    limits = Limits(ttl_s=60, lease_ttl_s=10, lease_wait_s=0.05, write_deadline_s=1)
    engine = Engine(Cluster([node]), Keyspace("test"), limits, Metrics())
    lease = await engine.obtain(read_of(engine, "orders"))
    assert isinstance(lease, Lease)
    assert await engine.obtain(read_of(engine, "orders")) == LEASE_TIMEOUT
    await lease.release()
    await engine.close()


async def test_a_store_that_is_away_is_bypassed(node: Node, engine: Engine) -> None:
    node.away = True
    assert await engine.obtain(read_of(engine, "orders")) == UNREACHABLE


async def test_a_bump_that_could_not_be_made_is_made_later(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    fence = await engine.fence([ORDERS])
    node.away = True
    await fence.lift()
    node.away = False
    assert await engine.obtain(read) == UNREPORTED
    await eventually_not(engine, read, UNREPORTED)
    assert await answer_to(engine, read) is None


async def test_a_bump_owed_at_the_end_is_made_at_the_end(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    last = Engine(Cluster([node]), Keyspace("test"), LIMITS, Metrics())
    node.away = True
    await last.bump([ORDERS])
    node.away = False
    await last.close()
    assert await answer_to(engine, read) is None


async def test_a_tag_that_is_lost_forgets_its_answers(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    await node.request(b"md %b\r\n" % Keyspace("test").tag("shop", "orders"), 1)
    assert await answer_to(engine, read) is None


async def test_a_log_that_cannot_be_read_is_mended(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    key = Keyspace("test").tag("shop", "orders")
    await node.request(b"ms %b 3\r\n???\r\n" % key, 1)
    assert await answer_to(engine, read) is None
    await filled(engine, read, b"new")
    assert await answer_to(engine, read) == b"new"


async def test_a_log_stays_short_however_much_is_written(node: Node, engine: Engine) -> None:
    for _ in range(100):
        await (await engine.fence([ORDERS])).lift()
    (reply,) = await node.request(b"mg %b s\r\n" % Keyspace("test").tag("shop", "orders"), 1)
    assert int(reply[2][1:]) < 700


async def test_a_fence_tells_the_versions_it_was_asked_for(engine: Engine) -> None:
    versions = await engine.versions([ROOT, Tag("shop")])
    fence = await engine.fence([ORDERS], [ROOT, Tag("shop"), Tag("new")])
    assert fence.observed == {**versions, Tag("new"): None}
    await fence.lift()
