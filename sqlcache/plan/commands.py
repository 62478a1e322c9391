"""A client's command, and what its statements mean for the session."""

from dataclasses import dataclass, replace
from functools import cached_property

from sqlcache.cache.bounded import weigh
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import HEADER_BYTES
from sqlcache.plan.executions import Execution
from sqlcache.plan.variables import NEXT, prepares_alike
from sqlcache.plan.writeset import EVERYTHING, NOTHING, WriteSet
from sqlcache.sql.lexer import Lexed
from sqlcache.sql.statement import (
    NO_MARKERS,
    NO_OPERANDS,
    Computed,
    FoundRows,
    Kind,
    Statement,
    Transaction,
    unknown,
)
from sqlcache.statement_counts import UNCOUNTED, StatementCounts

EXECUTES = frozenset({Command.STMT_EXECUTE, Command.STMT_BULK_EXECUTE})
STREAMS = frozenset({Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID})
"""Commands whose answer has no end, if it is no error."""
USE_PREPARED = EXECUTES | {
    Command.STMT_FETCH,
    Command.STMT_RESET,
    Command.STMT_SEND_LONG_DATA,
}
"""Commands that name a prepared statement, but for the one that closes it."""
UNANSWERED_BYTES = {Command.STMT_CLOSE: 5, Command.STMT_SEND_LONG_DATA: 7}
"""Commands that get no answer, unless they are shorter than this: then it is an error."""


@dataclass(slots=True)
class ClientCommand:
    """One command: its code, and all its packets, or the first part if it is very long."""

    code: int
    data: bytes
    whole: bool
    execution: Execution | None = None
    """What a COM_STMT_EXECUTE of a statement that could be read says."""
    number: int | None = None
    """The client's, of the statement that it has just prepared."""
    counts: StatementCounts = UNCOUNTED
    """Its row."""

    @property
    def payload(self) -> bytes:
        return self.data[HEADER_BYTES:]


@dataclass(frozen=True)
class Meaning:
    """What a command's statements are; `lexed` where its text was read whole.

    `schema` was the default one then. `edition` is that of the catalog by which they write.
    `goes_elsewhere`: the server may go to another schema for them, and come back: then it reads the
    session's rights on the default one. It does so for code that it loads, MariaDB for views, and
    to execute what was prepared there. `has_attributes`: query attributes may come with it, which
    what it runs can ask for; so its bytes, or others of its shape, need not mean the same again.

    What follows from these is found out once: a plan keeps its meaning.
    """

    statements: tuple[Statement, ...] = ()
    lexed: Lexed | None = None
    schema: str | None = None
    writes: WriteSet = NOTHING
    edition: int = 0
    goes_elsewhere: bool = False
    has_attributes: bool = False

    @cached_property
    def may_commit(self) -> bool:
        return self.writes.everything or any(s.may_commit for s in self.statements)

    @cached_property
    def commits(self) -> bool:
        """Whether it does commit what was written before it, if it does not fail. Many others may:
        UNLOCK TABLES does if tables were locked, SET autocommit = 1 if it was 0."""
        return any(s.transaction in _COMMITS for s in self.statements)

    @cached_property
    def turns_transaction(self) -> bool:
        """Whether it may begin or end one, and says so."""
        return any(s.transaction is not None for s in self.statements)

    @cached_property
    def rolls_back(self) -> bool:
        return any(s.transaction is Transaction.ROLLBACK for s in self.statements)

    @cached_property
    def takes_back(self) -> bool:
        """Whether it undoes something that its transaction did."""
        return any(s.transaction in _TAKES_BACK for s in self.statements)

    @cached_property
    def redefines(self) -> bool:
        """Whether the catalog or the globals are other ones afterwards."""
        return any(s.changes_globals or s.schemas for s in self.statements)

    def looks_back(self, *, just_before: bool, told_by_none: bool = False) -> bool:
        """Whether it may ask what a query left behind, which ran just or some time before it, or
        leave in doubt what is there. `told_by_none`: that it counted no rows could be told."""
        runs_nothing = bool(self.statements) and all(s.verb == "FLUSH" for s in self.statements)
        if runs_nothing or (told_by_none and self.may_count):
            return False
        return self.writes.everything or any(
            s.found_rows
            or s.writes_everything
            or (just_before and s.code_looks_back)
            or (just_before if s.diagnostic else _may_count_rows(s))
            for s in self.statements
        )

    @cached_property
    def prepares_transaction(self) -> bool:
        """Whether it begins one, or sets something for the next one alone."""
        return any(
            s.transaction is Transaction.START
            or any(name.startswith(NEXT) for name, _ in s.settings)
            for s in self.statements
        )

    @cached_property
    def only_asks(self) -> bool:
        """Whether it is a GET DIAGNOSTICS, which leaves all behind that it asks for."""
        return bool(self.statements) and all(
            s.diagnostic and s.verb == "GET" for s in self.statements
        )

    @cached_property
    def names_schema(self) -> bool:
        """Whether it may make another schema the default one."""
        return any(s.use_schema is not None for s in self.statements)

    @cached_property
    def sets_role(self) -> bool:
        return any(s.sets_role for s in self.statements)

    @cached_property
    def unread(self) -> bool:
        """Whether no more is known of what it does than its text, if that is."""
        return [(s.kind, s.verb) for s in self.statements] == [(Kind.UNKNOWN, "")]

    @cached_property
    def kills(self) -> frozenset[int]:
        """The numbers of connections that it ends, see `Statement`."""
        return frozenset(s.kills for s in self.statements if s.kills is not None)

    @cached_property
    def opaque_session(self) -> bool:
        """See `Statement`."""
        return any(s.opaque_session for s in self.statements)

    @cached_property
    def may_set(self) -> bool:
        """Whether it may give the session's settings other values."""
        return self.opaque_session or any(s.settings for s in self.statements)

    @cached_property
    def put_back(self) -> tuple[tuple[str, Computed], ...]:
        """What it sets to the value that it has, as MariaDB does to prepare SET STATEMENT."""
        same = Computed()
        named = (name for s in self.statements for name, value in s.settings if value == same)
        return tuple((name, same) for name in named)

    @cached_property
    def prepares_otherwise(self) -> bool:
        """Whether its session may prepare the same statement in another way afterwards."""
        names = (name for s in self.statements for name, _ in s.settings)
        return self.opaque_session or not all(map(prepares_alike, names))

    @cached_property
    def may_count(self) -> bool:
        """Whether FOUND_ROWS() is the number of rows it found; where it found none, perhaps."""
        return [s.after for s in self.statements] == [FoundRows.COUNTED_IF_ANY]

    @cached_property
    def keeps_found_rows(self) -> bool:
        """Whether FOUND_ROWS() answers the same after it, for sure."""
        return bool(self.statements) and all(s.after is FoundRows.KEPT for s in self.statements)


