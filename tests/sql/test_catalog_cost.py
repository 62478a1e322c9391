"""What is asked of a catalog costs time in proportion to what there is, and is found out once.

A server may have thousands of views, triggers and routines, and a text a thousand statements.
"""

from collections.abc import Callable

import pytest

from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.catalog import Catalog, definitions
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.facts import BaseTable, Cascade, Facts, StoredRoutine, Trigger, View
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.statement import Changes
from tests.costs import costs_at_most, grows_linearly

SERVER = Server(flavour="mysql", version=(9, 7), lower_case_table_names=0)
MANY = 100  # times


def named(name: str, each: int) -> TableName:
    return TableName("s", f"{name}{each}")


def tables(many: int) -> list[BaseTable]:
    return [BaseTable(named("t", each), "InnoDB") for each in range(many)]


def views(many: int) -> list[View]:
    return [
        View(named("v", each), b"select `s`.`t%d`.`a` AS `a` from `s`.`t%d`" % (each, each))
        for each in range(many)
    ]


def key(parent: int, child: int) -> Cascade:
    columns = frozenset({"a"})
    return Cascade(named("t", parent), named("t", child), "CASCADE", "CASCADE", columns, columns)


def crowded_parent(many: int) -> None:
    many *= 16  # else copies of sets cost too little to be seen
    facts = Facts(tables(many), cascades=[key(0, each) for each in range(many)])
    Catalog.of(SERVER, facts).renewed((), ["s"], facts)


def schema_of_views(many: int) -> None:
    known = definitions.Definitions.of(SERVER, Facts([*tables(many), *views(many)]))
    assert not known.leaning_on((), ["s"])


def chain_of_keys(many: int) -> None:
    keys = [key(each, each + 1) for each in range(many - 1)]
    facts = Facts([*tables(many), *views(many)], cascades=keys)
    known = definitions.Definitions.of(SERVER, facts)
    assert len(known.leaning_on([named("t", 0)], ())) == 2 * many


def triggers_that_are_dropped(many: int) -> None:
    triggers = [Trigger(named("t", each), b"", name=f"X{each}") for each in range(many)]
    known = definitions.Definitions.of(SERVER, Facts(tables(many), triggers))
    for each in range(many):
        assert known.table_of_trigger(named("x", each)) == named("t", each)
        assert known.table_of_trigger(named("y", each)) is None


def functions_that_are_called(many: int) -> None:
    routines = [StoredRoutine(named("f", each), True, b"RETURN 1") for each in range(many)]
    stored = Stored.of(SERVER, (each.name.name for each in routines), routines)
    for each in range(many):
        assert stored.find((f"f{each}",), "s", is_function=True)
        assert stored.find((f"g{each}",), "s", is_function=True)


def writes_together(many: int) -> None:
    named_so = frozenset(named("t", each) for each in range(many))
    told = frozenset((name, Changes(frozenset({"a"}))) for name in named_so)
    assert WriteSet(named_so, told=told) | WriteSet(named_so, told=told)


@pytest.mark.parametrize(
    "way",
    [
        crowded_parent,
        schema_of_views,
        chain_of_keys,
        triggers_that_are_dropped,
        functions_that_are_called,
        writes_together,
    ],
)
def test_what_there_is_costs_by_its_number(way: Callable[[int], None]) -> None:
    assert grows_linearly(bytes, lambda made: way(len(made)))


def test_what_leans_on_tables_is_the_same_however_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = [
        View(named("o", 0), b"select '``' from `s`.`v3` where 'a`' = '`t5`'"),
        View(named("o", 1), b"select `s`.`Odd ``name`.`a` from `s`.`Odd ``name`"),
        View(named("o", 2), b"select t1 from `other`.`t`"),
        View(TableName("other", "o"), b"select * from `S`.`T2`"),
    ]
    keys = [key(each, each + 2) for each in range(8)]
    facts = Facts([*tables(10), *views(6), *odd], cascades=keys)
    known = definitions.Definitions.of(SERVER, facts)
    names = [*(named("t", each) for each in range(10)), TableName("s", "Odd `name")]
    found = []
    for few in (0, 1000):
        monkeypatch.setattr(definitions, "_FEW_NAMES", few)
        leaning = [known.leaning_on([name], ()) for name in names]
        found.append((leaning, known.leaning_on((), ["s"])))
    assert found[0] == found[1]
    assert found[0][0][-1] == {names[-1], named("o", 1)}
    assert found[0][1] == {TableName("other", "o")}


def test_what_does_not_exist_is_looked_for_without_going_through_all_there_is() -> None:
    known = Catalog.of(SERVER, Facts([*tables(3), *views(3)]))
    assert known.renewed([named("nosuch", 0), named("nosuch", 1)], (), Facts()) is known


