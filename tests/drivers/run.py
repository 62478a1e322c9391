"""Runs the test suites that drivers bring along, directly and through sqlcache.

    python -m tests.drivers.run --server mariadb [--suite go] [--folder DIR]

Lists the tests that pass directly and fail through sqlcache. `suites.py` says which suites there
are and where they come from.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
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
from tests.drivers.suites import ACCOUNT, PASSWORD, SUITES, NotFetched, Outcomes, Place, Suite
from tests.servers import PATIENT, PrivateMySQL

_SERVER_OPTIONS = ("--max-allowed-packet=35M",)  # some suites send and ask for that much
_MARIADB_OPTIONS = ("--secure-auth=OFF",)  # some log in with passwords as of MySQL 4.0

_COUNTERS = ("sqlcache_statements_relayed_total", "sqlcache_hits_total")


def prepare(suite: Suite, upstream: PrivateSqlServer) -> None:
    """The account and schemas a suite wants to find. Also makes MySQL remember the password."""
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
    relayed: float
    hits: float

    def passed(self) -> list[str]:
        return [test for test, outcome in self.direct.items() if outcome == "pass"]

    def lost(self) -> list[str]:
        return [test for test in self.passed() if self.proxied.get(test) != "pass"]


def both_ways(
    suite: Suite, upstream: PrivateSqlServer, proxy: PrivateSqlcache, folder: Path
) -> Round:
    is_mariadb = upstream.name == "mariadbd"
    prepare(suite, upstream)
    direct = suite.run(Place(upstream.port, is_mariadb), folder)
    prepare(suite, upstream)
    before = proxy.metrics()
    proxied = suite.run(Place(proxy.port, is_mariadb), folder)
    after = proxy.metrics()
    relayed, hits = (after[each] - before[each] for each in _COUNTERS)
    return Round(direct, proxied, relayed, hits)


def compare(name: str, upstream: PrivateSqlServer, proxy: PrivateSqlcache, folder: Path) -> bool:
    """Runs a suite both ways and says what differs; whether all that passed still does.

    Some tests measure time and fail now and then on a busy machine, both ways. So where one is lost
    there is a second round, and what is lost in both counts.
    """
    suite = SUITES[name]
    if suite.only_mariadb and upstream.name != "mariadbd":
        print(f"{name} on {upstream.name}: left out: {suite.only_mariadb}", flush=True)
        return True
    first = both_ways(suite, upstream, proxy, folder)
    passed, lost = first.passed(), first.lost()
    print(
        f"{name} on {upstream.name}: {len(first.direct)} tests, {len(passed)} pass directly,"
        f" {len(passed) - len(lost)} of these through sqlcache,"
        f" which relayed {first.relayed:.0f} statements and had {first.hits:.0f} hits",
        flush=True,
    )
    # A suite that broke off, or never came here, would have nothing to lose.
    if unseen := first.proxied.keys() - first.direct.keys():
        print(f"  {len(unseen)} tests ran through sqlcache only, such as {min(unseen)}", flush=True)
        return False
    if not passed or not first.relayed:
        print("  this compares nothing", flush=True)
        return False
    if not lost:
        return True
    lost_again = both_ways(suite, upstream, proxy, folder).lost()
    for test in lost:
        outcome = "again" if test in lost_again else "not in a second round"
        print(f"  {first.proxied.get(test, 'not run')}: {test}: {outcome}", flush=True)
    return not set(lost) & set(lost_again)


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
