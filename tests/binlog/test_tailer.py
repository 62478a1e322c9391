import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sqlcache.binlog.change import Change, Commit, Place
from sqlcache.binlog.events import Event, EventStream, Kind
from sqlcache.binlog.lag import LOOK_EVERY_S
from sqlcache.binlog.source import Seen, Source
from sqlcache.binlog.tailer import Tailer, taken
from sqlcache.binlog.transactions import Transactions
from sqlcache.binlog.turns import Remembered
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import BinlogGap
from sqlcache.metrics import Metrics
from tests.binlog.logs import begins, format_description, packets, query, rotate
from tests.turns import counted_turns

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


async def test_others_have_their_turns_while_many_short_ones_are() -> None:
    insert = "INSERT INTO t VALUES (1)" + ", (1)" * 200
    log = begins() + packets(query("BEGIN"), *[query(insert, "shop")] * 100, query("COMMIT"))
    many = list(EventStream(longest_bytes=100_000).feed(log))
    with counted_turns() as turns:
        (change,) = await taken(Transactions(), many)
    assert len(change.statements) == 1
    assert turns.count >= 100 * len(insert) // 20_000


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


class Log:
    """A log of these events, in place of a `Source`; and of `Effects`, which take their time."""

    def __init__(self) -> None:
        self.bytes = 0
        self.forgotten: list[str] = []
        self.stamp = 1, 1
        self.asked = asyncio.Event()
        self.publishes = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def read(self) -> list[Event]:
        return events()

    async def resets(self) -> int:
        return 0

    async def place(self) -> Place:
        self.asked.set()
        return "binlog.000001", 100

    async def can_be_seen(
        self, changes: list[Change], within_s: float = 1.0
    ) -> list[tuple[Seen, list[Change]]]:
        return [(Seen.YES, changes)]

    def named_for(self, _: object) -> bytes:
        return b""

    async def others(self, changes: list[Change]) -> list[Change]:
        return changes

    async def forget_everything(self, cause: str) -> None:
        self.forgotten.append(cause)

    async def publish(self, *_: object) -> list[Tag]:
        self.publishes.set()
        await self.may_go_on.wait()
        return [ROOT]


class Nobody:
    """In place of `Turns`, and of `Places`."""

    reading = b""

    async def remember(self, _: object) -> bool:
        return True

    def begin_reading(self) -> None:
        pass


async def test_it_is_behind_until_what_it_has_read_is_bumped() -> None:
    log: Any = Log()
    nobody: Any = Nobody()
    tailer = Tailer(
        *(log, log, nobody, nobody, Metrics()),
        longest_bytes=100_000,
        on_trouble=lambda _: None,
    )
    tailer._begin_anew()
    taking = asyncio.ensure_future(tailer._take(log))
    await asyncio.wait_for(log.publishes.wait(), PATIENCE_S)
    looking = asyncio.ensure_future(tailer._look(log, 0))
    await asyncio.wait_for(log.asked.wait(), PATIENCE_S)
    await asyncio.sleep(0)
    assert tailer.lag_bytes
    assert not tailer.caught_up
    log.may_go_on.set()
    await taking
    assert not tailer.lag_bytes
    assert tailer.caught_up
    looking.cancel()


async def followed(known: Remembered, *pieces: bytes) -> Tailer:
    """One that has read these, from a known place on."""
    log: Any = Log()
    nobody: Any = Nobody()
    tailer = Tailer(
        *(log, log, nobody, nobody, Metrics()),
        longest_bytes=100_000,
        on_trouble=lambda _: None,
    )
    tailer._bookmark.known = known
    stream = EventStream(longest_bytes=100_000)
    read = iter([list(stream.feed(piece)) for piece in pieces])

    async def come() -> list[Event]:
        return next(read)

    log.read = come
    log.may_go_on.set()
    for _ in pieces:
        await tailer._take(log)
    return tailer


async def test_another_log_is_known_by_the_file_that_came_first_of_a_read() -> None:
    known = Remembered("server", ("binlog.000001", 4), 7)
    second = packets(rotate("binlog.000002"), format_description(made=9))
    with pytest.raises(BinlogGap, match="anew"):
        await followed(known, begins() + second)
    same = packets(rotate("binlog.000001"), format_description(made=7))
    tailer = await followed(known, same + second)
    assert tailer._bookmark.known == Remembered("server", ("binlog.000002", 4), 9)


