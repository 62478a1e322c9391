"""What was written through a sqlcache is not made outdated once more by the binary log, where the
server tells sessions of their commits; and no client notices that it does."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from sqlcache.demo.waiting import Waited
from sqlcache.mysql.constants import Capability
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import NEW, OLD, RawClient, packets_of
from tests.servers import PATIENT, MySQLMissing, PrivateMySQL

WITHIN_S = 20.0
_TRIED_FOR_S = 60.0
_COUNTED_S = 0.2
_SETTLED_S = 1.5  # what may not be seen yet is bumped again a second later
FOLLOWS = {"binlog__follow": "on"}
TELLS = {
    "mysqld": ("--session-track-gtids=OWN_GTID",),
    "mariadbd": (
        "--session-track-system-variables=autocommit,character_set_client,"
        "character_set_connection,character_set_results,time_zone,last_gtid",
    ),
}
TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, v INT);
CREATE TABLE u (id INT PRIMARY KEY, v INT);
CREATE TABLE m (id INT) ENGINE = MyISAM;
CREATE TABLE logged (v INT);
CREATE TABLE last (id INT PRIMARY KEY AUTO_INCREMENT);
CREATE TABLE p (id INT PRIMARY KEY);
CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE);
CREATE PROCEDURE q() UPDATE u SET v = v + 1;
CREATE TRIGGER logs AFTER UPDATE ON u FOR EACH ROW INSERT INTO logged VALUES (NEW.v);
INSERT INTO t VALUES (1, 1), (2, 2);
INSERT INTO u VALUES (1, 10), (2, 20);
INSERT INTO logged VALUES (1);
INSERT INTO p VALUES (1), (2);
INSERT INTO c VALUES (1, 1), (2, 2);
"""
LAST = "SELECT COUNT(*) FROM last"
READS = tuple(f"SELECT * FROM {table}" for table in ("t", "u", "m", "c", "logged"))


@pytest.fixture(scope="module", params=[PrivateMariaDB, PrivateMySQL], ids=["mariadb", "mysql"])
def upstream(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateSqlServer]:
    """A server that tells sessions of their commits."""
    kind = request.param
    try:
        server = kind(tmp_path_factory.mktemp("telling"), TELLS[kind.name])
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="module")
def memcached_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMemcached]:
    with PrivateMemcached(tmp_path_factory.mktemp("memcached")) as server:
        yield server


class Steady(PrivateSqlcache):
    """One that keeps its turn where it stands still for a while, or its node does, and leaves that
    of another alone: what is known of commits the follower's own metrics tell."""

    def command(self) -> list[str]:
        program, _, _, *arguments = super().command()
        patched = "from sqlcache.binlog import turns; turns.TURN_TTL_S = turns._SURELY_OVER_S = 60"
        run = "import sys; from sqlcache.cli import main; sys.exit(main())"
        return [program, "-c", f"{patched}; {run}", *arguments]


@pytest.fixture(scope="module")
def follower(
    upstream: PrivateSqlServer,
    memcached_of_all: PrivateMemcached,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PrivateSqlcache]:
    """A sqlcache that follows the log, and has no clients."""
    nodes = (memcached_of_all.address,)
    folder = tmp_path_factory.mktemp("follower")
    with Steady(folder, upstream.service_url, nodes, **PATIENT | FOLLOWS) as server:
        until(lambda: "following the binary log" in server.log_text())
        yield server
    assert "Traceback" not in server.log_text()


@pytest.fixture(scope="module")
def served(
    upstream: PrivateSqlServer,
    memcached_of_all: PrivateMemcached,
    follower: PrivateSqlcache,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PrivateSqlcache]:
    """The one that clients use."""
    nodes = (memcached_of_all.address,)
    folder = tmp_path_factory.mktemp("served")
    with Steady(folder, upstream.service_url, nodes, **PATIENT | FOLLOWS) as server:
        begin_to_name(server, follower, upstream)
        yield server
    assert "Traceback" not in server.log_text()


