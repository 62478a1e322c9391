from dataclasses import replace
from itertools import count

import pytest

from sqlcache.cache.tags import Pin
from sqlcache.mysql.constants import Capability, Command
from sqlcache.plan import read_pins, write_pins
from sqlcache.plan.executions import Null
from sqlcache.plan.pins import (
    ReadPins,
    buckets_of,
    values_of_execution,
    values_of_text,
)
from sqlcache.plan.prepared import Prepared
from sqlcache.plan.write_pins import WritePins
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.analysis import analyse
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.facts import (
    BaseTable,
    Cascade,
    Columns,
    Facts,
    IntegerColumn,
    KeyColumn,
    StringColumn,
    Together,
    Trigger,
    VirtualColumn,
)
from sqlcache.sql.lexer import Lexed, lex, literals_apart
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.pins import pins as pins_of
from tests.plan.slots import slot_of

SERVER = Server(flavour="mysql", version=(9, 7, 0), lower_case_table_names=0)

T = TableName("s", "t")
ID = IntegerColumn("id", 0, 2**32 - 1, True)
K = IntegerColumn("k", -128, 127, False)
NAME = StringColumn("name", "utf8mb4_general_ci", 8)
NUMBERED = IntegerColumn("id", 0, 2**32 - 1, True, identifies=True)
BOTH = frozenset({slot_of(ID), slot_of(K)})


def catalog(
    *,
    virtual: bool = False,
    triggers: tuple[Trigger, ...] = (),
    cascades: tuple[Cascade, ...] = (),
    visible: bool = True,
    columns: tuple[KeyColumn, ...] = (ID, K),
    unindexed: tuple[str, ...] = (),
    set_along: tuple[str, ...] = (),
    only_key: tuple[str, ...] = (),
    together: tuple[Together, ...] = (),
    engine: str = "InnoDB",
    versioned: bool = False,
) -> Catalog:
    computed = (VirtualColumn("c", b"1"),) if virtual else ()
    facts = Facts(
        relations=[BaseTable(T, engine, computed, versioned, frozenset(set_along))],
        triggers=triggers,
        cascades=cascades,
        columns={T: Columns(columns, unindexed, only_key, together)},
    )
    return Catalog.of(replace(SERVER, triggers_visible=visible), facts)


def only(found: tuple[ReadPins, ...]) -> ReadPins | None:
    """What is pinned of the one table that is read."""
    assert len(found) <= 1
    return found[0] if found else None


def of_read(text: str, *, virtual: bool = False) -> ReadPins | None:
    return only(
        read_pins.of_read(lex(text.encode(), Dialect()), [T], catalog(virtual=virtual), None)
    )


def of_write(text: str, known: Catalog | None = None) -> WritePins | None:
    found = pins_of(lex(text.encode(), Dialect()).tokens)
    told = frozenset((T, read.changes) for read in analyse(text.encode(), Dialect())[:1])
    writes = WriteSet(frozenset((T,)), told=told)
    return None if found is None else write_pins.of_write(found, writes, known or catalog())


def literals(text: str) -> bytes:
    return literals_apart(lex(text.encode(), Dialect())).literals


def touches(text: str) -> dict[str, int]:
    """How many buckets a write touches of each slot that it does not cover all of."""
    found = of_write(text)
    cover = {} if found is None else found.touches(BOTH, values_of_text(literals(text)))
    return {each.name: len(cover[slot_of(each)]) for each in (ID, K) if slot_of(each) in cover}


def pin(condition: str) -> object:
    text = f"SELECT * FROM t WHERE {condition}"
    found = of_read(text)
    return None if found is None else found.pin(BOTH, literals(text))


def test_equal_values_are_one_bucket_however_they_are_written() -> None:
    known = pin("id = 5")
    assert known is not None
    assert known == pin("id = '5'") == pin("id<=>5 AND k = 1") == pin("z IS NULL AND ID = 5")
    assert known != pin("id = 6")
    assert pin("k = -0") == pin("k = 0")


def test_values_of_one_bucket_are_not_told_apart_in_a_list() -> None:
    """That as many rows as values are there is told by the number of buckets."""
    of_buckets: dict[bytes, int] = {}
    for number in count():
        (bucket,) = buckets_of([{b"%d" % number}]) or (b"",)
        other = of_buckets.setdefault(bucket, number)
        if other != number:
            break
    assert pin(f"id = {number}") == pin(f"id = {other}") is not None
    assert pin(f"id IN ({number}, {other})") is None


def test_a_list_pins_a_bucket_for_each_of_its_values() -> None:
    known = pin("id IN (5, 6)")
    assert isinstance(known, Pin)
    single = [pin(f"id = {value}") for value in (5, 6)]
    assert sorted(known.buckets) == sorted(each.buckets[0] for each in single)  # type: ignore[attr-defined]
    assert known == pin("id IN (6, '5', 5)")
    assert pin("id IN (5)") == pin("id = 5")


@pytest.mark.parametrize(
    "values",
    [
        *("5, 5.0", "5, '5abc'", "5, -1", "5, 4294967296"),
        ", ".join(map(str, range(17))),
    ],
)
def test_a_list_with_what_is_not_surely_an_integer_of_the_column_pins_nothing(values: str) -> None:
    assert pin(f"id IN ({values})") is None


def test_numbers_that_may_be_compared_as_doubles_in_a_list_pin_nothing() -> None:
    for most, pinned in ((10**15 - 1, True), (10**15, False)):
        known = catalog(columns=(IntegerColumn("id", 0, 2**63 - 1, True),))
        text = f"SELECT * FROM t WHERE id IN ({most}, '5')"
        found = only(read_pins.of_read(lex(text.encode(), Dialect()), [T], known, None))
        assert found is not None
        in_use = frozenset({slot_of(known.reads.columns(T).keys[0])})
        assert (found.pin(in_use, literals(text)) is not None) is pinned


@pytest.mark.parametrize(
    "value",
    [
        *("5.0", "5e0", "05", "0x5", "'5abc'", "' 5'", "'05'", "'5.0'", "''", "-5", "'-5'"),
        *("4294967296", "'1234567890123456'", "99999999999999999999"),
    ],
)
def test_what_is_not_surely_an_integer_of_the_column_pins_nothing(value: str) -> None:
    assert pin(f"id = {value}") is None


