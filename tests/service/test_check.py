"""Whether MySQL answers, as it is found out."""

import asyncio
from typing import cast

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.mysql.packets import packet
from sqlcache.service.check import UpstreamCheck
from sqlcache.service.connection import ServiceConnection
from sqlcache.service.own_logins import OwnLogins
from sqlcache.settings import Settings
from sqlcache.upstream_errors import UpstreamErrors


class Logins:
    """Logins that come to nothing before they may."""

    trouble: UpstreamError | None = None

    def __init__(self) -> None:
        self.begun, self.ended = 0, 0
        self.may = asyncio.Event()

    async def connect(self) -> None:
        self.begun += 1
        try:
            await self.may.wait()
        finally:
            self.ended += 1
        raise UpstreamError("refused")

    def failed(self, trouble: UpstreamError) -> None:
        self.trouble = trouble


async def test_a_look_that_is_under_way_ends_with_it() -> None:
    logins = Logins()
    check = UpstreamCheck(cast(OwnLogins, logins), 10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await check.check()
    assert (logins.begun, logins.ended) == (1, 0)
    check.end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (logins.begun, logins.ended) == (1, 1)


async def test_a_fault_of_its_own_is_not_taken_for_mysqls_health(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail() -> None:
        raise KeyError("a fault")

    logins = Logins()
    monkeypatch.setattr(logins, "connect", fail)
    check = UpstreamCheck(cast(OwnLogins, logins), 10)
    for _ in range(2):
        with pytest.raises(KeyError, match="a fault"):
            await check.check()


async def test_what_is_no_answer_to_a_question_is_no_health_and_ends_its_connection(
    upstream: PrivateSqlServer,
) -> None:
    settings = {"upstream": {"url": upstream.service_url}, "memcached": {"nodes": ["memory"]}}
    metrics = Metrics()
    service = ServiceConnection(Settings.model_validate(settings), metrics, UpstreamErrors(metrics))
    check = service._check
    async with check.asking() as own:
        own._reader.feed_data(packet(1, b""))
    with pytest.raises(UpstreamError, match="does not answer"):
        async with check.asking() as own:
            await own.ping(reconnect=False)
    async with check.asking() as other:
        assert other is not own
    check.end()


async def test_all_who_ask_meanwhile_share_a_look() -> None:
    logins = Logins()
    check = UpstreamCheck(cast(OwnLogins, logins), 10)
    asked = [asyncio.ensure_future(check.check()) for _ in range(5)]
    while not logins.begun:
        await asyncio.sleep(0)
    logins.may.set()
    for each in asked:
        with pytest.raises(UpstreamError, match="refused"):
            await each
    assert logins.begun == 1
