"""Two proxies that share one memcached: what one stores the other serves, what one writes the
other shows, and a read reaches MySQL once however many ask for it."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiomysql
import mysql.connector
import pymysql
import pytest
from pymysql.constants import CLIENT

from sqlcache.cache.keys import Keyspace
from sqlcache.cache.log_records import new_log
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.demo.servers import (
    NotStarted,
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    find_program,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.forked import ForkedSqlcache
from tests.servers import PATIENT

STRAIGHT = PATIENT["proxy__straight_path"]
Session = Any  # a PyMySQL connection


@pytest.fixture
def pair(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> tuple[PrivateSqlcache, PrivateSqlcache]:
    """Two proxies, one memcached. Nothing but clients' statements makes them ask MySQL."""
    settings = {"upstream__catalog_refresh_s": 3600}
    return proxy(upstream, memcached, **settings), proxy(upstream, memcached, **settings)


@pytest.fixture
def account(upstream: PrivateSqlServer, schema: str) -> dict[str, str]:
    """What a driver needs to log in to the schema."""
    return {"user": upstream.user, "password": upstream.password, "database": schema}


@contextmanager
def session(server: PrivateSqlcache, account: dict[str, str], **options: Any) -> Iterator[Session]:
    """A PyMySQL session that may send several statements at once."""
    flags = {"client_flag": CLIENT.MULTI_STATEMENTS, "local_infile": True}
    with closing(server.connect(**account, **flags, **options)) as connection:
        yield connection


def run(connection: Session, statements: str) -> tuple[tuple[Any, ...], ...]:
    """Runs statements; the last one's rows."""
    with connection.cursor() as cursor:
        cursor.execute(statements)
        while cursor.nextset():
            pass
        rows: tuple[tuple[Any, ...], ...] = cursor.fetchall()
        return rows


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Work that is under way."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def counter(server: PrivateSqlcache, name: str) -> float:
    """A sample of its metrics."""
    return server.metrics()[f"sqlcache_{name}_total"]


def warm(server: PrivateSqlcache, connection: Session, read: str) -> None:
    """Reads until it is answered from the cache: what it knows of tables may have to follow."""

    def is_hit() -> bool:
        before = counter(server, "hits")
        run(connection, read)
        return counter(server, "hits") > before

    wait_until(is_hit, 20, "a hit")


def learn(pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str]) -> None:
    """Lets both know that there is a new table `t`."""
    for server in pair:
        with session(server, account) as own:
            warm(server, own, "SELECT COUNT(*) FROM t")


# --- rights -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [lambda connection, schema: run(connection, f"USE {schema}"), pymysql.Connection.select_db],
    ids=["USE", "COM_INIT_DB"],
)
def test_a_planned_use_reads_the_rights_that_others_have_just_changed(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    upstream: PrivateSqlServer,
    schema: str,
    use: Callable[[Session, str], object],
) -> None:
    one, two = pair
    user = {"user": f"{schema}_u", "password": "p"}
    made = f"'{schema}_u'@'%'"
    upstream.sql(f"CREATE USER {made} IDENTIFIED BY 'p'")
    upstream.sql(f"GRANT SELECT, INSERT ON {schema}.* TO {made}")
    try:
        with session(two, account) as owner:
            run(owner, "CREATE TABLE t (v INT); INSERT INTO t VALUES (7)")
            run(owner, "FLUSH PRIVILEGES")  # lets others know of the user
            learn(pair, account)
            with session(one, user) as before, session(one, user) as after:
                use(before, schema)
                warm(one, before, "SELECT v FROM t")
                for _ in range(3):
                    planned = counter(one, "statements_planned")
                    use(after, schema)
                assert counter(one, "statements_planned") == planned + STRAIGHT
                run(owner, f"REVOKE SELECT ON {schema}.* FROM {made}")
                use(after, schema)
                warm(one, before, "SELECT v FROM t")  # as long as it uses no schema anew
                with pytest.raises(pymysql.OperationalError, match="denied"):
                    run(after, "SELECT v FROM t")
    finally:
        upstream.sql(f"DROP USER {made}")


# --- locks that are gone ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "unlocks",
    [
        ["UPDATE t SET v = 8", "ROLLBACK AND CHAIN"],
        ["SAVEPOINT s", "UPDATE t SET v = 8", "ROLLBACK TO s"],
        ["DELETE FROM t WHERE v IN (SELECT v FROM missing)", "SELECT 1"],
    ],
)
@pytest.mark.parametrize(
    ("redefines", "read"),
    [
        ("ALTER TABLE t ENGINE=MyISAM", "SELECT v FROM t"),
        (
            "CREATE TRIGGER r AFTER UPDATE ON t FOR EACH ROW UPDATE m SET v = NEW.v",
            "SELECT v FROM m",
        ),
    ],
)
def test_a_table_is_redefined_amid_a_transaction_that_let_go_of_it(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    upstream: PrivateSqlServer,
    schema: str,
    unlocks: list[str],
    redefines: str,
    read: str,
) -> None:
    """What it changes then may be for others to see at once."""
    one, two = pair
    with session(one, account) as own, session(two, account) as others:
        run(own, "CREATE TABLE t (v INT); CREATE TABLE m (v INT) ENGINE=MyISAM")
        run(own, "INSERT INTO t VALUES (7); INSERT INTO m VALUES (7)")
        run(own, "SET sql_log_bin = 0")  # or a savepoint keeps its locks
        run(own, "BEGIN")
        for statement in unlocks:
            with suppress(pymysql.ProgrammingError):
                run(own, statement)
        run(others, "SET lock_wait_timeout = 5")
        run(others, redefines)
        warm(two, others, read)
        run(own, "UPDATE t SET v = 9")
        assert run(others, read) == upstream.sql(read, schema)
        run(own, "ROLLBACK")
        assert run(others, read) == upstream.sql(read, schema)


