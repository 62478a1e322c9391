"""`sqlcache healthcheck` beside a sqlcache, and beside what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlcache.cli import main
from sqlcache.commands import healthcheck
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, free_port
from sqlcache.settings.sources import load
from tests.conftest import ProxyFactory

UPSTREAM = "mysql://cat@127.0.0.1:1"


def check(admin: str | None) -> int:
    flags = {"upstream": UPSTREAM, "memcached": ["memory"], "admin": admin}
    return healthcheck.run(load(None, {}, flags).settings)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_it_follows_mysqls_coming_and_going(
    host: str,
    tmp_path: Path,
    proxy: ProxyFactory,
    memcached: PrivateMemcached,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with PrivateMariaDB(tmp_path / "mortal") as mortal:
        server = proxy(mortal, memcached)
        admin = f"{host}:{server.admin_port}"
        assert check(admin) == 0
        assert capsys.readouterr().out == "ready\n"
        mortal.kill()
        assert check(admin) == 1
        said = capsys.readouterr().out
        assert said.startswith("not ready: upstream: ")
        assert said.count("\n") == 1


def test_what_is_merely_wrong_is_said_and_no_failure(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    memcached.stop()
    server = proxy(mariadb, memcached, memcached__outage_s=2)
    assert check(f"127.0.0.1:{server.admin_port}") == 0
    expected = f"ready, but memcached {memcached.address}: is away, or not trusted yet\n"
    assert capsys.readouterr().out == expected


def test_nobody_there_is_1_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"127.0.0.1:{free_port()}") == 1
    assert capsys.readouterr().out.startswith("not ready: nobody answers at 127.0.0.1:")


def test_another_server_there_is_1_with_a_sentence(
    memcached: PrivateMemcached, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(memcached.address) == 1
    assert capsys.readouterr().out.endswith("is no sqlcache\n")


def test_without_an_admin_address_the_setting_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["healthcheck", "--upstream", UPSTREAM, "--memcached", "memory"]) == 2
    assert "admin.listen" in capsys.readouterr().err
