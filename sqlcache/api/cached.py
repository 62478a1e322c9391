"""`@cache.cached(...)`: an async function whose values are kept until what it read changes.

The key of a call is made from the function's module, qualified name, version and return type, what
it captures, the account and settings of the pool's sessions, and the bound arguments. All that has
to do with tags is in `store`, with concurrent calls in `flights`.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import WRAPPER_ASSIGNMENTS, partial, update_wrapper
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

from sqlcache.api.captures import Captures
from sqlcache.api.code import Transparent
from sqlcache.api.collect import Collected, collect_into, collecting, reading
from sqlcache.api.flights import Flights
from sqlcache.api.keys import CallKeys
from sqlcache.api.store import AN_ARGUMENT, Call, Found, ValueStore, own_tag
from sqlcache.api.values import Codec, codec_for, encoded
from sqlcache.cache.keys import digest
from sqlcache.cache.tags import Tag
from sqlcache.errors import UsageError
from sqlcache.plan.contexts import Context

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "nothing is cached"


_FORM: Final = b"3"
"""Of what is stored for a function; another one's values are not looked for."""

MISSING: Final = Missing.MISSING
"""What `peek` returns where there is no value; None is a value."""


_AS_A_FUNCTION: Final = (
    *WRAPPER_ASSIGNMENTS,
    "__code__",
    "__defaults__",
    "__kwdefaults__",
    "__globals__",
)
"""By what others see that it is a function, to be awaited, and what its annotations name."""


class Values(Protocol):
    """What a decorated function needs of its cache."""

    flights: Flights[Found]

    @property
    def values(self) -> ValueStore | None:
        """Where values are kept; None while the cache is not open."""

    @property
    def context(self) -> Context | None:
        """The context of the pool's sessions; None while they cannot have hits."""

    async def forget(self, tag: Tag) -> None:
        """Gives the tag a new version."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `Cache.cached` was given; see there."""

    ttl_s: int | None
    tags: tuple[str, ...]
    key: Callable[..., Any] | None
    stale_while_revalidate_s: float
    version: int | str
    codec: Codec | None


