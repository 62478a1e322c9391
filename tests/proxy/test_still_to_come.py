"""Which of several statements may still write when some have ended."""

from collections.abc import Sequence

import pytest

from sqlcache.plan.commands import Meaning
from sqlcache.plan.writeset import WriteSet
from sqlcache.proxy.still_to_come import StillToCome
from sqlcache.sql.analysis import analyse
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import Statement
from tests.proxy.fill_memory import planner_and_session


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("UPDATE t SET v = 1; SELECT 1; SELECT 2", 1),
        ("SELECT 1; UPDATE t SET v = 1; SELECT 2", 2),
        ("SELECT 1; COMMIT; SELECT 2", 2),
        ("SELECT 1; SELECT 2", 0),
        ("SELECT 1; CALL p(); SELECT 2", 9),  # nobody knows how many answers that has
    ],
)
async def test_a_fence_stands_until_the_last_that_may_write_has_ended(
    text: str, until: int
) -> None:
    async with planner_and_session() as (planner, _):
        statements = analyse(text.encode(), Dialect(), multi_statements=True)
        meaning = Meaning(statements, None, "s")
        still = StillToCome(planner)
        ended = 0
        while still.may_write(meaning) and ended < 9:
            still.ended(1)
            ended += 1
        assert ended == until
        still.begin()
        assert still.may_write(meaning) is (until > 0)


async def test_statements_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    async with planner_and_session() as (planner, _):
        writes = planner.tagging.writes

        def counting(statements: Sequence[Statement], schema: str | None) -> WriteSet:
            nonlocal asked
            asked += 1
            return writes(statements, schema)

        monkeypatch.setattr(planner.tagging, "writes", counting)
        text = b"UPDATE t SET v = 1" + b"; SELECT v FROM t" * 900
        meaning = Meaning(analyse(text, Dialect(), multi_statements=True), None, "s")
        assert StillToCome(planner).may_write(meaning)
        assert asked == 2
