"""How often it is looked whether the server is to hear of a session."""

import asyncio
from typing import Any
from unittest.mock import Mock

from sqlcache.proxy.signs_of_life import SignsOfLife


async def test_a_session_that_may_be_silent_for_no_time_is_not_looked_at_all_the_time() -> None:
    way: Any = Mock()
    way.standing.state.longest_silence_s = 0.0
    signs = SignsOfLife(Mock(), Mock(), way, every_s=10)
    signs.begin()
    await asyncio.sleep(0.2)
    signs.end()
    assert way.ping.call_count <= 1