_COMMITS = frozenset({Transaction.START, Transaction.COMMIT})
_TAKES_BACK = frozenset({Transaction.ROLLBACK, Transaction.ROLLBACK_TO_SAVEPOINT})
QUERY_VERBS = frozenset({"SELECT", "WITH", "TABLE", "VALUES"})


def _may_count_rows(statement: Statement) -> bool:
    """Whether it is no query, and FOUND_ROWS() may or may not be another after it."""
    known = statement.after in (FoundRows.KEPT, FoundRows.COUNTED)
    return not known and statement.verb not in QUERY_VERBS


NO_STATEMENT = Meaning()
UNKNOWN = Meaning((unknown("", "it cannot be read"),), writes=EVERYTHING, goes_elsewhere=True)
REFRESHES_NOTHING = replace(UNKNOWN, writes=NOTHING)
"""A COM_REFRESH that asks for nothing, to which anyone has the right."""
WRITES_NOTHING = frozenset(
    {
        Command.INIT_DB,
        Command.FIELD_LIST,
        Command.STATISTICS,
        Command.PROCESS_INFO,
        Command.PROCESS_KILL,
        Command.DEBUG,
        Command.PING,
        Command.REGISTER_SLAVE,
        Command.STMT_PREPARE,
        Command.STMT_RESET,
        Command.STMT_FETCH,
        Command.SET_OPTION,
        Command.RESET_CONNECTION,
    }
)
_MOST_BYTES = 8_192  # of what is known of a statement that no memory has room for
_COMMON_BYTES = weigh((UNKNOWN.statements, UNKNOWN.writes))  # what all have, and have in common
_PASSED_BYTES = 1_000  # each takes of its own


def shortened(meaning: Meaning) -> Meaning:
    """The same without what only reads from the cache need; UNKNOWN if that is still long: there
    may be as many as the server allows."""
    statements = tuple(
        replace(
            each,
            cacheable=False,
            operands=NO_OPERANDS,
            dated=NO_OPERANDS,
            markers=NO_MARKERS,
            directives=(),
        )
        for each in meaning.statements
    )
    if weigh(statements) > _MOST_BYTES:
        return UNKNOWN
    return replace(meaning, lexed=None, statements=statements)


def kept_bytes(meaning: Meaning) -> int:
    """About how many bytes it takes to keep a meaning that was `shortened`."""
    size = weigh((meaning.statements, meaning.writes)) - _COMMON_BYTES
    return 0 if meaning is UNKNOWN else _PASSED_BYTES + max(size, 0)
