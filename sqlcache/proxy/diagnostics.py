"""What a session's statements leave behind on the server for the next one to ask about.

FOUND_ROWS(), ROW_COUNT(), the warnings: a hit leaves none of them there. So before a command that
may tell the difference, the server runs what leaves the same; all others never know.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from sqlcache.cache.entry import COUNTED
from sqlcache.errors import SqlSyntaxError
from sqlcache.mysql.constants import FAILS_AMID, Capability, Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, query_packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.scan import number_in
from sqlcache.mysql.states import ToldStates
from sqlcache.plan.commands import EXECUTES, QUERY_VERBS, WRITES_NOTHING, ClientCommand, Meaning
from sqlcache.proxy.transaction import TransactionView
from sqlcache.sql.lexer import Kind, Token, tokenize, word_set
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import FoundRows

_MAX_FOUND_ROWS = 100_000  # more than that are not counted again for who asks for them late
_MOST_KEPT_ROWS = 1_000  # likewise, where it is done without a table: in 4 ms
_MOST_OWED_BYTES = 4_096  # of what is owed from before the last hit
MOST_SEARCHED_BYTES = 32_768
"""Of a text that is searched for words, on the event loop: a longer one may hold any of them."""
_SHORT_BYTES, _MOST_SHORT = 1_000, 500  # texts, of which it is remembered what they leave
_ASKS_FOR_ROWS = re.compile(rb"FOUND_ROWS", re.IGNORECASE)
_ASKS_FOR_WARNINGS = re.compile(rb"SHOW|_COUNT|DIAGNOSTICS", re.IGNORECASE)
_MAY_LOOK_BACK = re.compile(
    rb"WARNINGS|ERRORS|_COUNT|FOUND_ROWS|DIAGNOSTICS|EXECUTE|CALL|ROLE", re.IGNORECASE
)
_LONGEST_WORD = 16  # and more, of those
_COUNTS = word_set("ROW_COUNT FOUND_ROWS")
_ASKS_FOR_COUNT = re.compile(  # a packet, or what one prepares
    rb"(?is)(.{3}\x00.(\x00\x01)?)?\s{0,9}SELECT\s{1,9}FOUND_ROWS\(\)(\s{1,9}(AS\s{1,9})?`?[a-z_]\w{0,63}`?)?\s{0,9};?"
)
_RUN_OTHERS = word_set("EXECUTE CALL")
_ANSWERED_BY_OK = EXECUTES | {
    *(Command.QUERY, Command.PING, Command.INIT_DB),
    *(Command.STMT_RESET, Command.RESET_CONNECTION),
}
_BEFORE_STATEMENTS = word_set("FOR ATOMIC BEGIN THEN ELSE DO")
_DIALECTS = (Dialect(), Dialect(no_backslash_escapes=True))

_LIMITS = re.compile(rb"\b(?:LIMIT|FETCH)\b", re.IGNORECASE)
_OFFSET_OR_TIES = re.compile(rb"\b(?:OFFSET|TIES)\b", re.IGNORECASE)
_COMMA = re.compile(rb",")
_UNION = re.compile(rb"\b(UNION|EXCEPT|INTERSECT)\b", re.IGNORECASE)
_AGGREGATE = re.compile(
    rb"\b(?:COUNT|MIN|MAX|SUM|AVG|STD|VAR|BIT_|GROUP_CONCAT|JSON_)", re.IGNORECASE
)
_VALUES = re.compile(rb"\bVALUES\b", re.IGNORECASE)
_INSERTS = re.compile(rb"(?is)\A.{0,7}?\b(?:INSERT|REPLACE)\b")  # a packet, too
_MAY_FIND_NONE = re.compile(rb"\b(?:FROM|WHERE|HAVING|LIMIT|FETCH)\b", re.IGNORECASE)
_GROUPED = re.compile(rb"\bGROUP\s{1,9}BY\b", re.IGNORECASE)
_RUNS_NO_QUERY = re.compile(  # a packet
    rb"(?is)\A.{5}\s*(BEGIN|START|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|USE|DELETE)\b"
    rb"(?!.*(NOT|SELECT|[(;]))"
)
_USES_A_TABLE = re.compile(  # a packet
    rb"(?is)\A.{5}\s*(SELECT\b(?!.*\bDUAL\b).*\bFROM\s+[\w`]|(INSERT|REPLACE|UPDATE|DELETE)\b)"
)


def may_look_back(text: bytes) -> bool:
    """Whether a statement may ask about the one before it, or leave what is there to the next.

    How the server reads it is not known: a word that may be none, for a literal or a name, counts.
    """
    starts = range(0, len(text), MOST_SEARCHED_BYTES)  # one search lets no other thread run
    ends = MOST_SEARCHED_BYTES + _LONGEST_WORD
    if not any(_MAY_LOOK_BACK.search(text, start, start + ends) for start in starts):
        return False
    try:
        read = [tokenize(text, dialect) for dialect in _DIALECTS]
    except SqlSyntaxError:
        return True
    return not text.isascii() or any(map(_look_back, read))


def _look_back(tokens: Sequence[Token]) -> bool:
    """Whether some of these do. SET ROLE leaves all as it is for the next: it keeps ROW_COUNT()."""
    for at, token in enumerate(tokens):
        if token.kind in (Kind.SYSTEM_VARIABLE, Kind.VERSIONED):
            if _MAY_LOOK_BACK.search(token.text):
                return True
            continue
        before = tokens[at - 1] if at else None
        begins = before is None or before.text == b";" or before.word in _BEFORE_STATEMENTS
        told = {each.word for each in tokens[at + 1 : at + 7]}
        asks = token.word == "SHOW" and not told.isdisjoint(("WARNINGS", "ERRORS"))
        asks |= token.word == "GET" and not told.isdisjoint(("DIAGNOSTICS",))
        role = token.word == "ROLE" and before is not None and before.word == "SET"
        runs = token.word in _RUN_OTHERS
        if token.word in _COUNTS or role or (begins and (asks or runs)):
            return True
    return False


class Diagnostics:
    """Of one session: what the client's last statements left, and what the server has of that."""

    __slots__ = (
        *("_asked", "_found", "_packet", "_ran_since", "_rows", "_text", "_warned"),
        *("_owed_before", "_parting", "_warned_of_counting", "in_doubt", "mariadb", "mixes"),
        *("states", "wrote", "wrote_none"),
    )

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
            or _ASKS_FOR_COUNT.fullmatch(asks) is None
        ):
            return None
        if self._rows & COUNTED:
            return self._rows & ~COUNTED
        return None if self._may_find_others() else self._rows

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
        succeeded = last is not None and last.status is not None
        fails_amid = self.mariadb and last is not None and last.error_code in FAILS_AMID
        unread = meaning.unread and _holds(_RUNS_NO_QUERY, command.data)
        keeps_found_rows = meaning.keeps_found_rows or unread
        if command.code in WRITES_NOTHING or keeps_found_rows:
            return
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
        return self._warned and not _holds(_USES_A_TABLE, command)

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
        if unread and text is not None and not _may_hold(_ASKS_FOR_ROWS, text):
            wants_warnings = _may_hold(_ASKS_FOR_WARNINGS, text)
            if wants_warnings or (self.may_be_kept(command.data) and not keeps_debt):
                return False
        told_by_none = not self.in_doubt_after_none
        return meaning.looks_back(just_before=not self._ran_since, told_by_none=told_by_none)

    def counted_none(self) -> None:
        """Doubt is over: the server itself found no rows since the hit."""
        self._rows, self._text, self.in_doubt = 0, b"", False
        self._owed_before = ()

    def missing(self, capabilities: int) -> list[bytes]:
        """What to run on the server, so that nothing is missing there any more.

        After a hit that is a query that finds as many rows: the read itself may find others by now,
        or none, with another default schema. It is run only if it has too many, or may have left
        others out. Where there are warnings, or an error, of what has run since, it uses no table:
        then MariaDB keeps those.
        """
        missing = [] if self._parting is None else [self._parting]
        owed = self._owed()
        keeps = self._keeping(owed)
        missing += [
            each if isinstance(each, bytes) else query_packet(_counting(each), capabilities)
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

    def owed_executions(self) -> frozenset[int]:
        """The numbers of the prepared statements that are to be executed once more, if what is
        missing is wanted."""
        if self._packet is None and self._parting is None:
            return frozenset()
        owed = (*self._owed(), self._parting, self._asked)
        return frozenset(
            number_in(each)
            for each in owed
            if isinstance(each, bytes) and each[HEADER_BYTES] in EXECUTES
        )

    def counting(self, capabilities: int) -> bytes:
        """What to run where what was missing cannot be run any more, as its table is gone."""
        rows = min(self._rows & ~COUNTED, _MAX_FOUND_ROWS)
        return query_packet(_counting(rows), capabilities)

    def _owed(self) -> "tuple[_Owed, ...]":
        """What the server is to run, in order."""
        if self._packet is None:
            return ()
        counted = bool(self._rows & COUNTED)
        own = (counted or not self._may_find_others()) and self._rows & ~COUNTED <= _MAX_FOUND_ROWS
        last = self._rows if own else self._packet
        # What the last leaves, it leaves now.
        return (*(each for each in self._owed_before if each != last), last)

    def _may_find_others(self) -> bool:
        """Whether FOUND_ROWS() may tell another number after the hit's query than that of its
        rows."""
        short = len(self._text) <= _SHORT_BYTES
        told = _may_find_others if short else _may_find_others.__wrapped__
        return told(self._text, mariadb=self.mariadb)


_Owed = bytes | int
"""A packet to send, or what the server is to find: see `entry.COUNTED`."""


def _bounded(owed: tuple[_Owed, ...]) -> tuple[_Owed, ...]:
    """The same, or none of it where that is too much to keep."""
    size = sum(len(each) for each in owed if isinstance(each, bytes))
    return owed if size <= _MOST_OWED_BYTES else ()


@lru_cache(_MOST_SHORT)
def _may_find_others(text: bytes, *, mariadb: bool) -> bool:
    """Whether that may be so after a query: it counts those that an offset leaves out; MariaDB's
    also those that a UNION's LIMIT or WITH TIES does."""
    if mariadb and may_keep_rows(text):
        return True
    if _may_hold(_OFFSET_OR_TIES, text) or _comes_before(_LIMITS, _COMMA, text):
        return True
    return _comes_before(_UNION, _LIMITS, text)


def may_keep_rows(text: bytes | None) -> bool:
    """Whether MariaDB may leave FOUND_ROWS() as it was after a query, as after VALUES, or after an
    aggregate of no rows. The text is None where that is not known."""
    if text is None or (_may_hold(_VALUES, text) and not _holds(_INSERTS, text)):
        return True
    none = _may_hold(_AGGREGATE, text) and _may_hold(_MAY_FIND_NONE, text)
    return none and not _holds(_GROUPED, text)


def _holds(words: re.Pattern[bytes], text: bytes) -> bool:
    return len(text) <= MOST_SEARCHED_BYTES and words.search(text) is not None


def _may_hold(words: re.Pattern[bytes], text: bytes) -> bool:
    return len(text) > MOST_SEARCHED_BYTES or words.search(text) is not None


def _has_counted(meaning: Meaning, tracker: ResponseTracker) -> bool:
    """Whether a statement has ended, before the one that failed, that may have set FOUND_ROWS()."""
    ended = meaning.statements[: max(tracker.results - 1, 0)]
    return any(each.after is not FoundRows.KEPT for each in ended)


def _repeats(command: ClientCommand, meaning: Meaning) -> bool:
    """Whether the same packet asks for the same at any later time, and changes nothing."""
    lasting = not meaning.statements or all(each.cacheable for each in meaning.statements)
    return lasting and command.code == Command.QUERY and command.whole


def _counting(rows: int) -> bytes:
    found = query_finding(rows & ~COUNTED, counted=bool(rows & COUNTED))
    assert found is not None
    return found


def _comes_before(first: re.Pattern[bytes], then: re.Pattern[bytes], text: bytes) -> bool:
    found = first.search(text)
    return found is not None and then.search(text, found.end()) is not None


def query_finding(rows: int, *, counted: bool = False) -> bytes | None:
    """A query that reads no table, and after which FOUND_ROWS() is `rows`; None for too many.

    `counted`: it leaves what SQL_CALC_FOUND_ROWS does, which spares the rows. MySQL warns of it.
    """
    if rows > _MAX_FOUND_ROWS:
        return None
    ten = "(SELECT 1" + " UNION ALL SELECT 1" * 9 + ")"
    tables = ", ".join(f"{ten} AS t{place}" for place in range(len(str(rows))))
    finding = f"SELECT 1 FROM {tables} LIMIT {rows}"
    if counted:
        finding = f"SELECT SQL_CALC_FOUND_ROWS 1 FROM ({finding}) AS t LIMIT 0"
    return finding.encode()


def query_keeping(rows: int) -> bytes | None:
    """The same for one that uses no table at all: MariaDB's warnings and errors outlast it."""
    if rows > _MOST_KEPT_ROWS:
        return None
    return b" UNION ALL ".join([b"SELECT 1"] * rows) or b"SELECT 1 LIMIT 0"
