import pytest
from starlette.requests import Request

from sqlcache.admin.access import Access
from sqlcache.settings import HostPort

HERE, ANYWHERE = HostPort("127.0.0.1", 9307), HostPort("0.0.0.0", 9307)
TOKEN = "a-long-token"
JSON = {"content-type": "application/json"}


def request(method: str = "GET", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    return Request({"type": "http", "method": method, "path": "/api/summary", "headers": raw})


def status(access: Access, asked: Request) -> int | None:
    refused = access.refusal(asked)
    return None if refused is None else refused.status


@pytest.mark.parametrize("host", ["127.0.0.1:9307", "localhost:9307", "[::1]:9307", "127.0.0.9"])
def test_without_a_token_this_machine_may_ask(host: str) -> None:
    assert status(Access(HERE, None), request(host=host)) is None


@pytest.mark.parametrize("host", ["example.com", "example.com:9307", "", "10.0.0.1", "[::1", "a@b"])
def test_a_name_of_elsewhere_that_leads_here_is_refused(host: str) -> None:
    assert status(Access(HERE, None), request(host=host)) == 403


def test_without_a_token_a_door_for_others_too_says_which_setting_is_missing() -> None:
    refused = Access(ANYWHERE, None).refusal(request(host="127.0.0.1:9307"))
    assert refused is not None
    assert refused.status == 403
    assert "admin.token" in refused.sentence


@pytest.mark.parametrize("listen", [HERE, ANYWHERE])
def test_with_a_token_only_who_has_it_may_ask(listen: HostPort) -> None:
    access = Access(listen, TOKEN)
    for right in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN}"):
        assert status(access, request(host="sqlcache:9307", authorization=right)) is None
    for wrong in ("", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ", "Basic x"):
        assert status(access, request(host="127.0.0.1", authorization=wrong)) == 401
    assert status(access, request(host="127.0.0.1")) == 401


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_page_from_elsewhere_can_change_nothing(token: str | None) -> None:
    access = Access(HERE, token)
    told = {"host": "127.0.0.1:9307", "authorization": f"Bearer {TOKEN}"}

    def post(content_type: str = "application/json", **more: str) -> int | None:
        return status(access, request("POST", content_type=content_type, **told, **more))

    assert post() is None
    assert post("application/json; charset=utf-8") is None
    assert post(origin="http://127.0.0.1:9307") is None
    assert post(origin="http://example.com") == 403
    assert post(origin="http://127.0.0.1:8080") == 403
    assert post(origin="null") == 403
    assert post(origin="http://[127.0.0.1:9307") == 403
    for form in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"):
        assert post(form) == 415
