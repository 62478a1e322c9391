"""The catalog and the globals as real servers give them."""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import aiomysql
import pymysql
import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlServer, wait_until
from sqlcache.errors import UpstreamError
from sqlcache.service.opening import connect_service, rows_of
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.definitions import Definitions
from sqlcache.sql.catalog_loader import code
from sqlcache.sql.catalog_loader import server as server_module
from sqlcache.sql.catalog_loader import tables as tables_module
from sqlcache.sql.catalog_loader.load import load_catalog, load_globals, renew_catalog
from sqlcache.sql.facts import (
    EVERYWHERE,
    Columns,
    Facts,
    IntegerColumn,
    KeyColumn,
    Scope,
    StringColumn,
)
from sqlcache.sql.names import TableName
from sqlcache.sql.routines import is_unruly
from sqlcache.sql.statement import ADDS, DELETES, Changes
from sqlcache.sql.versioned import Opens, inside
from tests.servers import PrivateMySQL

SMALLEST_GRANT = "SELECT, SHOW VIEW, TRIGGER"

Connect = Callable[..., Awaitable[aiomysql.Connection]]


async def connect_as(server: PrivateSqlServer, user: str) -> aiomysql.Connection:
    return await connect_service(server.host, server.port, user, "secret", 10)


@pytest.fixture
async def account(upstream: PrivateSqlServer) -> AsyncIterator[Connect]:
    """`account("SELECT", ...)` is a connection of a new account with these global rights.

    `then` runs after the GRANT, with `{user}` in it replaced by the account.
    """
    users: list[str] = []
    connections: list[aiomysql.Connection] = []

    async def make(rights: str, then: str = "") -> aiomysql.Connection:
        users.append(f"svc_{secrets.token_hex(4)}")
        upstream.sql(f"CREATE USER {users[-1]}@'%' IDENTIFIED BY 'secret'")
        upstream.sql(f"GRANT {rights} ON *.* TO {users[-1]}@'%'")
        if then:
            upstream.sql(then.format(user=f"{users[-1]}@'%'"))
        connections.append(await connect_as(upstream, users[-1]))
        return connections[-1]

    yield make
    for connection in connections:
        connection.close()
    for user in users:
        upstream.sql(f"DROP USER {user}@'%'")


@pytest.fixture
async def service(account: Connect) -> aiomysql.Connection:
    """A connection with the smallest grant the loader's documentation names."""
    return await account(SMALLEST_GRANT)


def named(schema: str, *names: str) -> frozenset[TableName]:
    return frozenset(TableName(schema, name) for name in names)


def writes(catalog: Catalog, schema: str, name: str) -> frozenset[TableName] | None:
    return catalog.writes.closure([TableName(schema, name)])


async def test_the_server_says_who_it_is(
    upstream: PrivateSqlServer, service: aiomysql.Connection
) -> None:
    catalog = await load_catalog(service)
    assert catalog.server.flavour == (
        "mariadb" if isinstance(upstream, PrivateMariaDB) else "mysql"
    )
    assert catalog.server.version >= (8, 0)
    assert catalog.server.lower_case_table_names == 0
    assert catalog.server.triggers_visible
    first, second, third, *_ = catalog.server.version
    own = first * 10_000 + second * 100 + third
    assert catalog.server.opens == Opens(isinstance(upstream, PrivateMariaDB), own)


COMMENTS = [
    f"/*{mark}{version}{end}"
    for mark in ("!", "M!")
    for version in (
        *("", "1", "12345", "50699", "50700", "050000", "099999", "100000", "0500001"),
        *("{before}", "{own}", "{after}", "0{own}", "99996", "99998", "99999", "999999"),
    )
    for end in ("+ 1 */", " + 1 */", "\t+1*/", " '*/", " + 1 -- */", " /* + 1 */", "*/")
]


async def test_versioned_comments_are_read_as_the_server_does(
    service: aiomysql.Connection,
) -> None:
    server = (await load_catalog(service)).server
    assert server.opens is not None
    own = server.opens.version
    told = dict.fromkeys(("opened", "skipped", "neither"), 0)
    for comment in COMMENTS:
        text = comment.format(before=own - 1, own=own, after=own + 1).encode()
        read = inside(text, server.opens)
        if read is None or (read.text.count(b"'") % 2):  # the string goes on behind it
            told["neither"] += 1
            continue
        told["opened" if read.text else "skipped"] += 1
        seen = await asked(service, b"SELECT 1 " + text + b" + 2 /* ' */")
        assert seen == await asked(service, b"SELECT 1 " + read.text + b" + 2 /* ' */"), text
    assert min(told.values()) > 20


async def asked(connection: aiomysql.Connection, text: bytes) -> object:
    try:
        return await rows_of(connection, text.decode())
    except UpstreamError:
        return "an error"


