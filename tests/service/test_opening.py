"""Connections for what sqlcache itself asks of MySQL, to servers that are not as they should be."""

import asyncio
from pathlib import Path

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlServer, free_port
from sqlcache.errors import AccountRefused, UpstreamError
from sqlcache.mysql.packets import packet
from sqlcache.service.opening import connect_service
from tests.servers import MySQLMissing, PrivateMySQL


async def test_a_wrong_password_is_an_error_that_names_the_account_but_not_the_password(
    upstream: PrivateSqlServer,
) -> None:
    with pytest.raises(
        UpstreamError, match=r"'nobody', the account of upstream.url: .*Access denied"
    ) as caught:
        await connect_service(upstream.host, upstream.port, "nobody", "hunter2", 10)
    assert "hunter2" not in str(caught.value)


async def test_a_password_may_have_any_letters(upstream: PrivateSqlServer) -> None:
    for number, password in enumerate(("Größe-1a", "пароль-1A", "€uro-1A")):
        upstream.sql(f"CREATE USER p{number}@'%' IDENTIFIED BY '{password}'")
        try:
            connection = await connect_service(
                upstream.host, upstream.port, f"p{number}", password, 10
            )
            connection.close()
        finally:
            upstream.sql(f"DROP USER p{number}@'%'")


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"mysql_old_password", b""])
@pytest.mark.parametrize("in_greeting", [False, True])
async def test_a_server_that_asks_for_the_password_in_clear_is_not_told_it_without_tls(
    plugin: bytes, in_greeting: bool
) -> None:
    named = plugin if in_greeting else b"mysql_native_password"
    capabilities = b"\xff\xc1" if named else b"\xff\xc0"  # without one it speaks of no plugins
    greeting = (
        b"\x0a8.4.0\0" + bytes(4) + b"a" * 8 + b"\0\xff\xf7\x2d\x02\0" + capabilities + b"\x15"
    ) + (bytes(10) + b"b" * 12 + b"\0" + (named and named + b"\0"))
    asked = (plugin or b"mysql_old_password").decode()
    told = b""

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal told
        writer.write(packet(0, greeting))
        told += await reader.read(65536)
        switch = plugin and plugin + b"\0" + b"c" * 20 + b"\0"  # else to the one of long ago
        writer.write(packet(2, b"\xfe" + switch))
        told += await reader.read(65536)
        writer.close()

    async with await asyncio.start_server(ask, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(AccountRefused, match=f"the server asks for '{asked}'"):
            await connect_service("127.0.0.1", port, "u", "hunter2", 10)
    assert b"hunter2" not in told


async def test_an_account_of_a_plugin_that_is_not_spoken_is_no_outage(
    mariadb: PrivateMariaDB,
) -> None:
    mariadb.sql("INSTALL SONAME 'auth_ed25519'")
    mariadb.sql("CREATE USER p@'%' IDENTIFIED VIA ed25519 USING PASSWORD('pw')")
    try:
        with pytest.raises(AccountRefused, match="client_ed25519"):
            await connect_service(mariadb.host, mariadb.port, "p", "pw", 10)
    finally:
        mariadb.sql("DROP USER p@'%'; UNINSTALL SONAME 'auth_ed25519'")


@pytest.mark.parametrize("setting", ["offline_mode", "require_secure_transport"])
async def test_a_server_that_lets_nobody_in_is_an_outage(setting: str, tmp_path: Path) -> None:
    try:
        made = PrivateMySQL(tmp_path / "own")
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with made as server:
        server.sql(f"CREATE USER p IDENTIFIED BY 'p'; SET GLOBAL {setting} = ON")
        with pytest.raises(UpstreamError) as refused:
            await connect_service(server.host, server.port, "p", "p", 10)
        assert not isinstance(refused.value, AccountRefused)


async def test_a_port_nobody_listens_on_is_an_error_that_names_it() -> None:
    port = free_port()
    with pytest.raises(UpstreamError, match=f"127.0.0.1:{port}"):
        await connect_service("127.0.0.1", port, "u", "p", 10)


@pytest.mark.parametrize(
    "said",
    {
        "the greeting of its X protocol": b"\5\0\0\0\x0b\x08\x05\x1a\0",
        "a greeting that is cut short": packet(0, b"\x0a9.7.0"),
        "one that ends amid its numbers": packet(0, b"\x0a9.7.0\0abcdefghij"),
        "an empty packet": packet(0, b""),
        "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    }.items(),
    ids=lambda said: said[0],
)
async def test_what_speaks_no_mysql_is_an_error_that_names_its_address(
    said: tuple[str, bytes],
) -> None:
    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said[1])
        writer.close()

    async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UpstreamError, match=f"127.0.0.1:{port}"):
            await connect_service("127.0.0.1", port, "u", "p", 10)


async def test_a_server_that_never_speaks_is_given_up_in_time() -> None:
    gone = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        with pytest.raises(UpstreamError, match=r"within 0\.2 s"):
            await connect_service("127.0.0.1", port, "u", "p", 0.2)
        gone.set()
