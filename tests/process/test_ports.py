"""Who has the port: one sqlcache, or two generations of it while one takes over from the other."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import (
    NotStarted,
    PrivateMariaDB,
    PrivateMemcached,
    free_port,
    wait_until,
)
from sqlcache.errors import ConfigError
from sqlcache.process.ports import Port, open_sockets
from sqlcache.settings import HostPort
from tests.forked import ForkedSqlcache
from tests.process.test_workers import workers
from tests.processes import command_line
from tests.servers import PATIENT

HOST = "127.0.0.1"
ENDED = (1053, 2006, 2013)  # what a session is told that was idle at the end


class Generation(ForkedSqlcache):
    """A sqlcache at a port that a test chooses."""

    def __init__(self, *arguments: Any, number: int, admin: int, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.port, self.admin_port = number, admin

    def _take_ports(self) -> None:
        """They are given."""

    def start(self) -> Generation:
        self._launch()
        return self


Start = Callable[..., Generation]


@pytest.fixture
def start(tmp_path: Path, mariadb: PrivateMariaDB, memcached: PrivateMemcached) -> Iterator[Start]:
    """`start(workers=2, proxy__take_over=True)` is another sqlcache at one port."""
    number, admin = free_port(), free_port()
    made: list[Generation] = []

    def begin(workers: int = 1, *, in_memory: bool = False, **settings: Any) -> Generation:
        given = {**PATIENT, "proxy__workers": workers, **settings}
        folder = tmp_path / f"sqlcache-{len(made)}"
        nodes = ("memory" if in_memory else memcached.address,)
        made.append(
            Generation(folder, mariadb.service_url, nodes, number=number, admin=admin, **given)
        )
        return made[-1].start()

    yield begin
    codes = [each.stop() for each in made]
    logs = "\n".join(each.log_text() for each in made)
    assert "traceback" not in logs, logs
    assert not any(codes), logs


def has_the_door(server: Generation) -> bool:
    try:
        return bool(server.readiness()["ready"])
    except OSError:
        return False


class Clients:
    """Threads that connect, ask and leave, again and again; what went wrong is remembered."""

    def __init__(self, server: Generation, login: dict[str, Any], threads: int = 2) -> None:
        self._server = server
        self._login = login
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        self.served = 0
        self.ended = 0
        self.refused: list[BaseException] = []

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                # Without a SET of its own after the login, which could meet the session's end.
                connection: Any = self._server.connect(
                    **self._login, autocommit=None, read_timeout=30
                )
            except Exception as error:
                self.refused.append(error)
                continue
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
                self.served += 1
            except pymysql.MySQLError as error:
                self.ended += 1
                if error.args[0] not in ENDED:
                    self.refused.append(error)
            finally:
                connection._force_close()
            time.sleep(0.005)  # leaves the machine to the servers

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_a_second_one_at_the_port_is_refused_in_a_line(
    start: Start, first: int, second: int
) -> None:
    server = start(first)
    with pytest.raises(NotStarted, match="by another sqlcache; --take-over shares it") as refused:
        start(second)
    assert "ended with exit code 2" in str(refused.value)
    assert f"proxy.listen = {server.address}: cannot listen: " in str(refused.value)
    assert server.readiness()["ready"]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (True, True, "neither knows what is written through the other"),
        (False, True, "neither knows what is written through the other"),
        (True, False, "does not let this one take over"),
    ],
)
def test_nobody_takes_over_who_would_not_know_of_the_others_writes(
    start: Start, before: bool, after: bool, why: str
) -> None:
    server = start(in_memory=before)
    with pytest.raises(NotStarted, match=why) as refused:
        start(in_memory=after, proxy__take_over=True)
    assert "ended with exit code 2" in str(refused.value)
    assert server.readiness()["ready"]


@pytest.mark.parametrize("count", [1, 2])
def test_after_a_crash_it_starts_again_at_once(
    start: Start, mariadb: PrivateMariaDB, count: int
) -> None:
    """Sockets linger in TIME_WAIT, and workers see a moment later that their parent has gone."""
    server = start(count)
    account = {"user": mariadb.user, "password": mariadb.password}
    held: list[Any] = [server.connect(**account) for _ in range(4)]
    before = workers(server)
    server.kill()
    again = start(count)
    with again.connect(**account) as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT 1") == 1
    for connection in held:
        connection._force_close()
    wait_until(lambda: not any(map(command_line, before)), 20, "the workers' end")


@pytest.mark.parametrize(("first", "second"), [(2, 2), (1, 3), (3, 1)])
def test_no_client_is_refused_while_another_takes_over(
    start: Start, mariadb: PrivateMariaDB, first: int, second: int
) -> None:
    old = start(first)
    account = {"user": mariadb.user, "password": mariadb.password}
    with Clients(old, account) as clients:
        new = start(second, proxy__take_over=True)
        both = clients.served
        wait_until(lambda: clients.served > both + 100, 20, "clients of both")
        old.signal(signal.SIGTERM)
        wait_until(lambda: old.ended() is not None, 20, "the end of the old one")
        alone = clients.served
        wait_until(lambda: clients.served > alone + 100, 20, "clients of the new one")
    assert clients.refused == []
    assert old.ended() == 0
    wait_until(lambda: has_the_door(new), 60, "the admin door")
    assert new.metrics()["sqlcache_workers"] == second
    assert new.metrics()["sqlcache_connections_accepted_total"] > 100
    with pytest.raises(NotStarted, match="by another sqlcache"):
        start(second)


def test_there_may_be_generation_after_generation(start: Start, mariadb: PrivateMariaDB) -> None:
    account = {"user": mariadb.user, "password": mariadb.password}
    servers = [start()]
    with Clients(servers[0], account) as clients:
        for _ in range(3):
            servers.append(start(proxy__take_over=True))
            servers[-2].signal(signal.SIGTERM)
            wait_until(lambda: servers[-2].ended() == 0, 20, "the end of the one before")
            wait_until(lambda: has_the_door(servers[-1]), 60, "the admin door")
    assert clients.refused == []
    assert clients.served > 0


def test_who_takes_over_from_nobody_just_starts(start: Start) -> None:
    assert start(2, proxy__take_over=True).readiness()["ready"]


def test_heirs_that_do_not_survive_leave_nothing_open(start: Start) -> None:
    server = start()
    files = Path(f"/proc/{server.pid}/fd")
    before = len(list(files.iterdir()))
    for _ in range(50):
        with heir_at(server.port) as heir:
            take(heir)
    wait_until(lambda: len(list(files.iterdir())) <= before, 20, "the files to be closed")
    start(proxy__take_over=True)


def heir_at(port: int) -> socket.socket:
    """One that asks to be handed the sockets of that port."""
    heir = socket.socket(socket.AF_UNIX)
    heir.settimeout(20)
    heir.connect(f"\0sqlcache/{HOST}:{port}")
    return heir


def take(heir: socket.socket) -> None:
    """Is handed them, and closes them."""
    _, sockets, _, _ = socket.recv_fds(heir, 1, 10)
    for sock in sockets:
        os.close(sock)
    assert sockets


async def test_an_heir_for_whom_no_file_may_be_opened_waits_without_being_told_of_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[float] = []

    def accept(_: socket.socket) -> None:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    port = await Port.claim(HostPort(HOST, 0), take_over=False)
    port.sockets(0, of=1)
    try:
        with heir_at(port.address.port) as heir:
            with monkeypatch.context() as patched:
                patched.setattr(socket.socket, "accept", accept)
                while len(tries) < 4:
                    await asyncio.sleep(0.01)
            assert all(later - earlier > 0.05 for earlier, later in pairwise(tries))
            await asyncio.to_thread(take, heir)
    finally:
        port.close()


def test_connections_that_nobody_has_accepted_yet_are_served_by_the_next(
    start: Start, mariadb: PrivateMariaDB
) -> None:
    old = start()
    new = start(proxy__take_over=True)
    account = {"user": mariadb.user, "password": mariadb.password}
    for server in (old, new):
        server.freeze()
    waiting = []
    for _ in range(50):
        waiting.append(socket.create_connection((HOST, old.port)))
    old.kill()
    new.thaw()
    for each in waiting:
        each.settimeout(20)
        assert each.recv(5)[4] == 10, "MySQL's greeting"
        each.close()
    with new.connect(**account) as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT 1") == 1


# --- one part ---------------------------------------------------------------------------------


async def test_an_address_that_covers_anothers_is_refused() -> None:
    """The names differ, so it is the kernel that knows."""
    (listening,) = open_sockets(HostPort("0.0.0.0", 0))
    with closing(listening):
        listening.listen()
        number = listening.getsockname()[1]
        with pytest.raises(ConfigError, match="cannot listen: Address already in use"):
            await Port.claim(HostPort(HOST, number), take_over=True)


def test_of_a_name_that_means_no_address_the_resolver_says_why() -> None:
    with pytest.raises(socket.gaierror) as known:
        socket.getaddrinfo("no-such-host.invalid", 3307)
    with pytest.raises(ConfigError, match=f"cannot listen: {known.value.strerror}"):
        open_sockets(HostPort("no-such-host.invalid", 3307))


def test_which_address_of_a_name_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
    found = [(*kind, (host, 0)) for host in ("127.0.0.1", "192.0.2.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(ConfigError, match=r"= shop:3307: cannot listen at 192\.0\.2\.1: "):
        open_sockets(HostPort("shop", 3307))


async def test_who_is_about_to_leave_the_address_is_waited_for() -> None:
    """As the workers of a sqlcache that has been killed."""
    (leaving,) = open_sockets(HostPort(HOST, 0))
    leaving.listen()
    number = leaving.getsockname()[1]
    asyncio.get_running_loop().call_later(0.3, leaving.close)
    port = await Port.claim(HostPort(HOST, number), take_over=False)
    assert leaving.fileno() == -1
    port.close()


async def test_port_0_is_known_by_its_number() -> None:
    port = await Port.claim(HostPort(HOST, 0), take_over=False)
    assert port.address.port > 0
    with pytest.raises(ConfigError, match="another sqlcache"):
        await Port.claim(port.address, take_over=False)
    known = port.address
    port.close()
    again = await Port.claim(known, take_over=False)
    again.close()


async def test_ipv6_and_names_can_be_listened_at() -> None:
    for host in ("::1", "localhost"):
        port = await Port.claim(HostPort(host, 0), take_over=False)
        sockets = port.sockets(0, of=1)
        assert {each.getsockname()[1] for each in sockets} == {port.address.port}
        port.close()


async def test_what_a_process_had_is_closed_when_it_ends() -> None:
    port = await Port.claim(HostPort(HOST, 0), take_over=False)
    (sock,) = port.sockets(0, of=2)
    port.drop(0)
    assert sock.fileno() == -1
    (other,) = port.sockets(0, of=2)
    assert other.getsockname()[1] == port.address.port
    port.close()
    assert other.fileno() == -1


class Impostor:
    """Has the name of an address, as any process may, and hands over what it is given."""

    def __init__(self, address: HostPort, file: int, user: int | None = None) -> None:
        self._named, told = multiprocessing.Event(), (f"\0sqlcache/{address}", file, user)
        self._process = multiprocessing.get_context("fork").Process(target=self._run, args=told)

    def __enter__(self) -> None:
        self._process.start()
        assert self._named.wait(20)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def _run(self, name: str, file: int, user: int | None) -> None:
        if user is not None:
            os.setuid(user)
        with socket.socket(socket.AF_UNIX) as named:
            named.bind(name)
            named.listen()
            self._named.set()
            heir, _ = named.accept()
            socket.send_fds(heir, [b"."], [file])
            heir.recv(1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_nobody_takes_over_from_another_user() -> None:
    (theirs,) = open_sockets(HostPort(HOST, 0))
    with closing(theirs):
        address = HostPort(HOST, theirs.getsockname()[1])
        with (
            Impostor(address, theirs.fileno(), user=65534),
            pytest.raises(ConfigError, match=r"not let this one take over.*another user's"),
        ):
            await Port.claim(address, take_over=True)


@pytest.fixture(params=["at another address", "of another family", "no socket"])
def file(request: pytest.FixtureRequest) -> Iterator[int]:
    """A file's number."""
    if request.param == "no socket":
        with Path(os.devnull).open("rb") as opened:
            yield opened.fileno()
    else:
        families = {"at another address": socket.AF_INET, "of another family": socket.AF_UNIX}
        with closing(socket.socket(families[request.param])) as sock:
            if sock.family == socket.AF_INET:
                sock.bind((HOST, 0))
            yield sock.fileno()


async def test_nobody_takes_over_what_is_no_socket_at_the_address(file: int) -> None:
    address = HostPort(HOST, free_port())
    with Impostor(address, file), pytest.raises(ConfigError, match="not let this one take over"):
        await Port.claim(address, take_over=True)
