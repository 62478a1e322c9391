"""Keys of calls: equal for equal arguments, and for nothing else."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import io
import itertools
import struct
import uuid
from collections import namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partialmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, dataclass_transform
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, Field, PrivateAttr, field_validator

from sqlcache.api import keys
from sqlcache.api.keys import CallKeys
from sqlcache.cache.keys import digest
from sqlcache.errors import UsageError

T = TypeVar("T")


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


class Optional(BaseModel):
    shelf: int | None = None


class Open(BaseModel, extra="allow"):
    _mine: int = PrivateAttr(0)

    def __init__(self, mine: int = 0, **extra: object) -> None:
        super().__init__(**extra)
        self._mine = mine


class Ordered(Point):
    """A class that is derived from a dataclass and is none itself."""

    def __init__(self, x: object, order: str) -> None:
        super().__init__(x)
        self.order = order

    @cached_property
    def worked_out(self) -> object:
        return self.x


class Slotted(Point):
    __slots__ = ("order",)

    def __init__(self, x: object, order: str) -> None:
        super().__init__(x)
        self.order = order


class Hidden(Point):
    __slots__ = ("__order",)

    def __init__(self, x: object, order: str) -> None:
        super().__init__(x)
        self.__order = order


@dataclass
class Box(Generic[T]):
    x: T


@dataclass
class Row(dict[str, int]):
    table: str


@dataclass
class Many(list[int]):
    name: str


@dataclass(frozen=True)
class Several(frozenset[int]):
    pass


@dataclass
class Code(str):
    kind = "a"


@dataclass(eq=False)
class Length(float):
    pass


@dataclass
class Raw(bytes):
    pass


@dataclass
class Number(int):
    pass


@dataclass
class Buffer(bytearray):
    name: str = "a"


def filled(empty: Any, *content: Any) -> Any:
    """A dataclass that holds something beside its fields."""
    empty.update(content) if isinstance(empty, dict) else empty.extend(content)
    return empty


def content_of(kind: Any, *content: Any) -> Any:
    return kind.__base__.__new__(kind, *content)


class OrderedPair(Pair):
    order: str

    @classmethod
    def by(cls, x: object, order: str) -> OrderedPair:
        made = cls(x)
        made.order = order
        return made


class Right(enum.Flag):
    READ = 1
    WRITE = 2


Span = namedtuple("Span", "a b")
OTHER_SPAN: Any = namedtuple("Span", "b a")  # type: ignore[name-match]


class Zone(datetime.tzinfo):
    def __init__(self, hours: int) -> None:
        self._hours = hours

    def utcoffset(self, dt: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=self._hours)

    def tzname(self, dt: datetime.datetime | None) -> str:
        return "zone"

    def dst(self, dt: datetime.datetime | None) -> None:
        return None

    def __repr__(self) -> str:
        return "Zone()"


NAMELESS = b"TZif" + bytes(32) + struct.pack(">LL", 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
"""A file of the form of zoneinfo's with one zone, which has no name of its own."""


class SlottedZone(Zone):
    __slots__ = ("_hours",)


class NamelessZone(Zone):
    __repr__ = object.__repr__


def local(annotation: str, plus: int = 0) -> type:
    """A class that this makes anew each time."""

    class Local:
        __annotations__ = {"a": annotation}

        if plus:

            def b(self) -> int:
                return 2

        else:

            def b(self) -> int:
                return 1

    return Local


def by_closure(operator: object) -> Any:
    @dataclass
    class Filter:
        number: int = 1
        parts: list[int] = field(default_factory=list)

        def where(self) -> str:
            return f"id {operator} {self.number}"

        def again(self) -> Filter:
            return Filter(self.number)

    return Filter


def by_property(operator: object) -> Any:
    def where() -> object:
        return operator

    @dataclass(frozen=True, slots=True)
    class Filter:
        @property
        def where(self) -> object:
            return where()

    return Filter


def by_default(most: object) -> Any:
    class Filter(NamedTuple):
        number: int = 1

        def limit(self, at_most: object = most) -> object:
            return at_most

    return Filter


def by_attribute(value: object) -> Any:
    @dataclass
    class Filter(Generic[T]):
        ids: ClassVar[Any] = value

    return Filter


def by_inner_class(value: object) -> Any:
    inner = by_attribute(value)

    @dataclass
    class Outer:
        def inside(self) -> Any:
            return inner, Outer

    return Outer


