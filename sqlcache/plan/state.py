"""What one client's session is: all that can change an answer, and how its texts are read.

Taken from the server's own word where it gives one (status flags), else from the statements the
session ran. What cannot be known makes the session's reads bypass the cache, never guess.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from sqlcache.cache.keys import digest
from sqlcache.mysql.constants import Capability, Status
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import End
from sqlcache.plan.quotas import is_limited, shape_reads_alone, write_alike
from sqlcache.plan.rights import Rights
from sqlcache.plan.temporary import TemporaryTables
from sqlcache.plan.variables import (
    EXPIRED_PASSWORDS,
    NEXT,
    SERVER,
    Assignments,
    Globals,
    Settings,
    at_login,
)
from sqlcache.sql import charset, user_names
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.policy import NOT_UNDERSTOOD, NOTHING_SAID, read_terms
from sqlcache.sql.statement import ENDS, WORDS, Locks, Statement, in_turn

_CHANGES_BYTES = int(
    Capability.DEPRECATE_EOF
    | Capability.MARIADB_EXTENDED_METADATA
    | Capability.PROTOCOL_41
    | Capability.LONG_FLAG
    | Capability.SESSION_TRACK
    | Capability.IGNORE_SPACE
    | Capability.NO_SCHEMA
    | Capability.CAN_HANDLE_EXPIRED_PASSWORDS
)
_SHORTEST_KEPT_UP_S = 2.0
"""Below that a session's connection cannot be kept up for sure while the server is not asked."""
_DIGESTS_KEPT = 1_024  # sessions that are alike have one