class CachedFunction(Transparent, Generic[P, R]):
    """A decorated function: called like the original, and seen as it by `inspect`, with the methods
    below besides.

    Each takes the arguments of the call whose value it is about.
    """

    def __init__(
        self,
        cache: Values,
        function: Callable[P, Coroutine[Any, Any, R]],
        options: Options,
        names_around: Mapping[str, Any] | None,
    ) -> None:
        check_function(function)
        update_wrapper(self, function, _AS_A_FUNCTION)
        given = {name for name in vars(self) if name not in (*_AS_A_FUNCTION, "__wrapped__")}
        self._cache = cache
        self._function = function
        self._options = options
        self._names_around = names_around
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._takes_class = _takes_class(function)
        self._keys = CallKeys(function, self._name, options.key, cache)
        # `key` stands for all that decides the value.
        self._captures = None if options.key else Captures(function, self._name, cache, self)
        self._codec_made: Codec | None = options.codec
        self._prefix: tuple[bytes, bytes] | None = None  # for the fingerprint that was the last
        self._made_of = frozenset({*vars(self), "_made_of"}).difference(given)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The value for these arguments: a kept one, or of a run of the function that began after
        this call.

        Raises: what the function raises; UsageError where arguments or value cannot be stored, or
        where the function writes.
        """
        call = self._call(args, kwargs)
        store = self._cache.values
        outer = collecting()
        if call is None or store is None:
            if outer is not None:
                outer.cannot_follow("nothing can be cached now")
            return await self._function(*args, **kwargs)
        if outer is None:
            return (await self._obtain(store, call, args, kwargs))[1]
        with outer.reading():
            found, value = await self._obtain(store, call, args, kwargs)
            await store.include(outer, found)
        return value

    async def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """No call that begins after this gets a value from before it, in any process."""
        await self._cache.forget(own_tag(self._name, *self._decided_by(args, kwargs)))

    async def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Forgets the value, runs the function and keeps what it returns."""
        await self.invalidate(*args, **kwargs)
        return await self(*args, **kwargs)

    async def peek(self, *args: P.args, **kwargs: P.kwargs) -> R | Missing:
        """The value if it is kept and current, else MISSING. Never runs the function."""
        outer = collecting()
        with reading(outer):
            call = self._call(args, kwargs)
            store = self._cache.values
            found = None if call is None or store is None else await store.find(call)
            try:
                value: R | Missing = MISSING if found is None else self._codec.decode(found.data)
            except ValueError:
                value = MISSING
            if outer is not None and value is MISSING:
                outer.cannot_follow("not there to be peeked at")
            elif outer is not None and found is not None and store is not None:
                await store.include(outer, found)
            return value

    @overload
    def __get__(self, instance: None, owner: type) -> "CachedFunction[P, R]": ...
    @overload
    def __get__(
        self: "CachedFunction[Concatenate[S, Q], R]", instance: S, owner: type
    ) -> "CachedMethod[Q, R]": ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else CachedMethod(self, instance)

    def __reduce__(self) -> str:
        # As functions: copies are itself, and pickle looks it up by its name.
        return self._function.__qualname__

    async def _obtain(
        self, store: ValueStore, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Found, R]:
        running = self._cache.flights.is_under_way(call.key)
        found = await store.find(call, running=running, to_run=True)
        if found is None:
            found = await self._share(store, call, args, kwargs)
        try:
            return found, self._codec.decode(found.data)
        except ValueError:  # it is of other code than this, as of an earlier or a later release
            await self._cache.forget(call.own_tag)
            found = await self._share(store, call, args, kwargs)
            return found, self._codec.decode(found.data)

    async def _share(
        self, store: ValueStore, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Found:
        outer = collecting()
        callers = (*(outer.callers if outer else ()), call.key)
        flights = self._cache.flights
        if outer is not None and (
            call.key in outer.callers or flights.waits_for(call.key, outer.callers[-1])
        ):
            raise UsageError(f"{self._name} calls itself with the same arguments")

        async def body(collected: Collected) -> bytes:
            collected.callers = callers
            collect_into(collected)
            try:
                value = await self._function(*args, **kwargs)
            finally:
                collected.close()
            collected.changed = self._changed_since(call, args, kwargs)
            return encoded(self._codec, value, self._name)

        ran = False

        async def run() -> Found:
            nonlocal ran
            ran = True
            return await store.find_or_run(call, self._options.tags, body)

        try:
            with flights.needing(outer.callers[-1], call.key) if outer else nullcontext():
                found = await flights.share(call.key, run, lambda: store.find(call))
                if ran or not found.of_caller:
                    return found
                return await flights.alone(lambda: store.run_alone(call, body))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cache.values is store or (task is not None and task.cancelling()):
                raise
            raise UsageError(f"{self._name}: the cache was closed before it had a value") from None
        finally:
            store.is_over(call)

    def _decided_by(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """What stands for the arguments, and for what the function captures."""
        if self._takes_class and not isinstance(kwargs.get("cls", *args[:1]), type):
            raise UsageError(
                f"{self._name}: give invalidate, refresh and peek the class first, which a"
                " @classmethod of Python 3.13 and later does not tell them"
            )
        captured = b"" if self._captures is None else self._captures.digest()
        return self._keys.of(args, kwargs), captured

    def _changed_since(self, call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """What of all that decides the value is another than when the call was made."""
        try:
            arguments, captured = self._decided_by(args, kwargs)
        except Exception:  # what a function of the app's makes of them by now
            arguments, captured = b"", call.captured
        if arguments != call.arguments:
            return "what key= returns" if self._options.key else AN_ARGUMENT
        return "what it captures" if captured != call.captured else ""

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """None while nothing can be cached."""
        context = self._cache.context
        arguments, captured = self._decided_by(args, kwargs)
        if context is None:
            return None
        if self._prefix is None or self._prefix[0] != context.fingerprint:
            self._prefix = context.fingerprint, self._prefix_under(context.fingerprint)
        options = self._options
        return Call(
            self._name,
            digest((self._prefix[1], arguments, captured)),
            arguments,
            captured,
            context.schema,
            options.ttl_s,
            options.stale_while_revalidate_s,
        )

    def _prefix_under(self, fingerprint: bytes) -> bytes:
        version = f"{type(self._options.version).__name__} {self._options.version}"
        tags = "\0".join(self._options.tags)
        fields = [self._name, version, tags]
        return digest([_FORM, fingerprint, self._codec.name, *(field.encode() for field in fields)])

    @property
    def _codec(self) -> Codec:
        # Not before the first call: an annotation may name what is defined further down.
        if self._codec_made is None:
            self._codec_made = codec_for(self._function, self._name, self._names_around)
        return self._codec_made


class CachedMethod(Generic[P, R]):
    """A decorated method of one object: `CachedFunction` with its first argument given. In all else
    it is like a bound method."""

    def __init__(self, cached: CachedFunction[..., R], instance: object) -> None:
        self.__func__ = cached
        self.__self__ = instance
        self.__doc__ = cached.__doc__
        self.__module__ = cached.__module__

    if not TYPE_CHECKING:  # who misspells a name is to be told

        def __getattr__(self, name: str) -> Any:
            if name == "__func__":  # of one that is being made; to look there would never end
                raise AttributeError(f"there is no {name} yet", name=name, obj=self)
            return getattr(self.__func__, name)

    @property
    def __wrapped__(self) -> MethodType:
        return MethodType(self.__func__._function, self.__self__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CachedMethod):
            return NotImplemented
        return self.__self__ is other.__self__ and self.__func__ is other.__func__

    def __hash__(self) -> int:
        return hash((id(self.__self__), self.__func__))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, str]]:
        return getattr, (self.__self__, _name_in_class(self.__func__._function))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self.__func__, deepcopy(self.__self__, memo))

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `CachedFunction`."""
        return await self.__func__(self.__self__, *args, **kwargs)

    async def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """See `CachedFunction`."""
        await self.__func__.invalidate(self.__self__, *args, **kwargs)

    async def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `CachedFunction`."""
        return await self.__func__.refresh(self.__self__, *args, **kwargs)

    async def peek(self, *args: P.args, **kwargs: P.kwargs) -> R | Missing:
        """See `CachedFunction`."""
        return await self.__func__.peek(self.__self__, *args, **kwargs)


