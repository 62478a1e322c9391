"""Keys of calls: equal for equal arguments, and for nothing else."""

from __future__ import annotations

import datetime
import decimal
import enum
import itertools
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from sqlcache.api.keys import CallKeys
from sqlcache.errors import UsageError


class Colour(enum.Enum):
    RED = 1


class Size(enum.IntEnum):
    ONE = 1


@dataclass
class Point:
    x: object


class Pair(NamedTuple):
    x: object


class Model(BaseModel):
    x: int


async def function(a: object, b: object = 2, *rest: object, c: object = 3) -> None: ...


KEYS = CallKeys(function, "shop.function", None)

DIFFERENT: list[Any] = [
    *(None, 0, 1, True, False, 1.0, 0.0, -0.0, "", "1", b"", b"1", decimal.Decimal(1)),
    *(decimal.Decimal("1.0"), datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)),
    *(datetime.timedelta(1), uuid.UUID(int=1), Colour.RED, Size.ONE, int, str),
    *((), [], {}, set(), frozenset(), (1,), [1], {1}, {1: 1}, ((1,),), (1, 1), ("ab",), ("a", "b")),
    *([1, [2]], [[1], 2], (True,), Point(1), Point("1"), Pair(1), Model(x=1)),
]


def test_different_values_have_different_keys() -> None:
    for one, other in itertools.combinations(DIFFERENT, 2):
        assert KEYS.of((one,), {}) != KEYS.of((other,), {}), (one, other)


def test_equal_arguments_have_equal_keys_however_they_are_given() -> None:
    assert len({KEYS.of((1,), {}), KEYS.of((1, 2), {}), KEYS.of((), {"b": 2, "a": 1, "c": 3})}) == 1
    assert KEYS.of(({1: 2, 3: 4},), {}) == KEYS.of(({3: 4, 1: 2},), {})
    assert KEYS.of(({"a", "b", "c"},), {}) == KEYS.of(({"c", "b", "a"},), {})


def test_which_parameter_a_value_is_for_makes_a_difference() -> None:
    assert KEYS.of((1, 2, 3), {}) != KEYS.of((1, 2), {"c": 3})
    assert KEYS.of((1, 5), {}) != KEYS.of((5, 1), {})


def test_a_remembered_key_is_not_given_to_another_type() -> None:
    assert KEYS.of((1,), {}) != KEYS.of((True,), {})
    assert KEYS.of((0.0,), {}) != KEYS.of((-0.0,), {})


@pytest.mark.parametrize("value", [object(), lambda: 1, [object()], {"x": iter(())}])
def test_what_has_no_value_is_refused_by_the_argument_s_name(value: Any) -> None:
    with pytest.raises(UsageError, match=r"shop.function: argument 'b' cannot be part"):
        KEYS.of((1, value), {})


def test_a_function_of_the_arguments_may_stand_for_them() -> None:
    keys = CallKeys(function, "f", lambda a, b=2: (type(a).__name__, b))
    assert keys.of((object(),), {}) == keys.of((object(), 2), {})
    assert keys.of((object(),), {}) != keys.of((object(), 3), {})
    with pytest.raises(UsageError, match="what key= returns"):
        CallKeys(function, "f", lambda a: a).of((object(),), {})


def test_arguments_that_do_not_fit_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="missing a required argument"):
        KEYS.of((), {})
