"""One fills, the others wait: within a process and between processes."""

import asyncio
from pathlib import Path

import pytest

from sqlcache.cache.engine import Engine
from sqlcache.cache.leases import LEASE_TIMEOUT, NOT_STORABLE, Lease
from sqlcache.cache.outcomes import DISTRUSTED, Bypass, Hit, Outcome
from sqlcache.cache.reads import Freshness, Read
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.demo.servers import PrivateMemcached
from sqlcache.memcache.connection import Done, NodeConnection
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import Metrics
from tests.cache.engines import (
    ORDERS,
    Node,
    answer_to,
    engine_on,
    entry_of,
    eventually,
    eventually_not,
    filled,
    limits,
    read_of,
)


async def test_one_miss_leads_and_the_others_get_its_answer(engines: list[Engine]) -> None:
    waiters = []
    lease = await engines[0].obtain(read_of(engines[0], "orders"))
    assert isinstance(lease, Lease)
    for engine in engines * 50:
        waiters.append(asyncio.ensure_future(engine.obtain(read_of(engine, "orders"))))
    done, _ = await asyncio.wait(waiters, timeout=0.05)
    assert not done
    await lease.fill(entry_of(lease, b"answer"))
    for got in await asyncio.gather(*waiters):
        assert isinstance(got, Hit)


async def test_an_answer_that_cannot_be_stored_frees_the_others_at_once(
    engines: list[Engine], metrics: Metrics
) -> None:
    lease = await engines[0].obtain(read_of(engines[0], "orders"))
    assert isinstance(lease, Lease)
    waiters = [asyncio.ensure_future(e.obtain(read_of(e, "orders"))) for e in engines * 5]
    await waiting(metrics, len(waiters))
    await lease.decline()
    assert await asyncio.gather(*waiters) == [NOT_STORABLE] * 10


@pytest.mark.parametrize("soon", [False, True])
@pytest.mark.parametrize("too_much", ["for an item", "for its parts", "in number"])
async def test_what_memcached_does_not_take_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, too_much: str, soon: bool
) -> None:
    """By those who wait in other processes: else each of them would fill in vain, in turn."""
    monkeypatch.setattr("sqlcache.cache.leases._UNSTORABLE_TTL_S", 60)
    fills, size, metrics = 0, 600_000, Metrics()
    most = {"for an item": 1_000_000, "for its parts": 550_000, "in number": 60}[too_much]
    if too_much == "in number":
        size = 60 * 65_535

    async def wants(engine: Engine, text: bytes) -> Bypass:
        nonlocal fills
        got = await engine.obtain(read_of(engine, "orders", text=text))
        if not isinstance(got, Lease):
            assert isinstance(got, Bypass)
            return got
        fills += 1
        if fills == 1:
            await waiting(metrics, 5)
        if soon:
            got.fill_soon(entry_of(got, bytes(size)))
        else:
            await got.fill(entry_of(got, bytes(size)))
        return NOT_STORABLE

    with PrivateMemcached(tmp_path, options=("-I", "512k")) as memcached:
        nodes = [
            NodeConnection("memory", memcached.host, memcached.port, timeout_s=20) for _ in range(6)
        ]
        for node in nodes:
            await node.wait_connected(5)
        own = limits(max_item_bytes=most, lease_wait_s=60)
        engines = [await engine_on(node, metrics=metrics, own=own) for node in nodes]
        for engine in engines:
            await eventually_not(engine, read_of(engine, "lines"), DISTRUSTED)
        for number in range(6):
            fills = metrics.lease_waits = 0
            wanted = (wants(engine, b"SELECT %d" % number) for engine in engines)
            assert await asyncio.gather(*wanted) == [NOT_STORABLE] * 6
            if fills <= 2:  # one may have come just before the others were told, more in a pause
                break
        else:
            pytest.fail("they filled in turn")
        read = read_of(engines[-1], "orders", text=b"SELECT short")
        await filled(engines[-1], read, b"short")
        assert await answer_to(engines[0], read) == b"short"
        for engine in engines:
            await engine.close()
        for node in nodes:
            await node.close()