# --- one query --------------------------------------------------------------------------------


def test_a_repeated_read_reaches_mysql_once(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
) -> None:
    one, two = pair
    with session(one, account) as own:
        run(own, "CREATE TABLE t (v INT); INSERT INTO t VALUES (7)")
        learn(pair, account)
        before = upstream.status("Com_select")
        for _ in range(20):
            assert run(own, "SELECT v FROM t WHERE v = 7") == ((7,),)
        for server in (one, two):
            for _ in range(10):
                with session(server, account) as fresh:
                    assert run(fresh, "SELECT v FROM t WHERE v = 7") == ((7,),)
        assert upstream.status("Com_select") == before + 1


def test_a_read_of_the_command_line_reaches_mysql_once(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
) -> None:
    one, two = pair
    with session(one, account) as own:
        run(own, "CREATE TABLE t (v INT); INSERT INTO t VALUES (7)")
    learn(pair, account)

    def ask(server: PrivateSqlcache, times: int) -> list[str]:
        said = subprocess.run(
            [
                find_program("mariadb", "mariadb-client"),
                *(
                    "--no-defaults",
                    "--protocol=tcp",
                    "--skip-ssl",
                    "--batch",
                    "--skip-column-names",
                ),
                *(f"--host={server.host}", f"--port={server.port}"),
                *(f"--user={account['user']}", f"--password={account['password']}"),
                account["database"],
            ],
            input="SELECT v FROM t;\n" * times,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return said.stdout.split()

    before = upstream.status("Com_select")
    assert ask(one, 20) == ["7"] * 20
    for server in (one, two):
        for _ in range(5):
            assert ask(server, 1) == ["7"]
    assert upstream.status("Com_select") == before + 1


async def test_a_hundred_clients_that_miss_one_key_cause_one_query(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
) -> None:
    with session(pair[0], account) as own:
        run(own, "CREATE TABLE n (v INT); CREATE TABLE t (v INT)")
        run(own, "INSERT INTO n VALUES " + ",".join(f"({number})" for number in range(80)))
    learn(pair, account)
    slow = "SELECT COUNT(*) FROM n a JOIN n b JOIN n c WHERE SHA2(a.v + b.v * c.v, 256) <> ''"
    login = {"user": account["user"], "password": account["password"], "db": account["database"]}
    clients = [
        await aiomysql.connect(host=server.host, port=server.port, autocommit=True, **login)
        for server in pair
        for _ in range(50)
    ]

    async def ask(client: aiomysql.Connection) -> int:
        async with client.cursor() as cursor:
            await cursor.execute(slow)
            (count,) = await cursor.fetchone()
            return int(count)

    before = upstream.status("Com_select")
    counts = await asyncio.gather(*(ask(client) for client in clients))
    for client in clients:
        client.close()
    assert set(counts) == {80**3}
    assert upstream.status("Com_select") == before + 1


# --- writes -----------------------------------------------------------------------------------

Act = Callable[[Session], object]


def statement(text: str) -> Act:
    """An act that runs statements."""
    return lambda connection: run(connection, text)


@dataclass(frozen=True, slots=True)
class Write:
    """A write, and a read whose answer it changes."""

    act: Act | str
    read: str = "SELECT id, v FROM t ORDER BY id"
    setup: str = ""


PARENT = (
    "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=InnoDB; CREATE TABLE c (id INT, p INT,"
    " FOREIGN KEY (p) REFERENCES p (id) ON DELETE {} ON UPDATE CASCADE) ENGINE=InnoDB;"
    "INSERT INTO p VALUES (1), (2); INSERT INTO c VALUES (1, 1), (2, 2)"
)
TRIGGER = (
    "CREATE TABLE log (v INT); CREATE TRIGGER g AFTER {} ON t FOR EACH ROW"
    " INSERT INTO log VALUES (1)"
)
CHILDREN = "SELECT id, p FROM c ORDER BY id"
LOGGED = "SELECT COUNT(*) FROM log"

WRITES = {
    "INSERT": Write("INSERT INTO t VALUES (3, 30)"),
    "INSERT SELECT": Write("INSERT INTO t SELECT id + 10, v FROM u"),
    "REPLACE": Write("REPLACE INTO t VALUES (1, 11)"),
    "ON DUPLICATE KEY": Write("INSERT INTO t VALUES (1, 0) ON DUPLICATE KEY UPDATE v = 12"),
    "UPDATE": Write("UPDATE t SET v = 13 WHERE id = 1"),
    "UPDATE of two tables": Write("UPDATE u JOIN t USING (id) SET u.v = 1, t.v = 14"),
    "UPDATE of an alias": Write("UPDATE u x, t y SET y.v = 15 WHERE x.id = y.id"),
    "DELETE": Write("DELETE FROM t WHERE id = 1"),
    "DELETE of two tables": Write("DELETE t, u FROM t JOIN u USING (id)"),
    "TRUNCATE": Write("TRUNCATE t"),
    "WITH": Write("INSERT INTO t WITH c AS (SELECT 9 AS id) SELECT id, 9 FROM c"),
    "several": Write("SELECT 1; SELECT 2; DELETE FROM t; SELECT 3"),
    "in full": Write("DELETE FROM `{schema}` . t"),
    "PREPARE and EXECUTE": Write("PREPARE s FROM 'DELETE FROM t'; EXECUTE s"),
    "EXECUTE IMMEDIATE by way of a variable": Write(
        "SET @s = 'DELETE FROM t'; PREPARE s FROM @s; EXECUTE s"
    ),
    "CALL": Write("CALL w()", setup="CREATE PROCEDURE w() DELETE FROM t"),
    "a function": Write(
        "SELECT f()",
        setup="CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
        " BEGIN DELETE FROM t; RETURN 1; END",
    ),
    "DO": Write(
        "DO f()",
        setup="CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
        " BEGIN DELETE FROM t; RETURN 1; END",
    ),
    "an inserting trigger": Write("INSERT INTO t VALUES (3, 3)", LOGGED, TRIGGER.format("INSERT")),
    "an updating trigger": Write("UPDATE t SET v = v + 1", LOGGED, TRIGGER.format("UPDATE")),
    "a deleting trigger": Write("REPLACE INTO t VALUES (1, 1)", LOGGED, TRIGGER.format("DELETE")),
    "a cascaded delete": Write("DELETE FROM p WHERE id = 1", CHILDREN, PARENT.format("CASCADE")),
    "a key set to null": Write("DELETE FROM p WHERE id = 1", CHILDREN, PARENT.format("SET NULL")),
    "a cascaded update": Write(
        "UPDATE p SET id = 9 WHERE id = 1", CHILDREN, PARENT.format("CASCADE")
    ),
    "a cascaded update of a key by its other name": Write(
        "UPDATE p SET _rowid = 9 WHERE id = 1", CHILDREN, PARENT.format("CASCADE")
    ),
    "through a view": Write("UPDATE w SET v = 16", setup="CREATE VIEW w AS SELECT * FROM t"),
    "read through a view": Write(
        "UPDATE t SET v = 17", "SELECT * FROM w", "CREATE VIEW w AS SELECT id, v FROM t"
    ),
    "another body of a view": Write(
        "CREATE OR REPLACE VIEW w AS SELECT id FROM u",
        "SELECT * FROM w",
        "CREATE VIEW w AS SELECT id, v FROM t",
    ),
    "ALTER": Write("ALTER TABLE t ADD x INT DEFAULT 4", "SELECT * FROM t"),
    "a swap of columns": Write(
        "ALTER TABLE t CHANGE v id INT, CHANGE id v INT", "SELECT id, v FROM t ORDER BY 1"
    ),
    "a swap of names": Write("RENAME TABLE t TO x, u TO t, x TO u"),
    "DROP and CREATE": Write("DROP TABLE t; CREATE TABLE t (id INT, v INT)"),
    "CREATE OR REPLACE by way of DROP": Write(
        "DROP TABLE IF EXISTS t; CREATE TABLE t AS SELECT 5 AS id, 6 AS v"
    ),
    "the schema anew": Write(
        "DROP DATABASE {schema}; CREATE DATABASE {schema}; USE {schema};"
        "CREATE TABLE t (id INT, v INT); INSERT INTO t VALUES (8, 8)"
    ),
    "a transaction in one text": Write("BEGIN; DELETE FROM t; COMMIT"),
    "a commit by DDL": Write("BEGIN; DELETE FROM t; CREATE TABLE x (v INT)"),
    "a commit by BEGIN": Write("BEGIN; DELETE FROM t; BEGIN"),
    "autocommit on again": Write("SET autocommit = 0; DELETE FROM t; SET autocommit = 1"),
    "XA": Write("XA START 'x'; DELETE FROM t; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'"),
    "half a failed write": Write(
        "INSERT IGNORE INTO m VALUES (2); INSERT INTO m VALUES (3), (1)",
        "SELECT id FROM m ORDER BY id",
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO m VALUES (1)",
    ),
    "MyISAM in a transaction": Write(
        "BEGIN; INSERT INTO m VALUES (2)",
        "SELECT id FROM m ORDER BY id",
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO m VALUES (1)",
    ),
    "MyISAM in a transaction rolled back": Write(
        "BEGIN; INSERT INTO m VALUES (2); DELETE FROM t; ROLLBACK",
        "SELECT id FROM m ORDER BY id",
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO m VALUES (1)",
    ),
}


def test_a_write_through_one_proxy_is_seen_through_the_other_at_once(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
) -> None:
    one, two = pair
    schema = account["database"]
    upstream.sql("SET GLOBAL log_bin_trust_function_creators = 1")
    for name, write in WRITES.items():
        with ExitStack() as stack:
            make = stack.enter_context(session(one, {**account, "database": ""}))
            run(make, f"DROP DATABASE {schema}; CREATE DATABASE {schema}; USE {schema}")
            run(make, "CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE u LIKE t")
            run(make, "INSERT INTO t VALUES (1, 10), (2, 20); INSERT INTO u VALUES (1, 7), (2, 8)")
            if write.setup:
                run(make, write.setup)
            writer = stack.enter_context(session(one, account))
            readers = [stack.enter_context(session(server, account)) for server in (one, two)]
            old = upstream.sql(write.read, schema)
            warm(one, readers[0], write.read)
            warm(two, readers[1], "SELECT 1 FROM t")
            hits, misses = counter(two, "hits"), counter(two, "misses")
            for reader in (*readers, *readers):
                assert run(reader, write.read) == old
            assert counter(two, "hits") == hits + 2, f"{name}: what one stored the other serves"
            assert counter(two, "misses") == misses
            act = write.act
            try:
                if isinstance(act, str):
                    run(writer, act.replace("{schema}", schema))
                else:
                    act(writer)
            except pymysql.MySQLError:
                assert "failed" in name
            new = upstream.sql(write.read, schema)
            assert new != old, f"{name}: the write must change the answer, else this shows nothing"
            for reader in (*readers[::-1], *readers):
                assert run(reader, write.read) == new, name


def test_a_write_is_seen_at_once_where_memcached_has_no_room_to_say_so(
    upstream: PrivateSqlServer, account: dict[str, str], proxy: ProxyFactory, tmp_path: Path
) -> None:
    """It is one that evicts nothing: what a tag's log is appended to stays as it is."""
    options = ("-M", "-I", "512k")
    upstream.sql("CREATE TABLE t (v INT)", account["database"])
    with PrivateMemcached(tmp_path / "full", memory_mb=2, options=options) as full:
        one, other = (proxy(upstream, full, upstream__catalog_refresh_s=3600) for _ in range(2))
        with session(one, account) as writer, session(other, account) as reader:
            run(writer, "INSERT INTO t VALUES (1)")
            warm(other, reader, "SELECT v FROM t")
            fill_up(full)
            for v in range(2, 4):
                run(writer, f"UPDATE t SET v = {v}")
                assert run(reader, "SELECT v FROM t") == ((v,),)


def fill_up(memcached: PrivateMemcached) -> None:
    """Leaves room but for what a tag's log begins with, and for what is appended to it."""
    begins = len(new_log(fresh_id()))
    sizes = [100_000, 30_000, 10_000, 3_000, 1_000, *range(500, 2 * begins, -20), begins]
    for size in sizes:
        items = [junk(size, at) for at in range((2 << 20) // (size + 80))]
        memcached.ask(b"".join(items) + b"mn\r\n", b"MN\r\n")
    gone = b"".join(b"md %b q\r\n" % junk(begins, at).split(b" ")[1] for at in range(1_000))
    memcached.ask(gone + b"mn\r\n", b"MN\r\n")


def junk(size: int, at: int) -> bytes:
    """What stores an item of so many bytes, under a key as long as a tag's."""
    key = b"%0*d" % (len(Keyspace("sqlcache").tag("shop", "orders")), size * 100_000 + at)
    return b"ms %b %d q\r\n%b\r\n" % (key, size, bytes(size))


def test_a_prepared_write_is_seen_through_the_other_proxy_at_once(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str]
) -> None:
    one, two = pair
    options = {"host": one.host, "port": one.port, "use_pure": True, "ssl_disabled": True}
    with session(one, account) as make, session(two, account) as reader:
        run(make, "CREATE TABLE t (v INT); INSERT INTO t VALUES (0)")
        run(make, "CREATE TABLE n (v INT); INSERT INTO n VALUES (0)")
        with closing(mysql.connector.connect(**account, **options, autocommit=True)) as writer:
            cursor = writer.cursor(prepared=True)
            for number in range(1, 6):
                assert run(reader, "SELECT v FROM t") == ((number - 1,),)
                warm(two, reader, "SELECT v FROM t")
                warm(two, reader, "SELECT v FROM n")
                cursor.execute("UPDATE t SET v = ?", (number,))
                assert run(reader, "SELECT v FROM t") == ((number,),)
                hits = counter(two, "hits")
                run(reader, "SELECT v FROM n")
                assert counter(two, "hits") == hits + 1, "the other table was not written"


def test_what_one_proxy_defines_decides_what_a_write_through_the_other_writes(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
) -> None:
    """A view that calls a function, which writes to a table that no statement names."""
    one, two = pair
    upstream.sql("SET GLOBAL log_bin_trust_function_creators = 1")
    with session(one, account) as make, session(two, account) as writer:
        run(make, "CREATE TABLE t (v INT); CREATE TABLE n (v INT); INSERT INTO n VALUES (0)")
        run(
            make,
            "CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
            " BEGIN INSERT INTO t VALUES (1); RETURN 1; END",
        )
        run(make, "CREATE VIEW w AS SELECT v FROM n")
        learn(pair, account)
        run(writer, "INSERT INTO n SELECT v FROM w LIMIT 1")
        with session(one, account) as reader:
            warm(one, reader, "SELECT COUNT(*) FROM t")
            run(make, "CREATE OR REPLACE VIEW w AS SELECT f() AS v FROM n")
            warm(one, reader, "SELECT COUNT(*) FROM t")
            run(writer, "INSERT INTO n SELECT v FROM w LIMIT 1")
            ((rows,),) = run(reader, "SELECT COUNT(*) FROM t")
            assert rows == upstream.sql("SELECT COUNT(*) FROM t", account["database"])[0][0] > 0


def test_a_function_made_through_one_proxy_is_none_built_in_for_the_other(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
) -> None:
    """Each server has functions built in that the other has not, so somebody may make them."""
    one, two = pair
    name = "REGEXP_LIKE" if upstream.name == "mariadbd" else "NVL2"
    away = f"{account['database']}_away"
    read = f"SELECT {name}(v, 1, 2) FROM {away}.t"
    upstream.sql("SET GLOBAL log_bin_trust_function_creators = 1")
    with session(one, account) as make, session(two, account) as reader:
        try:
            run(
                make,
                f"CREATE DATABASE {away}; CREATE TABLE {away}.t (v INT); CREATE TABLE n (v INT)",
            )
            run(make, f"INSERT INTO {away}.t VALUES (1); INSERT INTO n VALUES (1)")
            warm(two, reader, f"SELECT v FROM {away}.t")
            run(
                make,
                f"CREATE FUNCTION {name}(a INT, b INT, c INT) RETURNS INT READS SQL DATA"
                " RETURN (SELECT MAX(v) FROM n)",
            )
            assert [run(reader, read) for _ in range(2)] == [((1,),)] * 2
            run(make, "UPDATE n SET v = 2")
            assert run(reader, read) == ((2,),)
        finally:
            run(make, f"DROP DATABASE {away}")


WAITS_FOR_TABLE = (
    "SELECT 1 FROM information_schema.processlist WHERE state LIKE '%table metadata lock'"
)
WAITS_FOR_ROW = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"


@contextmanager
def trigger_made_before_a_waiting_write(
    upstream: PrivateSqlServer,
    schema: str,
    definer: Any,
    writer: Any,
    into: str,
    *,
    write: str = "INSERT INTO t SELECT v FROM s LOCK IN SHARE MODE",
    held: str = "UPDATE s SET v = 2",
    first: bool = False,
    fails: bool = False,
) -> Iterator[None]:
    """A write to `t` waits for its table until that has a trigger, which writes `into` another one;
    within the block it waits for what was `held` before it, and after that it has ended. It is
    sent `first`, or when the trigger's definition waits already, which goes before it anyway. It
    may end with an error where it `fails`."""
    with ExitStack() as stack:
        opened, holder = (
            stack.enter_context(closing(upstream.connect(autocommit=False, database=schema)))
            for _ in range(2)
        )
        run(opened, "LOCK TABLES t READ" if first else "SELECT * FROM t")
        run(holder, held)
        trigger = f"CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW INSERT INTO {into} VALUES (1)"
        both = [(definer, trigger), (writer, write)]

        def all_wait(count: int) -> bool:
            return len(upstream.sql(WAITS_FOR_TABLE)) == count

        def runs(connection: Any, statement: str) -> None:
            with suppress(*[pymysql.MySQLError] * fails):
                run(connection, statement)

        waiting = []
        for connection, statement in reversed(both) if first else both:
            waiting.append(in_thread(partial(runs, connection, statement)))
            wait_until(partial(all_wait, len(waiting)), 10, f"the wait of {statement}")
        run(opened, "UNLOCK TABLES" if first else "COMMIT")
        defining, writing = reversed(waiting) if first else waiting
        defining.join()
        wait_until(lambda: bool(upstream.sql(WAITS_FOR_ROW)), 10, "the write's second wait")
        yield
        run(holder, "ROLLBACK")
        writing.join()


@pytest.mark.parametrize("verb", ["INSERT", "INSERT DELAYED"])
def test_a_trigger_made_while_a_write_waits_for_its_table_is_known_at_its_end(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    verb: str,
) -> None:
    """The write was fenced by a catalog without it, and fires it."""
    one, two = pair
    write = f"{verb} INTO t SELECT v FROM s LOCK IN SHARE MODE"
    schema, read = account["database"], "SELECT COUNT(*) FROM made"
    with session(one, account) as definer, session(two, account) as writer:
        run(definer, "CREATE TABLE t (v INT); CREATE TABLE made (v INT); CREATE TABLE s (v INT)")
        run(definer, "INSERT INTO s VALUES (1)")
        learn(pair, account)
        run(writer, "INSERT INTO t VALUES (0)")
        with session(one, account) as reader:
            with trigger_made_before_a_waiting_write(
                *(upstream, schema, definer, writer, "made"), write=write
            ):
                warm(one, reader, read)
            assert run(reader, read) == ((1,),)


DENIES = (
    "CREATE TRIGGER d AFTER INSERT ON made FOR EACH ROW"
    " SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1142"
)


def test_a_trigger_made_while_a_write_waits_may_deny_it_when_it_has_written(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
) -> None:
    """By the catalog under which it was sent nothing but the server could have."""
    if upstream.name == "mariadbd":
        pytest.skip("has no engine that keeps what a failed write wrote and lets others read it")
    one, two = pair
    schema, read = account["database"], "SELECT COUNT(*) FROM made"
    with session(one, account) as definer, session(two, account) as writer:
        run(definer, "CREATE TABLE t (v INT) ENGINE = MyISAM")
        run(definer, "CREATE TABLE made (v INT) ENGINE = ARCHIVE")
        run(definer, "CREATE TABLE s (v INT); INSERT INTO s VALUES (1)")
        run(definer, DENIES)
        learn(pair, account)
        run(writer, "INSERT INTO t VALUES (0)")
        with session(one, account) as reader:
            with trigger_made_before_a_waiting_write(
                upstream, schema, definer, writer, "made", fails=True
            ):
                warm(one, reader, read)
            assert run(reader, read) == ((1,),)


def test_what_a_trigger_denies_that_another_process_has_made_was_a_write(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str]
) -> None:
    one, two = pair
    read, change = "SELECT COUNT(*) FROM made", "INSERT INTO t VALUES (0)"
    with session(one, account) as definer, session(two, account) as writer:
        run(definer, "CREATE TABLE t (v INT) ENGINE = MyISAM")
        run(definer, "CREATE TABLE made (v INT) ENGINE = MyISAM")
        run(definer, DENIES)
        learn(pair, account)
        for _ in range(3):
            run(writer, change)
        run(definer, "CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW INSERT INTO made VALUES (1)")
        for count in range(1, 4):
            warm(one, definer, read)
            with pytest.raises(pymysql.MySQLError, match="1142"):
                run(writer, change)
            assert run(definer, read) == ((count,),)


@pytest.mark.parametrize("by", ["another process", "the same process"])
def test_a_trigger_made_while_a_planned_change_waits_is_known_at_its_end(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    by: str,
) -> None:
    """Nor does who made it himself go by what was so when the change was sent."""
    one, two = pair
    schema, read = account["database"], "SELECT COUNT(*) FROM made"
    changes = "INSERT INTO t VALUES (0)"
    writers = one if by == "the same process" else two
    with session(one, account) as definer, session(writers, account) as writer:
        run(definer, "CREATE TABLE t (v INT); CREATE TABLE made (v INT PRIMARY KEY)")
        learn(pair, account)
        for _ in range(3):
            run(writer, changes)
        with session(one, account) as reader:
            with trigger_made_before_a_waiting_write(
                *(upstream, schema, definer, writer, "made"),
                write=changes,
                held="INSERT INTO made VALUES (1)",
                first=True,
            ):
                warm(one, reader, read)
            assert run(reader, read) == ((1,),)


@pytest.mark.parametrize("begin", [None, "BEGIN"])
@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW INSERT INTO made VALUES (1)",
        "RENAME TABLE t TO was, w TO t",
        "DROP TABLE t; CREATE VIEW t AS SELECT v FROM made",
    ],
)
def test_what_another_process_defines_holds_for_changes_that_were_planned(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    definition: str,
    begin: str | None,
) -> None:
    one, two = pair
    read = "SELECT COUNT(*) FROM made"
    with session(one, account) as definer, session(two, account) as writer:
        run(definer, "CREATE TABLE t (v INT); CREATE TABLE made (v INT); CREATE TABLE w (v INT)")
        run(definer, "CREATE TRIGGER gw AFTER INSERT ON w FOR EACH ROW INSERT INTO made VALUES (2)")
        learn(pair, account)
        turn = [begin, "INSERT INTO t VALUES (0)", begin and "COMMIT"]
        for statement in filter(None, turn * 3):
            run(writer, statement)
        run(definer, definition)
        warm(one, definer, read)
        ((before,),) = run(definer, read)
        for statement in filter(None, turn):
            run(writer, statement)
        assert run(definer, read) == ((before + 1,),)


