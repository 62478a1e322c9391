"""A password that expired with time: the server lets its user in to do nothing but set another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pymysql
import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Capability
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import OLD, RawClient

ER_MUST_CHANGE_PASSWORD = 1820
AWARE = OLD | Capability.CAN_HANDLE_EXPIRED_PASSWORDS
SET_PASSWORD = {
    "mariadbd": "SET PASSWORD = PASSWORD('p')",
    "mysqld": "ALTER USER USER() IDENTIFIED BY 'p'",
}

_OF_LONG_AGO = {
    "mariadbd": "UPDATE mysql.global_priv SET priv = JSON_SET(priv, '$.password_last_changed',"
    " UNIX_TIMESTAMP() - 9 * 86400) WHERE user = '{}'",
    "mysqld": "UPDATE mysql.user SET password_last_changed = NOW() - INTERVAL 9 DAY"
    " WHERE user = '{}'",
}


@pytest.fixture
def user(upstream: PrivateSqlServer, schema: str) -> Iterator[str]:
    """Whose password, `p`, lives for a day."""
    yield from account(upstream, schema, "PASSWORD EXPIRE INTERVAL 1 DAY")


@pytest.fixture
def user_like_most(upstream: PrivateSqlServer, schema: str) -> Iterator[str]:
    """Whose password, `p`, is nine days old, and lives as long as any."""
    for name in account(upstream, schema, "PASSWORD EXPIRE DEFAULT"):
        upstream.sql(f"{_OF_LONG_AGO[upstream.name].format(name)}; FLUSH PRIVILEGES")
        yield name
        set_global(upstream, upstream, "default_password_lifetime = 0")


def account(upstream: PrivateSqlServer, schema: str, expires: str) -> Iterator[str]:
    name = f"{schema}_user"
    upstream.sql(f"CREATE USER {name} IDENTIFIED BY 'p' {expires}")
    upstream.sql(f"GRANT ALL ON {schema}.* TO {name}")
    yield name
    upstream.sql(f"DROP USER {name}")


def log_in(server: PrivateSqlServer | PrivateSqlcache, user: str) -> RawClient:
    return RawClient.logged_in(server, user, "p", "", AWARE)


def remind(server: PrivateSqlServer, user: str) -> None:
    """Logs in so that caching_sha2_password knows the password."""
    with suppress(pymysql.MySQLError):
        server.connect(user=user, password="p", client_flag=AWARE).close()


def is_hit(relay: PrivateSqlcache, session: RawClient, read: str) -> bool:
    before = relay.metrics()["sqlcache_hits_total"]
    assert b"\x017" in session.sql(read)
    return relay.metrics()["sqlcache_hits_total"] > before


def test_who_is_to_set_another_password_is_answered_nothing(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str, user: str
) -> None:
    relay = proxy(upstream, "memory", upstream__catalog_refresh_s=3600)
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)", schema)
    read = f"SELECT v FROM {schema}.t"
    remind(upstream, user)
    with log_in(relay, user) as before:
        wait_until(lambda: is_hit(relay, before, read), 10, "a hit")
        upstream.sql(f"{_OF_LONG_AGO[upstream.name].format(user)}; FLUSH PRIVILEGES")
        remind(upstream, user)
        for server in (upstream, relay):
            with log_in(server, user) as late:
                assert [refusal(late, read) for _ in range(2)] == [ER_MUST_CHANGE_PASSWORD] * 2
        assert is_hit(relay, before, read)  # the server looks at logins only
        with log_in(relay, user) as late:
            late.query(SET_PASSWORD[upstream.name])
            assert late.read_packet()[1][:1] == b"\0"
            wait_until(lambda: is_hit(relay, late, read), 10, "a hit")


def test_who_is_to_set_another_password_since_a_global_was_set_is_answered_nothing(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str, user_like_most: str
) -> None:
    relay = proxy(upstream, "memory", upstream__catalog_refresh_s=3600)
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)", schema)
    read = f"SELECT v FROM {schema}.t"
    remind(upstream, user_like_most)
    with log_in(relay, user_like_most) as before:
        wait_until(lambda: is_hit(relay, before, read), 10, "a hit")
        set_global(relay, upstream, "default_password_lifetime = 1")
        wait_until(lambda: is_hit(relay, before, read), 10, "a hit")
        remind(upstream, user_like_most)
        with log_in(relay, user_like_most) as late:
            assert [refusal(late, read) for _ in range(2)] == [ER_MUST_CHANGE_PASSWORD] * 2


def test_who_is_let_in_since_a_global_was_set_is_answered_nothing(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str, user: str
) -> None:
    if upstream.name == "mysqld":
        pytest.skip("MySQL's is set as it starts")
    set_global(upstream, upstream, "disconnect_on_expired_password = ON")
    relay = proxy(upstream, "memory", upstream__catalog_refresh_s=3600)
    upstream.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)", schema)
    read = f"SELECT v FROM {schema}.t"
    set_global(relay, upstream, "disconnect_on_expired_password = OFF")
    with RawClient.logged_in(relay, user, "p") as before:
        wait_until(lambda: is_hit(relay, before, read), 10, "a hit")
        upstream.sql(f"{_OF_LONG_AGO[upstream.name].format(user)}; FLUSH PRIVILEGES")
        with RawClient.logged_in(relay, user, "p") as late:
            assert [refusal(late, read) for _ in range(2)] == [ER_MUST_CHANGE_PASSWORD] * 2


def set_global(
    through: PrivateSqlServer | PrivateSqlcache, upstream: PrivateSqlServer, assignment: str
) -> None:
    """By an account whose password is new: that of MariaDB's root may have expired."""
    login = {"user": upstream.user, "password": upstream.password}
    with closing(through.connect(**login)) as connection:
        connection.query(f"SET GLOBAL {assignment}")


