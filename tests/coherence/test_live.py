"""The guarantee, on real servers, and apps that use the library, that are killed, frozen and cut
off while clients read and write.

These runs are short; `make soak` makes long ones, and looks for those bugs, too, that are found by
chance, and on a busy machine perhaps not. Each prints its seed, with which `python -m
tests.coherence.live_run` draws the same faults again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path

import pytest
import uvloop
from _pytest.mark import ParameterSet

from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlServer
from tests.coherence.live_broken import (
    BUGS,
    BUGS_OF_LEASES,
    BUGS_OF_THE_DOOR,
    BUGS_OF_THE_LIBRARY,
    BUGS_OF_TRANSACTIONS,
    BUGS_UNDER_FAULTS,
)
from tests.coherence.live_doors import Library, Proxy
from tests.coherence.live_links import Links, State
from tests.coherence.live_load import IN_TRANSACTION
from tests.coherence.live_run import POLICIES, SERVERS, Deployment, Run, run
from tests.servers import MySQLMissing

# On a machine that is busy with other things; without the wait for other such tests.
pytestmark = [
    pytest.mark.usefixtures("no_other_load"),
    pytest.mark.timeout(300, func_only=True),
]

FAULTS_S = 5
FOUND_WITHIN_S = 240  # a quiet machine takes a few
SURE = frozenset(
    {
        *("log-not-told", "no-bump", "versions-reused", "no-write-waits", "failures-unseen"),
        *("app-tells-nobody", "any-flight-boarded", "trust-always"),
    }
)
"""Bugs that are found soon on any machine."""


def planted(*bugs: str) -> list[ParameterSet]:
    """The cases of a test by these bugs."""
    return [pytest.param(bug, marks=[] if bug in SURE else pytest.mark.soak) for bug in bugs]


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrivateSqlServer]:
    """One that may be restarted, and begin its log anew."""
    try:
        server = SERVERS[request.param](tmp_path / "server")
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def schema_name(mariadb: PrivateMariaDB) -> Iterator[str]:
    """The name of a schema that the test makes, and that is dropped afterwards."""
    name = f"live_{secrets.token_hex(4)}"
    yield name
    mariadb.sql(f"DROP DATABASE IF EXISTS {name}")


@pytest.mark.parametrize(
    ("policy", "read_lease_ms"),
    [
        *((policy, None) for policy in POLICIES),
        pytest.param("availability", 200, marks=pytest.mark.soak),
    ],
)
def test_no_answer_is_stale_whatever_dies(
    policy: str,
    read_lease_ms: float | None,
    mariadb: PrivateMariaDB,
    schema_name: str,
    seed: int,
    tmp_path: Path,
) -> None:
    report = run(
        *(mariadb, tmp_path, schema_name),
        policy=policy,
        seed=seed,
        seconds=FAULTS_S,
        read_lease_ms=read_lease_ms,
    )
    assert not report.problems, report


def test_what_is_written_around_sqlcache_is_seen_in_time_whatever_dies(
    own_server: PrivateSqlServer, seed: int, tmp_path: Path
) -> None:
    report = run(
        *(own_server, tmp_path, "live"),
        policy="consistency",
        seed=seed,
        seconds=FAULTS_S,
        direct_writers=True,
    )
    assert not report.problems, report


@pytest.mark.parametrize("bug", planted(*BUGS_OF_THE_DOOR))
def test_a_bug_of_who_follows_the_log_is_found(
    mariadb: PrivateMariaDB,
    schema_name: str,
    tmp_path: Path,
    bug: str,
    seed: int,
) -> None:
    tables = ("debit", "credit") if bug == "prepared-unheard" else ("t1",)
    broken = Deployment(
        *(mariadb, tmp_path, schema_name),
        policy="availability",
        bug=bug,
        doors=((Proxy, {}), (Library, {"cache__near_bytes": 0})),
        direct_writers=1,
    )
    with broken.running() as links:
        assert violates(broken, links, seed, tables=tables)


@pytest.fixture
def broken(mariadb: PrivateMariaDB, schema_name: str, tmp_path: Path, bug: str) -> Deployment:
    """A proxy and an app with a bug."""
    return Deployment(
        mariadb,
        tmp_path,
        schema_name,
        policy="availability",
        bug=bug,
        read_lease_ms=200 if bug in BUGS_OF_LEASES else None,
        doors=((Proxy, {}), (Library, {"cache__near_bytes": 0})),
    )


@pytest.mark.parametrize("bug", planted(*BUGS))
def test_a_bug_in_the_protocol_is_found(broken: Deployment, seed: int) -> None:
    """One door's slow way to the nodes makes the moments long in which it shows."""
    with broken.running() as links:
        links.put(State.SLOW, [broken.doors[0].mark], range(3))
        assert violates(broken, links, seed)


@pytest.mark.parametrize("bug", planted(*BUGS_OF_LEASES))
def test_a_bug_of_read_leases_is_found(broken: Deployment, seed: int) -> None:
    with broken.running() as links:
        assert violates(broken, links, seed)


@pytest.mark.parametrize("bug", planted(*BUGS_OF_TRANSACTIONS))
def test_a_bug_of_transactions_is_found(broken: Deployment, seed: int) -> None:
    with broken.running() as links:
        assert violates(broken, links, seed, in_transaction=0.8)


@pytest.mark.parametrize("bug", planted(*BUGS_OF_THE_LIBRARY))
def test_a_bug_of_the_library_is_found(broken: Deployment, seed: int) -> None:
    with broken.running() as links:
        assert violates(broken, links, seed)


@pytest.mark.parametrize("bug", planted(*BUGS_UNDER_FAULTS))
def test_a_bug_in_what_is_done_about_silent_nodes_is_found(broken: Deployment, seed: int) -> None:
    with broken.running() as links:
        marks = [door.mark for door in broken.doors]
        assert violates(broken, links, seed, silences(links, marks))


def violates(
    broken: Deployment,
    links: Links,
    seed: int,
    trouble: Coroutine[None, None, None] | None = None,
    in_transaction: float = IN_TRANSACTION,
    tables: Sequence[str] = ("t1",),
) -> bool:
    """Whether a run finds a wrong answer. Mostly it is about one table, to find it soon."""
    run = Run(broken, links, seed=seed, tables=tables, in_transaction=in_transaction)
    return uvloop.run(run.until_violation(FOUND_WITHIN_S, trouble))


async def silences(links: Links, marks: list[str]) -> None:
    """Longer than an outage; after each, one door is back before the other, which owes it bumps: by
    more each time, as a busy machine takes a while to let it read.

    Never ends.
    """
    ahead_s = 0.5
    while True:
        links.put(State.REFUSED, marks, range(3))
        await asyncio.sleep(3)
        for mark in marks:
            links.put(State.OPEN, [mark], range(3))
            await asyncio.sleep(ahead_s)
        ahead_s = min(2 * ahead_s, 8)
