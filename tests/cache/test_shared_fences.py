"""Writes that are alike and under way at once have one fence."""

import asyncio

import pytest

from sqlcache.cache import fences, shared_fences
from sqlcache.cache.engine import Engine
from sqlcache.cache.fence import Fence
from sqlcache.cache.marks import Logs, Marks
from sqlcache.cache.outcomes import FENCED
from sqlcache.cache.tag_logs import log_state
from sqlcache.errors import WriteRefused
from sqlcache.memcache.health import Health
from sqlcache.metrics import Metrics
from tests.cache.engines import (
    KEYSPACE,
    LINES,
    ORDERS,
    SHOP,
    SHORT_DEADLINE_S,
    Counting,
    Node,
    answer_to,
    engine_on,
    eventually_not,
    filled,
    lifted,
    limits,
    observed,
    on_time,
    raised,
    read_of,
)

JUST_BEFORE_S = 20.0  # less than a mark counts for


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pauses a busy machine makes, looks were just before, and no beat comes between."""
    monkeypatch.setattr(shared_fences, "_JUST_BEFORE_S", JUST_BEFORE_S)
    monkeypatch.setattr(fences, "_LONGEST_BEAT_S", 3_600)


@pytest.fixture
async def node() -> Counting:
    return Counting()


async def begun(engine: Engine, marks: Marks, count: int) -> list[Fence]:
    """So many writes, each where the one before it stands."""
    return [(await raised(engine, marks))[0] for _ in range(count)]


async def test_it_stands_until_the_last_has_ended(node: Node, engine: Engine) -> None:
    metrics = Metrics()
    writer = await engine_on(node, metrics=metrics)
    read = read_of(engine, "orders", "lines")
    await filled(engine, read, b"answer")
    marks = writer.marks([ORDERS, LINES], [SHOP])
    first, second, third = await begun(writer, marks, 3)
    assert (metrics.fences, metrics.fences_shared) == (3, 2)
    for fence in (second, first):
        assert await lifted(writer, fence, marks) == await observed(writer, [SHOP])
        assert await engine.obtain(read) == FENCED
    assert await lifted(writer, third, marks) is not None
    assert await answer_to(engine, read) is None
    assert metrics.invalidations["table"] == 2
    await writer.close()


async def test_the_last_one_names_the_commits_of_all(engine: Engine) -> None:
    marks = engine.marks([ORDERS], [SHOP])
    await filled(engine, read_of(engine, "orders"), b"answer")
    fences = await begun(engine, marks, 3)
    for number, fence in enumerate(fences):
        assert await engine.commits([ORDERS]) == {ORDERS: frozenset()}
        fence.committed([b"commit-%d" % number])
        await lifted(engine, fence, marks)
    assert await engine.commits([ORDERS]) == {
        ORDERS: frozenset({b"commit-0", b"commit-1", b"commit-2"})
    }


async def test_who_comes_while_it_is_being_raised_waits_for_that(
    node: Counting, engine: Engine
) -> None:
    await filled(engine, read_of(engine, "orders"), b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    before = node.orders
    told = await asyncio.gather(*(raised(engine, marks) for _ in range(5)))
    assert node.orders == before + 3
    assert [logs for _, logs in told] == [await observed(engine, [SHOP])] * 5
    await asyncio.gather(*(lifted(engine, fence, marks) for fence, _ in told))


async def test_all_that_end_in_one_turn_ask_together(node: Counting, engine: Engine) -> None:
    await filled(engine, read_of(engine, "orders"), b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    *ending, last = await begun(engine, marks, 5)
    before = node.orders
    logs = await asyncio.gather(*(lifted(engine, fence, marks) for fence in ending))
    assert node.orders == before + 2
    assert logs == [await observed(engine, [SHOP])] * 4
    assert await engine.obtain(read_of(engine, "orders")) == FENCED
    assert await lifted(engine, last, marks) is not None


async def test_all_that_end_last_lift_it_together(node: Counting, engine: Engine) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    fences = await begun(engine, marks, 3)
    before = node.orders
    logs = await asyncio.gather(*(lifted(engine, fence, marks) for fence in fences))
    assert node.orders == before + 3
    assert logs == [await observed(engine, [SHOP])] * 3
    assert await answer_to(engine, read) is None


async def test_where_it_was_lost_each_gives_new_versions_by_itself(
    node: Node, engine: Engine
) -> None:
    """What was read meanwhile may have been stored, and the others' fence would not end that."""
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    first, second = await begun(engine, marks, 2)
    await node.request(b"md %b\r\n" % KEYSPACE.tag("shop", "orders"), 1)
    await filled(engine, read, b"old")
    assert await lifted(engine, first, marks) is None
    await first.lift()
    assert await answer_to(engine, read) is None
    await filled(engine, read, b"half")
    assert await lifted(engine, second, marks) is not None
    assert await answer_to(engine, read) is None


