"""What is known of the functions and variables that each server has."""

from __future__ import annotations

from contextlib import closing
from itertools import product

import pymysql

from sqlcache.demo.servers import PrivateSqlServer
from sqlcache.sql.functions import AGGREGATES_AND_WINDOWS, DETERMINISTIC
from sqlcache.sql.shaping import GLOBALS_THAT_SHAPE_ANSWERS

_COLUMNS = "agv"


def test_what_gives_a_row_of_none_is_known_to(upstream: PrivateSqlServer, schema: str) -> None:
    """Such a row proves nothing of the table."""
    give: set[str] = set()
    arguments = ["", *(",".join(each) for n in (1, 2, 3) for each in product(_COLUMNS, repeat=n))]
    with closing(upstream.connect(database=schema)) as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE t (a INT, g GEOMETRY, v VARCHAR(9))")
        for name in DETERMINISTIC:
            for each in arguments:
                try:
                    rows = cursor.execute(f"SELECT {name}({each}) FROM t WHERE a = 5")
                except pymysql.MySQLError:
                    continue
                give |= {name} if rows else set()
                break
    assert {"COUNT", "GROUP_CONCAT", "JSON_OBJECTAGG"} <= give <= AGGREGATES_AND_WINDOWS


def test_what_the_plan_goes_by_tells_sessions_apart(upstream: PrivateSqlServer) -> None:
    found = upstream.sql("SHOW GLOBAL VARIABLES LIKE 'optimizer%'")
    traces = {name for name, _ in found if name.startswith("optimizer_trace_")}
    assert {name for name, _ in found} - traces <= GLOBALS_THAT_SHAPE_ANSWERS.keys()
