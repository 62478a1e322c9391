"""Two answers that are compared while their session is served: what that may cost it."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlcache.cache import entry
from sqlcache.cache.outcomes import Hit
from sqlcache.cache.reads import Freshness, Read
from sqlcache.metrics import Metrics
from sqlcache.mysql.packets import packet
from sqlcache.proxy.checks import Checks
from sqlcache.proxy.comparison import MOST_VALUES
from sqlcache.sql.lexer import Lexed, lex
from sqlcache.sql.pieces import Dialect
from tests.proxy.test_comparison import AB, answer

LONG = "x" * 250


def checked(stored: bytes, fresh: bytes, text: bytes = b"SELECT a, b FROM t") -> str:
    """As what a check of this stored answer counts, when MySQL says this."""
    ((result, _),) = (+all_checked(stored, fresh, text)).items()
    return result


def all_checked(stored: bytes, fresh: bytes, text: bytes, times: int = 1) -> Counter[str]:
    """The same of so many sessions at once."""
    metrics = Metrics()
    checks = Checks(cast(Any, None), metrics, share=1, shadow=True)
    read = SimpleNamespace(may_be_stale=False, freshness=Freshness(60))
    hit = Hit(entry.encode(b"", 0, [], stored), 0)

    async def asked() -> tuple[Lexed, bool]:
        return lex(text, Dialect()), True

    async def check() -> None:
        await checks.compare(cast(Read, read), hit, fresh, asked, deprecate_eof=True)

    async def check_all() -> None:
        await asyncio.gather(*(check() for _ in range(times)))

    asyncio.run(check_all())
    return metrics.verified


def test_answers_with_too_many_values_are_not_comparable_unless_they_are_the_same() -> None:
    rows = [(str(number % 10), LONG) for number in range(MOST_VALUES // len(AB) - 10)]
    one, other = answer(AB, *rows), answer(AB, *rows[::-1])
    assert checked(one, other) == "same"
    rows += rows[:20]
    one, other = answer(AB, *rows), answer(AB, *rows[::-1])
    assert checked(one, one) == "same"
    assert checked(one, other) == "not comparable"


def test_few_wait_for_others_that_are_compared() -> None:
    rows = [(str(number % 10), LONG) for number in range(MOST_VALUES // len(AB) - 10)]
    one, other = answer(AB, *rows), answer(AB, *rows[::-1])
    found = all_checked(one, other, b"SELECT a, b FROM t", times=10)
    assert found["same"] == 4
    assert found["not comparable"] == 6
    assert checked(one, other) == "same"


@pytest.mark.parametrize(
    "stored",
    [
        b"no packet",
        answer(AB, ("1", "x"))[:-1],
        packet(0, b"\x01") + packet(1, b"short") + answer(AB)[-11:],
        packet(0, b"\xfb"),
        b"",
    ],
)
@pytest.mark.parametrize("text", [b"SELECT a, b FROM t", b"SELECT a, b FROM t ORDER BY a"])
def test_what_is_stored_and_cannot_be_read_ends_no_session(stored: bytes, text: bytes) -> None:
    assert checked(stored, answer(AB, ("1", "x")), text) == "not comparable"
