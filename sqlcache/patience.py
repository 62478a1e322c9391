"""How long others are waited for, by a process that may be late itself.

On a host with too much to do a turn of the event loop takes as long as a timeout, and timers come
before what lies in the sockets: whoever counts by the clock alone then finds everybody else too
late, ends what was about to succeed, and so has still more to do.
"""

import asyncio
from types import TracebackType
from typing import Final

LOOKS: Final = 8
"""Turns of the event loop in which a timeout passes, at the least; and one more."""
SECOND_LOOK_S: Final = 0.001
"""After which an answer that lay in a socket has been read."""


class Patience:
    """As `asyncio.timeout`, but time in which this process's timers are late does not count."""

    def __init__(self, seconds: float) -> None:
        self._look_s = seconds / LOOKS
        self._left = LOOKS
        self._expired = False

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = self._loop.call_later(self._look_s, self._look)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        over = self._expired and self._task.uncancel() <= self._cancelling
        if over and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def _look(self) -> None:
        self._left -= 1
        if self._left < 0:
            self._expired = True
            self._task.cancel()
        else:
            after_s = self._look_s if self._left else SECOND_LOOK_S
            self._timer = self._loop.call_later(after_s, self._look)
