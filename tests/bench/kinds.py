"""The kinds of work that are measured, and the ways it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

IDS = 1_000
MANY_IDS = 10_000
WIDTH = 119

DIRECT = "direct"
STRICT = "sqlcache"
BOUNDED = "sqlcache, bounded"
"""As a user to whom a rule allows answers that are a second behind."""
UNPLANNED = "sqlcache, text not known"
"""Through a sqlcache that may remember few texts, and is asked for more, in turn."""
FLOOR = "floor"
MEMCACHED = "memcached"

THROUGH = (STRICT, DIRECT)
HITS = (STRICT, BOUNDED, DIRECT, FLOOR)

FEW, MANY, MOST = 1, 32, 128


class Kind(NamedTuple):
    """Work to be done again and again by each connection.

    `statements` are sent in turn; `load.c` says what their marks mean. `prepared_each`: prepared,
    executed and closed, each time. `hits`: answered from the cache, which is filled first. `rows`:
    of an answer. `connects`: a figure is for a whole session.
    """

    name: str
    statements: Sequence[str] = ()
    prepared: bool = False
    prepared_each: bool = False
    hits: bool = False
    ways: Sequence[str] = THROUGH
    connections: Sequence[int] = (MANY,)
    rows: int = 1
    ids: int = IDS
    connects: bool = False
    pings: bool = False

    def options(self, first: int) -> list[str]:
        """What the generator is to send; `first` is where the numbers begin that are new."""
        given = [f"--statement={text}" for text in self.statements]
        switches = {
            "prepared": self.prepared,
            "prepare-each": self.prepared_each,
            "connect": self.connects,
            "ping": self.pings,
        }
        given += [f"--{name}" for name, on in switches.items() if on]
        return [*given, f"--ids={self.ids}", f"--first={first}"]


_ALL = (FEW, MANY, MOST)
_POINT = "SELECT c FROM t WHERE id = {id}"
_SOME = "SELECT c FROM t WHERE id <= "
# Passed through, for it says so; else the same statement with the same answer.
_PASSED_POINT = "SELECT SQL_NO_CACHE c FROM t WHERE id = {id}"
_PASSED_SOME = "SELECT SQL_NO_CACHE c FROM t WHERE id <= "
_UPDATE = "UPDATE w SET n = n + 1 WHERE id = {id}"
_READ_WRITTEN = "SELECT n FROM w WHERE id = {id}"

HIT = "hit"
PREPARED_HIT = "hit, prepared"
PREPARED_EACH = "hit, prepared each time"
UNKNOWN_TEXT = "hit, 10,000 texts in turn"
PASSED = "passed through"
MISS = "miss: looked up, fetched, stored"
MISS_1000 = "miss of 1,000 rows"
UPDATE = "UPDATE of one row"
INSERT = "INSERT of one row"
CONNECT = "connect, login, quit"
D = (HIT, DIRECT, MANY)
"""What all CPU time is a part of: the name, way and connections of its row."""


def _hits(rows: int) -> list[Kind]:
    """Of so many rows, in text and prepared."""
    read, few = (f"{_SOME}{rows}",), (FEW, MANY) if rows == 1_000 else (MANY,)
    name, ways = f"hit of {rows:,} rows", (*HITS, MEMCACHED)
    return [
        Kind(name, read, hits=True, ways=ways, connections=few, rows=rows),
        Kind(f"{name}, prepared", read, True, hits=True, ways=HITS, rows=rows),
    ]


def _passed(rows: int) -> list[Kind]:
    """The same of what is passed through."""
    read, few = (f"{_PASSED_SOME}{rows}",), (FEW, MANY) if rows == 1_000 else (MANY,)
    name = f"{PASSED}, {rows:,} rows"
    return [
        Kind(name, read, rows=rows, connections=few),
        Kind(f"{name}, prepared", read, True, rows=rows),
    ]


KINDS = [
    Kind(HIT, (_POINT,), hits=True, ways=(*HITS, MEMCACHED), connections=_ALL),
    Kind(PREPARED_HIT, (_POINT,), True, hits=True, ways=HITS, connections=_ALL),
    Kind(PREPARED_EACH, (_POINT,), prepared_each=True, hits=True, connections=_ALL),
    Kind(UNKNOWN_TEXT, ("SELECT c FROM t WHERE id = {next}",), hits=True,
         ways=(UNPLANNED, DIRECT), ids=MANY_IDS),
    *_hits(100),
    *_hits(1_000),
    Kind(MISS, (_POINT + " AND 1 <> {new}",), connections=_ALL),
    Kind("miss, prepared", (_POINT + " AND 1 <> {new}",), True),
    Kind(MISS_1000, (_SOME + "1000 AND 1 <> {new}",), rows=1_000),
    Kind(PASSED, (_PASSED_POINT,), connections=_ALL),
    Kind("passed through, a text never seen", (_PASSED_POINT + " AND 1 <> {new}",)),
    Kind("passed through, prepared", (_PASSED_POINT,), True, connections=_ALL),
    *_passed(100),
    *_passed(1_000),
    Kind(UPDATE, (_UPDATE,), connections=_ALL),
    Kind("UPDATE of one row, prepared", (_UPDATE,), True),
    Kind("UPDATE of one row, prepared each time", (_UPDATE,), prepared_each=True),
    Kind(INSERT, ("INSERT INTO log (n) VALUES ({new})",)),
    Kind("nine point selects, then an UPDATE of their table: each",
         (*[_READ_WRITTEN] * 9, _UPDATE)),
    Kind("BEGIN, point select that is a hit, COMMIT: each", ("BEGIN", _POINT, "COMMIT"), hits=True),
    Kind("BEGIN, point select, UPDATE, COMMIT: each",
         ("BEGIN", _READ_WRITTEN, _UPDATE, "COMMIT"), connections=(FEW, MANY)),
    Kind("SET NAMES", ("SET NAMES utf8mb4",)),
    Kind("USE", ("USE bench",)),
    Kind("CREATE and DROP TEMPORARY TABLE: each",
         ("CREATE TEMPORARY TABLE x (a INT)", "DROP TEMPORARY TABLE x")),
    Kind("COM_PING", pings=True),
    Kind(CONNECT, connects=True, connections=_ALL),
    Kind("connect, login, SET NAMES, point select that is a hit, quit",
         ("SET NAMES utf8mb4", _POINT), hits=True, connects=True),
]  # fmt: skip
