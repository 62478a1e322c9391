import pytest

from sqlcache.cache import entry
from sqlcache.mysql.constants import Status

AUTOCOMMIT = Status.AUTOCOMMIT
VERSIONS = b"v" * 16


def packets(status: int) -> bytes:
    return b"..%b....%b" % (status.to_bytes(2, "little"), status.to_bytes(2, "little"))


@pytest.mark.parametrize("offsets", [[2, 8], [8]])
def test_a_session_like_the_fillers_gets_the_very_packets(offsets: list[int]) -> None:
    value = entry.encode(VERSIONS, AUTOCOMMIT, offsets, packets(AUTOCOMMIT))
    assert value.startswith(VERSIONS)
    assert entry.packets_for(value, len(VERSIONS), AUTOCOMMIT) == packets(AUTOCOMMIT)


def test_an_entry_knows_how_many_rows_its_packets_hold() -> None:
    value = entry.encode(VERSIONS, AUTOCOMMIT, [8], packets(AUTOCOMMIT), 70_000)
    assert entry.rows_of(value, len(VERSIONS)) == 70_000


def test_another_session_gets_its_own_flags_and_the_statements() -> None:
    stored = AUTOCOMMIT | Status.NO_INDEX_USED
    value = entry.encode(VERSIONS, stored, [2, 8], packets(stored))
    session = Status.IN_TRANS | Status.METADATA_CHANGED
    expected = packets(Status.IN_TRANS | Status.NO_INDEX_USED)
    assert entry.packets_for(value, len(VERSIONS), session) == expected


def test_that_a_query_was_slow_once_is_not_stored() -> None:
    stored = AUTOCOMMIT | Status.QUERY_WAS_SLOW
    value = entry.encode(VERSIONS, stored, [2, 8], packets(stored))
    assert entry.packets_for(value, len(VERSIONS), AUTOCOMMIT) == packets(AUTOCOMMIT)


@pytest.mark.parametrize("value", [VERSIONS, VERSIONS + b"\x01", VERSIONS + b"\xff" * 20])
def test_what_is_no_entry_of_this_format_is_none(value: bytes) -> None:
    assert entry.packets_for(value, len(VERSIONS), AUTOCOMMIT) is None
