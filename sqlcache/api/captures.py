"""What a function captures: values around it that decide, beside its arguments, what it returns.

That is its code, the variables of the functions around it, and the object of a bound method. Two
functions of one name share a key only if all of these are equal. A variable that the function
itself sets, such as a counter, is what it brings about and not what it depends on. Globals are
taken for constants, the same in every process.
"""

from collections.abc import Callable, Iterator
from functools import WRAPPER_ASSIGNMENTS, partial
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any, Final

from sqlcache.api.code import captured, code_digest, function_of, is_set
from sqlcache.api.keys import attributes_of, fields_of, is_of_python
from sqlcache.cache.keys import digest
from sqlcache.errors import UsageError

_OF_WRAPPING: Final = (*WRAPPER_ASSIGNMENTS, "__wrapped__")
"""What `functools.update_wrapper` sets, beside what the function has of its own."""

_NEVER_CHANGE: Final = frozenset({int, str, bytes, bool, float, type(None), ModuleType})


class Captures:
    """What one function captures; `standing` are objects that need no part in a key, as the cache
    that its context stands for."""

    def __init__(self, function: Callable[..., Any], name: str, standing: object) -> None:
        self._function = function
        self._name = name
        self._standing = standing
        self._cells = () if function_of(function) is None else captured(function)
        self._seen: tuple[object, ...] = ()
        self._digest: bytes | None = None
        if not self._cells and not isinstance(function, MethodType):
            self._digest = digest(self._of(function, []))

    def digest(self) -> bytes:
        """The same for equal captures only. Raises: UsageError where one has no value."""
        if self._digest is not None and not self._changed():
            return self._digest
        self._seen = tuple(cell.cell_contents for _, cell in self._cells if is_set(cell))
        made = digest(self._of(self._function, []))
        settled = function_of(self._function) is self._function and all(
            type(value) in _NEVER_CHANGE or value is self._standing for value in self._seen
        )
        self._digest = made if settled else None
        return made

    def _changed(self) -> bool:
        seen = self._seen
        return bool(self._cells) and (
            len(seen) != len(self._cells)
            or any(
                not is_set(cell) or cell.cell_contents is not was
                for (_, cell), was in zip(self._cells, seen, strict=True)
            )
        )

    def _of(self, value: Any, inside: list[object]) -> Iterator[bytes]:
        """The fields of a function, and of what it captures. `inside` are those being looked at:
        a function may capture itself."""
        function = function_of(value)
        if function is None:
            yield from self._value(value, inside)
            return
        if any(function is each for each in inside):
            yield b"itself %d" % inside.index(function)
            return
        yield f"{function.__module__}.{function.__qualname__}".encode()
        yield code_digest(function.__code__)
        if isinstance(value, MethodType):
            yield digest(self._named("the object it is a method of", value.__self__, inside))
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if inside:  # its own are among its arguments
                yield digest(self._named("a default of what it captures", default, inside))
        for name, cell in captured(function):
            if is_set(cell):
                what = f"what it captures as {name!r}"
                yield name.encode()
                yield digest(self._named(what, cell.cell_contents, [*inside, function]))

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
        if isinstance(value, ModuleType):
            yield b"module"
            yield value.__name__.encode()
        elif isinstance(value, partial):
            yield b"partial %d" % len(value.args)
            for part in (value.func, *value.args, *value.keywords, *value.keywords.values()):
                yield digest(self._of(part, inside))
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

    def _wrapper(self, value: Any, inside: list[object]) -> Iterator[bytes]:
        """An object that calls a function in a way of its own: its class, and all it has."""
        if any(value is each for each in inside):
            yield b"itself %d" % next(at for at, each in enumerate(inside) if each is value)
            return
        function = value.__wrapped__
        yield b"wrapper"
        yield digest(self._value(type(value), inside))
        for name, part in attributes_of(value, _OF_WRAPPING):
            if vars(function).get(name, _NOTHING) is not part:
                yield name.encode()
                yield digest(self._named(f"{name!r} of what it calls", part, [*inside, value]))
        yield digest(self._of(function, [*inside, value]))


_NOTHING: Final = object()


class _NoValue(Exception):
    """Why something has no bytes that stand for it."""