@pytest.fixture(scope="module")
def served_the_long_way(
    upstream: PrivateSqlServer,
    memcached_of_all: PrivateMemcached,
    follower: PrivateSqlcache,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PrivateSqlcache]:
    """One that plans nothing."""
    nodes = (memcached_of_all.address,)
    folder = tmp_path_factory.mktemp("long")
    settings = {**PATIENT, **FOLLOWS, "proxy__straight_path": False}
    with Steady(folder, upstream.service_url, nodes, **settings) as server:
        begin_to_name(server, follower, upstream)
        yield server
    assert "Traceback" not in server.log_text()


def begin_to_name(
    server: PrivateSqlcache, follower: PrivateSqlcache, upstream: PrivateSqlServer
) -> None:
    """Returns when its clients' commits are known again, and all is forgotten that had to be."""
    upstream.sql("CREATE DATABASE IF NOT EXISTS first")
    upstream.sql("CREATE TABLE IF NOT EXISTS first.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    client = Client(server, upstream, "first")

    def is_known() -> bool:
        before = count(follower, "tags_own")
        client.run("INSERT INTO first.t VALUES ()")
        return waits_for(lambda: count(follower, "tags_own") > before, within_s=1)

    until(is_known)
    roots = 'sqlcache_invalidations_total{kind="root"}'
    until(lambda: follower.metrics()[roots] >= (2 if upstream.name == "mysqld" else 1))


def count(server: PrivateSqlcache, name: str) -> float:
    """One of the metrics of the binary log."""
    return server.metrics()[f"sqlcache_binlog_{name}_total"]


def until(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Waits until it holds."""
    assert waits_for(holds, within_s), "it never came"


def waits_for(holds: Callable[[], bool], within_s: float) -> bool:
    """Waits until it holds, but no longer; whether it does. Pauses do not count."""
    waited = Waited()
    while not (held := holds()) and waited.seconds() < within_s:
        waited.sleep(0.001)
    return held


class Client:
    """A client of sqlcache."""

    def __init__(
        self, server: PrivateSqlcache, upstream: PrivateSqlServer, schema: str, **options: Any
    ) -> None:
        login = {"user": upstream.user, "password": upstream.password, "database": schema}
        self.server = server
        options = {"client_flag": CLIENT.MULTI_STATEMENTS, "local_infile": True, **options}
        self.connection = server.connect(**login, **options)

    def run(self, text: str, *parameters: object) -> tuple[tuple[Any, ...], ...]:
        """The last rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(text, parameters or None)
            rows = cursor.fetchall()
            while cursor.nextset():
                rows = cursor.fetchall()
            return tuple(rows)

    def is_hit(self, query: str) -> bool:
        before = self.server.metrics()["sqlcache_hits_total"]
        self.run(query)
        return self.server.metrics()["sqlcache_hits_total"] > before

    def fill(self) -> None:
        """Has all tables' rows in the cache."""
        for query in READS:
            until(lambda query=query: self.is_hit(query))  # type: ignore[misc]

    def has_all(self, upstream: PrivateSqlServer, schema: str) -> bool:
        """Whether all tables' rows are in the cache, and those that the server has."""
        hits = all(self.is_hit(query) for query in READS)
        return hits and all(self.run(query) == upstream.sql(query, schema) for query in READS)


@pytest.fixture
def client(served: PrivateSqlcache, upstream: PrivateSqlServer, schema: str) -> Client:
    upstream.sql(TABLES, schema)
    return Client(served, upstream, schema)


Behind = Callable[..., tuple[float, float]]


@pytest.fixture
def behind(
    client: Client,
    follower: PrivateSqlcache,
    upstream: PrivateSqlServer,
    schema: str,
) -> Behind:
    """Writes and fills the cache anew, and only then has the log read, with one more change in it,
    around sqlcache. Returns for how many tags it was known that they had ended, and how many
    others were bumped; `late`, with all that is asked and bumped once more after a while."""

    def mark() -> None:
        until(lambda: client.is_hit(LAST))
        upstream.sql("INSERT INTO last VALUES ()", schema)

    def reach_mark(for_s: float) -> None:
        """Returns when all that is in the log up to there has been taken from it."""
        until(lambda: client.run(LAST) == upstream.sql(LAST, schema))
        stand_still(follower, for_s)  # its metrics follow

    def followed(write: Callable[[], object], *, late: bool = False) -> tuple[float, float]:
        quiet_s = _SETTLED_S if late else _COUNTED_S
        write()  # planned from here on
        mark()
        reach_mark(quiet_s)
        own, bumps = count(follower, "tags_own"), count(follower, "bumps")
        follower.freeze()
        try:
            write()
            client.fill()
            mark()
        finally:
            follower.thaw()
        reach_mark(quiet_s)
        return count(follower, "tags_own") - own, count(follower, "bumps") - bumps - 1

    return followed


def assert_tells(
    behind: Behind,
    write: Callable[[], object],
    expected: tuple[float, float],
) -> None:
    """Of one write of a few: where the server is too busy to say in time that a commit can be seen,
    what hangs on it is bumped once more."""
    waited = Waited()
    told = [behind(write)]
    while told[-1] != expected and waited.seconds() < _TRIED_FOR_S:
        told.append(behind(write))
    assert told[-1] == expected, told


def stand_still(follower: PrivateSqlcache, for_s: float) -> None:
    """Returns when it has counted all that it has seen, and nothing for so long."""
    counted = None
    while counted != (now := (count(follower, "tags_own"), count(follower, "bumps"))):
        counted = now
        time.sleep(for_s)


CANNOT_ROLL_BACK = "a table that cannot roll back"
# name -> what is written, and how many tables that concerns
WRITES = {
    "a change": ("UPDATE t SET v = v + 1", 1),
    "a transaction": (
        "BEGIN; UPDATE t SET v = v + 8; SAVEPOINT s; DELETE FROM c; ROLLBACK TO s;"
        "UPDATE c SET p = 3 - p; COMMIT",
        2,
    ),
    "an implicit commit": ("BEGIN; UPDATE t SET v = v + 1; BEGIN; COMMIT", 1),
    "without autocommit": ("SET autocommit = 0; UPDATE t SET v = v + 4; SET autocommit = 1", 1),
    "a trigger": ("UPDATE u SET v = v + 1", 2),
    "a cascade": ("DELETE FROM p LIMIT 1", 2),
    CANNOT_ROLL_BACK: ("INSERT INTO m VALUES (3)", 1),
    "a text prepared": ("PREPARE s FROM 'UPDATE t SET v = v + 1'; EXECUTE s", 1),
    "one phase of two": (
        "XA START 'a'; UPDATE t SET v = v + 6; XA END 'a'; XA COMMIT 'a' ONE PHASE",
        1,
    ),
    "two phases": (
        "XA START 'a'; UPDATE t SET v = v + 6; XA END 'a'; XA PREPARE 'a'; XA COMMIT 'a'",
        1,
    ),
    "a procedure": ("CALL q()", 2),
    "a truncation": ("TRUNCATE t", 1),
    "nothing": ("BEGIN; UPDATE t SET v = v + 6; ROLLBACK", 0),
}
MORE_WRITES = "UPDATE t SET v = v + 3; SELECT 1; UPDATE t SET v = v + 4; UPDATE c SET p = 3 - p"

# name -> what is defined, by a number, and how many tags that concerns
DEFINITIONS = {
    "a column": ("ALTER TABLE t ADD c{n} INT", 2),
    "a table": ("CREATE TABLE new{n} (v INT)", 2),
    "a table with rows": ("CREATE TABLE new{n} AS SELECT v FROM t", 2),
    "a view": ("CREATE VIEW new{n} AS SELECT v FROM t", 3),
    "a trigger": ("CREATE TRIGGER new{n} AFTER INSERT ON m FOR EACH ROW SET @a = 1", 4),
    "a routine": ("CREATE PROCEDURE new{n}() SELECT 1", 2),
}


class TestWhatIsWrittenThroughIt:
    @pytest.mark.parametrize("name", WRITES)
    def test_is_ended_once(
        self, client: Client, behind: Behind, upstream: PrivateSqlServer, schema: str, name: str
    ) -> None:
        texts, tables = WRITES[name]

        def write() -> None:
            for text in texts.split(";"):
                client.run(text)

        # Who wrote a table that cannot roll back may have it locked still when the log tells of
        # that, and MariaDB does not tell when others can see a branch that was committed.
        late = name == CANNOT_ROLL_BACK or (name == "two phases" and upstream.name == "mariadbd")
        # What is written with it, around sqlcache, is bumped again with it.
        told = (2 * tables, 1) if late else (tables, 0)
        assert_tells(partial(behind, late=late), write, told)
        assert client.has_all(upstream, schema)

    @pytest.mark.parametrize("name", DEFINITIONS)
    def test_definitions_are_ended_once(
        self, client: Client, behind: Behind, upstream: PrivateSqlServer, schema: str, name: str
    ) -> None:
        text, tags = DEFINITIONS[name]
        numbers = itertools.count()
        assert_tells(behind, lambda: client.run(text.format(n=next(numbers))), (tags, 0))
        assert client.has_all(upstream, schema)

    def test_in_one_text_is_ended_once(self, client: Client, behind: Behind) -> None:
        assert_tells(behind, lambda: client.run(MORE_WRITES), (2, 0))
        assert all(client.is_hit(query) for query in READS)

    def test_the_long_way_is_ended_once(
        self,
        served_the_long_way: PrivateSqlcache,
        client: Client,
        behind: Behind,
        upstream: PrivateSqlServer,
        schema: str,
    ) -> None:
        writer = Client(served_the_long_way, upstream, schema)
        for text, tables in ((MORE_WRITES, 2), ("UPDATE t SET v = v + 1", 1)):
            assert_tells(behind, lambda text=text: writer.run(text), (tables, 0))  # type: ignore[misc]
            assert all(client.is_hit(query) for query in READS)

    def test_by_executions_is_ended_once(
        self, served: PrivateSqlcache, behind: Behind, upstream: PrivateSqlServer, schema: str
    ) -> None:
        with RawClient.logged_in(served, *account(upstream), schema) as writer:
            prepared = writer.ask(b"\x16UPDATE t SET v = v + 1")
            number = prepared[5:9]
            execute = b"\x17" + number + b"\0\1\0\0\0"
            assert_tells(behind, lambda: writer.ask(execute), (1, 0))

    def test_from_a_file_is_ended_once(
        self, client: Client, behind: Behind, tmp_path: Path
    ) -> None:
        rows = tmp_path / "rows"
        rows.write_text("".join(f"{number}\n" for number in range(100, 200)))
        load = f"LOAD DATA LOCAL INFILE '{rows}' INTO TABLE logged"
        assert_tells(behind, lambda: client.run(load), (1, 0))
        assert all(client.is_hit(query) for query in READS)

    def test_as_a_statement_in_the_log_is_ended_once(self, client: Client, behind: Behind) -> None:
        client.run("SET SESSION binlog_format = STATEMENT")
        assert_tells(behind, lambda: client.run("UPDATE t SET v = v + 1"), (1, 0))
        assert all(client.is_hit(query) for query in READS)

    def test_by_many_at_once_is_ended_once(
        self,
        client: Client,
        behind: Behind,
        served: PrivateSqlcache,
        upstream: PrivateSqlServer,
        schema: str,
    ) -> None:
        """They have one fence, which names the commits of all."""
        others = [RawClient.logged_in(served, *account(upstream), schema) for _ in range(8)]

        def write() -> None:
            for number, other in enumerate(others):
                other.query(f"UPDATE t SET v = v + 1 WHERE id = {number % 2 + 1}")
            for other in others:
                other.read_packet()

        own, bumped = behind(write)
        assert own >= 1
        assert bumped == 0
        assert all(client.is_hit(query) for query in READS)
        for other in others:
            other.close()

    @pytest.mark.parametrize("capabilities", [OLD | Capability.SESSION_TRACK, NEW])
    def test_by_a_client_that_is_told_so_is_ended_once(
        self,
        client: Client,
        behind: Behind,
        served: PrivateSqlcache,
        upstream: PrivateSqlServer,
        schema: str,
        capabilities: int,
    ) -> None:
        with RawClient.logged_in(served, *account(upstream), schema, capabilities) as writer:
            assert told_in(writer.sql("UPDATE t SET v = 77"))
            assert_tells(behind, lambda: writer.sql("UPDATE t SET v = v + 1"), (1, 0))
            assert all(client.is_hit(query) for query in READS)

    def test_is_ended_again_where_the_client_wants_to_be_told_of_no_commits(
        self, client: Client, behind: Behind, upstream: PrivateSqlServer
    ) -> None:
        mysql = upstream.name == "mysqld"
        name = "gtids = OFF" if mysql else "system_variables = 'autocommit'"
        client.run(f"SET SESSION session_track_{name}")
        assert_tells(behind, lambda: client.run("UPDATE t SET v = v + 1"), (0, 1))
        assert not client.is_hit(READS[0])

    @pytest.mark.parametrize("together", [True, False], ids=["in one text", "before"])
    def test_is_ended_again_where_the_client_is_told_of_all_commits(
        self, client: Client, behind: Behind, upstream: PrivateSqlServer, together: bool
    ) -> None:
        """Others' are among them."""
        if upstream.name != "mysqld":
            pytest.skip("MySQL tells of them")
        tells, write = "SET SESSION session_track_gtids = ALL_GTIDS", "UPDATE t SET v = v + 1"
        if together:
            write = f"{tells}; {write}"
        else:
            client.run(tells)
        assert_tells(behind, lambda: client.run(write), (0, 1))
        assert not client.is_hit(READS[0])

    def test_under_a_tag_is_ended_again(
        self, client: Client, behind: Behind, upstream: PrivateSqlServer
    ) -> None:
        if upstream.name != "mysqld":
            pytest.skip("MySQL has tags")
        client.run("SET gtid_next = 'AUTOMATIC:tagged'")
        own, bumped = behind(lambda: client.run("UPDATE t SET v = v + 1"))
        assert own == 0
        assert bumped >= 1, "and once more, as when it can be seen is not known"

    def test_and_returned_is_ended_once(
        self,
        behind: Behind,
        served: PrivateSqlcache,
        upstream: PrivateSqlServer,
        schema: str,
    ) -> None:
        if upstream.name == "mysqld":
            pytest.skip("MariaDB returns what it writes")
        knows_eof = OLD | Capability.DEPRECATE_EOF
        for capabilities, told in ((knows_eof, (1, 0)), (OLD, (0, 1))):
            with RawClient.logged_in(served, *account(upstream), schema, capabilities) as writer:
                returning = "REPLACE INTO t VALUES (1, RAND() * 1000000) RETURNING id"
                assert_tells(behind, lambda: writer.sql(returning), told)  # noqa: B023

    def test_in_tables_of_two_engines_is_ended_once(
        self, client: Client, behind: Behind, upstream: PrivateSqlServer
    ) -> None:
        if upstream.name == "mysqld":
            pytest.skip("MySQL does not allow that")
        client.run("INSERT INTO m VALUES (1)")
        write = "UPDATE t, m SET t.v = t.v + 1, m.id = m.id + 1"
        assert_tells(behind, lambda: client.run(write), (2, 0))
        assert all(client.is_hit(query) for query in READS)

    def test_and_around_it_at_once_is_ended_again(
        self, client: Client, behind: Behind, upstream: PrivateSqlServer, schema: str
    ) -> None:
        def write() -> None:
            client.run("UPDATE t SET v = v + 1")
            upstream.sql("UPDATE t SET v = v + 1", schema)

        assert_tells(behind, write, (0, 1))
        assert client.run(READS[0]) == upstream.sql(READS[0], schema)


class TestWhatIsWrittenAroundIt:
    def test_is_seen_between_writes_through_it(
        self, client: Client, upstream: PrivateSqlServer, schema: str
    ) -> None:
        for number in range(30):
            client.run("UPDATE t SET v = %s WHERE id = 1", 100 + number)
            upstream.sql(f"UPDATE t SET v = {number} WHERE id = 2", schema)
            now = ((1, 100 + number), (2, number))
            until(lambda now=now: client.run(READS[0]) == now)  # type: ignore[misc]
            assert client.run(READS[0]) == now


def test_what_has_the_gtid_of_a_write_through_it_is_seen(
    tmp_path: Path, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    """As what is replayed from another server's log, or from this one's. Nothing has a name after
    it, so the server is no other test's."""
    with PrivateMariaDB(tmp_path / "replayed", TELLS[PrivateMariaDB.name]) as server:
        server.sql("CREATE DATABASE own")
        server.sql(TABLES, "own")
        served = proxy(server, memcached, **FOLLOWS)
        begin_to_name(served, served, server)
        client = Client(served, server, "own")
        client.fill()  # so that it is known what is written
        stand_still(served, _COUNTED_S)
        own = count(served, "tags_own")

        def is_known() -> bool:
            client.run("UPDATE t SET v = v + 10")
            return count(served, "tags_own") > own

        until(is_known)
        ((gtid,),) = server.sql("SELECT @@gtid_binlog_pos")
        number = gtid.rpartition("-")[2]
        client.fill()
        server.sql(f"SET gtid_seq_no = {number}; UPDATE t SET v = 6", "own")
        until(lambda: client.run(READS[0]) == ((1, 6), (2, 6)))
        assert server.sql("SELECT @@gtid_binlog_pos") == ((gtid,),)


def test_one_process_may_write_and_follow_the_log(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> None:
    """What its own sessions wrote it knows; all else it sees."""
    upstream.sql(TABLES, schema)
    served = proxy(upstream, memcached, **FOLLOWS)
    begin_to_name(served, served, upstream)
    client = Client(served, upstream, schema)
    until(lambda: client.is_hit("SELECT * FROM u"))
    client.run("UPDATE t SET v = v + 1 WHERE id = 1")
    time.sleep(0.5)
    own = count(served, "tags_own")
    writes = 200
    for number in range(2, writes + 2):
        client.run(f"UPDATE t SET v = {number} WHERE id = 1")
    until(lambda: count(served, "tags_own") > own + writes / 2)
    assert client.is_hit("SELECT * FROM u")
    upstream.sql("UPDATE u SET v = 77 WHERE id = 1", schema)
    until(lambda: client.run("SELECT v FROM u WHERE id = 1") == ((77,),))


def account(upstream: PrivateSqlServer) -> tuple[str, str]:
    return upstream.user, upstream.password


GTID = re.compile(rb"[0-9a-f]{8}-[0-9a-f-]{27}:([0-9]+-)?[0-9]+|0-1-[0-9]+")

# What MariaDB, from version 11.4 on, ends a login with, for clients that do not know its
# certificate: each has another.
PROOF = re.compile(rb"\x01[0-9A-F]{64}")


def told_in(answer: bytes) -> bool:
    """Whether an answer tells of commits."""
    return GTID.search(answer) is not None


@pytest.fixture(scope="module")
def long_gtids(upstream: PrivateSqlServer) -> None:
    """From here on all are as long: bytes would differ else."""
    if upstream.name == "mysqld":
        ((server, done),) = upstream.sql("SELECT @@server_uuid, @@gtid_executed")
        known = re.match(rf"{server}:1-([0-9]+)", done)
        assert known is not None
        first = int(known[1]) + 1
        upstream.sql(f"SET GLOBAL gtid_purged = '+{server}:{first}-100000'")
    else:
        upstream.sql("SET gtid_seq_no = 100000; CREATE DATABASE IF NOT EXISTS first")


@pytest.mark.usefixtures("long_gtids")
@pytest.mark.parametrize(
    "capabilities",
    [OLD, OLD | Capability.DEPRECATE_EOF, OLD | Capability.SESSION_TRACK, NEW],
    ids=["old", "deprecate-eof", "track", "new"],
)
@pytest.mark.parametrize("way", ["served", "served_the_long_way"])
def test_clients_are_told_what_the_server_tells_them(
    request: pytest.FixtureRequest,
    upstream: PrivateSqlServer,
    schema: str,
    capabilities: int,
    way: str,
) -> None:
    """Byte for byte, whatever the server tells sqlcache beside it; but for what commits are called,
    which are others."""
    upstream.sql(TABLES, schema)
    upstream.sql(
        "CREATE PROCEDURE r() BEGIN INSERT INTO t VALUES (77, 1); SELECT 1; SELECT 2;"
        " DELETE FROM t WHERE id = 77; END",
        schema,
    )
    upstream.connect().close()
    anew = "DELETE FROM t; INSERT INTO t VALUES (1, 1), (2, 2); TRUNCATE m"
    commands = [
        *("INSERT INTO t VALUES (5, 5)", "SELECT * FROM t", "SET NAMES latin1", "SELECT v FROM t"),
        *(f"USE {schema}", "BEGIN", "UPDATE t SET v = v + 1", "COMMIT", "SELECT * FROM t"),
        *("BEGIN", "UPDATE t SET v = 0", "ROLLBACK", "INSERT INTO t VALUES (5, 5)"),
        "UPDATE t SET v = 1; UPDATE t SET v = 2; SELECT * FROM t; DELETE FROM t WHERE id = 5",
        *("CALL r()", "SELECT 1", "DO 1", "SET autocommit = 0", "UPDATE t SET v = 9"),
        *("SET autocommit = 1", "SET time_zone = '+01:00'", "SELECT @@time_zone", "SELECT nothing"),
        *("INSERT INTO t VALUES (6, 6) RETURNING id", "DELETE FROM t WHERE id = 6"),
        *("SELECT @@session_track_system_variables", "SHOW VARIABLES LIKE 'session_track%'"),
        *("TRUNCATE m", "SELECT ROW_COUNT()", "SHOW WARNINGS", "DELETE FROM t WHERE id > 2"),
    ]
    sent = [b"\x03" + text.encode() for text in commands]
    sent += [b"\x02" + schema.encode(), b"\x0e"]
    sent += [b"\x1b\x00\x00", b"\x1f", b"\x03UPDATE t SET v = 1", b"\x03SELECT * FROM t"]
    answers: list[list[bytes]] = []
    for server in (upstream, request.getfixturevalue(way)):
        said = []
        for _ in range(3):
            upstream.sql(anew, schema)
            client = RawClient(server)
            client.read_greeting()
            said.append(client.log_in(*account(upstream), schema, capabilities))
            for command in sent:
                said.append(client.ask_bytes(packets_of(command)))
            client.close()
        answers.append([PROOF.sub(b"", GTID.sub(b"a commit", each)) for each in said])
    direct, relayed = answers
    for place, (expected, got) in enumerate(zip(direct, relayed, strict=True)):
        assert got == expected, f"answer {place}"
    tracks = bool(capabilities & Capability.SESSION_TRACK)
    assert any(b"a commit" in answer for answer in direct) == tracks


def test_the_server_is_asked_to_tell_over_tls_as_well(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    if upstream.name != "mysqld":
        pytest.skip("MySQL has certificates")
    served = proxy(upstream, memcached, **{**PATIENT, **FOLLOWS, "proxy__tls_auto": True})
    begin_to_name(served, served, upstream)
    client = Client(served, upstream, "first", ssl_disabled=False)
    assert client.run("SHOW STATUS LIKE 'Ssl_cipher'")[0][1]


def test_where_the_server_tells_nothing_nothing_is_asked_of_it(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    served = proxy(mariadb, memcached, **FOLLOWS)
    mariadb.sql("CREATE DATABASE quiet; CREATE TABLE quiet.t (id INT PRIMARY KEY)")
    try:
        client = Client(served, mariadb, "quiet")
        until(lambda: "following the binary log" in served.log_text())
        bumps = count(served, "bumps")
        client.run("INSERT INTO t VALUES (1)")
        until(lambda: count(served, "bumps") > bumps)
        assert count(served, "tags_own") == 0
    finally:
        mariadb.sql("DROP DATABASE quiet")


def test_a_server_that_is_killed_has_what_comes_after_it_seen(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
) -> None:
    upstream.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")  # or the rows would be lost
    upstream.sql(TABLES, schema)
    served = proxy(upstream, memcached, **FOLLOWS)
    begin_to_name(served, served, upstream)
    writer = Client(served, upstream, schema)
    writer.run("UPDATE t SET v = 4")
    upstream.kill()
    upstream.restart()
    for number in range(5):
        upstream.sql(f"UPDATE t SET v = {number}", schema)

        def sees(number: int = number) -> bool:
            try:
                reader = Client(served, upstream, schema)
            except pymysql.MySQLError:
                return False
            return reader.run(READS[0]) == ((1, number), (2, number))

        until(sees, 15)
