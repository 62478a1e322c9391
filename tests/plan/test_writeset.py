"""What writes do to rows, together and beside others."""

import pytest

from sqlcache.plan.writeset import NOTHING, WriteSet, together
from sqlcache.sql.names import TableName
from sqlcache.sql.statement import ADDS, ANYTHING, DELETES, Changes
from tests.costs import costs_at_most

T, U = TableName("s", "t"), TableName("s", "u")
X, Y = Changes(frozenset({"x"})), Changes(frozenset({"y"}))
X_AND_Y = Changes(frozenset({"x", "y"}))


def of(changes: Changes, table: TableName = T) -> WriteSet:
    told = frozenset() if changes == ANYTHING else frozenset({(table, changes)})
    return WriteSet(frozenset({table}), told=told)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (ADDS, X, X),
        (X, Y, X_AND_Y),
        (X, DELETES, Changes(frozenset({"x"}), deletes=True)),
        (X, Changes(None), Changes(None)),
        (X, ANYTHING, ANYTHING),
    ],
)
def test_what_two_do_to_a_table_is_done(one: Changes, other: Changes, both: Changes) -> None:
    assert of(one) | of(other) == of(other) | of(one) == of(both)
    assert (of(one) | of(other)).changes_of(T) == both


def test_what_is_done_to_one_table_is_not_done_to_others() -> None:
    both = of(X) | of(ANYTHING, U)
    assert (both.changes_of(T), both.changes_of(U)) == (X, ANYTHING)
    assert of(X) | NOTHING == NOTHING | of(X) == of(X)


def test_rows_are_within_others_if_no_more_is_done_to_them() -> None:
    for less, more in ((X, X), (X, X_AND_Y), (ADDS, X), (X, ANYTHING), (ANYTHING, ANYTHING)):
        assert of(less).rows_within(of(more) | of(X, U))
    for less, more in ((ANYTHING, X), (X_AND_Y, X), (DELETES, ADDS)):
        assert not of(less).rows_within(of(more))
    assert not of(X).rows_within(of(ANYTHING, U))
    assert NOTHING.rows_within(NOTHING)


def test_an_empty_part_is_none_of_its_own() -> None:
    """Each takes 200 bytes, there are eight, and clients may prepare very many statements."""
    read = NOTHING | WriteSet(frozenset(iter(())), reads=frozenset({T}), told=frozenset(iter(())))
    for part in ("tables", "schemas", "redefined", "unnamed", "leading", "defined_in", "told"):
        assert getattr(read, part) is getattr(NOTHING, part), part
    assert (read | NOTHING).reads is read.reads


def test_what_many_statements_write_is_not_gathered_again_with_each() -> None:
    def of_statements(many: int) -> list[WriteSet]:
        names = [TableName("s", f"t{each}") for each in range(many)]
        return [WriteSet(frozenset({n}), told=frozenset({(n, DELETES)})) for n in names]

    few, many = of_statements(250), of_statements(2_000)
    assert together(many).told == frozenset().union(*(writes.told for writes in many))
    assert costs_at_most(20, lambda: together(many), lambda: together(few))
