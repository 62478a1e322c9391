import pytest

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import Capability
from sqlcache.mysql.packets import packet
from sqlcache.mysql.rows import read_text_rows

EOF = b"\xfe\0\0\x02\0"
COLUMNS = (b"\x02", b"\x03def-a", b"\x03def-b")


def stream(*payloads: bytes) -> bytes:
    return b"".join(packet(number, payload) for number, payload in enumerate(payloads))


@pytest.mark.parametrize(("capabilities", "middle"), [(0, (EOF,)), (Capability.DEPRECATE_EOF, ())])
def test_rows_are_read_with_nulls(capabilities: int, middle: tuple[bytes, ...]) -> None:
    response = stream(*COLUMNS, *middle, b"\x01a\xfb", b"\x00\x02bc", EOF)
    assert read_text_rows(response, capabilities) == [(b"a", None), (b"", b"bc")]


@pytest.mark.parametrize("payload", [b"\x00\0\0\x02\0\0\0", b"\xff\x28\x04#42000no"])
def test_what_is_no_result_set_has_no_rows(payload: bytes) -> None:
    assert read_text_rows(stream(payload), 0) == []


def test_half_a_packet_is_refused() -> None:
    with pytest.raises(ProtocolError):
        read_text_rows(stream(*COLUMNS)[:-1], 0)


@pytest.mark.parametrize("row", [b"\x01a\x03bc", b"\x01a\x01bc", b"\x01a"])
def test_a_row_that_is_cut_short_or_too_long_is_refused(row: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_text_rows(stream(*COLUMNS, EOF, row, EOF), 0)
