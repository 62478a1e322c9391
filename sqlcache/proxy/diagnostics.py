"""What a session's statements leave behind on the server for the next one to ask about.

FOUND_ROWS(), ROW_COUNT(), the warnings: a hit leaves none of them there. So before a command that
may tell the difference, the server runs what leaves the same; all others never know.
"""

from sqlcache.cache.entry import COUNTED
from sqlcache.mysql.constants import FAILS_AMID, Capability, Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, query_packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.scan import number_in
from sqlcache.mysql.states import ToldStates
from sqlcache.plan.commands import EXECUTES, QUERY_VERBS, WRITES_NOTHING, ClientCommand, Meaning
from sqlcache.proxy.looking_back import (
    ASKS_FOR_COUNT,
    ASKS_FOR_ROWS,
    ASKS_FOR_WARNINGS,
    MAX_FOUND_ROWS,
    RUNS_NO_QUERY,
    USES_A_TABLE,
    holds,
    may_find_others,
    may_hold,
    may_keep_rows,
    query_finding,
    query_keeping,
)
from sqlcache.proxy.transaction import TransactionView
from sqlcache.sql.statement import FoundRows

_MOST_OWED_BYTES = 4_096  # of what is owed from before the last hit
_ANSWERED_BY_OK = EXECUTES | {
    Command.QUERY,
    Command.PING,
    Command.INIT_DB,
    Command.STMT_RESET,
    Command.RESET_CONNECTION,
}


