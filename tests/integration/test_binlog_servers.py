"""Servers whose binary log is written in other ways than by default: it is followed, table by
table, and nothing is forgotten that has not changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from sqlcache.demo.servers import (
    HOST,
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from tests.certificates import Authority
from tests.conftest import ProxyFactory
from tests.integration.test_binlog import FOLLOWS, Client, is_at_the_end, settled, until
from tests.servers import MySQLMissing, PrivateMySQL

KINDS: dict[str, type[PrivateSqlServer]] = {"mariadb": PrivateMariaDB, "mysql": PrivateMySQL}
OPTIONS = {
    "images of what changed alone": ("--binlog-row-image=MINIMAL",),
    "no checksums": ("--binlog-checksum=NONE",),
    "small events": ("--binlog-row-event-max-size=256", "--max-binlog-size=4096"),
    "a multi-byte character set": ("--character-set-server=sjis",),
}
OF_MARIADB = {
    "compressed": ("--log-bin-compress=ON", "--log-bin-compress-min-len=10"),
    "encrypted": (
        *("--plugin-load-add=file_key_management", "--encrypt-binlog=ON"),
        "--file-key-management-filename={keys}",
    ),
}
OF_MYSQL = {
    "compressed": ("--binlog-transaction-compression=ON",),
    "parts of JSON": ("--binlog-row-value-options=PARTIAL_JSON", "--binlog-row-image=MINIMAL"),
    "semi-synchronous": (
        *("--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-enabled=ON"),
        "--rpl-semi-sync-source-timeout=300",
    ),
}
CASES = [
    (kind, name, options)
    for kind, own in (("mariadb", OF_MARIADB), ("mysql", OF_MYSQL))
    for name, options in (OPTIONS | own).items()
]
TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, v INT, b LONGTEXT CHARACTER SET utf8mb4);
CREATE TABLE `säle` (id INT PRIMARY KEY, v INT);
CREATE TABLE j (id INT PRIMARY KEY, d JSON);
CREATE TABLE other (id INT PRIMARY KEY, v INT);
INSERT INTO t VALUES (1, 1, ''), (2, 2, '');
INSERT INTO `säle` VALUES (1, 1);
INSERT INTO j VALUES (1, '{"a": 1, "b": "bbbbbbbbbbbbbbbbbbbbbbbbbbb"}');
INSERT INTO other VALUES (1, 1);
"""
CHANGES = [
    ("SELECT id, v FROM t", "UPDATE t SET v = v + 10 WHERE id = 1"),
    ("SELECT LENGTH(b) FROM t", "UPDATE t SET b = REPEAT('ü', 200000) WHERE id = 2"),
    ("SELECT * FROM `säle`", "UPDATE `säle` SET v = 7"),
    ("SELECT d FROM j", "UPDATE j SET d = JSON_SET(d, '$.a', 2)"),
    ("SELECT id, v FROM t", "SET SESSION binlog_format = STATEMENT; UPDATE t SET v = v + 1"),
    ("SELECT id FROM t", "DELETE FROM t WHERE id = 2"),
]
DEFINITION = ("SELECT * FROM `säle`", "ALTER TABLE `säle` ADD COLUMN größe INT DEFAULT 5")
"""Which ends the answers of all the schema's tables."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., PrivateSqlServer]]:
    """`server(kind, options)` starts one; several at once where it is called again."""
    with ExitStack() as stack:

        def start(kind: str, options: tuple[str, ...]) -> PrivateSqlServer:
            folder = tmp_path / f"{kind}-{len(list(tmp_path.iterdir()))}"
            try:
                made = KINDS[kind](folder, options)
            except MySQLMissing as missing:
                pytest.skip(str(missing))
            return stack.enter_context(made)

        yield start


@pytest.mark.parametrize(
    ("kind", "options"),
    [pytest.param(kind, options, id=f"{kind}, {name}") for kind, name, options in CASES],
)
def test_it_is_followed_table_by_table(
    kind: str,
    options: tuple[str, ...],
    server: Callable[..., PrivateSqlServer],
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(f"1;{'0123456789abcdef' * 2}\n")
    upstream = server(kind, tuple(option.format(keys=keys) for option in options))
    sees_changes(proxy(upstream, memcached, **FOLLOWS), upstream, upstream)


def sees_changes(
    served: PrivateSqlcache, upstream: PrivateSqlServer, writes_to: PrivateSqlServer
) -> None:
    """Each change is seen, and has forgotten nothing but what hangs on its table."""
    writes_to.sql("CREATE DATABASE shop CHARACTER SET utf8mb4")
    until(lambda: settled(served, upstream), 20)
    writes_to.sql(f"SET NAMES utf8mb4; {TABLES}", "shop")
    until(lambda: upstream.sql("SHOW DATABASES LIKE 'shop'") != (), 20)
    until(lambda: upstream.sql("SHOW TABLES FROM shop LIKE 'other'") != (), 20)
    until(lambda: upstream.sql("SELECT * FROM shop.other") != (), 20)
    client = Client(served, upstream, "shop")
    until(lambda: client.read("SELECT * FROM other") == ((1, 1),), 20)
    until(lambda: is_at_the_end(served, upstream), 20)
    client.cache("SELECT * FROM other")
    roots, gaps = client.roots, client.count("sqlcache_binlog_gaps_total")
    for read, change in [*CHANGES, DEFINITION]:
        if (read, change) == DEFINITION:
            hits = client.count("sqlcache_hits_total")
            client.read("SELECT * FROM other")
            assert client.count("sqlcache_hits_total") == hits + 1
        before = client.cache(read)
        writes_to.sql(f"SET NAMES utf8mb4; {change}", "shop")
        until(lambda read=read, before=before: client.read(read) != before, 20)  # type: ignore[misc]
    assert client.roots == roots
    assert client.count("sqlcache_binlog_gaps_total") == gaps == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_is_begun_anew_is_followed_on_at_once(
    kind: str,
    server: Callable[..., PrivateSqlServer],
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
) -> None:
    """Also by who has followed it from its end until then; who may not read it waits longer."""
    upstream = server(kind, ())
    upstream.sql("CREATE DATABASE shop; CREATE TABLE shop.t (v INT); INSERT INTO shop.t VALUES (1)")
    served = proxy(upstream, memcached, **FOLLOWS)
    until(lambda: settled(served, upstream), 20)
    client = Client(served, upstream, "shop")
    client.cache("SELECT v FROM t")
    upstream.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS")
    until(lambda: is_at_the_end(served, upstream), 20)
    upstream.sql("RESET BINARY LOGS AND GTIDS" if kind == "mysql" else "RESET MASTER")
    upstream.sql("UPDATE shop.t SET v = 2")
    until(lambda: client.read("SELECT v FROM t") == ((2,),), 20)
    until(lambda: is_at_the_end(served, upstream), 20)
    assert client.count("sqlcache_binlog_turns_total") == 1
    assert client.count("sqlcache_binlog_gaps_total") == 2


def test_a_compressed_transaction_stalls_nobody(
    server: Callable[..., PrivateSqlServer], memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    """However small it has become: it is of very many events."""
    small = "--binlog-row-event-max-size=256"
    room = "--innodb-redo-log-capacity=512M"  # else half of its time is for making room there
    upstream = server("mysql", ("--binlog-transaction-compression=ON", small, room))
    upstream.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a CHAR(200), b CHAR(200))")
    upstream.sql("INSERT INTO shop.t VALUES (REPEAT('x', 200), REPEAT('x', 200))")
    for _ in range(12):
        upstream.sql("INSERT INTO shop.t SELECT * FROM shop.t")
    served = proxy(upstream, memcached, **FOLLOWS)
    until(lambda: settled(served, upstream), 20)
    client = Client(served, upstream, "shop")
    rows = "SELECT t.* FROM shop.t, (SELECT 1 FROM shop.t LIMIT 100) AS n LIMIT 409600"

    def late_looks() -> float:
        """How often the loop was late by more than 0.5 s while it followed one."""
        client.cache("SELECT COUNT(*) FROM t")
        before = served.metrics()
        ((number,),) = upstream.sql("SELECT COUNT(*) FROM shop.t")
        upstream.sql(f"INSERT INTO shop.t {rows}")
        until(lambda: client.read("SELECT COUNT(*) FROM t") == ((number + 409_600,),), 60)
        until(lambda: is_at_the_end(served, upstream), 20)
        after = served.metrics()
        name = "sqlcache_binlog_events_total"
        assert after[name] > before[name] + 400_000
        looks, short = (
            after[name] - before[name]
            for name in (
                "sqlcache_loop_lag_seconds_count",
                'sqlcache_loop_lag_seconds_bucket{le="0.5"}',
            )
        )
        assert looks > 0
        return looks - short

    # The machine may keep the process from its core during some; the code would stall in each.
    assert any(late_looks() == 0 for _ in range(8))


def test_a_commit_that_takes_long_is_seen_beside_one_of_which_the_server_does_not_say(
    server: Callable[..., PrivateSqlServer], memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    """They are read at once, as they were logged."""
    upstream = server("mysql", ("--plugin-load-add=semisync_source.so",))
    for table in ("t", "u"):
        upstream.sql(f"CREATE DATABASE IF NOT EXISTS shop; CREATE TABLE shop.{table} (v INT)")
        upstream.sql(f"INSERT INTO shop.{table} VALUES (1)")
    served = proxy(upstream, memcached, **FOLLOWS)
    until(lambda: settled(served, upstream), 20)
    until(lambda: is_at_the_end(served, upstream), 20)
    client = Client(served, upstream, "shop")
    client.cache("SELECT v FROM t")
    upstream.sql(
        "SET GLOBAL rpl_semi_sync_source_timeout = 5000;"
        "SET GLOBAL rpl_semi_sync_source_enabled = ON"
    )
    writes = [
        Thread(target=upstream.sql, args=(f"{tagged}UPDATE shop.{table} SET v = 2",))
        for table, tagged in (("t", ""), ("u", "SET gtid_next = 'AUTOMATIC:tagged';"))
    ]
    served.freeze()
    try:
        for write in writes:
            write.start()
        until(lambda: str(upstream.sql("SHOW BINLOG EVENTS")).count("Update_rows") == 2)
    finally:
        served.thaw()
    while any(write.is_alive() for write in writes):
        assert client.read("SELECT v FROM t") in (((1,),), ((2,),))
    until(lambda: client.read("SELECT v FROM t") == ((2,),), 5)


def test_commits_that_were_logged_before_it_was_followed_are_seen_when_they_are_done(
    server: Callable[..., PrivateSqlServer], memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    upstream = server("mysql", ("--plugin-load-add=semisync_source.so",))
    upstream.sql("CREATE DATABASE shop")
    tables = {"t": "", "u": "SET gtid_next = 'AUTOMATIC:tagged';"}
    for table in tables:
        upstream.sql(f"CREATE TABLE shop.{table} (v INT); INSERT INTO shop.{table} VALUES (1)")
    upstream.sql(
        "SET GLOBAL rpl_semi_sync_source_timeout = 60000;"
        "SET GLOBAL rpl_semi_sync_source_enabled = ON"
    )
    writes = [
        Thread(target=upstream.sql, args=(f"{tagged}UPDATE shop.{table} SET v = 2",))
        for table, tagged in tables.items()
    ]
    for write in writes:
        write.start()
    until(lambda: str(upstream.sql("SHOW BINLOG EVENTS")).count("Update_rows") == 2)
    served = proxy(upstream, memcached, **FOLLOWS)
    until(lambda: settled(served, upstream), 20)
    client = Client(served, upstream, "shop")
    for table in tables:
        assert client.cache(f"SELECT v FROM {table}") == ((1,),)
    assert all(write.is_alive() for write in writes)
    upstream.sql("SET GLOBAL rpl_semi_sync_source_enabled = OFF")
    for table in tables:
        until(lambda table=table: client.read(f"SELECT v FROM {table}") == ((2,),), 5)  # type: ignore[misc]
    for write in writes:
        write.join()


@pytest.mark.parametrize(
    ("change", "tells"),
    [
        ("UPDATE t SET v = v + 1", True),
        ("UPDATE t SET v = v + 1; FLUSH BINARY LOGS", False),
        (
            "XA START 'x'; UPDATE t SET v = v + 1; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'",
            False,
        ),
    ],
)
def test_mariadbs_place_does_not_tell_of_all_commits_when_they_are_done(
    server: Callable[..., PrivateSqlServer],
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    change: str,
    tells: bool,
) -> None:
    """Those are told once more."""
    upstream = server("mariadb", ())
    upstream.sql("CREATE DATABASE shop; CREATE TABLE shop.t (v INT); INSERT INTO shop.t VALUES (1)")
    served = proxy(upstream, memcached, **FOLLOWS)
    until(lambda: settled(served, upstream), 20)
    client = Client(served, upstream, "shop")

    def bumps() -> float:
        return client.count("sqlcache_binlog_bumps_total")

    def told() -> float:
        """How often one change is."""
        old, before = client.cache("SELECT v FROM t"), bumps()
        served.freeze()
        try:
            upstream.sql(change, "shop")
        finally:
            served.thaw()
        until(lambda: client.read("SELECT v FROM t") != old, 20)
        if not tells:
            until(lambda: bumps() >= before + 2, 20)
        time.sleep(2.5)  # the second time is 1 s after the first, and what the server's word takes
        return bumps() - before

    if tells:  # but where the server is too busy to say in time that the commit can be seen
        assert [told() for _ in range(5)].count(1) >= 3
    else:
        assert told() == 2


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_followed_in_tls(
    kind: str,
    server: Callable[..., PrivateSqlServer],
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    authority = Authority(folder)
    made = authority.issue("mysql", f"IP:{HOST}")
    options = (f"--ssl-cert={made.certificate}", f"--ssl-key={made.key}")
    upstream = server(kind, (*options, f"--ssl-ca={authority.certificate}"))
    account = f"{upstream.service_user}@'%'"
    upstream.sql(f"ALTER USER {account} REQUIRE SSL")
    tls = {"upstream__tls": "verify-identity", "upstream__tls_ca": str(authority.certificate)}
    sees_changes(proxy(upstream, memcached, **FOLLOWS, **tls), upstream, upstream)


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_logs_what_it_gets_is_followed(
    kind: str,
    server: Callable[..., PrivateSqlServer],
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
) -> None:
    source = server(kind, ())
    replica = server(kind, ("--server-id=2", "--log-slave-updates=ON"))
    replicate(source, replica)
    sees_changes(proxy(replica, memcached, **FOLLOWS), replica, source)


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_does_not_is_warned_of(
    kind: str,
    server: Callable[..., PrivateSqlServer],
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
) -> None:
    """Also where it becomes one only now."""
    replica = server(kind, ("--server-id=2", "--log-slave-updates=OFF"))
    served = proxy(replica, memcached, **FOLLOWS)
    until(lambda: settled(served, replica), 20)
    replicate(server(kind, ()), replica)
    until(lambda: "_updates = OFF" in served.readiness()["warnings"].get("binlog", ""), 20)


def replicate(source: PrivateSqlServer, replica: PrivateSqlServer) -> None:
    """Has one follow the other from now on."""
    login = {"user": source.user, "password": source.password}
    if source.name == "mysqld":
        file, position, *_ = source.sql("SHOW BINARY LOG STATUS")[0]
        replica.sql(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{HOST}', SOURCE_PORT = {source.port},"
            f" SOURCE_USER = '{login['user']}', SOURCE_PASSWORD = '{login['password']}',"
            f" SOURCE_LOG_FILE = '{file}', SOURCE_LOG_POS = {position}, GET_SOURCE_PUBLIC_KEY = 1;"
            "START REPLICA"
        )
    else:
        file, position, *_ = source.sql("SHOW MASTER STATUS")[0]
        replica.sql(
            f"CHANGE MASTER TO MASTER_HOST = '{HOST}', MASTER_PORT = {source.port},"
            f" MASTER_USER = '{login['user']}', MASTER_PASSWORD = '{login['password']}',"
            f" MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position}; START SLAVE"
        )
