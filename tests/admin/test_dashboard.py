"""The dashboard's files, as the door hands them out; what a browser makes of them is in
`tests/dashboard/`."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from sqlcache.admin import dashboard

STATIC = Path(dashboard.__file__).with_name("static")
OWN = [path for path in STATIC.iterdir() if path.is_file()]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Starlette(routes=list(dashboard.routes())))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_the_page_and_all_that_it_names_are_there(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:href|src)="(/[^"]*)"', answer.text)
    assert len(named) > 5, "else this shows nothing"
    modules = [
        f"/static/{name}"
        for path in STATIC.glob("*.js")
        for name in re.findall(r'from "\./([^"]+)"', path.read_text())
    ]
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for path in {*named, *modules}:
        said = await client.get(path)
        assert said.status_code == 200, path
        assert said.headers["content-type"].startswith(types[path.rpartition(".")[2]])


async def test_nothing_but_the_doors_own_files_may_run(client: httpx.AsyncClient) -> None:
    for path in ("/", "/static/main.js", "/static/uplot/uPlot.iife.min.js"):
        headers = (await client.get(path)).headers
        policy = dict(
            directive.split(" ", 1) for directive in headers["content-security-policy"].split("; ")
        )
        assert policy.pop("img-src") == "'self' data:"
        assert policy == {
            **dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'"),
            "frame-ancestors": "'none'",
            **dict.fromkeys(("script-src", "style-src", "connect-src"), "'self'"),
        }
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


async def test_a_file_that_is_known_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/static/main.js")
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    again = await client.get("/static/main.js", headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    other = await client.get("/static/list.js", headers={"If-None-Match": etag})
    assert other.status_code == 200


async def test_the_files_are_only_read(client: httpx.AsyncClient) -> None:
    head = await client.head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == (STATIC / "index.html").stat().st_size
    refused = await client.post("/")
    assert (refused.status_code, set(refused.headers["allow"].split(", "))) == (
        405,
        {"GET", "HEAD"},
    )


@pytest.mark.parametrize(
    "path",
    ["/static", "/static/", "/static/../dashboard.py", "/static/%2e%2e/dashboard.py", "/static/x"],
)
async def test_no_other_file_is_to_be_had(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_text_becomes_markup_and_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text()
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    assert re.findall(markup, text) == []
    assert set(re.findall(r"https?://[^\s\"'<>]+", text)) <= {"http://www.w3.org/2000/svg"}
    if path.suffix == ".html":
        assert re.findall(r"<script>|<style|\son\w+=|\sstyle=", text) == []


def test_the_charts_library_keeps_its_licence() -> None:
    said = (STATIC / "uplot" / "LICENSE").read_text()
    assert "MIT License" in said
    assert "Leon Sorokin" in said
    assert b"v1.6.32" in (STATIC / "uplot" / "uPlot.iife.min.js").read_bytes()[:200]
