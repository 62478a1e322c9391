"""Tables that were redefined and not read since: which of them a statement may lead to."""

import random
from itertools import count

import pytest

from sqlcache.plan import unread as unread_tables
from sqlcache.plan.unread import Unread
from sqlcache.sql.names import TableName
from tests.costs import a_moment, costs_at_most


def names(*tables: str) -> frozenset[TableName]:
    return frozenset(TableName("s", table) for table in tables)


def test_what_was_named_with_a_table_may_be_led_to_by_it() -> None:
    unread = Unread()
    unread.redefine(names("child", "parent"))
    unread.redefine(names("other"))
    assert unread.led_to(names("parent")) == names("child", "parent")
    assert unread.led_to(names("other", "unheard of")) == names("other")
    assert len(unread) == unread.named == 3


def test_what_was_named_in_a_chain_is_led_to_by_all_of_it() -> None:
    unread = Unread()
    unread.redefine(names("a", "b"))
    unread.redefine(names("c", "d"))
    unread.redefine(names("b", "c"))
    assert unread.led_to(names("a")) == unread.led_to(names("d")) == names("a", "b", "c", "d")


def test_a_table_that_was_read_still_leads_to_those_that_were_not() -> None:
    unread = Unread()
    unread.redefine(names("child", "parent"))
    unread.forget({name: when for name, when in unread.by_now().items() if name.name == "parent"})
    assert unread.led_to(names("parent")) == names("child")
    unread.forget(unread.by_now())
    assert not unread
    assert not unread.named


def test_what_was_redefined_while_it_was_read_is_unread() -> None:
    unread = Unread()
    unread.redefine(names("a", "b"))
    begun = unread.by_now()
    unread.redefine(names("b"))
    unread.forget(begun)
    assert unread.led_to(names("a")) == unread.led_to(names("b")) == names("b")


def test_what_code_names_is_found() -> None:
    unread = Unread()
    unread.redefine(names("Orders", "a b", "tü", "1st", "x`yz", '"d-e', "``"))
    for code, found in (
        (b"select `S`.`orders`.`a` from `s`.`orders`", {"Orders"}),
        (b"INSERT INTO ORDERS(a)VALUES(1)", {"Orders"}),
        (b"update s.1st set a=1", {"1st"}),
        (b"delete from reorders", set()),
        (b"insert into/*!50001orders*/values (1)", {"Orders"}),
        (b"delete from/*M!orders*/", {"Orders"}),
        ("update TÜ set a = 1".encode(), {"tü"}),
        (b"insert into/*!500011st*/values (1)", {"1st"}),
        (b"insert into/*!050000orders*/values (1)", {"Orders"}),
        (b"select 1 from `a b`", {"a b"}),
        (b"select 1 from/*!50001`A b`*/", {"a b"}),
        (b'select 1 from s."A b"', {"a b"}),
        (b"select `is a b`, a b", set()),
        (b"select 1 from `x``yz`", {"x`yz"}),
        (b'select 1 from "x`yz"', {"x`yz"}),
        (b'select 1 from `"D-E`', {'"d-e'}),
        (b'select 1 from """d-e"', {'"d-e'}),
        ("select 1 from tü".encode(), {"tü"}),
    ):
        assert unread.named_in([code]) == names("``", *found), code
    assert unread.named_in([b"orders", b"1st"]) == names("``", "Orders", "1st")
    unread.redefine(names("Orders"))
    unread.forget({n: when for n, when in unread.by_now().items() if n.name != "1st"})
    assert unread.named_in([b"orders, `a b`, 1st /*! orders */"]) == names("1st")


CODE = [
    b"/*!50001 select*/ `s`.`t`.`a` AS `a` from `s`.`t` where `s`.`t`.`b` = %d " % each * 20
    for each in range(20)
]


@pytest.mark.parametrize("name", ["table_{}", "table {}"])
def test_to_look_for_thousands_of_names_in_code_costs_no_more_than_the_code(name: str) -> None:
    few, many = Unread(), Unread()
    for unread, number in ((few, 10), (many, 10_000)):
        unread.redefine(names(*map(name.format, range(number))))
    others = (names(f"other_{each}") for each in count())

    def look_in(unread: Unread) -> None:
        unread.redefine(next(others))  # else what was found is remembered
        assert not unread.named_in(CODE)

    assert costs_at_most(5, lambda: look_in(many), lambda: look_in(few))


def test_code_is_gone_through_once_while_nothing_else_is_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []
    folded = unread_tables._folded

    def reading(text: bytes) -> bytes:
        read.append(text)
        return folded(text)

    monkeypatch.setattr(unread_tables, "_folded", reading)
    unread = Unread()
    unread.redefine(names("t"))
    read.clear()
    assert unread.named_in(CODE) == unread.named_in(CODE) == names("t")
    assert read == CODE
    unread.redefine(names("a"))
    assert unread.named_in(CODE) == names("a", "t")
    unread.forget(unread.by_now())
    assert not unread.named_in(CODE)


def test_whatever_happens_what_was_named_together_is_found() -> None:
    chance = random.Random(5)
    for _ in range(200):
        unread = Unread()
        statements: list[tuple[frozenset[TableName], set[TableName]]] = []
        for _ in range(12):
            some = names(*chance.sample("abcdefghij", chance.randrange(4)))
            if chance.random() < 0.6:
                unread.redefine(some)
                statements.append((some, set(some)))
            else:
                unread.forget({n: when for n, when in unread.by_now().items() if n in some})
                for _, left in statements:
                    left -= some
            assert set(unread) == set().union(*(left for _, left in statements))
            for named, left in statements:
                assert all(unread.led_to({name}) >= left for name in named)
            assert bool(unread.named) == bool(unread)


def test_a_statement_that_names_thousands_costs_no_more_than_their_number() -> None:
    unread = Unread()
    tables = [f"t{each}" for each in range(20_000)]

    def name_all() -> None:
        for table in tables:
            unread.redefine(names(table))
        for _ in range(10):
            unread.redefine(names(*tables))

    assert costs_at_most(4_000, name_all, a_moment)  # squared it were many times that
    assert len(unread.led_to(names("t7"))) == unread.named == 20_000
