"""What a command is to be served by, decided once for its bytes: a `Read`, a `Pass`, or for what
prepares a statement a `Preparation`. Or once for its shape, or for all executions of a statement: a
`Template`, which makes its reads, or a `Pass`.

A plan lives in the `Context` that it was made for, and dies with it: at the next change of the
catalog, of the globals or of what is known of the session. Where tables are redefined and not read
again yet, the context renews it, or gives none. So who finds one need not ask whether it still
holds.
"""

import re
from dataclasses import replace

from sqlcache.cache.bounded import weigh
from sqlcache.cache.marks import NO_MARKS
from sqlcache.cache.reads import Read, Template
from sqlcache.mysql.constants import Command
from sqlcache.plan.cacheability import NotCacheable
from sqlcache.plan.commands import NO_STATEMENT, QUERY_VERBS, Meaning
from sqlcache.plan.prepared import Alike
from sqlcache.plan.write_pins import WritePins
from sqlcache.sql.lexer import Lexed
from sqlcache.sql.pins.found import Pins
from sqlcache.sql.statement import ENDS, Kind, Statement, Transaction
from sqlcache.statement_counts import UNCOUNTED, StatementCounts

UNTRACEABLE = "cursor, long data or query attributes"
"""Why an execution is no read, and where its statement is not followed any more, none will be."""

_LASTING = frozenset({"not cacheable", "no default schema", "switched off", UNTRACEABLE})
"""Why a command is no read, as long as its context lasts."""
_CHANGES = frozenset({"INSERT", "REPLACE", "UPDATE", "DELETE"})
LONGEST_ACCEPTED = 1_000
"""Bytes, of a command that may wait and its answer."""
LONGEST_PREPARED = 16_384
"""Bytes, of an answer by which others are told at once that a statement is prepared."""
_OWN_BYTES = 700  # a plan takes, with what is found out of its meaning
_FOR_LATER = frozenset(
    {
        "character_set_client",
        "character_set_connection",
        "character_set_results",
        "collation_connection",
        "foreign_key_checks",
        "group_concat_max_len",
        "innodb_lock_wait_timeout",
        "lock_wait_timeout",
        "max_execution_time",
        "max_statement_time",
        "net_read_timeout",
        "net_write_timeout",
        "sql_mode",
        "sql_quote_show_create",
        "sql_safe_updates",
        "sql_select_limit",
        "time_zone",
        "transaction_isolation",
        "transaction_read_only",
        "tx_isolation",
        "tx_read_only",
        "unique_checks",
    }
)
"""Variables that a session sets with no other effect than that later statements go by them."""
_AUTOCOMMIT = "autocommit"
"""So it is with this one outside of a transaction; else it may commit that."""
_COMPUTE = frozenset({"CONCAT", "REPLACE"})
FOLLOWED = (
    b"character_set_client",
    b"character_set_connection",
    b"character_set_results",
    b"character_set_server",
    b"collation_connection",
    b"collation_server",
    b"group_concat_max_len",
    b"lc_time_names",
    b"max_allowed_packet",
    b"sql_auto_is_null",
    b"sql_mode",
    b"sql_select_limit",
    b"time_zone",
    b"transaction_isolation",
    b"transaction_read_only",
    b"tx_isolation",
    b"tx_read_only",
    b"version",
    b"version_comment",
)
"""Variables that are the same for all sessions of a context: each session has its own from its
login on, whatever becomes of the global one, or the server cannot change it while it runs; and no
schema has a say in them."""
_VARIABLE = rb"@@(?:(?:SESSION|LOCAL)\.)?(?:%b)" % b"|".join(FOLLOWED)
_ASKED = rb"(?:%b|VERSION\(\))(?:\s+AS\s+[a-z_]\w*)?" % _VARIABLE
_ASKS = re.compile(rb"(?i)SELECT\s+%b(?:\s*,\s*%b)*(?:\s+LIMIT\s+1)?" % (_ASKED, _ASKED))
_LOGGING = b"sql_log_bin"
_BEGIN_OR_END = frozenset({"BEGIN", "START", "COMMIT", "ROLLBACK"})
"""What says no more than that: MariaDB's SET STATEMENT gives settings values around it."""
_TURNS = frozenset({"BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET", "USE"})


