"""What MySQL takes a prepared statement's strings for.

Not all is decided by the types that an execution names. Where MySQL wants an integer, it takes a
string such as '-2' or '1.5' for a DECIMAL, and from then on whatever comes in its place; after a
'2' or a 'two' it does not.

Sources: the binary protocol's values; Prepared_statement::check_parameter_types in MySQL's server.
"""

import re
from collections.abc import Sequence

from sqlcache.errors import ProtocolError
from sqlcache.mysql.packets import read_lenenc

# By type, the bytes of a value. All others have their length in front.
_BYTES = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 6: 0, 8: 8, 9: 4, 13: 2}
_INTEGER = re.compile(rb"\s*\+?\d{1,18}\s*")
_DECIMAL = re.compile(rb"\s*([+-]?(\d{1,30}\.\d{0,30}|\.\d{1,30})|-0{0,9}[1-9]\d{0,17})\s*")
# Of very long ones, exponents and -0 it depends on more: which integers it wants, and their sizes.
_NUMBER = re.compile(rb"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


def are_decimals(payload: bytes, offset: int, types: Sequence[bytes], nulls: bytes) -> bytes | None:
    """One byte a parameter: 1 where a string stands that MySQL takes for a DECIMAL if it wants an
    integer. None where that cannot be told.

    The values begin at `offset`; `types` are two bytes each, `nulls` the bitmap.
    """
    flags = bytearray(len(types))
    try:
        for place, type_ in enumerate(types):
            if nulls[place // 8] >> place % 8 & 1:
                continue
            width = _BYTES.get(type_[0])
            if width is None:
                length, offset = read_lenenc(payload, offset)
                width = length
                value = payload[offset : offset + length]
                if _DECIMAL.fullmatch(value):
                    flags[place] = 1
                elif _NUMBER.fullmatch(value) and not _INTEGER.fullmatch(value):
                    return None
            offset += width
    except ProtocolError:
        return None
    return bytes(flags) if offset == len(payload) else None
