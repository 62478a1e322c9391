"""A SET that MySQL has accepted before is answered at once, and so is who asks for what was set.
MySQL hears of it with what is next."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Fault, Middleman
from tests.fakes.raw_client import NEW, RawClient
from tests.integration.scripts import World
from tests.servers import PATIENT

pytestmark = pytest.mark.skipif(
    not PATIENT["proxy__straight_path"], reason="the straight path is off"
)

AHEAD = "sqlcache_statements_ahead_total"
SET = "SET time_zone = '+03:00'"
ZONE = "SELECT @@time_zone, RAND() > 2"
SETTINGS = {
    "SET NAMES latin1": "@@character_set_client, @@character_set_results",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin": "@@collation_connection",
    "SET character_set_results = NULL": "@@character_set_results",
    "SET time_zone = '+05:30'": "@@time_zone, FROM_UNIXTIME(0)",
    "SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT'": "@@sql_mode, 'a' || 'b'",
    "SET sql_mode = CONCAT(@@sql_mode, ',NO_ZERO_DATE')": "@@sql_mode",
    "SET SESSION sql_mode = (SELECT REPLACE(@@sql_mode, 'ONLY_FULL_GROUP_BY', ''))": "@@sql_mode",
    "SET foreign_key_checks = 0, unique_checks = 0": "@@foreign_key_checks, @@unique_checks",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED": "1",
    "SET sql_select_limit = 1": "@@sql_select_limit",
    "SET group_concat_max_len = 5": "@@group_concat_max_len",
    "SET @@session.net_write_timeout = 3000, lock_wait_timeout = 7": "@@net_write_timeout",
    "SET innodb_lock_wait_timeout = 3": "@@innodb_lock_wait_timeout",
    "SET sql_safe_updates = ON": "@@sql_safe_updates",
}
ASKED = "SELECT @@SESSION.sql_mode"
FOLLOWED = (
    "SELECT @@character_set_client AS c, @@character_set_connection, @@character_set_results",
    "SELECT @@collation_connection,@@local.collation_server , @@character_set_server",
    "SELECT @@sql_mode AS sql_mode, @@session.time_zone",
    "/* of a pool */ select @@transaction_isolation, @@SESSION.transaction_read_only",
    "SELECT @@max_allowed_packet",
    "select @@version_comment limit 1",
    "SELECT version(), @@version",
    "SELECT @@group_concat_max_len, @@sql_select_limit, @@lc_time_names, @@SQL_AUTO_IS_NULL",
)


def ahead(proxy: PrivateSqlcache) -> float:
    return proxy.metrics().get(AHEAD, 0)


def script(make: str, *steps: str) -> str:
    """Sessions that take these steps, one after another: the first make the plans, and what they
    see accepted is answered at once to the others."""
    return "\n".join([f"m  {make}", *(f"{name}  {step}" for name in "abcde" for step in steps)])


def run(connection: Any, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


@pytest.mark.parametrize(("change", "seen"), SETTINGS.items(), ids=SETTINGS.keys())
def test_what_was_set_holds_for_all_that_follows(world: World, change: str, seen: str) -> None:
    """For what is passed on, and for hits, in sessions that set it one after another."""
    before = ahead(world.proxy)
    read = "SELECT a, HEX(v) FROM t"
    passed = f"SELECT {seen}, RAND() > 2"
    world.compare(
        script(
            "CREATE TABLE t (a INT, v VARCHAR(9)); INSERT INTO t VALUES (1, 'x'), (2, 'y')",
            *(change, passed, read, change, read, "SHOW WARNINGS", passed),
        )
    )
    assert ahead(world.proxy) > before


def followed(world: World) -> list[str]:
    """Those questions, with the names that each MariaDB knows."""
    older = ("transaction_", "tx_") if world.is_mariadb else ("", "")
    return [each.replace(*older) for each in FOLLOWED]


@pytest.mark.parametrize(
    "change",
    [
        *SETTINGS,
        "SET lc_time_names = 'de_DE', sql_mode = 'ansi', time_zone = 'system'",
        "SET character_set_results = utf16",
        "SET character_set_server = latin1",
        "SET collation_connection = utf8mb4_bin",
        "SET sql_mode = DEFAULT, time_zone = DEFAULT",
        "SET sql_mode = 'nonsense'",
        "SET SESSION TRANSACTION READ ONLY",
        "SET TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE",
        "SET @@tx_isolation = 'READ-COMMITTED'",
        "CALL set_it()",
        "INSERT INTO t VALUES (1)",
        ".reset",
        ".change_user app {db}",
    ],
)
def test_what_was_set_is_told(world: World, change: str) -> None:
    """Before and after, within a transaction, and to who then asks what came of that."""
    texts = followed(world)
    change = change if world.is_mariadb else change.replace("@@tx_", "@@transaction_")
    text = texts[2]
    world.compare(
        script(
            "CREATE TABLE t (a INT); CREATE TRIGGER sets BEFORE INSERT ON t FOR EACH ROW"
            " SET time_zone = '+07:00', sql_mode = 'ANSI';"
            " CREATE PROCEDURE set_it() SET time_zone = '+08:00', sql_mode = 'ANSI'",
            *(*texts, change, *texts, text, "SELECT FOUND_ROWS(), ROW_COUNT()"),
            *("BEGIN", *texts, "COMMIT", *texts, "SELECT a FROM t", text, "SELECT FOUND_ROWS()"),
            *("SELECT CAST('x' AS SIGNED)", text, "SHOW WARNINGS", text, ".ping"),
        )
    )


def test_what_was_told_before_is_told_again_at_once(world: World) -> None:
    with closing(world.proxy.connect()) as session:
        for text in followed(world):
            told = [runs_ahead(world.proxy, session, text) for _ in range(5)]
            assert told == [False, False, False, True, True]


def test_several_go_together_and_in_order(world: World) -> None:
    world.compare(
        script(
            "DO 1",
            *("SET time_zone = '+01:00'", "SET NAMES latin1", "SET time_zone = '+02:00'"),
            *("SET sql_mode = ''", "SELECT @@time_zone, @@character_set_client, RAND() > 2"),
            *("SET time_zone = '+01:00'", ".ping", "SELECT @@time_zone, @@sql_mode, RAND() > 2"),
        )
    )


def test_what_is_left_behind_is_as_if_it_had_been_sent_at_once(world: World) -> None:
    """Counts, warnings, errors and ids, of statements that were sent and of hits."""
    first = (
        *(
            "SELECT v FROM t",
            "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1",
            "SELECT nothing FROM t",
        ),
        *("SELECT CAST('x' AS SIGNED)", "INSERT INTO t (v) VALUES (3)", "SET @x = 1"),
        *("UPDATE t SET v = 3 WHERE a > 1", "BEGIN", "SELECT v FROM t WHERE a = 1", "COMMIT"),
    )
    then = (
        *("SHOW WARNINGS", "SELECT FOUND_ROWS()", "SELECT ROW_COUNT()", "SHOW COUNT(*) ERRORS"),
        *("SELECT LAST_INSERT_ID(), @@error_count", "SELECT v FROM t"),
    )
    make = "CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, v INT); INSERT INTO t (v) VALUES (1)"
    world.compare(script(make, *(each for a in first for b in then for each in (a, SET, b))))


def test_warnings_of_it_are_there(world: World) -> None:
    """For who asks next, or after what leaves them there, and after a hit they are gone."""
    warns, hit = "SET group_concat_max_len = 0", "SELECT a FROM t"
    first = (warns,), (warns, hit), (warns, SET), (SET, warns), (warns, ASKED), (hit, warns, hit)
    then = (
        *("SHOW WARNINGS", "SHOW COUNT(*) WARNINGS", "SELECT @@warning_count", ".ping", SET, ASKED),
        *("GET DIAGNOSTICS @n = NUMBER", "SELECT @n", hit, "INSERT INTO t VALUES (1)", "DO 1"),
    )
    before = ahead(world.proxy)
    make = "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)"
    steps = (each for a in first for b in then for each in (*a, b))
    world.compare(script(make, *steps))
    assert ahead(world.proxy) > before


def test_in_transactions_the_answer_tells_of_them(world: World) -> None:
    read = "SELECT a FROM t"
    turn = (
        SET,
        read,
        SET,
        "UPDATE t SET a = a + 1",
        SET,
        read,
        "COMMIT",
        SET,
        "SET autocommit = 1",
    )
    world.compare(
        script(
            "CREATE TABLE t (a INT) ENGINE=InnoDB; INSERT INTO t VALUES (1)",
            *(SET, "BEGIN", *turn),
            *(SET, "START TRANSACTION READ WRITE", *turn),
            *(SET, "SET autocommit = 0", *turn),
        )
    )


IN_TRANSACTION = {
    "a hit": ("SELECT a FROM t",),
    "what is passed on": ("SELECT a, RAND() > 2 FROM t", "SELECT a FROM t"),
    "a locking read": ("SELECT a FROM t FOR UPDATE", "SELECT a FROM t"),
    "a change": ("UPDATE t SET a = a + 1", "SELECT a FROM t"),
    "a change after hits": ("SELECT a FROM t", "SELECT a FROM t", "INSERT INTO t VALUES (7)"),
    "nothing": (),
    "a savepoint": ("SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO s", "SELECT a FROM t"),
    "an error": ("SELECT nothing FROM t", "SHOW WARNINGS", "SELECT a FROM t"),
    # Not for FOUND_ROWS() at once: MariaDB's is of whoever had its thread before.
    "who asks what was before": (
        *("SHOW WARNINGS", "SELECT ROW_COUNT()", "SELECT a FROM t WHERE a > 1"),
        *("SHOW WARNINGS", "SELECT FOUND_ROWS(), ROW_COUNT()"),
    ),
    "another beginning": ("BEGIN", "UPDATE t SET a = 9", "BEGIN", "SELECT a FROM t"),
    "a definition": ("CREATE TABLE IF NOT EXISTS u (a INT)", "SELECT a FROM t"),
    "a setting": (SET, "SELECT @@time_zone", "SET TRANSACTION READ ONLY", "SELECT a FROM t"),
    "another isolation": (
        *("COMMIT", "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "BEGIN"),
        *("SELECT a FROM t", "UPDATE t SET a = a + 1", "SELECT a FROM t"),
    ),
    "a new session": (".reset", "UPDATE t SET a = a + 2", "SELECT a FROM t"),
    "XA": ("XA START 'x'", "SELECT a FROM t"),
    "XA before": (
        "COMMIT",
        "XA START '{db}'",
        "XA END '{db}'",
        "XA PREPARE '{db}'",
        "BEGIN",
        "XA ROLLBACK '{db}'",
    ),
    "a lock": ("LOCK TABLES t WRITE", "UPDATE t SET a = a + 5", "UNLOCK TABLES"),
    "a question for it": ("SELECT @@in_transaction", "SELECT a FROM t"),
}


@pytest.mark.parametrize("steps", IN_TRANSACTION.values(), ids=IN_TRANSACTION.keys())
def test_a_transaction_is_as_if_mysql_had_been_told_when_it_began(
    world: World, steps: tuple[str, ...]
) -> None:
    before = ahead(world.proxy)
    ends = {
        "BEGIN": ("COMMIT",),
        "START TRANSACTION": ("COMMIT AND CHAIN", "ROLLBACK"),
        "SET autocommit = 0": ("COMMIT", "SET autocommit = 1"),
        "SET NAMES utf8mb4, autocommit = OFF": ("SET autocommit = 1", "SET autocommit = 1"),
    }
    turns = ((begin, *steps, *end, "SELECT a FROM t") for begin, end in ends.items())
    world.compare(
        script(
            "CREATE TABLE t (a INT) ENGINE=InnoDB; INSERT INTO t VALUES (1)",
            *(step for turn in turns for step in turn),
        )
    )
    # What was prepared allows no other to begin: from then on MySQL is asked.
    assert ahead(world.proxy) > before or "XA PREPARE '{db}'" in steps


SWITCHES = ("SET autocommit = 0", "SET autocommit = 1")


def test_autocommit_is_switched_without_mysql_where_nothing_is_open(relay: PrivateSqlcache) -> None:
    for change in SWITCHES * 3:
        accepted(relay, change)
    with closing(relay.connect()) as session:
        assert all(runs_ahead(relay, session, each) for each in SWITCHES * 3)
        assert run(session, "SELECT @@autocommit") == ((1,),)
        assert runs_ahead(relay, session, SWITCHES[0])
        assert run(session, "SELECT @@autocommit") == ((0,),)


@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
def test_what_autocommit_lets_go_of_is_let_go_of_at_once(
    relay: PrivateSqlcache, schema: str, engine: str
) -> None:
    """Of a table that rolls nothing back MySQL does not say that a transaction is open."""
    with closing(relay.connect(database=schema)) as one, closing(relay.connect()) as two:
        run(one, f"CREATE TABLE t (a INT) ENGINE={engine}")
        run(two, "SET lock_wait_timeout = 10")
        for number in range(4):
            for step in ("SELECT a, RAND() FROM t", *SWITCHES) * 3:
                run(one, step)
            assert runs_ahead(relay, one, SWITCHES[0])
            assert runs_ahead(relay, one, SWITCHES[1])
            run(one, SWITCHES[0])
            run(one, "SELECT a, RAND() FROM t")
            for _ in range(number):  # it is off, and MySQL holds what was locked
                run(one, SWITCHES[0])
            assert not runs_ahead(relay, one, SWITCHES[1])
            run(two, f"ALTER TABLE {schema}.t ADD b{number} INT")


@pytest.mark.parametrize("access", ["READ ONLY", "READ WRITE"])
@pytest.mark.parametrize(
    "then",
    [
        ("SELECT a FROM t", "INSERT INTO t VALUES (2)"),
        ("BEGIN", "SELECT a FROM t", "INSERT INTO t VALUES (2)", "COMMIT"),
        ("SET autocommit = 0", "SELECT a FROM t", "INSERT INTO t VALUES (2)", "COMMIT"),
        ("COMMIT", "SELECT a FROM t", "BEGIN", "INSERT INTO t VALUES (2)", "COMMIT"),
    ],
    ids=["a hit", "a transaction", "another without end", "an end"],
)
def test_what_a_transaction_was_begun_with_may_outlast_it_where_autocommit_ends_it(
    world: World, access: str, then: tuple[str, ...]
) -> None:
    """Until the server has read a table, or was told of a COMMIT."""
    turn = (
        *("SET autocommit = 0", f"START TRANSACTION {access}", "SELECT a FROM t"),
        *("SET autocommit = 1", *then, "SET autocommit = 1", "SELECT a FROM t", "COMMIT"),
    )
    session = "SET SESSION TRANSACTION READ " + ("WRITE" if access == "READ ONLY" else "ONLY")
    make = "CREATE TABLE t (a INT) ENGINE=InnoDB; INSERT INTO t VALUES (1)"
    world.compare(script(make, *("SELECT a FROM t", "BEGIN", "COMMIT") * 3, session, *turn * 2))


@pytest.mark.parametrize("first", ["SELECT a FROM t WHERE a > 0", "SELECT a FROM t FOR UPDATE"])
@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED"])
def test_a_transaction_sees_what_was_written_until_its_first_read(
    world: World, first: str, isolation: str
) -> None:
    """And a snapshot is that of then, whoever writes later."""
    turn = f"""
        a  BEGIN
        b  UPDATE t SET a = a + 1
        a  {first}
        c  SELECT a FROM t WHERE a > 0
        a  COMMIT
        a  BEGIN
        a  SELECT a FROM u
        b  UPDATE u SET a = a + 1
        a  SELECT a FROM u
        a  SELECT a FROM t WHERE a > 0
        a  COMMIT"""
    world.compare(
        f"""
        m  CREATE TABLE t (a INT) ENGINE=InnoDB; INSERT INTO t VALUES (1)
        m  CREATE TABLE u (a INT) ENGINE=InnoDB; INSERT INTO u VALUES (1)
        a  SET SESSION TRANSACTION ISOLATION LEVEL {isolation}
        {turn * 5}
        """
    )


@pytest.mark.parametrize(
    "otherwise", [".reset", "SET time_zone = DEFAULT", "SET time_zone = CONCAT('+00', ':00')"]
)
def test_what_is_said_again_counts_where_the_session_was_another_in_between(
    world: World, otherwise: str
) -> None:
    read = "SELECT s FROM t"
    world.compare(
        script(
            "CREATE TABLE t (s TIMESTAMP); INSERT INTO t VALUES (FROM_UNIXTIME(1000000000))",
            *(SET, SET, SET, read, otherwise, read, SET, read, SET, otherwise, SET, SET, read),
        )
    )


@pytest.mark.parametrize("use", [".use {db}", "USE {db}"])
def test_a_schema_is_that_of_when_it_was_used(world: World, use: str) -> None:
    """Its rights and its character set are, so MySQL hears of that before its client goes on."""
    steps = "\n".join(f"{name}  .login {{user}}\n{name}  {use}\n" for name in "abcdef")
    world.compare(
        f"""
        m   CREATE TABLE t (a INT); CREATE USER '{{user}}' IDENTIFIED BY 'p'
        m   GRANT SELECT, INSERT ON {{db}}.* TO '{{user}}'
        {steps.strip().replace(chr(10), chr(10) + " " * 8)}
        m   REVOKE SELECT ON {{db}}.* FROM '{{user}}'
        m   ALTER DATABASE {{db}} CHARACTER SET ucs2
        f   SELECT a FROM t
        f   SELECT @@character_set_database
        f   {use}
        f   SELECT a FROM t
        """
    )


@pytest.fixture
def middleman(upstream: PrivateSqlServer) -> Iterator[Middleman]:
    """The network to MySQL."""
    with Middleman(upstream) as between:
        yield between


@pytest.fixture
def relay(middleman: Middleman, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache that reaches MySQL through the middleman only, and has seen `SET` accepted."""
    made = proxy(middleman, "memory", upstream__catalog_refresh_s=3600)
    accepted(made, SET)
    return made


