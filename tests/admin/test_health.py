import json

from sqlcache.admin import health
from sqlcache.admin.health import Readiness


def test_live_is_200() -> None:
    assert health.live().status == 200


def test_ready_is_200_when_nothing_is_missing() -> None:
    response = health.ready(Readiness())
    assert response.status == 200
    assert json.loads(response.body) == {"ready": True, "problems": {}, "warnings": {}}


def test_ready_is_503_and_says_what_is_missing() -> None:
    response = health.ready(Readiness({"upstream": "refused"}, {"memcached a:1": "is away"}))
    assert (response.status, response.content_type) == (503, "application/json")
    assert json.loads(response.body) == {
        "ready": False,
        "problems": {"upstream": "refused"},
        "warnings": {"memcached a:1": "is away"},
    }


def test_what_is_merely_wrong_keeps_nobody_from_being_served() -> None:
    response = health.ready(Readiness({}, {"memcached a:1": "is away"}))
    assert response.status == 200
    assert json.loads(response.body)["warnings"] == {"memcached a:1": "is away"}


def test_several_processes_are_ready_while_one_is() -> None:
    away, fine = Readiness({"upstream": "refused"}), Readiness({}, {"catalog": "not read"})
    assert Readiness.of_all([("worker 0", away), ("worker 1", fine)]) == Readiness(
        {}, {"worker 0 upstream": "refused", "worker 1 catalog": "not read"}
    )
    assert Readiness.of_all([("worker 0", away), ("worker 1", away)]) == Readiness(
        {"worker 0 upstream": "refused", "worker 1 upstream": "refused"}
    )
