"""Texts that differ in their literals alone are known to do so without the lexer."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.lexer import Lexed, lex, literals_apart
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.shapes import NUMBER, STRING
from tests.kernels import Kernel

# Sessions whose texts are UTF-8 and that may be read so.
DIALECTS = [
    Dialect(ansi_quotes=bool(n & 1), no_backslash_escapes=bool(n & 2), ignore_space=bool(n & 4))
    for n in range(8)
]


@pytest.mark.parametrize(
    ("text", "shape", "literals"),
    [
        ("SELECT c FROM t WHERE id=42", "SELECT c FROM t WHERE id=\1", "42"),
        ("SELECT 1.5, 2., 'a', -3", "SELECT \1, \1, \2, -\1", "1.5,2.,'a',3"),
        ("SELECT 'it''s', '' FROM t1", "SELECT \2, \2 FROM t1", "'it''s',''"),
        ("SELECT `a`.`b1` FROM `a` LIMIT 5", "SELECT `a`.`b1` FROM `a` LIMIT \1", "5"),
        ("SELECT 'é'", "SELECT \2", "'é'"),
        ("SELECT 1e5, t.2, `2`, 2fa", "SELECT 1e5, t.2, `2`, 2fa", ""),
    ],
)
def test_its_literals_are_taken_out(kernel: Kernel, text: str, shape: str, literals: str) -> None:
    assert kernel.without_literals(text.encode()) == (shape.encode(), literals.encode())


@pytest.mark.parametrize(
    "text",
    [
        *("SELECT 'a\\'b'", 'SELECT "a"', "SELECT 1 -- x", "SELECT 1 # x", "SELECT /* x */ 1"),
        *("SELECT x'41'", "SELECT N'a'", "SELECT _utf8'a'", "SELECT 'a", "SELECT @a", "SELECT ?"),
        *("SELECT `a 5`", "SELECT `a", "SELECT é", "SELECT \1", "SELECT 1\0"),
        *("SELECT 1; SELECT 2", "SELECT {d '2020-01-01'}", "SELECT " + "1 + " * 2_000 + "1"),
    ],
)
def test_what_is_not_plain_is_for_the_lexer(kernel: Kernel, text: str) -> None:
    assert kernel.without_literals(text.encode()) is None


def test_bytes_that_are_no_text_are_for_the_lexer(kernel: Kernel) -> None:
    assert kernel.without_literals(b"SELECT '\xff'") is None


PIECES = st.sampled_from(
    [
        *b"SELECT FROM t a1 _x 7 0 12.5 3. .5 1e3 0x1F 'a' '' 'it''s' '7' `n` `n2` `2`".split(),
        *b"x'41' N'a' ( ) , = < - + * / . -- # /* */ @ ? \\ \" ; $ ' ` \1 \2 IN AS LIMIT".split(),
        *b"DATE TRUE NULL count( 2a \xc3\xa9 '\xc3\xa9' \xff".split(),
    ]
)
GAPS = st.sampled_from([b"", b" ", b"\n"])
OTHERS = {NUMBER: [b"0", b"42", b"9.25", b"3."], STRING: [b"''", b"'x'", b"'5, ''6'", b"'a b'"]}


def read(text: bytes, dialect: Dialect) -> Lexed | None:
    try:
        return lex(text, dialect)
    except SqlSyntaxError:
        return None


@given(st.lists(st.tuples(PIECES, GAPS), max_size=14), st.randoms())
def test_all_texts_of_a_shape_are_read_alike(
    kernel: Kernel, pieces: list[tuple[bytes, bytes]], chance: Random
) -> None:
    """If one's literals are those that the lexer finds, so are all others', and what is left is
    the same."""
    text = b"".join(piece + gap for piece, gap in pieces)
    found = kernel.without_literals(text)
    if found is None:
        return
    shape, told = found
    bytes_ = (shape[at : at + 1] for at in range(len(shape)))
    other = b"".join(chance.choice(OTHERS.get(byte, [byte])) for byte in bytes_)
    split = kernel.without_literals(other)
    assert split is not None
    assert split[0] == shape
    for dialect in DIALECTS:
        one, two = read(text, dialect), read(other, dialect)
        apart = None if one is None else literals_apart(one)
        if one is None or apart is None or apart.literals != told:
            continue
        assert two is not None
        assert literals_apart(two) == (apart.canonical, split[1], apart.alike)
        assert not apart.alike or (two.shape, two.runs) == (one.shape, one.runs)


@given(st.lists(PIECES, max_size=12), st.lists(PIECES, max_size=12))
def test_the_parts_tell_texts_apart_as_canonical_forms_do(
    one: list[bytes], other: list[bytes]
) -> None:
    for dialect in DIALECTS[:2]:
        first, second = (read(b" ".join(pieces), dialect) for pieces in (one, other))
        if first is not None and second is not None:
            same = first.canonical == second.canonical
            assert (literals_apart(first)[:2] == literals_apart(second)[:2]) == same
