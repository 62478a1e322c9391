"""Traps of ordering: reads, writes and transactions that cross one another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Command
from tests.conftest import ProxyFactory
from tests.forked import ForkedSqlcache
from tests.integration.scripts import World
from tests.servers import PATIENT

MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20));"
    " CREATE TABLE u (a INT PRIMARY KEY, v VARCHAR(20));"
    " INSERT INTO t VALUES (1, 'x'), (2, 'y'); INSERT INTO u VALUES (1, 'one'), (2, 'two')"
)


# A statement that calls this has read a row, and waits while a test holds the gate.
GATED = "SELECT a FROM t WHERE (v = 'x' OR v = 'new') AND pass(a)"
MAKE_GATE = """
    CREATE DATABASE gated;
    CREATE FUNCTION gated.pass(n INT) RETURNS INT NO SQL BEGIN
        DO GET_LOCK('gate', 30);
        DO RELEASE_LOCK('gate');
        RETURN 1;
    END
"""
GATE = {"name": "gated.pass", "deterministic": True}


@pytest.fixture(scope="module")
def world(upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with World(upstream, folder, cache__lease_ttl_s=1, routines=[GATE]) as started:
        yield started


@pytest.fixture
def gated(world: World) -> Iterator[str]:
    """A schema that has the gate."""
    world.upstream.sql(MAKE_GATE)
    yield "gated"
    world.upstream.sql("DROP DATABASE gated")


def connect(
    server: PrivateSqlcache | PrivateSqlServer, world: World, schema: str
) -> closing[pymysql.Connection[Any]]:
    login = {"user": world.upstream.user, "password": world.upstream.password}
    return closing(server.connect(**login, database=schema, read_timeout=20))


def ask(connection: pymysql.Connection[Any], text: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(text)
        return tuple(cursor.fetchall())


def prepare(connection: Any, text: str) -> None:
    """COM_STMT_PREPARE."""
    connection._execute_command(Command.STMT_PREPARE, text)
    connection._read_packet()


def in_thread(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@contextmanager
def gate_held(world: World) -> Iterator[None]:
    """Until this ends, no statement passes the gate."""
    with closing(world.upstream.connect()) as holder:
        assert ask(holder, "SELECT GET_LOCK('gate', 0)") == ((1,),)
        yield


def wait_for_one_at_the_gate(world: World) -> None:
    waiting = "SELECT 1 FROM information_schema.processlist WHERE state = 'User lock'"
    wait_until(lambda: bool(world.upstream.sql(waiting)), 10, "the statement at the gate")


def test_trap_24_an_answer_older_than_a_write_is_not_stored_after_it(
    world: World, gated: str
) -> None:
    """The reader's query begins before the write and ends after it."""
    world.upstream.sql("CREATE TABLE t (a INT, v CHAR(5)); INSERT INTO t VALUES (1, 'x')", gated)
    answers: list[tuple[Any, ...]] = []
    with connect(world.proxy, world, gated) as reader, connect(world.proxy, world, gated) as w:
        ask(w, "SELECT a FROM t")
        with gate_held(world):
            thread = in_thread(lambda: answers.append(ask(reader, GATED)))
            wait_for_one_at_the_gate(world)
            ask(w, "UPDATE t SET a = 2, v = 'new'")
        thread.join(20)
        assert answers == [((1,),)]
        assert ask(w, GATED) == ((2,),)
        hits = world.hits()
        assert ask(reader, GATED) == ((2,),)
        assert world.hits() == hits + 1


def test_trap_25_what_a_write_changes_is_not_stored_while_it_runs(world: World, gated: str) -> None:
    world.upstream.sql(MAKE, gated)
    with connect(world.proxy, world, gated) as reader, connect(world.proxy, world, gated) as w:
        before = ask(reader, "SELECT v FROM t")
        assert ask(reader, "SELECT v FROM t") == before
        with gate_held(world):
            thread = in_thread(lambda: ask(w, "UPDATE t SET v = 'new' WHERE pass(a)"))
            wait_for_one_at_the_gate(world)
            hits = world.hits()
            assert ask(reader, "SELECT v FROM t") == before
            assert ask(reader, "SELECT v FROM t") == before
            assert world.hits() == hits
        thread.join(20)
        assert ask(reader, "SELECT v FROM t") == (("new",), ("new",))


TRANSACTIONS = [
    ("BEGIN", "COMMIT"),
    ("START TRANSACTION", "COMMIT WORK"),
    ("START TRANSACTION WITH CONSISTENT SNAPSHOT", "COMMIT"),
    ("SET autocommit = 0", "COMMIT"),
    ("SET autocommit = OFF", "SET autocommit = 1"),
    ("SET @@session.autocommit = 0", "SET @@autocommit = ON"),
    ("BEGIN", "ROLLBACK"),
    ("BEGIN", "ROLLBACK AND CHAIN; ROLLBACK"),
    ("BEGIN", "COMMIT AND CHAIN; COMMIT"),
    ("BEGIN", "BEGIN; ROLLBACK"),
    ("BEGIN", "START TRANSACTION READ ONLY; COMMIT"),
    ("BEGIN", "CREATE TABLE ddl (a INT)"),
    ("BEGIN", "DROP TABLE IF EXISTS ddl"),
    ("BEGIN", "TRUNCATE u"),
    ("BEGIN", "ANALYZE TABLE u"),
    ("BEGIN", "LOCK TABLES u READ; UNLOCK TABLES"),
    ("BEGIN", "CREATE TEMPORARY TABLE tmp (a INT); ROLLBACK; DROP TABLE tmp"),
    ("BEGIN", "SET autocommit = 1; ROLLBACK"),
    ("BEGIN", "CALL commits()"),
    ("BEGIN", "PREPARE p FROM 'COMMIT'; EXECUTE p"),
    ("BEGIN", "XA START 'x'; ROLLBACK"),
    ("BEGIN", "FLUSH TABLES; ROLLBACK"),
    ("BEGIN", "GRANT SELECT ON {db}.* TO '{user}'@'%'"),
    ("BEGIN; SAVEPOINT s", "ROLLBACK TO SAVEPOINT s; COMMIT"),
    ("BEGIN; INSERT INTO u VALUES (9, 'x'); SAVEPOINT s", "ROLLBACK TO s; COMMIT; DELETE FROM u"),
    ("BEGIN; SAVEPOINT s", "RELEASE SAVEPOINT s; COMMIT"),
    ("BEGIN", ".reset"),
    ("BEGIN", ".again"),
    ("BEGIN", ".change_user app {db}"),
    ("SET autocommit = 0", ".again"),
    (".prepare b COMMIT", "COMMIT"),
]


