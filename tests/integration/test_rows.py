"""Writes to single rows: whose answers they forget, and whose not."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

import mysql.connector
import pymysql
import pytest

from sqlcache.demo.servers import (
    PrivateMemcached,
    PrivateServer,
    PrivateSqlcache,
    PrivateSqlServer,
    wait_until,
)
from tests.conftest import ProxyFactory
from tests.integration.test_two_proxies import Session, counter, run, session
from tests.servers import PATIENT

pytestmark = pytest.mark.skipif(
    not PATIENT["proxy__straight_path"], reason="what is written the long way forgets all"
)

DEADLINE_S = 1.0
"""Where a table's log was known for that long, a write forgets but a part of what is told apart."""
SETTINGS = {
    "cache__row_tags": True,
    "cache__write_deadline_s": DEADLINE_S,
    "upstream__catalog_refresh_s": 3600,
}
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, k TINYINT, v INT NOT NULL DEFAULT 0, KEY (k))"
ROWS = "INSERT INTO t (id, k) VALUES (1, 1), (2, 2), (3, 1), (4, 2), (5, 1)"
BY_ID, BY_K = "SELECT * FROM t WHERE id = {}", "SELECT id, v FROM t WHERE k = {} ORDER BY id"


@pytest.fixture
def pair(
    upstream: PrivateSqlServer, memcached: PrivateMemcached, proxy: ProxyFactory
) -> tuple[PrivateSqlcache, PrivateSqlcache]:
    return proxy(upstream, memcached, **SETTINGS), proxy(upstream, memcached, **SETTINGS)


@pytest.fixture
def account(upstream: PrivateSqlServer, schema: str) -> dict[str, str]:
    return {"user": upstream.user, "password": upstream.password, "database": schema}


@pytest.fixture
def reader(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str]
) -> Iterator[Session]:
    """One that reads through the first; there is a table, whose answers are told apart by both of
    its columns."""
    with reads_told_apart(pair, account, f"{TABLE}; {ROWS}") as reader:
        yield reader


@pytest.fixture
def writer(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str], reader: Session
) -> Iterator[Session]:
    """One that writes through the second, which knows of all that for long."""
    with session(pair[1], account) as writer:
        for read in (BY_ID, BY_K):
            run(writer, read.format(1))
        run(writer, "UPDATE t SET v = 0 WHERE id = 1")
        logs_are_known()
        run(writer, "UPDATE t SET v = 0 WHERE id = 1")
        yield writer


@contextmanager
def reads_told_apart(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str], made: str
) -> Iterator[Session]:
    """A session that reads through the first of a pair; what is `made` through the other has
    answers that are told apart there, by BY_ID and BY_K."""
    with session(pair[1], account) as owner, session(pair[0], account) as reader:
        run(owner, made)
        for read in (BY_ID, BY_K):
            tell_apart(pair[0], owner, reader, read)
        yield reader


def logs_are_known() -> None:
    """Returns when those that a process has seen by now are known to it for long."""
    time.sleep(DEADLINE_S + 0.1)


def tell_apart(
    server: PrivateSqlcache,
    owner: Session,
    reader: Session,
    read: str,
    table: str = "t",
    write: str = "UPDATE {table} SET v = v WHERE v > 100 OR v < 100",
) -> None:
    """Has answers of a shape forgotten in vain until they are told apart."""
    taken = counter(server, "slots_taken")

    def is_taken() -> bool:
        run(owner, write.format(table=table))
        run(reader, read.format(1))
        return counter(server, "slots_taken") > taken

    wait_until(is_taken, 20, "answers that are told apart")
    run(reader, read.format(1))


def is_hit(server: PrivateSqlcache, reader: Session, read: str) -> bool:
    before = counter(server, "hits")
    run(reader, read)
    return counter(server, "hits") > before


def warm(server: PrivateSqlcache, reader: Session, read: str) -> None:
    wait_until(lambda: is_hit(server, reader, read), 20, "a hit")


def leaves(
    server: PrivateSqlcache, reader: Session, read: str, write: Callable[[], object]
) -> None:
    """Returns when the read was a hit just after the write, as it is where the host is not busy."""

    def is_left() -> bool:
        warm(server, reader, read)
        write()
        return is_hit(server, reader, read)

    wait_until(is_left, 20, f"a write that leaves {read}")


