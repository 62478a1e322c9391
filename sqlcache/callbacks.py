"""From callbacks to coroutines."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def told(ask: Callable[[Callable[[T], None]], object]) -> T:
    """What the callback is told that `ask` is called with. Who was cancelled meanwhile is told
    nothing. Others have their turn before, also where it is told at once: else who is told so all
    the time would let nobody else run."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def tell(value: T) -> None:
        if not future.done():
            future.set_result(value)

    ask(tell)
    if future.done():
        await asyncio.sleep(0)
    return await future
