"""What definitions cost: a migration straight to the server, and through sqlcache.

Creates `--tables` tables, and then times, each way, `--steps` steps of a migration as Django makes
them (CREATE TABLE, ALTER TABLE, an INSERT in the table of migrations), plain CREATE TABLEs, and
the first use of as many temporary tables. Tells also how long sqlcache takes to start. Run as
`python -m tests.bench.migration [--tables 900] [--steps 200] [--server mariadb|mysql]`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

from pymysql import Connection

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateServer,
    PrivateSqlcache,
    PrivateSqlServer,
)
from tests.servers import PrivateMySQL

COLUMNS = "(id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(80), made DATETIME, n INT, KEY (n))"
SERVERS: dict[str, type[PrivateSqlServer]] = {"mariadb": PrivateMariaDB, "mysql": PrivateMySQL}


def django(way: str, steps: int) -> Iterator[str]:
    for step in range(steps):
        yield f"CREATE TABLE {way}_d{step} {COLUMNS}"
        key = f"FOREIGN KEY (n) REFERENCES {way}_d{max(step - 1, 0)} (id) ON DELETE CASCADE"
        yield f"ALTER TABLE {way}_d{step} ADD CONSTRAINT {way}_k{step} {key}"
        yield f"INSERT INTO migrations (name, made) VALUES ('{way}{step}', NOW())"


def creates(way: str, steps: int) -> Iterator[str]:
    for step in range(steps):
        yield f"CREATE TABLE {way}_c{step} {COLUMNS}"


def temporary(way: str, steps: int) -> Iterator[str]:
    for step in range(steps):
        yield f"CREATE TEMPORARY TABLE {way}_t{step} {COLUMNS}"
        yield f"INSERT INTO {way}_t{step} (n) VALUES (1)"
        yield f"SELECT n FROM {way}_t{step}"
        yield f"DROP TEMPORARY TABLE {way}_t{step}"


def filled(way: str, steps: int) -> Iterator[str]:
    for step in range(steps):
        yield f"INSERT INTO {way}_c{step} (n) VALUES (1)"
        yield f"SELECT n FROM {way}_c{step}"


WORK: dict[str, Callable[[str, int], Iterator[str]]] = {
    "CREATE TABLE, ALTER TABLE, INSERT": django,
    "CREATE TABLE": creates,
    "the first rows of each of these": filled,
    "temporary tables": temporary,
}


def run(server: PrivateServer, statements: Iterator[str], login: dict[str, Any]) -> None:
    """Runs the statements, one after another in one session."""
    with closing(connect(server, login)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def connect(server: PrivateServer, login: dict[str, Any]) -> Connection[Any]:
    connection: Connection[Any] = server.connect(**login)  # type: ignore[attr-defined]
    return connection


def in_turns(
    servers: tuple[PrivateServer, ...], ways: tuple[Iterator[str], ...], login: dict[str, Any]
) -> list[float]:
    """Seconds each server takes for its statements. One statement is run on each in turn: what
    else the machine does meanwhile slows all of them down alike."""
    sessions = [connect(server, login) for server in servers]
    took = [0.0] * len(servers)
    for statements in zip(*ways, strict=True):
        for each, (session, statement) in enumerate(zip(sessions, statements, strict=True)):
            began = perf_counter()
            session.query(statement)
            took[each] += perf_counter() - began
    for session in sessions:
        session.close()
    return took


def measure(kind: str, tables: int, steps: int, folder: Path) -> None:
    with SERVERS[kind](folder / kind) as server, PrivateMemcached(folder / "memcached") as node:
        server.sql("CREATE DATABASE big")
        server.sql("CREATE TABLE migrations (name VARCHAR(80), made DATETIME)", "big")
        login = {"user": server.user, "password": server.password, "database": "big"}
        run(server, (f"CREATE TABLE big{n} {COLUMNS}" for n in range(tables)), login)
        proxy = PrivateSqlcache(
            *(folder / f"sqlcache-{kind}", server.service_url, (node.address,)),
            proxy__tls_auto=False,
        )
        began = perf_counter()
        with proxy:
            print(f"{kind}, {tables} tables: started in {perf_counter() - began:.1f} s")
            for name, work in WORK.items():
                works = work("direct", steps), work("through", steps)
                direct, through = in_turns((server, proxy), works, login)
                loads = proxy.metrics()["sqlcache_catalog_loads_total"]
                ratio = through / direct
                print(
                    f"  {name}: direct {direct:.2f} s, through {through:.2f} s,"
                    f" {ratio:.2f} times; {loads:.0f} readings of the catalog so far",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=900)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--server", choices=SERVERS, action="append")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in asked.server or SERVERS:
            measure(kind, asked.tables, asked.steps, Path(folder))


if __name__ == "__main__":
    main()
