"""Writes: what is marked, bumped, renewed, lapsed, refused and made up for."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from sqlcache.boot_clock import boot_clock
from sqlcache.cache.engine import Engine
from sqlcache.cache.fences import Fences
from sqlcache.cache.leases import Lease
from sqlcache.cache.log_records import TagState, fence_record
from sqlcache.cache.outcomes import DISTRUSTED, FENCED, UNREACHABLE, UNREPORTED
from sqlcache.cache.reach import Reach
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import CacheUnavailable, WriteRefused
from sqlcache.memcache import health
from sqlcache.memcache.connection import Done
from sqlcache.memcache.protocol import Reply, meta_set
from sqlcache.metrics import Metrics
from tests.cache.engines import (
    KEYSPACE,
    LINES,
    ORDERS,
    OUTAGE_S,
    SHOP,
    SHORT_DEADLINE_S,
    Counting,
    Node,
    answer_to,
    engine_on,
    eventually,
    eventually_not,
    filled,
    limits,
    on_time,
    raised,
    read_of,
    until_silent,
)
from tests.costs import TRIES, cost_s

lapse_soon = pytest.mark.parametrize("deadline_s", [SHORT_DEADLINE_S])
HASTY = limits(write_deadline_s=SHORT_DEADLINE_S)


async def test_while_a_fence_stands_nothing_is_served_or_stored(engines: list[Engine]) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    fence = await engines[1].fence([ORDERS])
    assert await engines[0].obtain(read) == FENCED
    await fence.lift()
    got = await engines[0].obtain(read)
    assert isinstance(got, Lease)
    await got.release()


async def test_a_write_that_was_never_sent_forgets_nothing(engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    await (await engine.fence([ORDERS])).undo()
    assert await answer_to(engine, read) == b"answer"


async def test_of_a_write_that_was_refused_in_part_only_the_rest_is_forgotten(
    engine: Engine,
) -> None:
    reads = [read_of(engine, "orders"), read_of(engine, "users")]
    for read in reads:
        await filled(engine, read, b"answer")
    fence = await engine.fence([ORDERS, Tag("shop", "users")])
    await fence.keep([ORDERS])
    assert await engine.obtain(reads[0]) == FENCED
    assert await answer_to(engine, reads[1]) == b"answer"
    await fence.lift()
    assert isinstance(await engine.obtain(reads[0]), Lease)
    assert await answer_to(engine, reads[1]) == b"answer"


async def test_a_part_of_a_write_is_published_under_its_fence(engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    fence = await engine.fence([ORDERS])
    await fence.publish()
    assert await engine.obtain(read) == FENCED
    await fence.lift()
    assert await answer_to(engine, read) is None


async def test_a_lift_names_the_commits_that_it_comes_after(engine: Engine) -> None:
    other = Tag("shop", "users")
    fence = await engine.fence([ORDERS, other])
    fence.committed([b"commit-1", b"commit-2"])
    await fence.publish()
    fence.committed([b"commit-3"])
    assert await engine.commits([ORDERS]) == {ORDERS: frozenset()}
    await fence.lift()
    named = frozenset({b"commit-1", b"commit-2", b"commit-3"})
    assert await engine.commits([ORDERS, other]) == {ORDERS: named, other: named}


async def test_what_ends_everything_names_its_commits_for_each_tag(engine: Engine) -> None:
    await engine.bump([ORDERS])
    fence = await engine.fence([ROOT])
    fence.committed([b"commit-1"])
    await fence.lift()
    assert await engine.commits([ORDERS]) == {ORDERS: frozenset({b"commit-1"})}


async def test_what_was_never_sent_names_no_commit(engine: Engine) -> None:
    fence = await engine.fence([ORDERS])
    fence.committed([b"commit-1"])
    await fence.undo()
    assert await engine.commits([ORDERS]) == {ORDERS: frozenset()}


async def test_of_very_many_commits_a_lift_names_the_last(engine: Engine) -> None:
    fence = await engine.fence([ORDERS])
    for number in range(1000):
        fence.committed([b"%08d" % number])
    await fence.lift()
    (named,) = (await engine.commits([ORDERS])).values()
    assert b"%08d" % 999 in named
    assert len(named) == 32


async def test_commits_are_named_by_a_log_that_has_been_compacted(engine: Engine) -> None:
    for number in range(100):
        fence = await engine.fence([ORDERS])
        fence.committed([b"%08d" % number])
        await fence.lift()
        assert b"%08d" % number in (await engine.commits([ORDERS]))[ORDERS]


async def test_a_log_that_was_lost_names_no_commit(node: Node, engine: Engine) -> None:
    fence = await engine.fence([ORDERS])
    fence.committed([b"commit-1"])
    await fence.lift()
    await node.request(b"md %b\r\n" % KEYSPACE.tag("shop", "orders"), 1)
    assert await engine.commits([ORDERS]) == {ORDERS: frozenset()}
    node.away = True
    assert await engine.commits([ORDERS]) == {ORDERS: frozenset()}
    node.away = False


async def test_an_unknown_outcome_keeps_its_fence_for_the_deadline() -> None:
    async def trial() -> None:
        engine = await engine_on(Node(), own=HASTY)
        read = read_of(engine, "orders")
        await filled(engine, read, b"answer")
        (await engine.fence([ORDERS])).abandon()
        assert await engine.obtain(read) == FENCED
        await eventually_not(engine, read, FENCED)
        assert await answer_to(engine, read) is None
        await engine.close()

    await on_time(trial)


async def test_a_fence_ends_when_its_write_is_known_to_be_over(node: Node) -> None:
    engine = await engine_on(node)
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    looks = 0
    over = False

    async def is_over() -> bool:
        nonlocal looks
        looks += 1
        return over

    async def looked_again() -> bool:
        return looks > 1

    (await engine.fence([ORDERS])).abandon(is_over)
    await eventually(looked_again)
    assert await engine.obtain(read) == FENCED
    over = True
    await eventually_not(engine, read, FENCED)
    assert await answer_to(engine, read) is None
    await engine.close()


async def test_a_fence_ends_also_where_a_look_for_the_end_of_its_write_fails(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    async def is_over() -> bool:
        nonlocal looks
        looks += 1
        return looks > 1 or 1 // 0 > 0

    (await engine.fence([ORDERS])).abandon(is_over)
    await eventually_not(engine, read_of(engine, "orders"), FENCED)
    assert "not known whether a write is over" in caplog.text


async def test_a_fault_amid_a_lift_that_nobody_waits_for_leaves_nothing_behind(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_over() -> bool:
        return True

    fence = await engine.fence([ORDERS])
    with monkeypatch.context() as patch:
        patch.setattr(Reach, "until_out", None)
        fence.abandon(is_over)
        await eventually(told_of(caplog, "a fence was not lifted"))
    await eventually_not(engine, read_of(engine, "orders"), FENCED, UNREPORTED)
    assert await engine._fences.close()


@lapse_soon
async def test_the_fence_of_a_dead_process_lapses(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    dead = await engine_on(node)
    await dead.fence([ORDERS])
    await dead.close()
    assert await engine.obtain(read) == FENCED
    await eventually_not(engine, read, FENCED)
    assert await answer_to(engine, read) is None


class _WithWriters(Node):
    """Others always write, and each write comes just before a compare-and-swap, so many times."""

    writes = 0

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        if self.writes and payload.startswith(b"ms") and b" C" in payload.partition(b"\r")[0]:
            self.writes -= 1
            write = fence_record(fresh_id(), fresh_id())
            self.store.execute(meta_set(KEYSPACE.tag("shop", "orders"), write, mode=b"A", ttl_s=0))
        super().submit(payload, count, done)


@pytest.mark.parametrize("writes", [0, 5, 50])
async def test_it_lapses_soon_also_while_others_write(writes: int) -> None:
    """Of whom one writes each time between that the log is read and that it is replaced."""

    async def trial() -> None:
        node, metrics = _WithWriters(), Metrics()
        dead, reader = [await engine_on(node, metrics=each, own=HASTY) for each in (None, metrics)]
        read = read_of(reader, "orders")
        await filled(reader, read, b"answer")
        fence = await dead.fence([ORDERS])
        await dead.close()
        node.writes = writes

        async def is_gone() -> bool:
            await reader.look(read)
            stand = (await reader.states([ORDERS]))[ORDERS].fences
            # Those of the others have no beats either, and a busy machine sees some of them lapse.
            return fence.id not in stand and metrics.fences_lapsed + len(stand) == 1 + writes

        began = asyncio.get_running_loop().time()
        await eventually(is_gone)
        assert asyncio.get_running_loop().time() - began < 4 * SHORT_DEADLINE_S
        assert node.writes == 0
        await reader.close()

    await on_time(trial)


async def test_between_tries_to_let_it_lapse_this_processs_own_writers_go_on() -> None:
    """Where others write all the time, each time in between: during a try its own wait."""
    node = _WithWriters()
    dead, reader = [await engine_on(node, own=HASTY) for _ in range(2)]
    read = read_of(reader, "orders")
    await filled(reader, read, b"answer")
    await dead.fence([ORDERS])
    await dead.close()
    node.writes = 1_000_000
    looks: list[bool] = []  # whether its own would have to wait
    loop = asyncio.get_running_loop()
    while looks.count(True) < 20 and len(looks) < 5_000:
        await reader.look(read)
        looks.append(ORDERS in reader._logs._compacting)
        await asyncio.sleep(0.002)
    began, looks = loop.time(), []
    while loop.time() - began < 4 * SHORT_DEADLINE_S:
        await reader.look(read)
        looks.append(ORDERS in reader._logs._compacting)
        await asyncio.sleep(0.002)
    assert looks.count(True)
    assert looks.count(False) > len(looks) / 5
    node.writes = 0
    await reader.close()


@lapse_soon
async def test_a_fence_that_lapsed_before_its_write_was_sent_is_put_up_again(
    node: Node, engine: Engine
) -> None:
    """Its process was stopped in between, and sends the write now."""
    read = read_of(engine, "orders")
    stopped = await engine_on(node, own=HASTY)
    fence = await stopped.fence([ORDERS])
    await stopped.close()  # no beat comes
    assert await engine.obtain(read) == FENCED
    await eventually_not(engine, read, FENCED)
    await fence.renew()
    assert await engine.obtain(read) == FENCED
    await fence.lift()
    assert await answer_to(engine, read) is None


class _Full(Node):
    """Lives, and takes nothing, as a memcached that has no memory left and may evict nothing."""

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        if KEYSPACE.tag("shop", "orders") in payload:
            refused: Reply = b"SE", None, b"out of memory storing object"
            asyncio.get_running_loop().call_soon(done, [refused] * count)
        else:
            super().submit(payload, count, done)


async def test_a_write_is_sent_though_to_be_refused_its_marks_takes_longer_than_they_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sqlcache.memcache.health._PATIENCE_S", 1.0)
    engine = await engine_on(_Full(), own=HASTY)
    fence = await engine.fence([ORDERS])
    async with asyncio.timeout(30):
        await fence.renew()
    fence.abandon()
    await engine.close()


async def test_a_fence_that_lapsed_while_its_machine_was_suspended_is_put_up_again(
    node: Node, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own clocks stood still."""
    read = read_of(engine, "orders")
    writer = await engine_on(node)
    marks = writer.marks([ORDERS], [SHOP])
    alone = await writer.fence([ORDERS])
    shared, _ = await raised(writer, marks)
    for fence in (alone, shared):
        await node.request(b"md %b\r\n" % KEYSPACE.tag("shop", "orders"), 1)
        await filled(engine, read, b"old")
        await fence.renew()
        assert await answer_to(engine, read) == b"old"
    monkeypatch.setattr(writer._windows, "clock", lambda: boot_clock() + 40)
    assert not writer.still_stands(shared)
    await alone.renew()
    assert await engine.obtain(read) == FENCED
    await alone.lift()
    joins, _ = await raised(writer, marks)
    assert await engine.obtain(read) == FENCED
    for fence in (joins, shared):
        await fence.lift()
    assert await answer_to(engine, read) is None
    await writer.close()


