"""What one proxy defines decides what a write through another reaches: across schemas, while the
definer is at work or stopped, and where the catalog cannot be read."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import cast

import pytest

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Fault, Middleman
from tests.integration.test_two_proxies import (
    WAITS_FOR_TABLE,
    account,
    counter,
    in_thread,
    pair,
    run,
    session,
    trigger_made_before_a_waiting_write,
    warm,
)
from tests.servers import kill_sessions

__all__ = ["account", "pair"]  # fixtures

Pair = tuple[PrivateSqlcache, PrivateSqlcache]


@pytest.fixture
def schemas(upstream: PrivateSqlServer) -> Iterator[dict[str, str]]:
    """Three fresh schemas, by the letters that stand for them in statements."""
    names = {letter: f"test_{letter}_{secrets.token_hex(4)}" for letter in "abc"}
    for name in names.values():
        upstream.sql(f"CREATE DATABASE {name}")
    yield names
    for name in names.values():
        upstream.sql(f"SET foreign_key_checks = 0; DROP DATABASE IF EXISTS {name}")


@dataclass(frozen=True, slots=True)
class Reach:
    """A write whose reach grows by what the other proxy defines. `known` is from before both
    proxies read the catalog."""

    known: str
    defined: str
    write: str
    rows: str = "INSERT INTO {a}.made VALUES (1, 1)"
    end: str = ""
    read: str = "SELECT COUNT(*) FROM {a}.made"


TRIGGER = "CREATE TRIGGER {}.g AFTER INSERT ON {}.t FOR EACH ROW INSERT INTO {} VALUES (7, 7)"
CHILD = (
    "CREATE TABLE {} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {{b}}.t (id)"
    " ON DELETE CASCADE) ENGINE=InnoDB"
)
MADE = "CREATE TABLE {a}.made (id INT, v INT)"
ADD_KEY = "ADD FOREIGN KEY (p) REFERENCES {b}.t (id) ON DELETE CASCADE"

REACHES = {
    "a child in another schema": Reach("", CHILD.format("{a}.made"), "DELETE FROM {b}.t"),
    "a child made on the fly in another schema": Reach(
        "",
        "CREATE TABLE {a}.made (id INT PRIMARY KEY, p INT, KEY (p)) ENGINE=InnoDB;"
        f"ALTER TABLE {{a}}.made {ADD_KEY}",
        "DELETE FROM {b}.t",
    ),
    "a child renamed into another schema": Reach(
        CHILD.format("{c}.child"), "RENAME TABLE {c}.child TO {a}.made", "DELETE FROM {b}.t"
    ),
    "a trigger fired by a trigger": Reach(
        f"{MADE};CREATE TABLE {{c}}.t (id INT, v INT);{TRIGGER.format('{b}', '{b}', '{c}.t')}",
        TRIGGER.format("{c}", "{c}", "{a}.made"),
        "INSERT INTO {b}.t VALUES (5)",
    ),
    "a table that a trigger names before it is": Reach(
        TRIGGER.format("{b}", "{b}", "{a}.made"), MADE, "INSERT INTO {b}.t VALUES (5)"
    ),
    "a view of another schema that is read and writes": Reach(
        f"{MADE};CREATE VIEW {{c}}.w AS SELECT id FROM {{b}}.t;"
        "CREATE FUNCTION {c}.f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
        " BEGIN INSERT INTO {a}.made VALUES (8, 8); RETURN 9; END",
        "CREATE OR REPLACE VIEW {c}.w AS SELECT {c}.f() AS id FROM {b}.t",
        "INSERT INTO {b}.u SELECT id FROM {c}.w LIMIT 1",
    ),
    "a table under a view that no longer rolls back": Reach(
        "CREATE TABLE {c}.made (id INT, v INT) ENGINE=InnoDB;"
        "CREATE VIEW {a}.made AS SELECT * FROM {c}.made",
        "ALTER TABLE {c}.made ENGINE=MyISAM",
        "SET sql_log_bin = 0; BEGIN; INSERT INTO {a}.made VALUES (5, 5)",
        end="ROLLBACK",
        read="SELECT COUNT(*) FROM {c}.made",
    ),
}


def settle(upstream: PrivateSqlServer, schemas: dict[str, str], known: str) -> None:
    """Makes the tables all cases have, and what is `known`."""
    upstream.sql("SET GLOBAL log_bin_trust_function_creators = 1")
    tables = "CREATE TABLE {b}.t (id INT PRIMARY KEY) ENGINE=InnoDB;CREATE TABLE {b}.u (id INT);"
    for each in _statements(tables + "INSERT INTO {b}.t VALUES (1);" + known, schemas):
        upstream.sql(each)


def _statements(text: str, schemas: dict[str, str]) -> list[str]:
    """One by one: but the body of a function, which is in capitals, is part of its statement."""
    parts = text.format(**schemas).replace("BEGIN INSERT", "BEGIN_INSERT").split(";")
    joined: list[str] = []
    for part in parts:
        if joined and "BEGIN_INSERT" in joined[-1] and "END" not in joined[-1]:
            joined[-1] += ";" + part
        elif part.strip():
            joined.append(part)
    return [each.replace("BEGIN_INSERT", "BEGIN INSERT") for each in joined]


@pytest.mark.parametrize("proxies", [1, 2])
@pytest.mark.parametrize("name", REACHES)
def test_a_write_reaches_what_another_session_has_put_behind_its_tables(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    account: dict[str, str],
    schemas: dict[str, str],
    name: str,
    proxies: int,
) -> None:
    reach = REACHES[name]
    settle(upstream, schemas, reach.known)
    settings = {"upstream__catalog_refresh_s": 3600}
    one, two = ([proxy(upstream, memcached, **settings) for _ in range(proxies)] * 2)[:2]
    read = reach.read.format(**schemas)
    with ExitStack() as stack:
        definer, reader = (stack.enter_context(session(one, account)) for _ in range(2))
        writer = stack.enter_context(session(two, account))
        for statement in _statements(f"{reach.defined};{reach.rows}", schemas):
            run(definer, statement)
        warm(one, reader, read)
        before = run(reader, read)
        for statement in _statements(reach.write, schemas):
            run(writer, statement)
        after = upstream.sql(read)
        assert after != before, "the write must change the answer, else this shows nothing"
        assert run(reader, read) == after
        for statement in _statements(reach.end, schemas):
            run(writer, statement)
        assert run(reader, read) == upstream.sql(read) != before


class _OtherAccount:
    """The server as `user`, whose password is p, sees it."""

    def __init__(self, server: PrivateSqlServer, user: str) -> None:
        self.service_url = f"mysql://{user}:p@{server.host}:{server.port}"


def test_a_catalog_that_cannot_be_read_again_means_that_everything_may_be_written(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    account: dict[str, str],
) -> None:
    """The service account's password is another one, and a trigger made since then fires."""
    user, schema = f"svc_{secrets.token_hex(4)}", account["database"]
    upstream.sql(f"CREATE USER {user}@'%' IDENTIFIED BY 'p'")
    upstream.sql(f"GRANT ALL ON *.* TO {user}@'%'")
    upstream.sql("CREATE TABLE t (v INT) ENGINE=InnoDB; CREATE TABLE made (v INT)", schema)
    settings = {"upstream__catalog_refresh_s": 3600}
    one = proxy(upstream, memcached, **settings)
    two = proxy(cast(PrivateSqlServer, _OtherAccount(upstream, user)), memcached, **settings)
    read = "SELECT COUNT(*) FROM made"
    with ExitStack() as stack:
        definer, reader = (stack.enter_context(session(one, account)) for _ in range(2))
        writer = stack.enter_context(session(two, account))
        run(writer, "INSERT INTO t VALUES (0)")
        upstream.sql(f"ALTER USER {user}@'%' IDENTIFIED BY 'other'")
        kill_sessions(upstream, user)
        run(definer, "CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW INSERT INTO made VALUES (1)")
        for begin, end in (("DO 0", "DO 0"), ("BEGIN", "COMMIT")):
            warm(one, reader, read)
            ((before,),) = run(reader, read)
            run(writer, begin)
            run(writer, "INSERT INTO t VALUES (1)")
            run(writer, end)
            assert run(reader, read) == ((before + 1,),)
        assert two.metrics()["sqlcache_catalog_failures_total"] > 0
        assert "catalog" in two.readiness()["warnings"] or two.readiness()["problems"]
        assert "catalog not read" in two.log_text()
        upstream.sql(f"ALTER USER {user}@'%' IDENTIFIED BY 'p'")
        wait_until(lambda: two.readiness()["ready"], 20, "a catalog again")
    upstream.sql(f"DROP USER {user}@'%'")


