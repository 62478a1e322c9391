"""A statement as people may see it, in lists and logs: no literal is in it, whatever it is.

A shape leaves out the literals of queries and changes of rows alone. Those of a SET, a definition
or an account's password may decide what a statement does, so they stay in its shape.
"""

import re

from sqlcache.sql.lexer import Lexed
from sqlcache.sql.pieces import Dialect, split_head

LONGEST_BYTES = 2_000
"""Of a longer shape the rest is left out: how long it takes is bounded."""

_MAY_HAVE_LITERALS = re.compile(rb"['\"]|/\*|(?<![\w$\x80-\xff])\.?[0-9]")
_CODE = re.compile(rb"(/\*(?:M?![0-9]*|\+))(.*)\*/", re.DOTALL)
_LITERAL = re.compile(rb"[NnXxBb]?'|\.?[0-9]")


def without_values(lexed: Lexed) -> bytes:
    """Its shape with `?` for each literal; cut after some thousand bytes."""
    shape = lexed.shape
    if len(shape) <= LONGEST_BYTES and not _MAY_HAVE_LITERALS.search(shape):
        return shape
    return _without_values(shape[:LONGEST_BYTES], lexed.dialect)


def _without_values(text: bytes, dialect: Dialect) -> bytes:
    return b"".join([_shown(each, dialect) for each in split_head(text + b" ", dialect)])


def _shown(piece: bytes, dialect: Dialect) -> bytes:
    if code := _CODE.fullmatch(piece):
        return code[1] + _without_values(code[2], dialect) + b"*/"
    if _LITERAL.match(piece) or (piece[:1] == b'"' and not dialect.ansi_quotes):
        return b"?"
    return piece
