"""What answers tell of the session, to clients that asked for it: byte for byte what the server
tells directly, also ahead of it, and of transactions that were begun for a hit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest

from sqlcache.demo.servers import PrivateServer, PrivateSqlcache, PrivateSqlServer
from sqlcache.mysql.constants import Command
from tests.fuzz.wire import Answer, Wire
from tests.integration.scripts import World
from tests.servers import PATIENT

SCHEMA = "tracked"
USER = "tracked"
READ = "SELECT a FROM t"
BEGIN, ROLLBACK, COMMIT, CHAIN = "BEGIN", "ROLLBACK", "COMMIT", "COMMIT AND CHAIN"
SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
OFF, ON = "SET autocommit = 0", "SET autocommit = 1"
COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
FAILS, DEFINES = "SELECT nothing FROM t", "CREATE TABLE t (a INT)"
TRACKS = "SET session_track_transaction_info = 'STATE'"
TRACKS_NOT = "SET session_track_transaction_info = 'OFF'"
BEGINNINGS = ((OFF,), (BEGIN,), (OFF, BEGIN), (COMMITTED, OFF), (COMMITTED, BEGIN))
ENDINGS = (
    *((COMMIT,), (ROLLBACK,), (BEGIN, COMMIT), (SNAPSHOT, COMMIT), (CHAIN, COMMIT), (ON, COMMIT)),
    *((FAILS, COMMIT), (DEFINES, READ, COMMIT), ("INSERT INTO t VALUES (9)", ROLLBACK)),
    *(("BEGIN; COMMIT", COMMIT), ("SELECT 1; BEGIN", COMMIT), ("SAVEPOINT s", CHAIN, ROLLBACK)),
    *((".use", COMMIT), (".ping", COMMIT), (".reset", BEGIN, COMMIT)),
    *((TRACKS, BEGIN, READ, COMMIT), (TRACKS, TRACKS_NOT, READ, COMMIT)),
)
TRACKING = (
    *("session_track_schema = 1", "session_track_schema = 0", "session_track_state_change = 1"),
    *("session_track_state_change = 0", "session_track_system_variables = ''"),
    "session_track_system_variables = 'time_zone,sql_mode,autocommit,character_set_client'",
    *("session_track_transaction_info = 'STATE'", "session_track_transaction_info = 'OFF'"),
    "session_track_transaction_info = 'CHARACTERISTICS'",
)
SAID = (
    *("SET NAMES utf8mb4", "SET NAMES latin1", "SET NAMES utf8mb4 COLLATE utf8mb4_bin", OFF, ON),
    *("SET NAMES utf8mb4, autocommit = 1", f"USE {SCHEMA}", "USE mysql", ".use", COMMITTED),
    *("SET time_zone = '+01:00'", "SET time_zone = '+02:00'", "SET sql_mode = 'ANSI_QUOTES'"),
    *("SET sql_mode = ''", "SELECT @@sql_mode", "SELECT @@time_zone", "SELECT VERSION()"),
    *("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET foreign_key_checks = 0"),
    *(BEGIN, "START TRANSACTION", COMMIT, ROLLBACK, CHAIN, f"SELECT a FROM {SCHEMA}.t"),
)
RARELY = (
    *(".reset", ".ping", "SELECT nothing", "SET nosuch = 1", "SET sql_mode = '', nosuch = 1"),
    *("SELECT FOUND_ROWS(), ROW_COUNT()", "SHOW WARNINGS", f"UPDATE {SCHEMA}.t SET a = a"),
    *(f"CREATE TABLE {SCHEMA}.t (a INT)", "DO 1", "SELECT @@autocommit", "SAVEPOINT s"),
)
_SCRIPTS, _STEPS = 20, 40


@pytest.fixture(scope="module")
def world(upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    upstream.sql(f"CREATE DATABASE {SCHEMA}; CREATE TABLE {SCHEMA}.t (a INT) ENGINE=InnoDB")
    upstream.sql(f"INSERT INTO {SCHEMA}.t VALUES (1), (2)")
    upstream.sql(f"CREATE USER {USER}; GRANT ALL ON *.* TO {USER}")
    with World(upstream, tmp_path_factory.mktemp("world")) as made:
        yield made
    upstream.sql(f"DROP DATABASE {SCHEMA}; DROP USER {USER}")


def say(session: Wire, step: str) -> Answer:
    match step:
        case ".use":
            return session.receive(session.send(Command.INIT_DB, SCHEMA.encode()))
        case ".ping":
            return session.receive(session.send(Command.PING, b""))
        case ".reset":
            return session.receive(session.send(Command.RESET_CONNECTION, b""))
        case _:
            return session.receive(session.send(Command.QUERY, step.encode()))


def told(server: PrivateServer, steps: tuple[str, ...], flavour: str) -> list[Answer]:
    """What a new session is told. On MariaDB it begins with what some earlier one has left."""
    with closing(Wire(server, USER, SCHEMA, flavour)) as session:
        say(session, "SELECT 1 FROM information_schema.ENGINES")
        return [say(session, step) for step in steps]


def compare(world: World, steps: tuple[str, ...], flavour: str, why: str = "") -> None:
    direct, proxied = (told(server, steps, flavour) for server in (world.upstream, world.proxy))
    for at, step in enumerate(steps):
        said = "\n".join([why, *steps[: at + 1]])
        assert proxied[at].shown() == direct[at].shown(), f"{said}\ndiffers at {step}"


@pytest.mark.parametrize("flavour", ["old", "new"])
@pytest.mark.parametrize("ending", ENDINGS, ids=" ".join)
def test_of_a_transaction_that_was_begun_for_a_hit_as_much_is_told(
    world: World, ending: tuple[str, ...], flavour: str
) -> None:
    """Which MySQL tells of transactions that a statement begins, though it was not asked to."""
    for _ in range(2):
        compare(world, (READ, READ), flavour)
    before = hits(world.proxy)
    for beginning in BEGINNINGS:
        for _ in range(2):
            compare(world, (*beginning, READ, READ, *ending, READ, "SELECT 1", COMMIT), flavour)
    assert hits(world.proxy) > before


def hits(proxy: PrivateSqlcache) -> float:
    return proxy.metrics()["sqlcache_hits_total"]


@pytest.mark.parametrize("flavour", ["old", "new"])
def test_what_is_told_ahead_is_told_as_directly(world: World, flavour: str) -> None:
    """In any order, and whatever the session is to be told of."""
    seed = Random().randrange(1 << 32)
    random = Random(seed)
    ahead = world.proxy.metrics().get("sqlcache_statements_ahead_total", 0)
    for number in range(_SCRIPTS):
        pool = [*random.sample(SAID, 4), *random.sample(RARELY, 1), f"SELECT a FROM {SCHEMA}.t"]
        begins = [f"SET {each}" for each in random.sample(TRACKING, random.randrange(3))]
        if number % 2:
            pool += begins
        steps = [
            step for step in random.choices(pool, k=_STEPS) for _ in range(random.choice((1, 1, 2)))
        ]
        for _ in range(3):
            compare(world, (*begins, *steps), flavour, f"seed {seed}")
    if PATIENT["proxy__straight_path"]:
        assert world.proxy.metrics()["sqlcache_statements_ahead_total"] > ahead


@pytest.mark.parametrize("flavour", ["old", "new"])
def test_who_is_told_of_all_commits_is_told_with_each_answer(world: World, flavour: str) -> None:
    """As all are that begin after that was switched on for them."""
    if world.is_mariadb:
        pytest.skip("it tells of none")
    compare(world, (READ, READ), flavour)
    try:
        told(world.proxy, ("SET GLOBAL session_track_gtids = 'ALL_GTIDS'",), flavour)
        compare(world, (READ, READ), flavour)
    finally:
        told(world.proxy, ("SET GLOBAL session_track_gtids = DEFAULT",), flavour)
    compare(world, (READ, READ), flavour)
