"""Traps of the protocol and the store: bytes that depend on the client, and sizes with limits."""

from __future__ import annotations

import struct
from typing import Any

import mysql.connector
import MySQLdb
import pymysql
import pytest

from tests.fakes.raw_client import RawClient
from tests.integration.scripts import World

MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20), at DATETIME(6), d DECIMAL(10,3), b BLOB);"
    " INSERT INTO t VALUES (1, 'x', '2020-01-01 00:00:00.5', 1.5, X'00FF'), (2, NULL, NULL, 0, '')"
)
READ = "SELECT a, v, at, d, b FROM t ORDER BY a"


def by_pymysql(server: Any, world: World, schema: str) -> Any:
    """Text protocol, with EOF packets."""
    login: Any = {"user": world.upstream.user, "password": world.upstream.password}
    connection = pymysql.connect(host=server.host, port=server.port, database=schema, **login)
    return connection, connection.cursor()


def by_mysqlclient(server: Any, world: World, schema: str) -> Any:
    """Text protocol of the C library, without EOF packets."""
    login = {"user": world.upstream.user, "password": world.upstream.password}
    connection = MySQLdb.connect(host=server.host, port=server.port, database=schema, **login)
    return connection, connection.cursor()


def by_connector(server: Any, world: World, schema: str) -> Any:
    """Text protocol of MySQL's own driver, in Python, with query attributes."""
    # It cannot show MySQL a password without TLS unless somebody else has shown it before.
    world.upstream.connect().close()
    login = {"user": world.upstream.user, "password": world.upstream.password}
    connection = mysql.connector.connect(
        host=server.host, port=server.port, database=schema, use_pure=True, **login
    )
    return connection, connection.cursor()


def by_prepared(server: Any, world: World, schema: str) -> Any:
    """Binary protocol."""
    connection, _ = by_connector(server, world, schema)
    return connection, connection.cursor(prepared=True)


CLIENTS = [by_pymysql, by_mysqlclient, by_connector, by_prepared]


@pytest.mark.parametrize("filler", CLIENTS)
def test_trap_31_an_entry_one_client_filled_suits_all_others(
    world: World, schema: str, filler: Any
) -> None:
    world.upstream.sql(MAKE, schema)
    filling, cursor = filler(world.proxy, world, schema)
    for client in CLIENTS:
        cursor.execute(READ)
        assert cursor.fetchall()
        direct, expecting = client(world.upstream, world, schema)
        proxied, reading = client(world.proxy, world, schema)
        expecting.execute(READ)
        expected = expecting.fetchall(), expecting.description
        for _ in range(3):
            reading.execute(READ)
            assert (reading.fetchall(), reading.description) == expected
        for connection in (direct, proxied):
            connection.close()
    filling.close()


def test_trap_31_query_attributes_are_passed_on_and_are_no_part_of_the_text(
    world: World, schema: str
) -> None:
    world.upstream.sql(MAKE, schema)
    connection, cursor = by_connector(world.proxy, world, schema)
    plain = connection.cursor()
    for value in ("one", "two"):
        cursor.clear_attributes()
        cursor.add_attribute("name", value)
        cursor.execute(READ)
        attributed = cursor.fetchall()
        plain.execute(READ)
        assert attributed == plain.fetchall()
        cursor.execute(f"UPDATE t SET v = '{value}' WHERE a = 1")
        connection.commit()
        plain.execute(READ)
        assert plain.fetchall()[0][1] == value
    connection.close()


def test_trap_31_prepared_reads_of_who_may_send_query_attributes_are_hits(
    world: World, schema: str
) -> None:
    # By way of the proxy, which knows the table from then on.
    made, cursor = by_pymysql(world.proxy, world, schema)
    for statement in MAKE.split("; "):
        cursor.execute(statement)
    made.commit()
    made.close()
    connection, _ = by_connector(world.proxy, world, schema)
    for text, parameters in (("SELECT v FROM t WHERE a = %s", (1,)), (READ, ())):
        before = world.hits()
        for _ in range(3):
            cursor = connection.cursor(prepared=True)
            cursor.execute(text, parameters)
            assert cursor.fetchall()
            connection.commit()
        assert world.hits() == before + 2
    connection.close()


def test_trap_31_answers_and_statements_longer_than_a_packet_are_whole(
    world: World, schema: str
) -> None:
    """One packet holds 16 MB less one byte."""
    server = world.upstream
    limit = server.sql("SELECT @@global.max_allowed_packet")[0][0]
    server.sql(f"SET GLOBAL max_allowed_packet = {64 << 20}")
    try:
        server.sql("CREATE TABLE big (a INT, x LONGTEXT, y LONGTEXT)", schema)
        connection, cursor = by_pymysql(world.proxy, world, schema)
        for letter in "xy":
            cursor.execute("DELETE FROM big")
            text = letter * (9 << 20)
            cursor.execute(f"INSERT INTO big VALUES (1, '{text}', '{text}')")
            connection.commit()
            for _ in range(2):
                cursor.execute("SELECT a, x, y FROM big")
                assert cursor.fetchall() == ((1, text, text),)
                cursor.execute("SELECT a FROM big")
                assert cursor.fetchall() == ((1,),)
        connection.close()
    finally:
        server.sql(f"SET GLOBAL max_allowed_packet = {limit}")


