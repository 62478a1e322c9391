"""The binary log: how soon what is written around sqlcache is seen, what it costs to follow it, and
what that takes of the hits of those who write through sqlcache.

- Delays: from a write's OK to the end of the first read through the proxy that shows it, while
  others read through the same proxy as fast as they can.
- The follower, `sqlcache invalidate`, starts behind a log that was written while nobody followed
  it: what it takes until it has caught up is what it can follow, on a core of its own.
- Hits of one workload, by proxies with and without the log, in turns.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any, NamedTuple

import aiomysql

from sqlcache.demo.servers import (
    HOST,
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from tests.bench.pace import Pace
from tests.bench.programs import Generator, Target, compiled
from tests.bench.results import Figures, Row
from tests.servers import PATIENT, Invalidating, MySQLMissing, PrivateMySQL

PART = "binlog"
DELAY, FOLLOWER, HITS = "delay", "follower", "hits"
MARIADB, MYSQL = "MariaDB", "MySQL"
OFF, AUTO, UNTOLD = "off", "auto", "auto, and nothing tells of commits"
"""Ways to follow the log: the last where the server is as it comes."""
READERS = 8
SERVERS: dict[str, type[PrivateSqlServer]] = {MARIADB: PrivateMariaDB, MYSQL: PrivateMySQL}
_SCHEMA = "bench"
_TELLS_COMMITS = (
    "--session-track-system-variables=autocommit,character_set_client,character_set_connection,"
    "character_set_results,time_zone,last_gtid",
)
_SEEN_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.02
_BEGUN_S = 4.0
_ROW_EVENTS = 100_000  # which takes some seconds to follow


class Change(NamedTuple):
    """A write around sqlcache: the statements of turn `n`, of which the last is timed, and the read
    that shows it. `before` makes it one that is seen alone."""

    name: str
    read: str
    statements: Sequence[str]
    before: Sequence[str] = ()


CHANGES = (
    Change("rows", "SELECT v FROM t WHERE id = 1", ["UPDATE t SET v = {n} WHERE id = 1"]),
    Change(
        "several tables",
        "SELECT v FROM u WHERE id = 1",
        ["UPDATE t JOIN u USING (id) SET t.v = {n}, u.v = {n} WHERE t.id = 1"],
    ),
    Change(
        "a transaction",
        "SELECT t.v, u.v FROM t JOIN u USING (id) WHERE id = 1",
        ["BEGIN", *(f"UPDATE {name} SET v = {{n}} WHERE id = 1" for name in "tu"), "COMMIT"],
    ),
    Change("ALTER TABLE", "SELECT * FROM d", ["ALTER TABLE d RENAME COLUMN v{n} TO v{next}"]),
    Change("RENAME TABLE", "SELECT v FROM a", ["RENAME TABLE a TO x, b TO a, x TO b"]),
    Change(
        "a view",
        "SELECT * FROM w",
        ["CREATE OR REPLACE VIEW w AS SELECT {n} AS number, id FROM t"],
    ),
    Change("a trigger", "SELECT v FROM m WHERE id = 1", ["UPDATE f SET v = {n} WHERE id = 1"]),
    Change("a foreign key", "SELECT * FROM c", ["UPDATE p SET id = {n} WHERE id <> 0"]),
    Change("TRUNCATE", "SELECT COUNT(*) FROM e", ["TRUNCATE e"], ["INSERT INTO e VALUES ({n})"]),
    Change(
        "XA COMMIT",
        "SELECT v FROM t WHERE id = 2",
        [
            *("XA START 'x{n}'", "UPDATE t SET v = {n} WHERE id = 2", "XA END 'x{n}'"),
            *("XA PREPARE 'x{n}'", "XA COMMIT 'x{n}'"),
        ],
    ),
    Change(
        "a statement",
        "SELECT v FROM t WHERE id = 3",
        ["SET SESSION binlog_format = STATEMENT", "UPDATE t SET v = {n} WHERE id = 3"],
    ),
    Change("MyISAM", "SELECT v FROM y WHERE id = 1", ["UPDATE y SET v = {n} WHERE id = 1"]),
)
_TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0), (2, 0), (3, 0);
CREATE TABLE u LIKE t; INSERT INTO u SELECT * FROM t;
CREATE TABLE d (id INT PRIMARY KEY, v1 INT);
CREATE TABLE a LIKE t; INSERT INTO a VALUES (1, 1);
CREATE TABLE b LIKE t; INSERT INTO b VALUES (1, 2);
CREATE TABLE m LIKE t; INSERT INTO m SELECT * FROM t;
CREATE TABLE f LIKE t; INSERT INTO f SELECT * FROM t;
CREATE TRIGGER follow AFTER UPDATE ON f FOR EACH ROW UPDATE m SET v = NEW.v WHERE id = NEW.id;
CREATE TABLE p (id INT PRIMARY KEY); INSERT INTO p VALUES (1000000);
CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE);
INSERT INTO c VALUES (1000000);
CREATE TABLE e (id INT PRIMARY KEY);
CREATE TABLE y (id INT PRIMARY KEY, v INT) ENGINE = MyISAM; INSERT INTO y VALUES (1, 0);
CREATE VIEW w AS SELECT 0 AS number, id FROM t;
CREATE TABLE r (id INT PRIMARY KEY, v INT); INSERT INTO r VALUES (1, 0), (2, 0), (3, 0), (4, 0);
CREATE TABLE s (id INT AUTO_INCREMENT PRIMARY KEY, v INT);
CREATE TABLE l (id INT AUTO_INCREMENT PRIMARY KEY, v CHAR(119));
CREATE PROCEDURE small(IN many INT, IN each_time INT) BEGIN
    DECLARE done, of_this INT DEFAULT 0;
    WHILE done < many DO
        SET of_this = 0;
        START TRANSACTION;
        WHILE of_this < each_time DO
            INSERT INTO s (v) VALUES (done);
            SET of_this = of_this + 1;
        END WHILE;
        COMMIT;
        SET done = done + each_time;
    END WHILE;
END;
"""