def test_views_are_gone_through_once_while_none_of_them_changes() -> None:
    known = definitions.Definitions.of(SERVER, Facts([*tables(3), *views(3)]))
    names = [named("t", each) for each in range(3)]
    assert known.leaning_on(names[:1], ()) == {names[0], named("v", 0)}
    other = known.renewed([named("t", 3)], (), Facts([BaseTable(named("t", 3), "InnoDB")]))
    assert other.views is known.views
    moved = View(named("v", 0), b"select `s`.`t1`.`a` AS `a` from `s`.`t1`")
    for changed in (
        other.renewed([moved.name], (), Facts([moved])),
        other.renewed((), ["s"], Facts([*tables(3), moved])),
    ):
        assert changed.leaning_on(names[:1], ()) == {names[0]}
        assert {moved.name} <= changed.leaning_on(names[1:2], ())
    gone = other.renewed([named("v", 0)], (), Facts())
    assert gone.leaning_on(names[:1], ()) == {names[0]}
    made = gone.renewed([moved.name], (), Facts([moved]))
    assert {moved.name} <= made.leaning_on(names[1:2], ())
    assert known.leaning_on(names[:1], ()) == {names[0], named("v", 0)}


def test_a_trigger_is_known_by_the_table_that_it_is_on_now() -> None:
    def on(*found: int) -> Facts:
        return Facts(tables(2), [Trigger(named("t", each), b"", name="x") for each in found])

    x, both = TableName("s", "x"), [named("t", 0), named("t", 1)]
    known = definitions.Definitions.of(SERVER, on(0))
    moved = known.renewed([both[1]], (), on(1))  # that of the other is still to be read
    assert moved.table_of_trigger(x) == both[1]
    assert moved.renewed([both[0]], (), on()).table_of_trigger(x) == both[1]
    assert moved.renewed(both, (), on()).table_of_trigger(x) is None
    assert known.table_of_trigger(x) == both[0]


def calls(each: int, many: int) -> bytes:
    one, other = ((2 * each + more) % many for more in (1, 2))
    return b"BEGIN UPDATE t%d SET a = 1; CALL p%d(); CALL p%d(); END" % (each, one, other)


def busy_catalog(many: int) -> Catalog:
    """One of so much code, in long bodies and in short ones."""
    long = b"BEGIN " + b"UPDATE s.t1 SET a = ROW_COUNT() WHERE b = 1; " * many + b"END"
    triggers = [
        Trigger(named("t", 0), long, name="long"),
        Trigger(named("t", many), b"SET @a = 1", unruly=True, name="unruly"),
    ]
    routines = [StoredRoutine(named("p", each), False, calls(each, many)) for each in range(many)]
    stored = Stored.of(SERVER, ["f"], routines)
    return Catalog.of(SERVER, Facts(tables(many + 1), triggers), stored)


@pytest.mark.parametrize(
    "ask",
    [
        lambda known: known.code.leads_elsewhere((), [named("t", 0)], None),
        lambda known: known.code.looks_back((), [named("t", 0)]),
        lambda known: known.code.reach(TableRef(None, "p0"), (), "s"),
        lambda known: known.code.unruly_is_fired_by(
            known.code.reach(TableRef(None, "p0"), (), "s").tables
        ),
    ],
    ids=["routines it loads", "what it asks", "what it may write", "what it fires"],
)
def test_what_code_does_is_found_out_once_for_all_statements(
    ask: Callable[[Catalog], object],
) -> None:
    little, much = busy_catalog(60), busy_catalog(600)

    def ask_often(known: Catalog) -> None:
        for _ in range(MANY):
            ask(known)

    ask(little), ask(much)
    assert costs_at_most(4, lambda: ask_often(much), lambda: ask_often(little))


def test_a_definition_costs_nothing_by_the_length_of_code_elsewhere() -> None:
    """Each makes another catalog, which is asked anew what all there is may do."""

    def known(long: int) -> Catalog:
        bodies = (b"select `s`.`t0`.`a` AS `a%d` from `s`.`t0`" % each * long for each in range(50))
        relations = [View(named("v", each), body) for each, body in enumerate(bodies)]
        return Catalog.of(SERVER, Facts([*tables(3), *relations]))

    def define(known: Catalog) -> None:
        for each in range(20):
            name = named("new", each)
            other = known.renewed([name], (), Facts([BaseTable(name, "InnoDB")])).code
            assert not other.looks_back([named("t", 1)], [name])
            assert not other.may_leave_something([named("v", 1)], [name])
            assert not other.may_feign_errors

    short, long = known(1), known(100)
    assert costs_at_most(3, lambda: define(long), lambda: define(short))


def test_what_is_remembered_of_what_writes_reach_is_bounded() -> None:
    many = 1_000
    ring = [key(each, (each + 1) % many) for each in range(many)]
    writes = Catalog.of(SERVER, Facts(tables(many), cascades=ring)).writes
    first = writes.closure([named("t", 0)])
    assert writes.closure([named("t", 0)]) is first
    for each in range(1, 150):
        assert writes.closure([named("t", each)]) == first
    assert writes.closure([named("t", 0)]) is not first