async def test_the_fence_of_a_long_write_is_renewed() -> None:
    async def trial() -> None:
        node = Node()
        reader, writer = [await engine_on(node, own=HASTY) for _ in range(2)]
        read = read_of(reader, "orders")
        fence = await writer.fence([ORDERS])
        deadline = asyncio.get_running_loop().time() + 4 * SHORT_DEADLINE_S
        while asyncio.get_running_loop().time() < deadline:
            assert await reader.obtain(read) == FENCED
            await asyncio.sleep(0.02)
        await fence.lift()
        await asyncio.gather(reader.close(), writer.close())

    await on_time(trial)


async def test_the_fence_of_a_write_that_has_just_begun_is_not_renewed(engine: Engine) -> None:
    fence = await engine.fence([ORDERS])
    for age_s, is_renewed in ((0, False), (30, True)):
        marked_at = fence.marked_at = engine._fences.now() - age_s
        await engine._fences._beat(young_s=20)
        assert (fence.marked_at > marked_at) is is_renewed
    await fence.undo()


class Holding(Node):
    """Answers nothing of these tables' tags while it `holds`."""

    def __init__(self, *tables: str) -> None:
        super().__init__()
        self.holds = False
        self.held: list[Callable[[], None]] = []
        self._keys = [KEYSPACE.tag("shop", table) for table in tables]

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        answer = partial(super().submit, payload, count, done)
        if self.holds and any(key in payload for key in self._keys):
            self.held.append(answer)
        else:
            answer()

    async def holds_many(self) -> bool:
        return len(self.held) > 50

    def let_go(self) -> None:
        self.holds = False
        for answer in self.held:
            answer()