class MissesParts(Node):
    """Does not answer in time to what is long."""

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        if len(payload) > 10_000:
            asyncio.get_running_loop().call_soon(done, None)
        else:
            super().submit(payload, count, done)


@pytest.mark.parametrize("soon", [False, True])
async def test_what_a_node_did_not_answer_in_time_to_is_as_storable_as_before(soon: bool) -> None:
    nodes = [MissesParts("one"), MissesParts("two")]
    metrics = Metrics()
    own = limits(max_item_bytes=30_000)
    engine, other = [await engine_on(*nodes, metrics=metrics, own=own) for _ in range(2)]
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    if soon:
        lease.fill_soon(entry_of(lease, bytes(200_000)))
    else:
        await lease.fill(entry_of(lease, bytes(200_000)))
    async with asyncio.timeout(10):
        while not metrics.fills_failed:
            await asyncio.sleep(0.01)
    await eventually_not(other, read_of(other, "lines"), DISTRUSTED)
    taken = await other.obtain(read_of(other, "orders"))
    assert isinstance(taken, Lease), "another process may fill"
    waiting = asyncio.ensure_future(engine.obtain(read))
    await asyncio.sleep(0.1)
    assert not waiting.done(), "one query per miss, as ever"
    await taken.fill(entry_of(taken, b"short"))
    assert isinstance(await waiting, Hit)
    for each in (engine, other):
        await each.close()


async def test_a_shape_whose_answers_cannot_be_stored_takes_no_lease(engine: Engine) -> None:
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    await lease.decline()
    both = await asyncio.gather(engine.obtain(read), engine.obtain(read))
    assert all(isinstance(got, Lease) for got in both)