def accepted(relay: PrivateSqlcache, change: str) -> None:
    """It is planned the first time, and seen to be answered so each time the next two."""
    for _ in range(3):
        with closing(relay.connect()) as session:
            run(session, change)


def runs_ahead(relay: PrivateSqlcache, session: Any, change: str) -> bool:
    """Whether it is answered without MySQL."""
    before = ahead(relay)
    run(session, change)
    return ahead(relay) > before


def test_mysql_hears_of_it_with_the_next_statement(
    middleman: Middleman, relay: PrivateSqlcache
) -> None:
    with closing(relay.connect()) as session, ThreadPoolExecutor() as pool:
        trap = middleman.set_trap(SET.encode(), Fault.HOLD)
        run(session, SET)
        assert not trap.sprung.is_set()
        waiting = pool.submit(run, session, ZONE)
        assert trap.sprung.wait(30)
        trap.released.set()
        assert waiting.result() == (("+03:00", 0),)


def test_mysql_hears_of_it_when_the_client_says_no_more(
    middleman: Middleman, proxy: ProxyFactory
) -> None:
    relay = proxy(middleman, "memory", upstream__keepalive_s=1)
    accepted(relay, SET)
    with closing(relay.connect()) as session:
        trap = middleman.set_trap(SET.encode(), Fault.HOLD)
        assert runs_ahead(relay, session, SET)
        assert trap.sprung.wait(30)
        trap.released.set()


