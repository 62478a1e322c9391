"""One live run: servers, clients and faults, and what came of it.

    python -m tests.coherence.live_run --minutes 10 --policy consistency
    python -m tests.coherence.live_run --minutes 10 --policy availability --seed 1
    python -m tests.coherence.live_run --minutes 10 --policy availability --one-sided-cut
    python -m tests.coherence.live_run --minutes 10 --direct-writers --server mysql
    python -m tests.coherence.live_run --minutes 10 --row-tags

The clients' doors are proxies and apps that use sqlcache as a library.

`consistency` meets every fault. `availability` meets every fault but a cut that one door alone
sees, for which it promises nothing; with `--one-sided-cut` it meets only such cuts, and the run
measures for how long answers were stale, which is no failure then.

With `--direct-writers` half of the writers go around sqlcache, whose proxies follow MySQL's binary
log; it also meets what may befall that, see `live_faults.FOLLOWERS` and `OF_THE_LOG`. What these
write must be seen within `CALM_S` without faults, but for the time in which the machine lets nobody
go on, and within `UNDER_FAULTS_S` whatever happens.

What no policy promises is kept out of the runs: a statement that MySQL still works on when its
door has been dead or stopped for `write_deadline_s`. So no statement waits for a lock longer
than a second, far below that deadline, and all are short.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlServer
from tests.coherence import live_load
from tests.coherence.live_broken import NO_BUG
from tests.coherence.live_doors import Door, Library, Proxy
from tests.coherence.live_faults import (
    EVERYWHERE,
    FOLLOW,
    FOLLOWERS,
    OF_THE_LOG,
    ONE_SIDED,
    Faults,
    Kind,
)
from tests.coherence.live_history import staleness
from tests.coherence.live_host import CALM_S, OwnLag, are_late
from tests.coherence.live_links import Links
from tests.coherence.live_load import IN_TRANSACTION, LEFT, SHUTDOWN, TABLES, Counts, Load
from tests.servers import PrivateMySQL

POLICIES = {"consistency": EVERYWHERE + ONE_SIDED, "availability": EVERYWHERE}
"""The faults under which each keeps the guarantee."""

_AROUND = {
    "consistency": (*FOLLOWERS, *OF_THE_LOG, Kind.FOLLOWER_ALONE),
    "availability": (*FOLLOWERS, *OF_THE_LOG),
}
"""More of them, where some write around sqlcache: twice as often as each of the others."""

UNDER_FAULTS_S = 20.0
"""When it is seen whatever happens to who follows the log and to that: what a turn takes that has
to be given up first, as MySQL does not answer, and what bumps take that a node holds up."""
SERVERS: Mapping[str, type[PrivateSqlServer]] = {"mariadb": PrivateMariaDB, "mysql": PrivateMySQL}

_SETTINGS = {
    "proxy__drain_timeout_s": 1,
    "memcached__timeout_s": 0.6,
    "memcached__connect_timeout_s": 1.0,
    "memcached__reconnect_max_s": 0.5,
    "memcached__outage_s": 3.0,
    "cache__write_deadline_s": 3,
    "cache__lease_ttl_s": 2,
    "cache__lease_wait_s": 1,
}
"""Short, so that within a run everything lapses; but longer than a busy machine takes to answer."""

Kinds = Sequence[tuple[type[Door], Mapping[str, float]]]
"""Doors, each with what settings it has of its own."""

_NOTHING_NEAR: Mapping[str, float] = {"cache__near_bytes": 0, "cache__compress_over_bytes": 64}
_DOORS: Kinds = (
    (Proxy, {"proxy__workers": 2}),
    (Library, {}),
    (Proxy, _NOTHING_NEAR),
    (Library, _NOTHING_NEAR),
)
_PROGRAMS: Mapping[type[Door], Sequence[str]] = {
    Proxy: ("-m", "sqlcache"),
    Library: ("-m", "tests.coherence.live_library"),
}

_SETTLE_TIMEOUT_S = 60.0
_SAMPLE_EVERY_S = 0.5
_FOLLOWED_TIMEOUT_S = 20.0
_CALM_DIRECT_S, _CALM_PART = 5.0, 0.1  # at the least, and of the whole run
_CALM_HITS = 100  # before the first fault
_CALM_TIMEOUT_S = 60.0
_SELDOMER_EVERY_S = 5.0
_LEAST_HITS = 0.02  # of all reads, those of killed processes not counted
_TOLERATED = frozenset(
    {"connection lost", "timeout", "refused", "lock wait", "deadlock", LEFT, SHUTDOWN}
)
_MEASURED = frozenset({"stale", "backwards"})
_SHOWN = 5
_RECENT_S = 12.0  # faults shown with a violation


@dataclass(slots=True)
class Report:
    """What a run did, and what is wrong with it. `stale` is given where it is only measured, `late`
    of what was written around sqlcache."""

    title: str
    counts: Counts
    hits: float = 0
    rows: float = 0
    told: float = 0
    faults: dict[str, int] = field(default_factory=dict)
    violations: int = 0
    stale: str = ""
    late: str = ""
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.title}: {self.violations} violations",
            f"  reads  {_listed(self.counts.reads)}",
            f"         {_listed(self.counts.reads_by)}",
            f"  hits   at least {self.hits:.0f}",
            *(
                [
                    f"  rows   {self.rows:.0f} writes forgot what they touched alone;"
                    f" MySQL told {self.told:.0f} times which those were"
                ]
                * bool(self.rows)
            ),
            f"  writes {_listed(self.counts.writes)}",
            f"         {_listed(self.counts.writes_by)}",
            f"  faults {_listed(self.faults)}",
            f"  errors {_listed(self.counts.errors)}",
            *(f"  {each}" for each in (self.stale, self.late) if each),
            *(f"  FAILED {problem}" for problem in self.problems),
        ]
        return "\n".join(lines)


class Deployment:
    """Three nodes, and doors with a way of their own to each node. `bug`: of `live_broken`. Where
    a part of the writers are `direct_writers`, the doors have one to the server, too, and proxies
    follow its log."""

    def __init__(
        self,
        server: PrivateSqlServer,
        folder: Path,
        schema: str,
        *,
        policy: str = "consistency",
        bug: str | None = None,
        read_lease_ms: float | None = None,
        doors: Kinds = _DOORS,
        direct_writers: float = 0,
        row_tags: bool = False,
    ) -> None:
        self.server = server
        self.direct_writers = direct_writers
        self.row_tags = row_tags
        self.schema = schema
        self.nodes = [PrivateMemcached(folder / f"memcached-{number}") for number in range(3)]
        self.doors: list[Door] = []
        self._folder = folder
        self._bug = bug
        self._settings: dict[str, Any] = {"cache__when_tags_unreachable": policy, **_SETTINGS}
        if row_tags:
            self._settings["cache__row_tags"] = True
        if read_lease_ms is not None:
            self._settings["cache__read_lease_ms"] = read_lease_ms
            self._bug = bug or NO_BUG
        self._kinds = doors

    @contextlib.contextmanager
    def running(self) -> Iterator[Links]:
        """Creates the schema, and starts and at last stops all of it."""
        live_load.create(self.server, self.schema)
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            targets = [node.address for node in self.nodes]
            if self.direct_writers:
                targets.append(self.server.address)
            links = stack.enter_context(Links(targets))
            self.doors += [
                self._door(number, links, *kind) for number, kind in enumerate(self._kinds)
            ]
            # All at once. No process outlives the thread that started it.
            threads = stack.enter_context(ThreadPoolExecutor(len(self.doors)))
            try:
                list(threads.map(Door.start, self.doors))
                yield links
            finally:
                list(threads.map(Door.stop, self.doors))

    def _door(self, number: int, links: Links, kind: type[Door], own: Mapping[str, float]) -> Door:
        program = _PROGRAMS[kind]
        if self._bug is not None:
            program = ("-m", "tests.coherence.live_broken", self._bug, program[-1])
        server = self.server
        nodes, address = links.addresses, server.address
        settings = {**self._settings, **own, FOLLOW: "on" if self.direct_writers else "off"}
        if self.direct_writers:
            nodes, address = links.addresses[:-1], links.addresses[-1]
        door = kind(
            f"{os.getpid()}-{number}",
            program,
            self._folder / f"door-{number}",
            server.service_url.replace(server.address, address),
            nodes,
            **settings,
        )
        if isinstance(door, Library):
            door.url = f"mysql://{server.user}:{server.password}@{address}/{self.schema}"
        return door


class Run:
    """A run's clients, faults and findings. `measure`: that answers are stale is no failure."""

    def __init__(
        self,
        deployment: Deployment,
        links: Links,
        *,
        seed: int,
        kinds: Sequence[Kind] = (),
        measure: bool = False,
        tables: Sequence[str] = TABLES,
        in_transaction: float = IN_TRANSACTION,
        title: str = "",
    ) -> None:
        self._deployment = deployment
        self._measure = measure
        self._load = Load(
            *(deployment.server, deployment.schema, deployment.doors, seed),
            tables=tables,
            in_transaction=in_transaction,
            direct=deployment.direct_writers,
            bound_s=CALM_S,
        )
        self._faults = Faults(
            deployment.doors, deployment.nodes, links, kinds, seed, deployment.server
        )
        self._hits: dict[tuple[str, int], float] = {}  # by door and process
        self._own_lag = OwnLag()
        self._report = Report(title, self._load.counts)

    async def go(self, seconds: float) -> Report:
        """Lets clients run, for `seconds` under faults, and looks at the end that all doors
        agree with MySQL."""
        sampling = asyncio.create_task(self._sample_hits())
        lagging = asyncio.create_task(self._own_lag.watch())
        self._load.around.bound_s = UNDER_FAULTS_S  # `_calm` looks for how long it was in truth
        if self._deployment.direct_writers:
            await self._followed()
        self._load.start()
        try:
            await self._without_faults()
            if self._deployment.direct_writers:
                await self._calm(seconds)
            await self._with_faults(seconds)
            await self._load.stop()
            await self._compare_at_end()
        finally:
            sampling.cancel()
            lagging.cancel()
            await self._load.stop()
        self._conclude()
        return self._report

    async def until_violation(
        self, timeout_s: float, trouble: Coroutine[None, None, None] | None = None
    ) -> bool:
        """Lets clients run, without faults but the trouble, until an answer was wrong.

        Returns whether one was.
        """
        if self._deployment.direct_writers:
            await self._followed()
        self._load.start()
        making = None if trouble is None else asyncio.create_task(trouble)
        end = time.monotonic() + timeout_s
        try:
            while not self._load.checker.violations and time.monotonic() < end:
                await asyncio.sleep(0.05)
        finally:
            if making is not None:
                making.cancel()
            await self._load.stop()
        return bool(self._load.checker.violations)

    async def _without_faults(self) -> None:
        """Returns when the cache is in use: what is wrong is only found in hits.

        A busy machine is slow to read, and writes are mostly waited for: they are made seldom
        enough there for an answer to live until it is asked for again.
        """
        began = since = time.monotonic()
        while await self._count_hits() < _CALM_HITS:
            now = time.monotonic()
            if now > began + _CALM_TIMEOUT_S:
                self._report.problems.append("hardly any hits: the run means nothing")
                return
            if now > since + _SELDOMER_EVERY_S:
                since = now
                self._load.write_pause_s *= 2
            await asyncio.sleep(0.1)

    async def _followed(self) -> None:
        """Returns when one follows the log, and all know that."""
        doors = self._deployment.doors
        proxies = [door for door in doors if isinstance(door, Proxy)]
        end = time.monotonic() + _FOLLOWED_TIMEOUT_S
        while time.monotonic() < end:
            answers = [await asyncio.to_thread(proxy.readiness) for proxy in proxies]
            following = await _count("binlog_following", doors)
            if following == 1 and not any(each["warnings"] for each in answers):
                return
            await asyncio.sleep(0.1)
        self._report.problems.append(f"nobody follows the log: {answers}")

    async def _calm(self, seconds: float) -> None:
        """Measures how late is seen what is written around sqlcache while nothing is broken."""
        await asyncio.sleep(max(_CALM_DIRECT_S, _CALM_PART * seconds))
        late = list(self._load.around.late_s.values())
        late_s = sorted(late_s for _, late_s in late)
        pauses = self._own_lag.pauses
        paused_s = sum(seconds for _, seconds in pauses)
        held_s = await _count("loop_lag_seconds_sum", self._deployment.doors)
        self._report.late = (
            f"without faults, {_quantiles(late_s)}, in {paused_s:.3f} s of pauses, and the doors'"
            f" timers {held_s:.3f} s late"
        )
        if are_late(late, pauses):
            self._report.problems.append(f"seen late: {self._report.late}")

    async def _with_faults(self, seconds: float) -> None:
        breaking = asyncio.create_task(self._faults.run())
        shown = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end and not breaking.done():
            await asyncio.sleep(0.2)
            found = self._load.checker.violations
            if not self._measure:
                for violation in found[shown:_SHOWN]:
                    self._show(str(violation))
            shown = len(found)
        self._faults.stop()
        await breaking

    def _show(self, violation: str) -> None:
        since = time.monotonic() - _RECENT_S
        recent = [what for at, what in self._faults.log if at > since]
        print(violation, *recent, sep="\n    ", flush=True)

    async def _compare_at_end(self) -> None:
        """With all mended and no client left, every door answers as MySQL does."""
        await self._settle()
        doors = self._deployment.doors
        self._report.rows = await _count('row_writes_total{covered="rows"}', doors)
        self._report.told = await _count('probes_total{outcome="told"}', doors)
        end = time.monotonic() + (UNDER_FAULTS_S if self._deployment.direct_writers else 0)
        with self._deployment.server.connect() as connection, connection.cursor() as cursor:
            # What a client sent before it left may have come no further than to its door.
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            differing = await asyncio.gather(*map(self._load.ask_all, doors))
            while any(differing) and time.monotonic() < end:
                differing = await asyncio.gather(*map(self._load.ask_all, doors))
        for number, door in enumerate(doors):
            self._report.problems += [f"{door.kind} {number}: {each}" for each in differing[number]]

    async def _settle(self) -> None:
        """Returns when the clients' last statements have ended, killed workers have successors,
        and no bump is owed: the sessions that are left are those that apps keep for the next
        client, and idle."""
        server = self._deployment.server
        sessions = (
            "SELECT command, time, info, (SELECT COUNT(*) FROM information_schema.innodb_trx"
            " WHERE trx_mysql_thread_id = id) FROM information_schema.processlist"
            f" WHERE user = '{server.user}' AND db = '{self._deployment.schema}'"
        )
        apps = [door for door in self._deployment.doors if isinstance(door, Library)]
        proxies = [door for door in self._deployment.doors if isinstance(door, Proxy)]
        end = time.monotonic() + _SETTLE_TIMEOUT_S
        while True:
            left = server.sql(sessions)
            kept = await _count("connections_open", apps)
            owed = await _count("pending_bumps", self._deployment.doors)
            idle = all(command == "Sleep" and not open_ for command, _, _, open_ in left)
            idle &= not self._deployment.direct_writers or self._load.end_branches()
            answers = [await asyncio.to_thread(proxy.readiness) for proxy in proxies]
            if len(left) == kept and idle and not owed and all(each["ready"] for each in answers):
                return
            if time.monotonic() > end:
                self._report.problems.append(
                    f"left at the end: {owed:.0f} bumps, {kept:.0f} of apps' sessions, of {left};"
                    f" proxies say {answers}"
                )
                return
            await asyncio.sleep(0.05)

    # Hits.

    async def _sample_hits(self) -> None:
        """A process that is killed takes its counters with it: so look at them often."""
        while True:
            await self._count_hits()
            await asyncio.sleep(_SAMPLE_EVERY_S)

    async def _count_hits(self) -> float:
        for door in self._deployment.doors:
            with contextlib.suppress(Exception):  # it is dead or frozen just now
                pid = door.pid
                hits = await asyncio.to_thread(door.hits)
                # Those of a worker that was killed are no longer in it.
                self._hits[door.mark, pid] = max(self._hits.get((door.mark, pid), 0), hits)
        return sum(self._hits.values())

    def _conclude(self) -> None:
        report, found = self._report, self._load.checker.violations
        report.hits = sum(self._hits.values())
        report.faults = dict(self._faults.counts)
        report.violations = len(found)
        if report.late:
            late_s = sorted(late_s for _, late_s in self._load.around.late_s.values())
            report.late += f"; of all, {_quantiles(late_s)}"
        if self._measure:
            report.stale = self._staleness()
            found = [violation for violation in found if violation.kind not in _MEASURED]
        if found:
            report.problems.append(f"{len(found)} violations, the first: {found[0]}")
        if self._deployment.row_tags and not report.rows:
            report.problems.append("no write told its rows: the run means nothing")
        if report.hits < _LEAST_HITS * report.counts.reads.total() or not report.counts.writes:
            report.problems.append("hardly any hits, or no writes: the run means nothing")
        unexplained = report.counts.errors.keys() - _TOLERATED
        if unexplained:
            report.problems.append(f"errors that no fault explains: {sorted(unexplained)}")
        for number, door in enumerate(self._deployment.doors):
            door.keep_traceback()
            if door.tracebacks:
                report.problems.append(f"{door.kind} {number} logged: {door.tracebacks}")

    def _staleness(self) -> str:
        found = [v for v in self._load.checker.violations if v.kind in _MEASURED]
        longest_s, total_s = staleness(found)
        return (
            f"{len(found)} answers were stale, at most for {longest_s:.3f} s;"
            f" {total_s:.3f} s in total of all rows."
            f" The longest cut was {self._faults.longest_s:.3f} s"
        )


