"""Knows where the answer to a command ends, without decoding a row.

A response is all packets that answer one command: one or several statements' answers, each an OK
packet, an ERR packet or a result set, and each but the last marked MORE_RESULTS_EXISTS. Chunks
are fed as they come off the wire, cut anywhere; rows are stepped over by their headers.
"""

import re
import struct
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from sqlcache.errors import ProtocolError
from sqlcache.kernel import step_over_rows
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command, Status
from sqlcache.mysql.packets import (
    EOF_BYTES,
    HEADER_BYTES,
    End,
    read_eof,
    read_err,
    read_lenenc,
    read_ok,
)
from sqlcache.mysql.scan import OLD_END_BYTES
from sqlcache.mysql.tracking import commits_told

_PROGRESS_REPORT = 0xFFFF
"""MariaDB: an ERR packet with this code only tells how far it is, to clients that asked for that;
in MySQL a statement may give an error of its own this code."""
_HEADER_AND_FIRST = struct.Struct("<IB")
_MOST_OFFSETS = 8  # one result set has two
_SHORT_BYTES = 100
_SHORT_ANSWERS = 1_000
_MOST_DIALECTS = 100
_EMPTY = b"\0\0\0"  # the length of the packet that ends a payload of n * MAX_PAYLOAD_BYTES

MOST_ENDS = 512
"""In what is taken of a response at once: each takes some microseconds, and others want a turn."""
NO_RESPONSE = frozenset({Command.QUIT, Command.STMT_SEND_LONG_DATA, Command.STMT_CLOSE})
"""Commands the server does not answer."""


class _Phase(Enum):
    FIRST = 0  # an OK, ERR, LOCAL INFILE request or a column count
    PREPARED = 1  # the answer to COM_STMT_PREPARE
    DEFINITIONS = 2
    DEFINITIONS_EOF = 3
    ROWS = 4
    TEXT = 5  # COM_STATISTICS: one packet of text
    DONE = 6


_START = {
    Command.STMT_PREPARE: _Phase.PREPARED,
    Command.STATISTICS: _Phase.TEXT,
    Command.STMT_FETCH: _Phase.ROWS,
    Command.FIELD_LIST: _Phase.ROWS,
}


class Prepared(NamedTuple):
    """A statement that the server has prepared: its number there, how many parameters it has, and
    of how much the server has warned."""

    number: int
    parameters: int
    warnings: int


class _Dialect(NamedTuple):
    """How a server talks to a client with some capabilities. `end_bytes`: a packet among rows that
    begins as an end does is one if it is shorter."""

    deprecate_eof: bool
    end_bytes: int
    session_track: bool
    reports_progress: bool


@lru_cache(_MOST_DIALECTS)
def _dialect_of(capabilities: int) -> _Dialect:
    deprecate_eof = bool(capabilities & Capability.DEPRECATE_EOF)
    return _Dialect(
        deprecate_eof,
        MAX_PAYLOAD_BYTES if deprecate_eof else OLD_END_BYTES,
        bool(capabilities & Capability.SESSION_TRACK),
        bool(capabilities & Capability.MARIADB_PROGRESS),
    )