def by_model(operator: object) -> Any:
    class Filter(BaseModel, frozen=True):
        number: int = Field(1, gt=0)

        @field_validator("number")
        @classmethod
        def checked(cls, number: int) -> int:
            return number if operator != number else 0

    return Filter


def by_field(default: Any) -> Any:
    class Filter(BaseModel):
        value: object = default

    return Filter


def by_zone(hours: Any) -> Any:
    class LocalZone(Zone):
        def utcoffset(self, dt: datetime.datetime | None) -> datetime.timedelta:
            return datetime.timedelta(hours=float(hours))

    return lambda: LocalZone(1)


def by_member(operator: object) -> Any:
    class Kind(enum.Enum):
        ANY = 5

        def where(self) -> str:
            return f"id {operator} {self.value}"

    return lambda: Kind.ANY


MAKING_CLASSES = [
    *(by_closure, by_property, by_default, by_attribute, by_inner_class),
    *(by_model, by_field, by_zone, by_member),
]


def at(zone: datetime.tzinfo | None) -> datetime.datetime:
    return datetime.datetime(2024, 1, 1, tzinfo=zone)


async def function(a: object, b: object = 2, *rest: object, c: object = 3) -> None: ...


KEYS = CallKeys(function, "shop.function", None)

DIFFERENT: list[Any] = [
    *(None, 0, 1, True, False, 1.0, 0.0, -0.0, "", "1", b"", b"1", decimal.Decimal(1)),
    *(decimal.Decimal("1.0"), datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)),
    *(datetime.timedelta(1), uuid.UUID(int=1), Colour.RED, Size.ONE, int, str),
    *((), [], {}, set(), frozenset(), (1,), [1], {1}, {1: 1}, ((1,),), (1, 1), ("ab",), ("a", "b")),
    *([1, [2]], [[1], 2], (True,), Point(1), Point("1"), Pair(1), Model(x=1)),
    *(Open(a=1), Open(a=2), Open(b=1), Open(1), Open(2)),
    *(Right(0), Right.READ, Right.WRITE, Right.READ | Right.WRITE),
    *(Span(1, 2), OTHER_SPAN(1, 2)),
    *(Ordered(1, "x"), Ordered(1, "y"), Slotted(1, "x"), Slotted(1, "y")),
    *(Hidden(1, "x"), Hidden(1, "y")),
    *(OrderedPair(1), OrderedPair.by(1, "x"), OrderedPair.by(1, "y")),
    *(enum.Enum("Local", {"A": 1}).A, enum.Enum("Local", {"A": 2}).A),  # type: ignore[attr-defined]
    *map(at, (datetime.UTC, ZoneInfo("UTC"), ZoneInfo("Etc/GMT"), Zone(1), Zone(2))),
    *(Zone(1), Zone(2), Zone(3), SlottedZone(1), SlottedZone(2)),
    *(type("Local", (), {"a": 1}), type("Local", (), {"a": 2}), type("Local", (Point,), {})),
    *(local("int"), local("str"), local("int", 1)),
    *(filled(Row("a")), filled(Row("a"), ("x", 1)), filled(Row("a"), ("x", 50))),
    *(filled(Many("a")), filled(Many("a"), 1), filled(Many("a"), 2)),
    *(content_of(Several, [1]), content_of(Several, [2])),
    *(content_of(kind, value) for kind in (Code, Number, Length) for value in ("1", "2")),
    *(content_of(Raw, b"1"), content_of(Raw, b"2")),
    *(type(None), datetime.time(1), datetime.time(1, tzinfo=datetime.UTC)),
]


def test_different_values_have_different_keys() -> None:
    for one, other in itertools.combinations(DIFFERENT, 2):
        assert KEYS.of((one,), {}) != KEYS.of((other,), {}), (one, other)


def test_equal_arguments_have_equal_keys_however_they_are_given() -> None:
    assert len({KEYS.of((1,), {}), KEYS.of((1, 2), {}), KEYS.of((), {"b": 2, "a": 1, "c": 3})}) == 1
    assert KEYS.of(({"a", "b", "c"},), {}) == KEYS.of(({"c", "b", "a"},), {})


def test_the_order_of_a_dictionary_makes_a_difference() -> None:
    """A function may sort by it, as by {"price": "DESC", "name": "ASC"}."""

    async def sorted_by(**order: str) -> None: ...

    assert KEYS.of(({1: 2, 3: 4},), {}) != KEYS.of(({3: 4, 1: 2},), {})
    assert KEYS.of((Open(a=1, b=2),), {}) != KEYS.of((Open(b=2, a=1),), {})
    keys = CallKeys(sorted_by, "shop.sorted_by", None)
    assert keys.of((), {"a": "ASC", "b": "ASC"}) != keys.of((), {"b": "ASC", "a": "ASC"})


