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
_LISTED = (b"?", b"??")
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
    """Shape, canonical text and `Lexed.runs`, in one walk; long because each call in it costs a
    tenth of it.

    Both forms are lists of items joined by one blank. What changes the meaning when white space is
    put before or after it, a parenthesis after a word and a dot, is glued to the item before it.
    """
    shape: list[_Item] = []
    canonical: list[_Item] = []
    literal = b"?" if literals_do_not_matter(pieces) else b""
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
    quotes = NAME if dialect.ansi_quotes else STRING
    classes = CLASS
    for piece in pieces:
        cls = classes[piece[0]]
        if in_list:
            raw.append(piece)
        if cls == GAP:
            gap = True
            continue
        item = piece
        is_literal = False
        is_word = False
        if cls == WORD:
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
        elif cls == OPERATOR:
            if piece == b"(":
                depth += 1
                outer.append(most)
                is_call = after_word and last.upper() not in LISTS_FOLLOW
                most = MOST_ARGUMENTS if is_call else 1
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
        elif cls == NUMBER:
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
            is_literal = not dotted and NUMBER_ALONE.fullmatch(piece) is not None
        elif cls == STRING:
            is_literal = piece[0] == 0x27 or quotes == STRING
        elif cls == COMMENT and is_gap(piece):
            gap = True
            if b"sqlcache:" in piece and (said := directive(piece)) is not None:
                shape.append(b"/*sqlcache:" + said + b"*/")
                after_word = dotted = False
            continue
        elif cls == MARKER:
            item = b"??"
        if not in_list:
            if dotted and not gap:
                canonical[-1] += piece
            else:
                canonical.append(piece if cls == MARKER else item)
        if cls == MARKER and literal:
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
            if len(shape) > 1 and shape[-1] in SIGNS and shape[-2][-1:] in _BEFORE_SIGN:
                shape.pop()
            run = run + 1 if len(shape) > 1 and shape[-1] == b"," and shape[-2] == literal else 1
            if run > most:
                shape.pop()
            else:
                shape.append(literal)
        elif dotted and not gap:
            shape[-1] += piece
        elif literal and piece == b")" and is_row:
            if most == 1 and 2 < closed == len(shape) - 3 and _repeats_row(shape):
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
        after_word = not is_literal and cls in AFTER_WORD
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
    while start < end and is_gap(raw[start]):
        start += 1
    while end > start and not dialect.ignore_space and is_gap(raw[end - 1]):
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
