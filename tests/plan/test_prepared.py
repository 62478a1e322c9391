"""Executions of prepared statements: what decides their answers, what the server is told."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command
from sqlcache.mysql.packets import packet
from sqlcache.plan import parameters
from sqlcache.plan.meanings import MOST_PARAMETERS
from sqlcache.plan.parameters import MOST_FORMED, NEGATIVE, forms
from sqlcache.plan.parameters import PLAIN as PLAIN_FORM
from sqlcache.plan.prepared import Alike, Prepared
from sqlcache.sql.lexer import lex
from sqlcache.sql.pieces import Dialect
from tests.costs import a_moment, costs_at_most

PLAIN = Capability.PROTOCOL_41
ATTRIBUTES = PLAIN | Capability.QUERY_ATTRIBUTES
NEW_YEAR = struct.pack("<BHBB", 4, 2024, 1, 1)
LONG, DOUBLE, STRING = b"\x03\x00", b"\x05\x00", b"\xfd\x00"


def prepared(parameters: int = 2) -> Prepared:
    return Prepared(lex(b"SELECT ?", Dialect()), b"fingerprint", "shop", parameters)


ONE, TWO, FRACTION = struct.pack("<i", 1), struct.pack("<i", 2), struct.pack("<d", 1.5)


def execution(types: bytes, values: bytes, *, flags: int = 0, nulls: bytes = b"\0") -> bytes:
    head = bytes((Command.STMT_EXECUTE,)) + b"\x01\0\0\0" + bytes((flags,)) + b"\x01\0\0\0"
    return head + nulls + (b"\x01" + types if types else b"\0") + values


def text(value: bytes) -> bytes:
    return bytes((len(value),)) + value


def test_types_that_are_left_out_are_those_of_the_execution_before() -> None:
    statement = prepared()
    first = statement.read(execution(LONG + STRING, ONE + text(b"one")), PLAIN)
    again = statement.read(execution(b"", ONE + text(b"one")), PLAIN)
    assert first.parameters is not None
    assert first.parameters == again.parameters


def test_types_nulls_and_values_all_decide_the_answer() -> None:
    payloads = [
        execution(LONG + LONG, ONE + ONE),
        execution(LONG + STRING, ONE + text(b"one")),
        execution(LONG + LONG, ONE + TWO),
        execution(LONG + LONG, ONE, nulls=b"\x01"),
    ]
    told = {prepared().read(payload, PLAIN).parameters for payload in payloads}
    assert len(told) == len(payloads)


def test_a_cursor_long_data_or_unknown_types_do_not_tell_all() -> None:
    assert prepared().read(execution(LONG + LONG, ONE + ONE, flags=1), PLAIN).parameters is None
    assert prepared().read(execution(b"", ONE + ONE), PLAIN).parameters is None
    sent_ahead = prepared()
    sent_ahead.long_data = True
    assert sent_ahead.read(execution(LONG + LONG, ONE + ONE), PLAIN).parameters is None


def test_of_what_is_never_a_hit_only_the_values_are_read() -> None:
    """Whatever MySQL takes a text for: its way is not followed, and its packets not kept."""
    statement = prepared()
    statement.cacheable = False
    for value in (b"5", b"-1.5", b"2020-01-01", b"2020-01-01 10:00:00", b"10:00:00", b"five"):
        payload = execution(LONG + STRING, ONE + text(value))
        read = statement.read(payload, PLAIN)
        assert read.parameters is None
        assert statement.is_plain(read)
        assert statement.values(payload, read) == [1, value]
        assert statement.for_server(packet(0, payload), read) == packet(0, payload)
    assert not statement.ways
    left_out = execution(b"", TWO + text(b"six"))
    assert statement.values(left_out, statement.read(left_out, PLAIN)) == [2, b"six"]


@pytest.mark.parametrize("odd", [b"", b"\xff", b"\xfc\x01", b"\x05four", b"\xfb"])
def test_a_value_that_is_cut_short_is_not_known(odd: bytes) -> None:
    """What becomes of it is for the server to say."""
    statement = prepared()
    statement.cacheable = False
    payload = execution(LONG + STRING, ONE + odd)
    assert statement.values(payload, statement.read(payload, PLAIN)) == [1]


def test_a_statement_without_parameters_has_none() -> None:
    head = bytes((Command.STMT_EXECUTE,)) + b"\x01\0\0\0"
    assert prepared(0).read(head + b"\0\x01\0\0\0", PLAIN).parameters == b""
    assert prepared(0).read(head + b"\x01\x01\0\0\0", PLAIN).parameters is None


def test_the_server_is_told_types_it_has_not_seen() -> None:
    statement = prepared()
    statement.read(
        execution(LONG + STRING, ONE + text(b"one")), PLAIN
    )  # a hit: the server saw nothing
    payload = execution(b"", TWO + text(b"two"))
    read = statement.read(payload, PLAIN)
    assert statement.for_server(packet(0, payload), read) == packet(
        0, execution(LONG + STRING, TWO + text(b"two"))
    )
    read = statement.read(payload, PLAIN)
    assert statement.for_server(packet(0, payload), read) == packet(0, payload)


def test_types_the_client_sends_are_left_as_they_are() -> None:
    statement = prepared()
    payload = execution(LONG + STRING, ONE + text(b"one"))
    read = statement.read(payload, PLAIN)
    assert statement.for_server(packet(0, payload), read) == packet(0, payload)


def executed(statement: Prepared, *payloads: bytes) -> bytes | None:
    """What decides the answer to the last one."""
    *_, last = (statement.read(payload, PLAIN).parameters for payload in payloads)
    return last


INTEGERS = execution(LONG + LONG, ONE + ONE)
DOUBLES = execution(DOUBLE + LONG, FRACTION + ONE)
WITH_A_NULL = execution(LONG + LONG, ONE, nulls=b"\x02")


def test_types_from_before_decide_the_answer_too() -> None:
    told = {
        executed(prepared(), INTEGERS),
        executed(prepared(), DOUBLES, INTEGERS),
        executed(prepared(), INTEGERS, DOUBLES, INTEGERS),
    }
    assert len(told) == 3


def test_the_same_types_again_and_nulls_in_their_place_change_nothing() -> None:
    once = executed(prepared(), INTEGERS)
    assert executed(prepared(), INTEGERS, INTEGERS, WITH_A_NULL, INTEGERS) == once
    with_a_null = executed(prepared(), INTEGERS, WITH_A_NULL)
    assert executed(prepared(), INTEGERS, WITH_A_NULL, INTEGERS, WITH_A_NULL) == with_a_null
    assert executed(prepared(), WITH_A_NULL, INTEGERS) != once


def test_with_types_that_change_again_and_again_the_answer_is_not_known() -> None:
    statement = prepared()
    assert executed(statement, INTEGERS, DOUBLES, INTEGERS, DOUBLES) is not None
    assert executed(statement, INTEGERS) is None
    assert executed(statement, INTEGERS, INTEGERS) is None


def strings(*values: bytes) -> bytes | None:
    """What decides the answer to the last of these, each the only parameter of an execution."""
    payloads = [execution(STRING, text(value)) for value in values]
    return executed(prepared(1), *payloads)


@pytest.mark.parametrize("decimal", [b"-2", b" -2 ", b"1.5", b"+.5", b"2.", b"-0.0"])
def test_strings_that_make_mysql_take_an_integer_for_a_decimal_decide_answers(
    decimal: bytes,
) -> None:
    assert strings(decimal, b"2") != strings(b"2")
    assert strings(b"2", decimal, b"2") not in {strings(b"2"), strings(decimal, b"2")}
    assert strings(decimal, b"2", b"3", decimal, b"2") == strings(decimal, b"2")


@pytest.mark.parametrize(
    "plain",
    [b"3", b"+3 ", b"", b"two", b"-2b", b"3f2a-12-1", b"555-1234", b"-", b"1612345678"],
)
def test_other_strings_decide_only_their_own(plain: bytes) -> None:
    assert strings(plain, b"2", plain, b"2") == strings(b"2") is not None


@pytest.mark.parametrize(
    "moment",
    [
        b"2024-01-02",
        b"2024-01-02 10:00:00",
        b"2024-01-02T10:00:00.5",
        b"10:00:00",
        b"20240102100000",
    ],
)
def test_strings_that_make_mysql_take_a_date_for_another_type_decide_answers(
    moment: bytes,
) -> None:
    assert strings(moment, b"two") not in {strings(b"two"), strings(b"10:00:00.5", b"two"), None}
    assert strings(moment, moment, b"two") == strings(moment, b"two")


@pytest.mark.parametrize(
    "doubtful",
    [
        *(b"9223372036854775808", b"-0", b"1e3", b"-" + b"1" * 30),
        *(b"\n2", b"\t-2", b"1.5\r"),
        *(b"1.2.3", b"2024-02-30", b"2024-01-02 10:00", b"20240030100000", b"24:00:00"),
    ],
)
def test_after_a_string_that_mysql_may_take_for_anything_no_answer_is_known(
    doubtful: bytes,
) -> None:
    assert strings(doubtful) is strings(doubtful, b"2") is None


@pytest.mark.parametrize("number", [0, 101, 20200101, 20200101101112, -0x7FFF_FFFF_FFFF_FFFF])
def test_a_number_that_may_be_a_date_is_one_only_where_dates_are_wanted(number: int) -> None:
    payload = execution(b"\x08\0", struct.pack("<q", number))
    statement, dateless = prepared(1), prepared(1)
    dateless.dateless = (True,)
    assert (statement.read(payload, PLAIN).parameters is None) is (number >= 0)
    assert dateless.read(payload, PLAIN).parameters is not None
    as_double = execution(DOUBLE, struct.pack("<d", abs(number)))
    assert prepared(1).read(as_double, PLAIN).parameters is None


@pytest.mark.parametrize("value", [b"1.2.3", b"10.0.0.1", b"2024-01-02 10:00"])
def test_where_no_dates_are_wanted_strings_are_none(value: bytes) -> None:
    dateless = prepared(1)
    dateless.dateless = (True,)
    assert dateless.read(execution(STRING, text(value)), PLAIN).parameters is not None


@pytest.mark.parametrize(
    ("value", "is_known"),
    [(b"12", True), (b"two", False), (b"2x", False), (b"1.5", False), (b" 2", False), (b"", False)],
)
def test_a_string_in_limit_is_a_number_of_rows_or_no_answer_is_known(
    value: bytes, is_known: bool
) -> None:
    limited, other = prepared(1), prepared(1)
    limited.limits = frozenset({0})
    assert (executed(limited, execution(STRING, text(value))) is not None) is is_known
    assert executed(other, execution(STRING, text(value))) is not None
    assert executed(limited, execution(LONG, ONE)) is None or is_known


def test_how_many_decimals_a_number_has_decides_later_answers() -> None:
    decimals = [execution(b"\xf6\0", text(number)) for number in (b"1.5", b"1.25")]
    told = {executed(prepared(1), each, execution(LONG, ONE)) for each in decimals}
    assert len(told) == 2
    assert None not in told


def test_after_definitions_changed_the_server_may_have_forgotten_what_it_knew() -> None:
    fresh, known, changed = prepared(), prepared(), prepared()
    executed(known, INTEGERS)
    executed(changed, INTEGERS, DOUBLES)
    for statement in (fresh, known, changed):
        statement.redefined(())
    assert executed(fresh, INTEGERS, DOUBLES) is not None
    assert executed(known, INTEGERS) is not None
    assert executed(known, DOUBLES) is None
    assert executed(changed, DOUBLES) is None


def test_values_of_every_type_are_found() -> None:
    widths = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8, 9: 4, 13: 2}
    for type_, width in widths.items():
        types = bytes((type_, 0)) + STRING
        payload = execution(types, b"\x7f" * width + text(b"-2"))
        statement = prepared()
        statement.dateless = (True, True)
        read = statement.read(payload, PLAIN)
        assert read.way is not None
        assert read.way.forms == bytes((PLAIN_FORM, NEGATIVE))
    for type_ in (7, 10, 12):  # dates: as long as they say
        payload = execution(bytes((type_, 0)) + STRING, NEW_YEAR + text(b"-2"))
        read = prepared().read(payload, PLAIN)
        assert read.way is not None
        assert read.way.forms == bytes((PLAIN_FORM, NEGATIVE))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (12, struct.pack("<BHBB", 4, 2024, 13, 1)),
        (12, struct.pack("<BHBBIB", 9, 2024, 1, 1, 0, 0)),
        (7, struct.pack("<BHBBI", 8, 2024, 1, 1, 0)),
        (10, struct.pack("<BHBB", 4, 2024, 2, 30)),
        (7, struct.pack("<BHBBBBB", 7, 2024, 1, 1, 24, 0, 0)),
        (12, b"\0"),
        (16, b"\1\1"),
        *((246, text(none)) for none in (b"two", b"", b".", b"-")),
    ],
)
def test_after_a_value_that_is_none_of_its_type_no_answer_is_known(
    type_: int, value: bytes
) -> None:
    types = bytes((type_, 0))
    dateless = prepared(1)
    dateless.dateless = (True,)
    assert executed(dateless, execution(types, value)) is None
    assert executed(prepared(1), execution(types, value)) is None
    assert executed(prepared(1), execution(types, value), execution(LONG, ONE)) is None


def test_after_a_time_of_day_which_may_become_a_date_of_today_no_answer_is_known() -> None:
    types, time = b"\x0b\0", struct.pack("<BBIBBB", 8, 0, 0, 10, 11, 12)
    dateless = prepared(1)
    dateless.dateless = (True,)
    assert executed(dateless, execution(types, time)) is None
    assert executed(dateless, execution(LONG, ONE)) is None


def test_after_what_the_server_refused_no_answer_and_no_value_is_known() -> None:
    statement = prepared(1)
    execution_ = statement.read(execution(LONG, ONE), PLAIN)
    assert statement.values(execution(LONG, ONE), execution_) == [1]
    statement.lose_track()
    again = statement.read(execution(b"", ONE), PLAIN)
    assert again.parameters is None
    assert statement.values(execution(b"", ONE), again) is None
    assert statement.for_server(packet(0, execution(b"", ONE)), again)[4:] == execution(b"", ONE)
    assert statement.read(execution(LONG, ONE), PLAIN).parameters is None


def test_fractions_of_seconds_are_a_form_of_their_own() -> None:
    exact = struct.pack("<BHBBBBBI", 11, 2024, 1, 1, 0, 0, 0, 5)
    types = b"\x0c\0"
    told = {
        executed(prepared(1), execution(types, value), execution(LONG, ONE))
        for value in (exact, NEW_YEAR)
    }
    assert len(told) == 2


def hit(statement: Prepared, payload: bytes) -> bytes:
    return statement.was_hit(packet(0, payload), statement.read(payload, PLAIN))


def unseen_before(statement: Prepared, payload: bytes) -> list[bytes]:
    execution = statement.read(payload, PLAIN)
    is_plain = statement.is_plain(execution)
    shown = statement.unseen_before(packet(0, payload), execution)
    assert is_plain == (not shown and not statement.long_data and not execution.cursor)
    return shown


def test_the_server_is_shown_hits_in_other_ways_once() -> None:
    statement = prepared()
    shown = [hit(statement, payload) for payload in (INTEGERS, DOUBLES)]
    hit(statement, DOUBLES)
    assert unseen_before(statement, execution(b"", ONE, nulls=b"\x02")) == shown
    assert unseen_before(statement, INTEGERS) == []


def test_the_server_is_not_shown_what_it_is_about_to_see() -> None:
    statement = prepared()
    hit(statement, INTEGERS)
    assert unseen_before(statement, INTEGERS) == []


def test_a_hit_goes_to_the_server_before_an_execution_that_asks_for_a_cursor() -> None:
    statement = prepared()
    shown = hit(statement, INTEGERS)
    assert unseen_before(statement, execution(b"", TWO + TWO, flags=1)) == [shown]


def test_a_hit_tells_the_types_of_an_execution_that_is_too_long_to_tell_them() -> None:
    statement = prepared(1)
    shown = hit(statement, execution(STRING, text(b"short")))
    hit(statement, execution(b"", text(b"short")))
    payload = execution(b"", b"\xfd" + MAX_PAYLOAD_BYTES.to_bytes(3, "little"))
    long = packet(0, payload.ljust(MAX_PAYLOAD_BYTES, b"x"))
    read = statement.read(long[4:], PLAIN)
    assert statement.unseen_before(long, read) == [shown]
    assert statement.for_server(long, read) == long


def test_parts_sent_ahead_are_not_used_up_by_a_hit_sent_late() -> None:
    statement = prepared()
    hit(statement, INTEGERS)
    statement.long_data = True
    assert unseen_before(statement, execution(b"", TWO + TWO, flags=1)) == []


def with_attributes(count: int, names: bytes, values: bytes) -> bytes:
    head = bytes((Command.STMT_EXECUTE,)) + b"\x01\0\0\0\x08\x01\0\0\0" + bytes((count,))
    return head + b"\0\x01" + names + values


def test_query_attributes_make_an_execution_unreadable() -> None:
    named = LONG + b"\x00" + STRING + b"\x00"
    assert prepared().read(with_attributes(2, named, ONE + text(b"a")), ATTRIBUTES).parameters
    extra = named + LONG + b"\x04name"
    assert (
        prepared().read(with_attributes(3, extra, ONE + text(b"a") + ONE), ATTRIBUTES).parameters
        is None
    )


def test_an_execution_with_no_query_attributes_is_an_ordinary_one() -> None:
    named = LONG + b"\x00" + STRING + b"\x00"
    counted = with_attributes(2, named, ONE + text(b"a"))
    unannounced = counted.replace(b"\x01\0\0\0\x08", b"\x01\0\0\0\x00", 1)
    assert prepared().read(unannounced, ATTRIBUTES).parameters
    head = bytes((Command.STMT_EXECUTE,)) + b"\x01\0\0\0"
    for flags, tail in ((b"\x08", b"\0"), (b"\0", b"")):
        bare = head + flags + b"\x01\0\0\0" + tail
        assert prepared(0).read(bare, ATTRIBUTES).parameters == b""
    attributed = head + b"\x08\x01\0\0\0\x01\0\x01" + LONG + b"\x04name" + ONE
    assert prepared(0).read(attributed, ATTRIBUTES).parameters is None


def test_a_packet_that_is_cut_short_tells_nothing() -> None:
    statement = prepared()
    whole = execution(LONG + LONG, ONE + TWO)
    assert statement.read(whole, PLAIN).parameters is not None
    assert statement.read(whole[:10], PLAIN).parameters is None
    # Which types MySQL has taken in is its affair.
    assert statement.read(execution(b"", ONE + TWO), PLAIN).parameters is None


@given(st.binary(max_size=40), st.sampled_from([PLAIN, ATTRIBUTES]), st.integers(0, 9))
def test_any_bytes_are_read(data: bytes, told: int, parameters: int) -> None:
    statement = prepared(parameters)
    payload = bytes((Command.STMT_EXECUTE,)) + data
    try:
        read = statement.read(payload, told)
        statement.for_server(packet(0, payload), read)
    except ProtocolError:
        pass


VALUES = {LONG: (ONE, TWO), DOUBLE: (FRACTION, bytes(8)), STRING: (text(b"-2"), text(b"one"))}
STEPS = st.tuples(
    st.lists(st.sampled_from([LONG, DOUBLE, STRING]), min_size=2, max_size=2),
    *(st.booleans(), st.booleans(), st.booleans(), st.sampled_from([0, 0, 0, 1])),
    st.sampled_from([b"\0", b"\0", b"\x01", b"\x03"]),
    st.sampled_from([b"", b"", b"x", ONE, FRACTION]),
)


_Step = tuple[list[bytes], bool, bool, bool, int, bytes, bytes]


def _payload(step: _Step) -> bytes:
    types, named, first, second, flags, nulls, more = step
    chosen = [VALUES[types[0]][first], VALUES[types[1]][second]]
    values = b"".join(v for place, v in enumerate(chosen) if not nulls[0] >> place & 1)
    return execution(b"".join(types) if named else b"", values + more, flags=flags, nulls=nulls)


@given(st.lists(STEPS, max_size=8), st.booleans())
def test_executions_alike_are_read_as_if_each_were_the_first_of_its_kind(
    steps: list[_Step], dateless: bool
) -> None:
    quick, slow = prepared(), prepared()
    for statement in (quick, slow):
        statement.dateless = (dateless, dateless)
    for step in steps:
        payload = _payload(step)
        slow._like_last = None
        read, expected = quick.read(payload, PLAIN), slow.read(payload, PLAIN)
        assert read == expected
        assert (quick.ways, quick.traceable) == (slow.ways, slow.traceable)


@given(st.lists(STEPS, max_size=3), st.lists(STEPS, max_size=4), st.booleans())
def test_what_was_prepared_alike_is_executed_as_if_nothing_had_been_before(
    before: list[_Step], steps: list[_Step], dateless: bool
) -> None:
    one, other, alone = prepared(), prepared(), prepared()
    other.alike = one.alike
    for statement in (one, other, alone):
        statement.dateless = (dateless, dateless)
    for step in before:
        one.read(_payload(step), PLAIN)
    for step in steps:
        assert other.read(_payload(step), PLAIN) == alone.read(_payload(step), PLAIN)
        assert (other.ways, other.traceable) == (alone.ways, alone.traceable)
        assert (other.types, other._not_texts) == (alone.types, alone._not_texts)


def test_the_first_execution_of_what_was_prepared_alike_is_read_by_that_of_others() -> None:
    one, other = prepared(), prepared()
    other.alike = one.alike
    one.dateless = other.dateless = (True, True)
    first = one.read(execution(LONG + LONG, ONE + TWO), PLAIN)
    again = other.read(execution(LONG + LONG, TWO + TWO), PLAIN)
    assert again.parameters is not None
    assert (again.way, again.new_way) == (first.way, True)
    assert again.way is first.way


def test_what_has_no_parameters_is_like_its_last_execution() -> None:
    statement = prepared(0)
    bare = bytes((Command.STMT_EXECUTE,)) + b"\x01\0\0\0" + b"\0" + b"\x01\0\0\0"
    assert statement.like_last(packet(0, bare)) is None
    read = statement.read(bare, PLAIN)
    assert statement.like_last(packet(0, bare)) == (statement.told(b""), read)
    with_cursor = bare.replace(b"\0\x01\0", b"\x01\x01\0")
    assert statement.like_last(packet(0, with_cursor)) is None
    assert statement.read(with_cursor, PLAIN).cursor
    assert statement.like_last(packet(0, bare)) is None
    assert statement.read(bare, PLAIN).parameters is None  # it ends the cursor


LONG_NAME = b"\xfd" + (1_000_000).to_bytes(3, "little") + bytes(1_000_000)


@pytest.mark.parametrize(
    ("parameters", "payload"),
    [
        (0, execution(b"", b"", nulls=b"") + bytes(1_000_000)),
        (1, with_attributes(1, LONG + LONG_NAME, ONE)),
    ],
    ids=["bytes behind it", "a long name"],
)
def test_of_an_execution_nothing_long_is_kept(parameters: int, payload: bytes) -> None:
    """What was prepared alike shares what is known of the first, for as long as it is planned."""
    alike = Alike()
    tracemalloc.start()
    try:
        statement = prepared(parameters)
        statement.alike, statement.dateless = alike, (True,) * parameters
        for _ in range(3):
            statement.read(payload, ATTRIBUTES if parameters else PLAIN)
        assert tracemalloc.get_traced_memory()[0] < len(payload) / 2
    finally:
        tracemalloc.stop()


def test_names_are_told_of_by_the_weight() -> None:
    name = text(bytes(50))
    named, plain = prepared(1), prepared(1)
    named.read(with_attributes(1, LONG + name, ONE), ATTRIBUTES)
    plain.read(with_attributes(1, LONG + text(b""), ONE), ATTRIBUTES)
    assert named.weigh() - plain.weigh() >= len(name) - 1


def test_only_a_whole_packet_is_like_the_last() -> None:
    statement = prepared()
    statement.dateless = (True, True)
    payload = execution(LONG + LONG, ONE + TWO)
    statement.read(payload, PLAIN)
    whole = packet(0, payload)
    assert statement.like_last(whole) is not None
    for other in (packet(1, payload), whole[:-1], whole + whole, packet(0, payload + ONE)):
        assert statement.like_last(other) is None


def test_a_null_with_a_value_of_its_own_is_none_that_mysql_sends() -> None:
    statement = prepared()
    statement.dateless = (True, True)
    assert statement.read(execution(LONG + LONG, ONE + ONE), PLAIN).parameters is not None
    assert statement.read(execution(b"", ONE + ONE, nulls=b"\x01"), PLAIN).parameters is None


@pytest.mark.parametrize("dateless", [True, False])
@given(data=st.data())
def test_a_long_text_has_the_form_it_has_when_all_of_it_is_looked_at_or_none(
    data: st.DataObject, dateless: bool
) -> None:
    piece = st.sampled_from([b" ", b"0", b"19", b".", b"-", b"+", b"e", b":", b"T", b"x", b"\xff"])
    begins = b"".join(data.draw(st.lists(piece, max_size=6)))
    value = (begins + data.draw(piece) * 1_030 + data.draw(piece))[-1_030 - len(begins) :]
    payload = b"\xfc" + struct.pack("<H", len(value)) + value
    form = forms(payload, 0, (STRING,), b"\0", (dateless,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameters, "_LOOKED_AT_BYTES", len(value))
        assert form in (None, forms(payload, 0, (STRING,), b"\0", (dateless,)))


@pytest.mark.parametrize(
    "value", [b"x" * 5_000, b"2 years " * 700, b"-" * 5_000, b"<p>" + b"1" * 5_000]
)
def test_a_long_text_that_is_no_number_is_plain(value: bytes) -> None:
    payload = b"\xfc" + struct.pack("<H", len(value)) + value
    assert forms(payload, 0, (STRING,), b"\0", (True,)) == bytes((PLAIN_FORM,))


def test_of_a_long_text_the_beginning_is_looked_at() -> None:
    """One that may be a number as far as that took 15 ms for 1 MB."""
    shorter, longer = (
        b"\xfd" + size.to_bytes(3, "little") + b" " * size for size in (20_000, 2_000_000)
    )

    def look_at(payload: bytes) -> None:
        forms(payload, 0, (STRING,), b"\0", (True,))

    assert costs_at_most(20, lambda: look_at(longer), lambda: look_at(shorter))


def test_the_most_parameters_are_read_in_a_moment() -> None:
    """Others wait for it."""
    texts = b"".join(text(b"2020-01-%02d 10:00:00" % (1 + at % 28)) for at in range(MOST_FORMED))
    numbers = struct.pack(f"<{MOST_PARAMETERS}i", *range(MOST_PARAMETERS))
    nulls, more_nulls = (bytes((most + 7) // 8) for most in (MOST_FORMED, MOST_PARAMETERS))
    payload = execution(STRING * MOST_FORMED, texts, nulls=nulls)
    longer = execution(LONG * MOST_PARAMETERS, numbers, nulls=more_nulls)

    def read_texts() -> None:
        assert prepared(MOST_FORMED).read(payload, PLAIN).parameters is not None

    def read_numbers() -> None:
        statement = prepared(MOST_PARAMETERS)
        statement.dateless = (True,) * MOST_PARAMETERS
        assert statement.read(longer, PLAIN).parameters is not None

    assert costs_at_most(10, read_texts, a_moment)
    assert costs_at_most(10, read_numbers, a_moment)