@pytest.mark.parametrize("other", ["k > 'x'", "k > 1.5", "name = 'x'", "k = 300"])
def test_beside_what_may_warn_of_other_rows_nothing_is_pinned(other: str) -> None:
    assert pin(f"id = 5 AND {other}") is None


def named(text: str) -> Pin | None:
    """The pin of a read of a table by name."""
    known = catalog(columns=(NAME,))
    found = only(read_pins.of_read(lex(text.encode(), Dialect()), [T], known, None))
    return None if found is None else found.pin(frozenset({slot_of(NAME)}), literals(text))


def test_strings_that_are_the_same_are_one_bucket() -> None:
    by_name = "SELECT * FROM t WHERE name = {}"
    known = named(by_name.format("'a-b_1'"))
    assert known is not None
    assert known == named(by_name.format("'A-B_1'"))
    assert known != named(by_name.format("'a-b_2'"))
    listed = named("SELECT * FROM t WHERE name IN ('a-b_1', 'x', 'X')")
    assert listed is not None
    assert len(listed.buckets) == 2
    assert set(known.buckets) < set(listed.buckets)


@pytest.mark.parametrize(
    "value", ["5", "'a '", "'a b'", "'é'", "'abcdefghi'", "'a\\b'", "'a''b'", "'%'", "'a~'"]
)
def test_a_string_that_others_may_equal_pins_nothing(value: str) -> None:
    assert named(f"SELECT * FROM t WHERE name = {value}") is None


def test_a_write_by_a_string_touches_its_bucket() -> None:
    known = catalog(columns=(NAME,))
    for text, touched in (
        ("UPDATE t SET v = 1 WHERE name = 'x'", 1),
        ("UPDATE t SET v = 1 WHERE name = 'é'", None),
        ("UPDATE t SET name = 'y' WHERE name = 'x'", 2),
        ("UPDATE t SET name = 'é' WHERE name = 'x'", None),
        ("UPDATE t SET name = CONCAT(name, 'y') WHERE name = 'x'", None),
        ("UPDATE t SET name = NULL WHERE name = 'x'", None),
        ("INSERT INTO t (name) VALUES ('x'), ('Y')", 2),
        ("INSERT INTO t (name) VALUES ('abcdefghi')", None),
        ("INSERT INTO t (name) VALUES (5)", None),
        ("DELETE FROM t WHERE name IN ('x', 'y')", 2),
    ):
        found = of_write(text, known)
        cover = (
            {}
            if found is None
            else found.touches(frozenset({slot_of(NAME)}), values_of_text(literals(text)))
        )
        assert (len(cover[slot_of(NAME)]) if cover else None) == touched, text


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("UPDATE t SET v = 1 WHERE id = 5 AND k = 3", ("id", "k")),
        ("UPDATE t SET k = 1 WHERE id = 5 AND k = 3", ("id", "k")),
        ("UPDATE t SET k = k + 1 WHERE id = 5 AND k = 3", ("id",)),
        ("UPDATE t SET k = k + 1 WHERE k = 3", ()),
        ("DELETE FROM t WHERE k IN (3, 4)", ("k",)),
        ("INSERT INTO t (id, k) VALUES (5, 1), (6, v)", ("id",)),
        ("REPLACE INTO t (id, k) VALUES (5, 1)", ("k",)),
    ],
)
def test_it_is_told_by_which_columns_the_rows_are_known(
    text: str, columns: tuple[str, ...]
) -> None:
    found = of_write(text, catalog(only_key=("k",)))
    assert found is not None
    assert found.columns == columns


MAY_BE_NULL = K._replace(nullable=True)


def executed_with_null(statement: Lexed) -> bytes:
    """The parameters of its execution with NULL for the only one."""
    payload = bytes((Command.STMT_EXECUTE,)) + b"\1\0\0\0\0\1\0\0\0\1\1\6\0"
    read = Prepared(statement, b"", None, 1).read(payload, Capability.PROTOCOL_41)
    assert read.parameters is not None
    return read.parameters


def test_null_is_a_value_of_its_own() -> None:
    """But where the server puts another in its place, or takes it for the row numbered last."""
    known = catalog(columns=(ID, MAY_BE_NULL, NAME))
    in_use = frozenset(slot_of(each) for each in (ID, MAY_BE_NULL, NAME))

    def pinned(condition: str) -> Pin | None:
        text = f"SELECT * FROM t WHERE {condition}"
        lexed = lex(text.encode(), Dialect())
        found = only(read_pins.of_read(lexed, [T], known, None, 1 if "?" in text else None))
        field = executed_with_null(lexed) if "?" in text else literals(text)
        return None if found is None else found.pin(in_use, field)

    def touched(text: str) -> dict[str, frozenset[bytes]]:
        found = of_write(text, known)
        told = values_of_execution([Null.NULL]) if "?" in text else values_of_text(literals(text))
        cover = {} if found is None else found.touches(in_use, told)
        columns = (ID, MAY_BE_NULL, NAME)
        return {each.name: cover[slot_of(each)] for each in columns if slot_of(each) in cover}

    null = pinned("k IS NULL")
    assert null is not None
    assert null == pinned("k <=> NULL AND z IS NOT NULL") == pinned("k <=> ?")
    assert len({null, pinned("k = 0"), pinned("name IS NULL"), pinned("name = 'null'")}) == 4
    assert pinned("name IS NULL") == pinned("name = ''")
    for condition in ("k IS NOT NULL", "k = NULL", "k <> NULL", "id IS NULL", "NOT k IS NULL"):
        assert pinned(condition) is None
    for text in (
        "INSERT INTO t (k, v) VALUES (NULL, 5)",
        "DELETE FROM t WHERE k IS NULL",
        "UPDATE t SET v = 5 WHERE k <=> NULL",
        "INSERT INTO t (k) VALUES (?)",
    ):
        assert touched(text) == {"k": frozenset(null.buckets)}
    assert touched("INSERT INTO t (name) VALUES (NULL)") == {}  # or '', where others are let in
    assert touched("DELETE FROM t WHERE id IS NULL") == {}


def test_a_slot_that_is_not_in_use_is_not_pinned() -> None:
    text = "SELECT * FROM t WHERE id = 5 AND k = 3"
    found = of_read(text)
    assert found is not None
    told = found.pin(frozenset({slot_of(K)}), literals(text))
    assert told is not None
    assert told.slot == slot_of(K)
    assert found.pin(frozenset(), literals(text)) is None


