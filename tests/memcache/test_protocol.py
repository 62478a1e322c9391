from __future__ import annotations

import socket
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.demo.servers import PrivateMemcached
from sqlcache.errors import ProtocolError
from sqlcache.memcache import protocol
from sqlcache.memcache.protocol import (
    MAX_TTL_S,
    META_NOOP,
    Reply,
    ReplyParser,
    checked_key,
    flag_of,
    meta_delete,
    meta_get,
    meta_set,
)
from tests.costs import costs_at_most

LONG_BYTES = protocol._LONG_BYTES

FLAGS = st.sampled_from([b"", b"c12", b"c12 t-1", b"kabc Oq1 W", b"t30 s5 Z X"])
# Line ends and things that look like replies are what values must be able to hold.
VALUES = st.lists(
    st.sampled_from([b"\r\n", b"\r", b"\n", b"EN\r\n", b"VA 3\r\n", b"a", b"\0\xff" * 20]),
    max_size=6,
).map(b"".join)
REPLIES: st.SearchStrategy[Reply] = st.one_of(
    st.tuples(st.just(b"VA"), VALUES, FLAGS),
    st.tuples(st.sampled_from([b"HD", b"EN", b"NS", b"EX", b"NF"]), st.none(), FLAGS),
    st.just((b"MN", None, b"")),
    st.just((b"SE", None, b"out of memory storing object")),
)


def wire(reply: Reply) -> bytes:
    """The reply as memcached sends it."""
    status, value, flags = reply
    if status == b"SE":
        return b"SERVER_ERROR " + flags + b"\r\n"
    size = b"" if value is None else b" %d" % len(value)
    line = status + size + (b" " + flags if flags else b"") + b"\r\n"
    return line if value is None else line + value + b"\r\n"


def talk(server: PrivateMemcached, payload: bytes, count: int) -> list[Reply]:
    """The `count` replies of a real memcached to `payload`."""
    parser = ReplyParser()
    replies: list[Reply] = []
    with socket.create_connection((server.host, server.port), timeout=5) as connection:
        connection.sendall(payload)
        while len(replies) < count:
            data = connection.recv(65536)
            assert data, "memcached closed the connection"
            replies += parser.feed(data)
    return replies


def test_requests_are_written_as_the_protocol_says() -> None:
    assert meta_get(b"k") == b"mg k v\r\n"
    assert meta_get(b"k", b"v t c") == b"mg k v t c\r\n"
    assert meta_set(b"k", b"ab", ttl_s=9) == b"ms k 2 T9\r\nab\r\n"
    assert meta_set(b"k", b"", mode=b"E", ttl_s=0) == b"ms k 0 T0 ME\r\n\r\n"
    assert (
        meta_set(b"k", b"x", mode=b"A", ttl_s=9, cas=7, flags=b"c O1")
        == b"ms k 1 T9 MA C7 c O1\r\nx\r\n"
    )
    assert meta_delete(b"k") == b"md k\r\n"
    assert meta_delete(b"k", cas=7) == b"md k C7\r\n"
    assert META_NOOP == b"mn\r\n"


@given(key=st.binary(max_size=300))
def test_a_key_passes_exactly_when_memcached_can_read_it_back(key: bytes) -> None:
    readable = 1 <= len(key) <= 250 and not any(byte <= 0x20 or byte == 0x7F for byte in key)
    if readable:
        assert checked_key(key) == key
    else:
        with pytest.raises(ValueError, match="not a memcached key"):
            checked_key(key)


def test_a_ttl_that_memcached_would_read_as_a_date_becomes_the_longest_ttl() -> None:
    assert b" T2592000\r\n" in meta_set(b"k", b"", ttl_s=MAX_TTL_S)
    assert b" T2592000\r\n" in meta_set(b"k", b"", ttl_s=MAX_TTL_S + 1)


def test_a_negative_ttl_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        meta_set(b"k", b"", ttl_s=-1)


def test_a_flag_of_a_reply_is_found_by_its_letter() -> None:
    assert flag_of(b"c12 t-1 W", b"c") == b"12"
    assert flag_of(b"c12 t-1 W", b"t") == b"-1"
    assert flag_of(b"c12 t-1 W", b"W") == b""
    assert flag_of(b"c12 t-1 W", b"k") is None
    assert flag_of(b"", b"c") is None