class Diagnostics:
    """Of one session: what the client's last statements left, and what the server has of that."""

    __slots__ = ("_asked", "_found", "_owed_before", "_packet", "_parting", "_ran_since", "_rows",
                 "_text", "_warned", "_warned_of_counting", "in_doubt", "mariadb", "mixes",
                 "states", "wrote", "wrote_none")  # fmt: skip

    def __init__(self) -> None:
        self.mariadb = False
        """Whether the server is one."""
        self._packet: bytes | None = None
        """A query that leaves on the server what is missing there; None if nothing is."""
        self._owed_before: tuple[_Owed, ...] = ()
        """What is missing from before that, for it may leave FOUND_ROWS() as it finds it."""
        self._parting: bytes | None = None
        """A query that ends what `mixes` tells of."""
        self._asked: bytes | None = None
        """One that asks for FOUND_ROWS() and was answered after that."""
        self._rows = 0
        """How many rows the hit had that it asks for, or counted: see `entry.COUNTED`."""
        self._text = b""
        """That hit's statement."""
        self._ran_since = False
        self._warned = False  # the server, by what it ran last
        self._warned_of_counting = False  # MySQL, which forgets that with the next statement
        self._found = False
        """Whether FOUND_ROWS() is more than none on the server, for sure."""
        self.in_doubt = False
        """Whether nothing is missing after all where FOUND_ROWS() is none there."""
        self.wrote = False
        """Whether ROW_COUNT() tells of rows that were written."""
        self.states = ToldStates()
        """Of its transactions."""
        self.wrote_none = False
        """Whether ROW_COUNT() is 0, for sure, as after what is no query and has written no row."""
        self.mixes = False
        """Whether MySQL may take the next change of rows for a part of the last one, which changed
        none in a table that rolls nothing back, and warn of two storage engines (6414). It does so
        until it reads a table that is transactional."""

    def hit(
        self, packet: bytes, text: bytes, rows: int, *, plain: bool = False, parts: bool = True
    ) -> None:
        """A command was answered from the cache; the packet asks for the same at any time. The text
        is its statement's, or holds it. `plain`: it surely leaves a FOUND_ROWS() of its own.
        `parts`: it reads a transactional table, which ends what `mixes` tells of."""
        if self.mixes and parts:
            self._parting, self.mixes = packet, False
        keeps = not plain and self._packet is not None and self.mariadb and may_keep_rows(text)
        self._owed_before = _bounded(self._owed()) if keeps else ()
        self._packet = packet
        self._asked = None
        self._text = text
        self._rows = rows
        self._ran_since = self.in_doubt = self.wrote = self.wrote_none = False

    def counted(self, packet: bytes, rows: int) -> None:
        """The server ran a query that counts all its rows, and was asked for their number: to the
        client it is as after a hit. It had no warnings but those it gives every time."""
        self.hit(packet, packet, rows, parts=False)
        self._warned, self._warned_of_counting = False, True

    def found_rows(self, asks: bytes) -> int | None:
        """What a command answers that asks for FOUND_ROWS() and nothing else, just after a hit, or
        after what `left_more`; None if it is another, or only the server can tell."""
        after = self._packet is not None and not self._ran_since
        if (
            not (after or self.left_more)
            or self._asked is not None
            or self.in_doubt
            or ASKS_FOR_COUNT.fullmatch(asks) is None
        ):
            return None
        if self._rows & COUNTED:
            return self._rows & ~COUNTED
        return None if may_find_others(self._text, mariadb=self.mariadb) else self._rows

    @property
    def left_more(self) -> bool:
        """Whether the server has run something since the hit that left FOUND_ROWS() as it was, and
        warnings or an error, which what is missing would take away."""
        return self.mariadb and self._packet is not None and self._ran_since and self._warned

    def answered(self, command: ClientCommand) -> None:
        """A command that asks for FOUND_ROWS() was answered with what that is."""
        self._asked = command.data

    def ran(self, command: ClientCommand, meaning: Meaning, tracker: ResponseTracker) -> None:
        """The server ran a command."""
        last = tracker.ends[-1] if tracker.ends else None
        if last is not None:  # even COM_PING's OK says how many rows were written
            self._ran_since = True
            by_ok = command.code in _ANSWERED_BY_OK and not tracker.columns
            if not meaning.only_asks or last.status is None:
                self.wrote_none = by_ok and last.status is not None and not last.affected
        if command.code not in WRITES_NOTHING or tracker.failed:
            self.wrote = last is not None and last.affected > 0
            kept = self._warned and not any(
                (each.reads or each.writes) and not each.diagnostic for each in meaning.statements
            )
            warns = last is not None and (last.status is None or last.warnings > 0)
            self._warned = kept or warns
            self._warned_of_counting = False
        if tracker.prepared is not None and tracker.prepared.warnings:  # those of before are gone
            self._warned = self._ran_since = True
        unread = meaning.unread and holds(RUNS_NO_QUERY, command.data)
        if command.code not in WRITES_NOTHING and not (meaning.keeps_found_rows or unread):
            self._may_have_found(command, meaning, tracker)

    def _may_have_found(
        self, command: ClientCommand, meaning: Meaning, tracker: ResponseTracker
    ) -> None:
        """What the server ran may have set its FOUND_ROWS()."""
        last = tracker.ends[-1] if tracker.ends else None
        succeeded = last is not None and last.status is not None
        fails_amid = self.mariadb and last is not None and last.error_code in FAILS_AMID
        if succeeded and meaning.may_count and tracker.matched == 0 and self._found:
            self.in_doubt, self._found = self._packet is not None, False
            return
        self._found = succeeded and bool(tracker.rows or (meaning.may_count and tracker.matched))
        if succeeded and self.keeps_debt(command.data) and _repeats(command, meaning):
            self._owed_before = _bounded(self._owed())
            self._packet = self._text = command.data
            self._rows = tracker.rows
        elif succeeded or fails_amid or _has_counted(meaning, tracker):
            self._packet = None

    @property
    def must_be_made_up_for(self) -> bool:
        """Whether anything that comes now may tell that the server has not run the last hit's
        query: some statements that ask nothing count the warnings from before."""
        warned = self._packet is not None and self._warned and not self._ran_since
        return warned or self._parting is not None

    @property
    def warned(self) -> bool:
        """Whether the server has warnings or an error, by what it ran last."""
        return self._warned

    @property
    def in_doubt_after_none(self) -> bool:
        """Whether nobody could tell what is missing after a change that finds no row."""
        return self._packet is not None and (self.in_doubt or not self._found)

    @property
    def owes_warnings(self) -> bool:
        """Whether what says how many warnings there are would tell that the server has not run the
        last hit's query: MySQL warns of each that counts all, and of FOUND_ROWS() itself."""
        counts = self._rows & COUNTED or self._asked or self._warned_of_counting
        return self._packet is not None and not self._ran_since and bool(counts)

    def keeps_debt(self, text: bytes | None) -> bool:
        """Whether a query may leave FOUND_ROWS() as the server has it, and that is not what the
        client was told. See `may_keep_rows`."""
        return self._packet is not None and self.mariadb and may_keep_rows(text)

    def passed(self, *, reads: bool, keeps_found_rows: bool, rows: int) -> None:
        """The same as `ran` for a query with so many rows and no warning, which asked nothing of
        what came before it. `reads`: it named a table."""
        self._ran_since = True
        self.wrote = self._warned_of_counting = False
        self.wrote_none = keeps_found_rows and not rows
        self._warned &= not reads
        if not keeps_found_rows:
            self._found = rows > 0
            self._packet = None

    def passed_change(self, *, keeps_found_rows: bool) -> None:
        """The same for a change of rows that changed some. Where it does not keep FOUND_ROWS(), it
        counts what it found."""
        self.passed(reads=True, keeps_found_rows=keeps_found_rows, rows=1)
        self.wrote = True
        self.wrote_none = False

    def passed_command(self) -> None:
        """The same for a command that is no statement."""
        self._ran_since = self.wrote_none = True

    def may_be_kept(self, command: bytes) -> bool:
        """Whether the server has warnings or an error that a command's statement may keep for the
        next: all that use no table do."""
        return self._warned and not holds(USES_A_TABLE, command)

    def opened(self, view: TransactionView, status: int, capabilities: int) -> None:
        """The server is told to begin a transaction, for a hit, in a session with this status."""
        if capabilities & Capability.SESSION_TRACK and not self.mariadb:
            anew, snapshot = bool(status & Status.IN_TRANS), view.needs_snapshot
            self.states.began(anew=anew, snapshot=snapshot)

    def begin_anew(self) -> None:
        """The session does, under another user: FOUND_ROWS() stays, and nothing else."""
        self._ran_since = True
        self.wrote_none = False
        self._parting, self.mixes = None, False

    def missed_by(
        self, command: ClientCommand, meaning: Meaning, text: bytes | None, *, unprepared: bool
    ) -> bool:
        """Whether a command may tell what the last hit's query left behind, or would have taken
        away: the answers of some, such as COM_PING, count the warnings that are there.

        The text is that of what it runs, or holds it; None where it is not known. `unprepared`: it
        executes what was never prepared.
        """
        if self.must_be_made_up_for:
            return True
        if self._packet is None:
            return False
        if meaning.prepares_transaction and self.owes_reads:
            return True
        if command.code in WRITES_NOTHING:
            return self.owes_warnings
        if unprepared:
            return not self._ran_since  # the server adds an error to what is there
        query = all(s.verb in QUERY_VERBS and not s.diagnostic for s in meaning.statements)
        named = meaning.lexed is None and any(s.reads for s in meaning.statements)  # by EXECUTE
        keeps_debt = self.keeps_debt(None if named else text) and not meaning.keeps_found_rows
        if query and keeps_debt and not _repeats(command, meaning):
            return True
        unread = meaning.unread and self._ran_since
        if unread and text is not None and not may_hold(ASKS_FOR_ROWS, text):
            wants_warnings = may_hold(ASKS_FOR_WARNINGS, text)
            if wants_warnings or (self.may_be_kept(command.data) and not keeps_debt):
                return False
        told_by_none = not self.in_doubt_after_none
        return meaning.looks_back(just_before=not self._ran_since, told_by_none=told_by_none)

    def counted_none(self) -> None:
        """Doubt is over: the server itself found no rows since the hit."""
        self._rows, self._text, self.in_doubt = 0, b"", False
        self._owed_before = ()

    def missing(self, capabilities: int, *, limited: bool) -> list[bytes]:
        """What to run on the server, so that nothing is missing there any more.

        After a hit that is a query that finds as many rows: the read itself may find others by now,
        or none, with another default schema. It is run only if it has too many, or may have left
        others out. Where there are warnings, or an error, of what has run since, it uses no table:
        then MariaDB keeps those. `limited`: see `query_finding`.
        """
        missing = [] if self._parting is None else [self._parting]
        owed = self._owed()
        keeps = self._keeping(owed)
        missing += [
            each
            if isinstance(each, bytes)
            else query_packet(_counting(each, limited=limited), capabilities)
            for each in owed
            if keeps is None
        ]
        if keeps is not None:
            missing.append(query_packet(keeps, capabilities))
        if self._asked is not None:
            missing.append(self._asked)
        self._found = self._asked is not None or self._rows & ~COUNTED > 0
        self._warned_of_counting = bool(self._rows & COUNTED) or self._asked is not None
        self._packet = self._asked = self._parting = None
        self._owed_before = ()
        self._warned &= keeps is not None
        self.in_doubt = False
        return missing

    def _keeping(self, owed: "tuple[_Owed, ...]") -> bytes | None:
        """What leaves FOUND_ROWS() as all that would, and the warnings as they are; None where it
        need not, or nothing does."""
        last = owed[-1] if owed and self.left_more and self._asked is None else None
        return query_keeping(last & ~COUNTED) if isinstance(last, int) else None

    @property
    def owes_reads(self) -> bool:
        """Whether some of what is missing may read tables: it could open a transaction's snapshot,
        and ends what was set for the next transaction."""
        owed = (*self._owed(), self._parting, self._asked)
        return bytes in map(type, owed)

    def owed_executions(self) -> frozenset[int]:
        """The numbers of the prepared statements that are to be executed once more, if what is
        missing is wanted."""
        if self._packet is None and self._parting is None:
            return frozenset()
        owed = (*self._owed(), self._parting, self._asked)
        packets = [each for each in owed if type(each) is bytes]
        return frozenset(number_in(each) for each in packets if each[HEADER_BYTES] in EXECUTES)

    def counting(self, capabilities: int, *, limited: bool) -> bytes:
        """What to run where what was missing cannot be run any more, as its table is gone."""
        rows = min(self._rows & ~COUNTED, MAX_FOUND_ROWS)
        return query_packet(_counting(rows, limited=limited), capabilities)

    def _owed(self) -> "tuple[_Owed, ...]":
        """What the server is to run, in order."""
        if self._packet is None:
            return ()
        counted = bool(self._rows & COUNTED)
        own = counted or not may_find_others(self._text, mariadb=self.mariadb)
        known = own and self._rows & ~COUNTED <= MAX_FOUND_ROWS
        last = self._rows if known else self._packet
        # What the last leaves, it leaves now.
        return (*(each for each in self._owed_before if each != last), last)


_Owed = bytes | int
"""A packet to send, or what the server is to find: see `entry.COUNTED`."""


def _bounded(owed: tuple[_Owed, ...]) -> tuple[_Owed, ...]:
    """The same, or none of it where that is too much to keep."""
    size = sum(len(each) for each in owed if isinstance(each, bytes))
    return owed if size <= _MOST_OWED_BYTES else ()


def _has_counted(meaning: Meaning, tracker: ResponseTracker) -> bool:
    """Whether a statement has ended, before the one that failed, that may have set FOUND_ROWS()."""
    ended = meaning.statements[: max(tracker.results - 1, 0)]
    return any(each.after is not FoundRows.KEPT for each in ended)


def _repeats(command: ClientCommand, meaning: Meaning) -> bool:
    """Whether the same packet asks for the same at any later time, and changes nothing."""
    lasting = not meaning.statements or all(each.cacheable for each in meaning.statements)
    return lasting and command.code == Command.QUERY and command.whole


def _counting(rows: int, *, limited: bool) -> bytes:
    found = query_finding(rows & ~COUNTED, counted=bool(rows & COUNTED), limited=limited)
    assert found is not None
    return found
