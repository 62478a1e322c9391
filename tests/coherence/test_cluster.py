"""Several proxies, workers and nodes as one cache: one query per miss, whole answers, nodes that go
and come back, and workers that die."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiomysql
import pymysql
import pytest

from sqlcache.cache.keys import Keyspace
from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlServer,
    wait_until,
)
from sqlcache.memcache.ring import Ring
from tests.coherence.live_doors import Proxy
from tests.coherence.live_links import Links, State
from tests.coherence.sessions import (
    Connect,
    Session,
    ask,
    count,
    is_ready,
    make_slow_table,
    run,
    running,
)
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import RawClient

CLIENTS = 200
MB = 1_000_000
PATIENT = {"memcached__outage_s": 6}
"""So that a busy machine is not taken for a node that is away."""


# --- one query per miss -------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
async def test_any_number_of_clients_that_miss_one_key_cause_one_query(
    workers: int,
    mariadb: PrivateMariaDB,
    nodes: list[PrivateMemcached],
    schema: str,
    proxy: ProxyFactory,
) -> None:
    sql = make_slow_table(mariadb, schema, 250)
    mariadb.sql(f"SET GLOBAL max_connections = {2 * CLIENTS}")
    settings = {
        **PATIENT,
        "proxy__workers": workers,
        "cache__lease_wait_s": 60,
        "cache__lease_ttl_s": 60,
        "upstream__catalog_refresh_s": 3600,  # its queries are counted, too
    }
    proxies = [proxy(mariadb, nodes, **settings) for _ in range(2)]
    connections = await asyncio.gather(
        *(
            aiomysql.connect(
                host=proxies[number % 2].host,
                port=proxies[number % 2].port,
                user=mariadb.user,
                password=mariadb.password,
                db=schema,
                autocommit=True,
            )
            for number in range(CLIENTS)
        )
    )

    async def answer(connection: aiomysql.Connection) -> Any:
        async with connection.cursor() as cursor:
            await cursor.execute(sql)
            return await cursor.fetchall()

    before = mariadb.status("Com_select")
    answers = await asyncio.gather(*map(answer, connections))
    assert mariadb.status("Com_select") - before == 1
    assert set(answers) == {((250 * 250 + 250,),)}
    assert sum(count(each, "misses") for each in proxies) == 1
    assert sum(count(each, "hits") for each in proxies) == CLIENTS - 1
    for connection in connections:
        connection.close()


def test_a_query_that_takes_longer_than_its_lease_lives_is_run_once_for_all(
    upstream: PrivateSqlServer, nodes: list[PrivateMemcached], schema: str, proxy: ProxyFactory
) -> None:
    """Held up by a lock of the table, so that it takes as long as it is to take."""
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    proxies = [proxy(upstream, nodes, cache__lease_ttl_s=8, **PATIENT) for _ in range(2)]
    login: dict[str, Any] = {
        "user": upstream.user,
        "password": upstream.password,
        "database": schema,
    }
    readers = [each.connect(**login) for each in proxies * 5]
    locker = pymysql.connect(unix_socket=str(upstream.socket), **login)
    with ThreadPoolExecutor(len(readers)) as threads:
        run(locker, "LOCK TABLES t WRITE")
        answers = [threads.submit(ask, reader, "SELECT v FROM t") for reader in readers]
        wait_until(
            lambda: sum(count(each, "lease_waits") for each in proxies) >= len(readers) - 1,
            20,
            "nine that wait",
        )
        time.sleep(17)  # more than twice the life of a lease
        assert running(upstream, "SELECT v FROM t") == 1
        run(locker, "UNLOCK TABLES")
        assert [answer.result(20) for answer in answers] == [1] * len(readers)
    assert sum(count(each, "misses") for each in proxies) == 1
    assert sum(count(each, "lease_timeouts") for each in proxies) == 0
    for session in (*readers, locker):
        session.close()


# --- long answers -------------------------------------------------------------------------------


@pytest.fixture
def long_answer(mariadb: PrivateMariaDB, schema: str) -> str:
    """A query with an answer of 12 MB that no compression makes short."""
    mariadb.sql("CREATE TABLE long_rows (id INT PRIMARY KEY, body LONGBLOB NOT NULL)", schema)
    for row in range(12):
        mariadb.sql(
            f"INSERT INTO long_rows SELECT {row}, GROUP_CONCAT(UNHEX(SHA2(seq * 12 + {row}, 512))"
            f" ORDER BY seq SEPARATOR '') FROM seq_1_to_{MB // 64}",
            schema,
        )
    return "SELECT * FROM long_rows ORDER BY id"


LONG_SETTINGS = {**PATIENT, "memcached__max_item_bytes": 250_000}  # each node gets many parts


def test_an_answer_of_12_mb_is_served_whole_from_three_nodes(
    mariadb: PrivateMariaDB,
    nodes: list[PrivateMemcached],
    schema: str,
    proxy: ProxyFactory,
    long_answer: str,
) -> None:
    servers = [proxy(mariadb, nodes, **LONG_SETTINGS) for _ in range(2)]
    clients = [
        RawClient.logged_in(server, mariadb.user, mariadb.password, schema)
        for server in (mariadb, *servers)
    ]
    direct, filled, stored = [client.sql(long_answer) for client in clients]
    assert len(direct) > 12 * MB
    assert filled == direct
    assert stored == direct
    assert count(servers[1], "hits") == 1
    assert all(int(node.stats()["bytes"]) > MB for node in nodes)
    for client in clients:
        client.close()


def test_a_node_that_dies_never_breaks_a_long_answer(
    mariadb: PrivateMariaDB,
    nodes: list[PrivateMemcached],
    schema: str,
    proxy: ProxyFactory,
    long_answer: str,
) -> None:
    """Each node in turn is killed between fill and hit, and killed again amid hits."""
    server = proxy(mariadb, nodes, **LONG_SETTINGS)
    with (
        RawClient.logged_in(mariadb, mariadb.user, mariadb.password, schema) as straight,
        RawClient.logged_in(server, mariadb.user, mariadb.password, schema) as client,
    ):
        direct = straight.sql(long_answer)

        def fill() -> None:
            hits = count(server, "hits")
            wait_until(
                lambda: client.sql(long_answer) == direct and count(server, "hits") > hits,
                30,
                "a hit",
            )

        for node in nodes:
            fill()
            node.kill()
            assert client.sql(long_answer) == direct
            node.restart()
            fill()
            killer = threading.Timer(0.02, node.kill)
            killer.start()
            assert all(client.sql(long_answer) == direct for _ in range(3))
            killer.join()
            node.restart()
        fill()


def test_compressed_answers_are_the_same_bytes(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, schema: str, proxy: ProxyFactory
) -> None:
    """Also for a proxy that does not compress."""
    mariadb.sql("CREATE TABLE dull (body LONGTEXT NOT NULL)", schema)
    mariadb.sql(f"INSERT INTO dull VALUES (REPEAT('dull ', {MB // 5}))", schema)
    sql = "SELECT body FROM dull"
    settings = {"cache__compress_over_bytes": 1000, "cache__near_bytes": 0}
    compressing = proxy(mariadb, memcached, **settings, **PATIENT)
    other = proxy(mariadb, memcached, **PATIENT)
    clients = [
        RawClient.logged_in(server, mariadb.user, mariadb.password, schema)
        for server in (mariadb, compressing, compressing, other)
    ]
    direct, *through = [client.sql(sql) for client in clients]
    assert len(direct) > MB
    assert through == [direct] * 3
    assert (count(compressing, "hits"), count(other, "hits")) == (1, 1)
    assert int(memcached.stats()["bytes"]) < MB // 10
    for client in clients:
        client.close()


# --- nodes that go ------------------------------------------------------------------------------


def test_a_dead_node_costs_only_the_hits_of_what_lives_on_it(
    mariadb: PrivateMariaDB,
    nodes: list[PrivateMemcached],
    schema: str,
    proxy: ProxyFactory,
    connect: Connect,
) -> None:
    """Whichever it is: schemas and the root have copies of their tags on the others."""
    tables = [f"t{number}" for number in range(24)]
    for table in tables:
        mariadb.sql(f"CREATE TABLE {table} (v INT); INSERT INTO {table} VALUES (1)", schema)
    server = proxy(mariadb, nodes, **PATIENT)
    connection = connect(server)

    def hits() -> set[str]:
        found = set()
        for table in tables:
            before = count(server, "hits")
            assert ask(connection, f"SELECT v FROM {table}") == 1
            found |= {table} if count(server, "hits") > before else set()
        return found

    assert hits() == set()
    assert hits() == set(tables)
    for dead in nodes:
        lost = {table for table in tables if home_of(nodes, schema, table) is dead}
        assert lost
        dead.kill()
        assert hits() == set(tables) - lost
        dead.restart()
        wait_until(lambda: hits() == set(tables), 20, "all hits")


def home_of(nodes: list[PrivateMemcached], schema: str, table: str) -> PrivateMemcached:
    """The node that a table's tag lives on."""
    ring = Ring([node.address for node in nodes])
    name = ring.node_for(Keyspace("sqlcache").tag(schema, table))
    return next(node for node in nodes if node.address == name)


