"""MySQL's lexical grammar: a statement's tokens, its shape and its canonical text.

The laws:

- Any bytes are split in linear time. What cannot be split (an unclosed quote or comment, a name
  that is not UTF-8, dollar-quoted text) raises `SqlSyntaxError`; nothing else is ever raised.
- Pieces are contiguous: joined again, they are the text.
- Two texts with equal `shape` have the same analysis.
- Two texts with equal `canonical` have the same answer in the same session, names of columns
  included. MySQL names an unaliased expression after its raw text, comments and white space and
  all, so a select list is kept as it was sent. Neither form is SQL any more: never send it.
- A text is UTF-8. When `character_set_client` is another, the caller decodes the text by that
  character set, encodes it as UTF-8 and sets `Dialect.ascii_words`: then no byte of a character
  can be taken for a quote or a backslash, which gbk, big5 and sjis would otherwise allow.

A versioned comment (`/*!50000 ... */`, `/*M! ... */`) is code: it is one token, in both forms as
it is. So is a hint (`/*+ ... */`). Other comments count as white space, except that one starting
with `sqlcache:` is a directive: kept in the shape, since it changes the analysis, and left out of
the canonical text, since the server does not hear it.

Source: https://dev.mysql.com/doc/refman/9.4/en/language-structure.html (literals, identifiers,
comments), https://dev.mysql.com/doc/refman/9.4/en/function-resolution.html (white space between a
name and its parenthesis), https://mariadb.com/kb/en/comment-syntax/ (the versions MariaDB skips).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

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


def lex(text: bytes, dialect: Dialect) -> Lexed:
    """Splits a text and gives both its forms.

    Raises: SqlSyntaxError when it cannot be split.
    """
    pieces = split(text, dialect)
    shape, canonical, runs = _forms(pieces, dialect)
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
        if (stub := _STUBS.get(piece[0])) is not None:
            literals.append(piece)
            pieces[at] = stub
    canonical = _forms(pieces, lexed.dialect)[1]
    return Apart(canonical, b",".join(literals), _literals_do_not_matter(pieces))


def normalised(pieces: Sequence[bytes], dialect: Dialect) -> bytes:
    """The statement as people name it: its shape, with parameters as literals and no directives.

    What it gives is itself the text of a statement with this normal form.
    """
    plain = [b"1" if piece == b"?" else piece for piece in pieces]
    return _forms([b" " if _is_directive(piece) else piece for piece in plain], dialect)[0]


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
    _refuse_odd_pieces(pieces, dialect)
    return tuple(_tokens(pieces, dialect))


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
        _refuse_odd_pieces(pieces, dialect)
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


TURN_BYTES = 16_384  # of a text, split at a time
AT_ONCE = 16_384
"""Pieces or tokens that are joined, or let go of, at a time."""
_LOOKS_AHEAD_BYTES = 8
"""Behind its end no piece looks further than that, as 1 does at e+5, if it is no quote's start."""
_IDENT = rb"[A-Za-z0-9_$\x80-\xff]"
_GAP = rb"[ \t-\r]+"
_DASHES = rb"--(?=[\x00-\x20\x7f]|\Z)[^\n\x00]*+"  # MySQL ends a line comment at NUL as well
_COMMENT = _DASHES + rb"|\#[^\n\x00]*+|/\*.*?\*/"
_BACKTICKS = rb"`[^`]*+(?:``[^`]*+)*+`"
_ESCAPED = re.compile(rb"\\(.)|(['\"])\2", re.DOTALL)
_UNESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"b": b"\b", b"Z": b"\x1a"}
_NUMBER = (
    rb"0x[0-9A-Fa-f]++(?!" + _IDENT + rb")|0b[01]++(?!" + _IDENT + rb")"
    rb"|[0-9]+[eE][+-]?[0-9]+|[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]+)?|[0-9]++(?!" + _IDENT + rb")"
    rb"|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
)
_OPERATOR = rb":=|<=>|<>|!=|<=|>=|<<|>>|\|\||&&|->>?|[-+*/%^~&|=<>!(),.;:?{}]"
_OPENER = re.compile(rb"[NnXxBb]?['\"`]|/\*|@['\"`]")
_CODE_COMMENT = re.compile(rb"/\*(?:M?!|\+)")
_DIRECTIVE = re.compile(rb"(?:/\*|\#|--)[ \t-\r]*+sqlcache:")
_WHITE_SPACE = b" \t\n\v\f\r"
_DOLLAR_QUOTE = re.compile(rb"\$" + _IDENT + rb"*\$")
_NUMBER_ALONE = re.compile(_NUMBER)
_CREATE_HEAD = 40


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
                _GAP,
                rb"[NnXxBb]" + single,
                rb"[A-Za-z_$\x80-\xff]" + _IDENT + rb"*+" + path,
                _NUMBER,
                _IDENT + rb"++" + path,  # such as 1abc: an identifier that starts with a digit
                quoted,
                _COMMENT,
                rb"@@" + part + rb"?(?:\." + part + rb")*+",
                rb"@(?:[A-Za-z0-9_$.\x80-\xff]++|" + quoted + rb")",
                rb"@?['\"`].*+|/\*.*+",  # unclosed: takes the rest
                rb"@",
                _OPERATOR,
                rb".",
            )
        ),
        re.DOTALL,
    )


