"""The forms of a text: its shape, and its canonical text.

- Two texts with equal `shape` have the same analysis.
- Two texts with equal `canonical` have the same answer in the same session, names of columns
  included. MySQL names an unaliased expression after its raw text, comments and white space and
  all, so a select list is kept as it was sent. Neither form is SQL any more: never send it.

A versioned comment (`/*!50000 ... */`, `/*M! ... */`) is code: it is one token, in both forms as
it is. So is a hint (`/*+ ... */`). Other comments count as white space, except that one starting
with `sqlcache:` is a directive: kept in the shape, since it changes the analysis, and left out of
the canonical text, since the server does not hear it.
"""

from collections.abc import Sequence

from sqlcache.sql.pieces import (
    AFTER_WORD,
    AT_ONCE,
    CLASS,
    COMMENT,
    GAP,
    MARKER,
    NAME,
    NUMBER,
    NUMBER_ALONE,
    OPERATOR,
    STRING,
    WORD,
    Dialect,
    directive,
    is_directive,
    is_gap,
)

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
SIGNS = (b"-", b"+")
"""That may stand before a literal, and are part of it."""
_LITERAL, _PARAMETER = b"?", b"??"
_ROWS = (b"(", b"ROW(", b"VALUES(", b"VALUE(")
LISTS_FOLLOW = frozenset((b"IN", b"VALUES", b"VALUE", b"ROW"))
"""Words whose parentheses hold lists: of any length they mean the same."""
MOST_ARGUMENTS = 8
"""Of a function that does not take any number of them."""
_BEFORE_SIGN = (b"(", b",", b"=", b"<", b">")  # what an item before a sign ends with
LITERALS_DO_NOT_MATTER = frozenset(
    b"SELECT WITH TABLE VALUES INSERT REPLACE UPDATE DELETE CALL DO HANDLER".split()
)
"""What statements begin with whose literals do not decide their analysis, as those of SET, PREPARE,
XA and their like may."""
STUBS = {0x27: b"''", **dict.fromkeys(b"0123456789", b"0")}
"""What stands for any literal that begins with this byte, where these are left out."""


def normalised(pieces: Sequence[bytes], dialect: Dialect) -> bytes:
    """The statement as people name it: its shape, with parameters as literals and no directives.

    What it gives is itself the text of a statement with this normal form.
    """
    plain = [b"1" if piece == b"?" else piece for piece in pieces]
    return forms_of([b" " if is_directive(piece) else piece for piece in plain], dialect)[0]


def forms_of(pieces: list[bytes], dialect: Dialect) -> tuple[bytes, bytes, tuple[int, ...]]:
    """Shape, canonical text and `Lexed.runs`, in one walk.

    Both forms are lists of items joined by one blank. What changes the meaning when white space is
    put before or after it, a parenthesis after a word and a dot, is glued to the item before it.
    """
    forms = _Forms(pieces, dialect)
    forms.read()
    shape, canonical = forms.shape, forms.canonical
    if forms.last == b";":
        _end_statement(pieces, shape.items, canonical)
    return _joined(b" ", shape.items), _joined(b" ", canonical), tuple(shape.runs)


