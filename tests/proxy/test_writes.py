"""What a session keeps of its writes."""

import asyncio
from dataclasses import replace
from itertools import islice

import pytest

from sqlcache.cache.keys import commit_id
from sqlcache.cache.slots import KnownLog
from sqlcache.cache.tags import Tag
from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.commands import Meaning
from sqlcache.plan.plans import Pass
from sqlcache.plan.probes import Asked, Probe
from sqlcache.plan.writeset import WriteSet
from sqlcache.proxy.row_changes import RowChange
from sqlcache.proxy.writes import Writes
from sqlcache.service.pipeline import Done
from sqlcache.sql.facts import IntegerColumn
from sqlcache.sql.names import TableName
from sqlcache.sql.statement import Kind, Statement
from sqlcache.statement_counts import UNCOUNTED
from tests.costs import TRIES, cost_s
from tests.proxy.fill_memory import planner_and_session


def answered(status: int) -> ResponseTracker:
    tracker = ResponseTracker(Command.QUERY, 0)
    tracker.feed(packet(1, b"\0\0\0" + status.to_bytes(2, "little") + b"\0\0"))
    assert tracker.done
    return tracker


def to_a_table(number: int) -> Meaning:
    return Meaning(writes=WriteSet(frozenset({TableName("s", f"t{number}")})))


async def test_a_transaction_that_writes_very_many_tables_counts_as_writing_everything() -> None:
    """Each statement's table is gathered with all before it, and may be one that there is not."""
    amid, after = answered(Status.IN_TRANS), answered(Status.AUTOCOMMIT)
    async with planner_and_session() as (planner, _):
        writes = Writes(planner._engine, planner)
        tables = iter(range(100_000))

        def write(many: int) -> None:
            for number in islice(tables, many):
                writes.held_back.took_effect(to_a_table(number), amid)

        write(500)
        assert not writes.held_back.writes.everything
        first_s = cost_s(lambda: write(2_000))
        write(10_000)
        assert min(cost_s(lambda: write(2_000)) for _ in range(TRIES)) < 3 * first_s
        assert writes.held_back.writes.everything
        assert len(writes.held_back.writes.tables) + len(writes.held_back.locked.tables) < 5_000
        writes.held_back.took_effect(to_a_table(1), after)
        assert not writes.held_back.writes


READING, NEXT_READING = b"a reading", b"the next"


async def named_after(readings: list[bytes], *, fenced: bool = True, times: int = 1) -> set[bytes]:
    """What a tag's log names when MySQL tells of a commit under each of these readings, the first
    of which is known when the session begins. Each commit has its own write, whose answer is read
    so many times."""
    tag = Tag("s", "t1")
    async with planner_and_session() as (planner, _):
        engine = planner._engine
        engine.commits_from = readings[0]
        writes = Writes(engine, planner)
        for number, reading in enumerate(readings[1:]):
            engine.commits_from = reading
            writes._fence = await engine.fence([tag]) if fenced else None
            for _ in range(times):
                writes.committed([b"0-1-%d" % number])
            if writes._fence is not None:
                await writes._fence.lift()
        return set((await engine.commits([tag]))[tag])


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("readings", "named"),
    [
        ([READING, READING], {0: READING}),
        ([READING, READING, READING], {0: READING, 1: READING}),
        # What was told first may be from before the reading began.
        ([b"", READING, READING], {1: READING}),
        ([READING, NEXT_READING, NEXT_READING], {1: NEXT_READING}),
        ([READING, READING, NEXT_READING], {0: READING}),
        ([READING, b"", READING], {}),
        ([b"", b"", b""], {}),
    ],
)
async def test_commits_are_named_for_a_reading_that_was_known_before_they_were_made(
    readings: list[bytes], named: dict[int, bytes], times: int
) -> None:
    expected = {commit_id(reading, b"0-1-%d" % number) for number, reading in named.items()}
    assert await named_after(readings, times=times) == expected


async def test_a_commit_of_no_write_in_flight_is_not_named() -> None:
    assert await named_after([READING, READING], fenced=False) == set()


class _Server:
    """A server that is asked what rows are like, and answers when it is told to."""

    def __init__(self) -> None:
        self._waiting: list[Done] = []

    def ask(self, statement: bytes, done: Done) -> None:
        self._waiting.append(done)

    async def asked(self) -> Done:
        async with asyncio.timeout(20):
            while not self._waiting:
                await asyncio.sleep(0)
        return self._waiting.pop()


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_write_is_sent_only_under_a_fence_that_stands_when_the_answer_has_come(
    monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """Its process may have been stopped since the fence was raised."""
    monkeypatch.setattr(KnownLog, "is_that_since", lambda *_: True)
    tag, server = Tag("s", "t1"), _Server()
    k = IntegerColumn("k", 0, 9, numbers=False)
    probe = Probe(TableName("s", "t1"), [Asked(k, (), (frozenset(),))], {}, before=True, most=1)
    async with planner_and_session() as (planner, _):
        engine = planner._engine
        monkeypatch.setattr(engine, "limits", replace(engine.limits, row_tags=True))
        monkeypatch.setattr(engine._slots, "_told_apart", True)
        writes = Writes(engine, planner, server.ask)
        marks = engine.narrowed(engine.marks([tag], (), planner.keeper.edition), {tag: {}})
        await (await engine.fence([tag])).lift()
        writes._change = RowChange({}, probe)
        told: list[bool] = []
        writes.begin_soon(Pass(to_a_table(1), "", UNCOUNTED, ""), marks, told.append)
        answer = await server.asked()
        assert writes._fence is not None
        assert writes._fence.shared is not None
        writes._fence.shared.fence.marked_at -= 6.0 * stopped  # of a deadline of 10
        answer([])
        assert told == [not stopped]


DELETES = Statement("DELETE", Kind.WRITE, may_commit=True)


@pytest.mark.parametrize(
    ("statements", "everything"),
    [
        ((DELETES,), False),
        ((DELETES,) * 101, False),
        ((DELETES,) * 102, True),
        ((DELETES, *[Statement("SELECT", Kind.READ)] * 101), False),
    ],
)
async def test_a_text_after_each_statement_of_which_too_much_is_bumped_writes_everything(
    statements: tuple[Statement, ...], everything: bool
) -> None:
    """It is not much that the text names: each may reach all tables there are. And what its
    transaction holds back is anything."""
    tables = frozenset(TableName("s", f"new{number}") for number in range(100))
    async with planner_and_session() as (planner, state):
        meaning = Meaning(statements, writes=WriteSet(tables))
        writes = Writes(planner._engine, planner)
        meaning = await writes.raise_fence(meaning, state)
        assert meaning.writes.everything == everything
        assert writes.fence is not None
        assert {tag.schema for tag in writes.fence.tags} == ({""} if everything else {"s"})
        await writes.withdraw(meaning)
