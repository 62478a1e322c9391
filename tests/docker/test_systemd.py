"""The unit is what systemd takes, is closed as promised, and sqlcache can serve within it.

`python test_systemd.py COMMAND...` runs a command under the unit's system call filters.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sqlcache
from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    find_program,
    wait_until,
)
from sqlcache.process.workers import KILL_AFTER_S
from sqlcache.settings.sources import load
from tests import web
from tests.certificates import Authority

FOLDER = Path(__file__).parents[2] / "docker" / "systemd"
UNIT = Path(sqlcache.__file__).with_name("commands") / "sqlcache.service"
EXAMPLE = FOLDER / "sqlcache.toml"
PAGE = FOLDER.parents[1] / "docs" / "install.md"
WORST_EXPOSURE = 1.2
SPARE_FILES = 1000


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs systemd-analyze, which would tell a manager of its own end."""
    program = find_program("systemd-analyze", "systemd")
    own = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, env=own
    )


def given(key: str, addition: str = "") -> list[str]:
    """What the unit says of a key, once for each line."""
    lines = (line.partition("=") for line in (UNIT.read_text() + addition).splitlines())
    return [value for name, _, value in lines if name == key]


def documented_addition() -> str:
    """What the documents have operators add to the unit for secrets and certificates."""
    (block,) = re.findall(r"^  ```ini\n(.*?)^  ```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.sub("^  ", "", block, flags=re.MULTILINE)


def environment(credentials: Path, etc: Path, addition: str = "") -> dict[str, str]:
    """What sqlcache finds in its environment where the unit's folders are these."""
    text = "\n".join(given("Environment", addition))
    text = text.replace("%d", str(credentials)).replace("/etc/sqlcache", str(etc))
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a unit that is installed as the documents say."""
    credentials, etc = tmp_path / "credentials", tmp_path / "etc"
    for credential in given("LoadCredential"):
        name, source = credential.split(":")
        assert Path(source).parent == Path("/etc/sqlcache")
        credentials.mkdir(exist_ok=True)
        (credentials / name).write_text("secret\n")
    etc.mkdir()
    shutil.copy(EXAMPLE, etc)
    return environment(credentials, etc)


@pytest.mark.parametrize("addition", ["", documented_addition()], ids=["as it is", "with secrets"])
def test_systemd_takes_every_line_of_the_unit(addition: str, tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    text = UNIT.read_text() + addition
    unit.write_text(text.replace("/opt/sqlcache/bin/sqlcache", sys.executable))
    verified = analyze("verify", "--man=no", str(unit))
    assert (verified.stderr, verified.returncode) == ("", 0)


def test_the_unit_is_as_closed_as_the_documents_say() -> None:
    threshold = f"--threshold={round(10 * WORST_EXPOSURE)}"
    said = analyze("security", "--offline=true", threshold, str(UNIT))
    assert said.returncode == 0, said.stdout


def test_the_units_environment_and_the_example_are_settings(installed: dict[str, str]) -> None:
    settings, sources, *_ = load(environment=installed)
    assert settings.upstream.read_password() == "secret"
    assert set(installed) - set(sources.values()) == {"SQLCACHE_CONFIG"}
    assert settings.admin.listen is not None


def test_a_drain_ends_before_systemd_loses_patience(installed: dict[str, str]) -> None:
    (patience,) = given("TimeoutStopSec")
    drain_s = load(environment=installed).settings.proxy.drain_timeout_s
    assert float(patience) > drain_s + KILL_AFTER_S


def test_a_catalog_that_takes_long_to_read_is_no_start_that_failed() -> None:
    """It serves meanwhile. By default systemd would end that after 90 s, again and again."""
    assert given("TimeoutStartSec") == ["infinity"]


def test_every_client_it_admits_can_have_its_two_connections(installed: dict[str, str]) -> None:
    (files,) = given("LimitNOFILE")
    clients = load(environment=installed).settings.proxy.max_connections
    assert int(files) >= 2 * clients + SPARE_FILES


class Unit(PrivateSqlcache):
    """The unit's command in the unit's environment, under its system call filters."""

    environment: dict[str, str]
    manager: socket.socket
    workers = 1
    takes_over = False

    def command(self) -> list[str]:
        (command,) = given("ExecStart")
        _, *arguments = command.split()
        arguments += ["--take-over"] if self.takes_over else []
        return [sys.executable, __file__, sys.executable, "-m", "sqlcache", *arguments]

    def _environment(self) -> dict[str, str]:
        ours = {
            "SQLCACHE_LISTEN": self.address,
            "SQLCACHE_ADMIN": f"{self.host}:{self.admin_port}",
            "SQLCACHE_UPSTREAM": self.upstream_url,
            "SQLCACHE_MEMCACHED": ",".join(self.nodes),
            "SQLCACHE_WORKERS": str(self.workers),
        }
        return {**super()._environment(), **self.environment, **ours}


@pytest.fixture(params=[1, 2])
def confined(
    request: pytest.FixtureRequest,
    installed: dict[str, str],
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    tmp_path: Path,
) -> Iterator[Unit]:
    """sqlcache in one process, and in several."""
    password = Path(installed["SQLCACHE_UPSTREAM__PASSWORD_FILE"])
    password.write_text(mariadb.service_password + "\n")
    url = f"mysql://{mariadb.service_user}@{mariadb.address}"
    unit = Unit(tmp_path / "unit", url, (memcached.address,))
    unit.environment, unit.workers = installed, request.param
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unit.manager:
        unit.manager.settimeout(20)
        unit.manager.bind(str(tmp_path / "notify"))
        unit.environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        yield unit.start()
        assert unit.stop() == 0, unit.log_text()


def test_it_serves_from_within_the_units_filters(
    confined: Unit, mariadb: PrivateMariaDB, schema: str
) -> None:
    status = Path(f"/proc/{confined.pid}/status").read_text()
    assert "Seccomp:\t2" in status, "else this shows nothing"
    assert given("Type") == ["notify"]
    assert confined.manager.recv(4096).startswith(b"READY=1\n")
    well = {"ready": True, "problems": {}, "warnings": {}}
    wait_until(lambda: confined.readiness() == well, 60, "no warnings")
    mariadb.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (7)", schema)
    login = {"user": mariadb.user, "password": mariadb.password, "database": schema}

    def is_hit() -> bool:
        with confined.connect(**login) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM t")
            assert cursor.fetchall() == ((7,),)
        return confined.metrics()["sqlcache_hits_total"] == 1

    # The binary log may tell of the table after the first reads, and have them forgotten.
    wait_until(is_hit, 20, "a hit")


class Successor(Unit):
    """A second unit with the address of the first."""

    takes_over = True

    def __init__(self, folder: Path, first: Unit) -> None:
        super().__init__(folder, first.upstream_url, first.nodes)
        self.environment, self._first = first.environment, first

    def _take_ports(self) -> None:
        self.port, self.admin_port = self._first.port, self._first.admin_port


def test_another_unit_takes_over_from_within_the_filters(
    confined: Unit, mariadb: PrivateMariaDB, tmp_path: Path
) -> None:
    """As the same user, which the unit has by its name in whatever unit."""
    assert given("User") == ["sqlcache"]
    successor = Successor(tmp_path / "successor", confined)
    with successor:
        assert "another sqlcache takes over" in confined.log_text()
        assert confined.stop() == 0
        with successor.connect(user=mariadb.user, password=mariadb.password) as after:
            after.ping(reconnect=False)


def test_it_serves_with_the_secrets_that_systemd_hands_over(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, tmp_path: Path
) -> None:
    addition = documented_addition()
    authority = Authority(tmp_path / "authority")
    issued = authority.issue("db", "IP:127.0.0.1")
    texts = {
        "mysql-password": mariadb.service_password,
        "memcached-secret": "a secret of sqlcaches alone, of some length",
        "admin-token": "a-token-of-somebody",
        "tls-certificate": issued.certificate.read_text(),
        "tls-key": issued.key.read_text(),
    }
    credentials, etc = tmp_path / "credentials", tmp_path / "etc"
    credentials.mkdir()
    for credential in given("LoadCredential", addition):
        name, source = credential.split(":")
        assert source == f"/etc/sqlcache/{name}"
        (credentials / name).write_text(texts.pop(name) + "\n")
    assert texts == {}
    etc.mkdir()
    shutil.copy(EXAMPLE, etc)
    unit = Unit(
        tmp_path / "unit",
        f"mysql://{mariadb.service_user}@{mariadb.address}",
        (memcached.address,),
    )
    unit.environment = environment(credentials, etc, addition)
    login: dict[str, Any] = {"user": mariadb.user, "password": mariadb.password}
    with unit, unit.connect(**login, ssl_ca=str(authority.certificate)) as connection:
        connection.ping(reconnect=False)
        page = f"http://{unit.host}:{unit.admin_port}/api/settings"
        assert web.get(page).status_code == 401
        headers = {"Authorization": "Bearer a-token-of-somebody"}
        said = web.get(page, headers=headers)
        assert str(credentials / "memcached-secret") in said.text


def test_a_command_beside_the_unit_finds_the_password_in_the_example(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, tmp_path: Path
) -> None:
    (tmp_path / "mysql-password").write_text(mariadb.service_password + "\n")
    text = EXAMPLE.read_text().replace("/etc/sqlcache", str(tmp_path))
    text = text.replace("sqlcache@127.0.0.1:3306", f"{mariadb.service_user}@{mariadb.address}")
    config = tmp_path / EXAMPLE.name
    config.write_text(text.replace("127.0.0.1:11211", memcached.address))
    done = subprocess.run(
        [sys.executable, "-m", "sqlcache", "check-config", "--connect", "--config", config],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "mysql-password") in done.stdout


# As in seccomp.h and libseccomp's seccomp.h.
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_GREATER, _EQUAL, _MASKED_EQUAL = 6, 4, 7
_WRITE, _EXECUTE = 2, 4


class _Condition(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


class _Filter:
    """A filter of system calls; those without a rule get `default`."""

    def __init__(self, default: int) -> None:
        self._lib = ctypes.CDLL("libseccomp.so.2")
        self._lib.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._lib.seccomp_init(ctypes.c_uint32(default)))

    def rule(self, action: int, call: str, *conditions: _Condition) -> None:
        number = self._lib.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            return  # this architecture does not have it
        array = (_Condition * len(conditions))(*conditions)
        failed = self._lib.seccomp_rule_add_array(
            self._context, ctypes.c_uint32(action), number, len(conditions), array
        )
        assert failed == 0, (call, failed)

    def load(self) -> None:
        assert self._lib.seccomp_load(self._context) == 0


def _calls(group: str) -> set[str]:
    """A group of system calls, those of the groups in it among them."""
    lines = analyze("syscall-filter", group).stdout.split("\n")[1:]
    names = {line.strip() for line in lines if line.strip() and "#" not in line}
    assert names, group
    inner = {name for name in names if name.startswith("@")}
    return names - inner | {call for each in inner for call in _calls(each)}


def _filters() -> Iterator[_Filter]:
    """SystemCallFilter=, RestrictAddressFamilies= and MemoryDenyWriteExecute= of the unit."""
    allowed: set[str] = _calls("@default")
    for line in given("SystemCallFilter"):
        listed = {call for group in line.lstrip("~").split() for call in _calls(group)}
        allowed = allowed - listed if line.startswith("~") else allowed | listed
    (refusal,) = given("SystemCallErrorNumber")
    calls = _Filter(_ERRNO | getattr(errno, refusal))
    for call in allowed:
        calls.rule(_ALLOW, call)

    families = {
        getattr(socket, name) for text in given("RestrictAddressFamilies") for name in text.split()
    }
    sockets = _Filter(_ALLOW)
    for family in set(range(max(families))) - families:
        sockets.rule(_ERRNO | errno.EAFNOSUPPORT, "socket", _Condition(0, _EQUAL, family, 0))
    beyond = _Condition(0, _GREATER, max(families), 0)
    sockets.rule(_ERRNO | errno.EAFNOSUPPORT, "socket", beyond)

    memory = _Filter(_ALLOW)
    if given("MemoryDenyWriteExecute") == ["yes"]:
        both = _WRITE | _EXECUTE
        memory.rule(_ERRNO | errno.EPERM, "mmap", _Condition(2, _MASKED_EQUAL, both, both))
        for call in ("mprotect", "pkey_mprotect"):
            gains = _Condition(2, _MASKED_EQUAL, _EXECUTE, _EXECUTE)
            memory.rule(_ERRNO | errno.EPERM, call, gains)
    yield from (memory, sockets, calls)


if __name__ == "__main__":
    for each in list(_filters()):
        each.load()
    os.execv(sys.argv[1], sys.argv[1:])
