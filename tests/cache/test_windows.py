"""Read leases: what is served unasked, who promises, and which writes wait for that."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Protocol

import pytest

from sqlcache.boot_clock import boot_clock
from sqlcache.cache import kept_open, reach
from sqlcache.cache.engine import Engine
from sqlcache.cache.fence import Fence
from sqlcache.cache.leases import Lease
from sqlcache.cache.log_records import EVERYONE, promise_record
from sqlcache.cache.outcomes import FENCED, Hit, Outcome
from sqlcache.cache.reads import Read
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.callbacks import told
from sqlcache.memcache.connection import Done
from sqlcache.memcache.protocol import meta_get, meta_set
from sqlcache.metrics import Metrics
from tests.cache.engines import (
    KEYSPACE,
    LINES,
    ORDERS,
    SHOP,
    Counting,
    Node,
    answer_in,
    answer_to,
    engine_on,
    entry_of,
    eventually,
    filled,
    lifted,
    limits,
    raised,
    read_of,
)
from tests.turns import counted_turns

LEASE_S = 0.05
WAIT_S = 1.2 * LEASE_S
A_MOMENT_S = 0.001
ORDERS_KEY = KEYSPACE.tag("shop", "orders")
FORGET_ORDERS = b"md %b\r\n" % ORDERS_KEY


class Clock:
    """Goes on when it is told to, and a little with each look: what comes later is later."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1e-9
        return self.now


class Start(Protocol):
    """Starts a process."""

    async def __call__(
        self, metrics: Metrics | None = None, *, lease_s: float = LEASE_S, quiet_s: float = 0
    ) -> Engine: ...


@pytest.fixture
async def node() -> Counting:
    return Counting()


@pytest.fixture
def clock() -> Clock:
    """Of all processes."""
    return Clock()


@pytest.fixture
async def start(node: Node, clock: Clock) -> AsyncIterator[Start]:
    engines: list[Engine] = []

    async def started(
        metrics: Metrics | None = None, *, lease_s: float = LEASE_S, quiet_s: float = 0
    ) -> Engine:
        own = limits(near_bytes=100_000, read_lease_s=lease_s, write_deadline_s=60)
        engine = await engine_on(node, metrics=metrics, own=own, clock=clock)
        engine._windows.kept_open._quiet_s = quiet_s
        engines.append(engine)
        return engine

    yield started
    clock.now += 1000  # what waits for windows at the end need not
    for engine in engines:
        await engine.close()


End = Callable[[], Awaitable[object]]
Begin = Callable[..., Awaitable[End]]


async def begin_alone(engine: Engine, *tags: Tag) -> End:
    """Returns when the write may be sent: what ends it."""
    return (await engine.fence(tags)).lift


async def begin_shared(engine: Engine, *tags: Tag) -> End:
    """The same on the straight path."""
    marks = engine.marks(tags, [SHOP])
    fence, logs = await raised(engine, marks)
    assert logs is not None

    async def end() -> None:
        if await lifted(engine, fence, marks) is None:
            await fence.lift()

    return end


both_ways = pytest.mark.parametrize("begin", [begin_alone, begin_shared])


async def write(begin: Begin, engine: Engine, *tags: Tag) -> None:
    """One that waits for nobody."""
    async with asyncio.timeout(10):
        await (await begin(engine, *tags))()


async def waits(work: asyncio.Future[End]) -> bool:
    """Whether it goes on waiting for longer than it would take otherwise."""
    await asyncio.wait([work], timeout=0.1)
    return not work.done()


async def is_held_back(begin: Begin, writer: Engine, tag: Tag, clock: Clock) -> None:
    """A write that waits until what was promised is over, and is made then."""
    writing = asyncio.ensure_future(begin(writer, tag))
    assert await waits(writing)
    clock.now += WAIT_S + A_MOMENT_S
    await (await writing)()


def at_once(engine: Engine, read: Read) -> bytes | None:
    """The answer that is served unasked."""
    found: list[Outcome] = []
    engine.lookup(read, found.append)
    return answer_in(found[0]) if found and isinstance(found[0], Hit) else None


async def in_window(engine: Engine, read: Read, answer: bytes = b"old") -> None:
    """Reads until the answer is served unasked."""

    async def is_open() -> bool:
        got = await engine.obtain(read)
        if isinstance(got, Lease):
            await got.fill(entry_of(got, answer))
        return at_once(engine, read) == answer

    await eventually(is_open)


async def forget_promises(node: Node, clock: Clock, *tags: Tag) -> None:
    """A write by who waits for nobody: the first to a new log would wait for everyone."""
    writer = await engine_on(node)
    await write(begin_alone, writer, *(tags or (ORDERS, LINES, SHOP, ROOT)))
    await writer.close()
    clock.now += LEASE_S


