"""Fixtures: real servers, started once per test process, and sqlcache in front of them.

A test that names `upstream` runs once per kind of SQL server (`[mariadb]`, `[mysql]`). `memcached`
is a fresh one for every test, so tests may kill it and never see one another's keys.
"""

from __future__ import annotations

import gc
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pymysql.connections
import pytest
from hypothesis import settings as hypothesis_settings

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from sqlcache.plan.reader import ON_THE_LOOP_BYTES
from sqlcache.sql import lexer
from sqlcache.sql.pieces import Dialect, split
from tests.forked import ForkedSqlcache
from tests.kernels import Kernel, Pure, compiled
from tests.servers import NO_MYSQL, PATIENT, MySQLMissing, PrivateMySQL

ProxyFactory = Callable[..., PrivateSqlcache]

# How long an example takes says more of the machine than of the code.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")

# PyMySQL reads the machine's certificates for each connection, where it is not told to look at any:
# 20 ms each, of tens of thousands.
_wire: Any = pymysql.connections.Connection
_context_of = _wire._create_ssl_ctx
_plain = cache(lambda: _context_of(None, {}))
_wire._create_ssl_ctx = lambda self, asked: _context_of(self, asked) if asked else _plain()


def pytest_collection_finish() -> None:
    """Ten thousand tests and all modules are never garbage: nobody looks through them for it again,
    which takes 0.2 s."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A green run without MySQL shows half of what it should: says so at the end."""
    skipped = terminalreporter.getreports("skipped")
    without = sum(NO_MYSQL in str(report.longrepr) for report in skipped)
    if without:
        terminalreporter.ensure_newline()
        terminalreporter.write_line(f"NOT RUN for want of MySQL: {without} tests", red=True)


@pytest.fixture
def seed() -> int:
    """Of what a test leaves to chance: another each time, shown where it fails."""
    return random.randrange(1 << 32)


@pytest.fixture(scope="session", params=["pure", "compiled"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Each implementation of the kernel in turn."""
    return Pure() if request.param == "pure" else compiled()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMariaDB]:
    """A private MariaDB: `.host .port .user .password .socket .sql(text) .status(name)`."""
    with PrivateMariaDB(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(scope="session")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMySQL]:
    """A private MySQL with the same interface; skips where the machine has none."""
    try:
        server = PrivateMySQL(tmp_path_factory.mktemp("mysql"))
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session", params=["mariadb", "mysql"])
def upstream(request: pytest.FixtureRequest) -> PrivateSqlServer:
    """Each kind of SQL server in turn."""
    server: PrivateSqlServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database on the SQL server the test uses: its name. Dropped afterwards."""
    used = next((n for n in ("upstream", "mysql") if n in request.fixturenames), "mariadb")
    server: PrivateSqlServer = request.getfixturevalue(used)
    name = f"test_{secrets.token_hex(4)}"
    server.sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield name
    server.sql(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture
def memcached(tmp_path: Path) -> Iterator[PrivateMemcached]:
    """A private memcached: `.host .port .address .kill() .restart() .freeze() .thaw() .flush()`."""
    with PrivateMemcached(tmp_path / "memcached") as server:
        yield server


@pytest.fixture
def sqlcache_kind() -> type[PrivateSqlcache]:
    """How `proxy` starts a sqlcache; to be overridden where the start is what is tested."""
    return ForkedSqlcache


@pytest.fixture
def proxy(tmp_path: Path, sqlcache_kind: type[PrivateSqlcache]) -> Iterator[ProxyFactory]:
    """`proxy(upstream, memcached, **settings)` starts `sqlcache serve` and returns it when ready.

    `memcached` is a PrivateMemcached, several of them, or "memory". Settings are written as
    `cache__ttl_s=5`; what is not given is as in `PATIENT`. At the test's end every one must leave
    with exit code 0 and no traceback.
    """
    started: list[PrivateSqlcache] = []

    def start(
        upstream: PrivateSqlServer,
        memcached: PrivateMemcached | list[PrivateMemcached] | str,
        **settings: Any,
    ) -> PrivateSqlcache:
        servers = memcached if isinstance(memcached, list) else [memcached]
        nodes = tuple(s if isinstance(s, str) else s.address for s in servers)
        folder = tmp_path / f"sqlcache-{len(started)}"
        server = sqlcache_kind(folder, upstream.service_url, nodes, **{**PATIENT, **settings})
        started.append(server)
        return server.start()

    yield start
    exit_codes = [server.stop() for server in started]
    logs = "\n".join(server.log_text() for server in started)
    assert "Traceback" not in logs, logs
    assert not any(exit_codes), f"exit codes {exit_codes}; the logs say:\n{logs}"


@pytest.fixture
def split_here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of long texts that were split in the thread of the event loop."""
    here, lengths = threading.get_ident(), list[int]()

    def watched(text: bytes, dialect: Dialect) -> list[bytes]:
        if threading.get_ident() == here and len(text) > ON_THE_LOOP_BYTES:
            lengths.append(len(text))
        return split(text, dialect)

    monkeypatch.setattr(lexer, "split", watched)
    return lengths
