"""What becomes of a `sqlcache serve` that cannot start, or is told something before it has."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from sqlcache.admin.http import AdminServer
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, wait_until
from sqlcache.errors import NotNow
from sqlcache.process import serving
from sqlcache.settings.sources import from_arguments
from tests.conftest import ProxyFactory
from tests.processes import workers_of


async def test_nobody_is_let_in_where_the_admin_address_is_not_to_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    class App:
        """What serves, of which only who is let in matters."""

        cut = None

        async def stop(self) -> None:
            events.append("stop")

    async def listen() -> None:
        events.append("listen")

    app: Any = App()
    monkeypatch.setattr(serving, "_admin", lambda address, *_: AdminServer(address, Starlette()))
    signals = serving._Signals()
    monkeypatch.setattr(signals, "ignore", lambda: None)
    here = {"upstream.url": "mysql://cat@127.0.0.1:1", "memcached.nodes": ["memory"]}
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        settings = from_arguments({**here, "admin.listen": address})
        with pytest.raises(NotNow, match=rf"admin\.listen = {address}: cannot listen"):
            await serving._run(app, listen, "", settings, lambda: settings, None, signals)
    assert events == ["stop"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(number)


def started_with(folder: Path, *options: str, count: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sqlcache", "serve", "--upstream", "mysql://cat@127.0.0.1:1"]
    command += ["--memcached", "127.0.0.1:1", "--workers", str(count), *options]
    file = folder / "sqlcache.toml"
    file.write_text("[proxy]\ntls_auto = false\n")
    return subprocess.Popen(
        [*command, "--config", str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
@pytest.mark.parametrize("door", ["--listen", "--admin"])
def test_where_an_address_is_not_there_yet_another_try_may_help(
    tmp_path: Path, door: str, host: str
) -> None:
    with started_with(tmp_path, "--listen", "127.0.0.1:0", door, f"{host}:3307") as server:
        _, said = server.communicate(timeout=60)
    assert (server.returncode, "cannot listen: " in said) == (1, True), said


def test_and_where_an_orphan_has_it(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as orphan:
        address = f"127.0.0.1:{orphan.getsockname()[1]}"
        with started_with(tmp_path, "--listen", address) as server:
            _, said = server.communicate(timeout=60)
    assert (server.returncode, "Address already in use" in said) == (1, True), said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("count", [1, 2])
def test_a_signal_before_the_address_is_had_ends_it(
    tmp_path: Path, number: signal.Signals, count: int
) -> None:
    with waiting_for_its_address(tmp_path, count) as (server, _):
        server.send_signal(number)
        _, said = server.communicate(timeout=60)
    assert (server.returncode, said) == (0, "")


@pytest.mark.parametrize("count", [1, 2])
def test_a_reload_that_is_asked_for_so_early_comes_when_it_is_ready(
    tmp_path: Path, count: int
) -> None:
    with waiting_for_its_address(tmp_path, count) as (server, orphan):
        server.send_signal(signal.SIGHUP)
        orphan.close()
        assert server.stderr is not None
        assert any("settings reloaded" in line for line in server.stderr)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


@contextmanager
def waiting_for_its_address(
    folder: Path, count: int
) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """One that begins, and who has the address yet."""

    def catches() -> bool:
        (caught,) = re.findall(r"SigCgt:\t(\w+)", Path(f"/proc/{server.pid}/status").read_text())
        wanted = 1 << signal.SIGHUP - 1 | 1 << signal.SIGTERM - 1
        return int(caught, 16) & wanted == wanted

    with closing(socket.create_server(("127.0.0.1", 0))) as orphan:
        address = f"127.0.0.1:{orphan.getsockname()[1]}"
        with started_with(folder, "--listen", address, count=count) as server:
            try:
                wait_until(catches, 60, "the start")
                yield server, orphan
            finally:
                server.kill()


def test_and_where_a_worker_dies_at_its_start(tmp_path: Path) -> None:
    with started_with(tmp_path, "--listen", "127.0.0.1:0", count=2) as server:
        wait_until(lambda: len(workers_of(server.pid)) == 2, 60, "workers")
        os.kill(min(workers_of(server.pid)), signal.SIGKILL)
        _, said = server.communicate(timeout=60)
    assert (server.returncode, "with exit code -9 at its start" in said) == (1, True), said


def test_and_where_those_at_work_have_another_list_of_nodes(
    tmp_path: Path, proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    proxy(mariadb, memcached)
    nodes = "--listen", "127.0.0.1:0", "--memcached", memcached.address
    with started_with(tmp_path, *nodes) as server:
        _, said = server.communicate(timeout=60)
    assert (server.returncode, "another list, seen on" in said) == (1, True), said


def test_where_memcached_compares_nothing_none_will(tmp_path: Path) -> None:
    with PrivateMemcached(tmp_path / "memcached", options=("-C",)) as memcached:
        nodes = "--listen", "127.0.0.1:0", "--memcached", memcached.address
        with started_with(tmp_path, *nodes) as server:
            _, said = server.communicate(timeout=60)
    expected = f"memcached.nodes: {memcached.address} runs with -C"
    assert (server.returncode, expected in said) == (2, True), said


def test_a_memcached_that_is_started_anew_so_is_told_of(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    server = proxy(mariadb, memcached)
    memcached.kill()
    memcached.options = ("-C",)
    memcached.restart()
    told = f'"memcached node runs with -C" node={memcached.address}'
    wait_until(lambda: told in server.log_text(), 30, "a line in the log")


@pytest.mark.parametrize("count", [1, 2])
def test_where_a_file_is_of_no_use_none_will(tmp_path: Path, count: int) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text("none")
    given = "--listen", "127.0.0.1:0", "--tls-certificate", str(file), "--tls-key", str(file)
    with started_with(tmp_path, *given, count=count) as server:
        _, said = server.communicate(timeout=60)
    assert (server.returncode, "expected a PEM certificate" in said) == (2, True), said
    assert "traceback" not in said
