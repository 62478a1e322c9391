"""Runs the test suites that drivers bring along, directly and through sqlcache.

    python -m tests.drivers.run --server mariadb [--suite go] [--folder DIR]

Lists the tests that pass directly and fail through sqlcache, and says where a suite takes longer
than it may. `suites.py` says which suites there are and where they come from.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from tests.certificates import self_signed
from tests.drivers.suites import ACCOUNT, PASSWORD, SUITES, Outcomes, Place, Suite
from tests.fetched import NotFetched
from tests.servers import PATIENT, PrivateMySQL

_SERVER_OPTIONS = ("--max-allowed-packet=35M",)  # some suites send and ask for that much
_MARIADB_OPTIONS = ("--secure-auth=OFF",)  # some log in with passwords as of MySQL 4.0

_COUNTERS = ("sqlcache_statements_relayed_total", "sqlcache_hits_total")


def prepare(suite: Suite, upstream: PrivateSqlServer) -> None:
    """The schemas a suite wants to find, and an account with all rights, whose password MySQL is
    made to remember."""
    for schema in suite.schemas:
        upstream.sql(f"DROP DATABASE IF EXISTS {schema}")
        upstream.sql(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    # A test that fails may leave locks, and others are not to wait for them.
    upstream.sql("SET GLOBAL lock_wait_timeout = 5; SET GLOBAL innodb_lock_wait_timeout = 5")
    upstream.sql(
        f"DROP USER IF EXISTS {ACCOUNT}; CREATE USER {ACCOUNT} IDENTIFIED BY '{PASSWORD}';"
        f"GRANT ALL ON *.* TO {ACCOUNT} WITH GRANT OPTION"
    )
    setups = (suite.setup, "" if upstream.name == "mariadbd" else suite.mysql_setup)
    for setup in filter(None, setups):
        upstream.sql(setup)
    upstream.connect(user=ACCOUNT, password=PASSWORD).close()


@dataclass(frozen=True, slots=True)
class Round:
    """A suite run directly and then through sqlcache."""

    direct: Outcomes
    proxied: Outcomes
    direct_s: float
    proxied_s: float
    relayed: float
    hits: float

    def with_outcome(self, wanted: str) -> list[str]:
        return [test for test, outcome in self.direct.items() if outcome == wanted]

    def lost(self) -> list[str]:
        """What passes directly, or is skipped there, and does not do the same through sqlcache."""
        tests = self.with_outcome("pass") + self.with_outcome("skip")
        return [test for test in tests if self.proxied.get(test) != self.direct[test]]

    def gained(self) -> list[str]:
        """What fails directly only: by chance, or by an answer that is not MySQL's."""
        return [test for test in self.with_outcome("fail") if self.proxied.get(test) != "fail"]

    def times_direct(self) -> float:
        return self.proxied_s / self.direct_s

    def too_slow(self, suite: Suite) -> bool:
        return suite.times_direct is not None and self.times_direct() > suite.times_direct


def both_ways(
    suite: Suite, upstream: PrivateSqlServer, proxy: PrivateSqlcache, folder: Path
) -> Round:
    is_mariadb = upstream.name == "mariadbd"
    prepare(suite, upstream)
    if suite.fetch is not None:
        suite.fetch(folder)
    begun = time.monotonic()
    direct = suite.run(Place(upstream.port, is_mariadb), folder)
    direct_s = time.monotonic() - begun
    prepare(suite, upstream)
    before = proxy.metrics()
    begun = time.monotonic()
    proxied = suite.run(Place(proxy.port, is_mariadb), folder)
    proxied_s = time.monotonic() - begun
    after = proxy.metrics()
    relayed, hits = (after[each] - before[each] for each in _COUNTERS)
    return Round(direct, proxied, direct_s, proxied_s, relayed, hits)


def compare(name: str, upstream: PrivateSqlServer, proxy: PrivateSqlcache, folder: Path) -> bool:
    """Runs a suite both ways and says what differs; whether all that passed does so, and in time.

    Some tests measure time and fail now and then on a busy machine, both ways. So where one is
    lost, or the suite takes too long, there is a second round, and what is so in both counts.
    """
    suite = SUITES[name]
    if suite.only_mariadb and upstream.name != "mariadbd":
        print(f"{name} on {upstream.name}: left out: {suite.only_mariadb}", flush=True)
        return True
    first = both_ways(suite, upstream, proxy, folder)
    passed, lost = first.with_outcome("pass"), first.lost()
    print(
        f"{name} on {upstream.name}: {len(first.direct)} tests, {len(passed)} pass directly,"
        f" {len(set(passed) - set(lost))} of these through sqlcache,"
        f" which relayed {first.relayed:.0f} statements and had {first.hits:.0f} hits",
        flush=True,
    )
    if suite.times_direct is not None:
        print(f"  {_times(first)}; {suite.times_direct:g} times it may be", flush=True)
    for test in first.gained():
        print(f"  {first.proxied.get(test, 'not run')}: {test}: fails directly", flush=True)
    # A suite that broke off, or never came here, would have nothing to lose.
    if unseen := first.proxied.keys() - first.direct.keys():
        print(f"  {len(unseen)} tests ran through sqlcache only, such as {min(unseen)}", flush=True)
        return False
    if not passed or not first.relayed:
        print("  this compares nothing", flush=True)
        return False
    if not lost and not first.too_slow(suite):
        return True
    second = both_ways(suite, upstream, proxy, folder)
    lost_again = second.lost()
    for test in lost:
        outcome = "again" if test in lost_again else "not in a second round"
        print(f"  {first.proxied.get(test, 'not run')}: {test}: {outcome}", flush=True)
    if first.too_slow(suite):
        print(f"  in a second round {_times(second)}", flush=True)
    slow = first.too_slow(suite) and second.too_slow(suite)
    return not slow and not set(lost) & set(lost_again)


def _times(both: Round) -> str:
    times = f"{both.times_direct():.2f} times as long"
    return f"{both.direct_s:.0f} s directly, {both.proxied_s:.0f} s through sqlcache: {times}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs drivers' own tests through sqlcache.")
    parser.add_argument("--server", choices=("mariadb", "mysql"), default="mariadb")
    parser.add_argument("--suite", choices=sorted(SUITES), action="append")
    parser.add_argument("--folder", type=Path, help="where suites are unpacked, and kept")
    options = parser.parse_args()
    kind = PrivateMariaDB if options.server == "mariadb" else PrivateMySQL
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        own = self_signed(scratch, "own")
        only = _MARIADB_OPTIONS if options.server == "mariadb" else ()
        given = (f"--ssl-cert={own.certificate}", f"--ssl-key={own.key}", *_SERVER_OPTIONS, *only)
        upstream = stack.enter_context(kind(scratch / "upstream", given))
        memcached = stack.enter_context(PrivateMemcached(scratch / "memcached"))
        proxy = PrivateSqlcache(
            scratch / "sqlcache",
            upstream.service_url,
            (memcached.address,),
            proxy__tls_certificate=str(own.certificate),
            proxy__tls_key=str(own.key),
            **PATIENT,
        )
        stack.enter_context(proxy)
        folder = (options.folder or scratch / "suites").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pytest.ini").touch()  # or a checkout around it would configure their pytest
        same = []
        for name in options.suite or list(SUITES):
            try:
                same.append(compare(name, upstream, proxy, folder))
            except NotFetched as missing:
                print(f"{name} on {upstream.name}: not run: {missing}", flush=True)
                same.append(False)
        print(proxy.log_text() if "Traceback" in proxy.log_text() else "", end="")
    return not all(same)


if __name__ == "__main__":
    sys.exit(main())
