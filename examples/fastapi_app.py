"""A shop's products over HTTP.

DATABASE_URL=mysql://app:pw@127.0.0.1:3306/shop uvicorn examples.fastapi_app:app

SERVICE_URL names an account that may see all triggers and views, where that one may not.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel

import sqlcache
from sqlcache.metrics import CONTENT_TYPE

url = os.environ.get("DATABASE_URL") or sys.exit(f"DATABASE_URL is not set\n\n{__doc__}")
store, service = os.environ.get("MEMCACHED", "memory"), os.environ.get("SERVICE_URL")
cache = sqlcache.connect(url, memcached=store, service_url=service)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with cache:
        yield


app = FastAPI(lifespan=lifespan)


class Product(BaseModel):
    id: int
    name: str
    price: Decimal


@cache.cached(ttl_s=60)
async def best_sellers(shelf: int) -> list[Product]:
    query = "SELECT id, name, price FROM product WHERE shelf = %s ORDER BY sold DESC LIMIT 3"
    return await cache.fetch_all(query, (shelf,), into=Product)


@app.get("/shelves/{shelf}")
async def shelf(shelf: int) -> list[Product]:
    return await best_sellers(shelf)


@app.put("/products/{id}/price")
async def set_price(id: int, price: Decimal) -> Product:
    async with cache.transaction() as tx:
        await tx.execute("UPDATE product SET price = %s WHERE id = %s", (price, id))
        query = "SELECT id, name, price FROM product WHERE id = %s"
        product = await tx.fetch_one(query, (id,), into=Product)
    if product is None:
        raise HTTPException(404)
    return product


@app.get("/metrics")
async def metrics() -> Response:
    return Response(cache.metrics.render(), media_type=CONTENT_TYPE)
