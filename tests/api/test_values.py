"""Values as bytes and back: the same types, and never code."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import pathlib
import subprocess
import sys
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    create_model,
    field_validator,
)

from sqlcache.api.values import PickleCodec, PlainCodec, TypedCodec, codec_for, encoded
from sqlcache.errors import UsageError


@dataclass
class Product:
    id: int
    price: decimal.Decimal
    added: datetime.datetime | None = None


class Model(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    products: list[Product]
    raw: bytes = b""


class TextModel(BaseModel):
    raw: bytes


class Point(NamedTuple):
    x: int
    y: int


PLAIN: list[Any] = [
    *(None, True, 1, 2**70, 0.5, "žluť \ud800", b"\x00\xff", decimal.Decimal("1.50")),
    *(datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3, 4)),
    *(datetime.time(1, 2), datetime.timedelta(days=-3, microseconds=7), uuid.UUID(int=7)),
    *([], (), {}, set(), frozenset({1}), [(1, "a"), (2, None)], {"a": [1], "$": 2}, {1: (2,)}),
    {"$": ["()", [1]]},
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    codec = PlainCodec()
    back = codec.decode(codec.encode(value))
    assert back == value
    assert type(back) is type(value)


AMID_TWO_OFFSETS = datetime.datetime(2024, 10, 27, 2, 30, 0, 5, fold=1)
PRAGUE = zoneinfo.ZoneInfo("Europe/Prague")
FIXED = datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))


@pytest.mark.parametrize(
    "moment",
    [
        AMID_TWO_OFFSETS,
        AMID_TWO_OFFSETS.replace(tzinfo=PRAGUE),
        AMID_TWO_OFFSETS.replace(tzinfo=PRAGUE, fold=0),
        AMID_TWO_OFFSETS.replace(tzinfo=FIXED),
        AMID_TWO_OFFSETS.timetz(),
        AMID_TWO_OFFSETS.replace(tzinfo=PRAGUE).timetz(),
    ],
    ids=repr,
)
def test_a_plain_time_keeps_its_zone_and_which_of_two_it_is(moment: Any) -> None:
    """Those of one zone are equal whatever their offset: what is added to them tells."""
    codec = PlainCodec()
    back = codec.decode(encoded(codec, moment, "f"))
    assert (back, repr(back)) == (moment, repr(moment))


class Colour(enum.Enum):
    RED = "red"


class Event(BaseModel):
    at: datetime.datetime | None
    until: datetime.time = Field(default=datetime.time(1), alias="ends")
    raw: bytes = b"x"
    colours: set[Colour] = {Colour.RED}
    place: pathlib.Path = pathlib.Path("/")


@dataclass(frozen=True)
class Visit:
    events: tuple[Event, ...]
    by_day: dict[datetime.datetime, Point]


@pytest.mark.parametrize(
    "at",
    [
        AMID_TWO_OFFSETS,
        AMID_TWO_OFFSETS.replace(tzinfo=PRAGUE),
        AMID_TWO_OFFSETS.replace(tzinfo=PRAGUE, fold=0),
        AMID_TWO_OFFSETS.replace(fold=0),
        AMID_TWO_OFFSETS.replace(tzinfo=datetime.UTC, fold=0),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    ("annotation", "made"),
    [
        (datetime.datetime, lambda at: at),
        (datetime.datetime | str, lambda at: at),
        (datetime.time, lambda at: at.timetz()),
        (list[tuple[datetime.datetime, bytes]], lambda at: [(at, b"\xff")]),
        (dict[datetime.datetime, decimal.Decimal], lambda at: {at: decimal.Decimal("1.50")}),
        (set[datetime.datetime], lambda at: {at}),
        (Product, lambda at: Product(1, decimal.Decimal("1.50"), at)),
        (Event, lambda at: Event(at=at, ends=at.timetz())),
        (Visit, lambda at: Visit((Event(at=at), Event(at=None)), {at: Point(1, 2)})),
    ],
)
def test_a_typed_time_keeps_its_zone_and_which_of_two_it_is(
    annotation: Any, made: Callable[[Any], Any], at: datetime.datetime
) -> None:
    codec = TypedCodec(annotation)
    value = made(at)
    back = codec.decode(encoded(codec, value, "f"))
    assert type(back) is type(value)
    assert back == value
    if at.tzinfo is not datetime.UTC:  # which pydantic has an own name for
        assert repr(back) == repr(value)


def test_a_strict_model_may_have_a_time_that_keeps_its_zone() -> None:
    """What was made of its other fields for that is no value of their types."""

    class Kind(enum.Enum):
        OPEN = "open"

    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        at: datetime.datetime
        kind: Kind
        path: pathlib.PurePosixPath

    value = Strict(
        at=AMID_TWO_OFFSETS.replace(tzinfo=PRAGUE),
        kind=Kind.OPEN,
        path=pathlib.PurePosixPath("/a"),
    )
    codec = TypedCodec(Strict)
    assert repr(codec.decode(encoded(codec, value, "f"))) == repr(value)


def test_a_typed_time_that_cannot_keep_them_is_refused() -> None:
    class Moved(BaseModel):
        at: datetime.datetime

        @field_validator("at")
        @classmethod
        def without_zone(cls, at: datetime.datetime) -> datetime.datetime:
            return at.astimezone(datetime.UTC)

    value = Moved.model_construct(at=AMID_TWO_OFFSETS.replace(tzinfo=PRAGUE))
    with pytest.raises(UsageError, match="lose its zone"):
        encoded(TypedCodec(Moved), value, "f")


def test_a_zone_that_is_none_here_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="No time zone found"):
        PlainCodec().decode(b'{"$":["dt","2024-10-27 02:30:00|0|No/Such"]}')


TYPED: list[tuple[Any, Any]] = [
    (list[Product], [Product(1, decimal.Decimal("1.50"), datetime.datetime(2024, 1, 1))]),
    (Model, Model(products=[Product(1, decimal.Decimal(2))], raw=b"\x00\xff")),
    (dict[int, tuple[str, ...]], {1: ("a", "b")}),
    (Point, Point(1, 2)),
    (set[uuid.UUID], {uuid.UUID(int=1)}),
    (bytes, b"\x00\xff"),
    (float, float("inf")),
    (Product | None, None),
    (datetime.timedelta, datetime.timedelta(seconds=1.5)),
]


@pytest.mark.parametrize(("annotation", "value"), TYPED, ids=repr)
def test_typed_values_come_back_as_they_were(annotation: Any, value: Any) -> None:
    codec = TypedCodec(annotation)
    back = codec.decode(encoded(codec, value, "f"))
    assert back == value
    assert type(back) is type(value)


def returning(annotation: Any) -> Callable[..., Any]:
    async def function() -> Any: ...

    function.__annotations__["return"] = annotation
    return function


@pytest.mark.parametrize("annotation", [Any, list, list[tuple[Any, ...]], dict[str, Any], object])
def test_where_the_annotation_leaves_a_type_open_values_are_marked(annotation: Any) -> None:
    assert isinstance(codec_for(returning(annotation), "f", None), PlainCodec)


def test_an_annotation_is_followed_also_where_it_names_what_is_local() -> None:
    @dataclass
    class Local:
        x: int

    codec = codec_for(returning("list[Local]"), "f", locals())
    assert codec.decode(codec.encode([Local(1)])) == [Local(1)]
    with pytest.raises(UsageError, match="cannot be read"):
        codec_for(returning("list[Nowhere]"), "f", None)


def test_an_annotation_of_an_argument_may_name_what_only_type_checkers_know() -> None:
    function = returning("list[int]")
    function.__annotations__["session"] = "Nowhere"
    assert codec_for(function, "f", None).decode(b"[[1]]") == [1]


NOW = {"day": datetime.date(2024, 2, 28)}


class Report(BaseModel):
    rows: list[int] = Field(default_factory=list)
    note: str | None = None
    made_on: datetime.date = Field(default_factory=lambda: NOW["day"])


def test_what_a_model_made_for_itself_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = TypedCodec(list[Report])
    made, dated = Report(), Report(made_on=NOW["day"])
    whole, told = (encoded(codec, [each], "f") for each in (made, dated))
    monkeypatch.setitem(NOW, "day", datetime.date(2024, 2, 29))
    assert codec.decode(whole) == [made]
    assert [each.model_fields_set for each in codec.decode(told)] == [{"made_on"}]


class Patch(BaseModel):
    id: int
    note: str | None = None
    made: uuid.UUID = Field(default_factory=uuid.uuid4)


def test_which_fields_of_a_model_were_set_is_kept() -> None:
    named = uuid.UUID(int=1)
    one, other = Patch(id=1, made=named), Patch(id=1, note=None, made=named)
    codec = TypedCodec(dict[str, list[Patch]])
    back = codec.decode(encoded(codec, {"a": [one, other]}, "f"))["a"]
    assert [each.model_dump(exclude_unset=True) for each in back] == [
        {"id": 1, "made": named},
        {"id": 1, "note": None, "made": named},
    ]
    made_by_chance = [Patch(id=1)]
    codec = TypedCodec(list[Patch])
    assert codec.decode(encoded(codec, made_by_chance, "f")) == made_by_chance


NAMED_CODEC = """
from typing import Annotated
from pydantic import AfterValidator
from sqlcache.api.values import TypedCodec
padding = [lambda: None for _ in range({padding})]
def positive(value): return value
print(TypedCodec(list[Annotated[int, AfterValidator(positive)]]).name.hex())
"""


def test_a_type_with_a_function_in_it_has_the_same_values_in_each_process() -> None:
    names = {
        subprocess.check_output([sys.executable, "-c", NAMED_CODEC.format(padding=padding)])
        for padding in (1, 10_000)
    }
    assert len(names) == 1


def test_a_value_that_would_come_back_as_another_is_refused() -> None:
    for annotation, value in ((list[int], ["1"]), (Product, {"id": 1}), (str, 5)):
        with pytest.raises(UsageError, match="f: what it returned"):
            encoded(TypedCodec(annotation), value, "f")
    with pytest.raises(UsageError, match="utf-8"):  # of a model that says nothing of bytes
        encoded(TypedCodec(TextModel), TextModel(raw=b"\xff"), "f")
    with pytest.raises(UsageError, match="no plain value"):
        encoded(PlainCodec(), [Product(1, decimal.Decimal(1))], "f")


class Circle(NamedTuple):
    radius: int


class Square(NamedTuple):
    side: int


@pytest.mark.parametrize(
    ("annotation", "put"),
    [
        (Circle | Square, lambda value: value),
        (list[Circle | Square], lambda value: [Circle(1), value]),
        (dict[str, tuple[Circle | Square, int]], lambda value: {"a": (value, 1)}),
    ],
)
def test_a_named_tuple_does_not_come_back_as_one_of_another_class(
    annotation: Any, put: Callable[[Any], Any]
) -> None:
    """pydantic makes the first one of which the values fit."""
    codec = TypedCodec(annotation)
    assert repr(codec.decode(encoded(codec, put(Circle(1)), "f"))) == repr(put(Circle(1)))
    with pytest.raises(UsageError, match="as another value"):
        encoded(codec, put(Square(1)), "f")


@dataclass
class Measured:
    mean: float
    count: int = 1


class Measurements(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")
    each: list[Measured]
    mean: float


NAN = float("nan")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (float, NAN),
        (list[float], [1, NAN]),
        (dict[str, tuple[float, int]], {"a": (NAN, 1)}),
        (Measured, Measured(NAN)),
        (Measurements, Measurements(each=[Measured(NAN)], mean=NAN)),
        (Any, {"a": [NAN, decimal.Decimal("NaN")]}),
    ],
)
def test_nan_comes_back_as_it_was_though_it_equals_nothing(annotation: Any, value: Any) -> None:
    codec = PlainCodec() if annotation is Any else TypedCodec(annotation)
    assert repr(codec.decode(encoded(codec, value, "f"))).replace("1.0", "1") == repr(value)


def test_beside_nan_other_values_are_refused_as_ever() -> None:
    class Halved(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan="constants")
        mean: float
        half: float

        @field_validator("half")
        @classmethod
        def halve(cls, value: float) -> float:
            return value / 2

    with pytest.raises(UsageError, match="would come back"):
        encoded(TypedCodec(Halved), Halved(mean=NAN, half=8), "f")
    with pytest.raises(UsageError, match="would come back"):
        encoded(TypedCodec(list[Halved]), [Halved(mean=NAN, half=8)], "f")


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    for codec in (PlainCodec(), TypedCodec(list[Any])):
        with pytest.raises(UsageError, match="cannot be stored"):
            encoded(codec, value, "f")


class Opaque:
    pass


def test_a_type_that_cannot_be_stored_safely_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be stored safely"):
        codec_for(returning(list[Opaque]), "f", None)


def test_a_class_that_was_changed_has_other_values() -> None:
    def made(fields: list[tuple[str, type]]) -> bytes:
        cls = type("Product", (), {"__annotations__": dict(fields)})
        return TypedCodec(dataclass(cls)).name

    assert made([("a", int)]) != made([("a", int), ("b", str)])
    assert made([("a", int)]) != made([("a", str)])


class Money:
    """pydantic knows no schema of it."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]