class _Forms:
    """The forms of these pieces, as they are read one by one."""

    __slots__ = ("_after_word", "_depth", "_dialect", "_dotted", "_gap", "_list_at", "_list_depth",
                 "_pieces", "canonical", "last", "shape")  # fmt: skip

    def __init__(self, pieces: list[bytes], dialect: Dialect) -> None:
        self._pieces = pieces
        self._dialect = dialect
        self.shape = _Shape(folds=literals_do_not_matter(pieces))
        self.canonical: list[_Item] = []
        self.last = b""
        """The last piece that is no gap."""
        self._dotted = False  # whether that is a dot
        self._after_word = False  # whether a parenthesis after it may be a call's
        self._gap = True  # whether a gap follows it
        self._depth = 0
        self._list_at = 0  # where the select list begins that is being read; 0 in none
        self._list_depth = 0  # the depth of its SELECT

    def read(self) -> None:
        """Reads them all. Each call in it costs a tenth of it, so few are made for one piece."""
        ansi_quotes = self._dialect.ansi_quotes
        for at, piece in enumerate(self._pieces):
            cls = CLASS[piece[0]]
            if cls == GAP:
                self._gap = True
                continue
            if cls == OPERATOR:
                if piece == b"(":
                    self._open(piece)
                elif piece == b")":
                    self._close(at, piece)
                else:
                    if piece == b";":
                        self._end_list(at)
                    self._add(piece)
            elif cls == WORD:
                self._word(at, piece)
            elif cls == NUMBER:
                self._number(piece)
            elif cls == STRING and not (ansi_quotes and piece[0] == 0x22):
                self._literal(piece)
            elif cls == MARKER:
                self._parameter(piece)
            elif cls == COMMENT and is_gap(piece):
                self._comment(piece)
                continue
            else:
                self._add(piece)
                self._after_word = cls in AFTER_WORD
            self._gap = False
            self.last = piece
        self._end_list(len(self._pieces))

    def _add(self, piece: bytes) -> None:
        """Adds a piece to both forms as it is."""
        if self._dotted and not self._gap:
            self._glue(piece)
        else:
            self.shape.items.append(piece)
            if not self._list_at:
                self.canonical.append(piece)
        self._after_word = self._dotted = False

    def _glue(self, piece: bytes) -> None:
        """Adds a piece to the last item of both."""
        for form in (self.shape.items,) if self._list_at else (self.shape.items, self.canonical):
            if len(form[-1]) > _LONG_BYTES and isinstance(form[-1], bytes):
                form[-1] = bytearray(form[-1])
            form[-1] += piece

    def _add_canonical(self, piece: bytes) -> None:
        """Adds a piece to the canonical text alone, outside of select lists."""
        if self._dotted and not self._gap:
            self.canonical[-1] += piece
        else:
            self.canonical.append(piece)

    def _end_list(self, at: int) -> None:
        """The select list, if one is being read, ends before this piece."""
        if self._list_at:
            _close_list(self._pieces[self._list_at : at], self.canonical, self._dialect)
            self._list_at = 0

    def _open(self, piece: bytes) -> None:
        self._depth += 1
        self.shape.open(self._after_word and self.last.upper() not in LISTS_FOLLOW)
        if self._after_word and not self._gap:
            self._glue(piece)
            self._after_word = self._dotted = False
        else:
            self._add(piece)

    def _close(self, at: int, piece: bytes) -> None:
        self._depth -= 1
        if self._depth < self._list_depth:
            self._end_list(at)
        self._add(piece)
        self.shape.close()

    def _word(self, at: int, piece: bytes) -> None:
        if piece[-1] == 0x27:  # such as N'x'
            self._literal(piece)
            return
        if self._dotted:  # even a reserved one is a name there
            self._add(piece)
            self._after_word = True
            return
        word = piece.upper()
        if word in _LIST_ENDS and self._depth == self._list_depth:
            self._end_list(at)
        item = word if word in _RESERVED else piece
        if item in _CONSTANTS:
            self.shape.add_constant(item)
        else:
            self.shape.items.append(item)
        if not self._list_at:
            self.canonical.append(item)
            if item in _LISTS:
                self._list_at, self._list_depth = at + 1, self._depth
        self._after_word = True

    def _number(self, piece: bytes) -> None:
        if piece == b".":
            if self._gap:
                self._add(piece)
            else:
                self._glue(piece)
            self._after_word = self._dotted = True
        elif self._dotted or NUMBER_ALONE.fullmatch(piece) is None:
            self._add(piece)
            self._after_word = True
        else:
            self._literal(piece)

    def _literal(self, piece: bytes) -> None:
        if not self.shape.folds:
            self._add(piece)
            return
        if not self._list_at:
            self._add_canonical(piece)
        self.shape.add_literal()
        self._after_word = self._dotted = False

    def _parameter(self, piece: bytes) -> None:
        if not self._list_at:
            self._add_canonical(piece)
        if self.shape.folds:
            self.shape.add_parameter()
        elif self._dotted and not self._gap:
            self.shape.items[-1] += piece
        else:
            self.shape.items.append(_PARAMETER)
        self._after_word = self._dotted = False

    def _comment(self, piece: bytes) -> None:
        self._gap = True
        if b"sqlcache:" in piece and (said := directive(piece)) is not None:
            self.shape.items.append(b"/*sqlcache:" + said + b"*/")
            self._after_word = self._dotted = False