# --- nodes that come back -----------------------------------------------------------------------

OUTAGE_SETTINGS = {
    "memcached__outage_s": 3.0,
    "memcached__timeout_s": 0.6,
    "memcached__connect_timeout_s": 1.0,
    "memcached__reconnect_max_s": 0.5,
    "cache__write_deadline_s": 3,
}
MARKS = ("cluster-0", "cluster-1")


class Pair:
    """Two proxies with ways of their own to one node, and a table with one value, which is 0."""

    def __init__(
        self,
        mariadb: PrivateMariaDB,
        node: PrivateMemcached,
        schema: str,
        connect: Connect,
        proxies: list[Proxy],
        links: Links,
    ) -> None:
        self.node = node
        self.links = links
        self.proxies = proxies
        self._connect = connect
        mariadb.sql("CREATE TABLE t (v INT NOT NULL); INSERT INTO t VALUES (0)", schema)
        self.writer, self.reader = map(connect, proxies)

    def another_writer(self) -> Any:
        return self._connect(self.proxies[0])

    def read(self) -> Any:
        return ask(self.reader, "SELECT v FROM t")

    def read_hit(self) -> int:
        """Reads until it was a hit; the answer."""
        reader = self.proxies[1]
        answers = []

        def was_hit() -> bool:
            before = count(reader, "hits")
            answers.append(self.read())
            return count(reader, "hits") > before

        wait_until(was_hit, 40, "a hit")
        return int(answers[-1])

    def restart_reader(self) -> None:
        self.proxies[1].kill()
        self.proxies[1].restart()
        self.reader = self._connect(self.proxies[1])

    def put_all(self, state: State, *, cut: bool = False) -> None:
        self.links.put(state, MARKS, [0], cut=cut)