async def test_what_cannot_be_stored_for_one_literal_is_another_matter_for_others(
    engine: Engine, metrics: Metrics
) -> None:
    texts = [b"1x", b"1", b"2"]
    odd, *plain = [engine.read(b"session", text, (ORDERS,), b"shape") for text in texts]

    async def both(read: Read) -> list[object]:
        """Two who want it at once; the first who may fill it does."""
        tasks = [asyncio.ensure_future(engine.obtain(read)) for _ in range(2)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and isinstance(got := task.result(), Lease):
                await got.fill(entry_of(got, b"answer"))
        return [type(got) for got in await asyncio.gather(*tasks)]

    async def declined(read: Read) -> None:
        lease = await engine.obtain(read)
        assert isinstance(lease, Lease)
        await lease.decline()

    await declined(odd)
    assert await both(plain[0]) == [Lease, Hit]
    await declined(odd)
    await declined(plain[1])
    await engine.bump([ORDERS])
    assert await both(plain[0]) == [Lease, Lease]
    await engine.bump([ORDERS])
    assert await both(plain[0]) == [Lease, Hit]


@pytest.mark.parametrize("later", ["first", "last"])
async def test_a_fill_goes_on_without_its_client_for_those_who_wait(
    engine: Engine, metrics: Metrics, later: str
) -> None:
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    assert not lease.is_wanted_without_client()
    waiters = [asyncio.ensure_future(engine.obtain(read)) for _ in range(3)]
    await waiting(metrics, 3)
    assert lease.is_wanted_without_client()
    done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    (second,) = [task.result() for task in done]
    assert isinstance(second, Lease)
    await waiting(metrics, 5)
    assert lease.is_wanted_without_client()
    assert not second.is_wanted_without_client()  # one is enough
    if later == "last":
        lease, second = second, lease
    await lease.fill(entry_of(lease, b"answer"))
    others = [await task for task in waiters if task not in done]
    assert [type(got) for got in others] == [Hit, Hit]
    await second.fill(entry_of(second, b"answer"))
    assert await answer_to(engine, read) == b"answer"


async def test_what_was_declined_is_not_wanted_without_its_client(
    engine: Engine, metrics: Metrics
) -> None:
    """The rest of an answer that is too long still passes by, and others fill by then."""
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    await lease.decline(lasting=False)
    while not isinstance(second := await engine.obtain(read), Lease):
        await asyncio.sleep(0.1)  # for a while all are told that none is to come
    waiter = asyncio.ensure_future(engine.obtain(read))
    await waiting(metrics, 1)
    assert not lease.is_wanted_without_client()
    assert second.is_wanted_without_client()
    await second.fill(entry_of(second, b"answer"))
    assert isinstance(await waiter, Hit | Lease)


async def test_a_fill_that_nobody_waits_for_any_more_is_not_wanted_without_its_client(
    engine: Engine, metrics: Metrics
) -> None:
    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    waiters = [asyncio.ensure_future(engine.obtain(read)) for _ in range(2)]
    await waiting(metrics, 2)
    assert lease.is_wanted_without_client()
    await waiting(metrics, 3)
    for each in waiters:
        each.cancel()
    await asyncio.wait(waiters)
    assert not lease.is_wanted_without_client()
    await lease.release()


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
    engine = await engine_on(node, own=limits(lease_wait_s=0.05))
    lease = await engine.obtain(read_of(engine, "orders"))
    assert isinstance(lease, Lease)
    assert await engine.obtain(read_of(engine, "orders")) == LEASE_TIMEOUT
    await lease.release()
    await engine.close()


async def test_who_waits_in_a_process_gets_the_answer_also_if_a_write_has_overtaken_it(
    engine: Engine, metrics: Metrics
) -> None:
    """The write ended after the waiter came, so the waiter may have either answer."""
    lease = await engine.obtain(read_of(engine, "orders"))
    assert isinstance(lease, Lease)
    waiter = asyncio.ensure_future(engine.obtain(read_of(engine, "orders")))
    await waiting(metrics, 1)
    await engine.bump([ORDERS])
    await lease.fill(entry_of(lease, b"overtaken"))
    got = await waiter
    assert isinstance(got, Hit)
    assert got.value.endswith(b"overtaken")
    assert await answer_to(engine, read_of(engine, "orders")) is None


async def test_in_a_transaction_a_waiter_gets_only_what_is_current(
    engine: Engine, metrics: Metrics
) -> None:
    lease = await engine.obtain(read_of(engine, "orders"))
    assert isinstance(lease, Lease)
    waiter = asyncio.ensure_future(engine.obtain(read_of(engine, "orders").without_staleness()))
    await waiting(metrics, 1)
    await engine.bump([ORDERS])
    await lease.fill(entry_of(lease, b"overtaken"))
    got = await waiter
    assert isinstance(got, Lease)
    await got.release()


async def test_in_a_transaction_waits_are_short(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold the lock that the fill waits for."""
    monkeypatch.setattr("sqlcache.cache.leases._TRANSACTION_WAIT_S", 0.05)
    lease = await engine.obtain(read_of(engine, "orders"))
    assert isinstance(lease, Lease)
    assert await engine.obtain(read_of(engine, "orders").without_staleness()) == LEASE_TIMEOUT
    await lease.release()


async def test_a_waiter_that_is_cancelled_leaves_no_lease(engines: list[Engine]) -> None:
    """At whatever point: it may just have been given one."""
    turns = 0
    while True:
        turns += 1
        waiter = asyncio.ensure_future(engines[0].obtain(read_of(engines[0], "orders")))
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiter.done():
            break
        waiter.cancel()
        await asyncio.wait([waiter])
        async with asyncio.timeout(20):
            lease = await engines[1].obtain(read_of(engines[1], "orders"))
        assert isinstance(lease, Lease)
        await lease.release()
    lease = waiter.result()
    assert isinstance(lease, Lease)
    await lease.release()
    assert turns > 3


async def test_a_fill_that_is_cancelled_ends_its_lease(engines: list[Engine]) -> None:
    lease = await engines[0].obtain(read_of(engines[0], "orders"))
    assert isinstance(lease, Lease)
    fill = asyncio.ensure_future(lease.fill(entry_of(lease, b"answer")))
    await asyncio.sleep(0)
    fill.cancel()
    await asyncio.wait([fill])
    for engine in engines:
        async with asyncio.timeout(20):
            assert isinstance(await engine.obtain(read_of(engine, "orders")), Hit | Lease)


async def waiting(metrics: Metrics, count: int) -> None:
    """Returns when so many reads wait for another's fill."""

    async def enough() -> bool:
        return metrics.lease_waits >= count

    await eventually(enough)


async def test_a_fill_that_fails_at_once_ends_its_lease(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("a fault")

    read = read_of(engine, "orders")
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    with monkeypatch.context() as patched:
        patched.setattr(lease._leases.store, "put_soon", fails)
        with pytest.raises(ValueError, match="a fault"):
            lease.fill_soon(entry_of(lease, b"answer"))
    async with asyncio.timeout(30):
        while not isinstance(lease := await engine.obtain(read), Lease):
            assert isinstance(lease, Hit), lease  # of who failed, which has come all the same
    await lease.release()


async def test_by_rule_the_others_get_the_last_answer_meanwhile(
    engines: list[Engine], metrics: Metrics
) -> None:
    freshness = Freshness(60, stale_while_revalidate_s=30)
    reads = [read_of(engine, "orders", freshness=freshness) for engine in engines]
    await filled(engines[0], reads[0], b"last")
    await engines[0].bump([ORDERS])
    lease = await engines[0].obtain(reads[0])
    assert isinstance(lease, Lease)
    for engine, read in zip(engines, reads, strict=True):
        assert await answer_to(engine, read) == b"last"
    assert metrics.stale_serves == 2
    await lease.fill(entry_of(lease, b"new"))
    assert await answer_to(engines[1], reads[1]) == b"new"


@pytest.mark.parametrize("row_tags", [False, True])
@pytest.mark.parametrize("tag", [Tag("shop"), ROOT])
async def test_nobody_gets_one_from_before_other_definitions_or_rights(
    node: Node, engine: Engine, tag: Tag, row_tags: bool
) -> None:
    own = await engine_on(node, own=limits(row_tags=row_tags))
    read = read_of(own, "orders", freshness=Freshness(60, stale_while_revalidate_s=30))
    await filled(own, read, b"last")
    await engine.bump([tag])
    lease = await own.obtain(read)
    assert isinstance(lease, Lease)
    waits = asyncio.ensure_future(answer_to(own, read))
    await asyncio.sleep(0.05)
    assert not waits.done()
    await lease.fill(entry_of(lease, b"new"))
    assert await waits == b"new"
    await own.close()


async def test_an_answer_older_than_the_rule_allows_is_not_given(node: Node) -> None:
    clock = [0.0]
    aging = MemoryNode(clock=lambda: clock[0])
    engine = await engine_on(aging, own=limits(lease_wait_s=0.05))
    read = read_of(engine, "orders", freshness=Freshness(60, stale_while_revalidate_s=30))
    await filled(engine, read, b"last")
    clock[0] = 40
    await engine.bump([ORDERS])
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    assert await engine.obtain(read) == LEASE_TIMEOUT
    await lease.release()
    await engine.close()


async def test_one_client_fetches_an_entry_anew_before_its_end() -> None:
    clock = [0.0]
    aging = MemoryNode(clock=lambda: clock[0])
    engine = await engine_on(aging)
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    clock[0] = 56
    lease = await engine.obtain(read)
    assert isinstance(lease, Lease)
    for _ in range(3):
        assert await answer_to(engine, read) == b"old"
    await lease.fill(entry_of(lease, b"new"))
    clock[0] = 70
    assert await answer_to(engine, read) == b"new"
    await engine.close()