def begun(upstream: PrivateSqlServer) -> int:
    """How often MySQL was told of the beginning of a transaction."""
    rows = upstream.sql("SHOW GLOBAL STATUS LIKE 'Com_begin'")
    return int(rows[0][1])


def test_mysql_is_told_with_its_first_read_that_a_transaction_of_hits_begins(
    upstream: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    """With what opens its snapshot; and under READ COMMITTED with its end."""
    upstream.sql("DROP DATABASE IF EXISTS begun; CREATE DATABASE begun")
    upstream.sql("CREATE TABLE begun.t (a INT) ENGINE=InnoDB; INSERT INTO begun.t VALUES (1)")
    with closing(relay.connect()) as session:
        for isolation in ("REPEATABLE READ", "READ COMMITTED"):
            run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
            for _ in range(4):
                for text in ("BEGIN", "SELECT a FROM begun.t", "COMMIT", "SELECT a FROM begun.t"):
                    run(session, text)
            before = begun(upstream)
            assert runs_ahead(relay, session, "BEGIN")
            assert begun(upstream) == before
            assert run(session, "SELECT a FROM begun.t") == ((1,),)
            assert begun(upstream) == before + 2 * (isolation == "REPEATABLE READ")
            run(session, "COMMIT")
            assert begun(upstream) == before + 1 + (isolation == "REPEATABLE READ")
    upstream.sql("DROP DATABASE begun")


def test_where_transactions_begin_with_changes_mysql_is_told_at_once(
    upstream: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    """For a while, after one that had to wait for that."""
    upstream.sql("DROP DATABASE IF EXISTS begun; CREATE DATABASE begun")
    upstream.sql("CREATE TABLE begun.t (a INT) ENGINE=InnoDB; INSERT INTO begun.t VALUES (1)")
    turns = []
    with closing(relay.connect()) as session:
        for _ in range(40):
            turns.append(runs_ahead(relay, session, "BEGIN"))
            run(session, "UPDATE begun.t SET a = a + 1")
            run(session, "COMMIT")
        assert run(session, "SELECT a FROM begun.t") == ((41,),)
    assert sum(turns) == 2
    upstream.sql("DROP DATABASE begun")


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.CUT_BEFORE, Fault.CUT_AMID])
def test_nothing_is_written_outside_of_a_transaction_that_mysql_does_not_begin(
    upstream: PrivateSqlServer, middleman: Middleman, relay: PrivateSqlcache, fault: Fault
) -> None:
    upstream.sql("DROP DATABASE IF EXISTS begun; CREATE DATABASE begun")
    upstream.sql("CREATE TABLE begun.t (a INT) ENGINE=InnoDB; INSERT INTO begun.t VALUES (1)")
    with closing(relay.connect()) as session:
        for _ in range(4):
            for text in ("BEGIN", "SELECT a FROM begun.t", "ROLLBACK"):
                run(session, text)
        middleman.set_trap(b"BEGIN", fault)
        assert runs_ahead(relay, session, "BEGIN")
        with pytest.raises(pymysql.MySQLError):
            run(session, "UPDATE begun.t SET a = a + 1")
    assert upstream.sql("SELECT a FROM begun.t") == ((1,),)
    upstream.sql("DROP DATABASE begun")


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.CUT_BEFORE, Fault.CUT_AMID])
def test_where_mysql_answers_otherwise_the_session_ends_and_no_other(
    middleman: Middleman, relay: PrivateSqlcache, fault: Fault
) -> None:
    with closing(relay.connect()) as session, closing(relay.connect()) as other:
        middleman.set_trap(SET.encode(), fault)
        run(session, SET)
        with pytest.raises(pymysql.MySQLError) as lost:
            run(session, ZONE)
        assert lost.value.args[0] in (2006, 2013)
        assert run(other, "SELECT 1 + RAND() * 0") == ((1,),)
    told = "MySQL answers otherwise" in relay.log_text()
    assert told == (fault is Fault.GARBAGE)
    if told:
        assert 'answer="packet fe of 7 bytes"' in relay.log_text(), "not what is in it"


