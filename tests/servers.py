"""The servers tests run against: those of the demo, and MySQL itself.

MySQL comes from, in this order: the folder in SQLCACHE_TEST_MYSQL_DIR, the folder an earlier run
has filled (`~/.cache/sqlcache-tests/mysql`), a `mysqld` of MySQL 8 or later on PATH, and
`tests/fetch-mysql`, which fills that folder: before the tests, by `python -m tests.servers`. A
folder has `bin/mysqld` and perhaps `root/usr`, its base directory. Only its programs are used: the
data of a run are its own.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants.ER import NO_SUCH_THREAD

from sqlcache.demo.servers import NotStarted, PrivateSqlcache, PrivateSqlServer, wait_until

CACHE_DIR = Path.home() / ".cache" / "sqlcache-tests"
FETCH_SCRIPT = Path(__file__).with_name("fetch-mysql")
NO_MYSQL = "no MySQL server"

PATIENT: dict[str, Any] = {
    "memcached__timeout_s": 5,
    "memcached__outage_s": 8,
    "memcached__connect_timeout_s": 0.4,
    "memcached__reconnect_max_s": 0.1,
    "proxy__straight_path": "SQLCACHE_TEST_LONG_WAY" not in os.environ,
    "proxy__tls_auto": False,
    "binlog__follow": "off",
}
"""Settings of a sqlcache that takes the pauses of a busy machine for no outage, and does not wait
long for others to reach a memcached that has just been started. It offers no TLS: PyMySQL speaks it
wherever it is offered. It does not follow the binary log, which would forget once more what is
written directly, or before it began. With SQLCACHE_TEST_LONG_WAY set it serves nothing by its
plans."""


class MySQLMissing(Exception):
    """No MySQL server on this machine: says what would provide one."""


@dataclass(frozen=True, slots=True)
class MySQLInstallation:
    """Where a MySQL server's programs are, and a data directory to copy that is its own."""

    mysqld: Path
    base: Path | None
    pristine: Path

    @classmethod
    def find(cls) -> MySQLInstallation:
        """Raises: MySQLMissing."""
        if given := os.environ.get("SQLCACHE_TEST_MYSQL_DIR"):
            if (Path(given) / "bin" / "mysqld").exists():
                return cls._in_folder(Path(given))
            raise MySQLMissing(f"{NO_MYSQL}: SQLCACHE_TEST_MYSQL_DIR={given} has no bin/mysqld")
        fetched = CACHE_DIR / "mysql"
        if (fetched / "bin" / "mysqld").exists():
            return cls._in_folder(fetched)
        if found := _mysqld_on_path():
            return cls(found, None, CACHE_DIR / f"pristine-{_version(found)}")
        raise MySQLMissing(
            f"{NO_MYSQL}: run python -m tests.servers, set SQLCACHE_TEST_MYSQL_DIR to a folder with"
            " bin/mysqld, or put a mysqld of MySQL 8 or later on PATH"
        )

    @classmethod
    def _in_folder(cls, folder: Path) -> MySQLInstallation:
        base = folder / "root" / "usr"
        mysqld = folder / "bin" / "mysqld"
        pristine = CACHE_DIR / f"pristine-{_version(mysqld)}"
        return cls(mysqld, base if base.is_dir() else None, pristine)

    def command(self) -> list[str]:
        """The server with what it needs to find its own files and nothing of the machine's."""
        base = [f"--basedir={self.base}"] if self.base else []
        user = ["--user=root"] if os.geteuid() == 0 else []
        return [str(self.mysqld), "--no-defaults", *base, *user]

    def new_data(self, target: Path) -> None:
        """Makes a data directory: a copy of one initialised once per machine, which is slow."""
        with _lock("initialise"):
            if not self.pristine.exists():
                self._initialise()
        shutil.copytree(self.pristine, target)

    def _initialise(self) -> None:
        unfinished = self.pristine.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        small = "--innodb-redo-log-capacity=8M"  # all of it is copied
        result = subprocess.run(
            [*self.command(), f"--datadir={unfinished}", "--initialize-insecure", small],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise NotStarted(f"mysqld --initialize-insecure failed; it says:\n{result.stderr}")
        (unfinished / "auto.cnf").unlink(missing_ok=True)  # each copy is a server of its own
        unfinished.rename(self.pristine)


class PrivateMySQL(PrivateSqlServer):
    """MySQL with GTIDs and TLS on. Raises: MySQLMissing where the machine has none."""

    name = "mysqld"

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        super().__init__(folder, options)
        self.installation = MySQLInstallation.find()

    def initialise(self) -> None:
        self.installation.new_data(self.data)

    def command(self) -> list[str]:
        program, defaults, *rest = self.installation.command()
        own = [option for option in self.server_options() if option != defaults]
        gtid = ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
        # Nobody reads what it would measure; that is a third of a start. With less room for its
        # redo log, a write of some MB is mostly work of making room.
        lean = ["--mysqlx=OFF", "--performance-schema=OFF", "--innodb-redo-log-capacity=64M"]
        return [program, defaults, *rest, *lean, "--secure-file-priv=", *gtid, *own]


class Invalidating(PrivateSqlcache):
    """`sqlcache invalidate`."""

    def command(self) -> list[str]:
        made = super().command()
        listens = made.index("--listen")
        made = [*made[:listens], *made[listens + 2 :]]
        return ["invalidate" if each == "serve" else each for each in made]


def purge_log(server: PrivateSqlServer) -> None:
    """Has it forget its binary log, also what is not read yet. Whoever follows it is to stand still
    meanwhile."""
    end_streams(server)
    server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS")
    wait_until(lambda: _is_purged(server), 10, "a log that is purged")


def _is_purged(server: PrivateSqlServer) -> bool:
    """Whether it did, which MariaDB puts off until all is on disk."""
    last = server.sql("SHOW BINARY LOGS")[-1][0]
    server.sql(f"PURGE BINARY LOGS TO '{last}'")
    return len(server.sql("SHOW BINARY LOGS")) == 1


def end_streams(server: PrivateSqlServer) -> None:
    """Ends the connections on which its binary log is followed, also one that is begun meanwhile,
    by who takes the turn of a follower that stands still."""

    def are_ended() -> bool:
        streams = _streams(server)
        for number in streams:
            with suppress(pymysql.MySQLError):  # it has just ended
                server.sql(f"KILL {number}")
        return not streams

    wait_until(are_ended, 10, "streams that end")


def kill_sessions(server: PrivateSqlServer, user: str) -> None:
    """Ends all that the user has, but for those that end by themselves meanwhile."""
    listed = "SELECT id FROM information_schema.processlist WHERE command <> 'Killed' AND user ="
    for (number,) in server.sql(f"{listed} '{user}'"):
        try:
            server.sql(f"KILL {number}")
        except pymysql.MySQLError as error:
            if error.args[0] != NO_SUCH_THREAD:
                raise


def _streams(server: PrivateSqlServer) -> list[int]:
    return [row[0] for row in server.sql("SHOW PROCESSLIST") if "Binlog Dump" in str(row[4])]


def begins_log_anew(server: PrivateSqlServer) -> str:
    """What has it begin its binary log anew."""
    return "RESET BINARY LOGS AND GTIDS" if server.name == "mysqld" else "RESET MASTER"


def _mysqld_on_path() -> Path | None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = shutil.which("mysqld", path=path)
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    major = re.search(r"Ver (\d+)\.", said)
    suits = major is not None and int(major[1]) >= 8 and "mariadb" not in said.lower()
    return Path(found) if suits else None


@cache
def _version(mysqld: Path) -> str:
    said = subprocess.run(
        [str(mysqld), "--no-defaults", "--version"], capture_output=True, text=True, check=False
    ).stdout
    version = re.search(r"Ver (\S+)", said)
    return version[1] if version else "unknown"


def provide() -> MySQLInstallation:
    """The machine's MySQL, fetched first where there is none. Raises: MySQLMissing."""
    try:
        return MySQLInstallation.find()
    except MySQLMissing:
        if "SQLCACHE_TEST_MYSQL_DIR" in os.environ:
            raise
    folder = CACHE_DIR / "mysql"
    with _lock("fetch"):
        fetched = subprocess.run(
            [FETCH_SCRIPT, folder], stderr=subprocess.PIPE, text=True, check=False
        )
    if fetched.returncode:
        said = fetched.stderr.strip().splitlines() or ["it does not say why"]
        raise MySQLMissing(f"{NO_MYSQL}: {FETCH_SCRIPT.name} failed: {said[-1]}")
    return MySQLInstallation.find()


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """One process of this machine at a time: the tests run in several."""
    CACHE_DIR.mkdir(parents=True, exist_ok=True)
    with (CACHE_DIR / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        print(f"MySQL for the tests: {provide().mysqld}")
    except MySQLMissing as missing:
        print(f"tests that need MySQL will be skipped: {missing}")
