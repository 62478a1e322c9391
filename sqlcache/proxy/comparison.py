"""Compares two answers to one query: whether they can be of one moment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from sqlcache.mysql.rows import Column, Row, apart, cells, has_more_values
from sqlcache.sql.order import Order

MOST_VALUES: Final = 100_000
"""Of an answer that is taken apart, which needs some hundred bytes of memory for each."""

_FLOATS = frozenset({4, 5})  # FLOAT, DOUBLE
_SORTED_AS_WRITTEN = frozenset({0, 1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 246})  # numbers and times
_AS_CLOSE = 1e-9


class Result(StrEnum):
    """How a stored answer and MySQL's compare."""

    SAME = "same"
    DIFFERENT = "different"
    OVERTAKEN = "overtaken"
    NOT_COMPARABLE = "not comparable"


def compared(
    stored: bytes, fresh: bytes, order: Order, *, is_text: bool, deprecate_eof: bool
) -> Result:
    """How the packets of two result sets compare that are not the same bytes.

    What the query leaves to the server makes no difference: the order of rows that its ORDER BY has
    as equals, which of these a LIMIT leaves out, and the last digits of floats, which hang on the
    order in which they were added. Where that cannot be told from one, they are not comparable, as
    the rows of prepared statements, which are not `is_text`, often are not; nor are those with
    more than `MOST_VALUES`. Raises: ProtocolError.
    """
    if order.is_open or any(has_more_values(each, MOST_VALUES) for each in (stored, fresh)):
        return Result.NOT_COMPARABLE
    columns, rows = apart(stored, deprecate_eof=deprecate_eof)
    columns_now, rows_now = apart(fresh, deprecate_eof=deprecate_eof)
    if columns != columns_now or len(rows) != len(rows_now):
        return Result.DIFFERENT
    if rows == rows_now:
        return Result.SAME
    is_cut = order.cut_at is not None and len(rows) >= order.cut_at
    places = _places(order, columns) if is_text else None
    if places:
        return _by_keys(rows, rows_now, columns, places, is_cut=is_cut)
    if is_cut:
        return Result.NOT_COMPARABLE
    result = _as_sets(rows, rows_now, columns, is_text=is_text)
    is_ordered = order.terms != ()
    return Result.NOT_COMPARABLE if is_ordered and result is Result.SAME else result


def _places(order: Order, columns: Sequence[Column]) -> list[int] | None:
    """Of the columns by which the rows are ordered; None where that is not seen in the rows, or
    equal values may be written in several ways."""
    places = []
    for term in order.terms or ():
        if isinstance(term, int):
            found = [term - 1] if 1 <= term <= len(columns) else []
        else:
            *table, name = (part.lower().encode() for part in term)
            found = [
                place
                for place, column in enumerate(columns)
                if (column.is_called(table[0], name) if table else column.name.lower() == name)
            ]
        if len(found) != 1 or columns[found[0]].type not in _SORTED_AS_WRITTEN:
            return None
        places += found
    return places


def _by_keys(
    rows: Sequence[bytes],
    rows_now: Sequence[bytes],
    columns: Sequence[Column],
    places: Sequence[int],
    *,
    is_cut: bool,
) -> Result:
    """Compares rows that are ordered by these columns."""
    keys, keys_now = (
        [_picked(cells(row, len(columns)), places) for row in each] for each in (rows, rows_now)
    )
    if keys != keys_now:
        return Result.DIFFERENT
    edges = {keys[0], keys[-1]} if is_cut else set()
    inner = [at for at, key in enumerate(keys) if key not in edges]
    # The keys are in the rows, so that equal rows are where they belong.
    kept, kept_now = ([each[at] for at in inner] for each in (rows, rows_now))
    return _as_sets(kept, kept_now, columns, is_text=True)


def _as_sets(
    rows: Sequence[bytes], rows_now: Sequence[bytes], columns: Sequence[Column], *, is_text: bool
) -> Result:
    if Counter(rows) == Counter(rows_now):
        return Result.SAME
    floats = [place for place, column in enumerate(columns) if column.type in _FLOATS]
    if not floats:
        return Result.DIFFERENT
    if not is_text:
        return Result.NOT_COMPARABLE
    others = [place for place in range(len(columns)) if place not in set(floats)]
    try:
        apart_each = [
            sorted((_picked(row, others), _numbers(row, floats)) for row in _rows(each, columns))
            for each in (rows, rows_now)
        ]
    except ValueError:  # digits may be written otherwise, in UTF-16 say
        return Result.NOT_COMPARABLE
    alike = all(
        rest == rest_now and all(map(_close, numbers, numbers_now))
        for (rest, numbers), (rest_now, numbers_now) in zip(*apart_each, strict=True)
    )
    return Result.SAME if alike else Result.DIFFERENT


def _rows(rows: Sequence[bytes], columns: Sequence[Column]) -> list[Row]:
    return [cells(row, len(columns)) for row in rows]


def _picked(row: Row, places: Sequence[int]) -> tuple[tuple[bool, bytes], ...]:
    return tuple((row[place] is None, row[place] or b"") for place in places)


def _numbers(row: Row, places: Sequence[int]) -> tuple[tuple[bool, float], ...]:
    return tuple((row[place] is None, float(row[place] or 0)) for place in places)


def _close(one: tuple[bool, float], other: tuple[bool, float]) -> bool:
    return one[0] == other[0] and math.isclose(one[1], other[1], rel_tol=_AS_CLOSE, abs_tol=1e-12)