@pytest.mark.parametrize("begin", [None, "BEGIN"])
@pytest.mark.parametrize(
    "definition",
    [
        "ALTER TABLE {far}.c ADD FOREIGN KEY (x) REFERENCES {own}.p (x) ON UPDATE CASCADE",
        "RENAME TABLE {far}.c TO {far}.was; CREATE TABLE {far}.c (id INT, x INT,"
        " FOREIGN KEY (x) REFERENCES {own}.p (x) ON UPDATE CASCADE);"
        " INSERT INTO {far}.c VALUES (1, 10)",
        "ALTER TABLE p CHANGE x y INT, CHANGE id x INT",
    ],
)
def test_a_foreign_key_of_another_schema_that_follows_more_holds_for_what_was_planned(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    definition: str,
    begin: str | None,
) -> None:
    one, two = pair
    far = f"{account['database']}_far"
    read = f"SELECT id, x FROM {far}.c"
    write = "UPDATE p SET x = {} WHERE k = {}"
    with session(one, account) as definer, session(two, account) as writer:
        run(definer, "CREATE TABLE p (k INT, id INT PRIMARY KEY, x INT UNIQUE)")
        run(definer, "INSERT INTO p VALUES (1, 1, 10), (2, 2, 20)")
        key = "FOREIGN KEY (id) REFERENCES {}.p (id) ON UPDATE CASCADE"
        run(definer, f"CREATE DATABASE {far}")
        try:
            made = key.format(account["database"])
            run(definer, f"CREATE TABLE {far}.c (id INT, x INT, {made})")
            run(definer, f"INSERT INTO {far}.c VALUES (1, 10)")
            warm(two, writer, read)
            for number in (30, 40, 50):
                for statement in filter(None, (begin, write.format(number, 2), begin and "COMMIT")):
                    run(writer, statement)
            hits = counter(two, "hits")
            run(writer, read)
            assert counter(two, "hits") == hits + 1, "the child was not written"
            run(definer, definition.format(far=far, own=account["database"]))
            warm(one, definer, read)
            old = run(definer, read)
            for statement in filter(None, (begin, write.format(99, 1), begin and "COMMIT")):
                run(writer, statement)
            new = upstream.sql(read)
            assert run(definer, read) == new != old
        finally:
            upstream.sql(f"DROP DATABASE {far}")


