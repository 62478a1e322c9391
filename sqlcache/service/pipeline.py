"""Statements of sqlcache's own, one behind the other over one connection.

aiomysql's cursors wait for each answer before they send the next; here an answer is a callback, and
costs less. It logs in all the same, as it knows how, and its connection is taken over then.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from sqlcache.driver import aiomysql
from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import packet, query_packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.rows import Row, read_text_rows

Rows = list[Row]
Done = Callable[[Rows | None], object]

MOST_WAITING = 64
MOST_ANSWER_BYTES = 65_536

_CLOSE_S = 1.0
_GRACE_S = 0.001
"""A process that was held up reads what has come before it takes an answer for late."""
_SEQUENCE_AT = 3  # in a packet's header


class Pipeline(asyncio.Protocol):
    """A connection that is logged in, with those who wait for its answers.

    Where the oldest has waited for `limit_s`, or an answer is none, it ends; `lost` is called then,
    once, with the error if it was not MySQL that ended it. `outcomes` counts what was `told`,
    `failed` or `late`.
    """

    def __init__(
        self,
        connection: aiomysql.Connection,
        limit_s: float,
        outcomes: Counter[str],
        lost: Callable[[Exception | None], None],
    ) -> None:
        """Raises: ProtocolError where the connection is none any more."""
        self.has_told = False
        """Whether it has been of any use."""
        self._loop = asyncio.get_running_loop()
        self._connection = connection  # its streams would end the transport if they went
        self._capabilities: int = connection.client_flag & connection.server_capabilities
        self._limit_s = limit_s
        self._outcomes = outcomes
        self._lost = lost
        self._waiting: deque[tuple[float, Done]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._tracker: ResponseTracker | None = None
        self._answer = b""
        self._ended = False
        self._gone = self._loop.create_future()
        if connection._reader.at_eof() or connection._reader._buffer:
            raise ProtocolError("MySQL has ended it, or said more than it was asked")
        self._transport: Any = connection._writer.transport
        self._transport.set_protocol(self)
        self.peer: object = self._transport.get_extra_info("peername")
        """The server's address, as the socket has it."""

    def ask(self, statement: bytes, done: Done) -> bool:
        """Whether it can be asked, for no more than `MOST_WAITING` may wait. If so `done` is called
        in a later turn, exactly once, with the rows of a SELECT outside transactions, or None."""
        if len(self._waiting) >= MOST_WAITING or self._transport.is_closing():
            return False
        self._waiting.append((time.monotonic() + self._limit_s, done))
        if self._watch is None:
            self._watch = self._loop.call_later(self._limit_s, self._look)
        self._transport.write(query_packet(statement, self._capabilities))
        return True

    def end(self) -> None:
        """Ends it so that MySQL does not count it as broken. Those who wait are told None."""
        self._transport.write(packet(0, bytes((Command.QUIT,))))
        self._transport.close()
        self._end("failed", None)

    async def close(self) -> None:
        """The same; returns when it is gone."""
        self.end()
        await asyncio.wait([self._gone], timeout=_CLOSE_S)
        self._transport.abort()

    # What its transport calls.

    def data_received(self, data: bytes) -> None:
        try:
            while data and not self._ended:
                data = data[self._take(data) :]
        except (ProtocolError, IndexError) as error:
            self._drop("failed", error)

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set_result(None)
        self._drop("failed", None)

    # How it works inside.

    def _take(self, data: bytes) -> int:
        """Reads what belongs to the oldest one's answer; how many bytes. Raises: ProtocolError,
        IndexError."""
        if not self._waiting:
            raise ProtocolError("an answer that nobody asked for")
        if self._tracker is None:
            self._tracker = ResponseTracker(Command.QUERY, self._capabilities)
            self._answer = b""
        tracker = self._tracker
        taken = tracker.feed(data)
        if not self._answer or tracker.bytes_fed <= MOST_ANSWER_BYTES:
            self._answer += data[:taken]
        if tracker.wants_file:
            raise ProtocolError("a file is wanted")
        if tracker.done:
            self._tracker = None
            rows = self._rows(tracker)
            self._tell("failed" if rows is None else "told", rows)
        return taken

    def _rows(self, tracker: ResponseTracker) -> Rows | None:
        """What the answer tells; None for an error, or too much. Raises: ProtocolError,
        IndexError."""
        if self._answer[_SEQUENCE_AT] != 1:  # as what MySQL says unasked when it ends a session
            raise ProtocolError("no answer to what was asked")
        if tracker.failed or tracker.bytes_fed > MOST_ANSWER_BYTES:
            return None
        status = tracker.ends[-1].status or 0
        if not tracker.columns or tracker.results != 1 or status & Status.IN_TRANS:
            raise ProtocolError("no answer to a SELECT outside transactions")
        self.has_told = True
        return read_text_rows(self._answer, self._capabilities)

    def _tell(self, outcome: str, rows: Rows | None) -> None:
        _, done = self._waiting.popleft()
        self._outcomes[outcome] += 1
        self._loop.call_soon(done, rows)

    def _look(self, again: bool = False) -> None:
        """Ends it where the oldest has waited too long."""
        self._watch = None
        if not self._waiting:
            return
        left_s = self._waiting[0][0] - time.monotonic()
        if left_s <= 0 and again:
            self._drop("late", TimeoutError(f"no answer within {self._limit_s:g} s"))
        else:
            self._watch = self._loop.call_later(max(left_s, _GRACE_S), self._look, left_s <= 0)

    def _drop(self, outcome: str, error: Exception | None) -> None:
        """What MySQL still does for it ends by the session's own limits."""
        self._transport.abort()
        if not self._ended:
            self._end(outcome, error)

    def _end(self, outcome: str, error: Exception | None) -> None:
        self._ended = True
        if self._watch is not None:
            self._watch.cancel()
        self._connection.close()
        while self._waiting:
            self._tell(outcome, None)
        self._lost(error)
