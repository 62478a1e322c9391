"""Rules, directives and declared routines, through a proxy that has them, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache, PrivateSqlServer, wait_until
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import COLLATION, RawClient

OFF = 'sqlcache_bypasses_total{reason="switched off"}'
NOT_CACHEABLE = 'sqlcache_bypasses_total{reason="not cacheable"}'
UNKNOWN = 'sqlcache_bypasses_total{reason="catalog unknown"}'
HITS = "sqlcache_hits_total"

Start = Callable[..., "Client"]


class Client:
    """A session through a sqlcache; tells how its statements were answered."""

    def __init__(self, server: PrivateSqlcache, login: Mapping[str, Any]) -> None:
        self.server = server
        self.login = login
        self.connection: Any = server.connect(**login)

    def run(self, statement: str, parameters: Any = None) -> tuple[tuple[Any, ...], ...]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            rows: tuple[tuple[Any, ...], ...] = cursor.fetchall()
            return rows

    def counts(self, statement: str, metric: str, times: int = 2) -> float:
        """By how much a metric changes while a statement runs so many times, and MySQL tells
        sqlcache in time what that has to know of it."""
        while True:
            before = self.server.metrics()
            for _ in range(times):
                self.run(statement)
            after = self.server.metrics()
            if after.get(UNKNOWN, 0) == before.get(UNKNOWN, 0):
                return after.get(metric, 0) - before.get(metric, 0)

    def is_cached(self, statement: str) -> bool:
        """Whether a statement's second run, right after the first, is a hit."""
        return self.counts(statement, HITS) > 0

    def other(self, user: str = "", password: str = "") -> Client:
        """Another session in the same schema."""
        login = {"user": user, "password": password} if user else {}
        return Client(self.server, {**self.login, **login})


@pytest.fixture
def start(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> Start:
    """`start(rules=[...])` is a session through a sqlcache with them; `{db}` is the schema."""
    upstream.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, v INT); CREATE TABLE items (id INT, v INT);"
        " CREATE VIEW seen AS SELECT * FROM orders;"
        " INSERT INTO orders VALUES (1, 10), (2, 20); INSERT INTO items VALUES (1, 1)",
        schema,
    )
    login = {"user": upstream.user, "password": upstream.password, "database": schema}

    def begin(**settings: Any) -> Client:
        server = proxy(upstream, memcached, **_named(settings, schema))
        return Client(server, login)

    return begin


def _named(value: Any, schema: str) -> Any:
    if isinstance(value, str):
        return value.replace("{db}", schema)
    if isinstance(value, dict):
        return {key: _named(each, schema) for key, each in value.items()}
    return [_named(each, schema) for each in value] if isinstance(value, list) else value


# --- rules ------------------------------------------------------------------------------------


def test_a_rule_switches_a_table_off_also_behind_a_view(start: Start) -> None:
    client = start(rules=[{"table": "{db}.orders", "off": True}])
    for statement in ("SELECT * FROM orders", "SELECT * FROM seen", "SELECT * FROM items, orders"):
        assert client.counts(statement, OFF) == 2, statement
    assert client.is_cached("SELECT * FROM items")


def test_a_rule_may_cache_one_table_alone(start: Start) -> None:
    client = start(rules=[{"table": "{db}.orders", "off": False}, {"off": True}])
    assert client.is_cached("SELECT * FROM seen")
    assert not client.is_cached("SELECT * FROM items")
    assert not client.is_cached("SELECT * FROM items JOIN orders USING (id)")


def test_a_rule_is_about_a_schema(start: Start) -> None:
    client = start(rules=[{"schema": "{db}", "off": True}])
    assert client.counts("SELECT * FROM orders", OFF) == 2
    other = start(rules=[{"schema": "elsewhere", "off": True}])
    assert other.is_cached("SELECT * FROM orders")


def test_a_rule_is_about_a_user(start: Start, upstream: PrivateSqlServer, schema: str) -> None:
    upstream.sql(
        f"CREATE USER {schema}@'%' IDENTIFIED BY 'p'; GRANT SELECT ON {schema}.* TO {schema}@'%'"
    )
    try:
        client = start(rules=[{"user": "{db}", "off": True}])
        assert client.is_cached("SELECT * FROM orders")
        assert client.other(schema, "p").counts("SELECT * FROM orders", OFF) == 2
    finally:
        upstream.sql(f"DROP USER {schema}@'%'")


