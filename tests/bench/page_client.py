"""Clients that fetch a site's pages, time them, and see that two sites show the same."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import urlencode

from sqlcache.demo.servers import HOST

SITE_HOST = "pages.test"
"""The name under which all sites are asked for: what they show names it."""
_TIMEOUT_S = 60
_SHOWN = 300


class Page(NamedTuple):
    """A page of a site. `shows` is what no page has that shows something else, an error least of
    all. `signed_in`: it is fetched by one who is. `form`: what is posted there, if anything is."""

    name: str
    path: str
    shows: bytes
    signed_in: bool = False
    form: Mapping[str, str] | None = None


class Site(NamedTuple):
    """Where a site answers, and the cookies of one who is signed in."""

    port: int
    cookies: str = ""


class WrongPage(Exception):
    """A page is not what it must be: says which, and what it is."""


class Client:
    """One that keeps its connection where the site does."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._connection = HTTPConnection(HOST, site.port, timeout=_TIMEOUT_S)

    def fetch(self, page: Page) -> bytes:
        """The body. Raises: WrongPage where it is an error, a way to elsewhere or another page."""
        method = "GET" if page.form is None else "POST"
        status, body, _ = self._ask(method, page.path, page.form, page.signed_in)
        if status != 200:
            raise WrongPage(f"{page.name} ({page.path}): status {status}: {body[:_SHOWN]!r}")
        if page.shows not in body:
            raise WrongPage(f"{page.name} ({page.path}) does not show {page.shows!r}")
        return body

    def says(self, path: str, what: bytes) -> bool:
        """Whether that is what is there; not where nobody answers."""
        try:
            return self._ask("GET", path, None, False)[:2] == (200, what)
        except WrongPage:
            return False
        finally:
            self.close()

    def sign_in(self, path: str, form: Mapping[str, str]) -> Site:
        """The site with the cookies of one who has filled in the form, first fetched, whose hidden
        fields are sent along. Raises: WrongPage where that signs nobody in."""
        _, body, jar = self._ask("GET", path, None, False)
        hidden = re.findall(r'type="hidden" name="(csrf\w+)" value="([^"]*)"', body.decode())
        self._site = self._site._replace(cookies=_cookies(jar))
        status, body, given = self._ask("POST", path, {**form, **dict(hidden)}, True)
        if status != 302:
            raise WrongPage(f"{path}: nobody is signed in: status {status}: {body[:_SHOWN]!r}")
        return self._site._replace(cookies=_cookies({**jar, **given}))

    def close(self) -> None:
        self._connection.close()

    def _ask(
        self, method: str, path: str, form: Mapping[str, str] | None, cookies: bool
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body, and the cookies that were set. Raises: WrongPage where no answer comes."""
        headers = {"Host": SITE_HOST}
        if cookies:
            headers["Cookie"] = self._site.cookies
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        body = None if form is None else urlencode(form)
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            given = [each.partition(";")[0] for each in answer.headers.get_all("Set-Cookie", [])]
            jar = {name: value for name, _, value in (each.partition("=") for each in given)}
            return answer.status, answer.read(), jar
        except (OSError, HTTPException) as error:
            raise WrongPage(f"{path}: no answer: {error!r}") from error


def _cookies(jar: Mapping[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in jar.items())


def check(page: Page, direct: bytes, through: bytes, noise: re.Pattern[bytes]) -> None:
    """Sees that a page fetched both ways is the same but for what `noise` matches: what is new in
    each answer. Raises: WrongPage."""
    ours, theirs = (noise.sub(b"", body).splitlines() for body in (through, direct))
    for number, (our, their) in enumerate(zip_longest(ours, theirs), 1):
        if our != their:
            raise WrongPage(
                f"{page.name} ({page.path}), line {number}: through sqlcache {_cut(our)},"
                f" directly {_cut(their)}"
            )


def _cut(line: bytes | None) -> str:
    return "it ends" if line is None else repr(line[:_SHOWN])


def load(site: Site, draw: Callable[[], Page], clients: int, seconds: float) -> list[float]:
    """Fetches one page after the other that is drawn, by so many clients at once; returns the
    seconds that each took. Each client has fetched one before. Raises: WrongPage, of any client."""
    times: list[float] = []
    failed: list[WrongPage] = []
    all_ready = threading.Barrier(clients)

    def run() -> None:
        with closing(Client(site)) as client:
            try:
                client.fetch(draw())
                all_ready.wait(_TIMEOUT_S)
                began = time.perf_counter()
                until = began + seconds
                while began < until:
                    client.fetch(draw())
                    ended = time.perf_counter()
                    times.append(ended - began)
                    began = ended
            except WrongPage as error:
                failed.append(error)
                all_ready.abort()
            except threading.BrokenBarrierError:
                pass  # another one has failed, and says why

    threads = [threading.Thread(target=run) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return times
