"""Stored code: routines and triggers, and whether bodies may change more than rows."""

import asyncio
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from sqlcache.driver import aiomysql
from sqlcache.service.opening import rows_of
from sqlcache.sql.catalog_loader.rows import in_turns, name_of, text_of
from sqlcache.sql.catalog_loader.selection import LEADING_SCHEMA, OF_PEOPLE, USER_SCHEMA, Selection
from sqlcache.sql.facts import Scope, StoredRoutine, Trigger
from sqlcache.sql.routines import is_unruly, leaves_something
from sqlcache.sql.shaping import GLOBALS_THAT_SHAPE_ANSWERS

_JUDGED_AT_ONCE_BYTES = 4_096  # a few milliseconds
_JUDGED_ON_THE_LOOP_BYTES = 4_096
"""Of a body: a longer one is read in a thread."""
_MOST_JUDGED = 100_000  # of which it is remembered, in 200 bytes each

_ROUTINES = f"""SELECT ROUTINE_NAME, ROUTINE_TYPE,
CAST(IF(ROUTINE_BODY = 'SQL', ROUTINE_DEFINITION, NULL) AS BINARY), CAST(SQL_MODE AS CHAR),
ROUTINE_SCHEMA FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA {USER_SCHEMA}
OR ROUTINE_SCHEMA {LEADING_SCHEMA} AND ROUTINE_TYPE = 'FUNCTION' AND {OF_PEOPLE}"""
"""In the server's own schemas only functions: of procedures there nothing is known."""

_TRIGGERS = Selection(
    "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, CAST(ACTION_STATEMENT AS BINARY),"
    " CAST(SQL_MODE AS CHAR), TRIGGER_NAME FROM information_schema.TRIGGERS WHERE",
    "EVENT_OBJECT_SCHEMA",
    "EVENT_OBJECT_TABLE",
)

# Those that plugins and components of the server bring along are as good as built in.
_LOADABLE_FUNCTIONS = "SELECT name FROM mysql.func"


async def load_triggers(connection: aiomysql.Connection, scope: Scope) -> list[Trigger]:
    """Those on the tables in a scope."""
    triggers = await rows_of(connection, _TRIGGERS.within(scope))
    judged = await _judged_all((body, sql_mode) for _, _, body, sql_mode, _ in triggers)
    return [
        Trigger(
            *(name_of(schema, table), body, text_of(sql_mode)),
            unruly=each.unruly,
            name=text_of(name),
            leaves=each.leaves,
        )
        for (schema, table, body, sql_mode, name), each in zip(triggers, judged, strict=True)
    ]


async def load_routines(
    connection: aiomysql.Connection, visible: bool
) -> tuple[list[str], list[StoredRoutine], bool]:
    """The names of stored and, where the account may read them, loadable functions; the stored
    routines, but for those that a loadable one hides; none of packages; and whether any is unruly.
    """
    routines = await rows_of(connection, _ROUTINES)
    judged = await _judged_all((body, sql_mode) for _, _, body, sql_mode, _ in routines)
    unruly = not visible or any(each.unruly for each in judged)
    rows = await rows_of(connection, _LOADABLE_FUNCTIONS) if visible else []
    loadable = [text_of(name) for (name,) in rows]
    hidden = {(True, name.lower()) for name in loadable}
    stored: list[StoredRoutine] = []
    names = [text_of(name) for name, kind, *_ in routines if text_of(kind) != "PROCEDURE"]
    for (name, kind, body, sql_mode, schema), each in zip(routines, judged, strict=True):
        is_function = text_of(kind) == "FUNCTION"
        ours = is_function or text_of(kind) == "PROCEDURE"
        if ours and (is_function, text_of(name).lower()) not in hidden:
            known_as, mode = name_of(schema, name), text_of(sql_mode)
            code = StoredRoutine(known_as, is_function, body, mode, each.unruly, each.leaves)
            stored.append(code)
    return names + loadable, stored, unruly


class _Judgement(NamedTuple):
    """Of a body: see `routines.is_unruly`, `routines.leaves_something`."""

    unruly: bool
    leaves: bool


_UNSEEN = _Judgement(True, True)
_judged: dict[bytes, _Judgement] = {}


async def _judged_all(bodies: Iterable[tuple[bytes | None, str | bytes]]) -> list[_Judgement]:
    """Whether these bodies, read under these modes, may change more than rows. That of one that was
    read before is remembered: there may be thousands, and they are read again and again."""
    found = []
    judged_bytes = 0
    async for body, sql_mode in in_turns(bodies):
        mode = text_of(sql_mode)
        mark = blake2b(b"%b\0%b" % (mode.encode(), body or b""), digest_size=16).digest()
        judgement = _UNSEEN if body is None else _judged.get(mark)
        if judgement is None and body is not None:
            if judged_bytes > _JUDGED_AT_ONCE_BYTES:
                judged_bytes = 0
                await asyncio.sleep(0)
            judged_bytes += len(body)
            judgement = await _judge(body, mode)
            if len(_judged) >= _MOST_JUDGED:
                _judged.clear()
            _judged[mark] = judgement
        found.append(judgement or _UNSEEN)
    return found


async def _judge(body: bytes, sql_mode: str) -> _Judgement:
    if len(body) <= _JUDGED_ON_THE_LOOP_BYTES:
        return _judged_here(body, sql_mode)
    return await asyncio.to_thread(_judged_here, body, sql_mode)


def _judged_here(body: bytes, sql_mode: str) -> _Judgement:
    unruly = is_unruly(body, sql_mode, GLOBALS_THAT_SHAPE_ANSWERS.keys())
    return _Judgement(unruly, unruly or leaves_something(body, sql_mode))
