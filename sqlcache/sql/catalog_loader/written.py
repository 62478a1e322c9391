"""Stored code as it was written, where MySQL tells it otherwise.

Its information_schema shows the bodies of triggers and routines with the quotes inside of quotes as
one, and without what escapes them: `'it''s'` as `'it's'`. Who reads that takes code for strings.
SHOW CREATE has what was written, one at a time.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from sqlcache.driver import aiomysql
from sqlcache.errors import SqlSyntaxError, UpstreamError
from sqlcache.service.opening import rows_of
from sqlcache.sql.catalog_loader.rows import in_turns, made_of
from sqlcache.sql.lexer import tokenize
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect

_MOST_REMEMBERED = 10_000  # bodies, which the catalog has anyway

_TOLD_ALIKE = re.compile(
    rb"""(?:
        [^'"`\\#/-]++ | -(?!-) | /(?!\*)
        | (?:--\s | \#) [^\n'"`\\]*+ (?:\n|\Z) | /\* [^'"`\\]*? \*/
        | ' (?: \w*+ | [^A-Za-z_'"`\\\x80-\xff]*+ ) ' (?!')
        | " (?: \w*+ | [^A-Za-z_'"`\\\x80-\xff]*+ ) " (?!")
        | ` [\w$-]*+ ` (?!`)
    )*+""",
    re.VERBOSE,
)
_BEFORE_QUOTES = re.compile(rb"""[^'"`\\]*""")


class Code(NamedTuple):
    """A trigger, procedure, function or view: `body` is its statement, to be read under `sql_mode`,
    or None. `altered` is when it last was, and `settled` whether that is a while ago: from then on
    another time tells whenever it is altered."""

    kind: str
    name: TableName
    body: bytes | None
    sql_mode: str
    altered: str
    settled: bool


_remembered: dict[bytes, bytes] = {}


def is_told_alike(told: bytes) -> bool:
    """Whether it is sure that no code of a body seems to be in a string or a comment.

    Were a quote of it another's content, then what seems to be a string were what stands between
    two strings, or names. No code that does anything is a single word there, or has no letter.
    """
    return _TOLD_ALIKE.fullmatch(told) is not None


async def as_written(connection: aiomysql.Connection, told: Iterable[Code]) -> list[Code]:
    """The same with their bodies as they were written, maybe with a part of what stands before
    them; None where that cannot be had."""
    return [
        each._replace(body=await _written(connection, each, each.body)) if each.body else each
        async for each in in_turns(told)
    ]


async def _written(connection: aiomysql.Connection, code: Code, told: bytes) -> bytes | None:
    if is_told_alike(told):
        return told
    schema, name = (part.replace("`", "``") for part in code.name)
    query = f"SHOW CREATE {code.kind} `{schema}`.`{name}`"
    fields = query.encode(), code.altered.encode(), code.sql_mode.encode(), told
    mark = blake2b(b"\0".join(fields), digest_size=16).digest()
    if mark in _remembered:
        return _remembered[mark]
    try:
        ((_, _, statement, *_),) = await rows_of(connection, query)
    except (UpstreamError, ValueError):  # it is gone again
        return None
    if not isinstance(statement, str):
        return None
    read = partial(_body_in, told, code.sql_mode)
    body = await made_of(statement.encode(), read)
    if body is not None and code.settled:
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        _remembered[mark] = body
    return body


def _body_in(told: bytes, sql_mode: str, statement: bytes) -> bytes | None:
    """What begins like the body, in the statement that makes it."""
    head = _BEFORE_QUOTES.match(told)
    begins = head.group() if head else b""
    with suppress(SqlSyntaxError):
        for token in tokenize(statement, Dialect.stored_under(sql_mode)):
            if statement.startswith(begins, token.start):
                return statement[token.start :]
    return None
