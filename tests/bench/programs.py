"""The programs in C that measure: the load generator (`load.c`) and the floor (`floor.c`).

Compiled when they are wanted. A load from Python would take more of a core than what it measures.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlcache.demo.servers import PrivateServer, find_program

SOURCES = Path(__file__).parent
_WARNINGS = ("-Wall", "-Wextra")
_GRACE_S = 60.0  # for connections to stand, on a busy machine


def compiled(name: str, folder: Path, *flags: str) -> Path:
    """The program of `name`.c, built in the folder. Raises: SqlcacheError without a compiler,
    CalledProcessError where it does not compile."""
    program = folder / name
    source = SOURCES / f"{name}.c"
    command = [find_program("gcc", "gcc"), "-O2", *_WARNINGS, *flags, "-o", str(program)]
    subprocess.run([*command, str(source)], check=True)
    return program


@dataclass(frozen=True, slots=True)
class Target:
    """A server to load, and the login it takes."""

    port: int
    user: str = "bench"
    password: str = "bench"
    database: str = "bench"

    def options(self) -> list[str]:
        login = {"user": self.user, "password": self.password, "database": self.database}
        return [f"--port={self.port}", *(f"--{name}={value}" for name, value in login.items())]


@dataclass(frozen=True, slots=True)
class Load:
    """What a load was and took: commands answered in so many seconds, at which latencies, and
    the CPU time an answer of each process that was named, the generator's own among them."""

    answered: int
    seconds: float
    p50_us: float
    p95_us: float
    cpu_us: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds


class LoadFailed(Exception):
    """The load generator gave up: carries what it says."""


@dataclass(frozen=True, slots=True)
class Generator:
    """The load generator, compiled."""

    program: Path

    def run(
        self, target: Target, options: Sequence[str], seconds: float, pids: Mapping[str, int]
    ) -> Load:
        """Loads the target with what the options say. Raises: LoadFailed."""
        processes = [f"--cpu={pid}" for pid in pids.values()]
        command = [
            str(self.program),
            *target.options(),
            f"--seconds={seconds}",
            *processes,
            *options,
        ]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds + _GRACE_S
        )
        if ended.returncode:
            raise LoadFailed(f"{' '.join(options)}: {ended.stderr.strip()}")
        return told(ended.stdout, tuple(pids))


def told(line: str, names: Sequence[str]) -> Load:
    """What the generator's line says of the processes of these names. Raises: LoadFailed."""
    said = json.loads(line)
    answered = said["answered"]
    if not answered:
        raise LoadFailed("nothing was answered in time")
    cpu_s = {**dict(zip(names, said["cpu_s"], strict=True)), "generator": said["own_cpu_s"]}
    return Load(
        answered=answered,
        seconds=said["seconds"],
        p50_us=said["p50_us"],
        p95_us=said["p95_us"],
        cpu_us={name: 1e6 * seconds / answered for name, seconds in cpu_s.items()},
    )


class Floor(PrivateServer):
    """The server that answers everything with the same rows."""

    name = "floor"

    def __init__(self, folder: Path, program: Path, rows: int, width: int) -> None:
        super().__init__(folder)
        self._program = program
        self._rows = rows
        self._width = width

    def command(self) -> list[str]:
        return [str(self._program), str(self.port), str(self._rows), str(self._width)]

    def answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                return b"-floor\0" in connection.recv(256)
        except OSError:
            return False