def delay(change: Change) -> str:
    """The name of its row."""
    return f"{DELAY}, {change.name}"


class Work(NamedTuple):
    """What is written while nobody follows the log: so many transactions, of so many events of rows
    each; 0 where that is the server's to decide."""

    name: str
    statements: Sequence[str]
    transactions: int
    row_events: int


_TEN = (
    "(SELECT 0 n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION"
)
_TEN += " ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
MILLION = "1 transaction of 1,000,000 rows"


def works(row_events: int) -> list[Work]:
    """So many events of rows in transactions of one and of a hundred; and one large transaction."""
    joined = " JOIN ".join(f"{_TEN} d{at}" for at in range(6))
    large = f"INSERT INTO l (v) SELECT REPEAT('x', 119) FROM {joined}"
    return [
        Work("transactions of 1 row", [f"CALL small({row_events}, 1)"], row_events, row_events),
        Work(
            "transactions of 100 statements",
            [f"CALL small({row_events}, 100)"],
            row_events // 100,
            row_events,
        ),
        Work(MILLION, [large], 1, 0),
    ]


def measure(folder: Path, pace: Pace) -> list[Row]:
    """Each kind of server by itself, where it is to be had."""
    rows: list[Row] = []
    for name, kind in SERVERS.items():
        if any(pace.wants(PART, each) for each in (DELAY, FOLLOWER)):
            try:
                server = kind(folder / name)
            except MySQLMissing:
                continue
            with server:
                server.sql(f"CREATE DATABASE {_SCHEMA}")
                create(server)
                rows += _delays(server, name, folder / f"{name}-delays", pace)
                rows += _follower(server, name, folder / f"{name}-follower", pace)
    if pace.wants(PART, HITS):
        rows += _hits(folder / "hits", pace)
    return rows


def create(server: PrivateSqlServer) -> None:
    """Makes the tables."""
    with closing(server.connect(database=_SCHEMA)) as connection:
        head, procedure = _TABLES.split("CREATE PROCEDURE")
        for statement in (*head.split(";")[:-1], f"CREATE PROCEDURE{procedure.rstrip()[:-1]}"):
            connection.query(statement)


# Delays.


