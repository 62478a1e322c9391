"""What the nodes remember is used again after everything was stopped, and nothing of it is stale.

All that was written meanwhile, directly or through others, is in the binary log.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sqlcache.cache.keys import Keyspace
from sqlcache.demo.servers import (
    PrivateMemcached,
    PrivateSqlServer,
    wait_until,
)
from sqlcache.memcache.ring import Ring
from tests.forked import ForkedSqlcache
from tests.integration.test_binlog import (
    AS_STATEMENTS,
    Client,
    is_at_the_end,
    moody,
    own_server,
    settled,
    until,
)
from tests.servers import PATIENT, purge_log

__all__ = ["moody", "own_server"]

FOLLOWS = {"binlog__follow": "on"}
KEPT = "sqlcache_binlog_nodes_kept_total"
QUIET = 40
"""Answers of a table that is not written meanwhile."""


class Warm(PrivateMemcached):
    """One that keeps its memory in a file where it is told to end (SIGUSR1)."""

    def command(self) -> list[str]:
        return [*super().command(), "-e", str(self.folder / "memory")]

    def put_down(self) -> None:
        """Ends it, with all that it has."""
        process = self._process
        assert process is not None
        os.kill(self.pid, signal.SIGUSR1)
        process.wait(60)
        self._process = None
        said = (self.folder / "memory.meta").read_text()
        ended_at = int(said.partition("Kstop_time ")[2].split()[0])
        # Its clock is of whole seconds: of what ended in a second to come it takes nothing.
        wait_until(lambda: time.time() > ended_at + 1, 20, "the next second")


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Warm]:
    """A memcached that may be put down."""
    with Warm(tmp_path / "warm") as server:
        yield server


class Fleet:
    """Two sqlcaches, or one, on these nodes, to be stopped and started."""

    def __init__(
        self,
        folder: Path,
        upstream: PrivateSqlServer,
        nodes: tuple[PrivateMemcached, ...],
        size: int,
        outage_s: float,
    ) -> None:
        self.upstream = upstream
        addresses = tuple(node.address for node in nodes)
        settings = {**PATIENT, **FOLLOWS, "memcached__outage_s": outage_s}
        self.both = [
            ForkedSqlcache(folder / name, upstream.service_url, addresses, **settings)
            for name in ("first", "second")[:size]
        ]

    def start(self) -> None:
        for each in self.both:
            each.start()

    def go_on(self) -> None:
        """Starts it, and returns when it has proven that the node remembers all that it may."""
        self.start()
        until(lambda: self.count(KEPT) == len(self.both), 60)

    def stop(self, *, killed: bool = False) -> None:
        for each in self.both:
            if killed:
                each.kill()
            else:
                assert each.stop() == 0
                assert "Traceback" not in each.log_text()

    def clients(self) -> list[Client]:
        return [Client(each, self.upstream, "shop") for each in self.both]

    def count(self, metric: str) -> float:
        """Of both together."""
        return sum(each.metrics()[metric] for each in self.both)


@pytest.fixture
def fleet_on(tmp_path: Path, own_server: PrivateSqlServer) -> Iterator[Callable[..., Fleet]]:
    """`fleet_on(nodes)` starts one that has filled its cache. Where a node is to be away, a short
    `outage_s` is waited for; else a long one lets the machine pause."""
    made: list[Fleet] = []

    def start(*nodes: PrivateMemcached, size: int = 2) -> Fleet:
        outage_s = 3 if len(nodes) > 1 else PATIENT["memcached__outage_s"]
        fleet = Fleet(tmp_path, own_server, nodes, size, outage_s)
        made.append(fleet)
        fleet.start()
        until(lambda: any(settled(each, own_server) for each in fleet.both))
        until(lambda: stays_filled(fleet), 60)
        return fleet

    yield start
    for fleet in made:
        fleet.stop(killed=True)


def quiet(number: int) -> str:
    return f"SELECT v + {number} FROM u WHERE id = 1"


def stays_filled(fleet: Fleet) -> bool:
    """Whether nothing was forgotten for a while around its being filled: at its start what follows
    the log forgets once more what it was not sure of."""
    before = forgotten(fleet)
    time.sleep(1.5)
    fill(fleet)
    return forgotten(fleet) == before


def forgotten(fleet: Fleet) -> tuple[float, ...]:
    names = 'sqlcache_invalidations_total{kind="root"}', "sqlcache_binlog_bumps_total"
    return tuple(fleet.count(name) for name in names)


def fill(fleet: Fleet) -> None:
    client = fleet.clients()[0]
    for number in range(QUIET):
        client.cache(quiet(number))
    client.cache("SELECT * FROM t")
    client.cache("SELECT COUNT(*) FROM t")


def write_around(upstream: PrivateSqlServer) -> None:
    """A thousand rows."""
    rows = ",".join(f"({number}, {number})" for number in range(1_000, 2_000))
    upstream.sql(f"INSERT INTO t VALUES {rows}; UPDATE t SET v = 7 WHERE id = 1", "shop")


def check(fleet: Fleet) -> None:
    """What was written is seen by the first read; of all else each is a hit."""
    for client in fleet.clients():
        assert client.read("SELECT COUNT(*) FROM t") == ((1_002,),)
        rows = client.read("SELECT * FROM t")
        assert isinstance(rows, tuple)
        assert len(rows) == 1_002
        assert rows[0] == (1, 7)
        assert hits_of_quiet(client) == QUIET


def hits_of_quiet(client: Client) -> float:
    hits = client.count("sqlcache_hits_total")
    for number in range(QUIET):
        assert client.read(quiet(number)) == ((10 + number,),)
    return client.count("sqlcache_hits_total") - hits


class TestTheFleetIsStopped:
    def test_and_memcached_stays(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
    ) -> None:
        fleet = fleet_on(memcached)
        fleet.stop()
        write_around(own_server)
        fleet.go_on()
        check(fleet)
        assert fleet.count("sqlcache_binlog_gaps_total") == 0
        assert fleet.count(KEPT) == 2
        assert fleet.count("sqlcache_binlog_replayed_total") >= 1

    def test_and_memcached_by_its_warm_restart(
        self, own_server: PrivateSqlServer, warm: Warm, fleet_on: Callable[..., Fleet]
    ) -> None:
        fleet = fleet_on(warm)
        fleet.stop()
        warm.put_down()
        write_around(own_server)
        warm.restart()
        fleet.go_on()
        check(fleet)

    def test_by_kills(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
    ) -> None:
        fleet = fleet_on(memcached)
        fleet.stop(killed=True)
        write_around(own_server)
        fleet.start()
        for client in fleet.clients():
            assert client.read("SELECT COUNT(*) FROM t") == ((1_002,),)
        until(lambda: fleet.count(KEPT) == 2, 60)
        check(fleet)
        assert fleet.count("sqlcache_node_outages_total") == 0


def began_anew(server: PrivateSqlServer) -> None:
    mysql = server.name == "mysqld"
    server.sql("RESET BINARY LOGS AND GTIDS" if mysql else "RESET MASTER")


def restart(server: PrivateSqlServer) -> None:
    server.kill()
    server.restart()


def define(server: PrivateSqlServer) -> None:
    server.sql("ALTER TABLE t ADD INDEX (v)", "shop")


def grant(server: PrivateSqlServer) -> None:
    server.sql("CREATE USER eve@'%'; GRANT SELECT ON shop.* TO eve@'%'; DROP USER eve@'%'")


class TestMeanwhile:
    """What else may have happened while everything was stopped."""

    @pytest.mark.parametrize("first", [began_anew, purge_log, restart, define, grant])
    def test_all_is_forgotten_where_it_is_not_known_what_hangs_on_it(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
        first: Callable[[PrivateSqlServer], None],
    ) -> None:
        fleet = fleet_on(memcached, size=1)
        fleet.stop()
        write_around(own_server)
        first(own_server)
        fleet.start()
        (client,) = fleet.clients()
        now = own_server.sql("SELECT COUNT(*) FROM t", "shop")  # a crash may have lost it
        assert client.read("SELECT COUNT(*) FROM t") == now
        assert hits_of_quiet(client) == 0
        assert client.count("sqlcache_binlog_gaps_total") == (first in (began_anew, purge_log))

    def test_the_log_is_begun_anew_and_is_longer_than_it_was(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
    ) -> None:
        fleet = fleet_on(memcached, size=1)
        fleet.stop()
        own_server.sql("UPDATE t SET v = 7", "shop")
        time.sleep(1)  # a log is told from another by the second in which it was begun
        began_anew(own_server)
        for number in range(40):
            own_server.sql(f"CREATE DATABASE d{number}; DROP DATABASE d{number}")
        fleet.start()
        (client,) = fleet.clients()
        assert client.read("SELECT * FROM t") == ((1, 7), (2, 7))
        assert client.count("sqlcache_binlog_gaps_total") == 1

    @pytest.mark.parametrize("then", ["a view", "a foreign key", "a function", "as it was"])
    def test_what_led_to_other_schemas_then_does_so_no_more(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
        then: str,
    ) -> None:
        own_server.sql(
            "DROP DATABASE IF EXISTS other; CREATE DATABASE other;"
            "DROP DATABASE IF EXISTS middle; CREATE DATABASE middle;"
            "CREATE TABLE other.x (id INT PRIMARY KEY, v INT); INSERT INTO other.x VALUES (1, 1)"
        )
        keys = "p INT, CONSTRAINT k FOREIGN KEY (p) REFERENCES {} (id) ON DELETE CASCADE"
        definitions, write, definition = {
            "a view": (
                "CREATE VIEW w AS SELECT id, v FROM other.x",
                AS_STATEMENTS + "UPDATE w SET v = 5",
                "ALTER VIEW w AS SELECT id, v FROM t",
            ),
            "a foreign key": (
                f"CREATE TABLE middle.m (id INT PRIMARY KEY, {keys.format('shop.t')});"
                "DROP TABLE other.x;"
                f"CREATE TABLE other.x (id INT PRIMARY KEY, v INT, {keys.format('middle.m')});"
                "INSERT INTO middle.m VALUES (1, 1); INSERT INTO other.x VALUES (1, 1, 1)",
                "DELETE FROM t WHERE id = 1",
                "ALTER TABLE middle.m DROP FOREIGN KEY k",
            ),
            "a function": (
                "CREATE FUNCTION g() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN"
                " UPDATE other.x SET v = 5; RETURN 1; END",
                AS_STATEMENTS + "SELECT g()",
                "DROP FUNCTION g; CREATE FUNCTION g() RETURNS INT DETERMINISTIC RETURN 1",
            ),
            "as it was": ("", "UPDATE t SET v = 5", "ALTER TABLE t ADD INDEX (v)"),
        }[then]
        try:
            if definitions:
                own_server.sql(definitions, "shop")
            fleet = fleet_on(memcached, size=1)
            fleet.clients()[0].cache("SELECT v FROM other.x")
            fleet.stop()
            own_server.sql(write, "shop")
            own_server.sql(definition, "shop")
            (fleet.go_on if then == "as it was" else fleet.start)()
            (client,) = fleet.clients()
            hits = client.count("sqlcache_hits_total")
            assert client.read("SELECT v FROM other.x") == own_server.sql("SELECT v FROM other.x")
            assert (client.count("sqlcache_hits_total") > hits) == (then == "as it was")
        finally:
            own_server.sql("DROP DATABASE other; DROP DATABASE middle")

    def test_nothing_at_all(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
    ) -> None:
        fleet = fleet_on(memcached, size=1)
        fleet.stop()
        fleet.go_on()
        (client,) = fleet.clients()
        assert hits_of_quiet(client) == QUIET
        assert client.roots == 0

    def test_the_log_goes_on_in_other_files(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
    ) -> None:
        fleet = fleet_on(memcached, size=1)
        fleet.stop()
        own_server.sql("FLUSH BINARY LOGS")
        write_around(own_server)
        own_server.sql("FLUSH BINARY LOGS")
        fleet.go_on()
        check(fleet)
        assert fleet.clients()[0].roots == 0, "a file that begins is no server that does"

    def test_the_place_was_lost(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
    ) -> None:
        fleet = fleet_on(memcached, size=1)
        fleet.stop()
        write_around(own_server)
        key = Keyspace("sqlcache").binlog(turn=False)
        memcached.ask(b"delete %b\r\n" % key, b"\r\n")
        fleet.start()
        (client,) = fleet.clients()
        assert client.read("SELECT COUNT(*) FROM t") == ((1_002,),)
        assert hits_of_quiet(client) == 0
        assert client.count("sqlcache_binlog_gaps_total") == 1

    def test_its_account_lost_the_right_to_read_the_log(
        self,
        own_server: PrivateSqlServer,
        memcached: PrivateMemcached,
        fleet_on: Callable[..., Fleet],
    ) -> None:
        fleet = fleet_on(memcached, size=1)
        fleet.stop()
        write_around(own_server)
        account = f"{own_server.service_user}@'%'"
        rights = "REPLICATION SLAVE, REPLICATION CLIENT ON *.*"
        own_server.sql(f"REVOKE {rights} FROM {account}")
        try:
            fleet.start()
            (client,) = fleet.clients()
            assert client.read("SELECT COUNT(*) FROM t") == ((1_002,),)
            assert hits_of_quiet(client) == 0
        finally:
            own_server.sql(f"GRANT {rights} TO {account}")


def place_on(node: PrivateMemcached) -> bytes:
    """What the node says of where the log was followed to."""
    return node.ask(b"get %b\r\n" % Keyspace("sqlcache").binlog(turn=False), b"END\r\n")


def is_place_of_the_end(node: PrivateMemcached, before: bytes) -> bool:
    """Whether it has another one than before, which stays: nothing more is written."""
    place = place_on(node)
    time.sleep(1)  # it is told every 0.1 to 0.5 s
    return before != place == place_on(node)


def on(node: PrivateMemcached, nodes: tuple[PrivateMemcached, ...], begins: str) -> str:
    """A name for a table whose tag lives on this node."""
    ring = Ring([each.address for each in nodes])
    names = (f"{begins}{number}" for number in itertools.count())
    return next(
        name
        for name in names
        if ring.node_for(Keyspace("sqlcache").tag("shop", name)) == node.address
    )


class TestOneNodeIsAway:
    """And its memory is as it was when it comes back."""

    @pytest.mark.parametrize("followed_on", [False, True])
    def test_while_a_proxy_that_owes_it_a_bump_dies(
        self,
        own_server: PrivateSqlServer,
        tmp_path: Path,
        fleet_on: Callable[..., Fleet],
        followed_on: bool,
    ) -> None:
        with Warm(tmp_path / "stays") as stays, Warm(tmp_path / "goes") as goes:
            nodes = stays, goes
            through, around, untouched = (on(goes, nodes, name) for name in ("p", "d", "q"))
            for name in (through, around, untouched):
                own_server.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", "shop")
                own_server.sql(f"INSERT INTO {name} VALUES (1, 1)", "shop")
            fleet = fleet_on(*nodes)
            writer, reader = fleet.clients()
            for name in (through, around, untouched):
                reader.cache(f"SELECT v FROM {name}")
            goes.put_down()
            assert writer.read(f"UPDATE {through} SET v = 2") == ()
            assert writer.count("sqlcache_pending_bumps") >= 1
            fleet.both[0].kill()
            own_server.sql(f"UPDATE {around} SET v = 2", "shop")
            if followed_on:
                until(lambda: reader.count("sqlcache_binlog_following") == 1, 10)
                until(lambda: reader.count("sqlcache_binlog_transactions_total") >= 1, 10)
            kept = reader.count(KEPT)
            goes.restart()
            while reader.count(KEPT) == kept:
                assert reader.read(f"SELECT v FROM {through}") == ((2,),)
                assert reader.read(f"SELECT v FROM {around}") == ((2,),)
                assert reader.count("sqlcache_node_outages_total") == 0
            assert reader.read(f"SELECT v FROM {through}") == ((2,),)
            assert reader.read(f"SELECT v FROM {around}") == ((2,),)
            hits = reader.count("sqlcache_hits_total")
            assert reader.read(f"SELECT v FROM {untouched}") == ((1,),)
            assert reader.count("sqlcache_hits_total") == hits + 1

    def test_while_the_log_is_begun_anew(
        self, own_server: PrivateSqlServer, tmp_path: Path, fleet_on: Callable[..., Fleet]
    ) -> None:
        """It has a place in the log of before, which is in a file of a higher number."""
        with Warm(tmp_path / "stays") as stays, Warm(tmp_path / "goes") as goes:
            name = on(goes, (stays, goes), "p")
            own_server.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", "shop")
            own_server.sql(f"INSERT INTO {name} VALUES (1, 1)", "shop")
            own_server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS; FLUSH BINARY LOGS")
            fleet = fleet_on(stays, goes, size=1)
            fleet.clients()[0].cache(f"SELECT v FROM {name}")
            fleet.stop()
            goes.put_down()
            time.sleep(1)  # a log is told from another by the second in which it was begun
            own_server.sql(f"UPDATE {name} SET v = 2", "shop")
            began_anew(own_server)
            before = place_on(stays)
            fleet.start()
            until(lambda: fleet.count("sqlcache_binlog_gaps_total") == 1)
            until(lambda: is_at_the_end(fleet.both[0], own_server))
            until(lambda: is_place_of_the_end(stays, before))
            fleet.stop(killed=True)
            goes.restart()
            fleet.start()
            (client,) = fleet.clients()
            while client.count("sqlcache_binlog_nodes_disowned_total") == 0:
                assert client.read(f"SELECT v FROM {name}") == ((2,),)
            assert client.cache(f"SELECT v FROM {name}") == ((2,),)

    def test_while_a_proxy_dies_that_owes_it_what_is_not_in_the_log(
        self, own_server: PrivateSqlServer, tmp_path: Path, fleet_on: Callable[..., Fleet]
    ) -> None:
        with Warm(tmp_path / "stays") as stays, Warm(tmp_path / "goes") as goes:
            name = on(goes, (stays, goes), "p")
            own_server.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", "shop")
            own_server.sql(f"INSERT INTO {name} VALUES (1, 1)", "shop")
            fleet = fleet_on(stays, goes)
            writer, reader = fleet.clients()
            reader.cache(f"SELECT v FROM {name}")
            goes.put_down()
            for _ in range(3):  # also when it has been seen before
                assert writer.read("SET sql_log_bin = 0") == ()
            assert writer.read(f"UPDATE {name} SET v = 2") == ()
            fleet.both[0].kill()
            goes.restart()
            until(lambda: reader.count("sqlcache_node_outages_total") == 1, 30)
            assert reader.read(f"SELECT v FROM {name}") == ((2,),)
