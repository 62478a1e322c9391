"""What tests ask sessions and servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pymysql

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer

Session: TypeAlias = "pymysql.Connection[Any]"
Connect: TypeAlias = Callable[[Any], Session]


def ask(session: Session, sql: str) -> Any:
    """The answer's one value."""
    with session.cursor() as cursor:
        cursor.execute(sql)
        ((value,),) = cursor.fetchall()
        return value


def run(session: Session, sql: str) -> None:
    """Runs a statement whose answer does not matter."""
    with session.cursor() as cursor:
        cursor.execute(sql)


def count(proxy: PrivateSqlcache, name: str) -> float:
    """A counter's value, or of all its labels together."""
    whole = f"sqlcache_{name}_total"
    samples = proxy.metrics().items()
    return sum(value for sample, value in samples if sample.partition("{")[0] == whole)


def is_ready(proxy: PrivateSqlcache) -> bool:
    """Whether it, or all its workers, can serve clients."""
    try:
        said = proxy.readiness()
    except OSError:
        return False
    return said["ready"] and not said["warnings"]


def running(server: PrivateSqlServer, sql: str) -> int:
    """How many sessions of the SQL server run the statement now."""
    found = server.sql(f"SELECT COUNT(*) FROM information_schema.processlist WHERE info = '{sql}'")
    return int(found[0][0])


def make_slow_table(server: PrivateSqlServer, schema: str, rows: int) -> str:
    """Makes a table, and returns a query of it that takes some tenths of a second."""
    server.sql(
        "CREATE TABLE slow (v INT NOT NULL) ENGINE=InnoDB;"
        f"INSERT INTO slow SELECT seq FROM seq_1_to_{rows};",
        schema,
    )
    return "SELECT MAX(a.v * b.v + c.v) FROM slow a, slow b, slow c"