@lru_cache(maxsize=8)
def _closed(dialect: Dialect) -> re.Pattern[bytes]:
    strings = _quoted(b"'", dialect) + rb"|" + _double_quoted(dialect) + rb"|" + _BACKTICKS
    return re.compile(rb"[NnXxBb@]?(?:" + strings + rb")|/\*.*?\*/", re.DOTALL)


def _refuse_odd_pieces(pieces: Sequence[bytes], dialect: Dialect) -> None:
    """Refuses what no dialect-wide rule can read: see the module's laws."""
    for piece in pieces:
        first = piece[0]
        if first == 0x24 and _DOLLAR_QUOTE.match(piece):
            raise SqlSyntaxError("dollar-quoted text, or a name that looks like it")
        if piece.isascii() or _CLASS[first] not in _NAMING:
            continue
        if dialect.ascii_words and _CLASS[first] is _W:
            raise SqlSyntaxError("an unquoted word beyond ASCII in a session that is not UTF-8")
        try:
            piece.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SqlSyntaxError("a name that is not UTF-8") from error


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _unescape(match: re.Match[bytes]) -> bytes:
    escaped = match[1]
    return match[2] if escaped is None else _UNESCAPED.get(escaped, escaped)


# A piece's first byte tells its class; only a few classes need a second look.
_G, _W, _D, _Q, _S, _C, _V, _P, _O, _X = range(10)
_NAMING = (_W, _D, _Q, _V)
_AFTER_WORD = (_W, _D, _Q, _S)


def _class_of(byte: int) -> int:
    char = bytes((byte,))
    for chars, cls in (
        (b" \t\n\v\f\r", _G),
        (b"0123456789.", _D),
        (b"`", _Q),
        (b"'\"", _S),
        (b"#/-", _C),
        (b"@", _V),
        (b"?", _P),
        (b"+*%^~&|=<>!(),;:{}", _O),
    ):
        if char in chars:
            return cls
    return _W if byte >= 0x80 or char.isalnum() or char in b"_$" else _X


_CLASS = tuple(_class_of(byte) for byte in range(256))

