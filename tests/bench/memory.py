"""What memory sqlcache takes: at idle, for each session, and for each answer it keeps.

Resident memory of its processes from /proc. What is its own is what belongs to no file: the rest
are pages that processes share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateServer, PrivateSqlcache
from tests.bench.kinds import WIDTH
from tests.bench.pace import Pace
from tests.bench.programs import Generator, Target, compiled
from tests.bench.results import Row
from tests.servers import PATIENT

PART = "memory"
IDLE, SESSION, ENTRY = "idle", "an idle session", "an answer of one row"
WAYS = {"1 process": 1, "2 workers": 2}
_ENTRIES = 20_000
_FILLING = 8


class Resident(NamedTuple):
    """Bytes of memory: all that is resident, and what of it belongs to no file."""

    whole: int
    own: int


def measure(folder: Path, pace: Pace) -> list[Row]:
    """In each pass with a sqlcache just started."""
    if not pace.wants(PART, ""):
        return []
    sessions, passes = pace.sessions, pace.sysbench_passes
    names = (IDLE, SESSION, ENTRY)
    rows = {(name, way): Row(PART, name, way, sessions) for way in WAYS for name in names}
    with ExitStack() as stack:
        generator = Generator(compiled("load", folder))
        room = (f"--max-connections={sessions + 50}",)
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb", room))
        _fill(mariadb)
        for number in range(1, passes + 1):
            mariadb.restart()  # it keeps what its sessions made it take
            for way, workers in WAYS.items():
                pace.say(PART, number, passes, way)
                within = folder / f"{number}-{workers}"
                with (
                    PrivateMemcached(within / "memcached", 256) as memcached,
                    PrivateSqlcache(
                        within / "sqlcache",
                        mariadb.service_url,
                        (memcached.address,),
                        proxy__workers=workers,
                        **PATIENT,
                    ) as proxy,
                ):
                    rows[IDLE, way].repeats.append(_idle(proxy, mariadb))
                    of_mariadb = mariadb if workers == 1 else None  # later ones cost it less
                    rows[SESSION, way].repeats.append(_per_session(proxy, of_mariadb, sessions))
                    rows[ENTRY, way].repeats.append(_per_entry(proxy, memcached, generator))
    return list(rows.values())


def _fill(mariadb: PrivateMariaDB) -> None:
    mariadb.sql("CREATE DATABASE bench")
    mariadb.sql("CREATE USER bench@'%' IDENTIFIED BY 'bench'; GRANT ALL ON bench.* TO bench@'%'")
    mariadb.sql(f"CREATE TABLE t (id INT PRIMARY KEY, c CHAR({WIDTH}))", "bench")
    mariadb.sql(f"INSERT INTO t SELECT seq, REPEAT('x', {WIDTH}) FROM seq_1_to_{_ENTRIES}", "bench")


def _idle(proxy: PrivateServer, mariadb: PrivateServer) -> Mapping[str, float]:
    now = resident(proxy.pid)
    return {
        "whole_bytes": now.whole,
        "own_bytes": now.own,
        "mariadb_bytes": resident(mariadb.pid).whole,
    }


def _per_session(
    proxy: PrivateSqlcache, mariadb: PrivateMariaDB | None, sessions: int
) -> Mapping[str, float]:
    """Each has asked once for what is in the cache, and once for what is not, and then idles."""
    servers = {"own_bytes": proxy, **({} if mariadb is None else {"mariadb_bytes": mariadb})}

    def held() -> dict[str, int]:
        return {name: resident(server.pid).own for name, server in servers.items()}

    with _session(proxy), ExitStack() as stack:  # the first one costs more
        before = held()
        for _ in range(sessions):
            stack.enter_context(_session(proxy))
        now = held()
    return {name: (now[name] - before[name]) / sessions for name in servers}


@contextmanager
def _session(proxy: PrivateSqlcache) -> Iterator[None]:
    login = {"user": "bench", "password": "bench", "database": "bench"}
    with closing(proxy.connect(**login)) as connection:
        with connection.cursor() as cursor:
            for text in ("SELECT c FROM t WHERE id = 1", "SELECT c, SLEEP(0) FROM t WHERE id = 1"):
                cursor.execute(text)
        yield


def _per_entry(
    proxy: PrivateSqlcache, memcached: PrivateMemcached, generator: Generator
) -> Mapping[str, float]:
    """What different texts leave behind: the answer, and what is remembered of its text."""

    def ask(count: int, first: int) -> None:
        text = "--statement=SELECT c FROM t WHERE id = {new}"
        options = [text, f"--connections={_FILLING}", f"--count={count}", f"--first={first}"]
        generator.run(Target(proxy.port), options, 60, {})

    ask(_ENTRIES // 20, 1)  # what only the first ones cost
    before, stored = resident(proxy.pid), memcached.stats()
    new = _ENTRIES - _ENTRIES // 20
    ask(new, _ENTRIES // 20 + 1)
    now, stored_then = resident(proxy.pid), memcached.stats()
    items = int(stored_then["curr_items"]) - int(stored["curr_items"])
    assert items >= 0.99 * new, f"{items} of {new} answers were stored"
    return {
        "own_bytes": (now.own - before.own) / new,
        "memcached_bytes": (int(stored_then["bytes"]) - int(stored["bytes"])) / new,
    }


def resident(pid: int) -> Resident:
    """What a process and its children hold."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    whole, own = (int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    below = [resident(int(child)) for child in children]
    return Resident(whole + sum(b.whole for b in below), own + sum(b.own for b in below))
