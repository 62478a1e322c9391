"""A TIME that becomes a date takes the date of today: such a query must not be cached.

Servers say which: they are asked on several days, by `SET timestamp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from pymysql.constants import FIELD_TYPE

from sqlcache.demo.servers import PrivateSqlServer
from sqlcache.plan.cacheability import Cacheable, assess
from sqlcache.plan.reader import Way
from sqlcache.service.opening import connect_service
from sqlcache.sql.analysis.literals import tell
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog_loader.load import load_catalog
from sqlcache.sql.lexer import tokenize
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.routines import NONE_DECLARED
from sqlcache.sql.statement import Told

DAYS = (1_000_000_000, 1_700_000_000, 1_710_000_000)

MAKE = """
    CREATE TABLE a (t TIME, d DATETIME, d2 DATETIME, dd DATE, ts TIMESTAMP NULL, i INT, y YEAR,
                    s VARCHAR(40));
    INSERT INTO a VALUES ('10:11:12', '2010-05-05 10:11:12', '2010-05-05 09:00:00', '2010-05-05',
                          '2010-05-05 10:11:12', 3600, 2010, '10:11:12');
    CREATE TABLE n (id INT, t DATETIME);
    INSERT INTO n VALUES (1, '2010-05-05 10:11:12');
    CREATE TABLE lone (x TIME);
    INSERT INTO lone VALUES ('10:11:12');
    CREATE TABLE dated (z DATETIME);
    INSERT INTO dated VALUES ('2010-05-05 10:11:12');
    CREATE TABLE computed (t TIME, d DATETIME AS (CAST(t AS DATETIME)) VIRTUAL);
    CREATE TABLE compared (t TIME, d DATETIME, x INT AS (t < d) VIRTUAL, v INT AS (1) VIRTUAL);
    CREATE TABLE turned (t TIME, `a ``d` DATETIME AS (t) VIRTUAL);
    CREATE TABLE kept (t TIME, d DATE, h INT AS (HOUR(t)) VIRTUAL, u TIME AS (t) VIRTUAL,
                       y INT AS (YEAR(d)) VIRTUAL, s VARCHAR(40) AS (CONCAT('it''s "', t)) VIRTUAL,
                       x INT AS (t < '12:00:00') VIRTUAL,
                       z DATETIME AS (CAST(t AS DATETIME)) STORED);
    INSERT INTO computed (t) VALUES ('10:11:12');
    INSERT INTO compared (t, d) VALUES ('10:11:12', '2010-05-05 10:11:12');
    INSERT INTO turned (t) VALUES ('10:11:12');
    INSERT INTO kept (t, d) VALUES ('10:11:12', '2010-05-05');
    CREATE VIEW of_computed AS SELECT d FROM computed;
    CREATE VIEW renamed AS SELECT t AS x, d AS z FROM a;
    CREATE VIEW converted AS SELECT CAST(t AS DATETIME) AS x FROM a;
    CREATE VIEW of_star AS WITH q (h) AS (SELECT * FROM lone) SELECT YEAR(h) AS i FROM q;