async def promises(engine: Engine, tag: Tag = ORDERS) -> frozenset[bytes]:
    return frozenset().union(*(each.promises for each in (await engine.states([tag])).values()))


async def log_at(node: Node, key: bytes = ORDERS_KEY) -> bytes:
    ((_, log, _),) = await node.request(meta_get(key), 1)
    return log or b""


async def ask(engine: Engine, read: Read, times: int, clock: Clock) -> None:
    """Each time after the window of the one before."""
    for _ in range(times):
        clock.now += LEASE_S
        await answer_to(engine, read)


# --- those who read -------------------------------------------------------------------------------


async def test_a_hit_in_a_window_asks_memcached_nothing(node: Counting, start: Start) -> None:
    metrics = Metrics()
    engine = await start(metrics)
    read = read_of(engine, "orders")
    await in_window(engine, read)
    requests = node.requests
    found: list[Outcome] = []
    for _ in range(50):
        engine.lookup(read, found.append)
    assert [isinstance(hit, Hit) and hit.in_window for hit in found] == [True] * 50
    assert node.requests == requests
    assert metrics.windows_opened > 0


async def test_other_answers_that_hang_on_the_same_share_a_window(
    node: Counting, start: Start
) -> None:
    engine = await start()
    reads = [read_of(engine, "orders", text=b"SELECT %d" % number) for number in range(5)]
    for read in reads:
        await filled(engine, read, b"old")
    await in_window(engine, reads[0])
    assert [at_once(engine, read) for read in reads] == [b"old"] * 5


async def test_what_is_not_near_is_asked_for_in_a_window_too(start: Start) -> None:
    engine = await start()
    await in_window(engine, read_of(engine, "orders"))
    other = read_of(engine, "orders", text=b"SELECT 2")
    assert at_once(engine, other) is None
    await filled(engine, other, b"other")
    assert await answer_to(engine, other) == b"other"


async def test_who_asks_memcached_has_its_word_in_a_window_too(
    node: Counting, start: Start
) -> None:
    engine = await start()
    read = read_of(engine, "orders")
    await in_window(engine, read)
    writer = await engine_on(node)
    fence = asyncio.ensure_future(writer.fence([ORDERS]))  # which waits for the window's end
    await eventually(lambda: _is_fenced(engine))
    assert at_once(engine, read) == b"old"
    assert await engine.ask_about(read) is FENCED
    fence.cancel()
    await writer.close()


async def _is_fenced(engine: Engine) -> bool:
    return any(state.fences for state in (await engine.states([ORDERS])).values())


async def test_after_its_window_a_hit_asks_again(
    node: Counting, start: Start, clock: Clock
) -> None:
    engine = await start()
    read = read_of(engine, "orders")
    await in_window(engine, read)
    clock.now += LEASE_S - A_MOMENT_S
    assert at_once(engine, read) == b"old"
    clock.now += A_MOMENT_S
    node.payloads.clear()
    assert at_once(engine, read) is None
    assert await answer_to(engine, read) == b"old"
    assert node.payloads
    assert at_once(engine, read) == b"old"