@pytest.mark.parametrize("planned", [True, False])
def test_nothing_is_written_by_settings_that_mysql_does_not_take(
    upstream: PrivateSqlServer, middleman: Middleman, relay: PrivateSqlcache, planned: bool
) -> None:
    """Where it refuses what it took before, what would go by it is not even sent."""
    upstream.sql("DROP DATABASE IF EXISTS ahead; CREATE DATABASE ahead")
    upstream.sql("CREATE TABLE ahead.t (v VARCHAR(40)); INSERT INTO ahead.t VALUES ('')")
    write = "UPDATE ahead.t SET v = @@time_zone"
    with closing(relay.connect()) as session:
        for _ in range(3 * planned):
            run(session, write)
        accepted(relay, SET)  # anew: by what the table turned out to be
        middleman.set_trap(SET.encode(), Fault.GARBAGE)
        before = upstream.sql("SELECT v FROM ahead.t")
        assert runs_ahead(relay, session, SET)
        with pytest.raises(pymysql.MySQLError):
            run(session, write)
    assert upstream.sql("SELECT v FROM ahead.t") == before
    upstream.sql("DROP DATABASE ahead")


def test_nor_where_what_has_no_answer_took_them_there(
    upstream: PrivateSqlServer, middleman: Middleman, relay: PrivateSqlcache, table: str
) -> None:
    """A COM_STMT_CLOSE, that is, for which no client waits."""
    write = f"UPDATE {table} SET a = a + 10"
    upstream.connect().close()  # it remembers the password now
    with (
        closing(relay.connect()) as other,
        RawClient.logged_in(relay, upstream.user, upstream.password, "mysql") as client,
    ):
        number = client.ask(b"\x16SELECT 1 + ?")[5:9]
        client.sql(SET)
        for _ in range(3):
            client.sql(write)
        before = upstream.sql(f"SELECT a FROM {table}")
        told = ahead(relay)
        while ahead(relay) == told:
            client.query(SET)
            client.read_packet()
        trap = middleman.set_trap(SET.encode(), Fault.HOLD_GARBAGE)
        client.command(b"\x19" + number)
        assert trap.sprung.wait(30)
        client.query(write)
        for _ in range(5):
            run(other, f"DELETE FROM {table} WHERE a < 0")
        trap.released.set()
        client.read_to_end()
    assert upstream.sql(f"SELECT a FROM {table}") == before