Price = Annotated[
    Money, BeforeValidator(lambda cents: Money(cents)), PlainSerializer(lambda money: money.cents)
]


def test_so_it_has_where_a_field_has_no_schema_of_its_own() -> None:
    """What is behind a default would be lost."""

    def priced(**fields: Any) -> Any:
        own = {"price": (Price, Money(5)), **fields}
        config = ConfigDict(arbitrary_types_allowed=True)
        return create_model("Priced", __config__=config, **own)

    names = [TypedCodec(priced(**{name: (int, 0)})).name for name in ("stock", "in_stock", "stock")]
    assert names[0] == names[2] != names[1]
    model = priced(at=(datetime.datetime, None))
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    moment = datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zone)
    codec = TypedCodec(model)
    assert codec.decode(encoded(codec, model(at=moment), "f")).at.fold == 1


def test_pickle_has_to_be_asked_for_by_its_danger() -> None:
    with pytest.raises(UsageError, match="runs whatever code"):
        PickleCodec(i_trust_everyone_who_can_reach_memcached=False)
    codec = PickleCodec(i_trust_everyone_who_can_reach_memcached=True)
    assert codec.decode(codec.encode(Point(1, 2))) == Point(1, 2)
    with pytest.raises(ValueError, match="not a pickle"):
        codec.decode(b"?")


