"""What the server runs for each session that has just logged in, by its variable `init_connect`:
what that does is its client's doing, though no client has sent it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import lru_cache

from sqlcache.errors import ConnectionLost, WriteRefused
from sqlcache.mysql.constants import ER_NEW_ABORTING_CONNECTION, Command
from sqlcache.mysql.packets import packet, query_packet
from sqlcache.mysql.response import ResponseTracker, followed
from sqlcache.mysql.rows import Row, read_text_rows
from sqlcache.plan.commands import Meaning
from sqlcache.plan.meanings import under_the_catalog
from sqlcache.plan.planner import Planner
from sqlcache.plan.state import SessionState
from sqlcache.plan.writeset import EVERYTHING
from sqlcache.proxy.questions import Questions, digits
from sqlcache.proxy.relay import Relay
from sqlcache.proxy.writes import Writes
from sqlcache.sql.analysis import analyse
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.routines import Declared
from sqlcache.sql.statement import Kind, Statement

_PING = packet(0, bytes((Command.PING,)))

# With a LIMIT, for the session's own may be 0.
_WHAT_IT_SAYS = (
    b"SELECT HEX(CONVERT(@@GLOBAL.init_connect USING utf8mb4)), @@GLOBAL.sql_mode,"
    b" ROW_COUNT(), FOUND_ROWS() LIMIT 1"
)

# Not that it changes globals: who has the root bumped reads them again at need, and a login is not
# to wait for that.
_ANYTHING = Statement(
    "init_connect",
    Kind.UNKNOWN,
    reason="not known what it does",
    writes_everything=True,
    may_commit=True,
    opaque_session=True,
)


async def publish_init_connect(
    planner: Planner, writes: Writes, relay: Relay, state: SessionState, questions: Questions
) -> bytes:
    """Bumps what it has written for a session that has just begun, when that is done, and has the
    state follow it; returns the server's error where it failed, which is for the client's first
    command.

    The server begins with it when it has told the client that it is let in, and answers nothing
    before its end: so a question of our own waits for that, which else would get the error. It runs
    nothing for administrators, who cannot be told from others here.

    Raises: CacheUnavailable; ConnectionLost.
    """
    if not planner.keeper.is_met:
        return await _find_out_and_publish(planner, writes, relay, state, questions)
    globals_ = planner.keeper.globals.named
    text = globals_.get("init_connect", "").encode("utf-8", "surrogateescape")
    statements = _read(text, globals_.get("sql_mode", ""), planner, state)
    if not statements:
        return b""
    async with _fenced_if_given_up(writes, state):
        meaning = await _meaning(statements, planner, state)
        meaning = await _fenced(meaning, writes, state)
    answer, ends = await relay.ask(_PING, state.capabilities, Command.PING)
    tracker = followed(Command.PING, state.capabilities, answer)
    state.answered(ends)
    state.may_have_begun_with(meaning.statements)
    await _publish(meaning, tracker, writes)
    return answer if tracker.failed else b""


async def _find_out_and_publish(
    planner: Planner, writes: Writes, relay: Relay, state: SessionState, questions: Questions
) -> bytes:
    """The same where the globals are not known: the question asks for what it says, and the fence
    comes when that has run. Of what is not known then either, the worst is taken."""
    command = query_packet(_WHAT_IT_SAYS, state.capabilities)
    writes.under_way = True  # for all that is known: a client that leaves does not end it
    async with _fenced_if_given_up(writes, state):
        answer, ends = await relay.ask(command, state.capabilities)
        writes.under_way = False
        tracker = followed(Command.QUERY, state.capabilities, answer)
        error = ends[-1].error_code if tracker.failed else 0
        rows = read_text_rows(answer, state.capabilities)
        statements = _told(rows, planner, state)
        if planner.keeper.has_catalog and _ANYTHING not in statements:
            meaning = await _meaning(statements, planner, state)
        elif all(map(_only_sets, statements)):
            meaning = Meaning(statements, None, state.schema)
        else:
            meaning = _anything(state)
        # While the state is that of before: by the transaction that is open now it would be said
        # what is held back, of all that was written.
        meaning = await _fenced(meaning, writes, state)
    state.answered(ends)
    state.may_have_begun_with(meaning.statements)
    if meaning.writes.everything:  # also where the definitions of now could not be read
        state.may_have_begun_with((*statements, _ANYTHING))
    await _publish(meaning, tracker, writes)
    if rows:
        row_count, found_rows = (int(digits(each)) for each in rows[0][2:])
        await questions.put_back(row_count, found_rows)
    return answer if error == ER_NEW_ABORTING_CONNECTION else b""


def _told(rows: list[Row], planner: Planner, state: SessionState) -> tuple[Statement, ...]:
    """What it says by this answer, which has no row where the server refuses it, as to users who
    have to set another password, for whom MariaDB runs what it can; and no text where that is
    longer than the session's max_allowed_packet."""
    if not rows or rows[0][0] is None:
        return (_ANYTHING,)
    text, sql_mode = map(digits, rows[0][:2])
    return _read(bytes.fromhex(text), sql_mode, planner, state)


def _read(
    text: bytes, sql_mode: str, planner: Planner, state: SessionState
) -> tuple[Statement, ...]:
    if not text:
        return ()
    dialect = Dialect.stored_under(sql_mode)
    return _analysed(text, dialect, planner.reader.declared(state.schema))


@lru_cache(8)
def _analysed(text: bytes, dialect: Dialect, declared: Declared) -> tuple[Statement, ...]:
    """What it says, which is the same for most sessions."""
    return analyse(text, dialect, declared=declared)


async def _meaning(
    statements: tuple[Statement, ...], planner: Planner, state: SessionState
) -> Meaning:
    """What it does in this session, by the catalog of now."""
    await planner.keeper.learn_of(statements, state)
    return under_the_catalog(Meaning(statements, None, state.schema), planner, state)


def _only_sets(statement: Statement) -> bool:
    """Whether it does nothing but that, whatever the definitions are."""
    writes = statement.writes or statement.writes_everything
    return statement.only_sets and not (statement.reads or statement.functions or writes)


def _anything(state: SessionState) -> Meaning:
    return Meaning((_ANYTHING,), None, state.schema, EVERYTHING)


@contextlib.asynccontextmanager
async def _fenced_if_given_up(writes: Writes, state: SessionState) -> AsyncIterator[None]:
    """Fences all where the session ends within it, before that is fenced which is written: the
    server goes on with it. The session's end leaves the fence until that is through."""
    try:
        yield
    except (ConnectionLost, asyncio.CancelledError):  # or the time to drain is over
        await _fenced(_anything(state), writes, state)
        raise


async def _fenced(meaning: Meaning, writes: Writes, state: SessionState) -> Meaning:
    """The same by the catalog of now, when what it writes is fenced."""
    with contextlib.suppress(WriteRefused):  # it runs all the same
        return await writes.raise_fence(meaning, state)
    return meaning


async def _publish(meaning: Meaning, tracker: ResponseTracker, writes: Writes) -> None:
    await writes.publish(tracker, meaning)
    writes.held_back.took_effect(meaning, tracker)  # what it has begun may be open still
