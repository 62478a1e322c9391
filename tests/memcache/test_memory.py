from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlcache.demo.servers import PrivateMemcached
from sqlcache.errors import CacheUnavailable, ProtocolError
from sqlcache.memcache.memory import ItemStore, MemoryNode
from sqlcache.memcache.protocol import (
    META_NOOP,
    Mode,
    Reply,
    ReplyParser,
    meta_delete,
    meta_get,
    meta_set,
)

MAX_ITEM_BYTES = 1024 * 1024


@dataclass(slots=True)
class Clock:
    """Seconds that pass when a test says so."""

    now_s: float = 1000.5

    def __call__(self) -> float:
        return self.now_s


@dataclass(slots=True)
class RealMemcached:
    """One connection to a real memcached."""

    connection: socket.socket
    vivifies_appends: bool
    parser: ReplyParser = field(default_factory=ReplyParser)
    examples: int = 0

    def execute(self, payload: bytes, count: int) -> list[Reply]:
        self.connection.sendall(payload)
        replies: list[Reply] = []
        while len(replies) < count:
            data = self.connection.recv(65536)
            assert data, "memcached closed the connection"
            replies += self.parser.feed(data)
        assert len(replies) == count
        return replies


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealMemcached]:
    with (
        PrivateMemcached(tmp_path_factory.mktemp("memcached")) as server,
        socket.create_connection((server.host, server.port), timeout=10) as connection,
    ):
        version = tuple(map(int, server.stats()["version"].split(".")))
        yield RealMemcached(connection, vivifies_appends=version >= (1, 6, 20))


# A request, and the CAS it names: that of no item (0), the last seen of its key (1), another (2).
Request = tuple[bytes, int | None, bytes, bytes | None]

# Far apart, so that a second that ticks in between decides nothing.
TTLS = st.sampled_from([b"0", b"100", b"1000"])
KEYS = st.sampled_from([b"a", b"b", b"c"])
_OTHER_CAS = 1 << 60
CAS = st.none() | st.integers(0, 2)


def token(letter: str, tokens: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return tokens.map(lambda value: letter.encode() + value)


def letters(*flags: st.SearchStrategy[bytes] | str) -> st.SearchStrategy[bytes]:
    """Some of the flags, in any order, each at most once."""
    choices = [st.just(flag.encode()) if isinstance(flag, str) else flag for flag in flags]
    return (
        st.permutations(choices)
        .flatmap(lambda order: st.tuples(*(st.just(b"") | choice for choice in order)))
        .map(lambda chosen: b" ".join(filter(None, chosen)))
    )


OPAQUES = token("O", st.sampled_from([b"", b"1", b"opaque"]))
RECACHES = token("R", st.sampled_from([b"50", b"500", b"5000"]))
GETS = st.tuples(
    token("mg ", KEYS),
    st.just(0),
    letters(
        "v", "t", "s", "c", "f", "h", "k", OPAQUES, token("T", TTLS), token("N", TTLS), RECACHES
    ),
    st.none(),
)
SETS = st.tuples(
    token("ms ", KEYS),
    CAS,
    letters(
        "c",
        "k",
        "I",
        OPAQUES,
        token("T", TTLS),
        token("F", st.sampled_from([b"0", b"7"])),
        token("M", st.sampled_from([b"S", b"E", b"A", b"P", b"R"])),
        token("N", TTLS),
    ),
    st.sampled_from([b"", b"x", b"\r\n", b"value" * 20]),
)
DELETES = st.tuples(
    token("md ", KEYS), CAS, letters("k", "I", OPAQUES, token("T", TTLS)), st.none()
)
NOOPS = st.just((b"mn", None, b"", None))


@dataclass(slots=True)
class Client:
    """Sends requests, with the CAS it was told; memcached counts on from example to example."""

    execute: Callable[[bytes, int], list[Reply]]
    prefix: bytes
    seen: dict[bytes, int] = field(default_factory=dict)
    known: list[int] = field(default_factory=lambda: [0])

    def ask(self, request: Request) -> tuple[bytes, bytes | None, list[bytes]]:
        """The reply, each CAS as which of those that were told, and TTLs to the nearest hundred."""
        head = request[0]
        ((status, value, flags),) = self.execute(self._encoded(request), 1)
        told = []
        for flag in flags.split():
            if flag[:1] == b"c":
                cas = self.seen[head[3:]] = int(flag[1:])
                self.known += [cas] if cas not in self.known else []
                flag = b"c%d" % self.known.index(cas)
            elif flag[:1] == b"t" and flag != b"t-1":
                flag = b"t%d" % round(int(flag[1:]), -2)
            told.append(flag)
        return status, value, told

    def _encoded(self, request: Request) -> bytes:
        head, cas, flags, value = request
        if head == b"mn":
            return META_NOOP
        line = head[:3] + self.prefix + head[3:]
        if value is not None:
            line += b" %d" % len(value)
        if cas is not None and not head.startswith(b"mg"):
            line += b" C%d" % (0, self.seen.get(head[3:], 0), _OTHER_CAS)[cas]
        line += b" " + flags if flags else b""
        return line + b"\r\n" + (b"" if value is None else value + b"\r\n")


def may_create(request: Request) -> bool:
    """Whether it is an append or prepend with N, which memcached knows since 1.6.20."""
    flags = request[2].split()
    return (b"MA" in flags or b"MP" in flags) and any(flag[:1] == b"N" for flag in flags)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=st.lists(GETS | SETS | DELETES | NOOPS, min_size=1, max_size=25))