@pytest.mark.parametrize("far", ["{}_far", "old"])
@pytest.mark.parametrize("begin", [None, "BEGIN"])
def test_a_trigger_may_name_a_schema_as_a_table_is_called_or_its_rows(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    far: str,
    begin: str | None,
) -> None:
    """In which another process then makes the table that it writes to."""
    one, two = pair
    far = far.format(account["database"])
    read = f"SELECT COUNT(*) FROM {far}.made"
    with session(one, account) as definer, session(two, account) as writer:
        run(definer, f"CREATE DATABASE {far}; CREATE TABLE t (v INT); INSERT INTO t VALUES (0)")
        if far != "old":
            run(definer, f"CREATE TABLE {far} (v INT)")
        try:
            writes = f"INSERT INTO {far}.made VALUES (OLD.v)"
            run(definer, f"CREATE TABLE {far}.other (v INT)")
            run(definer, f"CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW {writes}")
            learn(pair, account)
            with pytest.raises(pymysql.MySQLError, match="1146"):
                run(writer, "UPDATE t SET v = v + 1")
            run(definer, f"CREATE TABLE {far}.made (v INT)")
            for count in range(1, 3):
                warm(one, definer, read)
                for statement in filter(
                    None, [begin, "UPDATE t SET v = 1 - v", begin and "COMMIT"]
                ):
                    run(writer, statement)
                assert run(definer, read) == ((count,),)
        finally:
            upstream.sql(f"DROP DATABASE {far}")