def test_nor_where_a_sign_of_life_took_them_there(
    upstream: PrivateSqlServer, middleman: Middleman, proxy: ProxyFactory, table: str
) -> None:
    relay = proxy(middleman, "memory", upstream__keepalive_s=1)
    accepted(relay, SET)
    with closing(relay.connect()) as session, closing(relay.connect()) as other:
        trap = middleman.set_trap(SET.encode(), Fault.HOLD_GARBAGE)
        assert runs_ahead(relay, session, SET)
        assert trap.sprung.wait(30)
        with ThreadPoolExecutor() as pool:
            writing = pool.submit(run, session, f"UPDATE {table} SET a = a + 10")
            for _ in range(5):
                run(other, f"DELETE FROM {table} WHERE a < 0")
            trap.released.set()
            with pytest.raises(pymysql.MySQLError):
                writing.result()
    assert upstream.sql(f"SELECT a FROM {table}") == ((1,), (2,))


def test_of_what_waits_when_a_client_leaves_mysql_never_hears(
    middleman: Middleman, relay: PrivateSqlcache
) -> None:
    trap = middleman.set_trap(SET.encode(), Fault.HOLD)
    for _ in range(3):
        with closing(relay.connect()) as session:
            assert runs_ahead(relay, session, SET)
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 30, "their end")
    assert not trap.sprung.is_set()