def test_any_requests_are_answered_as_memcached_answers_them(
    real: RealMemcached, requests: list[Request]
) -> None:
    if not real.vivifies_appends:
        requests = [request for request in requests if not may_create(request)]
    real.examples += 1
    prefix = b"%d-" % real.examples
    store = ItemStore(clock=Clock())
    theirs = Client(real.execute, prefix)
    ours = Client(lambda payload, _: store.execute(payload), prefix)

    for request in requests:
        assert ours.ask(request) == theirs.ask(request), request


@pytest.mark.parametrize("key", [b"k", b"key" * 80])
@pytest.mark.parametrize("client_flags", [b"", b"F7"])
@pytest.mark.parametrize("excess", [0, 1])
def test_the_largest_item_is_as_large_as_memcacheds(
    real: RealMemcached, key: bytes, client_flags: bytes, excess: int
) -> None:
    size = MAX_ITEM_BYTES - 59 - len(key) - (4 if client_flags else 0) + excess
    payload = (
        meta_set(key, b"old", ttl_s=0)
        + meta_set(key, b"x" * size, ttl_s=0, flags=client_flags)
        + meta_get(key, b"s")
    )
    ours = ItemStore().execute(payload)
    assert ours == real.execute(payload, 3)
    assert ours[1][0] == (b"SE" if excess else b"HD")


def test_an_append_past_the_largest_item_stores_nothing_as_in_memcached(
    real: RealMemcached,
) -> None:
    payload = (
        meta_set(b"k", b"x" * (MAX_ITEM_BYTES - 60), ttl_s=0)
        + meta_set(b"k", b"y", mode=b"A", ttl_s=0)
        + meta_get(b"k", b"s")
    )
    ours = ItemStore().execute(payload)
    assert ours == real.execute(payload, 3)
    assert [reply[0] for reply in ours] == [b"HD", b"NS", b"HD"]


def test_an_append_with_a_vivify_ttl_creates_the_item_and_then_adds_to_it() -> None:
    clock = Clock()
    store = ItemStore(clock=clock)
    append = b"ms k 1 T0 MA N30\r\na\r\n"
    clock.now_s += 10
    assert [reply[0] for reply in store.execute(append)] == [b"HD"]
    clock.now_s += 10
    assert [reply[0] for reply in store.execute(append)] == [b"HD"]
    assert store.execute(meta_get(b"k", b"v t")) == [(b"VA", b"aa", b"t20")]


def test_an_item_is_gone_when_its_ttl_is_over() -> None:
    clock = Clock()
    store = ItemStore(clock=clock)
    store.execute(meta_set(b"k", b"", ttl_s=30) + meta_set(b"forever", b"", ttl_s=0))
    clock.now_s += 29
    assert store.execute(meta_get(b"k", b"t")) == [(b"HD", None, b"t1")]
    clock.now_s += 1
    assert store.execute(meta_get(b"k", b"t")) == [(b"EN", None, b"")]
    clock.now_s += 10**9
    assert store.execute(meta_get(b"forever", b"t")) == [(b"HD", None, b"t-1")]


def test_an_expired_item_is_no_obstacle_to_an_add_and_no_base_for_an_append() -> None:
    clock = Clock()
    store = ItemStore(clock=clock)
    store.execute(meta_set(b"k", b"old", ttl_s=5))
    clock.now_s += 5
    replies = store.execute(
        meta_set(b"k", b"x", mode=b"A", ttl_s=0)
        + meta_set(b"k", b"new", mode=b"E", ttl_s=0)
        + meta_get(b"k")
    )
    assert [reply[:2] for reply in replies] == [(b"NS", None), (b"HD", None), (b"VA", b"new")]


def test_one_client_alone_wins_the_right_to_fill_a_missing_item_until_the_mark_expires() -> None:
    clock = Clock()
    store = ItemStore(clock=clock)
    ask = meta_get(b"k", b"v N3")
    assert store.execute(ask + ask) == [(b"VA", b"", b"W"), (b"VA", b"", b"Z")]
    clock.now_s += 3
    assert store.execute(ask) == [(b"VA", b"", b"W")]


