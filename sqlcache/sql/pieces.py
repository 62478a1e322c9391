"""A text's pieces: what MySQL's lexical grammar splits it into, gaps and comments included.

- Any bytes are split in linear time. What cannot be split (an unclosed quote or comment, a name
  that is not UTF-8, dollar-quoted text) raises `SqlSyntaxError`; nothing else is ever raised.
- Pieces are contiguous: joined again, they are the text.
- A text is UTF-8. When `character_set_client` is another, the caller decodes the text by that
  character set, encodes it as UTF-8 and sets `Dialect.ascii_words`: then no byte of a character
  can be taken for a quote or a backslash, which gbk, big5 and sjis would otherwise allow.

Source: https://dev.mysql.com/doc/refman/9.4/en/language-structure.html (literals, identifiers,
comments), https://dev.mysql.com/doc/refman/9.4/en/function-resolution.html (white space between a
name and its parenthesis), https://mariadb.com/kb/en/comment-syntax/ (the versions MariaDB skips).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlcache.errors import SqlSyntaxError


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a session changes in how its texts are split.

    The first three are the `sql_mode` flags of these names; IGNORE_SPACE lets white space stand
    between a built-in function's name and its parenthesis. `ascii_words` is for sessions whose
    `character_set_client` is not UTF-8: which characters beyond ASCII are letters, and which are
    white space, then depends on the character set, so an unquoted one raises `SqlSyntaxError`.
    """

    ansi_quotes: bool = False
    no_backslash_escapes: bool = False
    ignore_space: bool = False
    ascii_words: bool = False

    @classmethod
    def stored_under(cls, sql_mode: str) -> "Dialect":
        """That of code which is stored with the server, and was made under these modes."""
        modes = sql_mode.upper().split(",")
        return cls("ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" in modes)


def split_head(text: bytes, dialect: Dialect) -> list[bytes]:
    """The pieces of a text that was cut off: without the last one, which may be cut in two."""
    pieces: list[bytes] = _splitter(dialect).findall(text)
    return pieces[:-1]


def split(text: bytes, dialect: Dialect) -> list[bytes]:
    """The text's pieces, gaps and comments included; joined again they are the text.

    Raises: SqlSyntaxError when it cannot be split.
    """
    at_once = len(text) <= TURN_BYTES
    pieces = _splitter(dialect).findall(text) if at_once else _split_in_turns(text, dialect)
    if pieces and _OPENER.match(pieces[-1]) and not _closed(dialect).fullmatch(pieces[-1]):
        offset = len(text) - len(pieces[-1])
        raise SqlSyntaxError(f"unclosed {pieces[-1][:2].decode('ascii', 'replace')} at {offset}")
    if not text.isascii() or b"$" in text:
        refuse_odd_pieces(pieces, dialect)
    return pieces


def _split_in_turns(text: bytes, dialect: Dialect) -> list[bytes]:
    """All pieces, some thousand bytes at a time: one call lets no other thread run.

    What a cut-off text is split into is right but for its last piece, and for those just before
    that, which may be parts of what goes on. They are split anew with more of the text.
    """
    splitter = _splitter(dialect)
    pieces: list[bytes] = []
    start, size = 0, TURN_BYTES
    while (end := start + size) < len(text):
        more: list[bytes] = splitter.findall(text, start, end)
        end -= len(more.pop())
        unsure = end - _LOOKS_AHEAD_BYTES
        while more and end > unsure:
            end -= len(more.pop())
        pieces += more
        start, size = (end, TURN_BYTES) if more else (start, 2 * size)
    pieces += splitter.findall(text, start)
    return pieces


def is_gap(piece: bytes) -> bool:
    """Whether it is white space, or a comment that counts as such."""
    cls = CLASS[piece[0]]
    if cls == COMMENT:
        if len(piece) == 1:
            return piece == b"#"
        return piece[:2] != b"->" and not _CODE_COMMENT.match(piece)
    return cls == GAP


def is_directive(piece: bytes) -> bool:
    """Whether it is a comment that speaks to sqlcache."""
    return b"sqlcache:" in piece and is_gap(piece) and _DIRECTIVE.match(piece) is not None


def directive(comment: bytes) -> bytes | None:
    """What a comment says to sqlcache; None if it does not speak to it."""
    begins = _DIRECTIVE.match(comment)
    return begins and comment[begins.end() :].removesuffix(b"*/").strip(_WHITE_SPACE)