class Unequal:
    """As most classes are: equal to nothing but itself."""

    def __init__(self, inside: object) -> None:
        self.inside = inside


def test_by_pickle_comes_back_what_nobody_can_compare() -> None:
    codec = PickleCodec(i_trust_everyone_who_can_reach_memcached=True)
    (back,) = codec.decode(encoded(codec, [Unequal(5)], "f"))
    assert back.inside == 5
    with pytest.raises(UsageError, match="cannot be stored"):
        encoded(codec, Unequal(lambda: 5), "f")


class Named(BaseModel):
    number: int = Field(alias="n")


@dataclass
class Picture:
    data: bytes


@pytest.mark.parametrize(
    ("annotation", "value"), [(Named, Named(n=1)), (Picture, Picture(b"\xff")), (None, None)]
)
def test_a_class_by_itself_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    codec = TypedCodec(annotation)
    assert codec.decode(encoded(codec, value, "f")) == value


@pytest.mark.parametrize("data", [b"", b'{"$":1}', b'{"$":["?",1]}', b'{"$":["n","x"]}'])
def test_bytes_that_are_no_plain_value_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a plain value|Expecting value|unpack"):
        PlainCodec().decode(data)


@dataclass
class Remembering:
    """Has more than what its equality looks at."""

    number: int
    note: str = field(default="", compare=False)
    total: int = field(default=0, init=False, compare=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.number

    @functools.cached_property
    def thrice(self) -> int:
        return 3 * self.number


class Around(BaseModel):
    content: list[Remembering]


def remembering(**changed: int) -> Remembering:
    made = Remembering(1, "a")
    for name, value in changed.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("annotation", "put"),
    [
        (Remembering, lambda value: value),
        (list[Remembering], lambda value: [value]),
        (dict[str, tuple[Remembering, int]], lambda value: {"a": (value, 1)}),
        (Around, lambda value: Around.model_construct(content=[value])),
    ],
    ids=["itself", "in a list", "in a dictionary", "in a model"],
)
def test_attributes_that_equality_leaves_out_are_not_lost(annotation: Any, put: Any) -> None:
    codec = TypedCodec(annotation)
    kept = remembering()
    assert kept.thrice == 3
    assert codec.decode(encoded(codec, put(kept), "f")) == put(kept)
    for changed in ({"total": 5}, {"twice": 5}, {"other": 5}):
        with pytest.raises(UsageError, match="as another value"):
            encoded(codec, put(remembering(**changed)), "f")
