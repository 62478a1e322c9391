"""TPC-C's transactions: that they leave the tables as the standard says (its clause 3.3.2)."""

import time
from contextlib import ExitStack
from pathlib import Path

from sqlcache.demo.servers import PrivateMariaDB
from tests.bench.tpcc import Tpcc
from tests.bench.works import ACCOUNT, Place

ALL_IS_CONSISTENT = {
    "SELECT w_ytd, SUM(d_ytd) FROM warehouse JOIN district ON w_id = d_w_id GROUP BY w_id": 4,
    "SELECT d_next_o_id - 1, MAX(o_id) FROM district"
    " JOIN orders ON d_w_id = o_w_id AND d_id = o_d_id GROUP BY d_w_id, d_id": 40,
    "SELECT MAX(no_o_id) - MIN(no_o_id) + 1, COUNT(*) FROM new_order GROUP BY no_w_id, no_d_id": 40,
    "SELECT (SELECT SUM(o_ol_cnt) FROM orders), (SELECT COUNT(*) FROM order_line)": 1,
    "SELECT (SELECT COUNT(*) FROM orders WHERE o_carrier_id IS NULL), COUNT(*) FROM new_order": 1,
    "SELECT (SELECT SUM(w_ytd) FROM warehouse), SUM(h_amount) FROM history": 1,
    "SELECT c_balance + c_ytd_payment, (SELECT COALESCE(SUM(ol_amount), 0) FROM orders"
    " JOIN order_line ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id"
    " WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id"
    " AND ol_delivery_d IS NOT NULL) FROM customer": 3_600,
}
"""Queries whose rows have two equal columns, with how many rows there are."""


def test_transactions_leave_all_tables_consistent(mariadb: PrivateMariaDB, tmp_path: Path) -> None:
    mariadb.sql(f"CREATE OR REPLACE USER {ACCOUNT}@'%' IDENTIFIED BY '{ACCOUNT}'")
    mariadb.sql(f"GRANT ALL ON *.* TO {ACCOUNT}@'%'; CREATE OR REPLACE DATABASE tpcc")

    def counted(what: str) -> int:
        ((number,),) = mariadb.sql(f"SELECT COUNT(*) FROM {what}", "tpcc")
        return int(number)

    with ExitStack() as stack:
        load = Tpcc().begin(stack, Place(mariadb, "tpcc", mariadb.port, tmp_path))
        before = counted("orders")
        until = time.monotonic() + 30
        while (
            counted("orders") == before
            or counted("history") == before
            or not counted("customer WHERE c_delivery_cnt")
        ):
            assert time.monotonic() < until
            load(0.5)
    for query, rows in ALL_IS_CONSISTENT.items():
        found = mariadb.sql(query, "tpcc")
        assert len(found) == rows, query
        assert [row for row in found if row[0] != row[1]] == [], query
    mariadb.sql(f"DROP DATABASE tpcc; DROP USER {ACCOUNT}@'%'")
