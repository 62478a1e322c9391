import json

from sqlcache.admin import health


def test_live_is_200() -> None:
    assert health.live().status == 200


def test_ready_is_200_when_nothing_is_missing() -> None:
    response = health.ready({})
    assert response.status == 200
    assert json.loads(response.body) == {"ready": True, "problems": {}}


def test_ready_is_503_and_says_what_is_missing() -> None:
    response = health.ready({"upstream": "refused"})
    assert (response.status, response.content_type) == (503, "application/json")
    assert json.loads(response.body) == {"ready": False, "problems": {"upstream": "refused"}}
