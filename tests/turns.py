"""Whether others have their turns of the event loop while something runs on it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """How many they have had."""

    def __init__(self) -> None:
        self.count = 0

    async def take(self) -> None:
        """Takes each that is given, for ever."""
        while True:
            self.count += 1
            await asyncio.sleep(0)


@contextmanager
def counted_turns() -> Iterator[Turns]:
    """Counts them until the block ends. Inside a running event loop."""
    turns = Turns()
    taking = asyncio.ensure_future(turns.take())
    try:
        yield turns
    finally:
        taking.cancel()
