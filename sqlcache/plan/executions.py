"""One execution of a prepared statement: in which way it is made, and the values that it brings.

What is known of the statement, and of its executions before this one, is in `prepared`.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sqlcache.errors import ProtocolError
from sqlcache.mysql.packets import read_lenenc
from sqlcache.plan.parameters import CHANGES_NOTHING, is_null

TYPE_BYTES = 2
TEXTS = frozenset({15, 249, 250, 251, 252, 253, 254})
"""The types of texts."""

ANYTHING = b"\1"
"""Of a parameter that may have been anything, not texts alone."""

_TOLD = re.compile(rb"(\d{1,6}):")
_INTEGERS = {1: 1, 2: 2, 3: 4, 8: 8, 9: 4}
"""The bytes of a value, by its type."""
_LONGEST_TEXT = 255
_UNSIGNED = 0x80
_LARGEST = 1 << 52
"""Larger ones may be compared as doubles, where the server has once taken one of these."""


class Way(NamedTuple):
    """How a statement is executed: with which types and `forms`, and which parameters are NULL."""

    types: tuple[bytes, ...]
    nulls: bytes
    forms: bytes

    def changes_nothing_after(self, other: "Way") -> bool:
        """Whether MySQL takes all parameters for what it took them for then; NULL is anything."""
        return self == other or all(
            is_null(self.nulls, place) or self._is_alike(other, place)
            for place in range(len(self.types))
        )

    def _is_alike(self, other: "Way", place: int) -> bool:
        same_type = self.types[place] == other.types[place] and not is_null(other.nulls, place)
        form, before = self.forms[place], other.forms[place]
        return same_type and (form == before or (form, before) in CHANGES_NOTHING)

    def told(self) -> bytes:
        """All of it, as long as any other of the statement."""
        return b"".join(self.types) + self.nulls + self.forms


@dataclass(slots=True)
class Execution:
    """One COM_STMT_EXECUTE. `bind_at` is where in the payload it says whether types follow; None
    where there are no parameters, or they cannot be told from query attributes.

    `parameters` are all that decides the answer but statement and session; None where that is not
    known: a cursor is asked for, query attributes come with it, a part was sent ahead, or the
    statement was executed in too many ways.
    """

    parameters: bytes | None
    bind_at: int | None = None
    has_types: bool = False
    cursor: bool = False
    way: Way | None = None
    new_way: bool = False
    """Whether MySQL may take parameters for something else from this one on."""

    def with_parameters(self, parameters: bytes) -> "Execution":
        """The same of one that is no new way."""
        return Execution(parameters, self.bind_at, self.has_types, self.cursor, self.way)


class Null(Enum):
    """What is sent for no value."""

    NULL = "NULL"


Known = int | bytes | Null | None
"""A value that is sent: an integer, a text that is not long, or NULL; None for all else."""


def values_told(parameters: bytes, count: int) -> list[Known]:
    """The values of an execution, so many, by its `parameters` as `Prepared.read` has put them
    together. Fewer where the rest is not known; no texts where the server may take one for what it
    took others for before."""
    types_told = _TOLD.match(parameters)
    if types_told is None or not count:
        return []
    end = types_told.end() + int(types_told[1])
    types = parameters[types_told.end() : end]
    each = len(types) // count
    named = each == TYPE_BYTES + 1 and any(types[TYPE_BYTES::each])
    ways_told = _TOLD.match(parameters, end)
    if ways_told is None or named or each not in (TYPE_BYTES, TYPE_BYTES + 1):
        return []
    nulls_bytes = (count + 7) // 8
    nulls_at = ways_told.end() + int(ways_told[1]) * (TYPE_BYTES * count + nulls_bytes + count)
    nulls = parameters[nulls_at : nulls_at + nulls_bytes]
    codes, flags = types[::each], types[1::each]
    not_texts = bytes(count) if int(ways_told[1]) == 1 else ANYTHING * count
    return values_from(parameters, nulls_at + nulls_bytes, codes, flags, nulls, not_texts)


def values_from(
    parameters: bytes,
    offset: int,
    codes: bytes,
    flags: bytes,
    nulls: bytes,
    not_texts: bytes | bytearray,
) -> list[Known]:
    """The values that begin at `offset`, of parameters with types of these `codes` and `flags`;
    `nulls` is the bitmap, and `not_texts` says of which the server may take a text for what it
    took others for before. Fewer where the rest is not known.
    """
    found: list[Known] = []
    for place, code in enumerate(codes):
        known: Known = None
        if is_null(nulls, place):
            known = Null.NULL
        else:
            width = _INTEGERS.get(code)
            is_text = width is None and code in TEXTS
            if is_text:
                width, offset = _text_at(parameters, offset)
            if width is None or offset + width > len(parameters):
                break
            value = parameters[offset : offset + width]
            if not is_text:
                number = int.from_bytes(value, "little", signed=not flags[place] & _UNSIGNED)
                known = number if abs(number) <= _LARGEST else None
            elif width <= _LONGEST_TEXT and not not_texts[place]:
                known = value
            offset += width
        found.append(known)
    return found


def _text_at(parameters: bytes, offset: int) -> tuple[int | None, int]:
    """How long a text is, and where it begins; no length where what says so makes no sense."""
    try:
        return read_lenenc(parameters, offset)
    except ProtocolError:
        return None, offset
