"""Pages of real apps: how long each takes directly and through sqlcache, and what CPU time MySQL,
sqlcache and memcached spend on it.

Each way has a schema and a site of its own, so that neither changes what the other has, and the two
take turns. A page is measured only where both ways show it, and show the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateServer, PrivateSqlcache
from tests.bench.pace import Pace
from tests.bench.page_apps import FETCHED, App, Database, Django
from tests.bench.page_client import Client, Page, Site, check, load
from tests.bench.page_wordpress import WordPress
from tests.bench.results import Row
from tests.servers import PATIENT

PART = "pages"
DIRECT, THROUGH = "direct", "sqlcache"
WAYS = (DIRECT, THROUGH)
CLIENTS = (1, 4)
_WARM_S = 1.0
_ACCOUNT = "pages"


def apps(folder: Path = FETCHED) -> Sequence[App]:
    """All that are measured."""
    return WordPress(folder), Django(folder, kept=False), Django(folder, kept=True)


def name_of(app: App, page: Page) -> str:
    """What the rows of a page are called."""
    return f"{app.name}: {page.name}"


def wanted(pace: Pace) -> list[tuple[App, list[Page]]]:
    """The apps of which pages are to be measured, with these."""
    found = [
        (app, [page for page in app.pages if pace.wants(PART, name_of(app, page))])
        for app in apps()
    ]
    return [(app, pages) for app, pages in found if pages]


def fetch(pace: Pace) -> list[str]:
    """Gets what is wanted, and says what that is. Raises: NotFetched."""
    return list(dict.fromkeys(app.fetch() for app, _ in wanted(pace)))


class Servers(NamedTuple):
    """All that works for a page but the app."""

    mariadb: PrivateMariaDB
    sqlcache: PrivateSqlcache
    memcached: PrivateMemcached

    def port(self, way: str) -> int:
        return (self.mariadb if way == DIRECT else self.sqlcache).port

    def spent(self, way: str) -> Mapping[str, float]:
        """CPU time so far of each that works for pages fetched this way, in microseconds, and the
        statements that MySQL was sent."""
        named: dict[str, PrivateServer] = self._asdict()
        working = {"mariadb": self.mariadb} if way == DIRECT else named
        cpu = {f"{name}_us": 1e6 * server.cpu_s() for name, server in working.items()}
        return {**cpu, "upstream": self.mariadb.status("Questions")}


@dataclass(frozen=True, slots=True)
class Work:
    """A page fetched one way by so many clients, again and again."""

    row: Row
    site: Site
    page: Page

    def fetch_for(self, seconds: float) -> list[float]:
        """The seconds that each time took."""
        return load(self.site, lambda: self.page, self.row.connections, seconds)

    def repeat(self, servers: Servers, seconds: float) -> Mapping[str, float]:
        """Times are a page's; CPU times and `upstream`, the statements that MySQL is sent, are each
        server's for a page."""
        before = servers.spent(self.row.way)
        times = self.fetch_for(seconds)
        now = servers.spent(self.row.way)
        timed = {"p50_us": 1e6 * statistics.median(times), "pages": len(times)}
        # Each client has fetched it once more, before the times count.
        fetched = len(times) + self.row.connections
        return {**timed, **{name: (now[name] - before[name]) / fetched for name in now}}


def measure(folder: Path, pace: Pace) -> list[Row]:
    """Passes over all pages, with each number of clients, and both ways in turn. Raises: WrongPage
    where a page is not what it must be; NotFetched."""
    if not wanted(pace):
        return []
    fetch(pace)
    with ExitStack() as stack:
        servers = _servers(stack, folder)
        work = [each for pages in _sites(stack, folder, servers, pace) for each in pages]
        for each in work:
            if each.row.connections == max(CLIENTS):
                each.fetch_for(_WARM_S)
        for number in range(1, pace.passes + 1):
            for each in work if number % 2 else work[::-1]:  # neither way is always first
                pace.say(PART, number, pace.passes, f"{each.row.name}, {each.row.way}")
                each.row.repeats.append(each.repeat(servers, pace.page_s))
        return [each.row for each in work]


def _servers(stack: ExitStack, folder: Path) -> Servers:
    mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
    memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
    mariadb.sql(f"CREATE USER {_ACCOUNT}@'%' IDENTIFIED BY '{_ACCOUNT}'")
    mariadb.sql(f"GRANT ALL ON *.* TO {_ACCOUNT}@'%'")
    proxy = PrivateSqlcache(
        folder / "sqlcache", mariadb.service_url, (memcached.address,), **PATIENT
    )
    return Servers(mariadb, stack.enter_context(proxy), memcached)


def _sites(stack: ExitStack, folder: Path, servers: Servers, pace: Pace) -> Iterator[list[Work]]:
    """Starts the apps; gives the work on each one's pages."""
    filled = set()
    for number, (app, pages) in enumerate(wanted(pace)):
        sites = {}
        for way in WAYS:
            home = folder / f"app-{number}-{way}"
            name = f"{app.schema}_{way}"
            database = Database(servers.port(way), _ACCOUNT, _ACCOUNT, name)
            if name not in filled:
                servers.mariadb.sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
                app.fill_past(servers.mariadb, home, database)
                filled.add(name)
            sites[way] = app.site(stack, home, database)
        for page in pages:
            _compare(app, page, sites)
        yield [
            Work(Row(PART, name_of(app, page), way, clients), sites[way], page)
            for page in pages
            for clients in CLIENTS
            for way in WAYS
        ]


def _compare(app: App, page: Page, sites: Mapping[str, Site]) -> None:
    """Sees that both ways show the page, first from MySQL and then from the cache, and the same."""
    with ExitStack() as stack:
        direct, through = (stack.enter_context(closing(Client(sites[way]))) for way in WAYS)
        shown = direct.fetch(page)
        for _ in range(3):
            check(page, shown, through.fetch(page), app.noise)
