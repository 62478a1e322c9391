"""Connections for what sqlcache itself asks of MySQL, to servers that are not as they should be."""

import asyncio

import pytest

from sqlcache.demo.servers import PrivateSqlServer, free_port
from sqlcache.errors import UpstreamError
from sqlcache.service.opening import connect_service


async def test_a_wrong_password_is_an_error_that_names_the_account_but_not_the_password(
    upstream: PrivateSqlServer,
) -> None:
    with pytest.raises(
        UpstreamError, match=r"'nobody', the account of upstream.url: .*Access denied"
    ) as caught:
        await connect_service(upstream.host, upstream.port, "nobody", "hunter2", 10)
    assert "hunter2" not in str(caught.value)


async def test_a_port_nobody_listens_on_is_an_error_that_names_it() -> None:
    port = free_port()
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
