"""Joins of all kinds, drawn by chance: no row changes an answer that is none of those that it pins.

What a join brings SQLite says, which has outer joins as MySQL has them.
"""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from sqlcache.cache.tags import Pin, Tag, with_first
from sqlcache.plan import pins as plan_pins
from sqlcache.plan import read_pins
from sqlcache.plan.pins import Pinned, Values, buckets_of, values_of_text
from sqlcache.plan.read_pins import How
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.facts import (
    BaseTable,
    Columns,
    Facts,
    IntegerColumn,
    Key,
    KeyColumn,
    Together,
)
from sqlcache.sql.lexer import lex, literals_apart
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.pins import pins
from sqlcache.sql.pins.found import Value
from tests.costs import grows_linearly
from tests.plan.slots import slot_of

SERVER = Server(flavour="mysql", version=(9, 7, 0), lower_case_table_names=0)
OWN = {"t": "p", "u": "q", "w": "r"}
"""The column of each table that no other has."""
COLUMNS = {
    table: [IntegerColumn(name, -9, 9, numbers=False, nullable=True) for name in ("x", "y", own)]
    for table, own in OWN.items()
}
KEYS: dict[str, list[Key]] = {
    table: [*columns, Together((columns[0], columns[1])), Together((columns[0], columns[2]))]
    for table, columns in COLUMNS.items()
}
TABLES = {name: TableName("s", name) for name in OWN}
CATALOG = Catalog.of(
    SERVER,
    Facts(
        [BaseTable(name, "InnoDB") for name in TABLES.values()],
        columns={
            TABLES[name]: Columns(
                tuple(columns),
                together=tuple(key for key in KEYS[name] if isinstance(key, Together)),
            )
            for name, columns in COLUMNS.items()
        },
    ),
)
KINDS = ("JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "CROSS JOIN")
VALUES = (-1, 1, 2, None)
COMPUTED = ("", "", "-", "- ", "1 + ")


def any_join(chance: random.Random) -> tuple[str, frozenset[TableName]]:
    """A join, and the tables that it reads."""
    names = chance.choices("tuw", k=chance.choice((2, 2, 3, 3, 4)))

    common = chance.choice("xy") if len(names) == 2 and chance.random() < 0.4 else ""

    def of(table: int) -> str:
        own = OWN[names[table]]
        name = chance.choice(("x", "y", own))
        once = name == own and names.count(names[table]) == 1
        is_bare = (once and chance.random() < 0.7) or name == common
        return name if is_bare else f"a{table}.{name}"

    def column(below: int) -> str:
        return of(chance.randrange(below))

    def pair(last: int) -> str:
        if chance.random() < 0.2:
            return f"{column(last + 1)} = {column(last + 1)}"
        return " = ".join(chance.sample([column(last), of(last)], 2))

    text = f"SELECT * FROM {names[0]} AS a0"
    for last, name in enumerate(names[1:], 1):
        kind = chance.choice(KINDS[:-1] if common else KINDS)
        text += f" {kind} {name} AS a{last}"
        if common:
            text += f" USING ({common})"
        elif kind != "CROSS JOIN":
            text += " ON " + " AND ".join(pair(last) for _ in range(chance.choice((1, 1, 2))))
    conditions = ("{} = {}", "{} = {}", "{} IN ({}, 2)", "{} IS NULL", "{} > {}")
    tests = [
        chance.choice(conditions).format(column(len(names)), chance.choice((1, 1, 2)))
        for _ in range(chance.choice((1, 1, 2, 3)))
    ]
    computed = f"{chance.choice(COMPUTED)}{column(len(names))}"
    tests += [f"{column(len(names))} = {computed}"] * chance.choice((0, 0, 1))
    chance.shuffle(tests)
    return f"{text} WHERE {' AND '.join(tests)}", frozenset(TABLES[name] for name in names)


def pins_of(text: str, tables: frozenset[TableName]) -> Iterator[tuple[str, Key, Pin]]:
    """What it pins: of which table, and by which of its keys."""
    lexed = lex(text.encode(), Dialect())
    for found in read_pins.of_read(lexed, tables, CATALOG, "s"):
        for key in KEYS[found.name.name]:
            pin = found.pin({slot_of(key)}, literals_apart(lexed).literals)
            if pin is not None:
                yield found.name.name, key, pin


def is_among(pin: Pin, key: Key, row: dict[KeyColumn, int | None]) -> bool:
    """Whether this row is one of those that are pinned."""
    parts = []
    for part in key.parts:
        value = row[part]
        if value is None:
            return False
        pinned = Pinned(part, (Value(0, False, value < 0, b""),))
        parts.append(pinned.same(values_of_text(b"%d" % abs(value))) or frozenset())
    own = buckets_of(parts)
    return own is not None and {*pin.buckets}.issuperset(own)


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 39), reason="it has no RIGHT JOIN")
@pytest.mark.parametrize("seed", range(4))
def test_no_row_that_is_not_pinned_changes_a_join(seed: int) -> None:
    chance = random.Random(seed)
    of_several = together = 0
    with closing(sqlite3.connect(":memory:")) as database:
        for name in TABLES:
            database.execute(f"CREATE TABLE {name} (x INT, y INT, {OWN[name]} INT)")

        def rows(text: str) -> list[str]:
            return sorted(map(repr, database.execute(text).fetchall()))

        for _ in range(400):
            text, tables = any_join(chance)
            pinned = [*pins_of(text, tables)]
            of_several += len({name for name, *_ in pinned}) > 1
            together += any(isinstance(key, Together) for _, key, _ in pinned)
            for _ in range(4 if pinned else 0):
                for name in TABLES:
                    some = [chance.choices(VALUES, k=3) for _ in range(chance.randint(0, 3))]
                    database.execute(f"DELETE FROM {name}")
                    database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", some)
                before = rows(text)
                for name, key, pin in pinned:
                    row = chance.choices(VALUES, k=3)
                    if not is_among(pin, key, dict(zip(COLUMNS[name], row, strict=True))):
                        add = f"INSERT INTO {name} VALUES (?, ?, ?)"
                        added = database.execute(add, row).lastrowid
                        assert rows(text) == before, (text, name, row)
                        database.execute(f"DELETE FROM {name} WHERE rowid = {added}")
    assert of_several > 30
    assert together > 5


