"""Traps of sessions: a hit is only for who may read what it is made of."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

import pymysql
import pytest

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlServer, wait_until
from tests.conftest import ProxyFactory
from tests.integration.scripts import World
from tests.integration.sessions import MAKE, USER


def test_trap_10_a_hit_needs_the_right_to_read(world: World) -> None:
    world.compare(f"""
        a  {MAKE}; {USER}
        a  SELECT v FROM {{db}}.t
        a+ SELECT v FROM {{db}}.t
        b  .login {{user}}
        b  SELECT v FROM {{db}}.t
        a  GRANT SELECT (v) ON {{db}}.t TO '{{user}}'@'%'
        b  SELECT v FROM {{db}}.t
        b+ SELECT v FROM {{db}}.t
        b  SELECT * FROM {{db}}.t
        a  SELECT * FROM {{db}}.t
        b  SELECT * FROM {{db}}.t
        a  REVOKE SELECT (v) ON {{db}}.t FROM '{{user}}'@'%'
        b  SELECT v FROM {{db}}.t
        a  GRANT SELECT ON {{db}}.* TO '{{user}}'@'%'
        b  SELECT v FROM {{db}}.t
        b+ SELECT v FROM {{db}}.t
        a  REVOKE ALL PRIVILEGES, GRANT OPTION FROM '{{user}}'@'%'
        b  SELECT v FROM {{db}}.t
        a  GRANT SELECT ON *.* TO '{{user}}'@'%'
        c  .login {{user}}
        c  SELECT v FROM {{db}}.t
        a  .change_user {{user}}
        a  SELECT v FROM {{db}}.t
    """)


def test_trap_10_rights_that_old_sessions_keep_give_new_ones_nothing(world: World) -> None:
    """The server reads rights on a schema at USE, and those on all of it at the login."""
    world.compare(f"""
        a  {MAKE}; {USER}; CREATE TABLE other (a INT)
        a  GRANT SELECT ON {{db}}.other TO '{{user}}'@'%'
        a  GRANT SELECT ON {{db}}.* TO '{{user}}'@'%'
        b  .login {{user}} {{db}}
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  REVOKE SELECT ON {{db}}.* FROM '{{user}}'@'%'
        b  SELECT v FROM t
        b+ SELECT v FROM t
        c  .login {{user}} {{db}}
        c  SELECT v FROM t
        b  .use {{db}}
        b  SELECT v FROM t
        a  GRANT SELECT ON *.* TO '{{user}}'@'%'
        d  .login {{user}} {{db}}
        d  SELECT v FROM t
        d+ SELECT v FROM t
        a  REVOKE SELECT ON *.* FROM '{{user}}'@'%'
        d  SELECT v FROM t
        e  .login {{user}} {{db}}
        e  SELECT v FROM t
        d  USE {{db}}
        d  SELECT v FROM t
        d  .reset
        d  SELECT v FROM t
        e  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "fails", ["USE {db}_other", "USE {db}; USE {db}_other", ".use {db}_other", "SET ROLE nosuch"]
)
def test_trap_10_what_fails_may_have_read_rights_or_not(world: World, fails: str) -> None:
    """What the session reads after that by its old rights is not for one that has the new ones."""
    world.compare(f"""
        a  {MAKE}; {USER}; CREATE TABLE other (a INT)
        a  GRANT SELECT ON {{db}}.other TO '{{user}}'@'%'
        a  GRANT SELECT, INSERT ON {{db}}.* TO '{{user}}'@'%'
        b  .login {{user}} {{db}}
        b  SELECT a FROM other
        a  REVOKE SELECT ON {{db}}.* FROM '{{user}}'@'%'
        b  {fails}
        b  SELECT v FROM t
        b  SELECT v FROM t
        b  USE {{db}}
        b  SELECT v FROM t
        c  .login {{user}} {{db}}
        c  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "goes",
    [
        "SELECT {db}_o.f()",
        "SELECT {db}_o.f(1)",
        "EXPLAIN SELECT {db}_o.f()",
        "SET @x = (SELECT n FROM {db}_o.v)",
        ".prepare called SELECT {db}_o.f()",
        "SELECT * FROM {db}_o.v",
        "SHOW COLUMNS FROM {db}_o.v",
        "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{db}_o'",
        "CHECK TABLE {db}_o.v",
        "RENAME TABLE {db}_o.read_by_f TO {db}_o.renamed",
        "INSERT INTO {db}_o.fires VALUES (1)",
        "CALL {db}_o.p()",
        "SHOW CREATE PROCEDURE {db}_o.p",
        ".execute elsewhere",
        "EXECUTE elsewhere",
    ],
)
def test_trap_10_who_comes_back_to_a_schema_has_its_rights_read_anew(
    world: World, goes: str
) -> None:
    """The server goes to another one for code that it loads, and for what was prepared there."""
    for first, second, one, other in (
        ("GRANT SELECT, INSERT", "REVOKE SELECT ON {db}.* FROM '{user}'@'%'", "c", "b"),
        ("GRANT INSERT", "GRANT SELECT ON {db}.* TO '{user}'@'%'", "b", "c"),
    ):
        world.compare(f"""
            a  {MAKE}; {USER}; CREATE DATABASE {{db}}_o; CREATE TABLE {{db}}_o.fires (a INT)
            a  CREATE TABLE {{db}}_o.read_by_f (a INT); CREATE TABLE {{db}}_o.t (a INT)
            a  CREATE FUNCTION {{db}}_o.f() RETURNS INT DETERMINISTIC
               RETURN (SELECT COUNT(*) FROM {{db}}_o.read_by_f WHERE a < 0)
            a  CREATE VIEW {{db}}_o.v AS SELECT {{db}}_o.f() AS n
            a  CREATE TRIGGER {{db}}_o.fired AFTER INSERT ON {{db}}_o.fires FOR EACH ROW
               INSERT INTO {{db}}_o.t VALUES ({{db}}_o.f())
            a  CREATE PROCEDURE {{db}}_o.p() SELECT 1
            a  {first} ON {{db}}.* TO '{{user}}'@'%'
            a  GRANT ALL ON {{db}}_o.* TO '{{user}}'@'%'
            b  .login {{user}} {{db}}_o
            b  .prepare elsewhere SELECT a FROM t
            b  PREPARE elsewhere FROM 'SELECT a FROM t'
            b  .execute elsewhere
            b  EXECUTE elsewhere
            c  .login {{user}} {{db}}_o
            b  USE {{db}}
            c  USE {{db}}
            b  SELECT v FROM t
            c  SELECT v FROM t
            a  {second}
            b  {goes}
            {one}  SELECT v FROM t
            {one}  SELECT v FROM t
            {other}  SELECT v FROM t
            {other}  SELECT v FROM t
        """)


def compare_rights_behind(world: World, made: str, goes: str, before: str) -> None:
    """Fails unless who has lost rights on the default schema, but in the session, has as many as
    directly behind a statement. What is `made` may lead to another schema, and `before` is what was
    said before."""
    made = f"{MAKE}; {USER}; CREATE DATABASE {{db}}_o; {made}"
    world.compare(f"""
        a  {made}
        a  GRANT SELECT ON {{db}}.* TO '{{user}}'@'%'
        b  .login {{user}} {{db}}
        b  {before.format(goes=goes)}
        b  {before.format(goes=goes)}
        b  {before.format(goes=goes)}
        b  SELECT v FROM t
        a  REVOKE SELECT ON {{db}}.* FROM '{{user}}'@'%'
        b  SELECT v FROM t
        b  SELECT v FROM t
        b  {goes}
        b  SELECT v FROM t
        b  SELECT v FROM t
    """)


@pytest.mark.parametrize(
    "goes",
    [
        "SELECT v FROM {db}_o.w",
        "SELECT v FROM nested",
        "SELECT v FROM own",
        "INSERT INTO fires VALUES (1)",
        "INSERT INTO {db}_o.w VALUES (1)",
        "PREPARE p FROM 'SELECT v FROM {db}_o.w'",
        ".prepare p SELECT v FROM {db}_o.w",
        "EXPLAIN SELECT v FROM nested",
        "SHOW COLUMNS FROM {db}_o.w",
    ],
)
@pytest.mark.parametrize("before", ["SELECT 1", "{goes}"], ids=["new", "planned"])
def test_trap_10_who_opens_a_view_of_another_schema_has_its_rights_read_anew(
    world: World, goes: str, before: str
) -> None:
    """By MariaDB, which goes there to read the view's text."""
    made = (
        "CREATE TABLE {db}_o.t (v INT);"
        " CREATE SQL SECURITY INVOKER VIEW {db}_o.w AS SELECT v FROM {db}_o.t;"
        " CREATE VIEW nested AS SELECT v FROM {db}_o.w;"
        " CREATE VIEW own AS SELECT v FROM {db}_o.t;"
        " CREATE TABLE fires (v INT);"
        " CREATE TRIGGER fired AFTER INSERT ON fires FOR EACH ROW"
        " SET @x = (SELECT COUNT(*) FROM {db}_o.w);"
        " GRANT SELECT ON {db}.nested TO '{user}'@'%';"
        " GRANT SELECT ON {db}.own TO '{user}'@'%';"
        " GRANT INSERT ON {db}.fires TO '{user}'@'%';"
        " GRANT SELECT, INSERT ON {db}_o.* TO '{user}'@'%'"
    )
    compare_rights_behind(world, made, goes, before)


@pytest.mark.parametrize(
    "goes", ["INSERT INTO {db}_o.fires VALUES (1)", "INSERT INTO v VALUES (1)"]
)
@pytest.mark.parametrize("before", ["SELECT 1", "{goes}"], ids=["new", "planned"])
def test_trap_10_who_fires_a_trigger_of_another_schema_has_its_rights_read_anew(
    world: World, goes: str, before: str
) -> None:
    """Where that is run as the very account that the session has."""
    made = (
        "CREATE TABLE {db}_o.fires (v INT); CREATE VIEW v AS SELECT v FROM {db}_o.fires;"
        " GRANT SELECT, INSERT ON {db}.v TO '{user}'@'%'; GRANT ALL ON {db}_o.* TO '{user}'@'%';"
        " CREATE DEFINER = '{user}'@'%' TRIGGER {db}_o.fired BEFORE INSERT ON {db}_o.fires"
        " FOR EACH ROW SET NEW.v = 2"
    )
    compare_rights_behind(world, made, goes, before)


@pytest.mark.parametrize("right", ["SELECT", "SELECT (v)"])
def test_trap_10_a_revoke_around_sqlcache_is_found(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    right: str,
) -> None:
    """Of a right on a table or a column, which the server looks up for every statement."""
    user = f"{schema}_user"
    upstream.sql(f"{MAKE}; CREATE USER {user} IDENTIFIED BY 'p'", schema)
    upstream.sql(f"GRANT {right} ON t TO {user}", schema)
    server = proxy(upstream, memcached, upstream__catalog_refresh_s=0.3)
    upstream.connect(user=user, password="p").close()  # caching_sha2_password knows it from now on
    with closing(server.connect(user=user, password="p", database=schema)) as session:

        def rows() -> int:
            with session.cursor() as cursor:
                return int(cursor.execute("SELECT v FROM t"))

        def is_refused() -> bool:
            with suppress(pymysql.MySQLError):
                return not rows()
            return True

        def hits() -> float:
            return server.metrics()["sqlcache_hits_total"]

        assert [rows() for _ in range(3)] == [3] * 3
        assert hits() > 0
        upstream.sql(f"REVOKE {right} ON t FROM {user}", schema)
        wait_until(is_refused, 20, "the refusal")
    upstream.sql(f"DROP USER {user}")


@pytest.mark.parametrize(
    ("inside", "grants", "revokes", "read"),
    [
        (
            False,
            "GRANT SELECT ON {db}.* TO {user}",
            "REVOKE SELECT ON {db}.* FROM {user}",
            "SELECT v FROM {db}.t",
        ),
        (
            True,
            "CREATE USER {db}_d; GRANT SELECT ON *.* TO {db}_d; CREATE DEFINER = {db}_d VIEW d AS"
            " SELECT v FROM t; GRANT SELECT ON {db}.d TO {user}",
            "REVOKE SELECT ON *.* FROM {db}_d",
            "SELECT v FROM {db}.d",
        ),
    ],
)
def test_trap_10_a_revoke_around_sqlcache_is_found_by_sessions_that_are_open(
    upstream: PrivateSqlServer,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    schema: str,
    inside: bool,
    grants: str,
    revokes: str,
    read: str,
) -> None:
    """The server reads rights on a schema at USE, but those on others, and a view's definer's, for
    every statement."""
    names = {"db": schema, "user": f"{schema}_user"}
    upstream.sql(f"{MAKE}; CREATE USER {names['user']} IDENTIFIED BY 'p'", schema)
    upstream.sql(grants.format(**names), schema)
    server = proxy(*(upstream, memcached), upstream__catalog_refresh_s=0.3, binlog__follow="off")
    upstream.connect(user=names["user"], password="p").close()
    login: dict[str, Any] = {"user": names["user"], "password": "p"}
    with closing(server.connect(**login, database=schema if inside else None)) as session:
        upstream.sql(f"CREATE USER {schema}_other")  # from here on it goes by what it has asked for
        loads = server.metrics()["sqlcache_catalog_loads_total"]
        wait_until(
            lambda: server.metrics()["sqlcache_catalog_loads_total"] >= loads + 2, 20, "a reading"
        )

        def is_refused() -> bool:
            with suppress(pymysql.MySQLError):
                return not session.cursor().execute(read.format(**names))
            return True

        assert not any(is_refused() for _ in range(6))
        assert server.metrics()["sqlcache_hits_total"] > 0
        upstream.sql(revokes.format(**names))
        wait_until(is_refused, 20, "the refusal")
    upstream.sql(f"DROP USER IF EXISTS {schema}_user, {schema}_d, {schema}_other")


def test_trap_10_rights_are_read_anew_where_a_role_is_set(world: World) -> None:
    for role in ("NONE", "'{db}_role'"):
        world.compare(f"""
            a  {MAKE}; {USER}; CREATE ROLE '{{db}}_role'
            a  GRANT '{{db}}_role' TO '{{user}}'@'%'
            a  CREATE TABLE other (a INT); GRANT SELECT ON {{db}}.other TO '{{db}}_role'
            a  GRANT SELECT ON {{db}}.* TO '{{user}}'@'%'
            b  .login {{user}} {{db}}
            b  SET ROLE {role}
            b  SELECT v FROM t
            b+ SELECT v FROM t
            a  REVOKE SELECT ON {{db}}.* FROM '{{user}}'@'%'
            b  SELECT v FROM t
            b+ SELECT v FROM t
            b  SET ROLE {role}
            b  SELECT v FROM t
        """)


def test_trap_10_a_view_reads_with_its_definers_rights(world: World) -> None:
    world.compare(f"""
        a  {MAKE}; {USER}; CREATE SQL SECURITY DEFINER VIEW d AS SELECT v FROM t;
           CREATE SQL SECURITY INVOKER VIEW i AS SELECT v FROM t
        a  GRANT SELECT ON {{db}}.d TO '{{user}}'@'%'; GRANT SELECT ON {{db}}.i TO '{{user}}'@'%'
        a  SELECT v FROM {{db}}.d
        a  SELECT v FROM {{db}}.i
        b  .login {{user}}
        b  SELECT v FROM {{db}}.d
        b  SELECT v FROM {{db}}.i
        b  SELECT v FROM {{db}}.t
        a  UPDATE t SET v = 'new'
        b  SELECT v FROM {{db}}.d
        a  CREATE OR REPLACE SQL SECURITY INVOKER VIEW d AS SELECT v FROM t
        b  SELECT v FROM {{db}}.d
        a  SELECT v FROM {{db}}.d
    """)


def test_trap_10_a_role_gives_its_rights_while_it_is_set(world: World) -> None:
    world.compare(f"""
        a  {MAKE}; {USER}; CREATE ROLE '{{db}}_role'
        a  GRANT SELECT ON {{db}}.* TO '{{db}}_role'
        a  GRANT '{{db}}_role' TO '{{user}}'@'%'
        b  .login {{user}}
        b  SELECT v FROM {{db}}.t
        b  SET ROLE '{{db}}_role'
        b  SELECT v FROM {{db}}.t
        b+ SELECT v FROM {{db}}.t
        c  .login {{user}}
        c  SELECT v FROM {{db}}.t
        b  SET ROLE NONE
        b  SELECT v FROM {{db}}.t
        a  SET DEFAULT ROLE '{{db}}_role' {"FOR" if world.is_mariadb else "TO"} '{{user}}'@'%'
        d  .login {{user}}
        d  SELECT v FROM {{db}}.t
        d  SELECT v FROM {{db}}.t
        c  SELECT v FROM {{db}}.t
        d  SELECT v FROM {{db}}.t
        b  .reset
        b  SELECT v FROM {{db}}.t
        a  REVOKE '{{db}}_role' FROM '{{user}}'@'%'
        d  SELECT v FROM {{db}}.t
        a  DROP ROLE '{{db}}_role'
        a  DROP USER '{{user}}'@'%'
        d  SELECT v FROM {{db}}.t
    """)


def test_trap_10_who_logs_in_has_the_roles_of_everybody_or_has_not(world: World) -> None:
    name = "activate_mandatory_roles"
    if world.is_mariadb or not world.upstream.sql(f"SHOW GLOBAL VARIABLES LIKE '{name}'"):
        pytest.skip("MySQL has such, since 9.5")
    try:
        world.compare(f"""
            a  {MAKE}; {USER}; CREATE ROLE '{{db}}_role'
            a  GRANT SELECT ON {{db}}.* TO '{{db}}_role'
            a  SET GLOBAL mandatory_roles = '{{db}}_role', {name} = ON
            b  .login {{user}}
            b  SELECT v FROM {{db}}.t
            b+ SELECT v FROM {{db}}.t
            a  SET GLOBAL {name} = OFF
            b  SELECT v FROM {{db}}.t
            b  SELECT v FROM {{db}}.t
            c  .login {{user}}
            c  SELECT CURRENT_ROLE()
            c  SELECT v FROM {{db}}.t
            a  SET GLOBAL {name} = DEFAULT, mandatory_roles = DEFAULT
            a  DROP ROLE '{{db}}_role'
            a  DROP USER '{{user}}'@'%'
        """)
    finally:
        world.upstream.sql(f"SET GLOBAL {name} = DEFAULT, mandatory_roles = DEFAULT")
