"""What a session keeps of its writes."""

from time import process_time

from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.commands import Meaning
from sqlcache.plan.writeset import WriteSet
from sqlcache.proxy.writes import Writes
from sqlcache.sql.names import TableName
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
        costs = []
        for number in range(20_000):
            if number % 5_000 == 0:
                costs.append(-process_time())
            writes.took_effect(to_a_table(number), amid)
            if number == 500:
                assert not writes._held_back.everything
            if number % 5_000 == 4_999:
                costs[-1] += process_time()
        assert costs[-1] < 3 * costs[0]
        assert writes._held_back.everything
        assert len(writes._held_back.tables) + len(writes._locked) < 5_000
        writes.took_effect(to_a_table(1), after)
        assert not writes.holds_back
