"""What a work of the part `rows` is, and those that programs in C do: the load generator's turns,
and sysbench's test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from sqlcache.demo.servers import PrivateSqlServer
from tests.bench import sysbench
from tests.bench.binlog import MARIADB
from tests.bench.programs import Generator, Target, compiled

ACCOUNT = "bench"
"""Who may do everything on each server; its password is the same."""
_OLTP = "oltp_read_write"
_IDS = 200

Load = Callable[[float], object]
"""Does a work for so many seconds."""


class Place(NamedTuple):
    """Where a work is done: in a schema of its own, which is there and empty, through the proxy at
    the port."""

    server: PrivateSqlServer
    schema: str
    port: int
    folder: Path


class Work(ABC):
    """Reads and writes of one kind, by so many connections."""

    name: str
    connections = 8

    def runs_on(self, server: str) -> bool:
        """Whether it can be done on such a server."""
        return True

    def fetch(self) -> Sequence[str]:
        """Gets what it needs of the registries; returns what that is, with its version. Raises:
        NotFetched."""
        return ()

    @abstractmethod
    def begin(self, stack: ExitStack, place: Place) -> Load:
        """Makes its tables, past the proxy, and starts what does it."""


class Turns(Work):
    """Statements that each connection sends one after the other, with ids drawn anew."""

    def __init__(self, name: str, *statements: str) -> None:
        self.name = name
        self._statements: Sequence[str] = statements

    def runs_on(self, server: str) -> bool:
        return server == MARIADB  # the generator cannot log in to MySQL

    def begin(self, stack: ExitStack, place: Place) -> Load:
        values = ",".join(f"({id}, {id}, 0)" for id in range(1, _IDS + 1))
        place.server.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, v INT NOT NULL, KEY (k));"
            "CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL);"
            f"INSERT INTO t VALUES {values}; INSERT INTO n (v) SELECT v FROM t;"
            "INSERT INTO n (v) SELECT 1 FROM t",
            place.schema,
        )
        place.folder.mkdir(parents=True)
        generator = Generator(compiled("load", place.folder))
        target = Target(place.port, ACCOUNT, ACCOUNT, place.schema)
        options = [f"--connections={self.connections}", f"--ids={_IDS}", "--first=1"]
        options += [f"--statement={each}" for each in self._statements]
        return lambda seconds: generator.run(target, options, seconds, {})


_BY_ID = "SELECT v FROM t WHERE id = {id}"
_BY_KEY = "SELECT id, v FROM t WHERE k = {id}"
_NUMBERED = "SELECT v FROM n WHERE id = {id}"
_UPDATE = "UPDATE t SET v = v + 1 WHERE id = {id}"
_MOVE = "UPDATE t SET k = 201 - k WHERE id = {id}"
_INSERT = "INSERT INTO n (v) VALUES ({id})"
TURNS = (
    Turns("15 reads by id, 1 UPDATE by id", *[_BY_ID] * 15, _UPDATE),
    Turns("7 by id and 8 by a key, 1 UPDATE by id", *[_BY_ID] * 7, *[_BY_KEY] * 8, _UPDATE),
    Turns("15 reads by id, 1 UPDATE of its key", *[_BY_ID] * 15, _MOVE),
    Turns("15 reads by id, 1 INSERT", *[_NUMBERED] * 15, _INSERT),
)


class Oltp(Work):
    """sysbench's test of reads and writes."""

    name = f"sysbench {_OLTP}"

    def begin(self, stack: ExitStack, place: Place) -> Load:
        sysbench.run_at(place.server.port, place.schema, _OLTP, "prepare", 0)
        threads = self.connections

        def load(seconds: float) -> None:
            sysbench.run_at(
                place.port, place.schema, _OLTP, "run", round(2 * seconds), threads=threads
            )

        return load