async def test_a_file_of_which_it_is_not_known_when_it_was_begun_is_no_place() -> None:
    known = Remembered("server", ("binlog.000001", 4), 1)
    tailer = await followed(known, begins(), packets(rotate("binlog.000002")))
    assert tailer._bookmark.known == known


@pytest.mark.parametrize("began", [True, False])
async def test_whoever_comes_by_where_the_server_began_forgets_everything(began: bool) -> None:
    """Who was there, too, as it ended: whoever goes on from a place behind that does not know."""
    known = Remembered("server", ("binlog.000001", 4), 1)
    next_file = packets(rotate("binlog.000002"), format_description(made=9, began=began))
    tailer = await followed(known, begins(), next_file)
    assert tailer.caught_up
    assert tailer._bookmark.known == Remembered("server", ("binlog.000002", 4), 9)
    log: Any = tailer._effects
    assert len(log.forgotten) == 1 + began, "it began with the first, too"


async def test_who_is_a_little_behind_looks_soon_where_definitions_have_changed() -> None:
    tailer = await followed(Remembered("server", ("binlog.000001", 4), 1))
    tailer._lag.ended(asyncio.get_running_loop().time(), ("binlog.000001", 100))
    assert tailer.lag_bytes == 96, "it is behind"
    tailer._unsure.set()
    await asyncio.wait_for(tailer._until_next_look(), LOOK_EVERY_S * 0.8)


async def test_what_is_bumped_again_is_read_as_such() -> None:
    tailer = await followed(Remembered("server", ("binlog.000001", 4), 1))
    read: list[Any] = []

    async def publish(_: object, reading: Any, also: list[Tag]) -> list[Tag]:
        read.append((reading.again, also))
        return []

    tailer._effects.publish = publish  # type: ignore[method-assign, assignment]
    tailer._unsettled.add([Change()], None, tells=False).add(ROOT)
    tailer._unsettled._all[0] = replace(tailer._unsettled._all[0], again_at=0)
    settling = asyncio.ensure_future(tailer._unsettled.settle())
    await asyncio.sleep(0.01)
    settling.cancel()
    assert read == [(True, [ROOT])]


async def test_behind_a_gap_nothing_is_known_of_what_was_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Temporary tables of a session of that number are others on another server, and that never
    tells when what was logged before can be seen."""

    async def begins_there(*_: object) -> None:
        pass

    known = Remembered("server", ("binlog.000001", 4), 1)
    tailer = await followed(known)
    monkeypatch.setattr(tailer._bookmark, "begin", lambda *_, **__: None)
    of_before = tailer._reading
    tailer._unsettled.add([Change()], known, tells=True)

    async def owned() -> list[Commit]:
        return []

    source: Any = SimpleNamespace(
        begin=begins_there, filtered="", bytes=0, tells_what_is_seen=True, owned=owned
    )
    await tailer._begin(source, known, "")
    assert tailer._reading is of_before
    assert tailer._unsettled.whence(None) is known
    await tailer._begin(source, known, "the server is another one")
    assert tailer._reading.temporary is not of_before.temporary
    assert tailer._unsettled.whence(None) is None


async def test_it_ends_with_what_bumps_changes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows the log then bumps them: it is read again from before them."""
    log: Any = Log()
    source = SimpleNamespace(number=0, close=lambda: None, resets=log.resets)
    nobody: Any = Nobody()

    async def opened(*_: object) -> Any:
        return source

    async def whence(*_: object) -> tuple[object, str]:
        return object(), ""

    async def goes_on(*_: object) -> None:
        await asyncio.sleep(0.01)

    async def fails() -> None:
        raise RuntimeError("a fault")

    tailer = Tailer(
        *(log, log, nobody, nobody, Metrics()),
        longest_bytes=100_000,
        on_trouble=lambda _: None,
    )
    monkeypatch.setattr(Source, "open", opened)
    monkeypatch.setattr(tailer._bookmark, "whence", whence)
    for each in ("_begin", "_take"):
        monkeypatch.setattr(tailer, each, goes_on)
    monkeypatch.setattr(tailer, "_look", lambda *_: asyncio.sleep(PATIENCE_S))
    monkeypatch.setattr(tailer._unsettled, "settle", fails)
    with pytest.raises(RuntimeError, match="a fault"):
        await asyncio.wait_for(tailer.follow(), PATIENCE_S / 2)
