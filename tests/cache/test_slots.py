import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from functools import partial

import pytest

from sqlcache.cache import shared_fences
from sqlcache.cache.engine import Engine
from sqlcache.cache.fence import Fence
from sqlcache.cache.fences import Fences
from sqlcache.cache.leases import Lease
from sqlcache.cache.log_records import MOST_SLOTS, TagState, narrow_fence_record, undo_record
from sqlcache.cache.marks import Marks
from sqlcache.cache.outcomes import FENCED, Hit, Miss
from sqlcache.cache.reads import Read
from sqlcache.cache.slots import BUCKET_TTL_S, KnownLog, TableSlots
from sqlcache.cache.tag_checks import COARSE_S, LONGEST_AGE_S, kept_since
from sqlcache.cache.tags import ID_BYTES, SLOT_BYTES, Cover, Pin, Tag
from sqlcache.callbacks import told
from sqlcache.memcache.health import Health
from sqlcache.memcache.protocol import Reply, meta_set
from sqlcache.metrics import Metrics
from sqlcache.proxy.transaction import REPEATABLE_READ, TransactionView
from tests.cache.engines import (
    KEYSPACE,
    LINES,
    ORDERS,
    Counting,
    Node,
    answer_in,
    engine_on,
    entry_of,
    eventually,
    limits,
    read_of,
)

SLOT, OTHER = b"slot id.....", b"slot k......"
ONE, TWO, THREE = b"bkt1", b"bkt2", b"bkt3"


class Pinned:
    """Reads of the rows in some buckets."""

    def __init__(self, *buckets: bytes, witnessed: bool = False) -> None:
        self._buckets = buckets
        self.witnessed = witnessed

    def pin(self, in_use: Set[bytes], field: bytes) -> Pin | None:
        return Pin(SLOT, self._buckets, self.witnessed) if SLOT in in_use else None

    def wants(self, in_use: Set[bytes], spared: Iterable[bytes], field: bytes) -> bytes | None:
        return None if SLOT in in_use else SLOT


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture
async def engine(node: Node) -> AsyncIterator[Engine]:
    engine = await engine_on(node)
    yield engine
    await engine.close()


@pytest.fixture(autouse=True)
def known_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All have been known for long."""
    monkeypatch.setattr(KnownLog, "is_that_since", lambda *_: True)


def pinned(engine: Engine, *buckets: bytes, witnessed: bool = False) -> Read:
    read = read_of(engine, "orders", text=b"SELECT of " + b" and ".join(buckets))
    read.pinning = (Pinned(*buckets, witnessed=witnessed),)
    return read


def slots_of(read: Read, table: int = 0) -> TableSlots:
    """Those of one of the tables of a read."""
    assert read.tags.slots is not None
    return read.tags.slots.tables[table]


async def take_into_use(engine: Engine, slot: bytes = SLOT, of: Tag = ORDERS) -> None:
    whole = read_of(engine, of.table, text=b"SELECT of all")
    await fill(engine, whole)
    engine.use_slot_soon(of, slot)
    while slot not in slots_of(whole).in_use:
        await engine.look(whole)


async def fill(engine: Engine, read: Read, answer: bytes = b"answer") -> None:
    got = await engine.obtain(read)
    if isinstance(got, Lease):
        await got.fill(entry_of(got, answer))


async def is_hit(engine: Engine, read: Read) -> bool:
    return isinstance(await engine.look(read), Hit)


async def raised(engine: Engine, touches: Cover) -> tuple[Fence, Marks]:
    marks = engine.narrowed(engine.marks([ORDERS], ()), {ORDERS: touches})
    fence = engine.join_fence(marks)
    assert await told(partial(engine.fence_soon, fence, marks)) is not None
    return fence, marks


async def write(engine: Engine, touches: Cover) -> None:
    fence, marks = await raised(engine, touches)
    assert await told(partial(engine.lift_soon, fence, marks)) is not None


async def test_in_a_log_that_is_new_a_write_forgets_all_that_is_told_apart(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fences of others may have been lost with the one before."""
    monkeypatch.undo()
    metrics = Metrics()
    engine = await engine_on(node, metrics=metrics)
    await take_into_use(engine)
    other = pinned(engine, TWO)
    for known_for_s, leaves in ((0, False), (59, False), (61, True)):
        slots_of(other).known_log.since = engine.time() - known_for_s
        await fill(engine, other)
        await write(engine, {SLOT: frozenset({ONE})})
        assert await is_hit(engine, other) is leaves
    assert +metrics.row_writes == {"log": 2, "rows": 1}
    await engine.close()


