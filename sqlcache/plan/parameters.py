"""What MySQL takes a prepared statement's parameters for, as far as their values decide it.

Not all is decided by the types that an execution names. Where MySQL wants an integer, it takes a
string such as '-2' or '1.5' for a DECIMAL, and where it wants a date, '2020-01-01 10:00:00' for a
DATETIME; and from then on whatever comes in its place. So each value has a form: after values of
the same types and forms, MySQL takes the next ones for the same.

Sources: the binary protocol's values; Prepared_statement::check_parameter_types in MySQL's server.
"""

import math
import re
import struct
from collections.abc import Container, Sequence
from datetime import datetime

from sqlcache.errors import ProtocolError
from sqlcache.mysql.packets import read_lenenc

# By type, the bytes of a value. All others have their length in front.
_BYTES = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 6: 0, 8: 8, 9: 4, 13: 2}
_DATES = frozenset({7, 10, 12})
_TIME, _BIT, _NEWDECIMAL = 11, 16, 246
_FLOATS = frozenset({4, 5})
# Of others MariaDB takes what stands behind them in its memory.
_DATE_BYTES = (4, 7, 11)
_NO_TEXTS = frozenset({*_BYTES, *_DATES, _TIME, _BIT, _NEWDECIMAL})
_BEGINS_OTHERS = frozenset(b"0123456789+-. \t\n\r\f\v")
"""What texts begin with that may be numbers, dates or times: all others are plain."""
_LOOKED_AT_BYTES = 1_024
"""Of a text: a longer one that may be a number or a date as far as that has no form."""
MOST_FORMED = 2_048
"""Parameters, where not all are numbers, or a date may be wanted: more have no form."""
_UNSIGNED = 0x80

# PLAIN is also what is none of the others. A NEGATIVE is a DECIMAL where MySQL wants any integer, a
# DECIMAL is none where it wants a YEAR.
PLAIN, DECIMAL, NEGATIVE, DATE, DATETIME, EXACT_DATETIME, TIME, EXACT_TIME = range(8)
SCALES = 8
"""The form of a number sent as DECIMAL without decimals; one more for each it has."""

CHANGES_NOTHING = frozenset({(PLAIN, DECIMAL), (PLAIN, NEGATIVE)})
"""Forms, and others after which they do not change what MySQL takes a parameter for."""

_COUNT = re.compile(rb"\d{1,18}")
_INTEGER = re.compile(rb" *\+?\d{1,18} *")
_DECIMAL = re.compile(rb" *\+?(\d{1,30}\.\d{0,30}|\.\d{1,30}) *")
_NEGATIVE = re.compile(rb" *-(\d{1,30}\.\d{0,30}|\.\d{1,30}|0{0,9}[1-9]\d{0,17}) *")
# Of very long ones, exponents, -0 and other blanks it depends on more: which integers it wants, and
# their sizes.
_NUMBER = re.compile(rb"\s*+[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d++)?\s*+")
_DECIMAL_NUMBER = re.compile(rb"[+-]?(?=\.?\d)(\d{0,65})(?:\.(\d{0,38}))?")
_MOMENT = re.compile(rb"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?")
_TIME_OF_DAY = re.compile(rb"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?")
_LIKE_A_DATE = re.compile(rb"\s*+(\d++[\W_]++\d++[\W_T]++\d|\d{3,}+T)")
# The beginnings of such, whatever follows.
_NUMBER_SO_FAR = re.compile(rb"\s*+[+-]?\d*+\.?\d*+([eE][+-]?\d*+)?\s*+")
_DATE_SO_FAR = re.compile(rb"\s*+\d*+[\W_]*+\d*+[\W_T]*+")


def forms(
    payload: bytes,
    offset: int,
    types: Sequence[bytes],
    nulls: bytes,
    dateless: Sequence[bool] = (),
    limits: Container[int] = (),
) -> bytes | None:
    """The forms of an execution's parameters, a byte each. None where one cannot be told.

    The values begin at `offset`; `types` are two bytes each, `nulls` the bitmap. `dateless` says of
    each whether no date can be wanted there, if it says anything. `limits` are the places of those
    that are numbers of rows.
    """
    if len(dateless) != len(types):
        dateless = (False,) * len(types)
    if len(types) > MOST_FORMED and not (all(dateless) and are_numbers(types)):
        return None
    told = bytearray(len(types))
    any_null, size = any(nulls), len(payload)
    try:
        for place, type_ in enumerate(types):
            if any_null and is_null(nulls, place):
                continue
            width = _BYTES.get(type_[0])
            if width is None:
                width, offset = read_lenenc(payload, offset)
            end = offset + width
            if end > size:
                return None
            is_word = not width or payload[offset] not in _BEGINS_OTHERS
            if is_word and type_[0] not in _NO_TEXTS and place not in limits:
                offset = end
                continue
            value = payload[offset : min(end, offset + _LOOKED_AT_BYTES + 1)]
            form = _form(type_, value, dateless[place])
            if form is None or (place in limits and not _is_count(type_, value)):
                return None
            told[place] = form
            offset = end
    except ProtocolError:
        return None
    return bytes(told) if offset == size else None


