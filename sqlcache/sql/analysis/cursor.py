"""A place in a statement's tokens, and the steps over what its grammar may have there."""

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import Token
from sqlcache.sql.names import TableRef
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.routines import NONE_DECLARED, Declared
from sqlcache.sql.tables import path_at, ref_of
from sqlcache.sql.versioned import Opens

NAMES = (TokenKind.WORD, TokenKind.NAME)
CODE_KINDS = frozenset((TokenKind.VERSIONED, TokenKind.OTHER))
"""Tokens whose meaning no reading of the text can tell."""


class Options(NamedTuple):
    """What the session allows in its texts, what routines in them are known to do, and which
    versioned comments the server runs; None: it is not known which server that is."""

    dialect: Dialect
    parameters_allowed: bool
    declared: Declared = NONE_DECLARED
    opens: Opens | None = None


class Cursor:
    """A place in a statement's tokens, hints and directives left out."""

    def __init__(self, tokens: Sequence[Token], options: Options, *, nested: int = 0) -> None:
        self.hints = [token for token in tokens if token.kind is TokenKind.HINT]
        skipped = (TokenKind.HINT, TokenKind.DIRECTIVE)
        self.tokens = [token for token in tokens if token.kind not in skipped]
        self.words = frozenset([token.word for token in self.tokens])
        """All that are in it; most that are looked for are not."""
        self.options = options
        self.at = 0
        self.nested = nested
        """In how many statements this one stands."""

    def inside(self, at: int) -> "Cursor":
        """One for the statement that begins there, in this one."""
        return Cursor(self.tokens[at:], self.options, nested=self.nested + 1)

    def fork(self, at: int) -> "Cursor":
        """Another one in the same tokens."""
        forked = copy(self)
        forked.at = at
        return forked

    @property
    def word(self) -> str:
        """The word that comes next, in upper case; "" if none does."""
        return self.tokens[self.at].word if self.at < len(self.tokens) else ""

    @property
    def rest(self) -> list[Token]:
        return self.tokens[self.at :]

    def take(self, *words: str) -> bool:
        """Steps over these words if they all come next."""
        ahead = [token.word for token in self.tokens[self.at : self.at + len(words)]]
        if ahead != list(words):
            return False
        self.at += len(words)
        return True

    def take_any(self, words: frozenset[str]) -> frozenset[str]:
        """Steps over any of these words, in any order; gives those it met."""
        met = set()
        while self.word in words:
            met.add(self.word)
            self.at += 1
        return frozenset(met)

    def take_operator(self, *texts: bytes) -> bool:
        if self.at < len(self.tokens) and any(map(self.tokens[self.at].is_operator, texts)):
            self.at += 1
            return True
        return False

    def skip_group(self) -> None:
        """Steps over a parenthesis and all in it, if one comes next."""
        depth = 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            depth += token.is_operator(b"(") - token.is_operator(b")")
            if depth <= 0 and not token.is_operator(b")"):
                return
            self.at += 1
            if depth <= 0:
                return

    def skip_exists(self) -> None:
        """Steps over IF EXISTS and IF NOT EXISTS."""
        if not self.take("IF", "EXISTS"):
            self.take("IF", "NOT", "EXISTS")

    def table(self) -> TableRef | None:
        """Steps over a table's name."""
        path = path_at(self.tokens, self.at)
        ref = ref_of(path.parts) if path else None
        if path is not None and ref is not None:
            self.at = path.end
        return ref

    def tables(self) -> frozenset[TableRef] | None:
        """Steps over names of tables with commas between them; None if one cannot be read."""
        refs: set[TableRef] = set()
        while True:
            ref = self.table()
            if ref is None:
                return None
            refs.add(ref)
            if not self.take_operator(b","):
                return frozenset(refs)

    def name(self) -> str | None:
        """Steps over one undotted name."""
        if self.at < len(self.tokens) and self.tokens[self.at].kind in NAMES:
            self.at += 1
            return self.tokens[self.at - 1].name
        return None

    def find(self, *words: str) -> int | None:
        """The index of the first of these words outside parentheses, from here on."""
        if self.words.isdisjoint(words):
            return None
        depth = 0
        for at in range(self.at, len(self.tokens)):
            token = self.tokens[at]
            depth += token.is_operator(b"(") - token.is_operator(b")")
            if depth == 0 and token.word in words:
                return at
        return None
