"""Commands that come the long way, each served by what it is."""

from typing import assert_never

from sqlcache.cache.reads import Read
from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.mysql.constants import ER_UNKNOWN_COM_ERROR, Command
from sqlcache.mysql.packets import err_packet, status_of
from sqlcache.mysql.response import NO_RESPONSE
from sqlcache.mysql.scan import with_number
from sqlcache.plan.commands import (
    NO_STATEMENT,
    STREAMS,
    UNANSWERED_BYTES,
    UNKNOWN,
    WRITES_NOTHING,
    ClientCommand,
    Meaning,
)
from sqlcache.plan.plans import Preparation
from sqlcache.proxy.authentication import LoginRefused
from sqlcache.proxy.handles import CLOSE, CLOSE_BYTES, NOBODYS, REFUSED
from sqlcache.proxy.login import LoginRelay
from sqlcache.proxy.longway.answers import Answers
from sqlcache.proxy.longway.counting import Counting
from sqlcache.proxy.longway.planning import Planning
from sqlcache.proxy.longway.reading import Reading
from sqlcache.proxy.longway.running import Running
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.longway.unsent import Unsent, only_reads
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.exchange import cause_of
from sqlcache.proxy.straight.inflight import HandedOver, Stage
from sqlcache.sql.statement import Kind, Statement, changed


