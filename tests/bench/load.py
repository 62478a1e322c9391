"""A closed-loop load on any server of MySQL's text protocol: raw packets over logged-in sockets.

Each connection sends one query, reads its whole answer, and sends the next. What an answer's end
looks like is learned from a first answer, so a server is measured, not a driver.
"""

import contextlib
import random
import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pymysql

from sqlcache.mysql.constants import Capability, Command
from sqlcache.mysql.packets import HEADER_BYTES, packet
from sqlcache.mysql.response import ResponseTracker

_READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Target:
    """A server to load, and the login it takes."""

    name: str
    port: int
    user: str
    password: str
    database: str


def queries(statements: Sequence[str]) -> list[bytes]:
    """The COM_QUERY packets of the statements."""
    return [packet(0, bytes((Command.QUERY,)) + text.encode()) for text in statements]


@contextlib.contextmanager
def logged_in(target: Target, connections: int) -> Iterator[list[socket.socket]]:
    """So many connections, past their logins."""
    opened = [
        pymysql.connect(
            host="127.0.0.1",
            port=target.port,
            user=target.user,
            password=target.password,
            database=target.database,
            autocommit=None,
            charset="utf8",
        )
        for _ in range(connections)
    ]
    try:
        yield [connection._sock for connection in opened]  # type: ignore[attr-defined]
    finally:
        for connection in opened:
            connection._force_close()  # type: ignore[attr-defined]


def ask_each(sock: socket.socket, packets: Sequence[bytes]) -> None:
    """Asks every query once, one after another."""
    for query in packets:
        sock.sendall(query)
        tracker = ResponseTracker(Command.QUERY, Capability(0))
        while not tracker.done:
            tracker.feed(_received(sock))


def load(sockets: Sequence[socket.socket], packets: Sequence[bytes], duration_s: float) -> int:
    """Queries at random on all connections for so long; returns how many were answered."""
    chance = random.Random(1)
    at_random = iter(lambda: chance.choice(packets), None)
    return drive(sockets, [at_random] * len(sockets), duration_s)


def drive(
    sockets: Sequence[socket.socket], asks: Sequence[Iterator[bytes]], duration_s: float
) -> int:
    """On each connection what is next to be asked on it, for so long; returns how many commands
    were answered."""
    answered = 0
    trackers: dict[int, ResponseTracker] = {}
    by_number = {sock.fileno(): (sock, ask) for sock, ask in zip(sockets, asks, strict=True)}
    poll = select.epoll()

    def ask(number: int) -> None:
        sock, packets = by_number[number]
        query = next(packets)
        trackers[number] = ResponseTracker(query[HEADER_BYTES], Capability(0))
        sock.send(query)

    for number in by_number:
        poll.register(number, select.EPOLLIN)
        ask(number)
    end = time.monotonic() + duration_s
    outstanding = len(sockets)
    while outstanding:
        running = time.monotonic() < end
        for number, _ in poll.poll(5):
            tracker = trackers[number]
            tracker.feed(_received(by_number[number][0]))
            if not tracker.done:
                continue
            answered += 1
            if running:
                ask(number)
            else:
                outstanding -= 1
    poll.close()
    return answered


def prepare(sock: socket.socket, text: str) -> int:
    """Prepares a statement; returns the number that the server gives it."""
    sock.sendall(packet(0, bytes((Command.STMT_PREPARE,)) + text.encode()))
    tracker = ResponseTracker(Command.STMT_PREPARE, Capability(0))
    while not tracker.done:
        tracker.feed(_received(sock))
    assert tracker.prepared_id is not None
    return tracker.prepared_id


def connect_and_quit(target: Target, duration_s: float) -> int:
    """Logs in and goes, again and again for so long; returns how often."""
    times = 0
    end = time.monotonic() + duration_s
    while time.monotonic() < end:
        with logged_in(target, 8) as sockets:
            for sock in sockets:
                sock.sendall(packet(0, bytes((Command.QUIT,))))
        times += 8
    return times


def _received(sock: socket.socket) -> bytes:
    chunk = sock.recv(_READ_BYTES)
    if not chunk:
        raise ConnectionError("the server closed the connection")
    return chunk
