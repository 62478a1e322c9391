"""What stands for code in keys, and what functions capture and have been given."""

import dis
import inspect
from collections.abc import Iterator
from functools import WRAPPER_ASSIGNMENTS, lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from sqlcache.cache.keys import digest


@lru_cache(1_024)
def code_digest(code: CodeType) -> bytes:
    """The same for code that does the same, wherever it stands, in one version of Python."""
    return digest(_code(code))


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield code.co_exceptiontable
    variable = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    for count in (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, variable):
        yield b"%d" % count
    for names in (code.co_names, code.co_varnames, code.co_freevars):
        yield digest(name.encode() for name in names)
    for const in code.co_consts:
        yield code_digest(const) if isinstance(const, CodeType) else digest(_const(const))


def _const(const: object) -> Iterator[bytes]:
    yield type(const).__name__.encode()
    if isinstance(const, frozenset):  # in no order
        yield from sorted(digest(_const(each)) for each in const)
    elif isinstance(const, tuple):
        yield from (digest(_const(each)) for each in const)
    else:
        yield repr(const).encode()


class Transparent:
    """A wrapper whose calls return what the function in `__wrapped__` would."""

    _made_of: frozenset[str] = frozenset()
    """Names of the attributes that make it; all others it was given by an app."""


def function_of(value: Any) -> FunctionType | None:
    """The function that stands for a function, a method or a cached function; None for anything
    else, as for what wraps a function and may have a say in what is returned."""
    # Not by isinstance: a proxy says that it is one, as those of wrapt do.
    if type(value) is MethodType:
        value = value.__func__
    if isinstance(value, Transparent | _LruCached):
        value = getattr(value, "__wrapped__", None)
    return value if type(value) is FunctionType else None


def given_to(value: Any) -> list[tuple[str, object]]:
    """The attributes of a function, or of what stands for one, by which it may go: such as
    `load.shelf`. Not those that it sets itself, as it does a counter, nor what tells others only
    what it is."""
    names = getattr(value, "__dict__", {}).keys() - SAY_WHAT_IT_IS
    if names and isinstance(value, Transparent):
        names -= value._made_of
    function = function_of(value)
    if names and function is not None:
        names -= _attributes_set_by(function.__code__)
    if names and type(value) is FunctionType and "__wrapped__" in names:
        wrapped = value.__dict__["__wrapped__"]
        if any(is_set(cell) and cell.cell_contents is wrapped for _, cell in captured(value)):
            names.discard("__wrapped__")  # which is looked at there
    elif function is not None:
        names.discard("__wrapped__")
    return [(name, value.__dict__[name]) for name in sorted(names)]


def captured(function: Any) -> tuple[tuple[str, Any], ...]:
    """The variables around a function that it reads and does not set."""
    function = function_of(function)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    own = _set_by(function.__code__)
    return tuple((name, cell) for name, cell in cells if name not in own)


@lru_cache(1_024)
def _set_by(code: CodeType) -> frozenset[str]:
    """The variables of functions around it that the code, or code in it, sets."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_DEREF"}
    for const in code.co_consts:
        if isinstance(const, CodeType):
            own |= _set_by(const)
    return frozenset(own.intersection(code.co_freevars))  # the others are variables of its own


@lru_cache(1_024)
def _attributes_set_by(code: CodeType) -> frozenset[str]:
    """The attributes that the code, or code in it, sets, of whatever."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR"}
    return frozenset(own).union(
        *(_attributes_set_by(const) for const in code.co_consts if isinstance(const, CodeType))
    )


_LruCached: Final = type(_set_by)
SAY_WHAT_IT_IS: Final = frozenset(
    {*WRAPPER_ASSIGNMENTS, "__signature__", "_is_coroutine", "_is_coroutine_marker", "pytestmark"}
    | {"__dataclass_transform__"}
)
"""Attributes by which others see what a function is, and which it does not go by itself."""


def is_set(cell: Any) -> bool:
    """Whether a captured variable has a value by now."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
