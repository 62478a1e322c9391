"""What a service manager hears, on a socket that is the test's."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from sqlcache.process.systemd import Systemd
from tests.process.test_workers import workers


class Manager:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(20)
        self.environment = {"NOTIFY_SOCKET": address.replace("\0", "@")}

    def hears(self) -> dict[str, str]:
        """The next message, by its variables."""
        lines = self.socket.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def hears_nothing(self, for_s: float) -> bool:
        self.socket.settimeout(for_s)
        try:
            self.socket.recv(4096)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20)
        return False


@pytest.fixture
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """At the address of a file, or at an abstract one."""
    name = str(tmp_path / "notify")
    heard = Manager(name if getattr(request, "param", "file") == "file" else f"\0{name}")
    yield heard
    heard.socket.close()


class Unit(PrivateSqlcache):
    """sqlcache as a unit with Type=notify starts it."""

    environment: dict[str, str]

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), **self.environment}


def unit(
    folder: Path, mariadb: PrivateMariaDB, memcached: PrivateMemcached, **environment: str
) -> Unit:
    settings: dict[str, Any] = {"proxy__workers": 2, "proxy__drain_timeout_s": 3}
    server = Unit(folder, mariadb.service_url, (memcached.address,), **settings)
    server.environment = environment
    return server


def test_nobody_is_told_where_nobody_asked() -> None:
    silent = Systemd({})
    silent.ready("x")
    silent.alive()
    silent.stopping(1)
    assert silent.watchdog_s is None


def test_a_manager_that_has_gone_is_no_error(tmp_path: Path) -> None:
    Systemd({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("x")


@pytest.mark.parametrize("manager", ["file", "abstract"], indirect=True)
def test_the_manager_hears_in_sd_notifys_words(manager: Manager) -> None:
    systemd = Systemd(manager.environment)
    systemd.ready("listening on a:1")
    assert manager.hears() == {"READY": "1", "STATUS": "listening on a:1"}
    systemd.alive()
    assert manager.hears() == {"WATCHDOG": "1"}
    systemd.stopping(2.5)
    assert manager.hears() == {
        "STOPPING": "1",
        "STATUS": "draining",
        "EXTEND_TIMEOUT_USEC": "2500000",
    }


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [("3000000", None, 3.0), ("3000000", "own", 3.0), ("3000000", "1", None), ("", None, None)],
)
def test_the_watchdog_is_for_the_process_it_names(
    usec: str, pid: str | None, seconds: float | None
) -> None:
    named = {} if pid is None else {"WATCHDOG_PID": str(os.getpid()) if pid == "own" else pid}
    assert Systemd({"WATCHDOG_USEC": usec, **named}).watchdog_s == seconds


def test_serve_tells_of_its_start_its_life_and_its_end(
    tmp_path: Path, manager: Manager, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    environment = {**manager.environment, "WATCHDOG_USEC": "1500000"}
    with unit(tmp_path / "unit", mariadb, memcached, **environment) as server:
        heard = manager.hears()
        assert heard == {"READY": "1", "STATUS": f"listening on {server.address}"}
        assert [manager.hears() for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
        server.stop()
        while "STOPPING" not in (heard := manager.hears()):
            assert heard == {"WATCHDOG": "1"}
        assert int(heard["EXTEND_TIMEOUT_USEC"]) > 3_000_000


def test_the_watchdog_is_not_fed_while_a_worker_is_stuck(
    tmp_path: Path, manager: Manager, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    environment = {**manager.environment, "WATCHDOG_USEC": "900000"}
    with unit(tmp_path / "unit", mariadb, memcached, **environment) as server:
        assert "READY" in manager.hears()
        stuck = min(workers(server))
        os.kill(stuck, signal.SIGSTOP)
        wait_until(
            lambda: "does not answer" in str(server.readiness()["problems"]), 60, "that it is stuck"
        )
        wait_until(lambda: manager.hears_nothing(2), 20, "silence")
        os.kill(stuck, signal.SIGCONT)
        assert manager.hears() == {"WATCHDOG": "1"}


def test_it_is_told_also_where_there_are_no_more_files_to_be_had(
    tmp_path: Path, manager: Manager, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    environment = {**manager.environment, "WATCHDOG_USEC": "900000"}
    with unit(tmp_path / "unit", mariadb, memcached, **environment) as server:
        assert "READY" in manager.hears()
        opened = {int(each.name) for each in Path(f"/proc/{server.pid}/fd").iterdir()}
        first_free = min(set(range(len(opened) + 1)) - opened)
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (first_free, hard))
        manager.hears()  # may have been on its way
        assert manager.hears() == {"WATCHDOG": "1"}
        server.signal(signal.SIGTERM)
        while "STOPPING" not in manager.hears():
            pass
        wait_until(lambda: server.ended() is not None, 20, "the end")
        assert server.ended() == 0
