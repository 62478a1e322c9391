"""What a parent is told by one of its workers."""

from __future__ import annotations

import socket
import time

import pytest
import uvloop

from sqlcache.admin.questions import Question
from sqlcache.process import asking
from sqlcache.process.asking import Asking
from sqlcache.process.messages import Messages

ANSWER_TIMEOUT_S = 0.2


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_ANSWER_TIMEOUT_S", ANSWER_TIMEOUT_S)


def test_an_answer_that_came_while_the_parent_paused_is_heard() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        parent = Asking(lambda number, answer: None, lambda: None)

        def answer(message: tuple[int, Question]) -> None:
            worker.send((message[0], "all is well"))
            time.sleep(2 * ANSWER_TIMEOUT_S)  # both are in this thread

        worker = Messages(answer, lambda: None)
        await worker.open(theirs)
        await parent.open(ours)
        assert await parent.ask(Question.TURNS) == "all is well"
        await worker.close()

    uvloop.run(scenario())


def test_who_does_not_answer_is_not_waited_for() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            parent = Asking(lambda number, answer: None, lambda: None)
            await parent.open(ours)
            began = time.monotonic()
            assert await parent.ask(Question.TURNS) is None
            assert time.monotonic() - began >= ANSWER_TIMEOUT_S

    uvloop.run(scenario())
