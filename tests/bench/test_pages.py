"""What is asked of a page before it is measured, and what its rows tell."""

import re
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

import pytest

from tests import fetched
from tests.bench import pages
from tests.bench.pace import QUICK
from tests.bench.page_client import SITE_HOST, Client, Page, Site, WrongPage, check, load
from tests.bench.page_wordpress import Programs
from tests.bench.results import Result, Row
from tests.bench.tables import of_pages
from tests.fetched import NotFetched

FRONT = Page("front", "/", b"hello")
MINE = Page("mine", "/mine", b"hello", signed_in=True)
NOTHING = re.compile(rb"(?!)")


class _Shop(BaseHTTPRequestHandler):
    """Shows `/` to all, and `/mine` to those with the cookie that a sign-in gives."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/login":
            field = b'<input type="hidden" name="csrfmiddlewaretoken" value="t0ken">'
            return self._answer(200, field, "seen=1; Path=/")
        signed_in = self.headers.get("Cookie") == "seen=1; session=2"
        mine = self.path == "/mine" and signed_in and self.headers["Host"] == SITE_HOST
        return self._answer(200 if mine or self.path == "/" else 302, b"hello")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {"csrfmiddlewaretoken": ["t0ken"], "name": ["me & you"]}
        right = parse_qs(body) == form and self.headers.get("Cookie") == "seen=1"
        return self._answer(302 if right else 200, b"", "session=2; HttpOnly")

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: bytes, cookie: str = "") -> None:
        self.send_response(status)
        if cookie:
            self.send_header("Set-Cookie", cookie)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def shop() -> Iterator[Site]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Shop) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Site(server.server_port)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("direct", "through", "complaint"),
    [
        (b"hello\none", b"hello\ntwo", "line 2: through sqlcache b'two', directly b'one'"),
        (b"hello\none", b"hello", "line 2: through sqlcache it ends, directly b'one'"),
    ],
)
def test_a_page_that_is_another_through_sqlcache_is_not_measured(
    direct: bytes, through: bytes, complaint: str
) -> None:
    with pytest.raises(WrongPage, match=re.escape(complaint)):
        check(FRONT, direct, through, NOTHING)


def test_a_page_may_have_what_is_new_in_each_answer() -> None:
    check(FRONT, b"hello, nonce=1a", b"hello, nonce=2b", re.compile(rb"(?<=nonce=)\w+"))


def test_a_page_that_shows_something_else_is_an_error(shop: Site) -> None:
    client = Client(shop)
    with pytest.raises(WrongPage, match=r"front \(/\) does not show b'bye'"):
        client.fetch(FRONT._replace(shows=b"bye"))
    client.close()


def test_one_who_signs_in_sees_more(shop: Site) -> None:
    client = Client(shop)
    with pytest.raises(WrongPage, match=r"mine \(/mine\): status 302"):
        client.fetch(MINE)
    signed_in = client.sign_in("/login", {"name": "me & you"})
    client.close()
    assert signed_in == Site(shop.port, "seen=1; session=2")
    assert len(load(signed_in, lambda: MINE, 4, 0.05)) >= 4


def test_a_sign_in_that_fails_is_told(shop: Site) -> None:
    client = Client(shop)
    with pytest.raises(WrongPage, match="nobody is signed in: status 200"):
        client.sign_in("/login", {"name": "somebody else"})
    client.close()


def test_an_error_of_any_client_is_told_by_the_load(shop: Site) -> None:
    with pytest.raises(WrongPage, match="status 302"):
        load(shop, lambda: MINE, 4, 0.05)


def test_rows_are_told_apart_by_their_names() -> None:
    names = [pages.name_of(app, page) for app in pages.apps() for page in app.pages]
    assert len(set(names)) == len(names) == 16

    assert [app.name for app, _ in pages.wanted(replace(QUICK, only="pages: wordpress"))] == [
        "WordPress"
    ]


def test_a_table_compares_what_both_ways_took() -> None:
    direct = {"p50_us": 40e3, "pages": 9, "mariadb_us": 8e3, "upstream": 36.0}
    through = {**direct, "p50_us": 44e3, "mariadb_us": 1e3, "upstream": 6.0}
    through |= {"sqlcache_us": 4e3, "memcached_us": 1e3}
    rows = [
        Row(pages.PART, "a page", way, 4, [figures])
        for way, figures in ((pages.DIRECT, direct), (pages.THROUGH, through))
    ]
    (told,) = of_pages(Result({}, rows)).rows
    assert told == [
        *("a page, 4 clients", "40.0", "1.10", "8.0", "1.0", "4.0", "1.0", "0.75", "36.0", "6.0")
    ]
    assert of_pages(Result({}, rows[:1])).rows == []


def test_packages_without_what_they_are_known_for_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFetched, match=r"0 files usr/bin/php.*remove that folder"):
        Programs(tmp_path)


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(NotFetched, match="no-such-program is not installed, which the pages need"):
        fetched.program("no-such-program", "the pages")


def test_what_is_fetched_is_there_once_or_not_at_all(tmp_path: Path) -> None:
    def fails(scratch: Path) -> Path:
        (scratch / "half").mkdir()
        raise NotFetched("no network")

    def works(scratch: Path) -> Path:
        (scratch / "whole").mkdir()
        return scratch / "whole"

    with pytest.raises(NotFetched, match="no network"):
        fetched.once(tmp_path, "it", fails)
    assert not (tmp_path / "it").exists()
    assert fetched.once(tmp_path, "it", works) == tmp_path / "it"
    assert fetched.once(tmp_path, "it", fails) == tmp_path / "it"
    assert [each.name for each in tmp_path.iterdir()] == ["it"]