async def test_the_fence_of_another_process_does_for_none_of_its_own(
    node: Node, engines: list[Engine]
) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    marks = engines[1].marks([ORDERS], [SHOP])
    first, second = await begun(engines[1], marks, 2)
    await node.request(b"md %b\r\n" % KEYSPACE.tag("shop", "orders"), 1)
    other = await engines[0].fence([ORDERS])
    assert await lifted(engines[1], first, marks) is None
    await asyncio.gather(first.lift(), second.lift(), other.lift())


async def test_who_cannot_ask_gives_new_versions_when_that_can_be_done(
    node: Node, engine: Engine
) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    first, second = await begun(engine, marks, 2)
    node.away = True
    assert await lifted(engine, first, marks) is None
    node.away = False
    await first.lift()
    await second.lift()
    assert await answer_to(engine, read) is None


async def test_one_that_may_have_lapsed_is_not_joined(
    node: Node, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics()
    writer = await engine_on(node, metrics=metrics, own=limits(write_deadline_s=30))
    await filled(engine, read_of(engine, "orders"), b"answer")
    marks = writer.marks([ORDERS], [SHOP])
    (old,) = await begun(writer, marks, 1)
    then = writer._windows.clock()
    monkeypatch.setattr(writer._windows, "clock", lambda: then + 16)
    (new,) = await begun(writer, marks, 1)
    monkeypatch.undo()
    assert (metrics.fences, metrics.fences_shared) == (2, 0)
    assert await lifted(writer, old, marks) is not None
    assert await engine.obtain(read_of(engine, "orders")) == FENCED
    assert await lifted(writer, new, marks) is not None
    assert await engine.obtain(read_of(engine, "orders")) != FENCED
    await writer.close()


async def test_one_whose_node_is_silent_is_not_joined(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write is refused, or goes on, as one that raises its own."""
    writer = await engine_on(node, own=limits(write_deadline_s=30, refuse_writes=True))
    await filled(writer, read_of(writer, "orders"), b"answer")
    marks = writer.marks([ORDERS], [SHOP])
    (fence,) = await begun(writer, marks, 1)
    health = writer._cluster.health_of(node.name)
    monkeypatch.setattr(Health, "trusts", lambda *_: False)
    node.away = True
    late, logs = await raised(writer, marks)
    assert logs is None
    with pytest.raises(WriteRefused):
        await late.mark(())
    assert health.is_out
    node.away = False
    monkeypatch.undo()
    await fence.lift()
    await writer.close()


async def test_one_that_waits_for_a_compaction_is_not_raised_when_all_have_left(
    node: Node, engine: Engine
) -> None:
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    engine._logs._compacting.add(ORDERS)
    fence = engine.join_fence(marks)
    told: list[Logs | None] = []
    engine.fence_soon(fence, marks, told.append)
    await fence.undo()
    await engine._logs._compact_alone([ORDERS])
    await asyncio.sleep(0.01)
    assert await answer_to(engine, read) == b"answer"


async def test_all_that_stay_for_a_moment_are_lifted_at_the_end(
    node: Node, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_fences, "_MOMENT_S", 3_600)
    monkeypatch.setattr(shared_fences, "_SOON_S", 3_600)
    writer = await engine_on(node)
    reads = [read_of(engine, table) for table in ("orders", "lines")]
    for read, tag in zip(reads, (ORDERS, LINES), strict=True):
        await filled(engine, read, b"answer")
        await hurried(writer, writer.marks([tag], [SHOP]))
    assert len(writer._shared_fences._lingering) == 2
    await writer.close()
    await asyncio.sleep(0.01)
    for read in reads:
        assert await answer_to(engine, read) is None


async def test_one_under_which_definitions_may_have_changed_is_not_joined(
    engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be found out when the write has ended, and others could have seen more of it."""
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    marks = engines[1].marks([ORDERS], [SHOP])
    (old,) = await begun(engines[1], marks, 1)
    definition = await engines[0].fence([SHOP])
    then = engines[1]._windows.clock()
    monkeypatch.setattr(engines[1]._windows, "clock", lambda: then + JUST_BEFORE_S)
    new, logs = await raised(engines[1], marks)
    monkeypatch.undo()
    assert logs is not None
    assert log_state(logs[0]).fences.keys() == {definition.id}
    await asyncio.gather(definition.lift(), old.lift(), new.lift())


async def test_a_look_at_definitions_that_was_not_answered_is_none(
    node: Node, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(engine, read_of(engine, "orders"), b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    first, second = await begun(engine, marks, 2)
    then = engine._windows.clock()
    monkeypatch.setattr(engine._windows, "clock", lambda: then + JUST_BEFORE_S)
    node.away = True
    assert await lifted(engine, first, marks) is None
    node.away = False
    definition = await engine.fence([SHOP])
    new, logs = await raised(engine, marks)
    monkeypatch.undo()
    assert logs is not None
    assert log_state(logs[0]).fences.keys() == {definition.id}
    await asyncio.gather(definition.lift(), first.lift(), second.lift(), new.lift())


async def test_who_joins_hears_what_was_observed_last(engines: list[Engine]) -> None:
    await filled(engines[0], read_of(engines[0], "orders"), b"answer")
    marks = engines[1].marks([ORDERS], [SHOP])
    first, second = await begun(engines[1], marks, 2)
    definition = await engines[0].fence([SHOP])
    assert await lifted(engines[1], first, marks) is not None
    third, logs = await raised(engines[1], marks)
    assert logs is not None
    assert log_state(logs[0]).fences.keys() == {definition.id}
    await asyncio.gather(definition.lift(), second.lift(), third.lift())


async def test_who_is_marked_anew_stands_by_itself(engines: list[Engine]) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    marks = engines[1].marks([ORDERS], [SHOP])
    first, second = await begun(engines[1], marks, 2)
    await first.mark([SHOP])
    await first.extend([LINES])
    assert await lifted(engines[1], second, marks) is not None
    assert await engines[0].obtain(read) == FENCED
    await first.lift()
    assert await answer_to(engines[0], read) is None


async def test_where_none_wrote_the_versions_stay(engines: list[Engine]) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    first, second = await begun(engines[1], engines[1].marks([ORDERS], [SHOP]), 2)
    await first.undo()
    assert await engines[0].obtain(read) == FENCED
    await second.undo()
    assert await answer_to(engines[0], read) == b"answer"


async def test_where_one_wrote_the_last_does_not_undo_it(engines: list[Engine]) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    marks = engines[1].marks([ORDERS], [SHOP])
    first, second = await begun(engines[1], marks, 2)
    assert await lifted(engines[1], first, marks) is not None
    await second.undo()
    assert await answer_to(engines[0], read) is None


async def test_where_one_wrote_none_of_its_tags_is_as_it_was(engines: list[Engine]) -> None:
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    await filled(engines[0], read_of(engines[0], "lines"), b"answer")
    marks = engines[1].marks([ORDERS, LINES], [SHOP])
    first, second = await begun(engines[1], marks, 2)
    assert await lifted(engines[1], first, marks) is not None
    await second.keep([LINES])
    await second.lift()
    assert await answer_to(engines[0], read) is None


async def test_a_write_whose_end_is_unknown_holds_it() -> None:
    async def trial() -> None:
        node = Node()
        reader = await engine_on(node)
        writer = await engine_on(node, own=limits(write_deadline_s=SHORT_DEADLINE_S))
        read = read_of(reader, "orders")
        await filled(reader, read, b"answer")
        marks = writer.marks([ORDERS], [SHOP])
        first, second = await begun(writer, marks, 2)
        first.abandon()
        assert await lifted(writer, second, marks) is not None
        assert await reader.obtain(read) == FENCED
        await eventually_not(reader, read, FENCED)
        assert await answer_to(reader, read) is None
        await asyncio.gather(reader.close(), writer.close())

    await on_time(trial)


async def test_where_many_writes_follow_each_other_it_stays_for_a_moment(
    node: Node, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_fences, "_SOON_S", 60)  # whatever pauses a busy machine makes
    monkeypatch.setattr(shared_fences, "_MOMENT_S", 1)
    metrics = Metrics()
    writer = await engine_on(node, metrics=metrics)
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    marks = writer.marks([ORDERS], [SHOP])
    for _ in range(30):
        (fence,) = await begun(writer, marks, 1)
        assert await lifted(writer, fence, marks) is not None
    assert metrics.fences == 30
    assert 0 < metrics.fences_shared <= 30 - 9
    await eventually_not(engine, read, FENCED)
    assert await answer_to(engine, read) is None
    await writer.close()


async def hurried(writer: Engine, marks: Marks) -> None:
    """So many writes in a row that more are to be expected."""
    for _ in range(9):
        (fence,) = await begun(writer, marks, 1)
        assert await lifted(writer, fence, marks) is not None


async def test_what_stays_for_a_moment_does_not_stay_for_who_reads(
    engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_fences, "_MOMENT_S", 3_600)
    monkeypatch.setattr(shared_fences, "_SOON_S", 3_600)
    read = read_of(engines[0], "orders")
    await filled(engines[0], read, b"answer")
    marks = engines[0].marks([ORDERS], [SHOP])
    await hurried(engines[0], marks)
    assert await engines[1].obtain(read) == FENCED
    assert await engines[0].obtain(read) == FENCED
    await filled(engines[0], read, b"answer")
    (fence,) = await begun(engines[0], marks, 1)
    assert await lifted(engines[0], fence, marks) is not None
    assert await answer_to(engines[0], read) is None


async def test_what_stays_for_a_moment_is_lifted_at_the_end(
    node: Node, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_fences, "_MOMENT_S", 3_600)
    monkeypatch.setattr(shared_fences, "_SOON_S", 3_600)
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    writer = await engine_on(node, own=limits(write_deadline_s=3_600))
    await hurried(writer, writer.marks([ORDERS], [SHOP]))
    assert await engine.obtain(read) == FENCED
    await writer.close()
    assert await answer_to(engine, read) is None


async def test_one_that_fails_keeps_no_other_from_being_told(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(engine, read_of(engine, "orders"), b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    broken, fine = engine.join_fence(marks), engine.join_fence(marks)
    told: asyncio.Future[Logs | None] = asyncio.get_running_loop().create_future()

    def fail(_: Logs | None) -> None:
        raise RuntimeError("broken")

    engine.fence_soon(broken, marks, fail)
    engine.fence_soon(fine, marks, told.set_result)
    assert await told is not None
    assert "a writer failed" in caplog.text
    await broken.undo()
    await fine.undo()


async def test_of_many_writers_none_is_kept_waiting_and_the_log_stays_short(node: Node) -> None:
    metrics = Metrics()
    engine = await engine_on(node, metrics=metrics)
    read = read_of(engine, "orders")
    await filled(engine, read, b"answer")
    marks = engine.marks([ORDERS], [SHOP])
    longest = 0

    async def write() -> None:
        nonlocal longest
        for _ in range(50):
            fence, logs = await raised(engine, marks)
            assert logs is not None
            assert await lifted(engine, fence, marks) is not None
            (log,) = await observed(engine, [ORDERS]) or (None,)
            longest = max(longest, len(log or b""))

    await asyncio.gather(*(write() for _ in range(30)))
    assert longest < 2_000
    assert metrics.fences == 1_500
    assert metrics.fences_shared > 1_000
    await eventually_not(engine, read, FENCED)
    assert await answer_to(engine, read) is None
    await engine.close()


async def test_a_silence_of_the_node_is_no_lack_of_beats() -> None:
    """Nobody could renew his fence meanwhile: it does not lapse as soon as the node is back."""

    async def trial() -> None:
        node = Node()
        dead = await engine_on(node)
        engine = await engine_on(node, own=limits(write_deadline_s=SHORT_DEADLINE_S))
        read = read_of(engine, "orders")
        await dead.fence([ORDERS])
        await dead.close()
        assert await engine.obtain(read) == FENCED
        health = engine._cluster.health_of(node.name)
        before = health.distrusted_at
        for _ in range(4):
            await asyncio.sleep(SHORT_DEADLINE_S / 2)
            health.distrusted_at = asyncio.get_running_loop().time()
            assert await engine.obtain(read) == FENCED
        health.distrusted_at = before
        await eventually_not(engine, read, FENCED)
        await engine.close()

    await on_time(trial)