def _quantiles(late_s: Sequence[float]) -> str:
    """Of delays, in order."""
    median, most, longest = (
        1000 * late_s[int(part * (len(late_s) - 1))] for part in (0.5, 0.99, 1)
    )
    return (
        f"{len(late_s)} writes around sqlcache were seen after {median:.0f} ms in the median,"
        f" {most:.0f} ms but for 1 %, {longest:.0f} ms at most"
    )


async def _count(metric: str, doors: Sequence[Door]) -> float:
    metrics = [await asyncio.to_thread(door.metrics) for door in doors]
    return sum(each[f"sqlcache_{metric}"] for each in metrics)


def run(
    server: PrivateSqlServer,
    folder: Path,
    schema: str,
    *,
    policy: str,
    seed: int,
    seconds: float,
    one_sided_cut: bool = False,
    read_lease_ms: float | None = None,
    direct_writers: bool = False,
    row_tags: bool = False,
) -> Report:
    """A run from its beginning to its end, on servers of its own but the SQL server. With
    `read_lease_ms`, its doors give promises at once."""
    title = f"{policy}{', one-sided cuts' if one_sided_cut else ''}, seed {seed}, {seconds:g} s"
    title += f", read leases of {read_lease_ms:g} ms" if read_lease_ms is not None else ""
    title += f", direct writers on {server.name}" if direct_writers else ""
    title += ", row tags" if row_tags else ""
    print(f"live run: {title}", flush=True)
    deployment = Deployment(
        *(server, folder, schema),
        policy=policy,
        read_lease_ms=read_lease_ms,
        direct_writers=0.5 if direct_writers else 0,
        row_tags=row_tags,
    )
    kinds = ONE_SIDED if one_sided_cut else POLICIES[policy]
    if direct_writers:
        kinds = (*kinds, *_AROUND[policy], *_AROUND[policy])
    with deployment.running() as links:
        whole = Run(
            deployment,
            links,
            seed=seed,
            kinds=kinds,
            measure=one_sided_cut,
            title=title,
        )
        report: Report = uvloop.run(whole.go(seconds))
    print(report, flush=True)
    return report


def _listed(counts: dict[str, int]) -> str:
    each = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    return f"{sum(counts.values())}: {each}" if counts else "none"


def main() -> int:
    """The command line; exit code 1 where something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--policy", choices=[*POLICIES], default="consistency")
    parser.add_argument("--one-sided-cut", action="store_true")
    parser.add_argument("--direct-writers", action="store_true")
    parser.add_argument("--server", choices=[*SERVERS], default="mariadb")
    parser.add_argument("--row-tags", action="store_true")
    parser.add_argument("--read-lease-ms", type=float, help="of doors that promise at once")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    if options.one_sided_cut and options.policy != "availability":
        parser.error("--one-sided-cut is for --policy availability: consistency meets it anyway")
    kind = SERVERS[options.server]
    with tempfile.TemporaryDirectory() as name, kind(Path(name) / options.server) as server:
        report = run(
            server,
            Path(name),
            "live",
            policy=options.policy,
            seed=options.seed,
            seconds=60 * options.minutes,
            one_sided_cut=options.one_sided_cut,
            read_lease_ms=options.read_lease_ms,
            direct_writers=options.direct_writers,
            row_tags=options.row_tags,
        )
    return int(bool(report.problems))


if __name__ == "__main__":
    sys.exit(main())