MANY = [f"t{each}" for each in range(200)]


async def test_many_fences_are_renewed_at_once() -> None:
    """One after the other they would take longer than they stand, where memcached is far away."""
    node = Holding(*MANY)
    engine = await engine_on(node)
    fences = await asyncio.gather(*(engine.fence([Tag("shop", table)]) for table in MANY))
    marked_at = engine._fences.now()
    node.holds = True
    beat = asyncio.create_task(engine._fences._beat())
    await eventually(node.holds_many)
    node.let_go()
    await beat
    assert all(fence.marked_at >= marked_at for fence in fences)
    await asyncio.gather(*(fence.undo() for fence in fences))
    await engine.close()


async def test_many_fences_on_the_same_tables_are_renewed_in_one_record_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each record comes the whole log, which names them all."""
    monkeypatch.setattr(Fences, "_renew", _never)
    node = Counting()
    engine = await engine_on(node)
    fences = await asyncio.gather(*(engine.fence([ORDERS, LINES]) for _ in range(200)))
    for most, records in ((1_000, 1), (50, 4)):
        monkeypatch.setattr("sqlcache.cache.fences._MOST_IN_A_RECORD", most)
        marked_at = engine._fences.now()
        node.payloads.clear()
        await engine._fences._beat()
        appended = [each for each in node.payloads if b" MA" in each]
        assert len(appended) == records
        assert all(any(fence.id in each for each in appended) for fence in fences)
        assert all(fence.marked_at >= marked_at and not fence.unheard for fence in fences)
    for fence in fences:
        await fence.undo()
    states = await engine.states([ORDERS, LINES])
    assert not any(state.fences for state in states.values())
    await engine.close()


async def _never(_: Fences) -> None:
    """Renews nothing."""


async def test_a_beat_puts_up_no_fence_again_that_has_ended_before_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or that stands elsewhere alone by now."""
    monkeypatch.setattr(Fences, "_renew", _never)
    node = Holding(*MANY)
    engine = await engine_on(node)
    tags = [Tag("shop", table) for table in MANY]
    fences = await asyncio.gather(*(engine.fence([tag, ORDERS]) for tag in tags))
    node.holds = True
    beat = asyncio.create_task(engine._fences._beat())
    await eventually(node.holds_many)
    node.holds = False
    kept, ended = fences[:100], fences[100:]
    await asyncio.gather(*(fence.keep([ORDERS]) for fence in kept))
    await asyncio.gather(*(fence.undo() for fence in ended))
    node.let_go()  # what was sent before
    await beat
    states = await engine.states([*tags, ORDERS])
    assert states.pop(ORDERS).fences.keys() == {fence.id for fence in kept}
    assert sum(len(state.fences) for state in states.values()) == len(node.held)
    await asyncio.gather(*(fence.undo() for fence in kept))
    await engine.close()


