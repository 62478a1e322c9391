"""`@cache.cached(...)`: an async function whose values are kept until what it read changes.

The key of a call is made from the function's module, qualified name, version and return type, what
it captures, the account and settings of the pool's sessions, and the bound arguments. All that has
to do with tags is in `store`, with concurrent calls in `flights`.
"""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial, update_wrapper
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from sqlcache.api.captures import Captures
from sqlcache.api.collect import Collected, collect_into, collecting
from sqlcache.api.flights import Flights
from sqlcache.api.keys import CallKeys
from sqlcache.api.store import Call, Found, ValueStore
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


MISSING: Final = Missing.MISSING
"""What `peek` returns where there is no value; None is a value."""


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


class CachedFunction(Generic[P, R]):
    """A decorated function: called like the original, with the methods below besides.

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
        update_wrapper(self, function)
        self._cache = cache
        self._function = function
        self._options = options
        self._names_around = names_around
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._keys = CallKeys(function, self._name, options.key)
        # `key` stands for all that decides the value.
        self._captures = None if options.key else Captures(function, self._name, cache)
        self._codec_made: Codec | None = options.codec
        self._prefixes: dict[bytes, bytes] = {}

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The value for these arguments: a kept one, or of a run of the function that began after
        this call.

        Raises: what the function raises; UsageError where arguments or value cannot be stored, or
        where the function writes.
        """
        call = self._call(args, kwargs)
        store = self._cache.values
        if call is None or store is None:
            return await self._function(*args, **kwargs)
        found = await store.find(call, running=self._cache.flights.is_under_way(call.key))
        if found is None:
            found = await self._share(store, call, args, kwargs)
        outer = collecting()
        if outer is not None:
            outer.include(found.read)
        value: R = self._codec.decode(found.data)
        return value

    async def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """No call that begins after this gets a value from before it, in any process."""
        call = self._call(args, kwargs)
        if call is not None:
            await self._cache.forget(call.own_tag)

    async def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Forgets the value, runs the function and keeps what it returns."""
        await self.invalidate(*args, **kwargs)
        return await self(*args, **kwargs)

    async def peek(self, *args: P.args, **kwargs: P.kwargs) -> R | Missing:
        """The value if it is kept and current, else MISSING. Never runs the function."""
        call = self._call(args, kwargs)
        store = self._cache.values
        found = None if call is None or store is None else await store.find(call)
        return MISSING if found is None else self._codec.decode(found.data)

    @overload
    def __get__(self, instance: None, owner: type) -> "CachedFunction[P, R]": ...
    @overload
    def __get__(
        self: "CachedFunction[Concatenate[S, Q], R]", instance: S, owner: type
    ) -> "CachedMethod[Q, R]": ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else CachedMethod(self, instance)

    async def _share(
        self, store: ValueStore, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Found:
        outer = collecting()
        callers = frozenset({call.key}) | (outer.callers if outer else frozenset())
        if outer is not None and call.key in outer.callers:
            raise UsageError(f"{self._name} calls itself with the same arguments")

        async def body(collected: Collected) -> bytes:
            collected.callers = callers
            collect_into(collected)
            try:
                value = await self._function(*args, **kwargs)
            finally:
                collected.closed = True
            return encoded(self._codec, value, self._name)

        async def run() -> Found:
            return await store.find_or_run(call, self._options.tags, body)

        return await self._cache.flights.share(call.key, run, lambda: store.find(call))

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """None while nothing can be cached."""
        context = self._cache.context
        arguments = self._keys.of(args, kwargs)
        captured = None if self._captures is None else self._captures.digest()
        if context is None:
            return None
        prefix = self._prefixes.get(context.fingerprint)
        if prefix is None:
            prefix = self._prefixes[context.fingerprint] = self._prefix(context.fingerprint)
        options = self._options
        return Call(
            self._name,
            digest((prefix, arguments) if captured is None else (prefix, arguments, captured)),
            context.schema,
            options.ttl_s,
            options.stale_while_revalidate_s,
        )

    def _prefix(self, fingerprint: bytes) -> bytes:
        version = f"{type(self._options.version).__name__} {self._options.version}"
        tags = "\0".join(self._options.tags)
        fields = [self._name, version, tags]
        return digest([fingerprint, self._codec.name, *(field.encode() for field in fields)])

    @property
    def _codec(self) -> Codec:
        # Not before the first call: an annotation may name what is defined further down.
        if self._codec_made is None:
            self._codec_made = codec_for(self._function, self._name, self._names_around)
        return self._codec_made


class CachedMethod(Generic[P, R]):
    """A decorated method of one object: `CachedFunction` with its first argument given."""

    def __init__(self, cached: CachedFunction[..., R], instance: object) -> None:
        self._cached = cached
        self._instance = instance

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `CachedFunction`."""
        return await self._cached(self._instance, *args, **kwargs)

    async def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """See `CachedFunction`."""
        await self._cached.invalidate(self._instance, *args, **kwargs)

    async def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `CachedFunction`."""
        return await self._cached.refresh(self._instance, *args, **kwargs)

    async def peek(self, *args: P.args, **kwargs: P.kwargs) -> R | Missing:
        """See `CachedFunction`."""
        return await self._cached.peek(self._instance, *args, **kwargs)


def check_function(function: object) -> None:
    """Raises: UsageError for what cannot be cached."""
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(function, partial):
        name = getattr(function.func, "__qualname__", name)
        raise UsageError(f"{name}: decorate the function, and give `partial` what that makes of it")
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