@pytest.mark.parametrize("how", ["by itself", "by a trigger"])
def test_what_one_proxy_keeps_from_rolling_back_the_other_lets_be_seen_at_once(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str], how: str
) -> None:
    """In a transaction, of a table that the writer's proxy knows to roll back, and no longer does;
    or that now has a trigger which writes to such a one."""
    one, two = pair
    read = "SELECT COUNT(*) FROM t" if how == "by itself" else "SELECT COUNT(*) FROM m"
    with session(one, account) as reader, session(two, account) as writer:
        run(reader, "CREATE TABLE t (v INT) ENGINE=InnoDB; CREATE TABLE m (v INT) ENGINE=MyISAM")
        learn(pair, account)
        run(writer, "SET sql_log_bin = 0")  # MySQL's binlog would refuse the mixture
        run(writer, "BEGIN")
        run(writer, "INSERT INTO t VALUES (1)")
        run(writer, "COMMIT")
        if how == "by itself":
            run(reader, "ALTER TABLE t ENGINE=MyISAM")
        else:
            body = "INSERT INTO m VALUES (1)"
            run(reader, f"CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW {body}")
        warm(one, reader, read)
        ((before,),) = run(reader, read)
        run(writer, "BEGIN")
        run(writer, "INSERT INTO t VALUES (2)")
        assert run(reader, read) == ((before + 1,),)
        run(writer, "ROLLBACK")
        assert run(reader, read) == ((before + 1,),)


