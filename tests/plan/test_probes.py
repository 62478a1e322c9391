"""What is asked for a write, and what it touches by the answer."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import combinations

import pytest

from sqlcache.cache.log_records import MOST_SLOTS
from sqlcache.cache.slots import MOST_BUCKETS
from sqlcache.plan import write_pins
from sqlcache.plan.executions import Known, Null
from sqlcache.plan.pins import (
    buckets_of,
    same_in,
    values_of_execution,
    values_of_text,
)
from sqlcache.plan.probes import MOST_ROWS, Asked, Probe
from sqlcache.plan.write_pins import WritePins
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.analysis import analyse
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.facts import (
    BaseTable,
    Columns,
    Facts,
    IntegerColumn,
    Key,
    KeyColumn,
    StringColumn,
    Together,
)
from sqlcache.sql.lexer import lex, literals_apart
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.pins import pins
from tests.costs import a_moment, costs_at_most
from tests.plan.slots import slot_of

T = TableName("s", "t")
SERVER = Server(flavour="mysql", version=(9, 7, 0), lower_case_table_names=0)
ID = IntegerColumn("id", 0, 2**32 - 1, numbers=True, identifies=True)
K = IntegerColumn("k", -128, 127, numbers=False, nullable=True)
SLUG = StringColumn("slug", "utf8mb4_general_ci", 8)
TAG = StringColumn("tag", "utf8mb4_bin", 8, nullable=True)
COLUMNS: tuple[KeyColumn, ...] = (ID, K, SLUG, TAG)
UNINDEXED = ("hits", "note")
IN_USE = frozenset(map(slot_of, COLUMNS))
HITLESS = slot_of(SLUG, ["hits"], UNINDEXED)
TOGETHER = Together((K, SLUG))


def catalog(
    *,
    name: TableName = T,
    columns: tuple[KeyColumn, ...] = COLUMNS,
    only_key: tuple[str, ...] = ("id",),
    together: tuple[Together, ...] = (),
    engine: str = "InnoDB",
    versioned: bool = False,
    set_along: tuple[str, ...] = (),
) -> Catalog:
    table = BaseTable(name, engine, (), versioned, frozenset(set_along))
    known = Columns(columns, UNINDEXED, only_key, together)
    return Catalog.of(SERVER, Facts([table], columns={name: known}))


CATALOG = catalog()


def of_write(text: str, known: Catalog = CATALOG, name: TableName = T) -> WritePins | None:
    found = pins(lex(text.encode(), Dialect()).tokens)
    told = frozenset((name, read.changes) for read in analyse(text.encode(), Dialect())[:1])
    writes = WriteSet(frozenset((name,)), told=told)
    return None if found is None else write_pins.of_write(found, writes, known)


def probe_of(
    text: str,
    known: Catalog = CATALOG,
    *,
    sent: Sequence[Known] | None = None,
    in_use: frozenset[bytes] = IN_USE,
    name: TableName = T,
) -> Probe | None:
    found = of_write(text, known, name)
    if found is None:
        return None
    if sent is None:
        values = values_of_text(literals_apart(lex(text.encode(), Dialect())).literals)
    else:
        values = values_of_execution(sent)
    return found.probe(in_use, found.touches(in_use, values), values)


def asked(text: str, known: Catalog = CATALOG, **more: object) -> str | None:
    """The statement, without what all have in common; with "before" if it is to be asked then."""
    probe = probe_of(text, known, **more)  # type: ignore[arg-type]
    if probe is None:
        return None
    statement = probe.statement.decode()
    assert statement.endswith(" LIMIT 65")
    told = statement.removesuffix(" LIMIT 65").replace("`", "").replace(" FROM s.t WHERE ", ": ")
    return f"{told.removeprefix('SELECT ')}{' before' if probe.before else ''}"


def bucket(column: KeyColumn, value: Known) -> bytes:
    same = same_in(column, value, given=False, listed=False)
    assert same is not None
    found = buckets_of([{same}])
    assert found is not None
    return min(found)


def test_it_is_a_query_of_the_table() -> None:
    probe = probe_of("UPDATE t SET v = 1 WHERE id IN (5, '7', 5)")
    assert probe is not None
    assert probe.statement == (
        b"SELECT `k`, `slug`, `tag` FROM `s`.`t` WHERE `id` IN (5, 7) LIMIT 65"
    )
    name = TableName("a`b", "é")
    columns = (ID, K._replace(name="x`y"))
    in_use = frozenset(map(slot_of, columns))
    known = catalog(name=name, columns=columns)
    probe = probe_of("UPDATE t SET v = 1 WHERE id = 5", known, in_use=in_use, name=name)
    assert probe is not None
    text = "SELECT `x``y` FROM `a``b`.`é` WHERE `id` IN (5) LIMIT 65"
    assert probe.statement == text.encode()


def test_it_is_short() -> None:
    """However long what the client sends: its transaction keeps it."""
    slug = SLUG._replace(characters=2_000)
    known = catalog(columns=(ID, K, slug, TAG))
    in_use = frozenset({slot_of(K)})
    text = "UPDATE t SET v = 1 WHERE slug IN ('{}', 'b')"
    assert probe_of(text.format("a" * 1_900), known, in_use=in_use) is not None
    assert probe_of(text.format("a" * 2_000), known, in_use=in_use) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("UPDATE t SET v = 1 WHERE id = 5", "k, slug, tag: id IN (5)"),
        ("UPDATE t a SET a.v = v + 1 WHERE a.id = '5' LIMIT 1", "k, slug, tag: id IN (5)"),
        # What its text tells is not asked for; nor what the server numbers.
        ("UPDATE t SET v = 1 WHERE id = 5 AND k = -3", "slug, tag: id IN (5) AND k IN (-3)"),
        ("UPDATE t SET v = 1 WHERE k = 3", "slug, tag: k IN (3)"),
        ("UPDATE t SET v = 1 WHERE slug = 'A-b' AND z IS NULL", "k, tag: slug IN ('A-b')"),
        ("UPDATE t SET v = 1 WHERE slug IN ('a', 'A')", "k, tag: slug IN ('a', 'A')"),
        # What is set has another value afterwards.
        ("UPDATE t SET k = 3 WHERE id = 5", "k, slug, tag: id IN (5) before"),
        ("UPDATE t SET k = NULL, slug = 'x' WHERE id = 5", "k, slug, tag: id IN (5) before"),
        ("UPDATE t SET k = 3 WHERE id = 5 AND k = 4", "slug, tag: id IN (5)"),
        ("UPDATE t SET k = 3 WHERE k = 4", "slug, tag: k IN (4) before"),
        ("UPDATE t SET k = k + 1 WHERE k = 4", "slug, tag: k IN (4) before"),
        ("DELETE FROM t WHERE id = 5", "k, slug, tag: id IN (5) before"),
        ("DELETE FROM t WHERE k = 3 AND slug = 'x'", "tag: k IN (3) AND slug IN ('x') before"),
        # What is set to something unknown no answer tells.
        ("UPDATE t SET k = k + 1, slug = 'é', tag = tag WHERE id = 5", None),
        ("UPDATE t SET k = 300, slug = NULL WHERE id = 5", "tag: id IN (5)"),
        ("UPDATE t SET k = 3, k = 3, slug = 5 WHERE id = 5", "tag: id IN (5)"),
        ("UPDATE t SET k = DEFAULT, slug = 'x' 'y' WHERE id = 5", "tag: id IN (5)"),
        ("UPDATE t SET k = VALUES(k), v = 1 WHERE id = 5", "slug, tag: id IN (5)"),
        # By what is not surely found it cannot be asked.
        ("UPDATE t SET v = 1 WHERE id = 5.0", None),
        ("UPDATE t SET v = 1 WHERE id > 5", None),
        ("UPDATE t SET v = 1 WHERE k IS NULL", None),
        ("UPDATE t SET v = 1 WHERE tag = ''", None),
        ("UPDATE t SET v = 1 WHERE slug = 'é'", None),
        ("UPDATE t SET v = 1 WHERE id = 5 OR k = 3", None),
        ("UPDATE t SET v = 1 WHERE id = (SELECT 5)", None),
        ("UPDATE t SET v = 1", None),
        ("UPDATE t, u SET v = 1 WHERE id = 5", None),
        (f"DELETE FROM t WHERE k IN ({', '.join(map(str, range(17)))})", None),
        ("DELETE FROM t WHERE id = 5 AND k > 3", "k, slug, tag: id IN (5) before"),
        ("DELETE FROM t WHERE id = 5 AND slug = 'é'", "k, slug, tag: id IN (5) before"),
    ],
)
def test_what_a_write_does_not_tell_is_asked_for(text: str, told: str | None) -> None:
    assert asked(text) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("UPDATE t SET v = 1 WHERE id = 5", "k, slug: id IN (5)"),
        ("DELETE FROM t WHERE id = 5", "k, slug: id IN (5) before"),
        ("UPDATE t SET k = 1, slug = 'a' WHERE id = 5", "k, slug: id IN (5) before"),
        ("UPDATE t SET k = 1 WHERE id = 5", None),
        ("UPDATE t SET slug = 'a' WHERE id = 5", None),
        ("UPDATE t SET k = k + 1, slug = 'a' WHERE id = 5", None),
        ("UPDATE t SET slug = 'b' WHERE k = 1 AND slug = 'a'", None),
    ],
)
def test_the_columns_of_a_key_are_asked_for_together(text: str, told: str | None) -> None:
    """Not where some of them are set, for another write may set the others meanwhile."""
    in_use = frozenset({slot_of(TOGETHER)})
    assert asked(text, catalog(together=(TOGETHER,)), in_use=in_use) == told


def test_columns_of_several_keys_are_asked_for_once() -> None:
    in_use = frozenset(slot_of(key) for key in (K, TOGETHER, SLUG))
    known = catalog(together=(TOGETHER,))
    probe = probe_of("UPDATE t SET v = 1 WHERE id IN (5, 6)", known, in_use=in_use)
    assert probe is not None
    assert probe.statement == b"SELECT `k`, `slug` FROM `s`.`t` WHERE `id` IN (5, 6) LIMIT 65"
    cover = probe.touches([(b"1", b"a"), (b"2", b"a"), (b"1", b"A")])
    assert {key.name: len(cover[slot_of(key)]) for key in (K, TOGETHER, SLUG)} == {
        "k": 2,
        "(k, slug)": 2,
        "slug": 1,
    }
    assert probe.touches([(b"1", "é".encode())]).keys() == {slot_of(K)}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("INSERT INTO t (id, k) VALUES (5, 1)", None),
        (
            "REPLACE INTO t (id, k, slug) VALUES (5, 1, 'x'), (6, NULL, 'y')",
            "k, slug: id IN (5, 6) before",
        ),
        ("REPLACE INTO t (id, k, slug) VALUES (5, 1, NOW())", "k: id IN (5) before"),
        ("REPLACE INTO t (id, slug) VALUES (5, 'x'), (6, 'é')", None),
        ("REPLACE INTO t (id, v) VALUES (5, 1)", None),
        ("REPLACE INTO t (id, k) VALUES (0, 1)", None),
        ("REPLACE INTO t (k, slug) VALUES (1, 'x')", None),
    ],
)
def test_what_it_replaces_is_asked_for_by_the_only_key(text: str, told: str | None) -> None:
    assert asked(text) == told
    assert asked(text, catalog(only_key=())) is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("v = v + 1", "k, slug: id IN (5)"),
        ("k = 3", "k, slug: id IN (5) before"),
        ("k = VALUES(k)", "k, slug: id IN (5) before"),
        ("k = VALUES(k), slug = CONCAT(slug, '!')", "k: id IN (5) before"),
        ("k = k + VALUES(k)", "slug: id IN (5)"),
        ("tag = 'x'", "k, slug: id IN (5)"),
        ("id = 7", "k, slug: id IN (5) before"),
        ("id = LAST_INSERT_ID(id), v = 1", "k, slug: id IN (5) before"),
    ],
)
def test_what_it_changes_instead_is_asked_for_by_the_only_key(
    changed: str, told: str | None
) -> None:
    text = f"INSERT INTO t (id, k, slug) VALUES (5, 1, 'x') ON DUPLICATE KEY UPDATE {changed}"
    assert asked(text) == told
    assert asked(text, catalog(only_key=())) is None


def test_it_is_asked_for_by_what_is_executed() -> None:
    text = "UPDATE t SET k = ?, slug = 'x' WHERE id = ?"
    assert asked(text, sent=[3, 5]) == "k, slug, tag: id IN (5) before"
    assert asked(text, sent=[Null.NULL, 5]) == "k, slug, tag: id IN (5) before"
    assert asked(text, sent=[None, 5]) == "slug, tag: id IN (5) before"
    assert asked(text, sent=[3, Null.NULL]) is None
    assert asked(text, sent=[3, None]) is None


def test_the_server_asks_as_the_write_does() -> None:
    """Numbers beside strings may be compared as doubles: then it may find others, too."""
    known = catalog(columns=(K, IntegerColumn("big", 0, 2**64 - 1, numbers=False)))
    in_use = frozenset({slot_of(K)})
    text = "UPDATE t SET v = 1 WHERE big IN ({}, 5)"
    assert asked(text.format(10**15 - 1), known, in_use=in_use) is not None
    assert asked(text.format(10**15), known, in_use=in_use) is None
    by_one = "UPDATE t SET v = 1 WHERE big = 10000000000000000"
    assert asked(by_one, known, in_use=in_use) == "k: big IN (10000000000000000)"


def test_of_slots_only_those_are_asked_for_that_are_known_and_told_by_it() -> None:
    text = "UPDATE t SET hits = 1 WHERE id = 5"
    of_none, strange = slot_of(None, ["note"], UNINDEXED), b"\0" * 12
    told = of_write(text)
    assert told is not None
    assert asked(text, in_use=frozenset({of_none, strange, slot_of(ID)})) is None
    assert asked(text, in_use=frozenset({of_none, strange, slot_of(K)})) == "k: id IN (5)"
    assert asked(text, in_use=frozenset({HITLESS})) is None
    assert asked("UPDATE t SET v = 1 WHERE id = 5", in_use=frozenset({HITLESS})) is not None


@pytest.mark.parametrize(
    "known",
    [
        catalog(engine="MyISAM"),
        catalog(versioned=True),
        catalog(set_along=("k", "slug", "tag")),
        catalog(columns=(ID, K._replace(name="kß"))),
    ],
    ids=["engine", "versioned", "set along", "name"],
)
def test_where_an_answer_would_not_tell_nothing_is_asked(known: Catalog) -> None:
    columns = known.reads.columns(T).keys
    in_use = frozenset(map(slot_of, columns))
    assert asked("UPDATE t SET hits = 1 WHERE id = 5", known, in_use=in_use) is None


def answered(text: str, *rows: tuple[bytes | None, ...]) -> dict[str, set[bytes]]:
    """What a write touches of the slots asked for."""
    probe = probe_of(text, in_use=IN_USE | {HITLESS})
    assert probe is not None
    cover = probe.touches(rows)
    assert (slot_of(SLUG) in cover) == (HITLESS in cover)
    assert cover.get(slot_of(SLUG)) == cover.get(HITLESS)
    return {each.name: {*cover[slot_of(each)]} for each in COLUMNS if slot_of(each) in cover}


BY_ID = "UPDATE t SET v = 1 WHERE id IN (5, 6)"


def test_the_values_that_are_found_are_touched() -> None:
    assert answered(BY_ID) == {"k": set(), "slug": set(), "tag": set()}
    found = answered(BY_ID, (b"-3", b"a", None), (b"007", b"A", b"x"))
    assert found == {
        "k": {bucket(K, -3), bucket(K, 7)},
        "slug": {bucket(SLUG, b"a")},
        "tag": {bucket(TAG, Null.NULL), bucket(TAG, b"x")},
    }


def test_so_are_those_that_are_put_there() -> None:
    text = "UPDATE t SET k = 4, tag = NULL WHERE id = 5"
    found = answered(text, (b"3", b"a", b"x"))
    assert found == {
        "k": {bucket(K, 3), bucket(K, 4)},
        "slug": {bucket(SLUG, b"a")},
        "tag": {bucket(TAG, Null.NULL), bucket(TAG, b"x")},
    }
    assert answered(text)["k"] == {bucket(K, 4)}
    text = (
        "INSERT INTO t (id, k, slug, tag) VALUES (5, 1, 'a', 'b'), (6, 2, 'a', 'b')"
        " ON DUPLICATE KEY UPDATE k = 9, tag = VALUES(tag)"
    )
    assert answered(text, (b"3", b"c", b"d")) == {
        "k": {bucket(K, value) for value in (1, 2, 3, 9)},
        "slug": {bucket(SLUG, b"a"), bucket(SLUG, b"c")},
        "tag": {bucket(TAG, b"b"), bucket(TAG, b"d")},
    }


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ((b"3", "é".encode(), b"x"), {"k", "tag"}),
        ((b"3", b"a ", b"a b"), {"k"}),
        ((b"128", b"a", b"x"), {"slug", "tag"}),
        ((b"3.0", b"", b""), {"slug", "tag"}),
        ((None, None, None), {"k", "slug", "tag"}),
    ],
)
def test_of_a_value_that_is_not_surely_known_anything_may_be_touched(
    row: tuple[bytes | None, ...], told: set[str]
) -> None:
    assert answered(BY_ID, row).keys() == told
    assert answered(BY_ID, (b"1", b"a", b"x"), row).keys() == told


def test_many_rows_touch_anything() -> None:
    same = (b"1", b"a", b"x")
    assert answered(BY_ID, *[same] * MOST_ROWS).keys() == {"k", "slug", "tag"}
    assert answered(BY_ID, *[same] * (MOST_ROWS + 1)) == {}


def test_many_buckets_are_all_that_there_are() -> None:
    """With those that are touched by the text."""
    text = "UPDATE t SET v = 1 WHERE id IN (5, 6)"
    in_use = frozenset({slot_of(ID), slot_of(K)})
    probe = probe_of(text, in_use=in_use)
    assert probe is not None
    rows = [(b"%d" % value,) for value in range(MOST_BUCKETS - 1)]
    assert probe.touches(rows[:-1]).keys() == {slot_of(K)}
    assert probe.touches(rows) == {}


def test_what_rows_may_be_together_costs_little_to_be_told() -> None:
    """Each of many rows may have any of what is put into a column with any of another's."""
    columns = [K._replace(name=name) for name in "abcde"]
    pairs = [Together(pair) for pair in combinations(columns, 2)][:MOST_SLOTS]
    put = frozenset(b"%d" % value for value in range(7))
    asked = [Asked(pair, (slot_of(pair),), (put, put)) for pair in pairs]
    probe = Probe(T, asked, {ID: (b"1",)}, before=True, most=MOST_BUCKETS)
    same = [(b"9",) * len(columns)] * MOST_ROWS
    others = [(b"%d" % value,) * len(columns) for value in range(10, 10 + MOST_ROWS)]
    assert (len(probe.touches(same)), len(probe.touches(others))) == (1, 0)
    assert costs_at_most(9, lambda: probe.touches(same), a_moment)
    assert costs_at_most(9, lambda: probe.touches(others), a_moment)