# Reserved by every MySQL since 5.7 and every MariaDB since 10.6, so never a name on its own.
_RESERVED = frozenset(
    b"ALL AND AS ASC BETWEEN BY CASE CROSS DELETE DESC DISTINCT DIV ELSE EXISTS FALSE FORCE FROM"
    b" GROUP HAVING IGNORE IN INNER INSERT INTO IS JOIN LEFT LIKE LIMIT MOD NATURAL NOT NULL ON OR"
    b" ORDER OUTER REGEXP REPLACE RIGHT RLIKE SELECT SET STRAIGHT_JOIN TABLE THEN TRUE UNION UPDATE"
    b" USE USING VALUES WHEN WHERE WITH XOR".split()
)
_LISTS = frozenset((b"SELECT", b"VALUES"))  # what follows names columns after its raw text
_LIST_ENDS = frozenset((b"FROM", b"INTO", b"UNION", b"EXCEPT", b"INTERSECT"))
_CONSTANTS = frozenset((b"NULL", b"TRUE", b"FALSE"))
_Item = bytes | bytearray
"""Of a form. An array has no hash, so what items are compared with are tuples."""
_LONG_BYTES = 256  # of an item that is an array: shorter ones are copied as fast
_SIGNS = (b"-", b"+")
_LISTED = (b"?", b"??")
_ROWS = (b"(", b"ROW(", b"VALUES(", b"VALUE(")
_LISTS_FOLLOW = frozenset((b"IN", b"VALUES", b"VALUE", b"ROW"))  # in parentheses
_MOST_ARGUMENTS = 8  # of a function that does not take any number of them
_BEFORE_SIGN = (b"(", b",", b"=", b"<", b">")  # what an item before a sign ends with
# Literals of any other statement may decide its analysis: SET, PREPARE, XA and their like.
_LITERALS_DO_NOT_MATTER = frozenset(
    b"SELECT WITH TABLE VALUES INSERT REPLACE UPDATE DELETE CALL DO HANDLER".split()
)


_STUBS = {0x27: b"''", **dict.fromkeys(b"0123456789", b"0")}


def _forms(pieces: list[bytes], dialect: Dialect) -> tuple[bytes, bytes, tuple[int, ...]]:
    """Shape, canonical text and `Lexed.runs`, in one walk; long because each call in it costs a
    tenth of it.

    Both forms are lists of items joined by one blank. What changes the meaning when white space is
    put before or after it, a parenthesis after a word and a dot, is glued to the item before it.
    """
    shape: list[_Item] = []
    canonical: list[_Item] = []
    literal = b"?" if _literals_do_not_matter(pieces) else b""
    raw: list[bytes] = []  # the select list being read
    depth = 0
    in_list = False
    list_depth = 0  # the depth of that list's SELECT
    gap = True
    dotted = after_word = False
    last = b""
    run, most = 0, 1  # of like items in the list being read: how many, and how many are kept
    outer: list[int] = []  # `most` of the lists it is in
    is_row, closed = False, -1  # whether the list that ends is no call's; where the last such ended
    runs: list[int] = []
    quotes = _Q if dialect.ansi_quotes else _S
    classes = _CLASS
    for piece in pieces:
        cls = classes[piece[0]]
        if in_list:
            raw.append(piece)
        if cls == _G:
            gap = True
            continue
        item = piece
        is_literal = False
        is_word = False
        if cls == _W:
            if piece[-1] == 0x27:
                is_literal = True
            elif not dotted:
                is_word = True
                word = piece.upper()
                if word in _RESERVED or word in _LIST_ENDS:
                    if word in _RESERVED:
                        item = word
                    if in_list and list_depth == depth and word in _LIST_ENDS:
                        raw.pop()
                        _close_list(raw, canonical, dialect)
                        in_list = False
        elif cls == _O:
            if piece == b"(":
                depth += 1
                outer.append(most)
                is_call = after_word and last.upper() not in _LISTS_FOLLOW
                most = _MOST_ARGUMENTS if is_call else 1
                if after_word and not gap:
                    shape[-1] += piece
                    if not in_list:
                        canonical[-1] += piece
                    after_word = dotted = False
                    continue
            elif piece == b")":
                depth -= 1
                is_row, most = most == 1, outer.pop() if outer else 1
                if in_list and depth < list_depth:
                    raw.pop()
                    _close_list(raw, canonical, dialect)
                    in_list = False
            elif piece == b";" and in_list:
                raw.pop()
                _close_list(raw, canonical, dialect)
                in_list = False
        elif cls == _D:
            if piece == b".":
                for form in (shape,) if in_list else (shape, canonical):
                    if gap or not form:
                        form.append(piece)
                        continue
                    if len(form[-1]) > _LONG_BYTES and isinstance(form[-1], bytes):
                        form[-1] = bytearray(form[-1])
                    form[-1] += piece
                after_word = dotted = True
                gap = False
                last = piece
                continue
            is_literal = not dotted and _NUMBER_ALONE.fullmatch(piece) is not None
        elif cls == _S:
            is_literal = piece[0] == 0x27 or quotes == _S
        elif cls == _C and _is_gap(piece):
            gap = True
            if b"sqlcache:" in piece and (said := _directive(piece)) is not None:
                shape.append(b"/*sqlcache:" + said + b"*/")
                after_word = dotted = False
            continue
        elif cls == _P:
            item = b"??"
        if not in_list:
            if dotted and not gap:
                canonical[-1] += piece
            else:
                canonical.append(piece if cls == _P else item)
        if cls == _P and literal:
            run = run + 1 if len(shape) > 1 and shape[-1] == b"," and shape[-2] == item else 1
            if run > most:
                shape.pop()
                runs[-1] += 1
            else:
                shape.append(item)
                runs.append(1)
        elif literal and (
            is_literal
            or (
                is_word
                and item in _CONSTANTS
                and shape
                and (shape[-1] == b"," or shape[-1][-1:] == b"(")
            )
        ):
            if len(shape) > 1 and shape[-1] in _SIGNS and shape[-2][-1:] in _BEFORE_SIGN:
                shape.pop()
            run = run + 1 if len(shape) > 1 and shape[-1] == b"," and shape[-2] == literal else 1
            if run > most:
                shape.pop()
            else:
                shape.append(literal)
        elif dotted and not gap:
            shape[-1] += piece
        elif piece == b")" and is_row:
            if most == 1 and 0 < closed == len(shape) - 3 and _repeats_row(shape):
                if shape[-1] == b"??":
                    runs[-2:] = [runs[-2] + runs[-1]]
                del shape[-3:]
            else:
                shape.append(item)
            closed = len(shape)
        else:
            shape.append(item)
        if is_word and not in_list and item in _LISTS:
            in_list, list_depth = True, depth
        after_word = not is_literal and cls in _AFTER_WORD
        last = piece
        dotted = gap = False
    if in_list:
        _close_list(raw, canonical, dialect)
    if last == b";":
        _end_statement(pieces, shape, canonical)
    return _joined(b" ", shape), _joined(b" ", canonical), tuple(runs)