def test_a_file_loaded_is_seen_through_the_other_proxy_at_once(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rows").write_bytes(b"1\n2\n3\n")
    load = f"LOAD DATA LOCAL INFILE '{tmp_path / 'rows'}' INTO TABLE t"
    with session(pair[0], account) as writer, session(pair[1], account) as reader:
        run(writer, "CREATE TABLE t (v INT)")
        for number in range(3):
            warm(pair[1], reader, "SELECT COUNT(*) FROM t")
            assert run(reader, "SELECT COUNT(*) FROM t") == ((3 * number,),)
            run(writer, load)
        assert run(reader, "SELECT COUNT(*) FROM t") == ((9,),)


@pytest.mark.parametrize("begin", ["BEGIN", "SET autocommit = 0"])
def test_a_transaction_is_seen_at_its_commit_and_not_before_and_a_rollback_forgets_nothing(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str], begin: str
) -> None:
    one, two = pair
    read = "SELECT v FROM t"
    with session(one, account) as writer, session(two, account) as reader:
        run(writer, "CREATE TABLE t (v INT); INSERT INTO t VALUES (0)")
        for number in range(3):
            for end, value in (("ROLLBACK", number), ("COMMIT", number + 1)):
                assert run(reader, read) == ((number,),)
                warm(two, reader, read)
                hits, forgotten = counter(two, "hits"), one.metrics()
                run(writer, begin)
                run(writer, "UPDATE t SET v = v + 1")
                run(writer, "SAVEPOINT s; UPDATE t SET v = 99; ROLLBACK TO s")
                assert run(writer, read) == ((number + 1,),), "its own write"
                for _ in range(3):
                    assert run(reader, read) == ((number,),), "not yet committed"
                assert counter(two, "hits") == hits + 3, "nothing is forgotten before the end"
                run(writer, end)
                assert run(reader, read) == ((value,),), end
                if end == "ROLLBACK":
                    assert counter(two, "hits") == hits + 4, "a rollback forgets nothing"
                    kind = 'sqlcache_invalidations_total{kind="table"}'
                    assert one.metrics()[kind] == forgotten[kind]


