"""What one statement does, as far as its text tells: what it reads, writes and leaves behind.

`analysis` reads texts into these.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto
from typing import Any, NamedTuple, TypeVar

from sqlcache.sql.names import TableRef
from sqlcache.sql.routines import Routine

T = TypeVar("T")


class Kind(Enum):
    """What sort of statement it is."""

    READ = "read"
    WRITE = "write"
    DDL = "ddl"
    TRANSACTION = "transaction"
    SESSION = "session"
    OTHER = "other"
    UNKNOWN = "unknown"


class Transaction(Enum):
    """What a statement does to the session's transaction."""

    START = "start"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO_SAVEPOINT = "rollback to savepoint"
    RELEASE_SAVEPOINT = "release savepoint"
    XA = "xa"


ENDS = frozenset({Transaction.COMMIT, Transaction.ROLLBACK})
"""What ends a transaction, and says so."""


class Access(Enum):
    """What a transaction may do."""

    READ_ONLY = "READ ONLY"
    READ_WRITE = "READ WRITE"


class Locks(Enum):
    """What a statement does to the locks a session holds on tables."""

    LOCK = "lock"  # LOCK TABLES, FLUSH TABLES ... WITH READ LOCK and FOR EXPORT, BACKUP LOCK
    CONCURRENT = "concurrent"  # LOCK TABLES ... WRITE CONCURRENT: others read on
    UNLOCK = "unlock"
    BACKUP = "backup"  # BACKUP STAGE, LOCK INSTANCE FOR BACKUP


class FoundRows(Enum):
    """What FOUND_ROWS() is after a statement. That of a query that counts its rows is UNSURE."""

    UNSURE = "unsure"
    KEPT = "kept"
    COUNTED = "counted"  # a number of its own
    COUNTED_IF_ANY = "counted if any"  # the rows it found; perhaps also where it found none


class Computed(NamedTuple):
    """What a variable is set to that is made of its own value: in which, one after the other, texts
    are replaced by others. An empty text stands for the value's end."""

    steps: tuple[tuple[str, str], ...] = ()

    @property
    def replaces(self) -> bool:
        """Whether it matters how the server spells the value."""
        return any(old for old, _ in self.steps)

    def of(self, value: str) -> str | None:
        """What comes of a value; None if that is longer on the way than any variable's."""
        for old, new in self.steps:
            times = value.count(old) if old else 1
            if len(value) + times * (len(new) - len(old)) > LONGEST_VALUE:
                return None
            value = value.replace(old, new) if old else value + new
        return value


class Changes(NamedTuple):
    """What a change of rows may do to those that are there: it sets these columns, by their names
    in lower case, None for any, or `deletes` some. An INSERT does neither."""

    columns: frozenset[str] | None = frozenset()
    deletes: bool = False

    def with_(self, other: "Changes") -> "Changes":
        """What both may do."""
        if self.columns is None or other.columns is None:
            return Changes(None, self.deletes or other.deletes)
        columns = self.columns | other.columns
        few = len(columns) <= MOST_COLUMNS
        return Changes(columns if few else None, self.deletes or other.deletes)


MOST_COLUMNS = 256
"""Of which it is followed that they are set, there or not: a transaction gathers what it sets."""
ADDS = Changes()
DELETES = Changes(deletes=True)
ANYTHING = Changes(None, deletes=True)

LONGEST_VALUE = 8_192
"""Characters, of a variable's value that is followed: each session keeps its own."""


ANY_CONNECTION = -1
"""Stands for the number of a connection that a text does not tell, or for several."""


WORDS = "@sqlcache"
"""The user variable by which a session speaks to sqlcache; "" where it is set to NULL."""


class Operands(NamedTuple):
    """What in a query may be converted to another type; see `analysis.operands`.

    `names` are those of columns, in lower case, with some of other things among them. `times`: a
    TIME that is no column is among it. `dates`: a date that is no column is, or something that
    makes one. `unnamed`: so are columns the text does not name.
    """

    names: frozenset[str] = frozenset()
    times: bool = False
    dates: bool = False
    unnamed: bool = False


NO_OPERANDS = Operands()


class Told(Flag):
    """What the literals of a query tell of it; see `analysis.literals`."""

    NOTHING = 0
    DATES = auto()  # each STR_TO_DATE makes a date by its format, and no TIME
    OFFSETS = auto()  # each CONVERT_TZ names both zones by their offsets


class Markers(NamedTuple):
    """What a prepared query's markers stand for; see `analysis.markers`. Of a list of markers there
    are as many as the query's shape has, see `Lexed.runs`.

    `columns` are the names, in lower case, of those that they are compared with; None for a marker
    that stands elsewhere. `names` are all in the text. `dates`: it may make dates of its own, or
    has columns that it does not name.
    """

    columns: tuple[str | None, ...] = ()
    names: frozenset[str] = frozenset()
    dates: bool = False


