"""The key of one call of a function: its arguments as bytes, the same for equal arguments only.

An argument's type is part of it (1, True, 1.0 and "1" differ), and so is the order of a list and of
a dictionary, by which a function may sort, but not that of a set. What has no such bytes, such as a
session or a request, is refused with a sentence that names the argument. A class that its module
does not have under its name, as one made in a function, is part of it with its fields and the code
of its methods: others may be called so.
"""

import dataclasses
import datetime
import decimal
import enum
import inspect
import sys
import uuid
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from types import FunctionType
from typing import Any, Final

from pydantic import BaseModel

from sqlcache.api.code import code_digest
from sqlcache.cache.keys import digest
from sqlcache.errors import UsageError

_BY_REPR: Final = frozenset(
    {float, bool, type(None), decimal.Decimal, uuid.UUID}
    | {datetime.date, datetime.timedelta, datetime.timezone}
)
"""Types whose `repr` tells equal values from all others of the same type."""

_MEMO_TYPES: Final = frozenset({int, str, bytes, bool, type(None)})
_MEMO_ENTRIES: Final = 10_000
_MEMO_BYTES: Final = 500
"""As much as the arguments of a call may take that is remembered."""

_OF_ITS_PLACE: Final = frozenset({"__module__", "__qualname__", "__firstlineno__", "__doc__"})
_OF_NO_VALUE: Final = ("__dict__", "__weakref__", "__orig_class__", "_sa_instance_state")
"""What an object has beside its value: such as what `Box[int]` and SQLAlchemy leave in one."""
_MADE_AT_RUN_TIME: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_CONTENTS: Final[Mapping[type, Callable[[Any], object]]] = {
    dict: lambda value: tuple(dict.items(value)),
    list: lambda value: tuple(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    set: lambda value: frozenset(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    str: str.__str__,
    bytes: lambda value: b"".join((value,)),
    int: int.__int__,
    float: float.__float__,
}
"""What an object has in itself whose class is derived from one of these."""

_OF_A_ZONE: Final = frozenset({datetime.datetime, datetime.time})


class CallKeys:
    """The keys of one function's calls.

    `key`, if given, is called with the arguments, and its result stands for them.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, key: Callable[..., Any] | None
    ) -> None:
        # A decorator's own: nobody can tell what it makes of the arguments for the one below it.
        self._signature = inspect.signature(function, follow_wrapped=False)
        self._name = name
        self._key = key
        self._memo: dict[tuple[Any, ...], bytes] = {}
        # What `key` returns, and what a default is by then, may change from call to call.
        defaults = [each.default for each in self._signature.parameters.values()]
        self._decided_by_arguments = key is None and _MEMO_TYPES.issuperset(
            type(default) for default in defaults if default is not inspect.Parameter.empty
        )

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The key of a call. Raises: UsageError; TypeError where the arguments do not fit."""
        plain = not kwargs and _MEMO_TYPES.issuperset(types := tuple(map(type, args)))
        if not (plain and self._decided_by_arguments):
            return self._make(args, kwargs)
        known = self._memo.get((types, args))
        if known is None:
            known = self._make(args, kwargs)
            if sum(map(sys.getsizeof, args)) <= _MEMO_BYTES:
                if len(self._memo) >= _MEMO_ENTRIES:
                    self._memo.clear()
                self._memo[types, args] = known
        return known

    def _make(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        if self._key is not None:
            return digest(self._fields("what key= returns", self._key(*args, **kwargs)))
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        fields: list[bytes] = []
        for name, value in bound.arguments.items():
            fields.append(name.encode())
            fields += self._fields(f"argument {name!r}", value)
        return digest(fields)

    def _fields(self, what: str, value: object) -> list[bytes]:
        try:
            return fields_of(value)
        except UsageError as error:
            raise UsageError(
                f"{self._name}: {what} cannot be part of a cache key: {error};"
                " give key= a function of the arguments that returns plain values"
            ) from None


def fields_of(value: object) -> list[bytes]:
    """What tells the value from all others. Raises: UsageError."""
    try:
        return list(_fields_of(value))
    except RecursionError:
        raise UsageError("it contains itself, or is nested too deeply") from None


def _fields_of(value: object) -> Iterable[bytes]:
    """Those of a value, or of a part of one. Raises: UsageError, RecursionError, while read."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if kind is str:
        yield str(value).encode("utf-8", "surrogatepass")
    elif kind is bytes:
        yield bytes(value)  # type: ignore[call-overload]
    elif isinstance(value, int) and kind is int:
        yield b"%x" % value
    elif kind in _BY_REPR:
        yield repr(value).encode()
    elif isinstance(value, datetime.datetime | datetime.time) and kind in _OF_A_ZONE:
        yield f"{value.replace(tzinfo=None)!r} {value.utcoffset()!r}".encode()
        yield digest(_fields_of(value.tzinfo))
    elif isinstance(value, zoneinfo.ZoneInfo) and value.key is not None:
        yield value.key.encode()
    elif isinstance(value, datetime.tzinfo):
        # One that has a name of its own: that of an object says nothing.
        if kind.__repr__ is object.__repr__ or repr(value) == object.__repr__(value):
            raise UsageError(f"a {kind.__qualname__} has no value that could be compared")
        yield repr(value).encode()
    elif isinstance(value, enum.Enum):
        yield from _member(value)
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}".encode()
        if not _is_found(value):
            yield from _as_made(value)
    else:
        yield from _parts(value)


def _is_found(kind: type) -> bool:
    """Whether its module has this very class under its name, or it is the interpreter's own."""
    if not kind.__flags__ & _MADE_AT_RUN_TIME:
        return True
    found: object = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def _as_made(kind: type) -> Iterable[bytes]:
    """What tells a class from others of its name: bases, fields, methods, and plain values."""
    for base in kind.__bases__:
        yield digest(_fields_of(base))
    for name, annotation in vars(kind).get("__annotations__", {}).items():
        yield f"{name}: {inspect.formatannotation(annotation)}".encode()
    for name, value in sorted(vars(kind).items()):
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType):
            yield name.encode()
            yield code_digest(function.__code__)
        elif type(value) in _MEMO_TYPES and name not in _OF_ITS_PLACE:
            yield name.encode()
            yield digest(_fields_of(value))


def _member(value: enum.Enum) -> Iterable[bytes]:
    """A member of an Enum by its name, and by its value where that is what it is."""
    yield str(value.name).encode()
    if isinstance(value, enum.Flag) or not _is_found(type(value)):
        yield digest(_fields_of(value.value))


def _parts(value: object) -> Iterable[bytes]:
    """The fields of what is made of other values, with their number in front."""
    parts = [digest(_fields_of(part)) for part in _members(value)]
    if isinstance(value, set | frozenset):
        parts.sort()
    yield len(parts).to_bytes(8, "little")
    yield from parts


def is_of_python(value: object) -> bool:
    """Whether all that an object has is in its attributes, as with classes written in Python."""
    return all(kind is object or kind.__flags__ & _MADE_AT_RUN_TIME for kind in type(value).__mro__)


def attributes_of(value: object, fields: Collection[str]) -> list[tuple[str, object]]:
    """What an object has beside its fields, as of a class that was derived: its equality says
    nothing of that. But not what it has worked out of them and keeps."""
    kind = type(value)
    names = set(getattr(value, "__dict__", ()))
    for each in kind.__mro__:
        names.update(_slots_of(each))
    return [
        (name, getattr(value, name))
        for name in sorted(names.difference(fields, _OF_NO_VALUE))
        if hasattr(value, name)
        and not isinstance(inspect.getattr_static(kind, name, None), cached_property)
    ]


def _slots_of(kind: type) -> Iterable[str]:
    """The names of a class's slots, as its objects have them: private ones with its own before."""
    slots = vars(kind).get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        private = name.startswith("__") and not name.endswith("__")
        own = kind.__name__.lstrip("_")
        yield f"_{own}{name}" if private and own else name


def _contents(value: object) -> Iterable[object]:
    """What it has in itself, if its class is derived from another than `object` that is not of
    Python. Raises: UsageError where nobody can tell."""
    if is_of_python(value):
        return ()
    for kind, contents in _CONTENTS.items():
        if isinstance(value, kind):
            return (contents(value),)
    raise UsageError(f"a {type(value).__qualname__} has no value that could be compared")


def _members(value: object) -> Iterable[object]:
    if type(value) in (list, tuple, set, frozenset):
        return value  # type: ignore[return-value]
    if type(value) is dict:
        return value.items()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (value._fields, tuple(value), *attributes_of(value, value._fields))
    if isinstance(value, BaseModel):
        named = {name: getattr(value, name) for name in type(value).model_fields}
        # What pydantic compares besides, and what `exclude_unset` tells.
        rest = value.__pydantic_extra__ or {}, value.__pydantic_private__ or {}
        return (named, *rest, sorted(value.model_fields_set))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        fields = ((name, getattr(value, name)) for name in names)
        return [*fields, *attributes_of(value, names), *_contents(value)]
    raise UsageError(f"a {type(value).__qualname__} has no value that could be compared")
