"""Clients' character sets: which one a login names, and its texts as UTF-8.

The laws:

- What comes out is what the server reads: the names in a text, and where its literals end.
- A text in a character set that this cannot promise for is only read where it is plain ASCII.

Source: information_schema.COLLATIONS and CHARACTER_SETS of MySQL 9, MariaDB 10.11 and 11.8.
"""

UTF8 = frozenset(("utf8mb4", "utf8mb3", "utf8", "ascii"))
"""Character sets whose texts are UTF-8 as they are."""

WITHOUT_ALL_OF_ASCII = frozenset(("swe7",))
"""Character sets that have not all of it: what is made of literals in one may be another text."""

_AS_IT_IS = UTF8 | {"binary"}
_NOT_ASCII = frozenset(("swe7", "ucs2", "utf16", "utf16le", "utf32"))  # swe7: ` is a letter
_CODECS = {
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "koi8r": "koi8_r",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "tis620": "tis_620",
    "big5": "big5",
    "euckr": "euc_kr",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
}
OF_ASCII_BYTES = _AS_IT_IS | _CODECS.keys()
"""Character sets whose plain ASCII is known to be those very bytes."""
_OTHER_THAN_MYSQLS = frozenset(
    "\uff3c\u2574\uffe3\u02cd\ue7c7\u1e3f"
)  # what Python's codecs read otherwise
_MADE_UP = b"\xa4\xd4"  # begins what Python's euc_kr takes for one character, of four
_LATIN1 = [bytes((byte,)).decode("cp1252", "ignore") or chr(byte) for byte in range(256)]
_FROM_LATIN1 = dict(enumerate(_LATIN1))

_COLLATIONS = {
    "big5": (1, 84),
    "latin2": (2, 9, 21, 27, 77),
    "dec8": (3, 69),
    "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
    "hp8": (6, 72),
    "koi8r": (7, 74),
    "swe7": (10, 82),
    "ascii": (11, 65),
    "ujis": (12, 91),
    "sjis": (13, 88),
    "cp1251": (14, 23, 50, 51, 52),
    "hebrew": (16, 71),
    "tis620": (18, 89),
    "euckr": (19, 85),
    "latin7": (20, 41, 42, 79),
    "koi8u": (22, 75),
    "gb2312": (24, 86),
    "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99),
    "gbk": (28, 87),
    "cp1257": (29, 58, 59),
    "latin5": (30, 78),
    "armscii8": (32, 64),
    "cp866": (36, 68),
    "keybcs2": (37, 73),
    "macce": (38, 43),
    "macroman": (39, 53),
    "cp852": (40, 81),
    "cp1256": (57, 67),
    "binary": (63,),
    "geostd8": (92, 93),
    "cp932": (95, 96),
    "eucjpms": (97, 98),
    "gb18030": (248, 249, 250),
    "utf8mb3": (33, 76, 83, *range(192, 216), 223, *range(576, 580), *range(2048, 2304)),
    "utf8mb4": (
        45,
        46,
        *range(224, 248),
        *range(255, 324),
        *range(608, 612),
        *range(2304, 2560),
    ),
}
_NO_PAD = 1024  # is what MariaDB adds for a collation that does not pad
_OF_COLLATION = {number: name for name, numbers in _COLLATIONS.items() for number in numbers}
_OF_COLLATION |= {
    number + _NO_PAD: _OF_COLLATION[number] for number in range(256) if number in _OF_COLLATION
}


def of_collation(number: int) -> str | None:
    """The character set of a collation by its number; None for one not known or not a client's."""
    return _OF_COLLATION.get(number)


def to_utf8(text: bytes, character_set: str) -> bytes | None:
    """A client's text as UTF-8; None where it cannot be told how the server reads it."""
    if character_set in _NOT_ASCII:
        return None
    if character_set in _AS_IT_IS or text.isascii():
        return text
    if character_set == "latin1":
        return text.decode("latin-1").translate(_FROM_LATIN1).encode()
    codec = _CODECS.get(character_set)
    return _decoded(text, codec) if codec is not None else None


def _decoded(text: bytes, codec: str) -> bytes | None:
    if codec == "euc_kr" and _MADE_UP in text:
        return None
    try:
        decoded = text.decode(codec)
        same = decoded.encode(codec) == text  # else two byte sequences stand for one character
    except UnicodeError:
        return None
    return decoded.encode() if same and _OTHER_THAN_MYSQLS.isdisjoint(decoded) else None
