"""A process that plans more texts than it may remember; prints what memory that took, in bytes.

A program of its own, for `test_memory`: what other tests leave behind would count as well.
"""

import asyncio
import resource
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlcache.cache.engine import Engine, Limits
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.reads import Read
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import Metrics
from sqlcache.mysql.constants import Capability, Command, Status
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import packet
from sqlcache.plan.commands import ClientCommand
from sqlcache.plan.meanings import Meanings
from sqlcache.plan.planner import Planner
from sqlcache.plan.plans import Preparation
from sqlcache.plan.state import SessionState
from sqlcache.plan.variables import NEW_SESSIONS_RIGHTS, Settings
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Incarnation, Server
from sqlcache.sql.facts import BaseTable, Facts, Scope
from sqlcache.sql.names import TableName

GLOBALS: Settings = ((NEW_SESSIONS_RIGHTS, "[]"), ("sql_mode", ""), ("init_connect", ""))
TABLES = 30


class Tables:
    """A server with some tables, which stay as they are."""

    def __init__(self) -> None:
        tables = [BaseTable(TableName("s", f"t{each}"), "InnoDB") for each in range(TABLES)]
        server = Server(flavour="mysql", version=(9, 7), lower_case_table_names=0)
        self._catalog = Catalog.of(server, Facts(tables))

    async def schemas(self) -> frozenset[str]:
        return self._catalog.schemas

    async def load(self) -> tuple[Catalog, Settings]:
        return self._catalog, GLOBALS

    async def renew(self, catalog: Catalog, scope: Scope) -> Catalog:
        return self._catalog

    async def has_ended(self, connection: int, server: Incarnation, since: float) -> bool:
        return False

    def cut(self) -> bool:
        return False


# Of each kind several times as many as there is room for.


def long_texts(max_bytes: int) -> Iterator[bytes]:
    for each in range(max_bytes // 167_000):
        yield b"SELECT %d, a FROM t1 WHERE b = '%b'" % (each, b"x" * 300_000)


def short_texts(max_bytes: int) -> Iterator[bytes]:
    for each in range(max_bytes // 1_340):
        one, other = each % TABLES, each // TABLES % TABLES
        column = each // TABLES**2 % 3
        yield b"SELECT a%d FROM t%d JOIN t%d ON b = %d" % (column, one, other, each)


def writes(max_bytes: int) -> Iterator[bytes]:
    for each in range(max_bytes // 16_700):
        yield b"INSERT INTO new%d VALUES (%d)" % (each, each)


def prepared_texts(max_bytes: int) -> Iterator[bytes]:
    for each in range(max_bytes // 8_380):
        yield b"SELECT %d, a FROM t1 WHERE b = ? AND c = '%b'" % (each, b"x" * 3_000)


@asynccontextmanager
async def planner_and_session(
    max_bytes: int = 64 << 20,
) -> AsyncIterator[tuple[Planner, SessionState]]:
    """A planner that may remember so much, over a catalog of some tables, and a session."""
    limits = Limits(
        ttl_s=60, lease_ttl_s=10, lease_wait_s=1, write_deadline_s=10, tags_bytes=max_bytes // 8
    )
    metrics = Metrics()
    cluster = Cluster([MemoryNode("memory", max_bytes=1 << 20)], outage_s=1, reach_s=0)
    engine = Engine(cluster, Keyspace("test"), limits, metrics)
    await engine.start()
    share = max_bytes - limits.tags_bytes
    planner = Planner(engine, Tables(), metrics, max_bytes=share, refresh_s=3600)
    await planner.start()
    login = Login(Capability.PROTOCOL_41, 45, b"ann", b"s")
    state = SessionState(login, planner.keeper.globals, Status.AUTOCOMMIT, secrets.token_hex)
    yield planner, state
    assert planner.size_bytes + engine.tags_bytes <= max_bytes * 1.1
    await planner.close()
    await engine.close()


async def fill(max_bytes: int) -> int:
    """Plans them all; gives by how much the process grew."""
    async with planner_and_session(max_bytes) as (planner, state):
        meanings = Meanings(planner)
        plan(planner, meanings, state, b"SELECT a FROM t1")
        before = memory_bytes()
        for texts in (long_texts, short_texts, writes):
            for text in texts(max_bytes):
                plan(planner, meanings, state, text)
        for text in prepared_texts(max_bytes):
            made = prepare(meanings, state, 0, text)
            assert made is not None
            planner.remember_preparation(b"each " + text, planner.context(state), made)
            meanings.closed(0)
        for number, text in enumerate(prepared_texts(max_bytes)):
            prepare(meanings, state, number, text)
        return memory_bytes() - before


def plan(planner: Planner, meanings: Meanings, state: SessionState, text: bytes) -> None:
    command = ClientCommand(Command.QUERY, packet(0, bytes((Command.QUERY,)) + text), whole=True)
    meaning = meanings.of(command, state)
    planner.tagging.tags(meaning.writes)
    if not meaning.writes:
        assert meaning.lexed is not None
        context = planner.context(state)
        read = planner.plan_read(command.data, meaning.lexed, meaning.statements[0], context)
        assert isinstance(read, Read), read


def prepare(
    meanings: Meanings, state: SessionState, number: int, text: bytes
) -> Preparation | None:
    data = packet(0, bytes((Command.STMT_PREPARE,)) + text)
    command = ClientCommand(Command.STMT_PREPARE, data, whole=True)
    return meanings.remember(number, 1, 1, command, state)


def memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    print(asyncio.run(fill(int(sys.argv[1]))))
