"""TPC-C's nine tables: what the standard wants in them, of few warehouses that hold little.

Numbers are drawn as the standard draws them (NURand), from as much less as there is.
"""

from __future__ import annotations

import datetime
import random
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pymysql

WAREHOUSES = 4
DISTRICTS = 10  # of a warehouse
_CUSTOMERS = 90  # of a district, each of whom has an order
ITEMS = 1_000  # of which each warehouse has a stock
_SURNAMES = 30  # fewer than customers: most are found by it
_UNDELIVERED = 27  # the last orders of a district

_TABLES = """
CREATE TABLE warehouse (
    w_id INT PRIMARY KEY, w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20),
    w_city VARCHAR(20), w_state CHAR(2), w_zip CHAR(9), w_tax DECIMAL(4, 4), w_ytd DECIMAL(12, 2));
CREATE TABLE district (
    d_id INT, d_w_id INT, d_name VARCHAR(10), d_street_1 VARCHAR(20), d_street_2 VARCHAR(20),
    d_city VARCHAR(20), d_state CHAR(2), d_zip CHAR(9), d_tax DECIMAL(4, 4), d_ytd DECIMAL(12, 2),
    d_next_o_id INT, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (
    c_id INT, c_d_id INT, c_w_id INT, c_first VARCHAR(16), c_middle CHAR(2), c_last VARCHAR(16),
    c_street_1 VARCHAR(20), c_street_2 VARCHAR(20), c_city VARCHAR(20), c_state CHAR(2),
    c_zip CHAR(9), c_phone CHAR(16), c_since DATETIME, c_credit CHAR(2),
    c_credit_lim DECIMAL(12, 2), c_discount DECIMAL(4, 4), c_balance DECIMAL(12, 2),
    c_ytd_payment DECIMAL(12, 2), c_payment_cnt INT, c_delivery_cnt INT, c_data VARCHAR(500),
    PRIMARY KEY (c_w_id, c_d_id, c_id), KEY (c_w_id, c_d_id, c_last, c_first));
CREATE TABLE history (
    h_c_id INT, h_c_d_id INT, h_c_w_id INT, h_d_id INT, h_w_id INT, h_date DATETIME,
    h_amount DECIMAL(6, 2), h_data VARCHAR(24));
CREATE TABLE new_order (
    no_o_id INT, no_d_id INT, no_w_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE orders (
    o_id INT, o_d_id INT, o_w_id INT, o_c_id INT, o_entry_d DATETIME, o_carrier_id INT,
    o_ol_cnt INT, o_all_local INT,
    PRIMARY KEY (o_w_id, o_d_id, o_id), KEY (o_w_id, o_d_id, o_c_id, o_id));
CREATE TABLE order_line (
    ol_o_id INT, ol_d_id INT, ol_w_id INT, ol_number INT, ol_i_id INT, ol_supply_w_id INT,
    ol_delivery_d DATETIME, ol_quantity INT, ol_amount DECIMAL(6, 2), ol_dist_info CHAR(24),
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
CREATE TABLE item (
    i_id INT PRIMARY KEY, i_im_id INT, i_name VARCHAR(24), i_price DECIMAL(5, 2),
    i_data VARCHAR(50));
CREATE TABLE stock (
    s_i_id INT, s_w_id INT, s_quantity INT, {of_districts}, s_ytd INT, s_order_cnt INT,
    s_remote_cnt INT, s_data VARCHAR(50), PRIMARY KEY (s_w_id, s_i_id))
"""
_OF_DISTRICTS = ", ".join(f"s_dist_{at:02} CHAR(24)" for at in range(1, DISTRICTS + 1))

Row = tuple[Any, ...]


def _surname(number: int) -> str:
    syllables = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
    return "".join(syllables[int(digit)] for digit in f"{number:03}")