@pytest.mark.parametrize("begins", ["a login", "USE", "COM_CHANGE_USER"])
def test_an_idle_proxy_hears_of_a_revoke_before_it_takes_a_session_for_an_old_one(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    account: dict[str, str],
    begins: str,
) -> None:
    """Sessions from before it keep their rights, and go on to store what new ones must not have."""
    first, second = pair
    schema = account["database"]
    user, read = f"{schema}_user", "SELECT v FROM t"
    login = {"user": user, "password": "p", "database": schema}
    rights = f"SELECT ON {schema if begins == 'USE' else '*'}.*"
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1); CREATE TABLE u (v INT)", schema)
    with ExitStack() as stack:
        enter = stack.enter_context
        a = enter(session(first, account))
        run(a, f"CREATE USER {user}@'%' IDENTIFIED BY 'p'; GRANT {rights} TO {user}@'%'")
        run(a, f"GRANT SELECT ON {schema}.u TO {user}@'%'")
        warm(second, enter(session(second, account)), read)  # it has read of these rights
        old, asleep = enter(session(first, login)), enter(session(second, login))
        run(a, f"REVOKE {rights} FROM {user}@'%'")
        warm(first, old, read)
        match begins:
            case "a login":
                new = enter(session(second, login))
            case "USE":
                new = asleep
                run(new, f"USE {schema}")
            case _:
                address = {"host": second.host, "port": second.port, "use_pure": True}
                new = enter(closing(mysql.connector.connect(**account, **address)))
                new.cmd_change_user(user, "p", schema)
        for _ in range(3):  # at first it only finds out that definitions have changed
            with pytest.raises((pymysql.MySQLError, mysql.connector.Error), match="denied"):
                new.cursor().execute(read)
        run(a, f"DROP USER {user}@'%'")


