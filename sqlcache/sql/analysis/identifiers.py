"""The names a body of SQL mentions, for who must assume the worst of it."""

from dataclasses import dataclass

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.analysis.calls import calls
from sqlcache.sql.analysis.cursor import CODE_KINDS
from sqlcache.sql.lexer import tokenize
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.tables import path_at


@dataclass(frozen=True, slots=True)
class IdentifierUse:
    """Every name a text mentions, for who must assume the worst of it, such as a trigger's body.

    `paths` are dotted names, quotes off, words included that are keywords in truth. `functions`
    are what stands before a parenthesis and is no reserved word, nor a procedure that is called.
    `opaque`: it calls routines or functions not built in, or runs texts, or cannot be split: it may
    touch anything.
    """

    paths: frozenset[tuple[str, ...]]
    functions: frozenset[tuple[str, ...]]
    opaque: bool
    called: frozenset[tuple[str, ...]] = frozenset()
    """The procedures that a CALL names."""


def identifiers_in(text: bytes, dialect: Dialect) -> IdentifierUse:
    """Every dotted name and function a text mentions; never raises."""
    try:
        tokens = tokenize(text, dialect)
    except SqlSyntaxError:
        return IdentifierUse(frozenset(), frozenset(), True)
    paths: set[tuple[str, ...]] = set()
    at = 0
    while at < len(tokens):
        path = path_at(tokens, at)
        if path:
            paths.add(path.parts)
        at = path.end if path else at + 1
    called = list(calls(tokens, frozenset(), dialect))
    procedures = [path_at(tokens, at + 1) for at, t in enumerate(tokens) if t.word == "CALL"]
    ends = {path.end for path in procedures if path is not None}
    words = {token.word for token in tokens}
    opaque = (
        not words.isdisjoint(_OPAQUE_WORDS)
        or any(call.stored for call in called)
        or any(token.kind in CODE_KINDS for token in tokens)
    )
    return IdentifierUse(
        frozenset(paths),
        frozenset(call.path for call in called if call.at + 1 not in ends),
        opaque,
        frozenset(path.parts for path in procedures if path is not None),
    )


_OPAQUE_WORDS = frozenset(("CALL", "EXECUTE", "PREPARE"))
