"""What becomes of the right to fill an entry where its session ends."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlcache.cache.leases import Lease
from sqlcache.errors import ConnectionLost
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Command
from sqlcache.plan.commands import ClientCommand
from sqlcache.proxy.longway.unsent import Unsent
from sqlcache.proxy.longway.way import LongWay
from sqlcache.proxy.straight.course import Course
from sqlcache.proxy.straight.inflight import InFlight, Stage


async def test_a_lease_ends_with_a_session_whose_mysql_goes_before_it_has_prepared() -> None:
    released = 0

    def release_soon() -> None:
        nonlocal released
        released += 1

    async def settle() -> None:
        raise ConnectionLost("MySQL has gone")

    client = SimpleNamespace(intercept=None, wake=lambda: None, has_some=False)
    upstream = SimpleNamespace(intercept=None, closed=False)
    course = Course(cast(Channel, client), cast(Channel, upstream))
    now = InFlight(b"\x0a\0\0\0\x17\1\0\0\0\0\1\0\0\0", cast(Any, SimpleNamespace(counts=None)))
    now.lease = cast(Lease, SimpleNamespace(release_soon=release_soon))
    course.hand_over(Stage.LEASED, now)
    way: Any = object.__new__(LongWay)
    way.course = course
    way.last = SimpleNamespace(basis="", asked_at=0)
    way.standing = SimpleNamespace(note_globals=lambda: None)
    way._relay = SimpleNamespace(upstream=SimpleNamespace(unsettled=0, settle=settle))
    way._handles = SimpleNamespace(awaits_some=True)
    way._unsent = Unsent()
    with pytest.raises(ConnectionLost):
        await way.serve(ClientCommand(Command.STMT_EXECUTE, now.packet, whole=True))
    course.close()
    assert released == 1