def _joined(between: bytes, items: Sequence[_Item]) -> bytes:
    if len(items) <= AT_ONCE:
        return between.join(items)
    parts = [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]
    return between.join([between.join(part) for part in parts])


def _end_statement(pieces: list[bytes], shape: list[_Item], canonical: list[_Item]) -> None:
    """Takes the semicolons off that a text ends in. MySQL does, too, but not before a comment."""
    while shape and shape[-1] == b";":
        shape.pop()
    end = next(at for at in range(len(pieces) - 1, -1, -1) if _CLASS[pieces[at][0]] != _G)
    if pieces[end] == b";":
        while canonical and canonical[-1] == b";":
            canonical.pop()


def _literals_do_not_matter(pieces: Sequence[bytes]) -> bool:
    first = next((piece for piece in pieces if _CLASS[piece[0]] == _W), b"")
    if first.upper() not in _LITERALS_DO_NOT_MATTER:
        return False
    if b";" not in pieces:
        return True
    after = pieces[pieces.index(b";") + 1 :]
    return all(piece == b";" or _is_gap(piece) for piece in after)


def _repeats_row(shape: list[_Item]) -> bool:
    opens = shape[-2]
    return (
        shape[-1] in _LISTED
        and (opens == b"(" or (opens in _ROWS and shape[-1] == b"?"))
        and shape[-3] == b","
        and shape[-5] == shape[-1]
        and shape[-6][-1:] == b"("
    )


def _close_list(raw: list[bytes], canonical: list[_Item], dialect: Dialect) -> None:
    """Ends a select list: its raw text without what surrounds it becomes one item.

    Where MySQL skips white space to see whether a parenthesis follows a word, that white space is
    part of the column's name.
    """
    if not dialect.ignore_space and (columns := _columns(raw)) is not None:
        canonical.append(columns)
        raw.clear()
        return
    start, end = 0, len(raw)
    while start < end and _is_gap(raw[start]):
        start += 1
    while end > start and not dialect.ignore_space and _is_gap(raw[end - 1]):
        end -= 1
    if start < end:
        canonical.append(_joined(b"", raw[start:end]))
    raw.clear()


