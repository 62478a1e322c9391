"""What goes the straight path is answered as by the long way, and leaves it where it must.

All scripts repeat their statements: the first time makes a plan, the others go by it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from threading import Thread
from typing import Any

import pymysql
import pytest
from pymysql.constants import COMMAND

from sqlcache.demo.servers import PrivateSqlServer, wait_until
from tests.fakes.raw_client import RawClient
from tests.integration.scripts import World, ended_long
from tests.servers import PATIENT

UPDATE = "UPDATE planned_once.t SET a = {}"
POINT = "SELECT a FROM planned_once.t WHERE a = {}"
PLANNED = "sqlcache_statements_planned_total"
RELAYED = "sqlcache_statements_relayed_total"  # by their plans or the long way
EOF_BYTES = 5
FENCES = "sqlcache_fences_total"
SHARED = "sqlcache_fences_shared_total"
MAKE = "CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO t VALUES (1, 'x'), (2, 'y')"


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["SELECT RAND() > 2, 1"], ["SELECT RAND() > 2, 1", "SELECT RAND() > 2, 22.5"]),
        (["SELECT RAND() > 2, 'a'"], ["SELECT RAND() > 2, 'b'", "SELECT RAND() > 2, 'it''s'"]),
        (["SET NAMES utf8mb4", "SET NAMES latin1"] * 2, ["SET NAMES utf8mb4", "SET NAMES latin1"]),
        (["BEGIN", "COMMIT"], ["BEGIN", "COMMIT"]),
        (["USE mysql", "USE planned_once"] * 2, ["USE mysql", "USE planned_once", "USE mysql"]),
        ([UPDATE.format(1)], [UPDATE.format(1), UPDATE.format(22)]),
        (["BEGIN", UPDATE.format(1), "COMMIT"], ["BEGIN", UPDATE.format(1), "COMMIT"]),
        (["BEGIN", UPDATE.format(1), "ROLLBACK"], ["BEGIN", UPDATE.format(2), "ROLLBACK"]),
        (["BEGIN", UPDATE.format(1), POINT.format(0), "COMMIT"], [POINT.format(9)]),
        (
            ["BEGIN", UPDATE.format(1), POINT.format(4), "SAVEPOINT s", "ROLLBACK"],
            [
                "BEGIN",
                UPDATE.format(3),
                POINT.format(5),
                "SAVEPOINT s",
                POINT.format(4),
                "ROLLBACK",
            ],
        ),
        ([POINT.format(10)], [POINT.format(11), POINT.format(12)]),
    ],
)
def test_what_was_seen_before_is_passed_by_its_plan(
    world: World, first: list[str], then: list[str]
) -> None:
    with closing(world.proxy.connect()) as session, session.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS planned_once")
        cursor.execute("CREATE TABLE IF NOT EXISTS planned_once.t (a INT)")
        for text in first * 2:  # what is new to the catalog ends the plans of before
            cursor.execute(text)
        planned = []
        for text in then:
            before = world.proxy.metrics()
            cursor.execute(text)
            after = world.proxy.metrics()
            relayed, by_plan = (after[each] - before[each] for each in (RELAYED, PLANNED))
            planned += [text] * int(by_plan + ended_long(before, after, relayed))
    assert planned == then


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("word", ["plain", "min from", "SUM(a) WHERE", "values"])
@pytest.mark.parametrize(
    "write",
    [
        "UPDATE after_a_hit.t SET summary = '{}', minimum = 1 WHERE max_price = {}",
        "DELETE FROM after_a_hit.t WHERE summary = '{}' AND max_price = {}",
        "INSERT INTO after_a_hit.t (summary, max_price) VALUES ('from {}', {})",
    ],
)
def test_changes_after_a_hit_are_passed_by_their_plans_whatever_letters_are_in_them(
    world: World, write: str, word: str
) -> None:
    """Only a query may leave FOUND_ROWS() as it was."""
    read = "SELECT minimum FROM after_a_hit.u"
    world.upstream.sql("CREATE DATABASE IF NOT EXISTS after_a_hit")
    with closing(world.proxy.connect()) as session, session.cursor() as cursor:
        for table in ("t", "u"):
            columns = "minimum INT, max_price INT, summary VARCHAR(20)"
            cursor.execute(f"DROP TABLE IF EXISTS after_a_hit.{table}")
            cursor.execute(f"CREATE TABLE after_a_hit.{table} ({columns})")
            cursor.execute(f"INSERT INTO after_a_hit.{table} (max_price) VALUES (1), (2), (3)")
        for number in (1, 2):
            for text in (read, write.format(word, number)):
                cursor.execute(text)

        def is_planned() -> bool:
            before = world.proxy.metrics()
            cursor.execute(read)
            cursor.execute(write.format(word, 3))
            after = world.proxy.metrics()
            more = [after[name] - before[name] for name in ("sqlcache_hits_total", PLANNED)]
            return more == [1, 1]

        wait_until(is_planned, 20, "a change behind a hit that is passed by its plan")


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("access", ["READ WRITE", "READ ONLY"])
@pytest.mark.parametrize("begin", ["BEGIN", "SET autocommit = 0"])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
def test_hits_in_a_transaction_are_looked_up_straight_away(
    world: World, level: str, begin: str, access: str
) -> None:
    """The first one as well, which opens its snapshot."""
    world.upstream.sql("CREATE DATABASE IF NOT EXISTS straight")
    reads = [f"SELECT a, {number} FROM straight.t WHERE a = 1" for number in (1, 2, 3)]
    with closing(world.proxy.connect()) as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS straight.t (a INT PRIMARY KEY)")
        cursor.execute("REPLACE INTO straight.t VALUES (1)")
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}, {access}")
        for text in [*reads, *reads, begin, "COMMIT", begin]:
            cursor.execute(text)
        before = world.proxy.metrics()
        for text in reads:
            cursor.execute(text)
            assert len(cursor.fetchall()) == 1
        after = world.proxy.metrics()
        cursor.execute("COMMIT")
    assert after["sqlcache_hits_total"] - before["sqlcache_hits_total"] == 3
    assert after[RELAYED] == before[RELAYED]


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("begin", ["BEGIN", "SET autocommit = 0"])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
def test_a_transactions_reads_that_are_no_hits_are_passed_by_their_plans(
    world: World, level: str, begin: str
) -> None:
    """Misses, also the one that opens its snapshot, and what has changed since that. Its changes of
    rows as well, and the reads behind them."""
    world.upstream.sql("CREATE DATABASE IF NOT EXISTS passed_within")
    read, write = "SELECT a FROM passed_within.t WHERE a = {}", "UPDATE passed_within.{} SET a = {}"
    with ExitStack() as stack:
        sessions = [stack.enter_context(closing(world.proxy.connect())) for _ in range(2)]
        cursor, other = (stack.enter_context(session.cursor()) for session in sessions)
        for table in ("t", "own"):
            cursor.execute(f"CREATE TABLE IF NOT EXISTS passed_within.{table} (a INT)")
            cursor.execute(f"REPLACE INTO passed_within.{table} VALUES (1)")
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        for number in (1, 2):
            own = write.format("own", number)
            for text in (read.format(number), begin, read.format(number), own, own, "COMMIT"):
                cursor.execute(text)
        rounds = []
        for number in range(11, 16):
            cursor.execute(begin)
            planned = []
            texts = [read.format(number), read.format(number + 10)]
            for text in [texts[0], texts[1], write.format("own", number), texts[0], "COMMIT"]:
                if text is texts[1]:
                    other.execute(write.format("t", number))
                    other.execute(read.format(number))
                before = world.proxy.metrics()
                cursor.execute(text)
                after = world.proxy.metrics()
                planned.append(after[PLANNED] - before[PLANNED])
            rounds.append(planned)
    # One may meet a beat of its fence.
    assert rounds.count([1] * 5) >= len(rounds) - 1, rounds


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
def test_an_execution_that_is_no_hit_is_passed_by_its_plan(
    world: World, upstream: PrivateSqlServer
) -> None:
    """Also after others that were, which the server has not seen."""
    upstream.sql(
        "CREATE DATABASE IF NOT EXISTS executed; USE executed;"
        " CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)"
    )
    upstream.connect().close()  # so that caching_sha2_password knows the password
    account = upstream.user, upstream.password, "executed"
    with RawClient.logged_in(world.proxy, *account) as client:
        prepared = client.ask(b"\x16SELECT a FROM t WHERE a = ?")[5:9]

        def execute(number: int) -> None:
            head = b"\x17" + prepared + b"\0\1\0\0\0\0\1\x08\0"
            client.command(head + number.to_bytes(8, "little"))
            for _ in ("definitions", "rows"):
                while len(client.read_packet()[1]) != EOF_BYTES:
                    pass

        for number in (1, 1, 2, 2, 1):
            execute(number)
        before = world.proxy.metrics()
        for number in (3, 1, 4, 2, 5):
            execute(number)
        after = world.proxy.metrics()
    assert after["sqlcache_hits_total"] - before["sqlcache_hits_total"] == 2
    assert after[PLANNED] - before[PLANNED] == 3


def test_what_a_transaction_reads_is_of_one_moment_whichever_way_it_comes(world: World) -> None:
    """Misses and hits open it, short and long; what it has read it reads again."""
    long = "SELECT a, REPEAT(v, 900) FROM u"
    firsts = ["SELECT v FROM t WHERE a = 1", long, "SELECT v FROM t WHERE a = 99", *["DO 1"] * 2]
    firsts += ["SELECT v FROM t LIMIT 0", "SELECT CAST('x' AS SIGNED) FROM t"]
    turn = "".join(
        f"""
        b  {begin}
        b  {first}
        w  UPDATE t SET v = CONCAT(v, '{number}')
        w  UPDATE u SET v = 'z'
        w  SELECT v FROM t
        b  SELECT v FROM t WHERE a = 2
        b  SELECT v FROM t WHERE a = 1
        b  SELECT v FROM t WHERE a = 2
        b  {long}
        b  {first}
        b  UPDATE t SET v = 'y' WHERE a = 2
        b  SELECT v FROM t WHERE a = 2
        b  INSERT INTO u (v) VALUES ('new')
        b  {long}
        w  SELECT v FROM t WHERE a = 2
        b  {end}
        w  SELECT v FROM t WHERE a = 2
        w  {long}
        w  UPDATE u SET v = 'x'
        """
        for number, first in enumerate(firsts)
        for begin, end in (("BEGIN", "COMMIT"), ("SET autocommit = 0", "ROLLBACK"))
    )
    world.compare(
        f"""
        a  {MAKE}
        a  CREATE TABLE u (a INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))
        a  INSERT INTO u (v) SELECT 'x' FROM t, t AS b, t AS c, t AS d, t AS e, t AS f
        """
        + turn
        + "b  SET autocommit = 1\n"
        + turn
    )


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
def test_commands_that_are_no_statements_are_passed_by_their_plans(world: World) -> None:
    with closing(world.proxy.connect()) as session:

        def turn() -> None:
            for schema in ("information_schema", "mysql"):
                session.select_db(schema)
                session.ping()

        turn()
        turn()
        before = world.proxy.metrics()[PLANNED]
        turn()
        assert world.proxy.metrics()[PLANNED] - before == 4


def test_commands_that_are_no_statements_leave_what_was_there(world: World) -> None:
    """Warnings, counts, transactions, and the default schema where another is not there."""
    turn = """
        a  .ping
        a  SELECT CAST('x' AS SIGNED), RAND() > 2
        a  .ping
        a  SHOW WARNINGS
        a  .ping
        a  SELECT v FROM t WHERE a = 1
        a+ SELECT v FROM t WHERE a = 1
        a  .ping
        a  SELECT FOUND_ROWS()
        a  SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        a  SELECT v, RAND() > 2 FROM t
        a+ SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1
        a  .ping
        a  SELECT FOUND_ROWS()
        a  .ping
        a  .use nowhere
        a  SELECT DATABASE(), RAND() > 2
        a  UPDATE t SET v = CONCAT(v, '!') WHERE a = 1
        a  .ping
        a  SELECT ROW_COUNT()
        a  .ping
        a  .use mysql
        a  SELECT DATABASE(), RAND() > 2
        a  SELECT v FROM t
        a  .use {db}
        a  SELECT v FROM t
        b  SELECT v FROM t
    """
    in_transaction = """
        a  BEGIN
        a  .ping
        a  UPDATE t SET v = CONCAT(v, '?') WHERE a = 1
        a  .use mysql
        a  .ping
        a  .use {db}
        a  SELECT v FROM t
        b  SELECT v FROM t
        a  COMMIT
        a  .ping
        b  SELECT v FROM t
    """
    world.compare(f"""
        a  {MAKE}
        {turn}
        {in_transaction}
        {turn}
        {in_transaction}
    """)


def test_changes_that_are_made_again_leave_what_is_asked_for(world: World) -> None:
    """FOUND_ROWS(), ROW_COUNT(), warnings; of a change that changes some rows, or none."""
    turn = "".join(
        f"""
        a  SELECT n FROM u
        a  SELECT n, RAND() > 2 FROM u WHERE n < 3
        a+ SELECT n FROM u
        a  {change}
        a  SELECT FOUND_ROWS()
        a  {change}
        a  SELECT ROW_COUNT()
        a  SELECT CAST('x' AS SIGNED), RAND() > 2
        a  {change}
        a  SHOW WARNINGS
        a+ SELECT n FROM u
        a  {change}
        a  .ping
        a  SELECT v, RAND() > 2 FROM t ORDER BY a
        b  SELECT v FROM t ORDER BY a
        """
        for change in (
            "UPDATE t SET v = CONCAT(v, '!') WHERE a = 1",
            "UPDATE t SET v = CONCAT(v, '!') WHERE a = 9",
            "DELETE FROM t WHERE a = 2",
            "INSERT INTO t VALUES (2, 'y') ON DUPLICATE KEY UPDATE v = CONCAT(v, '?')",
        )
    )
    world.compare(f"""
        a  {MAKE}; CREATE TABLE u (n INT); INSERT INTO u VALUES (1), (2), (3)
        {turn}
        {turn}
        a  SELECT v FROM t ORDER BY a
    """)


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize(("values", "planned"), [(1, 1), (2_000, 0)], ids=["short", "long"])
def test_reads_of_what_is_being_written_are_passed_by_their_plans(
    world: World, values: int, planned: int
) -> None:
    """But for long ones: the event loop would read their texts where an answer is unusual."""
    read = f"SELECT a FROM straight.busy WHERE a IN ({', '.join(map(str, range(values)))})"
    write = "UPDATE straight.busy SET a = 2"
    upstream = world.upstream
    upstream.sql("CREATE DATABASE IF NOT EXISTS straight")
    with closing(world.proxy.connect()) as writer, closing(world.proxy.connect()) as reader:
        with writer.cursor() as cursor:
            cursor.execute("CREATE TABLE straight.busy (a INT PRIMARY KEY)")
            cursor.execute("INSERT INTO straight.busy VALUES (1)")
        with reader.cursor() as cursor, closing(upstream.connect()) as other:
            for _ in range(2):
                cursor.execute(read)
            other.begin()
            other.cursor().execute("SELECT a FROM straight.busy FOR UPDATE")
            fences = world.proxy.metrics()[FENCES]
            waiting = Thread(target=writer.query, args=(write,))
            waiting.start()
            wait_until(lambda: world.proxy.metrics()[FENCES] > fences, 20, "a fence")
            before = world.proxy.metrics()
            cursor.execute(read)
            after = world.proxy.metrics()
            other.rollback()
            waiting.join()
    upstream.sql("DROP TABLE straight.busy")
    assert after[PLANNED] == before[PLANNED] + planned
    fenced = 'sqlcache_bypasses_total{reason="a write is in flight"}'
    assert after[fenced] == before.get(fenced, 0) + 1


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
def test_writes_side_by_side_share_fences_and_each_is_seen_when_it_is_done(world: World) -> None:
    """By who wrote, and by others; some of the writes are in transactions, some fail."""
    writers, rounds = 6, 40
    upstream = world.upstream
    upstream.sql("CREATE DATABASE IF NOT EXISTS straight")
    with closing(world.proxy.connect()) as maker, maker.cursor() as cursor:
        cursor.execute("CREATE TABLE straight.many (id INT PRIMARY KEY, v INT NOT NULL)")
        cursor.executemany(
            "INSERT INTO straight.many VALUES (%s, 0)", [(n,) for n in range(writers)]
        )

    def write(row: int) -> None:
        point = f"SELECT v FROM straight.many WHERE id = {row}"
        with ExitStack() as stack:
            one, other = (
                stack.enter_context(stack.enter_context(closing(world.proxy.connect())).cursor())
                for _ in range(2)
            )
            for value in range(1, rounds):
                if value % 8 == 0:
                    with pytest.raises(pymysql.IntegrityError):
                        one.execute(f"UPDATE straight.many SET v = NULL WHERE id = {row}")
                if value % 5 == 0:
                    one.execute("BEGIN")
                one.execute(f"UPDATE straight.many SET v = {value} WHERE id = {row}")
                if value % 5 == 0:
                    one.execute("COMMIT")
                for reader in (other, one):
                    reader.execute(point)
                    assert reader.fetchone() == (value,)

    before = world.proxy.metrics()
    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(writers)))
    after = world.proxy.metrics()
    upstream.sql("DROP TABLE straight.many")
    failed = (rounds - 1) // 8
    assert after[FENCES] - before[FENCES] == writers * (rounds - 1 + failed)
    assert after[SHARED] > before[SHARED]


def test_what_takes_the_long_way_each_time_is_planned_once(world: World) -> None:
    """A COMMIT of what was written, which has a plan for where nothing was."""
    with closing(world.proxy.connect(database=None)) as session, session.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS planned_once")
        cursor.execute("CREATE TABLE IF NOT EXISTS planned_once.t (a INT)")
        remembered = []
        for _ in range(30):
            for text in ("BEGIN", "UPDATE planned_once.t SET a = 1", "COMMIT"):
                cursor.execute(text)
            cursor.execute("INSERT INTO planned_once.t VALUES (1)")
            remembered.append(world.proxy.metrics()["sqlcache_statements_bytes"])
        cursor.execute("DROP DATABASE planned_once")
    assert remembered[-1] == remembered[5]


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
def test_plans_outlive_the_definitions_of_other_tables(world: World) -> None:
    """Where they were asked for since or not, in the session that defines them and in another."""
    texts = [UPDATE.format(1), UPDATE.format(22), "SELECT RAND() > 2, 1", "BEGIN", POINT.format(3)]
    texts += ["INSERT INTO planned_once.t VALUES (1)", "COMMIT", "USE planned_once"]
    definitions = ["CREATE TABLE {} (a INT)", "ALTER TABLE {} ADD b INT", "DROP TABLE {}"]
    definitions = [each.format("planned_once.other") for each in definitions]
    with closing(world.proxy.connect()) as definer, closing(world.proxy.connect()) as session:

        def long_ways() -> float:
            """How many statements took it for more than their ends, but for COMMITs, which may
            after a write."""
            taken = 0.0
            for text in texts:
                before = world.proxy.metrics()
                session.query(text)
                definer.query(text)
                after = world.proxy.metrics()
                if text != "COMMIT":
                    relayed, planned = (after[each] - before[each] for each in (RELAYED, PLANNED))
                    taken += relayed - planned - ended_long(before, after, relayed)
            return taken

        for each in (definer, session):
            each.query("CREATE DATABASE IF NOT EXISTS planned_once")
            each.query("CREATE TABLE IF NOT EXISTS planned_once.t (a INT)")
        for _ in range(2):
            long_ways()
        for definition in ("DO 1", *definitions, *definitions):
            definer.query(definition)
            assert long_ways() == 0, definition
        session.query("DROP TABLE planned_once.t")


_CHANGE = "UPDATE {} SET v = CONCAT(v, '!')"
_FIRES = "CREATE TRIGGER r{0} AFTER UPDATE ON {0} FOR EACH ROW UPDATE {1} SET v = CONCAT(v, '?')"
_REFERS = "TRUNCATE {0}; INSERT INTO {0} SELECT * FROM {1};"
_REFERS += " ALTER TABLE {0} ADD FOREIGN KEY (a) REFERENCES {1} (a) ON UPDATE CASCADE"
_LIKE_T = "REPLACE INTO {0} SELECT * FROM t"
_ALL = "SELECT * FROM {}"


@pytest.mark.parametrize(
    ("before", "definition", "write", "read"),
    [
        ("DO 1", _FIRES.format("t", "u"), _CHANGE.format("t"), _ALL.format("u")),
        (_FIRES.format("t", "u"), _FIRES.format("u", "c"), _CHANGE.format("t"), _ALL.format("c")),
        ("DO 1", _FIRES.format("t", "u"), _CHANGE.format("w"), _ALL.format("x")),
        ("DO 1", _REFERS.format("u", "t"), "UPDATE t SET a = a + 10", _ALL.format("u")),
        (
            _REFERS.format("u", "t"),
            _REFERS.format("c", "u"),
            "UPDATE t SET a = a + 10",
            _ALL.format("c"),
        ),
        (
            "CREATE VIEW y AS SELECT v FROM w",
            "CREATE OR REPLACE VIEW w AS SELECT v FROM u",
            _CHANGE.format("u"),
            _ALL.format("y"),
        ),
        ("DO 1", "RENAME TABLE u TO z, c TO u", _CHANGE.format("u"), _ALL.format("x")),
        ("DO 1", "RENAME TABLE u TO z, c TO u", _CHANGE.format("z"), _ALL.format("u")),
        (
            "DO 1",
            "DROP TABLE u; CREATE VIEW u AS SELECT a, v FROM c",
            _CHANGE.format("c"),
            _ALL.format("u"),
        ),
        ("DO 1", "ALTER TABLE u ADD n INT DEFAULT 5", _CHANGE.format("u"), _ALL.format("u")),
        ("DO 1", "ALTER TABLE u ENGINE = MyISAM", _CHANGE.format("u"), _ALL.format("u")),
        (
            _FIRES.format("t", "u"),
            "ALTER TABLE u ENGINE = MyISAM",
            _CHANGE.format("t"),
            _ALL.format("u"),
        ),
        ("DO 1", "TRUNCATE TABLE u", "INSERT INTO u VALUES (NULL, 'x')", _ALL.format("u")),
        ("DO 1", "CREATE TABLE other (a INT)", _CHANGE.format("u"), _ALL.format("u")),
    ],
)
def test_plans_hold_after_a_definition_only_where_it_left_them_right(
    world: World, before: str, definition: str, write: str, read: str
) -> None:
    """Nothing else is said meanwhile, which would have the definitions read again. Of a write in a
    transaction as well, and of what was prepared."""
    next_step = "\n        "
    turn = f"""
        a  {write}
        b  {read}
        b  {read}
        a  .execute write
        b  .execute read
        b  .execute read
        a  BEGIN
        a  {write}
        b  {read}
        a  .execute write
        b  .execute read
        a  ROLLBACK
        b  {read}
        b  .execute read
    """
    world.compare(f"""
        d  CREATE TABLE t (a INT, v VARCHAR(99), KEY (a)) ENGINE = InnoDB
        d  CREATE TABLE u LIKE t; CREATE TABLE c LIKE t
        d  CREATE VIEW w AS SELECT v FROM t; CREATE VIEW x AS SELECT v FROM u
        d  INSERT INTO t VALUES (1, 'x'), (2, 'y')
        d  {_LIKE_T.format("u")}; {_LIKE_T.format("c")}
        d  {before}
        a  .prepare write {write}
        b  .prepare read {read}
        {turn}
        {turn}
        {"".join(f"d  {each}{next_step}" for each in definition.split("; "))}
        {turn}
        {turn}
    """)


@pytest.mark.parametrize(
    ("read", "definition", "has_it_read", "write"),
    [
        (
            "SELECT v FROM w WHERE a = ?",
            "CREATE OR REPLACE VIEW w AS SELECT a, v FROM u",
            "SELECT v FROM w",
            _CHANGE.format("u"),
        ),
        (
            "SELECT v FROM t WHERE a = ?",
            "DROP TABLE t; CREATE VIEW t AS SELECT a, v FROM u",
            "SELECT v FROM t",
            _CHANGE.format("u"),
        ),
        (
            "SELECT v, RAND() > 2 FROM w WHERE a = ?",
            "CREATE OR REPLACE VIEW w AS SELECT a, f() AS v FROM t",
            "SELECT v FROM w WHERE a = 100",
            "DO 1",
        ),
    ],
)
def test_what_was_prepared_ends_with_a_definition_that_others_had_read(
    world: World, read: str, definition: str, has_it_read: str, write: str
) -> None:
    """Its session has said nothing since, and goes by a context that is retired; one that prepared
    the same is not to be served what comes of that."""
    executions = [f"{session}  .execute p #{n}" for n in (1, 2, 1, 2) for session in ("b", "c")]
    next_step = "\n        "
    world.compare(f"""
        a  {MAKE}; CREATE TABLE u LIKE t; INSERT INTO u SELECT * FROM t
        a  CREATE TABLE k (n INT)
        a  CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN
            INSERT INTO k VALUES (1); RETURN 1; END
        a  CREATE VIEW w AS SELECT a, v FROM t
        b  .prepare p {read}
        c  .prepare p {read}
        {next_step.join(executions)}
        r  SELECT COUNT(*) FROM k
        {next_step.join(f"a  {each}" for each in definition.split("; "))}
        a  {has_it_read}
        {next_step.join(executions)}
        a  {write}
        {next_step.join(executions)}
        r  SELECT COUNT(*) FROM k
        b  .execute p #1
        r  SELECT COUNT(*) FROM k
        a  DROP FUNCTION f
    """)


@pytest.mark.parametrize(
    "definition", ["DROP TABLE c", "RENAME TABLE c TO d", "CREATE TABLE e LIKE c"]
)
def test_a_definition_may_have_the_server_prepare_anew_what_it_does_not_name(
    world: World, definition: str
) -> None:
    """MySQL forgets how a parent's statements were executed when a child is gone."""
    world.compare(f"""
        a  {MAKE}
        a  CREATE TABLE c (a INT, FOREIGN KEY (a) REFERENCES t (a))
        b  .prepare p SELECT ?, v FROM t WHERE a = 1
        b  .execute p #1.5
        b  .execute p #1
        b  .execute p #1
        b  .execute p #1
        a  {definition}
        b  .execute p #1
        b  .execute p #1
        c  .prepare p SELECT ?, v FROM t WHERE a = 1
        c  .execute p #1.5
        c  .execute p #1
        c  .execute p #1
    """)


