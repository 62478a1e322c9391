"""The check of a live run: which histories keep the guarantee, and which do not."""

from __future__ import annotations

import pytest

from tests.coherence.live_history import ROLLED_BACK, Around, Checker, Violation, staleness

A, B = ("a",), ("b",)


@pytest.fixture
def checker() -> Checker:
    """Of two registers, both 0."""
    return Checker({"a": 0, "b": 0})


def write(checker: Checker, register: str, value: int, begin: float, end: float | None) -> None:
    """A write; with no end its outcome is unknown."""
    begun = checker.begin_write("W", [register], begin)
    if end is not None:
        checker.end_write(begun, [value], end)


def read(checker: Checker, register: str, value: int, begin: float, end: float) -> None:
    """A read that is over before anything else happens."""
    checker.end_read(checker.begin_read("R", [(register,)], begin), [value], end)


def kinds(checker: Checker) -> list[str]:
    return [violation.kind for violation in checker.violations]


def test_a_read_after_a_write_that_returns_it_is_right(checker: Checker) -> None:
    read(checker, "a", 0, 0, 1)
    write(checker, "a", 1, 2, 3)
    read(checker, "a", 1, 4, 5)
    assert checker.violations == []


def test_a_read_older_than_an_acknowledged_write_is_stale(checker: Checker) -> None:
    write(checker, "a", 1, 0, 1)
    read(checker, "a", 0, 3, 4)
    (violation,) = checker.violations
    assert violation.kind == "stale"
    assert (violation.returned, violation.expected, violation.behind_s) == (0, 1, 2)
    assert "a, not 1: W had written 1" in str(violation)


def test_a_read_beside_a_write_may_return_either(checker: Checker) -> None:
    beside = [checker.begin_read("R", [A], 0) for _ in range(2)]
    write(checker, "a", 1, 1, 2)
    checker.end_read(beside[0], [1], 3)
    checker.end_read(beside[1], [0], 3)
    assert checker.violations == []


def test_a_read_older_than_what_an_earlier_one_returned_is_backwards(checker: Checker) -> None:
    begun = checker.begin_write("W", ["a"], 0)
    read(checker, "a", 1, 1, 2)
    read(checker, "a", 0, 3, 4)
    checker.end_write(begun, [1], 5)
    assert kinds(checker) == ["backwards"]
    assert checker.violations[0].behind_s == 1


def test_reads_side_by_side_may_disagree(checker: Checker) -> None:
    checker.begin_write("W", ["a"], 0)
    first, second = (checker.begin_read("R", [A], at) for at in (1, 2))
    checker.end_read(first, [1], 3)
    checker.end_read(second, [0], 4)
    assert checker.violations == []


def test_a_write_of_unknown_outcome_may_have_happened_or_not(checker: Checker) -> None:
    write(checker, "a", 1, 0, None)
    read(checker, "a", 0, 1, 2)
    read(checker, "a", 1, 3, 4)
    assert checker.violations == []


def test_a_write_of_unknown_outcome_that_was_seen_stays(checker: Checker) -> None:
    write(checker, "a", 1, 0, None)
    read(checker, "a", 1, 1, 2)
    read(checker, "a", 0, 3, 4)
    assert kinds(checker) == ["backwards"]


def test_a_value_no_write_has_made_is_from_nowhere(checker: Checker) -> None:
    read(checker, "a", 1, 0, 1)
    assert kinds(checker) == ["from nowhere"]


def test_a_value_that_was_rolled_back_is_never_right(checker: Checker) -> None:
    write(checker, "a", 1, 0, 1)
    read(checker, "a", 1 + ROLLED_BACK, 2, 3)
    assert kinds(checker) == ["rolled back"]


def test_half_of_a_transaction_is_torn(checker: Checker) -> None:
    checker.begin_write("W", ["a", "b"], 0)
    both = checker.begin_read("R", [A, B], 1)
    checker.end_read(both, [1, 0], 2, alike=True)
    assert kinds(checker) == ["torn"]


def test_a_sum_is_no_older_than_its_registers(checker: Checker) -> None:
    both = ("a", "b")
    for register in both:
        write(checker, register, 1, 0, 1)
    checker.end_read(checker.begin_read("R", [both], 2), [1], 3)
    assert kinds(checker) == ["stale"]
    checker.end_read(checker.begin_read("R", [both], 4), [2], 5)
    assert len(checker.violations) == 1


