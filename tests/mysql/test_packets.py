import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import Capability
from sqlcache.mysql.packets import (
    err_packet,
    has_attributes,
    packet,
    payload_bytes,
    query_packet,
    query_text,
    read_eof,
    read_err,
    read_lenenc,
    read_nul,
    read_ok,
)

ATTRIBUTES = Capability.QUERY_ATTRIBUTES


def test_a_packet_begins_with_its_length_and_sequence_id() -> None:
    assert packet(257, b"abc") == b"\x03\x00\x00\x01abc"
    assert payload_bytes(b"zz\x01\x02\x03", 2) == 0x030201


@pytest.mark.parametrize(
    ("data", "value", "end"),
    [
        (b"\xfa", 0xFA, 1),
        (b"\xfc\x01\x02", 0x0201, 3),
        (b"\xfd\x01\x02\x03", 0x030201, 4),
        (b"\xfe" + b"\x01" + bytes(7), 1, 9),
    ],
)
def test_length_encoded_integers_have_four_forms(data: bytes, value: int, end: int) -> None:
    assert read_lenenc(b"?" + data, 1) == (value, end + 1)


@pytest.mark.parametrize("data", [b"", b"\xfb", b"\xff", b"\xfc\x01", b"\xfe\x01"])
def test_a_malformed_integer_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_lenenc(data, 0)


def test_a_string_without_its_nul_is_refused() -> None:
    assert read_nul(b"ab\0c", 0) == (b"ab", 3)
    with pytest.raises(ProtocolError):
        read_nul(b"ab", 0)


def test_ok_eof_and_err_packets_tell_status_warnings_and_code() -> None:
    ok = read_ok(b"\x00\xfc\x10\x27\x05\x0b\x00\x01\x00")
    assert (ok.status, ok.warnings, ok.status_offset) == (0x0B, 1, 5)
    assert ok.more_results
    eof = read_eof(b"\xfe\x02\x00\x21\x00")
    assert (eof.status, eof.warnings) == (0x21, 2)
    err = read_err(b"\xff\x28\x04#42000text")
    assert (err.status, err.error_code, err.more_results) == (None, 1064, False)


def test_an_error_carries_a_state_only_after_the_login() -> None:
    assert err_packet(1, 1835, "no", "HY000")[4:] == b"\xff\x2b\x07#HY000no"
    assert err_packet(0, 1040, "no")[4:] == b"\xff\x10\x04no"


TEXT = b"SELECT 1"
NUL_BITS, BOUND = b"\0", b"\1"
VALUES = {
    "a string": (b"\xfe\0\4name", b"\4abcd"),
    "a long one": (b"\xfe\0\xfc\4\0name", b"\xfd\4\0\0abcd"),
    "no name": (b"\xfd\0\0", b"\0"),
    "an integer": (b"\x08\x80\4name", b"\xff" * 8),
    "a short one": (b"\x02\0\4name", b"\1\2"),
    "a double": (b"\x05\0\4name", b"\0" * 8),
    "a decimal": (b"\xf6\0\4name", b"\x031.5"),
    "a time": (b"\x0b\0\4name", b"\x08\0\1\0\0\0\1\1\1"),
    "no time": (b"\x0c\0\4name", b"\0"),
}


@pytest.mark.parametrize("of", VALUES)
def test_the_text_is_read_behind_query_attributes(of: str) -> None:
    type_, value = VALUES[of]
    one = b"\x03\1\1" + NUL_BITS + BOUND + type_ + value + TEXT
    nine = b"\x03\x09\1" + NUL_BITS * 2 + BOUND + type_ * 9 + value * 9 + TEXT
    null = b"\x03\x09\1" + b"\0\1" + BOUND + type_ * 9 + value * 8 + TEXT
    for payload in (one, nine, null):
        assert query_text(payload, ATTRIBUTES) == TEXT
        assert has_attributes(payload, ATTRIBUTES)


def test_a_text_without_query_attributes_is_all_there_is() -> None:
    assert query_text(b"\x03" + TEXT, 0) == TEXT
    assert query_text(b"\x03\0\1" + TEXT, ATTRIBUTES) == TEXT
    assert not has_attributes(b"\x03\1\1" + TEXT, 0)
    assert not has_attributes(b"\x03\0\1" + TEXT, ATTRIBUTES)
    assert has_attributes(b"\x03\0\xfc\1\0" + TEXT, ATTRIBUTES)


NAMED, VALUE = VALUES["a string"]


@pytest.mark.parametrize(
    "attributes",
    [
        b"",
        b"\0",
        b"\0\2",
        b"\1\2" + NUL_BITS + BOUND + NAMED + VALUE,
        b"\1\1" + NUL_BITS + b"\0",
        b"\1\1" + NUL_BITS + b"\2" + NAMED + VALUE,
        b"\1\1" + NUL_BITS + BOUND + b"\xfe\1\4name" + VALUE,
        b"\1\1" + NUL_BITS + BOUND + b"\xf4\0\4name" + VALUE,
        b"\1\1" + NUL_BITS + BOUND + b"\xfe\0\xfename" + VALUE,
        b"\1\1" + NUL_BITS + BOUND + NAMED + b"\xfbabcd",
        b"\1\1" + NUL_BITS + BOUND + NAMED + b"\xfe\4\0\0\0\1\0\0\0abcd",
        b"\1\1" + NUL_BITS + BOUND + NAMED + b"\x40abcd",
        b"\xfd\0\0\1\1" + NUL_BITS * 8192 + BOUND + NAMED * 65_536 + VALUE * 65_536,
    ],
)
def test_query_attributes_that_are_unlike_a_clients_make_a_statement_unreadable(
    attributes: bytes,
) -> None:
    assert query_text(b"\x03" + attributes + TEXT, ATTRIBUTES) is None


@pytest.mark.parametrize("capabilities", [0, ATTRIBUTES])
def test_own_queries_are_read_back_as_they_were(capabilities: int) -> None:
    assert query_text(query_packet(b"SELECT 2", capabilities)[4:], capabilities) == b"SELECT 2"


@given(st.binary(max_size=40))
def test_any_payload_is_read_or_refused(payload: bytes) -> None:
    for read in (read_ok, read_eof, read_err, lambda p: query_text(p, ATTRIBUTES)):
        with contextlib.suppress(ProtocolError):
            read(payload)