def test_a_table_with_virtual_columns_pins_nothing() -> None:
    assert of_read("SELECT * FROM t WHERE id = 5", virtual=True) is None


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("UPDATE t SET v = 1 WHERE id = 5", {"id": 1}),
        ("UPDATE t SET v = 1 WHERE id = 5 AND k = 3", {"id": 1, "k": 1}),
        ("UPDATE t SET k = 1 WHERE id = 5 AND k = 3", {"id": 1, "k": 2}),
        ("UPDATE t SET k = k + 1 WHERE id = 5 AND k = 3", {"id": 1}),
        ("UPDATE t SET k = 300 WHERE id = 5 AND k = 3", {"id": 1}),
        ("UPDATE t SET k = 1, k = 2 WHERE id = 5 AND k = 3", {"id": 1}),
        ("UPDATE t SET id = 6 WHERE id = 5", {"id": 2}),
        ("UPDATE t SET id = 0 WHERE id = 5", {}),
        ("UPDATE t SET id = 6 WHERE k = 5", {"k": 1}),
        ("UPDATE t SET v = 1 WHERE id = 5 AND name = 'x'", {"id": 1}),
        ("UPDATE t SET v = 1 WHERE id = 5.0", {}),
        ("UPDATE t SET v = 1 WHERE id IN (5, 6, 7) AND k = 3", {"id": 3, "k": 1}),
        ("UPDATE t SET v = 1 WHERE id IN (5, 6.5)", {}),
        ("UPDATE t SET id = 6 WHERE id IN (5, 6)", {"id": 2}),
        (f"DELETE FROM t WHERE id IN ({', '.join(map(str, range(40)))})", {"id": 40}),
        ("UPDATE t SET v = 1 WHERE id > 5", {}),
        ("DELETE FROM t WHERE k = '3'", {"k": 1}),
        ("INSERT INTO t (id, k) VALUES (5, 1), (6, 1)", {"id": 2, "k": 1}),
        ("INSERT INTO t (id, k) VALUES (5, 1), (6, v)", {"id": 2}),
        ("INSERT INTO t (id, k) VALUES (5, 300)", {"id": 1}),
        ("INSERT INTO t (id, k) VALUES (0, 0)", {"k": 1}),
        ("INSERT INTO t (k) VALUES (1)", {"k": 1}),
        ("INSERT INTO t (v) VALUES (1)", {}),
    ],
)
def test_a_write_touches_what_its_text_says(text: str, touched: dict[str, int]) -> None:
    assert touches(text) == touched


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("UPDATE t SET v = 1 WHERE id = 5", True),
        ("UPDATE t SET v = 1, `REF` = 2 WHERE id = 5", False),
        ("DELETE FROM t WHERE id = 5", False),
        ("INSERT INTO t (id) VALUES (5)", True),
    ],
)
def test_what_a_foreign_key_does_not_follow_touches_what_its_text_says(
    text: str, pinned: bool
) -> None:
    known = catalog(cascades=(Cascade(parent=T, child=T, referred=frozenset({"ref"})),))
    assert (of_write(text, known) is not None) is pinned


@pytest.mark.parametrize(
    "known",
    [
        catalog(triggers=(Trigger(T, b"SET NEW.k = 1"),)),
        catalog(cascades=(Cascade(parent=T, child=T),)),
        catalog(visible=False),
        catalog(virtual=True),
    ],
    ids=["trigger", "cascade into itself", "rights", "virtual columns"],
)
def test_where_more_may_be_written_than_the_text_says_it_touches_anything(known: Catalog) -> None:
    assert of_write("UPDATE t SET v = 1 WHERE id = 5") is not None
    assert of_write("UPDATE t SET v = 1 WHERE id = 5", known) is None


def test_of_too_many_rows_those_by_the_columns_with_most_values_are_all() -> None:
    values = ", ".join(f"({number}, {number})" for number in range(1, 41))
    assert list(touches(f"INSERT INTO t (id, k) VALUES {values}").values()) == [40]
    values = ", ".join(f"({number}, {number % 30})" for number in range(1, 41))
    assert touches(f"INSERT INTO t (id, k) VALUES {values}") == {"k": 30}
    values = ", ".join(f"({number}, 7)" for number in range(1, 71))
    assert touches(f"INSERT INTO t (id, k) VALUES {values}") == {}


def test_literals_are_found_only_as_far_as_all_are_plain() -> None:
    text = r"INSERT INTO t (name, id) VALUES ('a\',7,', 5)"
    found = of_write(text)
    assert found is not None
    assert not found.touches(BOTH, values_of_text(literals(text)))
    assert touches("INSERT INTO t (name, id) VALUES ('a,7', 5)") == {"id": 1}
    assert touches("INSERT INTO t (name, id) VALUES ('a''b', 5)") == {}


def test_parameters_and_constants_of_a_prepared_statement_are_told_apart() -> None:
    found = of_write("UPDATE t SET v = ? WHERE id = ? AND k = 3")
    assert found is not None
    cover = found.touches(BOTH, values_of_execution([9, 5]))
    text = found.touches(BOTH, values_of_execution([None, 5]))
    assert cover == text
    assert cover.keys() == BOTH
    assert found.touches(BOTH, values_of_execution([9])).keys() == {slot_of(K)}


def test_a_row_that_the_server_numbers_is_none_that_is_read_by_its_number() -> None:
    known = catalog(columns=(NUMBERED, K))
    in_use = frozenset({slot_of(NUMBERED), slot_of(K)})

    def touched(text: str) -> dict[bytes, int]:
        found = of_write(text, known)
        told = {} if found is None else found.touches(in_use, values_of_text(literals(text)))
        return {slot: len(buckets) for slot, buckets in told.items()}

    assert touched("INSERT INTO t (k) VALUES (5)") == {slot_of(NUMBERED): 0, slot_of(K): 1}
    assert touched("INSERT INTO t (v) VALUES (5), (6)") == {slot_of(NUMBERED): 0}
    assert touched("INSERT INTO t (id, k) VALUES (7, 5)") == {slot_of(NUMBERED): 1, slot_of(K): 1}
    assert touched("INSERT INTO t (id, k) VALUES (NULL, 5), (NULL, 6)") == {
        slot_of(NUMBERED): 0,
        slot_of(K): 2,
    }
    for values in ("(0)", "(NULL), (0)", "(NULL), (-NULL)"):
        assert touched(f"INSERT INTO t (id) VALUES {values}") == {}
    assert touched("INSERT INTO t VALUES (5)") == {}