def test_a_definition_under_way_through_a_stopped_proxy_counts_as_made(
    upstream: PrivateSqlServer, pair: Pair, account: dict[str, str], schemas: dict[str, str]
) -> None:
    """Its trigger is there, and its OK, which would tell, is not; it writes to another schema."""
    one, two = pair
    settle(upstream, schemas, MADE)
    read = "SELECT COUNT(*) FROM {a}.made".format(**schemas)
    with ExitStack() as stack:
        enter = stack.enter_context
        definer, reader = enter(session(one, account)), enter(session(two, account))
        writer = enter(session(two, account))
        warm(two, reader, read)
        run(writer, "INSERT INTO {b}.t VALUES (2)".format(**schemas))
        holder = enter(closing(upstream.connect(autocommit=False)))
        run(holder, "SELECT * FROM {b}.t".format(**schemas))
        trigger = TRIGGER.format("{b}", "{b}", "{a}.made").format(**schemas)
        defining = in_thread(lambda: run(definer, trigger))
        wait_until(lambda: len(upstream.sql(WAITS_FOR_TABLE)) == 1, 10, "the trigger's wait")
        one.freeze()
        try:
            run(holder, "COMMIT")
            wait_until(
                lambda: bool(
                    upstream.sql(
                        "SELECT 1 FROM information_schema.triggers WHERE trigger_schema ="
                        f" '{schemas['b']}'"
                    )
                ),
                10,
                "the trigger",
            )
            warm(two, reader, read)
            before = run(reader, read)
            run(writer, "INSERT INTO {b}.t VALUES (3)".format(**schemas))
            assert run(reader, read) == upstream.sql(read) != before
        finally:
            one.thaw()
        defining.join()


