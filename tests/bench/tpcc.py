"""TPC-C's five transactions in their mix, with the statements of the standard's own programs, by
terminals that wait for nothing but answers.

A read that must see the last commit, for a write that follows it, takes its lock at once: else
InnoDB would give it the transaction's snapshot.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pymysql
from pymysql.constants import ER

from sqlcache.demo.servers import HOST
from tests.bench.tpcc_tables import DISTRICTS, ITEMS, WAREHOUSES, Chance, Row, fill
from tests.bench.works import ACCOUNT, Load, Place, Work

_OTHER_WAS_FIRST = (ER.LOCK_DEADLOCK, ER.CHECKREAD)


class Rejected(Exception):
    """An order is for an item that there is not."""


class Terminal:
    """One who works at a warehouse, on a connection of its own."""

    def __init__(self, connection: pymysql.Connection[Any], warehouse: int, chance: Chance) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._warehouse = warehouse
        self._chance = chance

    def work(self, until: float) -> None:
        """One transaction after the other, up to that time of the clock `time.perf_counter`."""
        mix: dict[Callable[[], None], int] = {
            self.new_order: 45,
            self.payment: 43,
            self.order_status: 4,
            self.delivery: 4,
            self.stock_level: 4,
        }
        transactions, parts = list(mix), list(mix.values())
        while time.perf_counter() < until:
            (transaction,) = self._chance.choices(transactions, parts)
            self._connection.begin()
            try:
                transaction()
            except Rejected:
                self._connection.rollback()
            except pymysql.OperationalError as error:
                if error.args[0] not in _OTHER_WAS_FIRST:
                    raise
                self._connection.rollback()
            else:
                self._connection.commit()

    def new_order(self) -> None:
        """A customer orders 5 to 15 items. Raises: Rejected, of one of a hundred."""
        chance = self._chance
        here, district, customer = self._warehouse, chance.district(), chance.customer()
        lines = [
            (chance.item(), self._other() if chance.percent(1) else here, chance.randint(1, 10))
            for _ in range(chance.randint(5, 15))
        ]
        if chance.percent(1):
            lines[-1] = (ITEMS + 1, here, 1)
        self._ask(
            "SELECT c_discount, c_last, c_credit FROM customer"
            " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
            *(here, district, customer),
        )
        self._ask("SELECT w_tax FROM warehouse WHERE w_id = %s", here)
        order, _ = self._ask(
            "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = %s AND d_id = %s FOR UPDATE",
            *(here, district),
        )
        self._do(
            "UPDATE district SET d_next_o_id = %s WHERE d_w_id = %s AND d_id = %s",
            *(order + 1, here, district),
        )
        self._do(
            "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            *(order, district, here, customer, _now(), len(lines)),
            all(supplier == here for _, supplier, _ in lines),
        )
        self._do(
            "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (%s, %s, %s)",
            *(order, district, here),
        )
        for number, (item, supplier, quantity) in enumerate(lines, 1):
            self._order_line((order, district, here, number), item, supplier, quantity)

    def _order_line(self, line: Row, item: int, supplier: int, quantity: int) -> None:
        _, district, here, _ = line
        found = self._ask_all("SELECT i_price, i_name, i_data FROM item WHERE i_id = %s", item)
        if not found:
            raise Rejected
        price, _, _ = found[0]
        there, _, told = self._ask(
            f"SELECT s_quantity, s_data, s_dist_{district:02} FROM stock"
            " WHERE s_i_id = %s AND s_w_id = %s FOR UPDATE",
            *(item, supplier),
        )
        left = there - quantity if there >= quantity + 10 else there - quantity + 91
        self._do(
            "UPDATE stock SET s_quantity = %s, s_ytd = s_ytd + %s, s_order_cnt = s_order_cnt + 1,"
            " s_remote_cnt = s_remote_cnt + %s WHERE s_i_id = %s AND s_w_id = %s",
            *(left, quantity, supplier != here, item, supplier),
        )
        self._do(
            "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id,"
            " ol_quantity, ol_amount, ol_dist_info)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            *(*line, item, supplier, quantity, quantity * price, told),
        )

    def payment(self) -> None:
        """A customer, of another warehouse at times, pays."""
        chance = self._chance
        here, district, amount = self._warehouse, chance.district(), chance.money(1, 5_000)
        of = (self._other(), chance.district()) if chance.percent(15) else (here, district)
        self._do("UPDATE warehouse SET w_ytd = w_ytd + %s WHERE w_id = %s", amount, here)
        (warehouse, *_) = self._ask(
            "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse"
            " WHERE w_id = %s",
            here,
        )
        self._do(
            "UPDATE district SET d_ytd = d_ytd + %s WHERE d_w_id = %s AND d_id = %s",
            *(amount, here, district),
        )
        (name, *_) = self._ask(
            "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district"
            " WHERE d_w_id = %s AND d_id = %s",
            *(here, district),
        )
        if chance.percent(60):
            named = self._ask_all(
                "SELECT c_id FROM customer WHERE c_w_id = %s AND c_d_id = %s AND c_last = %s"
                " ORDER BY c_first",
                *(*of, chance.surname()),
            )
            customer = _middle(named)
        else:
            customer = chance.customer()
        key = (*of, customer)
        credit, *_ = self._ask(
            "SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state,"
            " c_zip, c_phone, c_credit_lim, c_discount, c_balance, c_since FROM customer"
            " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s FOR UPDATE",
            *key,
        )
        paid = (
            "UPDATE customer SET c_balance = c_balance - %s, c_ytd_payment = c_ytd_payment + %s,"
            " c_payment_cnt = c_payment_cnt + 1{} WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s"
        )
        if credit == "BC":
            (data,) = self._ask(
                "SELECT c_data FROM customer WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s", *key
            )
            data = f"{customer} {of} {district} {here} {amount} {data}"[:500]
            self._do(paid.format(", c_data = %s"), amount, amount, data, *key)
        else:
            self._do(paid.format(""), amount, amount, *key)
        self._do(
            "INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount,"
            " h_data) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            *(of[1], of[0], customer, district, here, _now(), amount, f"{warehouse}    {name}"),
        )

    def order_status(self) -> None:
        """A customer asks for the last order."""
        chance = self._chance
        at = (self._warehouse, chance.district())
        if chance.percent(60):
            named = self._ask_all(
                "SELECT c_id, c_balance, c_first, c_middle FROM customer"
                " WHERE c_w_id = %s AND c_d_id = %s AND c_last = %s ORDER BY c_first",
                *(*at, chance.surname()),
            )
            customer = _middle(named)
        else:
            customer = chance.customer()
            self._ask(
                "SELECT c_balance, c_first, c_middle, c_last FROM customer"
                " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
                *(*at, customer),
            )
        order, *_ = self._ask(
            "SELECT o_id, o_carrier_id, o_entry_d FROM orders"
            " WHERE o_w_id = %s AND o_d_id = %s AND o_c_id = %s ORDER BY o_id DESC LIMIT 1",
            *(*at, customer),
        )
        self._ask_all(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line"
            " WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s",
            *(*at, order),
        )

    def delivery(self) -> None:
        """The oldest order of each district is delivered."""
        here, carrier = self._warehouse, self._chance.randint(1, 10)
        for district in range(1, DISTRICTS + 1):
            oldest = self._ask_all(
                "SELECT no_o_id FROM new_order WHERE no_w_id = %s AND no_d_id = %s"
                " ORDER BY no_o_id LIMIT 1 FOR UPDATE",
                *(here, district),
            )
            if oldest:
                self._deliver((here, district, oldest[0][0]), carrier)

    def _deliver(self, order: Row, carrier: int) -> None:
        here, district, _ = order
        self._do(
            "DELETE FROM new_order WHERE no_w_id = %s AND no_d_id = %s AND no_o_id = %s", *order
        )
        (customer,) = self._ask(
            "SELECT o_c_id FROM orders WHERE o_w_id = %s AND o_d_id = %s AND o_id = %s FOR UPDATE",
            *order,
        )
        self._do(
            "UPDATE orders SET o_carrier_id = %s WHERE o_w_id = %s AND o_d_id = %s AND o_id = %s",
            *(carrier, *order),
        )
        self._do(
            "UPDATE order_line SET ol_delivery_d = %s"
            " WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s",
            *(_now(), *order),
        )
        (total,) = self._ask(
            "SELECT SUM(ol_amount) FROM order_line"
            " WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s",
            *order,
        )
        self._do(
            "UPDATE customer SET c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1"
            " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
            *(total, here, district, customer),
        )

    def stock_level(self) -> None:
        """How many items of a district's last orders run short."""
        at = (self._warehouse, self._chance.district())
        (following,) = self._ask(
            "SELECT d_next_o_id FROM district WHERE d_w_id = %s AND d_id = %s", *at
        )
        self._ask(
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock"
            " WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id < %s AND ol_o_id >= %s"
            " AND s_w_id = %s AND s_i_id = ol_i_id AND s_quantity < %s",
            *(*at, following, following - 20, self._warehouse, self._chance.randint(10, 20)),
        )

    def _other(self) -> int:
        """Another warehouse."""
        others = [each for each in range(1, WAREHOUSES + 1) if each != self._warehouse]
        return self._chance.choice(others)

    def _do(self, statement: str, *values: object) -> None:
        self._cursor.execute(statement, values)

    def _ask_all(self, query: str, *values: object) -> Sequence[Row]:
        self._cursor.execute(query, values)
        rows: Sequence[Row] = self._cursor.fetchall()
        return rows

    def _ask(self, query: str, *values: object) -> Row:
        (row,) = self._ask_all(query, *values)
        return row


def _middle(named: Sequence[Row]) -> int:
    """Of all customers with a surname the one in the middle, whose number comes first."""
    number: int = named[(len(named) - 1) // 2][0]
    return number


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


class Tpcc(Work):
    """TPC-C's transactions, by two terminals of each warehouse."""

    name = f"TPC-C, {WAREHOUSES} warehouses"

    def begin(self, stack: ExitStack, place: Place) -> Load:
        with closing(place.server.connect(database=place.schema)) as connection:
            fill(connection)
        terminals = []
        for number in range(self.connections):
            connection = pymysql.connect(
                host=HOST,
                port=place.port,
                user=ACCOUNT,
                password=ACCOUNT,
                database=place.schema,
            )
            stack.enter_context(closing(connection))
            terminals.append(Terminal(connection, 1 + number % WAREHOUSES, Chance(number)))

        def load(seconds: float) -> None:
            until = time.perf_counter() + seconds
            with ThreadPoolExecutor(len(terminals)) as pool:
                list(pool.map(lambda terminal: terminal.work(until), terminals))

        return load