def _delays(server: PrivateSqlServer, name: str, folder: Path, pace: Pace) -> list[Row]:
    wanted = [each for each in CHANGES if pace.wants(PART, delay(each))]
    rows = {each.name: Row(PART, delay(each), name, READERS) for each in wanted}
    if not wanted:
        return []
    number = 0
    with (
        PrivateMemcached(folder / "memcached") as node,
        PrivateSqlcache(
            folder / "sqlcache", server.service_url, (node.address,), **_following("on")
        ) as proxy,
        _reading(server, proxy),
        closing(server.connect(database=_SCHEMA)) as direct,
        closing(
            proxy.connect(user=server.user, password=server.password, database=_SCHEMA)
        ) as through,
    ):
        _until_followed(proxy)
        for turn in range(1, pace.passes + 1):
            for change in wanted:
                pace.say(PART, turn, pace.passes, f"{change.name}, {name}")
                took = []
                for _ in range(pace.calls // 20):
                    number += 1
                    took.append(delay_s(change, number, direct, through))
                rows[change.name].repeats.append(_of_delays(took))
    return list(rows.values())


def _of_delays(took: list[float]) -> Figures:
    took = sorted(took)
    return {
        "p50_ms": 1e3 * median(took),
        "p99_ms": 1e3 * took[int(0.99 * (len(took) - 1))],
        "longest_ms": 1e3 * took[-1],
    }


def delay_s(change: Change, number: int, direct: Any, through: Any) -> float:
    """How long after the write's OK a read through the proxy had shown it. Raises: TimeoutError."""
    column = _column(direct) if "v{n}" in change.statements[0] else number
    told = {"n": column, "next": column + 1}
    for statement in change.before:
        direct.query(statement.format(**told))
    if change.before:
        _until_shown(change.read, _answer(direct, change.read), through)
    before = _answer(through, change.read)
    _answer(through, change.read)  # from the cache now, if not before
    for statement in change.statements[:-1]:
        direct.query(statement.format(**told))
    direct.query(change.statements[-1].format(**told))
    began = perf_counter()
    if "binlog_format" in change.statements[0]:
        direct.query("SET SESSION binlog_format = ROW")
    after = _answer(direct, change.read)
    assert after != before, f"{change.name} changed nothing"
    _until_shown(change.read, after, through)
    return perf_counter() - began


def _column(direct: Any) -> int:
    """The number in the name of the column that is renamed again and again."""
    names, _ = _answer(direct, "SELECT * FROM d")
    return int(names[1][1:])


def _until_shown(read: str, wanted: Any, through: Any) -> None:
    end = perf_counter() + _SEEN_WITHIN_S
    while _answer(through, read) != wanted:
        if perf_counter() > end:
            raise TimeoutError(f"{read} shows it not within {_SEEN_WITHIN_S:g} s")


def _answer(connection: Any, query: str) -> tuple[list[str], tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return [each[0] for each in cursor.description], tuple(cursor.fetchall())


@contextmanager
def _reading(server: PrivateSqlServer, proxy: PrivateSqlcache) -> Iterator[None]:
    """Meanwhile others read through the proxy, from a process of their own."""
    login = {"user": server.user, "password": server.password, "db": _SCHEMA, "port": proxy.port}
    spawn = multiprocessing.get_context("spawn")
    reader = spawn.Process(target=_read_for_ever, args=(login,), daemon=True)
    reader.start()
    try:
        yield
        assert reader.is_alive(), "nothing was read meanwhile"
    finally:
        reader.kill()
        reader.join()


def _read_for_ever(login: dict[str, Any]) -> None:
    async def read(number: int) -> None:
        connection = await aiomysql.connect(host=HOST, autocommit=True, **login)
        while True:
            async with connection.cursor() as cursor:
                await cursor.execute(f"SELECT v FROM r WHERE id = {1 + number % 4}")
                await cursor.fetchall()

    async def read_all() -> None:
        await asyncio.gather(*map(read, range(READERS)))

    asyncio.run(read_all())


# The follower.


def _until_followed(process: PrivateSqlcache) -> None:
    """Returns when it follows the log, has forgotten what there was, and told the nodes where it
    is: for MySQL's beginning that is a second later, and everything forgotten once more."""
    end = monotonic() + _SEEN_WITHIN_S
    while not process.metrics()["sqlcache_binlog_following"] or process.readiness()["warnings"]:
        if monotonic() > end:
            raise TimeoutError("nobody follows the log")
        sleep(_LOOK_EVERY_S)
    sleep(_BEGUN_S)


def _follower(server: PrivateSqlServer, name: str, folder: Path, pace: Pace) -> list[Row]:
    wanted = [each for each in works(_ROW_EVENTS) if pace.wants(PART, f"{FOLLOWER}, {each.name}")]
    rows = {each.name: Row(PART, f"{FOLLOWER}, {each.name}", name, 1) for each in wanted}
    for turn in range(1, pace.sysbench_passes + 1):
        for work in wanted:
            pace.say(PART, turn, pace.sysbench_passes, f"{work.name}, {name}")
            with PrivateMemcached(folder / "memcached") as node:
                process = Invalidating(
                    folder / "invalidate", server.service_url, (node.address,), **PATIENT
                )
                with process:
                    _until_followed(process)
                idle = _started(process)
                with closing(server.connect(database=_SCHEMA)) as direct:
                    for statement in work.statements:
                        direct.query(statement)
                rows[work.name].repeats.append(_caught_up(idle, _started(process), work))
    return list(rows.values())


class _Start(NamedTuple):
    """What a start took, which ends when the log has been followed to its end."""

    took_s: float
    cpu_s: float
    peak_bytes: int
    told: dict[str, float]


def _started(process: Invalidating) -> _Start:
    began = perf_counter()
    with process:
        took_s = perf_counter() - began
        return _Start(took_s, process.cpu_s(), _peak_bytes(process.pid), process.metrics())


def _caught_up(idle: _Start, behind: _Start, work: Work) -> Figures:
    """What it took to catch up, by a start with nothing to be followed and one behind the work."""
    took_s, told = behind.took_s - idle.took_s, behind.told
    assert told["sqlcache_binlog_transactions_total"] >= work.transactions, "it is ready too early"
    assert told["sqlcache_binlog_gaps_total"] == 0, "it knew where to go on"
    events = told["sqlcache_binlog_events_total"]
    return {
        "events_rate": events / took_s,
        "row_events_rate": work.row_events / took_s,
        "event_cpu_us": 1e6 * (behind.cpu_s - idle.cpu_s) / events,
        "bytes_rate": told["sqlcache_binlog_bytes_total"] / took_s,
        "more_bytes": behind.peak_bytes - idle.peak_bytes,
        "took_s": took_s,
    }


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


# Hits.

_TABLES_READ = 15  # with the UPDATE as many statements as the generator takes


def _hits(folder: Path, pace: Pace) -> list[Row]:
    rows = {way: Row(PART, HITS, way, READERS) for way in (OFF, AUTO, UNTOLD)}
    with ExitStack() as stack:
        folder.mkdir(parents=True)
        generator = Generator(compiled("load", folder))
        tells = _with_tables(stack, PrivateMariaDB(folder / "tells", _TELLS_COMMITS))
        plain = _with_tables(stack, PrivateMariaDB(folder / "plain"))
        proxies = {
            OFF: _with_log(stack, folder / "off", tells, "off"),
            AUTO: _with_log(stack, folder / "auto", tells, "auto"),
            UNTOLD: _with_log(stack, folder / "untold", plain, "auto"),
        }
        for turn in range(1, pace.passes + 1):
            for way, proxy in proxies.items():
                pace.say(PART, turn, pace.passes, f"{HITS}, {way}")
                rows[way].repeats.append(_mixed(generator, proxy, 10 * pace.load_s))
    return list(rows.values())


def _with_tables(stack: ExitStack, mariadb: PrivateMariaDB) -> PrivateMariaDB:
    stack.enter_context(mariadb)
    mariadb.sql("CREATE DATABASE bench; CREATE USER bench@'%' IDENTIFIED BY 'bench'")
    mariadb.sql("GRANT ALL ON bench.* TO bench@'%'")
    for at in range(_TABLES_READ):
        mariadb.sql(f"CREATE TABLE t{at} (id INT PRIMARY KEY, v INT)", _SCHEMA)
        mariadb.sql(f"INSERT INTO t{at} SELECT seq, 0 FROM seq_1_to_100", _SCHEMA)
    return mariadb


def _following(follow: str) -> dict[str, Any]:
    return PATIENT | {"binlog__follow": follow}


def _with_log(
    stack: ExitStack, folder: Path, mariadb: PrivateMariaDB, follow: str
) -> PrivateSqlcache:
    node = stack.enter_context(PrivateMemcached(folder / "memcached"))
    proxy = PrivateSqlcache(
        *(folder / "sqlcache", mariadb.service_url, (node.address,)),
        **_following(follow),
    )
    stack.enter_context(proxy)
    if follow != OFF:
        _until_followed(proxy)
    return proxy


def _mixed(generator: Generator, proxy: PrivateSqlcache, seconds: float) -> Figures:
    """Reads of all tables, and then an UPDATE of one of them."""
    options = [f"--connections={READERS}", "--ids=10", "--first=1"]
    options += [f"--statement=SELECT v FROM t{at} WHERE id = {{id}}" for at in range(_TABLES_READ)]
    options += ["--statement=UPDATE t0 SET v = v + 1 WHERE id = {id}"]
    before = proxy.metrics()
    load = generator.run(Target(proxy.port), options, seconds, {"sqlcache": proxy.pid})
    after = proxy.metrics()
    hits, misses = (
        after[f"sqlcache_{name}_total"] - before[f"sqlcache_{name}_total"]
        for name in ("hits", "misses")
    )
    return {
        "hits_share": hits / (hits + misses),
        "rate": load.rate,
        "sqlcache_us": load.cpu_us["sqlcache"],
    }
