"""The forwarders between proxies and memcached nodes: what each state of a way lets through."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Self

import pytest

from sqlcache.demo.servers import PrivateMemcached, wait_until
from tests.coherence.live_links import MARK, SLOW_S, Links, State

_ANSWERED_WITHIN_S = 20.0
_SILENT_FOR_S = 0.3
ASKER = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
connection = None
for line in sys.stdin:
    try:
        if connection is None:
            connection = socket.create_connection((host, int(port)))
        deadline_s, line = line.split(" ", 1)
        connection.settimeout(float(deadline_s))
        if line != "wait\\n":
            connection.sendall(line.encode() + b"x\\r\\n" * line.startswith("ms"))
        print(connection.recv(100).decode().strip() or "broken off", flush=True)
    except TimeoutError:
        print("silence", flush=True)
    except OSError:
        print("broken off", flush=True)
"""
"""A process that asks a node whatever comes in, and says what comes back."""


class Asker:
    """One such process, which is a proxy to the forwarders."""

    def __init__(self, links: Links, mark: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ASKER, links.addresses[0]],
            env={MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, request: str) -> str:
        """The node's answer; `wait` sends nothing."""
        return self._asked(request, _ANSWERED_WITHIN_S)

    def hears(self, request: str) -> str:
        """The same where none is to come."""
        return self._asked(request, _SILENT_FOR_S)

    def _asked(self, request: str, within_s: float) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{within_s} {request}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture
def links(memcached: PrivateMemcached) -> Iterator[Links]:
    with Links([memcached.address]) as ways:
        yield ways


def has(memcached: PrivateMemcached, key: str) -> bool:
    return memcached.ask(f"mg {key}\r\n".encode(), b"\r\n").startswith(b"HD")


def test_an_open_way_lets_everything_through(links: Links) -> None:
    with Asker(links, "one") as one:
        assert one.ask("mn") == "MN"


def test_who_is_no_proxy_has_no_way(links: Links) -> None:
    host, _, port = links.addresses[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as stranger:
        assert stranger.recv(1) == b""


def test_a_refused_way_breaks_off_old_connections_and_new_ones(links: Links) -> None:
    with Asker(links, "one") as one, Asker(links, "one") as newcomer:
        assert one.ask("mn") == "MN"
        links.put(State.REFUSED, ["one"], [0])
        assert one.ask("mn") == "broken off"
        assert newcomer.ask("mn") == "broken off"


def test_each_proxy_has_a_way_of_its_own(links: Links) -> None:
    with Asker(links, "one") as one, Asker(links, "two") as two:
        links.put(State.SILENT, ["one"], [0])
        assert (one.hears("mn"), two.ask("mn")) == ("silence", "MN")


def test_what_a_silent_way_held_back_arrives_late(
    links: Links, memcached: PrivateMemcached
) -> None:
    with Asker(links, "one") as one:
        links.put(State.SILENT, ["one"], [0])
        assert one.hears("ms held 1") == "silence"
        assert not has(memcached, "held")
        links.put(State.OPEN, ["one"], [0])
        assert one.ask("wait") == "HD"
        assert has(memcached, "held")


def test_what_a_silent_way_held_back_is_lost_in_a_cut(
    links: Links, memcached: PrivateMemcached
) -> None:
    with Asker(links, "one") as one, Asker(links, "one") as newcomer:
        assert one.ask("mn") == "MN"  # so there is a connection to be cut
        links.put(State.SILENT, ["one"], [0])
        assert one.hears("ms held 1") == "silence"
        links.put(State.OPEN, ["one"], [0], cut=True)
        assert one.ask("wait") == "broken off"
        assert newcomer.ask("mg held") == "EN"


def test_a_deaf_way_carries_requests_and_no_answers(
    links: Links, memcached: PrivateMemcached
) -> None:
    with Asker(links, "one") as one:
        links.put(State.DEAF, ["one"], [0])
        assert one.hears("ms heard 1") == "silence"
        wait_until(lambda: has(memcached, "heard"), 20, "the request")
        links.put(State.OPEN, ["one"], [0])
        assert one.ask("wait") == "HD"


def test_a_lame_way_answers_no_ops_alone(links: Links) -> None:
    with Asker(links, "one") as one:
        links.put(State.LAME, ["one"], [0])
        assert one.ask("mn") == "MN"
        assert one.hears("ms heard 1") == "silence"
        links.put(State.OPEN, ["one"], [0])
        assert one.ask("wait") == "HD"


def test_a_slow_way_carries_requests_late(links: Links) -> None:
    with Asker(links, "one") as one:
        one.ask("mn")
        links.put(State.SLOW, ["one"], [0])
        began = time.monotonic()
        assert one.ask("mn") == "MN"
        assert time.monotonic() - began >= SLOW_S