def test_trap_26_others_see_a_transactions_writes_when_it_ends_and_itself_at_once(
    world: World,
) -> None:
    steps = [
        f"a  {MAKE}; CREATE PROCEDURE commits() COMMIT; CREATE USER '{{user}}'@'%'",
        "a  .again",
        "a  SELECT v FROM t",
    ]
    for number, (begin, end) in enumerate(TRANSACTIONS):
        writer = f"w{number}"
        steps += [f"{writer}  {begin}", "a  SELECT v FROM t", f"{writer}  SELECT v FROM u"]
        steps += [f"{writer}  UPDATE t SET v = '{number}' WHERE a = 1", "a  SELECT v FROM t"]
        steps += [f"{writer}  SELECT v FROM t", "a  SELECT v FROM t", "a  SELECT v FROM t"]
        steps += [f"{writer}  INSERT INTO t VALUES ({number + 5}, 'more')", f"{writer}  {end}"]
        steps += ["a  SELECT v FROM t", f"{writer}  SELECT v FROM t", f"{writer}  COMMIT"]
        steps += ["a  SELECT v FROM t", "a+ SELECT v FROM t", f"{writer}  SELECT v FROM t"]
    world.compare("\n".join(steps))


@pytest.mark.parametrize(
    "level", ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
)
def test_trap_26_reads_keep_to_the_transactions_isolation(world: World, level: str) -> None:
    """Whether a transaction sees what others commit after its first read."""
    variable = "tx_isolation" if world.is_mariadb else "transaction_isolation"
    named = level.replace(" ", "-")
    ways = [
        f"SET SESSION TRANSACTION ISOLATION LEVEL {level}",
        f"SET TRANSACTION ISOLATION LEVEL {level}",
        f"SET {variable} = '{named}'",
        f"SET @@{variable} = '{named}'",
        f"SET @@session.{variable} = '{named}'",
        "SET innodb_lock_wait_timeout = 1",
    ]
    steps = [f"w  {MAKE}", "w  SELECT v FROM t", "w+ SELECT v FROM t"]
    wait = level == "SERIALIZABLE"  # which would make the writer wait for the reader's locks
    for number, way in enumerate(ways):
        reader = f"r{number}"
        steps += [f"{reader}  {way}", f"{reader}  BEGIN", f"{reader}  SELECT v FROM u"]
        steps += [f"{reader}  SELECT v FROM t"] if not wait else []
        steps += [f"w  UPDATE t SET v = '{number}'", "w  SELECT v FROM t", "w  SELECT v FROM t"]
        steps += [f"{reader}  SELECT v FROM t", f"{reader}  SELECT v FROM u"]
        steps += [f"{reader}  COMMIT", f"{reader}  SELECT v FROM t", f"{reader}  BEGIN"]
        steps += [f"{reader}  SELECT v FROM t"] if not wait else []
        steps += [f"w  UPDATE t SET v = 'x{number}'", "w  SELECT v FROM t", "w  SELECT v FROM t"]
        steps += [f"{reader}  SELECT v FROM t", f"{reader}  COMMIT"]
    world.compare("\n".join(steps))


@pytest.mark.parametrize(
    ("session", "transaction"),
    [("READ ONLY", "READ WRITE"), ("READ WRITE", "READ ONLY"), ("READ ONLY", "ISOLATION")],
)
def test_trap_26_a_transaction_begun_by_a_hit_may_write_as_it_was_told(
    world: World, session: str, transaction: str
) -> None:
    access = f" {transaction}" if transaction.startswith("READ") else ""
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        b  SET SESSION TRANSACTION {session}
        b  SELECT v FROM t
        b+ SELECT v FROM t
        b  START TRANSACTION{access}
        b+ SELECT v FROM t
        b  UPDATE t SET v = 'new'
        b  COMMIT
        a  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    ("session", "begin"),
    [
        ("READ WRITE", ["BEGIN /* commonly used */"]),
        ("READ WRITE", ["START TRANSACTION READ ONLY /* underwriter */"]),
        ("READ ONLY", ["BEGIN /* rewrite a snapshot */"]),
        ("READ WRITE", ["START TRANSACTION READ ONLY; START TRANSACTION"]),
        ("READ WRITE", [".prepare s START TRANSACTION READ ONLY", ".execute s"]),
        ("READ WRITE", ["PREPARE s FROM 'START TRANSACTION READ ONLY'", "EXECUTE s"]),
    ],
)
def test_trap_26_a_transaction_begun_by_a_hit_is_as_its_statement_says_not_its_comments(
    world: World, session: str, begin: list[str]
) -> None:
    begins = "\n".join(f"        b  {text}" for text in begin)
    world.compare(f"""
        a  {MAKE}
        b  SET SESSION TRANSACTION {session}
        b  SELECT v FROM t
        b+ SELECT v FROM t
{begins}
        b  SELECT v FROM t
        b  UPDATE t SET v = 'new'
        b  SELECT v FROM t
        b  ROLLBACK
        a  SELECT v FROM t
    """)


