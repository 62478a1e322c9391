"""For how long the server bears a session's silence."""

import math

import pytest

from sqlcache.plan.silence import longest_s

INF = math.inf


@pytest.mark.parametrize(
    ("own", "seconds"),
    [
        ({"wait_timeout": "5"}, 5.0),
        ({"wait_timeout": "0"}, 1.0),  # as the server takes it
        ({"wait_timeout": "-5"}, 1.0),
        ({"wait_timeout": "9" * 5_000}, INF),
        ({"wait_timeout": "0x10"}, 0.0),
        ({"wait_timeout": "\u0667"}, 0.0),
        ({"wait_timeout": "60", "idle_transaction_timeout": "7"}, 7.0),
        ({"wait_timeout": "60", "idle_transaction_timeout": "00"}, 60.0),
        ({"wait_timeout": "60", "idle_write_transaction_timeout": "-1"}, 60.0),
        ({"wait_timeout": "60", "idle_readonly_transaction_timeout": "FALSE"}, 0.0),
        ({}, INF),
    ],
)
def test_the_shortest_of_its_time_outs_counts(own: dict[str, str], seconds: float) -> None:
    assert longest_s(lambda name: own.get(name, ""), own, {}) == seconds


@pytest.mark.parametrize(
    ("own", "seconds"), [({}, 3.0), ({"wait_timeout": "9"}, 9.0)], ids=["as it began", "set since"]
)
def test_who_is_interactive_begins_with_another(own: dict[str, str], seconds: float) -> None:
    setting = {"wait_timeout": "28800", **own}.__getitem__
    told = longest_s(
        lambda name: setting(name) if name == "wait_timeout" else "",
        own,
        {"interactive_timeout": "3"},
    )
    assert told == seconds
