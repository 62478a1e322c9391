import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import FOLLOWED, UNFOLLOWED, Capability
from sqlcache.mysql.frames import OFFERED
from sqlcache.mysql.handshake import (
    Login,
    after_request,
    begun_by,
    offer,
    read_capabilities,
    read_change_user,
    read_greeting,
    read_login,
    with_capabilities,
)

MYSQL = 0xDFFFFFFF
MARIADB = 0x81BFF7FE
MARIADB_EXTENDED = 0x3F


def greeting(capabilities: int, extended: int = 0, version: bytes = b"9.7.0") -> bytes:
    low, high = capabilities & 0xFFFF, capabilities >> 16
    numbers = struct.pack("<I8sBHBHHB6sI", 77, b"12345678", 0, low, 255, 2, high, 21, b"", extended)
    return b"\x0a" + version + b"\0" + numbers + b"901234567890\0caching_sha2_password\0"


def response(capabilities: int, rest: bytes, extended: int = 0) -> bytes:
    head = struct.pack("<IIB19sI", capabilities, 1 << 24, 45, b"", extended)
    return head + rest


SECURE = Capability.PROTOCOL_41 | Capability.SECURE_CONNECTION
LENENC = SECURE | Capability.PLUGIN_AUTH_LENENC_CLIENT_DATA
SHORT = SECURE | Capability.LONG_PASSWORD


def test_a_greeting_tells_version_thread_and_capabilities() -> None:
    read = read_greeting(greeting(MYSQL))
    assert (read.server_version, read.thread_id, read.collation) == ("9.7.0", 77, 255)
    assert read.capabilities == MYSQL


def test_only_mariadb_has_extended_capabilities() -> None:
    assert read_greeting(greeting(MARIADB, MARIADB_EXTENDED)).capabilities >> 32 == 0x3F
    assert read_greeting(greeting(MYSQL, MARIADB_EXTENDED)).capabilities >> 32 == 0


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(("low", "extended"), [(MYSQL, 0), (MARIADB, MARIADB_EXTENDED)])
def test_the_offer_leaves_out_what_cannot_be_followed(low: int, extended: int, tls: bool) -> None:
    payload = greeting(low, extended)
    offered = read_greeting(offer(payload, read_greeting(payload), tls=tls))
    assert not offered.capabilities & UNFOLLOWED & ~OFFERED
    assert offered.capabilities & OFFERED == low & OFFERED
    assert bool(offered.capabilities & Capability.SSL) is tls
    assert offered.capabilities & Capability.DEPRECATE_EOF
    assert offered.server_version == "9.7.0"


@pytest.mark.parametrize("payload", [b"", b"\x09old", b"\x0a9.7", b"\x0a9.7\0short"])
def test_what_is_no_greeting_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_greeting(payload)


def test_a_login_tells_user_and_schema() -> None:
    with_db = LENENC | Capability.CONNECT_WITH_DB
    long_password = b"\xfc\x00\x01" + bytes(256)
    login = read_login(response(with_db, b"app\0" + long_password + b"shop\0plugin\0"))
    assert (login.user, login.schema, login.collation) == (b"app", b"shop", 45)


def test_a_login_without_schema_has_none() -> None:
    login = read_login(response(SHORT, b"app\0\x04abcd"))
    assert (login.user, login.schema) == (b"app", None)
    login = read_login(response(SHORT | Capability.CONNECT_WITH_DB, b"app\0\x04abcd\0"))
    assert login.schema is None


@pytest.mark.parametrize("odd", [SHORT, LENENC])
def test_whose_data_may_end_elsewhere_says_neither_schema_nor_collation(odd: int) -> None:
    odd &= ~Capability.SECURE_CONNECTION
    with_db = odd | Capability.CONNECT_WITH_DB
    login = read_login(response(with_db, b"app\0\x03a\0Xshop\0plugin\0"))
    assert login == Login(with_db, 0, b"app", None)
    assert read_change_user(b"\x11app\0\x03a\0Xshop\0\x2d\0", login) == login
    assert read_login(response(with_db, b"app\0\0shop\0plugin\0")).schema == b"shop"


def test_who_asked_for_tls_has_the_capabilities_of_that_request() -> None:
    request = response(SHORT | Capability.CONNECT_WITH_DB, b"")
    payload = begun_by(request, response(LENENC, b"app\0\x03abcshop\0"))
    login = read_login(payload)
    assert (login.capabilities, login.schema) == (SHORT | Capability.CONNECT_WITH_DB, b"shop")
    assert after_request(login, request) == login
    assert after_request(login._replace(collation=8), request).collation == 0
    with pytest.raises(ProtocolError):
        begun_by(request, b"short")


def test_mariadb_clients_extend_their_capabilities() -> None:
    assert read_capabilities(response(LENENC, b"", extended=0x04)) >> 32 == 0x04


def test_stripped_capabilities_leave_the_rest_of_the_login() -> None:
    payload = response(SHORT | Capability.COMPRESS, b"app\0\x04abcd")
    stripped = with_capabilities(payload, 0, SHORT)
    assert not read_capabilities(stripped) & Capability.COMPRESS
    assert stripped[4:] == payload[4:]


def test_a_capability_without_a_name_passes_neither_way() -> None:
    offered = offer(payload := greeting(MARIADB, 0xFFFFFFFF), read_greeting(payload), tls=False)
    assert not read_greeting(offered).capabilities & ~(FOLLOWED | OFFERED)
    claimed = response(LENENC, b"app\0\0", 0xFFFFFFFF)
    passed = with_capabilities(claimed, 0, FOLLOWED)
    assert not read_capabilities(passed) & ~FOLLOWED


def test_a_protocol_older_than_four_one_is_refused() -> None:
    with pytest.raises(ProtocolError):
        read_login(response(0, b"app\0"))


def test_change_user_keeps_the_capabilities_of_the_login() -> None:
    before = Login(LENENC, 45, b"app", b"shop")
    after = read_change_user(b"\x11other\0\x02xyblog\0\xff\x00plugin\0", before)
    assert after == Login(LENENC, 255, b"other", b"blog", b"plugin")


@pytest.mark.parametrize("rest", [b"", b"\x08"])
def test_a_change_of_user_without_a_collation_has_none(rest: bytes) -> None:
    after = read_change_user(b"\x11other\0\0blog\0" + rest, Login(SHORT, 45, b"app", None))
    assert after.collation == 0


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    for read in (
        read_greeting,
        read_login,
        lambda p: read_change_user(p, Login(LENENC, 45, b"app", None)),
    ):
        with contextlib.suppress(ProtocolError):
            read(payload)
