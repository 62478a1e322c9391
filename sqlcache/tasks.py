"""Tasks that nobody waits for: held until they are done, for the event loop holds none."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """Those of one owner."""

    def __init__(self) -> None:
        self._all: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begins it. Inside a running event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._all.add(task)
        task.add_done_callback(self._all.discard)
        return task

    async def cancel(self) -> None:
        """Ends all of them, and returns when they have ended."""
        tasks = list(self._all)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
