"""What a write of one row costs where answers are told apart by rows, beside one by tables:
sqlcache's CPU for an UPDATE by the key, by which alone they are told apart; or by another column,
too, of which MySQL is asked.

1 connection and 32, one CPU for all. Run as `python -m tests.bench.row_writes [--seconds 2]`.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.bench.programs import Generator, Target, compiled
from tests.bench.row_hits import IDS, ROUNDS, told_to
from tests.bench.row_tags import DEADLINE_S
from tests.servers import PATIENT

CONNECTIONS = (1, 32)
WAYS = {
    "by tables": (),
    "by rows, as its text tells": ("id",),
    "by rows, of which MySQL is asked": ("id", "k"),
}
"""By which columns answers are told apart."""
READ, WRITE = "SELECT v FROM t WHERE {} = 1", "UPDATE t SET v = v + 1 WHERE id = {id}"
WRITE_ALL = "UPDATE t SET v = v WHERE v < 0 OR v >= 0"
_TOLD = 'sqlcache_row_writes_total{covered="rows"}'
_RELAYED = "sqlcache_statements_relayed_total"
_ASKED = 'sqlcache_probes_total{outcome="told"}'

Rounds = dict[tuple[int, str], list[tuple[float, ...]]]
"""Of each number of connections and each way: microseconds of sqlcache's CPU for each write, and
the shares of those whose text told all their rows, and of those of which MySQL was asked."""


def tell_rows_apart(proxy: PrivateSqlcache, columns: tuple[str, ...]) -> None:
    """Writes and reads until answers are told apart by all these columns."""
    login = {"user": "bench", "password": "bench", "database": "bench", "autocommit": True}
    with closing(proxy.connect(**login)) as connection, connection.cursor() as cursor:
        for taken, column in enumerate(columns, 1):
            while proxy.metrics()["sqlcache_slots_taken_total"] < taken:
                cursor.execute(WRITE_ALL)
                cursor.execute(READ.format(column))


def measured(stack: ExitStack, folder: Path, seconds: float) -> Rounds:
    """All rounds, after one for what is new, as plans and logs."""
    generator = Generator(compiled("load", folder))
    mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
    memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
    mariadb.sql("CREATE DATABASE bench")
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT, KEY (k))", "bench")
    mariadb.sql(f"INSERT INTO t SELECT seq, seq, 0 FROM seq_1_to_{IDS}", "bench")
    mariadb.sql("CREATE USER bench@'%' IDENTIFIED BY 'bench'; GRANT ALL ON bench.* TO bench@'%'")
    proxies = {}
    for number, (way, columns) in enumerate(WAYS.items()):
        proxies[way] = stack.enter_context(
            PrivateSqlcache(
                *(folder / f"sqlcache-{number}", mariadb.service_url, (memcached.address,)),
                cache__row_tags=bool(columns),
                cache__write_deadline_s=DEADLINE_S,
                memcached__prefix=f"way{number}",
                **PATIENT,
            )
        )
        tell_rows_apart(proxies[way], columns)
    rounds: Rounds = {}
    turns = [(turn, count) for turn in range(1 + ROUNDS) for count in CONNECTIONS]
    for turn, connections in turns:
        for way, proxy in proxies.items():
            before = proxy.metrics()
            options = [f"--statement={WRITE}", f"--connections={connections}", f"--ids={IDS}"]
            load = generator.run(Target(proxy.port), options, seconds, {"sqlcache": proxy.pid})
            after = proxy.metrics()
            sent = after[_RELAYED] - before[_RELAYED]
            shares = [(after[each] - before.get(each, 0)) / sent for each in (_TOLD, _ASKED)]
            if turn:
                took = load.cpu_us["sqlcache"], *shares
                rounds.setdefault((connections, way), []).append(took)
    return rounds


def main() -> None:
    rounds = told_to(measured, __doc__)
    for (connections, way), took in rounds.items():
        whole = rounds[connections, next(iter(WAYS))]
        ratio = median(each[0] / other[0] for each, other in zip(took, whole, strict=True))
        cpu_us, told, asked = (median(each) for each in zip(*took, strict=True))
        print(
            f"{connections} connections, {way}: {cpu_us:.1f} us, {ratio:.2f} times that by tables;"
            f" {told:.0%} told by their texts, of {asked:.0%} MySQL was asked"
        )


if __name__ == "__main__":
    main()
