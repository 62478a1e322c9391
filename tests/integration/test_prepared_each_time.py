"""What is prepared, executed once and closed, again and again, as PDO and Go's `Query` do: each is
served by the plans of those before it, and what is closed is none any more.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pymysql
import pytest

from sqlcache.demo.servers import PrivateSqlServer, wait_until
from tests.fakes.raw_client import NEW, OLD, RawClient, packets_of
from tests.integration.scripts import World, ended_long
from tests.servers import PATIENT

MAKE = "CREATE TABLE t (v INT PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3), (4), (5)"
PAGE = "SELECT v FROM t WHERE v > ? ORDER BY v LIMIT 2 OFFSET 1"
NONE = "SELECT MAX(v) FROM t WHERE v > ? HAVING MAX(v) > 10"
HIT_PAGE = f"""
        a  {MAKE}
        a  .prepare p {PAGE}
        a  .execute p #1
        a  .execute p #1
        a+ .execute p #1"""
LASTING = {
    "all columns": "SELECT * FROM t WHERE v > ? ORDER BY v",
    "no parameter": "SELECT MAX(v) FROM t",
    "an offset": PAGE,
    "none found": NONE,
}
"""Reads whose preparing may be told at once; FOUND_ROWS() of two is MySQL's to tell."""
READ = b"SELECT v FROM t WHERE v > ?"
CHANGE = b"UPDATE t SET v = v + 100 WHERE v = ?"
LAST = b"\xff\xff\xff\xff"
"""The number by which MariaDB knows what was prepared last."""
AHEAD = "sqlcache_statements_ahead_total"
PLANNED = "sqlcache_statements_planned_total"
RELAYED = "sqlcache_statements_relayed_total"
HITS = "sqlcache_hits_total"
OPEN = "SELECT variable_value FROM {}.global_status WHERE variable_name = 'Prepared_stmt_count'"