async def test_a_server_that_opens_others_than_its_version_says_is_not_believed(
    service: aiomysql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = server_module._version
    for version in ((5, 7, 44), (12, 3, 4), (8,)):
        monkeypatch.setattr(server_module, "_version", lambda _, to=version: to)
        with contextlib.suppress(UpstreamError):  # older ones are asked otherwise
            assert (await load_catalog(service)).server.opens is None
    monkeypatch.setattr(server_module, "_version", told)
    assert (await load_catalog(service)).server.opens is not None


async def test_views_are_opened_down_to_base_tables(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    upstream.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9)); CREATE TABLE u (id INT PRIMARY KEY);"
        "CREATE VIEW v AS SELECT id, CONCAT(a, '\\'s `x` \"y\"') AS q FROM t WHERE id > 0;"
        "CREATE VIEW w AS WITH c AS (SELECT * FROM v) SELECT c.id FROM c LEFT JOIN u USING (id);"
        "CREATE VIEW g AS SELECT a, COUNT(*) FROM t GROUP BY a",
        schema,
    )
    catalog = await load_catalog(service)
    closure = catalog.reads.closure(named(schema, "w"))
    assert closure.reason is None
    assert closure.base_tables == named(schema, "t", "u")
    assert closure.views == named(schema, "v", "w")
    assert catalog.reads.closure(named(schema, "g")).base_tables == named(schema, "t")
    assert writes(catalog, schema, "v") == named(schema, "v", "t")