class ResponseTracker:
    """Follows the response to one command.

    After each `feed`: `ends` holds the ends seen in it, `done` whether the response is complete,
    `wants_file` whether the server now waits for a LOCAL INFILE from the client.
    """

    # In one piece: it is walked for each packet, and a room would be a hop more.

    __slots__ = ("_continued", "_definitions", "_dialect", "_parameters_out", "_partial", "_phase",
                 "_position", "_rows_follow", "_skip", "_stops", "_trailing_definitions",
                 "capabilities", "columns", "command", "commits", "done", "ends", "matched",
                 "prepared", "results", "rows", "status_offsets", "told", "wants_file")  # fmt: skip

    def __init__(self, command: int, capabilities: int) -> None:
        self.command = command
        self.capabilities = capabilities
        self._dialect = _dialect_of(capabilities)
        self._phase = _START.get(command, _Phase.FIRST)  # type: ignore[call-overload]
        self._skip = 0  # bytes of the current packet still to step over
        self._partial = b""  # the start of a packet that must be seen whole
        self._continued = False
        self._definitions = 0
        self._trailing_definitions = 0
        self._rows_follow = False
        self._parameters_out = False
        self._stops = False  # before the next packet
        self._position = 0  # where the bytes of the current feed stand in the response
        self.columns = 0
        self.ends: list[End] = []
        self.done = False
        self.matched: int | None = None
        """How many rows the last UPDATE found, if that was said."""
        self.wants_file = False
        self.prepared: Prepared | None = None
        """What a COM_STMT_PREPARE has made."""
        self.results = 0
        """How many statements' answers have ended, in all that was fed."""
        self.rows = 0
        self.status_offsets: list[int] = []
        """Where in the response the first status flags stand, in bytes from its start."""
        self.told: list[tuple[int, int]] = []
        """Where OK packets stand, from header to end, that tell of the session: in what was held of
        a packet before the last `feed`, and then fed."""
        self.commits: list[bytes] = []
        """The GTIDs that these tell of, see `tracking`."""

    @classmethod
    def amid_rows(
        cls, command: int, capabilities: int, columns: int, rows: int, flags_at: int, came: int
    ) -> "ResponseTracker":
        """That of a result set of which so many bytes came, up to the end of a row. `flags_at`:
        where the flags stand behind the definitions, or -1."""
        tracker = cls(command, capabilities)
        tracker.columns, tracker.rows = columns, rows
        tracker._rows_follow, tracker._phase = True, _Phase.ROWS
        tracker.status_offsets = [flags_at] if flags_at >= 0 else []
        tracker._position = came
        return tracker

    @property
    def bytes_fed(self) -> int:
        """How much of the response was fed."""
        return self._position

    @property
    def held_bytes(self) -> int:
        """How much of the end of what was fed last is a packet's beginning."""
        return len(self._partial)

    @property
    def failed(self) -> bool:
        """Whether the last thing the server said is an error."""
        return bool(self.ends) and self.ends[-1].status is None

    def feed(self, data: bytes) -> int:
        """Reads on; returns how many bytes of `data` were taken, which belong to the response.

        Fewer than all of them are taken only where the response ends, or pauses for a file, or has
        `MOST_ENDS` in them. Raises: ProtocolError.
        """
        self._stops = self.done or self.wants_file
        self.ends = []
        self.told = []
        self.commits = []
        fresh = len(data)
        offset = 0
        if self._skip:
            if self._skip >= fresh:
                self._skip -= fresh
                self._position += fresh
                return fresh
            offset, self._skip = self._skip, 0
        carried = len(self._partial)
        if carried:
            data = self._partial + data
            self._partial = b""
        self._position -= carried
        offset = self._walk(data, offset)
        self._position += offset
        if offset < len(data) and not self._stops:
            self._partial = data[offset:]
            self._position += len(self._partial)
            return fresh
        return offset - carried

    def _walk(self, data: bytes, offset: int) -> int:
        """Steps from packet to packet; returns where the first unfinished one begins."""
        size = len(data)
        unpack = _HEADER_AND_FIRST.unpack_from
        end_bytes = self._dialect.end_bytes
        while not self._stops:
            if self._phase is _Phase.ROWS and not self._continued:
                rows, offset = step_over_rows(data, offset, end_bytes)
                self.rows += rows
            if size - offset >= 5:
                header, first = unpack(data, offset)
                length = header & 0xFFFFFF
            elif size - offset == 4 and data.startswith(_EMPTY, offset):
                length = first = 0
            else:
                return offset
            end = offset + 4 + length
            in_rows = self._phase is _Phase.ROWS
            if self._continued or (in_rows and not _ends_rows(first, length, end_bytes)):
                self.rows += not self._continued
                self._continued = length == MAX_PAYLOAD_BYTES
            elif end > size:
                return offset
            elif self._phase is _Phase.DEFINITIONS:
                self._definition()
            else:
                self._packet(data[offset + 4 : end], offset + 4)
            if end > size:
                self._skip = end - size
                return size
            offset = end
        return offset

    def _packet(self, payload: bytes, offset: int) -> None:
        if not payload:
            raise ProtocolError("the server sent an empty packet")
        if payload[0] == 0xFF and self._phase is not _Phase.TEXT:
            end = read_err(payload)
            if not (self._dialect.reports_progress and end.error_code == _PROGRESS_REPORT):
                self._end(end, offset)
        elif self._phase is _Phase.FIRST:
            self._first(payload, offset)
        elif self._phase is _Phase.PREPARED:
            self._prepared(payload)
        elif self._phase is _Phase.DEFINITIONS_EOF:
            self._definitions_eof(payload, offset)
        elif self._phase is _Phase.ROWS and self._dialect.deprecate_eof:
            self._ok(payload, offset)
        elif self._phase is _Phase.ROWS:
            self._end(read_eof(payload), offset)
        else:
            self._finish()

    def _first(self, payload: bytes, offset: int) -> None:
        if payload[0] == 0x00:
            end = self._ok(payload, offset)
            self.matched = _first_number(payload, end.status_offset + 4)
        elif payload[0] == 0xFE and len(payload) == EOF_BYTES:
            self._end(read_eof(payload), offset)
        elif payload[0] == 0xFE:
            self._ok(payload, offset)
        elif payload[0] == 0xFB:
            self.wants_file = self._stops = True
        else:
            self.columns, _ = read_lenenc(payload, 0)
            self._rows_follow = True
            self._expect(self.columns, 0)

    def _ok(self, payload: bytes, offset: int) -> End:
        end = read_ok(payload)
        self._end(end, offset)
        if self._dialect.session_track and (end.status or 0) & Status.SESSION_STATE_CHANGED:
            self.told.append((offset - HEADER_BYTES, offset + len(payload)))
            self.commits += commits_told(payload, end.status_offset)
        return end

    def file_sent(self) -> None:
        """The client's LOCAL INFILE went upstream whole: the server's answer follows."""
        self.wants_file = False

    def _prepared(self, payload: bytes) -> None:
        if len(payload) < 12 or payload[0] != 0:
            raise ProtocolError("the answer to a COM_STMT_PREPARE is malformed")
        number, columns, parameters = struct.unpack_from("<IHH", payload, 1)
        (warnings,) = struct.unpack_from("<H", payload, 10)
        self.columns = columns
        self.prepared = Prepared(number, parameters, warnings)
        self._expect(parameters, columns)

    def _expect(self, definitions: int, trailing: int) -> None:
        if not definitions:
            definitions, trailing = trailing, 0
        self._definitions, self._trailing_definitions = definitions, trailing
        if definitions:
            self._phase = _Phase.DEFINITIONS
        else:
            self._finish()

    def _definition(self) -> None:
        self._definitions -= 1
        if not self._definitions:
            if self._dialect.deprecate_eof:
                self._after_definitions()
            else:
                self._phase = _Phase.DEFINITIONS_EOF

    def _definitions_eof(self, payload: bytes, offset: int) -> None:
        if payload[0] == 0x00:  # of MySQL, to an execution without a cursor after one with
            self._ok(payload, offset)
            return
        end = read_eof(payload)
        status = end.status or 0
        # A CALL tells of the cursors that its procedure had, and has its rows here all the same.
        fetches = self.command == Command.STMT_EXECUTE and not end.more_results
        if self._rows_follow and fetches and status & Status.CURSOR_EXISTS:
            self._end(end, offset)  # the rows wait for COM_STMT_FETCH
            return
        self._parameters_out = end.more_results and bool(status & Status.PS_OUT_PARAMS)
        self._has_status(end, offset)
        self._after_definitions()

    def _after_definitions(self) -> None:
        if self._rows_follow:
            self._phase = _Phase.ROWS
        else:
            self._expect(self._trailing_definitions, 0)

    def _end(self, end: End, offset: int) -> None:
        self.ends.append(end)
        self.results += 1
        if end.status is not None:
            self._has_status(end, offset)
        # Behind the rows of a procedure's parameters MySQL does not say that there is more.
        if end.more_results or (self._parameters_out and end.status is not None):
            self._phase = _Phase.FIRST
            self._rows_follow = self._parameters_out = False
            self._stops = len(self.ends) >= MOST_ENDS
        else:
            self._finish()

    def _has_status(self, end: End, offset: int) -> None:
        if len(self.status_offsets) < _MOST_OFFSETS:  # a procedure's answer may have no end
            self.status_offsets.append(self._position + offset + end.status_offset)

    def _finish(self) -> None:
        self._phase = _Phase.DONE
        self.done = self._stops = True


