"""The two implementations of the kernel say the same, and SQLCACHE_IMPL which of them runs."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache import __version__
from sqlcache.kernel import __all__ as names
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES
from sqlcache.mysql.scan import OLD_END_BYTES
from tests.fuzz.harness import mutations
from tests.fuzz.parsers import SEEDS
from tests.kernels import Kernel, Pure, compiled
from tests.mysql.test_response import RESPONSES, stream

PURE: Kernel = Pure()
TEXTS = (*SEEDS["lexer"], b"SELECT `a` FROM t1 WHERE b = 'it''s' AND c IN (1, 2.5, 3) LIMIT 5")


@pytest.fixture(scope="module")
def fast() -> Kernel:
    return compiled()


def assert_alike_on_a_response(fast: Kernel, data: bytes, at: int) -> None:
    for new in (False, True):
        assert fast.scan(data, deprecate_eof=new) == PURE.scan(data, deprecate_eof=new)
    for end_bytes in (OLD_END_BYTES, MAX_PAYLOAD_BYTES):
        rows = fast.step_over_rows(data, at, end_bytes)
        assert rows == PURE.step_over_rows(data, at, end_bytes)


@given(st.binary(max_size=100), st.integers(0, 120))
def test_any_bytes_are_walked_alike(fast: Kernel, data: bytes, at: int) -> None:
    assert_alike_on_a_response(fast, data, at)
    assert fast.without_literals(data) == PURE.without_literals(data)


def test_nearly_right_responses_are_walked_alike(fast: Kernel) -> None:
    seeds = tuple(stream(*payloads) for _, _, payloads in RESPONSES.values())
    for data in islice(mutations(Random(7), seeds), 10_000):
        assert_alike_on_a_response(fast, data, 0)


def test_nearly_right_texts_are_split_alike(fast: Kernel) -> None:
    for text in islice(mutations(Random(7), TEXTS), 10_000):
        assert fast.without_literals(text) == PURE.without_literals(text)


@given(st.text("'`.,1a -\\/*é\x01#", max_size=12))
def test_all_that_quotes_and_numbers_can_be_is_split_alike(fast: Kernel, text: str) -> None:
    assert fast.without_literals(text.encode()) == PURE.without_literals(text.encode())


@pytest.mark.parametrize("piece", [b"1 ", b"1,", b"'',", b"'a',", b"''", b"`a`", b"'\xc3\xa9'+"])
def test_texts_as_long_as_they_may_be_are_split_alike(fast: Kernel, piece: bytes) -> None:
    for size in (4_095, 4_096, 4_097):
        text = (piece * size)[:size]
        assert fast.without_literals(text) == PURE.without_literals(text)


@pytest.mark.parametrize("name", names)
def test_what_is_no_bytes_is_refused(fast: Kernel, name: str) -> None:
    for other in (None, "text", bytearray(b"\0" * 20), 5):
        with pytest.raises(TypeError):
            getattr(fast, name)(other, **{"deprecate_eof": True} if name == "scan" else {})


def run(wanted: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "SQLCACHE_IMPL"}
    if wanted is not None:
        environment["SQLCACHE_IMPL"] = wanted
    command = [sys.executable, "-m", "sqlcache", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    ("wanted", "runs"),
    [(None, "compiled"), ("", "compiled"), ("compiled", "compiled"), ("pure", "pure")],
)
def test_a_variable_says_which_runs(wanted: str | None, runs: str) -> None:
    assert run(wanted, "--version").stdout == f"sqlcache {__version__} ({runs})\n"


@pytest.mark.parametrize("command", ["--version", "check-config", "serve"])
def test_another_value_is_refused_by_its_name(command: str) -> None:
    flags = ["--upstream", "mysql://cat@127.0.0.1:1", "--memcached", "memory"]
    said = run("fast", command, *(flags if command != "--version" else ()))
    assert said.returncode == 2
    assert said.stderr == (
        "sqlcache: SQLCACHE_IMPL = fast: expected compiled or pure, or nothing\n"
    )
