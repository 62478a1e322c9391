"""Commands run at MySQL, and their answers, which are passed on as they come."""

from dataclasses import replace
from time import perf_counter

from sqlcache.cache.engine import Engine
from sqlcache.cache.reads import Read
from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import out_of_order, query_packet, with_flags
from sqlcache.mysql.response import ResponseTracker, followed
from sqlcache.mysql.rows import read_text_rows, with_last_number, with_last_row
from sqlcache.mysql.scan import number_in, with_number
from sqlcache.plan.commands import ClientCommand, Meaning
from sqlcache.plan.meanings import Meanings
from sqlcache.plan.plans import may_end_logging
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.handles import Handles, Refused
from sqlcache.proxy.last_command import LastCommand
from sqlcache.proxy.longway.refusals import Refusals
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.questions import written_like
from sqlcache.proxy.relay import Relay, ResponseCopy, Room
from sqlcache.proxy.straight.course import Course
from sqlcache.proxy.writes import Writes

FOUND_ROWS = b"SELECT FOUND_ROWS()"
_ENDS = b"COMMIT AND NO CHAIN NO RELEASE"


class Running:
    """Those of one session. `for_entries` is the room for copies of answers."""

    def __init__(
        self,
        client: Channel,
        upstream: Channel,
        relay: Relay,
        engine: Engine,
        metrics: Metrics,
        course: Course,
        last: LastCommand,
        diagnostics: Diagnostics,
        meanings: Meanings,
        writes: Writes,
        handles: Handles,
        standing: Standing,
        refusals: Refusals,
        for_entries: Room,
        max_entry_bytes: int,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._relay = relay
        self._engine = engine
        self._metrics = metrics
        self._course = course
        self._last = last
        self._diagnostics = diagnostics
        self._meanings = meanings
        self._writes = writes
        self._handles = handles
        self._standing = standing
        self._refusals = refusals
        self._for_entries = for_entries
        self._max_entry_bytes = max_entry_bytes
        self._awaits_answer = False

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
        missed = self._diagnostics.missed_by(command, meaning, text, unprepared=unprepared)
        if missed and rows is None:
            await self.make_up()
        if prepared is not None and command.execution is not None:
            for unseen in prepared.unseen_before(command.data, command.execution):
                await self._standing.questions.run(self._handles.for_server(unseen))
            command.data = prepared.for_server(command.data, command.execution)
        # However slowly a client sends a long one: nobody waits before MySQL can begin with it.
        last = await self._relay.begin(self.as_sent(command))
        if text is not None and may_end_logging(text):
            await self._engine.note_unlogged()
        meaning = await self._writes.raise_fence(meaning, self._standing.state)
        asked_at = self._engine.time()  # before MySQL can have opened a snapshot
        self._last.sent_at = perf_counter()
        await self._relay.finish(last)
        opens = None if read is None else (read, asked_at)
        return await self.relay_answer(command, meaning, kept, opens, rows)

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
        once had; gives its error. Not where the session is another one by now."""
        prepared = self._meanings.prepared(command)
        if prepared is None or prepared.fingerprint != self._standing.state.fingerprint():
            return refused.error
        code, capabilities = Command.STMT_PREPARE, self._standing.state.capabilities
        answer, ends = await self._relay.ask(refused.packet, capabilities, code)
        self._standing.state.answered(ends)
        number = followed(code, capabilities, answer).prepared_id
        if number is None:
            return answer
        self._handles.prepared_late(number_in(command.data), number)
        return None

    async def _refuse_prepared(
        self, command: ClientCommand, meaning: Meaning, error: bytes
    ) -> ResponseTracker:
        """Answers a command by the error that the server has for what prepares its statement."""
        await self._relay.throw_away(command)
        return self.took_refusal(command, meaning, error)

    def took_refusal(
        self, command: ClientCommand, meaning: Meaning, error: bytes
    ) -> ResponseTracker:
        """Passes on an error, which is all that came of a command."""
        tracker = followed(command.code, self._standing.state.capabilities, error)
        self._standing.took_effect(command, meaning, tracker)
        self._client.write(error)
        return tracker

    async def make_up(self) -> None:
        """Has the server run what leaves there what the client was told."""
        questions, state = self._standing.questions, self._standing.state
        capabilities, before, unsure = state.capabilities, state.status, state.transaction_unsure
        in_doubt, wrote_none = self._diagnostics.in_doubt, self._diagnostics.wrote_none
        if in_doubt and await questions.ask(FOUND_ROWS) == [(b"0",)]:
            self._diagnostics.counted_none()
        all_missing = self._diagnostics.missing(capabilities)
        for missing in all_missing:
            owed = self._handles.for_server(missing)
            if not await questions.run(owed):  # its error is nothing to the client
                await questions.run(self._diagnostics.counting(capabilities))
        begun = state.status & ~before & Status.IN_TRANS  # with autocommit off by now
        if begun and not unsure:
            await questions.run(query_packet(_ENDS, capabilities))
        if wrote_none and (in_doubt or all_missing):
            await questions.write_none()
        self._handles.close_others()

    async def relay_answer(
        self,
        command: ClientCommand,
        meaning: Meaning,
        kept: ResponseCopy | None = None,
        opens: tuple[Read, float] | None = None,
        rows: int | None = None,
    ) -> ResponseTracker:
        """Relays the answer to a command that was sent. `opens`: the read that it is, if it may
        open a snapshot, and when it was sent, at the latest. `rows`: the FOUND_ROWS() that the
        client is told of instead of the server's."""
        self._metrics.statements_relayed += 1
        tracker = ResponseTracker(command.code, self._standing.state.capabilities)
        view = self._standing.own.view
        in_snapshot = view is not None and view.needs_snapshot
        own = None
        if in_snapshot and opens is not None and opens[0].rolls_back:
            own = kept or ResponseCopy(self._max_entry_bytes, self._for_entries)
        self._awaits_answer = True
        self.end_writing()
        try:
            meaning = await self._pass_response(command, tracker, meaning, kept or own, rows)
            command.counts.took(self._metrics, self._last.sent_at, tracker.bytes_fed)
            if kept is None and not tracker.failed:
                self._last.note_time(command.counts, self._standing.state.schema, fills=False)
            self._standing.took_effect(command, meaning, tracker)
            if own is not None and opens is not None:
                read, asked_at = opens
                self._standing.own.remember(read, own, tracker, asked_at)
            else:
                self._standing.own.may_have_opened_snapshot(meaning)
        finally:
            self._awaits_answer = False
            if own is not None and own is not kept:
                own.give_back()
        return tracker

    def end_writing(self) -> None:
        """Tells MySQL that a client has gone whose last command was sent: it ends what only waits,
        as in a SLEEP, and its answer still says how that has ended."""
        sent = self._awaits_answer or self._course.awaits_mysql
        if sent and self._client.closed and not self._client.buffered:
            self._upstream.end_writing()

    async def _pass_response(
        self,
        command: ClientCommand,
        tracker: ResponseTracker,
        meaning: Meaning,
        kept: ResponseCopy | None = None,
        rows: int | None = None,
    ) -> Meaning:
        """Passes a response on, chunk by chunk; the chunk that ends a write waits for its bump.

        Gives what the command meant, now that it is known whether the server took it.
        """
        self._relay.take_commits()  # of what sqlcache asked itself
        prepared = self._meanings.prepared(command)
        recounts: bool | None = None
        while not tracker.done:
            held, grown = tracker.held_bytes, 0
            chunk = await self._relay.read(tracker)
            if tracker.told and self._diagnostics.states.differ:
                came, turns = chunk, meaning.turns_transaction
                chunk = self._diagnostics.states.in_part(came, tracker, held, turns=turns)
                grown = len(chunk) - len(came)
            if command.code == Command.STMT_PREPARE and command.number is None:
                chunk = await self._numbered(command, chunk, tracker)
            if rows is not None:
                chunk = await self._telling(rows, command, chunk, tracker)
            self._standing.state.answered(tracker.ends)
            self._writes.committed(self._relay.take_commits())
            if tracker.ends and (left := await self._refusals.left_of(command, tracker, meaning)):
                meaning = left
                await self._writes.withdraw(meaning)
            elif tracker.ends or tracker.done:  # what tells that something is prepared has no end
                await self._writes.publish(tracker, meaning)
            if kept is not None:
                kept.add(chunk)
            if prepared is not None and prepared.columns and tracker.columns:
                if recounts is None:
                    recounts = prepared.recounts(tracker.columns)
                begins = tracker.bytes_fed + grown - len(chunk)
                offsets = [each - begins for each in tracker.status_offsets]
                flag = Status.METADATA_CHANGED
                chunk = with_flags(chunk, offsets, flag, flag if recounts else 0)
            self._metrics.bytes_to_clients += len(chunk)
            others_wait = self._writes.under_way or (kept is not None and kept.is_waited_for)
            if not self._relay.tell(chunk, ahead=others_wait) and not tracker.done:
                if self._writes.under_way:
                    await self._relay.hurry_client()
                elif kept is not None:
                    await kept.wait_for_client(self._relay)
                await self._relay.let_client_catch_up()
            if tracker.wants_file:
                await self._relay.pass_file()
                tracker.file_sent()
        return meaning

    async def _numbered(
        self, command: ClientCommand, chunk: bytes, tracker: ResponseTracker
    ) -> bytes:
        """The first part of the answer to a COM_STMT_PREPARE, with the client's number."""
        while tracker.prepared_id is None and not tracker.done:
            chunk += await self._relay.read(tracker)
        if tracker.prepared_id is None:
            return chunk
        command.number = self._handles.prepared(tracker.prepared_id)
        return with_number(chunk, command.number)

    async def _telling(
        self, rows: int, command: ClientCommand, chunk: bytes, tracker: ResponseTracker
    ) -> bytes:
        """The whole answer to what asks for FOUND_ROWS(), with this number in it."""
        while not tracker.done:
            chunk += await self._relay.read(tracker)
        if not tracker.rows:
            return chunk
        if command.code == Command.STMT_EXECUTE:
            return with_last_number(chunk, rows)
        ((told,),) = read_text_rows(chunk, self._standing.state.capabilities)
        return with_last_row(chunk, written_like(told, rows))
