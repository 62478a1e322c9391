"""What is told of a server at each reading of its catalog."""

from typing import Any

import pytest

from sqlcache.metrics import Metrics
from sqlcache.plan.server_watch import ServerWatch
from sqlcache.plan.variables import NEW_SESSIONS_RIGHTS
from sqlcache.sql.catalog.server import Server

ENGINE: Any = None
LOOKS = 600


def rights_of(*accounts: int) -> str:
    rows = frozenset(("%", f"tenant_{each}", "%", "app_role") for each in accounts)
    server = Server(flavour="mysql", version=(9, 7), lower_case_table_names=0, rights=rows)
    told = ServerWatch(ENGINE, Metrics(), None).inherited(server, ())
    return dict(told)[NEW_SESSIONS_RIGHTS]


def restarts(*looks: tuple[float, float] | tuple[float, float, str]) -> list[int]:
    """At which looks a server is taken for another, or for one that has begun anew. At each it
    seems to have begun between two times, and is called so."""
    watch = ServerWatch(ENGINE, Metrics(), None)
    servers = [
        Server(
            flavour="mysql",
            version=(9, 7),
            lower_case_table_names=0,
            began=(earliest, latest),
            identity=next(iter(called), ""),
        )
        for earliest, latest, *called in looks
    ]
    pairs = zip([servers[0], *servers], servers, strict=False)
    why = [watch.why_everything(before, server, around=False) for before, server in pairs]
    return [place for place, each in enumerate(why) if each]


def test_what_tells_rights_from_others_is_as_short_for_any_number_of_accounts() -> None:
    """It is hashed for each session, whenever that logs in or changes its settings."""
    assert len(rights_of(*range(10_000))) == len(rights_of(1)) < 100
    assert rights_of(1, 2) == rights_of(2, 1) != rights_of(1)


def test_a_server_has_begun_anew_if_it_began_later() -> None:
    assert restarts((99, 100), (99.5, 100.5), (109, 110), (109, 110)) == [2]


@pytest.mark.parametrize("by_s", [-7_200, 7_200])
def test_or_if_its_clock_was_set_since_either_way(by_s: int) -> None:
    """A host that has crashed begins with a clock that is put right when the server has begun."""
    assert restarts((99, 100), (109 - by_s, 110 - by_s), (109 - by_s, 110 - by_s)) == [1]


@pytest.mark.parametrize("began", [10.0, 100.0, 190.0])
def test_another_one_is_told_once(began: float) -> None:
    one, other = (99.0, 100.0, "one"), (began - 1, began, "other")
    assert restarts(one, one, other, other) == [2]


@pytest.mark.parametrize("by_s", [-0.15, 0.15])
def test_clocks_that_drift_are_no_new_beginning(by_s: float) -> None:
    """As much as they may in five minutes, at each look; nor do they hide one."""
    drifted = [(99 + by_s * look, 100 + by_s * look) for look in range(LOOKS)]
    earliest, latest = drifted[-1]
    assert restarts(*drifted, (earliest + 4, latest + 4)) == [LOOKS]


def test_an_answer_that_came_late_is_no_new_beginning_and_hides_none() -> None:
    """Neither one, nor many of them in a row, nor by clocks that have drifted a little."""
    late, drifted = (95.0, 140.0), (100.5, 140.0)
    assert restarts((99, 100), late, (99, 100), (104, 105)) == [3]
    assert restarts((99, 100), *[late] * LOOKS, (104, 105)) == [LOOKS + 1]
    assert restarts((99, 100), drifted, (104, 105)) == [2]
