"""From callbacks to coroutines."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def told(ask: Callable[[Callable[[T], None]], object]) -> T:
    """What the callback is told that `ask` is called with. Who was cancelled meanwhile is told
    nothing."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def tell(value: T) -> None:
        if not future.done():
            future.set_result(value)

    ask(tell)
    return await future
