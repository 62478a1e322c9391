"""The demo's table: customers with names, no primary key, so that every read scans all of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Final

from sqlcache.demo.servers import PrivateSqlServer

SCHEMA: Final = "demo"
TABLE: Final = "customers"
MAX_ROWS: Final = 8_388_607
"""The largest `mediumint`. Source: MySQL manual, Integer Types."""

_CREATE = f"CREATE TABLE {TABLE} (id mediumint, firstname varchar(255), lastname varchar(255))"
_BATCH_ROWS = 5000
_SEED = 1

_FIRST_NAMES = ("Ada", "Alan", "Barbara", "Donald", "Edsger", "Frances", "Hedy", "Leslie", "Zoé")
_SYLLABLES = ("berg", "dahl", "ek", "gren", "hal", "lund", "mark", "nor", "quist", "ros", "strom")


def rows(count: int) -> Iterator[tuple[int, str, str]]:
    """(id, first name, last name) for the ids from 1 to `count`, always the same."""
    source = random.Random(_SEED)
    for number in range(1, count + 1):
        last = "".join(source.choices(_SYLLABLES, k=source.randint(2, 4))).capitalize()
        yield number, source.choice(_FIRST_NAMES), last


def read_ids(count: int, table_rows: int) -> list[int]:
    """The ids the demo asks for, always the same; a few come up twice."""
    source = random.Random(_SEED + 1)
    return [source.randint(1, table_rows) for _ in range(count)]


def select(number: int) -> str:
    """The statement that is measured."""
    return f"SELECT firstname,lastname FROM {TABLE} WHERE id={number}"


def create(server: PrivateSqlServer, count: int) -> None:
    """Creates the schema and its table with `count` rows."""
    server.sql(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
    server.sql(_CREATE, SCHEMA)
    connection = server.connect(database=SCHEMA, autocommit=False)
    try:
        remaining = rows(count)
        with connection.cursor() as cursor:
            while batch := list(islice(remaining, _BATCH_ROWS)):
                cursor.executemany(f"INSERT INTO {TABLE} VALUES (%s, %s, %s)", batch)
        connection.commit()
    finally:
        connection.close()