class Slow(Node):
    """Carries out what names the tag of orders at once; the replies may be long on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.on_their_way: list[Callable[[], None]] | None = None

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        waiting = self.on_their_way
        if waiting is None or ORDERS_KEY not in payload:
            super().submit(payload, count, done)
        else:
            super().submit(payload, count, lambda told: waiting.append(partial(done, told)))

    async def hold(self, question: Awaitable[Outcome]) -> "asyncio.Future[Outcome]":
        """Asks it; the reply is on its way."""
        waiting = self.on_their_way = []
        asked = asyncio.ensure_future(question)

        async def is_held() -> bool:
            return bool(waiting)

        await eventually(is_held)
        return asked

    def deliver(self) -> None:
        """All that is on its way arrives."""
        waiting, self.on_their_way = self.on_their_way or [], None
        for arrive in waiting:
            arrive()


async def slow_one(clock: Clock) -> tuple[Slow, Engine, Read]:
    """It has promised, and its window is over."""
    node = Slow()
    own = limits(near_bytes=100_000, read_lease_s=LEASE_S)
    engine = await engine_on(node, own=own, clock=clock)
    engine._windows.kept_open._quiet_s = 0
    read = read_of(engine, "orders")
    await in_window(engine, read)
    await forget_promises(node, clock, ORDERS)
    clock.now += LEASE_S
    await in_window(engine, read)
    clock.now += LEASE_S
    return node, engine, read


async def test_a_window_is_counted_from_when_its_question_was_sent(clock: Clock) -> None:
    node, engine, read = await slow_one(clock)
    asked = await node.hold(engine.look(read))
    clock.now += LEASE_S - A_MOMENT_S
    node.deliver()
    assert isinstance(await asked, Hit)
    assert at_once(engine, read) == b"old"
    clock.now += A_MOMENT_S
    assert at_once(engine, read) is None
    await engine.close()


async def test_a_question_from_before_an_own_write_opens_no_window(clock: Clock) -> None:
    """Its reply is from before the fence, and shows none."""
    node, engine, read = await slow_one(clock)
    asked = await node.hold(engine.look(read))
    waiting, node.on_their_way = node.on_their_way, None
    fence = await engine.fence([ORDERS])
    node.on_their_way = waiting
    node.deliver()
    assert isinstance(await asked, Hit)
    assert at_once(engine, read) is None
    assert await engine.look(read) == FENCED
    await fence.lift()
    await engine.close()


async def test_by_other_definitions_no_window_is_open(start: Start) -> None:
    engine = await start()
    read = read_of(engine, "orders")
    await in_window(engine, read)
    engine.plan_under(await engine.versions([ROOT, SHOP]), changed=True)
    assert at_once(engine, read) is None


async def test_a_window_of_several_tags_needs_a_promise_for_each(
    node: Node, start: Start, clock: Clock
) -> None:
    engine = await start()
    read, lines = read_of(engine, "orders", "lines"), read_of(engine, "lines", text=b"lines")
    await in_window(engine, read)
    await forget_promises(node, clock)
    await in_window(engine, lines)
    assert await promises(engine, LINES)
    assert not await promises(engine, ORDERS)
    await asyncio.sleep(0.11)  # or it has been asked for often by now
    await filled(engine, read, b"new")
    assert await answer_to(engine, read) == b"new"
    assert at_once(engine, read) is None
    await in_window(engine, read, b"new")


@pytest.mark.parametrize("written", [ORDERS, LINES, SHOP, ROOT])
async def test_a_window_of_several_tags_ends_with_an_own_write_to_any(
    node: Node, start: Start, written: Tag, clock: Clock
) -> None:
    engine = await start()
    read = read_of(engine, "orders", "lines")
    await forget_promises(node, clock)
    await in_window(engine, read)
    end = await begin_alone(engine, written)
    assert at_once(engine, read) is None
    await end()
    assert await answer_to(engine, read) is None


async def test_a_process_that_was_stopped_serves_nothing_from_a_window_that_is_over(
    start: Start, clock: Clock
) -> None:
    """It stands still in here: none of its timers goes off before it looks."""
    reader, writer = await start(), await start()
    read = read_of(reader, "orders")
    await in_window(reader, read)
    reader._windows.stop()
    writing = asyncio.ensure_future(begin_alone(writer, ORDERS))
    assert await waits(writing)
    clock.now += WAIT_S
    await (await writing)()
    assert reader._lookups.at_once(read) is None
    assert at_once(reader, read) is None
    assert await answer_to(reader, read) is None


def test_windows_end_while_the_machine_is_suspended() -> None:
    assert (boot_clock.func, boot_clock.args) == (time.clock_gettime, (time.CLOCK_BOOTTIME,))


# --- who promises ---------------------------------------------------------------------------------


async def test_what_is_read_often_is_promised_and_once(
    node: Counting, start: Start, clock: Clock
) -> None:
    engine = await start()
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    await forget_promises(node, clock)
    await filled(engine, read, b"new")
    await asyncio.sleep(0.11)  # what was asked until now counts no more
    await ask(engine, read, 4, clock)
    for tag in (ORDERS, SHOP, ROOT):
        assert not await promises(engine, tag)
    await in_window(engine, read, b"new")
    (own,) = await promises(engine)
    assert own != EVERYONE
    for _ in range(20):
        await ask(engine, read, 5, clock)
        await asyncio.sleep(0.02)
    assert (await log_at(node)).count(promise_record(own)) == 1


async def test_what_is_read_seldom_is_not_promised(node: Node, start: Start, clock: Clock) -> None:
    engine = await start()
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    await forget_promises(node, clock)
    await filled(engine, read, b"new")
    for _ in range(3):
        await asyncio.sleep(0.11)
        await ask(engine, read, 4, clock)
        assert not await promises(engine)


async def test_what_was_written_lately_is_not_promised_until_it_is_quiet(
    node: Node, start: Start, clock: Clock
) -> None:
    engine = await start(quiet_s=1)
    assert await is_promised_after(node, engine, clock) >= 1


async def test_a_second_is_quiet(node: Node, clock: Clock) -> None:
    own = limits(near_bytes=100_000, read_lease_s=LEASE_S)
    engine = await engine_on(node, own=own, clock=clock)
    assert await is_promised_after(node, engine, clock) >= 1
    await engine.close()


async def is_promised_after(node: Node, engine: Engine, clock: Clock) -> float:
    """For how many seconds a tag that is read all the time has not been written when it is."""
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    await forget_promises(node, clock)
    written_at = asyncio.get_running_loop().time()
    await in_window(engine, read, b"new")
    return asyncio.get_running_loop().time() - written_at


async def test_what_is_written_all_the_time_is_never_promised(
    node: Node, start: Start, clock: Clock
) -> None:
    engine = await start(quiet_s=1)
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    loop = asyncio.get_running_loop()
    until = loop.time() + 1.3
    while (written_at := loop.time()) < until:
        await forget_promises(node, clock, ORDERS)
        await filled(engine, read, b"new")
        await ask(engine, read, 10, clock)
        promised = await promises(engine)
        if (quiet_s := loop.time() - written_at) < 1:
            assert not promised
        else:
            until += quiet_s  # this process was late: nobody wrote for so long


async def test_without_leases_nobody_promises_serves_unasked_or_waits(
    node: Counting, start: Start, clock: Clock
) -> None:
    metrics = Metrics()
    engine = await start(metrics, lease_s=0)
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    await ask(engine, read, 20, clock)
    assert at_once(engine, read) is None
    assert await promises(engine) == {EVERYONE}
    for begin in (begin_alone, begin_shared):
        await node.request(meta_set(ORDERS_KEY, promise_record(b"somebody"), mode=b"A", ttl_s=0), 1)
        await write(begin, engine, ORDERS)
    await filled(engine, read, b"new")
    await asyncio.sleep(0.11)  # so long after a promise none is given
    await ask(engine, read, 20, clock)
    assert not await promises(engine)
    assert (metrics.windows_opened, metrics.window_hits, metrics.writes_held_back) == (0, 0, 0)


async def test_a_window_is_kept_open_while_very_many_reads_come(start: Start, clock: Clock) -> None:
    """By questions of its own: no read asks."""
    engine = await start()
    read = read_of(engine, "orders")
    await in_window(engine, read)
    await ask(engine, read, 5, clock)

    async def is_prolonged() -> bool:
        if read.tags not in engine._windows.kept_open.tag_sets:
            await ask(engine, read, 5, clock)  # as where this process had no processor for moments
            clock.now += LEASE_S / 2
            return False
        assert all(at_once(engine, read) == b"old" for _ in range(10))
        return read.tags.window > clock.now + 0.9 * LEASE_S

    for _ in range(10):
        clock.now += LEASE_S / 2
        await eventually(is_prolonged)


async def test_some_reads_are_not_worth_a_question_that_none_of_them_asks(
    node: Counting, start: Start, clock: Clock
) -> None:
    engine = await start()
    read = read_of(engine, "orders")
    await in_window(engine, read)

    def is_kept_open() -> bool:
        return read.tags in engine._windows.kept_open.tag_sets

    async def nothing_else_is_asked() -> bool:
        if not is_kept_open():  # as where this process had no processor for some moments
            await ask(engine, read, 5, clock)
        was_kept_open = is_kept_open()
        node.payloads.clear()
        for _ in range(10):
            assert [at_once(engine, read) for _ in range(2)] == [b"old"] * 2
            await asyncio.sleep(LEASE_S / 2)
        return was_kept_open and is_kept_open() and not node.payloads

    await eventually(nothing_else_is_asked)


async def test_who_asks_opens_the_windows_of_all_that_are_asked_for_often(
    start: Start, clock: Clock
) -> None:
    engine = await start()
    orders, lines = read_of(engine, "orders"), read_of(engine, "lines", text=b"SELECT 2")
    for read in (orders, lines):
        await in_window(engine, read)

    async def are_kept_open() -> bool:
        for read in (orders, lines):  # again, where this process had no processor for moments
            await ask(engine, read, 10, clock)
        return {orders.tags, lines.tags} <= engine._windows.kept_open.tag_sets

    await eventually(are_kept_open)
    clock.now += LEASE_S
    assert await answer_to(engine, lines) == b"old"
    await asyncio.sleep(A_MOMENT_S)
    assert at_once(engine, orders) == b"old"


async def test_what_is_asked_for_again_and_again_is_worth_a_promise_however_seldom_that_is(
    node: Counting, start: Start, clock: Clock
) -> None:
    """Until somebody writes it: then it is not known yet whether it will be."""
    engine = await start()
    engine._windows.kept_open._often = 1_000
    engine._windows.kept_open._questions = 10
    orders, lines = read_of(engine, "orders"), read_of(engine, "lines", text=b"SELECT 2")
    for read in (orders, lines):
        await filled(engine, read, b"old")
    await forget_promises(node, clock, ORDERS, LINES)
    for read in (orders, lines):
        await filled(engine, read, b"old")
        await ask(engine, read, 5, clock)
    assert not await promises(engine)
    await ask(engine, orders, 10, clock)
    assert await promises(engine)
    assert not await promises(engine, LINES)
    await ask(engine, lines, 1, clock)
    assert at_once(engine, orders) == b"old"
    await forget_promises(node, clock, ORDERS)
    await ask(engine, orders, 5, clock)
    assert not await promises(engine)


async def test_what_is_hardly_used_is_not_asked_for_along_with_all_else(
    start: Start, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what is not used at all."""
    monkeypatch.setattr(kept_open, "_FADES", 0.3)
    engine = await start()
    engine._windows.kept_open._questions = 10
    orders, lines = read_of(engine, "orders"), read_of(engine, "lines", text=b"SELECT 2")
    for read in (orders, lines):
        await in_window(engine, read)
        await ask(engine, read, 20, clock)
    assert {orders.tags, lines.tags} <= engine._windows.kept_open.tag_sets

    async def is_left_out() -> bool:
        await ask(engine, orders, 20, clock)
        return lines.tags not in engine._windows.kept_open.tag_sets

    await eventually(is_left_out)
    assert orders.tags in engine._windows.kept_open.tag_sets
    async with asyncio.timeout(20):
        while engine._windows.kept_open.tag_sets:
            await asyncio.sleep(A_MOMENT_S)