def test_so_it_is_in_whatever_bytes_its_name_was_sent(
    start: Start, upstream: PrivateSqlServer, schema: str
) -> None:
    """MySQL reads a name up to where it is no text; and either has one in many character sets."""
    plain, accented = f"{schema}_b", "josé"
    names = f"'{plain}', '{accented}'"
    upstream.sql(f"CREATE USER {names}; GRANT SELECT ON {schema}.* TO {names}")
    spellings = [(accented.encode(), COLLATION), (b"jos\xe9", 8), (b"jos\xe9", 63)]
    if upstream.name == "mysqld":
        spellings += [(plain.encode() + end, COLLATION) for end in (b"\xff", b"\xfe", b"\xc3")]
    query = f"SELECT * FROM {schema}.orders"
    try:
        client = start(rules=[{"user": name, "off": True} for name in ("{db}_b", accented)])
        assert client.is_cached(query)
        for user, collation in spellings:
            with RawClient.logged_in(client.server, user, "", collation=collation) as session:
                before = client.server.metrics()[HITS]
                for _ in range(3):
                    assert session.sql(query)
                assert client.server.metrics()[HITS] == before, user
    finally:
        upstream.sql(f"DROP USER {names}")


def test_a_rule_is_about_a_statement(start: Start) -> None:
    client = start(rules=[{"statement": "select v from orders where id = ?", "off": True}])
    assert client.counts("SELECT v FROM orders /* x */ WHERE id = 1", OFF) == 2
    assert client.counts("SELECT v FROM orders WHERE id = 2", OFF) == 2
    assert client.is_cached("SELECT v FROM orders WHERE id < 2")


def test_a_rule_is_about_what_a_regular_expression_finds(start: Start) -> None:
    client = start(rules=[{"matches": r"id = 1\b", "off": True}])
    assert client.counts("SELECT v FROM orders WHERE id = 1", OFF) == 2
    assert client.is_cached("SELECT v FROM orders WHERE id = 10"), "of the same shape"
    assert client.counts("SELECT v FROM orders WHERE id = 1", OFF) == 2


def test_a_rules_ttl_ends_an_entry(start: Start, upstream: PrivateSqlServer, schema: str) -> None:
    client = start(rules=[{"table": "{db}.orders", "ttl_s": 1}])
    read = "SELECT v FROM orders WHERE id = 1"
    wait_until(lambda: client.is_cached(read), 10, "a hit, before a second is over")
    upstream.sql("UPDATE orders SET v = 11", schema)  # around sqlcache
    wait_until(lambda: client.run(read) == ((11,),), 10, "the entry's end")


def test_a_rule_may_allow_staleness_but_never_in_a_transaction(start: Start) -> None:
    client = start(rules=[{"table": "{db}.orders", "max_staleness_ms": 60_000}])
    other = start()  # another process, of whose writes this one hears nothing
    read = "SELECT v FROM orders WHERE id = 1"
    for number, level in enumerate(("READ COMMITTED", "REPEATABLE READ")):
        client.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        assert client.is_cached(read)
        before = client.run(read)
        other.run(f"UPDATE orders SET v = {number}")
        assert client.run(read) == before, "else this shows nothing"
        client.run("BEGIN")
        assert client.run(read) == ((number,),), level
        client.run("COMMIT")


def test_a_rule_holds_for_a_prepared_statement(start: Start, upstream: PrivateSqlServer) -> None:
    client = start(rules=[{"statement": "SELECT v FROM orders WHERE id = ?", "off": True}])
    upstream.connect().close()  # so that caching_sha2_password knows the password
    login = upstream.user, upstream.password, client.login["database"]
    with RawClient.logged_in(client.server, *login) as raw:
        for condition, metric in ((b"id = ?", OFF), (b"id <= ?", HITS)):
            number = raw.ask(b"\x16SELECT v FROM orders WHERE " + condition)[5:9]
            before = client.server.metrics().get(metric, 0)
            for _ in range(2):
                raw.ask(b"\x17" + number + b"\0\1\0\0\0" + b"\0\1\x03\0" + b"\1\0\0\0")
            assert client.server.metrics().get(metric, 0) > before, condition


# --- what the app says ------------------------------------------------------------------------


def test_a_comment_switches_the_cache_off_for_its_statement(start: Start) -> None:
    client = start()
    assert client.is_cached("SELECT v FROM orders")
    for statement in (
        "/* sqlcache: off */ SELECT v FROM orders",
        "SELECT v FROM orders -- sqlcache: off",
        "SELECT v FROM orders # sqlcache: of",
    ):
        assert client.counts(statement, OFF) == 2, statement
    assert client.is_cached("/* sqlcache, a word */ SELECT v FROM orders")


