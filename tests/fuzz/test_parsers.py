"""Any bytes, cut anywhere: parsers fail as they promise, and chunks make no difference."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.errors import SqlSyntaxError
from sqlcache.mysql.constants import Command
from sqlcache.sql.analysis import analyse
from sqlcache.sql.lexer import lex
from sqlcache.sql.pieces import Dialect
from tests.fuzz.harness import mutations
from tests.fuzz.parsers import PARSERS, SEEDS, cut, followed, replies, response

_ALL = [(group, name) for group, parsers in PARSERS.items() for name in parsers]
_OK, _MORE = b"\0\0\0\2\0\0\0", b"\0\0\0\x0a\0\0\0"
_COLUMN, _EOF = b"\3def" + bytes(18), b"\xfe\0\0\2\0"

row = st.binary(min_size=1, max_size=40).filter(lambda data: data[0] < 0xFB)
result_set = st.lists(row, max_size=5).map(lambda rows: (b"\1", _COLUMN, _EOF, *rows, _EOF))


@pytest.mark.parametrize(("group", "name"), _ALL)
@given(data=st.binary(max_size=200))
def test_any_bytes_fail_only_as_promised(group: str, name: str, data: bytes) -> None:
    PARSERS[group][name](data)


@pytest.mark.parametrize(("group", "name"), _ALL)
def test_nearly_right_bytes_fail_only_as_promised(group: str, name: str) -> None:
    for data in islice(mutations(Random(7), SEEDS[group]), 500):
        PARSERS[group][name](data)


@given(result_set, st.lists(st.integers(1, 30)))
def test_a_response_ends_where_it_ends_however_it_is_cut(
    payloads: tuple[bytes, ...], lengths: list[int]
) -> None:
    data = response(_MORE, *payloads)
    ends, used, offsets, done, *_ = followed(cut(data, lengths), Command.QUERY, 0)
    assert (len(ends), used, done) == (2, len(data), True)
    assert all(data[at : at + 2] in (b"\2\0", b"\x0a\0") for at in offsets)


@given(st.lists(st.binary(max_size=60), min_size=1), st.lists(st.integers(1, 30)))
def test_memcacheds_values_are_what_it_sent_however_it_is_cut(
    values: list[bytes], lengths: list[int]
) -> None:
    data = b"".join(b"VA %d c1\r\n%b\r\nEN\r\n" % (len(value), value) for value in values)
    found, refused = replies(cut(data, lengths))
    assert not refused
    assert [reply[1] for reply in found if reply[0] == b"VA"] == values


_HEADS = [
    *(b"", b"SELECT ", b"SELECT a FROM t ", b"SELECT a FROM t WHERE ", b"INSERT INTO t VALUES "),
    *(b"SET ", b"WITH "),
]
_REPEATED = [
    *(b"'", b"`", b"/*", b"(", b"@@a.", b"--", b"\\", b"\\'", b"a.", b"a.`", b"1e", b"$", b",1"),
    *(b"(1),", b"/*!*/", b"@'a' ", b"a=1,", b"JOIN t ", b"a,t ", b"CASE ", b"NOT ", b"EXPLAIN "),
    *(b"(SELECT ", b"SELECT a FROM t,", b"WITH a AS (", b"; ", b"UNION SELECT a FROM t ", b"a("),
]


def _cpu_s(work: Callable[[bytes], None], text: bytes) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


@pytest.mark.parametrize("head", _HEADS)
def test_the_time_a_text_takes_grows_no_faster_than_the_text(head: bytes) -> None:
    """Four times the text takes four times as long, sixteen times if the work is quadratic."""

    def work(text: bytes) -> None:
        with contextlib.suppress(SqlSyntaxError):
            lex(text, Dialect())
        analyse(text, Dialect())

    for repeated in _REPEATED:
        once, longer = head + repeated * 1000, head + repeated * 4000
        for _ in range(3):
            ratio = _cpu_s(work, longer) / max(_cpu_s(work, once), 0.005)
            if ratio < 9:
                break
        else:
            pytest.fail(f"{ratio:.0f} times as long for {head!r} and many {repeated!r}")
