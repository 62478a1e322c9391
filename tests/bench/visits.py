"""Works that are visits of real sites, which write: a blog that counts views, and a shop that saves
what it sells.

What is asked for differs from visit to visit, some of it far more often than the rest, as their
logs have it: the second half as often as the first, the third a third as often.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate

from tests.bench.page_apps import FETCHED, PROCESSES, App, Database, Django
from tests.bench.page_client import Page, load
from tests.bench.page_wordpress import WordPress
from tests.bench.works import ACCOUNT, Load, Place, Work

Draw = Callable[[random.Random, int], Page]
"""A page about the thing of that number."""


class Visits(Work):
    """Pages of a site, each kind as many times of a hundred as is said, about so many things."""

    connections = PROCESSES

    def __init__(self, name: str, app: App, things: int, kinds: Mapping[Draw, int]) -> None:
        self.name = name
        self._app = app
        self._things = range(1, things + 1)
        self._often = list(accumulate(1 / place for place in self._things))
        self._kinds = kinds

    def fetch(self) -> Sequence[str]:
        return [self._app.fetch()]

    def begin(self, stack: ExitStack, place: Place) -> Load:
        database = Database(place.port, ACCOUNT, ACCOUNT, place.schema)
        self._app.fill_past(place.server, place.folder, database)
        site = self._app.site(stack, place.folder, database)
        chance = random.Random(14)
        kinds, parts = list(self._kinds), list(self._kinds.values())

        def draw() -> Page:
            (kind,) = chance.choices(kinds, parts)
            (thing,) = chance.choices(self._things, cum_weights=self._often)
            return kind(chance, thing)

        return lambda seconds: load(site, draw, self.connections, seconds)


def product_list(_: random.Random, __: int) -> Page:
    return Page("list", "/", b"1800 products, page 1")


def detail(_: random.Random, number: int) -> Page:
    shows = f"<h1>Product {number - 1} ".encode()
    return Page("detail", f"/product/{number}/", shows, signed_in=True)


def api_product(_: random.Random, number: int) -> Page:
    return Page("API", f"/api/products/{number}/", f'"name": "Product {number - 1} '.encode())


def price(chance: random.Random, number: int) -> Page:
    new = f"{chance.randint(100, 99_999) / 100:.2f}"
    path = f"/api/products/{number}/price/"
    return Page("price", path, f'"price": "{new}"'.encode(), form={"price": new})


def front(_: random.Random, __: int) -> Page:
    return Page("front", "/", b"Post 200 ")


def post(_: random.Random, number: int) -> Page:
    return Page("post", f"/post-{number}/", f"Post {number} ".encode())


def category(_: random.Random, number: int) -> Page:
    at = 1 + number % 20
    return Page("category", f"/category/category-{at}/", f"Category {at}".encode())


def visits() -> Sequence[Work]:
    """All of them."""
    return [
        Visits(
            "WordPress, 1 of 5 views of a post counted",
            WordPress(FETCHED, counts_views=True),
            200,
            {post: 60, front: 20, category: 20},
        ),
        Visits(
            "Django, 1 of 10 requests saves",
            Django(FETCHED, kept=True),
            200,
            {product_list: 10, detail: 40, api_product: 40, price: 10},
        ),
    ]
