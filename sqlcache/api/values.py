"""Values of cached functions as bytes, and back with the same types.

Two safe forms, chosen by the return annotation. One that says all (`list[Product]` with
dataclasses or pydantic models, `dict[str, Decimal]`, ...) is followed by pydantic. Without one, or
where it says Any, values are JSON in which what JSON lacks (tuples, bytes, dates, Decimal, ...) is
marked. Neither runs code when it is read. A value that would come back as another one is refused
when it is made. That is not looked at where the app has named a codec: of an object of a class
without an `__eq__` of its own nobody can tell.
"""

import base64
import dataclasses
import datetime
import decimal
import inspect
import json
import pickle
import re
import uuid
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Protocol, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python

from sqlcache.api.keys import attributes_of
from sqlcache.cache.keys import digest
from sqlcache.errors import UsageError


class Codec(Protocol):
    """A way to write values. `name` tells it from all others, as part of each value's key."""

    name: bytes

    def encode(self, value: Any) -> bytes:
        """The value as bytes. Raises: TypeError, ValueError for one that has none."""

    def decode(self, data: bytes) -> Any:
        """The value again, a new object each time. Raises: ValueError for other bytes."""


_BY_NAME: Final[Mapping[str, Any]] = (
    {"by_name": True, "by_alias": False}
    if "by_name" in inspect.signature(TypeAdapter.validate_json).parameters
    else {}
)
"""Fields are written by their names, and so they are read, where pydantic is new enough."""


_KEEPS_ZONES: Final = b"P"
"""Begins what pydantic has not written as JSON, which begins otherwise."""


class _Schema(GenerateJsonSchema):
    """Of all fields, also of those for which JSON has none."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {_UNKNOWN: schema["type"]}


_UNKNOWN: Final = "sqlcache: no schema"


class TypedCodec:
    """Values of one type, as pydantic writes and checks them; or, where times are in it that JSON
    has no form for, as marked JSON of what pydantic makes of it."""

    def __init__(self, annotation: Any) -> None:
        config = ConfigDict(
            ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"
        )
        # Inside of another type, for one of its own a class can have a config of its own only.
        self._adapter: TypeAdapter[Any] = TypeAdapter(tuple[annotation], config=config)
        schema = self._schema()
        self.name = b"typed " + digest([_written(annotation).encode(), schema])
        self._may_have_moments = not schema or any(each in schema for each in _FORMATS_OF_MOMENTS)

    def _schema(self) -> bytes:
        """What the type looks like: values of a class that was changed are other ones."""
        try:
            schema = self._adapter.json_schema(mode="serialization", schema_generator=_Schema)
            return json.dumps(schema).encode()
        except PydanticUserError:
            return b""

    def encode(self, value: Any) -> bytes:
        told = list(_set_fields(value))
        if any(unset for _, unset, _ in told) and not any(made for _, _, made in told):
            with suppress(ValueError):
                data = self._encode(value, exclude_unset=True)
                back = self.decode(data)
                if list(_set_fields(back)) == told and _same(back, value):
                    return data
        return self._encode(value)

    def _encode(self, value: Any, *, exclude_unset: bool = False) -> bytes:
        dump = partial(self._adapter.dump_python, exclude_unset=exclude_unset)
        try:
            if self._may_have_moments:
                parts = dump((value,), warnings="error")
                told = [_told(each) for each in _moments(parts)]
                if any("|" in each for each in told):
                    return self._encode_parts(parts, told, dump)
            return self._adapter.dump_json((value,), warnings="error", exclude_unset=exclude_unset)
        except PydanticSerializationError as error:
            raise ValueError(str(error)) from error

    def _encode_parts(self, parts: Any, told: list[str], dump: Callable[[Any], Any]) -> bytes:
        data = _KEEPS_ZONES + PlainCodec().encode(_plain(parts))
        back = dump((self.decode(data),))
        if sorted(map(_told, _moments(back))) != sorted(told):
            raise ValueError("a time would lose its zone, or which of two it is")
        return data

    def decode(self, data: bytes) -> Any:
        try:
            if data.startswith(_KEEPS_ZONES):
                parts = PlainCodec().decode(data.removeprefix(_KEEPS_ZONES))
                return self._adapter.validate_python(parts, strict=False, **_BY_NAME)[0]
            return self._adapter.validate_json(data, **_BY_NAME)[0]
        except ValidationError as error:
            raise ValueError(str(error)) from error


def _written(annotation: Any) -> str:
    """The same in each process, where functions are in it, too."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(annotation))


_ALWAYS_ALIKE: Final = (None, list, dict, set, frozenset, tuple, str, bytes, int, float, bool)
"""What may make a field's default: others may make another one at another time, or elsewhere."""