def test_trap_26_a_prepared_start_opens_its_snapshot_at_once(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  .prepare s START TRANSACTION WITH CONSISTENT SNAPSHOT
        a  .execute s
        b  UPDATE t SET v = 'new' WHERE a = 1
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  SELECT v FROM t
        a  SELECT v FROM t
        a  COMMIT
    """)


def test_trap_26_what_a_transaction_has_read_is_refused_once_its_right_is_revoked(
    world: World,
) -> None:
    world.compare(f"""
        a  {MAKE}; CREATE USER {{user}} IDENTIFIED BY 'p'
        a  GRANT SELECT ON {{db}}.t TO {{user}}
        b  .login {{user}}
        b  USE {{db}}
        b  BEGIN
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  REVOKE SELECT ON {{db}}.t FROM {{user}}
        b  SELECT v FROM t
    """)


def test_trap_26_what_was_read_before_a_rollback_to_a_savepoint_may_be_redefined(
    world: World,
) -> None:
    """Where the server keeps no lock for a binary log."""
    world.compare(f"""
        a  {MAKE}
        a  SET sql_log_bin = 0
        b  SET lock_wait_timeout = 1
        a  BEGIN
        a  SELECT * FROM u
        a  SAVEPOINT s
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  ROLLBACK TO s
        b  ALTER TABLE t ADD COLUMN c INT DEFAULT 5
        a  SELECT v FROM t
        a  ROLLBACK
    """)


def test_trap_26_settings_of_the_next_transaction_wait_until_it_has_come(world: World) -> None:
    """Which statements use them up differs: with MySQL a SELECT without a table does."""
    variable = "tx_isolation" if world.is_mariadb else "transaction_isolation"
    sets = [
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        f"SET @@{variable} = CONCAT('READ-', 'COMMITTED')",
    ]
    between = [".ping", "SELECT 1", "DO 1", "SHOW WARNINGS", "SHOW TABLES", "SET @x = 1"]
    between += ["SELECT no_such", "UPDATE u SET v = '' WHERE a = 9", "SELECT v FROM u", "COMMIT"]
    steps = [f"w  {MAKE}"]
    ways = [(change, statement) for change in sets for statement in between]
    for number, (change, statement) in enumerate(ways):
        reader = f"r{number}"
        steps += ["w  SELECT v FROM t", "w+ SELECT v FROM t", f"{reader}  SELECT v FROM t"]
        steps += [f"{reader}  {change}", f"{reader}  {statement}", f"{reader}  BEGIN"]
        steps += [f"{reader}  SELECT v FROM t", f"w  UPDATE t SET v = '{number}'"]
        steps += ["w  SELECT v FROM t", f"{reader}  SELECT v FROM t", f"{reader}  COMMIT"]
        steps += [f"{reader}  SELECT v FROM t"]
    world.compare("\n".join(steps))


@pytest.mark.parametrize("again", ["BEGIN", "START TRANSACTION READ ONLY", "SET autocommit = 1"])
@pytest.mark.parametrize("begins", ["BEGIN", "SET autocommit = 0"])
@pytest.mark.parametrize("level", ["READ UNCOMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize(
    "sets", ["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "CALL sets()"]
)
def test_trap_26_what_is_set_amid_a_transaction_is_of_those_after_one_that_is_ended_by_name(
    world: World, sets: str, level: str, begins: str, again: str
) -> None:
    """One that another statement ends hands its own level on, which no variable tells."""
    read_committed = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    hit = "+" if sets == read_committed else " "  # what a procedure has set is not known
    world.compare(f"""
        w  {MAKE}
        w  CREATE PROCEDURE sets() {read_committed}
        r  {read_committed}
        r  SELECT v FROM t
        r  SELECT v FROM t
        r+ SELECT v FROM t
        a  SET SESSION TRANSACTION ISOLATION LEVEL {level}
        a  {begins}
        a  SELECT v FROM u
        w  BEGIN
        w  UPDATE t SET v = 'in'
        a  {sets}
        a  {again}
        a  SELECT v FROM u WHERE RAND() < 2
        a  SELECT v FROM t
        r  SELECT v FROM t
        w  ROLLBACK
        w  UPDATE t SET v = 'new'
        a  SELECT v FROM t
        r  SELECT v FROM t
        r  SELECT v FROM t
        a  COMMIT
        a  BEGIN
        a  SELECT v FROM t
        a  COMMIT
        a  SELECT v FROM t
        a{hit} SELECT v FROM t
    """)


@pytest.mark.parametrize("chains", ["AND CHAIN", "by completion_type"])
@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_trap_26_settings_of_the_next_transaction_outlive_one_that_is_chained(
    world: World, ends: str, chains: str
) -> None:
    told, how = (ends, "CHAIN") if chains != "AND CHAIN" else (f"{ends} AND CHAIN", "NO_CHAIN")
    world.compare(f"""
        w  {MAKE}
        a  SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED
        a  SET completion_type = '{how}'
        a  SET TRANSACTION ISOLATION LEVEL REPEATABLE READ
        a  BEGIN
        a  {told}
        a  BEGIN
        a  SELECT v FROM u
        w  UPDATE t SET v = 'new'
        a  SELECT v FROM t
        w  SELECT v FROM t
        a  {ends} AND NO CHAIN
        a  SELECT v FROM t
        w+ SELECT v FROM t
    """)


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_trap_26_without_autocommit_each_transaction_has_hits(world: World, ends: str) -> None:
    world.compare(f"""
        a  {MAKE}
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  SET autocommit = 0
        a+ SELECT v FROM t
        a  {ends}
        a+ SELECT v FROM t
        a  {ends}
        a+ SELECT v FROM t
        a  {ends}
        a+ SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "sets",
    [
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; SELECT no_such FROM t",
        "SET TRANSACTION READ ONLY; SELECT no_such FROM t",
        "SET @x = 1, @@transaction_read_only = 1; SELECT no_such FROM t",
        "SET STATEMENT max_statement_time = 9 FOR SET TRANSACTION READ ONLY",
    ],
)
@pytest.mark.parametrize("between", ["SELECT v FROM t", "DO 1"])
def test_trap_26_the_next_transaction_is_as_it_was_set_whatever_failed_or_stood_around_it(
    world: World, sets: str, between: str
) -> None:
    """No variable tells of it."""
    world.compare(f"""
        w  {MAKE}
        a  SET time_zone = '+00:00'; SELECT no_such FROM t
        a  SELECT v FROM t
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  {sets}
        a  BEGIN
        a  SELECT v FROM t
        a  COMMIT
        a  {sets}
        w  BEGIN
        w  UPDATE t SET v = 'in'
        a  BEGIN
        a  SELECT v FROM t
        a  COMMIT
        w  ROLLBACK
        a  {sets}
        a  {between}
        a  BEGIN
        a  SELECT v FROM t
        a  INSERT INTO u VALUES (3, 'three')
        a  COMMIT
        w  SELECT v FROM u
    """)