class Pass:
    """A command that goes to MySQL and comes back, and is no more than a query, a change of rows
    that `marks` says, a turn of its transaction or of its session; or no statement at all.

    `reason` is why it is no `Read`; "" for what is no statement. `turns`: its session may be
    another afterwards, or in another transaction, and COMMIT is one of these; else it changes
    nothing that is kept of its session but what it leaves behind for the next to ask about. `uses`:
    it names the default schema, for which the server reads the session's rights; then it `observes`
    whether these are as they were. `ends_caching`: no read of its transaction can be a hit after
    it. `only_asks`: none of that, nor does it ask what came before it. Where it `writes`: it
    `rolls_back` if a transaction can hold them all back, and then only `observes`; and it `changes`
    no more than them, if it changes any. `may_wait`: the server need not hear of it before the next
    command, as of one that `begins` a transaction, or outside of one `switches` autocommit.
    `only_turns`: it begins one like others of its session, or ends one, and does no more.
    `answered` is the last one, with its answer, and `accepted` one that it answers so each time.
    `counts` is the row of its statement, and `why` what it says there of the `reason`. `told` is
    what its text pins, and `pins` what that means of the table that it changes.
    """

    __slots__ = ("accepted", "answered", "begins", "changes", "counts", "ends_caching",
                 "keeps_found_rows", "marks", "may_count", "may_wait", "meaning", "observes",
                 "only_asks", "only_turns", "own_bytes", "pins", "reads", "reason", "rolls_back",
                 "switches", "told", "turns", "uses", "why", "writes")  # fmt: skip

    def __init__(self, meaning: Meaning, reason: str, counts: StatementCounts, why: str) -> None:
        self.meaning = meaning
        self.reason = reason
        self.counts = counts
        self.why = why
        self.reads = any(statement.reads for statement in meaning.statements)
        self.ends_caching = any(statement.locking_read for statement in meaning.statements)
        self.writes = bool(meaning.writes)
        self.changes = self.writes and (meaning.keeps_found_rows or meaning.may_count)
        self.turns = any(statement.kind is not Kind.READ for statement in meaning.statements)
        self.uses = meaning.names_schema
        self.keeps_found_rows = meaning.keeps_found_rows
        self.may_count = meaning.may_count
        does_more = self.writes or self.ends_caching or self.turns or self.uses
        self.only_asks = bool(reason) and not (does_more or self.may_count)
        self.marks = self.observes = NO_MARKS
        self.rolls_back = True
        self.may_wait = self.begins = self.switches = self.only_turns = False
        self.told: Pins | None = None
        self.pins: WritePins | None = None
        self.answered: tuple[bytes, bytes] | None = None
        self.accepted: tuple[bytes, bytes] | None = None
        self.own_bytes = _OWN_BYTES + weigh((meaning.statements, meaning.writes))

    @property
    def only_sets(self) -> bool:
        """Whether it names the default schema, or gives settings values, and does nothing else."""
        sets = any(statement.settings for statement in self.meaning.statements)
        commits = self.meaning.may_commit and not self.switches
        return self.uses or (sets and not (commits or self.writes))

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory it takes."""
        marks = (each for each in (self.marks, self.observes) if each is not NO_MARKS)
        return self.own_bytes + sum(each.size_bytes for each in marks)


class Preparation:
    """A COM_STMT_PREPARE, of which what the server has prepared is told at once.

    `meaning` is its text's, by the catalog's `redefinitions` of then. It has so many `parameters`,
    of which `dateless` and `limits` say what `prepared.Prepared` does. `answered` is the last
    answer, with no number in it, and the status of its session; it is `accepted` if that was the
    same as the one before. `alike`: the statements that it prepares. `cacheable`: see `Prepared`.
    """

    __slots__ = ("accepted", "alike", "answered", "cacheable", "counts", "dateless", "limits",
                 "meaning", "meaning_bytes", "parameters", "redefinitions")  # fmt: skip

    def __init__(
        self,
        meaning: Meaning,
        parameters: int,
        dateless: tuple[bool, ...],
        limits: frozenset[int],
        redefinitions: int,
    ) -> None:
        self.meaning = meaning
        self.parameters = parameters
        self.dateless = dateless
        self.limits = limits
        self.redefinitions = redefinitions
        self.counts = UNCOUNTED
        self.meaning_bytes = weigh((meaning.statements, meaning.writes))
        self.alike = Alike()
        self.cacheable = any(each.cacheable for each in meaning.statements)
        self.answered: tuple[int, bytes] | None = None
        self.accepted = False

    @property
    def text(self) -> bytes:
        """The statement's."""
        return b"" if self.meaning.lexed is None else self.meaning.lexed.text

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory it takes."""
        lexed = self.meaning.lexed
        texts = 0 if lexed is None else lexed.size_bytes
        answered = 0 if self.answered is None else len(self.answered[1])
        return _OWN_BYTES + self.meaning_bytes + texts + answered + 40 * self.parameters


Plan = Read | Template | Pass | Preparation


def pass_of_command(code: int) -> Pass | None:
    """The plan for a command that is no statement, if there is no more to it than to pass it on."""
    if code not in (Command.PING, Command.INIT_DB):
        return None
    plan = Pass(NO_STATEMENT, "", UNCOUNTED, "")
    plan.turns = plan.uses = code == Command.INIT_DB
    return plan


def pass_of(meaning: Meaning, cause: NotCacheable, counts: StatementCounts) -> Pass | None:
    """The plan to pass a command through, if there is no more to it. Its tables are known."""
    whole = meaning.lexed is not None and len(meaning.statements) == 1
    if cause.label not in _LASTING or not whole or meaning.has_attributes:
        return None
    (statement,) = meaning.statements
    query = statement.kind is Kind.READ and statement.verb in QUERY_VERBS
    turn = statement.verb in _TURNS and not statement.reads and not meaning.writes
    change = statement.kind is Kind.WRITE and statement.verb in _CHANGES
    changes_query = statement.settings or statement.may_commit
    changes_more = (
        (statement.leaves_behind and not turn)
        or statement.opaque_session
        or statement.merges
        or statement.delays
        or statement.sets_role
        or statement.changes_globals
        or statement.locks is not None
    )
    runs_others = statement.calls_stored or statement.called is not None or statement.code
    plain = (query and not meaning.writes) or (change and meaning.writes)
    if (
        meaning.goes_elsewhere
        or not (turn or (plain and not changes_query))
        or changes_more
        or runs_others
    ):
        return None
    if meaning.lexed is not None and may_end_logging(meaning.lexed.text):
        return None
    if meaning.looks_back(just_before=True, told_by_none=True):
        return None
    plan = Pass(replace(meaning, lexed=None), cause.label, counts, cause.why)
    plan.begins = _begins(statement)
    plan.only_turns = statement.verb in _BEGIN_OR_END and (
        plan.begins or statement.transaction in ENDS
    )
    if plan.begins or (meaning.lexed is not None and _may_wait(statement, meaning.lexed)):
        plan.may_wait, plan.only_asks = True, False
        plan.switches = any(name == _AUTOCOMMIT for name, _ in statement.settings)
        plan.own_bytes += LONGEST_ACCEPTED
    return plan


def may_end_logging(text: bytes) -> bool:
    """Whether a statement may have what its session writes left out of the binary log."""
    return _LOGGING in text.lower()


def _begins(statement: Statement) -> bool:
    """Whether it begins a transaction like others of its session, and opens no snapshot yet."""
    starts = statement.transaction is Transaction.START
    return starts and statement.access is None and not statement.opens_snapshot


def _may_wait(statement: Statement, lexed: Lexed) -> bool:
    """Whether all that it does is to set what only later statements of its session go by, or to ask
    for such."""
    if statement.verb == "SELECT":
        short = len(lexed.canonical) <= LONGEST_ACCEPTED
        return short and _ASKS.fullmatch(lexed.canonical) is not None
    named = [name for name, _ in statement.settings]
    names = set(named)
    return (
        statement.verb == "SET"
        and bool(names)
        and names <= _FOR_LATER | {_AUTOCOMMIT}
        and named.count(_AUTOCOMMIT) <= 1  # on and off again lets go of what is locked
        and statement.functions <= _COMPUTE
        and (not statement.may_commit or _AUTOCOMMIT in names)
        and b"@" not in lexed.text.replace(b"@@", b"")  # a user variable is set to anything
    )
