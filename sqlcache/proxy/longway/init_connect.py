"""What the server runs for each session that has just logged in, by its variable `init_connect`:
what that does is its client's doing, though no client has sent it."""

import contextlib
from functools import lru_cache

from sqlcache.errors import WriteRefused
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import followed
from sqlcache.plan.commands import Meaning
from sqlcache.plan.meanings import under_the_catalog
from sqlcache.plan.planner import Planner
from sqlcache.plan.state import SessionState
from sqlcache.plan.variables import named
from sqlcache.proxy.relay import Relay
from sqlcache.proxy.writes import Writes
from sqlcache.sql.analysis import analyse
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.routines import Declared
from sqlcache.sql.statement import Statement

_PING = packet(0, bytes((Command.PING,)))


async def publish_init_connect(
    planner: Planner, writes: Writes, relay: Relay, state: SessionState
) -> bytes:
    """Bumps what it has written for a session that has just begun, when that is done, and has the
    state follow it; returns the server's error where it failed, which is for the client's first
    command.

    The server begins with it when it has told the client that it is let in, and answers nothing
    before its end: so a question of our own waits for that, which else would get the error. It runs
    nothing for administrators, who cannot be told from others here.

    Raises: CacheUnavailable; ConnectionLost.
    """
    meaning = await _meaning(planner, state)
    if not meaning.statements and planner.keeper.is_met:
        return b""
    with contextlib.suppress(WriteRefused):  # it runs all the same
        meaning = await writes.raise_fence(meaning, state)
    answer, ends = await relay.ask(_PING, state.capabilities, Command.PING)
    state.answered(ends)
    tracker = followed(Command.PING, state.capabilities, answer)
    state.may_have_begun_with(meaning.statements)
    await writes.publish(tracker, meaning)
    writes.held_back.took_effect(meaning, tracker)  # what it has begun may be open still
    return answer if tracker.failed else b""


async def _meaning(planner: Planner, state: SessionState) -> Meaning:
    """What it does in this session, by the globals and the catalog of now."""
    globals_ = named(planner.keeper.globals)
    text = globals_.get("init_connect", "").encode("utf-8", "surrogateescape")
    if not text:
        return Meaning()
    dialect = Dialect.stored_under(globals_.get("sql_mode", ""))
    statements = _analysed(text, dialect, planner.reader.declared(state.schema))
    await planner.keeper.learn_of(statements, state)
    return under_the_catalog(Meaning(statements, None, state.schema), planner, state)


@lru_cache(8)
def _analysed(text: bytes, dialect: Dialect, declared: Declared) -> tuple[Statement, ...]:
    """What it says, which is the same for most sessions."""
    return analyse(text, dialect, declared=declared)
