"""MySQL's lexical grammar: a statement's tokens, and its forms; see `pieces` and `forms`."""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from sqlcache.sql.forms import (
    LISTS_FOLLOW,
    LITERALS_DO_NOT_MATTER,
    MOST_ARGUMENTS,
    SIGNS,
    STUBS,
    forms_of,
    literals_do_not_matter,
)
from sqlcache.sql.pieces import (
    CLASS,
    COMMENT,
    GAP,
    MARKER,
    NAME,
    NUMBER,
    NUMBER_ALONE,
    OPERATOR,
    OTHER,
    STRING,
    VARIABLE,
    WORD,
    Dialect,
    directive,
    is_gap,
    refuse_odd_pieces,
    split,
    split_head,
)

_CREATE_HEAD = 40
_ESCAPED = re.compile(rb"\\(.)|(['\"])\2", re.DOTALL)
_UNESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"b": b"\b", b"Z": b"\x1a"}


def word_set(*lines: str) -> frozenset[str]:
    """The words of some lines, for tables of keywords that a reader can scan."""
    return frozenset(word for line in lines for word in line.split())


class Kind(Enum):
    """What a token is."""

    WORD = "word"  # unquoted, may be a keyword
    NAME = "name"  # quoted, or part of a dotted path: never a keyword
    STRING = "string"  # with its N, X or B in front
    NUMBER = "number"
    USER_VARIABLE = "user variable"
    SYSTEM_VARIABLE = "system variable"
    PARAMETER = "parameter"
    HINT = "hint"
    VERSIONED = "versioned comment"
    DIRECTIVE = "directive"
    OPERATOR = "operator"
    OTHER = "other"  # a byte the grammar has no use for, such as \\ or [


class Token(NamedTuple):
    """A token: `text` is what was written, `start` its first byte's offset.

    `word` is the upper-case text of a word; "" for every other kind, so that a keyword compares.
    """

    kind: Kind
    text: bytes
    start: int
    word: str = ""

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        """What a word or name names, its quotes taken off."""
        text = self.text
        if self.kind is Kind.NAME and text[:1] in (b"`", b'"'):
            quote = text[:1]
            text = text[1:-1].replace(quote * 2, quote)
        return _decode(text)

    def is_operator(self, text: bytes) -> bool:
        """Whether it is that operator."""
        return self.text == text and self.kind is Kind.OPERATOR


class Lexed(NamedTuple):
    """A text that can be split, and its forms.

    `runs` says of each parameter that the shape has for how many of the text's it stands.
    """

    text: bytes
    shape: bytes
    canonical: bytes
    dialect: Dialect
    runs: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory it takes."""
        return len(self.text) + 8 * len(self.shape) + len(self.canonical)

    @property
    def pieces(self) -> list[bytes]:
        """Its tokens and the gaps between them, as they were written. Split anew at each call."""
        return split(self.text, self.dialect)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens, without gaps and plain comments. Built anew at each call."""
        return tuple(_tokens(self.pieces, self.dialect))

    @property
    def may_be_several(self) -> bool:
        """Whether this text of one statement may be several to a server that takes these: what
        stands behind a semicolon is another, be it only a comment."""
        if b";" not in self.canonical:
            return False
        versioned = (piece for piece in self.pieces if piece.startswith((b"/*!", b"/*M!")))
        return self.canonical.endswith(b";") or any(versioned)


def lex(text: bytes, dialect: Dialect) -> Lexed:
    """Splits a text and gives both its forms.

    Raises: SqlSyntaxError when it cannot be split.
    """
    pieces = split(text, dialect)
    shape, canonical, runs = forms_of(pieces, dialect)
    return Lexed(text, shape, canonical, dialect, runs)


class Apart(NamedTuple):
    """A text's canonical form with one number and one string for all literals, and these, joined
    by commas: together they tell texts from one another just as the canonical form does.

    `alike`: whatever the literals are, the shape is the same.
    """

    canonical: bytes
    literals: bytes
    alike: bool


