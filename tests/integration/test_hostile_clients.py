"""Clients that send what no driver sends: nothing reaches MySQL unread because of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import ER_UNKNOWN_COM_ERROR, Command
from tests.coherence.sessions import ask, run
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import OLD, RawClient, packets_of

READ = "SELECT SUM(v) FROM t"
UPDATE = packets_of(b"\x03UPDATE t SET v = v + 1")


@pytest.fixture
def relay(upstream: PrivateSqlServer, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache that reads the catalog only where it must."""
    return proxy(upstream, "memory", upstream__catalog_refresh_s=3600)


@pytest.fixture
def reader(upstream: PrivateSqlServer, relay: PrivateSqlcache, schema: str) -> Iterator[Any]:
    """A session; there is a table `t` with one row, 0, which it reads from the cache."""
    upstream.connect().close()  # so that caching_sha2_password knows the password
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    with closing(relay.connect(**account)) as session:
        run(session, "CREATE TABLE t (v INT)")
        run(session, "INSERT INTO t VALUES (0)")
        wait_until(lambda: is_hit(relay, session), 10, "a hit")
        yield session


@pytest.fixture
def nobody(upstream: PrivateSqlServer, schema: str) -> Iterator[str]:
    """An account that needs no password."""
    name = f"{schema}_nobody"
    upstream.sql(f"CREATE USER {name}; GRANT ALL ON {schema}.* TO {name}")
    yield name
    upstream.sql(f"DROP USER {name}")


def is_hit(relay: PrivateSqlcache, session: Any) -> bool:
    """Whether the read is answered from the cache."""
    before = relay.metrics()["sqlcache_hits_total"]
    ask(session, READ)
    return relay.metrics()["sqlcache_hits_total"] > before


def change_user(client: RawClient, user: str, schema: str) -> bytes:
    """A COM_CHANGE_USER to an account without a password."""
    plugin = client.plugin.encode() + b"\0"
    payload = user.encode() + b"\0\0" + schema.encode() + b"\0" + b"\x2d\0" + plugin
    return packets_of(bytes((Command.CHANGE_USER,)) + payload)


def read_ok(client: RawClient) -> None:
    """Takes packets up to an OK."""
    while (payload := client.read_packet()[1])[:1] != b"\0":
        assert payload[:1] != b"\xff", payload


# --- commands that come before their time -------------------------------------------------------


def test_a_command_that_comes_with_the_login_is_read(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    with RawClient(relay) as early:
        early.read_greeting()
        answer = early.response(upstream.user, upstream.password, schema, OLD)
        early.send(packets_of(answer, 1) + UPDATE)
        read_ok(early)
        read_ok(early)
        assert ask(reader, READ) == 1


def test_a_command_that_comes_with_a_change_of_user_is_read(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str, nobody: str
) -> None:
    account = upstream.user, upstream.password, schema
    with RawClient.logged_in(relay, *account) as early:
        early.send(change_user(early, nobody, schema))
        sequence, asked = early.read_packet()
        assert asked[:1] == b"\xfe", asked
        early.send(packets_of(b"", sequence + 1) + UPDATE)
        read_ok(early)
        read_ok(early)
        assert ask(reader, READ) == 1


def test_a_command_in_place_of_an_answer_to_the_server_ends_the_connection(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str, nobody: str
) -> None:
    account = upstream.user, upstream.password, schema
    with RawClient.logged_in(relay, *account) as early:
        early.send(change_user(early, nobody, schema) + UPDATE)
        _, asked = early.read_packet()
        assert asked[:1] == b"\xfe", asked
        early.read_to_end()
        assert upstream.sql(READ, schema) == ((0,),)


def test_a_transaction_does_not_outlive_a_change_of_user_that_sqlcache_refuses(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str, nobody: str
) -> None:
    """For the server it would go on: it knows nothing of the change."""
    service = f"{schema}_service"
    upstream.sql(f"CREATE USER {service}; GRANT ALL ON *.* TO {service}")
    url = f"mysql://{service}@localhost?unix_socket={upstream.socket}"
    relay = proxy(SimpleNamespace(service_url=url), "memory")
    with RawClient(relay) as client, RawClient(relay) as other:
        for each in (client, other):
            each.read_greeting()
            each.log_in(nobody, "", schema, OLD)
        other.sql("CREATE TABLE t (v INT)")
        for statement in ("BEGIN", "INSERT INTO t VALUES (1)", "CREATE TEMPORARY TABLE o (v INT)"):
            client.sql(statement)
        client.send(change_user(client, service, schema))
        sequence, refusal = client.read_packet()
        assert (sequence, refusal[:1]) == (1, b"\xff"), refusal
        assert client.read_to_end() == b""
        wait_until(lambda: upstream.sql("SELECT COUNT(*) FROM t", schema) == ((0,),), 5, "its end")
        running = f"SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{nobody}'"
        wait_until(lambda: upstream.sql(running) == ((1,),), 5, "the server's session's end")


# --- commands that make the connection a stream -------------------------------------------------


@pytest.mark.parametrize("command", [Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID])
def test_after_a_binlog_dump_that_is_refused_commands_are_read(
    relay: PrivateSqlcache, reader: Any, schema: str, nobody: str, command: Command
) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        client.log_in(nobody, "", schema, OLD)
        client.command(bytes((command,)) + bytes(18))
        _, refusal = client.read_packet()
        assert refusal[:1] == b"\xff", refusal
        client.send(UPDATE)
        read_ok(client)
        assert ask(reader, READ) == 1


def test_a_command_that_comes_with_a_binlog_dump_that_is_refused_is_read(
    relay: PrivateSqlcache, reader: Any, schema: str, nobody: str
) -> None:
    with RawClient(relay) as client:
        client.read_greeting()
        client.log_in(nobody, "", schema, OLD)
        client.send(packets_of(bytes((Command.BINLOG_DUMP,)) + bytes(18)) + UPDATE)
        _, refusal = client.read_packet()
        assert refusal[:1] == b"\xff", refusal
        read_ok(client)
        assert ask(reader, READ) == 1


def test_a_table_dump_is_an_unknown_command_after_which_others_are_read(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    account = upstream.user, upstream.password, schema
    with (
        RawClient.logged_in(relay, *account) as client,
        RawClient.logged_in(upstream, *account) as direct,
    ):
        dump = bytes((Command.TABLE_DUMP,)) + b"\x01a\x01t"
        client.command(dump)
        direct.command(dump)
        refusal = client.read_packet()
        assert refusal == direct.read_packet()
        assert int.from_bytes(refusal[1][1:3], "little") == ER_UNKNOWN_COM_ERROR
        client.send(UPDATE)
        read_ok(client)
        assert ask(reader, READ) == 1


def test_a_binlog_dump_that_is_not_refused_is_streamed(
    upstream: PrivateSqlServer, relay: PrivateSqlcache, reader: Any, schema: str
) -> None:
    (name, *_), *_ = upstream.sql("SHOW BINARY LOGS")
    with RawClient.logged_in(relay, upstream.user, upstream.password, schema) as replica:
        replica.sql("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'")
        dump = (4).to_bytes(4, "little") + bytes(2) + (77).to_bytes(4, "little")
        replica.command(bytes((Command.BINLOG_DUMP,)) + dump + name.encode())
        run(reader, "CREATE TABLE a_table_of_the_stream (v INT)")
        streamed = b""
        while b"a_table_of_the_stream" not in streamed:
            _, streamed = replica.read_packet()
            assert streamed[:1] == b"\0", streamed