def _name_in_class(function: Callable[..., Any]) -> str:
    """By which its class has it: of a private one, Python makes a name with the class's own."""
    name = function.__name__
    *_, owner, _ = ("", *function.__qualname__.split("."))
    owner = owner.lstrip("_")
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{owner}{name}" if is_private and owner else name


def _takes_class(function: Callable[..., Any]) -> bool:
    """Whether it looks like the function of a @classmethod."""
    *around, _ = function.__qualname__.split(".")
    first = next(iter(inspect.signature(function).parameters), None)
    return first == "cls" and around[-1:] not in ([], ["<locals>"])


def check_function(function: object) -> None:
    """Raises: UsageError for what cannot be cached."""
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(function, partial):
        name = getattr(function.func, "__qualname__", name)
        raise UsageError(f"{name}: decorate the function, and give `partial` what that makes of it")
    if isinstance(function, CachedFunction | CachedMethod):
        raise UsageError(f"{name} is cached already")
    if isinstance(function, staticmethod | classmethod):
        raise UsageError(f"{name}: put @{type(function).__name__} above @cached, not below it")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(
            f"{name} is a generator, which is gone when it was read once: return a list instead"
        )
    if not inspect.iscoroutinefunction(function):
        raise UsageError(
            f"{name} is not an async function: @cached waits for memcached, so write `async def`"
        )