class Chance(random.Random):
    """What the standard draws by chance."""

    def nurand(self, a: int, highest: int, lowest: int = 1) -> int:
        """Some far more often than others."""
        drawn = self.randint(0, a) | self.randint(lowest, highest)
        return drawn % (highest - lowest + 1) + lowest

    def percent(self, part: int) -> bool:
        """Whether it is one of these of a hundred."""
        return self.randrange(100) < part

    def district(self) -> int:
        return self.randint(1, DISTRICTS)

    def customer(self) -> int:
        return self.nurand(31, _CUSTOMERS)

    def item(self) -> int:
        return self.nurand(127, ITEMS)

    def surname(self) -> str:
        return _surname(self.nurand(7, _SURNAMES - 1, 0))

    def letters(self, count: int) -> str:
        return "".join(self.choices("abcdefghijklmnopqrstuvwxyz", k=count))

    def address(self) -> Row:
        """Two streets, a city, a state and a code."""
        return (*(self.letters(15) for _ in range(3)), self.letters(2).upper(), "123411111")

    def tax(self) -> Decimal:
        return Decimal(self.randint(0, 2_000)) / 10_000

    def money(self, lowest: int, highest: int) -> Decimal:
        return Decimal(self.randint(100 * lowest, 100 * highest)) / 100


def _rows(chance: Chance) -> Iterator[tuple[str, Row]]:
    """All that the tables have at first, each row by its table."""
    began = datetime.datetime(2026, 1, 1)
    for item in range(1, ITEMS + 1):
        data = chance.letters(40)
        yield "item", (item, item, chance.letters(20), chance.money(1, 100), data)
    for w_id in range(1, WAREHOUSES + 1):
        paid = Decimal(10) * _CUSTOMERS
        told = (*chance.address(), chance.tax())
        yield "warehouse", (w_id, chance.letters(8), *told, paid * DISTRICTS)
        for item in range(1, ITEMS + 1):
            of_districts = (chance.letters(24) for _ in range(DISTRICTS))
            count = chance.randint(10, 100)
            yield "stock", (item, w_id, count, *of_districts, 0, 0, 0, chance.letters(40))
        for d_id in range(1, DISTRICTS + 1):
            told = (*chance.address(), chance.tax(), paid, _CUSTOMERS + 1)
            yield "district", (d_id, w_id, chance.letters(8), *told)
            for c_id in range(1, _CUSTOMERS + 1):
                yield from _customer(chance, w_id, d_id, c_id, began)
            buyers = chance.sample(range(1, _CUSTOMERS + 1), _CUSTOMERS)
            for o_id, c_id in enumerate(buyers, 1):
                yield from _order(chance, w_id, d_id, o_id, c_id, began)


def _customer(
    chance: Chance, w_id: int, d_id: int, c_id: int, began: datetime.datetime
) -> Iterator[tuple[str, Row]]:
    surname = _surname(c_id - 1) if c_id <= _SURNAMES else chance.surname()
    credit = "BC" if chance.percent(10) else "GC"
    told = (chance.letters(12), "OE", surname, *chance.address(), "1234567890123456", began, credit)
    discount = Decimal(chance.randint(0, 5_000)) / 10_000
    data = chance.letters(400)
    yield "customer", (c_id, d_id, w_id, *told, 50_000, discount, -10, 10, 1, 0, data)
    yield "history", (c_id, d_id, w_id, d_id, w_id, began, 10, chance.letters(20))


def _order(
    chance: Chance, w_id: int, d_id: int, o_id: int, c_id: int, began: datetime.datetime
) -> Iterator[tuple[str, Row]]:
    lines = chance.randint(5, 15)
    delivered = o_id <= _CUSTOMERS - _UNDELIVERED
    carrier = chance.randint(1, 10) if delivered else None
    yield "orders", (o_id, d_id, w_id, c_id, began, carrier, lines, 1)
    for number in range(1, lines + 1):
        amount = Decimal(0) if delivered else chance.money(0, 9_999)
        told = (chance.randint(1, ITEMS), w_id, began if delivered else None, 5, amount)
        yield "order_line", (o_id, d_id, w_id, number, *told, chance.letters(24))
    if not delivered:
        yield "new_order", (o_id, d_id, w_id)


def fill(connection: pymysql.Connection[Any]) -> None:
    """Makes the tables in an empty schema; what is in them is the same in each run."""
    with connection.cursor() as cursor:
        for table in _TABLES.format(of_districts=_OF_DISTRICTS).split(";"):
            cursor.execute(table)
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        for table, row in _rows(Chance(14)):
            rows[table].append(row)
        for table, all_of_it in rows.items():
            marks = ", ".join(["%s"] * len(all_of_it[0]))
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", all_of_it)
    connection.commit()