async def test_views_made_in_any_sql_mode_and_character_set_are_understood(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    upstream.sql(
        "CREATE TABLE t (id INT); CREATE TABLE u (id INT);"
        "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT';"
        "CREATE VIEW v AS SELECT 'a\\' \"x\", 'it''s' || \"id\" AS y, '\\'' FROM u' z FROM \"t\";"
        "SET NAMES latin1; CREATE VIEW l AS SELECT _binary 0xFFFE27 AS x, '\u00c3\u00a9' y FROM u",
        schema,
    )
    catalog = await load_catalog(service)
    assert catalog.reads.closure(named(schema, "v")).base_tables == named(schema, "t")
    assert catalog.reads.closure(named(schema, "l")).base_tables == named(schema, "u")


@pytest.mark.filterwarnings("error")
async def test_a_view_that_has_lost_its_table_neither_breaks_the_load_nor_warns(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    upstream.sql(
        "CREATE TABLE t (id INT); CREATE TABLE gone (id INT);"
        "CREATE VIEW broken AS SELECT id FROM gone; DROP TABLE gone;"
        "CREATE DEFINER = nobody@nowhere VIEW foreign_view AS SELECT id FROM t",
        schema,
    )
    catalog = await load_catalog(service)
    assert not catalog.reads.closure(named(schema, "broken")).cacheable
    assert catalog.reads.closure(named(schema, "foreign_view")).base_tables == named(schema, "t")


async def test_a_view_over_a_stored_function_may_write(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    upstream.sql(
        "SET GLOBAL log_bin_trust_function_creators = ON;"
        "CREATE TABLE t (id INT); CREATE FUNCTION MyFunction(x INT) RETURNS INT RETURN x + 1;"
        "CREATE PROCEDURE my_procedure() DO 1;"
        "CREATE VIEW v AS SELECT MyFunction(id) AS x FROM t",
        schema,
    )
    catalog = await load_catalog(service)
    closure = catalog.reads.closure(named(schema, "v"))
    assert not closure.cacheable
    assert closure.may_write
    assert "myfunction" in catalog.stored.functions
    assert "my_procedure" not in catalog.stored.functions


async def test_engines_decide_what_is_transactional(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    upstream.sql(
        "CREATE TABLE i (id INT) ENGINE = InnoDB; CREATE TABLE m (id INT) ENGINE = MyISAM;"
        "CREATE TABLE h (id INT) ENGINE = MEMORY",
        schema,
    )
    catalog = await load_catalog(service)
    assert catalog.reads.is_transactional(TableName(schema, "i"))
    assert not catalog.reads.is_transactional(TableName(schema, "m"))
    assert catalog.reads.closure(named(schema, "i", "m")).cacheable
    assert not catalog.reads.closure(named(schema, "h")).cacheable


async def test_rows_are_told_apart_by_integers_that_are_written_as_they_are_read(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    """Not by what the server computes, in a primary key or not."""
    upstream.sql(
        "CREATE TABLE one (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, k TINYINT, v INT,"
        " c INT AS (v) STORED, KEY (k), KEY (c));"
        "CREATE TABLE two (id INT AUTO_INCREMENT, name CHAR(9) CHARACTER SET utf8mb4"
        " COLLATE utf8mb4_bin, PRIMARY KEY (id, name));"
        "CREATE TABLE named (a VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci UNIQUE,"
        " b CHAR(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci, c VARCHAR(5) CHARACTER SET"
        " utf8mb4 COLLATE utf8mb4_lithuanian_ci, d VARBINARY(9), e VARCHAR(9), KEY (b), KEY (c),"
        " KEY (d))",
        schema,
    )
    computed = "CREATE TABLE computed (v INT, id INT AS (v * 2) STORED, PRIMARY KEY (id))"
    with contextlib.suppress(pymysql.MySQLError):  # MariaDB has none such
        upstream.sql(computed, schema)
    catalog = await load_catalog(service)

    def told(table: str) -> set[KeyColumn]:
        return set(catalog.reads.columns(TableName(schema, table)).keys)

    own = IntegerColumn("id", 0, 2**32 - 1, numbers=True, identifies=True)
    assert told("one") == {own, IntegerColumn("k", -128, 127, numbers=False, nullable=True)}
    assert told("two") == {
        IntegerColumn("id", -(2**31), 2**31 - 1, numbers=True),
        StringColumn("name", "utf8mb4_bin", 9),
    }
    assert told("named") == {
        StringColumn("a", "utf8mb4_general_ci", 20, nullable=True),
        StringColumn("b", "latin1_swedish_ci", 9, nullable=True),
    }
    assert told("computed") == set()


async def test_columns_in_no_index_are_told_where_nothing_hangs_on_them(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    """A row without a key may have its place by any of them, as in a partition."""
    upstream.sql(
        "CREATE TABLE plain (id INT PRIMARY KEY, a INT, k INT, `B` INT, t TEXT, größe INT,"
        " seen TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, KEY (a, k),"
        " FULLTEXT KEY (t));"
        "CREATE TABLE computed (id INT PRIMARY KEY, a INT, b INT AS (a) STORED);"
        "CREATE TABLE keyless (id INT, a INT, KEY (id)) PARTITION BY HASH (a) PARTITIONS 2;"
        "CREATE TABLE other (id INT PRIMARY KEY, a INT) ENGINE = MyISAM;"
        "CREATE TABLE two (id INT PRIMARY KEY, k INT UNIQUE, a INT);"
        "CREATE TABLE pair (id INT, k INT, a INT, UNIQUE KEY (id, k));"
        "CREATE TABLE prefix (name VARCHAR(20), a INT, UNIQUE KEY (name(3)))",
        schema,
    )
    for one_servers_own in (
        "CREATE TABLE versioned (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING",
        "CREATE TABLE by_function (id INT PRIMARY KEY, a INT, KEY ((a + 1)))",
        "CREATE TABLE hashed (a INT, t TEXT, UNIQUE (t)) PARTITION BY HASH (a) PARTITIONS 2",
    ):
        with contextlib.suppress(pymysql.MySQLError):
            upstream.sql(one_servers_own, schema)
    catalog = await load_catalog(service)

    def told(table: str) -> Columns:
        return catalog.reads.columns(TableName(schema, table))

    assert told("plain").unindexed == ("b", "seen")
    for table in ("computed", "keyless", "other", "versioned", "by_function", "hashed"):
        assert told(table).unindexed == (), table
    keys = [told(table).only_key for table in ("plain", "two", "pair", "prefix", "keyless")]
    assert keys == [("id",), (), ("id", "k"), (), ()]
    assert (
        not (await load_catalog(service, columns=False))
        .reads.columns(TableName(schema, "plain"))
        .keys
    )


async def test_columns_of_an_index_are_told_together(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    upstream.sql(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, b INT, a INT, s VARCHAR(9), at DATE,"
        " UNIQUE (b, a, s), UNIQUE (a, b), UNIQUE (s(3), at, a), UNIQUE (b, id, a), KEY (a, s));"
        "CREATE TABLE wide (a INT, b INT, c INT, d INT, e INT, PRIMARY KEY (e, d, c, b, a));"
        "CREATE TABLE numbered (a INT, id INT AUTO_INCREMENT, b INT, PRIMARY KEY (a, id),"
        " UNIQUE (id, a), UNIQUE (b, a, id))",
        schema,
    )
    catalog = await load_catalog(service)

    def told(table: str) -> list[str]:
        return [each.name for each in catalog.reads.columns(TableName(schema, table)).together]

    assert told("t") == ["(a, b, s)", "(a, b)"]
    assert told("wide") == ["(b, c, d, e)", "(c, d, e)", "(d, e)"]
    assert told("numbered") == ["(a, b)"]


async def test_keys_that_the_server_has_made_and_hides_are_told(
    upstream: PrivateSqlServer, account: Connect, schema: str
) -> None:
    if upstream.name != "mysqld":
        pytest.skip("MySQL makes such")
    hides = "SET GLOBAL show_gipk_in_create_table_and_information_schema = {}"
    upstream.sql(hides.format("OFF"))
    try:
        upstream.sql(
            "SET sql_generate_invisible_primary_key = ON; CREATE TABLE g (a INT, UNIQUE (a))",
            schema,
        )
        catalog = await load_catalog(await account(SMALLEST_GRANT))
        assert catalog.reads.columns(TableName(schema, "g")).only_key == ()
    finally:
        upstream.sql(hides.format("ON"))


async def test_foreign_keys_are_followed_but_for_those_that_only_refuse(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    upstream.sql(
        "CREATE TABLE a (id INT PRIMARY KEY, up INT, b INT, KEY (b),"
        " FOREIGN KEY (up) REFERENCES a (id) ON DELETE CASCADE);"
        "CREATE TABLE b (id INT PRIMARY KEY, a INT,"
        " FOREIGN KEY (a) REFERENCES a (id) ON UPDATE CASCADE);"
        "ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b (id) ON DELETE SET NULL;"
        "CREATE TABLE c (id INT PRIMARY KEY, b INT,"
        " FOREIGN KEY (b) REFERENCES b (id) ON DELETE SET NULL);"
        "CREATE TABLE refuses (id INT PRIMARY KEY, a INT,"
        " FOREIGN KEY (a) REFERENCES a (id) ON DELETE RESTRICT ON UPDATE NO ACTION)",
        schema,
    )
    catalog = await load_catalog(service)
    assert writes(catalog, schema, "a") == named(schema, "a", "b")  # of b no `id` is set by that
    assert writes(catalog, schema, "b") == named(schema, "a", "b", "c")
    assert writes(catalog, schema, "c") == named(schema, "c")
    assert writes(catalog, schema, "refuses") == named(schema, "refuses")


async def test_what_a_foreign_key_follows_is_told(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    """By its rules and columns, and by those that the server sets along."""
    upstream.sql(
        "CREATE TABLE p (id INT PRIMARY KEY, `Code` INT UNIQUE, a INT, b INT, x INT, `größe` INT,"
        " made INT AS (x + 1) STORED, seen TIMESTAMP DEFAULT CURRENT_TIMESTAMP"
        " ON UPDATE CURRENT_TIMESTAMP, UNIQUE (a, b), UNIQUE (made), UNIQUE (seen),"
        " UNIQUE (`größe`));"
        "CREATE TABLE deleted (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE);"
        "CREATE TABLE code (p INT UNIQUE, FOREIGN KEY (p) REFERENCES p (CODE) ON UPDATE CASCADE);"
        "CREATE TABLE odd (p INT, FOREIGN KEY (p) REFERENCES p (`größe`) ON UPDATE CASCADE);"
        "CREATE TABLE of_code (p INT, FOREIGN KEY (p) REFERENCES code (p) ON UPDATE SET NULL)",
        schema,
    )
    of_servers = {
        "pair": "a INT, b INT, FOREIGN KEY (b, a) REFERENCES p (a, b) ON UPDATE CASCADE",
        "made": "p INT, FOREIGN KEY (p) REFERENCES p (made) ON UPDATE CASCADE",
        "seen": "p TIMESTAMP NULL, FOREIGN KEY (p) REFERENCES p (seen) ON UPDATE CASCADE",
    }
    there = set()
    for name, columns in of_servers.items():
        with contextlib.suppress(pymysql.MySQLError):
            upstream.sql(f"CREATE TABLE {name} ({columns})", schema)
            there.add(name)
    assert "pair" in there
    catalog = await load_catalog(service)
    for _ in range(2):

        def led_to(changes: Changes, catalog: Catalog = catalog) -> set[str]:
            (table,) = named(schema, "p")
            closure = catalog.writes.closure([table], [(table, changes)])
            assert closure is not None
            return {name for _, name in closure} - {"p"}

        def sets(*columns: str) -> set[str]:
            return led_to(Changes(frozenset(columns)))

        along = there & {"made", "seen"} | {"odd"}
        assert led_to(ADDS) == set()
        assert led_to(DELETES) == {"deleted"}
        assert sets("x") == sets("id") == along
        assert sets("code") == along | {"code", "of_code"}
        assert sets("b") == along | {"pair"}
        tables = named(schema, "p", "pair", "code", "deleted", "seen", "odd")
        catalog = await renew_catalog(service, catalog, Scope(tables=tables))


async def test_a_child_in_another_schema_and_a_trigger_that_writes_there_are_seen(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    other = f"{schema}_other"
    upstream.sql(
        f"CREATE DATABASE {other}; CREATE TABLE t (id INT PRIMARY KEY);"
        f"CREATE TABLE {other}.log (id INT); CREATE TABLE {other}.child (id INT PRIMARY KEY,"
        f" FOREIGN KEY (id) REFERENCES {schema}.t (id) ON DELETE CASCADE);"
        "SET sql_mode = 'ANSI_QUOTES';"
        f'CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW INSERT INTO "{other}"."log" VALUES (1)',
        schema,
    )
    try:
        catalog = await load_catalog(service)
    finally:
        upstream.sql(f"DROP DATABASE {other}")
    expected = named(schema, "t") | named(other, "log", "child")
    assert writes(catalog, schema, "t") == expected


async def test_a_trigger_that_calls_a_procedure_may_write_anything(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str
) -> None:
    upstream.sql(
        "CREATE TABLE t (id INT); CREATE TABLE u (id INT); CREATE PROCEDURE p() DELETE FROM u;"
        "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW CALL p()",
        schema,
    )
    catalog = await load_catalog(service)
    assert writes(catalog, schema, "t") is None
    assert writes(catalog, schema, "u") == named(schema, "u")


async def test_limits_that_sessions_inherit_do_not_cut_the_catalog_short(
    upstream: PrivateSqlServer, account: Connect, schema: str
) -> None:
    upstream.sql("CREATE TABLE t (id INT); CREATE TABLE u (id INT)", schema)
    upstream.sql(
        "SET GLOBAL sql_select_limit = 1; SET GLOBAL max_join_size = 1;"
        "SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"
    )
    try:
        catalog = await load_catalog(await account(SMALLEST_GRANT))
    finally:
        upstream.sql(
            "SET GLOBAL sql_select_limit = DEFAULT; SET GLOBAL max_join_size = DEFAULT;"
            "SET GLOBAL sql_mode = DEFAULT"
        )
    assert catalog.server.triggers_visible
    assert catalog.reads.closure(named(schema, "t", "u")).cacheable


async def test_what_waits_for_a_table_is_waited_for_however_short_others_wait(
    upstream: PrivateSqlServer, account: Connect, schema: str
) -> None:
    """MariaDB leaves out what it would have to wait for longer."""
    table = "(v INT PRIMARY KEY, d DATETIME)"
    upstream.sql("; ".join(f"CREATE TABLE {each} {table}" for each in "abc"), schema)
    upstream.sql("CREATE TRIGGER g AFTER INSERT ON a FOR EACH ROW DELETE FROM c", schema)
    login: dict[str, Any] = {"database": schema, "autocommit": False}
    with (
        contextlib.closing(upstream.connect(**login)) as holder,
        contextlib.closing(upstream.connect(**login)) as renamer,
    ):
        holder.cursor().execute("SELECT v FROM b")
        rename = "RENAME TABLE a TO other, b TO another"

        def renames() -> None:
            with pytest.raises(pymysql.MySQLError):
                renamer.cursor().execute(rename)

        waiting = threading.Thread(target=renames)
        waiting.start()
        listed = f"SELECT id FROM information_schema.processlist WHERE info = '{rename}'"
        wait_until(lambda: len(upstream.sql(listed)) == 1, 10, "the wait for a table")
        upstream.sql("SET GLOBAL lock_wait_timeout = 1")
        try:
            service = await account(SMALLEST_GRANT)
            loading = asyncio.ensure_future(load_catalog(service))
            await asyncio.wait([loading], timeout=2.5)
            ((number,),) = upstream.sql(listed)
            upstream.sql(f"KILL QUERY {number}")
            catalog = await loading
        finally:
            upstream.sql("SET GLOBAL lock_wait_timeout = DEFAULT")
        await asyncio.to_thread(waiting.join)
    assert writes(catalog, schema, "a") == named(schema, "a", "c")
    assert catalog == await load_catalog(service)


@pytest.mark.parametrize(
    "rights", ["USAGE", "SELECT", "SELECT, SHOW VIEW", "SELECT, TRIGGER", "SHOW VIEW, TRIGGER"]
)
async def test_an_account_with_less_than_the_smallest_grant_knows_that_it_sees_too_little(
    upstream: PrivateSqlServer, account: Connect, schema: str, rights: str
) -> None:
    upstream.sql("CREATE TABLE t (id INT); CREATE VIEW v AS SELECT id FROM t", schema)
    catalog = await load_catalog(await account(rights))
    assert not catalog.server.triggers_visible
    assert writes(catalog, schema, "t") is None
    assert not catalog.reads.closure(named(schema, "v")).cacheable


async def test_rights_on_one_schema_are_not_enough(account: Connect, schema: str) -> None:
    connection = await account("USAGE", f"GRANT ALL ON {schema}.* TO {{user}}")
    assert not (await load_catalog(connection)).server.triggers_visible


async def test_an_account_that_may_do_everything_sees_everything(account: Connect) -> None:
    assert (await load_catalog(await account("ALL"))).server.triggers_visible


async def test_rights_through_a_role_count_while_the_role_is_active(
    upstream: PrivateSqlServer, account: Connect
) -> None:
    word = "FOR" if isinstance(upstream, PrivateMariaDB) else "TO"
    upstream.sql(f"CREATE ROLE watcher; GRANT {SMALLEST_GRANT} ON *.* TO watcher")
    try:
        idle = await account("USAGE", "GRANT watcher TO {user}")
        active = await account(
            "USAGE", f"GRANT watcher TO {{user}}; SET DEFAULT ROLE watcher {word} {{user}}"
        )
        assert not (await load_catalog(idle)).server.triggers_visible
        assert (await load_catalog(active)).server.triggers_visible
    finally:
        upstream.sql("DROP ROLE watcher")


async def test_a_partial_revoke_takes_the_sight_away(mysql: PrivateMySQL, schema: str) -> None:
    mysql.sql(
        "SET GLOBAL partial_revokes = ON; CREATE USER blinkered@'%' IDENTIFIED BY 'secret';"
        f"GRANT {SMALLEST_GRANT} ON *.* TO blinkered@'%';"
        f"REVOKE SELECT ON {schema}.* FROM blinkered@'%'"
    )
    try:
        connection = await connect_as(mysql, "blinkered")
        catalog = await load_catalog(connection)
        connection.close()
    finally:
        mysql.sql("DROP USER blinkered@'%'; SET GLOBAL partial_revokes = OFF")
    assert not catalog.server.triggers_visible


async def test_a_json_duality_view_writes_the_tables_it_shows(
    mysql: PrivateMySQL, schema: str
) -> None:
    mysql.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)", schema)
    try:
        mysql.sql(
            "CREATE JSON DUALITY VIEW j AS SELECT JSON_DUALITY_OBJECT("
            "WITH (INSERT, UPDATE, DELETE) '_id': id, 'a': a) FROM t",
            schema,
        )
    except pymysql.ProgrammingError:  # a syntax error
        pytest.skip("this MySQL is too old for JSON duality views")
    connection = await connect_service(
        mysql.host, mysql.port, mysql.service_user, mysql.service_password, 10
    )
    catalog = await load_catalog(connection)
    connection.close()
    assert writes(catalog, schema, "j") == named(schema, "j", "t")
    assert not catalog.reads.closure(named(schema, "j")).cacheable


async def test_the_objects_only_mariadb_has_are_judged(
    mariadb: PrivateMariaDB, schema: str
) -> None:
    mariadb.sql(
        "CREATE TABLE versioned (id INT) WITH SYSTEM VERSIONING; CREATE SEQUENCE s;"
        "CREATE TABLE clock (id INT, n DATETIME AS (NOW()) VIRTUAL);"
        "CREATE TABLE sum (id INT, n INT AS (id + 1) VIRTUAL, t VARCHAR(9) AS ('it''s') STORED);"
        "CREATE TABLE plain (id INT PRIMARY KEY DEFAULT NEXTVAL(s))",
        schema,
    )
    connection = await connect_service(
        mariadb.host, mariadb.port, mariadb.service_user, mariadb.service_password, 10
    )
    catalog = await load_catalog(connection)
    connection.close()
    assessments = {
        name: catalog.reads.closure(named(schema, name)).cacheable
        for name in ("versioned", "s", "clock", "sum", "plain", "seq_1_to_9")
    }
    assert assessments == {
        "versioned": True,
        "s": False,
        "clock": False,
        "sum": True,
        "plain": True,
        "seq_1_to_9": False,
    }


async def test_globals_are_sorted_pairs_that_follow_the_server(
    upstream: PrivateSqlServer, service: aiomysql.Connection
) -> None:
    before = await load_globals(service)
    upstream.sql("SET GLOBAL default_week_format = 3")
    try:
        after = await load_globals(service)
    finally:
        upstream.sql("SET GLOBAL default_week_format = DEFAULT")
    assert list(before) == sorted(before)
    assert dict(after) == {**dict(before), "default_week_format": "3"} != dict(before)
    expected = {"sql_mode", "time_zone", "system_time_zone", "character_set_server", "init_connect"}
    assert expected <= dict(before).keys()
    assert {"transaction_isolation", "tx_isolation"} & dict(before).keys()


async def test_reading_the_globals_counts_as_no_select(
    upstream: PrivateSqlServer, service: aiomysql.Connection
) -> None:
    before = upstream.status("Com_select")
    await load_globals(service)
    assert upstream.status("Com_select") == before


async def test_a_connection_that_is_killed_fails_the_load_with_an_upstream_error(
    upstream: PrivateSqlServer, service: aiomysql.Connection
) -> None:
    upstream.sql(f"KILL {service.thread_id()}")
    with pytest.raises(UpstreamError, match="own query failed"):
        await load_catalog(service)


@pytest.mark.parametrize("by", ["tables", "schemas"])
async def test_what_is_renewed_is_as_if_all_had_been_read(
    upstream: PrivateSqlServer, service: aiomysql.Connection, schema: str, by: str
) -> None:
    """Also what leans on the tables that changed: foreign keys into them, and views of views."""
    upstream.sql("CREATE TABLE p (id INT PRIMARY KEY, x INT) ENGINE=InnoDB", schema)
    child = "CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)"
    for each in (child, "CREATE VIEW v AS SELECT x FROM p", "CREATE VIEW w AS SELECT x FROM v"):
        upstream.sql(each, schema)
    before = await load_catalog(service)
    trigger = "CREATE TRIGGER g AFTER INSERT ON q FOR EACH ROW INSERT INTO p (id) VALUES (1)"
    for each in (
        "ALTER TABLE p MODIFY x TIME, RENAME TO q",
        "ALTER TABLE q RENAME TO p, ADD y DATE, ADD z INT AS (x + 1) VIRTUAL",
        "CREATE TABLE q (id INT)",
        trigger,
    ):
        upstream.sql(each, schema)
    tables = named(schema, "p", "q", "g")
    scope = Scope(tables=tables) if by == "tables" else Scope(schemas=frozenset({schema}))
    after = await load_catalog(service)
    assert await renew_catalog(service, before, scope) == after != before
    for each in ("DROP TRIGGER g", "DROP TABLE q", "DROP TABLE c"):
        upstream.sql(each, schema)
    tables |= named(schema, "c")
    scope = Scope(tables=tables) if by == "tables" else Scope(schemas=frozenset({schema}))
    assert await renew_catalog(service, after, scope) == await load_catalog(service) != after


async def test_bodies_are_judged_once_and_not_all_in_one_turn(
    service: aiomysql.Connection,
    upstream: PrivateSqlServer,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assignments = ", ".join(f"c{each} = c{each} + 1" for each in range(70))
    for each in range(20):
        update = f"UPDATE {schema}.t{each} SET {assignments}"  # which nobody has judged before
        upstream.sql(f"CREATE PROCEDURE {schema}.p{each}() BEGIN {update}; {update}; END")
    judged: list[bytes | None] = []

    def counted(body: bytes | None, *rest: Any) -> bool:
        judged.append(body)
        return is_unruly(body, *rest)

    monkeypatch.setattr(code, "is_unruly", counted)
    reading = asyncio.ensure_future(load_catalog(service))
    most = before = 0
    while not reading.done():
        await asyncio.sleep(0)
        most, before = max(most, len(judged) - before), len(judged)
    assert len(judged) >= 20 > 5 > most
    names = {name for _, owner, name in (await reading).stored.routines if owner == schema}
    assert len(names) == 20
    await load_catalog(service)
    assert len(judged) == before


async def test_the_words_of_bodies_that_matter_are_known(
    service: aiomysql.Connection, upstream: PrivateSqlServer, schema: str
) -> None:
    asks = "SELECT FOUND_ROWS() AS a"
    upstream.sql(f"CREATE TABLE {schema}.t (id INT)")
    upstream.sql(f"CREATE VIEW {schema}.v AS {asks}")
    upstream.sql(f"CREATE PROCEDURE {schema}.p() {asks}")
    upstream.sql(
        f"CREATE TRIGGER {schema}.g BEFORE INSERT ON {schema}.t FOR EACH ROW SET @a = ROW_COUNT()"
    )
    known = await load_catalog(service)
    (view,) = known.definitions.views_among(named(schema, "t", "v"))
    (trigger,) = known.definitions.triggers_on(named(schema, "t"))
    (procedure,) = (each for each in known.stored.routines.values() if each.name.schema == schema)
    assert view.words == procedure.words == {b"FOUND_ROWS"}
    assert trigger.words == {b"ROW_COUNT"}


async def test_of_many_tables_not_all_are_gone_through_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = 2_000
    on_update = "DEFAULT_GENERATED on update CURRENT_TIMESTAMP"
    rows: dict[str, list[tuple[Any, ...]]] = {
        "information_schema.TABLES": [("s", f"t{n}", "BASE TABLE", "InnoDB") for n in range(many)],
        "information_schema.COLUMNS": [
            ("s", f"t{n}", "at", "timestamp", 0, b"", on_update) for n in range(many)
        ],
        "information_schema.VIEWS": [("s", f"v{n}", b"select 1") for n in range(many)],
        "information_schema.REFERENTIAL_CONSTRAINTS": [
            ("s", "t0", "s", f"t{n}", "k", "CASCADE", "CASCADE") for n in range(many)
        ],
        "information_schema.KEY_COLUMN_USAGE": [("s", f"t{n}", "k", "a", "b") for n in range(many)],
    }

    async def given(_: aiomysql.Connection, query: str) -> list[tuple[Any, ...]]:
        return next(rows[each] for each in rows if each in query)

    async def turns_of(work: Coroutine[Any, Any, Any]) -> int:
        turns, task = 0, asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        await task
        return turns

    monkeypatch.setattr(tables_module, "rows_of", given)
    unused: Any = None
    loops = 6  # through columns, thrice; what is found there; views; tables
    each = many // 500
    assert await turns_of(tables_module.load_relations(unused, "mysql", EVERYWHERE)) >= loops * each
    assert await turns_of(tables_module.load_cascades(unused, EVERYWHERE)) >= 2 * each


async def test_a_catalog_in_which_nothing_is_new_is_the_same_one(
    service: aiomysql.Connection, schema: str
) -> None:
    catalog = await load_catalog(service)
    scope = Scope(tables=named(schema, *(f"nosuch_{each}" for each in range(16))))
    assert await renew_catalog(service, catalog, scope) is catalog


async def test_a_catalog_is_made_beside_the_event_loop(
    service: aiomysql.Connection, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many tables it takes a fraction of a second."""
    plain, threads = Definitions._learn, list[threading.Thread]()

    def learn(definitions: Definitions, facts: Facts) -> None:
        threads.append(threading.current_thread())
        plain(definitions, facts)

    monkeypatch.setattr(Definitions, "_learn", learn)
    catalog = await load_catalog(service)
    assert await renew_catalog(service, catalog, Scope(frozenset({schema}))) == catalog
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_what_leans_on_tables_is_found_out_beside_the_event_loop(
    service: aiomysql.Connection, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be looked for in the bodies of thousands of views."""
    plain, threads = Definitions.leaning_on, list[threading.Thread]()

    def leaning_on(definitions: Definitions, *scope: Any) -> set[TableName]:
        threads.append(threading.current_thread())
        return plain(definitions, *scope)

    monkeypatch.setattr(Definitions, "leaning_on", leaning_on)
    catalog = await load_catalog(service)
    await renew_catalog(service, catalog, Scope(tables=named(schema, "t")))
    assert len(threads) == 1
    assert threading.main_thread() not in threads


async def test_the_catalog_of_a_server_whose_own_account_is_gone_can_be_read(
    mariadb: PrivateMariaDB,
) -> None:
    """MariaDB's views of its rights are in the name of that."""
    user = f"svc_{secrets.token_hex(4)}"
    mariadb.sql(
        f"CREATE USER {user}@'%' IDENTIFIED BY 'secret', {user}@localhost IDENTIFIED BY 'secret';"
        f"GRANT {SMALLEST_GRANT} ON *.* TO {user}@'%', {user}@localhost;"
        "RENAME USER 'mariadb.sys'@localhost TO 'elsewhere'@localhost"
    )
    try:
        connection = await connect_as(mariadb, user)
        assert user in (await load_catalog(connection)).server.several_accounts
        connection.close()
    finally:
        mariadb.sql(
            "RENAME USER 'elsewhere'@localhost TO 'mariadb.sys'@localhost;"
            f"DROP USER {user}@'%', {user}@localhost"
        )


@pytest.mark.parametrize(
    ("table", "rest"),
    [
        ("db", {"Db": "shop"}),
        ("tables_priv", {"Db": "shop", "Table_name": "t"}),
        ("columns_priv", {"Db": "shop", "Table_name": "t", "Column_name": "v"}),
        ("procs_priv", {"Db": "shop", "Routine_name": "p", "Routine_type": "PROCEDURE"}),
    ],
)
async def test_a_row_of_rights_for_another_host_makes_several_accounts_of_one(
    upstream: PrivateSqlServer, service: aiomysql.Connection, table: str, rest: dict[str, str]
) -> None:
    """Where it has no name, and is for some hosts, of everybody."""
    user, like_most = (f"u_{secrets.token_hex(4)}" for _ in range(2))
    upstream.sql(f"CREATE USER {user}@'%', {like_most}@'%'")
    columns = ", ".join(["Host", "User", *rest])

    async def several(host: str, name: str) -> frozenset[str]:
        values = str((host, name, *rest.values()))
        upstream.sql(f"INSERT INTO mysql.{table} ({columns}) VALUES {values}")
        try:
            return (await load_catalog(service)).server.several_accounts
        finally:
            upstream.sql(f"DELETE FROM mysql.{table} WHERE Host = '{host}' AND User = '{name}'")

    try:
        assert not {user, like_most, ""} & await several("%", user)
        assert {user, like_most, ""} & await several("10.0.0.7", user) == {user}
        assert "" in await several("10.0.0.7", "")
        assert "" not in await several("%", "")
    finally:
        upstream.sql(f"DROP USER {user}@'%', {like_most}@'%'")


async def test_whoever_may_be_taken_for_another_counts_as_several_accounts(
    upstream: PrivateSqlServer, service: aiomysql.Connection
) -> None:
    """Also where nobody in particular may."""
    one, other = (f"u_{secrets.token_hex(4)}" for _ in range(2))
    upstream.sql(f"CREATE USER {one}@'%', {other}@'%'; GRANT PROXY ON {other}@'%' TO {one}@'%'")
    try:
        assert {one, other, ""} & (await load_catalog(service)).server.several_accounts == {one}
        upstream.sql(
            "INSERT INTO mysql.proxies_priv (Host, User, Proxied_host, Proxied_user)"
            f" VALUES ('%', '', '%', '{other}')"
        )
        assert "" in (await load_catalog(service)).server.several_accounts
    finally:
        upstream.sql("DELETE FROM mysql.proxies_priv WHERE Host = '%' AND User = ''")
        upstream.sql(f"DROP USER {one}@'%', {other}@'%'")


async def test_who_may_ask_so_many_questions_is_known_and_who_may_be_taken_for_such_a_one(
    upstream: PrivateSqlServer, service: aiomysql.Connection
) -> None:
    free, limited, proxied = (f"u_{secrets.token_hex(4)}" for _ in range(3))
    upstream.sql(
        f"CREATE USER {free}@'%' WITH MAX_UPDATES_PER_HOUR 5; CREATE USER {proxied}@'%';"
        f"CREATE USER {limited}@'10.0.0.7' WITH MAX_QUERIES_PER_HOUR 5;"
        f"GRANT PROXY ON {limited}@'10.0.0.7' TO {proxied}@'%'"
    )
    ours = {free, limited, proxied, ""}
    try:
        catalog = await load_catalog(service)
        assert ours & catalog.server.limited_accounts == {limited, proxied}
        upstream.sql(f"ALTER USER {limited}@'10.0.0.7' WITH MAX_QUERIES_PER_HOUR 0")
        assert not ours & (await load_catalog(service)).server.limited_accounts
    finally:
        upstream.sql(f"DROP USER {free}@'%', {proxied}@'%', {limited}@'10.0.0.7'")


async def test_who_has_no_name_may_come_from_hosts_without_one(
    mysql: PrivateMySQL,
) -> None:
    """MySQL lets them come from anywhere."""
    connection = await connect_service(mysql.host, mysql.port, mysql.user, mysql.password, 10)
    try:
        assert "" not in (await load_catalog(connection)).server.several_accounts
        mysql.sql("CREATE USER ''@''")
        assert "" in (await load_catalog(connection)).server.several_accounts
    finally:
        mysql.sql("DROP USER IF EXISTS ''@''")
        connection.close()
