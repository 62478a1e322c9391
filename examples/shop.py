"""A small shop over HTTP. It knows nothing of sqlcache: it is given another address, that is all.

    pip install 'PyMySQL[rsa]'
    mysql -h 127.0.0.1 -P 3307 -u app -p -e 'CREATE DATABASE store'
    mysql -h 127.0.0.1 -P 3307 -u app -p store < docker/mysql/2-shop.sql
    DATABASE_URL=mysql://app:pw@127.0.0.1:3307/store python examples/shop.py

3307 is sqlcache, 3306 would be MySQL. Each page of http://127.0.0.1:8000 says how long the database
took. Load a category twice, then change a price and load it again.

DATABASE_PASSWORD_FILE may name a file with the password, LISTEN a HOST:PORT. Prices are anybody's.
"""

import os
import re
import signal
import sys
import time
from functools import cached_property
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.cursors import DictCursor

PRODUCTS = """
    SELECT product.id, name, price, COUNT(stars) AS n, IFNULL(ROUND(AVG(stars), 2), 0) AS stars
    FROM product LEFT JOIN review ON review.product_id = product.id
    WHERE category_id = %s GROUP BY product.id ORDER BY AVG(stars) DESC, name"""
PRODUCT = "SELECT name, price, category_id FROM product WHERE id = %s"

HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Shop</title><style>
body { font: 1em/1.5 sans-serif; max-width: 40em; margin: 2em auto }</style>"""
LINK = '<a href="/categories/{id}">{name}</a> '
ROW = '<p><a href="/products/{id}">{name}</a>, {price} €, {stars} stars by {n} customers'
FORM = """<h1>{name}</h1><p>{price} €, <a href="/categories/{category_id}">beside others</a>
<form method="post"><label>€ <input name="price" value="{price}"></label><button>Set</button>"""


def fill(template: str, rows: list[dict[str, Any]]) -> str:
    """The template for each row, whose values cannot be taken for HTML."""
    return "".join(template.format(**{n: escape(str(v)) for n, v in row.items()}) for row in rows)


class Shop(BaseHTTPRequestHandler):
    """One request, with a connection to the database of its own."""

    timeout = 5
    waited_s = 0.0

    @cached_property
    def database(self) -> "pymysql.Connection[DictCursor]":
        url = urlsplit(os.environ["DATABASE_URL"])
        file = os.environ.get("DATABASE_PASSWORD_FILE")
        return pymysql.connect(
            host=url.hostname,
            port=url.port or 3306,
            user=unquote(url.username or ""),
            password=Path(file).read_text().rstrip("\n") if file else unquote(url.password or ""),
            database=url.path.strip("/"),
            autocommit=True,
            cursorclass=DictCursor,
        )

    def ask(self, statement: str, *values: str) -> list[dict[str, Any]]:
        with self.database.cursor() as cursor:
            began = time.perf_counter()
            cursor.execute(statement, values)
            self.waited_s += time.perf_counter() - began
            return list(cursor.fetchall())

    def handle(self) -> None:
        try:
            super().handle()
        except pymysql.MySQLError as error:
            self.log_error("%s", error)
            self.send_error(503)
        finally:
            if "database" in vars(self):
                self.database.close()

    def do_GET(self) -> None:
        match self.path.split("/"):
            case "", "":
                self.send_page("<p>Choose a category.")
            case "", "healthz":
                self.ask("DO 0")
                self.send(200)
            case "", "categories", id if id.isdigit():
                self.send_page(fill(ROW, self.ask(PRODUCTS, id)))
            case "", "products", id if id.isdigit():
                self.send_page(fill(FORM, self.ask(PRODUCT, id)))
            case _:
                self.send_error(404)

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length", 0)), 1000)
        price = parse_qs(self.rfile.read(length).decode("latin-1")).get("price", [""])[0]
        product = re.fullmatch("/products/([0-9]+)", self.path)
        if not product or not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,2})?", price):
            self.send_error(400)
        else:
            self.ask("UPDATE product SET price = %s WHERE id = %s", price, product[1])
            self.send(303)

    def send_page(self, content: str) -> None:
        links = fill(LINK, self.ask("SELECT id, name FROM category ORDER BY name"))
        footer = f"<footer>The database took {self.waited_s * 1000:.1f} ms.</footer>"
        page = f"{HEAD}<nav>{links}</nav>{content or 'There is nothing here.'}{footer}"
        self.send(200 if content else 404, page)

    def send(self, status: int, page: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        if status == 303:
            self.send_header("Location", self.path)
        self.end_headers()
        self.wfile.write(page.encode())


if __name__ == "__main__":
    host, _, port = os.environ.get("LISTEN", "127.0.0.1:8000").rpartition(":")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with ThreadingHTTPServer((host, int(port)), Shop) as server:
        server.daemon_threads = False  # requests under way are answered
        server.serve_forever()