def test_it_may_be_where_rows_that_are_there_are_changed_instead() -> None:
    known = catalog(columns=(NUMBERED, K), only_key=("id",))
    text = "INSERT INTO t (k) VALUES (5) ON DUPLICATE KEY UPDATE v = 1"
    assert of_write(text, known) is None
    assert of_write("INSERT INTO t (k) VALUES (5)", known) is not None


@pytest.mark.parametrize("column", [ID, IntegerColumn("id", 0, 9, False, identifies=True)])
def test_it_is_only_where_it_gives_what_no_row_has(column: IntegerColumn) -> None:
    known = catalog(columns=(column, K))
    found = of_write("INSERT INTO t (k) VALUES (5)", known)
    assert found is not None
    in_use = frozenset({slot_of(column), slot_of(K)})
    assert found.touches(in_use, values_of_text(b"5")).keys() == {slot_of(K)}


def test_only_an_answer_with_a_row_may_pin_a_number_that_the_server_gives() -> None:
    assert slot_of(NUMBERED) != slot_of(ID)
    text = "SELECT * FROM t WHERE id = 5"
    known = catalog(columns=(NUMBERED, K))
    found = only(read_pins.of_read(lex(text.encode(), Dialect()), [T], known, None))
    assert found is not None
    pinned = found.pin({slot_of(NUMBERED)}, literals(text))
    assert pinned is not None
    assert pinned.witnessed


def test_an_answer_that_proves_no_row_pins_no_such_number() -> None:
    text = lex(b"SELECT COUNT(*) FROM t WHERE id = 5 AND k = 3", Dialect())
    known = catalog(columns=(NUMBERED, K))
    found = only(read_pins.of_read(text, [T], known, None, proves=False))
    assert found is not None
    assert (found.columns, found.witnessed) == (("k",), False)


UNINDEXED = ("hits", "note", "seen")


def reads(text: str, *, strings: bool = True, known: Catalog | None = None) -> ReadPins | None:
    """A read of a table with columns that are in no index."""
    known = known or catalog(unindexed=UNINDEXED)
    return only(read_pins.of_read(lex(text.encode(), Dialect()), [T], known, None, strings=strings))


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("SELECT k FROM t WHERE k > 5 ORDER BY id LIMIT 3", UNINDEXED),
        ("SELECT COUNT(*) FROM t", UNINDEXED),
        ("SELECT count( * ), MAX(k) FROM t GROUP BY k HAVING COUNT(*) > 1", UNINDEXED),
        ("SELECT hits FROM t", ("note", "seen")),
        ("SELECT k FROM t WHERE `Note` = 'seen'", ("hits", "seen")),
        ("SELECT x.k FROM t AS x WHERE EXISTS (SELECT 1 FROM t WHERE t.hits > x.k)", UNINDEXED[1:]),
        ("SELECT k FROM t ORDER BY HITS", UNINDEXED[1:]),
        ("SELECT id AS hits FROM t", UNINDEXED[1:]),
        ("SELECT * FROM t", ()),
        ("SELECT t.* FROM t", ()),
        ("SELECT k FROM t WHERE EXISTS (SELECT * FROM t)", ()),
        ("SELECT k * 2 FROM t", ()),
        ("SELECT COUNT(DISTINCT *) FROM t", ()),
        ("SELECT `COUNT`(*) FROM t", ()),
        ("SELECT k FROM t AS x NATURAL JOIN t AS y", ()),
        ("SELECT k FROM t PARTITION (p) WHERE k > 5", ()),
        ("SELECT k /*!, hits */ FROM t", ()),
        ("SELECT k AS größe FROM t", ()),
        ("TABLE t", ()),
    ],
)
def test_what_a_read_does_not_name_it_does_not_read(text: str, unread: tuple[str, ...]) -> None:
    found = reads(text)
    assert (found.unread if found else ()) == unread


def slot(column: KeyColumn | None, *unread: str) -> bytes:
    return slot_of(column, unread, UNINDEXED)


def test_a_read_hangs_on_the_slot_that_leaves_out_the_most() -> None:
    text = "SELECT hits FROM t WHERE id = 5 AND k = 3"
    found = reads(text)
    assert found is not None

    def pinned(*in_use: bytes) -> bytes | None:
        told = found.pin(frozenset(in_use), literals(text))
        return told and told.slot

    least, more, most = slot(None, "note"), slot(K), slot(ID)
    apart, all_apart = slot(ID, "note"), slot(ID, "note", "seen")
    assert pinned(least) == least
    assert pinned(least, more) == more
    assert pinned(least, more, most) == most
    assert pinned(least, more, most, apart) == apart
    assert pinned(least, more, most, apart, all_apart) == all_apart
    assert pinned(slot(None, "hits"), slot(ID, "hits", "note")) is None


def test_where_it_pins_nothing_it_hangs_on_what_it_does_not_read() -> None:
    for text in ("SELECT hits FROM t WHERE id = 5.5", "SELECT hits FROM t WHERE v = 5 OR k = 3"):
        found = reads(text)
        assert found is not None
        in_use = frozenset({slot(ID), slot(None, "note")})
        assert found.pin(in_use, literals(text)) == Pin(slot(None, "note"), ())


def test_slots_are_those_of_the_columns_that_there_are() -> None:
    assert len({slot(None, "note"), slot(ID, "note"), slot(ID), slot(ID, "note", "seen")}) == 4
    assert slot_of(ID, ["note"], UNINDEXED) != slot_of(ID, ["note"], (*UNINDEXED, "views"))
    assert slot_of(ID, ["note"], UNINDEXED) != slot_of(ID, ["note"], ("a", "note", "seen"))