def test_no_more_than_some_wait(relay: PrivateSqlcache) -> None:
    """In a session that does nothing else."""
    other = "SET time_zone = '+04:00'"
    accepted(relay, other)
    with closing(relay.connect()) as session:
        for _ in range(5):
            run(session, SET)
            run(session, other)
        asked = questions(session)
        told = [runs_ahead(relay, session, each) for each in (SET, other) * 20]
        assert 0 < told.count(False) < 8
        assert questions(session) == asked + 41
        assert run(session, "SELECT @@time_zone, RAND() > 2") == (("+04:00", 0),)


def test_no_more_than_some_are_unanswered(
    upstream: PrivateSqlServer, middleman: Middleman, relay: PrivateSqlcache
) -> None:
    """Whatever has taken the others there: what is foretold is held until it comes."""
    other, each = "SET time_zone = '+04:00'", 40
    upstream.connect().close()  # it remembers the password now
    with (
        closing(relay.connect()) as witness,
        RawClient.logged_in(relay, upstream.user, upstream.password, "mysql") as client,
    ):
        numbers = [client.ask(b"\x16SELECT 1 + ?")[5:9] for _ in range(each)]
        for _ in range(5):
            for change in (SET, other):
                client.query(change)
                client.read_packet()
        trap = middleman.set_trap(b"time_zone", Fault.HOLD)
        before = ahead(relay)
        for at, number in enumerate(numbers):
            for command in (other if at % 2 else SET).encode(), number:
                client.command((b"\x19" if command is number else b"\x03") + command)
                run(witness, "SELECT 1")
        assert 0 < ahead(relay) - before < 20
        trap.released.set()
        assert [client.read_packet()[1][0] for _ in numbers] == [0] * each


