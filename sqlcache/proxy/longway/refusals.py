"""What a command may have done all the same that the server has refused."""

from dataclasses import replace

from sqlcache.mysql.constants import (
    DENIALS,
    ER_EMPTY_QUERY,
    ER_MALFORMED_PACKET,
    ER_PARSE_ERROR,
    ER_UNKNOWN_COM_ERROR,
    ER_UNKNOWN_STMT_HANDLER,
    Command,
)
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.commands import EXECUTES, NO_STATEMENT, ClientCommand, Meaning
from sqlcache.plan.writeset import NOTHING
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.looking_back import MOST_SEARCHED_BYTES
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.sql.catalog.code import may_feign_errors

_REFUSALS = frozenset({ER_PARSE_ERROR, ER_EMPTY_QUERY, ER_UNKNOWN_STMT_HANDLER})
_REFUSALS_TO_EXECUTE = frozenset({ER_UNKNOWN_STMT_HANDLER, ER_MALFORMED_PACKET})


class Refusals:
    """Those of one session's commands."""

    __slots__ = ("_meanings", "_planner", "_standing", "_writes")

    def __init__(self, shared: SessionParts, standing: Standing) -> None:
        self._planner = shared.planner
        self._standing = standing
        self._meanings = shared.meanings
        self._writes = shared.writes

    async def left_of(
        self, command: ClientCommand, tracker: ResponseTracker, meaning: Meaning
    ) -> Meaning | None:
        """What a command may have meant all the same that the server has refused: that it wrote
        nothing is proved. None where it is not."""
        if not tracker.failed or tracker.status_offsets:
            return None
        code = tracker.ends[-1].error_code
        nothing = replace(NO_STATEMENT, goes_elsewhere=meaning.goes_elsewhere)
        if await self._is_unread(command, code, meaning):
            return nothing
        if command.code not in (Command.QUERY, *EXECUTES):  # which runs no code that writes
            denied = code in DENIALS and not meaning.writes
        else:  # of several executions the first may have been one too many for a limit
            whole = command.whole and command.code != Command.STMT_BULK_EXECUTE
            denied = whole and await self._writes.changed_nothing(code, meaning)
        if not denied:
            return None
        # A transaction may have ended before anything else was looked at.
        return replace(meaning, writes=NOTHING) if self._standing.state.in_transaction else nothing

    async def _is_unread(self, command: ClientCommand, code: int, meaning: Meaning) -> bool:
        """Whether the server could not even read a command, or does not know what it is to
        execute."""
        if self._meanings.is_unprepared(command):
            return code in _REFUSALS_TO_EXECUTE
        if code == ER_UNKNOWN_COM_ERROR:  # a statement's code may say so as well
            return command.code not in (Command.QUERY, *EXECUTES)
        if code not in _REFUSALS or any(s.called is not None for s in meaning.statements):
            return False
        # What it runs itself may say so as well: a block without a name, a full-text search.
        text = self._meanings.text_of(command, self._standing.state.capabilities)
        by_name = self._meanings.by_name
        runs_nothing = code == ER_UNKNOWN_STMT_HANDLER and by_name.executes_nothing(meaning)
        if text is None or len(text) > MOST_SEARCHED_BYTES:
            return False
        if may_feign_errors(text) and not runs_nothing:
            return False
        return await self._planner.confirmations.knows_refusals(self._writes.fence)