@given(replies=st.lists(REPLIES, max_size=8), data=st.data())
def test_replies_are_the_same_wherever_the_stream_is_cut(
    replies: list[Reply], data: st.DataObject
) -> None:
    stream = b"".join(map(wire, replies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    parser = ReplyParser()
    parsed = []
    with patch.object(protocol, "_LONG_BYTES", data.draw(st.sampled_from([0, 30, LONG_BYTES]))):
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            parsed += parser.feed(stream[start:end])
    assert parsed == replies


@given(replies=st.lists(REPLIES, max_size=4))
def test_each_reply_is_out_with_its_last_byte_and_not_before(replies: list[Reply]) -> None:
    parser = ReplyParser()
    for reply in replies:
        *most, last = (bytes([byte]) for byte in wire(reply))
        assert [parser.feed(byte) for byte in most] == [[]] * len(most)
        assert parser.feed(last) == [reply]


@pytest.mark.timeout(20)
def test_a_large_value_in_many_pieces_takes_time_in_proportion_to_its_size() -> None:
    value = bytes(range(256)) * 64 * 1024
    stream = b"VA %d c1\r\n" % len(value) + value + b"\r\n"
    parser = ReplyParser()
    replies = []
    for start in range(0, len(stream), 512):
        replies += parser.feed(stream[start : start + 512])
    assert replies == [(b"VA", value, b"c1")]


@pytest.mark.parametrize("size", [60_000, 1_000_000])
def test_a_value_full_of_line_ends_costs_what_any_other_does(size: int) -> None:
    def fed(value: bytes) -> None:
        stream = (b"VA %d t60\r\n%b\r\n" % (size, value)) * 16
        parser = ReplyParser()
        pieces = [stream[at : at + 262_144] for at in range(0, len(stream), 262_144)]
        assert sum(len(parser.feed(piece)) for piece in pieces) == 16

    plain, ends = b"ab" * (size // 2), b"\r\n" * (size // 2)
    assert costs_at_most(4, lambda: fed(ends), lambda: fed(plain))


@pytest.mark.parametrize(
    "line",
    [
        b"ERROR\r\n",
        b"ERROR Too many open connections\r\n",
        b"CLIENT_ERROR bad data chunk\r\n",
        b"CLIENT_ERROR bad command line format\r\n",
        b"VALUE k 0 1\r\n1\r\n",
        b"STORED\r\n",
        b"HDx\r\n",
        b"VA\r\n",
        b"VA x\r\nx\r\n",
        b"VA -1\r\n\r\n",
        b"VA +1\r\n1\r\n",
        b"VA 1_0\r\n0123456789\r\n",
        b"VA 99999999999999\r\n",
        b"VA 1\r\n22\r\n",
        b"VA 3\r\n1\r\n",
        b"VA 3\r\n1\r\n22\r\n",
        b"VA 3\r\nabcdefgh",
        b"\r\n",
        b"\0" * 3000,
    ],
)
def test_rubbish_is_a_protocol_error(line: bytes) -> None:
    parser = ReplyParser()
    assert parser.feed(b"HD\r\n") == [(b"HD", None, b"")]
    # A value shorter than its size shows only when the next reply is read as its end.
    assert outcome(parser, [line, b"EN\r\n"]) is None


def outcome(parser: ReplyParser, pieces: list[bytes]) -> list[Reply] | None:
    """All replies in the pieces, or None for a ProtocolError."""
    try:
        return [reply for piece in pieces for reply in parser.feed(piece)]
    except ProtocolError:
        return None


@given(
    stream=st.lists(
        st.sampled_from(
            [b"VA 3", b"VA 05", b"VA ", b" ", b"\r\n", b"\r", b"\n", b"EN", b"HD", b"abc", b"c1"]
        ),
        max_size=12,
    ).map(b"".join),
    data=st.data(),
)
def test_rubbish_is_told_from_replies_alike_wherever_it_is_cut(
    stream: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(stream)))
    whole = outcome(ReplyParser(), [stream])
    with patch.object(protocol, "_LONG_BYTES", data.draw(st.sampled_from([0, 5, LONG_BYTES]))):
        assert outcome(ReplyParser(), [stream[:cut], stream[cut:]]) == whole


def test_memcached_answers_a_value_too_large_and_the_pipeline_goes_on(
    memcached: PrivateMemcached,
) -> None:
    replies = talk(
        memcached,
        meta_set(b"k", b"old", ttl_s=0)
        + meta_set(b"k", b"x" * 1024 * 1024, ttl_s=0)
        + meta_get(b"k")
        + META_NOOP,
        4,
    )
    assert replies == [
        (b"HD", None, b""),
        (b"SE", None, b"object too large for cache"),
        (b"EN", None, b""),
        (b"MN", None, b""),
    ]


def test_memcached_reads_back_every_byte_of_a_value_and_a_key(memcached: PrivateMemcached) -> None:
    value = bytes(range(256)) + b"\r\nEN\r\n"
    key = bytes(byte for byte in range(256) if byte > 0x20 and byte != 0x7F)
    replies = talk(memcached, meta_set(key, value, ttl_s=60) + meta_get(key, b"v k"), 2)
    assert replies == [(b"HD", None, b""), (b"VA", value, b"k" + key)]


def test_memcached_keeps_the_longest_ttl_as_a_duration(memcached: PrivateMemcached) -> None:
    payload = meta_set(b"k", b"", ttl_s=10**9) + meta_get(b"k", b"t")
    status, _, flags = talk(memcached, payload, 2)[1]
    assert status == b"HD"
    assert MAX_TTL_S - 2 <= int(flag_of(flags, b"t") or 0) <= MAX_TTL_S


def test_appends_that_fall_back_to_an_add_lose_nothing(memcached: PrivateMemcached) -> None:
    append = meta_set(b"k", b"2", mode=b"A", ttl_s=0)
    add = meta_set(b"k", b"1", mode=b"E", ttl_s=60)
    replies = talk(memcached, append + add + add + append + meta_get(b"k"), 5)
    assert [reply[0] for reply in replies] == [b"NS", b"HD", b"NS", b"HD", b"VA"]
    assert replies[-1][1] == b"12"