@pytest.mark.parametrize(
    ("before", "amid"),
    [
        ("ISOLATION LEVEL REPEATABLE READ", "ISOLATION LEVEL READ COMMITTED"),
        ("READ WRITE", "READ ONLY"),
        ("READ ONLY", "READ WRITE"),
    ],
)
@pytest.mark.parametrize("end", ["", "; SELECT no_such FROM t"])
def test_trap_26_what_is_set_amid_a_transaction_is_for_those_after_it(
    world: World, before: str, amid: str, end: str
) -> None:
    """MariaDB would take it over where the transaction is begun once more, for a hit."""
    world.compare(f"""
        w  {MAKE}
        a  SET SESSION TRANSACTION {amid}{end}
        a  SELECT v FROM t
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  SET SESSION TRANSACTION {before}
        a  BEGIN
        a  SET SESSION TRANSACTION {amid}{end}
        a  SELECT v FROM t
        w  UPDATE t SET v = 'new'
        a  SELECT v FROM t
        a  INSERT INTO u VALUES (3, 'three')
        a  COMMIT
        a  SELECT v FROM t
        w  SELECT v FROM u
    """)


def test_trap_26_without_autocommit_a_transaction_has_the_level_of_when_it_begins(
    world: World,
) -> None:
    """It begins with the first read, not with the end of the one before."""
    level = "SET SESSION TRANSACTION ISOLATION LEVEL"
    world.compare(f"""
        w  {MAKE}
        w  SELECT v FROM t
        a  SET autocommit = 0
        a  {level} READ COMMITTED
        a  SELECT v FROM t
        w  UPDATE t SET v = 'new'
        w  SELECT v FROM t
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  COMMIT
        a  {level} REPEATABLE READ
        a  SELECT v FROM t
        w  UPDATE t SET v = 'newer'
        a  SELECT v FROM t
        b  {level} REPEATABLE READ
        b  SELECT v FROM t
        a  COMMIT
        a  SELECT v FROM t
        a+ SELECT v FROM t
        w  UPDATE t SET v = 'newest'
        a  SELECT v FROM t
        a  COMMIT
        a  {level} SERIALIZABLE
        a  SELECT v FROM t
        w  SET innodb_lock_wait_timeout = 1
        w  UPDATE t SET v = 'locked'
        a  COMMIT
    """)


_SETS = "SET SESSION TRANSACTION ISOLATION LEVEL"
_LEVELS_BEGUN_WITH = {
    "set before it begins": (f"{_SETS} READ COMMITTED; START TRANSACTION", "+"),
    "another one": (f"{_SETS} REPEATABLE READ; START TRANSACTION READ ONLY", "+"),
    "and more": (f"SET time_zone = '+01:00'; {_SETS} READ COMMITTED; BEGIN", "+"),
    "one that locks": (f"{_SETS} SERIALIZABLE; START TRANSACTION", ""),
    "set after it has begun": (f"START TRANSACTION; {_SETS} READ COMMITTED", ""),
    "before and after": (f"{_SETS} READ COMMITTED; BEGIN; {_SETS} REPEATABLE READ", ""),
    "for the next one": ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN", ""),
    "amid one": (f"BEGIN; SELECT v FROM u; {_SETS} READ COMMITTED; BEGIN", ""),
}


@pytest.mark.parametrize(
    ("begins", "hit"), _LEVELS_BEGUN_WITH.values(), ids=_LEVELS_BEGUN_WITH.keys()
)
def test_trap_26_a_level_may_be_set_in_the_text_that_begins(
    world: World, begins: str, hit: str
) -> None:
    """It holds for that transaction if it stands before, and if none was open."""
    turn = f"""
        w  SELECT v FROM t
        w  SELECT v FROM u
        a  {begins}
        a  SELECT v FROM u
        w  SET innodb_lock_wait_timeout = 1
        w  UPDATE t SET v = CONCAT(v, '!')
        w  SELECT v FROM t
        w+ SELECT v FROM t
        a  SELECT v FROM t
        a  SELECT v FROM u
        w  UPDATE t SET v = CONCAT(v, '?')
        w  SELECT v FROM t
        a  SELECT v FROM t
        a  COMMIT
        a  BEGIN
        a  SELECT v FROM t
        a  COMMIT
    """
    world.compare(
        f"""
        w  {MAKE}
        w  SELECT v FROM u
        a  {_SETS} REPEATABLE READ"""
        + turn * 3
        + f"""
        a  {begins}
        a{hit} SELECT v FROM u
        """
    )


def test_trap_26_a_level_that_is_set_amid_a_transaction_is_for_the_next(world: World) -> None:
    """Also where the same text begins another."""
    turn = f"""
        a  BEGIN
        a  SELECT v FROM t
        a  {_SETS} READ COMMITTED; BEGIN
        a  SELECT v FROM t
        w  UPDATE t SET v = CONCAT(v, '!')
        w  SELECT v FROM t
        w+ SELECT v FROM t
        a  SELECT v FROM t
        a  COMMIT
        a  {_SETS} REPEATABLE READ
    """
    world.compare(f"        w  {MAKE}" + turn * 3)


_FOR_ONE = "SET TRANSACTION ISOLATION LEVEL"
_BEGUN_AT = [
    (f"{_FOR_ONE} READ COMMITTED", "START TRANSACTION READ ONLY", "COMMIT", "+"),
    (f"{_FOR_ONE} READ COMMITTED", "BEGIN", "ROLLBACK AND CHAIN", "+"),
    (f"{_FOR_ONE} READ COMMITTED", "BEGIN", "BEGIN", "+"),
    ("SET @@{isolation} = 'READ-COMMITTED'", "BEGIN", "SET autocommit = 1", "+"),
    ("DO 1", f"{_FOR_ONE} READ COMMITTED; START TRANSACTION", "COMMIT", "+"),
    (f"{_FOR_ONE} REPEATABLE READ", "BEGIN", "COMMIT AND CHAIN", "+"),
    ("DO 1", f"{_FOR_ONE} REPEATABLE READ; START TRANSACTION", "BEGIN", "+"),
    (f"{_FOR_ONE} READ COMMITTED, READ ONLY", "BEGIN", "COMMIT", ""),
    (f"{_FOR_ONE} SERIALIZABLE", "BEGIN", "COMMIT", ""),
]


