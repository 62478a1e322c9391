"""The traps that are known of a cache between apps and MySQL, by the number in tests' names.

`test_trap_NN_…`, in `test_traps_*.py`, tries trap NN. Those without a number there were come upon
later; only trap 28 has no test of its number.

What must not be shared, or not be stored:

01 functions that are not deterministic
02 stored functions, which read what no statement names, or have the name of one built in
03 settings of the session: character sets, collations, time zone, sql_mode, limits, locale
04 user variables, and system variables that are read
05 temporary tables that hide others
06 the default schema, and how names are quoted and folded
07 FOUND_ROWS(), ROW_COUNT() and diagnostics: what a statement asks of the one before
08 LAST_INSERT_ID() and what else is counted for one session
09 what the server tells of itself: system schemas, status, queries without a table
10 rights, roles, and views that read with their definer's rights
11 warnings and status flags of an answer
12 comments that are code, hints, and texts that column names are made of
13 forms of queries and of changes: WITH, TABLE, VALUES, parentheses, several statements
14 keys of two questions that are alike

What is a write:

15 statements that change rows by other words than INSERT, UPDATE and DELETE
16 what is prepared and executed, and several statements in one text
17 procedures, functions, triggers, events: code that is stored
18 foreign keys that change rows of other tables
19 views, for the tables beneath them
20 definitions: DDL, tables that change names, partitions, files of tables
21 what cannot be read
22 what leaves no trace in the binary log
23 a transaction that another session ends, and a write whose outcome nobody was told

What comes in which order:

24 an answer that is stored after a write made it outdated
25 an answer that is stored again while its write still runs
26 transactions: isolation, snapshots, autocommit, implicit commits, savepoints
27 reads that take locks
28 a replica that is behind its source
29 clocks that differ
30 a process that dies while it fills

The protocol and the store:

31 what a client said that it can do: the form of answers, attributes, compression, long packets
32 commands that make a session another one, and statements that remember their parameters
33 limits of memcached: the length of keys and items, and tags that it evicts
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from tests.integration.scripts import World


@pytest.fixture(scope="module")
def world(upstream: PrivateSqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A module's sqlcache and memcached before each kind of SQL server in turn."""
    with World(upstream, tmp_path_factory.mktemp("world")) as started:
        yield started
