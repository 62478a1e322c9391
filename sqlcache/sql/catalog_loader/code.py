"""Stored code: routines and triggers, and whether bodies may change more than rows."""

import asyncio
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from sqlcache.driver import aiomysql
from sqlcache.service.opening import rows_of
from sqlcache.sql.catalog.server import Flavour
from sqlcache.sql.catalog_loader.rows import in_turns, made_of, name_of, text_of
from sqlcache.sql.catalog_loader.selection import LEADING_SCHEMA, OF_PEOPLE, USER_SCHEMA, Selection
from sqlcache.sql.catalog_loader.written import Code, as_written
from sqlcache.sql.facts import Scope, StoredRoutine, Trigger
from sqlcache.sql.routines import WATCHED, is_unruly, leaves_something, watched_words
from sqlcache.sql.shaping import GLOBALS_THAT_SHAPE_ANSWERS

_JUDGED_AT_ONCE_BYTES = 4_096  # a few milliseconds
_MOST_JUDGED = 100_000  # of which it is remembered, in 200 bytes each
_MATTERING = GLOBALS_THAT_SHAPE_ANSWERS.keys() | {"pseudo_thread_id"}
"""The variables by which a session is another one; the second by its temporary tables alone."""

_ALTERED = "COALESCE(CAST({0} AS CHAR), ''), COALESCE({0} < NOW() - INTERVAL 2 SECOND, 0)"
"""When it was, and whether another time would tell were it altered once more."""

_ROUTINES = f"""SELECT ROUTINE_NAME, ROUTINE_TYPE,
CAST(IF(ROUTINE_BODY = 'SQL', ROUTINE_DEFINITION, NULL) AS BINARY), CAST(SQL_MODE AS CHAR),
ROUTINE_SCHEMA, {_ALTERED.format("LAST_ALTERED")}
FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA {USER_SCHEMA}
OR ROUTINE_SCHEMA {LEADING_SCHEMA} AND ROUTINE_TYPE = 'FUNCTION' AND {OF_PEOPLE}"""
"""In the server's own schemas only functions: of procedures there nothing is known."""

_TRIGGERS = Selection(
    "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, CAST(ACTION_STATEMENT AS BINARY),"
    f" CAST(SQL_MODE AS CHAR), TRIGGER_NAME, {_ALTERED.format('CREATED')}"
    " FROM information_schema.TRIGGERS WHERE",
    "EVENT_OBJECT_SCHEMA",
    "EVENT_OBJECT_TABLE",
)

_ANYTHING = b"CALL;"
"""Begins a body of which more is not to be believed."""

# Those that plugins and components of the server bring along are as good as built in.
_LOADABLE_FUNCTIONS = "SELECT name FROM mysql.func"


async def load_triggers(
    connection: aiomysql.Connection, flavour: Flavour, scope: Scope
) -> list[Trigger]:
    """Those on the tables in a scope."""
    rows = await rows_of(connection, _TRIGGERS.within(scope))
    told = [
        Code("TRIGGER", name_of(schema, name), body, text_of(mode), text_of(altered), settled)
        for schema, _, body, mode, name, altered, settled in rows
    ]
    code = told if flavour == "mariadb" else await as_written(connection, told)
    judged = await judged_all(code)
    return [
        Trigger(
            name_of(schema, table),
            each.body or _ANYTHING + body,
            each.sql_mode,
            unruly=judgement.unruly,
            name=each.name.name,
            leaves=judgement.leaves,
            words=judgement.words,
        )
        for (schema, table, body, *_), each, judgement in zip(rows, code, judged, strict=True)
    ]


async def load_routines(
    connection: aiomysql.Connection, flavour: Flavour, visible: bool
) -> tuple[list[str], list[StoredRoutine], bool]:
    """The names of stored and, where the account may read them, loadable functions; the stored
    routines, but for those that a loadable one hides; none of packages; and whether any is unruly.
    """
    rows = await rows_of(connection, _ROUTINES)
    told = [
        Code(text_of(kind), name_of(schema, name), body, text_of(mode), text_of(altered), settled)
        for name, kind, body, mode, schema, altered, settled in rows
    ]
    code = told if flavour == "mariadb" else await as_written(connection, told)
    judged = await judged_all(code)
    unruly = not visible or any(each.unruly for each in judged)
    functions = await rows_of(connection, _LOADABLE_FUNCTIONS) if visible else []
    loadable = [text_of(name) for (name,) in functions]
    hidden = {(True, name.lower()) for name in loadable}
    names = [each.name.name for each in code if each.kind != "PROCEDURE"]
    stored = [
        StoredRoutine(
            each.name,
            each.kind == "FUNCTION",
            each.body,
            each.sql_mode,
            unruly=judgement.unruly,
            leaves=judgement.leaves,
            words=judgement.words,
        )
        for each, judgement in zip(code, judged, strict=True)
        if each.kind in ("FUNCTION", "PROCEDURE")
        and (each.kind == "FUNCTION", each.name.name.lower()) not in hidden
    ]
    return names + loadable, stored, unruly


class _Judgement(NamedTuple):
    """Of a body: see `routines.is_unruly`, `routines.leaves_something`, `routines.watched_words`;
    a view's is not unruly, and what it leaves is a matter of its words."""

    unruly: bool
    leaves: bool
    words: frozenset[bytes]


_UNSEEN = _Judgement(True, True, WATCHED)
_judged: dict[bytes, _Judgement] = {}


async def judged_all(code: Iterable[Code]) -> list[_Judgement]:
    """What these may do. That of one whose body was read before is remembered: there may be
    thousands, and they are read again and again."""
    found = []
    judged_bytes = 0
    async for kind, _, body, mode, *_ in in_turns(code):
        way = f"{kind == 'VIEW'} {mode}".encode()
        mark = blake2b(b"%b\0%b" % (way, body or b""), digest_size=16).digest()
        judgement = _UNSEEN if body is None else _judged.get(mark)
        if judgement is None and body is not None:
            if judged_bytes > _JUDGED_AT_ONCE_BYTES:
                judged_bytes = 0
                await asyncio.sleep(0)
            judged_bytes += len(body)
            judgement = await made_of(body, partial(_judge, kind, mode))
            if len(_judged) >= _MOST_JUDGED:
                _judged.clear()
            _judged[mark] = judgement
        found.append(judgement or _UNSEEN)
    return found


def _judge(kind: str, sql_mode: str, body: bytes) -> _Judgement:
    words = watched_words(body)
    if kind == "VIEW":
        return _Judgement(False, False, words)
    unruly = is_unruly(body, sql_mode, _MATTERING)
    return _Judgement(unruly, unruly or leaves_something(body, sql_mode), words)