@pytest.mark.parametrize(("sets", "begin", "end", "hit"), _BEGUN_AT)
def test_trap_26_a_level_that_is_set_for_one_transaction_is_for_that_one(
    world: World, sets: str, begin: str, end: str, hit: str
) -> None:
    """As Go and Rails set it, and MySqlConnector; and for such as are chained to it. Under
    REPEATABLE READ those after it read one moment."""
    isolation = "tx_isolation" if world.is_mariadb else "transaction_isolation"
    sets = sets.replace("{isolation}", isolation)
    reads = """
        w  UPDATE t SET v = CONCAT(v, '!')
        w  SELECT v FROM t
        a  SELECT v FROM t
        w  UPDATE t SET v = CONCAT(v, '?')
        w  SELECT v FROM t
        a  SELECT v FROM t"""
    turn = f"""
        w  SELECT v FROM u
        a  {sets}
        a  {begin}
        a  SELECT v FROM u
        {reads}
        a  {end}
        {reads}
        a  COMMIT
        a  BEGIN
        {reads}
        a  COMMIT"""
    last = f"""
        a  {sets}
        a  {begin}
        a{hit} SELECT v FROM u
        a  COMMIT"""
    first = f"""
        w  {MAKE}
        w  SET innodb_lock_wait_timeout = 1
        a  {_SETS} REPEATABLE READ"""
    world.compare(first + turn * 2 + last)


_GOES_ON = {
    "after a SET autocommit": (f"{_FOR_ONE} READ COMMITTED", "BEGIN; SET autocommit = 1; BEGIN"),
    "after a hit as well": (
        f"{_FOR_ONE} READ COMMITTED",
        "BEGIN; SET autocommit = 1; SELECT v FROM u; BEGIN",
    ),
    "after many": (f"{_FOR_ONE} READ COMMITTED", "BEGIN; BEGIN; BEGIN"),
    "in a chain": (
        f"{_FOR_ONE} READ COMMITTED",
        "BEGIN; COMMIT AND CHAIN; ROLLBACK AND CHAIN; BEGIN",
    ),
    "of reading alone": (
        "START TRANSACTION READ ONLY",
        "COMMIT AND CHAIN; SET autocommit = 1; SELECT v FROM u",
    ),
    "of reading alone, begun anew": (
        "START TRANSACTION READ ONLY",
        "BEGIN; SET autocommit = 1; SELECT v FROM u",
    ),
    "of a SET STATEMENT": ("DO 1", "SET STATEMENT tx_read_only = 1 FOR BEGIN; SELECT v FROM u"),
}


@pytest.mark.parametrize(("sets", "then"), _GOES_ON.values(), ids=_GOES_ON.keys())
def test_trap_26_what_is_set_for_one_transaction_may_be_for_more(
    world: World, sets: str, then: str
) -> None:
    """Where the server has not used it up: each command is one of its own."""
    steps = "\n".join(f"        a  {each}" for each in then.split("; "))
    turn = f"""
        a  SELECT v FROM u
        a  SET autocommit = 0
        a  {sets}
{steps}
        a  SELECT v FROM t
        w  UPDATE t SET v = CONCAT(v, '!')
        w  SELECT v FROM t
        w  SELECT v FROM t
        a  SELECT v FROM t
        a  UPDATE u SET v = CONCAT(v, '.') WHERE a = 1
        a  COMMIT
        a  SET autocommit = 1
    """
    world.compare(f"        w  {MAKE}" + turn * 2)


@pytest.mark.parametrize(
    "between",
    [
        "SELECT v FROM u",
        "SELECT RAND() > 2",
        "DO 1",
        ".ping",
        "SET @x = 1",
        "SET TRANSACTION READ WRITE",
        "SELECT no_such FROM u",
        ".prepare s SELECT v FROM u",
        "COMMIT",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    ],
)
def test_trap_26_a_level_that_is_set_for_one_transaction_may_be_used_up(
    world: World, between: str
) -> None:
    """By whatever comes before it begins."""
    turn = f"""
        w  SELECT v FROM t
        a  SET TRANSACTION ISOLATION LEVEL READ COMMITTED
        a  {between}
        a  BEGIN
        a  SELECT v FROM t
        w  UPDATE t SET v = CONCAT(v, '!')
        w  SELECT v FROM t
        w  SELECT v FROM t
        a  SELECT v FROM t
        a  COMMIT
    """
    world.compare(f"        w  {MAKE}" + turn * 3)


def test_trap_26_what_the_server_shows_of_itself_may_open_a_snapshot(world: World) -> None:
    """MySQL keeps its dictionary in tables, and SHOW reads them."""
    shows = [
        "SHOW TABLES",
        "SHOW INDEX FROM u WHERE Key_name = 'none'",
        "SHOW COLUMNS FROM u",
        "DESCRIBE u",
        "HELP 'no'",
    ]
    shows += ["SHOW CREATE TABLE u", "SHOW TRIGGERS", "SHOW DATABASES", "SHOW WARNINGS", ".ping"]
    steps = [f"w  {MAKE}", "r  SELECT v FROM t"]
    for number, show in enumerate(shows):
        steps += ["w  SELECT v FROM t", "r  BEGIN", f"r  {show}", f"w  UPDATE t SET v = '{number}'"]
        steps += ["w  SELECT v FROM t", "w+ SELECT v FROM t", "r  SELECT v FROM t", "r  COMMIT"]
    world.compare("\n".join(steps))


