"""The key of one call of a function: its arguments as bytes, the same for equal arguments only.

An argument's type is part of it (1, True, 1.0 and "1" differ), and so is the order of a list, but
not that of a dictionary or a set. What has no such bytes, such as a session or a request, is
refused with a sentence that names the argument.
"""

import dataclasses
import datetime
import decimal
import enum
import inspect
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from sqlcache.cache.keys import digest
from sqlcache.errors import UsageError

_BY_REPR: Final = frozenset(
    {int, float, bool, type(None), decimal.Decimal, uuid.UUID}
    | {datetime.date, datetime.datetime, datetime.time, datetime.timedelta}
)
"""Types whose `repr` tells equal values from all others of the same type."""

_MEMO_TYPES: Final = frozenset({int, str, bytes, bool, type(None)})
_MEMO_ENTRIES: Final = 10_000


class CallKeys:
    """The keys of one function's calls.

    `key`, if given, is called with the arguments, and its result stands for them.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, key: Callable[..., Any] | None
    ) -> None:
        self._signature = inspect.signature(function)
        self._name = name
        self._key = key
        self._memo: dict[tuple[Any, ...], bytes] = {}

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The key of a call. Raises: UsageError; TypeError where the arguments do not fit."""
        plain = not kwargs and _MEMO_TYPES.issuperset(types := tuple(map(type, args)))
        if not plain:
            return self._make(args, kwargs)
        known = self._memo.get((types, args))
        if known is None:
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            known = self._memo[types, args] = self._make(args, kwargs)
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
            return list(fields_of(value))
        except UsageError as error:
            raise UsageError(
                f"{self._name}: {what} cannot be part of a cache key: {error};"
                " give key= a function of the arguments that returns plain values"
            ) from None


def fields_of(value: object) -> Iterable[bytes]:
    """What tells the value from all others. Raises: UsageError, while they are read."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if kind is str:
        yield str(value).encode("utf-8", "surrogatepass")
    elif kind is bytes:
        yield bytes(value)  # type: ignore[call-overload]
    elif kind in _BY_REPR:
        yield repr(value).encode()
    elif isinstance(value, enum.Enum):
        yield value.name.encode()
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}".encode()
    else:
        yield from _parts(value)


def _parts(value: object) -> Iterable[bytes]:
    """The fields of what is made of other values, with their number in front."""
    parts = [digest(fields_of(part)) for part in _members(value)]
    if isinstance(value, set | frozenset | dict):
        parts.sort()
    yield len(parts).to_bytes(8, "little")
    yield from parts


def _members(value: object) -> Iterable[object]:
    if type(value) in (list, tuple, set, frozenset):
        return value  # type: ignore[return-value]
    if type(value) is dict:
        return value.items()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(value)
    if isinstance(value, BaseModel):
        return [(name, getattr(value, name)) for name in type(value).model_fields]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    raise UsageError(f"a {type(value).__qualname__} has no value that could be compared")
