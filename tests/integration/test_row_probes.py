"""Writes whose text does not tell what rows they touch by each column: MySQL is asked meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from statistics import median

import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.integration.test_rows import (
    BY_ID,
    BY_K,
    READS,
    SETTINGS,
    VALUES,
    any_write,
    is_hit,
    leaves,
    reads_told_apart,
    tell_apart,
    warm,
)
from tests.integration.test_two_proxies import Session, counter, in_thread, run, session
from tests.servers import PATIENT

pytestmark = pytest.mark.skipif(
    not PATIENT["proxy__straight_path"], reason="what is written the long way forgets all"
)

DEADLINE_S = 3.0
"""A log counts when it was known for that long."""
OTHERS_WERE_FASTER = (1020, 1205, 1213)
DUPLICATE, NO_SAVEPOINT = 1062, 1305
TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, k TINYINT, v INT NOT NULL DEFAULT 0,"
    " s VARCHAR(10) INVISIBLE, KEY (k), KEY (s))"
)
ROWS = (
    "INSERT INTO t (id, k, s) VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 1, 'a'), (4, 2, 'b'),"
    " (5, 1, 'c'), (6, 3, 'd')"
)


@pytest.fixture
def pair(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> tuple[PrivateSqlcache, PrivateSqlcache]:
    settings = {**SETTINGS, "cache__write_deadline_s": DEADLINE_S}
    return proxy(upstream, memcached, **settings), proxy(upstream, memcached, **settings)


@pytest.fixture
def account(upstream: PrivateSqlServer, schema: str) -> dict[str, str]:
    return {"user": upstream.user, "password": upstream.password, "database": schema}


@pytest.fixture
def reader(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str]
) -> Iterator[Session]:
    """One that reads through the first; there is a table, whose answers are told apart by its id
    and by k."""
    with reads_told_apart(pair, account, f"{TABLE}; {ROWS}") as reader:
        yield reader


@pytest.fixture
def writer(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str], reader: Session
) -> Iterator[Session]:
    """One that writes through the second, which has known the table's log for long."""
    with session(pair[1], account) as writer:
        for read in (BY_ID, BY_K):
            run(writer, read.format(1))
        time.sleep(DEADLINE_S + 0.1)

        def is_asked() -> bool:
            told = _told(pair[1])
            run(writer, "UPDATE t SET v = 0 WHERE id = 1")
            return _told(pair[1]) > told

        wait_until(is_asked, 20, "MySQL is asked")
        yield writer


def _told(server: PrivateSqlcache) -> float:
    return server.metrics().get('sqlcache_probes_total{outcome="told"}', 0)


def _asked(server: PrivateSqlcache) -> float:
    """How often it wanted to ask, told or not: a busy host may take too long to answer."""
    names = ("told", "failed", "late", "refused")
    metrics = server.metrics()
    return sum(metrics.get(f'sqlcache_probes_total{{outcome="{name}"}}', 0) for name in names)


MOVES = [
    ("UPDATE t SET v = v + 1 WHERE id = 2", (2,)),
    ("UPDATE t SET v = v + 1 WHERE id IN (2, 6)", (2, 3)),
    ("UPDATE t SET k = 3, v = v + 1 WHERE id = 2", (2, 3)),
    ("UPDATE t SET k = 3 WHERE s = 'b'", (2, 3)),
    ("UPDATE t SET v = v + 1 WHERE s = 'b' AND id < 3", (2,)),
    ("DELETE FROM t WHERE id = 2", (2,)),
    ("REPLACE INTO t (id, k) VALUES (2, 3)", (2, 3)),
    ("INSERT INTO t (id, k) VALUES (2, 3) ON DUPLICATE KEY UPDATE v = v + 1", (2, 3)),
    ("BEGIN; UPDATE t SET k = 3 WHERE id = 2; UPDATE t SET v = v + 1 WHERE id = 4; COMMIT", (2, 3)),
    ("BEGIN; UPDATE t SET k = 3 WHERE id = 2; DELETE FROM t WHERE id = 2; COMMIT", (2, 3)),
]


def test_a_write_leaves_answers_by_columns_it_does_not_tell(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    reader: Session,
    writer: Session,
    schema: str,
) -> None:
    def are_left(write: str, touched: tuple[int, ...]) -> bool:
        run(writer, f"DELETE FROM t; {ROWS}")
        for k in (1, 2, 3):
            warm(pair[0], reader, BY_K.format(k))
        for statement in write.split("; "):
            run(writer, statement)
        hits = [is_hit(pair[0], reader, BY_K.format(k)) for k in (1, 2, 3)]
        assert not any(hits[k - 1] for k in touched), write
        return all(hits[k - 1] for k in {1, 2, 3}.difference(touched))

    for write, touched in MOVES:
        wait_until(partial(are_left, write, touched), 60, f"{write}, which leaves others")
        for k in (1, 2, 3):
            assert run(reader, BY_K.format(k)) == upstream.sql(BY_K.format(k), schema)


