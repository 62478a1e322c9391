import pytest

from sqlcache.cache.tags import Pin
from sqlcache.plan import pins
from sqlcache.plan.pins import ReadPins, WritePins, slot_of, values_of_execution, values_of_text
from sqlcache.sql.catalog import (
    BaseTable,
    Cascade,
    Catalog,
    IntegerColumn,
    KeyColumn,
    StringColumn,
    Trigger,
    VirtualColumn,
)
from sqlcache.sql.lexer import Dialect, lex, literals_apart
from sqlcache.sql.names import TableName
from sqlcache.sql.pins import pins as read_pins

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
) -> Catalog:
    computed = (VirtualColumn("c", b"1"),) if virtual else ()
    return Catalog(
        flavour="mysql",
        version=(9, 7, 0),
        lower_case_table_names=0,
        relations=[BaseTable(T, "InnoDB", computed)],
        triggers=triggers,
        cascades=cascades,
        triggers_visible=visible,
        key_columns={T: columns},
    )


def of_read(text: str, *, virtual: bool = False) -> ReadPins | None:
    return pins.of_read(lex(text.encode(), Dialect()), [T], catalog(virtual=virtual))


def of_write(text: str, known: Catalog | None = None) -> WritePins | None:
    found = read_pins(lex(text.encode(), Dialect()).tokens)
    return None if found is None else pins.of_write(found, [T], known or catalog())


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
        found = pins.of_read(lex(text.encode(), Dialect()), [T], known)
        assert found is not None
        in_use = frozenset(found.slots)
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
    found = pins.of_read(lex(text.encode(), Dialect()), [T], catalog(columns=(NAME,)))
    if found is None:
        return None
    assert found.slots == (slot_of(NAME),)
    return found.pin(frozenset(found.slots), literals(text))


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
        ("UPDATE t SET name = 'y' WHERE name = 'x'", None),
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
        ("UPDATE t SET k = 1 WHERE id = 5 AND k = 3", {"id": 1}),
        ("UPDATE t SET id = 6 WHERE id = 5", {}),
        ("UPDATE t SET v = 1 WHERE id = 5 AND name = 'x'", {"id": 1}),
        ("UPDATE t SET v = 1 WHERE id = 5.0", {}),
        ("UPDATE t SET v = 1 WHERE id IN (5, 6, 7) AND k = 3", {"id": 3, "k": 1}),
        ("UPDATE t SET v = 1 WHERE id IN (5, 6.5)", {}),
        ("UPDATE t SET id = 6 WHERE id IN (5, 6)", {}),
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


def test_too_many_rows_are_all() -> None:
    values = ", ".join(f"({number}, {number})" for number in range(1, 41))
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
    for text in ("INSERT INTO t (id) VALUES (0)", "INSERT INTO t (id) VALUES (NULL)"):
        assert touched(text) == {}
    assert touched("INSERT INTO t VALUES (5)") == {}


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
    found = pins.of_read(lex(text.encode(), Dialect()), [T], catalog(columns=(NUMBERED, K)))
    assert found is not None
    pinned = found.pin({slot_of(NUMBERED)}, literals(text))
    assert pinned is not None
    assert pinned.witnessed


def test_an_answer_that_proves_no_row_pins_no_such_number() -> None:
    text = lex(b"SELECT COUNT(*) FROM t WHERE id = 5 AND k = 3", Dialect())
    known = catalog(columns=(NUMBERED, K))
    found = pins.of_read(text, [T], known, proves=False)
    assert found is not None
    assert (found.columns, found.witnessed) == (("k",), False)
