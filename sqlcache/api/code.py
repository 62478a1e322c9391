"""What stands for code in keys, and what functions capture."""

import dis
import inspect
from collections.abc import Iterator
from functools import lru_cache
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


def function_of(value: Any) -> FunctionType | None:
    """The function that stands for a function, a method or a cached function; None for anything
    else, as for what wraps a function and may have a say in what is returned."""
    if isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, Transparent | _LruCached):
        value = getattr(value, "__wrapped__", None)
    return value if isinstance(value, FunctionType) else None


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


_LruCached: Final = type(_set_by)


def is_set(cell: Any) -> bool:
    """Whether a captured variable has a value by now."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
