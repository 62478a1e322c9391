"""Secrets in files that have another content by now: what a reload makes of them."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from sqlcache.admin.site import site
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from sqlcache.process.reloading import changed, taken_from
from sqlcache.settings import HostPort, Settings
from tests import web
from tests.admin.test_site import Configured, Processes
from tests.conftest import ProxyFactory
from tests.process.test_reloading import given, reload
from tests.process.test_workers import ALL_READY, workers


def test_a_file_with_another_content_is_a_setting_that_differs(tmp_path: Path) -> None:
    token, secret = tmp_path / "token", tmp_path / "secret"

    def read() -> Settings:
        return given(admin__token_file=str(token), memcached__secret_file=str(secret))

    token.write_text("a-first-token")
    secret.write_text("a secret of the first kind")
    first, same = read(), read()
    assert list(changed(first, same)) == []
    token.write_text("another-token")
    secret.write_text("a secret of another kind")
    second = read()
    assert dict(changed(first, second)) == {
        "admin.token_file": True,
        "memcached.secret_file": False,
    }
    taken = taken_from(first, second)
    assert taken.admin.read_token() == "another-token"
    assert taken.memcached.read_secret() == "a secret of the first kind"
    assert "another-token" not in repr(second)
    assert "of another kind" not in repr(second)


def asked(server: PrivateSqlcache, method: str, path: str, token: str) -> int:
    url = f"http://127.0.0.1:{server.admin_port}/api/{path}"
    told = {"Authorization": f"Bearer {token}"}
    if method == "POST":
        return web.post(url, headers=told, json={}).status_code
    return web.get(url, headers=told).status_code


def test_a_new_token_is_wanted_after_a_reload_and_the_old_one_is_none(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("a-first-token\n")
    server = proxy(mariadb, memcached, admin__token_file=str(file))
    assert asked(server, "GET", "summary", "a-first-token") == 200
    file.write_text("another-token\n")
    assert asked(server, "GET", "summary", "a-first-token") == 200, "until it is told"
    assert "changed=admin.token_file" in reload(server, admin__token_file=str(file))
    assert asked(server, "GET", "summary", "a-first-token") == 401
    assert asked(server, "GET", "summary", "another-token") == 200
    file.write_text("short\n")
    said = reload(server, admin__token_file=str(file))
    assert "expected at least 8 characters in token_file" in said
    assert asked(server, "GET", "summary", "another-token") == 200
    file.write_text("the-third-token\n")
    assert asked(server, "POST", "reload", "another-token") == 200
    assert asked(server, "GET", "summary", "another-token") == 401
    assert asked(server, "GET", "summary", "the-third-token") == 200
    assert "-token\n" not in server.log_text()


async def test_a_door_that_was_nobodys_is_open_once_there_is_a_token() -> None:
    configured = Configured()
    admin = configured.settings.admin.model_copy(update={"listen": HostPort("0.0.0.0", 9307)})
    configured.settings = configured.settings.model_copy(update={"admin": admin})
    transport = httpx.ASGITransport(site(Processes(), configured))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9307") as client:
        paths = ("/", "/static/main.js", "/api/summary")
        assert [(await client.get(path)).status_code for path in paths] == [403, 403, 403]
        read = given(admin__listen="0.0.0.0:9307", admin__token="a-first-token")
        configured.settings = taken_from(configured.settings, read)
        assert [(await client.get(path)).status_code for path in paths] == [200, 200, 401]
        told = {"Authorization": "Bearer a-first-token"}
        assert (await client.get("/api/summary", headers=told)).status_code == 200


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a secret of the first kind")
    return file


def test_another_secret_of_memcached_wants_a_restart_also_of_workers_that_are_started_anew(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    secret: Path,
) -> None:
    mariadb.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    server = proxy(mariadb, memcached, proxy__workers=2, memcached__secret_file=str(secret))

    def read() -> None:
        account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
        with closing(server.connect(**account)) as session, session.cursor() as cursor:
            cursor.execute("SELECT v FROM t")

    read()
    secret.write_text("a secret of another kind")
    said = reload(server, memcached__secret_file=str(secret))
    wait_until(lambda: "need a restart" in server.log_text(), 10, "the line")
    assert "changed=none" in said
    assert "settings=memcached.secret_file" in server.log_text()
    before = workers(server)
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: len(workers(server) - before) == 1, 20, "a new worker")
    wait_until(lambda: server.readiness() == ALL_READY, 20, "all workers")
    missed = server.metrics()["sqlcache_misses_total"]
    for _ in range(8):  # so both serve some
        read()
    counted = server.metrics()
    assert counted["sqlcache_misses_total"] == missed, "it is stored under the same key"
    assert counted["sqlcache_hits_total"] >= 8
    assert counted["sqlcache_seals_broken_total"] == 0


def test_two_with_different_secrets_share_no_answers_and_see_each_others_writes(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    secret: Path,
    tmp_path: Path,
) -> None:
    mariadb.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (0)", schema)
    (tmp_path / "other").write_text("a secret of another kind")
    servers = [
        proxy(mariadb, memcached, memcached__secret_file=str(file))
        for file in (secret, tmp_path / "other")
    ]
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    old, new = (server.connect(**account, autocommit=True).cursor() for server in servers)

    def values() -> list[int]:
        for cursor in (old, new):
            cursor.execute("SELECT v FROM t")
        return [cursor.fetchall()[0][0] for cursor in (old, new)]

    for number, writer in enumerate((old, new, old, new), start=1):
        writer.execute("UPDATE t SET v = %s", (number,))
        assert values() == values() == [number, number]
    for server in servers:
        counted = server.metrics()
        assert counted["sqlcache_seals_broken_total"] == 0
        assert counted["sqlcache_hits_total"] == counted["sqlcache_misses_total"] == 4
