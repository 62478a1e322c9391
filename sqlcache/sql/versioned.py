"""Versioned comments, `/*!80000 ... */` and `/*M!100100 ... */`: who runs what stands in them.

A server that runs one reads on in it as if its marks were blanks, up to the first `*/` that is in
no quotes; one that does not skips all up to the first one, in quotes or not. Comments that begin
inside are read by rules of their own, and are not followed.

Source: https://dev.mysql.com/doc/refman/9.4/en/comments.html,
https://dev.mysql.com/blog-archive/are-you-ready-for-mysql-10/ (six digits),
https://mariadb.com/kb/en/comment-syntax/ (the versions MariaDB skips), and what both do if asked.
"""

import re
from typing import NamedTuple

_COMMENT = re.compile(rb"/\*(M?)!([0-9]*+)(.*)\*/\Z", re.DOTALL)
_LINES = re.compile(rb"--|\#")
_BLANK = re.compile(rb"[ \t-\r]")
_BLANKS = re.compile(rb"[ \t-\r]*")
_RUN_BY_ALL = 50600
_MYSQLS_OWN = range(50700, 100000)  # which MariaDB does not run
_GALERAS_OWN = 99997  # which a node of a cluster runs, be it one of MariaDB's or of MySQL's


class Opens(NamedTuple):
    """Which versioned comments a server runs.

    `version` is its own, as comments name it: 80036 is 8.0.36. `six_digits`: it takes those too.
    """

    is_mariadb: bool
    version: int
    six_digits: bool = True

    def runs(self, version: int, *, for_mariadb: bool) -> bool | None:
        """Whether it runs what is for this version; None where that is not known."""
        if version > self.version or (
            self.is_mariadb and not for_mariadb and version in _MYSQLS_OWN
        ):
            return None if version == _GALERAS_OWN else False
        return True


class Inside(NamedTuple):
    """What a server reads of a versioned comment, and where in it that begins."""

    text: bytes
    start: int = 0


_NOTHING = Inside(b"")


def inside(comment: bytes, server: Opens | None) -> Inside | None:
    """What a server reads of a versioned comment, or what each does if it is not known which it is;
    None where that cannot be told."""
    found = _COMMENT.match(comment)
    if found is None or b"/*" in found[3]:
        return None
    for_mariadb, digits, text = found.groups()
    if len(digits) == 5 and _BLANKS.fullmatch(text):
        return _NOTHING  # whoever runs it
    runs = _runs(digits, text, server, for_mariadb=bool(for_mariadb))
    if runs and _LINES.search(text):
        return None
    return Inside(text, found.start(3)) if runs else None if runs is None else _NOTHING


def _runs(digits: bytes, text: bytes, server: Opens | None, *, for_mariadb: bool) -> bool | None:
    if for_mariadb and (server is None or not server.is_mariadb):
        return None if server is None else False  # to MySQL it is like any comment
    if not digits:
        return True
    if server is None:
        return True if len(digits) == 5 and int(digits) <= _RUN_BY_ALL else None
    # Of six digits MySQL takes but five where no blank follows.
    six = server.six_digits and (server.is_mariadb or _BLANK.match(text))
    if len(digits) != 5 and not (six and len(digits) == 6):
        return None
    return server.runs(int(digits), for_mariadb=for_mariadb)
