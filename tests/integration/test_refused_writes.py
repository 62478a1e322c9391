"""A write that is refused here was never sent: what comes next means to MySQL what it means to the
client, for whom it was executed and has failed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from sqlcache.demo.servers import (
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from sqlcache.mysql.constants import Capability
from sqlcache.plan.meanings import MOST_PARAMETERS
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import NEW, OLD, RawClient

INSERT = b"INSERT INTO t (v) VALUES (?)"
LONGLONG, VAR_STRING, BLOB = b"\x08\0", b"\xfd\0", b"\xfc\0"
REFUSED = 1105
BULK = OLD & ~Capability.LONG_PASSWORD | Capability.MARIADB_STMT_BULK_OPERATIONS
_BULK_BRINGS_TYPES = 128


@pytest.fixture
def strict(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> PrivateSqlcache:
    """sqlcache that refuses writes while memcached is away. There is a table `t`."""
    upstream.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARBINARY(100))", schema)
    upstream.connect().close()  # so that caching_sha2_password knows the password
    policy = {"cache__when_tags_unreachable": "consistency", "memcached__outage_s": 2}
    return proxy(upstream, memcached, **policy)


@pytest.fixture(params=[OLD, NEW], ids=["old", "new"])
def client(
    upstream: PrivateSqlServer,
    strict: PrivateSqlcache,
    schema: str,
    request: pytest.FixtureRequest,
) -> Iterator[RawClient]:
    login = upstream.user, upstream.password, schema, request.param
    with RawClient.logged_in(strict, *login) as session:
        yield session


def prepare(client: RawClient, text: bytes) -> bytes:
    """The number of a statement."""
    answer = client.ask(b"\x16" + text)
    assert answer[4] == 0, answer
    return answer[5:9]


def execution(number: bytes, value: bytes, types: bytes = b"") -> bytes:
    """Of a statement with one parameter."""
    typed = b"\1" + types if types else b"\0"
    return b"\x17" + number + b"\0\1\0\0\0\0" + typed + value


def text(value: bytes) -> bytes:
    return bytes((len(value),)) + value


def number(value: int) -> bytes:
    return struct.pack("<q", value)


def error_in(answer: bytes) -> int:
    """The code of the error that an answer is, or 0."""
    return int.from_bytes(answer[5:7], "little") if answer[4] == 0xFF else 0


def refuse(client: RawClient, memcached: PrivateMemcached, command: bytes) -> None:
    """Sends a write while memcached is away."""
    memcached.kill()
    client.command(command)
    _, payload = client.read_packet()
    assert payload[:3] == b"\xff" + REFUSED.to_bytes(2, "little"), payload
    memcached.restart()


def repeat(client: RawClient, command: bytes) -> None:
    """Sends a write until it is not refused any more."""

    def is_done() -> bool:
        code = error_in(client.ask(command))
        assert code in (0, REFUSED)
        return not code

    wait_until(is_done, 30, "a write")


def rows(upstream: PrivateSqlServer, schema: str) -> list[bytes]:
    return [v for (v,) in upstream.sql("SELECT v FROM t ORDER BY id", schema)]


def test_the_types_that_it_told_hold_for_the_next_execution(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, client: RawClient, schema: str
) -> None:
    insert = prepare(client, INSERT)
    for each in range(3):
        assert not error_in(client.ask(execution(insert, number(each), LONGLONG)))
    refuse(client, memcached, execution(insert, text(b"refused"), VAR_STRING))
    repeat(client, execution(insert, text(b"written")))
    assert rows(upstream, schema) == [b"0", b"1", b"2", b"written"]


def test_what_was_sent_ahead_for_it_is_for_no_other(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, client: RawClient, schema: str
) -> None:
    insert = prepare(client, INSERT)
    client.command(b"\x18" + insert + b"\0\0ahead")
    assert not error_in(client.ask(execution(insert, b"", BLOB)))
    client.command(b"\x18" + insert + b"\0\0refused")
    refuse(client, memcached, execution(insert, b""))
    repeat(client, execution(insert, text(b"written")))
    assert rows(upstream, schema) == [b"ahead", b"written"]


def test_it_ends_a_session_that_could_not_tell_its_types_again(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, client: RawClient, schema: str
) -> None:
    """As where there are more parameters than are read."""
    count = MOST_PARAMETERS + 1
    insert = prepare(client, INSERT + b", (?)" * (count - 1))
    head = b"\x17" + insert + b"\0\1\0\0\0" + bytes((count + 7) // 8)
    values = head + b"\1" + LONGLONG * count + number(1) * count
    assert not error_in(client.ask(values))
    texts = head + b"\1" + VAR_STRING * count + text(b"refused") * count
    refuse(client, memcached, texts)
    assert client.read_to_end() == b""
    assert rows(upstream, schema) == [b"1"] * count


def test_of_a_statement_without_parameters_nothing_is_missing(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, client: RawClient, schema: str
) -> None:
    """Also where its text is one that is not read."""
    for written in (b"1", b"2 -- \xff"):
        upstream.sql("DELETE FROM t", schema)
        insert = prepare(client, b"INSERT INTO t (v) VALUES (" + written[:1] + b")" + written[1:])
        bare = b"\x17" + insert + b"\0\1\0\0\0"
        refuse(client, memcached, bare)
        repeat(client, bare)
        assert rows(upstream, schema) == [written[:1]]


@pytest.mark.parametrize("upstream", ["mariadb"], indirect=True)
def test_the_types_of_several_rows_at_once_are_not_told_again(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    strict: PrivateSqlcache,
    schema: str,
) -> None:
    def bulk(*values: bytes, types: bytes = b"") -> bytes:
        flags = _BULK_BRINGS_TYPES if types else 0
        each = b"".join(b"\0" + value for value in values)
        return b"\xfa" + insert + flags.to_bytes(2, "little") + types + each

    login = upstream.user, upstream.password, schema, BULK
    with RawClient.logged_in(strict, *login) as client:
        insert = prepare(client, INSERT)
        assert not error_in(client.ask(bulk(number(1), number(2), types=LONGLONG)))
        refuse(client, memcached, bulk(number(3)))
        repeat(client, bulk(number(4)))
        assert rows(upstream, schema) == [b"1", b"2", b"4"]
        refuse(client, memcached, bulk(text(b"refused"), types=VAR_STRING))
        assert client.read_to_end() == b""
    with RawClient.logged_in(strict, *login) as client:
        insert = prepare(client, INSERT)
        repeat(client, execution(insert, number(5), LONGLONG))
        refuse(client, memcached, execution(insert, text(b"refused"), VAR_STRING))
        repeat(client, bulk(text(b"written"), text(b"as well")))
        assert rows(upstream, schema)[3:] == [b"5", b"written", b"as well"]
