"""Which definitions take nothing away that a write may have led to before; no I/O, no clock."""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.lexer import Kind, Token, tokenize
from sqlcache.sql.pieces import Dialect

_LONG_BYTES: Final = 8_192  # of a text that is not looked at: it would hold others up
_OF_INDEXES: Final = ("UNIQUE", "FULLTEXT", "SPATIAL")
_BEFORE_TABLE: Final = ("ONLINE", "IGNORE")
_DROPPED: Final = ("INDEX", "KEY", "PRIMARY", "PARTITION")


def only_adds(text: bytes, dialect: Dialect) -> bool:
    """Whether a statement makes a table whose name meant none, or adds to one, or changes indexes,
    partitions or rows: whatever a write has led to it leads to afterwards. Words alone decide that,
    so it holds for all texts of a shape. False where that is not known."""
    if len(text) > _LONG_BYTES:
        return False
    try:
        tokens = [each for each in tokenize(text, dialect) if each.kind is not Kind.DIRECTIVE]
    except SqlSyntaxError:
        return False
    if any(each.kind is Kind.VERSIONED or each.text == b";" for each in tokens):
        return False
    words = [each.word for each in tokens[:4]]
    match words:
        case ["CREATE", "TABLE", *_] | ["CREATE", "TEMPORARY", "TABLE", *_]:
            return True
        case ["CREATE" | "DROP", "INDEX", *_] | ["TRUNCATE", *_]:
            return True
        case ["CREATE", kind, "INDEX", *_]:
            return kind in _OF_INDEXES
        case ["ALTER", *_] if "TABLE" in words:
            return all(map(_adds, _clauses(tokens[1:])))
    return False


def _clauses(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """What an ALTER TABLE does; of what else is altered, or named in other ways, that is no clause
    that adds."""
    at = 0
    while at < len(tokens) and tokens[at].word in _BEFORE_TABLE:
        at += 1
    if at < len(tokens) and tokens[at].word == "TABLE":
        at += 2  # and its name
        while at + 1 < len(tokens) and tokens[at].is_operator(b"."):
            at += 2
    depth = 0
    begins = at
    for here in range(at, len(tokens)):
        each = tokens[here]
        depth += each.is_operator(b"(") - each.is_operator(b")")
        if not depth and each.is_operator(b","):
            yield tokens[begins:here]
            begins = here + 1
    yield tokens[begins:]


def _adds(clause: Sequence[Token]) -> bool:
    words = [each.word for each in clause[:2]]
    match words:
        case ["ADD", _]:
            return True
        case ["DROP", dropped]:
            return dropped in _DROPPED
        case ["ALGORITHM" | "LOCK", _]:
            return len(clause) <= 3
    return False