@pytest.fixture
def start_pair(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    connect: Connect,
    tmp_path: Path,
) -> Iterator[Callable[[str], Pair]]:
    """`start_pair(policy)`."""
    with ExitStack() as stack:

        def start(policy: str) -> Pair:
            links = stack.enter_context(Links([memcached.address]))
            settings = {**OUTAGE_SETTINGS, "cache__when_tags_unreachable": policy}
            proxies = [
                stack.enter_context(
                    Proxy(
                        mark,
                        ("-m", "sqlcache"),
                        tmp_path / mark,
                        mariadb.service_url,
                        links.addresses,
                        **settings,
                    )
                )
                for mark in MARKS
            ]
            return Pair(mariadb, memcached, schema, connect, proxies, links)

        yield start


StartPair = Callable[[str], Pair]
OUTAGES: dict[str, tuple[Callable[[Pair], None], Callable[[Pair], None]]] = {
    "frozen": (lambda pair: pair.node.freeze(), lambda pair: pair.node.thaw()),
    "refused": (
        lambda pair: pair.put_all(State.REFUSED),
        lambda pair: pair.put_all(State.OPEN),
    ),
    "silent": (
        lambda pair: pair.put_all(State.SILENT),
        lambda pair: pair.put_all(State.OPEN),
    ),
    "silent, then cut": (
        lambda pair: pair.put_all(State.SILENT),
        lambda pair: pair.put_all(State.OPEN, cut=True),
    ),
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_node_that_comes_back_revives_no_old_answer(outage: str, start_pair: StartPair) -> None:
    """A write went on without it, by `availability`."""
    begin, end = OUTAGES[outage]
    pair = start_pair("availability")
    assert pair.read_hit() == 0
    begin(pair)
    run(pair.writer, "UPDATE t SET v = 1")
    assert pair.read() == 1
    end(pair)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert pair.read() == 1
    assert pair.read_hit() == 1


@pytest.mark.parametrize("outage", ["frozen", "refused"])
def test_under_consistency_a_write_is_refused_while_its_node_is_away(
    outage: str, start_pair: StartPair
) -> None:
    begin, end = OUTAGES[outage]
    pair = start_pair("consistency")
    assert pair.read_hit() == 0
    begin(pair)
    with pytest.raises(pymysql.MySQLError, match="refused the write and sent nothing"):
        run(pair.writer, "UPDATE t SET v = 1")
    with pytest.raises(pymysql.MySQLError, match="refused the write and sent nothing"):
        run(pair.another_writer(), f"UPDATE t SET v = 1 /* {'x' * 2_000_000} */")
    assert pair.read() == 0
    end(pair)

    def written() -> bool:
        try:
            run(pair.writer, "UPDATE t SET v = 2")
        except pymysql.MySQLError:
            return False
        return True

    wait_until(written, 10, "a write")
    assert pair.read() == 2
    assert pair.read_hit() == 2


def test_a_proxy_that_starts_after_an_outage_serves_nothing_from_before_it(
    start_pair: StartPair,
) -> None:
    """It saw no silence itself, and the writer is not back yet when it reads."""
    pair = start_pair("availability")
    assert pair.read_hit() == 0
    pair.put_all(State.REFUSED)
    run(pair.writer, "UPDATE t SET v = 1")
    pair.links.put(State.OPEN, MARKS[1:], [0])
    pair.restart_reader()
    pair.links.put(State.OPEN, MARKS[:1], [0])
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert pair.read() == 1
    assert pair.read_hit() == 1


# --- workers --------------------------------------------------------------------------------------


@pytest.fixture
def locker(mariadb: PrivateMariaDB, schema: str) -> Iterator[Session]:
    """A session of MySQL's own that holds the row lock of `t` until it rolls back."""
    mariadb.sql("CREATE TABLE t (v INT NOT NULL) ENGINE=InnoDB; INSERT INTO t VALUES (0)", schema)
    connection = mariadb.connect(database=schema, autocommit=False)
    run(connection, "SELECT v FROM t FOR UPDATE")
    yield connection
    connection.close()


def test_workers_that_die_amid_a_write_are_replaced_and_leave_no_old_answer(
    mariadb: PrivateMariaDB,
    nodes: list[PrivateMemcached],
    schema: str,
    locker: Session,
    connect: Connect,
    tmp_path: Path,
) -> None:
    """MySQL goes on with the write, whose fence is all that is left of its worker."""
    update = "UPDATE t SET v = 1"
    addresses = tuple(node.address for node in nodes)
    settings = {"proxy__workers": 2, "cache__write_deadline_s": 3}
    program = ("-m", "sqlcache")
    folder = tmp_path / "workers"
    with Proxy("workers", program, folder, mariadb.service_url, addresses, **settings) as server:
        reader = connect(server)
        assert [ask(reader, "SELECT v FROM t") for _ in range(2)] == [0, 0]
        before = set(server.workers())
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(run, connect(server), update)
            wait_until(lambda: running(mariadb, update) == 1, 10, "the write")
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            with pytest.raises(pymysql.MySQLError):
                writing.result()

        def replaced() -> bool:
            return len(set(server.workers()) - before) == 2 and is_ready(server)

        wait_until(replaced, 20, "new workers")
        reader = connect(server)
        locker.rollback()
        wait_until(lambda: running(mariadb, update) == 0, 10, "the write's end")
        assert mariadb.sql("SELECT v FROM t", schema) == ((1,),)

        def was_hit() -> bool:
            hits = count(server, "hits")
            assert ask(reader, "SELECT v FROM t") == 1
            return count(server, "hits") > hits

        wait_until(was_hit, 20, "a hit")