AT_ONCE = 16_384
"""Pieces or tokens that are joined, or let go of, at a time."""
TURN_BYTES = 16_384  # of a text, split at a time
_LOOKS_AHEAD_BYTES = 8
"""Behind its end no piece looks further than that, as 1 does at e+5, if it is no quote's start."""
_IDENT = rb"[A-Za-z0-9_$\x80-\xff]"
_GAPS = rb"[ \t-\r]+"
_DASHES = rb"--(?=[\x00-\x20\x7f]|\Z)[^\n\x00]*+"  # MySQL ends a line comment at NUL as well
_COMMENTS = _DASHES + rb"|\#[^\n\x00]*+|/\*.*?\*/"
_BACKTICKS = rb"`[^`]*+(?:``[^`]*+)*+`"
_NUMBERS = (
    rb"0x[0-9A-Fa-f]++(?!" + _IDENT + rb")|0b[01]++(?!" + _IDENT + rb")"
    rb"|[0-9]+[eE][+-]?[0-9]+|[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]+)?|[0-9]++(?!" + _IDENT + rb")"
    rb"|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
)
_OPERATORS = rb":=|<=>|<>|!=|<=|>=|<<|>>|\|\||&&|->>?|[-+*/%^~&|=<>!(),.;:?{}]"
_OPENER = re.compile(rb"[NnXxBb]?['\"`]|/\*|@['\"`]")
_CODE_COMMENT = re.compile(rb"/\*(?:M?!|\+)")
_DIRECTIVE = re.compile(rb"(?:/\*|\#|--)[ \t-\r]*+sqlcache:")
_WHITE_SPACE = b" \t\n\v\f\r"
_DOLLAR_QUOTE = re.compile(rb"\$" + _IDENT + rb"*\$")
NUMBER_ALONE = re.compile(_NUMBERS)
"""A piece that is a number, and no name that begins with a digit."""


def _quoted(quote: bytes, dialect: Dialect) -> bytes:
    if dialect.no_backslash_escapes:
        return rb"%b[^%b]*+(?:%b%b[^%b]*+)*+%b" % ((quote,) * 6)
    return rb"%b[^%b\\]*+(?:(?:\\.|%b%b)[^%b\\]*+)*+%b" % ((quote,) * 6)


def _double_quoted(dialect: Dialect) -> bytes:
    return rb'"[^"]*+(?:""[^"]*+)*+"' if dialect.ansi_quotes else _quoted(b'"', dialect)


@lru_cache(maxsize=8)
def _splitter(dialect: Dialect) -> re.Pattern[bytes]:
    """One pattern whose matches cover any text without a hole.

    Possessive quantifiers and a last resort that takes the rest of the text keep it linear.
    """
    single, double = _quoted(b"'", dialect), _double_quoted(dialect)
    quoted = single + rb"|" + double + rb"|" + _BACKTICKS
    path = rb"(?:\." + _IDENT + rb"++)*+"
    part = rb"(?:" + _IDENT + rb"++|" + _BACKTICKS + rb")"
    return re.compile(
        rb"|".join(
            (
                _GAPS,
                rb"[NnXxBb]" + single,
                rb"[A-Za-z_$\x80-\xff]" + _IDENT + rb"*+" + path,
                _NUMBERS,
                _IDENT + rb"++" + path,  # such as 1abc: an identifier that starts with a digit
                quoted,
                _COMMENTS,
                rb"@@" + part + rb"?(?:\." + part + rb")*+",
                rb"@(?:[A-Za-z0-9_$.\x80-\xff]++|" + quoted + rb")",
                rb"@?['\"`].*+|/\*.*+",  # unclosed: takes the rest
                rb"@",
                _OPERATORS,
                rb".",
            )
        ),
        re.DOTALL,
    )


@lru_cache(maxsize=8)
def _closed(dialect: Dialect) -> re.Pattern[bytes]:
    strings = _quoted(b"'", dialect) + rb"|" + _double_quoted(dialect) + rb"|" + _BACKTICKS
    return re.compile(rb"[NnXxBb@]?(?:" + strings + rb")|/\*.*?\*/", re.DOTALL)


def refuse_odd_pieces(pieces: Sequence[bytes], dialect: Dialect) -> None:
    """Refuses what no dialect-wide rule can read: see the module's laws."""
    for piece in pieces:
        first = piece[0]
        if first == 0x24 and _DOLLAR_QUOTE.match(piece):
            raise SqlSyntaxError("dollar-quoted text, or a name that looks like it")
        if piece.isascii() or CLASS[first] not in _NAMING:
            continue
        if dialect.ascii_words and CLASS[first] is WORD:
            raise SqlSyntaxError("an unquoted word beyond ASCII in a session that is not UTF-8")
        try:
            piece.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SqlSyntaxError("a name that is not UTF-8") from error


# What a piece may be by its first byte; of some it takes a second look.
GAP, WORD, NUMBER, NAME, STRING, COMMENT, VARIABLE, MARKER, OPERATOR, OTHER = range(10)
_NAMING = (WORD, NUMBER, NAME, VARIABLE)
AFTER_WORD = (WORD, NUMBER, NAME, STRING)
"""After these, if it is no literal, a parenthesis may be a call's."""


def _class_of(byte: int) -> int:
    char = bytes((byte,))
    for chars, cls in (
        (b" \t\n\v\f\r", GAP),
        (b"0123456789.", NUMBER),
        (b"`", NAME),
        (b"'\"", STRING),
        (b"#/-", COMMENT),
        (b"@", VARIABLE),
        (b"?", MARKER),
        (b"+*%^~&|=<>!(),;:{}", OPERATOR),
    ):
        if char in chars:
            return cls
    return WORD if byte >= 0x80 or char.isalnum() or char in b"_$" else OTHER


CLASS = tuple(_class_of(byte) for byte in range(256))
"""By a piece's first byte."""
