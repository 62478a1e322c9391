"""The key of one call of a function: its arguments as bytes, the same for equal arguments only.

An argument's type is part of it (1, True, 1.0 and "1" differ), and so is the order of a list and of
a dictionary, by which a function may sort, but not that of a set. What has no such bytes, such as a
session or a request, is refused with a sentence that names the argument. A class that its module
does not have under its name, as one made in a function, is part of it with its fields, its other
attributes and its methods, their code and what they capture: others may be called so. It is, too,
where an argument is only an object of it.
"""

import dataclasses
import datetime
import decimal
import enum
import inspect
import re
import sys
import uuid
import zoneinfo
from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, partial, partialmethod
from operator import itemgetter
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

from pydantic import BaseModel

from sqlcache.api.code import captured, code_digest, function_of, given_to, is_set
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

_OF_ITS_PLACE: Final = frozenset(
    {"__module__", "__qualname__", "__firstlineno__", "__doc__", "__annotations__"}
    | {"__static_attributes__", "_abc_impl"}
    | {"_member_map_", "_value2member_map_", "_member_names_", "_unhashable_values_"}
)
"""What a class has beside its meaning, or of which something else tells: such as its members."""
_KEPT_OF_IT: Final = frozenset(
    {"__dataclass_fields__", "__dataclass_params__", "__attrs_attrs__", "__attrs_props__"}
    | {"__orig_bases__", "__parameters__", "__type_params__", "__private_attributes__"}
    | {"__signature__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
)
"""What Python and libraries keep of what else a class has. Where it has no bytes, that will do."""
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

_HOLDING_FUNCTIONS: Final[Mapping[type, tuple[str, ...]]] = {
    property: ("fget", "fset", "fdel"),
    cached_property: ("func",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    partial: ("func", "args", "keywords"),
    partialmethod: ("func", "args", "keywords"),
}
_OF_HOLDERS: Final = frozenset((*vars(cached_property(repr)), *vars(partialmethod(repr))))
"""What these keep for themselves among their attributes: what they hold, and such as a lock."""
_OF_THE_INTERPRETER: Final = (
    BuiltinFunctionType,
    MethodWrapperType,
    WrapperDescriptorType,
    MethodDescriptorType,
    ClassMethodDescriptorType,
    MemberDescriptorType,
    GetSetDescriptorType,
    type(vars(namedtuple("_Any", "field"))["field"]),
)
"""Of which a name tells what they do."""


@dataclasses.dataclass
class _WithFactory:
    field: list[int] = dataclasses.field(default_factory=list)


_MARK_OF_DATACLASSES: Final = type(inspect.signature(_WithFactory).parameters["field"].default)
"""Of which there is one: the default of an argument that a factory makes."""

_ADDRESS: Final = re.compile(" at 0x[0-9a-fA-F]+")
_OF_A_ZONE: Final = frozenset({datetime.datetime, datetime.time})


class CallKeys:
    """The keys of one function's calls.

    `key`, if given, is called with the arguments, and its result stands for them. `standing` is an
    object that needs no part in a key, as the cache that its context stands for.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        key: Callable[..., Any] | None,
        standing: object = None,
    ) -> None:
        # A decorator's own: nobody can tell what it makes of the arguments for the one below it.
        self._signature = inspect.signature(function, follow_wrapped=False)
        self._name = name
        self._key = key
        self._standing = standing
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
            return fields_of(value, self._standing)
        except UsageError as error:
            raise UsageError(
                f"{self._name}: {what} cannot be part of a cache key: {error};"
                " give key= a function of the arguments that returns plain values"
            ) from None


@dataclasses.dataclass(frozen=True, slots=True)
class _Around:
    """Where a part of a value is met."""

    standing: object
    """It needs no part in a key: as the cache, for which its context stands."""
    told: dict[object, bytes] = dataclasses.field(default_factory=dict)
    """What stands for the classes and functions that were met before."""
    in_class: bool = False
    """Whether in a class that was made at run time: anywhere else a function has no value."""
    met: dict[int, tuple[object, bytes]] = dataclasses.field(default_factory=dict)
    """By their ids the parts that were met before, which are kept so that no other has theirs, and
    what stands for them: a part of each of two parts, and so on, is met very often."""


def fields_of(value: object, standing: object = None) -> list[bytes]:
    """What tells the value from all others; `standing` has no part in that. Raises: UsageError."""
    try:
        return list(_fields_of(value, _Around(standing)))
    except RecursionError:
        raise UsageError("it contains itself, or is nested too deeply") from None


def _fields_of(value: object, around: _Around) -> Iterable[bytes]:
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
        yield digest(_fields_of(value.tzinfo, around))
    else:
        if not _is_found(kind):
            yield _told(kind, around)
        yield from _object(value, around)


def _object(value: object, around: _Around) -> Iterable[bytes]:
    """The fields of an object beside its class."""
    if isinstance(value, zoneinfo.ZoneInfo) and value.key is not None:
        yield value.key.encode()
    elif isinstance(value, datetime.tzinfo):
        yield from _zone(value)
    elif isinstance(value, enum.Enum):
        yield from _member(value, around)
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}".encode()
        if not _is_found(value):
            yield _told(value, around)
    elif around.in_class:
        yield from _held(value, around)
    else:
        yield from _parts(value, around)


def _zone(value: datetime.tzinfo) -> Iterable[bytes]:
    """What it says of itself, which may be the same of several; and what is plain of what it has:
    among the rest may be tables of others, and itself."""
    said = repr(value)
    if _ADDRESS.search(said):  # which says nothing
        raise UsageError(f"a {type(value).__qualname__} has no value that could be compared")
    yield said.encode()
    for name, part in attributes_of(value, ()):
        if type(part) in _MEMO_TYPES or type(part) in _BY_REPR:
            yield f"{name} {type(part).__name__} {part!r}".encode()


def _is_found(kind: type) -> bool:
    """Whether its module has this very class under its name, or it is the interpreter's own."""
    if not kind.__flags__ & _MADE_AT_RUN_TIME:
        return True
    found: object = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def _told(what: object, around: _Around) -> bytes:
    """What stands for a class that is not found, or for a function in one, or what was given to
    what stands for a function. Each is told once: they may refer to each other, and to themselves.
    """
    told = around.told
    if what not in told:
        around = _Around(around.standing, told, in_class=True)
        told[what] = b"number %d" % len(told)
        told[what] = digest(_tell(what, around))
    return told[what]


def _tell(what: object, around: _Around) -> Iterable[bytes]:
    if isinstance(what, type):
        return _as_made(what, around)
    return _function(what, around) if isinstance(what, FunctionType) else _given(what, around)


def _as_made(kind: type, around: _Around) -> Iterable[bytes]:
    """What tells a class from others of its name: bases, fields, methods, and other attributes."""
    for base in kind.__bases__:
        yield digest(_fields_of(base, around))
    annotations = vars(kind).get("__annotations__")
    for name, annotation in annotations.items() if isinstance(annotations, dict) else ():
        yield f"{name}: {inspect.formatannotation(annotation)}".encode()
    for name, field in vars(kind).get("__dataclass_fields__", {}).items():
        if field.metadata:
            yield name.encode()
            yield digest(_fields_of(dict(field.metadata), around))
    if issubclass(kind, BaseModel):
        yield _ADDRESS.sub("", repr(kind.model_fields)).encode()
    members = kind.__members__ if issubclass(kind, enum.Enum) else {}
    for name, member in members.items():
        yield name.encode()
        yield digest(_fields_of(member.value, around))
    for name, value in sorted(vars(kind).items(), key=itemgetter(0)):
        if name in members or name in _OF_ITS_PLACE or _is_made_of_fields(name, value):
            continue
        try:
            fields = digest(_fields_of(value, around))
        except UsageError as error:
            if name in _KEPT_OF_IT:
                continue
            raise UsageError(f"in {name!r} of {kind.__qualname__}, {error}") from None
        yield name.encode()
        yield fields


def _is_made_of_fields(name: str, value: object) -> bool:
    """Whether pydantic has put it into a class, which its fields tell."""
    module = getattr(value, "__module__", None) or ""
    return name.startswith("__pydantic_") or module.startswith("pydantic._internal.")


def _function(function: FunctionType, around: _Around) -> Iterable[bytes]:
    """A function of a class: its code, and all that decides besides what it returns."""
    yield f"{function.__module__}.{function.__qualname__}".encode()
    yield code_digest(function.__code__)
    yield digest(_fields_of((function.__defaults__, function.__kwdefaults__), around))
    for name, cell in captured(function):
        if is_set(cell):
            yield name.encode()
            yield digest(_fields_of(cell.cell_contents, around))
    yield from _given(function, around)


def _given(what: object, around: _Around) -> Iterable[bytes]:
    """The attributes that a function was given, or what holds one."""
    own = _OF_HOLDERS if isinstance(what, cached_property | partialmethod) else frozenset()
    for name, value in given_to(what):
        if name in own:
            continue
        yield b"given " + name.encode()
        yield digest(_fields_of(value, around))


def _held(value: Any, around: _Around) -> Iterable[bytes]:
    """What a class and its methods may hold that is no value anywhere else."""
    function = function_of(value)
    holder = next((kind for kind in _HOLDING_FUNCTIONS if isinstance(value, kind)), None)
    if value is around.standing:
        yield b"its cache"
    elif function is not None:
        yield _told(function, around)
        if isinstance(value, MethodType):
            yield digest(_fields_of(value.__self__, around))
            value = value.__func__
        if value is not function:
            yield _told(value, around)
    elif holder is not None:
        for name in _HOLDING_FUNCTIONS[holder]:
            yield digest(_fields_of(getattr(value, name), around))
        yield from _given(value, around)
    elif isinstance(value, ModuleType):
        yield value.__name__.encode()
    elif isinstance(value, _OF_THE_INTERPRETER):
        yield getattr(value, "__qualname__", "").encode()
        yield digest(_fields_of(getattr(value, "__self__", None), around))
    elif type(value) is not _MARK_OF_DATACLASSES:
        yield from _parts(value, around)


def _member(value: enum.Enum, around: _Around) -> Iterable[bytes]:
    """A member of an Enum by its name, and by its value where that is what it is."""
    yield str(value.name).encode()
    if isinstance(value, enum.Flag):
        yield digest(_fields_of(value.value, around))


def _parts(value: object, around: _Around) -> Iterable[bytes]:
    """The fields of what is made of other values, with their number in front."""
    parts = [_part(part, around) for part in _members(value)]
    if isinstance(value, set | frozenset):
        parts.sort()
    yield len(parts).to_bytes(8, "little")
    yield from parts


def _part(part: object, around: _Around) -> bytes:
    """What stands for a part of a value."""
    if type(part) in _MEMO_TYPES:
        return digest(_fields_of(part, around))
    if id(part) not in around.met:
        around.met[id(part)] = part, digest(_fields_of(part, around))
    return around.met[id(part)][1]


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
