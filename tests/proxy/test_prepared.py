"""Executions of prepared statements: what decides their answers, what the server is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import Capability, Command
from sqlcache.mysql.packets import packet
from sqlcache.proxy.prepared import Prepared
from sqlcache.sql.lexer import Dialect, lex

PLAIN = Capability.PROTOCOL_41
ATTRIBUTES = PLAIN | Capability.QUERY_ATTRIBUTES
LONG, STRING = b"\x03\x00", b"\xfd\x00"


def prepared(parameters: int = 2) -> Prepared:
    return Prepared(lex(b"SELECT ?", Dialect()), b"fingerprint", "shop", parameters)


def execution(types: bytes, values: bytes, *, flags: int = 0, nulls: bytes = b"\0") -> bytes:
    head = bytes((Command.STMT_EXECUTE,)) + b"\x01\0\0\0" + bytes((flags,)) + b"\x01\0\0\0"
    return head + nulls + (b"\x01" + types if types else b"\0") + values


def test_types_that_are_left_out_are_those_of_the_execution_before() -> None:
    statement = prepared()
    first = statement.read(execution(LONG + STRING, b"a"), PLAIN)
    again = statement.read(execution(b"", b"a"), PLAIN)
    assert first.parameters is not None
    assert first.parameters == again.parameters


def test_types_nulls_and_values_all_decide_the_answer() -> None:
    payloads = [
        execution(LONG + LONG, b"a"),
        execution(LONG + STRING, b"a"),
        execution(LONG + LONG, b"b"),
        execution(LONG + LONG, b"a", nulls=b"\x01"),
    ]
    told = {prepared().read(payload, PLAIN).parameters for payload in payloads}
    assert len(told) == len(payloads)


def test_a_cursor_long_data_or_unknown_types_do_not_tell_all() -> None:
    assert prepared().read(execution(LONG + LONG, b"a", flags=1), PLAIN).parameters is None
    assert prepared().read(execution(b"", b"a"), PLAIN).parameters is None
    sent_ahead = prepared()
    sent_ahead.long_data = True
    assert sent_ahead.read(execution(LONG + LONG, b"a"), PLAIN).parameters is None


def test_a_statement_without_parameters_has_none() -> None:
    head = bytes((Command.STMT_EXECUTE,)) + b"\x01\0\0\0"
    assert prepared(0).read(head + b"\0\x01\0\0\0", PLAIN).parameters == b""
    assert prepared(0).read(head + b"\x01\x01\0\0\0", PLAIN).parameters is None


def test_the_server_is_told_types_it_has_not_seen() -> None:
    statement = prepared()
    statement.read(execution(LONG + STRING, b"a"), PLAIN)  # a hit: the server saw nothing
    payload = execution(b"", b"b")
    read = statement.read(payload, PLAIN)
    assert statement.for_server(packet(0, payload), read) == packet(
        0, execution(LONG + STRING, b"b")
    )
    read = statement.read(payload, PLAIN)
    assert statement.for_server(packet(0, payload), read) == packet(0, payload)


def test_types_the_client_sends_are_left_as_they_are() -> None:
    statement = prepared()
    payload = execution(LONG + STRING, b"a")
    read = statement.read(payload, PLAIN)
    assert statement.for_server(packet(0, payload), read) == packet(0, payload)


def test_a_hit_goes_to_the_server_before_an_execution_that_asks_for_a_cursor() -> None:
    statement = prepared()
    plain = statement.read(execution(LONG + STRING, b"a"), PLAIN)
    cursor = statement.read(execution(b"", b"b", flags=1), PLAIN)
    statement.unseen = b"a hit"
    assert statement.unseen_before(cursor) == b"a hit"
    assert statement.unseen_before(cursor) is None
    statement.unseen = b"a hit"
    assert statement.unseen_before(plain) is None  # the server sees this one instead
    assert statement.unseen_before(cursor) is None


def test_parts_sent_ahead_are_not_used_up_by_a_hit_sent_late() -> None:
    statement = prepared()
    statement.long_data, statement.unseen = True, b"a hit"
    cursor = statement.read(execution(LONG + STRING, b"a", flags=1), PLAIN)
    assert statement.unseen_before(cursor) is None


def with_attributes(count: int, names: bytes, values: bytes) -> bytes:
    head = bytes((Command.STMT_EXECUTE,)) + b"\x01\0\0\0\x08\x01\0\0\0" + bytes((count,))
    return head + b"\0\x01" + names + values


def test_query_attributes_make_an_execution_unreadable() -> None:
    named = LONG + b"\x00" + STRING + b"\x00"
    assert prepared().read(with_attributes(2, named, b"ab"), ATTRIBUTES).parameters is not None
    extra = named + LONG + b"\x04name"
    assert prepared().read(with_attributes(3, extra, b"abc"), ATTRIBUTES).parameters is None


def test_a_packet_that_is_cut_short_is_refused() -> None:
    with pytest.raises(ProtocolError):
        prepared().read(execution(LONG + LONG, b"")[:10], PLAIN)


@given(st.binary(max_size=40), st.sampled_from([PLAIN, ATTRIBUTES]), st.integers(0, 9))
def test_any_bytes_are_read_or_refused(data: bytes, told: Capability, parameters: int) -> None:
    statement = prepared(parameters)
    payload = bytes((Command.STMT_EXECUTE,)) + data
    try:
        read = statement.read(payload, told)
        statement.for_server(packet(0, payload), read)
    except ProtocolError:
        pass