def test_a_trigger_made_while_a_transaction_waits_may_write_what_does_not_roll_back(
    upstream: PrivateSqlServer, pair: Pair, account: dict[str, str]
) -> None:
    """Its table is known to roll back: the transaction holds its write back, and fences nothing."""
    if isinstance(upstream, PrivateMariaDB):
        pytest.skip("MariaDB lets nobody read the trigger's table meanwhile")
    one, two = pair
    schema, read = account["database"], "SELECT COUNT(*) FROM m"
    for each in ("t (v INT) ENGINE=InnoDB", "s (v INT) ENGINE=InnoDB", "m (v INT) ENGINE=MyISAM"):
        upstream.sql(f"CREATE TABLE {each}", schema)
    upstream.sql("INSERT INTO s VALUES (1)", schema)
    with ExitStack() as stack:
        enter = stack.enter_context
        definer, reader = enter(session(one, account)), enter(session(one, account))
        writer = enter(session(two, account))
        run(writer, "INSERT INTO t VALUES (0)")
        run(writer, "SET sql_log_bin = 0")  # MySQL's binlog would refuse the mixture
        run(writer, "BEGIN")
        with trigger_made_before_a_waiting_write(upstream, schema, definer, writer, "m"):
            warm(one, reader, read)
        for end in ("DO 0", "ROLLBACK"):
            run(writer, end)
            assert run(reader, read) == upstream.sql(read, schema) == ((1,),)


def test_definitions_are_not_read_until_they_are_needed(
    upstream: PrivateSqlServer, pair: Pair, account: dict[str, str]
) -> None:
    """A migration waits for no reading of the catalog, nor does who uses temporary tables."""
    one, _ = pair
    schema = account["database"]
    upstream.sql("CREATE TABLE migrations (v INT)", schema)

    def readings() -> float:
        return one.metrics()["sqlcache_catalog_loads_total"]

    with session(one, account) as own:
        run(own, "INSERT INTO migrations VALUES (0)")
        before = readings()
        for number in range(10):
            run(own, f"CREATE TABLE t{number} (v INT PRIMARY KEY) ENGINE=InnoDB")
            run(own, f"ALTER TABLE t{number} ADD w INT, ADD FOREIGN KEY (w) REFERENCES t0 (v)")
            run(own, f"INSERT INTO migrations VALUES ({number})")
            assert run(own, "SELECT MAX(v) FROM migrations") == ((number,),)
            run(own, f"CREATE TEMPORARY TABLE own{number} (v INT)")
            run(own, f"INSERT INTO own{number} VALUES (1)")
            assert run(own, f"SELECT v FROM own{number}") == ((1,),)
        assert readings() == before
        run(own, "INSERT INTO t5 VALUES (1, NULL)")
        assert run(own, "SELECT v FROM t5") == ((1,),)
        assert readings() == before + 1
    with session(one, account) as other:
        warm(one, other, "SELECT v FROM t5")
        assert readings() == before + 1