def test_a_plan_ends_with_what_it_went_by(world: World) -> None:
    """A view that called nothing calls a function that writes: what only read is a write now."""
    world.compare(f"""
        a  {MAKE}
        a  CREATE VIEW w AS SELECT a FROM t
        a  CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN
            UPDATE t SET v = CONCAT(v, '!'); RETURN 1; END
        w  SELECT RAND() > 2, a FROM w
        w  SELECT RAND() > 2, a FROM w
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  CREATE OR REPLACE VIEW w AS SELECT f() AS a
        w  SELECT RAND() > 2, a FROM w
        b  SELECT v FROM t
        b+ SELECT v FROM t
        w  SELECT RAND() > 2, a FROM w
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  DROP FUNCTION f
    """)


def test_a_table_of_the_sessions_own_ends_its_plans(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT RAND() > 2, v FROM t
        a  SELECT RAND() > 2, v FROM t
        a  SELECT v FROM t WHERE a = 1
        a+ SELECT v FROM t WHERE a = 1
        a  CREATE TEMPORARY TABLE t (a INT, v INT)
        a  SELECT RAND() > 2, v FROM t
        a  SELECT v FROM t WHERE a = 2
        b  SELECT RAND() > 2, v FROM t
        b+ SELECT v FROM t WHERE a = 1
        a  DROP TEMPORARY TABLE t
        a  SELECT RAND() > 2, v FROM t
        a  SELECT v FROM t WHERE a = 2
    """)


def test_answers_that_are_not_plain_are_the_same(world: World) -> None:
    """Errors, warnings, and more than comes at once."""
    world.compare(f"""
        a  {MAKE}
        a  SELECT RAND() > 2, (SELECT a FROM t WHERE v < 'y')
        a  SELECT RAND() > 2, (SELECT a FROM t WHERE v < 'y')
        a  SELECT RAND() > 2, (SELECT a FROM t WHERE v < 'z')
        a  SHOW WARNINGS
        a  SELECT RAND() > 2, (SELECT a FROM t WHERE v < 'y')
        a  SHOW WARNINGS
        a  SELECT RAND() > 2, CAST('1' AS SIGNED)
        a  SELECT RAND() > 2, CAST('x' AS SIGNED)
        a  SHOW WARNINGS
        a  SELECT RAND() > 2, CAST('2' AS SIGNED)
        a  SHOW WARNINGS
        a  SELECT RAND() > 2, REPEAT('x', 10)
        a  SELECT RAND() > 2, REPEAT('x', 1000000)
        a  SELECT RAND() > 2, REPEAT('x', 1000000)
        a  SELECT FOUND_ROWS()
        a  SELECT RAND() > 2, v FROM t
        a  SELECT RAND() > 2, v FROM t
        a  SELECT FOUND_ROWS()
        a  SELECT v FROM t WHERE a = 1
        a+ SELECT v FROM t WHERE a = 1
        a  SELECT RAND() > 2, v FROM t
        a  SELECT FOUND_ROWS()
        a  SELECT RAND() > 2, CAST('x' AS SIGNED)
        a+ SELECT v FROM t WHERE a = 1
        a  .option 0
    """)


def test_settings_that_are_made_again_are_the_sessions(world: World) -> None:
    turn = """
        a  SET NAMES latin1
        a  SELECT 'é', v FROM t
        a  SELECT RAND() > 2, 'é', v FROM t
        a  SET NAMES utf8mb4
        a  SELECT 'é', v FROM t
        a  SELECT RAND() > 2, 'é', v FROM t
        a  SET SESSION sql_mode = 'ANSI_QUOTES'
        a  SELECT v AS "v" FROM t
        a  SET SESSION sql_mode = ''
        a  SELECT v AS "v" FROM t
        a  SET autocommit = 0
        a  UPDATE t SET v = CONCAT(v, '.')
        b  SELECT v FROM t
        a  SET autocommit = 1
        b  SELECT v FROM t
    """
    world.compare(f"        a  {MAKE}" + turn * 3)


@pytest.mark.parametrize("begin", ["SET autocommit = 0", "BEGIN", "START TRANSACTION READ ONLY"])
def test_a_session_may_be_for_reading_alone(world: World, begin: str) -> None:
    turn = f"""
        r  SET SESSION TRANSACTION READ ONLY
        r  {begin}
        r  SELECT v FROM t WHERE a = 1
        r  SELECT v FROM t WHERE a = 2
        w  UPDATE t SET v = CONCAT(v, '!')
        r  SELECT v FROM t WHERE a = 1
        r  UPDATE t SET v = ''
        r  SELECT v FROM t WHERE a = 2
        r  COMMIT
        r  SELECT v FROM t WHERE a = 2
        r  SET autocommit = 1
        r  SET SESSION TRANSACTION READ WRITE
    """
    world.compare(f"        w  {MAKE}" + turn * 4)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "BEGIN", "SET autocommit = 1"])
def test_what_a_transaction_wrote_is_seen_after_its_end_each_time(world: World, end: str) -> None:
    turn = f"""
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  BEGIN
        a  SELECT RAND() > 2, v FROM t
        a  UPDATE t SET v = CONCAT(v, '!') WHERE a = 1
        a  SELECT RAND() > 2, v FROM t
        a  SELECT v FROM t
        b  SELECT v FROM t
        a  {end}
        b  SELECT v FROM t
        a  COMMIT
        b  SELECT v FROM t
        a  BEGIN
        a  SELECT v FROM t
        a  {end}
        a  COMMIT
    """
    world.compare(f"        a  {MAKE}" + turn * 3)


@pytest.mark.parametrize(
    "read", ["SELECT RAND() > 2, a FROM u", "SELECT RAND() > 2, CAST('x' AS SIGNED) FROM u"]
)
@pytest.mark.parametrize("begin", ["SET autocommit = 0", "BEGIN"])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
def test_a_query_that_is_passed_on_begins_the_transaction(
    world: World, read: str, begin: str, level: str
) -> None:
    turn = f"""
        b  {begin}
        b  {read}
        w  UPDATE t SET v = CONCAT(v, '!')
        w  SELECT v FROM t
        w+ SELECT v FROM t
        b  SELECT v FROM t
        b  COMMIT
    """
    world.compare(
        f"""
        a  {MAKE}; CREATE TABLE u (a INT); INSERT INTO u VALUES (1)
        b  SET SESSION TRANSACTION ISOLATION LEVEL {level}
        w  SET SESSION TRANSACTION ISOLATION LEVEL {level}
        w  SELECT v FROM t
        w+ SELECT v FROM t"""
        + turn * 3
    )


def test_what_was_prepared_is_executed_alike_each_time(world: World) -> None:
    execute = """
        a  .execute p #1
        a  .execute q #1
        a  .execute p #2
        a  .execute q 2
        a  .execute p #1
        a  .execute q NULL
        a  .execute p #99
    """
    turn = f"""
        {execute}
        a  BEGIN
        {execute}
        a  UPDATE t SET v = CONCAT(v, '?')
        {execute}
        a  COMMIT
        a  ALTER TABLE t ADD COLUMN w{{}} INT
    """
    world.compare(
        f"        a  {MAKE}"
        + """
        a  .prepare p SELECT v, RAND() > 2 FROM t WHERE a = ?
        a  .prepare q SELECT v FROM t WHERE a = ?"""
        + turn.format(1)
        + turn.format(2)
    )


def test_a_query_that_is_killed_ends_as_it_does_directly(world: World) -> None:
    session: Any = world.proxy.connect()
    with closing(world.upstream.connect()) as admin, closing(session):
        cursor = session.cursor()
        for _ in range(3):
            cursor.execute("SELECT SLEEP(0), CONNECTION_ID()")
        ((_, number),) = cursor.fetchall()
        session._execute_command(COMMAND.COM_QUERY, "SELECT SLEEP(9), CONNECTION_ID()")
        running = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(9)%'"
        wait_until(lambda: bool(world.upstream.sql(running)), 20, "the query runs")
        admin.cursor().execute(f"KILL {number}")
        with pytest.raises(pymysql.err.OperationalError):
            session._read_query_result()


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("fails", ["", "INSERT INTO t VALUES (1, 'x')", "SELECT nosuch FROM t"])
def test_changes_that_are_made_again_are_seen_when_they_are_told(
    world: World, end: str, fails: str
) -> None:
    """In autocommit and in transactions, with triggers and foreign keys, prepared or not."""
    turn = f"""
        w  SELECT v FROM t ORDER BY a
        w  SELECT * FROM log
        w  SELECT * FROM child
        a  UPDATE t SET v = CONCAT(v, '!') WHERE a = 1
        w  SELECT v FROM t ORDER BY a
        w  SELECT * FROM log
        a  INSERT INTO parent VALUES (1)
        a  INSERT INTO child VALUES (1)
        w  SELECT * FROM child
        a  DELETE FROM parent
        w  SELECT * FROM child
        {"a  " + fails if fails else ""}
        a  UPDATE t SET v = 'x' WHERE a = 3
        a  SELECT ROW_COUNT()
        a  BEGIN
        a  UPDATE t SET v = CONCAT(v, '?') WHERE a = 2
        {"a  " + fails if fails else ""}
        w  SELECT v FROM t ORDER BY a
        a  REPLACE INTO t VALUES (4, 'y')
        a  SELECT v FROM t ORDER BY a
        a  INSERT INTO parent VALUES (1)
        a  {end}
        w  SELECT v FROM t ORDER BY a
        w  SELECT * FROM log
        a  DELETE FROM parent
        a  DELETE FROM t WHERE a = 4
    """
    world.compare(
        f"""
        a  {MAKE}
        a  CREATE TABLE log (n INT)
        a  CREATE TABLE parent (a INT PRIMARY KEY)
        a  CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES parent (a) ON DELETE CASCADE)
        a  CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW INSERT INTO log VALUES (NEW.a)
        """
        + turn * 3
    )


def test_a_table_that_does_not_roll_back_is_seen_within_the_transaction(world: World) -> None:
    turn = """
        w  SELECT * FROM m
        a  BEGIN
        a  INSERT INTO m VALUES (1)
        w  SELECT * FROM m
        a  INSERT INTO m VALUES (2)
        w  SELECT * FROM m
        a  ROLLBACK
        w  SELECT * FROM m
    """
    world.compare("        a  CREATE TABLE m (a INT) ENGINE=MyISAM" + turn * 3)


def test_what_a_change_leads_to_by_now_is_seen(world: World) -> None:
    """A plan ends with the triggers that it went by."""
    turn = """
        w  SELECT * FROM log
        a  UPDATE t SET v = CONCAT(v, '!') WHERE a = 1
        w  SELECT * FROM log
        a  UPDATE t SET v = CONCAT(v, '!') WHERE a = 1
        w  SELECT * FROM log
        a  BEGIN
        a  UPDATE t SET v = CONCAT(v, '?') WHERE a = 1
        a  COMMIT
        w  SELECT * FROM log
    """
    trigger = "CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW INSERT INTO log VALUES (NEW.a)"
    make = f"        a  {MAKE}\n        a  CREATE TABLE log (n INT)"
    world.compare(f"{make}{turn}        b  {trigger}{turn}        b  DROP TRIGGER g{turn}")
