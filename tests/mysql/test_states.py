"""What MySQL tells of a transaction that was begun for a hit is told as if it had not been."""

import pytest

from sqlcache.mysql.constants import Capability, Command
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.states import ToldStates

NONE, BEGUN, SNAPSHOT = b"________", b"T_______", b"T_R_____"
SCHEMA = b"\x01\x03\x02db"


def ok(
    state: bytes = b"", others: bytes = b"", *, status: int = 0x4003, words: bytes = b""
) -> bytes:
    """An OK that tells of this state, and of others before."""
    told = others + (b"\x05\x09\x08" + state if state else b"")
    head = b"\0\0\0" + status.to_bytes(2, "little") + b"\0\0" + bytes((len(words),)) + words
    return packet(1, head + length(told) + told)


def length(text: bytes) -> bytes:
    if len(text) < 0xFB:
        return bytes((len(text),))
    size = 2 if len(text) < 1 << 16 else 3
    return bytes((0xFA + size,)) + len(text).to_bytes(size, "little")


def begun(*, anew: bool, snapshot: bool = True) -> ToldStates:
    states = ToldStates()
    states.began(anew=anew, snapshot=snapshot)
    return states


@pytest.mark.parametrize(
    "others",
    [
        *(b"", SCHEMA, b"\x00\xf8" + bytes(248), b"\x02\x02\x011" * 70),
        b"\x00\xfd\x00\x00\x01" + bytes(1 << 16),
    ],
    ids=len,
)
@pytest.mark.parametrize("state", [NONE, BEGUN])
def test_the_end_of_what_the_client_began_is_told_and_of_no_other(
    others: bytes, state: bytes
) -> None:
    for anew, client in ((True, BEGUN), (False, NONE)):
        states = begun(anew=anew)
        expected = ok(b"" if state == client else state, others)
        if state == client == NONE and not others:
            expected = packet(1, b"\0\0\0\x03\0\0\0")
        assert states.shown(ok(state, others), turns=True) == expected
        assert not states.differ


def test_words_are_left_where_nothing_else_is_told() -> None:
    told = begun(anew=False).shown(ok(NONE, words=b"Rows"), turns=True)
    assert told == packet(1, b"\0\0\0\x03\0\0\0\x04Rows")


def test_one_that_is_begun_in_the_state_of_the_last_is_told_where_the_client_knows_of_none() -> (
    None
):
    assert begun(anew=False).shown(ok(), turns=True) == ok(SNAPSHOT)
    assert begun(anew=False, snapshot=False).shown(ok(), turns=True) == ok(BEGUN)
    assert begun(anew=True).shown(ok(), turns=True) == ok(SNAPSHOT)


@pytest.mark.parametrize("told", [ok(), ok(others=SCHEMA), packet(1, b"\0\0\0\x03\x40\0\0")])
def test_what_tells_of_no_transaction_is_told_as_it_is(told: bytes) -> None:
    states = begun(anew=True)
    assert states.shown(told, turns=False) == told
    assert states.differ


def test_an_answer_may_come_in_parts() -> None:
    """What has begun before one, and all behind that, is told as the server tells it."""
    several = ok(others=SCHEMA, status=0x400B) + ok(NONE, status=0x4002)
    for cut in range(len(several)):
        states = begun(anew=False)
        tracker = ResponseTracker(Command.QUERY, Capability.SESSION_TRACK)
        told = b""
        for part in filter(None, (several[:cut], several[cut:])):
            held = tracker.held_bytes
            tracker.feed(part)
            told += states.in_part(part, tracker, held, turns=True)
        last = packet(1, b"\0\0\0\x02\0\0\0")
        whole = cut in (0, len(ok(others=SCHEMA)))
        assert told == (several[: -len(ok(NONE))] + last if whole else several), cut
        assert not states.differ