@pytest.mark.parametrize(
    ("joins", "how"),
    [
        ("a JOIN b ON a.x = b.y", [("a", "b", How.ALWAYS)]),
        ("a LEFT JOIN b ON b.y = a.x", [("a", "b", How.IF_THERE)]),
        ("a RIGHT JOIN b ON a.x = b.y", [("b", "a", How.IF_THERE)]),
        ("a RIGHT JOIN b ON b.y = a.x", [("b", "a", How.IF_THERE)]),
        (
            "a LEFT JOIN b ON b.y = a.x JOIN c ON (a.x = c.z AND b.y = a.x)",
            [("a", "b", How.IF_THERE), ("a", "c", How.ALWAYS), ("b", "a", How.ALWAYS)],
        ),
        (
            "a JOIN b LEFT JOIN c ON a.x = b.y AND c.z = c.w AND c.z = b.y, d",
            [("a", "b", How.SOMEWHERE), ("c", "c", How.SOMEWHERE), ("b", "c", How.IF_THERE)],
        ),
    ],
)
def test_it_is_told_where_columns_have_to_be_equal(
    joins: str, how: list[tuple[str, str, How]]
) -> None:
    text = f"SELECT 1 FROM {joins} WHERE a.x = 5 AND a.x = b.w"
    found = pins(lex(text.encode(), Dialect()).tokens)
    assert found is not None
    hows = map(read_pins.how_of, found.joined)
    told = [(one.table, other.table, how) for one, other, how in hows]
    assert told == [*how, ("a", "b", How.ALWAYS)]


MANY = 4_096
INDEXED = Columns((IntegerColumn("x", 0, 9, False), IntegerColumn("y", 0, 9, False)), ("z",))
CROWD = [TableName("s", f"t{each}") for each in range(MANY)]
CROWDED = Catalog.of(
    SERVER,
    Facts([BaseTable(each, "InnoDB") for each in CROWD], columns=dict.fromkeys(CROWD, INDEXED)),
)


def joined(many: int) -> bytes:
    tables = ", ".join(f"t{each}" for each in range(many))
    equal = " AND ".join(f"t{each}.x = t{each - 1}.x" for each in range(1, many))
    return f"SELECT t0.y FROM {tables} WHERE t0.x = 1 AND {equal}".encode()


def test_the_tables_of_a_join_cost_by_their_number() -> None:
    def told(text: bytes) -> None:
        many = text.count(b",") + 1
        found = read_pins.of_read(lex(text, Dialect()), CROWD[:many], CROWDED, "s")
        assert len(found) == many
        assert len(with_first(map(tag_of, CROWD[:many]), [each.name for each in found])) == many

    assert grows_linearly(joined, told)


def tag_of(name: TableName) -> Tag:
    return Tag(name.schema, name.name)


def test_what_a_text_tells_is_read_once_for_all_its_tables_and_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = list[bytes]()

    def counted(field: bytes) -> Values:
        read.append(field)
        return values_of_text(field)

    monkeypatch.setattr(plan_pins, "values_of_text", counted)
    lexed = lex(joined(20), Dialect())
    x, unindexed = INDEXED.keys[0], INDEXED.unindexed
    in_use = {slot_of(x), slot_of(x, unindexed, unindexed)}
    found = read_pins.of_read(lexed, CROWD[:20], CROWDED, "s")
    for field in (literals_apart(lexed).literals, b"'x'"):
        pinned = [each.pin(in_use, field) is not None for each in found]
        assert pinned == [field != b"'x'"] * 20
    assert len(read) == 2
