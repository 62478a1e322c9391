"""What a function captures: values around it that decide, beside its arguments, what it returns.

That is its code, the variables of the functions around it, the attributes that it was given, and
the object of a bound method. Two functions of one name share a key only if all of these are equal.
A variable, or an attribute of its own, that the function itself sets, such as a counter, is what it
brings about and not what it depends on. Globals are taken for constants, the same in every process.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any, Final

from sqlcache.api.code import SAY_WHAT_IT_IS, captured, code_digest, function_of, given_to, is_set
from sqlcache.api.keys import attributes_of, fields_of, is_of_python
from sqlcache.cache.keys import digest
from sqlcache.errors import UsageError

_OF_WRAPPING: Final = SAY_WHAT_IT_IS | {"__wrapped__"}
"""What `functools.update_wrapper` sets, of which another part of the key tells or none needs to."""
_OF_WRAPT: Final = ("wrapt", "_wrappers")
"""The modules of its proxies; that which is compiled calls itself by the second name."""
_OF_A_PROXY: Final = ("_self_wrapper", "_self_instance", "_self_enabled")
"""What decides what a function wrapper of wrapt's does, which its `vars` do not have."""

_NEVER_CHANGE: Final = frozenset({int, str, bytes, bool, float, type(None), ModuleType})


class Captures:
    """What one function captures; `standing` are objects that need no part in a key, as the cache
    that its context stands for."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        standing: object,
        seen_as: object = None,
    ) -> None:
        """`seen_as` is what has the function's name in place of it, and may be given attributes."""
        self._function = function
        self._seen_as = seen_as
        self._name = name
        self._standing = standing
        self._cells = () if function_of(function) is None else captured(function)
        self._seen: tuple[object, ...] = ()
        self._digest: bytes | None = None
        self._names: list[tuple[str, ...]] = []

    def digest(self) -> bytes:
        """The same for equal captures only. Raises: UsageError where one has no value."""
        if self._digest is not None and not self._changed():
            return self._digest
        self._seen = tuple(cell.cell_contents for _, cell in self._cells if is_set(cell))
        made = digest((*self._named("it", self._function, []), *self._given(self._seen_as, [])))
        settled = function_of(self._function) is self._function and all(
            type(value) in _NEVER_CHANGE or value is self._standing for value in self._seen
        )
        given = given_to(self._function) or given_to(self._seen_as)
        self._digest = made if settled and not given else None
        self._names = [_names_in(self._function), _names_in(self._seen_as)]
        return made

    def _changed(self) -> bool:
        seen = self._seen
        of_function, of_what_is_seen = self._names
        if (
            _names_in(self._seen_as) != of_what_is_seen
            or _names_in(self._function) != of_function
            or len(seen) != len(self._cells)
        ):
            return True
        return any(
            not is_set(cell) or cell.cell_contents is not was
            for (_, cell), was in zip(self._cells, seen, strict=True)
        )

    def _of(self, value: Any, inside: list[object]) -> Iterator[bytes]:
        """The fields of a function, and of what it captures. `inside` are those being looked at:
        a function may capture itself."""
        function = function_of(value)
        if function is None:
            yield from self._value(value, inside)
            return
        if isinstance(value, MethodType):
            yield digest(self._named("the object it is a method of", value.__self__, inside))
            value = value.__func__
        if value is not function and _place(value, inside) is None:
            yield from self._given(value, inside)
        if (at := _place(function, inside)) is not None:
            yield b"itself %d" % at
            return
        yield f"{function.__module__}.{function.__qualname__}".encode()
        yield code_digest(function.__code__)
        yield from self._given(function, inside)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if inside:  # its own are among its arguments
                yield digest(self._named("a default of what it captures", default, inside))
        for name, cell in captured(function):
            if is_set(cell):
                what = f"what it captures as {name!r}"
                yield name.encode()
                yield digest(self._named(what, cell.cell_contents, [*inside, function]))

    def _given(self, value: object, inside: list[object]) -> Iterator[bytes]:
        """The attributes that something was given, one after another."""
        for name, part in given_to(value):
            yield b"given " + name.encode()
            yield digest(self._named(f"its attribute {name!r}", part, [*inside, value]))

    def _named(self, what: str, value: object, inside: list[object]) -> list[bytes]:
        if value is self._standing:
            return [b"its cache"]
        try:
            return list(self._of(value, inside))
        except _NoValue as error:
            raise UsageError(
                f"{self._name}: {what} cannot be part of a cache key: {error}; give it as an"
                " argument, or key= a function of the arguments that returns plain values for all"
                " it depends on"
            ) from None

    def _value(self, value: Any, inside: list[object]) -> Iterator[bytes]:
        if isinstance(value, FunctionType | MethodType):
            yield from self._proxy(value, inside)
        elif isinstance(value, ModuleType):
            yield b"module"
            yield value.__name__.encode()
        elif isinstance(value, partial):
            yield b"partial %d" % len(value.args)
            for part in (value.func, *value.args, *value.keywords, *value.keywords.values()):
                yield digest(self._of(part, inside))
            if _place(value, inside) is None:
                yield from self._given(value, inside)
        elif isinstance(getattr(value, "__wrapped__", None), FunctionType) and is_of_python(value):
            yield from self._wrapper(value, inside)
        elif isinstance(value, BuiltinFunctionType | MethodWrapperType):
            yield value.__qualname__.encode()
            yield digest(self._of(value.__self__, inside))
        else:
            try:
                yield from fields_of(value, self._standing)
            except UsageError as error:
                raise _NoValue(str(error)) from None

    def _proxy(self, value: Any, inside: list[object]) -> Iterator[bytes]:
        """What says of itself that it is a function, and is none."""
        kind = type(value)
        of_wrapt = kind.__module__.partition(".")[0] in _OF_WRAPT
        if not of_wrapt or not hasattr(value, "_self_wrapper"):
            raise _NoValue(f"a {kind.__qualname__} has no value that could be compared")
        yield f"{kind.__module__}.{kind.__qualname__}".encode()
        for name in (*_OF_A_PROXY, "__wrapped__"):
            part = getattr(value, name)
            yield digest(self._named(f"{name!r} of what it calls", part, [*inside, value]))

    def _wrapper(self, value: Any, inside: list[object]) -> Iterator[bytes]:
        """An object that calls a function in a way of its own: its class, and all it has."""
        if (at := _place(value, inside)) is not None:
            yield b"itself %d" % at
            return
        yield b"wrapper"
        yield digest(self._value(type(value), inside))
        for name, part in attributes_of(value, _OF_WRAPPING):
            yield name.encode()
            yield digest(self._named(f"{name!r} of what it calls", part, [*inside, value]))
        yield digest(self._of(value.__wrapped__, [*inside, value]))


def _place(value: object, inside: list[object]) -> int | None:
    """Where something is among those being looked at."""
    return next((at for at, each in enumerate(inside) if each is value), None)


def _names_in(value: object) -> tuple[str, ...]:
    """Those of its attributes."""
    return tuple(getattr(value, "__dict__", ()))


class _NoValue(Exception):
    """Why something has no bytes that stand for it."""
