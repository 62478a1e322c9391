"""What is written around sqlcache just before definitions are changed is read in the log behind it.

By the definitions of then it leads to less than it has led to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache, PrivateSqlServer
from tests.conftest import ProxyFactory
from tests.integration.test_binlog import (
    AS_STATEMENTS,
    FOLLOWS,
    TABLES,
    Client,
    is_at_the_end,
    settled,
    until,
)


@pytest.fixture
def other(upstream: PrivateSqlServer) -> Iterator[str]:
    """Another schema, with a table."""
    upstream.sql("DROP DATABASE IF EXISTS other; CREATE DATABASE other")
    upstream.sql("CREATE TABLE x (id INT PRIMARY KEY, p INT); INSERT INTO x VALUES (1, 1)", "other")
    yield "other"
    upstream.sql("DROP DATABASE other")


def follower(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> PrivateSqlcache:
    """A sqlcache that has read all that is in the log by now."""
    started = proxy(upstream, memcached, **FOLLOWS)
    until(lambda: settled(started, upstream))
    until(lambda: is_at_the_end(started, upstream))
    return started


# name -> what there is, what is written around, and then defined around, and through a sqlcache
CASES = {
    "a trigger": (
        "CREATE TRIGGER tr AFTER UPDATE ON t FOR EACH ROW UPDATE other.x SET p = p + 1",
        AS_STATEMENTS + "UPDATE t SET v = 5 WHERE id = 1",
        "DROP TRIGGER tr",
        ["CREATE TABLE n (id INT)"],
    ),
    "a view": (
        "CREATE VIEW w AS SELECT id, p FROM other.x",
        AS_STATEMENTS + "UPDATE w SET p = 5",
        "ALTER VIEW w AS SELECT id, v AS p FROM t",
        ["CREATE TABLE n (id INT)"],
    ),
    "a function": (
        "CREATE FUNCTION g() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN"
        " UPDATE other.x SET p = 5; RETURN 1; END",
        AS_STATEMENTS + "UPDATE t SET v = g() WHERE id = 1",
        "DO 0",
        ["DROP FUNCTION g", "CREATE FUNCTION g() RETURNS INT DETERMINISTIC RETURN 1"],
    ),
    "a table with the rows of another": (
        "ALTER TABLE other.x ENGINE = MyISAM;"
        "CREATE TABLE m (id INT PRIMARY KEY, p INT) ENGINE = MERGE UNION = (other.x)"
        " INSERT_METHOD = LAST",
        # By the first two it knows of no m any more when it comes to the rows.
        "UPDATE t SET v = 5; CREATE TABLE o (id INT); INSERT INTO m VALUES (7, 7)",
        "DROP TABLE m",
        ["CREATE TABLE n (id INT)"],
    ),
    "a name": (
        "ALTER TABLE other.x ADD FOREIGN KEY (p) REFERENCES {schema}.t (id) ON DELETE CASCADE",
        "DELETE FROM t WHERE id = 1",
        "DO 0",
        ["RENAME TABLE t TO t_old, u TO t"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_it_led_to_in_another_schema_is_seen(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    other: str,
    name: str,
) -> None:
    setup, write, around, through = CASES[name]
    upstream.sql(TABLES + setup.replace("{schema}", schema), schema)
    first = follower(upstream, memcached, proxy)
    second = proxy(upstream, memcached)
    client, definer = Client(first, upstream, other), Client(second, upstream, schema)
    before = client.cache("SELECT * FROM x")
    definer.read("SELECT * FROM t")
    first.freeze()
    upstream.sql(write, schema)
    upstream.sql(around, schema)
    for definition in through:
        assert definer.read(definition) == ()
    first.thaw()
    now = upstream.sql("SELECT * FROM x", other)
    assert now != before, "it changes nothing"
    until(lambda: client.read("SELECT * FROM x") == now)


def test_what_leads_nowhere_else_costs_other_schemas_nothing(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    other: str,
) -> None:
    upstream.sql(TABLES, schema)
    first = follower(upstream, memcached, proxy)
    client = Client(first, upstream, other)
    for number in range(4):
        upstream.sql(AS_STATEMENTS + f"UPDATE t SET v = {number + 5}", schema)
        if number:  # before the first one definitions were read anew, as everything was forgotten
            upstream.sql(f"CREATE TABLE n{number} (id INT)", schema)
        until(lambda: is_at_the_end(first, upstream))
        time.sleep(0.5)  # it looks where the log ends
        if not number:
            client.cache("SELECT * FROM x")
            misses = client.count("sqlcache_misses_total")
    client.read("SELECT * FROM x")
    assert client.count("sqlcache_misses_total") == misses


def test_what_only_adds_costs_other_schemas_nothing_though_writes_come_amid_it(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    other: str,
) -> None:
    upstream.sql(TABLES, schema)
    first = follower(upstream, memcached, proxy)
    definer, client = Client(first, upstream, schema), Client(first, upstream, other)
    definer.read("SELECT * FROM t")
    client.cache("SELECT * FROM x")
    misses = client.count("sqlcache_misses_total")
    for number in range(3):
        definer.read(f"CREATE TABLE n{number} (id INT PRIMARY KEY, v INT)")
        upstream.sql(AS_STATEMENTS + f"INSERT INTO n{number} VALUES (1, 1)", schema)
        definer.read(f"ALTER TABLE n{number} ADD INDEX (v), ADD COLUMN w INT")
        upstream.sql(AS_STATEMENTS + f"INSERT INTO n{number} VALUES (2, 2, 2)", schema)
    until(lambda: is_at_the_end(first, upstream))
    client.read("SELECT * FROM x")
    assert client.count("sqlcache_misses_total") == misses