def test_which_fields_of_a_model_were_set_makes_a_difference() -> None:
    """A function may ask for these alone, by `model_dump(exclude_unset=True)`."""
    assert KEYS.of((Optional(),), {}) != KEYS.of((Optional(shelf=None),), {})
    assert KEYS.of((Optional(shelf=1),), {}) == KEYS.of((Optional(shelf=1),), {})


def test_a_class_that_is_made_anew_is_the_same_where_it_is_made_alike() -> None:
    assert KEYS.of((local("int"),), {}) == KEYS.of((local("int"),), {})


@pytest.mark.parametrize("make", MAKING_CLASSES)
def test_of_classes_of_one_name_each_counts_with_all_it_has(make: Callable[[Any], Any]) -> None:
    """As itself, and in its objects. Made alike it is the same, in each process."""
    for one, other in ((1, 2), (0.5, 0.25), ("1", "2")):
        for of in (type, lambda value: value):
            assert KEYS.of((of(make(one)()),), {}) != KEYS.of((of(make(other)()),), {})
            assert KEYS.of((of(make(one)()),), {}) == KEYS.of((of(make(one)()),), {})


def test_what_a_class_has_without_a_value_is_named() -> None:
    with pytest.raises(UsageError, match=r"in 'where' of .*Filter, a object has no value"):
        KEYS.of((by_closure(object())(),), {})
    with pytest.raises(UsageError, match=r"in 'ids' of .*Filter, a object has no value"):
        KEYS.of((by_attribute(object()),), {})


def by_name(name: str, value: object) -> type:
    return type("Local", (), {name: value})


def test_what_a_class_has_under_two_underscores_counts() -> None:
    assert KEYS.of((by_name("__conf__", 1),), {}) != KEYS.of((by_name("__conf__", 2),), {})
    with pytest.raises(UsageError, match=r"in '__conf__' of Local, a object has no value"):
        KEYS.of((by_name("__conf__", object()),), {})


def with_metadata(metadata: Any) -> type:
    @dataclass
    class Local:
        number: int = field(metadata={"sql": metadata})

    return Local


def test_the_metadata_of_a_dataclass_s_fields_count() -> None:
    assert KEYS.of((with_metadata("a"),), {}) == KEYS.of((with_metadata("a"),), {})
    assert KEYS.of((with_metadata("a"),), {}) != KEYS.of((with_metadata("b"),), {})


def by_holder(holder: Callable[[Any], Any], given: object = None) -> Any:
    def where(self: Any) -> Any: ...

    class Query(BaseModel, ignored_types=(cached_property, partialmethod)):
        x: int = 1
        held = holder(where)

    if given is not None:
        vars(Query)["held"].given = given
    return Query


class Derived(cached_property[Any]):
    pass


@pytest.mark.parametrize(
    "holder",
    [cached_property, Derived, partialmethod, dataclass_transform(field_specifiers=(field,))],
)
def test_what_a_decorator_of_python_s_keeps_for_itself_is_no_part_of_a_key(holder: Any) -> None:
    """Such as a lock. What an app has given it counts."""
    one, alike, other = by_holder(holder), by_holder(holder), by_holder(holder, "given")
    assert KEYS.of((one(),), {}) == KEYS.of((alike(),), {}) != KEYS.of((other(),), {})


def test_a_class_that_captures_its_cache_has_a_value() -> None:
    cache, other = object(), object()
    keys = CallKeys(function, "shop.function", None, cache)
    assert keys.of((by_closure(cache)(),), {}) == keys.of((by_closure(cache)(),), {})
    with pytest.raises(UsageError, match="a object has no value"):
        keys.of((by_closure(other)(),), {})


def test_what_an_argument_has_worked_out_is_no_part_of_its_key() -> None:
    ordered = Ordered(1, "x")
    before = KEYS.of((ordered,), {})
    assert ordered.worked_out == 1
    assert KEYS.of((ordered,), {}) == before == KEYS.of((Ordered(1, "x"),), {})


def test_what_is_left_in_an_object_by_others_is_no_part_of_its_key() -> None:
    mapped = Point(1)
    vars(mapped)["_sa_instance_state"] = object()
    assert KEYS.of((mapped,), {}) == KEYS.of((Point(1),), {})
    assert KEYS.of((Box[int](1),), {}) == KEYS.of((Box(1),), {})