def literals_apart(lexed: Lexed) -> Apart:
    """Takes the literals out of a text."""
    pieces = lexed.pieces
    literals = []
    for at, piece in enumerate(pieces):
        if (stub := STUBS.get(piece[0])) is not None:
            literals.append(piece)
            pieces[at] = stub
    canonical = forms_of(pieces, lexed.dialect)[1]
    return Apart(canonical, b",".join(literals), literals_do_not_matter(pieces))


def tokenize(text: bytes, dialect: Dialect) -> tuple[Token, ...]:
    """The tokens alone, without gaps and plain comments.

    Raises: SqlSyntaxError when the text cannot be split.
    """
    return tuple(_tokens(split(text, dialect), dialect))


def tokenize_head(text: bytes, dialect: Dialect) -> tuple[Token, ...]:
    """The tokens of a text that was cut off: without the last one, which may be cut in two.

    Raises: SqlSyntaxError as `tokenize`, except that the text's end closes everything.
    """
    pieces = split_head(text, dialect)
    refuse_odd_pieces(pieces, dialect)
    return tuple(_tokens(pieces, dialect))


def split_statements(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """The statements of a multi-statement: what stands between semicolons, if anything.

    A routine's, trigger's, event's or anonymous block's body may hold semicolons of its own, and
    where it ends takes a full parse: such a statement is the whole rest.
    """
    statements: list[Sequence[Token]] = []
    start = 0
    for at, token in enumerate(tokens):
        if at == start and _may_hold_a_body(tokens[start : start + _CREATE_HEAD]):
            statements.append(tokens[start:])
            return statements
        if token.text == b";":
            statements.append(tokens[start:at])
            start = at + 1
    statements.append(tokens[start:])
    return [piece for piece in statements if any(t.kind is not Kind.DIRECTIVE for t in piece)]


def string_value(token: Token, dialect: Dialect) -> str:
    """What a string literal says: without its quotes, its escapes undone. Not for X'' and B''."""
    text = token.text[token.text[:1] in b"nN" :]
    quote = text[:1]
    inner = text[1:-1]
    if dialect.no_backslash_escapes:
        inner = inner.replace(quote * 2, quote)
    else:
        inner = _ESCAPED.sub(_unescape, inner)
    return inner.decode("utf-8", "surrogateescape")


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _unescape(match: re.Match[bytes]) -> bytes:
    escaped = match[1]
    return match[2] if escaped is None else _UNESCAPED.get(escaped, escaped)


def _tokens(pieces: Sequence[bytes], dialect: Dialect) -> Iterator[Token]:
    start = 0
    dotted = False
    for piece in pieces:
        cls = CLASS[piece[0]]
        if cls == GAP or (cls == COMMENT and is_gap(piece)):
            if b"sqlcache:" in piece and (said := directive(piece)) is not None:
                yield Token(Kind.DIRECTIVE, said, start)
            start += len(piece)
            continue
        kind = _KINDS.get(cls) or _kind_of(piece, dotted, dialect)
        if kind is not Kind.WORD:
            yield Token(kind, piece, start)
        elif b"." in piece:
            yield from _path(piece, start)
        elif dotted:
            yield Token(Kind.NAME, piece, start)
        else:  # folds ASCII only: Unicode has other letters whose upper case is one of MySQL's
            yield Token(kind, piece, start, _decode(piece.upper()))
        dotted = piece == b"."
        start += len(piece)


def _path(piece: bytes, start: int) -> Iterator[Token]:
    for at, part in enumerate(piece.split(b".")):
        if at:
            yield Token(Kind.OPERATOR, b".", start)
            start += 1
        yield Token(Kind.NAME, part, start)
        start += len(part)


_KINDS = {
    NAME: Kind.NAME,
    MARKER: Kind.PARAMETER,
    OPERATOR: Kind.OPERATOR,
    OTHER: Kind.OTHER,
}


def _kind_of(piece: bytes, dotted: bool, dialect: Dialect) -> Kind:
    cls = CLASS[piece[0]]
    if cls == WORD:
        return Kind.STRING if piece[-1] == 0x27 else Kind.WORD
    if cls == NUMBER:
        if piece == b".":
            return Kind.OPERATOR
        return Kind.NUMBER if NUMBER_ALONE.fullmatch(piece) and not dotted else Kind.WORD
    if cls == STRING:
        return Kind.NAME if piece[0] == 0x22 and dialect.ansi_quotes else Kind.STRING
    if cls == VARIABLE:
        return Kind.SYSTEM_VARIABLE if piece[:2] == b"@@" else Kind.USER_VARIABLE
    if cls == COMMENT:
        if piece[:3] == b"/*+":
            return Kind.HINT
        return Kind.VERSIONED if piece[:2] == b"/*" else Kind.OPERATOR
    raise AssertionError(cls)


def abridged(tokens: Sequence[Token]) -> Sequence[Token]:
    """One statement's tokens without what its shape has not, either: all but the first of the
    literals or parameters in a list, and of rows of them.

    It keeps the parameters that the shape does, and may keep more literals.
    """
    first = next((token.word for token in tokens if token.kind is Kind.WORD), "")
    if first not in _WORDS_WHOSE_LITERALS_DO_NOT_MATTER:
        return tokens
    kept: list[Token] = []
    outer: list[int] = []
    run, most, closed = 0, 1, -1
    for token in tokens:
        if (listed := _LISTED_AS.get(token.kind)) is not None:
            comma = _comma_before(kept, listed)
            run = run + 1 if comma and _LISTED_AS.get(kept[-comma - 1].kind) == listed else 1
            if run > most:
                del kept[-comma:]
                continue
        elif token.text == b"(":
            outer.append(most)
            is_call = bool(kept) and kept[-1].kind in _NAMES and kept[-1].word not in _LIST_WORDS
            most = MOST_ARGUMENTS if is_call else 1
        elif token.text == b")":
            row, most = most == 1, outer.pop() if outer else 1
            if row and most == 1 and 0 < closed == len(kept) - 3 and _repeats_row_of(kept):
                del kept[-3:]
                closed = len(kept)
                continue
            closed = len(kept) + 1 if row else -1
        kept.append(token)
    return kept


def _comma_before(kept: Sequence[Token], listed: bytes) -> int:
    """How many tokens there are from the comma on before an item, with a literal's sign; or 0."""
    if len(kept) > 1 and kept[-1].text == b",":
        return 1
    signed = listed == b"?" and len(kept) > 2 and kept[-1].text in SIGNS
    return 2 if signed and kept[-2].text == b"," else 0


def _repeats_row_of(kept: Sequence[Token]) -> bool:
    if len(kept) < 6:
        return False
    first, listed = _LISTED_AS.get(kept[-5].kind), _LISTED_AS.get(kept[-1].kind)
    opens = kept[-2].text == b"(" == kept[-6].text
    return first is not None and first == listed and opens and kept[-3].text == b","


_NAMES = (Kind.WORD, Kind.NAME)
_LISTED_AS = {Kind.STRING: b"?", Kind.NUMBER: b"?", Kind.PARAMETER: b"??"}
_LIST_WORDS = frozenset(map(_decode, LISTS_FOLLOW))
_WORDS_WHOSE_LITERALS_DO_NOT_MATTER = frozenset(map(_decode, LITERALS_DO_NOT_MATTER))
_WITH_BODY = frozenset(("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"))
_BEFORE_OBJECT = frozenset(("OR", "REPLACE", "AGGREGATE"))


def _may_hold_a_body(head: Sequence[Token]) -> bool:
    head = [token for token in head if token.kind is not Kind.DIRECTIVE]
    words = [token.word for token in head]
    if words[:3] == ["BEGIN", "NOT", "ATOMIC"]:
        return True
    if words[:1] not in (["CREATE"], ["ALTER"]):
        return False
    at = 1
    while at < len(words):
        if words[at] == "DEFINER":
            at = after_definer(head, at)
        elif words[at] in _BEFORE_OBJECT:
            at += 1
        else:
            return words[at] in _WITH_BODY
    return False


def after_definer(tokens: Sequence[Token], at: int) -> int:
    """The index after `DEFINER = user@host`, which stands at `at`; its user may be any word."""
    at += 3 if at + 1 < len(tokens) and tokens[at + 1].is_operator(b"=") else 1
    if at < len(tokens) and tokens[at].kind is Kind.USER_VARIABLE:
        at += 1
    elif at + 1 < len(tokens) and tokens[at].is_operator(b"("):  # CURRENT_USER()
        at += 2
    return at