def test_the_least_recently_used_items_make_room_for_new_ones() -> None:
    one = ItemStore()
    one.execute(meta_set(b"0", b"x" * 1000, ttl_s=0))
    store = ItemStore(max_bytes=7 * one.used_bytes)
    for number in range(5):
        store.execute(meta_set(b"%d" % number, b"x" * 1000, ttl_s=0))
    store.execute(meta_get(b"0"))
    for number in range(5, 9):
        store.execute(meta_set(b"%d" % number, b"x" * 1000, ttl_s=0))
    held = [n for n in range(9) if store.execute(meta_get(b"%d" % n))[0][0] == b"VA"]
    assert held == [0, 3, 4, 5, 6, 7, 8]
    room = 7 * one.used_bytes
    assert store.figures() == {
        "curr_items": 7,
        "bytes": room,
        "limit_maxbytes": room,
        "evictions": 2,
    }


@pytest.mark.parametrize("touched", [False, True])
def test_what_has_no_ttl_outlives_whatever_has_one(touched: bool) -> None:
    store = ItemStore(max_bytes=100_000)
    store.execute(meta_set(b"log", b"x" * 1000, ttl_s=60 if touched else 0))
    store.execute(meta_get(b"log", b"T0"))
    for number in range(1000):
        store.execute(meta_set(b"%d" % number, b"x" * 1000, ttl_s=60))
    assert store.execute(meta_get(b"log"))[0][0] == b"VA"
    assert store.execute(meta_get(b"999"))[0][0] == b"VA"
    store.execute(meta_get(b"log", b"T60"))  # from here on it has one
    for number in range(100):
        store.execute(meta_set(b"%d" % number, b"x" * 1000, ttl_s=60))
    assert store.execute(meta_get(b"log"))[0][0] == b"EN"


def test_of_what_has_no_ttl_the_least_recently_used_goes_where_it_takes_half() -> None:
    store = ItemStore(max_bytes=100_000)
    for number in range(1000):
        store.execute(meta_get(b"0"))
        store.execute(meta_set(b"%d" % number, b"x" * 100, ttl_s=0))
        store.execute(meta_set(b"answer-%d" % number, b"x" * 1000, ttl_s=60))
    lasting = [n for n in range(1000) if store.execute(meta_get(b"%d" % n))[0][0] == b"VA"]
    assert lasting == [0, *range(1001 - len(lasting), 1000)]
    assert len(lasting) in range(80, 110)
    answers = [n for n in range(1000) if store.execute(meta_get(b"answer-%d" % n))[0][0] == b"VA"]
    assert answers == list(range(1000 - len(answers), 1000))
    assert len(answers) in range(30, 40)


@given(
    requests=st.lists(
        st.tuples(
            st.integers(0, 20),
            st.sampled_from("SADT"),
            st.integers(0, 900) | st.just(3000),
            st.sampled_from([0, 60]),
        ),
        max_size=60,
    )
)
def test_the_items_never_take_more_than_they_may(
    requests: list[tuple[int, str, int, int]],
) -> None:
    store = ItemStore(max_bytes=4000)
    for number, what, size, ttl_s in requests:
        key = b"%d" % number
        if what == "D":
            store.execute(meta_delete(key))
        elif what == "T":
            store.execute(meta_get(key, b"T%d" % ttl_s))
        else:
            mode: Mode = b"S" if what == "S" else b"A"
            stored = store.execute(meta_set(key, b"x" * size, mode=mode, ttl_s=ttl_s))
            assert len(store.execute(meta_get(key, b"v"))) == 1
            assert what == "A" or stored == store.execute(meta_get(key, b""))
        assert store.used_bytes <= 4000
    store.execute(b"".join(meta_delete(b"%d" % number) for number in range(21)))
    assert (store.used_bytes, len(store)) == (0, 0)


@pytest.mark.parametrize(
    "payload",
    [
        b"get k\r\n",
        b"mg\r\n",
        b"mg k v",
        b"mg k q\r\n",
        b"mg k v v\r\n",
        b"mg k Nx\r\n",
        b"mg " + b"k" * 251 + b" v\r\n",
        b"mg k O" + b"o" * 40 + b"\r\n",
        b"ms k 2\r\nabc\r\n",
        b"ms k x\r\n\r\n",
        b"ms k 1 MX\r\na\r\n",
        b"md k v9x C\r\n",
    ],
)
def test_what_memcached_answers_with_an_error_is_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        ItemStore().execute(payload)


async def test_a_node_says_that_it_is_up_and_answers_until_it_is_closed() -> None:
    node = MemoryNode("here")
    ups: list[bool] = []
    node.on_up = lambda: ups.append(True)
    assert await node.request(META_NOOP, 1) == [(b"MN", None, b"")]
    assert ups == [True]
    await node.close()
    with pytest.raises(CacheUnavailable, match="here"):
        await node.request(META_NOOP, 1)


async def test_a_node_answers_a_batch_it_cannot_read_as_a_broken_connection_would() -> None:
    node = MemoryNode()
    for payload, count in ((b"rubbish\r\n", 1), (META_NOOP, 2), (META_NOOP * 2, 1)):
        with pytest.raises(CacheUnavailable):
            await node.request(payload, count)
    assert await node.request(META_NOOP, 1) == [(b"MN", None, b"")]
