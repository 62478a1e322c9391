"""Commands run at MySQL: what is sent before them, and which fence is raised."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import perf_counter

from sqlcache.cache.reads import Read
from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import out_of_order, packet, query_packet
from sqlcache.mysql.response import ResponseTracker, followed
from sqlcache.mysql.scan import number_in
from sqlcache.plan.commands import ClientCommand, Meaning
from sqlcache.plan.plans import may_end_logging
from sqlcache.proxy.copies import ResponseCopy
from sqlcache.proxy.handles import Refused
from sqlcache.proxy.longway.answers import Answers
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.longway.unsent import Unsent
from sqlcache.proxy.questions import digits
from sqlcache.proxy.session_parts import SessionParts

FOUND_ROWS = b"SELECT FOUND_ROWS()"
_ENDS = b"COMMIT AND NO CHAIN NO RELEASE"
_NUMBER_ENDS_AT = 5


class Running:
    """Those of one session."""

    __slots__ = ("_answers", "_diagnostics", "_engine", "_handles", "_last", "_meanings", "_relay",
                 "_standing", "_unsent", "_writes")  # fmt: skip

    def __init__(
        self, shared: SessionParts, standing: Standing, answers: Answers, unsent: Unsent
    ) -> None:
        self._relay = shared.relay
        self._engine = shared.engine
        self._last = shared.last
        self._diagnostics = shared.diagnostics
        self._meanings = shared.meanings
        self._writes = shared.writes
        self._handles = shared.handles
        self._standing = standing
        self._answers = answers
        self._unsent = unsent

    async def execute(
        self,
        command: ClientCommand,
        meaning: Meaning,
        kept: ResponseCopy | None = None,
        *,
        read: Read | None = None,
    ) -> ResponseTracker:
        """Runs a command upstream and relays its response, with the tags of its writes bumped
        before the client hears of it. `read`: it is this read, and opens a snapshot."""
        with self._unsent.of(meaning):
            if meaning.writes and self._relay.upstream.unsettled:
                await self._relay.upstream.settle()  # it was a read as it came, and its view is new
            if (refused := self._handles.refused(command.data)) is not None:
                error = await self._prepare_again(command, refused)
                if error is not None:
                    return await self._refuse_prepared(command, meaning, error)
            unprepared = self._meanings.is_unprepared(command)
            prepared = self._meanings.prepared(command)
            text = None if prepared is None else prepared.lexed.text
            if command.code == Command.QUERY:
                text = command.data
            rows = self._found_rows_of(command, text)
            asked_at = self._engine.time()  # before MySQL can have opened a snapshot
            missed = self._diagnostics.missed_by(command, meaning, text, unprepared=unprepared)
            if meaning.prepares_otherwise:
                await self.show_unseen()
            if missed and rows is None:
                await self.make_up()
            if prepared is not None and command.execution is not None:
                for unseen in prepared.unseen_before(command.data, command.execution):
                    await self._standing.questions.run(self._handles.for_server(unseen))
                command.data = prepared.for_server(command.data, command.execution)
            sent = self.as_sent(command)
            if prepared is not None and command.code == Command.STMT_BULK_EXECUTE:
                sent.data = prepared.several_for_server(sent.data)
            # However slowly a client sends a long one: nobody waits before MySQL can begin with it.
            last = await self._relay.begin(sent)
            if text is not None and may_end_logging(text):
                await self._engine.note_unlogged()
            meaning = await self._writes.raise_fence(meaning, self._standing.state)
            self._last.sent_at = perf_counter()
            await self._relay.finish(last)
        opens = None if read is None else (read, asked_at)
        return await self._answers.relay(command, meaning, kept, opens, rows)

    async def withheld(self, command: ClientCommand) -> bool:
        """A command was refused here, and nothing of it sent: the server is where it would be after
        it. False where it cannot be."""
        if not (command.whole and self._meanings.withheld(command)):
            return False
        prepared = self._meanings.prepared(command)
        if prepared is not None and prepared.long_data:  # which the execution would have used up
            reset = packet(0, bytes((Command.STMT_RESET,)) + command.payload[1:_NUMBER_ENDS_AT])
            prepared.long_data = not await self._standing.questions.run(
                self._handles.for_server(reset)
            )
        return True

    def as_sent(self, command: ClientCommand) -> ClientCommand:
        """The command as the server understands it."""
        return replace(command, data=self._handles.for_server(command.data))

    def _found_rows_of(self, command: ClientCommand, text: bytes | None) -> int | None:
        """What the client is told of a command instead of the FOUND_ROWS() that the server has,
        where that cannot run what it misses without taking away more."""
        if not self._diagnostics.left_more or text is None or out_of_order(command.data):
            return None
        if command.code != Command.QUERY:
            bare = command.execution is not None and not command.execution.cursor
            if not bare or command.code != Command.STMT_EXECUTE:
                return None
        return self._diagnostics.found_rows(text)

    async def _prepare_again(self, command: ClientCommand, refused: Refused) -> bytes | None:
        """Has a statement prepared that was refused before, as the server does with each that it
        once had; gives its error. Not where the session is another one by now. What was sent ahead
        of a parameter never came there: without that it cannot be executed this time."""
        prepared = self._meanings.prepared(command)
        if prepared is None or prepared.fingerprint != self._standing.state.fingerprint():
            return refused.error
        code, capabilities = Command.STMT_PREPARE, self._standing.state.capabilities
        answer, ends = await self._relay.ask(refused.packet, capabilities, code)
        self._standing.state.answered(ends)
        made = followed(code, capabilities, answer).prepared
        lacks_some, prepared.long_data = prepared.long_data, False
        if made is None:
            return answer
        self._handles.prepared_late(number_in(command.data), made.number)
        return refused.error if lacks_some else None

    async def _refuse_prepared(
        self, command: ClientCommand, meaning: Meaning, error: bytes
    ) -> ResponseTracker:
        """Answers a command by the error that the server has for what prepares its statement."""
        await self._relay.throw_away(command)
        self._meanings.withheld(command)
        return self._answers.refuse(command, meaning, error)

    async def show_unseen(self, number: int | None = None) -> None:
        """Has the server execute what it has not seen of this prepared statement, or of all: what
        it makes of that depends on what comes next."""
        unseen = self._handles.take_unseen(number)
        if not unseen:
            return
        questions = self._standing.questions
        found = await questions.ask(FOUND_ROWS)
        async with self._aside(reads=True):
            for each in unseen:
                await questions.run(self._handles.for_server(each))
        if found:
            await questions.find(int(digits(found[0][0])))

    async def make_up(self) -> None:
        """Has the server run what leaves there what the client was told."""
        questions, capabilities = self._standing.questions, self._standing.state.capabilities
        in_doubt, wrote_none = self._diagnostics.in_doubt, self._diagnostics.wrote_none
        if in_doubt and await questions.ask(FOUND_ROWS) == [(b"0",)]:
            self._diagnostics.counted_none()
        async with self._aside(reads=self._diagnostics.owes_reads):
            all_missing = self._diagnostics.missing(capabilities, limited=questions.limited)
            for missing in all_missing:
                owed = self._handles.for_server(missing)
                if not await questions.run(owed):  # its error is nothing to the client
                    await questions.run(
                        self._diagnostics.counting(capabilities, limited=questions.limited)
                    )
        if wrote_none and (in_doubt or all_missing):
            await questions.write_none()
        self._handles.close_others()

    @asynccontextmanager
    async def _aside(self, *, reads: bool) -> AsyncIterator[None]:
        """While the server runs what the client does not ask for now: a transaction that begins by
        that ends with it; of one that has begun it may open the snapshot, if it reads tables."""
        state, view = self._standing.state, self._standing.own.view
        before, unsure = state.status, state.transaction_unsure
        yield
        begun = state.status & ~before & Status.IN_TRANS  # with autocommit off by now
        if begun and not unsure:
            await self._standing.questions.run(query_packet(_ENDS, state.capabilities))
        elif reads and view is not None:
            view.read_unseen()