def test_trap_32_a_parameter_longer_than_a_packet_has_the_types_of_a_hit(
    world: World, schema: str
) -> None:
    """A client leaves them out where they are those of its execution before."""
    server = world.upstream
    server.sql(MAKE, schema)
    server.connect().close()  # MySQL remembers the password from here on
    limit = server.sql("SELECT @@global.max_allowed_packet")[0][0]
    server.sql(f"SET GLOBAL max_allowed_packet = {64 << 20}")
    try:
        told = []
        for asked in (server, world.proxy):
            with RawClient.logged_in(asked, server.user, server.password, schema) as client:
                prepared = client.ask(b"\x16SELECT a FROM t WHERE LENGTH(?) > a")
                head = b"\x17" + prepared[5:9] + b"\0\1\0\0\0\0"
                short, text = b"\3abc", b"\xfe" + struct.pack("<Q", 17 << 20) + b"x" * (17 << 20)
                types, left_out = b"\1\xfd\0", b"\0"
                payloads = [head + types + short, *[head + left_out + short] * 3]
                told.append([client.ask(each) for each in [*payloads, head + left_out + text]])
        assert told[0] == told[1]
    finally:
        server.sql(f"SET GLOBAL max_allowed_packet = {limit}")


def test_trap_31_a_compressing_client_has_the_same_answers(world: World, schema: str) -> None:
    world.upstream.sql(MAKE, schema)
    login = {"user": world.upstream.user, "password": world.upstream.password}
    proxy = world.proxy
    connection = MySQLdb.connect(
        host=proxy.host, port=proxy.port, database=schema, compress=True, **login
    )
    cursor = connection.cursor()
    for value in ("one", "two"):
        cursor.execute(f"UPDATE t SET v = '{value}'")
        connection.commit()
        for _ in range(2):
            cursor.execute("SELECT DISTINCT v FROM t")
            assert cursor.fetchall() == ((value,),)
            connection.commit()
    connection.close()


def test_trap_33_answers_larger_than_an_item_of_memcached_are_whole(
    world: World, schema: str
) -> None:
    world.upstream.sql("CREATE TABLE big (a INT PRIMARY KEY, x LONGTEXT)", schema)
    connection, cursor = by_pymysql(world.proxy, world, schema)
    for size in (1000, 700_000, 1 << 20, 3 << 20):
        cursor.execute(f"REPLACE INTO big VALUES (1, REPEAT('x', {size}))")
        connection.commit()
        for _ in range(3):
            cursor.execute("SELECT a, x FROM big")
            assert cursor.fetchall() == ((1, "x" * size),)
            connection.commit()
    connection.close()


def test_trap_33_long_statements_and_odd_names_make_sound_keys(world: World) -> None:
    name = "ü " * 30 + "`` x"
    long = "/* " + "x" * 300 + " */ " + " OR ".join(f"a = {n}" for n in range(500))
    world.compare(f"""
        a  CREATE TABLE `{name}` (a INT, `{name}` INT); INSERT INTO `{name}` VALUES (1, 1)
        a  SELECT * FROM `{name}`
        a+ SELECT * FROM `{name}`
        a  UPDATE `{name}` SET `{name}` = 2
        a  SELECT * FROM `{name}`
        a  SELECT a FROM `{name}` WHERE {long}
        a+ SELECT a FROM `{name}` WHERE {long}
        a  SELECT a FROM `{name}` WHERE {long} OR a = 999
        b  DELETE FROM `{name}`
        a  SELECT a FROM `{name}` WHERE {long}
    """)


def test_the_warnings_an_error_left_are_counted_by_the_commands_after_it(world: World) -> None:
    """After a CALL the session's settings must be asked for, but not at once."""
    world.compare("""
        a  CREATE TABLE t (a INT)
        a  CALL nosuch()
        a  .ping
        a  .use {db}
        a  SELECT a FROM t
        a+ SELECT a FROM t
    """)


def test_trap_33_a_tag_that_memcached_forgot_is_a_miss(world: World, schema: str) -> None:
    """Were a lost tag taken for an unchanged one, the write around sqlcache would not be seen."""
    world.upstream.sql(MAKE, schema)
    connection, cursor = by_pymysql(world.proxy, world, schema)
    connection.autocommit(True)
    for value in ("one", "two", "three"):
        for _ in range(2):
            cursor.execute("SELECT v FROM t WHERE a = 1")
            before = cursor.fetchall()
        world.forget()
        world.upstream.sql(f"UPDATE t SET v = '{value}'", schema)
        cursor.execute("SELECT v FROM t WHERE a = 1")
        assert cursor.fetchall() == ((value,),) != before
    connection.close()