def test_a_write_to_another_row_leaves_an_answer(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    write = partial(run, writer, "UPDATE t SET v = v + 1 WHERE id = 2 AND k = 2")
    listed = "SELECT id, v FROM t WHERE id IN ({}, 3) ORDER BY id"
    nowhere = "SELECT id FROM t WHERE k IS NULL"
    for read in (BY_ID.format(1), BY_K.format(1), listed.format(1), nowhere):
        leaves(pair[0], reader, read, write)
    for read in (BY_ID.format(2), BY_K.format(2), listed.format(2), nowhere):
        warm(pair[0], reader, read)
    run(writer, "UPDATE t SET v = 77 WHERE id = 2 AND k = 2")
    assert run(reader, BY_ID.format(2)) == ((2, 2, 77),)
    assert run(reader, BY_K.format(2)) == ((2, 77), (4, 0))
    assert run(reader, listed.format(2)) == ((2, 77), (3, 0))
    run(writer, "INSERT INTO t (id, k) VALUES (6, NULL)")
    assert run(reader, nowhere) == ((6,),)
    assert pair[1].metrics()['sqlcache_row_writes_total{covered="rows"}'] > 0


@pytest.mark.parametrize(
    ("read", "write"),
    [
        (
            "SELECT v FROM `2024_t` WHERE id = 5",
            "UPDATE {}.2024_t SET v = 77 WHERE id = 5 LIMIT 9",
        ),
        (
            "SELECT v FROM `2024_t` WHERE id = 5",
            "REPLACE {}.2024_t (id, v) VALUES ( 5, 77)",
        ),
        (
            "SELECT v FROM `2024_t` WHERE `1d` = 5",
            "UPDATE `2024_t` t SET v = 77 WHERE t.1d = 5 LIMIT 9",
        ),
    ],
)
def test_names_that_begin_with_a_digit_are_no_values(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    reader: Session,
    writer: Session,
    schema: str,
    read: str,
    write: str,
) -> None:
    run(writer, "CREATE TABLE 2024_t (id INT PRIMARY KEY, 1d INT, k INT, v INT, KEY (1d))")
    run(writer, "INSERT INTO 2024_t SELECT id, id, k, v FROM t")
    read, write = read.format(schema), write.format(schema)
    tell_apart(pair[0], writer, reader, read.replace(" 5", " {}"), "2024_t")
    run(writer, write.replace(" 5", " 3"))
    logs_are_known()
    run(writer, write.replace(" 5", " 2"))
    warm(pair[0], reader, read)
    assert run(reader, read) == ((0,),)
    run(writer, write)
    assert run(reader, read) == ((77,),)


def test_a_key_of_several_columns_tells_rows_apart(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    """By all of them together, also where writes name them by another key."""
    run(
        writer,
        "CREATE TABLE parts (tenant INT, name VARCHAR(9), id INT, v INT DEFAULT 0,"
        " PRIMARY KEY (tenant, name), KEY (id)) CHARACTER SET utf8mb4",
    )
    run(writer, "INSERT INTO parts (tenant, name, id) VALUES (1, '1', 1), (1, '2', 2), (2, '1', 3)")
    read = "SELECT id, v FROM parts WHERE tenant = 1 AND name = '{}'"
    tell_apart(pair[0], writer, reader, read, "parts")
    run(writer, read.format(1))
    logs_are_known()
    run(writer, "UPDATE parts SET v = 0 WHERE tenant = 1 AND name = '2'")
    nine = ", ".join(f"({number}, 'n{number}', 9)" for number in range(1, 10))
    for write in (
        "UPDATE parts SET v = v + 1 WHERE tenant = 1 AND name = '2'",
        "UPDATE parts SET v = v + 1 WHERE name = '1' AND tenant = 2",
        "UPDATE parts SET v = v + 1 WHERE id = 2",
        "INSERT IGNORE INTO parts (tenant, name, id) VALUES (1, 'x', 9), (1, 'y', 9)",
        f"INSERT IGNORE INTO parts (tenant, name, id) VALUES {nine}",
        f"INSERT INTO parts (tenant, name, id) VALUES {nine} ON DUPLICATE KEY UPDATE v = v + 1",
        f"REPLACE INTO parts (tenant, name, id) VALUES {nine}",
        "INSERT INTO parts (tenant, name, id) VALUES (1, '2', 2) ON DUPLICATE KEY UPDATE v = v + 1",
        "REPLACE INTO parts (tenant, name, id) VALUES (1, 'x', 9)",
        "DELETE FROM parts WHERE tenant = 1 AND name = 'x'",
        "DELETE FROM parts WHERE id = 9",
    ):
        leaves(pair[0], reader, read.format(1), partial(run, writer, write))
    moves = (
        ("UPDATE parts SET name = 'Z' WHERE tenant = 1 AND name = '1'", "1", ()),
        ("UPDATE parts SET tenant = 2 WHERE tenant = 1 AND name = 'z'", "z", ()),
        ("UPDATE parts SET tenant = 1, name = '1' WHERE id = 1", "1", ((1, 0),)),
        ("REPLACE INTO parts (tenant, name, id) VALUES (1, '1', 7)", "1", ((7, 0),)),
        ("DELETE FROM parts WHERE id = 7", "1", ()),
        ("INSERT INTO parts (id, name, tenant) VALUES (1, 1, 1)", "1", ((1, 0),)),
    )
    for write, name, rows in moves:
        warm(pair[0], reader, read.format(name))
        run(writer, write)
        assert run(reader, read.format(name)) == rows, write


def test_a_row_that_the_server_numbers_leaves_the_answers_of_another_tenant(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    """Also where its number is but a part of its key, whatever that is."""
    run(
        writer,
        "CREATE TABLE numbered (tenant INT, id INT AUTO_INCREMENT, v INT DEFAULT 0,"
        " PRIMARY KEY (tenant, id), KEY (id))",
    )
    run(writer, "INSERT INTO numbered (tenant) VALUES (1), (2)")
    read = "SELECT id, v FROM numbered WHERE tenant = 1 AND id = {}"
    tell_apart(pair[0], writer, reader, read, "numbered")
    insert = "INSERT INTO numbered (tenant) VALUES ({})"
    run(writer, insert.format(2))
    logs_are_known()
    leaves(pair[0], reader, read.format(1), partial(run, writer, insert.format(2)))
    ((last,),) = run(writer, "SELECT MAX(id) FROM numbered")
    warm(pair[0], reader, read.format(last + 1))
    run(writer, insert.format(1))
    assert run(reader, read.format(last + 1)) == ((last + 1, 0),)


def test_a_write_that_no_foreign_key_follows_leaves_the_answers_from_other_rows(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    run(
        writer,
        "CREATE TABLE child (id INT PRIMARY KEY, t INT,"
        " FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE);"
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    )
    children = "SELECT * FROM child"
    for write in ("UPDATE t SET v = v + 1 WHERE id = 2", "REPLACE INTO child VALUES (2, 2)"):
        leaves(pair[0], reader, BY_ID.format(1), partial(run, writer, write))
    for read in (children, BY_ID.format(2)):
        warm(pair[0], reader, read)
    run(writer, "DELETE FROM t WHERE id = 2")
    assert run(reader, children) == ((1, 1),)
    assert run(reader, BY_ID.format(2)) == ()


def test_a_row_that_goes_with_another_is_forgotten_with_it(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    """Of the same table, by a foreign key into itself."""
    run(
        writer,
        "ALTER TABLE t MODIFY k INT, ADD FOREIGN KEY (k) REFERENCES t (id) ON DELETE CASCADE",
    )
    write = partial(run, writer, "UPDATE t SET v = v + 1 WHERE id = 2")
    leaves(pair[0], reader, BY_ID.format(5), write)
    for read in (BY_ID.format(4), BY_ID.format(5)):
        warm(pair[0], reader, read)
    run(writer, "DELETE FROM t WHERE id = 2")
    assert run(reader, BY_ID.format(4)) == ()
    assert run(reader, BY_ID.format(5)) == ((5, 1, 0),)


def test_a_transaction_leaves_the_answers_from_rows_it_did_not_touch(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    run(writer, "CREATE TABLE u (id INT PRIMARY KEY, v INT); INSERT INTO u VALUES (1, 1)")

    def write(*statements: str) -> None:
        for statement in ("BEGIN", *statements, "COMMIT"):
            run(writer, statement)

    update, other = "UPDATE t SET v = v + 1 WHERE id = {}", "UPDATE u SET v = v + 1"
    touching = partial(write, update.format(2), update.format(3), other)
    leaves(pair[0], reader, BY_ID.format(1), touching)
    for read in (BY_ID.format(2), BY_ID.format(3), "SELECT * FROM u"):
        warm(pair[0], reader, read)
        touching()
        assert not is_hit(pair[0], reader, read)
    warm(pair[0], reader, BY_ID.format(1))
    write(update.format(2), "UPDATE t SET v = v + 1 WHERE k = 2")
    assert not is_hit(pair[0], reader, BY_ID.format(1))


@pytest.mark.parametrize(
    "write",
    [
        "SET autocommit = 0; UPDATE t SET v = v + 1 WHERE id = 2; COMMIT",
        "BEGIN; UPDATE t SET v = v WHERE id = 2; DELETE FROM t WHERE id = 9; COMMIT",
        "BEGIN; INSERT IGNORE INTO t (id, k) VALUES (2, 2); COMMIT",
    ],
)
def test_it_does_so_also_where_it_begins_with_that_or_changes_nothing(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session, write: str
) -> None:
    def carried_out() -> None:
        for statement in write.split("; "):
            run(writer, statement)

    leaves(pair[0], reader, BY_ID.format(1), carried_out)


def test_a_write_that_does_not_tell_a_column_forgets_all_answers_by_it(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    write = partial(run, writer, "UPDATE t SET k = 3 - k WHERE id = 2")
    leaves(pair[0], reader, BY_ID.format(1), write)
    for _ in range(3):
        warm(pair[0], reader, BY_K.format(1))
        write()
        assert not is_hit(pair[0], reader, BY_K.format(1))


def test_an_insert_of_many_rows_leaves_answers_by_what_fewer_of_them_have(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    first = itertools.count(1_000, 100)

    def write() -> int:
        number = next(first)
        rows = ", ".join(f"({number + each}, {3 + each % 30})" for each in range(40))
        run(writer, f"INSERT INTO t (id, k) VALUES {rows}")
        return number

    leaves(pair[0], reader, BY_K.format(1), write)
    coming = next(first) + 107
    for read in (BY_K.format(10), BY_ID.format(coming)):
        warm(pair[0], reader, read)
    assert write() + 7 == coming
    assert run(reader, BY_ID.format(coming)) == ((coming, 10, 0),)
    assert (coming, 0) in run(reader, BY_K.format(10))


def test_a_key_that_is_set_by_its_other_name_is_followed(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    read = BY_ID.format(9)
    leaves(pair[0], reader, read, partial(run, writer, "UPDATE t SET v = 4 WHERE id = 1"))
    for _ in range(4):
        run(writer, "UPDATE t SET _rowid = 1 WHERE id = 1")
        warm(pair[0], reader, read)
        run(writer, "UPDATE t SET _rowid = 9 WHERE id = 1")
        assert run(reader, read) == ((9, 1, 4),)
        run(writer, "UPDATE t SET id = 1 WHERE id = 9")
        assert run(reader, read) == ()


def test_rows_that_the_server_numbers_leave_the_answers_from_others(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    run(writer, "CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    insert, read = "INSERT INTO n (v) VALUES (7)", "SELECT * FROM n WHERE id = {}"
    run(writer, insert)
    taken = counter(pair[0], "slots_taken")

    def is_taken() -> bool:
        run(writer, "UPDATE n SET v = v + 1 WHERE v > 100")
        run(reader, read.format(1))
        return counter(pair[0], "slots_taken") > taken

    wait_until(is_taken, 20, "answers that are told apart")
    logs_are_known()
    leaves(pair[0], reader, read.format(1), partial(run, writer, insert))
    ((last,),) = run(writer, "SELECT MAX(id) FROM n")
    for id in (last + 1, last + 2):
        for _ in range(4):
            assert run(reader, read.format(id)) == ()
    listed = f"SELECT * FROM n WHERE id IN (1, {last + 1})"
    for _ in range(4):
        assert run(reader, listed) == ((1, 7),)
    for id in (last + 1, last + 2):
        run(writer, insert)
        assert run(reader, read.format(id)) == ((id, 7),)
    assert run(reader, listed) == ((1, 7), (last + 1, 7))


def test_an_aggregate_of_no_row_has_read_none_of_the_row_to_come(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    reader: Session,
    writer: Session,
) -> None:
    """It gives a row all the same."""
    insert = "INSERT INTO n (v, g) VALUES (7, ST_GEOMFROMTEXT('POINT(1 2)'))"
    run(writer, "CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT, g GEOMETRY)")
    run(writer, insert)
    one = "SELECT v FROM n WHERE id = {}"
    tell_apart(pair[0], writer, reader, one, "n")
    logs_are_known()
    leaves(pair[0], reader, one.format(1), partial(run, writer, insert))
    ((last,),) = run(writer, "SELECT MAX(id) FROM n")
    of_both = ["MAX(v)"] if upstream.name == "mariadbd" else ["MAX(v)", "ST_ASTEXT(ST_COLLECT(g))"]
    reads = [f"SELECT {what} FROM n WHERE id = {last + 1}" for what in of_both]
    for read in reads * 4:
        assert run(reader, read) == ((None,),)
    run(writer, insert)
    assert [run(reader, read)[0][0] is None for read in reads] == [False] * len(reads)


def test_the_number_that_the_server_gives_may_be_that_of_a_row_that_is_changed_then(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], reader: Session, writer: Session
) -> None:
    run(writer, "CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    run(writer, "INSERT INTO n VALUES (1, 1), (2, 2)")
    tell_apart(pair[0], writer, reader, "SELECT * FROM n WHERE id = {}", "n")
    read = "SELECT * FROM n WHERE id = 2"
    run(writer, read)
    logs_are_known()
    for times in range(1, 5):
        warm(pair[0], reader, read)
        run(writer, "SET insert_id = 2")
        run(writer, "INSERT INTO n (v) VALUES (0) ON DUPLICATE KEY UPDATE v = v + 100")
        assert run(reader, read) == ((2, 2 + 100 * times),)


def connections(
    stack: ExitStack, servers: Iterable[PrivateServer], account: dict[str, str]
) -> list[Any]:
    """One to each server, of a driver that prepares statements."""
    login: dict[str, Any] = {"host": "127.0.0.1", "autocommit": True, **account}
    return [
        stack.enter_context(closing(mysql.connector.connect(port=server.port, **login)))
        for server in servers
    ]


def prepares(stack: ExitStack, connection: Any) -> Any:
    """A cursor that does, each text once; one that is another object it prepares anew."""
    return stack.enter_context(closing(connection.cursor(prepared=True)))


NAMES = (
    "CREATE TABLE p (id INT PRIMARY KEY, name VARCHAR(9) CHARACTER SET utf8mb4, v INT)",
    "ALTER TABLE p MODIFY name VARCHAR(9) COLLATE utf8mb4_general_ci, ADD KEY (name)",
)
"""A table of strings."""


@pytest.mark.parametrize(("column", "one", "two"), [("id", 1, 2), ("name", "a-1", "B")])
def test_executions_of_prepared_statements_pin_their_parameters(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    reader: Session,
    writer: Session,
    column: str,
    one: Any,
    two: Any,
) -> None:
    for statement in NAMES:
        run(writer, statement)
    run(writer, "INSERT INTO p VALUES (1, 'a-1', 1), (2, 'b', 2)")
    tell_apart(pair[0], writer, reader, f"SELECT v FROM p WHERE {column} = '{{}}'", "p")
    logs_are_known()
    with ExitStack() as stack:
        reads, writes = (prepares(stack, each) for each in connections(stack, pair, account))
        query = f"SELECT id, v FROM p WHERE {column} = %s"
        update = f"UPDATE p SET v = %s WHERE {column} = %s"

        def read(key: Any) -> list[object]:
            reads.execute(query, (key,))
            return list(reads.fetchall())

        def write(key: Any, v: int) -> None:
            writes.execute(update, (v, key))

        def is_left() -> bool:
            read(one)
            write(two, 0)
            before = counter(pair[0], "hits")
            read(one)
            return counter(pair[0], "hits") > before

        wait_until(is_left, 20, "a write that leaves the answer")
        read(two)
        write(two, 8)
        assert read(two) == [(2, 8)]
        write(one, 9)
        assert read(one) == [(1, 9)]


@pytest.mark.parametrize("before", [0, 0.0, None, "0", b"0"], ids=repr)
def test_a_text_may_be_taken_for_what_was_executed_before(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    account: dict[str, str],
    reader: Session,
    writer: Session,
    before: Any,
) -> None:
    """As a number it is 0, and so are all others: MySQL reads and changes every row then."""
    for statement in NAMES:
        run(writer, statement)
    run(writer, "INSERT INTO p VALUES (1, 'a', 1), (2, 'b', 2)")
    read = "SELECT v FROM p WHERE name = '{}'"
    tell_apart(pair[0], writer, reader, read, "p")
    run(writer, "UPDATE p SET v = v WHERE v > 100 OR v < 100")
    logs_are_known()
    query, update = (
        "SELECT v FROM p WHERE name = %s",
        "UPDATE IGNORE p SET v = v + 1 WHERE name = %s",
    )
    with ExitStack() as stack:
        reads, writes, direct = (
            prepares(stack, each) for each in connections(stack, (*pair, upstream), account)
        )

        def rows(cursor: Any, name: Any) -> list[object]:
            cursor.execute(query, (name,))
            return list(cursor.fetchall())

        for name in (before, *3 * ("b", "a"), before, "b", "c", "b"):
            for _ in range(2):
                run(reader, read.format("a"))
                assert rows(reads, name) == rows(direct, name)
            writes.execute(update, (name,))
            assert run(reader, read.format("a")) == upstream.sql(
                read.format("a"), account["database"]
            )
            assert rows(reads, name) == rows(direct, name)


@pytest.mark.parametrize(
    ("read", "value"), [("name IS NULL", ()), ("name <=> ''", ()), ("name <=> %s", ("",))]
)
def test_an_empty_string_may_be_null(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    account: dict[str, str],
    reader: Session,
    writer: Session,
    read: str,
    value: tuple[str, ...],
) -> None:
    """Under one of MariaDB's sql_modes."""
    for statement in NAMES:
        run(writer, statement)
    run(writer, "INSERT INTO p VALUES (1, 'a', 1), (2, NULL, 2)")
    tell_apart(pair[0], writer, reader, "SELECT v FROM p WHERE name = '{}'", "p")
    run(writer, "SELECT v FROM p WHERE name = 'a'")
    logs_are_known()
    query = f"SELECT v FROM p WHERE {read} ORDER BY id"
    with ExitStack() as stack:
        opened = connections(stack, (*pair, upstream), account)
        reads, writes, direct = (prepares(stack, each) for each in opened)

        def rows(cursor: Any) -> list[object]:
            cursor.execute(query, value)
            return list(cursor.fetchall())

        for each in opened if upstream.name == "mariadbd" else ():
            with closing(each.cursor()) as cursor:
                cursor.execute("SET sql_mode = 'EMPTY_STRING_IS_NULL'")
        changes = (
            ("INSERT INTO p (id, name, v) VALUES ({}, '', 4)", ()),
            ("INSERT INTO p (id, name, v) VALUES (%s, %s, 5)", ("{}", "")),
            ("INSERT INTO p (id, name, v) VALUES ({}, NULL, 6)", ()),
            ("UPDATE p SET v = v + 10 WHERE name <=> ''", ()),
            ("UPDATE p SET v = v + 10 WHERE name <=> %s", ("",)),
            ("UPDATE p SET v = v + 10 WHERE name IS NULL", ()),
            ("UPDATE p SET v = v + 10 WHERE name <=> %s", (None,)),
            ("DELETE FROM p WHERE name <=> '' LIMIT 1", ()),
        )
        with closing(opened[1].cursor()) as texts:
            for number in range(3, 3 + 3 * len(changes)):
                write, values = changes[number % len(changes)]
                for _ in range(3):
                    assert rows(reads) == rows(direct)
                if values:
                    writes.execute(write, tuple(number if v == "{}" else v for v in values))
                else:
                    texts.execute(write.format(number))
                assert rows(reads) == rows(direct), write


WAYS_TO_MEAN_OTHERS = (
    ("SET character_set_client = binary", "SET character_set_connection = swe7"),
    ("SET character_set_client = swe7",),
    ("SET NAMES swe7",),
)


@pytest.mark.parametrize("changes", WAYS_TO_MEAN_OTHERS, ids=" ".join)
def test_bytes_of_other_character_sets_are_other_strings(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    account: dict[str, str],
    reader: Session,
    writer: Session,
    changes: tuple[str, ...],
) -> None:
    """In swe7 an @ is an É, which is an e under this collation."""
    for statement in NAMES:
        run(writer, statement)
    run(writer, "INSERT INTO p VALUES (1, 'cafe', 1), (2, 'other', 2)")
    read = "SELECT v FROM p WHERE name = '{}'"
    tell_apart(pair[0], writer, reader, read, "p")
    logs_are_known()
    query, change = "SELECT v FROM p WHERE name = %s", "UPDATE p SET v = v + 1 WHERE name = %s"
    with ExitStack() as stack:
        opened = connections(stack, (*pair, upstream), account)
        reads, writes, direct = (prepares(stack, each) for each in opened)
        for each in (reads, direct):
            each.execute(query, ("caf@",))
            each.fetchall()
        writes.execute(change, ("caf@",))
        for statement in changes:
            for each in opened:
                with closing(each.cursor()) as cursor:
                    cursor.execute(statement)
        for number in range(6):
            for _ in range(3):
                reads.execute(query, ("caf@",))
                reads.fetchall()
                run(reader, read.format("cafe"))
            if number % 2:
                run(writer, "UPDATE p SET v = v + 1 WHERE name = 'cafe'")
            else:
                writes.execute(change, ("caf@",))
            expected = upstream.sql(read.format("cafe"), account["database"])
            assert run(reader, read.format("cafe")) == expected
            for each in (reads, direct):
                each.execute(query, ("caf@",))
            assert reads.fetchall() == direct.fetchall()
        if "binary" in changes[0]:
            with session(pair[0], account) as odd:
                for statement in changes:
                    run(odd, statement)
                for _ in range(3):
                    for _ in range(3):
                        run(odd, read.format("caf@"))
                    run(writer, "UPDATE p SET v = v + 1 WHERE name = 'cafe'")
                    expected = upstream.sql(read.format("cafe"), account["database"])
                    assert run(odd, read.format("caf@")) == expected


@pytest.mark.parametrize(
    ("change", "prepares_before"),
    [
        ("SET character_set_connection = swe7", False),
        ("SET collation_connection = swe7_bin", False),
        ("SET character_set_client = binary, character_set_connection = swe7", True),
    ],
)
def test_literals_may_lose_a_character_on_their_way(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    account: dict[str, str],
    reader: Session,
    writer: Session,
    change: str,
    prepares_before: bool,
) -> None:
    """swe7 has no @: in UTF-8 it becomes a ?, and its own byte is an É. What that is in a prepared
    statement is decided when it is prepared."""
    for statement in NAMES:
        run(writer, statement)
    run(writer, "INSERT INTO p VALUES (1, 'caf?', 1), (2, 'cafe', 2), (3, 'other', 3)")
    by_id, by_name = "SELECT v FROM p WHERE id = {}", "SELECT v FROM p WHERE name = '{}'"
    for read in (by_id, by_name):
        tell_apart(pair[0], writer, reader, read, "p")
    run(writer, "UPDATE p SET v = v WHERE v > 100 OR v < 100")
    logs_are_known()
    reads = [*map(by_id.format, (1, 2, 3)), *map(by_name.format, ("caf?", "cafe", "other"))]
    with ExitStack() as stack:
        (connection,) = connections(stack, pair[1:], account)
        texts, writes = (
            stack.enter_context(closing(connection.cursor())),
            prepares(stack, connection),
        )
        texts.execute(change)
        update = "UPDATE p SET v = v + 1 WHERE name = 'caf@'"
        prepared = f"{update} AND v < %s"
        for _ in range(20):
            time.sleep(0.03)  # for MySQL to say which rows a write touches
            for read in 3 * reads:
                run(reader, read)
            if prepares_before:
                writes.execute(prepared, (100,))
                texts.execute("SET NAMES utf8mb4")
            else:
                texts.execute(update)
            for read in reads:
                assert run(reader, read) == upstream.sql(read, account["database"])


def test_what_a_prepared_querys_literals_are_was_decided_when_it_was_prepared(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    account: dict[str, str],
    reader: Session,
    writer: Session,
) -> None:
    """As a session that prepares one in swe7, where an @ is an É, and goes on in UTF-8."""
    for statement in NAMES:
        run(writer, statement)
    run(writer, "INSERT INTO p VALUES (1, 'cafe', 1), (2, 'other', 2)")
    tell_apart(pair[0], writer, reader, "SELECT v FROM p WHERE name = '{}'", "p")
    update = "UPDATE p SET v = v + 1 WHERE name = 'cafe'"
    run(writer, update)
    logs_are_known()
    query = "SELECT v FROM p WHERE name = 'caf@' AND id < %s"
    with ExitStack() as stack:
        opened = connections(stack, (pair[0], upstream), account)
        reads = [prepares(stack, each) for each in opened]

        def rows() -> list[list[object]]:
            for each in reads:
                each.execute(query, (9,))
            return [list(each.fetchall()) for each in reads]

        for settings in (
            "SET character_set_client = binary, character_set_connection = swe7",
            "SET NAMES utf8mb4",
        ):
            for each in opened:
                with closing(each.cursor()) as cursor:
                    cursor.execute(settings)
            for _ in range(8):
                for _ in range(3):
                    rows()
                run(writer, update)
                through, directly = rows()
                assert through == directly != []


WRITES = (
    "UPDATE t SET v = v + 1 WHERE id = {a}",
    "UPDATE t SET v = v + 1 WHERE id = '{a}'",
    "UPDATE t SET v = v + 1 WHERE id = {a}.0",
    "UPDATE t SET v = v + 1 WHERE {a} = id",
    "UPDATE t SET v = v + 1 WHERE k = {b}",
    "UPDATE t SET v = v + 1 WHERE id = {a} AND k = {b}",
    "UPDATE t SET v = v + 1 WHERE id = {a} OR k = {b}",
    "UPDATE t SET v = v + 1 WHERE NOT id = {a}",
    "UPDATE t SET v = v + 1 WHERE id > {a} AND k = {b} ORDER BY id LIMIT 1",
    "UPDATE t SET v = v + 1 WHERE v BETWEEN 0 AND id = {a}",
    "UPDATE t SET v = v + 1 WHERE id IN ({a}, {c})",
    "UPDATE t SET k = {b} WHERE id IN ('{a}', {c}) AND v < 100",
    "UPDATE t SET v = v + 1 WHERE id IN ({a}, {c}.0)",
    "UPDATE t SET v = v + 1 WHERE id NOT IN ({a}, {c})",
    "UPDATE t x SET x.k = {b} WHERE x.id = {a}",
    "UPDATE t SET k = {b} WHERE k = {c}",
    "UPDATE IGNORE t SET k = 300 WHERE id = {a}",
    "UPDATE t SET k = NULL WHERE id = {a}",
    "UPDATE t SET k = {b} WHERE k IS NULL",
    "UPDATE t SET v = v + 1 WHERE k <=> NULL LIMIT 1",
    "UPDATE IGNORE t SET id = {c} WHERE id = {a}",
    "UPDATE IGNORE t SET v = v + 1, id = id + 1 WHERE k = {b}",
    "DELETE FROM t WHERE id = {a}",
    "DELETE FROM t WHERE k = {b} LIMIT 1",
    "DELETE FROM t WHERE k IN ({b}, {c}, 9) LIMIT 1",
    "DELETE FROM t WHERE id = {a} AND k = {b}",
    "DELETE FROM t WHERE k IS NULL AND id = {a}",
    "INSERT IGNORE INTO t (id, k) VALUES ({a}, {b})",
    "INSERT IGNORE INTO t (id, k, v) VALUES ({a}, {b}, 3), ({c}, {b}, 4)",
    "INSERT IGNORE INTO t (k, id) VALUES ('{b}', '{a}')",
    "INSERT IGNORE INTO t (id, k) VALUES ({a}, 300)",
    "INSERT IGNORE INTO t (id, k) VALUES ({a}, NULL), ({c}, {b})",
    "INSERT IGNORE INTO t (id, k) VALUES (NULL, {b})",
    "REPLACE INTO t (id, k) VALUES ({a}, NULL)",
    "INSERT IGNORE INTO t VALUES ({a}, {b}, 1)",
    "INSERT IGNORE INTO t (id, k) SELECT {a}, {b}",
    "INSERT INTO t (id, k) VALUES ({a}, {b}) ON DUPLICATE KEY UPDATE v = v + 1, k = {c}",
    "REPLACE INTO t (id, k) VALUES ({a}, {b})",
    "INSERT IGNORE INTO t SET id = {a}, k = {b}",
    "BEGIN; UPDATE t SET v = v + 1 WHERE id = {a}; UPDATE t SET k = {b} WHERE id = {c}; COMMIT",
)
VALUES = range(-1, 8)
READS = (
    "SELECT * FROM t WHERE id = {}",
    "SELECT * FROM t WHERE id = '{}'",
    "SELECT id, v FROM t WHERE k = {} ORDER BY id",
    "SELECT COUNT(*), SUM(v) FROM t WHERE k = {}",
    "SELECT v FROM t WHERE id = {} AND k = 1",
    "SELECT id, v FROM t WHERE k IS NULL AND id > {} ORDER BY id",
    "SELECT COUNT(*) FROM t WHERE k <=> NULL AND id < {}",
    "SELECT v FROM t WHERE k = 2 AND id >= {} ORDER BY id",
    "SELECT v FROM t WHERE id > {} ORDER BY id",
    "SELECT * FROM t WHERE id IN ({}, 3) ORDER BY id",
    "SELECT * FROM t WHERE id IN (2, '{}', 2)",
    "SELECT COUNT(*) FROM t WHERE k IN ({}, 1)",
    "SELECT v FROM t WHERE k IN (1, 2) AND id = {}",
)


def any_write(chance: random.Random) -> str:
    a, b, c = chance.choices(VALUES, k=3)
    return chance.choice(WRITES).format(a=a, b=b, c=c)


def test_whatever_is_written_no_answer_is_out_of_date(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    schema: str,
    reader: Session,
    writer: Session,
    seed: int,
) -> None:
    chance = random.Random(seed)
    with closing(upstream.connect(database=schema)) as direct:
        for read in READS:
            for value in VALUES:
                run(reader, read.format(value))
        for _ in range(40):
            write = [any_write(chance)]
            if chance.random() < 0.4:
                ends = chance.choice(("COMMIT", "COMMIT", "ROLLBACK", "BEGIN"))
                write = ["BEGIN", *write, any_write(chance), any_write(chance), ends]
            for statement in write:
                run(writer, statement)
            for read in chance.sample(READS, 5):
                for value in VALUES:
                    asked = read.format(value)
                    assert run(reader, asked) == run(direct, asked), (write, asked)
            run(direct, "COMMIT")
    assert counter(pair[0], "hits") > 100


PAGES = """
CREATE TABLE c (id INT AUTO_INCREMENT PRIMARY KEY, k TINYINT, title VARCHAR(20),
    hits INT NOT NULL DEFAULT 0, note VARCHAR(20),
    seen DATETIME(6) ON UPDATE CURRENT_TIMESTAMP(6), KEY (k));
INSERT INTO c (id, k, title) VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 1, 'c'), (4, 2, 'd')
"""
COUNT_ONE, WRITE_ALL = "UPDATE c SET hits = hits + 1 WHERE id = 1", "UPDATE c SET k = k"
NOT_READ = (
    ("SELECT title FROM c ORDER BY title", "the whole table"),
    ("SELECT title, k FROM c WHERE id = {}", "a row"),
)
"""Reads of pages, but for how often they were seen."""


def test_a_counter_leaves_who_does_not_read_it(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    account: dict[str, str],
) -> None:
    with session(pair[1], account) as writer, session(pair[0], account) as reader:
        run(writer, PAGES)
        with session(pair[0], account) as counting:
            tell_apart(pair[0], counting, reader, NOT_READ[0][0], write=COUNT_ONE)
            for write in (WRITE_ALL, COUNT_ONE):  # by id, and then without the counter
                tell_apart(pair[0], counting, reader, NOT_READ[1][0], write=write)
        logs_are_known()
        for read, _ in NOT_READ:
            warm(pair[1], writer, read.format(1))  # so that it knows of what is told apart
            leaves(pair[0], reader, read.format(1), partial(run, writer, COUNT_ONE))
        for change in (
            "UPDATE c SET title = CONCAT(title, 'x') WHERE id = 1",
            "UPDATE c SET title = CONCAT(title, 'x'), hits = 0 WHERE id = 1",
            "DELETE FROM c WHERE id = 1",
            "INSERT INTO c (id, title) VALUES (1, 'new')",
        ):
            for read, _ in NOT_READ:
                warm(pair[0], reader, read.format(1))
            run(writer, change)
            for read, what in NOT_READ:
                expected = upstream.sql(read.format(1), account["database"])
                assert run(reader, read.format(1)) == expected, (change, what)


COLUMN_WRITES = (
    "UPDATE c SET hits = hits + 1 WHERE id = {a}",
    "UPDATE c SET hits = hits + 1",
    "UPDATE c SET hits = {b} WHERE title = 'a' OR k = {a}",
    "UPDATE c SET note = 'n{a}', hits = hits + 1 WHERE k = {b}",
    "UPDATE c SET hits = (SELECT {b}) WHERE id IN (SELECT {a})",
    "UPDATE c SET title = 't{b}' WHERE id = {a}",
    "UPDATE c SET title = 't{b}', hits = 0 WHERE k = {a}",
    "UPDATE c SET k = {b} WHERE id = {a}",
    "UPDATE c SET seen = NULL, hits = {a}",
    "UPDATE IGNORE c SET id = {b} WHERE id = {a}",
    "UPDATE c, (SELECT {a} AS one) AS o SET hits = 5 WHERE id = one",
    "DELETE FROM c WHERE id = {a}",
    "REPLACE INTO c (id, k, title) VALUES ({a}, {b}, 'r')",
    "INSERT INTO c (id, k) VALUES ({a}, {b}) ON DUPLICATE KEY UPDATE hits = hits + 1",
    "INSERT INTO c (id, title) VALUES ({a}, 'i') ON DUPLICATE KEY UPDATE title = 'u', k = {b}",
    "INSERT IGNORE INTO c (id, k, title) VALUES ({a}, {b}, 'i')",
    "INSERT INTO c (k, title) VALUES ({a}, 'n') ON DUPLICATE KEY UPDATE hits = hits + 1",
    "BEGIN; UPDATE c SET hits = 1 WHERE id = {a}; UPDATE c SET note = 'b' WHERE id = {b}; COMMIT",
    "BEGIN; UPDATE c SET hits = 1 WHERE id = {a}; UPDATE c SET title = 'b' WHERE id = {b}; COMMIT",
)
COLUMN_READS = (
    "SELECT title FROM c WHERE id = {}",
    "SELECT title, hits FROM c WHERE id = {}",
    "SELECT id, title FROM c WHERE k = {} ORDER BY id",
    "SELECT COUNT(*) FROM c WHERE k >= {}",
    "SELECT id FROM c WHERE hits > {} ORDER BY id",
    "SELECT note, seen FROM c WHERE k = {} ORDER BY id",
    "SELECT * FROM c WHERE id = {}",
    "SELECT MAX(`HITS`) FROM c WHERE k > {}",
    "SELECT x.title FROM c AS x WHERE x.id > {} AND EXISTS (SELECT 1 FROM c AS y WHERE y.k = x.k)"
    " ORDER BY x.title",
)


def test_whatever_columns_are_written_no_answer_is_out_of_date(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    account: dict[str, str],
    seed: int,
) -> None:
    chance = random.Random(seed)
    schema = account["database"]
    with (
        session(pair[1], account) as writer,
        session(pair[0], account) as reader,
        session(pair[0], account) as counting,
        closing(upstream.connect(database=schema)) as direct,
    ):
        run(writer, PAGES)
        tell_apart(pair[0], counting, reader, COLUMN_READS[3], write=COUNT_ONE)
        for read in (COLUMN_READS[0], COLUMN_READS[2]):
            for write in (WRITE_ALL, COUNT_ONE):
                tell_apart(pair[0], counting, reader, read, write=write)
        logs_are_known()
        for _ in range(40):
            writes = [chance.choice(COLUMN_WRITES)]
            if chance.random() < 0.3:
                ends = chance.choice(("COMMIT", "ROLLBACK"))
                writes = ["BEGIN", *writes, chance.choice(COLUMN_WRITES), ends]
            a, b = chance.choices(range(6), k=2)
            by = chance.choice((writer, counting))
            for statement in writes:
                run(by, statement.format(a=a, b=b))
            for read in COLUMN_READS:
                for value in range(5):
                    asked = read.format(value)
                    assert run(reader, asked) == run(direct, asked), (writes, a, b, asked)
            run(direct, "COMMIT")
        assert counter(pair[0], "hits") > 100


def test_a_function_reads_other_rows_than_those_of_its_query(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    account: dict[str, str],
) -> None:
    table = f"{account['database']}.t"
    total = {"name": f"{account['database']}.total", "deterministic": True, "reads": [table]}
    server = proxy(upstream, memcached, **SETTINGS, routines=[total])
    with session(server, account) as reader, session(server, account) as writer:
        run(writer, f"{TABLE}; {ROWS}")
        run(
            writer,
            "CREATE FUNCTION total() RETURNS INT DETERMINISTIC READS SQL DATA"
            " RETURN (SELECT SUM(v) FROM t)",
        )
        tell_apart(server, writer, reader, BY_ID)
        logs_are_known()
        read = "SELECT id, total() FROM t WHERE id = 1"
        for v in range(1, 10):
            for _ in range(3):
                run(reader, read)
            run(writer, f"UPDATE t SET v = {v} WHERE id = 2")
            assert run(reader, read) == ((1, v),)
        assert counter(server, "hits") > 5


NAMED = """
CREATE TABLE s (name VARCHAR(6) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci UNIQUE,
    k CHAR(4) CHARACTER SET latin1 COLLATE latin1_swedish_ci, v INT NOT NULL DEFAULT 0, KEY (k));
INSERT INTO s VALUES ('a', 'A', 1), ('b', 'b', 2), ('ab', 'ab', 3), ('1', '1', 4)
"""
BY_NAME, BY_WORD = "SELECT * FROM s WHERE name = '{}'", "SELECT name, v FROM s WHERE k = '{}'"
WRITES_BY_NAME = (
    "UPDATE s SET v = v + 1 WHERE name = {a}",
    "UPDATE s SET v = v + 1 WHERE name IN ({a}, {c})",
    "UPDATE s SET v = v + 1 WHERE k = {b}",
    "UPDATE s SET v = v + 1 WHERE name = {a} AND k = {b}",
    "UPDATE s SET v = v + 1 WHERE name LIKE {a}",
    "UPDATE IGNORE s SET k = {b} WHERE name = {a}",
    "UPDATE IGNORE s SET name = {c} WHERE name = {a}",
    "DELETE FROM s WHERE name = {a}",
    "DELETE FROM s WHERE k = {b} LIMIT 1",
    "INSERT IGNORE INTO s (name, k) VALUES ({a}, {b})",
    "INSERT IGNORE INTO s (name, k) VALUES ({a}, {b}), ({c}, {b})",
    "REPLACE INTO s (name, k) VALUES ({a}, {b})",
)
WORDS = (
    *("'a'", "'A'", "'á'", "'a '", "' a'", "'b'", "'ab'", "'AB'", "'a-b'", "''", "'ab\\0'"),
    *("1", "'1'", "'abcdef'", "'abcdefg'", "x'61'", "_latin1'a'", "'a' 'b'", "1.0", "NULL"),
)
READS_BY_NAME = (
    "SELECT * FROM s WHERE name = {}",
    "SELECT name, v FROM s WHERE k = {} ORDER BY name",
    "SELECT COUNT(*), SUM(v) FROM s WHERE name IN ({}, 'ab')",
    "SELECT v FROM s WHERE k = 'a' AND name > {} ORDER BY name",
)


def test_whatever_is_written_by_strings_no_answer_is_out_of_date(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    schema: str,
    account: dict[str, str],
) -> None:
    chance = random.Random(7)
    with (
        session(pair[1], account) as writer,
        session(pair[0], account) as reader,
        closing(upstream.connect(database=schema)) as direct,
    ):
        run(writer, NAMED)
        for each in (writer, reader, direct):
            run(each, "SET sql_mode = ''")
        for read in (BY_NAME, BY_WORD):
            tell_apart(pair[0], writer, reader, read, "s")
        logs_are_known()
        for _ in range(40):
            a, b, c = chance.choices(WORDS, k=3)
            write = chance.choice(WRITES_BY_NAME).format(a=a, b=b, c=c)
            if chance.random() < 0.1:
                run(writer, f"SET NAMES {chance.choice(('latin1', 'utf8mb4', 'utf8mb4'))}")
            run(writer, write)
            for read in READS_BY_NAME:
                for word in WORDS:
                    asked = read.format(word)
                    assert run(reader, asked) == run(direct, asked), (write, asked)
        assert counter(pair[0], "hits") > 40
        run(writer, "SET NAMES utf8mb4")  # in others a write forgets all
        update = partial(run, writer, "UPDATE s SET v = v + 1 WHERE name = 'b'")
        leaves(pair[0], reader, BY_NAME.format("a"), update)


def test_a_rule_has_a_tables_answers_forgotten_by_every_write(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    account: dict[str, str],
) -> None:
    rule = {"table": f"{account['database']}.t", "row_tags": False}
    server = proxy(upstream, memcached, **SETTINGS, rules=[rule])
    with session(server, account) as owner, session(server, account) as reader:
        run(owner, f"{TABLE}; {ROWS}; CREATE TABLE u LIKE t; INSERT INTO u SELECT * FROM t")
        for _ in range(12):
            run(owner, "UPDATE t SET v = v WHERE v > 100 OR v < 100")
            run(reader, BY_ID.format(1))
        assert counter(server, "slots_taken") == 0
        tell_apart(server, owner, reader, "SELECT * FROM u WHERE id = {}", "u")
        logs_are_known()
        warm(server, reader, BY_ID.format(1))
        run(owner, "UPDATE t SET v = 1 WHERE id = 2")
        assert not is_hit(server, reader, BY_ID.format(1))


OF_T = "SELECT t.v, u.w FROM t JOIN u ON u.t_id = t.id WHERE t.id = {} ORDER BY u.id"
OF_U = "SELECT u.w, t.v FROM u LEFT JOIN t ON u.t_id = t.id WHERE u.t_id = {} ORDER BY u.id"
OF_TWO = "SELECT t.v, u.w FROM t, u WHERE t.id = {} AND u.t_id = 3 ORDER BY u.id"
OF_BARE = "SELECT v, w FROM t LEFT JOIN u ON t_id = k WHERE k = {} ORDER BY t.id, u.id"
OF_SELF = "SELECT a.v, b.v FROM t a JOIN t b ON b.id = a.k WHERE a.id = {} AND b.id = 1"
OF_MANY = (
    "SELECT u.w, t.v FROM t LEFT JOIN u ON u.t_id = t.id WHERE t.id IN ({}, 3) ORDER BY u.id, t.id"
)


@pytest.fixture
def joined(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], account: dict[str, str]
) -> Iterator[tuple[Session, Session]]:
    """One that reads joins through the first, which are told apart by rows of both of their tables;
    and one that writes through the second."""
    with session(pair[1], account) as writer, session(pair[0], account) as reader:
        run(writer, f"{TABLE}; {ROWS}")
        run(
            writer,
            "CREATE TABLE u (id INT AUTO_INCREMENT PRIMARY KEY, t_id INT, w INT, KEY (t_id))",
        )
        run(writer, "INSERT INTO u (t_id, w) VALUES (1, 10), (1, 11), (2, 20), (3, 30)")
        tell_apart(pair[0], writer, reader, OF_T, "t")
        write = "UPDATE {table} SET w = w WHERE w > 100 OR w < 100"
        tell_apart(pair[0], writer, reader, OF_U, "u", write)
        logs_are_known()
        for _ in range(2):  # it knows of all slots from now on
            run(writer, OF_T.format(1))
            run(writer, OF_U.format(1))
            run(writer, "UPDATE t SET v = 0 WHERE id = 1")
            run(writer, "UPDATE u SET w = 10 WHERE id = 1")
        yield reader, writer


WRITES_TO_OTHER_ROWS = [
    (OF_T, "UPDATE t SET v = v + 1 WHERE id = 2"),
    (OF_T, "DELETE FROM t WHERE id = 5"),
    (OF_T, "UPDATE u SET w = w + 1 WHERE t_id = 2"),
    (OF_T, "INSERT INTO u (t_id, w) VALUES (2, 21)"),
    (
        OF_T,
        "BEGIN; UPDATE t SET v = v + 1 WHERE id = 2; INSERT INTO u (t_id, w) VALUES (3, 9); COMMIT",
    ),
    (OF_U, "UPDATE u SET w = w + 1 WHERE t_id = 2"),
    (OF_U, "INSERT INTO u (t_id, w) VALUES (2, 21)"),
    (OF_U, "UPDATE t SET v = v + 1 WHERE id = 2"),
    (OF_TWO, "UPDATE u SET w = w + 1 WHERE t_id = 2"),
    (OF_TWO, "UPDATE t SET v = v + 1 WHERE id IN (2, 4)"),
    (OF_BARE, "UPDATE u SET w = w + 1 WHERE t_id = 2"),
    (OF_SELF, "UPDATE t SET v = v + 1 WHERE id = 2"),
    (OF_MANY, "INSERT INTO u (t_id, w) VALUES (4, 21)"),
]


def test_a_write_to_other_rows_leaves_a_join(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], joined: tuple[Session, Session]
) -> None:
    reader, writer = joined

    def change(write: str) -> None:
        for statement in write.split("; "):
            run(writer, statement)

    for read, write in WRITES_TO_OTHER_ROWS:
        leaves(pair[0], reader, read.format(1), partial(change, write))


@pytest.mark.parametrize("computed", ["u.t_id = -t.id", "t.id = - u.t_id", "t.id + u.t_id = 0"])
def test_a_join_by_a_computed_value_is_not_of_the_rows_of_another(
    pair: tuple[PrivateSqlcache, PrivateSqlcache], joined: tuple[Session, Session], computed: str
) -> None:
    reader, writer = joined
    run(writer, "UPDATE u SET t_id = -1 WHERE id = 3")
    write = "UPDATE u SET w = 77 WHERE t_id = {}"
    leaves(pair[0], reader, OF_U.format(1), lambda: run(writer, write.format(-2)))
    read = f"SELECT t.v, u.w FROM t JOIN u WHERE t.id = 1 AND {computed}"
    warm(pair[0], reader, read)
    run(writer, write.format(-1))
    assert run(reader, read) == ((0, 77),)


@pytest.mark.parametrize("read", [OF_T, OF_U, OF_TWO, OF_BARE, OF_SELF, OF_MANY])
def test_a_join_is_never_behind(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    joined: tuple[Session, Session],
    schema: str,
    read: str,
) -> None:
    reader, writer = joined
    for write in (
        "UPDATE t SET v = 7 WHERE id = 1",
        "UPDATE u SET w = 12 WHERE id = 2",
        "INSERT INTO u (t_id, w) VALUES (1, 13)",
        "UPDATE u SET t_id = 1 WHERE id = 3",
        "UPDATE u SET t_id = 2 WHERE id = 1",
        "DELETE FROM u WHERE t_id = 1 AND w > 12",
        "UPDATE t SET id = 9 WHERE id = 1",
        "UPDATE t SET id = 1 WHERE id = 2",
        "REPLACE INTO t (id, k, v) VALUES (1, 3, 8)",
        "DELETE FROM t WHERE id = 1",
        "INSERT INTO t (id, v) VALUES (1, 4)",
        "UPDATE t JOIN u ON u.t_id = t.id SET t.v = 5, u.w = 6 WHERE t.id = 1",
        "TRUNCATE u",
        "INSERT INTO u (t_id, w) VALUES (1, 1)",
        f"DROP TABLE t; {TABLE}; {ROWS}",
    ):
        warm(pair[0], reader, read.format(1))
        run(writer, write)
        assert run(reader, read.format(1)) == upstream.sql(read.format(1), schema), write


def test_a_join_without_rows_is_not_told_apart_by_a_number_to_come(
    upstream: PrivateSqlServer,
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    joined: tuple[Session, Session],
    schema: str,
) -> None:
    """The server may give it to the next row, of which no write tells."""
    reader, writer = joined
    read = "SELECT u.w, t.v FROM u JOIN t ON u.t_id = t.id WHERE u.id = {}"
    tell_apart(pair[0], writer, reader, read, "u", "UPDATE {table} SET w = w WHERE w > 100")
    add = "INSERT INTO u (t_id, w) VALUES (1, 70)"
    leaves(pair[0], reader, read.format(1), lambda: run(writer, add))
    (number,) = upstream.sql("SELECT MAX(id) + 1 FROM u", schema)[0]
    warm(pair[0], reader, read.format(number))
    run(writer, add)
    assert run(reader, read.format(number)) == ((70, 0),)


JOIN_READS = (
    OF_T,
    OF_U,
    OF_TWO,
    OF_BARE,
    OF_SELF,
    OF_MANY,
    "SELECT COUNT(*), SUM(u.w) FROM t JOIN u ON u.t_id = t.id WHERE t.id = {}",
    "SELECT t.v FROM t LEFT JOIN u ON u.t_id = t.id WHERE t.id = {} AND u.id IS NULL",
    "SELECT t.v, u.w FROM t RIGHT JOIN u ON u.t_id = t.id WHERE u.t_id = {} ORDER BY u.id",
    "SELECT t.v, u.w FROM u RIGHT JOIN t ON u.t_id = t.id WHERE t.id = {} ORDER BY u.id",
    "SELECT t.v, u.w FROM t LEFT JOIN u ON u.t_id = t.id WHERE u.t_id = {} ORDER BY u.id",
    "SELECT t.v, u.w FROM t LEFT JOIN u ON u.t_id = t.k WHERE t.k = {} ORDER BY t.id, u.id",
    "SELECT a.w, b.w FROM u a JOIN u b ON b.t_id = a.t_id WHERE a.t_id = {} ORDER BY a.id, b.id",
    "SELECT a.w, b.w, t.v FROM u a JOIN t ON t.id = a.t_id LEFT JOIN u b ON b.t_id = t.k"
    " WHERE t.id = {} ORDER BY a.id, b.id",
    "SELECT t.v, u.w FROM t JOIN u LEFT JOIN t x ON u.t_id = t.id AND x.id = u.t_id"
    " WHERE t.id = {} ORDER BY u.id",
    "SELECT u.id, t.v FROM u JOIN t ON t.id = u.t_id WHERE u.id = {}",
    "SELECT u.id, x.id FROM u LEFT JOIN u x ON x.id = u.t_id WHERE u.t_id = {} ORDER BY u.id, x.id",
    "SELECT u.w FROM t NATURAL JOIN u WHERE t.k = {} ORDER BY u.id",
    "SELECT u.w FROM t JOIN u USING (id) WHERE t.id = {}",
    "SELECT id, w FROM t LEFT JOIN u USING (id) WHERE id = {}",
    "SELECT id, v FROM t RIGHT JOIN u USING (id) WHERE id = {}",
    "SELECT v, w FROM t JOIN u ON t_id = t.id WHERE t.id = {} ORDER BY u.id",
    "SELECT v, w FROM u LEFT JOIN t ON t_id = t.id WHERE t_id = {} ORDER BY u.id",
    "SELECT v, w FROM t RIGHT JOIN u ON t_id = k WHERE t_id = {} ORDER BY t.id, u.id",
    "SELECT u.w, a.v FROM u JOIN t AS a ON t_id = a.id LEFT JOIN t AS b ON t_id = b.k"
    " WHERE t_id = {} ORDER BY u.id, b.id",
    "SELECT v, w FROM t, u WHERE k = t_id AND k = {} ORDER BY t.id, u.id",
    "SELECT t.v, (SELECT SUM(u.w) FROM u WHERE u.t_id = t.id) FROM t WHERE t.id = {}",
    "SELECT t.v, s FROM t JOIN (SELECT t_id, SUM(w) AS s FROM u GROUP BY t_id) d ON d.t_id = t.id"
    " WHERE t.id = {}",
    "SELECT t.k, SUM(u.w) AS s FROM t JOIN u ON u.t_id = t.id WHERE t.id = {} GROUP BY t.k"
    " HAVING s > 10",
    "SELECT t.k, u.t_id FROM t JOIN u ON u.t_id = t.id WHERE t.k > {} ORDER BY t.k, u.t_id",
    "SELECT v, w FROM joins WHERE id = {} ORDER BY w",
)
JOIN_WRITES = (
    "UPDATE t SET v = v + 1 WHERE id = {a}",
    "UPDATE t SET v = v + 1",
    "UPDATE t SET k = {b} WHERE id = {a}",
    "UPDATE IGNORE t SET id = {b} WHERE id = {a}",
    "UPDATE u SET w = w + 1 WHERE t_id = {a}",
    "UPDATE u SET w = w + 1 WHERE id IN ({a}, {b})",
    "UPDATE u SET t_id = {b} WHERE id = {a}",
    "UPDATE u SET t_id = {b} WHERE t_id = {a} LIMIT 1",
    "UPDATE u SET t_id = NULL WHERE id = {a}",
    "UPDATE t JOIN u ON u.t_id = t.id SET t.v = t.v + 1, u.w = u.w + 1 WHERE t.id = {a}",
    "DELETE u FROM t JOIN u ON u.t_id = t.id WHERE t.id = {a} AND u.w > 12",
    "DELETE FROM u WHERE t_id = {a} LIMIT 1",
    "DELETE FROM t WHERE id = {a}",
    "INSERT IGNORE INTO t (id, k) VALUES ({a}, {b})",
    "REPLACE INTO t (id, k, v) VALUES ({a}, {b}, 9)",
    "INSERT INTO t (id, k) VALUES ({a}, {b}) ON DUPLICATE KEY UPDATE v = v + 5, k = {b}",
    "INSERT IGNORE INTO u (t_id, w) VALUES ({a}, 40)",
    "INSERT IGNORE INTO u (t_id, w) VALUES ({a}, 50), ({b}, 60)",
    "INSERT IGNORE INTO u (id, t_id, w) VALUES ({a}, {b}, 70)",
    "INSERT IGNORE INTO u (t_id, w) SELECT id, v FROM t WHERE id = {a}",
    "BEGIN; UPDATE t SET v = v + 1 WHERE id = {a}; UPDATE u SET w = w + 1 WHERE t_id = {b}; COMMIT",
    "BEGIN; INSERT IGNORE INTO t (id) VALUES ({a}); INSERT INTO u (t_id, w) VALUES ({b}, 1);"
    " ROLLBACK",
)


@pytest.mark.parametrize("keys", ["", "CASCADE", "SET NULL"])
def test_whatever_is_written_no_join_is_out_of_date(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    upstream: PrivateSqlServer,
    joined: tuple[Session, Session],
    schema: str,
    keys: str,
) -> None:
    chance = random.Random(keys)
    reader, writer = joined
    run(writer, "CREATE VIEW joins AS SELECT t.id, v, w FROM t JOIN u ON u.t_id = t.id")
    if keys:
        rule = f"ON DELETE {keys} ON UPDATE {keys}"
        run(writer, f"ALTER TABLE u ADD FOREIGN KEY (t_id) REFERENCES t (id) {rule}")
    with closing(upstream.connect(database=schema)) as direct:
        for _ in range(35):
            a, b = chance.choices(range(7), k=2)
            write = chance.choice(JOIN_WRITES).format(a=a, b=b)
            for statement in write.split("; "):
                with suppress(pymysql.Error):  # where there is no row to refer to
                    run(writer, statement)
            for read in chance.sample(JOIN_READS, 11):
                for value in range(6):
                    asked = read.format(value)
                    assert run(reader, asked) == run(direct, asked), (write, asked)
            run(direct, "COMMIT")
    assert counter(pair[0], "hits") > 100
    assert pair[1].metrics()['sqlcache_row_writes_total{covered="rows"}'] > 0


def test_a_transactions_reads_are_those_of_its_snapshot(
    pair: tuple[PrivateSqlcache, PrivateSqlcache],
    account: dict[str, str],
    joined: tuple[Session, Session],
) -> None:
    reader, writer = joined
    with session(pair[0], account) as old:
        for table, write in (
            ("t", "UPDATE t SET v = v + 1 WHERE id = 1"),
            ("u", "INSERT INTO u (t_id, w) VALUES (1, 99)"),
        ):
            warm(pair[0], reader, OF_T.format(1))
            before = run(reader, OF_T.format(1))
            run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            run(writer, write)
            after = run(reader, OF_T.format(1))
            assert after != before, table
            for _ in range(3):
                assert run(reader, OF_T.format(1)) == after
                assert run(old, OF_T.format(1)) == before
            run(old, "COMMIT")
            assert run(old, OF_T.format(1)) == after