def _columns(raw: list[bytes]) -> bytes | None:
    """A select list of nothing but columns, perhaps with `AS` and a name: white space makes no
    difference there, for these are called as they are written. None for any other."""
    columns: list[bytes] = []
    words = 0  # of the column being read; a path is one
    dotted = False
    for piece in raw:
        if piece == b",":
            columns.append(piece)
            words = 0
        elif piece == b".":
            columns.append(piece)
        elif piece == b"*":
            if words and not dotted:
                return None
            columns.append(piece)
            words = 1
        elif (cls := _CLASS[piece[0]]) == _Q or (cls == _W and piece[-1] != 0x27):
            words += not dotted
            is_as = words == 2 and piece.upper() == b"AS"
            if words > 3 or (words == 2 and not dotted and not is_as):
                return None
            columns.append(b" AS " if is_as else piece)
        elif _is_gap(piece):
            continue
        else:
            return None
        dotted = piece == b"."
    return _joined(b"", columns)


def _is_gap(piece: bytes) -> bool:
    cls = _CLASS[piece[0]]
    if cls == _C:
        if len(piece) == 1:
            return piece == b"#"
        return piece[:2] != b"->" and not _CODE_COMMENT.match(piece)
    return cls == _G


def _is_directive(piece: bytes) -> bool:
    return b"sqlcache:" in piece and _is_gap(piece) and _DIRECTIVE.match(piece) is not None


def _directive(comment: bytes) -> bytes | None:
    """What a comment says to sqlcache; None if it does not speak to it."""
    begins = _DIRECTIVE.match(comment)
    return begins and comment[begins.end() :].removesuffix(b"*/").strip(_WHITE_SPACE)


def _tokens(pieces: Sequence[bytes], dialect: Dialect) -> Iterator[Token]:
    start = 0
    dotted = False
    for piece in pieces:
        cls = _CLASS[piece[0]]
        if cls == _G or (cls == _C and _is_gap(piece)):
            if b"sqlcache:" in piece and (said := _directive(piece)) is not None:
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
    _Q: Kind.NAME,
    _P: Kind.PARAMETER,
    _O: Kind.OPERATOR,
    _X: Kind.OTHER,
}


def _kind_of(piece: bytes, dotted: bool, dialect: Dialect) -> Kind:
    cls = _CLASS[piece[0]]
    if cls == _W:
        return Kind.STRING if piece[-1] == 0x27 else Kind.WORD
    if cls == _D:
        if piece == b".":
            return Kind.OPERATOR
        return Kind.NUMBER if _NUMBER_ALONE.fullmatch(piece) and not dotted else Kind.WORD
    if cls == _S:
        return Kind.NAME if piece[0] == 0x22 and dialect.ansi_quotes else Kind.STRING
    if cls == _V:
        return Kind.SYSTEM_VARIABLE if piece[:2] == b"@@" else Kind.USER_VARIABLE
    if cls == _C:
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
            most = _MOST_ARGUMENTS if is_call else 1
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
    signed = listed == b"?" and len(kept) > 2 and kept[-1].text in _SIGNS
    return 2 if signed and kept[-2].text == b"," else 0


def _repeats_row_of(kept: Sequence[Token]) -> bool:
    if len(kept) < 6:
        return False
    first, listed = _LISTED_AS.get(kept[-5].kind), _LISTED_AS.get(kept[-1].kind)
    opens = kept[-2].text == b"(" == kept[-6].text
    return first is not None and first == listed and opens and kept[-3].text == b","


_NAMES = (Kind.WORD, Kind.NAME)
_LISTED_AS = {Kind.STRING: b"?", Kind.NUMBER: b"?", Kind.PARAMETER: b"??"}
_LIST_WORDS = frozenset(map(_decode, _LISTS_FOLLOW))
_WORDS_WHOSE_LITERALS_DO_NOT_MATTER = frozenset(map(_decode, _LITERALS_DO_NOT_MATTER))
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
