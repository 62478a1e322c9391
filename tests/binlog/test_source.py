from typing import Any

import pytest

from sqlcache.binlog.change import Change, Commit
from sqlcache.binlog.source import Seen, Source

A, B = "cf4a86ca-ed25-11f1-af8a-02fc00000001", "12345678-ed25-11f1-af8a-02fc00000001"


class MySQL(Source):
    """Has executed nothing, and says that these are owned."""

    def __init__(self, owned: str) -> None:
        self.is_mariadb = False
        self._owned_now = owned

    async def _ask(self, text: str, *_: Any) -> list[tuple[Any, ...]]:
        return [(self._owned_now if "gtid_owned" in text else 1,)]


@pytest.mark.parametrize("between", ["", ",\n"])
async def test_what_is_being_committed_is_told_by_gtid(between: str) -> None:
    told = between.join([f"{A}:9#12:8#13", f"{A}:b2:2#16:1#15", f"{A}:tagged:1#14", f"{B}:7#1"])
    assert [each[:2] for each in await MySQL(told).owned()] == [
        *((f"{A}:", 9), (f"{A}:", 8), (f"{A}:b2:", 2), (f"{A}:b2:", 1)),
        *((f"{A}:tagged:", 1), (f"{B}:", 7)),
    ]
    assert await MySQL("").owned() == []


@pytest.mark.parametrize(
    ("server", "owned", "seen"),
    [
        (0, f"{A}:4#1:5#2", Seen.NOT_YET),
        (0, f"{A}:4#1{B}:5#2", Seen.YES),
        (1, f"{A}:4#1{B}:5#2", Seen.NOT_YET),
    ],
)
async def test_a_commit_is_given_up_that_was_not_logged(
    server: int, owned: str, seen: Seen
) -> None:
    changes = [Change(everything="any", commit=Commit(f"{A}:", 5, server))]
    assert await MySQL(owned).can_be_seen(changes) == [(seen, changes)]
