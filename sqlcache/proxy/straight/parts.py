"""Answers that come in parts: MySQL sends of a long one some 16 KB at a time."""

from sqlcache.kernel import step_over_rows
from sqlcache.mysql.packets import HEADER_BYTES, payload_bytes
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.scan import Plain, end_bytes, rows_begin, rows_end

_MOST_HELD_BYTES = 65_536  # of a row: with each part that comes of it, it is put together anew


class Parts:
    """The rows that answer one command, as far as they have come. Whole packets are passed on; what
    is there of the next one is `held`: it may be the end, and not plain."""

    __slots__ = ("_deprecate_eof", "_end_bytes", "columns", "flags_at", "held", "passed_bytes",
                 "recounts", "rows")  # fmt: skip

    def __init__(self, columns: int, flags_at: int, *, deprecate_eof: bool) -> None:
        self._deprecate_eof = deprecate_eof
        self._end_bytes = end_bytes(deprecate_eof=deprecate_eof)
        self.columns = columns
        self.flags_at = flags_at
        """Where the flags stand behind the definitions, or -1."""
        self.rows = 0
        self.passed_bytes = 0
        self.held = b""
        self.recounts: bool | None = None
        """Of an execution: whether its flags are to tell of another number of columns."""

    @classmethod
    def begun(cls, chunk: bytes, *, deprecate_eof: bool) -> "tuple[Parts, bytes] | None":
        """By the first part of an answer: that, and what of it is to be passed on. None where it is
        not plain, or all there is, or has not even all definitions."""
        begins = rows_begin(chunk, deprecate_eof=deprecate_eof)
        if begins is None:
            return None
        columns, flags_at, at = begins
        parts = cls(columns, flags_at, deprecate_eof=deprecate_eof)
        whole = parts._take(chunk, at)
        return (parts, whole) if parts.goes_on else None

    def take(self, chunk: bytes) -> bytes:
        """What of it, and of what was held, is to be passed on. Then it `goes_on`, or has come to
        its `end`, or is not plain."""
        return self._take(self.held + chunk if self.held else chunk, 0)

    def _take(self, data: bytes, at: int) -> bytes:
        rows, at = step_over_rows(data, at, self._end_bytes)
        self.rows += rows
        self.held = data[at:]
        self.passed_bytes += at
        return data[:at] if self.held else data

    @property
    def goes_on(self) -> bool:
        """Whether the next packet has not come whole."""
        held = self.held
        if len(held) < HEADER_BYTES:
            return True
        return len(held) < min(HEADER_BYTES + payload_bytes(held), _MOST_HELD_BYTES)

    @property
    def end(self) -> Plain | None:
        """What the answer was, if what is held is its plain end."""
        found = rows_end(self.held, deprecate_eof=self._deprecate_eof)
        if found is None:
            return None
        status, warnings, at = found
        return status, warnings, self.columns, self.rows, self.flags_at, self.passed_bytes + at

    def tracker(self, command: int, capabilities: int) -> ResponseTracker:
        """For who goes on with what is held."""
        told = self.columns, self.rows, self.flags_at, self.passed_bytes
        return ResponseTracker.amid_rows(command, capabilities, *told)
