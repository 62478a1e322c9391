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
        names -= _attributes_set_by(function.__code__, function.__code__.co_qualname)
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
def _attributes_set_by(code: CodeType, qualname: str) -> frozenset[str]:
    """The attributes that a function's code, or code in it, sets of what has the function's name,
    and no others: they may be called so too."""
    _, local, name = qualname.rpartition("<locals>.")
    first, *rest = name.split(".")
    read_by = "LOAD_DEREF" if local else "LOAD_GLOBAL"
    path: list[tuple[str, object]] = [(read_by, first), *(("LOAD_ATTR", each) for each in rest)]
    return frozenset() if first in _set_by(code) else frozenset(_set_on(path, code))


def _set_on(path: list[tuple[str, object]], code: CodeType) -> Iterator[str]:
    """The attributes that are set of what these instructions have read."""
    op, name = path[0]
    if op == "LOAD_DEREF" and name not in code.co_freevars:  # a variable of its own, or of none
        return
    read = [(i.opname, i.argval) for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    for at, (op, name) in enumerate(read):
        if op == "STORE_ATTR":
            end = at if read[at - 1][0] != "SWAP" else _began(name, read, at)
            if read[max(end - len(path), 0) : end] == path:
                yield name
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _set_on(path, const)


def _began(name: str, read: list[tuple[str, Any]], end: int) -> int:
    """Where an assignment such as `+=` has read the object of which it sets this attribute."""
    begins = [("COPY", 1), ("LOAD_ATTR", name)]
    return next((at for at in range(end - 2, 0, -1) if read[at : at + 2] == begins), 0)


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
