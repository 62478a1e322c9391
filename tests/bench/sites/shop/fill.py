"""Makes the shop's tables in an empty schema and fills them: `python -m shop.fill PASSWORD`.

2,000 products of 20 categories and 50 makers, 6,000 reviews by 40 customers. The same in each run.
"""

import datetime
import random
import sys

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402 - after setup, as Django wants it
from django.core.management import call_command  # noqa: E402
from django.db.models import Model  # noqa: E402

from shop.models import Category, Maker, Product, Review  # noqa: E402

_PRODUCTS = 2_000
_LOREM = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut"
    " labore et dolore magna aliqua enim ad minim veniam quis nostrud exercitation ullamco laboris"
)
_WORDS = _LOREM.split()
_FIRST = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words)).capitalize()


def _made(rows: list[Model]) -> list[Model]:
    """As they are then: MySQL, unlike MariaDB, tells no keys of several rows."""
    model = type(rows[0])
    model.objects.bulk_create(rows, 500)
    return list(model.objects.order_by("pk"))


def main() -> None:
    call_command("migrate", verbosity=0)
    call_command("migrate", run_syncdb=True, verbosity=0)  # the shop's own, which refer to others
    chance = random.Random(14)
    User.objects.create_superuser("admin", "admin@pages.test", sys.argv[1])
    users = [User(username=f"customer{at}", password="!") for at in range(40)]
    User.objects.bulk_create(users)
    customers = list(User.objects.filter(is_staff=False).order_by("pk"))
    categories = _made([Category(name=f"Category {at}", slug=f"category-{at}") for at in range(20)])
    makers = _made([Maker(name=f"Maker {at}", country=f"Country {at % 9}") for at in range(50)])
    products = [
        Product(
            name=f"Product {at} {_text(chance, 3)}",
            description=_text(chance, 60),
            price=chance.randrange(100, 100_000) / 100,
            category=chance.choice(categories),
            maker=chance.choice(makers),
            published=at % 10 != 0,
            created=_FIRST + datetime.timedelta(hours=at),
        )
        for at in range(_PRODUCTS)
    ]
    products = _made(products)
    reviews = [
        Review(
            product=chance.choice(products),
            author=chance.choice(customers),
            stars=chance.randint(1, 5),
            text=_text(chance, 20),
            written=_FIRST + datetime.timedelta(minutes=at),
        )
        for at in range(3 * _PRODUCTS)
    ]
    Review.objects.bulk_create(reviews, 500)
    print(Product.objects.count(), "products")


if __name__ == "__main__":
    main()
