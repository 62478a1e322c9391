"""What a process that may not follow the log says of that, and when reads go past the cache."""

import asyncio
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from sqlcache.binlog import follower
from sqlcache.binlog.follower import Follower
from sqlcache.binlog.source import CannotFollow
from sqlcache.binlog.turns import Turn
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics

REFUSED = CannotFollow("the account may not read the log")
AWAY = UpstreamError("too many connections")
PATIENCE_S = 5.0


class Server:
    """One that never lets the log be followed, for the first of these reasons."""

    def __init__(self, *reasons: UpstreamError) -> None:
        self.reasons = list(reasons)
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def connect(self, *_: Any) -> Any:
        self.asked += 1
        await self.answers.wait()
        raise self.reasons[0]


class OwnTurn:
    """Nobody else wants it."""

    reading = b""

    async def look(self, lag_s: float | None, *, wants: bool) -> Turn:
        return Turn(own=wants, lag_s=lag_s)

    async def leave(self) -> None:
        pass


@pytest.fixture(autouse=True)
def hurries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "RENEWED_EVERY_S", 0.001)
    monkeypatch.setattr(follower, "_SITS_OUT_S", 0.0)


def following(
    server: Server, mode: Literal["auto", "on"], metrics: Metrics, told: list[bool]
) -> Follower:
    effects = SimpleNamespace(name_for=lambda _: None, stamp=(1, 1))
    nodes: Any = SimpleNamespace()
    return Follower(
        *(cast(Any, server.connect), cast(Any, effects), cast(Any, OwnTurn()), nodes, metrics),
        mode=mode,
        max_lag_s=0.0,
        catch_up_s=1.0,
        longest_bytes=1_000,
        stand_in=False,
        bypass=told.append,
    )


async def tried(
    server: Server, mode: Literal["auto", "on"], metrics: Metrics
) -> tuple[Follower, list[bool]]:
    """One that has found each of the reasons; what it has told since it came to the last."""
    told: list[bool] = []
    follows = following(server, mode, metrics, told)
    await follows.start()
    try:
        while True:
            asked = server.asked
            async with asyncio.timeout(PATIENCE_S):
                while server.asked < asked + 3:
                    await asyncio.sleep(0.001)
            if len(server.reasons) == 1:
                return follows, told
            del server.reasons[0]
            told.clear()
    finally:
        await follows.close()


async def test_who_may_not_and_need_not_is_excused_while_the_server_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    follows, told = await tried(Server(REFUSED, AWAY), "auto", metrics)
    assert set(told) == {False}
    assert (follows.warning, metrics.binlog_hindered, metrics.binlog_lagging) == ("", 1, 0)
    told_of = [each for each in caplog.records if "not seen" in each.getMessage()]
    assert [each.levelname for each in told_of] == ["WARNING"] * 2, "once for each reason"


@pytest.mark.parametrize(
    ("mode", "reasons"), [("auto", [AWAY]), ("on", [REFUSED]), ("on", [REFUSED, AWAY])]
)
async def test_who_may_for_all_that_is_known_or_is_to_lags(
    mode: Literal["auto", "on"], reasons: list[UpstreamError]
) -> None:
    follows, told = await tried(Server(*reasons), mode, Metrics())
    assert told[-1]
    assert str(reasons[-1]) in follows.warning


async def test_a_start_waits_for_what_comes_of_it_but_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it begins to follow the log, what was filled before is forgotten."""
    server = Server(AWAY)
    server.answers.clear()
    follows = following(server, "auto", Metrics(), [])
    monkeypatch.setattr(follower, "_BEGINS_WITHIN_S", 0.01)
    await follows.start()
    await follows.close()
    follows = following(server, "auto", Metrics(), [])
    monkeypatch.setattr(follower, "_BEGINS_WITHIN_S", 60.0)
    starting = asyncio.create_task(follows.start())
    await asyncio.sleep(0.05)
    assert not starting.done()
    server.answers.set()
    await asyncio.wait_for(starting, PATIENCE_S)
    await follows.close()