def test_what_is_said_again_and_again_is_sent_once(relay: PrivateSqlcache) -> None:
    with closing(relay.connect()) as session:
        for _ in range(5):
            run(session, SET)
        asked = questions(session)
        assert all(runs_ahead(relay, session, SET) for _ in range(40))
        assert questions(session) == asked + 2
        assert run(session, ZONE) == (("+03:00", 0),)
        assert runs_ahead(relay, session, SET)
        assert questions(session) == asked + 5


def questions(session: Any) -> int:
    """How many statements MySQL was sent in a session before this one."""
    ((_, number),) = run(session, "SHOW SESSION STATUS LIKE 'Questions'")
    return int(number)


@pytest.mark.parametrize(
    "change",
    [
        "SET time_zone = '+05:30'",
        "SET NAMES utf8mb4",
        "SET sql_mode = CONCAT(@@sql_mode, ',NO_ZERO_DATE')",
        "SET wait_timeout = 600",
        "SET autocommit = 1",
        "SET @x = COALESCE(@x, 0) + 1",
        "SET @x = 1",
        "USE {db}",
        ".use {db}",
        "USE {db}_other",
    ],
)
def test_what_is_said_again_leaves_behind_what_it_did_the_first_time(
    world: World, change: str
) -> None:
    looks = (
        "SHOW WARNINGS",
        "SELECT ROW_COUNT()",
        "SELECT FOUND_ROWS()",
        "SELECT LAST_INSERT_ID()",
    )
    reads = ("SELECT a FROM {db}.t", "SELECT SQL_CALC_FOUND_ROWS a FROM {db}.t LIMIT 1")
    between = ("", "INSERT INTO {db}.t (a) VALUES (1)", "SELECT 'x' + a FROM {db}.t", *reads)
    steps = [change, change, change]
    for left in (*between, "SELECT 1 FROM {db}.missing", "BEGIN", "ROLLBACK"):
        for look in looks:
            steps += [left, change, change, look] if left else [change, look]
    world.compare(
        "\n".join(
            [
                "m  CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, a INT)",
                "m  CREATE DATABASE {db}_other",
                "m  INSERT INTO t (a) VALUES (1), (2)",
                *(f"{name}  {step}" for name in "ab" for step in steps),
                "b  SELECT @@time_zone, @@sql_mode, @@wait_timeout, @x, DATABASE(), RAND() > 2",
                "m  DROP DATABASE {db}_other",
            ]
        )
    )


@pytest.mark.parametrize(
    "change",
    [
        "SET @x = 1, time_zone = '+04:00'",
        "SET autocommit = 1, timestamp = 1",
        "SET autocommit = 1, autocommit = 0",
        "SET TRANSACTION READ WRITE",
        "SET last_insert_id = 7",
        "SET wait_timeout = 600",
        "SET interactive_timeout = 600",
        "SET timestamp = 1",
        "SET sql_mode = CONCAT(@@sql_mode, LEFT(SLEEP(0), 0))",
        "SET sql_mode = (SELECT '' FROM information_schema.tables LIMIT 1)",
        f"SET time_zone = '+04:00' /* {'x' * 1_000} */",
        "USE mysql",
        "SELECT @@GLOBAL.sql_mode",
        "SELECT @@sql_mode, @@wait_timeout",
        "SELECT @@sql_mode, RAND()",
        "SELECT @@sql_mode FROM (SELECT 1) AS t",
        "SELECT @@sql_mode INTO @x",
        "SELECT @@autocommit",
        "SELECT @@character_set_database",
        "SELECT @@init_connect",
        "SELECT @@warning_count",
        "SELECT VERSION(), CONNECTION_ID()",
    ],
)
def test_what_may_do_more_is_sent_at_once(relay: PrivateSqlcache, change: str) -> None:
    for _ in range(4):
        with closing(relay.connect()) as session:
            assert not runs_ahead(relay, session, change)


