"""Several nodes, and sessions that are closed at the test's end."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from tests.coherence.sessions import Connect, Session


@pytest.fixture
def no_other_load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """None of the tests that load a whole machine runs beside this one, in whatever process: two of
    them on a small machine leave memcached no processor for as long as an outage takes."""
    with (tmp_path_factory.getbasetemp().parent / "loads").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[PrivateMemcached]]:
    """Three memcached."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(PrivateMemcached(tmp_path / f"node-{number}"))
            for number in range(3)
        ]


@pytest.fixture
def connect(mariadb: PrivateMariaDB, schema: str) -> Iterator[Connect]:
    """`connect(server)` is a session in the schema."""
    opened: list[Session] = []

    def open_one(server: Any) -> Session:
        login = {"user": mariadb.user, "password": mariadb.password, "database": schema}
        opened.append(server.connect(**login))
        return opened[-1]

    yield open_one
    for session in opened:
        if session.open:
            session.close()