def test_trap_26_a_transaction_is_open_though_the_last_of_several_statements_failed(
    world: World,
) -> None:
    """An error tells nothing of the transaction, and comes long after what does."""
    world.compare(f"""
        a  {MAKE}
        a  SET innodb_lock_wait_timeout = 1
        b  SET innodb_lock_wait_timeout = 1
        a  SELECT v FROM t
        b+ SELECT v FROM t
        c  BEGIN; UPDATE t SET v = 'locked' WHERE a = 2
        b  BEGIN; UPDATE t SET v = 'secret' WHERE a = 1; UPDATE t SET v = 'waits' WHERE a = 2
        b  SELECT v FROM t
        a  SELECT v FROM t
        b  ROLLBACK
        c  ROLLBACK
        a  SELECT v FROM t
        b  SELECT v FROM t
    """)


def test_trap_26_what_stands_behind_a_rollback_is_seen_at_once(world: World) -> None:
    """In one text, of which only the first part belongs to the transaction."""
    world.compare(f"""
        a  {MAKE}
        b  SELECT v FROM u
        b+ SELECT v FROM u
        a  BEGIN
        a  UPDATE t SET v = 'in'
        a  ROLLBACK; UPDATE u SET v = 'out'
        b  SELECT v FROM u
        b+ SELECT v FROM u
        a  SET autocommit = 0
        a  UPDATE t SET v = 'in'
        a  ROLLBACK; UPDATE u SET v = 'next'
        b  SELECT v FROM u
        a  COMMIT
        b  SELECT v FROM u
    """)


@pytest.mark.parametrize(
    "statement",
    [
        "SET autocommit = 1",
        "UNLOCK TABLES",
        "SIGNAL SQLSTATE '01000'",
        "LOAD INDEX INTO CACHE u",
    ],
)
def test_trap_26_what_might_end_a_transaction_and_does_not_leaves_it_as_it_is(
    world: World, statement: str
) -> None:
    """Its writes still wait for the COMMIT, and no read may begin it anew: that would commit."""
    world.compare(f"""
        a  {MAKE}
        b  SELECT v FROM u
        a  BEGIN
        a  UPDATE t SET v = 'in'
        a  {statement}
        b  SELECT v FROM t
        b  SELECT v FROM t
        b+ SELECT v FROM t
        b+ SELECT v FROM u
        a  SELECT v FROM u
        a  SELECT v FROM t
        a  COMMIT
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  BEGIN
        a  UPDATE t SET v = 'back'
        a  {statement}
        a  SELECT v FROM u
        a  ROLLBACK
        b  SELECT v FROM t
        a  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "reads",
    [
        "SELECT a FROM two",
        "SELECT two.a FROM two LEFT JOIN u ON 1 = 0 WHERE two.a > 0 LIMIT 1",
        "SELECT * FROM u",
        "SELECT COUNT(*) FROM u",
        "SELECT COUNT(*), SUM(a) FROM two",
        "SELECT MAX(a) FROM u",
        "SELECT COUNT(DISTINCT u.a) FROM u, two",
        "SELECT 1 FROM u GROUP BY a",
    ],
)
def test_trap_26_hits_follow_a_query_that_has_opened_the_snapshot(world: World, reads: str) -> None:
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY); CREATE TABLE u (a INT PRIMARY KEY)
        a  CREATE TABLE two (a INT PRIMARY KEY); INSERT INTO two VALUES (1), (2)
        b  SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ
        b  SELECT * FROM t
        b+ SELECT * FROM t
        b  START TRANSACTION
        b  {reads}
        b+ SELECT * FROM t
        a  INSERT INTO u VALUES (1)
        b  SELECT a FROM u
        b  COMMIT
    """)


READ_NOTHING = [
    "SELECT a FROM u LIMIT 0",
    "SELECT a FROM u WHERE 1 = 0",
    "SELECT COUNT(*) FROM u WHERE 1 = 0",
    "SELECT 1 FROM u WHERE 1 = 0 UNION SELECT 2",
    "SELECT * FROM (SELECT 1) AS one LEFT JOIN u ON 1 = 0",
    "SELECT * FROM nothing",
    "SELECT a FROM u WHERE 1 = 0 UNION ALL VALUES (2)",
    "SELECT a FROM u WHERE 1 = 0 UNION ALL VALUES ROW(2)",
    "SELECT u.a FROM (VALUES ROW(2)) AS one LEFT JOIN u ON 1 = 0",
]


@pytest.mark.parametrize("reads_nothing", READ_NOTHING)
def test_trap_26_what_need_not_read_is_no_first_hit_of_a_transaction(
    world: World, reads_nothing: str
) -> None:
    world.compare(f"""
        a  CREATE TABLE u (a INT PRIMARY KEY)
        a  CREATE VIEW nothing AS SELECT COUNT(*) FROM u WHERE 1 = 0
        b  SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ
        b  {reads_nothing}
        b  {reads_nothing}
        b  START TRANSACTION READ ONLY
        b  {reads_nothing}
        a  INSERT INTO u VALUES (1)
        b  SELECT a FROM u
        b  COMMIT
    """)


@pytest.mark.parametrize("reads_nothing", READ_NOTHING)
def test_trap_26_a_query_that_need_not_read_opens_no_snapshot(
    world: World, reads_nothing: str
) -> None:
    world.compare(f"""
        a  CREATE TABLE t (a INT PRIMARY KEY); CREATE TABLE u (a INT PRIMARY KEY)
        a  CREATE VIEW nothing AS SELECT COUNT(*) FROM u WHERE 1 = 0
        b  SELECT * FROM t
        b+ SELECT * FROM t
        b  SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ
        b  SELECT * FROM t
        b+ SELECT * FROM t
        b  START TRANSACTION READ ONLY
        b  {reads_nothing}
        b  SELECT * FROM t
        a  INSERT INTO u VALUES (1)
        b  SELECT a FROM u
        b  COMMIT
    """)


