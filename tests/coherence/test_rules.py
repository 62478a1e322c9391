"""What rules allow: answers that are behind by so much, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pymysql
import pytest
from pymysql.constants import ER

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    wait_until,
)
from tests.coherence.sessions import Connect, Session, ask, count, make_slow_table, run, running
from tests.servers import PATIENT


class Ruled(PrivateSqlcache):
    """sqlcache with `[[rules]]`: one for each table, as TOML."""

    rules: dict[str, str]

    def command(self) -> list[str]:
        command = super().command()
        with (self.folder / "sqlcache.toml").open("a") as file:
            for table, rule in self.rules.items():
                file.write(f'[[rules]]\ntable = "{table}"\n{rule}\n')
        return command


@pytest.fixture
def start_ruled(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, schema: str, tmp_path: Path
) -> Iterator[Callable[..., list[Ruled]]]:
    """`start_ruled(slow="ttl_s = 10")` starts two proxies with rules for tables of the schema."""
    with ExitStack() as stack:

        def start(*, near: bool = True, **rules: str) -> list[Ruled]:
            started = []
            for number in range(2):
                folder = tmp_path / f"ruled-{number}"
                settings = {**PATIENT, "upstream__catalog_refresh_s": 3600}
                if not near:
                    settings["cache__near_bytes"] = 0
                server = Ruled(folder, mariadb.service_url, (memcached.address,), **settings)
                server.rules = {f"{schema}.{table}": rule for table, rule in rules.items()}
                started.append(stack.enter_context(server))
            return started

        yield start


StartRuled = Callable[..., list[Ruled]]


def test_max_staleness_lets_an_answer_be_so_much_behind_and_no_more(
    mariadb: PrivateMariaDB, schema: str, start_ruled: StartRuled, connect: Connect
) -> None:
    for table in ("lax", "strict"):
        mariadb.sql(f"CREATE TABLE {table} (v INT); INSERT INTO {table} VALUES (0)", schema)
    allowed_s = 3.0
    writer, reader = map(connect, start_ruled(lax=f"max_staleness_ms = {allowed_s * 1000:.0f}"))
    queries = {table: f"SELECT v FROM {table}" for table in ("lax", "strict")}
    seen = time.monotonic()
    for sql in queries.values():
        assert [ask(reader, sql) for _ in range(2)] == [0, 0]
    for table in queries:
        run(writer, f"UPDATE {table} SET v = 1")
    written = time.monotonic()
    assert ask(reader, queries["strict"]) == 1
    behind = ask(reader, queries["lax"]) == 0
    assert behind or time.monotonic() - seen > allowed_s

    def is_new() -> bool:
        began = time.monotonic()
        new = bool(ask(reader, queries["lax"]) == 1)
        assert new or began - written < allowed_s
        return new

    wait_until(is_new, 10, "the new answer")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("REVOKE SELECT ON {schema}.lax FROM clerk", ER.TABLEACCESS_DENIED_ERROR),
        ("DROP USER clerk", ER.TABLEACCESS_DENIED_ERROR),
        ("DROP TABLE {schema}.lax", ER.NO_SUCH_TABLE),
    ],
)
def test_none_lets_rights_and_definitions_be_behind(
    mariadb: PrivateMariaDB,
    schema: str,
    start_ruled: StartRuled,
    connect: Connect,
    statement: str,
    error: int,
) -> None:
    mariadb.sql("CREATE TABLE lax (v INT); INSERT INTO lax VALUES (0)", schema)
    mariadb.sql("CREATE OR REPLACE USER clerk IDENTIFIED BY 'clerk'")
    mariadb.sql(f"GRANT SELECT ON {schema}.lax TO clerk")
    first, second = start_ruled(lax="max_staleness_ms = 60000")
    query = f"SELECT v FROM {schema}.lax"
    with closing(first.connect(user="clerk", password="clerk")) as clerk:
        assert [ask(clerk, query) for _ in range(3)] == [0, 0, 0]
        run(connect(second), statement.format(schema=schema))
        with pytest.raises(pymysql.MySQLError) as refused:
            ask(clerk, query)
    assert refused.value.args[0] == error
    mariadb.sql("DROP USER IF EXISTS clerk")


def test_stale_while_revalidate_gives_others_the_last_answer_meanwhile(
    mariadb: PrivateMariaDB, schema: str, start_ruled: StartRuled, connect: Connect
) -> None:
    """On the same proxy as the one that fetches, and on another. A lock holds up the one."""
    mariadb.sql("CREATE TABLE slow (v INT NOT NULL); INSERT INTO slow VALUES (1)", schema)
    sql = "SELECT MAX(v) FROM slow"
    servers = start_ruled(slow="stale_while_revalidate_s = 60")
    fetcher, writer, same = (connect(servers[0]) for _ in range(3))
    others = [same, connect(servers[1])]
    old = ask(fetcher, sql)
    assert [ask(connection, sql) for connection in others] == [old, old]
    run(writer, "INSERT INTO slow VALUES (1000)")
    with ThreadPoolExecutor(1) as pool, closing(mariadb.connect(database=schema)) as locker:
        run(locker, "LOCK TABLES slow WRITE")
        fetching = pool.submit(ask, fetcher, sql)
        wait_until(lambda: running(mariadb, sql) == 1, 20, "the query")
        answers = [ask(connection, sql) for connection in others]
        assert not fetching.done()
        run(locker, "UNLOCK TABLES")
        new = fetching.result()
    assert answers == [old, old]
    assert new > old
    assert [count(server, "stale_serves") for server in servers] == [1, 1]
    assert [ask(connection, sql) for connection in others] == [new, new]


def test_stale_while_revalidate_gives_no_older_answer_than_it_says(
    mariadb: PrivateMariaDB, schema: str, start_ruled: StartRuled, connect: Connect
) -> None:
    """A lock holds up who fetches."""
    mariadb.sql("CREATE TABLE slow (v INT NOT NULL); INSERT INTO slow VALUES (1)", schema)
    sql = "SELECT MAX(v) FROM slow"
    servers = start_ruled(slow="stale_while_revalidate_s = 1")
    fetcher, other = map(connect, servers)
    old = ask(fetcher, sql)
    time.sleep(2.1)  # the age of the answer is what is tested; memcached counts whole seconds
    run(other, "INSERT INTO slow VALUES (1000)")
    with ThreadPoolExecutor(2) as pool, closing(mariadb.connect(database=schema)) as locker:
        run(locker, "LOCK TABLES slow WRITE")
        try:
            fetching = pool.submit(ask, fetcher, sql)
            wait_until(lambda: running(mariadb, sql) == 1, 20, "the query")
            asking = pool.submit(ask, other, sql)
            wait_until(
                lambda: asking.done() or count(servers[1], "lease_waits") == 1, 20, "the other"
            )
        finally:
            run(locker, "UNLOCK TABLES")
        assert asking.result() > old
        assert fetching.result() > old


def entries(node: PrivateMemcached) -> list[bytes]:
    """The keys of the answers on a node."""
    listed = node.ask(b"lru_crawler metadump all\r\n", b"END\r\n").split()
    keys = [unquote_to_bytes(word[4:]) for word in listed if word.startswith(b"key=")]
    return [key for key in keys if key.startswith(b"sqlcache:e")]


def test_the_end_of_a_ttl_is_no_cliff(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    start_ruled: StartRuled,
    connect: Connect,
) -> None:
    """One client fetches a hot answer anew before its end, and the others never wait. So that the
    end is near at once, and yet not over while the machine is busy, the answer is made old."""
    ttl_s, left_s, clients, each = 200, 15, 6, 50
    sql = make_slow_table(mariadb, schema, 30)
    servers = start_ruled(near=False, slow=f"ttl_s = {ttl_s}")
    sessions = [connect(servers[number % 2]) for number in range(clients)]
    ask(sessions[0], sql)
    wait_until(lambda: len(entries(memcached)) == 1, 20, "the entry")
    for key in entries(memcached):
        assert memcached.ask(b"mg %b T%d\r\n" % (key, left_s), b"\r\n") == b"HD\r\n"
    before = mariadb.status("Com_select")

    def read(session: Session) -> None:
        for _ in range(each):
            ask(session, sql)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(read, sessions))
    reads = clients * each
    assert mariadb.status("Com_select") - before == 1
    assert sum(count(server, "early_refreshes") for server in servers) == 1
    assert sum(count(server, "hits") for server in servers) == reads - 1
    assert sum(count(server, "lease_waits") for server in servers) == 0