def test_what_another_proxy_lets_a_write_run_may_change_the_session(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
) -> None:
    """A trigger is created through one proxy, and fires for a session of the other."""
    one, two = pair
    read = "SELECT at FROM t"
    with session(one, account) as writer, session(two, account) as definer:
        run(definer, "SET time_zone = '+00:00'; CREATE TABLE t (v INT, at TIMESTAMP NULL)")
        run(definer, "INSERT INTO t VALUES (1, '2020-01-01 12:00:00')")
        run(definer, "CREATE TABLE u (v INT)")
        learn(pair, account)
        run(writer, "SET time_zone = '+00:00'; INSERT INTO u VALUES (1)")
        warm(one, writer, read)
        before = run(writer, read)
        run(definer, "CREATE TRIGGER r BEFORE INSERT ON u FOR EACH ROW SET time_zone = '+05:00'")
        run(writer, "INSERT INTO u VALUES (2)")
        assert run(writer, read) != before


def test_a_proxy_with_another_list_of_nodes_does_not_start_beside_the_others(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, tmp_path: Path
) -> None:
    """As in a rolling restart with other settings."""
    with PrivateMemcached(tmp_path / "second") as second:
        proxy(upstream, [memcached, second])
        other = ForkedSqlcache(tmp_path / "other", upstream.service_url, (memcached.address,))
        with pytest.raises(NotStarted, match="another list, seen on"):
            other.start()


@pytest.fixture
def federated(mariadb: PrivateMariaDB) -> Iterator[str]:
    """What makes a table one whose rows are those of `t` in a schema, to be named."""
    mariadb.sql("INSTALL SONAME 'ha_federatedx'")
    url = f"mysql://{mariadb.user}:{mariadb.password}@{mariadb.address}"
    yield f"(id INT PRIMARY KEY, v INT) {{}} CONNECTION = '{url}/{{}}/t'"
    mariadb.sql("UNINSTALL SONAME 'ha_federatedx'")


@pytest.mark.parametrize("by_code", [False, True])
@pytest.mark.parametrize("engine", ["ENGINE = FEDERATED", "ENGINE FEDERATED,", ""])
def test_a_temporary_table_may_have_its_rows_in_others(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    federated: str,
    engine: str,
    by_code: bool,
) -> None:
    servers = [proxy(mariadb, memcached) for _ in range(2)]
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    create = f"CREATE TEMPORARY TABLE far {federated.format(engine, schema)}"
    with session(servers[0], account) as reader, session(servers[1], account) as writer:
        run(writer, "CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)")
        run(writer, f"CREATE PROCEDURE make() {create}")
        run(writer, "SET default_tmp_storage_engine = FEDERATED")
        run(writer, "CALL make()" if by_code else create)
        for change in ("UPDATE far SET v = 2", "INSERT INTO far VALUES (3, 3)", "DELETE FROM far"):
            for _ in range(2):
                run(reader, "SELECT * FROM t")
            run(writer, change)
            assert run(reader, "SELECT * FROM t") == mariadb.sql("SELECT * FROM t", schema)