@pytest.mark.parametrize("begin", ["BEGIN", "SET autocommit = 0"])
def test_trap_26_a_snapshot_ends_at_a_rollback_though_what_follows_it_fails(
    world: World, begin: str
) -> None:
    world.compare(f"""
        a  {MAKE}
        w  SELECT v FROM t
        a  {begin}
        a  SELECT v FROM t
        a  SELECT v FROM t
        w  UPDATE t SET v = 'new'
        a  SELECT v FROM t
        a  ROLLBACK AND CHAIN; SELECT nonesuch
        a  SELECT v FROM t
        w  UPDATE t SET v = 'newer'
        a  SELECT v FROM t
        a  ROLLBACK; SELECT nonesuch
        a  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "failing", ["TRUNCATE nonesuch", "LOCK TABLES nonesuch READ", "DROP TABLE mysql.nonesuch"]
)
def test_trap_26_what_follows_a_statement_that_committed_and_failed_is_seen_at_once(
    world: World, failing: str
) -> None:
    """An error does not tell that the transaction is over."""
    world.compare(f"""
        a  {MAKE}
        b  SELECT v FROM u
        b+ SELECT v FROM u
        a  BEGIN
        a  UPDATE t SET v = 'in'
        a  {failing}
        a  UPDATE u SET v = 'out'
        b  SELECT v FROM t
        b  SELECT v FROM u
        b+ SELECT v FROM u
        a  BEGIN
        a  UPDATE u SET v = 'in'
        a  INSERT INTO u VALUES (1, 'fails, and ends nothing')
        a  UPDATE t SET v = 'in'
        a  SELECT v FROM u
        b  SELECT v FROM u
        a  COMMIT
        b  SELECT v FROM t
        b  SELECT v FROM u
    """)


def test_trap_26_what_follows_a_deadlock_is_seen_at_once(world: World, schema: str) -> None:
    """It ends the victim's transaction: what comes next is none's."""
    read = "SELECT v FROM w"
    with (
        connect(world.upstream, world, schema) as make,
        connect(world.upstream, world, schema) as other,
        connect(world.proxy, world, schema) as victim,
        connect(world.proxy, world, schema) as reader,
    ):
        for statement in MAKE.split(";"):
            ask(make, statement)
        ask(make, "CREATE TABLE w (v VARCHAR(20))")
        ask(make, "INSERT INTO w VALUES ('old')")
        victim.autocommit(True)
        ask(victim, "BEGIN")
        ask(victim, "UPDATE u SET v = 'in' WHERE a = 1")
        ask(other, "BEGIN")  # it wrote more, so the other one is rolled back
        ask(other, "DELETE FROM t")
        waits = in_thread(lambda: ask(other, "UPDATE u SET v = 'other' WHERE a = 1"))
        waiting = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        wait_until(lambda: bool(world.upstream.sql(waiting)), 10, "the lock that is waited for")
        with pytest.raises(pymysql.MySQLError, match="Deadlock"):
            ask(victim, "SELECT v FROM t WHERE a = 1 FOR UPDATE")
        waits.join()
        ask(other, "ROLLBACK")
        assert [ask(reader, read) for _ in range(3)] == [(("old",),)] * 3
        ask(victim, "UPDATE w SET v = 'out'")
        assert ask(reader, read) == (("out",),)


@pytest.mark.parametrize("sends", [ask, prepare])
def test_trap_26_what_follows_a_deadlock_over_definitions_is_another_transaction(
    world: World, schema: str, sends: Callable[[Any, str], object]
) -> None:
    """A mere read may be its victim."""
    read = "SELECT v FROM t WHERE a = 1"
    drop = "DROP TABLE dropped.a, dropped.b"
    world.upstream.sql("CREATE DATABASE dropped")
    with (
        connect(world.proxy, world, schema) as make,
        connect(world.proxy, world, schema) as other,
        connect(world.proxy, world, schema) as victim,
    ):
        for statement in MAKE.split(";"):
            ask(make, statement)
        for table in ("dropped.a", "dropped.b"):
            ask(make, f"CREATE TABLE {table} (v INT)")
            ask(make, f"INSERT INTO {table} VALUES (1)")
            ask(make, f"SELECT v FROM {table}")
        make.commit()
        assert [ask(make, read) for _ in range(2)] == [(("x",),)] * 2
        make.autocommit(True)
        ask(victim, "SET autocommit = 0")
        ask(victim, "SELECT v FROM dropped.b WHERE v > 0")
        assert ask(victim, read) == (("x",),)
        waits = in_thread(lambda: ask(other, drop))
        waiting = "SELECT 1 FROM information_schema.processlist WHERE state LIKE '%metadata lock'"
        wait_until(lambda: bool(world.upstream.sql(waiting)), 10, "the lock that is waited for")
        with pytest.raises(pymysql.MySQLError, match="Deadlock"):
            sends(victim, "SELECT v FROM dropped.a WHERE v > 0")
        waits.join()
        assert ask(victim, read) == (("x",),)
        ask(make, "UPDATE t SET v = 'new' WHERE a = 1")
        assert ask(victim, read) == (("x",),)
    world.upstream.sql("DROP DATABASE dropped")


@pytest.mark.parametrize("straight", [True, False], ids=["straight", "the long way"])
def test_trap_26_a_transaction_that_mysql_does_not_begin_anew_for_a_hit_ends_its_session(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str, straight: bool
) -> None:
    """MySQL commits the one before, and then finds that none may be READ WRITE by now: what the
    client wrote next would be for good."""
    relay = proxy(upstream, "memory", proxy__straight_path=straight)
    upstream.sql(MAKE, schema)
    upstream.sql("CREATE USER limited IDENTIFIED BY 'p'")
    upstream.sql(f"GRANT SELECT, INSERT ON {schema}.* TO limited")
    try:
        with closing(upstream.connect(user="limited", password="p")):
            pass  # it remembers the password now
        session = relay.connect(user="limited", password="p", database=schema)
        with closing(session), session.cursor() as cursor:
            for _ in range(3):
                cursor.execute("SELECT v FROM t")
            cursor.execute("START TRANSACTION READ WRITE")
            upstream.sql("SET GLOBAL read_only = 1")
            with pytest.raises(pymysql.OperationalError) as raised:
                cursor.execute("SELECT v FROM t")
            assert raised.value.args[0] == 2013
    finally:
        upstream.sql("SET GLOBAL read_only = 0")
        upstream.sql("DROP USER limited")


def test_trap_26_uncommitted_rows_reach_no_one(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        b  BEGIN
        b  UPDATE t SET v = 'secret'
        b  SELECT v FROM t
        b  SELECT v FROM t
        a  SELECT v FROM t
        c  SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED
        c  SELECT v FROM t
        c  SELECT v FROM t
        a  SELECT v FROM t
        b  ROLLBACK
        a  SELECT v FROM t
        c  SELECT v FROM t
        b  SELECT v FROM t
    """)