def sets(text: str, known: Catalog | None = None) -> dict[str, int]:
    """How many buckets a write touches, by what the slot is of, of each that it does not cover all
    of."""
    found = of_write(text, known or catalog(unindexed=UNINDEXED))
    slots = {
        "": slot(None, "hits"),
        "id": slot(ID),
        "id, no hits": slot(ID, "hits"),
        "id, no notes": slot(ID, "note", "seen"),
    }
    in_use = frozenset(slots.values())
    touched = {} if found is None else found.touches(in_use, values_of_text(literals(text)))
    return {name: len(touched[each]) for name, each in slots.items() if each in touched}


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("UPDATE t SET hits = hits + 1", {"": 0, "id, no hits": 0}),
        ("UPDATE t SET hits = 1 WHERE v = 3 OR k = 2", {"": 0, "id, no hits": 0}),
        ("UPDATE t SET hits = (SELECT MAX(k) FROM t) WHERE id = 5", {"": 0, "id, no hits": 0}),
        ("UPDATE t x SET x.`Hits` = 1 ORDER BY id LIMIT 1", {"": 0, "id, no hits": 0}),
        (
            "UPDATE t SET hits = 1 WHERE id = 5",
            {"": 0, "id": 1, "id, no hits": 0, "id, no notes": 1},
        ),
        ("UPDATE t SET note = '', seen = 1 WHERE v = 3", {"id, no notes": 0}),
        ("UPDATE t SET hits = 1, note = 2 WHERE v = 3", {}),
        ("UPDATE t SET k = 1 WHERE id = 5", {"id": 1, "id, no hits": 1, "id, no notes": 1}),
        ("UPDATE t SET hits = 1, k = 1 WHERE v = 5", {}),
        ("UPDATE t, t AS u SET hits = 1", {}),
        ("UPDATE t SET hits = 1; UPDATE t SET k = 1", {}),
        ("UPDATE t SET /*! k = 2, */ hits = 1", {}),
        ("DELETE FROM t WHERE id = 5", {"id": 1, "id, no hits": 1, "id, no notes": 1}),
        ("DELETE FROM t", {}),
        ("INSERT INTO t (id) VALUES (5)", {"id": 1, "id, no hits": 1, "id, no notes": 1}),
    ],
)
def test_a_write_leaves_who_does_not_read_what_it_sets(text: str, touched: dict[str, int]) -> None:
    assert sets(text) == touched


def test_what_the_server_sets_along_is_set() -> None:
    by_both = "UPDATE t SET hits = 1 WHERE id = 5 AND k = 3"
    assert sets(by_both, catalog(set_along=("id",))) == {}
    text = "UPDATE t SET hits = 1 WHERE v = 3"
    assert sets(text, catalog(unindexed=UNINDEXED, set_along=("seen",))) == {}
    known = catalog(unindexed=UNINDEXED, set_along=("hits",))
    assert sets(text, known) == {"": 0, "id, no hits": 0}
    assert sets("UPDATE t SET note = 1 WHERE v = 3", known) == {}


@pytest.mark.parametrize(
    "known",
    [
        catalog(unindexed=UNINDEXED, engine="MyISAM"),
        catalog(unindexed=UNINDEXED, versioned=True),
        catalog(unindexed=UNINDEXED, virtual=True),
        catalog(unindexed=UNINDEXED, triggers=(Trigger(T, b"SET NEW.k = 1"),)),
    ],
    ids=["engine", "versioned", "virtual columns", "trigger"],
)
def test_where_more_than_a_column_may_change_all_are_read(known: Catalog) -> None:
    assert sets("UPDATE t SET hits = 1", known) == {}


def test_only_so_many_columns_are_told_of() -> None:
    names = tuple(f"c{number:02}" for number in range(40))
    known = catalog(unindexed=names)
    found = reads("SELECT id FROM t", known=known)
    assert found is not None
    assert found.unread == names[:32]
    assert of_write("UPDATE t SET c31 = 1", known) is not None
    assert of_write("UPDATE t SET c32 = 1", known) is None


def test_a_read_wants_the_slot_that_would_have_kept_its_answer() -> None:
    changed = [slot(None, "hits"), slot(None, "note"), slot_of(None, ["a"], ("a",))]

    def wanted(text: str, *in_use: bytes) -> bytes | None:
        found = reads(text)
        assert found is not None
        return found.wants(frozenset(in_use), changed, literals(text))

    by_id, by_none = "SELECT note, k FROM t WHERE id = 5", "SELECT seen FROM t"
    assert wanted(by_id) == slot(ID)
    assert wanted(by_id, slot(ID)) == slot(ID, "hits")
    assert wanted(by_id, slot(ID), slot(ID, "hits")) is None
    assert wanted(by_none) == slot(None, "hits", "note")
    assert wanted(by_none, slot(None, "hits", "note")) is None
    assert wanted("SELECT note, hits FROM t") is None
    assert wanted("SELECT note FROM t WHERE id = 5.5") == slot(None, "hits")


@pytest.mark.parametrize(
    ("text", "only_key", "touched"),
    [
        ("REPLACE INTO t (id, k) VALUES (5, 1), (6, 1)", ("id",), {"id": 2}),
        ("REPLACE t (id, k) VALUES (5, 1)", ("k",), {"k": 1}),
        ("REPLACE INTO t (id, k) VALUES (5, 1)", (), {}),
        ("REPLACE INTO t (id, k) VALUES (0, 1)", ("id",), {}),
        (
            "INSERT INTO t (id, k) VALUES (5, 1) ON DUPLICATE KEY UPDATE k = k + 1",
            ("id",),
            {"id": 1},
        ),
        ("INSERT INTO t (id) VALUES (5) AS n ON DUPLICATE KEY UPDATE v = n.id", ("id",), {"id": 1}),
        (
            "INSERT INTO t (id, k) VALUES (5, 1) ON DUPLICATE KEY UPDATE k = 1, id = 7",
            ("id",),
            {"id": 2},
        ),
        ("INSERT INTO t (id, k) VALUES (5, 1) ON DUPLICATE KEY UPDATE id = id + 1", ("id",), {}),
        (
            "INSERT INTO t (id, k) VALUES (5, 1) ON DUPLICATE KEY UPDATE id = VALUES(id)",
            ("id",),
            {"id": 1},
        ),
        ("INSERT INTO t (id, k) VALUES (5, 1) ON DUPLICATE KEY UPDATE k = 1", (), {}),
        ("INSERT INTO t (id, k) VALUES (5, 1) ON DUPLICATE KEY UPDATE", ("id",), {}),
        ("REPLACE INTO t (id, k) SELECT 5, 1", ("id",), {}),
        ("REPLACE INTO t (id, k) VALUES (5, 1), (6, 1)", ("id", "k"), {"id": 2, "k": 1}),
        ("REPLACE INTO t (id, k) VALUES (5, 1 + 1)", ("id", "k"), {"id": 1}),
        ("REPLACE INTO t SET id = 5", ("id",), {}),
    ],
)
def test_who_changes_rows_of_a_key_in_place_of_new_ones_touches_those_of_the_only_key(
    text: str, only_key: tuple[str, ...], touched: dict[str, int]
) -> None:
    found = of_write(text, catalog(only_key=only_key))
    cover = {} if found is None else found.touches(BOTH, values_of_text(literals(text)))
    assert {e.name: len(cover[slot_of(e)]) for e in (ID, K) if slot_of(e) in cover} == touched


