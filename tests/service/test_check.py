"""Whether MySQL answers, as it is found out."""

import asyncio
from typing import cast

import pytest

from sqlcache.errors import UpstreamError
from sqlcache.service.check import UpstreamCheck
from sqlcache.service.own_logins import OwnLogins


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