class Dispatch:
    """That of one session."""

    __slots__ = ("_answers", "_counting", "_diagnostics", "_handles", "_last", "_login_timeout_s",
                 "_logins", "_meanings", "_metrics", "_planner", "_planning", "_reading", "_relay",
                 "_running", "_standing", "_unsent")  # fmt: skip

    def __init__(
        self,
        shared: SessionParts,
        logins: LoginRelay,
        standing: Standing,
        planning: Planning,
        reading: Reading,
        running: Running,
        answers: Answers,
        counting: Counting,
        unsent: Unsent,
    ) -> None:
        self._relay = shared.relay
        self._planner = shared.planner
        self._metrics = shared.metrics
        self._last = shared.last
        self._diagnostics = shared.diagnostics
        self._meanings = shared.meanings
        self._handles = shared.handles
        self._login_timeout_s = shared.options.login_timeout_s
        self._logins = logins
        self._standing = standing
        self._planning = planning
        self._reading = reading
        self._running = running
        self._answers = answers
        self._counting = counting
        self._unsent = unsent

    async def serve(self, command: ClientCommand) -> bool:
        """Serves one; False when it was the last."""
        match command.code:
            case Command.CHANGE_USER:
                await self._change_user(command)
            case Command.QUERY:
                await self._query(command)
            case Command.STMT_EXECUTE:
                if self._meanings.prepared(command) is not None:
                    await self._get_to_know(command)
                await self._execute_prepared(command)
            case Command.STMT_PREPARE:
                await self._prepare(command)
            case code if code in STREAMS:
                return await self._stream(command)
            case Command.TABLE_DUMP:  # its answer, where a server still has one, cannot be followed
                await self._relay.throw_away(command)
                self._relay.client.write(
                    err_packet(1, ER_UNKNOWN_COM_ERROR, "Unknown command", "08S01")
                )
            case code if code in NO_RESPONSE:
                await self._pass_unanswered(command)
            case code:
                # The others need none, and some answer how many warnings there are.
                if code not in WRITES_NOTHING:
                    await self._get_to_know(command)
                elif (context := self._standing.context) and self._standing.may_plan(command):
                    self._planner.remember_command(command.data, context)
                meaning = self._meanings.of(command, self._standing.state)
                await self._running.execute(command, meaning)
        return True

    async def go_on(self, command: ClientCommand, begun: HandedOver) -> None:
        """Serves a command that was begun on the straight path."""
        now, plan = begun.command, begun.command.plan
        if isinstance(plan, Preparation):
            await self._meanings.read_ahead(command, self._standing.state)
        match begun.stage:
            case Stage.UNPLANNED:
                await self._execute_prepared(command)
            case Stage.OPENING:
                assert isinstance(plan, Read)
                await self._standing.questions.opened()
                if (view := self._standing.own.view) is not None:
                    view.stop_caching()
                await self._reading.read(command, plan, NO_STATEMENT)
            case Stage.UNDECIDED | Stage.LEASED:
                assert isinstance(plan, Read)
                await self._reading.read(command, plan, NO_STATEMENT, now.lease or begun.outcome)
            case Stage.MARKED:
                await self._running.execute(command, self._standing.meaning_under(plan, command))
            case Stage.SENT if now.lease is not None:
                await self._reading.fill(command, NO_STATEMENT, now.lease, sent=now)
            case Stage.SENT:
                self._last.basis, _ = cause_of(plan)
                meaning = self._standing.meaning_under(plan, command)
                await self._answers.relay_begun(command, meaning, None, now)
            case _:
                assert_never(begun.stage)

    async def _query(self, command: ClientCommand) -> None:
        await self._get_to_know(command)
        meaning = await self._meaning_of(command)
        if not await self._counting.answers(command, meaning):
            await self._reading.read_or_execute(command, meaning)

    async def _execute_prepared(self, command: ClientCommand) -> None:
        meaning = await self._meaning_of(command)
        prepared = self._meanings.prepared(command)
        if prepared is not None and command.execution is None:
            state = self._standing.state
            prepared.runs_under(b"" if state.settings_unknown else state.preparing)
            command.execution = prepared.read(command.payload, state.capabilities)
        await self._reading.read_or_execute(command, meaning)

    async def _prepare(self, command: ClientCommand) -> None:
        await self._get_to_know(command)
        self._handles.close_others()
        prepared = self._meanings.of_prepared_text(command, self._standing.state)
        # What it writes to may be a view that calls a function.
        named = [changed(s, reads=s.reads | s.writes) for s in prepared.statements]
        with self._unsent.unread():
            await self._planner.keeper.learn_of(named, self._standing.state)
        writes = self._planner.tagging.written_when_prepared(prepared)
        edition = self._planner.keeper.edition
        elsewhere = prepared.goes_elsewhere
        sets = Statement("SET", Kind.SESSION, settings=prepared.put_back)
        statements = (sets,) if prepared.put_back else ()
        meaning = Meaning(statements, writes=writes, edition=edition, goes_elsewhere=elsewhere)
        if writes and prepared.opaque_session:
            meaning = UNKNOWN
        await self._running.execute(command, meaning)

    async def _pass_unanswered(self, command: ClientCommand) -> None:
        if len(command.payload) < UNANSWERED_BYTES[Command(command.code)]:
            raise ProtocolError("a command is cut short")
        self._metrics.statements_relayed += 1
        number = self._meanings.number_of(command)
        if command.code == Command.STMT_CLOSE and number and command.data.startswith(CLOSE):
            self._handles.close(number)
        elif self._handles.refused(command.data) is None:
            await self._running.show_unseen(number)
            await self._relay.send(self._running.as_sent(command))
        else:
            await self._relay.throw_away(command)
        self._meanings.sent_unanswered(command)

    async def _stream(self, command: ClientCommand) -> bool:
        """Passes on a stream; False when it is over, True where the server refuses it."""
        await self._running.make_up()  # the error of a refusal is added to what is there
        self._metrics.statements_relayed += 1
        refusal = await self._relay.stream(command)
        if refusal is None:
            return False
        self._answers.refuse(command, NO_STATEMENT, refusal)
        return True

    async def _change_user(self, command: ClientCommand) -> None:
        self._diagnostics.begin_anew()
        self._metrics.statements_relayed += 1
        try:
            login, ok = await self._logins.change_user(
                command.data, self._standing.state.login, self._login_timeout_s
            )
        except LoginRefused:
            # MySQL closes the connection; MariaDB goes on with the old user and all else anew.
            self._standing.lost_user()
        else:
            self._standing.changed_user(login, status_of(ok))

    async def _get_to_know(self, command: ClientCommand) -> None:
        """Finds out what is to be known of the session before a command is read."""
        with self._unsent.unread():
            await self._standing.questions.confirm_rights()
            await self._standing.questions.learn_settings(command)
            await self._meanings.read_ahead(command, self._standing.state)

    async def _meaning_of(self, command: ClientCommand) -> Meaning:
        """See `Planning.meaning_of`. Raises: ConnectionLost where the client has gone meanwhile and
        all that would come of it is an answer."""
        with self._unsent.unread():
            meaning = await self._planning.meaning_of(command)
        client = self._relay.client
        if client.closed and not client.has_some and only_reads(meaning):
            raise ConnectionLost("the client has gone")
        return meaning

    def name(self, command: ClientCommand) -> None:
        """Has a command name its statement by a number: the last one that the server has prepared
        may be another."""
        if len(command.data) < CLOSE_BYTES or not self._meanings.names_the_last(command):
            return
        if command.code == Command.STMT_FETCH and not self._handles.renumbers:
            return  # it is not kept, and its error tells what it named
        if command.whole and self._meanings.lacks_types(command, self._standing.state.capabilities):
            command.data = REFUSED
        elif self._meanings.has_last():
            command.data = with_number(command.data, self._meanings.number_of(command))
        elif self._handles.renumbers:
            command.data = with_number(command.data, NOBODYS)

    async def end_closed(self, command: ClientCommand) -> None:
        """A statement that the client has closed is to be none when it names it again; and a part
        of a parameter that it sends ahead is not for an execution that is owed."""
        number = self._meanings.number_of(command)
        closed = self._handles.keeps_open(number)
        long_data = command.code == Command.STMT_SEND_LONG_DATA
        if closed or (long_data and number in self._diagnostics.owed_executions()):
            with self._unsent.unread():
                await self._running.make_up()