def _ends_rows(first: int, length: int, end_bytes: int) -> bool:
    """Whether a packet among rows is no row: a row's first byte can be 0xFE only as the length of a
    value over 16 MB, and never 0xFF."""
    return first == 0xFF or (first == 0xFE and length < end_bytes)


def followed(command: int, capabilities: int, answer: bytes) -> ResponseTracker:
    """The tracker of a whole answer. Short ones are the same again and again, and share one, which
    is to be fed no more."""
    if len(answer) <= _SHORT_BYTES:
        return _followed_before(command, capabilities, answer)
    return _follow(command, capabilities, answer)


def _follow(command: int, capabilities: int, answer: bytes) -> ResponseTracker:
    tracker = ResponseTracker(command, capabilities)
    tracker.feed(answer)
    return tracker


_followed_before = lru_cache(_SHORT_ANSWERS)(_follow)

_NUMBER = re.compile(rb"[0-9]{1,20}")


def _first_number(payload: bytes, offset: int) -> int | None:
    """In what an OK says in words, whatever their language. Before these stands their length, which
    may be a digit's code; also for clients that are told nothing of their session."""
    try:
        words_at = read_lenenc(payload, offset)[1] if offset < len(payload) else offset
    except ProtocolError:  # they are for people: nothing else hangs on them
        return None
    found = _NUMBER.search(payload, words_at)
    return int(found[0]) if found else None
