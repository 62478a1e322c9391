"""What read leases cost writers: how long an UPDATE takes, seldom and often, beside a reader.

One sqlcache is asked for a row all the time, the writer goes through another; with read leases of
the default, and without. Run as `python -m tests.bench.held_writes [--seconds 20]`.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.bench.meanwhile import sent_meanwhile

SELDOM_S, OFTEN_S = 1.5, 0.02
"""Between two writes: more than the quiet after which reads are served unasked, and less."""


def update_ms(connection: Any, every_s: float, seconds: float) -> list[float]:
    """How long UPDATEs take, one so often, in milliseconds."""
    took = []
    until = perf_counter() + seconds
    with connection.cursor() as cursor:
        while perf_counter() < until:
            sleep(every_s)
            began = perf_counter()
            cursor.execute("UPDATE t SET v = v + 1 WHERE id = 1")
            took.append(1000 * (perf_counter() - began))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each way (20)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="sqlcache-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        mariadb = stack.enter_context(PrivateMariaDB(folder / "mariadb"))
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
        mariadb.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
        mariadb.sql("INSERT INTO d.t VALUES (1, 0)")
        account = {"user": mariadb.user, "password": mariadb.password, "database": "d"}
        for title, lease_ms in (("read leases of 5 ms", 5), ("without read leases", 0)):
            with ExitStack() as pair:
                reader, writer = (
                    pair.enter_context(
                        PrivateSqlcache(
                            folder / f"{side}-{lease_ms}",
                            mariadb.service_url,
                            (memcached.address,),
                            cache__read_lease_ms=lease_ms,
                            memcached__prefix=f"lease{lease_ms}",
                            proxy__tls_auto=False,
                            binlog__follow="off",
                        )
                    )
                    for side in ("reader", "writer")
                )
                reads = pair.enter_context(closing(reader.connect(**account, autocommit=True)))
                writes = pair.enter_context(closing(writer.connect(**account, autocommit=True)))
                with sent_meanwhile(reads, "SELECT v FROM t WHERE id = 1"):  # hits mostly
                    for often, every_s in (("seldom", SELDOM_S), ("often", OFTEN_S)):
                        took = update_ms(writes, every_s, seconds)
                        print(
                            f"{title}: a write {often}, every {every_s:g} s: median"
                            f" {median(took):.1f} ms, longest {max(took):.1f} ms, of {len(took)}"
                        )


if __name__ == "__main__":
    main()
