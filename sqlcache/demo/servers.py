"""Private servers for the demo and the tests: MySQL's kind, memcached and sqlcache itself, each as
`private_server` has it."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pymysql
from pymysql.constants import CLIENT

from sqlcache.demo.private_server import (
    HOST,
    NotStarted,
    PrivateServer,
    Process,
    find_program,
    free_port,
    wait_until,
)
from sqlcache.implementation import VARIABLE

__all__ = [
    "HOST",
    "NotStarted",
    "PrivateMariaDB",
    "PrivateMemcached",
    "PrivateServer",
    "PrivateSqlServer",
    "PrivateSqlcache",
    "Process",
    "find_program",
    "free_port",
    "wait_until",
]

_PATIENCE_S = 20.0


class PrivateSqlServer(PrivateServer):
    """A MySQL or MariaDB server: row binlog, LOCAL INFILE, flushing relaxed for speed.

    `root` has no password. `user` may do everything; `service_url` is the account for sqlcache
    itself, which reads the catalog and the binlog and can write nothing.
    """

    user = "app"
    service_user = "sqlcache"

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self.options = options
        self.data = folder / "data"
        self.socket = folder / "mysql.sock"
        self.password = secrets.token_urlsafe(9)
        self.service_password = secrets.token_urlsafe(9)
        self._accounts_made = False

    @abstractmethod
    def initialise(self) -> None:
        """Fills `self.data`, once, before the first start."""

    def start(self) -> Self:
        if not self.data.exists():
            self.initialise()
        super().start()
        if not self._accounts_made:
            self._make_accounts()
        return self

    @property
    def service_url(self) -> str:
        """What `--upstream` takes."""
        password = quote(self.service_password, safe="")
        return f"mysql://{self.service_user}:{password}@{self.address}"

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """A PyMySQL connection over TCP as `user`; the caller closes it."""
        login = {"user": self.user, "password": self.password, "autocommit": True}
        return pymysql.connect(host=self.host, port=self.port, **{**login, **options})

    def sql(self, text: str, database: str | None = None) -> tuple[tuple[Any, ...], ...]:
        """Runs statements (`;` between them) as root; returns the last one's rows."""
        connection = self._root(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(text)
                rows = cursor.fetchall()
                while cursor.nextset():
                    rows = cursor.fetchall()
                return tuple(rows or ())
        finally:
            connection.close()

    def status(self, name: str) -> int:
        """A counter of `SHOW GLOBAL STATUS`, such as `Com_select`; reading it adds to none."""
        rows = self.sql(f"SHOW GLOBAL STATUS LIKE '{name}'")
        if not rows:
            raise LookupError(f"{self.name} has no status variable {name}")
        return int(rows[0][1])

    def answers(self) -> bool:
        if not self.socket.exists():
            return False
        try:
            rows = self.sql("SELECT @@port")
        except pymysql.MySQLError:
            return False
        return rows == ((self.port,),)

    def server_options(self) -> list[str]:
        """What both servers understand, for `self.port`."""
        return [
            "--no-defaults",
            *(["--user=root"] if os.geteuid() == 0 else []),
            f"--datadir={self.data}",
            # Not /tmp: there each MariaDB that starts removes the temporary tables of all others.
            f"--tmpdir={self.folder}",
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'mysqld.pid'}",
            f"--bind-address={HOST}",
            f"--port={self.port}",
            "--server-id=1",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--sync-binlog=0",
            # Not 0: what was committed is to outlive a process that is killed.
            "--innodb-flush-log-at-trx-commit=2",
            # Each definition would wait for the disk, which nothing here has to outlive.
            "--loose-innodb-flush-method=nosync",
            "--local-infile=ON",
            *self.options,
        ]

    def _root(self, database: str | None) -> pymysql.Connection[Any]:
        return pymysql.connect(
            unix_socket=str(self.socket),
            user="root",
            database=database,
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
            ssl_disabled=True,  # nobody listens on the socket, and a handshake is most of a query
        )

    def _make_accounts(self) -> None:
        self.sql(
            f"CREATE USER '{self.user}'@'%' IDENTIFIED BY '{self.password}';"
            f"GRANT ALL ON *.* TO '{self.user}'@'%' WITH GRANT OPTION;"
            f"CREATE USER '{self.service_user}'@'%' IDENTIFIED BY '{self.service_password}';"
            "GRANT SELECT, SHOW VIEW, TRIGGER, EXECUTE, REPLICATION CLIENT, REPLICATION SLAVE"
            f" ON *.* TO '{self.service_user}'@'%'"
        )
        self._accounts_made = True


