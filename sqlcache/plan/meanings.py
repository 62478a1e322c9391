"""What the commands of a session mean, by its state and the catalog of now."""

import re
from dataclasses import replace
from itertools import chain, repeat

from sqlcache.cache.reads import Template
from sqlcache.errors import SqlSyntaxError
from sqlcache.mysql.constants import REFUSES_PARAMETERS, Command
from sqlcache.mysql.packets import has_attributes, query_text
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.scan import number_in
from sqlcache.plan.commands import (
    EXECUTES,
    NO_STATEMENT,
    REFRESHES_NOTHING,
    UNKNOWN,
    WRITES_NOTHING,
    ClientCommand,
    Meaning,
    kept_bytes,
    shortened,
)
from sqlcache.plan.contexts import Context
from sqlcache.plan.planner import Planner
from sqlcache.plan.plans import Pass, Preparation
from sqlcache.plan.prepared import Prepared, may_bring_types
from sqlcache.plan.prepared_by_name import PreparedByName
from sqlcache.plan.reader import JUDGED_ON_THE_LOOP_BYTES, ON_THE_LOOP_BYTES, Ahead
from sqlcache.plan.state import SessionState
from sqlcache.plan.writeset import EVERYTHING
from sqlcache.sql.analysis import analyse
from sqlcache.sql.analysis.markers import ROWS
from sqlcache.sql.lexer import Lexed, lex
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import Kind, Statement

MOST_PARAMETERS = 8_192
"""Of a prepared statement that is cached: all are looked at in each execution."""

_PLAIN = re.compile(rb"[A-Za-z0-9_@.,=()*;\s]{1,500}\Z")
"""A text that every sql_mode and character set reads alike, but for other grammars' sql_modes."""
_PLAIN_KINDS = frozenset({Kind.READ, Kind.SESSION, Kind.TRANSACTION})
_LAST_PREPARED = 0xFFFFFFFF  # MariaDB: the statement of the last COM_STMT_PREPARE