@pytest.fixture(scope="module")
def world(upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(upstream, tmp_path_factory.mktemp("world")) as started:
        upstream.connect().close()  # or MySQL would ask others for the password itself
        yield started


def number_in(answer: bytes) -> bytes:
    """That of the statement that a COM_STMT_PREPARE's answer tells of."""
    assert answer[4] == 0, answer
    return answer[5:9]


def execution(number: bytes, parameter: int) -> bytes:
    """A COM_STMT_EXECUTE with one LONGLONG."""
    return b"\x17" + number + b"\0\1\0\0\0\0\1\x08\0" + struct.pack("<q", parameter)


def prepare(client: RawClient, text: bytes) -> bytes:
    """The number of a statement that is prepared, and nothing is asked behind it."""
    client.command(b"\x16" + text)
    _, first = client.read_packet()
    columns, parameters = struct.unpack_from("<HH", first, 5)
    for count in (columns, parameters):
        for _ in range(count + (count > 0 and client.capabilities == OLD)):
            client.read_packet()
    return first[1:5]


def execute(client: RawClient, number: bytes, parameter: int) -> list[bytes]:
    """The payloads of the answer to an execution of a read of one column, or of a write."""
    client.command(execution(number, parameter))
    answer = [client.read_packet()[1]]
    left = 0 if answer[0][0] == 0 else 2 if client.capabilities == OLD else 1
    while left:
        answer.append(client.read_packet()[1])
        left -= answer[-1][0] == 0xFE
    return answer


def has_open(world: World, most: int) -> bool:
    return open_statements(world) <= most


def open_statements(world: World) -> int:
    """How many the server has, of all its sessions."""
    tables = "information_schema" if world.is_mariadb else "performance_schema"
    ((count,),) = world.upstream.sql(OPEN.format(tables))
    return int(count)


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("capabilities", [OLD, NEW], ids=["old", "new"])
def test_each_is_served_by_the_plans_of_those_before(
    world: World, schema: str, capabilities: int
) -> None:
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema, capabilities
    with RawClient.logged_in(world.proxy, *login) as client:

        def run(text: bytes, parameter: int) -> list[bytes]:
            number = prepare(client, text)
            answer = execute(client, number, parameter)
            client.command(b"\x19" + number)
            return answer

        read, write = b"SELECT v FROM t WHERE v = ?", b"UPDATE t SET v = v WHERE v = ?"
        for text in (read, write, read):
            for each in (1, 2):
                run(text, each)
        before = world.proxy.metrics()
        answers = [run(text, each) for text in (read, write, read, read) for each in (1, 2)]
        after = world.proxy.metrics()
    assert answers[0:2] == answers[4:6] == answers[6:8]
    assert after[HITS] - before[HITS] == 4
    relayed, planned = (after[each] - before[each] for each in (RELAYED, PLANNED))
    planned += ended_long(before, after, len(answers) - 4)
    assert relayed == planned == 3 * len(answers) - 4


def test_a_definition_ends_what_was_known_of_the_text(world: World) -> None:
    read = "SELECT * FROM t WHERE v = ?"
    steps = f"""
        a  .prepare p {read}
        a  .execute p #1
        a  .close p"""
    world.compare(
        f"""
        a  {MAKE}
        b  SELECT 1{steps * 3}
        b  ALTER TABLE t ADD COLUMN w INT DEFAULT 7{steps * 2}
        a  CREATE TABLE u LIKE t
        a  RENAME TABLE t TO old, u TO t{steps * 2}
        b  DROP TABLE t
        a  .prepare p {read}
        a  SET sql_mode = 'ANSI_QUOTES'
        a  .prepare q SELECT "v" FROM old WHERE v = ?
        a  .execute q #1
        a  .close q
        a  SET sql_mode = ''
        a  .prepare q SELECT "v" FROM old WHERE v = ?
        a  .execute q #1
        """
    )


@pytest.mark.parametrize(
    "after",
    ["SELECT FOUND_ROWS()", "SELECT ROW_COUNT()", "SHOW WARNINGS", "SELECT @@warning_count"],
)
@pytest.mark.parametrize(
    "read",
    [
        PAGE,
        "SELECT v FROM t WHERE v > ?",
        NONE,
        "SELECT v FROM t WHERE v > ? UNION ALL SELECT v FROM t LIMIT 2",
    ],
)
def test_what_a_closed_one_left_behind_is_there_still(world: World, read: str, after: str) -> None:
    """Also where MySQL has to be asked once more for it: its FOUND_ROWS() is not told by rows."""
    steps = f"""
        a  .prepare p {read}
        a  .execute p #1
        a  .close p"""
    hit = steps.replace("a  .execute", "a+ .execute")
    asks = f"""
        a  .prepare q {after}
        a  .execute q
        a  .close q"""
    world.compare(
        f"""
        a  {MAKE}{steps * 2}{hit}
        a  {after}{hit}{asks}{hit}{hit}
        a  .ping{asks}{hit}
        a  USE mysql{asks}
        a  USE {{db}}{hit}
        a  .prepare r {read}
        a+ .execute r #1
        a  .close p
        a  {after}
        a  VALUES (1)
        """
    )


@pytest.mark.parametrize("code", [b"\x17", b"\x1a", b"\x1c"], ids=["execute", "reset", "fetch"])
@pytest.mark.parametrize("read", [b"SELECT v FROM t WHERE v > ?", b"SELECT v FROM t LIMIT 1, ?"])
def test_what_is_closed_is_none_any_more(
    world: World, schema: str, read: bytes, code: bytes
) -> None:
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema
    told = []
    for server in (world.upstream, world.proxy):
        with RawClient.logged_in(server, *login) as client:
            for _ in range(3):
                number = prepare(client, read)
                execute(client, number, 2)
                client.command(b"\x19" + number)
            error = client.ask(code + execution(number, 2)[1:])
            told.append((error[4:13], client.ask(b"\x03SELECT FOUND_ROWS()")))
    assert told[0] == told[1]


def test_the_last_one_is_none_once_it_is_closed(world: World, schema: str) -> None:
    """MariaDB knows it by the highest number, too."""
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema
    read = b"\x16SELECT v FROM t WHERE v > ? LIMIT 2, 1"
    told = []
    for server in (world.upstream, world.proxy):
        with RawClient.logged_in(server, *login) as client:
            answers = []
            for _ in range(3):
                number_in(client.ask(read))
                answers.append(client.ask(execution(LAST, 1)))
                client.command(b"\x19" + LAST)
            answers.append(client.ask(execution(LAST, 1)))
            told.append([each[4:10] for each in answers])
    assert told[0] == told[1]


@pytest.mark.parametrize("read", [PAGE, NONE, "SELECT v FROM t WHERE v > ?"])
def test_what_is_sent_ahead_is_for_the_clients_own_execution(world: World, read: str) -> None:
    """And not for one that MySQL is asked for once more."""
    for asks in ("", "a  SELECT FOUND_ROWS()"):
        world.compare(
            f"""
            a  {MAKE}
            a  .prepare p {read}
            a  .execute p 1
            a  .execute p 1
            a+ .execute p 1
            a  .long_data p 2
            {asks}
            a  .execute p LONG
            a  .execute p 1
            a  SELECT FOUND_ROWS()
            """
        )


def test_an_execution_ends_the_cursor_of_the_one_before(world: World) -> None:
    world.compare(
        f"""{HIT_PAGE}
        a  .cursor p #1
        a  .execute p #1
        a  .fetch p
        a+ .execute p #1
        """
    )


@pytest.mark.parametrize("closes", ["", "a  .close p"])
def test_what_cannot_be_asked_once_more_leaves_no_error(world: World, closes: str) -> None:
    world.compare(
        f"""{HIT_PAGE}
        {closes}
        b  DROP TABLE t
        a  SELECT ROW_COUNT() = -1
        a  SHOW WARNINGS
        """
    )


def test_commands_that_come_at_once_are_each_answered(world: World, schema: str) -> None:
    """As of a driver that closes a statement when it is to prepare the next one."""
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema
    read = packets_of(b"\x16SELECT v FROM t WHERE v > ?")
    with RawClient.logged_in(world.proxy, *login) as client:
        numbers = [number_in(client.ask_bytes(read)) for _ in range(500)]
        rows = [client.ask(execution(number, 3)) for number in numbers]
        assert rows == [rows[0]] * len(rows)
        closes = [packets_of(b"\x19" + number) for number in numbers]
        again = number_in(client.ask_bytes(b"".join(closes[:-1]) + read))
        both = closes[-1] + packets_of(execution(again, 3))
        assert client.ask_bytes(both) == rows[0]
        assert client.ask(b"\x0e")[4] == 0
        for packets in (b"".join(closes), closes[0][:-1] + b"\xfe"):  # which are none any more
            client.send(packets)
        assert client.ask(execution(again, 3)) == rows[0]


def test_the_server_keeps_no_more_than_a_few_open(world: World, schema: str) -> None:
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema
    wait_until(partial(has_open, world, 0), 20, "statements are open")
    with closing(RawClient.logged_in(world.proxy, *login)) as client:
        for text in (b"SELECT v FROM t WHERE v > ?", b"SELECT v FROM t WHERE v > ? LIMIT 1, 2"):
            numbers = [number_in(client.ask(b"\x16" + text)) for _ in range(50)]
            for number in numbers:
                client.ask(execution(number, 1))
                client.command(b"\x19" + number)
            kept = int(b"," in text)
            wait_until(partial(has_open, world, kept), 20, "more statements are open")
        client.ask(b"\x03SELECT 1 FROM t LIMIT 1")
        number = prepare(client, b"SELECT v FROM t WHERE v > ?")
        assert open_statements(world) == 1, "nothing is owed of any other"
        client.ask(execution(number, 1))
        client.ask(b"\x1f")  # COM_RESET_CONNECTION
        assert open_statements(world) == 0


def steps(read: str, between: str = "") -> str:
    """One that is prepared, executed and closed."""
    parameter = " #1" if "?" in read else ""
    return f"""
        a  .prepare p {read}
        {between}
        a  .execute p{parameter}
        a  .close p"""


@pytest.fixture
def counted(world: World) -> Iterator[World]:
    """Fails unless something was told before MySQL heard of it."""
    before = world.proxy.metrics().get(AHEAD, 0)
    yield world
    if PATIENT["proxy__straight_path"]:
        assert world.proxy.metrics()[AHEAD] > before


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("capabilities", [OLD, NEW], ids=["old", "new"])
def test_mysql_never_hears_of_a_hit_that_is_closed(
    world: World, schema: str, capabilities: int
) -> None:
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema, capabilities
    count = "SHOW GLOBAL STATUS LIKE 'Com_stmt_prepare'"
    each = 100
    with RawClient.logged_in(world.proxy, *login) as client:

        def run(text: bytes, times: int) -> None:
            for _ in range(times):
                number = prepare(client, text)
                execute(client, number, 1)
                client.command(b"\x19" + number)

        texts = [b"SELECT v FROM t WHERE v = ?", b"SELECT v, v AS w FROM t WHERE v < ?"]
        for text in texts:
            run(text, 4)

        def hears_of_few() -> bool:
            """Those that waited too long; on a busy host that may be many."""
            before = int(world.upstream.sql(count)[0][1])
            for text in texts:
                run(text, each)
            return int(world.upstream.sql(count)[0][1]) - before <= each / 5

        wait_until(hears_of_few, 30, "MySQL hears of few hits")


@pytest.mark.parametrize("read", LASTING.values(), ids=LASTING)
@pytest.mark.parametrize(
    "between",
    [
        "",
        "a  SHOW WARNINGS",
        "a  SELECT ROW_COUNT()",
        "a  SELECT FOUND_ROWS()",
        "a  INSERT INTO t VALUES (9)",
        "b  UPDATE t SET v = 8 WHERE v = 5",
        "b  ALTER TABLE t ADD COLUMN w INT DEFAULT 7",
        "b  ALTER TABLE t ADD COLUMN w INT DEFAULT 7, ADD COLUMN x INT, DROP COLUMN u",
        "b  ALTER TABLE t DROP COLUMN u",
        "a  .ping",
        "a  .long_data p 2",
        "a  SET time_zone = '+03:00'",
        "a  SET sql_mode = 'ANSI'",
        "a  BEGIN",
        "a  START TRANSACTION WITH CONSISTENT SNAPSHOT",
        "a  SET autocommit = 0",
        "a  .prepare q UPDATE t SET v = v + 20 WHERE v = ?",
        "a  .prepare q SELECT v FROM t WHERE v = ?",
        "a  .close p",
        "a  .prepare q SELECT nonsense FROM t",
        "a  PREPARE q FROM 'SELECT 1'",
        "a  USE mysql",
    ],
)
def test_what_comes_between_is_answered_as_ever(counted: World, read: str, between: str) -> None:
    """Each time something else, as what is prepared waits for what is next to be sent."""
    counted.compare(
        f"""
        b  CREATE TABLE t (v INT PRIMARY KEY, u INT); INSERT INTO t (v) VALUES (1), (2), (3), (5)
        {steps(read) * 4}
        {steps(read, between)}
        {steps(read) * 2}
        a  SELECT FOUND_ROWS()
        a  SELECT * FROM t
        """
    )


COUNTING = {
    "a preparation that fails": "a  .prepare q SELECT nonsense FROM t",
    "one by name": "a  PREPARE q FROM 'SELECT v FROM t'\n        a  EXECUTE q",
    "one in a procedure": "a  CALL prepares()",
    "one anew": "b  FLUSH TABLES\n        a  .execute kept #1",
    "a write": "a  .execute change #1",
    "a reset": "a  .reset",
    "one that is wider": "a  ALTER TABLE t ADD COLUMN w INT\n        a  .execute kept #1",
    "none": "a  SELECT v FROM t WHERE v = RAND()",
}
"""What may take a number of its own."""


@pytest.mark.parametrize("step", COUNTING.values(), ids=COUNTING)
def test_the_number_is_known_whatever_has_taken_some(counted: World, step: str) -> None:
    read = "SELECT v FROM t WHERE v > ? ORDER BY v"
    counted.compare(
        f"""
        b  {MAKE}
        b  CREATE PROCEDURE prepares() BEGIN PREPARE q FROM 'SELECT 1'; EXECUTE q; END
        a  .prepare kept SELECT v FROM t WHERE v < ?
        a  .prepare change UPDATE t SET v = v + 20 WHERE v = ?
        {steps(read) * 4}
        {step}{steps(read) * 2}
        {step}{steps(read) * 4}
        {step}
        a  .prepare p {read}
        a  .prepare q {read}
        a  .execute q #2
        a  .execute p #2
        b  INSERT INTO t VALUES (7)
        a  .execute p #2
        a  .execute q #2
        a  .close q
        a  .execute p #2
        """
    )


def warm(world: World, client: RawClient) -> None:
    """From here on a `READ` is told to be prepared at once, and an execution with a 2 is a hit."""

    def is_told_at_once() -> bool:
        number, at_once = prepare_at_once(world, client)
        execute(client, number, 2)
        client.command(b"\x19" + number)
        return at_once

    if PATIENT["proxy__straight_path"]:
        wait_until(is_told_at_once, 30, "a preparation that is told at once")


def prepare_at_once(world: World, client: RawClient) -> tuple[bytes, bool]:
    """The number of a `READ` that is prepared, and whether that was told at once."""
    before = world.proxy.metrics().get(AHEAD, 0)
    number = prepare(client, READ)
    return number, world.proxy.metrics().get(AHEAD, 0) > before


def prepare_unheard(world: World, client: RawClient, refuses: str, allows: str) -> bytes:
    """The number of a `READ` that is told to be prepared, and of which the server hears once it is
    to refuse that."""
    while True:
        warm(world, client)
        time.sleep(0.1)  # it hears soon of what was closed, and of what waits then
        before = world.upstream.status("Com_stmt_prepare")
        number, at_once = prepare_at_once(world, client)
        world.upstream.sql(refuses)
        if at_once and world.upstream.status("Com_stmt_prepare") == before:
            return number
        client.command(b"\x19" + number)
        world.upstream.sql(allows)


def is_alike(world: World, schema: str, take: Callable[[RawClient], object]) -> None:
    """Fails unless a session takes the same from sqlcache, where a `READ` is warm, as from the
    server, and leaves the same rows."""
    login = world.upstream.user, world.upstream.password, schema
    told = []
    for server in (world.upstream, world.proxy):
        world.upstream.sql(f"DROP TABLE IF EXISTS t; {MAKE}", schema)
        with RawClient.logged_in(server, *login) as client:
            if server is world.proxy:
                warm(world, client)
            told.append((take(client), world.upstream.sql("SELECT v FROM t ORDER BY v", schema)))
    assert told[0] == told[1]


def test_a_number_is_given_once(world: World, schema: str) -> None:
    """What is closed twice, or executed after that, is no other statement."""

    def take(client: RawClient) -> list[bytes]:
        closed = [prepare(client, READ) for _ in range(2)]
        for number in closed:
            execute(client, number, 2)
            client.command(b"\x19" + number)
        change = prepare(client, CHANGE)
        answers = [client.ask(execution(number, 2))[4:13] for number in closed]
        kept = prepare(client, READ)
        for number in closed:
            client.command(b"\x19" + number)
        answers += [client.ask(execution(number, 2)) for number in (kept, change, kept)]
        answers.append(client.ask(b"\x1a" + kept))  # COM_STMT_RESET
        assert len({*closed, change, kept}) == 4
        return answers

    is_alike(world, schema, take)


@pytest.mark.parametrize("last", [b"\x17", b"\x1a", b"\x1c"], ids=["execute", "reset", "fetch"])
def test_the_last_one_is_none_that_the_server_never_heard_of(
    world: World, schema: str, last: bytes
) -> None:
    """MariaDB knows it by the highest number, and has another one as the last."""

    def take(client: RawClient) -> bytes:
        prepare(client, CHANGE)
        numbers = [prepare(client, READ) for _ in range(2)]
        for number in numbers:
            execute(client, number, 2)
        for number in reversed(numbers):
            client.command(b"\x19" + number)
        return client.ask(last + execution(LAST, 2)[1:])[4:13]

    is_alike(world, schema, take)


@pytest.mark.parametrize("capabilities", [OLD, NEW], ids=["old", "new"])
def test_the_last_one_is_executed_with_types(world: World, schema: str, capabilities: int) -> None:
    """Or it is not, and all are as before; also behind hits that have told them."""
    login = world.upstream.user, world.upstream.password, schema, capabilities
    world.upstream.sql(MAKE, schema)
    told = []
    for server in (world.upstream, world.proxy):
        with RawClient.logged_in(server, *login) as client:

            def ask(number: bytes, value: int, *, types: bool = True, null: int = 0) -> bytes:
                typed = b"\1\x08\0" if types else b"\0"
                value_bytes = b"" if null else struct.pack("<q", value)
                head = b"\x17" + number + b"\0\1\0\0\0" + bytes((null,))
                return client.ask(head + typed + value_bytes)[4:]

            def fails(number: bytes, value: int, *, null: int = 0) -> list[bytes]:
                answer = ask(number, value, types=False, null=null)
                counts = client.sql("SELECT FOUND_ROWS(), ROW_COUNT(), @@error_count")
                return [answer, counts, client.sql("SHOW WARNINGS")]

            number = prepare(client, READ)
            answers = [*fails(LAST, 1), ask(LAST, 1), *fails(LAST, 3), *fails(LAST, 3, null=1)]
            for each in (1, 2, 1, 2):
                answers += [ask(number, each), ask(number, each)]
            answers += [*fails(LAST, 3), ask(number, 3, types=False), ask(number, 4)]
            change = prepare(client, CHANGE)
            answers += [*fails(LAST, 3), ask(number, 3, types=False), ask(LAST, 300)]
            answers += [*fails(LAST, 3), ask(change, 300, types=False), ask(number, 4)]
            client.command(b"\x18" + LAST + b"\0\0001")
            answers += [*fails(LAST, 3), ask(change, 300), ask(change, 300)]
            told.append(answers)
    assert told[0] == told[1]
    assert world.upstream.sql("SELECT COUNT(*) FROM t WHERE v > 5", schema) == ((0,),)


@pytest.mark.parametrize("read", [READ, b"SELECT nothing"], ids=["one", "none"])
def test_who_asks_for_rows_of_the_last_one_is_told_so(
    world: World, schema: str, read: bytes
) -> None:
    """By the number that it was named by."""
    login = world.upstream.user, world.upstream.password, schema
    world.upstream.sql(MAKE, schema)
    told = []
    for server in (world.upstream, world.proxy):
        with RawClient.logged_in(server, *login) as client:
            client.ask(b"\x16" + read)
            told.append([client.ask(b"\x1c" + LAST + b"\2\0\0\0") for _ in range(2)])
    assert told[0] == told[1]
    assert told[0][0][4] == 0xFF


def test_what_was_executed_as_the_last_is_owed_by_its_number(world: World, schema: str) -> None:
    def take(client: RawClient) -> list[bytes]:
        number = prepare(client, READ)
        hits = [client.ask(execution(LAST, 2)) for _ in range(2)]
        prepare(client, CHANGE)
        as_text = b"\x17" + number + b"\0\1\0\0\0\0\1\xfd\0\x011"
        return [answer[4:13] for answer in (*hits, client.ask(as_text))]

    is_alike(world, schema, take)


TOO_MANY = "SET GLOBAL max_prepared_stmt_count = 0"
NOT_TOO_MANY = "SET GLOBAL max_prepared_stmt_count = DEFAULT"
RENAMED = "RENAME TABLE {0}.t TO {0}.u", "RENAME TABLE {0}.u TO {0}.t"
REFUSALS = {
    "dropped": ("DROP TABLE {0}.t", f"USE {{0}}; {MAKE}"),
    "renamed": RENAMED,
    "too many": (TOO_MANY, NOT_TOO_MANY),
    "denied": ("REVOKE SELECT ON {0}.t FROM {1}", "GRANT SELECT ON {0}.t TO {1}"),
}
"""What has the server refuse to prepare a `READ`, and what has it do so again."""


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("refuses", REFUSALS.values(), ids=REFUSALS)
def test_what_mysql_refuses_to_prepare_late_is_an_error_of_the_execution(
    world: World, schema: str, refuses: tuple[str, str]
) -> None:
    """As where it has to prepare it anew; and the session goes on."""
    user = f"u_{schema}"
    world.upstream.sql(f"{MAKE}; CREATE USER {user} IDENTIFIED BY 'secret'", schema)
    world.upstream.sql(f"GRANT SELECT ON {schema}.t TO {user}")
    with pymysql.connect(
        host=world.upstream.host, port=world.upstream.port, user=user, password="secret"
    ):
        pass  # or MySQL would ask others for the password itself
    try:
        with RawClient.logged_in(world.proxy, user, "secret", schema) as client:
            refusal, end = (each.format(schema, user) for each in refuses)
            number = prepare_unheard(world, client, refusal, end)
            errors = [client.ask(execution(number, each)) for each in (4, 4)]
            assert errors[0][4] == 0xFF, errors
            assert errors[0][:13] == errors[1][:13]
            client.command(b"\x19" + number)
            assert client.ask(b"\x0e")[4] == 0, "a ping"
            after = client.ask(b"\x16" + READ)
            assert after[4:13] == errors[0][4:13]
    finally:
        world.upstream.sql(NOT_TOO_MANY)
        world.upstream.sql(f"DROP USER {user}")


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
def test_no_more_are_told_to_be_prepared_than_a_few_that_are_not(world: World, schema: str) -> None:
    """Where the server has no room for more; else they would be remembered, however many."""
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema
    try:
        with RawClient.logged_in(world.proxy, *login) as client:
            at_once = False
            while not at_once:
                warm(world, client)
                _, at_once = prepare_at_once(world, client)
            world.upstream.sql(TOO_MANY)
            told = 0
            for number in range(200):
                client.command(b"\x16" + READ)
                _, first = client.read_packet()
                if first[0] == 0:
                    told += 1
                    for _ in range(4):  # a parameter and a column, with an end behind each
                        client.read_packet()
                elif number % 7 == 0:  # which takes the error away
                    client.ask(b"\x03SELECT v, RAND() FROM t")
            assert 0 < told <= 40
    finally:
        world.upstream.sql(NOT_TOO_MANY)


def test_what_answers_rows_that_were_not_foretold_tells_of_columns_as_the_server_does(
    world: World,
) -> None:
    if not world.is_mariadb:
        pytest.skip("MySQL has no RETURNING")
    world.compare(
        f"""
        b  {MAKE}
        a  .prepare i INSERT INTO t (v) VALUES (?) RETURNING *
        a  .prepare d DELETE FROM t WHERE v = ? RETURNING *
        a  .execute i #11
        a  .execute d #11
        b  ALTER TABLE t ADD COLUMN w INT DEFAULT 7
        a  .execute i #12
        a  .execute d #12
        """
    )


def test_who_knew_of_other_columns_is_told_so_once(world: World) -> None:
    """With a hit as well, and whoever of the two has heard of them first."""
    read = "SELECT * FROM t WHERE v > ?"
    world.compare(
        f"""
        b  {MAKE}
        c  .prepare p {read}
        a  .prepare p {read}
        a  .prepare s SHOW COLUMNS FROM t
        a  .execute p #1
        a  .execute p #1
        a  .execute s
        b  ALTER TABLE t ADD COLUMN w INT DEFAULT 7
        c  .execute p #1
        c  .execute p #1
        a+ .execute p #1
        a  .execute p #1
        b  INSERT INTO t VALUES (9, 9)
        a  .execute p #1
        a  .execute s
        b  ALTER TABLE t ADD COLUMN x INT DEFAULT 7
        a  .execute p #1
        a  .execute p #1
        c  .prepare p {read}
        c  .execute p #1
        b  ALTER TABLE t ADD COLUMN y INT, DROP COLUMN x
        a  .execute p #1
        c  .execute p #1
        """
    )


@pytest.mark.parametrize("capabilities", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("is_hit", [True, False])
def test_it_is_told_where_mysql_tells_it(
    world: World, schema: str, capabilities: int, is_hit: bool
) -> None:
    """In each of an answer's packets that have flags."""
    login = world.upstream.user, world.upstream.password, schema, capabilities
    read = b"SELECT * FROM t WHERE v > ?"
    told = []
    for server in (world.upstream, world.proxy):
        with (
            RawClient.logged_in(server, *login) as client,
            closing(RawClient.logged_in(server, *login)) as other,
        ):
            other.ask(b"\x03CREATE TABLE t (v INT PRIMARY KEY)")
            other.ask(b"\x03INSERT INTO t VALUES (1), (3)")
            for _ in range(4):
                number = prepare(client, read)
                execute(client, number, 2)
                client.command(b"\x19" + number)
            number = prepare(client, read)
            if is_hit:
                execute(client, number, 2)
            other.ask(b"\x03ALTER TABLE t ADD COLUMN w INT DEFAULT 7")
            told.append([client.ask(execution(number, 2)) for _ in range(2)])
            other.ask(b"\x03DROP TABLE t")
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "other",
    ["SELECT * FROM wide WHERE v > ?", "SELECT FOUND_ROWS() + ?"],
    ids=["in parts", "with a warning"],
)
def test_a_number_is_the_clients_however_its_answer_comes(
    world: World, schema: str, other: str
) -> None:
    """What is prepared next has another one at the server."""
    columns = ", ".join(f"column_with_a_long_name_{number} INT" for number in range(400))
    world.upstream.sql(f"CREATE TABLE wide (v INT, {columns})", schema)

    def take(client: RawClient) -> list[bytes]:
        answers = []
        for _ in range(5):
            prepare(client, CHANGE)
            number = prepare(client, other.encode())
            answers.append(client.ask(execution(number, 2))[4:5])
        return answers

    is_alike(world, schema, take)


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
@pytest.mark.parametrize("code", [b"\x17", b"\x18"], ids=["execute", "long data"])
def test_data_for_what_is_refused_is_no_command(world: World, schema: str, code: bytes) -> None:
    """Also of a command that is longer than what is read at once."""
    world.upstream.sql(f"{MAKE}; CREATE TABLE u (v INT)", schema)
    login = world.upstream.user, world.upstream.password, schema
    insert = packets_of(b"\x03INSERT INTO u VALUES (666)")
    with RawClient.logged_in(world.proxy, *login) as client:
        warm(world, client)
        number = prepare(client, READ)
        world.upstream.sql("DROP TABLE t", schema)
        assert client.ask(execution(number, 4))[4] == 0xFF
        head = b"\0\1\0\0\0\0\1\xfc\0\xfd" if code == b"\x17" else b"\0\0"
        size = (1 << 20) - len(insert) * 3 + 1_000
        text = size.to_bytes(3, "little") if code == b"\x17" else b""
        payload = code + number + head + text
        payload += b"x" * ((1 << 20) - len(payload)) + insert * 3
        client.send(packets_of(payload))
        assert client.ask(b"\x03SELECT 1 FROM u")[4] in (1, 0xFF)
        assert client.ask(b"\x0e")[4] == 0
    assert not world.upstream.sql("SELECT v FROM u", schema)


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
def test_what_was_refused_is_prepared_when_it_can_be(world: World, schema: str) -> None:
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema
    with RawClient.logged_in(world.proxy, *login) as client:
        moves, back = (each.format(schema) for each in RENAMED)
        number = prepare_unheard(world, client, moves, back)
        assert client.ask(execution(number, 4))[4] == 0xFF
        world.upstream.sql(back)
        assert client.ask(execution(number, 4))[4] == 1
        client.command(b"\x19" + number)
        assert client.ask(execution(number, 4))[4] == 0xFF


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
def test_what_was_sent_ahead_for_one_that_was_refused_is_asked_for_again(
    world: World, schema: str
) -> None:
    """The server never had it: an execution that can do without is none."""
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema
    with RawClient.logged_in(world.proxy, *login) as client:
        moves, back = (each.format(schema) for each in RENAMED)
        number = prepare_unheard(world, client, moves, back)
        ahead = b"\x18" + number + b"\0\x003"
        sent_ahead = b"\x17" + number + b"\0\1\0\0\0\0\1\xfc\0"
        client.command(ahead)
        assert client.ask(b"\x0e")[4] == 0, "a ping"
        world.upstream.sql(back)
        refused = client.ask(sent_ahead)
        assert refused[4:7] == b"\xff\x7a\x04", "error 1146"
        client.command(ahead)
        assert client.ask(sent_ahead) == client.ask(execution(number, 3))


@pytest.mark.parametrize("size", [0, 2])
@pytest.mark.parametrize("code", [b"", b"\x17", b"\x1a", b"\x1c", b"\xfa"])
def test_a_command_that_is_cut_short_is_the_servers_to_answer(
    world: World, schema: str, code: bytes, size: int
) -> None:
    if not code and size:
        pytest.skip("it is none")

    def take(client: RawClient) -> tuple[bytes, int]:
        error = client.ask(code + b"\1" * size)
        return error[4:13], client.ask(b"\x0e")[4]

    is_alike(world, schema, take)


@pytest.mark.parametrize("text", [READ, CHANGE], ids=["a read", "a write"])
@pytest.mark.parametrize("cut", [1, 8, 10, 11])
def test_an_execution_that_is_cut_short_is_the_servers_to_refuse(
    world: World, schema: str, text: bytes, cut: int
) -> None:
    """The value or the types of its parameter are missing, or more."""

    def take(client: RawClient) -> list[bytes]:
        number = prepare(client, text)
        whole = execution(number, 2)
        answers = [client.ask(whole), client.ask(whole[:-cut]), client.ask(whole)]
        return [*(answer[4:13] for answer in answers), client.ask(b"\x0e")]

    is_alike(world, schema, take)


def test_an_execution_without_parameters_that_is_cut_short_is_no_hit(
    world: World, schema: str
) -> None:
    def take(client: RawClient) -> list[bytes]:
        whole = b"\x17" + prepare(client, b"SELECT v FROM t ORDER BY v") + b"\0\1\0\0\0"
        answers = [client.ask(each) for each in (whole, whole, whole[:-1], whole)]
        return [answer[4:13] for answer in answers]

    is_alike(world, schema, take)


@pytest.mark.skipif(not PATIENT["proxy__straight_path"], reason="the straight path is off")
def test_in_a_transaction_mysql_prepares_at_once(world: World, schema: str) -> None:
    """Where it cannot, as in a deadlock, it ends that."""
    world.upstream.sql(MAKE, schema)
    login = world.upstream.user, world.upstream.password, schema, NEW
    with RawClient.logged_in(world.proxy, *login) as client:
        warm(world, client)
        client.ask(b"\x03BEGIN")
        before = world.proxy.metrics()[AHEAD]
        prepare(client, READ)
        assert world.proxy.metrics()[AHEAD] == before
        client.ask(b"\x03COMMIT")
        prepare(client, READ)
        assert world.proxy.metrics()[AHEAD] > before


@pytest.mark.parametrize(
    "anew", ["ALTER TABLE t COMMENT = 'prepared anew'", "FLUSH TABLES", "ANALYZE TABLE t"]
)
@pytest.mark.parametrize(
    ("read", "one", "other"),
    [
        ("SELECT v / 7 FROM t", "div_precision_increment = 4", "div_precision_increment = 9"),
        ('SELECT "v" FROM t', "sql_mode = ''", "sql_mode = 'ANSI_QUOTES'"),
        ("SELECT NOT v BETWEEN -5 AND 5 FROM t", "sql_mode = ''", "sql_mode = HIGH_NOT_PRECEDENCE"),
        ("SELECT COLLATION('a'), v FROM t", "NAMES utf8mb4", "NAMES latin1"),
        (
            "SELECT DAYNAME('2024-01-01'), v FROM t",
            "lc_time_names = en_US",
            "lc_time_names = fr_FR",
        ),
    ],
)
def test_the_server_may_prepare_it_anew_under_other_settings(
    world: World, anew: str, read: str, one: str, other: str
) -> None:
    steps = [f"a  {MAKE}"]
    for session, was, then in (("a", one, other), ("b", other, one)):
        steps += [f"{session}  SET {was}", f"{session}  .prepare p {read}"]
        steps += [f"{session}  .execute p"] * 3
        steps += [f"{session}  SET {then}"] + [f"{session}  .execute p"] * 2
    steps += [f"w  {anew}"] + ["a  .execute p", "b  .execute p"] * 2
    steps += [f"a  SET {one}", f"b  SET {other}"] + ["a  .execute p", "b  .execute p"] * 2
    for session, setting in (("c", one), ("d", other)):
        steps += [f"{session}  SET {setting}", f"{session}  .prepare p {read}"]
        steps += [f"{session}  .execute p"] * 2 + [f"{session}+ .execute p"]
    world.compare("\n".join(steps))


def test_settings_of_transactions_are_none_that_it_was_prepared_under(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  .prepare p SELECT v FROM t
        a  .execute p
        a  .execute p
        a  SET SESSION TRANSACTION READ ONLY
        a  .execute p
        a+ .execute p
        a  SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED
        a  .execute p
        a+ .execute p
    """)


@pytest.mark.parametrize(
    ("between", "parameters"),
    [
        ("SET NAMES latin1", "s #0"),
        ("SET sql_mode = 'PIPES_AS_CONCAT'", "s #0"),
        ("CALL other_precision()", "s #0"),
        (".long_data p abc", "LONG #0"),
    ],
)
def test_what_mysql_has_not_seen_was_executed_before_what_comes_between(
    world: World, between: str, parameters: str
) -> None:
    """MySQL prepares it anew for another type, under the settings of then."""
    read = "SELECT b, ? AS x, 1 || 0, v / 7 FROM t WHERE b = 'ä' AND v > ?"
    world.compare(f"""
        w  CREATE TABLE t (v INT PRIMARY KEY, b VARCHAR(9)); INSERT INTO t VALUES (1, 'ä'), (2, 'z')
        w  CREATE PROCEDURE other_precision() SET SESSION div_precision_increment = 9
        b  .prepare p {read}
        b  .execute p #1 #0
        b  .execute p #1 #0
        a  .prepare p {read}
        a+ .execute p #1 #0
        a  {between}
        a  .execute p {parameters}
        a  .execute p s #0
        a  .execute p #1 #0
    """)


@pytest.mark.parametrize("begin", ["SELECT 1", "SET autocommit = 0"])
def test_what_mysql_is_shown_leaves_no_trace(world: World, begin: str) -> None:
    read = "SELECT v, ? AS x FROM t"
    world.compare(f"""
        w  {MAKE}
        b  .prepare p {read}
        b  .execute p #1
        b  .execute p #1
        a  .prepare p {read}
        a+ .execute p #1
        a  {begin}
        a  SELECT v FROM t WHERE v < 3 FOR UPDATE
        a  COMMIT
        a  SET NAMES latin1
        a  SELECT FOUND_ROWS()
        w  INSERT INTO t VALUES (9)
        a  SELECT v FROM t WHERE v > 8
    """)