def _set_fields(value: Any) -> Iterator[tuple[frozenset[str], bool, bool]]:
    """Of each of pydantic's models in it which fields were set, whether some were not, and whether
    what those are may not be made again."""
    if isinstance(value, BaseModel):
        given, fields = frozenset(value.model_fields_set), type(value).model_fields
        unset = [field for name, field in fields.items() if name not in given]
        made = any(field.default_factory not in _ALWAYS_ALIKE for field in unset)
        yield given, bool(unset), made
        value = [getattr(value, name) for name in fields]
    elif isinstance(value, dict):
        value = list(value.values())
    elif dataclasses.is_dataclass(value):
        value = list(_attributes(value).values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _set_fields(each)


_FORMATS_OF_MOMENTS: Final = (b'"date-time"', b'"time"', _UNKNOWN.encode())


def _moments(parts: Any) -> Iterator[datetime.datetime | datetime.time]:
    """All that are in it."""
    if isinstance(parts, datetime.datetime | datetime.time):
        yield parts
    elif isinstance(parts, dict):
        for key, each in parts.items():
            yield from _moments(key)
            yield from _moments(each)
    elif isinstance(parts, list | tuple | set | frozenset):
        for each in parts:
            yield from _moments(each)


def _plain(parts: Any) -> Any:
    """The same of plain values alone."""
    if isinstance(parts, dict):
        return {_plain(key): _plain(each) for key, each in parts.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(parts, kind):
            return kind(map(_plain, parts))
    is_plain = type(parts) in _PLAIN or type(parts) in _TEXTS or type(parts) is datetime.timedelta
    return parts if is_plain else to_jsonable_python(parts, fallback=str)


def _told(moment: datetime.datetime | datetime.time) -> str:
    """In ISO 8601, and behind that what it lacks: which of two times it is that clocks show alike,
    and the name of its zone."""
    zone = moment.tzinfo
    key = zone.key if isinstance(zone, zoneinfo.ZoneInfo) else None
    if not (moment.fold or key):
        return str(moment)
    return f"{moment.replace(tzinfo=None) if key else moment}|{moment.fold}|{key or ''}"


def _untold(kind: type[datetime.datetime | datetime.time], text: str) -> Any:
    """The moment of this kind of which that was told."""
    said, _, more = text.partition("|")
    fold, _, key = more.partition("|")
    moment = kind.fromisoformat(said).replace(fold=int(fold or 0))
    return moment.replace(tzinfo=zoneinfo.ZoneInfo(key)) if key else moment


_MARK: Final = "$"
_TEXTS: Final[Mapping[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]]] = {
    bytes: ("b", lambda v: base64.b85encode(v).decode(), base64.b85decode),
    decimal.Decimal: ("n", str, decimal.Decimal),
    datetime.date: ("d", str, datetime.date.fromisoformat),
    datetime.datetime: ("dt", _told, partial(_untold, datetime.datetime)),
    datetime.time: ("t", _told, partial(_untold, datetime.time)),
    uuid.UUID: ("u", str, uuid.UUID),
}
_LISTS: Final[Mapping[type, tuple[str, Callable[[list[Any]], Any]]]] = {
    tuple: ("()", tuple),
    set: ("{}", set),
    frozenset: ("f", frozenset),
}
_OPEN: Final = (Any, object, list, tuple, dict, set, frozenset)
_DELTA, _DICT = "td", ":"
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **{mark: read for mark, _, read in _TEXTS.values()},
    **dict(_LISTS.values()),
    _DELTA: lambda parts: datetime.timedelta(*parts),
    _DICT: dict,
}


class PlainCodec:
    """Plain values of Python's own types, in marked JSON: `{"$": [mark, value]}`."""

    name = b"plain"

    def encode(self, value: Any) -> bytes:
        return json.dumps(_marked(value), separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )

    def decode(self, data: bytes) -> Any:
        try:
            return json.loads(data.decode("utf-8", "surrogatepass"), object_hook=_unmarked)
        except (LookupError, TypeError, ArithmeticError, OSError) as error:
            raise ValueError(f"not a plain value: {error!r}") from error