class Meanings:
    """Reads one session's texts, and remembers what it prepared."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._of_prepared: dict[int, Meaning] = {}
        self._prepared: dict[int, Prepared] = {}  # those whose text could be read
        self._last = 0
        self._passed: dict[int, int] = {}  # bytes, of what is known of those not cached
        self._ahead: tuple[ClientCommand, Ahead] | None = None
        self.by_name = PreparedByName(planner)

    async def read_ahead(self, command: ClientCommand, state: SessionState) -> None:
        """Reads a long text away from the event loop, before it is asked what it means: each time,
        for it may mean something else by now."""
        prepared = command.code == Command.STMT_PREPARE
        if self._read_before(command, state, prepared=prepared) is not None:
            return
        self.answered()
        if len(command.data) <= JUDGED_ON_THE_LOOP_BYTES or not command.whole:
            return
        if command.code != Command.QUERY and not prepared:
            return
        text = command.payload[1:] if prepared else query_text(command.payload, state.capabilities)
        at_once = len(command.data) <= ON_THE_LOOP_BYTES
        reader = self._planner.reader
        if text is not None:
            read = state.as_utf8(text) if at_once else await reader.apart(state.as_utf8, text)
            if read is not None:
                ahead = await reader.read_ahead(read, state, prepared=prepared, at_once=at_once)
                await self.by_name.read_ahead(ahead, state)
                self._ahead = command, ahead

    def answered(self) -> None:
        """A command was: nothing of its text is kept for it any more, which is of any length."""
        self._ahead = None
        self.by_name.drop_ahead()

    def of(self, command: ClientCommand, state: SessionState) -> Meaning:
        """What a command does if it is run now."""
        if command.code == Command.QUERY:
            return self._of_query(command, state)
        if command.code in EXECUTES:
            if (prepared := self.prepared(command)) is not None:
                self.weigh(prepared)
            return self._of_execution(self.number_of(command), state)
        if command.code == Command.REFRESH and not any(command.payload[1:]):
            return REFRESHES_NOTHING
        return NO_STATEMENT if command.code in WRITES_NOTHING else UNKNOWN

    def _of_query(self, command: ClientCommand, state: SessionState) -> Meaning:
        payload, capabilities = command.payload, state.capabilities
        text = query_text(payload, capabilities)
        meaning = UNKNOWN if text is None else self._read(command, text, state, prepared=False)
        if meaning is UNKNOWN or not has_attributes(payload, capabilities):
            return meaning
        return replace(meaning, has_attributes=True)

    def of_prepared_text(self, command: ClientCommand, state: SessionState) -> Meaning:
        """What the text of a COM_STMT_PREPARE does when it is executed."""
        if not command.whole:
            return UNKNOWN
        return self._read(command, command.payload[1:], state, prepared=True)

    def _of_execution(self, number: int, state: SessionState) -> Meaning:
        """What a prepared statement does now: what its names mean may have changed since then."""
        meaning = self._of_prepared.get(number)
        if meaning is None:
            return UNKNOWN
        elsewhere = meaning.schema != state.schema
        prepared = self._prepared.get(number)
        if prepared is not None and prepared.redefinitions != self._planner.keeper.redefinitions:
            prepared.redefinitions = self._planner.keeper.redefinitions
            prepared.redefined(self._dateless(meaning))
        if meaning.edition != self._planner.keeper.edition or state.temporary.may_merge:
            meaning = under_the_catalog(meaning, self._planner, state)
            self._of_prepared[number] = meaning
        if meaning.goes_elsewhere or not elsewhere:
            return meaning
        return replace(meaning, goes_elsewhere=True)

    def _read(
        self, command: ClientCommand, text: bytes, state: SessionState, *, prepared: bool
    ) -> Meaning:
        lexed: Lexed | None
        if (ahead := self._read_before(command, state, prepared=prepared)) is not None:
            if ahead.lexed is None:
                return UNKNOWN
            lexed, statements = ahead.lexed, ahead.statements
        elif (read := state.as_utf8(text)) is None:
            return self._read_plain(text, state) if command.whole and not prepared else UNKNOWN
        elif not command.whole:
            statements = self._planner.reader.head(read, state)
            lexed = None
        else:
            try:
                lexed = lex(read, state.dialect)
            except SqlSyntaxError:
                return UNKNOWN
            statements = self._planner.reader.statements(lexed, read, state, prepared=prepared)
        meaning = Meaning(statements, lexed, state.schema)
        if len(statements) == 1 and statements[0].verb == "EXECUTE":
            meaning = self.by_name.executed_by(statements[0], state) or meaning
        meaning = under_the_catalog(meaning, self._planner, state)
        if meaning.schema == state.schema:
            return meaning
        return replace(meaning, goes_elsewhere=True)

    def _read_plain(self, text: bytes, state: SessionState) -> Meaning:
        """What a text does in a session whose settings are not known, if they cannot matter."""
        if not _PLAIN.match(text):
            return UNKNOWN
        statements = analyse(text, Dialect(), multi_statements=False)
        if not all(map(_says_all, statements)):
            return UNKNOWN
        unread = tuple(replace(s, cacheable=False) for s in statements)
        return under_the_catalog(Meaning(unread, None, None), self._planner, state)

    def _read_before(
        self, command: ClientCommand, state: SessionState, *, prepared: bool
    ) -> Ahead | None:
        if self._ahead is None or self._ahead[0] is not command:
            return None
        ahead = self._ahead[1]
        # What is prepared is read once, whatever is declared when it is executed.
        holds = prepared or self._planner.reader.read_so(ahead, state, prepared=prepared)
        return ahead if holds else None

    # Statements prepared under a number.

    def prepared(self, command: ClientCommand) -> Prepared | None:
        """The statement that an execution names, if its text could be read; else None."""
        known = command.code in EXECUTES
        return self.prepared_as(self.number_of(command)) if known else None

    def prepared_as(self, number: int) -> Prepared | None:
        """The same by the number that the server has given it."""
        return self._prepared.get(number)

    def plan_for(self, prepared: Prepared, context: Context) -> Template | Pass | None:
        """What its executions are to be served by. None where that is not decided; and after any
        definition, which the server may have prepared it anew for, until `of` was asked."""
        prepared.runs_under(context.preparing)
        return context.planned_for(prepared) if self.is_current(prepared) else None

    def is_current(self, prepared: Prepared) -> bool:
        """Whether no definition has changed since it was looked at."""
        return prepared.redefinitions == self._planner.keeper.redefinitions

    def is_unprepared(self, command: ClientCommand) -> bool:
        """Whether it executes what was never prepared."""
        return command.code in EXECUTES and self.number_of(command) not in self._of_prepared

    def took_effect(
        self,
        command: ClientCommand,
        tracker: ResponseTracker,
        state: SessionState,
        number: int | None = None,
    ) -> Preparation | None:
        """The server answered a command. Gives what `remember` does, where it prepared one, which
        the client has under this number."""
        failed = bool(tracker.ends) and tracker.ends[-1].status is None
        match command.code:
            case Command.STMT_PREPARE if failed:
                self._last = 0  # MariaDB then knows of none
            case Command.STMT_PREPARE if number is not None and tracker.prepared is not None:
                count = tracker.columns, tracker.prepared.parameters
                return self.remember(number, *count, command, state)
            case Command.STMT_EXECUTE | Command.STMT_RESET if not failed:
                if (prepared := self._prepared.get(self.number_of(command))) is not None:
                    prepared.long_data = False
            case Command.STMT_EXECUTE | Command.STMT_BULK_EXECUTE:
                refused = failed and tracker.ends[-1].error_code in REFUSES_PARAMETERS
                prepared = self._prepared.get(self.number_of(command))
                if prepared is not None and (refused or command.code == Command.STMT_BULK_EXECUTE):
                    prepared.lose_track()
        return None

    def withheld(self, command: ClientCommand) -> bool:
        """A command that was read is not sent after all. Whether what comes next means to the
        server what it does to the client, who may leave out the types that it told in this one."""
        if command.code not in EXECUTES or self.is_unprepared(command):
            return True
        prepared = self.prepared(command)
        if prepared is None or command.execution is None:
            return not may_bring_types(command.data)
        prepared.was_withheld()
        return not prepared.parameters or command.execution.bind_at is not None

    def sent_unanswered(self, command: ClientCommand) -> None:
        """A COM_STMT_CLOSE or COM_STMT_SEND_LONG_DATA went to the server."""
        number = self.number_of(command)
        if command.code == Command.STMT_CLOSE:
            self.closed(number)
        elif (prepared := self._prepared.get(number)) is not None:
            prepared.long_data = True

    def closed(self, number: int) -> None:
        """The client has done with a prepared statement."""
        self._of_prepared.pop(number, None)
        self._forget(number)

    def remember(
        self,
        number: int,
        columns: int,
        parameters: int,
        command: ClientCommand,
        state: SessionState,
    ) -> Preparation | None:
        """The server prepared a COM_STMT_PREPARE's text under this number. Gives by what others
        like it may be prepared, if they may."""
        meaning = self.of_prepared_text(command, state)
        long = parameters > MOST_PARAMETERS
        if long or self._planner.prepared.full:  # it is passed through, with what it writes
            meaning = shortened(meaning)
        if meaning.lexed is None:
            self._was_prepared(number, meaning)
            self._passed[number] = size = kept_bytes(meaning)
            self._planner.prepared.size_bytes += size
            return None
        redefinitions = self._planner.keeper.redefinitions
        limits = _limits(meaning, parameters)
        made = Preparation(meaning, parameters, self._dateless(meaning), limits, redefinitions)
        self.prepare(number, made, columns, state.fingerprint(), state.schema, state.preparing)
        writes = self._planner.tagging.written_when_prepared(meaning)
        return None if writes or meaning.goes_elsewhere or meaning.put_back else made

    def may_prepare(self, plan: Preparation) -> bool:
        """Whether a statement can be prepared by a plan, as it was by another session."""
        current = plan.redefinitions == self._planner.keeper.redefinitions
        return current and not self._planner.prepared.full

    def prepare(
        self,
        number: int,
        plan: Preparation,
        columns: int,
        fingerprint: bytes,
        schema: str | None,
        preparing: bytes,
    ) -> None:
        """The server prepared such a statement under this number, for a session like this, which
        answers so many columns."""
        assert plan.meaning.lexed is not None
        self._was_prepared(number, plan.meaning)
        prepared = self._prepared[number] = Prepared(
            plan.meaning.lexed,
            fingerprint,
            schema,
            plan.parameters,
            preparing,
            columns,
            plan.dateless,
            plan.limits,
            redefinitions=plan.redefinitions,
            alike=plan.alike,
            cacheable=plan.cacheable,
            meaning_bytes=plan.meaning_bytes,
        )
        self.weigh(prepared)

    def _was_prepared(self, number: int, meaning: Meaning) -> None:
        self._last = number
        self._forget(number)
        self._of_prepared[number] = meaning

    def weigh(self, prepared: Prepared) -> None:
        """See `Planner.weigh`."""
        self._planner.weigh(prepared)

    def _forget(self, number: int) -> None:
        """The one that has this number is no more."""
        prepared = self._prepared.pop(number, None)
        size = self._passed.pop(number, 0) if prepared is None else prepared.size_bytes
        self._planner.prepared.size_bytes -= size

    def forget(self) -> None:
        """The session ends, or begins anew."""
        for number in (*self._prepared, *self._passed):
            self._forget(number)
        self.by_name.forget()
        self._of_prepared.clear()
        self._last = 0
        self._ahead = None

    def _dateless(self, meaning: Meaning) -> tuple[bool, ...]:
        if meaning.lexed is None or len(meaning.statements) != 1:
            return ()
        each = self._planner.dateless(meaning.statements[0], meaning.schema)
        runs = meaning.lexed.runs
        if len(each) != len(runs):
            return ()
        return tuple(chain.from_iterable(map(repeat, each, runs)))

    def text_of(self, command: ClientCommand, capabilities: int) -> bytes | None:
        """The text that a command runs; None where it is not known."""
        if command.code == Command.QUERY:
            return query_text(command.payload, capabilities) if command.whole else None
        if command.code == Command.STMT_PREPARE:
            return command.payload[1:] if command.whole else None
        prepared = self.prepared(command)
        return None if prepared is None else prepared.lexed.text

    def number_of(self, command: ClientCommand) -> int:
        """That of the prepared statement that a command names."""
        return self._last if self.names_the_last(command) else number_in(command.data)

    def names_the_last(self, command: ClientCommand) -> bool:
        """Whether that is the one that was prepared last, by no number of its own."""
        is_last = number_in(command.data) == _LAST_PREPARED
        return is_last and self._planner.keeper.is_mariadb

    def lacks_types(self, command: ClientCommand, capabilities: int) -> bool:
        """Whether it executes a prepared statement, and leaves out the types of its parameters.
        MariaDB takes that of those alone that are named by their number."""
        prepared = self.prepared(command) if command.code == Command.STMT_EXECUTE else None
        return prepared is not None and not prepared.tells_types(command.payload, capabilities)

    def has_last(self) -> bool:
        """Whether the one that was prepared last is there still."""
        return self._last in self._of_prepared


def _says_all(statement: Statement) -> bool:
    """Whether neither the default schema nor what else a session has decides what it does."""
    plain = statement.kind in _PLAIN_KINDS and not statement.reads and not statement.writes
    return plain and not statement.writes_everything


def _limits(meaning: Meaning, parameters: int) -> frozenset[int]:
    """The places of those parameters of a prepared statement that are numbers of rows: of all where
    it is not known which they are."""
    runs = () if meaning.lexed is None else meaning.lexed.runs
    columns = tuple(chain.from_iterable(each.markers.columns for each in meaning.statements))
    if ROWS not in columns:
        return frozenset()
    if len(columns) != len(runs):
        return frozenset(range(parameters))
    each = chain.from_iterable(map(repeat, columns, runs))
    return frozenset(place for place, column in enumerate(each) if column == ROWS)


def under_the_catalog(meaning: Meaning, planner: Planner, state: SessionState) -> Meaning:
    """The same with what its statements write and run, as far as is known at present."""
    if meaning is UNKNOWN:
        return meaning
    if meaning.writes and not meaning.statements:  # it prepares them: what it runs may be another
        return replace(meaning, writes=EVERYTHING, edition=planner.keeper.edition)
    statements = planner.reader.with_code_they_run(meaning.statements, meaning.schema)
    writes = planner.tagging.writes(statements, meaning.schema)
    writes = planner.tagging.by_way_of(state.temporary, writes)
    return replace(
        meaning,
        statements=statements,
        writes=writes,
        edition=planner.keeper.edition,
        goes_elsewhere=planner.reader.leads_elsewhere(statements, meaning.schema),
    )