U, W = TableName("s", "u"), TableName("s", "w")
OF_T = IntegerColumn("t", 0, 2**32 - 1, False)
SMALL = K._replace(name="small")
IN_USE = frozenset({slot_of(each) for each in (NUMBERED, K, OF_T, NAME)})


def of_join(text: str, *tables: TableName) -> dict[TableName, ReadPins]:
    """What a read pins of `t`, whose rows the server numbers, and of `u` and `w`, which have
    these."""
    columns = {
        T: Columns((NUMBERED, K), ("hits",)),
        U: Columns((OF_T, K, NAME), ("v",)),
        W: Columns((OF_T, SMALL)),
    }
    known = Catalog.of(
        SERVER, Facts([BaseTable(name, "InnoDB") for name in (T, U, W)], columns=columns)
    )
    found = read_pins.of_read(lex(text.encode(), Dialect()), tables or (T, U), known, "s")
    return {each.name: each for each in found}


def pinned_by(text: str, *tables: TableName) -> dict[str, dict[str, int]]:
    """The columns by which it may hang on rows of each table, and on those of how many values."""
    told: dict[str, dict[str, int]] = {}
    for name, found in of_join(text, *tables).items():
        for column in found.columns:
            slot = slot_of(next(e for e in (NUMBERED, K, SMALL, OF_T, NAME) if e.name == column))
            pin = found.pin({slot}, literals(text))
            told.setdefault(name.name, {})[column] = 0 if pin is None else len(pin.buckets)
    return told


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("SELECT * FROM u JOIN t ON u.t = t.id WHERE t.k > 3 AND u.k = 5", {"u": {"k": 1}}),
        ("SELECT * FROM s.t AS a, s.u AS b WHERE a.id = b.t AND a.k = 5", {"t": {"k": 1}}),
        ("SELECT * FROM t LEFT JOIN u ON u.t = t.id WHERE u.k IN (5, 6)", {"u": {"k": 2}}),
        (
            "SELECT * FROM t JOIN u ON u.t = t.id WHERE t.k = 5 AND u.k IN (6, 7)",
            {"t": {"k": 1}, "u": {"k": 2}},
        ),
        ("SELECT COUNT(*) FROM t JOIN u WHERE t.id = 5", {"t": {"id": 1}}),
        (
            "SELECT * FROM t, u WHERE t.id = 5 AND u.t = 6 AND u.k = 7",
            {"t": {"id": 1}, "u": {"t": 1, "k": 1}},
        ),
        (
            "SELECT * FROM t LEFT JOIN u ON u.t = t.id WHERE u.k IS NULL AND t.k = 5",
            {"t": {"k": 1}},
        ),
    ],
)
def test_a_join_pins_rows_of_each_table_that_is_compared(
    text: str, pinned: dict[str, dict[str, int]]
) -> None:
    assert pinned_by(text) == pinned


BOTH_BY_ID = {"t": {"id": 1}, "u": {"t": 1}}
BOTH_BY_T = {"u": {"t": 1}, "w": {"t": 1}}


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("t JOIN u ON u.t = t.id WHERE t.id = 5", BOTH_BY_ID),
        ("t JOIN u ON t.id = u.t WHERE u.t = 5", BOTH_BY_ID),
        ("t, u WHERE u.t = '5' AND u.t = t.id", BOTH_BY_ID),
        ("t STRAIGHT_JOIN u WHERE t.id <=> 5 AND u.t = t.id", BOTH_BY_ID),
        # Of u there may be no row, and of these no others than those with 5.
        ("t LEFT JOIN u ON u.t = t.id WHERE t.id = 5", BOTH_BY_ID),
        ("u RIGHT OUTER JOIN t ON u.t = t.id WHERE t.id = 5", BOTH_BY_ID),
        # Here there is one: else its column would be NULL.
        ("t LEFT JOIN u ON t.id = u.t WHERE u.t = 5", BOTH_BY_ID),
        ("u RIGHT JOIN t ON t.id = u.t WHERE u.t = 5", BOTH_BY_ID),
        # Of t there may be none yet, and the server may give its number to one.
        ("u LEFT JOIN t ON u.t = t.id WHERE u.t = 5", {"u": {"t": 1}}),
        ("t RIGHT JOIN u ON u.t = t.id WHERE u.t = 5", {"u": {"t": 1}}),
        # That each of several is there no row tells.
        ("t JOIN u ON u.t = t.id WHERE t.id IN (5, 6)", {"u": {"t": 2}}),
        ("t JOIN u ON u.t = t.id WHERE t.id IN (5)", BOTH_BY_ID),
        ("t JOIN u ON u.t = t.id WHERE t.id > 5 AND u.k = 3", {"u": {"k": 1}}),
        # What no two tables have needs no name of a table.
        ("t JOIN u ON t = id WHERE id = 5", BOTH_BY_ID),
        ("t LEFT JOIN u ON id = t WHERE id = 5 AND v IS NULL", BOTH_BY_ID),
        ("t, u WHERE t = id AND u.t = 5", BOTH_BY_ID),
        ("t JOIN u ON id = u.t WHERE name = 'a'", {"u": {"name": 1}}),
    ],
)
def test_what_is_equal_to_a_column_that_is_pinned_is_pinned(
    text: str, pinned: dict[str, dict[str, int]]
) -> None:
    assert pinned_by("SELECT * FROM " + text) == pinned


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        (
            "t JOIN u ON u.t = t.id JOIN w ON w.t = u.t WHERE w.t = 5",
            {**BOTH_BY_ID, "w": {"t": 1}},
        ),
        (
            "t LEFT JOIN u ON u.t = t.id LEFT JOIN w ON w.t = u.t WHERE t.id = 5",
            {**BOTH_BY_ID, "w": {"t": 1}},
        ),
        (
            "w LEFT JOIN t ON t.id = w.t JOIN u ON u.t = t.id WHERE w.t = 5",
            {"u": {"t": 1}, "w": {"t": 1}},
        ),
        # What an outer join is made by says nothing of those before it.
        ("t JOIN u LEFT JOIN w ON u.t = t.id AND w.t = u.t WHERE t.id = 5", {"t": {"id": 1}}),
        ("t JOIN u RIGHT JOIN w ON u.t = t.id WHERE t.id = 5", {"t": {"id": 1}}),
        ("t JOIN w LEFT JOIN u ON u.t = t.id AND u.t = w.t WHERE t.id = 5", BOTH_BY_ID),
        ("t JOIN u JOIN w ON u.t = t.id WHERE t.id = 5", BOTH_BY_ID),
        ("t JOIN u LEFT JOIN w ON w.small = w.t WHERE w.t = 5", {"w": {"t": 1}}),
        ("u JOIN w USING (t) JOIN t WHERE t = 5", BOTH_BY_T),
        ("u LEFT JOIN w USING (t) JOIN t WHERE t = 5", BOTH_BY_T),
        ("u RIGHT JOIN w USING (t) JOIN t WHERE t = 5", BOTH_BY_T),
        ("u RIGHT JOIN w USING (t) JOIN t ON id = t WHERE t = 5", {**BOTH_BY_T, "t": {"id": 1}}),
        # An ON is of the tables of its own join.
        (
            "t JOIN u ON id = u.t JOIN w ON small = u.t WHERE id = 5",
            {**BOTH_BY_ID, "w": {"small": 1}},
        ),
        ("t, u JOIN w ON small = u.t WHERE id = 5", {}),
        ("t JOIN u JOIN w ON u.t = w.t WHERE t = 5", {}),
    ],
)
def test_it_is_as_far_as_rows_that_may_be_missing_allow(
    text: str, pinned: dict[str, dict[str, int]]
) -> None:
    assert pinned_by("SELECT * FROM " + text, T, U, W) == pinned