def test_a_comments_ttl_is_its_own_entrys(
    start: Start, upstream: PrivateSqlServer, schema: str
) -> None:
    client = start()
    assert client.is_cached("SELECT v FROM orders WHERE id = 1")
    short = "/* sqlcache: ttl=1 */ SELECT v FROM orders WHERE id = 1"
    wait_until(lambda: client.is_cached(short), 10, "a hit, before a second is over")
    upstream.sql("UPDATE orders SET v = 11", schema)  # around sqlcache
    wait_until(lambda: client.run(short) == ((11,),), 10, "the entry's end")
    assert client.run("SELECT v FROM orders WHERE id = 1") == ((10,),), "else this shows nothing"


def test_a_comment_may_allow_staleness(start: Start) -> None:
    client, other = start(), start()
    stale = "/* sqlcache: max_staleness_ms=60000 */ SELECT v FROM orders WHERE id = 1"
    assert client.is_cached(stale)
    other.run("UPDATE orders SET v = 11")
    assert client.run(stale) == ((10,),)
    assert client.run("SELECT v FROM orders WHERE id = 1") == ((11,),)


@pytest.mark.parametrize("directive", ["ttl=5", "max_staleness_ms=60000"])
@pytest.mark.parametrize(
    "read",
    [
        "SELECT v, RAND() FROM orders",
        "SELECT v, @x FROM orders",
        "SELECT v FROM orders FOR UPDATE",
        "SELECT table_name FROM information_schema.tables LIMIT 1",
    ],
)
def test_a_directive_makes_nothing_cacheable(start: Start, read: str, directive: str) -> None:
    client = start(rules=[{"off": False, "ttl_s": 9}])
    assert client.counts(f"/* sqlcache: {directive} */ {read}", NOT_CACHEABLE) == 2


def test_a_comment_cannot_undo_a_rules_off(start: Start) -> None:
    client = start(rules=[{"table": "{db}.orders", "off": True}])
    assert client.counts("/* sqlcache: ttl=5 */ SELECT v FROM orders", OFF) == 2


def test_a_session_switches_the_cache_off_for_itself(start: Start) -> None:
    client = start()
    other = client.other()
    assert client.is_cached("SELECT v FROM orders")
    for setting in ("@sqlcache = 'off'", "autocommit = 1, @`SQLcache` := 'off'"):
        client.run(f"SET {setting}")
        assert client.counts("SELECT v FROM orders", OFF) == 2, setting
        assert other.is_cached("SELECT v FROM orders")
        client.run("SET @sqlcache = NULL")
        assert client.is_cached("SELECT v FROM orders")
    client.run("SET @sqlcache = CONCAT('o', 'ff')")
    assert client.counts("SELECT v FROM orders", OFF) == 2
    assert client.run("SELECT @sqlcache") == (("off",),), "it is MySQL's own variable, too"


def test_a_sessions_words_end_with_it(start: Start) -> None:
    client = start()
    client.run("SET @sqlcache = 'off'")
    client.connection._execute_command(0x1F, b"")  # COM_RESET_CONNECTION
    assert client.connection._read_packet().is_ok_packet()
    assert client.run("SELECT @sqlcache") == ((None,),)
    assert client.is_cached("SELECT v FROM orders")


def test_a_session_may_allow_itself_staleness(start: Start) -> None:
    client, other = start(), start()
    client.run("SET @sqlcache = 'max_staleness_ms=60000'")
    read = "SELECT v FROM orders WHERE id = 1"
    assert client.is_cached(read)
    other.run("UPDATE orders SET v = 11")
    assert client.run(read) == ((10,),)
    assert client.other().run(read) == ((11,),)


def test_a_set_that_the_server_refuses_says_nothing(start: Start) -> None:
    client = start()
    with pytest.raises(Exception, match="nonsense"):
        client.run("SET @sqlcache = 'off', nonsense = 1")
    client.run("SELECT v FROM orders")
    assert client.is_cached("SELECT v FROM orders")


def test_sql_no_cache_is_heard(start: Start) -> None:
    client = start()
    assert client.counts("SELECT SQL_NO_CACHE v FROM orders", NOT_CACHEABLE) == 2


# --- declared routines ------------------------------------------------------------------------

PRICE = (
    "CREATE FUNCTION price(n INT) RETURNS INT READS SQL DATA RETURN (SELECT MAX(v) FROM items) * n"
)