def test_of_a_key_of_which_rows_may_have_too_much_anything_may_be_touched() -> None:
    """Also where there are no rows, of what is put there, and where others are told."""
    many = frozenset(b"%d" % value for value in range(MOST_BUCKETS + 1))
    one = frozenset({b"1"})
    asked = [Asked(K, (slot_of(K),), (many,)), Asked(TAG, (slot_of(TAG),), (one,))]
    probe = Probe(T, asked, {ID: (b"1",)}, before=True, most=MOST_BUCKETS)
    assert probe.touches([]).keys() == {slot_of(TAG)}
    assert probe.touches([(b"5", b"a")]) == {slot_of(TAG): {bucket(TAG, b"1"), bucket(TAG, b"a")}}


VALUES = (0, 1, 2, 3, None)
Images = frozenset[tuple[int | None, ...]]
"""Rows, each with what it is called, which stays as long as it does."""


class Chance:
    """Writes to a table with few rows, by chance. `numbered`: the server gives rows an x."""

    def __init__(self, seed: int, database: sqlite3.Connection, *, numbered: bool) -> None:
        self.random = random.Random(seed)
        self.database = database
        self.numbered = numbered
        plain = IntegerColumn("x", -9, 99, numbers=False, nullable=True)
        x = plain._replace(numbers=True, identifies=True, nullable=False) if numbered else plain
        y, z = plain._replace(name="y"), plain._replace(name="z")
        self.columns = (x, y, z)
        together: tuple[Together, ...] = (Together((y, z)),)
        if not numbered:
            together = (Together((x, y, z)), Together((x, z)), *together)
        self.keys: tuple[Key, ...] = (*self.columns, *together)
        self.in_use = frozenset(map(slot_of, self.keys))
        self.catalog = catalog(columns=self.columns, only_key=("x",), together=together)
        database.execute("ATTACH ':memory:' AS s")
        key = "INTEGER PRIMARY KEY" if numbered else "INT UNIQUE"
        database.execute(f"CREATE TABLE s.t (x {key}, y INT, z INT, v INT)")

    def fill(self) -> None:
        self.database.execute("DELETE FROM t")
        for x in self.random.sample(range(4), self.random.randrange(5)):
            self.database.execute(
                "INSERT INTO t VALUES (?, ?, ?, 0)", (x, *self.random.choices(VALUES, k=2))
            )

    def images(self) -> Images:
        return frozenset(self.database.execute("SELECT x, y, z, v, rowid FROM t").fetchall())

    def text(self) -> str:
        pick = self.random.choice
        kind = pick(("DELETE", "UPDATE", "UPDATE", "UPDATE", "REPLACE", "INSERT", "NEW"))
        if kind in ("DELETE", "UPDATE"):
            conditions = ("{} = {}", "{} = {}", "{} IN ({}, 2)", "{} IS NULL", "{} > {}")
            tests = [
                pick(conditions).format(pick("xyz"), pick((0, 1, 2)))
                for _ in range(pick((1, 1, 2)))
            ]
            changed = f"UPDATE t SET {self.settings()}" if kind == "UPDATE" else "DELETE FROM t"
            return f"{changed} WHERE {' AND '.join(tests)}"
        if kind == "NEW":
            rows = ", ".join(f"({self.value()}, {self.value()}, 0)" for _ in range(pick((1, 2))))
            return f"INSERT INTO t (y, z, v) VALUES {rows}"
        rows = ", ".join(
            f"({pick((0, 1, 2, 3))}, {self.value()}, {self.value()}, 1)" for _ in range(2)
        )
        text = f"{kind} INTO t (x, y, z, v) VALUES {rows}"
        instead = (f"y = {self.value()}", "z = VALUES(z)", "v = v + 1", "y = z", "x = x + 1")
        settings = ", ".join({each[0]: each for each in self.random.sample(instead, 2)}.values())
        return text if kind == "REPLACE" else f"{text} ON DUPLICATE KEY UPDATE {settings}"

    def settings(self) -> str:
        pick = self.random.choice
        computed = pick(("x", "y + 1", "z", "(2)"))
        told = (f"{pick('xyzvv')} = {pick((self.value(), self.value(), computed))}" for _ in "ab")
        return ", ".join({each[0]: each for each in told}.values())

    def value(self) -> str:
        return self.random.choice(("0", "1", "2", "-1", "'2'", "NULL", "300"))