def test_a_value_that_an_equal_column_cannot_have_pins_nothing_of_it() -> None:
    for value, pins_one in ((127, True), (128, False)):
        text = f"SELECT * FROM t JOIN w ON t.id = w.small WHERE t.id = {value}"
        found = of_join(text, T, W)
        assert found[T].pin({slot_of(NUMBERED)}, literals(text)) is not None
        small = {slot_of(SMALL)}
        assert (found[W].pin(small, literals(text)) is not None) is pins_one


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t JOIN u ON u.v = t.id WHERE t.id = 5",  # which may warn of other rows
        "SELECT * FROM t JOIN u ON u.name = t.id WHERE t.id = 5",
        "SELECT * FROM t JOIN u ON u.t = x.id WHERE t.id = 5",
        "SELECT * FROM t JOIN u ON u.t = t.id WHERE t.id = 5 AND u.v = 3",
        "SELECT * FROM t JOIN u ON u.t = t.id WHERE x.id = 5",
        "SELECT * FROM t JOIN u ON u.t = t.id WHERE t.id = 5 AND x.id IS NULL",
        "SELECT * FROM t JOIN u ON u.t = t.id WHERE t.id > 5",
        "SELECT * FROM t JOIN t b ON b.id = t.id WHERE t.id = 5",
        "SELECT * FROM t JOIN t AS u ON u.t = t.id WHERE t.id = 5",
        "SELECT * FROM t JOIN u AS T ON t.id = T.t WHERE t.id = 5",
        "SELECT * FROM t LEFT JOIN u ON u.t = t.id WHERE u.k IS NULL",  # for want of a row
        "SELECT * FROM t LEFT JOIN u ON u.t = t.id WHERE u.k <=> NULL",
        "SELECT * FROM t LEFT JOIN u ON u.t = t.id WHERE u.t IS NULL AND t.k > 3",
    ],
)
def test_any_other_join_pins_nothing(text: str) -> None:
    assert of_join(text) == {}


def test_beside_what_may_warn_of_other_rows_a_join_pins_nothing() -> None:
    for k, pins_any in ((127, True), (300, False)):
        text = f"SELECT * FROM t JOIN u ON u.t = t.id WHERE t.id = 5 AND u.k < {k}"
        found = of_join(text)
        assert found.keys() == {T, U}
        for each in found.values():
            assert (each.pin(IN_USE, literals(text)) is not None) is pins_any


def test_a_join_pins_no_parameter_that_is_null() -> None:
    lexed = lex(b"SELECT * FROM t LEFT JOIN u ON u.t = t.id WHERE u.k <=> ?", Dialect())
    columns = {T: Columns((NUMBERED,)), U: Columns((K._replace(name="t"), MAY_BE_NULL))}
    tables = [BaseTable(name, "InnoDB") for name in (T, U)]
    known = Catalog.of(SERVER, Facts(tables, columns=columns))
    (found,) = read_pins.of_read(lexed, (T, U), known, "s", 1)
    assert found.pin({slot_of(MAY_BE_NULL)}, executed_with_null(lexed)) is None


def test_a_join_pins_no_empty_string() -> None:
    """That may be NULL."""
    for name, pins_one in (("'a'", True), ("''", False)):
        text = f"SELECT * FROM t LEFT JOIN u ON u.t = t.id WHERE u.name <=> {name}"
        found = of_join(text)[U]
        assert (found.pin({slot_of(NAME)}, literals(text)) is not None) == pins_one


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("SELECT * FROM u JOIN u b ON b.t = u.k WHERE u.k = 5 AND b.k = 6", {"k": 2}),
        ("SELECT * FROM u JOIN u b ON b.t = u.t WHERE u.t = 5", {"t": 1}),
        ("SELECT * FROM u JOIN u b ON b.t = u.k WHERE u.t = 5 AND b.k = 6", {}),
        ("SELECT * FROM u JOIN u b ON b.t = u.k WHERE u.k = 5", {}),
        ("SELECT * FROM u, u b WHERE u.t IN (5, 6) AND b.t IN (6, 7)", {"t": 3}),
        (
            f"SELECT * FROM u, u b WHERE u.t IN ({', '.join(map(str, range(9)))})"
            f" AND b.t IN ({', '.join(map(str, range(8)))})",
            {},
        ),
        ("SELECT * FROM u, u b WHERE u.k = 5 AND b.k = 300", {"k": 0}),
    ],
)
def test_a_table_that_is_read_twice_is_pinned_where_it_is_each_time(
    text: str, pinned: dict[str, int]
) -> None:
    assert pinned_by(text, U).get("u", {}) == pinned