NO_MARKERS = Markers()
TEMPORARY_TOLD_APART_BY = frozenset({"pseudo_thread_id", "server_id"})
"""The variables by which a session can have several temporary tables of one name, as where a log is
run again."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What one statement does.

    `reads` are the tables it names to read, `writes` those it names to change; neither holds
    common table expressions. `schemas` are those whose definitions it changes, None being the
    default schema. `functions` are the built-in functions it calls, in upper case: a stored
    function of such a name may be meant where the server does not have it. `calls_stored`: it
    calls one that is not built in, or runs other code that may do anything to its session.
    `routines` are the declared ones among them, and what they read and write is among `reads` and
    `writes`; any other may write everything. `called` is the procedure a CALL names, `trigger` what
    a DROP TRIGGER does. `leads`: a write to what it defines may change tables that it does not
    name, or not as tables. `defines_view`: it reads but to know a view's columns, and writes no
    rows. `code` are the paths of those called that may be stored functions and are not declared;
    `by_code`: it writes everything only as far as `called` and `code` do.

    `replaces`: it drops a table or other object of that name before it makes one. `keeps`: it makes
    no table where there is one of that name.

    `merges`: it may make a table whose rows are those of others, as MERGE tables do; of a temporary
    one no catalog tells.

    `access` is what a START TRANSACTION says that its transaction may do. `opens_snapshot`: it
    begins with a snapshot, or by other settings than its session's. `prepares_branch`: it is an XA
    PREPARE.

    `settings` are session variables it surely sets, in order: the variable's lower-case name and
    its value, quotes off, words in lower case, ON and TRUE as 1, OFF and FALSE as 0. SET NAMES
    gives character_set_client, character_set_results, character_set_connection and
    collation_connection, the last as `default of CHARSET` where the text names none. SET
    TRANSACTION without SESSION, and its variables as `@@name` without a scope, concern the next
    transaction only: their names start with `next_`.

    `named` is the prepared statement that a PREPARE, DEALLOCATE or EXECUTE is about, in lower case
    where it is ASCII; `text` the literal that a PREPARE or EXECUTE IMMEDIATE reads.

    `changes_globals`: a session that begins afterwards may have other settings or roles.
    `globals_set` are the lower-case names of the global variables a SET is about, if it is about
    nothing else that others could see.
    `opaque_session`: afterwards the session's settings, roles, prepared statements, temporary
    tables and locks are not known from texts. `untold`: the lower-case names of the session
    variables for whose values that is so, if it is a SET and so for nothing else, unless it
    `calls_stored`. `sets_role`: it is a SET ROLE. `diagnostic`: it
    reads what the statement before it left behind; `found_rows`: what the query before it did,
    whatever came since. `counts_all`: it is a query that also counts the rows that its LIMIT leaves
    out, for FOUND_ROWS(). `proof_rows`: an answer of so many rows, at least, proves that the server
    has looked for one in a table it names, if that is no view; None where none does.
    `delays`: MariaDB may say OK before it has written any row.
    `changes` is what it may do to the rows that are in the tables it names to change.
    `one_table`: it is an UPDATE or DELETE of one table without a subquery;
    `after`: what becomes of what the query before it left behind, as far as is known.
    `code_looks_back`: code that it runs may read what the statement just before it left behind.
    `code_leaves`: it may leave behind itself what the statement may, see `leaves_behind`.
    `kills` is the number of the connection that a KILL ends; of one that ends a query alone None.
    `locking_read`: it takes row locks with FOR UPDATE, FOR SHARE or LOCK IN SHARE MODE. `operands`
    and `markers` are those of a query that is cacheable. `may_tell`: such a one's literals decide
    these things, and other texts of its shape may differ in that; `told` are those that are so,
    none unless somebody has looked at its text. `dated` are its operands if DATES is told.
    `of_used_schema`: such a one computes, on MariaDB, texts in the character set that the default
    schema had when its session began to use it. `directives` are what `/* sqlcache: ... */`
    comments say.
    """

    verb: str
    kind: Kind
    reads: frozenset[TableRef] = frozenset()
    cacheable: bool = False
    reason: str = ""
    writes: frozenset[TableRef] = frozenset()
    writes_everything: bool = False
    schemas: frozenset[str | None] = frozenset()
    may_commit: bool = False
    transaction: Transaction | None = None
    access: Access | None = None
    opens_snapshot: bool = False
    prepares_branch: bool = False
    settings: tuple[tuple[str, str | Computed], ...] = ()
    named: str | None = None
    text: str | None = None
    opaque_session: bool = False
    untold: frozenset[str] = frozenset()
    sets_role: bool = False
    use_schema: str | None = None
    temporary_created: frozenset[TableRef] = frozenset()
    temporary_dropped: frozenset[TableRef] = frozenset()
    merges: bool = False
    replaces: bool = False
    keeps: bool = False
    locks: Locks | None = None
    changes_globals: bool = False
    diagnostic: bool = False
    found_rows: bool = False
    counts_all: bool = False
    proof_rows: int | None = None
    code_looks_back: bool = False
    code_leaves: bool = False
    delays: bool = False
    changes: Changes = ANYTHING
    one_table: bool = False
    after: FoundRows = FoundRows.UNSURE
    kills: int | None = None
    locking_read: bool = False
    functions: frozenset[str] = frozenset()
    calls_stored: bool = False
    code: frozenset[tuple[str, ...]] = frozenset()
    by_code: bool = False
    globals_set: frozenset[str] = frozenset()
    routines: frozenset[Routine] = frozenset()
    called: TableRef | None = None
    trigger: TableRef | None = None
    leads: bool = False
    defines_view: bool = False
    operands: Operands = NO_OPERANDS
    dated: Operands = NO_OPERANDS
    may_tell: Told = Told.NOTHING
    told: Told = Told.NOTHING
    markers: Markers = NO_MARKERS
    of_used_schema: bool = False
    directives: tuple[str, ...] = ()

    @property
    def converts(self) -> Operands:
        """Its operands, as far as is known of its text."""
        return self.dated if Told.DATES in self.told else self.operands

    @property
    def only_sets(self) -> bool:
        """Whether it is a SET that runs nothing else: neither code nor, as MariaDB's SET STATEMENT
        does, another statement."""
        sets = self.verb == "SET" and self.kind is Kind.SESSION
        return sets and not self.calls_stored

    @property
    def leaves_behind(self) -> bool:
        """Whether its session may have by it what no setting tells of, or that no answer depends
        on: a variable, a prepared statement, a handler, a lock by name. Of variables that it sets
        amid other things, and of code that it runs, nothing is known here."""
        if self.kind is Kind.SESSION:
            for_the_next = bool(self.settings) and all(
                name.startswith("next_") for name, _ in self.settings
            )
            of_session = self.settings or self.opaque_session
            return not (for_the_next or (self.globals_set and not of_session))
        locks = "GET_LOCK" in self.functions
        return locks or self.opaque_session or self.verb in _MAY_LEAVE_SOMETHING


