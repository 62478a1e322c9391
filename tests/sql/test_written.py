"""Bodies of stored code that MySQL tells without what escapes quotes in them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import aiomysql
import pytest

from sqlcache.demo.servers import PrivateSqlServer
from sqlcache.service.opening import connect_service, rows_of
from sqlcache.sql.analysis import identifiers_in
from sqlcache.sql.catalog_loader.code import load_routines, load_triggers
from sqlcache.sql.catalog_loader.written import Code, as_written, is_told_alike
from sqlcache.sql.facts import Scope, StoredRoutine
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect

STRINGS = [
    *(
        "",
        "a",
        "a b",
        "é",
        "it's",
        "', ",
        ",'",
        "'",
        "''",
        "a', 'b",
        "\\",
        "-",
        ", ",
        '"',
        'say "x"',
    ),
    *("`", "#1", "it's #b'c", "-- x", "it's -- 'x'", "/*", "*/", "x\ny"),
]
CODE = [
    *("); INSERT INTO hidden VALUES (", " FROM hidden WHERE x = ", ", f(", " AND ", "AND", ","),
    *(" /* it's */ ", "\n# don't\n, ", "\n-- '\n+ ", " = `o``d` + ", "; DO ", " 'x' "),
]


def quoted(text: str, quote: str) -> tuple[str, str]:
    """A string as it may be written, and as MySQL tells it."""
    written = text.replace("\\", "\\\\").replace(quote, 2 * quote)
    return f"{quote}{written}{quote}", f"{quote}{text}{quote}"


def drawn(choose: random.Random) -> tuple[str, str]:
    """A body as it was written, and as MySQL tells it."""
    written = told = "SELECT "
    for _ in range(choose.randint(1, 6)):
        string, shown = quoted(choose.choice(STRINGS), choose.choice(["'", "'", '"']))
        code = choose.choice(CODE)
        written += string + code
        told += shown + code.replace("`o``d`", "`oo`dd`")  # how it tells a name with a quote in it
    return written + "1", told + "1"


def test_no_code_is_missed_where_it_is_sure_that_it_is_told_alike(seed: int) -> None:
    choose = random.Random(seed)
    alike = 0
    for _ in range(30_000):
        written, told = drawn(choose)
        if is_told_alike(told.encode()):
            alike += 1
            truth = identifiers_in(written.encode(), Dialect())
            found = identifiers_in(told.encode(), Dialect())
            if not truth.opaque:
                assert {("hidden",), ("f",)} & truth.paths <= found.paths, (written, told)
                assert ("f",) not in truth.functions or ("f",) in found.functions, (written, told)
    assert alike > 300


@pytest.fixture
async def connection(mysql: PrivateSqlServer) -> AsyncIterator[aiomysql.Connection]:
    made = await connect_service(mysql.host, mysql.port, mysql.user, mysql.password, 10)
    yield made
    made.close()


async def routine(connection: aiomysql.Connection, schema: str) -> StoredRoutine:
    _, routines, _ = await load_routines(connection, "mysql", visible=True)
    (found,) = (each for each in routines if each.name.schema == schema)
    return found


BODY = r"""BEGIN
  SET @a = 'it''s', @b = '\\', @c = "don't"; -- isn't
  SET @d = (SELECT `o``d` FROM (SELECT 1 AS `o``d`) AS `d``o`);
END"""


@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES"])
@pytest.mark.parametrize(
    "head",
    [
        "PROCEDURE p()",
        "PROCEDURE `p``q`(a INT, OUT `b c` INT) MODIFIES SQL DATA COMMENT 'it''s BEGIN'",
        "TRIGGER g AFTER INSERT ON t FOR EACH ROW",
    ],
)
async def test_bodies_are_as_they_were_written(
    connection: aiomysql.Connection, mysql: PrivateSqlServer, schema: str, head: str, mode: str
) -> None:
    mysql.sql("CREATE TABLE t (v INT)", schema)
    mysql.sql(f"SET sql_mode = '{mode}'; CREATE {head} {BODY}", schema)
    if head.startswith("TRIGGER"):
        tables = frozenset({TableName(schema, "t")})
        (trigger,) = await load_triggers(connection, "mysql", Scope(frozenset(), tables))
        assert (trigger.body.decode(), trigger.name) == (BODY, "g")
    else:
        assert (await routine(connection, schema)).body == BODY.encode()


async def test_what_was_not_altered_for_a_while_is_asked_once(
    connection: aiomysql.Connection,
    mysql: PrivateSqlServer,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies = ["DO 'a', 'f(1)', 'b'", "DO 'a'', ''f(1)'', ''b'"]  # which MySQL tells alike
    asked = []

    async def ask(connection: aiomysql.Connection, query: str) -> list[tuple[Any, ...]]:
        asked.append(query)
        return await rows_of(connection, query)

    monkeypatch.setattr("sqlcache.sql.catalog_loader.written.rows_of", ask)
    for body in bodies:
        mysql.sql(f"DROP PROCEDURE IF EXISTS p; CREATE PROCEDURE p() {body}", schema)
        assert (await routine(connection, schema)).body == body.encode()
    await asyncio.sleep(3)
    for _ in range(2):
        assert (await routine(connection, schema)).body == bodies[-1].encode()
    assert len(asked) == 3
    mysql.sql(f"DROP PROCEDURE p; CREATE PROCEDURE p() {bodies[0]}", schema)
    assert (await routine(connection, schema)).body == bodies[0].encode()


async def test_nothing_is_believed_of_what_cannot_be_asked(connection: aiomysql.Connection) -> None:
    gone = Code("TRIGGER", TableName("nowhere", "g"), b"DO 'it's'", "", "", settled=True)
    plain = gone._replace(body=b"DO 'a', 1")
    assert await as_written(connection, [gone, plain]) == [gone._replace(body=None), plain]