def test_which_parameter_a_value_is_for_makes_a_difference() -> None:
    assert KEYS.of((1, 2, 3), {}) != KEYS.of((1, 2), {"c": 3})
    assert KEYS.of((1, 5), {}) != KEYS.of((5, 1), {})


def test_a_key_of_today_is_not_that_of_what_has_changed_since() -> None:
    options: dict[str, int] = {}
    tenant = "one"

    async def with_default(a: int, b: dict[str, int] = options) -> None: ...

    by_default = CallKeys(with_default, "shop.function", None)
    by_key = CallKeys(function, "shop.function", lambda a: (a, tenant))
    before = by_default.of((1,), {}), by_key.of((1,), {})
    options["limit"] = 5
    tenant = "another"
    assert by_default.of((1,), {}) != before[0]
    assert by_key.of((1,), {}) != before[1]


def test_long_arguments_are_not_remembered() -> None:
    keys = CallKeys(function, "shop.function", None)
    assert keys.of(("x" * 10_000,), {}) == keys.of(("x" * 10_000,), {})
    keys.of((1 << 100_000,), {})
    assert not keys._memo


def test_a_remembered_key_is_not_given_to_another_type() -> None:
    assert KEYS.of((1,), {}) != KEYS.of((True,), {})
    assert KEYS.of((0.0,), {}) != KEYS.of((-0.0,), {})


@pytest.mark.parametrize(
    "value",
    [
        *(object(), lambda: 1, [object()], {"x": iter(())}, at(NamelessZone(1)), Buffer()),
        ZoneInfo.from_file(io.BytesIO(NAMELESS)),
    ],
)
def test_what_has_no_value_is_refused_by_the_argument_s_name(value: Any) -> None:
    with pytest.raises(UsageError, match=r"shop.function: argument 'b' cannot be part"):
        KEYS.of((1, value), {})


def containing_itself() -> list[Any]:
    made: list[Any] = []
    made.append({"made": made})
    return made


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize("value", [containing_itself(), nested(100_000)], ids=["itself", "nested"])
def test_what_has_no_end_is_refused_by_the_argument_s_name(value: Any) -> None:
    with pytest.raises(UsageError, match=r"argument 'b' cannot be part .* contains itself, or is"):
        KEYS.of((1, value), {})
    with pytest.raises(UsageError, match="what key= returns cannot be part"):
        CallKeys(function, "f", lambda a: a).of((value,), {})


def sharing(levels: int) -> Any:
    """Of each level there is one, which the next has twice."""
    made: Any = [1]
    for level in range(levels):
        made = [Point(made), {"a": made}] if level % 2 else (made, made)
    return made


def apart(levels: int) -> Any:
    """The same where none is in two places."""
    if not levels:
        return [1]
    one, other = apart(levels - 1), apart(levels - 1)
    return (one, other) if levels % 2 else [Point(one), {"a": other}]


def test_a_part_that_is_in_many_places_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each level there are twice as many places."""
    assert KEYS.of((sharing(8),), {}) == KEYS.of((apart(8),), {})
    digested = 0

    def counting(fields: Iterable[bytes]) -> bytes:
        nonlocal digested
        digested += 1
        return digest(fields)

    monkeypatch.setattr(keys, "digest", counting)
    KEYS.of((sharing(16),), {})
    assert digested < 16 * 10


def test_a_function_of_the_arguments_may_stand_for_them() -> None:
    keys = CallKeys(function, "f", lambda a, b=2: (type(a).__name__, b))
    assert keys.of((object(),), {}) == keys.of((object(), 2), {})
    assert keys.of((object(),), {}) != keys.of((object(), 3), {})
    with pytest.raises(UsageError, match="what key= returns"):
        CallKeys(function, "f", lambda a: a).of((object(),), {})


def test_a_decorator_that_changes_arguments_has_keys_of_what_it_was_given() -> None:
    """It may have another default, or give the function an argument of its own."""

    @functools.wraps(function)
    async def around(*args: object, **kwargs: object) -> None:
        kwargs.setdefault("b", 3)
        await function(1, *args, **kwargs)

    keys = CallKeys(around, "shop.function", None)
    assert keys.of((), {}) != keys.of((), {"b": 2})
    assert keys.of((2,), {}) == keys.of((2,), {})


def test_arguments_that_do_not_fit_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="missing a required argument"):
        KEYS.of((), {})
