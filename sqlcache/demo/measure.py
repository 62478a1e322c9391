"""Times single statements at the socket, and what they cost MySQL.

- A time is from the statement's first byte sent to its response's last byte received. Making rows
  into Python objects is not in it: that costs a driver the same with and without a cache.
- All processes share one CPU while they are measured. Only one of them ever has work, and waking
  an idle CPU takes a virtual machine longer than a cache hit does; the clock is to show the work.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer
from sqlcache.errors import ConnectionLost
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker

_RECEIVE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of reads took. `hits` and `misses` are None where no cache was asked."""

    times_s: tuple[float, ...]
    answers: tuple[bytes, ...]
    upstream_queries: int
    upstream_cpu_s: float
    hits: int | None = None
    misses: int | None = None

    @property
    def total_s(self) -> float:
        return math.fsum(self.times_s)

    @property
    def mean_s(self) -> float:
        return self.total_s / len(self.times_s)

    def quantile_s(self, fraction: float) -> float:
        """The least time that this fraction of the statements did not exceed."""
        ordered = sorted(self.times_s)
        return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


class Reader:
    """A client that sends statements and takes the responses as bytes.

    PyMySQL logs it in (`server.connect`, with the options `login`); after that it speaks on that
    connection's socket, which keeps PyMySQL's `read_timeout`.
    """

    def __init__(self, server: PrivateSqlServer | PrivateSqlcache, **login: Any) -> None:
        self._connection = server.connect(**login)
        self._capabilities = self._connection.client_flag
        self._socket: socket.socket = self._connection._sock  # type: ignore[attr-defined]

    def read(self, statement: bytes) -> tuple[bytes, float]:
        """All packets of the response, and the seconds it took. Raises: ConnectionLost."""
        request = packet(0, bytes([Command.QUERY]) + statement)
        response = ResponseTracker(Command.QUERY, self._capabilities)
        received = b""
        start = end = perf_counter()
        self._socket.sendall(request)
        while not response.done:
            chunk = self._socket.recv(_RECEIVE_BYTES)
            end = perf_counter()
            if not chunk:
                raise ConnectionLost("the server closed the connection during a measured read")
            response.feed(chunk)
            received += chunk
        return received, end - start

    def close(self) -> None:
        self._connection.close()


def measure(
    reader: Reader,
    statements: Sequence[bytes],
    upstream: PrivateSqlServer,
    sqlcache: PrivateSqlcache | None,
    progress: Callable[[], None],
) -> Run:
    """Reads all `statements` one after another; `progress` is called between them, untimed."""
    queries, cpu_s = upstream.status("Com_select"), upstream.cpu_s()
    counted = _hits_and_misses(sqlcache)
    times, answers = [], []
    for statement in statements:
        answer, seconds = reader.read(statement)
        answers.append(answer)
        times.append(seconds)
        progress()
    hits, misses = (
        None if now is None or before is None else now - before
        for now, before in zip(_hits_and_misses(sqlcache), counted, strict=True)
    )
    return Run(
        times_s=tuple(times),
        answers=tuple(answers),
        upstream_queries=upstream.status("Com_select") - queries,
        upstream_cpu_s=upstream.cpu_s() - cpu_s,
        hits=hits,
        misses=misses,
    )


def _hits_and_misses(sqlcache: PrivateSqlcache | None) -> tuple[int | None, int | None]:
    if sqlcache is None:
        return None, None
    metrics = sqlcache.metrics()
    return int(metrics["sqlcache_hits_total"]), int(metrics["sqlcache_misses_total"])


@contextmanager
def on_one_cpu(pids: Sequence[int]) -> Iterator[None]:
    """Keeps these processes and this one on one CPU, and gives them all CPUs back afterwards."""
    allowed = os.sched_getaffinity(0)
    everyone = [os.getpid(), *pids]
    _set_cpus(everyone, {max(allowed)})
    try:
        yield
    finally:
        _set_cpus(everyone, allowed)


def _set_cpus(pids: Sequence[int], cpus: set[int]) -> None:
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            try:
                os.sched_setaffinity(int(thread.name), cpus)
            except ProcessLookupError:
                continue  # the thread has ended since it was listed