def test_rows_of_a_table_that_is_joined_with_itself_are_told_one_by_one() -> None:
    """That each number of a list has one a row of the answer does not tell."""
    text = "SELECT * FROM t JOIN t b ON b.id = t.id WHERE t.id IN ({})"
    assert pinned_by(text.format("5"), T) == {"t": {"id": 1}}
    assert pinned_by(text.format("5, 6"), T) == {}


def test_a_join_does_not_read_the_columns_that_it_does_not_name() -> None:
    found = of_join("SELECT u.k FROM t JOIN u ON u.t = t.id WHERE t.k = 5")
    assert {name: each.unread for name, each in found.items()} == {T: ("hits",), U: ("v",)}
    found = of_join("SELECT u.v FROM t LEFT JOIN u USING (x)")
    assert {name: each.unread for name, each in found.items()} == {T: ("hits",)}


class TestKeysOfSeveralColumns:
    """Of a table with an index of K and NAME, and one of K alone."""

    IN_PAIRS = Together((K, NAME))
    CATALOG = catalog(columns=(ID, K), together=(IN_PAIRS,))
    IN_USE = frozenset(slot_of(key) for key in (ID, K, IN_PAIRS))

    def pin(self, condition: str) -> Pin | None:
        text = f"SELECT * FROM t WHERE {condition}"
        found = only(read_pins.of_read(lex(text.encode(), Dialect()), [T], self.CATALOG, None))
        return None if found is None else found.pin(self.IN_USE, literals(text))

    def touched(self, text: str, known: Catalog = CATALOG) -> dict[str, int]:
        found = of_write(text, known)
        cover = {} if found is None else found.touches(self.IN_USE, values_of_text(literals(text)))
        keys = (ID, K, self.IN_PAIRS)
        return {each.name: len(cover[slot_of(each)]) for each in keys if slot_of(each) in cover}

    def test_an_answer_pins_that_of_the_most_of_its_columns(self) -> None:
        pair = self.pin("k = 1 AND name = 'a'")
        assert pair is not None
        assert pair.slot == slot_of(self.IN_PAIRS)
        assert pair == self.pin("name = 'A' AND k = '1' AND id > 2")
        others = ("k = 1 AND name = 'b'", "k = 2 AND name = 'a'", "k = 1 AND name IS NULL")
        assert pair not in map(self.pin, others)
        by_one = self.pin("k = 1 AND name > 'a'")
        assert by_one is not None
        assert by_one.slot == slot_of(K)
        assert self.pin("name = 'a'") is None, "which begins no index"

    def test_lists_pin_each_with_each(self) -> None:
        lists = self.pin("k IN (1, 2) AND name IN ('a', 'b', 'c')")
        assert lists is not None
        assert len(lists.buckets) == 6
        one = self.pin("k = 2 AND name = 'c'")
        assert one is not None
        assert {*one.buckets} < {*lists.buckets}
        numbers = ", ".join(map(str, range(9)))
        too_many = self.pin(f"k IN ({numbers}) AND name IN ('a', 'b')")
        assert too_many is not None
        assert too_many.slot == slot_of(K)

    def test_values_do_not_run_into_each_other(self) -> None:
        pairs = [self.pin(f"k = {k} AND name = '{name}'") for k, name in ((1, "21"), (12, "1"))]
        assert None not in pairs
        assert pairs[0] != pairs[1]

    @pytest.mark.parametrize(
        ("text", "touched"),
        [
            ("UPDATE t SET v = 1 WHERE k = 1 AND name = 'a'", {"k": 1, "(k, name)": 1}),
            ("DELETE FROM t WHERE k = 1 AND name IN ('a', 'b')", {"k": 1, "(k, name)": 2}),
            ("UPDATE t SET name = 'b' WHERE k = 1 AND name = 'a'", {"k": 1, "(k, name)": 2}),
            ("UPDATE t SET name = 'b', k = 2 WHERE k = 1 AND name = 'a'", {"k": 2, "(k, name)": 4}),
            ("UPDATE t SET name = 'b' WHERE k = 1", {"k": 1}),
            ("UPDATE t SET v = 1 WHERE k = 1", {"k": 1}),
            ("UPDATE t SET v = 1 WHERE name = 'a'", {}),
            ("UPDATE t SET name = UPPER(name) WHERE k = 1 AND name = 'a'", {"k": 1}),
            (
                "INSERT INTO t (id, k, name) VALUES (1, 1, 'a'), (2, 1, 'b')",
                {"id": 2, "k": 1, "(k, name)": 2},
            ),
            ("INSERT INTO t (id, k) VALUES (1, 1)", {"id": 1, "k": 1}),
        ],
    )
    def test_a_write_touches_those_that_its_rows_have(
        self, text: str, touched: dict[str, int]
    ) -> None:
        assert self.touched(text) == touched

    def test_new_rows_touch_what_each_of_them_has(self) -> None:
        """Not what one has of a column with what another has of the next."""
        rows = ", ".join(f"({number}, {number}, 'n{number}')" for number in range(1, 21))
        insert = f"INTO t (id, k, name) VALUES {rows}"
        each = {"id": 20, "k": 20, "(k, name)": 20}
        assert self.touched(f"INSERT {insert}") == each
        by_both = catalog(columns=(ID, K), together=(self.IN_PAIRS,), only_key=("k", "name"))
        assert self.touched(f"REPLACE {insert}", by_both) == {"k": 20, "(k, name)": 20}
        instead = f"INSERT {insert} ON DUPLICATE KEY UPDATE"
        for changed in ("v = 1", "k = VALUES(k), v = 1"):
            assert self.touched(f"{instead} {changed}", by_both)["(k, name)"] == 20
        assert self.touched(f"{instead} k = 1", by_both) == {"k": 20}
        by_number = catalog(columns=(ID, K), together=(self.IN_PAIRS,), only_key=("id",))
        assert self.touched(f"REPLACE {insert}", by_number) == {"id": 20}
        unknown = insert.replace("'n7'", "'é'")
        assert self.touched(f"INSERT {unknown}") == {"id": 20, "k": 20}

    def test_what_it_changes_of_the_columns_is_named_for_people(self) -> None:
        found = of_write("UPDATE t SET v = 1 WHERE k = 1 AND name = 'a'", self.CATALOG)
        assert found is not None
        assert found.columns == ("(k, name)", "k")
        assert found.asks == ("id",)