class Written:
    """A write, and what it touches, by its text and by its probe."""

    def __init__(self, chance: Chance, text: str) -> None:
        self.text = text
        self._chance = chance
        self._told = of_write(text, chance.catalog)
        values = values_of_text(literals_apart(lex(text.encode(), Dialect())).literals)
        self.touched = {}
        self.probe = None
        if self._told is not None:
            self.touched = dict(self._told.touches(chance.in_use, values))
            self.probe = self._told.probe(chance.in_use, self.touched, values)

    def ask(self) -> int:
        """Asks, and returns of how many slots the answer has told."""
        assert self.probe is not None
        told = self._chance.database.execute(self.probe.statement.decode()).fetchall()
        rows = [[None if each is None else b"%d" % each for each in row] for row in told]
        cover = self.probe.touches(rows)
        assert not cover.keys() & self.touched.keys()
        self.touched |= cover
        return len(cover)

    def run(self) -> Images:
        """Has it done, and returns the rows that it has changed, as they were, and as they are."""
        before = self._chance.images()
        text = self.text.replace("ON DUPLICATE KEY UPDATE", "ON CONFLICT (x) DO UPDATE SET")
        try:
            self._chance.database.execute(text.replace("VALUES(z)", "excluded.z"))
        except sqlite3.IntegrityError:
            return frozenset()
        return before ^ self._chance.images()

    def misses(self, key: Key, image: Sequence[int | None]) -> bool:
        """Whether it leaves the answers from rows that have the key's values alike with this."""
        cover = self.touched.get(slot_of(key))
        if cover is None:
            return False
        if key.gives_new and self.text.startswith("INSERT INTO t (y"):
            return True
        values: dict[KeyColumn, int | None] = dict(zip(self._chance.columns, image, strict=False))
        same = [
            same_in(part, Null.NULL if value is None else value, given=False, listed=False)
            for part in key.parts
            for value in [values[part]]
        ]
        known = [{each} for each in same if each is not None]
        return len(known) < len(same) or not cover.issuperset(buckets_of(known) or ())


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_row_that_is_changed_is_of_a_bucket_that_is_not_touched(
    seed: int, numbered: bool
) -> None:
    """However others change rows between the question and the write, which touch their own."""
    told = 0
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        chance = Chance(seed, database, numbered=numbered)
        for _ in range(700):
            chance.fill()
            own, other = Written(chance, chance.text()), Written(chance, chance.text())
            first = own.probe is not None and (own.probe.before or chance.random.random() < 0.5)
            told += own.ask() if first else 0
            others = []
            if chance.random.random() < 0.5:
                if other.probe is not None:
                    other.ask()
                others = [other]
                other.run()
            changed = own.run()
            if own.probe is not None and not first:
                told += own.ask()
            for image in changed:
                for key in chance.keys:
                    if own.text.startswith("INSERT INTO t (y") and key.gives_new:
                        continue  # none that anyone has read
                    missed = own.misses(key, image) and all(
                        each.misses(key, image) for each in others
                    )
                    assert not missed, (own.text, [each.text for each in others], image)
    assert told > 100