def are_numbers(types: Sequence[bytes]) -> bool:
    """Whether values of these types are plain, whatever they are, where no date is wanted: each
    takes as many bytes as any other."""
    return all(type_[0] in _BYTES for type_ in types)


def is_null(nulls: bytes, place: int) -> bool:
    """Whether a bitmap of NULLs has that parameter in it."""
    return bool(nulls[place // 8] >> place % 8 & 1)


def _form(type_: bytes, value: bytes, dateless: bool) -> int | None:
    code = type_[0]
    if code in _BYTES:
        return None if not dateless and _may_be_date(type_, value) else PLAIN
    if code in _DATES:
        return _form_of_date(value)
    if code == _NEWDECIMAL:
        return _form_of_decimal(value, dateless)
    # A TIME may become a date of today, by another parameter too.
    return None if code in (_TIME, _BIT) else _form_of_text(value, dateless)


def _is_count(type_: bytes, value: bytes) -> bool:
    """Whether it is one number of rows, however the statement was executed before. Of a '1.5' MySQL
    makes 1, or 2 once it has taken parameters for others than at first; nor does it warn of a '2x'
    before."""
    return type_[0] in _BYTES or _COUNT.fullmatch(value) is not None


def _may_be_date(type_: bytes, value: bytes) -> bool:
    """Whether a number of that type may be a date: 0 is, and 20200101, and 101 for 2000-01-01."""
    if type_[0] in _FLOATS:
        (number,) = struct.unpack("<f" if len(value) == 4 else "<d", value)
        return not math.isfinite(number) or _is_like_a_date(int(number))
    signed = not type_[1] & _UNSIGNED
    return bool(value) and _is_like_a_date(int.from_bytes(value, "little", signed=signed))


def _is_like_a_date(number: int) -> bool:
    month, day = number // 100 % 100, number % 100
    return not number or number >= 10**8 or (number > 100 and month <= 12 and day <= 31)


def _form_of_decimal(value: bytes, dateless: bool) -> int | None:
    """MariaDB keeps how many decimals it once saw."""
    number = _DECIMAL_NUMBER.fullmatch(value)
    if number is None or (not dateless and _is_like_a_date(int(number[1] or 0))):
        return None
    return SCALES + len(number[2] or b"")


def _form_of_text(value: bytes, dateless: bool) -> int | None:
    if len(value) > _LOOKED_AT_BYTES:
        return _form_of_long_text(value[:_LOOKED_AT_BYTES], dateless)
    if _NUMBER.fullmatch(value):
        if _INTEGER.fullmatch(value):
            return PLAIN if dateless else _form_of_integer(int(value))
        positive = DECIMAL if _DECIMAL.fullmatch(value) else None
        return NEGATIVE if _NEGATIVE.fullmatch(value) else positive
    if dateless or not _LIKE_A_DATE.match(value):
        return PLAIN
    if moment := _MOMENT.fullmatch(value):
        try:
            datetime.fromisoformat(value[:19].decode())
        except ValueError:
            return None
        return EXACT_DATETIME if moment[2] else DATETIME if moment[1] else DATE
    time = _TIME_OF_DAY.fullmatch(value)
    return None if time is None else EXACT_TIME if time[2] else TIME


def _form_of_long_text(head: bytes, dateless: bool) -> int | None:
    may_be_date = _LIKE_A_DATE.match(head) or _DATE_SO_FAR.fullmatch(head)
    unsure = _NUMBER_SO_FAR.fullmatch(head) or (may_be_date and not dateless)
    return None if unsure else PLAIN


def _form_of_integer(number: int) -> int | None:
    """Of a string's, which can be a date and a time without separators."""
    if not 10**8 <= number < 10**14:
        return PLAIN
    digits = f"{number:012}" if number < 10**12 else f"{number:014}"
    month, day, hour, minute, second = (
        int(digits[at : at + 2]) for at in range(len(digits) - 10, len(digits), 2)
    )
    if month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59:
        return PLAIN
    return DATETIME if month and 1 <= day <= 28 else None


def _form_of_date(value: bytes) -> int | None:
    year, month, day, hour, minute, second = struct.unpack("<HBBBBB", value[:7].ljust(7, b"\0"))
    if len(value) not in _DATE_BYTES:
        return None
    try:
        datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    return EXACT_DATETIME if len(value) > 7 else PLAIN