def _marked(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [_marked(each) for each in value]
    if kind is dict:
        if _MARK not in value and all(type(key) is str for key in value):
            return {key: _marked(each) for key, each in value.items()}
        return {_MARK: [_DICT, [[_marked(key), _marked(each)] for key, each in value.items()]]}
    if kind in _TEXTS:
        mark, write, _ = _TEXTS[kind]
        return {_MARK: [mark, write(value)]}
    if kind in _LISTS:
        return {_MARK: [_LISTS[kind][0], [_marked(each) for each in value]]}
    if kind is datetime.timedelta:
        return {_MARK: [_DELTA, [value.days, value.seconds, value.microseconds]]}
    raise TypeError(f"a {kind.__qualname__} is no plain value")


def _unmarked(value: dict[str, Any]) -> Any:
    if _MARK not in value:
        return value
    mark, content = value[_MARK]
    return _READ[mark](content)


class PickleCodec:
    """Any value, by pickle: an opt-in, for it is dangerous.

    Reading a pickle runs whatever code its writer put in. Whoever can write to one of the
    memcached nodes, which know no passwords, can then run anything in every process that reads
    from it. Use it only where nobody but your own processes can reach the nodes.
    """

    name = b"pickle"

    def __init__(self, *, i_trust_everyone_who_can_reach_memcached: bool) -> None:
        if not i_trust_everyone_who_can_reach_memcached:
            raise UsageError(
                "PickleCodec runs whatever code it finds in memcached: use it only where"
                " everyone who can reach the nodes is trusted"
            )

    def encode(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value)
        except Exception as error:  # so may pickling
            raise ValueError(f"it cannot be pickled: {error!r}") from error

    def decode(self, data: bytes) -> Any:
        try:
            return pickle.loads(data)
        except Exception as error:  # unpickling may raise anything
            raise ValueError(f"not a pickle of a value that exists now: {error!r}") from error


def codec_for(
    function: Callable[..., Any], name: str, names_around: Mapping[str, Any] | None
) -> Codec:
    """The codec that a function's return annotation asks for.

    `names_around` are the local names where a function inside another one was defined.
    Raises: UsageError for an annotation that cannot be followed.
    """
    try:
        annotation = _returned(function, names_around)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise UsageError(f"{name}: its return annotation cannot be read: {error}") from error
    if _says_any(annotation):
        return PlainCodec()
    try:
        return TypedCodec(annotation)
    except PydanticUserError as error:
        raise UsageError(
            f"{name}: values of its return annotation cannot be stored safely: {error}"
        ) from error


def _returned(function: Callable[..., Any], names_around: Mapping[str, Any] | None) -> Any:
    """Its return annotation alone: those of arguments may name what only type checkers import."""
    written = inspect.unwrap(function)
    alone = SimpleNamespace(__annotations__={})
    if "return" in (annotations := getattr(written, "__annotations__", {})):
        alone.__annotations__["return"] = annotations["return"]
    names = getattr(written, "__globals__", {})
    hints = get_type_hints(alone, names, dict(names_around or {}), include_extras=True)
    return hints.get("return", Any)


def encoded(codec: Codec, value: Any, name: str) -> bytes:
    """The value's bytes. Raises: UsageError where it would not come back, or by a codec that an
    annotation asks for, not as it is."""
    try:
        data = codec.encode(value)
        back = codec.decode(data)
        same = not isinstance(codec, PlainCodec | TypedCodec) or _same(back, value)
        same = same and (not isinstance(codec, TypedCodec) or _whole(back, value))
    except (TypeError, ValueError, RecursionError) as error:  # such as of what contains itself
        raise UsageError(f"{name}: what it returned cannot be stored: {error}") from error
    if not same:
        raise UsageError(
            f"{name}: what it returned, a {type(value).__qualname__}, would come back from the"
            " cache as another value: annotate what it really returns"
        )
    return data


def _same(one: Any, other: Any) -> bool:
    """Whether they are equal, where NaN counts as equal to itself."""
    if one == other:
        return True
    kind: Any = type(one)
    if kind is not type(other):
        return False
    if isinstance(one, float | decimal.Decimal):
        return bool(one != one and other != other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, BaseModel):
        rest = "__pydantic_extra__", "__pydantic_private__"
        alike = all(_same(getattr(one, name), getattr(other, name)) for name in rest)
        return alike and _same(vars(one), vars(other))
    if dataclasses.is_dataclass(one) and kind.__dataclass_params__.eq:
        names = [field.name for field in dataclasses.fields(one) if field.compare]
        return all(_same(getattr(one, name), getattr(other, name)) for name in names)
    return False


def _whole(one: Any, other: Any) -> bool:
    """Whether of two that are the same also the dataclasses in them have all attributes in common:
    their equality may leave some out, and a form of their fields has no others. And whether no
    named tuple is one of another class: they are equal where their values are."""
    kind = type(one)
    if kind in _PLAIN:
        return True
    if kind is not type(other):
        pair = one, other
        return not all(isinstance(each, tuple) and hasattr(each, "_fields") for each in pair)
    if isinstance(one, list | tuple):
        return all(map(_whole, one, other))
    if isinstance(one, dict):
        return all(_whole(each, other[key]) for key, each in one.items())
    if isinstance(one, BaseModel):
        return all(_whole(getattr(one, name), getattr(other, name)) for name in kind.model_fields)
    if not dataclasses.is_dataclass(one):
        return True
    ones, others = map(_attributes, (one, other))
    return ones.keys() == others.keys() and all(
        _same(each, others[name]) and _whole(each, others[name]) for name, each in ones.items()
    )


def _attributes(value: Any) -> dict[str, Any]:
    """A dataclass's own, and its fields, of which some may be its class's."""
    names = (each.name for each in dataclasses.fields(value) if hasattr(value, each.name))
    return {name: getattr(value, name) for name in names} | dict(attributes_of(value, ()))


def _says_any(annotation: Any) -> bool:
    """Whether some part of the annotation leaves a type open."""
    return annotation in _OPEN or any(map(_says_any, get_args(annotation)))
