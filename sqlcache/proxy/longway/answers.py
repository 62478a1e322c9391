"""MySQL's answers, passed on as they come. What a write has made outdated is bumped before its
client has the end of its answer; and what has changed in the session is followed."""

from sqlcache.cache.reads import Read
from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import with_flags
from sqlcache.mysql.response import ResponseTracker, followed
from sqlcache.mysql.rows import read_text_rows, with_last_number, with_last_row
from sqlcache.mysql.scan import with_number
from sqlcache.plan.commands import ClientCommand, Meaning
from sqlcache.proxy.copies import ResponseCopy
from sqlcache.proxy.kills import ended_by
from sqlcache.proxy.longway.refusals import Refusals
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.questions import written_like
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.inflight import InFlight
from sqlcache.proxy.straight.parts import Parts


class Answers:
    """Those to one session's commands."""

    __slots__ = ("_awaits_answer", "_copies", "_course", "_diagnostics", "_handles",
                 "_kills", "_last", "_meanings", "_metrics", "_refusals", "_relay", "_standing",
                 "_writes")  # fmt: skip

    def __init__(self, shared: SessionParts, standing: Standing) -> None:
        self._relay = shared.relay
        self._metrics = shared.metrics
        self._course = shared.course
        self._last = shared.last
        self._kills = shared.options.kills
        self._diagnostics = shared.diagnostics
        self._meanings = shared.meanings
        self._writes = shared.writes
        self._handles = shared.handles
        self._copies = shared.copies
        self._standing = standing
        self._refusals = Refusals(shared, standing)
        self._awaits_answer = False

    async def relay(
        self,
        command: ClientCommand,
        meaning: Meaning,
        kept: ResponseCopy | None = None,
        opens: tuple[Read, float] | None = None,
        rows: int | None = None,
        *,
        parts: Parts | None = None,
    ) -> ResponseTracker:
        """Relays the answer to a command that was sent. `opens`: the read that it is, if it may
        open a snapshot, and when it was sent, at the latest. `rows`: the FOUND_ROWS() that the
        client is told of instead of the server's. `parts`: those that have gone by."""
        self._metrics.statements_relayed += 1
        capabilities = self._standing.state.capabilities
        if parts is None:
            tracker = ResponseTracker(command.code, capabilities)
        else:
            tracker = parts.tracker(command.code, capabilities)
        view = self._standing.own.view
        in_snapshot = view is not None and view.needs_snapshot
        own = None
        if in_snapshot and opens is not None and opens[0].rolls_back:
            own = kept or self._copies.begin()
        self._awaits_answer = True
        self.end_writing()
        try:
            recounts = None if parts is None else parts.recounts
            meaning = await self._pass_response(
                command, tracker, meaning, kept or own, rows, recounts
            )
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

    async def relay_begun(
        self,
        command: ClientCommand,
        meaning: Meaning,
        kept: ResponseCopy | None,
        sent: InFlight,
    ) -> ResponseTracker:
        """The same for one that was sent on the straight path, where `parts` of it may have gone
        by."""
        self._writes.go_on(self._standing.state)
        return await self.relay(command, meaning, kept, sent.opens, parts=sent.parts)

    @property
    def is_over(self) -> bool:
        """Whether MySQL has said nothing behind the last one: else it may have been another's."""
        return not self._relay.upstream.has_some

    def end_writing(self) -> None:
        """Tells MySQL that a client has gone whose last command was sent: it ends what only waits,
        as in a SLEEP, and its answer still says how that has ended."""
        client = self._relay.client
        sent = self._awaits_answer or self._course.awaits_mysql
        if sent and client.closed and not client.has_some:
            self._relay.upstream.end_writing()

    async def _pass_response(
        self,
        command: ClientCommand,
        tracker: ResponseTracker,
        meaning: Meaning,
        kept: ResponseCopy | None = None,
        rows: int | None = None,
        recounts: bool | None = None,
    ) -> Meaning:
        """Passes a response on, chunk by chunk; the chunk that ends a write waits for its bump.

        Gives what the command meant, now that it is known whether the server took it.
        """
        self._relay.take_commits()  # of what sqlcache asked itself
        names_commits = self._standing.state.names_commits and not meaning.may_set
        prepared = self._meanings.prepared(command)
        meant, ended = meaning, 0  # statements of it
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
            if (commits := self._relay.take_commits()) and names_commits:
                self._writes.committed(commits)
            if tracker.ends and (left := await self._refusals.left_of(command, tracker, meaning)):
                meaning = left
                await self._writes.withdraw(meaning)
            elif tracker.ends or tracker.done:  # what tells that something is prepared has no end
                await self._writes.publish(tracker, meaning)
            if meant.kills or command.code == Command.PROCESS_KILL:
                self._kills.ran(ended_by(command, meant, ended, tracker.ends))
                ended += len(tracker.ends)
            if kept is not None:
                kept.add(chunk)
            if prepared is not None and prepared.columns and tracker.columns:
                if recounts is None:
                    recounts = prepared.recounts(tracker.columns)
                begins = tracker.bytes_fed + grown - len(chunk)
                offsets = [each - begins for each in tracker.status_offsets]
                flag = Status.METADATA_CHANGED
                chunk = with_flags(chunk, offsets, flag, flag if recounts else 0)
            await self._tell(chunk, kept, tracker)
            if tracker.wants_file:
                await self._relay.pass_file()
                tracker.file_sent()
        return meaning

    async def _tell(
        self, chunk: bytes, kept: ResponseCopy | None, tracker: ResponseTracker
    ) -> None:
        """Passes a chunk on, and waits for a client that does not read what it has."""
        self._metrics.bytes_to_clients += len(chunk)
        others_wait = self._writes.under_way or (kept is not None and kept.is_waited_for)
        if not self._relay.tell(chunk, ahead=others_wait) and not tracker.done:
            if self._writes.under_way:
                await self._relay.hurry_client()
            elif kept is not None:
                await kept.wait_for_client(self._relay)
            await self._relay.let_client_catch_up()

    async def _numbered(
        self, command: ClientCommand, chunk: bytes, tracker: ResponseTracker
    ) -> bytes:
        """The first part of the answer to a COM_STMT_PREPARE, with the client's number."""
        while tracker.prepared is None and not tracker.done:
            chunk += await self._relay.read(tracker)
        if tracker.prepared is None:
            return chunk
        command.number = self._handles.prepared(tracker.prepared.number)
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

    def refuse(self, command: ClientCommand, meaning: Meaning, error: bytes) -> ResponseTracker:
        """Passes on an error, which is all that came of a command."""
        tracker = followed(command.code, self._standing.state.capabilities, error)
        self._standing.took_effect(command, meaning, tracker)
        self._relay.client.write(error)
        return tracker
