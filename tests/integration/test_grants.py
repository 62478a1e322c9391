"""A service account that lacks rights: nothing is wrong for that, and sqlcache says what lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sqlcache.cli import main
from sqlcache.demo.servers import PrivateMemcached, PrivateSqlServer, wait_until
from tests.conftest import ProxyFactory


@dataclass(frozen=True, slots=True)
class Seen:
    """A server as another service account sees it."""

    service_url: str


@pytest.fixture
def blind(upstream: PrivateSqlServer, schema: str) -> Iterator[Any]:
    """The server for a service account that may look into one schema only."""
    upstream.sql(
        f"CREATE USER {schema} IDENTIFIED BY 'p';"
        f" GRANT SELECT, SHOW VIEW, TRIGGER ON {schema}.* TO {schema}"
    )
    yield Seen(f"mysql://{schema}:p@{upstream.address}")
    upstream.sql(f"DROP USER {schema}")


def test_a_login_after_a_revoke_gets_nothing_that_an_older_session_stored(
    upstream: PrivateSqlServer,
    schema: str,
    blind: Any,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
) -> None:
    user = f"{schema}_u"
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    upstream.sql(f"CREATE USER {user} IDENTIFIED BY 'p'; GRANT SELECT ON *.* TO {user}")
    through = proxy(blind, memcached)
    read = f"SELECT v FROM {schema}.t"
    login: dict[str, Any] = {"user": user, "password": "p"}
    app: dict[str, Any] = {"user": upstream.user, "password": upstream.password}
    try:
        with (
            closing(through.connect(**login)) as older,
            closing(through.connect(**app)) as granting,
        ):
            granting.cursor().execute(f"REVOKE SELECT ON *.* FROM {user}")
            for _ in range(5):  # what it may do it has read at its login
                assert older.cursor().execute(read) == 1
            assert through.metrics()["sqlcache_hits_total"] >= 2
            with (
                closing(through.connect(**login)) as newer,
                pytest.raises(pymysql.OperationalError, match="denied"),
            ):
                newer.cursor().execute(read)
    finally:
        upstream.sql(f"DROP USER {user}")


def test_an_account_gets_nothing_of_its_namesake_for_another_host(
    upstream: PrivateSqlServer, tmp_path: Path, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    """Who comes by a socket is another than who comes by TCP, where no name is looked up."""
    with type(upstream)(tmp_path / "server", ("--skip-name-resolve",)) as server:
        server.sql(
            "CREATE DATABASE shop; CREATE TABLE shop.t (v INT); INSERT INTO shop.t VALUES (1)"
        )
        server.sql(
            "CREATE USER u@localhost IDENTIFIED BY 'p'; GRANT SELECT ON shop.* TO u@localhost"
        )
        server.sql("CREATE USER u@127.0.0.1 IDENTIFIED BY 'p'")
        by_socket = f"{server.service_url.replace(server.address, 'localhost')}?unix_socket="
        one = proxy(Seen(by_socket + str(server.socket)), memcached)
        other = proxy(server, memcached)
        login: dict[str, Any] = {"user": "u", "password": "p"}
        read = "SELECT v FROM shop.t"
        with closing(one.connect(**login)) as may:
            for _ in range(3):
                assert may.cursor().execute(read) == 1
        assert one.metrics()["sqlcache_hits_total"] >= 1
        with (
            closing(other.connect(**login)) as may_not,
            pytest.raises(pymysql.OperationalError, match="denied"),
        ):
            may_not.cursor().execute(read)
        app = {"user": server.user, "password": server.password}  # there is one of that name
        before = other.metrics()["sqlcache_hits_total"]
        for each in (one, one, other):
            with closing(each.connect(**app)) as connection:
                assert connection.cursor().execute(read) == 1
        assert other.metrics()["sqlcache_hits_total"] == before + 1


@pytest.mark.parametrize("level", ["{}.t", "{}.*", "*.*"])
def test_a_right_that_was_revoked_while_no_sqlcache_ran_gives_nothing(
    upstream: PrivateSqlServer,
    schema: str,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    level: str,
) -> None:
    user, right = f"{schema}_u", f"SELECT ON {level.format(schema)}"
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    upstream.sql(f"CREATE USER {user} IDENTIFIED BY 'p'; GRANT {right} TO {user}")
    read = f"SELECT v FROM {schema}.t"
    login: dict[str, Any] = {"user": user, "password": "p"}
    upstream.connect(**login).close()  # caching_sha2_password knows it from now on
    before = proxy(upstream, memcached, binlog__follow="off")
    with closing(before.connect(**login)) as session:
        assert [session.cursor().execute(read) for _ in range(4)] == [1] * 4
    assert before.metrics()["sqlcache_hits_total"] > 0
    before.stop()
    upstream.sql(f"REVOKE {right} FROM {user}")
    after = proxy(upstream, memcached, binlog__follow="off")
    with (
        closing(after.connect(**login)) as session,
        pytest.raises(pymysql.OperationalError, match="denied"),
    ):
        session.cursor().execute(read)
    upstream.sql(f"DROP USER {user}")


def test_who_logs_in_as_another_account_now_gets_nothing_of_the_one_before(
    mysql: PrivateSqlServer,
    schema: str,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
) -> None:
    """MySQL takes a user for the account that it is proxy of."""
    user, one, other = (f"{schema}_{name}" for name in ("u", "one", "other"))
    mysql.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    mysql.sql(f"CREATE USER {user} IDENTIFIED WITH sha256_password BY 'p'")
    mysql.sql(f"CREATE USER {one}, {other}; GRANT SELECT ON {schema}.* TO {one}")
    mysql.sql("SET GLOBAL check_proxy_users = ON, GLOBAL sha256_password_proxy_users = ON")
    through = proxy(mysql, memcached, upstream__catalog_refresh_s=0.2, binlog__follow="off")
    login: dict[str, Any] = {"user": user, "password": "p"}
    read = f"SELECT v FROM {schema}.t"
    try:
        mysql.sql(f"GRANT PROXY ON {one} TO {user}")
        with closing(through.connect(**login)) as session:
            assert [session.cursor().execute(read) for _ in range(4)] == [1] * 4
            assert through.metrics()["sqlcache_hits_total"] > 0
            mysql.sql(f"REVOKE PROXY ON {one} FROM {user}; GRANT PROXY ON {other} TO {user}")
            loads = through.metrics()["sqlcache_catalog_loads_total"] + 2
            wait_until(
                lambda: through.metrics()["sqlcache_catalog_loads_total"] >= loads, 10, "a reading"
            )
            with (
                closing(through.connect(**login)) as newer,
                pytest.raises(pymysql.OperationalError, match="denied"),
            ):
                newer.cursor().execute(read)
    finally:
        mysql.sql("SET GLOBAL check_proxy_users = OFF, GLOBAL sha256_password_proxy_users = OFF")
        mysql.sql(f"DROP USER {user}, {one}, {other}")


def test_rights_that_lack_are_told_everywhere(
    upstream: PrivateSqlServer,
    schema: str,
    blind: Any,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
) -> None:
    through = proxy(blind, memcached, upstream__catalog_refresh_s=0.2)
    readiness = through.readiness()
    assert readiness["ready"]
    assert "SELECT, SHOW VIEW, TRIGGER" in readiness["warnings"]["grants"]
    assert through.metrics()["sqlcache_grants_missing"] == 3
    assert through.log_text().count("lacks SELECT, SHOW VIEW, TRIGGER ON *.*") == 1
    upstream.sql(f"GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO {schema}")
    wait_until(lambda: "grants" not in through.readiness()["warnings"], 10, "rights are seen")
    assert through.metrics()["sqlcache_grants_missing"] == 0
    assert through.log_text().count("lacks no right now") == 1


def test_check_config_asks_mysql_and_memcached_only_where_it_is_told_to(
    upstream: PrivateSqlServer,
    schema: str,
    blind: Any,
    memcached: PrivateMemcached,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience = "SQLCACHE_MEMCACHED__CONNECT_TIMEOUT_S"
    monkeypatch.setenv(patience, "20")

    rules = [{"table": f"{schema}.there"}, {"table": f"{schema}.gone"}, {"schema": "nowhere"}]
    monkeypatch.setenv("SQLCACHE_RULES", json.dumps([{**rule, "off": True} for rule in rules]))
    upstream.sql("CREATE TABLE there (id INT)", schema)

    def checked(url: str, *flags: str) -> tuple[int, str]:
        told = ["--upstream", url, "--memcached", memcached.address, *flags]
        code = main(["check-config", *told])
        return code, "".join(capsys.readouterr())

    code, said = checked(upstream.service_url, "--connect")
    assert code == 0
    assert f"{upstream.name.rstrip('d')} " in said
    assert f"memcached.nodes: {memcached.address} answers" in said
    assert "what is written around sqlcache is seen" in said
    assert [line for line in said.splitlines() if line.startswith("warning: ")] == [
        f"warning: rules[1].table = {schema}.gone: there is no such table",
        "warning: rules[2].schema = nowhere: there is no table in such a schema",
    ]
    code, said = checked(blind.service_url, "--connect")
    assert code == 1
    assert "lacks SELECT, SHOW VIEW, TRIGGER ON *.*" in said
    assert "around sqlcache is not seen: the account of upstream.url may not read the log" in said
    assert "around sqlcache" not in checked(blind.service_url, "--connect", "--binlog", "off")[1]
    memcached.kill()
    monkeypatch.delenv(patience)
    wrong = blind.service_url.replace(":p@", ":wrong@")
    assert checked(wrong)[0] == 0
    code, said = checked(wrong, "--connect")
    assert code == 1
    assert "the account of upstream.url: (1045" in said
    assert "sqlcache: memcached.nodes: " in said