def test_where_answers_tell_what_is_never_the_same_mysql_answers(
    upstream: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    """MySQL tells the number of the statement to who has all variables tracked."""
    upstream.connect().close()  # it remembers the password now
    with RawClient.logged_in(relay, upstream.user, upstream.password, "mysql", NEW) as client:
        client.query("SET session_track_system_variables = '*'")
        client.read_packet()
        before = ahead(relay)
        for _ in range(6):
            client.query(SET)
            assert client.read_packet()[1][0] == 0
        counted = upstream.name == "mysqld"
        assert (ahead(relay) == before) == counted
        assert b"+03:00" in client.ask(b"\x03" + ZONE.encode())


@pytest.fixture
def table(upstream: PrivateSqlServer) -> Iterator[str]:
    """A table with the numbers 1 and 2."""
    upstream.sql("DROP DATABASE IF EXISTS ahead; CREATE DATABASE ahead")
    upstream.sql("CREATE TABLE ahead.t (a INT PRIMARY KEY); INSERT INTO ahead.t VALUES (1), (2)")
    yield "ahead.t"
    upstream.sql("DROP DATABASE ahead")


def test_a_write_behind_it_is_made_though_its_client_leaves(
    upstream: PrivateSqlServer, middleman: Middleman, relay: PrivateSqlcache, table: str
) -> None:
    upstream.connect().close()  # it remembers the password now
    with RawClient.logged_in(relay, upstream.user, upstream.password, "mysql") as client:
        before = ahead(relay)
        while ahead(relay) == before:
            client.query(SET)
            client.read_packet()
        trap = middleman.set_trap(SET.encode(), Fault.HOLD)
        client.query(f"INSERT INTO {table} VALUES (7)")
        assert trap.sprung.wait(30)
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] <= 1, 30, "the client's end")
    trap.released.set()
    wait_until(lambda: (7,) in upstream.sql(f"SELECT a FROM {table}"), 30, "the write")


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.GARBAGE])
def test_a_miss_behind_it_is_left_to_others_where_the_session_ends(
    middleman: Middleman, relay: PrivateSqlcache, table: str, fault: Fault
) -> None:
    """Its lease is given back, also where the server must be shown a warning again first."""
    warns = "SELECT CAST('x' AS SIGNED)"
    hit, miss = (f"SELECT a FROM {table} WHERE a = {a} AND a = a" for a in (1, 2))
    for _ in range(4):
        with closing(relay.connect()) as session:
            for text in (SET, hit, hit.replace("1", "3"), warns):
                run(session, text)
    with closing(relay.connect()) as session:
        run(session, warns)
        assert runs_ahead(relay, session, SET)
        run(session, hit)
        trap = middleman.set_trap(SET.encode(), fault)
        with pytest.raises(pymysql.MySQLError):
            run(session, miss)
        assert trap.sprung.wait(30)
    with closing(relay.connect(read_timeout=30)) as session:
        run(session, SET)
        assert run(session, miss) == ((2,),)


@pytest.fixture
def strict(upstream: PrivateSqlServer) -> Iterator[str]:
    """The sql_mode of new sessions, which is put back."""
    ((mode,),) = upstream.sql("SELECT @@GLOBAL.sql_mode")
    yield mode
    upstream.sql(f"SET GLOBAL sql_mode = '{mode}'")


def asked(relay: PrivateSqlcache) -> str:
    """What a new session is told of its sql_mode."""
    with closing(relay.connect()) as session:
        ((mode,),) = run(session, ASKED)
    assert isinstance(mode, str)
    return mode


def test_what_new_sessions_inherit_is_told_as_it_is(
    upstream: PrivateSqlServer, proxy: ProxyFactory, memcached: PrivateMemcached, strict: str
) -> None:
    """Once it was set through some sqlcache."""
    relays = [proxy(upstream, memcached, upstream__catalog_refresh_s=3600) for _ in range(2)]
    for relay in relays:
        accepted(relay, ASKED)
    with closing(relays[0].connect()) as admin, closing(relays[1].connect()) as older:
        assert runs_ahead(relays[1], older, ASKED)
        run(admin, "SET GLOBAL sql_mode = ''")
        assert [asked(relay) for relay in relays] == ["", ""]
        assert run(older, ASKED) == ((strict,),)


def test_what_has_changed_around_sqlcache_misleads_one_session(
    upstream: PrivateSqlServer, proxy: ProxyFactory, strict: str
) -> None:
    """MySQL's own answer ends it, and the others are told that."""
    relay = proxy(upstream, "memory", upstream__catalog_refresh_s=3600)
    accepted(relay, ASKED)
    upstream.sql("SET GLOBAL sql_mode = ''")
    with closing(relay.connect()) as session:
        assert run(session, ASKED) == ((strict,),)
        with pytest.raises(pymysql.MySQLError):
            run(session, ZONE)
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 30, "its end")
    assert asked(relay) == ""


def test_an_error_says_nothing_of_what_has_changed(
    upstream: PrivateSqlServer, relay: PrivateSqlcache
) -> None:
    """Else who asks more than the account may could have the catalog read again and again."""
    upstream.sql("CREATE USER limited IDENTIFIED BY 'p' WITH MAX_QUERIES_PER_HOUR 30")
    with closing(upstream.connect(user="limited", password="p")):
        pass  # it remembers the password now
    before = relay.metrics()["sqlcache_catalog_loads_total"]

    def connects() -> int:
        """The error's number that its session ends with, or none."""
        try:
            with closing(relay.connect(user="limited", password="p")) as session:
                run(session, SET)
                run(session, ZONE)
        except pymysql.MySQLError as error:
            return int(error.args[0])
        return 0

    try:
        ends = [connects() for _ in range(12)]
    finally:
        upstream.sql("DROP USER limited")
    assert (ends[0], ends[-1]) == (0, 2013)
    wait_until(lambda: relay.metrics()["sqlcache_connections_open"] == 0, 30, "their ends")
    assert relay.metrics()["sqlcache_catalog_loads_total"] == before