@pytest.mark.parametrize("wide", [False, True])
async def test_writes_one_after_the_other_share_a_fence_and_forget_but_their_rows(
    node: Node, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nobody reads meanwhile, and all of them tell their rows."""
    for name in ("_SOON_S", "_JUST_BEFORE_S", "_MOMENT_S"):  # whatever pauses a busy machine makes
        monkeypatch.setattr(shared_fences, name, 1)
    engine = await engine_on(node)
    await take_into_use(engine)
    reads = [pinned(engine, bucket) for bucket in (ONE, TWO, THREE)]
    for read in reads:
        await fill(engine, read)
    await asyncio.sleep(0.06)
    alike = engine.marks([ORDERS], ())
    for number in range(30):
        touches = {ORDERS: {SLOT: frozenset({ONE if number % 2 else TWO})}}
        marks = alike if wide and number == 29 else engine.narrowed(alike, touches)
        fence = engine.join_fence(marks)
        assert await told(partial(engine.fence_soon, fence, marks)) is not None
        assert await told(partial(engine.lift_soon, fence, marks)) is not None
    assert engine._metrics.fences_shared > 10

    async def ended() -> bool:
        return not (await engine.states([ORDERS]))[ORDERS].fences

    await eventually(ended)
    assert [await is_hit(engine, read) for read in reads] == [False, False, not wide]
    await engine.close()


async def test_one_that_leaves_by_itself_has_all_rows_forgotten(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others may end before it has told what it has touched."""
    engine = await engine_on(node)
    await take_into_use(engine)
    one = pinned(engine, ONE)
    await fill(engine, one)
    await asyncio.sleep(0.06)
    alike = engine.marks([ORDERS], ())
    alike.in_a_row = 1_000
    raised_by = []
    for bucket in (ONE, TWO):
        marks = engine.narrowed(alike, {ORDERS: {SLOT: frozenset({bucket})}})
        fence = engine.join_fence(marks)
        alike.in_a_row = 1_000
        assert await told(partial(engine.fence_soon, fence, marks)) is not None
        raised_by.append((fence, marks))
    (leaves, _), (stays, marks) = raised_by
    assert leaves.shared is stays.shared
    may_go_on = asyncio.Event()
    monkeypatch.setattr(Fences, "_until_over", lambda *_: may_go_on.wait())
    lifting = asyncio.ensure_future(leaves.lift())
    await asyncio.sleep(0)
    assert await told(partial(engine.lift_soon, stays, marks)) is not None

    async def ended() -> bool:
        return not (await engine.states([ORDERS]))[ORDERS].fences

    await eventually(ended)
    assert not await is_hit(engine, one)
    may_go_on.set()
    await lifting
    await engine.close()


async def test_who_reads_between_has_writes_of_rows_cover_these_alone(node: Node) -> None:
    engine = await engine_on(node)
    await take_into_use(engine)
    other = pinned(engine, TWO)
    await fill(engine, other)
    alike = engine.marks([ORDERS], ())
    for _ in range(30):
        marks = engine.narrowed(alike, {ORDERS: {SLOT: frozenset({ONE})}})
        fence = engine.join_fence(marks)
        assert await told(partial(engine.fence_soon, fence, marks)) is not None
        assert await is_hit(engine, other)
        assert await told(partial(engine.lift_soon, fence, marks)) is not None
        assert await is_hit(engine, other)
    assert not engine._metrics.fences_shared
    await engine.close()


async def test_a_beat_of_such_a_write_covers_no_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits for a row, say."""
    monkeypatch.undo()
    await take_into_use(engine)
    other = pinned(engine, TWO)
    await fill(engine, other)
    fence, _ = await raised(engine, {SLOT: frozenset({ONE})})
    marked_at = fence.shared.fence.marked_at if fence.shared is not None else 0.0

    async def has_beaten() -> bool:
        return fence.shared is not None and fence.shared.fence.marked_at > marked_at

    await eventually(has_beaten)
    assert await is_hit(engine, other)
    await fence.undo()


async def test_a_log_is_known_when_its_tables_writes_are_planned_anew(node: Node) -> None:
    engine = await engine_on(node)
    plan = engine.marks([ORDERS], ())
    known = plan.slots[ORDERS].known_log
    del plan
    gc.collect()
    assert engine.marks([ORDERS], ()).slots[ORDERS].known_log is known
    await engine.close()


async def test_what_is_remembered_of_pins_is_bounded_also_beside_many_tables(
    engine: Engine,
) -> None:
    many = tuple(Tag("shop", f"t{each}") for each in range(61))
    first, most_bytes = pinned_of(engine, many, 0), engine.limits.tags_bytes
    tracemalloc.start()
    try:
        for each in range(1, 1_500):
            assert pinned_of(engine, many, each).tags.tag_names == first.tags.tag_names
        assert tracemalloc.get_traced_memory()[0] < most_bytes / 2
    finally:
        tracemalloc.stop()


def pinned_of(engine: Engine, tags: tuple[Tag, ...], each: int) -> Read:
    return engine.read(b"", b"", tags, b"", pins=(Pin(SLOT, (each.to_bytes(4, "big"),)),))


async def test_a_write_forgets_the_answers_from_the_rows_it_touches(engine: Engine) -> None:
    await take_into_use(engine)
    one, two, whole = pinned(engine, ONE), pinned(engine, TWO), read_of(engine, "orders")
    for read in (one, two, whole):
        await fill(engine, read)
    await write(engine, {SLOT: frozenset({ONE})})
    assert not await is_hit(engine, one)
    assert await is_hit(engine, two)
    assert not await is_hit(engine, whole)


async def test_an_answer_from_the_rows_of_several_buckets_hangs_on_each(engine: Engine) -> None:
    await take_into_use(engine)
    both, three = pinned(engine, ONE, TWO), pinned(engine, THREE)
    for written in (ONE, TWO):
        await fill(engine, both)
        await fill(engine, three)
        fence, marks = await raised(engine, {SLOT: frozenset({written})})
        assert await engine.look(both) is FENCED
        assert await is_hit(engine, three)
        assert await told(partial(engine.lift_soon, fence, marks)) is not None
        assert not await is_hit(engine, both)
        assert await is_hit(engine, three)
    await fill(engine, both)
    await write(engine, {SLOT: frozenset({THREE})})
    assert await is_hit(engine, both)


async def test_while_it_is_in_flight_these_are_not_served(engine: Engine) -> None:
    await take_into_use(engine)
    one, two, whole = pinned(engine, ONE), pinned(engine, TWO), read_of(engine, "orders")
    for read in (one, two, whole):
        await fill(engine, read)
    await raised(engine, {SLOT: frozenset({ONE})})
    assert await engine.look(one) is FENCED
    assert await engine.look(whole) is FENCED
    assert await is_hit(engine, two)


async def test_a_slot_that_is_not_named_is_new(engine: Engine) -> None:
    await take_into_use(engine)
    await take_into_use(engine, OTHER)
    two = pinned(engine, TWO)
    await fill(engine, two)
    fence, marks = await raised(engine, {OTHER: frozenset({ONE})})
    assert await engine.look(two) is FENCED
    await told(partial(engine.lift_soon, fence, marks))
    assert not await is_hit(engine, two)


@pytest.mark.parametrize("way", ["fence", "bump"])
async def test_who_knows_of_no_rows_forgets_all(engine: Engine, way: str) -> None:
    await take_into_use(engine)
    two = pinned(engine, TWO)
    await fill(engine, two)
    if way == "fence":
        await (await engine.fence([ORDERS])).lift()
    else:
        await engine.bump([ORDERS])
    assert not await is_hit(engine, two)


async def test_what_is_marked_once_more_covers_everything(engine: Engine) -> None:
    await take_into_use(engine)
    two = pinned(engine, TWO)
    await fill(engine, two)
    fence, _ = await raised(engine, {SLOT: frozenset({ONE})})
    await fence.mark(())
    assert await engine.look(two) is FENCED
    await fence.lift()
    assert not await is_hit(engine, two)


async def test_where_a_bucket_cannot_be_forgotten_all_is(engine: Engine, node: Node) -> None:
    await take_into_use(engine)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    for read in (one, two):
        await fill(engine, read)
    fence, marks = await raised(engine, {SLOT: frozenset({ONE})})
    (key, _), *_ = marks.forgetting
    marks.forgetting = ((key, b"ms %b S0\r\n\r\n" % key),)
    assert await told(partial(engine.lift_soon, fence, marks)) is None
    await fence.lift()
    assert not await is_hit(engine, two)


async def test_a_bucket_that_is_lost_forgets_its_answers(engine: Engine, node: Node) -> None:
    await take_into_use(engine)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    for read in (one, two):
        await fill(engine, read)
    key = one.tags.requests[-1][0]
    await asyncio.wait_for(told(partial(node.submit, b"md %b\r\n" % key, 1)), 5)
    assert not await is_hit(engine, one)
    assert await is_hit(engine, two)
    await fill(engine, one)
    assert await is_hit(engine, one)


async def test_a_slot_is_taken_where_answers_come_back_as_they_were(engine: Engine) -> None:
    two = pinned(engine, TWO)
    slots = slots_of(two)
    for _ in range(20):
        await fill(engine, two)
        await write(engine, {})
        if SLOT in slots.in_use:
            break
    else:
        pytest.fail("it never was")
    await fill(engine, two)
    await write(engine, {SLOT: frozenset({ONE})})
    assert await is_hit(engine, two)


async def test_a_slot_is_not_taken_where_answers_are_others(engine: Engine) -> None:
    two = pinned(engine, TWO)
    for number in range(20):
        await fill(engine, two, b"%d" % number)
        await write(engine, {})
    assert not slots_of(two).in_use


async def test_a_slot_without_buckets_keeps_what_no_write_has_touched(engine: Engine) -> None:
    await take_into_use(engine)
    read = pinned(engine)
    await fill(engine, read)
    await write(engine, {SLOT: frozenset()})
    assert await is_hit(engine, read)
    fence, marks = await raised(engine, {SLOT: frozenset()})
    assert await is_hit(engine, read)
    engine.lift_soon(fence, marks, lambda logs: None)
    for touched in ({}, {OTHER: frozenset({ONE})}):
        await write(engine, touched)
        assert not await is_hit(engine, read)
        await fill(engine, read)
        assert await is_hit(engine, read)


async def test_a_read_goes_over_to_a_better_slot(engine: Engine) -> None:
    await take_into_use(engine)
    read = pinned(engine, TWO)
    await fill(engine, read)
    await take_into_use(engine, OTHER)
    better = Pinned()
    better.pin = lambda in_use, field: Pin(OTHER, ())  # type: ignore[method-assign]
    read.pinning = (better,)
    await fill(engine, read)
    await write(engine, {OTHER: frozenset()})
    assert await is_hit(engine, read)


def test_what_was_needless_long_ago_does_not_count() -> None:
    slots = TableSlots(KnownLog())
    assert not any(slots.was_needless(SLOT, 10.0 * number) for number in range(50))
    assert any(slots.was_needless(SLOT, 1_000 + number) for number in range(10))


def test_a_table_has_few_slots() -> None:
    slots = TableSlots(KnownLog())
    in_use = {bytes((each,)) * SLOT_BYTES: b"v" for each in range(MOST_SLOTS)}
    slots.saw(b"", TagState(None, {}, slots=in_use), 0.0)
    assert not any(slots.was_needless(b"one more", number) for number in range(100))


async def test_what_is_seen_of_quiet_is_that_of_the_whole_table(engine: Engine) -> None:
    """A write to one row has to wait for all who promise to serve what hangs on the table."""
    await take_into_use(engine)
    two = pinned(engine, TWO)
    await fill(engine, two)
    assert await is_hit(engine, two)
    assert two.tags.base is not None
    before = two.tags.base.seen_since
    await write(engine, {SLOT: frozenset({ONE})})
    assert await is_hit(engine, two)
    assert two.tags.base.seen_since > before
    await raised(engine, {SLOT: frozenset({ONE})})
    seen_at = engine.time()
    assert await is_hit(engine, two)
    assert two.tags.base.seen_since >= seen_at


async def asks(engine: Engine, node: "Counting", read: Read) -> bool:
    """A hit; whether for a bucket."""
    node.payloads.clear()
    assert await is_hit(engine, read)
    bucket, _ = read.tags.requests[-1]
    return any(bucket in payload for payload in node.payloads)


async def test_a_hit_asks_for_no_bucket_that_no_write_has_touched_since() -> None:
    node = Counting()
    engine = await engine_on(node, own=limits(near_bytes=100_000))
    await take_into_use(engine)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    for read in (one, two):
        await fill(engine, read)
        assert await is_hit(engine, read)
        assert not await asks(engine, node, read)
    for _ in range(2):
        fence, marks = await raised(engine, {SLOT: frozenset({ONE})})
        assert await engine.look(one) is FENCED
        assert not await asks(engine, node, two)
        assert await told(partial(engine.lift_soon, fence, marks)) is not None
        assert not await asks(engine, node, two)
        assert not await is_hit(engine, one)
        await fill(engine, one)
        assert not await asks(engine, node, two)
        assert not await asks(engine, node, one)
    await engine.close()


class Amid(Node):
    """A node that is written to just before it is asked for a bucket."""

    bucket = written = b""

    def _replies(self, payload: bytes, count: int) -> list[Reply] | None:
        at = payload.find(b"mg %b " % self.bucket) if self.written else -1
        if at < 0:
            return super()._replies(payload, count)
        before = self.store.execute(payload[:at])
        self.store.execute(self.written)
        return before + self.store.execute(payload[at:])


@pytest.mark.parametrize(
    ("covers", "is_in_the_way"),
    [({}, True), ({SLOT: {ONE}}, True), ({SLOT: {TWO}}, False), ({SLOT: set()}, False)],
)
async def test_nothing_is_stored_by_a_bucket_where_a_write_to_it_began_meanwhile(
    covers: Mapping[bytes, set[bytes]], is_in_the_way: bool
) -> None:
    """Another may have given the bucket its version amid that."""
    node = Amid()
    engine = await engine_on(node)
    await take_into_use(engine)
    one = pinned(engine, ONE)
    await fill(engine, one)
    await write(engine, {SLOT: frozenset({ONE})})
    touched = {slot: frozenset(buckets) for slot, buckets in covers.items()}
    record = narrow_fence_record(b"f" * ID_BYTES, b"b" * ID_BYTES, touched)
    node.bucket, _ = one.tags.requests[-1]
    node.written = meta_set(KEYSPACE.tag("shop", "orders"), record, mode=b"A", ttl_s=0)
    found = await engine.look(one)
    assert found is FENCED if is_in_the_way else isinstance(found, Miss)
    await engine.close()


async def test_who_knows_of_a_write_to_its_rows_asks_for_the_entry_at_once() -> None:
    node = Counting()
    engine = await engine_on(node, own=limits(near_bytes=100_000))
    await take_into_use(engine)
    one = pinned(engine, ONE)
    await fill(engine, one)
    assert await is_hit(engine, one)
    await write(engine, {SLOT: frozenset({ONE})})
    node.payloads.clear()
    assert isinstance(await engine.look(one), Miss)
    (payload,) = node.payloads
    assert one.key in payload
    await engine.close()


async def test_a_bucket_that_is_absent_has_a_version_when_the_look_up_ends(engine: Engine) -> None:
    await take_into_use(engine)
    one = pinned(engine, ONE)
    engine.bind(one)
    assert isinstance(await engine.look(one), Miss)
    await fill(engine, one)
    assert await is_hit(engine, one)


async def test_what_is_pinned_has_changed_when_a_write_to_it_is_seen(engine: Engine) -> None:
    """For a snapshot from before nobody need look at it."""
    await take_into_use(engine)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    for read in (one, two):
        await fill(engine, read)
        assert await is_hit(engine, read)
    view = TransactionView(REPEATABLE_READ)
    await asyncio.sleep(0.01)
    view.opened(engine.time())
    await asyncio.sleep(0.01)
    assert not view.is_past(one)
    await write(engine, {SLOT: frozenset({ONE})})
    assert view.is_past(one)
    assert not view.is_past(two)
    later = TransactionView(REPEATABLE_READ)
    await asyncio.sleep(0.01)
    later.opened(engine.time())
    assert not later.is_past(one)


async def test_a_hit_asks_for_a_bucket_where_a_write_may_have_been_missed() -> None:
    """The log was written anew, between two looks; for a while it may be so again."""
    node = Counting()
    engine = await engine_on(node, own=limits(near_bytes=100_000))
    other = await engine_on(node)
    await take_into_use(engine)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    for read in (one, two):
        await fill(engine, read)
        assert await is_hit(engine, read)
    await write(other, {SLOT: frozenset({ONE})})
    await other._logs.compact(ORDERS)
    assert await asks(engine, node, two)
    assert not await is_hit(engine, one)
    await asyncio.sleep(0.11)
    assert not await asks(engine, node, two)
    await other._logs.compact(ORDERS)  # with the same version: nothing was missed
    assert not await asks(engine, node, two)
    await other.close()
    await engine.close()


async def test_a_log_that_is_compacted_to_what_it_was_is_followed_on() -> None:
    node = Counting()
    engine = await engine_on(node, own=limits(near_bytes=100_000))
    other = await engine_on(node)
    await take_into_use(engine)
    await other._logs.compact(ORDERS)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    await fill(engine, one)
    fence, _ = await raised(other, {SLOT: frozenset({ONE})})
    await fence.undo()
    await engine.look(two)
    await other._logs.compact(ORDERS)
    await fill(engine, two)
    assert await is_hit(engine, two)
    assert not await asks(engine, node, two)
    await other.close()
    await engine.close()


async def test_what_a_log_says_amid_records_holds_up_nobody(node: Node, engine: Engine) -> None:
    """It was written by something else."""
    await take_into_use(engine)
    one = pinned(engine, ONE)
    await fill(engine, one)
    key = engine._placement.key(ORDERS)
    twice = narrow_fence_record(b"fence id", b"beat one", {SLOT: frozenset({TWO})})
    unread = b"fence idbeat two" + (1).to_bytes(2, "big") + b"x"
    for more in (b"V\1\2\3", b"\4\5\6\7\10", twice + b"f" + unread + undo_record(b"fence id")):
        await node.request(b"ms %b %d MA\r\n%b\r\n" % (key, len(more), more), 1)
        async with asyncio.timeout(30):
            await engine.look(one)


async def test_a_tables_window_is_that_of_its_rows() -> None:
    now = [1000.0]
    own = limits(near_bytes=100_000, read_lease_s=3600)
    engine = await engine_on(Node(), own=own, clock=lambda: now[0])
    engine._windows.kept_open._quiet_s, engine._windows.kept_open._often = 0.0, 1
    await take_into_use(engine)
    one, two, whole = pinned(engine, ONE), pinned(engine, TWO), read_of(engine, "orders")
    for read in (one, two, whole):
        await fill(engine, read)
        assert await is_hit(engine, read)

    now[0] += 1

    def hits_unasked(read: Read) -> bool:
        hit = engine.at_once(read)
        return hit is not None and answer_in(hit) == b"answer"

    async def all_do() -> bool:
        return await is_hit(engine, one) and all(map(hits_unasked, (one, two, whole)))

    async def none_does() -> bool:
        return not any(map(hits_unasked, (one, two, whole)))

    await eventually(all_do)
    marks = engine.narrowed(engine.marks([ORDERS], ()), {ORDERS: {SLOT: frozenset({ONE})}})
    fence = engine.join_fence(marks)
    engine.fence_soon(fence, marks, lambda _: None)
    await eventually(none_does)
    now[0] += 10_000  # what waits for windows at the end need not
    await engine.close()


# What a write is told that it touches, amid its fence.


@pytest.mark.parametrize("known", [False, True])
async def test_a_write_that_is_told_what_it_touches_leaves_other_rows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(KnownLog, "is_that_since", lambda *_: known)
    await take_into_use(engine)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    for read in (one, two):
        await fill(engine, read)
    other = b"o" * SLOT_BYTES
    fence, marks = await raised(engine, {other: frozenset({ONE})})
    assert not await is_hit(engine, two), "it may touch any"
    touched = {other: frozenset({ONE}), SLOT: frozenset({ONE})}
    engine.narrow_further(fence, marks, {ORDERS: touched})
    assert len(marks.forgetting) == 1 + known, "one for each bucket"
    assert await told(partial(engine.lift_soon, fence, marks)) is not None
    assert [await is_hit(engine, each) for each in (one, two)] == [False, known]


# Since when an answer is known to be as it is, for snapshots.


async def test_an_answer_is_as_old_as_what_was_written_to_its_rows(engine: Engine) -> None:
    await take_into_use(engine)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    for read in (one, two):
        await fill(engine, read)
    begun = engine.time()
    await write(engine, {SLOT: frozenset({ONE})})
    ended = engine.time()
    for read in (one, two):
        await fill(engine, read)
    assert two.tags.seen_since <= begun
    assert begun <= one.tags.seen_since <= ended


async def test_what_another_process_has_written_is_as_old_as_its_node_says(
    engine: Engine, node: Node
) -> None:
    await take_into_use(engine)
    one, two = pinned(engine, ONE), pinned(engine, TWO)
    for read in (one, two):
        await fill(engine, read)
    other = await engine_on(node)
    await fill(other, read_of(other, "orders"))
    await write(other, {SLOT: frozenset({ONE})})
    seen_at = engine.time()
    await fill(engine, one)
    assert one.tags.seen_since >= seen_at  # for all that is known
    await other.close()


@pytest.mark.parametrize(
    ("left_s", "since"),
    [
        (BUCKET_TTL_S - 100, 1_000 - 100 + COARSE_S + 1),
        (BUCKET_TTL_S - 1, 1_000),
        (BUCKET_TTL_S - 2_000_000, 1_000 - LONGEST_AGE_S + COARSE_S + 1),
        (-1, 1_000),
    ],
)
def test_a_bucket_is_as_old_as_its_node_says(left_s: int, since: float) -> None:
    health = Health(0.0, outage_s=2, quarantine_s=1)
    assert kept_since((b"VA", b"version.", b"t%d" % left_s), [health], 1_000) == since


def test_a_bucket_is_no_older_than_what_was_last_not_seen_of_its_node() -> None:
    """It may have stood, and its clock with it."""
    health = Health(950.0, outage_s=2, quarantine_s=1)
    assert kept_since((b"VA", b"version.", b"t%d" % (BUCKET_TTL_S - 100)), [health], 1_000) == 950


# Answers without rows, where the server numbers the rows that come.


def numbered(engine: Engine, *buckets: bytes) -> Read:
    read = pinned(engine, *buckets, witnessed=True)
    read.proof_rows = 1
    return read


async def leased(engine: Engine, read: Read) -> Lease:
    got = await engine.obtain(read)
    assert isinstance(got, Lease)
    return got


async def test_an_answer_without_rows_hangs_on_the_table(engine: Engine) -> None:
    await take_into_use(engine)
    one, two = numbered(engine, ONE), numbered(engine, TWO)
    for read, rows in ((one, 0), (two, 1)):
        got = await leased(engine, read)
        assert engine.may_keep(got, rows) is bool(rows)
        await (got.fill(entry_of(got, b"answer")) if rows else got.decline(lasting=False))
    await fill(engine, numbered(engine, ONE))
    assert await is_hit(engine, numbered(engine, ONE))
    await write(engine, {SLOT: frozenset()})
    assert not await is_hit(engine, numbered(engine, ONE))
    assert await is_hit(engine, two)


async def test_so_does_one_without_a_row_for_each_number(engine: Engine) -> None:
    await take_into_use(engine)
    for read, rows in ((numbered(engine, ONE, TWO), 1), (numbered(engine, TWO, THREE), 2)):
        assert engine.may_keep(await leased(engine, read), rows) is (rows == 2)


async def test_so_it_does_where_another_session_has_just_found_none(engine: Engine) -> None:
    """They have the read in common, and two look-ups of it are under way."""
    await take_into_use(engine)
    one = numbered(engine, ONE)
    first = await leased(engine, one)
    await write(engine, {SLOT: frozenset({ONE})})
    second = await leased(engine, one)
    assert first.versions != second.versions
    assert not engine.may_keep(first, 0)
    assert not engine.may_keep(second, 0)


async def test_a_look_up_goes_by_what_the_read_hung_on_when_it_began(engine: Engine) -> None:
    await take_into_use(engine)
    one = numbered(engine, ONE)
    got = await leased(engine, one)
    looking = asyncio.create_task(engine.look(one))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not engine.may_keep(got, 0)
    assert not one.tags.pins
    assert isinstance(await looking, Miss)


async def test_it_says_on_what_its_answer_hangs(engine: Engine) -> None:
    await take_into_use(engine)
    read = pinned(engine, ONE)
    await fill(engine, read)
    looking = asyncio.ensure_future(engine.look(read))
    await asyncio.sleep(0)
    asked, read.tags = read.tags, read.tags.base or read.tags
    hit = await looking
    assert isinstance(hit, Hit)
    basis = read.basis_of(hit)
    assert not isinstance(basis, str)
    assert asked.base is not None
    assert asked.base.seen is not None
    assert (basis.tags, basis.whole) == (asked, asked.base.seen.versions)
    assert len(asked.parts(basis.versions)) == len(asked.tags)


async def test_it_does_not_say_what_a_table_has_while_another_row_is_written(
    engine: Engine,
) -> None:
    await take_into_use(engine)
    read = pinned(engine, ONE)
    await fill(engine, read)
    fence, marks = await raised(engine, {SLOT: frozenset([TWO])})
    hit = await engine.look(read)
    assert isinstance(hit, Hit)
    assert hit.whole is None
    await told(partial(engine.lift_soon, fence, marks))


async def test_an_answer_from_before_a_slot_is_not_given_in_place_of_the_next(
    engine: Engine,
) -> None:
    """It begins with other versions, and their number tells where it begins itself."""
    read = pinned(engine, ONE)
    await fill(engine, read)
    await engine.bump([ORDERS])
    missed = await engine.look(read)
    assert isinstance(missed, Miss)
    assert missed.previous is not None
    await take_into_use(engine)
    assert isinstance(await engine.obtain(read), Lease)  # the bucket has a version
    missed = await engine.look(read)
    assert read.tags.pins
    assert isinstance(missed, Miss)
    assert missed.previous is None


async def test_a_row_may_have_come_since_its_number_was_asked_for(engine: Engine) -> None:
    """A snapshot from between has it not, and nothing else tells."""
    await take_into_use(engine)
    one = numbered(engine, ONE)
    assert not engine.may_keep(await leased(engine, one), 0)
    between = engine.time()
    await write(engine, {SLOT: frozenset()})
    other = one.with_key(one.key + b"another")
    other.tags = read_of(engine, "orders").tags
    got = await leased(engine, other)
    assert got.since < between
    assert engine.may_keep(got, 1)
    await got.fill(entry_of(got, b"answer"))
    hit = await engine.look(other)
    assert isinstance(hit, Hit)
    assert hit.since >= between


async def test_an_answer_that_proves_no_row_hangs_on_the_table(engine: Engine) -> None:
    await take_into_use(engine)
    one = numbered(engine, ONE)
    one.proof_rows = None
    assert not engine.may_keep(await leased(engine, one), 1)
    assert not one.tags.pins


# Answers from several tables.


@pytest.fixture
async def joins(engine: Engine) -> Engine:
    """One in which both tables' answers are told apart."""
    for tag in (ORDERS, LINES):
        await take_into_use(engine, of=tag)
    return engine


def joined(
    engine: Engine, of_lines: Pinned | None, of_orders: Pinned | None, text: bytes = b"SELECT both"
) -> Read:
    """A read of lines and orders, in this order."""
    read = read_of(engine, "orders", "lines", text=text)
    read.pinning = tuple(each or Unpinned() for each in (of_lines, of_orders))
    return read


class Unpinned(Pinned):
    """Reads of all rows."""

    def pin(self, in_use: Set[bytes], field: bytes) -> Pin | None:
        return None


async def write_both(engine: Engine, touches: Mapping[Tag, Cover]) -> None:
    marks = engine.narrowed(engine.marks(touches, ()), touches)
    fence = engine.join_fence(marks)
    assert await told(partial(engine.fence_soon, fence, marks)) is not None
    assert await told(partial(engine.lift_soon, fence, marks)) is not None


async def test_an_answer_from_several_tables_hangs_on_rows_of_each(joins: Engine) -> None:
    read = joined(joins, Pinned(ONE), Pinned(TWO))
    await fill(joins, read)
    assert len(read.tags.requests) == len(read.tags.tags) + 2
    for tag, bucket, forgets in (
        (LINES, TWO, False),
        (ORDERS, ONE, False),
        (LINES, ONE, True),
        (ORDERS, TWO, True),
    ):
        assert await is_hit(joins, read)
        marks = joins.narrowed(joins.marks([tag], ()), {tag: {SLOT: frozenset({bucket})}})
        fence = joins.join_fence(marks)
        assert await told(partial(joins.fence_soon, fence, marks)) is not None
        assert (await joins.look(read) is FENCED) is forgets
        assert await told(partial(joins.lift_soon, fence, marks)) is not None
        assert await is_hit(joins, read) is not forgets
        await fill(joins, read)


async def test_one_write_may_touch_rows_of_both(joins: Engine) -> None:
    read = joined(joins, Pinned(ONE), Pinned(TWO))
    for of_lines, of_orders, forgets in ((TWO, ONE, False), (TWO, TWO, True), (ONE, ONE, True)):
        await fill(joins, read)
        assert await is_hit(joins, read)
        cover = {LINES: frozenset({of_lines}), ORDERS: frozenset({of_orders})}
        await write_both(joins, {tag: {SLOT: buckets} for tag, buckets in cover.items()})
        assert await is_hit(joins, read) is not forgets


async def test_a_table_that_is_not_pinned_is_forgotten_as_a_whole(joins: Engine) -> None:
    read = joined(joins, None, Pinned(TWO))
    await fill(joins, read)
    await write_both(joins, {ORDERS: {SLOT: frozenset({ONE})}})
    assert await is_hit(joins, read)
    await write_both(joins, {LINES: {SLOT: frozenset({ONE})}})
    assert not await is_hit(joins, read)


async def test_where_a_slot_of_one_is_in_use_the_other_is_told_by_its_table(
    engine: Engine,
) -> None:
    await take_into_use(engine)
    read = joined(engine, Pinned(ONE), Pinned(TWO))
    await fill(engine, read_of(engine, "lines"))
    await fill(engine, read)
    await write_both(engine, {ORDERS: {SLOT: frozenset({ONE})}})
    assert await is_hit(engine, read)
    await write_both(engine, {LINES: {SLOT: frozenset({TWO})}})
    assert not await is_hit(engine, read)
    await take_into_use(engine, of=LINES)
    await fill(engine, read)
    await fill(engine, read)
    await write_both(engine, {LINES: {SLOT: frozenset({TWO})}})
    assert await is_hit(engine, read)


async def test_a_slot_is_lost_with_the_log_of_its_table_alone(joins: Engine, node: Node) -> None:
    read = joined(joins, Pinned(ONE), Pinned(TWO))
    await fill(joins, read)
    key, _ = read.tags.requests[0]
    await asyncio.wait_for(told(partial(node.submit, b"md %b\r\n" % key, 1)), 5)
    assert not await is_hit(joins, read)
    await fill(joins, read)
    assert await is_hit(joins, read)
    await write_both(joins, {ORDERS: {SLOT: frozenset({ONE})}})
    assert await is_hit(joins, read)
    await write_both(joins, {LINES: {SLOT: frozenset({TWO})}})
    assert not await is_hit(joins, read)


async def test_a_slot_is_taken_of_the_table_that_was_written(engine: Engine) -> None:
    read = joined(engine, Pinned(ONE), Pinned(TWO))
    for _ in range(20):
        await fill(engine, read)
        await write_both(engine, {LINES: {}})
        if SLOT in slots_of(read, 0).in_use:
            break
    else:
        pytest.fail("it never was")
    for _ in range(3):
        await fill(engine, read)
        await write_both(engine, {LINES: {}})
    assert not slots_of(read, 1).in_use


async def test_an_answer_is_as_old_as_what_was_written_to_rows_of_any_table(
    joins: Engine,
) -> None:
    read, other = (
        joined(joins, Pinned(of_lines), Pinned(TWO), text=b"SELECT of " + of_lines)
        for of_lines in (ONE, THREE)
    )
    for each in (read, other):
        await fill(joins, each)
    begun = joins.time()
    await write_both(joins, {LINES: {SLOT: frozenset({ONE})}})
    for each in (read, other):
        await fill(joins, each)
    assert other.tags.seen_since <= begun <= read.tags.seen_since
    begun = joins.time()
    await write_both(joins, {ORDERS: {SLOT: frozenset({TWO})}})
    for each in (read, other):
        await fill(joins, each)
        assert begun <= each.tags.seen_since


async def test_a_hit_on_rows_of_several_tables_asks_for_buckets_that_may_be_new_alone() -> None:
    node = Counting()
    engine = await engine_on(node, own=limits(near_bytes=100_000))
    for tag in (ORDERS, LINES):
        await take_into_use(engine, of=tag)
    read = joined(engine, Pinned(ONE), Pinned(TWO))
    other = joined(engine, Pinned(TWO), Pinned(ONE), text=b"SELECT others")
    for each in (read, other):
        await fill(engine, each)
        assert await is_hit(engine, each)

    async def asks() -> bool:
        node.payloads.clear()
        assert await is_hit(engine, read)
        buckets = [key for key, _ in read.tags.requests[-2:]]
        return any(bucket in payload for payload in node.payloads for bucket in buckets)

    assert not await asks()
    for tag, bucket in ((LINES, TWO), (ORDERS, ONE)):
        await write_both(engine, {tag: {SLOT: frozenset({bucket})}})
        assert not await asks()
        assert not await is_hit(engine, other)
        await fill(engine, other)
        assert not await asks()
    for tag, bucket in ((LINES, ONE), (ORDERS, TWO)):
        await write_both(engine, {tag: {SLOT: frozenset({bucket})}})
        assert not await is_hit(engine, read)
        await fill(engine, read)
        assert not await asks()
    await engine.close()


async def test_a_row_of_a_join_proves_one_of_each_table_whose_rows_are_numbered(
    joins: Engine,
) -> None:
    both = joined(joins, Pinned(ONE, witnessed=True), Pinned(TWO, witnessed=True))
    both.proof_rows = 1
    got = await leased(joins, both)
    assert joins.may_keep(got, 1)
    await got.fill(entry_of(got, b"answer"))
    assert await is_hit(joins, both)
    await write_both(joins, {LINES: {SLOT: frozenset({ONE})}})
    assert not joins.may_keep(await leased(joins, both), 0)
    assert not both.tags.pins


async def test_without_rows_it_still_hangs_on_rows_that_are_not_numbered(joins: Engine) -> None:
    some = joined(joins, Pinned(ONE, witnessed=True), Pinned(TWO))
    some.proof_rows = 1
    before = await leased(joins, some)
    assert not joins.may_keep(before, 0)
    assert some.tags.pins == (None, Pin(SLOT, (TWO,)))
    got = await leased(joins, some)
    assert not joins.may_keep(before, 0)
    assert joins.may_keep(got, 0)
    await got.fill(entry_of(got, b"answer"))
    await write_both(joins, {ORDERS: {SLOT: frozenset({ONE})}})
    assert await is_hit(joins, some)
    await write_both(joins, {LINES: {SLOT: frozenset()}})  # of a row whose number the server gave
    assert not await is_hit(joins, some)
