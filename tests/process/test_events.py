import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from sqlcache.process import logs
from sqlcache.process.events import LONGEST, MOST, Events, Seldom, merged


@pytest.fixture
def events() -> Events:
    return Events(logs.fields_of)


@pytest.fixture
def part(events: Events) -> Iterator[logging.Logger]:
    """A logger of sqlcache's own whose lines are kept."""
    logger = logging.getLogger("sqlcache.proxy.admission")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(events)
    yield logger
    logger.removeHandler(events)
    logger.setLevel(level)


def test_a_line_is_an_event_with_its_fields_and_when_it_was(
    events: Events, part: logging.Logger
) -> None:
    part.info("login failed client=%s code=%s", "10.0.0.7:51034", 1045)
    part.warning("first now", extra={"kind": "root"})
    part.debug("not kept")
    newest, before = events.report()
    assert (newest["kind"], newest["event"]) == ("root", "first now")
    assert before["kind"] == "login"
    assert before["event"] == "login failed: client 10.0.0.7:51034, code 1045"
    at = datetime.fromisoformat(before["at"])
    assert before["at"].endswith("Z")
    assert abs((datetime.now(UTC) - at).total_seconds() - before["s_ago"]) < 1
    assert newest["at"] >= before["at"]


def test_a_traceback_is_its_error_s_name_and_a_call_that_is_wrong_is_kept_as_it_is(
    events: Events, part: logging.Logger
) -> None:
    try:
        raise ValueError("a secret")
    except ValueError:
        part.exception("failed")
    events.handle(logging.LogRecord("sqlcache", logging.INFO, "", 0, "one of=%s", (1, 2), None))
    wrong, failed = events.report()
    assert failed["event"] == "failed: error ValueError"
    assert wrong["event"] == "one of=%s"


def test_a_flood_of_one_kind_leaves_what_else_there_was(
    events: Events, part: logging.Logger
) -> None:
    part.warning("of the root", extra={"kind": "root"})
    for number in range(3 * MOST):
        part.info("login failed number=%d text=%s", number, "x" * 2 * LONGEST)
    told = events.report()
    assert len(told) == MOST
    assert told[0]["event"].startswith(f"login failed: number {3 * MOST - 1}")
    assert told[-1]["event"] == "of the root"
    assert all(len(each["event"]) <= LONGEST for each in told)


def test_those_of_several_processes_are_one_list_the_newest_first() -> None:
    reports = [
        [{"at": f"2026-11-24T09:15:0{second}.000000Z", "pid": pid} for second in seconds]
        for pid, seconds in ((1, (7, 3, 1)), (2, (5, 2)))
    ]
    assert [each["pid"] for each in merged(reports)] == [1, 2, 1, 2, 1]
    assert len(merged([[{"at": str(n)} for n in range(MOST)]] * 3)) == MOST


def test_what_may_happen_all_the_time_is_told_once_in_a_while() -> None:
    seldom = Seldom(every_s=60)
    assert [seldom.says(what) for what in ("a", "a", "b", "a")] == [True, False, True, False]
    at_once = Seldom(every_s=0)
    assert [at_once.says("a") for _ in range(2)] == [True, True]
    assert sum(seldom.says(f"{number}") for number in range(10_000)) < 1_000
    assert len(seldom._said_at) < 1_000