class SessionState:
    """One session, from its login on.

    `globals_` are what a new session inherits, as known before the command that makes the server
    read them. `fresh` and `route`: see `Rights`.
    """

    def __init__(
        self,
        login: Login,
        globals_: Globals,
        status: int,
        fresh: Callable[[], str],
        route: str = "",
    ) -> None:
        self._server = globals_.named.get(SERVER, "")
        self.multi_statements = bool(login.capabilities & Capability.MULTI_STATEMENTS)
        self.rights = Rights(fresh, route)
        self.log_in(login, globals_, status)

    def log_in(self, login: Login, globals_: Globals, status: int) -> None:
        """The session begins anew, as after COM_CHANGE_USER."""
        self.login = login
        self.status = status
        self.transaction_unsure = False
        """Whether a transaction may have begun or ended since the server last told: an error says
        nothing of it."""
        self.owes_changes = False
        """Whether the server may still have to tell the client what changed in the session, as of
        statements before an error: its next OK does."""
        self.schema: str | None = None
        name = user_names.as_read(login.user, login.collation)
        self.user = (login.user if name is None else name).decode("utf-8", "surrogateescape")
        """Its name, as the server reads it; as it was sent where that is not known."""
        self._is_another = name is None  # perhaps
        self._begun_with = globals_
        self.limited = is_limited(globals_, login.user)
        """Whether its account may be one that may ask only so many questions; see `quotas`."""
        self.expired = self._may_have_expired(globals_.named.get(EXPIRED_PASSWORDS))
        """Whether the password may have: the server, which looked at the login, then answers no
        query, and says so when one comes."""
        self.rights.log_in(globals_, login.user)
        self.variables = at_login(globals_, login.collation)
        self._begin()
        if login.schema is not None:
            self.use_named(login.schema)

    def _begin(self) -> None:
        self.words = NOTHING_SAID
        """What the session says to sqlcache, with `SET @sqlcache = '...'`."""
        self.temporary = TemporaryTables()
        self.locked = False
        self.locks_concurrently = False
        """Whether others may read on in tables that it has locked, and see what it inserts only
        when they are unlocked."""
        self.left_behind = False
        """Whether a statement may have left in it what only its client knows of; see
        `Statement.leaves_behind`."""
        self.next_transaction_set = False
        self.next_level: str | None = None
        """That which the last command has set for the next transaction, if it has set no more, and
        nothing was set before."""
        self.settings_unknown = not self.variables.are_known_at_login

    def _may_have_expired(self, let_in: str | None) -> bool:
        aware = bool(self.login.capabilities & Capability.CAN_HANDLE_EXPIRED_PASSWORDS)
        return let_in == "all" or (let_in == "aware" and aware)

    def reset(self, globals_: Globals, *, is_mariadb: bool) -> None:
        """COM_RESET_CONNECTION: as a new session's, but for the rights, and what `Variables.reset`
        leaves."""
        unknown = self.settings_unknown or bool(self.login.capabilities & Capability.IGNORE_SPACE)
        self._begun_with = globals_
        self.rights.reset(globals_)
        self.variables = self.variables.reset(globals_, is_mariadb=is_mariadb)
        self._begin()
        self.settings_unknown |= unknown  # of the role one may know nothing

    @property
    def capabilities(self) -> int:
        """What client and server agreed on."""
        return self.login.capabilities

    @property
    def in_transaction(self) -> bool:
        """Whether what the session writes now is not yet for others to see."""
        held_back = self.status & Status.IN_TRANS or not self.status & Status.AUTOCOMMIT
        return bool(held_back) or self.transaction_unsure

    # How its texts are read.

    @property
    def readable(self) -> bool:
        """Whether its statements mean what the analysis takes them for."""
        variables = self.variables
        if self.settings_unknown or variables.character_set is None:
            return False
        if self.capabilities & Capability.NO_SCHEMA:
            return False  # the server takes `shop.t` for the `t` of the default schema
        # The server's own word, in every answer, against what its settings are thought to be.
        escapes = bool(self.status & Status.NO_BACKSLASH_ESCAPES)
        agreed = escapes == ("NO_BACKSLASH_ESCAPES" in variables.modes)
        return agreed and variables.are_understood

    @property
    def dialect(self) -> Dialect:
        """How the server splits its statements into tokens, once they are UTF-8."""
        modes = self.variables.modes
        by_login = "sql_mode" not in self.variables.own
        asked = bool(self.capabilities & Capability.IGNORE_SPACE) and by_login
        return Dialect(
            ansi_quotes="ANSI_QUOTES" in modes,
            no_backslash_escapes="NO_BACKSLASH_ESCAPES" in modes,
            ignore_space="IGNORE_SPACE" in modes or asked,
            ascii_words=self.variables.character_set not in charset.UTF8,
        )

    @property
    def longest_silence_s(self) -> float:
        """See `Variables`."""
        interactive = bool(self.capabilities & Capability.INTERACTIVE)
        return self.variables.longest_silence_s(interactive=interactive)

    @property
    def runs_all_joins(self) -> bool:
        """Whether the server is known to refuse it no query for what that joins."""
        return not self.settings_unknown and self.variables.are_big_selects_on

    @property
    def names_commits(self) -> bool:
        """Whether commits that the server tells of are known to be the session's own."""
        return not self.settings_unknown and self.variables.tells_of_own_commits

    def as_utf8(self, text: bytes) -> bytes | None:
        """A statement's text as UTF-8; None where it cannot be read with certainty."""
        known = self.variables.character_set if self.readable else None
        return None if known is None else charset.to_utf8(text, known)

    # What the cache may do for it.

    def bypass_reason(self, *, beside_temporary: bool = False) -> str | None:
        """Why no read of this session may use the cache now; None when it may. `beside_temporary`:
        of reads that have nothing to do with its temporary tables, of which it is known which there
        are.

        In a transaction there can be other reasons, see `proxy.transaction`.
        """
        if self.limited:
            return "MAX_QUERIES_PER_HOUR"
        if not self.readable or self.rights.assumed:
            return "session settings unknown"
        if self.expired:
            return "password may have expired"
        if self._is_another:
            return "user is not the one who logged in"
        if self.temporary and not (beside_temporary and self.temporary.are_known):
            return "temporary table"
        if self.locked:
            return "locked tables"
        if self.next_transaction_set:
            return "settings of the next transaction"
        if self.longest_silence_s < _SHORTEST_KEPT_UP_S:
            return "ended too soon when idle"
        return self.variables.hindrance

    @property
    def preparing(self) -> bytes:
        """See `Variables`."""
        return self.variables.preparing

    def fingerprint(self) -> bytes:
        """A digest of everything about the session that can change an answer or its bytes."""
        return _digest_of(
            self.login.user,
            self.schema,
            self.capabilities & _CHANGES_BYTES,
            self.login.collation,
            self.rights.told,
            self._server,
            self.variables.fingerprint,
        )

    # What happens to it.

    def begins_otherwise(self, globals_: Globals) -> None:
        """New sessions begin with these globals, and so may this one have."""
        self.limited |= is_limited(globals_, self.login.user)
        if not (self.limited and write_alike(self._begun_with, globals_)):
            self._begun_with = globals_
            self.settings_unknown = True

    def know_settings(
        self,
        settings: Settings,
        schema: str | None,
        role: str,
        user: str,
        *,
        server: str = "",
        collation: int = 0,
    ) -> None:
        """The server told the session's settings, default schema, role and USER(): MariaDB 12 has a
        statement that makes it another's. `server`: which it is, if that was not known when the
        session began. `collation`: that of what it answers.

        Where it told too little, as under a small sql_select_limit, they stay unknown.
        """
        known = self.variables.known(settings, role, collation)
        if known is None:
            return
        self.variables = known
        self._server = self._server or server
        self.settings_unknown = False
        self.use(schema)
        name = user.rpartition("@")[0].encode("utf-8", "surrogateescape")
        self._is_another = name != user_names.as_read(self.login.user, self.login.collation)

    def use(self, schema: str | None) -> None:
        """The session's default schema is this one from here on."""
        self.schema = schema
        # MySQL calls it so, and finds the tables of the one whose name ends before that.
        self.settings_unknown |= schema is not None and "\0" in schema

    def use_named(self, schema: bytes) -> None:
        """The same, by its name as the client sent it."""
        known = self.variables.character_set
        name = None if known is None else charset.to_utf8(schema, known)
        try:
            told = None if name is None else name.decode()
        except UnicodeDecodeError:  # MySQL takes what stands before that
            told = None
        self.settings_unknown |= told is None
        self.use(told)

    def answered(self, ends: Iterable[End]) -> None:
        """Takes in the server's word at the end of each answer, as it comes: of several statements
        the last may fail, and an error has none."""
        for end in ends:
            tracks = self.login.capabilities & Capability.SESSION_TRACK
            self.owes_changes = bool(tracks) and end.status is None
            if end.status is None:
                continue
            self.status = end.status
            self.transaction_unsure = False
            if self.status & Status.DB_DROPPED:
                self.use(None)
                self.settings_unknown = True  # a USE may stand in the same text

    def ran(
        self, statements: Sequence[Statement], *, failed: bool, schema: str | None = None
    ) -> None:
        """Takes in what the statements changed; all but the last did not fail. `schema`: that for
        which they were prepared."""
        in_transaction, was_set = self.in_transaction, self.next_transaction_set
        for statement, default in in_turn(statements, self.schema if schema is None else schema):
            self._ran(statement, default, failed=failed, alone=len(statements) == 1)
        if statements and not failed:
            self._ended(statements[-1])
        sets_level = len(statements) == 1 and not (failed or was_set)
        self.next_level = level_for_next(statements[0]) if sets_level else None
        may_commit = any(statement.may_commit for statement in statements)
        self.transaction_unsure |= failed and (in_transaction or may_commit)

    def may_have_begun_with(self, statements: Sequence[Statement]) -> None:
        """Takes in what `init_connect` says, which has not failed and may not have run: a temporary
        table of it may be there or not, and words of it are not heard."""
        self.ran(statements, failed=False)
        self.next_level = None
        self.words = NOTHING_SAID
        self.temporary.unknown |= bool(self.temporary.names)
        self.temporary.names.clear()

    def _ran(self, statement: Statement, schema: str | None, *, failed: bool, alone: bool) -> None:
        self.left_behind |= statement.leaves_behind or statement.code_leaves
        had_no_effect = failed and alone and statement.sets_role
        opaque = statement.opaque_session and not had_no_effect
        self.settings_unknown |= opaque and not self._need_not_know(statement)
        self.temporary.merges |= statement.merges
        self.temporary.may_be_others(statement)
        if failed:
            self._may_have_run(statement, alone=alone)
            return
        if statement.settings:
            self._set(statement.settings)
        if statement.use_schema is not None:
            self.use(statement.use_schema)
        self.temporary.ran(statement, schema)
        if statement.locks is not None:
            self.locked = statement.locks is not Locks.UNLOCK
            self.locks_concurrently = statement.locks is Locks.CONCURRENT

    def _need_not_know(self, statement: Statement) -> bool:
        """Whether nothing is wanted of what it has done to the session's settings."""
        untold = statement.untold and not statement.calls_stored
        return bool(self.limited and untold and shape_reads_alone(statement.untold))

    def _ended(self, last: Statement) -> None:
        """What is set for the next transaction ends with one, but where another is chained to that.
        Which other statements use it up is the server's affair, and each has its own way."""
        if last.transaction in ENDS and not self.status & Status.IN_TRANS:
            self.next_transaction_set = False

    def _may_have_run(self, statement: Statement, *, alone: bool) -> None:
        """Some statement of these failed: a SET may have got half its way, those before all."""
        self.settings_unknown |= bool(statement.settings)
        self.temporary.may_be_renamed(statement)
        if not alone:
            # The server cannot be asked for what is set for the next transaction, nor for words.
            names = [name for name, _ in statement.settings]
            self.next_transaction_set |= any(name.startswith(NEXT) for name in names)
            self.words = NOT_UNDERSTOOD if WORDS in names else self.words
            self.settings_unknown |= statement.use_schema is not None
            self.temporary.unknown |= bool(statement.temporary_created)
            self.locked |= statement.locks is not None and statement.locks is not Locks.UNLOCK
            self.locks_concurrently |= statement.locks is Locks.CONCURRENT

    def _set(self, told: Assignments) -> None:
        for name, value in told:
            if name != WORDS:
                continue
            said, certain = self.variables.value_of(name, value)
            self.words = read_terms(said) if said else NOTHING_SAID
            self.settings_unknown |= not certain
        settings = tuple(each for each in told if each[0] != WORDS)
        if settings:
            self.variables, known, for_the_next = self.variables.set(settings)
            in_doubt = not (self.limited and shape_reads_alone(name for name, _ in settings))
            self.settings_unknown |= in_doubt and not known
            self.next_transaction_set |= for_the_next


def level_for_next(statement: Statement) -> str | None:
    """The isolation level that it sets for the next transaction, if it does nothing else."""
    match statement.settings:
        case (("next_transaction_isolation" | "next_tx_isolation", str(level)),) if (
            statement.verb == "SET"
        ):
            return level.lower()
    return None


@lru_cache(_DIGESTS_KEPT)
def _digest_of(
    user: bytes,
    schema: str | None,
    capabilities: int,
    collation: int,
    rights: tuple[str, str],
    server: str,
    variables: bytes,
) -> bytes:
    return digest(
        (
            user,
            (schema or "").encode("utf-8", "surrogateescape"),
            b"schema" if schema is not None else b"",
            capabilities.to_bytes(8, "little"),
            collation.to_bytes(2, "little"),
            *(right.encode() for right in rights),
            server.encode(),
            variables,
        )
    )
