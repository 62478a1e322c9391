"""A shop whose statements the dashboard shows: what is cached, what is not, and writes."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing, suppress
from typing import Any, Self

import pymysql

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer

_PRODUCTS = 2000
_CLIENTS = 3
_PAUSE_S = 0.004

_TABLES = """
CREATE TABLE product (id INT PRIMARY KEY, shelf INT, name VARCHAR(80), price DECIMAL(8, 2));
CREATE TABLE orders (
    id INT AUTO_INCREMENT PRIMARY KEY, customer INT, product INT, at DATETIME
);
CREATE TABLE customer (id INT PRIMARY KEY, name VARCHAR(80), city VARCHAR(40));
CREATE TABLE session (id CHAR(8) PRIMARY KEY, data TEXT, seen INT);
INSERT INTO product SELECT seq, seq % 40, CONCAT('product ', seq), seq / 7
    FROM seq_1_to_{products};
INSERT INTO customer SELECT seq, CONCAT('customer ', seq), CONCAT('city ', seq % 90)
    FROM seq_1_to_500;
INSERT INTO orders (customer, product, at) SELECT seq % 500, seq % {products}, NOW()
    FROM seq_1_to_3000
"""

_READS = (
    (12, "SELECT id, name, price FROM product WHERE id = {number}"),
    (8, "SELECT name, price FROM product WHERE shelf = {shelf} ORDER BY price LIMIT 20"),
    (4, "SELECT p.name, COUNT(*) FROM orders o JOIN product p ON p.id = o.product"
        " GROUP BY p.name ORDER BY 2 DESC LIMIT 10"),
    (4, "SELECT shelf, COUNT(*), AVG(price) FROM product GROUP BY shelf"),
    (5, "SELECT name, city FROM customer WHERE id = {customer}"),
    (2, "SELECT city, COUNT(*) FROM customer GROUP BY city ORDER BY 2 DESC"),
    (1, "SELECT id, name FROM product ORDER BY RAND() LIMIT 4"),
    (1, "SELECT COUNT(*) FROM orders WHERE at > NOW() - INTERVAL 1 HOUR"),
    (1, "SELECT data FROM session WHERE id = 's{shelf}' FOR UPDATE"),
    (1, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"),
)  # fmt: skip
_WRITES = (
    "INSERT INTO orders (customer, product, at) VALUES ({customer}, {number}, NOW())",
    "UPDATE customer SET city = 'city {shelf}' WHERE id = {customer}",
)
_SECONDS_A_WRITE = 3.0


class Shop:
    """Clients of a sqlcache that buy and look, from `with` to its end, in a schema of their own."""

    def __init__(self, server: PrivateSqlServer, proxy: PrivateSqlcache, schema: str) -> None:
        server.sql(_TABLES.format(products=_PRODUCTS), schema)
        self._login = {"user": server.user, "password": server.password, "database": schema}
        self._proxy = proxy
        self._ended = threading.Event()
        self._clients = [
            threading.Thread(target=self._run, args=(seed,)) for seed in range(_CLIENTS)
        ]

    def __enter__(self) -> Self:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for client in self._clients:
            client.join()

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._ended.is_set():
            with (
                suppress(pymysql.MySQLError),
                closing(self._proxy.connect(**self._login)) as connection,
                connection.cursor() as cursor,
            ):
                self._buy_and_look(chance, cursor)

    def _buy_and_look(self, chance: random.Random, cursor: Any) -> None:
        weights, reads = [each[0] for each in _READS], [each[1] for each in _READS]
        written_at = time.monotonic()
        while not self._ended.wait(_PAUSE_S):
            (text,) = chance.choices(reads, weights)
            if time.monotonic() - written_at > _SECONDS_A_WRITE:
                text, written_at = chance.choice(_WRITES), time.monotonic()
            numbers = {
                "number": min(int(chance.expovariate(0.01)) + 1, _PRODUCTS),
                "shelf": chance.randrange(40),
                "customer": chance.randrange(1, 100),
            }
            cursor.execute(text.format(**numbers))
            cursor.fetchall()