def refusal(session: RawClient, read: str) -> int:
    session.query(read)
    packet = session.read_packet()[1]
    assert packet[:1] == b"\xff", packet
    return int.from_bytes(packet[1:3], "little")


@pytest.mark.parametrize("way", ["itself", "prepared"])
def test_who_has_his_own_password_expire_is_answered_nothing(
    mysql: PrivateSqlServer, proxy: ProxyFactory, schema: str, way: str
) -> None:
    """MySQL looks at it at once, MariaDB at the next login. Nothing is new to other sessions where
    it had expired before."""
    user = f"{schema}_own"
    expire = f"ALTER USER {user} PASSWORD EXPIRE"
    mysql.sql(f"CREATE USER {user} IDENTIFIED BY 'p'; GRANT ALL ON {schema}.* TO {user}")
    mysql.sql(f"GRANT CREATE USER ON *.* TO {user}")
    mysql.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)", schema)
    ways = {"itself": [expire], "prepared": [f"PREPARE s FROM '{expire}'", "EXECUTE s"]}
    read = f"SELECT v FROM {schema}.t"
    remind(mysql, user)
    relay = proxy(mysql, "memory", upstream__catalog_refresh_s=3600)
    with ExitStack() as stack:
        own, before, other = (stack.enter_context(log_in(relay, user)) for _ in range(3))
        before.query(expire)
        assert before.read_packet()[1][:1] == b"\0"
        wait_until(lambda: is_hit(relay, own, read), 10, "a hit")
        wait_until(lambda: is_hit(relay, other, read), 10, "a hit")
        for statement in ways[way]:
            own.query(statement)
            assert own.read_packet()[1][:1] == b"\0"
        wait_until(lambda: is_hit(relay, other, read), 10, "a hit")
        for _ in range(2):
            own.query(read)
            refusal = own.read_packet()[1]
            assert refusal[:3] == b"\xff" + ER_MUST_CHANGE_PASSWORD.to_bytes(2, "little")
        own.query(f"ALTER USER {user} IDENTIFIED BY 'p'")
        assert own.read_packet()[1][:1] == b"\0"
        assert b"\x017" in own.sql(read)
    mysql.sql(f"DROP USER {user}")
