"""The shop shows what is in its database, changes a price, and takes nothing for SQL or HTML."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateServer

CHECKOUT = Path(__file__).parents[2]
EXAMPLE = CHECKOUT / "examples" / "shop.py"
TABLES = CHECKOUT / "docker" / "mysql" / "2-shop.sql"


class Shop(PrivateServer):
    """The example as a process."""

    name = "shop"

    def __init__(self, folder: Path, database_url: str) -> None:
        super().__init__(folder)
        self.database_url = database_url

    def command(self) -> list[str]:
        return [sys.executable, str(EXAMPLE)]

    def answers(self) -> bool:
        try:
            return self.get("/healthz") == (200, "")
        except OSError:
            return False

    def get(self, path: str, **form: str) -> tuple[int, str]:
        """The status and the page; after a form that was sent, those it leads to."""
        body = urlencode(form).encode() if form else None
        try:
            answer = urllib.request.urlopen(f"http://{self.address}{path}", body, timeout=10)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            return answer.status, answer.read().decode()

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "DATABASE_URL": self.database_url, "LISTEN": self.address}


@pytest.fixture
def shop(mariadb: PrivateMariaDB, schema: str, tmp_path: Path) -> Iterator[Shop]:
    mariadb.sql(TABLES.read_text(), schema)
    login = f"{mariadb.user}:{mariadb.password}@{mariadb.address}"
    with Shop(tmp_path / "shop", f"mysql://{login}/{schema}") as server:
        yield server
    assert "Traceback" not in server.log_text(), server.log_text()


def test_it_lists_what_a_category_has(shop: Shop) -> None:
    status, page = shop.get("/categories/2")
    assert status == 200
    assert page.count('<a href="/products/') == 40
    assert "by 250 customers" in page
    assert '<a href="/categories/5">Lamps</a>' in page
    assert "The database took " in page


def test_values_are_not_taken_for_html(shop: Shop, mariadb: PrivateMariaDB, schema: str) -> None:
    mariadb.sql("UPDATE product SET name = '<b>\"Berg\" & Sons {id}' WHERE id = 1", schema)
    escaped = "&lt;b&gt;&quot;Berg&quot; &amp; Sons {id}"
    for page in ("/categories/1", "/products/1"):
        assert escaped in shop.get(page)[1]


def test_a_new_price_is_on_the_next_pages(shop: Shop) -> None:
    assert 'value="1234.50"' not in shop.get("/products/7")[1]
    status, page = shop.get("/products/7", price="1234.50")
    assert status == 200
    assert 'value="1234.50"' in page
    assert "1234.50 €" in shop.get("/categories/1")[1]


def test_what_is_no_price_changes_nothing(shop: Shop) -> None:
    for price in ("", "-1", "1e3", "12.345", "9999999", "1, name = 'x'"):
        assert shop.get("/products/7", price=price)[0] == 400, price
    assert 'value="96.50"' in shop.get("/products/7")[1]


def test_what_is_not_there_is_not_found(shop: Shop) -> None:
    for path in ("/categories/99", "/products/0", "/products/1%20OR%201=1", "/products/", "/else"):
        assert shop.get(path)[0] == 404, path


def test_it_says_that_its_database_is_away(
    shop: Shop, mariadb: PrivateMariaDB, schema: str
) -> None:
    mariadb.sql(f"DROP DATABASE {schema}")
    for path in ("/healthz", "/categories/1"):
        assert shop.get(path)[0] == 503


def test_it_ends_when_it_is_told_to(shop: Shop) -> None:
    shop.get("/categories/1")
    assert shop.stop() == 0


def test_it_fits_two_screens() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 130
