import asyncio
import threading

import pytest

from sqlcache.binlog.events import Event, EventStream, Kind
from sqlcache.binlog.tailer import taken
from sqlcache.binlog.transactions import Change, Transactions
from tests.binlog.logs import begins, packets, query

LONG = "INSERT INTO t VALUES (1)" + ", (1)" * 2_000
PATIENCE_S = 5.0


class Waiting(Transactions):
    """Takes an event with a long text when that may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.may_go_on = threading.Event()
        self.is_done = False

    def take(self, event: Event) -> Change | None:
        if len(event.data) > len(LONG):
            self.begun.set()
            assert self.may_go_on.wait(PATIENCE_S), "nobody else had a turn"
            self.is_done = True
        return super().take(event)


def events() -> list[Event]:
    log = begins() + packets(query("BEGIN"), query(LONG, "shop"), query("COMMIT"))
    return list(EventStream(longest_bytes=100_000).feed(log))


async def test_others_have_their_turns_while_a_long_text_is_read() -> None:
    transactions = Waiting()
    reading = asyncio.ensure_future(taken(transactions, events()))
    while not transactions.begun.is_set():
        await asyncio.sleep(0)
    transactions.may_go_on.set()
    (change,) = await reading
    assert [each.text for each in change.statements] == [LONG.encode()]


async def test_who_ends_meanwhile_waits_for_it() -> None:
    """Else it would be taken amid what comes next."""
    transactions = Waiting()
    reading = asyncio.ensure_future(taken(transactions, events()))
    while not transactions.begun.is_set():
        await asyncio.sleep(0)
    reading.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not reading.done()
    transactions.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert transactions.is_done


def test_what_may_be_long_is_known_before_it_is_read() -> None:
    told = [Transactions.takes_long(each) for each in events()]
    assert told.count(True) == 1
    compressed = Event(Kind.MARIADB_QUERY_COMPRESSED, bytes(100))
    assert Transactions.takes_long(compressed)
    assert not Transactions.takes_long(Event(Kind.WRITE_ROWS, bytes(100_000)))
