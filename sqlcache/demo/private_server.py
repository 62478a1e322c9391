"""A server process with a folder and a port of its own, which touches nothing else of the machine.

- It listens on 127.0.0.1 only. It is ready when it answers, not when time has passed, and it is
  *ours* that answers.
- Ports are taken from below the kernel's range for outgoing connections, so that none of these can
  take a port while its server is down between `kill` and `restart`.
- No server outlives the process that started it, however that process ends.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self

from sqlcache.demo.waiting import Waited
from sqlcache.errors import SqlcacheError

HOST = "127.0.0.1"

_START_DEADLINE_S = 120.0
_STOP_DEADLINE_S = 30.0
_POLL_S = 0.01
_LONGEST_POLL_S = 0.1
_PORT_ATTEMPTS = 8
_LOWEST_PORT = 20_000
_MOST_CLAIMS = 256
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
    naming `what`. Pauses of this process do not count, see `Waited`."""
    waited = Waited()
    while not condition():
        waited_s = waited.seconds()
        if waited_s > deadline_s:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s")
        waited.sleep(min(max(_POLL_S, waited_s / 20), _LONGEST_POLL_S))


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
