"""MySQL's plugin Rewriter runs other statements than those that it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlcache
from tests.conftest import ProxyFactory
from tests.servers import PrivateMySQL

_TEXT = "VARCHAR({}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_RULES = f"""CREATE TABLE query_rewrite.rewrite_rules (id INT AUTO_INCREMENT PRIMARY KEY,
    pattern {_TEXT.format(5000)} NOT NULL, pattern_database {_TEXT.format(20)},
    replacement {_TEXT.format(5000)} NOT NULL,
    enabled ENUM('YES', 'NO') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'YES',
    message {_TEXT.format(1000)}, pattern_digest VARCHAR(64), normalized_pattern VARCHAR(100))"""
_LOADS = "CALL query_rewrite.flush_rewrite_rules()"
_READS = ("SELECT v FROM a WHERE v > 0", "SELECT v FROM b", "SELECT v FROM a")

Run = Callable[..., Any]


@pytest.fixture
def rewriting(mysql: PrivateMySQL) -> Iterator[None]:
    """The plugin is installed, as its own script does it."""
    try:
        mysql.sql("INSTALL PLUGIN rewriter SONAME 'rewriter.so'")
    except pymysql.MySQLError as error:
        pytest.skip(f"no plugin Rewriter: {error}")
    mysql.sql(f"CREATE DATABASE query_rewrite; {_RULES}; SET GLOBAL rewriter_verbose = 0")
    mysql.sql("CREATE FUNCTION load_rewrite_rules RETURNS STRING SONAME 'rewriter.so'")
    mysql.sql(
        "CREATE PROCEDURE query_rewrite.flush_rewrite_rules() BEGIN"
        " DECLARE failed VARCHAR(100); COMMIT; SELECT load_rewrite_rules() INTO failed;"
        " IF failed IS NOT NULL THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = failed; END IF; END"
    )
    yield
    for undone in (
        f"DELETE FROM query_rewrite.rewrite_rules; {_LOADS}",
        "DROP FUNCTION load_rewrite_rules; DROP DATABASE query_rewrite",
        "UNINSTALL PLUGIN rewriter",
    ):
        with suppress(pymysql.MySQLError):
            mysql.sql(undone)


@pytest.mark.usefixtures("rewriting")
def test_nothing_is_answered_from_the_cache_while_others_may_be_run(
    mysql: PrivateMySQL, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> None:
    mysql.sql(
        f"CREATE TABLE {schema}.a (v INT); CREATE TABLE {schema}.b (v INT);"
        f"INSERT INTO {schema}.a VALUES (1); INSERT INTO {schema}.b VALUES (10);"
        "INSERT INTO query_rewrite.rewrite_rules (pattern, replacement, pattern_database) VALUES"
        f" ('SELECT v FROM a WHERE v > ?', 'SELECT v FROM b WHERE v > ?', '{schema}'),"
        f" ('UPDATE a SET v = ?', 'UPDATE b SET v = ?', '{schema}')"
    )
    servers = [proxy(mysql, memcached, upstream__catalog_refresh_s=3600) for _ in range(2)]
    login = {"user": mysql.user, "password": mysql.password, "database": schema}
    writer, reader = (server.connect(**login) for server in servers)
    direct = mysql.connect(**login)

    def run(session: Any, statement: str) -> Any:
        with session.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def is_current() -> bool:
        for _ in range(3):
            for read in _READS:
                expected = run(direct, read)
                if [run(session, read) for session in (writer, reader)] != [expected] * 2:
                    return False
        return True

    assert is_current()
    before = hits(servers)
    assert before
    run(writer, _LOADS)
    assert is_current()
    for value in (20, 30):
        run(writer, f"UPDATE a SET v = {value}")  # it writes b
        assert is_current()
        run(reader, f"UPDATE b SET v = {value + 1}")
        assert is_current()
    assert hits(servers) == before
    assert "rewriter" in servers[0].readiness()["warnings"]
    run(reader, "SET GLOBAL rewriter_enabled = OFF")
    assert is_current()
    run(writer, "UPDATE a SET v = 40")
    assert is_current()
    assert hits(servers) > before
    assert "rewriter" not in servers[0].readiness()["warnings"]
    run(reader, "SET GLOBAL rewriter_enabled = ON")
    before = hits(servers)
    run(reader, "UPDATE a SET v = 50")
    assert is_current()
    assert hits(servers) == before
    for session in (writer, reader, direct):
        session.close()


def hits(servers: list[PrivateSqlcache]) -> float:
    return sum(server.metrics()["sqlcache_hits_total"] for server in servers)