async def test_where_a_tag_is_not_reached_its_fence_is_not_taken_for_renewed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fences, "_renew", _never)
    other = Node("other")
    engine = await engine_on(node, other)
    fences = engine._fences
    tags = [Tag("shop", table) for table in MANY[:20]]
    there = [tag for tag in tags if fences._placement.node(tag) == "other"]
    here = [tag for tag in tags if tag not in there]
    assert here
    assert there
    both, alone = await engine.fence([here[0], there[0]]), await engine.fence([here[0]])
    other.away = True
    marked_at = both.marked_at
    await fences._beat()
    assert both.marked_at == marked_at
    assert fences.may_be_raised_anew(both)
    assert alone.marked_at > marked_at
    assert not fences.may_be_raised_anew(alone)
    other.away = False
    await fences._beat()
    assert both.marked_at > marked_at
    for fence in (both, alone):
        await fence.undo()
    await engine.close()


async def test_a_fault_amid_a_beat_ends_no_other(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = await engine.fence([ORDERS])
    with monkeypatch.context() as patch:
        patch.setattr(Reach, "append", None)
        await eventually(told_of(caplog, "a fence was not renewed"))
    marked_at = fence.marked_at

    async def is_renewed() -> bool:
        return fence.marked_at > marked_at

    await eventually(is_renewed)
    await fence.undo()


async def test_a_fault_amid_a_bump_ends_no_other(
    engine: Engine, node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.away = True
    await engine.bump([ORDERS])
    node.away = False
    with monkeypatch.context() as patch:
        patch.setattr(Reach, "append", None)
        await eventually(told_of(caplog, "a pending bump was not made"))
    await eventually(partial(_nothing_is_owed, engine))


def told_of(caplog: pytest.LogCaptureFixture, line: str) -> Callable[[], Awaitable[bool]]:
    async def is_told() -> bool:
        return line in caplog.text

    return is_told


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


async def test_a_bump_that_is_owed_is_made_however_many_writes_it_is_of() -> None:
    """What names the fences of all of them is longer than memcached lets an item be."""
    node = Node(max_item_bytes=16_384)
    engine = await engine_on(node)
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    first = await engine.fence([ORDERS])
    node.away = True
    await first.lift()
    for _ in range(2_000):
        await (await engine.fence([ORDERS])).lift()
    node.away = False
    await eventually(partial(_nothing_is_owed, engine))
    assert (await engine.states([ORDERS]))[ORDERS].fences == {}
    assert await answer_to(engine, read) is None
    await engine.close()


async def test_a_bump_that_is_owed_once_more_amid_a_try_is_made_once_more() -> None:
    """The write may have been done after that was carried out."""
    node = Holding("orders")
    engine = await engine_on(node)
    node.away = True
    await engine.bump([ORDERS])
    node.away, node.holds = False, True

    async def is_tried() -> bool:
        return bool(node.held)

    await eventually(is_tried)
    engine._fences.owed.owe(ORDERS)
    node.held.pop()()
    await eventually(is_tried)
    node.holds = False
    node.held.pop()()
    await eventually(partial(_nothing_is_owed, engine))
    await engine.close()


async def _nothing_is_owed(engine: Engine) -> bool:
    return not engine._fences.owed.tags


async def test_a_bump_owed_at_the_end_is_made_at_the_end(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    last = await engine_on(node)
    node.away = True
    await last.bump([ORDERS])
    node.away = False
    await last.close()
    assert await answer_to(engine, read) is None


async def test_a_log_stays_short_however_much_is_written(node: Node, engine: Engine) -> None:
    for _ in range(100):
        await (await engine.fence([ORDERS])).lift()
    (reply,) = await node.request(b"mg %b s\r\n" % KEYSPACE.tag("shop", "orders"), 1)
    assert int(reply[2][1:]) < 700


async def test_a_fence_tells_the_versions_it_was_asked_for(engine: Engine) -> None:
    versions = await engine.versions([ROOT, Tag("shop")])
    fence = await engine.fence([ORDERS], [ROOT, Tag("shop"), Tag("new")])
    new = fence.observed.pop(Tag("new", node="memory"))
    assert new.version is not None, "it is given one"
    assert {tag: state.current for tag, state in fence.observed.items()} == versions
    await fence.lift()


async def silence(node: Node) -> None:
    """The node is away for so long that it is distrusted, and no stranger goes on without it."""
    node.away = True
    await asyncio.sleep(0.65 * OUTAGE_S)
    node.away = False


async def test_a_short_silence_is_waited_for(node: Node, engine: Engine, metrics: Metrics) -> None:
    node.away = True
    asyncio.get_running_loop().call_later(OUTAGE_S / 4, setattr, node, "away", False)
    fence = await engine.fence([ORDERS])
    await fence.lift()
    assert metrics.fences_unreachable == 0


async def test_a_node_that_answers_all_but_writers_is_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PATIENCE_S", 0.0)  # that for two outages and a half is left
    node, metrics = DeafToMarks(), Metrics()
    engine = await engine_on(node, metrics=metrics)
    fences = [await engine.fence([ORDERS]) for _ in range(2)]
    assert metrics.fences_unreachable == 2
    assert caplog.text.count(f"writes wait for it in vain node={node.name}") == 1
    await asyncio.gather(*(fence.undo() for fence in fences))
    await engine.close()


async def test_a_node_that_has_answered_nothing_for_long_gets_what_is_owed_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may answer others."""
    monkeypatch.setattr(health, "_PATIENCE_S", 0.0)  # that for two outages and a half is left
    node = Counting()
    engine = await engine_on(node, outage_s=0.1)
    node.away = True

    async def is_given_up() -> bool:
        return engine._cluster.health_of(node.name).answers_nothing

    await eventually(is_given_up)
    node.payloads.clear()
    fence = await engine.fence([ORDERS])
    assert not node.payloads
    engine._fences.owed.owe(ORDERS)
    await engine._fences.owed.flush()
    assert b"ms " in b"".join(node.payloads)
    fence.abandon()
    await engine.close()


class DeafToMarks(Node):
    """Answers all but what is added to the tag of orders."""

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        if b"ms " + KEYSPACE.tag("shop", "orders") in payload:
            asyncio.get_running_loop().call_soon(done, None)
        else:
            super().submit(payload, count, done)


async def test_after_a_silence_a_node_is_not_believed_until_all_have_answered() -> None:
    async def trial() -> None:
        node, metrics = Node(), Metrics()
        engines = [await engine_on(node, metrics=metrics, trusting=False) for _ in range(2)]
        engine = engines[0]
        read = read_of(engine, "orders")
        await filled(engine, read, b"from before the silence")
        await silence(node)
        assert await engine.obtain(read) in (DISTRUSTED, UNREACHABLE)
        await eventually_not(engine, read, DISTRUSTED, UNREACHABLE)
        assert not metrics.node_outages
        assert await answer_to(engine, read) == b"from before the silence"
        await asyncio.gather(*(each.close() for each in engines))

    await on_time(trial)


@pytest.mark.parametrize("trusting", [False])
async def test_a_writer_that_died_owing_a_bump_leaves_no_stale_answer(
    node: Node, engine: Engine
) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    writer = await engine_on(node)
    node.away = True
    await until_silent(engine)
    await writer.bump([ORDERS])
    await writer.close()  # while the node is away: its debt is lost
    node.away = False
    await eventually_not(engine, read, DISTRUSTED, UNREACHABLE)
    assert await answer_to(engine, read) is None


async def test_under_consistency_a_write_without_its_tags_is_refused(node: Node) -> None:
    engine = await engine_on(node, own=limits(refuse_writes=True))
    node.away = True
    with pytest.raises(WriteRefused, match=r"shop\.orders"):
        await engine.fence([ORDERS])
    await engine.close()


async def test_under_consistency_an_ok_waits_for_its_bump(node: Node, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"old")
    writer = await engine_on(node, own=limits(refuse_writes=True))
    fence = await writer.fence([ORDERS])
    node.away = True
    lifting = asyncio.ensure_future(fence.lift())
    await asyncio.wait([lifting], timeout=1.5 * OUTAGE_S)
    assert not lifting.done()
    node.away = False
    await lifting
    await eventually_not(engine, read, DISTRUSTED, UNREACHABLE)
    assert await answer_to(engine, read) is None
    await writer.close()


async def test_under_consistency_an_ok_that_stays_unbumped_is_never_given(node: Node) -> None:
    own = limits(refuse_writes=True, write_deadline_s=SHORT_DEADLINE_S)
    writer = await engine_on(node, own=own)
    fence = await writer.fence([ORDERS])
    node.away = True
    with pytest.raises(CacheUnavailable):
        await fence.lift()
    await writer.close()


async def test_under_consistency_an_unknown_outcome_is_made_up_for_after_an_outage(
    node: Node,
) -> None:
    metrics = Metrics()
    own = limits(refuse_writes=True, write_deadline_s=SHORT_DEADLINE_S)
    writer = await engine_on(node, metrics=metrics, own=own)
    (await writer.fence([ORDERS])).abandon()
    node.away = True

    async def owes(bumps: int) -> bool:
        return metrics.pending_bumps == bumps

    await eventually(lambda: owes(1))
    await asyncio.sleep(1.5 * SHORT_DEADLINE_S)  # longer than an OK would be withheld
    node.away = False
    await eventually(lambda: owes(0))
    assert await writer._fences.close()  # nothing is left to be done
    await writer.close()


async def test_to_see_a_fence_costs_the_same_however_many_are_watched(engine: Engine) -> None:
    lapses = engine._reach._lapses
    lapses._deadline_s = 60.0  # all are watched on
    state = TagState(b"version.", {b"a fence.": b"its beat"})
    tags = [Tag("s", f"t{each}") for each in range(12_000)]

    def see(seen: list[Tag]) -> None:
        for tag in seen:
            lapses.saw(tag, state)

    few = min(cost_s(partial(see, tags[each : each + 100])) for each in range(0, 2_000, 100))
    see(tags)
    assert min(cost_s(partial(see, tags[-100:])) for _ in range(TRIES)) < 10 * few


@lapse_soon
async def test_what_was_seen_of_fences_is_not_remembered_for_ever(engine: Engine) -> None:
    """That they have ended is seen only by who looks at the same tag again."""
    lapses = engine._reach._lapses
    state = TagState(b"version.", {b"a fence.": b"its beat"})
    for each in range(10_000):
        lapses.saw(Tag("s", f"t{each}"), state)
    await asyncio.sleep(SHORT_DEADLINE_S)
    lapses.saw(Tag("s", "t"), state)
    assert lapses._watched.keys() == {Tag("s", "t")}
