"""`sqlcache save` and `sqlcache load`: a cache that moves to another memcached, on real servers."""

from __future__ import annotations

import io
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from sqlcache.cache.keys import Keyspace
from sqlcache.cli import main
from sqlcache.demo.servers import PrivateMemcached, PrivateSqlServer, wait_until
from tests.integration.test_binlog import moody, own_server
from tests.integration.test_warm_start import (
    Fleet,
    check,
    fleet_on,
    hits_of_quiet,
    write_around,
)

__all__ = ["fleet_on", "moody", "own_server"]


# So that a busy machine is not taken for a node that is away.
PATIENTLY = {
    "SQLCACHE_MEMCACHED__TIMEOUT_S": "5",
    "SQLCACHE_MEMCACHED__CONNECT_TIMEOUT_S": "20",
    "SQLCACHE_MEMCACHED__OUTAGE_S": "8",
}


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[PrivateMemcached]:
    """Another memcached."""
    with PrivateMemcached(tmp_path / "empty") as server:
        yield server


def run(
    command: str, file: Path, upstream: PrivateSqlServer, node: PrivateMemcached, *more: str
) -> str:
    """What it says; its error, where it refuses."""
    flags = ["--upstream", upstream.service_url, "--memcached", node.address, "--binlog", "on"]
    said, complained = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(said),
        redirect_stderr(complained),
    ):
        patch.chdir(file.parent)
        for name, value in PATIENTLY.items():
            patch.setenv(name, value)
        code = main([command, str(file), *flags, *more])
    assert code == (2 if complained.getvalue() else 0)
    return said.getvalue() + complained.getvalue()


def stop(fleet: Fleet, node: PrivateMemcached) -> None:
    """Stops it; returns when that is known on the node."""
    fleet.stop()
    forget(node, Keyspace("sqlcache").roster(lapses=True))


def forget(node: PrivateMemcached, key: bytes) -> None:
    node.ask(b"delete %b\r\n" % key, b"\r\n")


class TestOnAnotherMemcached:
    def test_what_was_not_written_since_is_hit_and_nothing_is_stale(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        empty: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
        tmp_path: Path,
    ) -> None:
        fleet = fleet_on(memcached)
        file = tmp_path / "cache"
        assert "are at work" in run("save", file, own_server, memcached)
        assert not file.exists()
        stop(fleet, memcached)
        said = run("save", file, own_server, memcached)
        assert int(re.findall(r"(\d+) answers", said)[0]) >= 42
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        write_around(own_server)
        assert "is not empty" in run("load", file, own_server, memcached)
        assert "binlog.follow" in run("load", file, own_server, empty, "--binlog", "off")
        said = run("load", file, own_server, empty)
        assert int(re.findall(r"(\d+) answers", said)[0]) >= 42
        for each in fleet.both:
            each.nodes = (empty.address,)
        fleet.start()
        check(fleet)

    def test_who_does_not_follow_the_log_forgets_what_was_loaded(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        empty: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
        tmp_path: Path,
    ) -> None:
        fleet = fleet_on(memcached, size=1)
        stop(fleet, memcached)
        run("save", tmp_path / "cache", own_server, memcached)
        write_around(own_server)
        run("load", tmp_path / "cache", own_server, empty)
        (one,) = fleet.both
        one.nodes, one.settings = (empty.address,), {**one.settings, "binlog__follow": "off"}
        fleet.start()
        (client,) = fleet.clients()
        assert client.read("SELECT COUNT(*) FROM t") == ((1_002,),)
        assert hits_of_quiet(client) == 0

    def test_what_does_not_fit_is_refused_and_changes_nothing(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        empty: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
        tmp_path: Path,
    ) -> None:
        fleet = fleet_on(memcached, size=1)
        stop(fleet, memcached)
        file = tmp_path / "cache"
        run("save", file, own_server, memcached)
        whole = file.read_bytes()

        def refused(*more: str) -> str:
            said = run("load", file, own_server, empty, *more)
            assert empty.stats()["cmd_set"] == "0"
            return said

        file.write_bytes(whole[:-100])
        assert "not whole" in refused()
        file.write_bytes(whole[:500] + b"x" + whole[501:])
        assert "not whole" in refused()
        file.write_bytes(b"another")
        assert "none that this version" in refused()
        file.write_bytes(whole)
        settings = tmp_path / "other.toml"
        settings.write_text('[memcached]\nprefix = "other"\n')
        assert "prefix" in refused("--config", str(settings))
        settings.write_text("[cache]\nread_lease_ms = 1\n")
        assert "read_lease_ms" in refused("--config", str(settings))
        assert "expected the same" in refused("--memcached", memcached.address)
        time.sleep(1)
        mysql = own_server.name == "mysqld"
        own_server.sql("FLUSH BINARY LOGS")
        own_server.sql("RESET BINARY LOGS AND GTIDS" if mysql else "RESET MASTER")
        assert "no more of its log" in refused()

    def test_a_cache_that_followed_no_log_is_not_saved(
        self, own_server: PrivateSqlServer, memcached: PrivateMemcached, tmp_path: Path
    ) -> None:
        wait_until(memcached.answers, 20, "memcached")
        assert "no place" in run("save", tmp_path / "cache", own_server, memcached)
        assert list(tmp_path.glob("cache*")) == []
