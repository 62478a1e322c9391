"""Reads best sellers, changes a price, reads again.

DATABASE_URL=mysql://app:pw@127.0.0.1:3306/shop python examples/script.py

SERVICE_URL names an account that may see all triggers and views, where that one may not.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from decimal import Decimal

import sqlcache

url = os.environ.get("DATABASE_URL") or sys.exit(f"DATABASE_URL is not set\n\n{__doc__}")
store, service = os.environ.get("MEMCACHED", "memory"), os.environ.get("SERVICE_URL")
cache = sqlcache.connect(url, memcached=store, service_url=service)


@dataclass
class Product:
    id: int
    name: str
    price: Decimal


@cache.cached(ttl_s=60)
async def best_sellers(shelf: int) -> list[Product]:
    print(f"asking MySQL for shelf {shelf}")
    query = "SELECT id, name, price FROM product WHERE shelf = %s ORDER BY sold DESC LIMIT 3"
    return await cache.fetch_all(query, (shelf,), into=Product)


async def main() -> None:
    async with cache:
        print(await best_sellers(3))
        print(await best_sellers(3))
        async with cache.transaction() as tx:
            await tx.execute("UPDATE product SET price = price + 1 WHERE id = %s", (17,))
        print(await best_sellers(3))


if __name__ == "__main__":
    asyncio.run(main())
