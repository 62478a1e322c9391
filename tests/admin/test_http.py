import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress

import h11
import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sqlcache.admin import http
from sqlcache.admin.http import AdminServer
from sqlcache.errors import ConfigError
from sqlcache.settings import HostPort
from tests.turns import counted_turns

ANYWHERE = HostPort("127.0.0.1", 0)


async def live(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def slow(request: Request) -> Response:
    await asyncio.sleep(0)
    return JSONResponse({"slow": True})


async def reads(request: Request) -> Response:
    try:
        await request.body()
    except ClientDisconnect:
        return PlainTextResponse("nobody hears this\n")
    return PlainTextResponse("read\n")


PAGES = Starlette(
    routes=[Route("/live", live), Route("/slow", slow), Route("/reads", reads, methods=["POST"])]
)


@pytest.fixture
async def server() -> AsyncIterator[AdminServer]:
    server = AdminServer(ANYWHERE, PAGES)
    await server.start()
    yield server
    await server.stop()


class Client:
    """One connection that sends raw bytes and reads whole answers with h11."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, server: AdminServer) -> "Client":
        return cls(*await asyncio.open_connection(server.address.host, server.address.port))

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def send_for_ever(self, raw: bytes) -> None:
        while True:
            await self.send(raw)
            await asyncio.sleep(0)

    async def read(self, method: str = "GET") -> tuple[h11.Response, bytes]:
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        http.send(h11.EndOfMessage())
        head, body = None, b""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                # A byte at a time: what belongs to the next answer stays unread.
                http.receive_data(await self.reader.read(1))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                assert isinstance(event, h11.EndOfMessage)
                assert head is not None
                return head, body

    async def ask(self, raw: bytes) -> tuple[int, bytes]:
        await self.send(raw)
        head, body = await self.read()
        return head.status_code, body

    async def is_closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(1), 5) == b""


def get(path: str, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


async def test_live_says_ok(server: AdminServer) -> None:
    client = await Client.connect(server)
    assert await client.ask(get("/live")) == (200, b"ok\n")


async def test_a_page_may_be_a_coroutine(server: AdminServer) -> None:
    client = await Client.connect(server)
    assert await client.ask(get("/slow?x=1")) == (200, b'{"slow":true}')


async def test_one_connection_serves_many_requests_also_pipelined(server: AdminServer) -> None:
    client = await Client.connect(server)
    await client.send(get("/live") * 3)
    for _ in range(3):
        head, body = await client.read()
        assert (head.status_code, body) == (200, b"ok\n")
    assert await client.ask(get("/live")) == (200, b"ok\n")


async def test_a_request_may_arrive_byte_by_byte(server: AdminServer) -> None:
    client = await Client.connect(server)
    for byte in get("/live"):
        await client.send(bytes([byte]))
    head, _ = await client.read()
    assert head.status_code == 200


async def test_an_unknown_path_is_404_and_the_connection_stays(server: AdminServer) -> None:
    client = await Client.connect(server)
    status, _ = await client.ask(get("/nothing"))
    assert status == 404
    assert await client.ask(get("/live")) == (200, b"ok\n")


async def test_a_post_is_405_names_what_is_allowed_and_its_body_is_passed_over(
    server: AdminServer,
) -> None:
    client = await Client.connect(server)
    await client.send(get("/live", "POST", "Content-Length: 1000000\r\n"))
    head, _ = await client.read()
    assert head.status_code == 405
    assert set(dict(head.headers)[b"allow"].split(b", ")) == {b"GET", b"HEAD"}
    await client.send(b"x" * 1_000_000)
    assert await client.ask(get("/live")) == (200, b"ok\n")


async def test_a_head_request_gets_the_head_only(server: AdminServer) -> None:
    client = await Client.connect(server)
    await client.send(get("/live", "HEAD"))
    head, body = await client.read("HEAD")
    assert (b"content-length", b"3") in head.headers
    assert body == b""
    assert await client.ask(get("/live")) == (200, b"ok\n")


async def test_a_client_that_wants_the_connection_closed_gets_it_closed(
    server: AdminServer,
) -> None:
    for raw in (get("/live", more="Connection: close\r\n"), b"GET /live HTTP/1.0\r\n\r\n"):
        client = await Client.connect(server)
        assert await client.ask(raw) == (200, b"ok\n")
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nHost: x\r\nX: " + b"a" * http.MAX_HEAD_BYTES, 400),
        (b"GET /live HTTP/1.1\r\nHost: x\r\n" + b"X:\r\n" * http.MAX_HEAD_LINES, 400),
    ],
)
async def test_a_bad_request_is_refused_and_ends_its_connection_only(
    server: AdminServer, raw: bytes, status: int
) -> None:
    bad, good = await Client.connect(server), await Client.connect(server)
    answer, _ = await bad.ask(raw)
    assert answer == status
    assert await bad.is_closed()
    assert await good.ask(get("/live")) == (200, b"ok\n")


CHUNKED = "Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("request_", "more"),
    [
        (get("/live", "POST", CHUNKED) + b"zz\r\n", b""),
        (get("/live", "POST", CHUNKED) + b"5\r\nab", b"zz\r\n\r\n"),
        (get("/slow", "POST", CHUNKED) + b"0\r\nx", b"\r\n\r\n"),
        (get("/live", "POST", CHUNKED) + b"0\r\n" + b"X:\r\n" * 101, b""),
        (get("/reads", "POST", CHUNKED) + b"0\r\n" + b"X:\r\n" * 101, b""),
        (get("/reads", "POST", CHUNKED) + b"5\r\nab", b"zz\r\n\r\n"),
        (get("/reads", "POST", "Content-Length: 3\r\n" + CHUNKED), b"zz\r\n"),
    ],
)
async def test_a_body_that_is_none_ends_its_connection_and_is_nothing_to_log(
    server: AdminServer, caplog: pytest.LogCaptureFixture, request_: bytes, more: bytes
) -> None:
    bad, good = await Client.connect(server), await Client.connect(server)
    await bad.send(request_)
    if more:
        await asyncio.sleep(0.05)  # its page has begun, or answered
        await bad.send(more)
    async with asyncio.timeout(5):
        with suppress(ConnectionError):
            while await bad.reader.read(1000):
                pass
    assert await good.ask(get("/live")) == (200, b"ok\n")
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_body_of_small_chunks_leaves_others_their_turns(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    body = b"1\r\na\r\n" * 50_000 + b"0\r\n\r\n"

    async def scenario() -> None:
        server = AdminServer(ANYWHERE, PAGES)
        await server.start()
        client = await Client.connect(server)
        with counted_turns() as turns:
            await client.send(get("/live", "POST", CHUNKED) + body)
            await client.read()
            assert await client.ask(get("/live")) == (200, b"ok\n")  # all of it is read
            assert turns.count > len(body) // 4096
        await server.stop()

    run(scenario())


async def test_a_body_may_come_faster_than_its_page_reads(server: AdminServer) -> None:
    client = await Client.connect(server)
    await client.send(get("/reads", "POST", "Content-Length: 1000000\r\n") + bytes(1_000_000))
    head, body = await client.read()
    assert (head.status_code, body) == (200, b"read\n")
    assert await client.ask(get("/live")) == (200, b"ok\n")


@pytest.mark.parametrize("path", ["/live", "/reads"])
async def test_a_body_without_an_end_ends_its_connection(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(http, "MAX_REQUEST_BYTES", 20_000)
    endless, good = await Client.connect(server), await Client.connect(server)
    await endless.send(get(path, "POST", CHUNKED))
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(endless.send_for_ever(b"400\r\n" + bytes(1024) + b"\r\n"), 20)
    for _ in range(3):  # together they are past the bound
        await good.send(get("/live", "POST", "Content-Length: 9000\r\n") + bytes(9000))
        head, _body = await good.read()
        assert head.status_code == 405


async def test_an_idle_connection_is_closed(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "IDLE_TIMEOUT_S", 0.02)
    client = await Client.connect(server)
    await client.send(b"GET /li")
    assert await client.is_closed()


async def test_past_the_limit_who_has_been_idle_for_longest_is_closed(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    busy, silent, asked = [await Client.connect(server) for _ in range(3)]
    assert await busy.ask(get("/live")) == (200, b"ok\n")
    assert await asked.ask(get("/live")) == (200, b"ok\n")
    last = await Client.connect(server)
    assert await silent.is_closed()
    for each in (last, asked, busy):
        assert await each.ask(get("/live")) == (200, b"ok\n")


async def test_of_many_who_come_at_once_none_is_past_the_limit(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    address = (server.address.host, server.address.port)
    came = [socket.create_connection(address) for _ in range(20)]  # the loop takes them in one turn
    open_ = [Client(*await asyncio.open_connection(sock=each)) for each in came]
    reading = {asyncio.create_task(each.reader.read(1)) for each in open_}
    async with asyncio.timeout(60):
        while sum(not each.done() for each in reading) > 3:
            await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            reading = {each for each in reading if not each.done()}
    assert len(reading) == 3
    for each in reading:
        each.cancel()


async def test_past_the_limit_who_is_being_answered_is_not_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def page(request: Request) -> Response:
        asked.set()
        await may_answer.wait()
        return PlainTextResponse("ok\n")

    server = AdminServer(ANYWHERE, Starlette(routes=[Route("/page", page)]))
    await server.start()
    first = await Client.connect(server)
    answer = asyncio.create_task(first.ask(get("/page")))
    await asked.wait()
    assert await (await Client.connect(server)).is_closed()
    may_answer.set()
    assert await answer == (200, b"ok\n")
    await server.stop()


async def test_past_the_limit_who_has_asked_for_more_before_its_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    begun, may_answer = asyncio.Semaphore(0), asyncio.Event()

    async def page(request: Request) -> Response:
        begun.release()
        await may_answer.wait()
        return PlainTextResponse("ok\n")

    server = AdminServer(ANYWHERE, Starlette(routes=[Route("/live", live), Route("/page", page)]))
    await server.start()
    first, second = [await Client.connect(server) for _ in range(2)]
    for each in (first, second):
        await each.send(get("/page") * 2)
        await begun.acquire()
    probe = await Client.connect(server)
    assert await probe.ask(get("/live")) == (200, b"ok\n")
    assert await first.is_closed()
    may_answer.set()
    for _ in range(2):
        head, _body = await second.read()
        assert head.status_code == 200
    await server.stop()


async def test_past_the_limit_who_does_not_read_its_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(http, "IDLE_TIMEOUT_S", 600.0)
    begun = asyncio.Semaphore(0)

    async def endless() -> AsyncIterator[bytes]:
        begun.release()
        while True:
            yield bytes(65_536)
            await asyncio.sleep(0)

    async def page(request: Request) -> Response:
        return StreamingResponse(endless())

    server = AdminServer(ANYWHERE, Starlette(routes=[Route("/live", live), Route("/page", page)]))
    await server.start()
    silent = [await Client.connect(server) for _ in range(3)]
    for each in silent:
        await each.send(get("/page"))
        await begun.acquire()
    answer = b""
    async with asyncio.timeout(60):
        while not answer:  # all there is room for on its way is sent before one waits
            probe = await Client.connect(server)
            with suppress(ConnectionError):
                await probe.send(get("/live"))
                answer = await probe.reader.read(15)
            probe.writer.close()
    assert answer == b"HTTP/1.1 200 OK"
    await server.stop()


async def test_past_the_limit_who_does_not_send_its_body_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    begun = asyncio.Semaphore(0)

    async def page(request: Request) -> Response:
        begun.release()
        return await reads(request)

    post = Route("/page", page, methods=["POST"])
    server = AdminServer(ANYWHERE, Starlette(routes=[Route("/live", live), post]))
    await server.start()
    first, second = [await Client.connect(server) for _ in range(2)]
    for each in (first, second):
        await each.send(get("/page", "POST", "Content-Length: 2\r\n"))
        await begun.acquire()
    probe = await Client.connect(server)
    assert await probe.ask(get("/live")) == (200, b"ok\n")
    assert await first.is_closed()
    assert await second.ask(b"ab") == (200, b"read\n")
    await server.stop()


async def test_stopping_ends_open_connections(server: AdminServer) -> None:
    client = await Client.connect(server)
    assert await client.ask(get("/live")) == (200, b"ok\n")
    await server.stop()
    assert await client.is_closed()


async def test_an_address_in_use_is_a_setting_that_is_wrong(server: AdminServer) -> None:
    other = AdminServer(server.address, PAGES)
    with pytest.raises(ConfigError, match=r"admin\.listen = 127\.0\.0\.1:\d+: cannot listen"):
        await other.start()


async def test_who_connects_before_the_start_is_answered_then() -> None:
    server = AdminServer(ANYWHERE, PAGES)
    await server.bind()
    client = await Client.connect(server)
    await client.send(get("/live"))
    await server.start()
    head, body = await client.read()
    assert (head.status_code, body) == (200, b"ok\n")
    await server.stop()


async def test_an_address_that_was_never_answered_at_is_given_up() -> None:
    server = AdminServer(ANYWHERE, PAGES)
    await server.bind()
    address = server.address
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(address.host, address.port)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that each name means."""
    hosts: list[str] = []
    kind = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""

    def look_up(name: str, port: int, *_: object, **__: object) -> list[object]:
        return [(*kind, (host, port)) for host in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return hosts


async def test_it_listens_at_all_addresses_of_a_name_that_the_machine_has(found: list[str]) -> None:
    found += ["192.0.2.1", "127.0.0.1", "127.0.0.2"]
    server = AdminServer(HostPort("door", 0), PAGES)
    await server.start()
    port = server.address.port
    for host in ("127.0.0.1", "127.0.0.2"):
        found[:] = [host]
        client = Client(*await asyncio.open_connection(host, port))
        assert await client.ask(get("/live")) == (200, b"ok\n")
    await server.stop()


async def test_which_address_of_a_name_cannot_be_had_is_said(
    server: AdminServer, found: list[str]
) -> None:
    for hosts in (["192.0.2.1"], ["127.0.0.2", "127.0.0.1"]):
        found[:] = hosts
        other = AdminServer(HostPort("door", server.address.port), PAGES)
        with pytest.raises(ConfigError, match=rf"door:\d+: cannot listen at {hosts[-1]}: "):
            await other.start()
    with socket.socket() as free:
        free.bind(("127.0.0.2", server.address.port))  # it is given up again