def test_what_moves_to_where_nobody_can_tell_forgets_all(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    for write in (
        "UPDATE t SET k = k + 1 WHERE id = 6",
        "UPDATE t SET v = v + 1 WHERE id + 0 = 6",
        "UPDATE t SET v = v + 1",
    ):
        warm(pair[0], reader, BY_K.format(1))
        run(writer, write)
        assert not is_hit(pair[0], reader, BY_K.format(1))


def test_a_log_that_is_new_may_lack_the_fences_of_others(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    memcached: PrivateMemcached,
    reader: Session,
    writer: Session,
) -> None:
    write = partial(run, writer, "UPDATE t SET v = v + 1 WHERE id = 2")
    leaves(pair[0], reader, BY_K.format(1), write)
    memcached.flush()
    flushed_at = time.monotonic()
    tell_apart(pair[0], writer, reader, BY_K)
    warm(pair[0], reader, BY_K.format(1))
    told = _told(pair[1])
    write()
    if time.monotonic() - flushed_at < DEADLINE_S:  # else the host is busy
        assert _told(pair[1]) == told
        assert not is_hit(pair[0], reader, BY_K.format(1))
    leaves(pair[0], reader, BY_K.format(1), write)


def test_nor_does_what_is_told_of_a_transactions_rows_count_in_such_a_log(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    memcached: PrivateMemcached,
    reader: Session,
    writer: Session,
) -> None:
    """Another, whose fence was lost, may have moved a row before, and not be through yet."""

    def is_told() -> bool:
        warm(pair[0], reader, BY_K.format(1))
        told = _told(pair[1])
        run(writer, "START TRANSACTION READ WRITE")
        run(writer, "UPDATE t SET v = v + 1 WHERE id = 2")
        time.sleep(0.05)
        was_told = _told(pair[1]) > told
        run(writer, "COMMIT")
        return was_told

    def leaves_others() -> bool:
        return is_told() and is_hit(pair[0], reader, BY_K.format(1))

    wait_until(leaves_others, 20, "a transaction that leaves others")
    memcached.flush()
    flushed_at = time.monotonic()
    tell_apart(pair[0], writer, reader, BY_K)
    wait_until(is_told, 20, "what MySQL tells of a transaction's rows")
    is_left = is_hit(pair[0], reader, BY_K.format(1))
    if time.monotonic() - flushed_at < DEADLINE_S:  # else the host is busy
        assert not is_left
    wait_until(leaves_others, 20, "a transaction that leaves others in a log that is known")


def test_who_has_locked_the_table_waits_for_nothing(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    took_s: dict[str, list[float]] = {"to be asked": [], "told": []}
    run(writer, "LOCK TABLES t WRITE")
    for number in range(150):
        k = 1 + number % 3
        for kind, write in (
            ("to be asked", f"UPDATE t SET k = {k} WHERE id = 2"),
            ("told", f"UPDATE t SET v = v + 1 WHERE id = 2 AND k = {k}"),
        ):
            began = time.monotonic()
            run(writer, write)
            took_s[kind].append(time.monotonic() - began)
    run(writer, "UNLOCK TABLES")
    asked_s, told_s = map(median, took_s.values())
    assert asked_s < told_s + 0.0125, "each would have waited 0.025 s for an answer"
    leaves(pair[0], reader, BY_K.format(1), partial(run, writer, "UPDATE t SET v = 7 WHERE id = 2"))


def test_whatever_is_written_no_answer_is_out_of_date(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    schema: str,
    account: dict[str, str],
    reader: Session,
    writer: Session,
    seed: int,
) -> None:
    """Two write by turns, both through the second, and one has a transaction open meanwhile."""
    chance = random.Random(seed)
    reads = (*READS, "SELECT id FROM t WHERE s = 's{}' ORDER BY id")
    writes: tuple[Callable[[], str], ...] = (
        partial(any_write, chance),
        lambda: f"UPDATE t SET s = 's{chance.randrange(4)}' WHERE id = {chance.randrange(8)}",
        lambda: f"DELETE FROM t WHERE s = 's{chance.randrange(4)}'",
        lambda: f"UPDATE t SET v = v + 1 WHERE s = 's{chance.randrange(4)}'",
    )
    asked = _asked(pair[1])
    with closing(upstream.connect(database=schema)) as direct, session(pair[0], account) as other:
        for _ in range(40):
            write = [chance.choice(writes)()]
            if chance.random() < 0.4:
                ends = chance.choice(("COMMIT", "COMMIT", "ROLLBACK"))
                write = ["BEGIN", *write, chance.choice(writes)(), chance.choice(writes)(), ends]
            for statement in write:
                run(chance.choice((writer,) if len(write) > 1 else (writer, other)), statement)
            for read in chance.sample(reads, 5):
                for value in VALUES:
                    text = read.format(value)
                    assert run(reader, text) == run(direct, text), (write, text)
            run(direct, "COMMIT")
    assert counter(pair[0], "hits") > 100
    assert _asked(pair[1]) > asked


def test_writes_side_by_side_leave_no_answer_out_of_date(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    schema: str,
    account: dict[str, str],
    reader: Session,
    writer: Session,
) -> None:
    """Several move the same rows at once, through both, and others read meanwhile."""
    by_s = "SELECT id FROM t WHERE s = 's{}' ORDER BY id"
    reads = [read.format(value) for read in (BY_ID, BY_K, by_s) for value in range(4)]
    over = threading.Event()
    told = _told(pair[1])
    with ExitStack() as stack:
        direct = stack.enter_context(closing(upstream.connect(database=schema, autocommit=True)))
        writers = [stack.enter_context(session(pair[n > 0], account)) for n in range(4)]
        checkers = [stack.enter_context(session(each, account)) for each in pair]
        for number, each in enumerate(pair):
            readers = stack.enter_context(session(each, account))
            in_thread(partial(_read_on, readers, reads, random.Random(number), over))
        stack.callback(over.set)
        until = time.monotonic() + 5
        while time.monotonic() < until or _told(pair[1]) == told:
            chances = [random.Random(random.random()) for _ in writers]
            for thread in [
                in_thread(partial(_move_rows, each, chance))
                for each, chance in zip(writers, chances, strict=True)
            ]:
                thread.join(60)
            for asked in reads:
                right = run(direct, asked)
                assert [run(each, asked) for each in checkers] == [right, right], asked


def _read_on(
    reader: Session, reads: list[str], chance: random.Random, over: threading.Event
) -> None:
    with suppress(pymysql.err.Error):  # its session may end first
        while not over.is_set():
            run(reader, chance.choice(reads))


def _move_rows(writer: Session, chance: random.Random) -> None:
    level = chance.choice(("REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED", "SERIALIZABLE"))
    run(writer, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    run(writer, "SET SESSION innodb_lock_wait_timeout = 2")
    run(writer, f"SET autocommit = {chance.choice((0, 1, 1))}")
    for _ in range(6):
        for statement in _moving_together(chance):
            try:
                run(writer, statement)
            except (pymysql.err.IntegrityError, pymysql.err.OperationalError) as error:
                if error.args[0] in OTHERS_WERE_FASTER:
                    run(writer, "ROLLBACK")
                elif error.args[0] not in (DUPLICATE, NO_SAVEPOINT):
                    raise
    run(writer, "COMMIT")


def _moving_together(chance: random.Random) -> list[str]:
    writes = [_moving(chance) for _ in range(chance.choice((1, 1, 2, 3, 4)))]
    if len(writes) == 1:
        return writes
    begins = chance.choice(("BEGIN", "BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT"))
    if chance.random() < 0.3:
        writes.insert(
            chance.randrange(len(writes)),
            f"SELECT k FROM t WHERE id = {chance.randrange(4)} FOR UPDATE",
        )
    if chance.random() < 0.4:
        at = chance.randrange(len(writes))
        writes.insert(at, "SAVEPOINT a")
        writes.insert(chance.randrange(at + 1, len(writes) + 1), "ROLLBACK TO SAVEPOINT a")
    ends = chance.choice(
        ("COMMIT", "COMMIT", "COMMIT AND CHAIN", "BEGIN", "ROLLBACK", "SET autocommit = 1")
    )
    return [begins, *writes, ends]


def _moving(chance: random.Random) -> str:
    id, k, s, to_id, to_k, to_s = (chance.randrange(4) for _ in range(6))
    found = chance.choice((f"id = {id}", f"id = {id}", f"k = {k}", f"s = 's{s}'"))
    new = f"({id}, {k}, 's{s}')"
    insert = f"INTO t (id, k, s) VALUES {new}"
    return chance.choice(
        (
            f"UPDATE t SET v = v + 1 WHERE {found}",
            f"UPDATE t SET k = {to_k} WHERE {found}",
            f"UPDATE t SET id = {to_id} WHERE {found}",
            f"UPDATE IGNORE t SET id = {to_id}, k = {to_k} WHERE {found}",
            f"UPDATE t SET k = {to_k} WHERE {found} ORDER BY v, id LIMIT 1",
            f"UPDATE t SET s = 's{to_s}', v = v + 1 WHERE {found}",
            f"UPDATE t SET k = {to_k}, s = 's{to_s}' WHERE {found}",
            f"UPDATE t SET k = {to_k} WHERE {found} AND s = 's{s}'",
            f"DELETE FROM t WHERE {found}",
            f"DELETE FROM t WHERE {found} ORDER BY v, id LIMIT 1",
            f"REPLACE {insert}",
            f"REPLACE {insert}, ({to_id}, {to_k}, 's{to_s}')",
            f"INSERT {insert}",
            f"INSERT IGNORE {insert}",
            f"INSERT {insert} ON DUPLICATE KEY UPDATE v = v + 1",
            f"INSERT {insert}, ({to_id}, {to_k}, 's{to_s}') ON DUPLICATE KEY UPDATE k = {to_k}",
            f"INSERT {insert} ON DUPLICATE KEY UPDATE k = VALUES(k), s = VALUES(s)",
        )
    )