_MAY_LEAVE_SOMETHING = frozenset({"EXECUTE", "HANDLER"})


def changed(statement: Statement, **fields: Any) -> Statement:
    """The same with these fields: it is not built anew where it has them already, as most have."""
    same = all(getattr(statement, name) == value for name, value in fields.items())
    return statement if same else replace(statement, **fields)


def unknown(verb: str, reason: str) -> Statement:
    """A statement of which everything must be feared."""
    return Statement(
        verb,
        Kind.UNKNOWN,
        reason=reason,
        writes_everything=True,
        may_commit=True,
        opaque_session=True,
        changes_globals=True,
    )


def everything(verb: str, kind: Kind = Kind.DDL) -> Statement:
    """A statement that may change the answer of any other, such as GRANT, but not its session."""
    return Statement(verb, kind, writes_everything=True, may_commit=True, changes_globals=True)


def in_turn(
    statements: Iterable[Statement], schema: str | None
) -> Iterator[tuple[Statement, str | None]]:
    """The statements of one text, each with the default schema it runs in."""
    for statement in statements:
        yield statement, schema
        if statement.use_schema is not None:
            schema = statement.use_schema


def in_turn_once(
    statements: Sequence[Statement], schema: str | None
) -> Iterator[tuple[Statement, str | None]]:
    """The same without those that are there before: one and the same object, in the same schema."""
    seen: set[tuple[int, str | None]] = set()
    for statement, default in in_turn(statements, schema):
        if (id(statement), default) not in seen:
            seen.add((id(statement), default))
            yield statement, default


def of_each(
    find_out: Callable[[Statement, str | None], T],
    statements: Sequence[Statement],
    schema: str | None,
) -> Iterator[T]:
    """What is to be found out of each statement of one text, with the default schema it runs in:
    once of one that is there several times, as one and the same object."""
    known: dict[tuple[int, str | None], T] = {}
    for statement, default in in_turn(statements, schema):
        key = id(statement), default
        if key not in known:
            known[key] = find_out(statement, default)
        yield known[key]