@dataclass(frozen=True, slots=True)
class Waiting:
    """A text that waits for what another session `holds` until another proxy has defined what makes
    it write to `{a}.made`. MySQL lets no code write while a table is `created` from its rows."""

    text: str
    defined: str
    holds: str = "DO GET_LOCK('{a}', 1)"
    waits: str = "state = 'User lock'"
    created: bool = False


WAITING = {
    "a procedure": Waiting(
        "DO GET_LOCK('{a}', 60); CALL p(); CREATE TABLE z (v INT)",
        "DROP PROCEDURE p; CREATE PROCEDURE p() UPDATE {a}.made SET v = 2",
    ),
    "a trigger": Waiting(
        "DO GET_LOCK('{a}', 60); UPDATE t SET v = 2; CREATE TABLE z (v INT)",
        "CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW UPDATE {a}.made SET v = 2",
    ),
    "a function": Waiting(
        "CREATE TABLE z AS SELECT f() AS v FROM t",
        "DROP FUNCTION f; CREATE FUNCTION f() RETURNS INT DETERMINISTIC"
        " BEGIN UPDATE {a}.made SET v = 2; RETURN 1; END",
        holds="LOCK TABLES t WRITE",
        waits="state LIKE 'Waiting for table%'",
        created=True,
    ),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_a_text_leads_to_is_not_taken_for_known_because_it_defines_something_too(
    upstream: PrivateSqlServer,
    pair: Pair,
    account: dict[str, str],
    schemas: dict[str, str],
    name: str,
) -> None:
    one, two = pair
    case, read = WAITING[name], "SELECT v FROM {a}.made".format(**schemas)
    if case.created and upstream.name == "mysqld":
        pytest.skip("MySQL refuses that")
    made = (
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (1); CREATE TABLE {a}.made (v INT);"
        " INSERT INTO {a}.made VALUES (1); CREATE PROCEDURE p() DO 1;"
        " CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1"
    )
    waits = f"SELECT 1 FROM information_schema.processlist WHERE {case.waits}"
    with (
        session(one, account) as definer,
        session(two, account) as writer,
        session(one, account) as reader,
        closing(upstream.connect(database=account["database"])) as holder,
    ):
        run(definer, made.format(**schemas))
        warm(one, reader, read)
        warm(two, writer, "SELECT v FROM t")  # by which it knows of the routines
        run(holder, case.holds.format(**schemas))
        writing = in_thread(lambda: run(writer, case.text.format(**schemas)))
        wait_until(lambda: bool(upstream.sql(waits)), 10, "its wait")
        run(definer, case.defined.format(**schemas))
        assert run(reader, read) == ((1,),)
        run(holder, "UNLOCK TABLES")
        run(holder, "DO RELEASE_LOCK('{a}')".format(**schemas))
        writing.join()
        assert run(reader, read) == ((2,),)


def test_a_view_that_comes_while_views_are_being_read_is_read_again_soon(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    account: dict[str, str],
) -> None:
    """Until then it may call any code, so that each read of it forgets everything."""
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", account["database"])
    with Middleman(upstream) as between:
        server = proxy(
            between, memcached, upstream__catalog_refresh_s=3600, upstream__tls="disabled"
        )
        with session(server, account) as reader:
            trap = between.set_trap(b"FROM information_schema.VIEWS WHERE TABLE_SCHEMA", Fault.HOLD)
            reading = in_thread(lambda: run(reader, "SELECT v FROM w"))
            assert trap.sprung.wait(30)
            upstream.sql("CREATE VIEW w AS SELECT v FROM t", account["database"])
            trap.released.set()
            reading.join()
            warm(server, reader, "SELECT v FROM w")
            before = counter(server, "hits")
            assert run(reader, "SELECT v FROM w") == ((1,),)
            assert counter(server, "hits") == before + 1
