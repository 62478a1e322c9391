"""What a query's event tells of the settings of its session; no I/O, no clock."""

from typing import Final

_FIXED_BYTES: Final = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4}
"""How long the fields are that tell of a query's session, of those that may come before the ones
that are read."""
_SQL_MODE, _CATALOG, _TIME_ZONE, _CATALOG_NZ, _CHARSET = 1, 2, 5, 6, 4
_COLLATIONS, _COLLATIONS_BYTES = 131, 4  # MariaDB's, of each character set that has another one
_UNKNOWN: Final = -1


def settings(told: bytes) -> tuple[int, int | None]:
    """The sql_mode of a query's session, and the collation of its text, as far as the log tells:
    None where it has none, one that there is not behind what cannot be read."""
    modes, collation, at = 0, None, 0
    while at < len(told):
        code, at = told[at], at + 1
        if code in (_CATALOG, _CATALOG_NZ, _TIME_ZONE):
            at += 1 + told[at] + (code == _CATALOG)
            continue
        if code == _COLLATIONS:
            at += 1 + told[at] * _COLLATIONS_BYTES
            continue
        if code not in _FIXED_BYTES:
            return modes, _UNKNOWN if collation is None else collation
        value, at = told[at : at + _FIXED_BYTES[code]], at + _FIXED_BYTES[code]
        if code == _SQL_MODE:
            modes = int.from_bytes(value, "little")
        elif code == _CHARSET:
            collation = int.from_bytes(value[:2], "little")
    return modes, collation
