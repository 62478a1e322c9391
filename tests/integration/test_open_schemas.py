"""What people make in `sys`, or in a schema called `ndbinfo`: it leads writes to where they go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from tests.integration.scripts import World

READ = "SELECT v FROM t"


@pytest.fixture(autouse=True)
def open_schemas(upstream: PrivateSqlServer) -> Iterator[None]:
    """Nothing is left there."""
    upstream.sql("SET GLOBAL log_bin_trust_function_creators = 1; CREATE DATABASE ndbinfo")
    yield
    upstream.sql(f"{END}; DROP DATABASE ndbinfo")


END = (
    "SET foreign_key_checks = 0; DROP VIEW IF EXISTS sys.v, ndbinfo.v, sys.c;"
    " DROP TABLE IF EXISTS sys.p, ndbinfo.q; DROP FUNCTION IF EXISTS sys.f"
)

# What is made, and what then writes to `t`.
WAYS = {
    "a view": ("CREATE VIEW sys.v AS SELECT * FROM {db}.t", "UPDATE sys.v SET v = 'new'"),
    "a view in ndbinfo": (
        "CREATE VIEW ndbinfo.v AS SELECT * FROM {db}.t",
        "UPDATE ndbinfo.v SET v = 'new'",
    ),
    "a view of such a view": (
        "CREATE VIEW sys.v AS SELECT * FROM {db}.t; CREATE VIEW w AS SELECT * FROM sys.v",
        "UPDATE w SET v = 'new'",
    ),
    "a trigger that writes to one": (
        "CREATE VIEW sys.v AS SELECT * FROM {db}.t;"
        "CREATE TRIGGER g AFTER INSERT ON u FOR EACH ROW UPDATE sys.v SET v = 'new'",
        "INSERT INTO u VALUES (7)",
    ),
    "a procedure that writes to one": (
        "CREATE VIEW sys.v AS SELECT * FROM {db}.t;"
        "CREATE PROCEDURE pr() MODIFIES SQL DATA UPDATE sys.v SET v = 'new'",
        "CALL pr()",
    ),
    "a trigger on a table there": (
        "CREATE TABLE ndbinfo.q (a INT); CREATE TRIGGER ndbinfo.g AFTER INSERT ON ndbinfo.q"
        " FOR EACH ROW UPDATE {db}.t SET v = 'new'",
        "INSERT INTO ndbinfo.q VALUES (1)",
    ),
    "a view that calls a function": (
        "CREATE FUNCTION f() RETURNS INT MODIFIES SQL DATA BEGIN UPDATE t SET v = 'new'; RETURN 1;"
        " END; CREATE VIEW sys.c AS SELECT {db}.f() AS one",
        "SELECT * FROM sys.c",
    ),
    "a view of one that calls a function": (
        "CREATE FUNCTION f() RETURNS INT MODIFIES SQL DATA BEGIN UPDATE t SET v = 'new'; RETURN 1;"
        " END; CREATE VIEW c AS SELECT {db}.f() AS one; CREATE VIEW sys.c AS SELECT * FROM {db}.c",
        "SELECT * FROM sys.c",
    ),
    "a function there": (
        "CREATE FUNCTION sys.f() RETURNS INT MODIFIES SQL DATA BEGIN UPDATE {db}.t SET v = 'new';"
        " RETURN 1; END",
        "SELECT f()",
    ),
    "a foreign key by way of a table there": (
        "CREATE TABLE sys.p (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES {db}.u (id)"
        " ON DELETE CASCADE); INSERT INTO sys.p VALUES (1);"
        "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES sys.p (id) ON DELETE CASCADE",
        "DELETE FROM u",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_write_by_way_of_them_is_seen(world: World, way: str) -> None:
    made, write = WAYS[way]
    schema = "sys" if way == "a function there" else "{db}"
    world.compare(
        f"""
        a   CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)) ENGINE=InnoDB;
          CREATE TABLE u (id INT PRIMARY KEY) ENGINE=InnoDB;
          INSERT INTO t VALUES (1, 'old'); INSERT INTO u VALUES (1)
        a   {made}
        a   FLUSH PRIVILEGES
        w   USE {schema}
        b   {READ}
        b+  {READ}
        w   {write}
        b   {READ}
        a   {END}
        """
    )


def test_reading_what_comes_with_the_server_empties_nothing(world: World) -> None:
    world.compare(
        f"""
        a   CREATE TABLE t (v VARCHAR(9)) ENGINE=InnoDB
        b   {READ}
        b+  {READ}
        w   SELECT COUNT(*) >= 0 FROM sys.schema_unused_indexes
        w   SELECT COUNT(*) >= 0 FROM sys.schema_table_statistics
        w   SELECT COUNT(*) >= 0 FROM sys.statements_with_full_table_scans
        b+  {READ}
        """
    )