def test_trap_26_a_read_of_a_table_that_cannot_roll_back_begins_no_transaction(
    world: World,
) -> None:
    world.compare("""
        a  CREATE TABLE t (a INT) ENGINE=MyISAM; INSERT INTO t VALUES (1)
        a  SELECT a FROM t
        a+ SELECT a FROM t
        a  SET autocommit = 0
        a  SELECT a FROM t
        a  SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED
        a  SELECT a FROM t
        a  SELECT a FROM t
    """)


@pytest.mark.parametrize("begin", ["BEGIN", "SET autocommit = 0"])
@pytest.mark.parametrize(
    "failing",
    [
        "SELECT (SELECT v FROM t) AS x",
        "SELECT 9223372036854775807 + a FROM t",
        "SELECT RAND() > 2, EXP(a * 1000) FROM t",
    ],
)
def test_trap_26_a_first_read_that_fails_may_have_opened_the_snapshot(
    world: World, begin: str, failing: str
) -> None:
    """Then what it does not hold is no hit, and what it holds is stored for no one."""
    turn = f"""
        b  {begin}
        b  {failing}
        w  UPDATE other SET v = CONCAT(v, '!')
        b  SELECT v FROM other
        w  SELECT v FROM other
        b  COMMIT
        b  {begin}
        b  {failing}
        w  UPDATE other SET v = CONCAT(v, '?')
        w  SELECT v FROM other
        w+ SELECT v FROM other
        b  SELECT v FROM other
        b  COMMIT
    """
    world.compare(
        f"""
        a  {MAKE}; CREATE TABLE other (v VARCHAR(20)); INSERT INTO other VALUES ('x')
        """
        + turn * 3
    )


def test_trap_26_two_tables_are_read_as_of_one_moment(world: World) -> None:
    """Under REPEATABLE READ: one entry stored before a commit, one after it."""
    world.compare(f"""
        w  {MAKE}
        w  SELECT v FROM t
        w  SELECT v FROM u
        a  BEGIN
        a  SELECT v FROM t
        w  UPDATE t SET v = 'both'; UPDATE u SET v = 'both'
        w  SELECT v FROM t
        w  SELECT v FROM u
        w+ SELECT v FROM u
        a  SELECT v FROM u
        a  SELECT v FROM t
        a  COMMIT
        a  SELECT v FROM u
        a  SELECT v FROM t
    """)


def test_trap_27_reads_that_lock_take_their_locks(world: World) -> None:
    reads = ["FOR UPDATE", "LOCK IN SHARE MODE", "FOR SHARE", "FOR UPDATE SKIP LOCKED"]
    reads += ["FOR UPDATE OF t"]
    steps = [f"w  {MAKE}", "w  SET innodb_lock_wait_timeout = 1", "w  SELECT v FROM t WHERE a = 1"]
    for read in reads:
        steps += ["a  BEGIN", f"a  SELECT v FROM t WHERE a = 1 {read}"]
        steps += ["w  UPDATE t SET v = 'waits' WHERE a = 1", "a  ROLLBACK"]
    world.compare("\n".join(steps))


def test_trap_27_locks_of_the_session_and_the_server_are_taken(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT v FROM t
        a+ SELECT v FROM t
        a  LOCK TABLES t READ
        a  SELECT v FROM t
        a  SELECT v FROM u
        a  SELECT v FROM t AS x
        a  UPDATE t SET v = 'x'
        a  UNLOCK TABLES
        a  SELECT v FROM t
        a  LOCK TABLE t WRITE, u AS x WRITE
        a  UPDATE t SET v = 'locked'
        a  SELECT v FROM t
        a  BEGIN
        b  SELECT v FROM t
        a  COMMIT
        b  SELECT v FROM t
        a  SELECT GET_LOCK('{{db}}', 0), v FROM t
        b  SELECT GET_LOCK('{{db}}', 0), v FROM t
        b  SELECT IS_USED_LOCK('{{db}}') IS NULL, v FROM t
        a  SELECT RELEASE_LOCK('{{db}}'), v FROM t
        b  SELECT IS_FREE_LOCK('{{db}}'), v FROM t
        a  FLUSH TABLES WITH READ LOCK
        a  SELECT v FROM t
        a  UPDATE t SET v = 'x'
        a  UNLOCK TABLES
        a  UPDATE t SET v = 'free'
        b  SELECT v FROM t
    """)


def test_trap_29_an_entry_lives_by_memcacheds_clock_alone(world: World, schema: str) -> None:
    """What memcached forgets is a miss, whatever any host thinks of the time."""
    world.upstream.sql(MAKE, schema)
    with connect(world.proxy, world, schema) as reader:
        before = ask(reader, "SELECT v FROM t")
        world.forget()
        world.upstream.sql("UPDATE t SET v = 'around'", schema)
        assert ask(reader, "SELECT v FROM t") == (("around",), ("around",)) != before


def test_trap_30_a_process_that_dies_while_it_fills_does_not_keep_others_waiting(
    world: World, gated: str
) -> None:
    world.upstream.sql("CREATE TABLE t (a INT, v CHAR(5)); INSERT INTO t VALUES (1, 'x')", gated)
    doomed = ForkedSqlcache(
        world.folder / "doomed",
        world.upstream.service_url,
        (world.memcached.address,),
        routines=[GATE],
        **PATIENT,
    )
    with doomed, connect(doomed, world, gated) as filler, connect(world.proxy, world, gated) as r:

        def fill() -> None:
            with pytest.raises(pymysql.MySQLError):
                ask(filler, GATED)

        with gate_held(world):
            thread = in_thread(fill)
            wait_for_one_at_the_gate(world)
            doomed.kill()
        assert ask(r, GATED) == ((1,),)
        ask(r, "UPDATE t SET a = 3")
        assert ask(r, GATED) == ((3,),)
        thread.join(20)
