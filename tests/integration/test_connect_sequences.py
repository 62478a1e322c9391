"""What drivers and frameworks say when they connect is answered as by MySQL, which hears little.

Each says here, byte for byte, what it does on each connection; then a page reads what is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

import pytest

from sqlcache.demo.servers import PrivateServer, PrivateSqlServer
from sqlcache.mysql.constants import Capability, Command
from tests.fakes.raw_client import NEW, OLD, RawClient, packets_of
from tests.integration.scripts import World
from tests.servers import PATIENT

AHEAD = "sqlcache_statements_ahead_total"
SCHEMA = "connects"
PAGE = f"SELECT v FROM {SCHEMA}.t WHERE a = 1"
STRICT = (
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
)
ASKED_BY_JAVA = (
    "character_set_client character_set_connection character_set_results character_set_server"
    " collation_server collation_connection init_connect interactive_timeout license"
    " lower_case_table_names max_allowed_packet net_write_timeout performance_schema sql_mode"
    " system_time_zone time_zone wait_timeout"
)


class Sequence(NamedTuple):
    """What is said after a login with these capabilities, to a schema if it names one.

    `sent`: how many of these statements, and of the page's one, MySQL is sent on a client's second,
    third, fourth and fifth connection. `at_once`: how many are answered on the last without it.
    """

    steps: tuple[str | bytes, ...]
    sent: tuple[int, int, int, int]
    at_once: int
    capabilities: int = OLD
    schema: str = SCHEMA


SEQUENCES = {
    # In a transaction with the page: MySQL opens its snapshot.
    "PyMySQL": Sequence(("SET NAMES utf8mb4", "SET AUTOCOMMIT = 0"), (3, 3, 3, 3), 2),
    "mysqlclient": Sequence(
        ("SET NAMES utf8mb4", f"SET SESSION sql_mode='{STRICT}'"), (2, 2, 0, 0), 2, NEW
    ),
    # The first asks for what is of all sessions, too.
    "Connector/J": Sequence(
        (
            "/* mysql-connector-j-8.4.0 (Revision: 1c3f5c149e0bfe31c7fbeb24e2d260cd890972c4) */"
            "SELECT  @@session.auto_increment_increment AS auto_increment_increment"
            + "".join(f", @@{name} AS {name}" for name in ASKED_BY_JAVA.split()),
            "SET character_set_results = NULL",
            "SET autocommit=1",
            "SELECT @@session.sql_mode",
        ),
        (4, 4, 1, 1),
        3,
        NEW,
    ),
    "Django, mysqlclient": Sequence(
        (
            "SET NAMES utf8mb4",
            "SET autocommit=0",
            "SET autocommit=1",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        ),
        (4, 4, 0, 0),
        4,
        NEW,
    ),
    # How long it may be idle has to be known while it is.
    "Rails, mysql2": Sequence(
        (
            "SET NAMES utf8mb4,  @@SESSION.sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), "
            " @@SESSION.wait_timeout = 2147483",
            "SELECT VERSION()",
        ),
        (2, 2, 1, 1),
        1,
        NEW,
    ),
    "Laravel, PDO": Sequence(
        (
            f"use `{SCHEMA}`;",
            f"SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_ci', SESSION sql_mode='{STRICT}';",
        ),
        (2, 2, 1, 1),
        1,
    ),
    "Go": Sequence(
        (
            "SET NAMES utf8mb4",
            "SELECT @@max_allowed_packet",
            f"SET time_zone = '+00:00', sql_mode = '{STRICT}'",
        ),
        (3, 3, 0, 0),
        3,
    ),
    # All that was answered at once goes with the last, which says what its page reads.
    "WordPress, mysqli": Sequence(
        (
            "SET NAMES utf8mb4",
            "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_520_ci'",
            "SELECT @@SESSION.sql_mode",
            "SET SESSION sql_mode='NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO'",
            bytes((Command.INIT_DB,)) + SCHEMA.encode(),
        ),
        (5, 5, 5, 5),
        4,
        schema="",
    ),
}


@pytest.fixture(scope="module")
def world(upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    upstream.sql(f"CREATE DATABASE {SCHEMA}; CREATE TABLE {SCHEMA}.t (a INT PRIMARY KEY, v INT)")
    upstream.sql(f"INSERT INTO {SCHEMA}.t VALUES (1, 2)")
    upstream.connect().close()  # it remembers the password now
    with World(upstream, tmp_path_factory.mktemp("world")) as made:
        yield made
    upstream.sql(f"DROP DATABASE {SCHEMA}")


def answer_to(client: RawClient, command: bytes) -> bytes:
    """Every byte of the answer to a command, which is sent alone, as drivers do."""
    client.command(command)
    packets = [client.read_packet()]
    first = packets[0][1][0]
    if first not in (0x00, 0xFF):
        ends = 2
        if client.capabilities & Capability.DEPRECATE_EOF:
            packets += [client.read_packet() for _ in range(first)]
            ends = 1
        while ends:
            packets.append(client.read_packet())
            ends -= packets[-1][1][0] == 0xFE
    return b"".join(packets_of(payload, sequence) for sequence, payload in packets)


def connect(world: World, server: PrivateServer, sequence: Sequence) -> list[bytes]:
    """What is answered on a new connection. It ends without a COM_QUIT, which would count."""
    account = world.upstream.user, world.upstream.password
    login = *account, sequence.schema, sequence.capabilities
    with RawClient.logged_in(server, *login) as client:
        said = (*sequence.steps, PAGE)
        commands = [each if isinstance(each, bytes) else b"\x03" + each.encode() for each in said]
        return [answer_to(client, command) for command in commands]


@pytest.fixture
def asked(upstream: PrivateSqlServer) -> Iterator[Callable[[], int]]:
    """How many commands MySQL was sent so far in sessions of `upstream.user`, but for those that
    ask for this. What sqlcache asks by itself, in its own time, has an account of its own."""
    said = (
        "SELECT COUNT(*) FROM mysql.general_log WHERE user_host LIKE %s"
        " AND command_type <> 'Connect' AND thread_id <> CONNECTION_ID()"
    )
    with closing(upstream.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.log_output")
        ((output,),) = cursor.fetchall()

        def ask() -> int:
            cursor.execute(said, [f"{upstream.user}[%"])
            ((number,),) = cursor.fetchall()
            return int(number)

        cursor.execute("SET GLOBAL log_output = 'TABLE'")
        cursor.execute("SET GLOBAL general_log = ON")
        yield ask
        cursor.execute("SET GLOBAL general_log = OFF")
        cursor.execute("SET GLOBAL log_output = %s", [output])


@pytest.mark.parametrize("name", SEQUENCES)
def test_it_is_answered_as_directly_and_mysql_is_sent_less(
    world: World, asked: Callable[[], int], name: str
) -> None:
    sequence = SEQUENCES[name]
    directly = connect(world, world.upstream, sequence)
    told, ahead = [], []
    for _ in range(6):
        told.append(asked())
        ahead.append(world.proxy.metrics()[AHEAD])
        assert connect(world, world.proxy, sequence) == directly
    if PATIENT["proxy__straight_path"]:
        sent = tuple(then - before for before, then in pairwise(told))
        assert (sent[1:], ahead[-1] - ahead[-2]) == (sequence.sent, sequence.at_once)
