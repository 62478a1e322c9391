"""Users' names in a login, as the server reads them: it converts what the client sent to UTF-8.

Where a character set has no such character, both servers put `?`. Where the bytes are none of it,
MariaDB puts `?` too, and MySQL ends the name there; then quotes around it come off. Names are
compared byte for byte.

Source: USER() of anonymous users of MySQL 9 and MariaDB 10.11, and what these convert bytes to.
"""

import re
import unicodedata

from sqlcache.sql import charset

_LONGEST_BYTES = 96  # MySQL ends a longer one there
_MOST_SENT = 4 * _LONGEST_BYTES  # of which more than that would come
_LAST = "\uffff"  # of the characters that the servers' names can hold

_SAME = re.compile(rb"[ -&(-?A-Z_a-z]*")
"""ASCII that stands for itself in the character set of any login, and is no quote: swe7 has letters
instead of the rest."""
_PRINTED = re.compile(rb"[ -&(-~]*")
"""ASCII without quotes, as in each character set; in swe7 some of it is letters, none of ASCII."""
_IN_DOUBT = re.compile(rb"\W|\Z")
"""How what begins with any other byte may be read: as nothing, as `?` or other punctuation, which
armscii8, sjis and ujis have twice, or as what is not ASCII; but not as these letters."""
_QUOTES = b"'\xff"  # the second is armscii8's


def as_read(sent: bytes, collation: int) -> bytes | None:
    """The name that the server takes these bytes for, as UTF-8; None where that is not known."""
    if _SAME.fullmatch(sent):
        return sent if len(sent) <= _LONGEST_BYTES else None
    character_set = charset.of_collation(collation) or ""
    if character_set == "binary":
        name: bytes | None = sent.decode("latin-1").encode()  # byte by byte
    elif character_set == "ascii" and not sent.isascii():
        name = None
    else:
        name = charset.to_utf8(sent, character_set)
    if name is None or len(name) > _LONGEST_BYTES:
        return None
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return None
    # Of control characters each collation of a set may make another thing.
    controls = any(unicodedata.category(each) == "Cc" for each in text)
    return None if controls or max(text, default="") > _LAST else name


def known_of(sent: bytes, collation: int) -> bytes:
    """The same, or as much of its beginning as is known: one user's few readings, for counting."""
    whole = as_read(sent, collation)
    if whole is not None:
        return whole
    ends = range(min(len(sent), _MOST_SENT), -1, -1)
    readings = (as_read(sent[:end], collation) for end in ends)
    return next(name for name in readings if name is not None).strip(b"'")


def may_be_read_as(sent: bytes, name: bytes) -> bool:
    """Whether some server may take these bytes for `name`, in whatever character set: one may be
    set to ignore the client's. It may also be so where none does."""
    sent, name = sent.lstrip(_QUOTES), name.lstrip(b"'")
    if name.isascii() and _PRINTED.fullmatch(sent):
        return sent == name
    same = _SAME.match(sent)
    known = same[0] if same else b""
    if known == sent:
        return sent == name
    return name.startswith(known) and _IN_DOUBT.match(name, len(known)) is not None