async def test_what_is_seldom_used_makes_room_for_what_is_often(
    start: Start, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no more is kept open; and not the other way round."""
    monkeypatch.setattr(kept_open, "_MOST_KEPT_OPEN", 1)
    engine = await start()
    engine._windows.kept_open._questions = 10
    orders, lines = read_of(engine, "orders"), read_of(engine, "lines", text=b"SELECT 2")
    for read in (orders, lines):
        await filled(engine, read, b"old")
    engine._windows.kept_open._often = 1_000
    await ask(engine, lines, 20, clock)
    assert lines.tags in engine._windows.kept_open.tag_sets
    await ask(engine, orders, 20, clock)
    assert engine._windows.kept_open.tag_sets == {lines.tags}
    engine._windows.kept_open._often = 5
    await in_window(engine, orders)
    await ask(engine, orders, 20, clock)
    assert engine._windows.kept_open.tag_sets == {orders.tags}
    engine._windows.kept_open._often = 1_000
    await ask(engine, lines, 20, clock)
    engine._windows.kept_open._often = 5
    assert engine._windows.kept_open.tag_sets == {orders.tags}


@both_ways
async def test_definitions_are_current_at_once_in_a_window_for_which_others_wait(
    node: Counting, start: Start, clock: Clock, begin: Begin
) -> None:
    engine, writer = await start(), await start()
    known = await engine.versions([SHOP, ROOT])
    engine.plan_under(known)
    marks = engine.marks((), [SHOP, ROOT])

    async def is_known_at_once() -> bool:
        assert await told(partial(engine.confirm_soon, marks))
        requests = node.requests
        return await told(partial(engine.confirm_soon, marks)) and node.requests == requests

    await eventually(is_known_at_once)
    await is_held_back(begin, writer, SHOP, clock)
    assert not await told(partial(engine.confirm_soon, marks))
    engine.plan_under(await engine.versions([SHOP, ROOT]))
    assert await told(partial(engine.confirm_soon, marks))


async def test_no_read_waits_for_what_was_asked_with_it_for_others(clock: Clock) -> None:
    node, engine, orders = await slow_one(clock)
    lines = read_of(engine, "lines", text=b"SELECT 2")
    await in_window(engine, lines)
    for read in (orders, lines):
        await ask(engine, read, 10, clock)
    assert orders.tags in engine._windows.kept_open.tag_sets
    clock.now += LEASE_S
    node.on_their_way = []
    assert await answer_to(engine, lines) == b"old"
    assert node.on_their_way
    assert not clock.now < orders.tags.window
    node.deliver()
    await asyncio.sleep(A_MOMENT_S)
    assert at_once(engine, orders) == b"old"
    clock.now += 1000
    await engine.close()


async def test_what_nobody_asks_for_any_more_is_not_kept_open(
    node: Counting, start: Start, clock: Clock
) -> None:
    engine = await start()
    read = read_of(engine, "orders")
    await in_window(engine, read)
    await ask(engine, read, 20, clock)

    async def nothing_is_asked() -> bool:
        node.payloads.clear()
        await asyncio.sleep(4 * LEASE_S)
        return not node.payloads

    await eventually(nothing_is_asked)
    clock.now += LEASE_S
    assert at_once(engine, read) is None


async def test_with_a_short_lease_nothing_is_kept_open_for_itself(
    node: Counting, start: Start, clock: Clock
) -> None:
    """As many questions are asked to keep a window open as make one worth it."""
    engine = await start(lease_s=0.005)
    read = read_of(engine, "orders")
    await in_window(engine, read)
    await ask(engine, read, 20, clock)

    async def nothing_is_asked() -> bool:
        node.payloads.clear()
        await asyncio.sleep(0.05)
        return not node.payloads

    await eventually(nothing_is_asked)


async def test_a_promise_that_a_log_has_is_not_given_again_with_that_for_another(
    node: Node, start: Start, clock: Clock
) -> None:
    """Else the logs of schemas, and of everything, which nobody writes, would grow for ever."""
    engine = await start()
    read = read_of(engine, "orders")
    await forget_promises(node, clock)
    sizes = []
    for _ in range(3):
        await in_window(engine, read)
        assert await promises(engine)
        placed = engine._placement.key(SHOP.on("memory"))
        sizes.append(len(await log_at(node, placed)))
        await forget_promises(node, clock, ORDERS)
        await asyncio.sleep(0.11)  # so long after a promise none is given
    assert sizes == sizes[:1] * 3


async def test_what_windows_take_is_bounded_and_given_back(
    node: Node, start: Start, clock: Clock
) -> None:
    engine = await start()
    windows = engine._windows
    reads = [read_of(engine, f"t{number}") for number in range(100)]
    for read in reads:
        await in_window(engine, read)
        await ask(engine, read, 5, clock)
        assert len(windows.kept_open.tag_sets) <= 64
    for number in range(3000):
        windows.close(frozenset({Tag("shop", f"t{number}")}))
        clock.now += LEASE_S / 1000
    assert len(windows._closed_at) <= 2001  # those of a lease, and as many as are let be

    async def all_given_back() -> bool:
        clock.now += LEASE_S
        return not windows._open and not windows.kept_open.tag_sets

    await eventually(all_given_back)


# --- those who write ------------------------------------------------------------------------------


@both_ways
async def test_an_own_write_waits_for_nobody_and_ends_the_windows(
    node: Node, start: Start, begin: Begin, clock: Clock
) -> None:
    metrics = Metrics()
    engine = await start(metrics)
    read = read_of(engine, "orders")
    await forget_promises(node, clock)
    await in_window(engine, read)
    async with asyncio.timeout(10):
        end = await begin(engine, ORDERS)
        assert at_once(engine, read) is None
        assert await engine.look(read) == FENCED
        await end()
    assert await answer_to(engine, read) is None
    assert metrics.writes_held_back == 0


@both_ways
async def test_the_first_write_waits_until_the_windows_of_others_are_over(
    node: Node, start: Start, clock: Clock, begin: Begin
) -> None:
    metrics = Metrics()
    reader, writer = await start(), await start(metrics)
    read = read_of(reader, "orders")
    await forget_promises(node, clock)
    await in_window(reader, read)
    writing = asyncio.ensure_future(begin(writer, ORDERS))
    assert await waits(writing)
    assert at_once(reader, read) == b"old"
    clock.now += WAIT_S - A_MOMENT_S
    assert await waits(writing)
    assert at_once(reader, read) is None
    clock.now += 2 * A_MOMENT_S
    await (await writing)()
    assert await answer_to(reader, read) is None
    assert metrics.writes_held_back == 1
    for _ in range(3):
        await write(begin, writer, ORDERS)
    assert metrics.writes_held_back == 1


@both_ways
async def test_many_writes_at_once_wait_once(
    node: Node, start: Start, clock: Clock, begin: Begin
) -> None:
    reader, writer = await start(), await start()
    read = read_of(reader, "orders")
    await forget_promises(node, clock)
    await in_window(reader, read)
    writing = [asyncio.ensure_future(begin(writer, ORDERS)) for _ in range(5)]
    for each in writing:
        assert await waits(each)
    clock.now += WAIT_S + A_MOMENT_S
    async with asyncio.timeout(10):
        for end in await asyncio.gather(*writing):
            await end()
        for end in await asyncio.gather(*(begin(writer, ORDERS) for _ in range(5))):
            await end()


async def test_writes_that_wait_together_count_as_held_back(
    node: Node, start: Start, clock: Clock
) -> None:
    metrics = Metrics()
    reader, writer = await start(), await start(metrics)
    await forget_promises(node, clock)
    await in_window(reader, read_of(reader, "orders"))
    marks = writer.marks([ORDERS], [SHOP])
    writing = [asyncio.ensure_future(raised(writer, marks)) for _ in range(5)]
    await asyncio.wait(writing, timeout=0.1)
    clock.now += WAIT_S + A_MOMENT_S
    for fence, _ in await asyncio.gather(*writing):
        await lifted(writer, fence, marks)
    assert metrics.writes_held_back >= 1
    assert metrics.fences_shared == 4


@both_ways
async def test_two_processes_that_write_both_wait(
    node: Node, start: Start, clock: Clock, begin: Begin
) -> None:
    reader, *writers = [await start() for _ in range(3)]
    await forget_promises(node, clock)
    await in_window(reader, read_of(reader, "orders"))
    writing = [asyncio.ensure_future(begin(writer, ORDERS)) for writer in writers]
    for each in writing:
        assert await waits(each)
    clock.now += WAIT_S + A_MOMENT_S
    for end in await asyncio.gather(*writing):
        await end()


@both_ways
@pytest.mark.parametrize("tag", [SHOP, ROOT])
async def test_a_definition_waits_for_the_windows_of_all_that_hangs_on_it(
    node: Node, start: Start, clock: Clock, tag: Tag, begin: Begin
) -> None:
    reader, writer = await start(), await start()
    await forget_promises(node, clock)
    await in_window(reader, read_of(reader, "orders"))
    await is_held_back(begin, writer, tag, clock)
    await write(begin, writer, tag)


@both_ways
async def test_who_promised_and_died_is_waited_for_once(
    node: Node, start: Start, clock: Clock, begin: Begin
) -> None:
    writer = await start()
    own = limits(near_bytes=100_000, read_lease_s=LEASE_S)
    dead = await engine_on(node, own=own, clock=clock)
    dead._windows.kept_open._quiet_s = 0
    await forget_promises(node, clock)
    await in_window(dead, read_of(dead, "orders"))
    await dead.close()
    await is_held_back(begin, writer, ORDERS, clock)
    await write(begin, writer, ORDERS)


@pytest.mark.parametrize("by", ["a reader", "a writer", "a bump"])
@both_ways
async def test_a_log_that_was_lost_may_have_held_promises(
    node: Node, start: Start, clock: Clock, begin: Begin, by: str
) -> None:
    """Whoever makes it anew."""
    writer, other = await start(), await start(lease_s=0)
    read = read_of(other, "orders")
    await filled(other, read, b"old")
    await forget_promises(node, clock)
    await write(begin, writer, ORDERS)
    await node.request(FORGET_ORDERS, 1)
    match by:
        case "a reader":
            await filled(other, read, b"new")
        case "a writer":
            await (await other.fence([ORDERS])).undo()
        case _:
            await other.bump([ORDERS])
    assert (await log_at(node)).startswith(promise_record(EVERYONE))
    await is_held_back(begin, writer, ORDERS, clock)
    await write(begin, writer, ORDERS)


@both_ways
async def test_a_log_that_cannot_be_read_may_have_held_promises(
    node: Node, start: Start, clock: Clock, begin: Begin
) -> None:
    reader, writer = await start(), await start()
    await forget_promises(node, clock)
    await in_window(reader, read_of(reader, "orders"))
    await node.request(meta_set(ORDERS_KEY, b"?", mode=b"A", ttl_s=0), 1)
    await is_held_back(begin, writer, ORDERS, clock)


@both_ways
async def test_an_ok_waits_where_the_fence_was_lost(
    node: Node, start: Start, clock: Clock, begin: Begin
) -> None:
    reader, writer = await start(), await start()
    read = read_of(reader, "orders")
    await filled(reader, read, b"old")
    await forget_promises(node, clock, ORDERS)
    end = await begin(writer, ORDERS)
    await node.request(FORGET_ORDERS, 1)
    await in_window(reader, read)
    ending: asyncio.Future[object] = asyncio.ensure_future(end())
    await asyncio.wait([ending], timeout=0.1)
    assert not ending.done()
    assert at_once(reader, read) == b"old"
    clock.now += WAIT_S + A_MOMENT_S
    assert at_once(reader, read) is None
    await ending
    assert await answer_to(reader, read) is None


async def test_what_was_never_sent_leaves_promises_for_the_next_write(
    node: Node, start: Start, clock: Clock
) -> None:
    reader, writer = await start(), await start()
    await forget_promises(node, clock)
    await in_window(reader, read_of(reader, "orders"))
    given = await promises(writer)
    for _ in range(2):
        fencing: asyncio.Future[Fence] = asyncio.ensure_future(writer.fence([ORDERS]))
        await asyncio.wait([fencing], timeout=0.1)
        assert not fencing.done()
        clock.now += WAIT_S + A_MOMENT_S
        await (await fencing).undo()
        assert given <= await promises(writer)


async def test_a_bump_ends_when_the_windows_are_over(
    node: Node, start: Start, clock: Clock
) -> None:
    reader, writer = await start(), await start()
    read = read_of(reader, "orders")
    await forget_promises(node, clock)
    await in_window(reader, read)
    bump = asyncio.ensure_future(writer.bump([ORDERS]))
    await asyncio.wait([bump], timeout=0.1)
    assert not bump.done()
    clock.now += WAIT_S + A_MOMENT_S
    assert at_once(reader, read) is None
    await bump
    assert await answer_to(reader, read) is None


async def test_who_bumps_again_and_again_waits_once(node: Node, start: Start, clock: Clock) -> None:
    reader, writer = await start(), await start()
    read = read_of(reader, "orders")
    await in_window(reader, read)
    first = asyncio.ensure_future(writer.bump([ORDERS]))
    await asyncio.wait([first], timeout=0.1)
    clock.now += WAIT_S + A_MOMENT_S
    async with asyncio.timeout(10):
        await first
        for _ in range(5):
            await writer.bump([ORDERS])


async def test_a_held_write_is_not_sent_while_a_beat_has_found_its_fence_lost(
    node: Node, start: Start, clock: Clock
) -> None:
    for begin in (begin_alone, begin_shared):
        reader, writer = await start(), await start()
        read = read_of(reader, "orders")
        await forget_promises(node, clock)
        await in_window(reader, read)
        writing = asyncio.ensure_future(begin(writer, ORDERS))
        assert await waits(writing)
        clock.now += 0.9 * WAIT_S
        await node.request(FORGET_ORDERS, 1)
        await in_window(reader, read)
        await writer._fences._beat()
        clock.now += WAIT_S - A_MOMENT_S
        assert await waits(writing)
        clock.now += 2 * A_MOMENT_S
        await (await writing)()


async def test_who_ends_before_others_waits_for_nobody_while_their_fence_stands(
    node: Node, start: Start, clock: Clock
) -> None:
    """By itself, as one that failed does."""
    writer = await start()
    await forget_promises(node, clock)
    marks = writer.marks([ORDERS], [SHOP])
    (failed, _), (other, _) = [await raised(writer, marks) for _ in range(2)]
    async with asyncio.timeout(10):
        await failed.lift()
        await lifted(writer, other, marks)
    lost, other = [(await raised(writer, marks))[0] for _ in range(2)]
    await node.request(FORGET_ORDERS, 1)
    lifting = asyncio.ensure_future(lost.lift())
    await asyncio.wait([lifting], timeout=0.1)
    assert not lifting.done()
    clock.now += WAIT_S + A_MOMENT_S
    await lifting
    await other.undo()


async def test_who_ends_again_waits_where_the_fence_of_others_was_lost_meanwhile(
    node: Node, start: Start, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first try was lost, and a beat has put theirs up in a new log by the next one."""
    reader, writer = await start(), await start()
    read = read_of(reader, "orders")
    await filled(reader, read, b"old")
    await forget_promises(node, clock)
    marks = writer.marks([ORDERS], [SHOP])
    (first, _), (other, _) = [await raised(writer, marks) for _ in range(2)]
    monkeypatch.setattr(reach, "_AGAIN_S", 0.5)
    node.away = True
    lifting = asyncio.ensure_future(first.lift())
    asked = node.requests
    while node.requests == asked:
        await asyncio.sleep(0)
    node.away = False
    await node.request(FORGET_ORDERS, 1)
    await in_window(reader, read)
    await writer._fences._beat()
    assert not lifting.done()
    await asyncio.wait([lifting], timeout=1)
    assert not lifting.done()
    assert at_once(reader, read) == b"old"
    clock.now += WAIT_S + A_MOMENT_S
    assert at_once(reader, read) is None
    await lifting
    assert await answer_to(reader, read) is None
    await other.undo()


async def test_who_hits_all_the_time_gives_way(start: Start) -> None:
    engine = await start()
    read = read_of(engine, "orders")
    await in_window(engine, read)
    until = time.process_time() + 0.1
    with counted_turns() as turns:
        while time.process_time() < until:
            assert await answer_to(engine, read) == b"old"
    assert turns.count > 10


async def test_a_write_that_goes_on_without_its_node_waits_from_when_that_was_given_up(
    node: Node, start: Start, clock: Clock
) -> None:
    metrics = Metrics()
    reader, writer = await start(), await start(metrics)
    read = read_of(reader, "orders")
    await forget_promises(node, clock)
    await in_window(reader, read)
    reader._windows.stop()
    node.away = True
    fencing = asyncio.ensure_future(writer.fence([ORDERS]))

    async def given_up() -> bool:
        return metrics.fences_unreachable > 0

    await eventually(given_up)
    await asyncio.wait([fencing], timeout=0.1)
    assert not fencing.done()
    clock.now += WAIT_S + A_MOMENT_S
    fence = await fencing
    node.away = False
    lifting = asyncio.ensure_future(fence.lift())
    await asyncio.wait([lifting], timeout=0.1)
    assert not lifting.done(), "its fence did not stand"
    clock.now += WAIT_S + A_MOMENT_S
    await lifting


async def test_writes_long_after_a_node_was_given_up_wait_no_more(
    node: Node, start: Start, clock: Clock
) -> None:
    writer = await start()
    await forget_promises(node, clock)
    node.away = True
    health = writer._cluster.health_of(node.name)

    async def given_up() -> bool:
        return health.is_out

    await eventually(given_up)
    await asyncio.sleep(WAIT_S)
    async with asyncio.timeout(10):
        await (await writer.fence([ORDERS])).lift()
    node.away = False
