"""What costs the event loop something, made once for all who ask for it meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class MadeOnce(Generic[T]):
    """Each who asks has one that was begun after it asked, so it lacks nothing from before. However
    many ask, one is made at a time, and between two the loop has a turn for everybody else."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[T] | None = None

    async def ask(self) -> T:
        """Raises: what making it does."""
        if self._next is None:
            self._next = asyncio.create_task(self._made())
        return await asyncio.shield(self._next)

    async def _made(self) -> T:
        async with self._one_at_a_time:
            await asyncio.sleep(0)
            self._next = None
            return await self._make()