class PrivateMariaDB(PrivateSqlServer):
    """The installed mariadb-server-core package's server."""

    name = "mariadbd"

    def initialise(self) -> None:
        result = subprocess.run(
            [
                find_program("mariadb-install-db", "mariadb-server-core"),
                "--no-defaults",
                f"--user={getpass.getuser()}",
                f"--datadir={self.data}",
                f"--tmpdir={self.folder}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
                "--force",  # also where the machine cannot look up its own name
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            shutil.rmtree(self.data, ignore_errors=True)
            output = result.stdout + result.stderr
            raise NotStarted(f"mariadb-install-db failed; it says:\n{output[-2000:]}")

    def command(self) -> list[str]:
        return [find_program("mariadbd", "mariadb-server-core"), *self.server_options()]


class PrivateMemcached(PrivateServer):
    """The installed memcached, with UDP off."""

    name = "memcached"

    def __init__(self, folder: Path, memory_mb: int = 64, options: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self.memory_mb = memory_mb
        self.options = options

    def command(self) -> list[str]:
        return [
            find_program("memcached", "memcached"),
            *(["-u", "root"] if os.geteuid() == 0 else []),
            "-l",
            HOST,
            "-p",
            str(self.port),
            "-U",
            "0",
            "-m",
            str(self.memory_mb),
            *self.options,
        ]

    def stop(self) -> int:
        """Ends it at once: it has nothing to save, and its own way out takes a second."""
        self.kill()
        return 0

    def answers(self) -> bool:
        try:
            return self.stats().get("pid") == str(self.pid)
        except OSError:
            return False

    def stats(self) -> dict[str, str]:
        """The server's `stats`. Raises: OSError where it does not answer."""
        lines = self.ask(b"stats\r\n", b"END\r\n").decode("ascii").splitlines()
        return dict(line.split(" ", 2)[1:] for line in lines if line.startswith("STAT "))

    def flush(self) -> None:
        """Makes it forget everything, as after a restart."""
        self.ask(b"flush_all\r\n", b"OK\r\n")

    def ask(self, request: bytes, end: bytes) -> bytes:
        """Sends a request of the text protocol and returns the answer, which ends with `end`."""
        with socket.create_connection((self.host, self.port), timeout=_PATIENCE_S) as connection:
            connection.sendall(request)
            answer = b""
            while not answer.endswith(end):
                chunk = connection.recv(65536)
                if not chunk:
                    raise ConnectionError("memcached closed the connection")
                answer += chunk
            return answer


class PrivateSqlcache(PrivateServer):
    """`sqlcache serve` as a process of its own, from the running interpreter.

    `settings` are settings by their path with two underscores (`proxy__drain_timeout_s=1`), or a
    list of what may be given several times (`rules=[{"off": True}]`); nothing else configures it:
    neither this process's environment nor a `sqlcache.toml` where it runs.
    """

    name = "sqlcache"

    def __init__(
        self, folder: Path, upstream_url: str, nodes: tuple[str, ...], **settings: Any
    ) -> None:
        super().__init__(folder)
        self.upstream_url = upstream_url
        self.nodes = nodes
        self.settings = settings
        self.admin_port = 0
        self._config = folder / "sqlcache.toml"

    def command(self) -> list[str]:
        self._config.write_text(_toml(self.settings))
        command = [sys.executable, "-m", "sqlcache", "serve", "--config", str(self._config)]
        command += ["--listen", self.address, "--upstream", self.upstream_url]
        for node in self.nodes:
            command += ["--memcached", node]
        return [*command, "--admin", f"{HOST}:{self.admin_port}"]

    def configure(self, **settings: Any) -> None:
        """Writes other settings into its file; they count when it reads that again (SIGHUP)."""
        self.settings = {**self.settings, **settings}
        self._config.write_text(_toml(self.settings))

    def answers(self) -> bool:
        return self.output.read_bytes().endswith(b"\n")  # the line that says it is ready

    def signal(self, number: int) -> None:
        """Sends it a signal and does not wait for what follows."""
        os.kill(self.pid, number)

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self._process is None else self._process.poll()

    def fetch(self, path: str) -> str:
        """The body of a page of its admin address. Raises: urllib.error.HTTPError."""
        url = f"http://{HOST}:{self.admin_port}{path}"
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            body: bytes = answer.read()
        return body.decode()

    def readiness(self) -> dict[str, Any]:
        """What `/ready` says, also where that is no."""
        try:
            body = self.fetch("/ready")
        except urllib.error.HTTPError as refusal:
            body = refusal.read().decode()
        said: dict[str, Any] = json.loads(body)
        return said

    def metrics(self) -> dict[str, float]:
        """Every sample of `/metrics`, by its name with its labels as Prometheus writes them."""
        samples = {}
        for line in self.fetch("/metrics").splitlines():
            if not line.startswith("#"):
                sample, _, value = line.rpartition(" ")
                samples[sample] = float(value)
        return samples

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """A PyMySQL connection through it; the caller names the login and closes it."""
        return pymysql.connect(host=self.host, port=self.port, **{"autocommit": True, **options})

    def _take_ports(self) -> None:
        super()._take_ports()
        self.admin_port = free_port()

    def _environment(self) -> Mapping[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.upper().startswith("SQLCACHE_")}
        if VARIABLE in os.environ:  # no setting
            kept[VARIABLE] = os.environ[VARIABLE]
        return {**kept, "PYTHONUNBUFFERED": "1"}


def _toml(settings: Mapping[str, Any]) -> str:
    sections: dict[str, list[str]] = {}
    listed = ""
    for path, value in settings.items():
        section, nested, key = path.partition("__")
        if nested:
            sections.setdefault(f"[{section}]", []).append(_assignment(key, value))
            continue
        for each in value:
            listed += f"[[{section}]]\n" + "".join(_assignment(*item) for item in each.items())
    return "".join(head + "\n" + "".join(lines) for head, lines in sections.items()) + listed


def _assignment(key: str, value: object) -> str:
    # TOML writes strings, numbers, booleans and arrays of these as JSON does.
    return f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}\n"
