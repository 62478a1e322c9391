"""Statements that a session has prepared by name, in SQL: by PREPARE, for EXECUTE.

The server tells nothing of them: what an EXECUTE runs is known by the PREPAREs that were sent
before it; and that it runs nothing, while none can have been prepared unseen.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlcache.errors import SqlSyntaxError
from sqlcache.plan.commands import UNKNOWN, Meaning, kept_bytes, shortened
from sqlcache.plan.planner import Planner
from sqlcache.plan.reader import JUDGED_ON_THE_LOOP_BYTES, ON_THE_LOOP_BYTES, Ahead
from sqlcache.plan.state import SessionState
from sqlcache.sql.lexer import lex
from sqlcache.sql.statement import Kind, Statement

_MOST_NAMED = 256  # prepared statements with a name that are followed
_LONGEST_NAME = 64  # characters, of one that the server takes


class PreparedByName:
    """Those of one session."""

    __slots__ = ("_ahead", "_meanings", "_names", "_planner", "_sizes")

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._meanings: dict[str, Meaning] = {}  # of those whose text could be read
        self._sizes: dict[str, int] = {}  # what that takes, in bytes
        self._names: set[str] | None = set()  # under which anything was prepared; None for any
        self._ahead: tuple[str, Ahead] | None = None  # a literal that was read ahead

    async def read_ahead(self, text: Ahead, state: SessionState) -> None:
        """Reads the literal that a PREPARE or EXECUTE IMMEDIATE runs, if that is long itself."""
        inner = text.statements[0].text if len(text.statements) == 1 else None
        if inner is None or len(inner) <= JUDGED_ON_THE_LOOP_BYTES or not _may_be_followed(inner):
            return
        reader = self._planner.reader
        ahead = await reader.read_ahead(inner.encode(), state, prepared=True, at_once=True)
        self._ahead = inner, ahead

    def drop_ahead(self) -> None:
        """Keeps nothing of what was read ahead."""
        self._ahead = None

    def executed_by(self, statement: Statement, state: SessionState) -> Meaning | None:
        """What an EXECUTE runs, if that is known."""
        if statement.text is not None:
            return self._prepared_from(statement.text, state)
        return None if statement.named is None else self._meanings.get(statement.named)

    def _prepared_from(self, text: str, state: SessionState) -> Meaning | None:
        """What a literal does once it is run; None where it is not known well enough."""
        if not _may_be_followed(text):
            return None
        reader = self._planner.reader
        if len(text) > JUDGED_ON_THE_LOOP_BYTES:
            if self._ahead is None or self._ahead[0] != text:
                return None
            if not reader.read_so(self._ahead[1], state, prepared=True):
                return None
            known = self._ahead[1].statements
        else:
            try:
                lexed = lex(text.encode(), state.dialect)
            except SqlSyntaxError:
                return None
            known = reader.statements(lexed, text.encode(), state, prepared=True)
        if len(known) != 1 or known[0].kind not in (Kind.READ, Kind.WRITE):
            return None
        statement = replace(known[0], cacheable=False, reason="it is run by EXECUTE")
        meaning = shortened(Meaning((statement,), None, state.schema))
        return None if meaning is UNKNOWN else meaning

    def ran(self, statements: Sequence[Statement], state: SessionState, *, failed: bool) -> None:
        """The server ran these statements; the last one may have failed."""
        for statement in statements:
            if statement.opaque_session and not statement.only_sets:
                self._forget_names()
            if statement.named is None or statement.verb == "EXECUTE":
                continue
            if not _is_plain(statement.named):
                self._forget_names()
                continue
            self._forget(statement.named)
            alone = statement.text is not None and len(statements) == 1
            self._note_name(statement.named, gone=alone and failed)
            if alone and not failed and len(self._meanings) < _MOST_NAMED and state.readable:
                meaning = self._prepared_from(statement.text or "", state)
                if meaning is not None:
                    self._remember(statement.named, meaning)

    def executes_nothing(self, meaning: Meaning) -> bool:
        """Whether it is an EXECUTE of a name under which nothing was prepared."""
        executed = [s.named for s in meaning.statements if s.verb == "EXECUTE"]
        if len(meaning.statements) != 1 or not executed or self._names is None:
            return False
        (name,) = executed
        return name is not None and _is_plain(name) and name not in self._names

    def forget(self) -> None:
        """The session ends, or begins anew."""
        self._forget_meanings()
        self._names = set()
        self._ahead = None

    def _note_name(self, name: str, *, gone: bool) -> None:
        """`gone`: the PREPARE of that name failed, before which the server forgets what had it."""
        if self._names is None:
            return
        if gone:
            self._names.discard(name)
        else:
            self._names.add(name)
            self._names = self._names if len(self._names) <= _MOST_NAMED else None

    def _forget_names(self) -> None:
        """Anything may have been prepared under any name."""
        self._forget_meanings()
        self._names = None

    def _remember(self, name: str, meaning: Meaning) -> None:
        self._meanings[name] = meaning
        self._sizes[name] = size = kept_bytes(meaning)
        self._planner.prepared.size_bytes += size

    def _forget(self, name: str) -> None:
        self._meanings.pop(name, None)
        self._planner.prepared.size_bytes -= self._sizes.pop(name, 0)

    def _forget_meanings(self) -> None:
        for name in list(self._meanings):
            self._forget(name)


def _may_be_followed(text: str) -> bool:
    """Whether it is found out what a literal does once it is run."""
    return text.isascii() and len(text) <= ON_THE_LOOP_BYTES


def _is_plain(name: str) -> bool:
    """Whether no name but this, in any case, means the same prepared statement. MySQL compares them
    without accents, and without blanks at their ends."""
    return name.isascii() and not name.endswith(" ") and len(name) <= _LONGEST_NAME
