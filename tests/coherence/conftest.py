"""Several nodes, and sessions that are closed at the test's end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from tests.coherence.sessions import Connect, Session


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
