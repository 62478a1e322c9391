"""What a parent asks of one of its worker processes, and the answers: each question has a number,
under which its answer comes."""

import asyncio
import itertools
import socket
from collections.abc import Callable
from typing import Any, Final

from sqlcache.admin.questions import Question
from sqlcache.patience import Patience
from sqlcache.process.messages import Messages

_ANSWER_TIMEOUT_S: Final = 2.0
_MOST_WAITING_BYTES: Final = 262_144
"""Of questions for a worker that takes none: it is asked no more until it does."""
_TO_BE_HEARD: Final = frozenset({Question.USE, Question.ENABLE, Question.DRAIN, Question.CUT})
"""What a worker must be told also if it stands still now: it goes by it from then on."""


class Asking:
    """Of one worker process, and then of its successor. `told` is given what that says unasked,
    `ended` is called when it says nothing more."""

    def __init__(self, told: Callable[[str, Any], None], ended: Callable[[], None]) -> None:
        self._told = told
        self._ended = ended
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._messages: Messages | None = None

    async def open(self, end: socket.socket) -> None:
        """Begins, at this end of the messages."""
        self._messages = Messages(self._heard, self._hung_up)
        await asyncio.shield(self._messages.open(end))  # it is to hear also that it shall end

    @property
    def is_open(self) -> bool:
        """Whether there is a process to be asked."""
        return self._messages is not None

    async def ask(self, what: Question, *about: Any) -> Any:
        """Its answer; None if it has none in time."""
        if self._messages is None or (self._is_behind and what not in _TO_BE_HEARD):
            return None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self._messages.send((number, what, *about))
            with Patience(_ANSWER_TIMEOUT_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._answers.pop(number, None)

    def tell(self, what: Question) -> None:
        """The same without waiting for an answer; one that has gone hears nothing, nor need it."""
        if self._messages is not None:
            self._messages.send((next(self._numbers), what))

    @property
    def _is_behind(self) -> bool:
        """Whether it leaves questions where they are, as a process does that stands still."""
        return self._messages is not None and self._messages.waiting_bytes > _MOST_WAITING_BYTES

    def _heard(self, message: tuple[int | str, Any]) -> None:
        number, answer = message
        if not isinstance(number, int):
            self._told(number, answer)
            return
        waiting = self._answers.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _hung_up(self) -> None:
        self._messages = None
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_result(None)
        self._ended()
