"""Private servers for the demo and the tests: MariaDB, memcached and sqlcache itself.

Each runs in a folder of its own, listens on 127.0.0.1 only and touches nothing else of the machine.

- A server is ready when it answers, not when time has passed, and it is *ours* that answers.
- Ports are taken from below the kernel's range for outgoing connections, so that none of these can
  take a port while its server is down between `kill` and `restart`.
- No server outlives the process that started it, however that process ends.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote

import pymysql
from pymysql.constants import CLIENT

from sqlcache.errors import SqlcacheError
from sqlcache.implementation import VARIABLE

HOST = "127.0.0.1"

_START_DEADLINE_S = 120.0
_STOP_DEADLINE_S = 30.0
_PATIENCE_S = 20.0
_POLL_S = 0.01
_LONGEST_POLL_S = 0.1
_PORT_ATTEMPTS = 8
_LOWEST_PORT = 20_000
_MOST_CLAIMS = 64
_claims: deque[socket.socket] = deque()
_PORT_IN_USE = ("address already in use", "port is already in use", "failed to listen on tcp port")


class NotStarted(SqlcacheError):
    """A private server did not come up: carries the end of its log."""


def find_program(name: str, package: str) -> str:
    """The path of an installed program, also where only root's PATH leads to it.

    Raises: SqlcacheError naming the Debian package that has it.
    """
    places = [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise SqlcacheError(f"{name} is not installed; on Debian: apt-get install {package}")
    return found


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listened on a moment ago, outside the ephemeral range; nor is
    any other process of this kind given it, until this one has asked for many more."""
    highest = _first_ephemeral_port() - 1
    while True:
        port = random.randint(_LOWEST_PORT, highest)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                _claim(port)
            except OSError:
                continue
            return port


def _claim(port: int) -> None:
    """Raises: OSError where another process has it. It ends with this process at the latest."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0sqlcache port {port}")  # a name that is in no folder, as Linux has them
    except OSError as error:
        claim.close()
        if error.errno == errno.EADDRINUSE:
            raise
        return
    _claims.append(claim)
    if len(_claims) > _MOST_CLAIMS:
        _claims.popleft().close()


def _first_ephemeral_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return 32_768
    first = int(text.split()[0])
    return first if first > _LOWEST_PORT + 1000 else 65_536


def wait_until(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    """Returns when `condition()` is true, a tenth of a second later at most. Raises: TimeoutError
    naming `what`."""
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        if waited_s > deadline_s:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s")
        time.sleep(min(max(_POLL_S, waited_s / 20), _LONGEST_POLL_S))


class Process(Protocol):
    """A process of ours: what of `subprocess.Popen` is used."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class PrivateServer(ABC):
    """One server process with a folder and a port of its own."""

    name: str

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.host = HOST
        self.port = 0
        self.log = folder / f"{self.name}.log"
        self.output = folder / f"{self.name}.out"
        self._process: Process | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its options, for `self.port`."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether this very process, not another on the same port, takes requests."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise SqlcacheError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> Self:
        """Starts on a free port and returns when it answers. Raises: NotStarted."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._take_ports()
            try:
                self._launch()
            except NotStarted as error:
                if attempt == _PORT_ATTEMPTS or not _port_was_taken(str(error)):
                    raise
            else:
                break
        return self

    def stop(self) -> int:
        """Asks it to end (SIGTERM, also when frozen) and returns its exit code."""
        process = self._process
        if process is None:
            return 0
        self._process = None
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        try:
            return process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def kill(self) -> None:
        """Ends it at once, as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Starts it again, after `kill` or `stop` or as it runs, on the port it had."""
        self.stop()
        self._launch()

    def freeze(self) -> None:
        """Stops it without closing anything: its peers only notice that nothing comes (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.pid}/task")
        wait_until(
            lambda: all(map(_has_stopped, threads.glob("*/stat"))), 10, "threads that stand still"
        )

    def thaw(self) -> None:
        """Lets it go on after `freeze` (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def cpu_s(self) -> float:
        """CPU seconds the process has used, user and system time of all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _take_ports(self) -> None:
        self.port = free_port()

    def _launch(self) -> None:
        self._process = process = self._run()
        try:
            wait_until(
                lambda: process.poll() is not None or self.answers(), _START_DEADLINE_S, self.name
            )
        except TimeoutError:
            self.kill()
            raise NotStarted(self._why("did not answer in time")) from None
        except BaseException:
            self.kill()
            raise
        if (code := process.poll()) is not None:
            self._process = None
            raise NotStarted(self._why(f"ended with exit code {code}"))

    def _run(self) -> Process:
        """Starts the process, which writes to `self.output` and `self.log`."""
        with self.log.open("wb") as log, self.output.open("wb") as output:
            return subprocess.Popen(
                [*_dies_with_us(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env=self._environment(),
                process_group=0,  # Ctrl-C is for the demo, which ends its servers in order
            )

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _why(self, what: str) -> str:
        tail = "\n".join(self.log_text().splitlines()[-20:])
        return f"{self.name} {what}; its log ends:\n{tail}"

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _port_was_taken(text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in _PORT_IN_USE)


def _dies_with_us() -> list[str]:
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _has_stopped(stat: Path) -> bool:
    """Whether a thread stands still; one that is gone does."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "TZX"
    except OSError:
        return True


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
            *("-l", HOST, "-p", str(self.port), "-U", "0", "-m", str(self.memory_mb)),
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
