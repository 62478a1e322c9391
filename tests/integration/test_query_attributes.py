"""Query attributes, as clients send that are traced: a text with some is never a hit, and does what
it says all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial

import pytest

from sqlcache.demo.servers import PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Capability, Command
from tests.fakes.raw_client import NEW, RawClient, packets_of
from tests.integration.scripts import World

MAKE = (
    "CREATE TABLE t (v INT); INSERT INTO t VALUES (1);"
    " CREATE TABLE other_t (v INT); INSERT INTO other_t VALUES (1)"
)
WRITE = "UPDATE t SET v = v + 1"
READ, OTHER = "SELECT v FROM t", "SELECT v FROM other_t"
HITS = "sqlcache_hits_total"
FENCES = "sqlcache_fences_total"
MARKED = 'sqlcache_bypasses_total{reason="cursor, long data or query attributes"}'
TYPE = b"\xfe\0\x0btraceparent"


@pytest.fixture(scope="module")
def world(mysql: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(mysql, tmp_path_factory.mktemp("world")) as started:
        mysql.connect().close()  # or it would ask for the password itself
        yield started


class Client:
    """A session here, or at the server itself, that may send attributes."""

    def __init__(self, world: World, schema: str, *, direct: bool = False) -> None:
        server, capabilities = world.upstream, NEW | Capability.QUERY_ATTRIBUTES
        address = server if direct else world.proxy
        self.raw = RawClient.logged_in(address, server.user, server.password, schema, capabilities)
        self.sent = 0

    def marked(self, text: str) -> bytes:
        """The answer to a text with attributes, which are others each time."""
        self.sent += 1
        value = b"00-%032x-01" % self.sent
        head = bytes((Command.QUERY,)) + b"\1\1\0\1" + TYPE + bytes((len(value),)) + value
        return self.raw.ask(head + text.encode())

    def plain(self, text: str) -> bytes:
        return self.raw.sql(text)


@pytest.fixture
def client(world: World, schema: str) -> Iterator[Client]:
    made = Client(world, schema)
    for each in MAKE.split("; "):
        made.plain(each)
    yield made
    made.raw.close()


@pytest.fixture
def direct(world: World, schema: str, client: Client) -> Iterator[Client]:
    made = Client(world, schema, direct=True)
    yield made
    made.raw.close()


def is_hit(world: World, client: Client, text: str) -> bool:
    before = world.hits()
    client.plain(text)
    return world.hits() > before


def warm(world: World, client: Client) -> None:
    for text in (READ, OTHER):
        client.plain(text)
        wait_until(partial(is_hit, world, client, text), 10, "a hit")


def test_a_read_writes_nothing_and_is_no_hit(world: World, client: Client, direct: Client) -> None:
    warm(world, client)
    before = world.proxy.metrics()
    for _ in range(5):
        assert client.marked(READ) == direct.plain(READ)
    after = world.proxy.metrics()
    assert after[FENCES] == before[FENCES]
    assert after[HITS] == before[HITS]
    assert after[MARKED] == before.get(MARKED, 0) + 5
    assert is_hit(world, client, READ)
    assert is_hit(world, client, OTHER)


def test_nothing_is_stored_of_an_answer_that_may_tell_them(world: World, client: Client) -> None:
    warm(world, client)
    read = "SELECT v + 1 FROM t"
    for _ in range(5):
        client.marked(read)
    assert not is_hit(world, client, read)
    assert is_hit(world, client, read)


@pytest.mark.parametrize("length", [0, 600, 20_000])
def test_a_write_ends_what_it_writes(
    world: World, client: Client, direct: Client, length: int
) -> None:
    for value in range(2, 5):
        warm(world, client)
        client.marked(f"UPDATE other_t SET v = {value} WHERE 'x' <> '{'y' * length}'")
        assert is_hit(world, client, READ)
        assert client.plain(OTHER) == direct.plain(OTHER)


def test_an_execution_ends_what_it_writes(world: World, client: Client, direct: Client) -> None:
    for parameter in (b"", b"\x08\0\0"):
        marker = "?" if parameter else "7"
        statement = f"UPDATE other_t SET v = v + {marker}"
        number = client.raw.ask(b"\x16" + statement.encode())[5:9]
        count = bytes((1 + bool(parameter),))
        value = struct.pack("<q", 2) if parameter else b""
        bound = count + b"\0\1" + parameter + TYPE + value + b"\1x"
        for _ in range(3):
            warm(world, client)
            assert client.raw.ask(b"\x17" + number + b"\x08\1\0\0\0" + bound)[4] == 0
            assert is_hit(world, client, READ)
            assert client.plain(OTHER) == direct.plain(OTHER)


SCRIPTS = {
    "commit": ["BEGIN", WRITE, READ, "COMMIT", READ],
    "rollback": ["BEGIN", WRITE, READ, "ROLLBACK", READ],
    "implicit commit": ["BEGIN", WRITE, "CREATE TABLE new_t (a INT)", READ],
    "autocommit": ["SET autocommit = 0", READ, WRITE, READ, "SET autocommit = 1", READ],
    "savepoint": ["BEGIN", WRITE, "SAVEPOINT a", WRITE, "ROLLBACK TO a", READ, "COMMIT", READ],
    "snapshot": ["START TRANSACTION WITH CONSISTENT SNAPSHOT", READ, WRITE, READ, "COMMIT"],
    "sql_mode": ["SET sql_mode = 'ANSI_QUOTES'", 'SELECT "v" FROM t', WRITE, READ],
    "charset": ["SET NAMES latin1", "SELECT v, _utf8mb4 X'C3A4' FROM t", READ],
    "schema": ["USE information_schema", READ, "USE {schema}", READ],
    "several": [f"{WRITE}; {READ}; BEGIN; {WRITE}", READ, f"COMMIT; {READ}", READ],
    "by name": [f"PREPARE s FROM '{WRITE}'", "EXECUTE s", READ, "DEALLOCATE PREPARE s"],
    "temporary": ["CREATE TEMPORARY TABLE t (v INT)", READ, "DROP TEMPORARY TABLE t", READ],
    "warnings": ["SELECT 1 / 0", "SHOW WARNINGS", "SELECT CAST('a' AS SIGNED)", "SHOW WARNINGS"],
    "refused": ["BEGIN", WRITE, "SELECT nothing FROM t", "UPDAT t", READ, "COMMIT", READ],
}


@pytest.mark.parametrize("of", SCRIPTS)
@pytest.mark.parametrize("marks", ["all", "every other", "the others"])
def test_what_they_come_with_is_followed(
    world: World, schema: str, client: Client, of: str, marks: str
) -> None:
    """Another session sees what is committed, and its own sees what the server would show it."""
    other = f"{schema[:-1]}{'x' if schema[-1] != 'x' else 'y'}"
    world.upstream.sql(f"CREATE DATABASE {other}")
    try:
        at_server = Client(world, other, direct=True)
        for text in MAKE.split("; "):
            at_server.plain(text)
        readers = Client(world, other, direct=True), Client(world, schema)
        warm(world, client)
        for place, text in enumerate(SCRIPTS[of]):
            marked = marks == "all" or place % 2 == (marks == "the others")
            told = []
            sides = (at_server, readers[0], other), (client, readers[1], schema)
            for each, reader, name in sides:
                ask = each.marked if marked else each.plain
                answer = ask(text.format(schema=name)), reader.plain(READ)
                told.append([part.replace(name.encode(), b"schema") for part in answer])
            assert told[0] == told[1], text
        for session in (at_server, *readers):
            session.raw.close()
    finally:
        world.upstream.sql(f"DROP DATABASE {other}")


def test_no_question_comes_before_a_text_that_may_look_back(
    world: World, schema: str, client: Client, direct: Client
) -> None:
    """As where it is not known what settings the session has, for a global one was changed."""
    client.plain("CREATE PROCEDURE asks() SELECT ROW_COUNT()")
    other = Client(world, schema)
    told = []
    try:
        for each in (client, direct):
            for value, question in ((5, each.plain), (6, each.marked)):
                each.raw.query(WRITE)
                assert each.raw.read_packet()[1][:2] == b"\0\1"
                other.plain(f"SET GLOBAL div_precision_increment = {value}")
                told.append(question("CALL asks()"))
    finally:
        other.plain("SET GLOBAL div_precision_increment = DEFAULT")
        other.raw.close()
    assert told[:2] == told[2:]


def test_what_is_not_read_is_known_to_run_no_query(
    world: World, client: Client, direct: Client
) -> None:
    """As while it is not known what schemas there are; and there are warnings, which what is
    missing would take away."""
    read = "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1"
    steps = [*(read, read), "DROP DATABASE IF EXISTS no_such"]
    steps += ["DELETE FROM t WHERE v = 9", "SELECT FOUND_ROWS()"]
    client.plain("INSERT INTO t VALUES (2), (3)")
    commands = b"".join(packets_of(b"\x03\0\1" + each.encode()) for each in steps)
    assert client.raw.ask_bytes(commands) == direct.raw.ask_bytes(commands)


def test_such_as_no_client_sends_count_as_the_server_reads_them(
    world: World, client: Client, direct: Client
) -> None:
    warm(world, client)
    text = b"UPDATE other_t SET v = v + 1"
    for type_, value in (
        (b"\xfe\1\1a", b"\1x"),
        (b"\x20\0\1a", b"\1x"),
        (b"\xfe\0\1a", b"\xfe\1\0\0\0\1\0\0\0x"),
    ):
        before = direct.plain(OTHER)
        client.raw.ask(b"\x03\1\1\0\1" + type_ + value + text)
        assert client.plain(OTHER) == direct.plain(OTHER) != before
    for malformed in (b"\1\2\0\1" + TYPE + b"\1x", b"\1\1\0\0" + TYPE + b"\1x", b"\1"):
        command = b"\x03" + malformed + text
        assert client.raw.ask(command) == direct.raw.ask(command)
    assert client.plain(OTHER) == direct.plain(OTHER)


def test_mariadb_has_none(
    mariadb: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with World(mariadb, tmp_path_factory.mktemp("world")) as world:
        answers = []
        for direct in (True, False):
            client = Client(world, "", direct=direct)
            assert not client.raw.offered & Capability.QUERY_ATTRIBUTES
            answers.append([client.plain("SELECT 1"), client.marked("SELECT 1")])
            client.raw.close()
        assert answers[0] == answers[1]