class _Shape:
    """The items of a shape. If it `folds`, its literals are left out, and one literal or parameter
    stands for all that follow it in a list, as does one row of one."""

    __slots__ = ("_closed", "_most", "_outer", "_run", "folds", "items", "runs")

    def __init__(self, *, folds: bool) -> None:
        self.folds = folds
        self.items: list[_Item] = []
        self.runs: list[int] = []
        """See `Lexed.runs`."""
        self._run = 0  # how many like the last item have come in the list being read
        self._most = 1  # how many of them are kept
        self._outer: list[int] = []  # the same of the lists that it is in
        self._closed = -1  # where the last list ended that is no call's

    def open(self, is_call: bool) -> None:
        """A list begins, perhaps a call's arguments."""
        self._outer.append(self._most)
        self._most = MOST_ARGUMENTS if is_call else 1

    def close(self) -> None:
        """The list has ended with its parenthesis; it goes if it is a row like the one before."""
        is_row = self._most == 1
        self._most = self._outer.pop() if self._outer else 1
        items = self.items
        if not is_row or not self.folds or items[-1] != b")":
            return
        if self._most == 1 and 2 < self._closed == len(items) - 4 and self._repeats_row():
            if items[-2] == _PARAMETER:
                self.runs[-2:] = [self.runs[-2] + self.runs[-1]]
            del items[-4:]
        self._closed = len(items)

    def _repeats_row(self) -> bool:
        before, item, _, comma, opens, again, _ = self.items[-7:]
        return (
            again in (_LITERAL, _PARAMETER)
            and (opens == b"(" or (opens in _ROWS and again == _LITERAL))
            and comma == b","
            and item == again
            and before[-1:] == b"("
        )

    def add_literal(self) -> None:
        """Adds a literal, and its sign goes into it."""
        items = self.items
        if len(items) > 1 and items[-1] in SIGNS and items[-2][-1:] in _BEFORE_SIGN:
            items.pop()
        self._add(_LITERAL)

    def add_constant(self, word: bytes) -> None:
        """Adds a word such as NULL: a literal where it begins an item of a list."""
        before = self.items[-1] if self.items else b""
        if self.folds and (before == b"," or before[-1:] == b"("):
            self._add(_LITERAL)
        else:
            self.items.append(word)

    def add_parameter(self) -> None:
        """Adds a parameter."""
        if self._add(_PARAMETER):
            self.runs.append(1)
        else:
            self.runs[-1] += 1

    def _add(self, item: bytes) -> bool:
        """Adds an item of a list, if more like it are kept than have come; whether it has."""
        items = self.items
        goes_on = len(items) > 1 and items[-1] == b"," and items[-2] == item
        self._run = self._run + 1 if goes_on else 1
        if self._run > self._most:
            items.pop()  # the comma
            return False
        items.append(item)
        return True


def _joined(between: bytes, items: Sequence[_Item]) -> bytes:
    if len(items) <= AT_ONCE:
        return between.join(items)
    parts = [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]
    return between.join([between.join(part) for part in parts])


def _end_statement(pieces: list[bytes], shape: list[_Item], canonical: list[_Item]) -> None:
    """Takes the semicolons off that a text ends in. MySQL does, too, but none that stands before a
    comment, which is a statement of its own to it."""
    while shape and shape[-1] == b";":
        shape.pop()
    for piece in reversed(pieces):
        if piece == b";" and canonical[-1:] == [b";"]:
            canonical.pop()
        elif CLASS[piece[0]] != GAP:
            break


def literals_do_not_matter(pieces: Sequence[bytes]) -> bool:
    """Whether a text of these is one statement, and has the same shape with other literals."""
    first = next((piece for piece in pieces if CLASS[piece[0]] == WORD), b"")
    if first.upper() not in LITERALS_DO_NOT_MATTER:
        return False
    if b";" not in pieces:
        return True
    after = pieces[pieces.index(b";") + 1 :]
    return all(piece == b";" or is_gap(piece) for piece in after)


def _close_list(raw: list[bytes], canonical: list[_Item], dialect: Dialect) -> None:
    """Ends a select list: its raw text without what surrounds it becomes one item.

    Where MySQL skips white space to see whether a parenthesis follows a word, that white space is
    part of the column's name.
    """
    if not dialect.ignore_space and (columns := _columns(raw)) is not None:
        canonical.append(columns)
        return
    start, end = 0, len(raw)
    while start < end and is_gap(raw[start]):
        start += 1
    while end > start and not dialect.ignore_space and is_gap(raw[end - 1]):
        end -= 1
    if start < end:
        canonical.append(_joined(b"", raw[start:end]))


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
        elif (cls := CLASS[piece[0]]) == NAME or (cls == WORD and piece[-1] != 0x27):
            words += not dotted
            is_as = words == 2 and piece.upper() == b"AS"
            if words > 3 or (words == 2 and not dotted and not is_as):
                return None
            columns.append(b" AS " if is_as else piece)
        elif is_gap(piece):
            continue
        else:
            return None
        dotted = piece == b"."
    return _joined(b"", columns)