@pytest.fixture
def routines(upstream: PrivateSqlServer, start: Start, schema: str) -> None:
    """`price` reads `items`, the procedure `pay` and the function `count_up` write `items`."""
    upstream.sql(PRICE, schema)
    upstream.sql("CREATE PROCEDURE pay(n INT) UPDATE items SET v = n", schema)
    upstream.sql(
        "CREATE FUNCTION count_up() RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
        " BEGIN UPDATE items SET v = v + 1; RETURN 1; END",
        schema,
    )
    upstream.sql("CREATE VIEW priced AS SELECT id, price(v) AS p FROM orders", schema)


DECLARED = [
    {"name": "{db}.price", "deterministic": True, "reads": ["{db}.items"]},
    {"name": "{db}.pay", "writes": ["{db}.items"]},
    {"name": "{db}.count_up", "writes": ["{db}.items"]},
]
ROOT_BUMPS = 'sqlcache_invalidations_total{kind="root"}'


@pytest.mark.usefixtures("routines")
def test_a_read_of_a_declared_function_is_cached_and_follows_what_that_reads(
    start: Start,
) -> None:
    client = start(routines=DECLARED)
    for read in (
        "SELECT price(v) FROM orders WHERE id = 1",
        "SELECT `PRICE`(v) FROM orders WHERE id = 1",
        "SELECT price(10)",
        "SELECT p FROM priced WHERE id = 1",
    ):
        client.run("UPDATE items SET v = 1")
        assert client.is_cached(read), read
        assert client.run(read) == ((10,),)
        client.run("UPDATE items SET v = 2")
        assert client.run(read) == ((20,),), read
    assert not client.is_cached("SELECT count_up(), v FROM orders")


@pytest.mark.usefixtures("routines")
def test_a_declared_function_sees_the_temporary_tables_of_its_session(start: Start) -> None:
    client = start(routines=DECLARED)
    others = client.other()
    reads = ("SELECT price(v) FROM orders WHERE id = 1", "SELECT p FROM priced WHERE id = 1")
    client.run("UPDATE items SET v = 1")
    client.run("CREATE TEMPORARY TABLE items (v INT)")
    client.run("INSERT INTO items VALUES (7)")
    for read in reads:
        assert client.run(read) == client.run(read) == ((70,),)
        assert others.run(read) == others.run(read) == ((10,),)
        assert client.run(read) == ((70,),)
    client.run("DROP TEMPORARY TABLE items")
    client.run("CREATE TEMPORARY TABLE unrelated (v INT)")
    for read in reads:
        assert client.run(read) == ((10,),)
    assert client.is_cached("SELECT v FROM items")


@pytest.mark.usefixtures("routines")
def test_a_read_of_a_function_that_is_not_declared_is_not_cached(start: Start) -> None:
    client = start(routines=DECLARED[1:])
    assert client.counts("SELECT price(v) FROM orders", NOT_CACHEABLE) == 2
    assert client.counts("SELECT p FROM priced", NOT_CACHEABLE) == 2


@pytest.mark.usefixtures("routines")
def test_a_new_definition_of_a_declared_function_is_seen(start: Start, schema: str) -> None:
    client = start(routines=DECLARED)
    read = "SELECT price(v) FROM orders WHERE id = 1"
    assert client.is_cached(read)
    client.run("DROP FUNCTION price")
    client.run(PRICE.replace("* n", "* n + 1"))
    assert client.run(read) == ((11,),)
    assert client.is_cached(read)


@pytest.mark.usefixtures("routines")
@pytest.mark.parametrize("write", ["CALL pay({})", "SELECT count_up()", "DO count_up()"])
def test_a_declared_routine_writes_what_it_is_declared_to_write_and_no_more(
    start: Start, write: str
) -> None:
    client = start(routines=DECLARED)
    for number in (5, 6):
        assert client.is_cached("SELECT v FROM items")
        assert client.is_cached("SELECT v FROM orders")
        assert client.counts(write.format(number), ROOT_BUMPS, times=1) == 0
        assert client.counts("SELECT v FROM orders", HITS, times=1) == 1
        fresh = client.run("/* sqlcache: off */ SELECT v FROM items")
        assert client.run("SELECT v FROM items") == fresh


@pytest.mark.usefixtures("routines")
def test_what_a_declared_procedure_wrote_in_a_transaction_is_seen_after_it(start: Start) -> None:
    client = start(routines=DECLARED)
    reader = client.other()
    assert reader.is_cached("SELECT v FROM items")
    client.run("BEGIN")
    client.run("CALL pay(77)")
    assert client.run("SELECT v FROM items") == ((77,),)
    reader.run("SELECT v FROM items")
    assert reader.is_cached("SELECT v FROM items")
    client.run("COMMIT")
    assert reader.run("SELECT v FROM items") == ((77,),)