"""

TIMES = (
    "t", "a.t", "`T`", "TIME'10:11:12'", "MAKETIME(10, 11, 12)", "CAST('10:11:12' AS TIME)",
    "CAST('10:11:12' AS TIME(6))", "CONVERT(s, TIME)", "SEC_TO_TIME(i)", "TIMEDIFF(d, d2)",
    "TIME(d)", "STR_TO_DATE(s, '%H:%i:%s')", "STR_TO_DATE('10:11:12', '%H:%i:%s')", "MAX(t)",
    "STR_TO_DATE(s, '%T')", "STR_TO_DATE(s, '%H:%i:%s%%Y')", "STR_TO_DATE(s, '%d:%i:%s')",
    "STR_TO_DATE(s, CONCAT('%H', ':%i:%s'))", "STR_TO_DATE(s, '%H' ':%i:%s')",
    "/*!50000 STR_TO_DATE(s, '%H:%i:%s') */", "/*! STR_TO_DATE */ (s, '%H:%i:%s')",
    "STR_TO_DATE /* sqlcache: ttl=10 */ (s, '%H:%i:%s')",
    "ADDTIME(t, '1:0:0')", "COALESCE(t, NULL)", "(SELECT t)",
    "JSON_VALUE('\"10:11:12\"', '$' RETURNING TIME)",
    "JSON_VALUE('\"10:11:12\"', '$' RETURNING TIME NULL ON EMPTY)",
    "JSON_VALUE('\"10:11:12\"', '$' RETURNING TIME(6) ERROR ON ERROR)",
    "JSON_VALUE('{}', '$.no' RETURNING TIME DEFAULT '10:11:12' ON EMPTY)",
)  # fmt: skip

EXPRESSIONS = (
    "CAST(X AS DATETIME)", "CAST(X AS DATE)", "CONVERT(X, DATETIME)", "CAST(X AS DATETIME(6))",
    "TIMESTAMP(X)", "TIMESTAMP(X, t)", "DATE(X)", "YEAR(X)", "MONTH(X)", "DAY(X)", "QUARTER(X)",
    "DAYOFYEAR(X)", "DAYOFWEEK(X)", "DAYOFMONTH(X)", "WEEK(X)", "WEEKDAY(X)", "WEEKOFYEAR(X)",
    "YEARWEEK(X)", "DAYNAME(X)", "MONTHNAME(X)", "LAST_DAY(X)", "TO_DAYS(X)", "TO_SECONDS(X)",
    "UNIX_TIMESTAMP(X)", "DATEDIFF(X, d)", "DATEDIFF(d, X)", "TIMESTAMPDIFF(SECOND, X, d)",
    "TIMESTAMPADD(SECOND, 1, X)", "X + INTERVAL 1 DAY", "X - INTERVAL 1 SECOND",
    "DATE_ADD(X, INTERVAL 1 YEAR)", "DATE_FORMAT(X, '%Y-%m-%d')", "EXTRACT(DAY FROM X)",
    "EXTRACT(YEAR FROM X)", "ADDDATE(X, 1)", "SUBDATE(X, 1)", "COALESCE(X, d)", "COALESCE(d, X)",
    "COALESCE(NULL, X, d)", "IF(1, X, d)", "IFNULL(X, d)", "CASE WHEN 1 THEN X ELSE d END",
    "GREATEST(X, d)", "LEAST(X, d)", "NULLIF(d, X)", "X < d", "X = d", "X > dd", "X < ts", "d > X",
    "y < X", "X < DATE'2010-01-01'", "X BETWEEN d AND d2", "d BETWEEN X AND d2",
    "d BETWEEN d2 AND X = '0'", "X IN (d, d2)", "X IN ('2001-09-09 10:11:12', d)",
    "d IN (X)", "d < ALL (SELECT X)", "(X, 1) < (d, 1)", "X < (SELECT d)", "FIELD(X, d)",
    "CONVERT_TZ(X, '+00:00', '+01:00')",
    "X < TIMESTAMP'2005-01-01 10:00:00'", "LAG(X, 1, d) OVER ()", "CAST(X AS YEAR)",
    "(SELECT GROUP_CONCAT(z) FROM (SELECT X AS z UNION SELECT d) AS q)",
    "(SELECT GROUP_CONCAT(z) FROM (SELECT d AS z UNION ALL SELECT X) AS q)",
)  # fmt: skip

QUERIES = (
    "SELECT t FROM a UNION SELECT d FROM a",
    "SELECT t FROM a UNION SELECT t FROM n",
    "SELECT * FROM lone UNION SELECT d FROM a",
    "TABLE lone UNION SELECT d FROM a",
    "SELECT STR_TO_DATE(s, '%H:%i:%s') AS x, d FROM a HAVING x < d",
    "SELECT COUNT(*) FROM a WHERE d > STR_TO_DATE(s, '%H:%i:%s') AND d > STR_TO_DATE(s, '%Y')",
    "SELECT COUNT(*) FROM a WHERE t > STR_TO_DATE('2005-01-01 10', '%Y-%m-%d %H')",
    "SELECT d < STR_TO_DATE(STR_TO_DATE(s, '%H:%i:%s') + INTERVAL 1 DAY, '%Y-%m-%d %T') FROM a",
    "SELECT COUNT(*) FROM n NATURAL JOIN a",
    "(SELECT t FROM a) UNION ALL (SELECT d FROM a)",
    "SELECT * FROM (SELECT t FROM a) AS q UNION SELECT * FROM (SELECT d FROM a) AS r",
    "SELECT t AS x, d FROM a HAVING x < d",
    "SELECT t AS 'x', d FROM a HAVING x < d",
    "SELECT t x, d FROM a ORDER BY x < d, 1",
    "SELECT t AS x, d FROM a HAVING YEAR(x) > 2010",
    "SELECT MAX(t) AS x, d FROM a GROUP BY d HAVING x < d",
    "SELECT COUNT(*) FROM a WHERE t > d",
    "SELECT COUNT(*) FROM a WHERE '10:00:00' < t AND t < dd",
    "SELECT COUNT(*) FROM a JOIN n ON a.t > n.t",
    "SELECT COUNT(*) FROM a WHERE t > (SELECT * FROM (SELECT d FROM a) AS q)",
    "SELECT COUNT(*) FROM a WHERE t > ALL (SELECT * FROM (SELECT d FROM a) AS q)",
    "SELECT COUNT(*) FROM n WHERE n.t < ALL (SELECT * FROM lone)",
    "SELECT COUNT(*) FROM n WHERE n.t < SOME (SELECT lone.* FROM lone)",
    "SELECT COUNT(*) FROM n WHERE n.t < (SELECT * FROM lone)",
    "SELECT q.x < q.d FROM (SELECT t AS x, d FROM a) AS q",
    "WITH q (x, z) AS (SELECT t, d FROM a) SELECT x < z FROM q",
    "SELECT t < JSON_VALUE('\"2005-05-05 10:11:12\"', '$' RETURNING DATETIME NULL ON EMPTY) FROM a",
    "SELECT t < JSON_VALUE('{}', '$.no' RETURNING DATE DEFAULT '2005-05-05' ON EMPTY) FROM a",
    "SELECT YEAR(h) FROM a, JSON_TABLE('1', '$' COLUMNS (h TIME PATH '$')) AS q",
    "SELECT YEAR(h) FROM a, JSON_TABLE('1', '$' COLUMNS (h TIME EXISTS PATH '$')) AS q",
    "WITH q (h) AS (SELECT * FROM lone) SELECT YEAR(h) FROM q",
    "WITH q (h) AS (TABLE lone) SELECT YEAR(h) FROM q",
    "WITH q AS (SELECT * FROM lone), r (h) AS (SELECT * FROM q) SELECT YEAR(h) FROM r",
    "WITH q (h) AS (SELECT lone.* FROM lone) SELECT COUNT(*) FROM q JOIN dated ON h < z",
    "SELECT YEAR(h) FROM (SELECT * FROM lone) AS q (h)",
    "SELECT YEAR(h) FROM (SELECT * FROM lone) q(h)",
    "SELECT YEAR(h) FROM (TABLE lone) AS q (h)",
    "SELECT YEAR(h) FROM a JOIN (SELECT * FROM lone) AS q (h)",
    "SELECT YEAR(h) FROM a, LATERAL (SELECT * FROM lone) AS q (h)",
    "SELECT a.t < h FROM a JOIN (SELECT * FROM dated) AS q (h)",
    "SELECT (SELECT * FROM lone) < z FROM dated",
    "SELECT z > (SELECT * FROM lone) FROM dated",
    "SELECT z > ((SELECT * FROM lone)) FROM dated",
    "SELECT z > ((TABLE lone)) FROM dated",
    "SELECT (z, 1) > ((SELECT * FROM lone), 1) FROM dated",
    "SELECT (1, z) > (SELECT DISTINCT 1, lone.* FROM lone) FROM dated",
    "SELECT COALESCE((SELECT * FROM lone), z) FROM dated",
    "SELECT COALESCE(z, (TABLE lone)) FROM dated",
    "SELECT IF(1, (SELECT * FROM lone), z) FROM dated",
    "SELECT CASE WHEN 1 THEN (SELECT * FROM lone) ELSE z END FROM dated",
    "SELECT YEAR((TABLE lone)) FROM a",
    "SELECT YEAR((SELECT * FROM lone)) FROM a",
    "SELECT YEAR((SELECT * FROM (SELECT * FROM lone) AS q)) FROM a",
    "SELECT YEAR((WITH q AS (TABLE lone) SELECT * FROM q)) FROM a",
    "SELECT EXTRACT(YEAR FROM (SELECT * FROM lone)) FROM a",
    "SELECT EXTRACT(YEAR FROM (SELECT * FROM lone) COLLATE utf8mb4_bin) FROM a",
    "SELECT CAST((SELECT * FROM lone) AS DATETIME) FROM a",
    "SELECT (SELECT * FROM lone) + INTERVAL 1 DAY FROM a",
    "SELECT z BETWEEN (SELECT * FROM lone) AND z FROM dated",
    "SELECT (SELECT * FROM lone) BETWEEN z AND z FROM dated",
    "SELECT COUNT(*) FROM dated WHERE z BETWEEN '2010-01-01' AND (SELECT * FROM lone)",
    "SELECT (SELECT * FROM lone) IN (z, z) FROM dated",
    "SELECT * FROM of_star",
    "SELECT x < z FROM renamed",
    "SELECT GREATEST(x, z) FROM renamed",
    "SELECT * FROM converted",
    "SELECT COUNT(*) FROM n WHERE t > (SELECT x FROM converted)",
    "SELECT d FROM computed",
    "SELECT * FROM of_computed",
    "SELECT t, x FROM compared",
    "SELECT * FROM turned",
)

CACHEABLE = (
    "SELECT s FROM a WHERE d >= STR_TO_DATE('2009-01-01', '%Y-%m-%d')",
    "SELECT s FROM a WHERE d BETWEEN STR_TO_DATE('1/2/09', '%d/%m/%y') AND"
    " STR_TO_DATE('March 3 2020 10:11', '%M %e %Y %H:%i')",
    "SELECT STR_TO_DATE(CONCAT(DATE_FORMAT(a.d, '%Y-%m'), '-01'), '%Y-%m-%d') AS x, COUNT(*) FROM a"
    " GROUP BY STR_TO_DATE(CONCAT(DATE_FORMAT(a.d, '%Y-%m'), '-01'), '%Y-%m-%d')",
    "SELECT STR_TO_DATE(CONCAT(YEARWEEK(d), ' Sunday'), '%X%V %W') AS x FROM a GROUP BY 1",
    "SELECT STR_TO_DATE(s, '%H:%i:%c') AS x, d FROM a HAVING x < d",
    "SELECT COALESCE(STR_TO_DATE(s, '%y:%m:%d'), d), YEAR(STR_TO_DATE(s, '%y:%m:%d')) FROM a",
    "SELECT STR_TO_DATE(s, '%T') FROM a WHERE YEAR(d) = 2010",
    "SELECT CONVERT_TZ(d, '+00:00', '+05:30') FROM a WHERE d > CONVERT_TZ(ts, '-3:00', '+13:00')",
    "SELECT * FROM a",
    "SELECT t, d FROM a WHERE i = 3600",
    "SELECT a.t AS a_t, a.d AS a_d FROM a WHERE a.d > '2001-01-01' ORDER BY a.t DESC LIMIT 5",
    "SELECT s FROM a WHERE t < '12:00:00' AND d > '2001-01-01'",
    "SELECT s FROM a WHERE (t BETWEEN '09:00' AND '18:00' OR t IS NULL) AND d > d2",
    "SELECT s FROM a WHERE t IN ('10:11:12', '10:11:13') AND YEAR(d) = 2010",
    "SELECT HOUR(t), TIME_FORMAT(t, '%H') FROM a WHERE d BETWEEN '2001-01-01' AND '2030-01-01'",
    "SELECT MIN(t), MAX(t), SUM(TIME_TO_SEC(t)) FROM a GROUP BY i",
    "SELECT TIME(d), TIMEDIFF(d, d2) AS took, DATE(d) FROM a ORDER BY took",
    "SELECT d, COUNT(*) FROM a WHERE t = '10:11:12' GROUP BY d, t",
    "SELECT DATE_FORMAT(d, '%Y') FROM a",
    "SELECT d < d2, GREATEST(d, dd) FROM a",
    "SELECT CONVERT_TZ(d, 'UTC', '+05:30') FROM a WHERE t < '12:00:00'",
    "(SELECT i FROM a) UNION ALL SELECT s FROM a ORDER BY 1",
    "SELECT x, z FROM renamed WHERE x > '01:00:00'",
    "SELECT * FROM (SELECT * FROM a) AS q WHERE YEAR(d) = 2010",
    "SELECT q.i, YEAR(r.d) FROM (SELECT * FROM a) q JOIN (SELECT a.* FROM a) AS r USING (i)",
    "WITH q AS (SELECT * FROM a) SELECT i, YEAR(d) FROM q",
    "SELECT s, YEAR(d) FROM a WHERE EXISTS (SELECT * FROM n WHERE n.id = a.i)",
    "SELECT s, YEAR(d), (SELECT COUNT(*) FROM n WHERE n.id = a.i) FROM a",
    "SELECT s, YEAR(d), (SELECT SUM(n.id * id) FROM n) FROM a WHERE i > (SELECT 2 * 3)",
    "(SELECT * FROM a WHERE YEAR(d) = 2010)",
    "((SELECT * FROM a WHERE YEAR(d) = 2010))",
    "SELECT * FROM kept",
)


@pytest.fixture
async def catalog(upstream: PrivateSqlServer, schema: str) -> Catalog:
    upstream.sql(MAKE, schema)
    service = await connect_service(
        upstream.host, upstream.port, upstream.user, upstream.password, 10
    )
    try:
        loaded = await load_catalog(service)
    finally:
        service.close()
    # With them, or CONVERT_TZ() would be refused for another reason.
    server = replace(loaded.server, zones=True)
    return Catalog(replace(loaded.definitions, server=server), loaded.stored)


@pytest.fixture
def session(upstream: PrivateSqlServer, schema: str) -> Iterator[pymysql.Connection[Any]]:
    with closing(upstream.connect(database=schema)) as connection:
        yield connection


def hangs_on_the_day(session: pymysql.Connection[Any], query: str) -> bool:
    answers = set()
    with session.cursor() as cursor:
        for day in DAYS:
            cursor.execute(f"SET timestamp = {day}")
            try:
                cursor.execute(query)
                answers.add(str(cursor.fetchall()))
            except pymysql.MySQLError as error:
                answers.add(str(error))
    return len(answers) > 1


def is_cacheable(catalog: Catalog, schema: str, query: str) -> bool:
    way = Way(Dialect(), several=False, prepared=False, declared=NONE_DECLARED, formats=True)
    (statement,) = way.told(query.encode(), way.analyse(query.encode()))
    return isinstance(assess(statement, schema, catalog), Cacheable)


def test_what_takes_the_date_of_today_is_not_cacheable(
    catalog: Catalog, session: pymysql.Connection[Any], schema: str
) -> None:
    queries = [f"SELECT {e.replace('X', time)} FROM a" for e in EXPRESSIONS for time in TIMES]
    queries += [f"SELECT i FROM a WHERE {e.replace('X', 't')} > 0" for e in EXPRESSIONS]
    queries += QUERIES
    of_the_day = [query for query in queries if hangs_on_the_day(session, query)]
    assert len(of_the_day) > len(queries) / 3
    assert [query for query in of_the_day if is_cacheable(catalog, schema, query)] == []


def test_times_and_dates_side_by_side_are_cacheable(
    catalog: Catalog, session: pymysql.Connection[Any], schema: str
) -> None:
    assert [query for query in CACHEABLE if hangs_on_the_day(session, query)] == []
    assert [query for query in CACHEABLE if not is_cacheable(catalog, schema, query)] == []


def test_servers_make_dates_by_the_formats_that_say_so(session: pymysql.Connection[Any]) -> None:
    specifiers = [f"%{chr(byte)}" for byte in range(0x20, 0x7F) if chr(byte) not in "'\\"]
    around = ("{}", "%H{}", "{}%H", "%f{}", "{} %f", "%{}", "%H%{}", "%%{}%H", "{}%", "%d{}%i")
    formats = [each.format(specifier) for each in around for specifier in specifiers]
    calls = [f"STR_TO_DATE('1', '{form}')" for form in formats]
    types: dict[str, int] = {}
    with session.cursor() as cursor:
        for at in range(0, len(calls), 100):
            cursor.execute(f"SELECT {', '.join(calls[at : at + 100])}")
            types |= zip(
                calls[at : at + 100], [each[1] for each in cursor.description], strict=True
            )
    told = {call for call in calls if Told.DATES in tell(tokenize(call.encode(), Dialect()))}
    assert {types[call] for call in told} == {FIELD_TYPE.DATE, FIELD_TYPE.DATETIME}
    assert len(told) > len(calls) / 10
    dated = {call for call in calls if types[call] == FIELD_TYPE.DATETIME}
    assert dated <= told