def test_a_sum_is_no_older_than_an_earlier_one(checker: Checker) -> None:
    both = ("a", "b")
    checker.begin_write("W", ["a"], 0)
    checker.end_read(checker.begin_read("R", [both], 1), [1], 2)
    checker.end_read(checker.begin_read("R", [both], 3), [0], 4)
    assert kinds(checker) == ["backwards"]


def test_one_register_says_nothing_of_another(checker: Checker) -> None:
    write(checker, "a", 1, 0, 1)
    read(checker, "b", 0, 2, 3)
    assert checker.violations == []


def test_staleness_is_counted_once_for_answers_side_by_side() -> None:
    def stale(begin: float, end: float, behind_s: float) -> Violation:
        return Violation("stale", A, 0, 1, "R", begin, end, "W", behind_s)

    together = [stale(11, 12, 1), stale(11.5, 13, 1.5), stale(20.5, 21, 0.5)]
    longest, total = staleness(together)
    assert (longest, total) == (3, 4)


def test_what_a_transaction_reads_is_of_one_moment(checker: Checker) -> None:
    first, second = (checker.begin_read("R", [A], 0) for _ in range(2))
    write(checker, "a", 1, 1, 2)
    moment: dict[tuple[str, ...], int] = {}
    for group in (A, B, A):
        checker.is_of_moment(first, {group: 0}, 3, moment)
    assert checker.violations == []
    checker.is_of_moment(second, {A: 1}, 3, moment)
    assert kinds(checker) == ["of two moments"]


def test_what_it_is_at_least_is_none_that_a_transaction_has_read(checker: Checker) -> None:
    read = checker.begin_read("R", [A], 0)
    moment: dict[tuple[str, ...], int] = {}
    checker.is_of_moment(read, {A: 2}, 3, moment, {A})
    checker.is_of_moment(read, {A: 4}, 3, moment)
    assert checker.violations == []
    checker.is_of_moment(read, {A: 5}, 3, moment, {A})
    assert kinds(checker) == ["of two moments"]


class TestOfRegistersWrittenAroundIt:
    @pytest.fixture
    def around(self) -> Around:
        """Of `a`, which must show what was written so within 2 s."""
        return Around(["a"], 2)

    @pytest.fixture
    def checker(self, around: Around) -> Checker:
        return Checker({"a": 0, "b": 0}, around)

    def write_around(self, checker: Checker, value: int, at: float) -> None:
        checker.end_write(checker.begin_write("D", ["a"], at), [value], at, around=True)

    def test_one_may_be_older_than_that_for_a_while(self, checker: Checker, around: Around) -> None:
        self.write_around(checker, 1, 10)
        read(checker, "a", 0, 11.5, 11.6)
        assert checker.violations == []
        assert around.late_s == {(A, 1): (10, 1.5)}
        read(checker, "a", 0, 12.5, 12.6)
        assert kinds(checker) == ["stale"]
        assert checker.violations[0].behind_s == 2.5

    def test_what_is_seen_at_once_is_late_for_no_time(
        self, checker: Checker, around: Around
    ) -> None:
        self.write_around(checker, 1, 10)
        read(checker, "a", 1, 10.1, 10.2)
        assert around.late_s == {(A, 1): (10, 0)}

    def test_what_was_read_must_be_read_again_only_later(self, checker: Checker) -> None:
        checker.begin_write("D", ["a"], 1)
        read(checker, "a", 1, 10, 10.1)
        read(checker, "a", 0, 11, 11.1)
        assert checker.violations == []
        read(checker, "a", 0, 12.2, 12.3)
        assert kinds(checker) == ["backwards"]

    def test_what_was_written_through_it_is_read_at_once(self, checker: Checker) -> None:
        self.write_around(checker, 1, 10)
        write(checker, "a", 2, 10.1, 10.2)
        read(checker, "a", 1, 10.3, 10.4)
        assert kinds(checker) == ["stale"]

    def test_a_sum_is_no_older_than_its_parts_must_be(self, checker: Checker) -> None:
        self.write_around(checker, 1, 10)
        write(checker, "b", 1, 10, 10)
        early, late = (checker.begin_read("R", [("a", "b")], at) for at in (11, 12))
        checker.end_read(early, [1], 13)
        assert checker.violations == []
        checker.end_read(late, [1], 13)
        assert kinds(checker) == ["stale"]

    def test_the_others_are_as_strict_as_ever(self, checker: Checker) -> None:
        write(checker, "b", 1, 0, 1)
        read(checker, "b", 0, 2, 3)
        assert kinds(checker) == ["stale"]
