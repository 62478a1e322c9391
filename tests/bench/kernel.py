"""What a call of the kernel costs, in Python and compiled: `python -m tests.bench.kernel`."""

from __future__ import annotations

from collections.abc import Callable
from timeit import repeat
from types import ModuleType
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from sqlcache import _kernel
from sqlcache.mysql import response, scan
from sqlcache.mysql.constants import Capability, Command
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.sql import shapes

_ROUNDS = 15
_CHUNK_BYTES = 16_384  # of what comes off the wire at once
_ROW = b"\x0412345" + b"\x77" + b"c" * 119
_HEAD = (b"\x02", b"\x03def" + bytes(30), b"\x03def" + bytes(30))
_POINT_SELECT = b"SELECT c FROM sbtest1 WHERE id=5012"
_LONG_TEXT = b"SELECT c FROM sbtest1 WHERE id IN (" + b"50123,'abcdef'," * 64 + b"1)"


def _answer(rows: int) -> bytes:
    payloads = (*_HEAD, *[_ROW] * rows, b"\xfe\x00\x00\x02\x00\x00\x00")
    return b"".join(packet(number & 0xFF, each) for number, each in enumerate(payloads, 1))


def _follow(chunks: list[bytes]) -> None:
    tracker = ResponseTracker(Command.QUERY, Capability.DEPRECATE_EOF)
    for chunk in chunks:
        tracker.feed(chunk)


def _cases(scanning: ModuleType, splitting: ModuleType) -> dict[str, Callable[[], object]]:
    one, many = _answer(1), _answer(1_000)
    chunks = [many[at : at + _CHUNK_BYTES] for at in range(0, len(many), _CHUNK_BYTES)]

    def followed() -> None:
        with patch.object(response, "step_over_rows", scanning.step_over_rows):
            _follow(chunks)

    return {
        "scan, 1 row": lambda: scanning.scan(one, deprecate_eof=True),
        "scan, 1,000 rows": lambda: scanning.scan(many, deprecate_eof=True),
        "tracker, 1,000 rows in chunks": followed,
        "without_literals, a point select": lambda: splitting.without_literals(_POINT_SELECT),
        "without_literals, 1 kB": lambda: splitting.without_literals(_LONG_TEXT),
    }


def _us(call: Callable[[], object]) -> float:
    """What a call takes at best."""
    return min(repeat(call, repeat=_ROUNDS, number=200)) / 200 * 1e6


def main() -> None:
    table = Table(title="µs a call")
    for column in ("", "pure", "compiled", "times"):
        table.add_column(column, justify="right" if column else "left")
    compiled = _cases(_kernel, _kernel)
    for name, call in _cases(scan, shapes).items():
        pure, fast = _us(call), _us(compiled[name])
        table.add_row(name, f"{pure:.2f}", f"{fast:.2f}", f"{pure / fast:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
