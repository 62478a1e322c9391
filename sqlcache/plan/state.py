"""What one client's session is: all that can change an answer, and how its texts are read.

Taken from the server's own word where it gives one (status flags), else from the statements the
session ran. What cannot be known makes the session's reads bypass the cache, never guess.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from sqlcache.cache.keys import digest
from sqlcache.mysql.constants import Capability, Status
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import End
from sqlcache.sql import charset
from sqlcache.sql.lexer import Dialect
from sqlcache.sql.names import TableRef
from sqlcache.sql.policy import NOTHING_SAID, read_terms
from sqlcache.sql.statement import WORDS, Computed, Locks, Statement, Transaction

Settings = tuple[tuple[str, str], ...]

NEW_SESSIONS_RIGHTS = "@rights"
"""Among the globals, no variable: all that decides which roles and rights a session begins with.

MySQL reads a session's rights on the server at its login, and those on its default schema when that
becomes the default. A GRANT or REVOKE that comes later concerns neither: so sessions from before it
and after it, of the same user, must not share answers.
"""

UNREADABLE_RIGHTS = "unreadable"
"""Stands for rights that the service account may not see: no two sessions are known to have the
same."""

SERVER = "@server"
"""Among the globals, no variable either: what tells the server's answers from those of others."""

EXPIRED_PASSWORDS = "@expired_passwords"
"""Likewise: who is let in although the password has expired with time, to do nothing but to set
another: "nobody", clients that are "aware" of it, by their capabilities, or "all"."""

CHOSEN_CHARACTER_SETS = "@chosen_character_sets"
"""Likewise: "taken" if the server goes by what a login says, and "" if it may be one that goes by
its own global, whatever that says (`skip-character-set-client-handshake`)."""

_GLOBALS_AT_ONCE = 64
_MOST_TEMPORARY = 1_000  # tables of one session; of more it is not known which there are
_NO_VARIABLES = (NEW_SESSIONS_RIGHTS, EXPIRED_PASSWORDS, CHOSEN_CHARACTER_SETS, SERVER)
_ROLE = "role"
_CHARACTER_SET_OF_THE_CLIENT = "character_set_client"
_SET_BY_THE_LOGIN = {
    _CHARACTER_SET_OF_THE_CLIENT,
    "character_set_connection",
    "character_set_results",
    "collation_connection",
}
_CHANGES_BYTES = (
    Capability.DEPRECATE_EOF
    | Capability.MARIADB_EXTENDED_METADATA
    | Capability.PROTOCOL_41
    | Capability.LONG_FLAG
    | Capability.SESSION_TRACK
    | Capability.IGNORE_SPACE
    | Capability.NO_SCHEMA
    | Capability.CAN_HANDLE_EXPIRED_PASSWORDS
)
_NEXT = "next_"  # begins the names of settings that hold for the next transaction only
_UNCACHED_ISOLATION = frozenset({"read-uncommitted", "serializable"})
_OTHER_GRAMMARS = frozenset({"ORACLE", "MSSQL", "DB2", "MAXDB", "POSTGRESQL"})
_AS_NOW_CALLED = {
    "tx_isolation": "transaction_isolation",
    "tx_read_only": "transaction_read_only",
}
_READ_HERE = frozenset(
    {"sql_mode", _CHARACTER_SET_OF_THE_CLIENT, "transaction_isolation", "old_mode"}
)
"""Settings whose values decide how the session is followed."""
# A number stands for a set of flags, a collation or a level, and 'ANSI_QUOTES ' for ANSI_QUOTES:
# the server is asked which.
_PLAIN_VALUE = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9_,-]*")
_SHAPE_NO_ANSWER = frozenset(
    {
        "autocommit",  # of which the status flags tell
        # How long something may take, and what is written down of it.
        "idle_readonly_transaction_timeout",
        "idle_transaction_timeout",
        "idle_write_transaction_timeout",
        "innodb_lock_wait_timeout",
        "interactive_timeout",
        "lock_wait_timeout",
        "long_query_time",
        "max_execution_time",
        "max_statement_time",
        "net_read_timeout",
        "net_retry_count",
        "net_write_timeout",
        "profiling_history_size",
        "sql_log_bin",
        "wait_timeout",
        # What only functions tell that are never answered from the cache.
        "identity",
        "insert_id",
        "last_insert_id",
        "pseudo_thread_id",
        "rand_seed1",
        "rand_seed2",
        "timestamp",
        # What concerns writes alone.
        "auto_increment_increment",
        "auto_increment_offset",
        "foreign_key_checks",
        "low_priority_updates",
        "sql_safe_updates",
        "unique_checks",
    }
)
"""Settings that are not part of the key."""
_OFF = frozenset({"", "0", "off"})
# What these come to depends on what else was set, and when: they set another one, too, keep what
# the value does not name, or are what SET NAMES goes by.
_NOT_ALONE = frozenset(
    {
        "character_set_collations",
        "character_set_connection",
        "character_set_database",
        "character_set_server",
        "collation_connection",
        "collation_database",
        "collation_server",
        "default_collation_for_utf8mb4",
        "max_join_size",
        "old",
        "optimizer_switch",
    }
)
_BY_SET_NAMES = ["character_set_connection", "collation_connection"]
"""Those of them that SET NAMES sets, in this order, after `character_set_client`."""


class SessionState:
    """One session, from its login on.

    `globals_` are what a new session inherits, as known before the command that makes the server
    read them. Which rights among them it read is an assumption until `confirm_rights`. `identity`
    is no other session's, anywhere.
    """

    def __init__(self, login: Login, globals_: Settings, status: int, identity: str) -> None:
        self._identity = identity
        self._server = _named(globals_).get(SERVER, "")
        self._unlike_others = 0  # how often it has become so
        self.multi_statements = bool(login.capabilities & Capability.MULTI_STATEMENTS)
        self.log_in(login, globals_, status)

    def log_in(self, login: Login, globals_: Settings, status: int) -> None:
        """The session begins anew, as after COM_CHANGE_USER."""
        self.login = login
        self.status = status
        self.transaction_unsure = False
        """Whether a transaction may have begun or ended since the server last told: an error says
        nothing of it."""
        self.schema: str | None = None
        self._is_another = False
        self.expired = self._may_have_expired(_named(globals_).get(EXPIRED_PASSWORDS))
        """Whether the password may have: the server, which looked at the login, then answers no
        query, and says so when one comes."""
        self._assumed_rights: set[str] = set()
        self._begin(globals_)
        if self._assume_rights(globals_) != self._rights:
            self._be_unlike_others()
        if login.schema is not None:
            self.use_named(login.schema)

    def _begin(self, globals_: Settings) -> None:
        self.inherited, self._inherited_digest = _inherited(globals_, self.login.collation)
        self.own: dict[str, str] = {}
        self._spelt = self.inherited
        """Values as the server spells them."""
        self.words = NOTHING_SAID
        """What the session says to sqlcache, with `SET @sqlcache = '...'`."""
        self._results = ""
        """How `character_set_results` was last set. It has a collation, which answers tell, and
        which no variable does."""
        self._fingerprint: bytes | None = None
        self._modes: frozenset[str] | None = None
        self._hindrance: tuple[str | None] | None = None
        """What the settings say in `bypass_reason`, once that was found out."""
        self._rights = self._schema_rights = _named(globals_).get(NEW_SESSIONS_RIGHTS, "")
        self.temporary: set[TableRef] = set()
        self.temporary_unknown = False
        self.merges = False
        """Whether it may have a temporary MERGE table, a write to which changes other tables."""
        self.locked = False
        self.next_transaction_set = False
        # init_connect may have set anything.
        self.settings_unknown = not self.inherited or bool(self.inherited.get("init_connect"))
        self.settings_unknown |= not self._has_chosen_character_set(_named(globals_))

    def _may_have_expired(self, let_in: str | None) -> bool:
        aware = bool(self.login.capabilities & Capability.CAN_HANDLE_EXPIRED_PASSWORDS)
        return let_in == "all" or (let_in == "aware" and aware)

    def _has_chosen_character_set(self, globals_: Mapping[str, str]) -> bool:
        """Whether its character set is known, and the one that its login names."""
        chosen = charset.of_collation(self.login.collation)
        if chosen is None or globals_.get(CHOSEN_CHARACTER_SETS, "taken") == "taken":
            return chosen is not None
        otherwise = globals_.get(_CHARACTER_SET_OF_THE_CLIENT, "")
        return chosen == otherwise or {chosen, otherwise} <= charset.UTF8

    def reset(self, globals_: Settings, *, is_mariadb: bool) -> None:
        """COM_RESET_CONNECTION: as a new session's, but for the rights, the role and the character
        sets.

        Of the last MySQL takes the global ones, MariaDB those of the login.
        """
        rights, schema_rights = self._rights, self._schema_rights
        unknown = self.settings_unknown or bool(self.login.capabilities & Capability.IGNORE_SPACE)
        role = {_ROLE: self.own[_ROLE]} if _ROLE in self.own else {}
        self._begin(globals_)
        self.settings_unknown |= unknown  # of the role one may know nothing
        self._schema_rights = schema_rights
        if rights != (now := self._assume_rights(globals_)):
            self._rights = rights + now  # the rights of then, roles of now
        self.own = role
        if not is_mariadb:
            shared = _as_now_called(globals_)
            self.own |= {name: shared[name] for name in _SET_BY_THE_LOGIN & shared.keys()}

    @property
    def capabilities(self) -> int:
        """What client and server agreed on."""
        return self.login.capabilities

    @property
    def in_transaction(self) -> bool:
        """Whether what the session writes now is not yet for others to see."""
        held_back = self.status & Status.IN_TRANS or not self.status & Status.AUTOCOMMIT
        return bool(held_back) or self.transaction_unsure

    def setting(self, name: str) -> str:
        """A session variable's value as far as it is known, else ""."""
        return self.own.get(name, self.inherited.get(name, ""))

    @property
    def settings(self) -> dict[str, str]:
        """All settings that can change an answer."""
        return _that_shape_answers({**self.inherited, **self.own})

    @property
    def tells_of_transactions(self) -> bool:
        """Whether the server's answers tell of each change in the transaction's state."""
        return self.setting("session_track_transaction_info").lower() not in _OFF

    @property
    def is_traced(self) -> bool:
        """Whether the server may write down how each statement ran, for the session to read."""
        traced = self.setting("optimizer_trace").lower()
        return (bool(traced) and "enabled=off" not in traced) or (
            self.setting("profiling").lower() not in _OFF
        )

    # How its texts are read.

    @property
    def character_set(self) -> str | None:
        """`character_set_client`, in lower case; None while it is not known."""
        own = self.own.get(_CHARACTER_SET_OF_THE_CLIENT)
        return own.lower() if own is not None else charset.of_collation(self.login.collation)

    @property
    def modes(self) -> frozenset[str]:
        """The sql_mode's flags, in upper case, those that ANSI stands for included."""
        if self._modes is None:
            self._modes = frozenset(self.setting("sql_mode").upper().split(","))
            if "ANSI" in self._modes:
                self._modes |= {"ANSI_QUOTES", "IGNORE_SPACE"}
        return self._modes

    @property
    def readable(self) -> bool:
        """Whether the grammar of its statements is the one the analysis knows."""
        if self.settings_unknown or self.character_set is None:
            return False
        modes = self.modes
        # The server's own word, in every answer, against what its settings are thought to be.
        escapes = bool(self.status & Status.NO_BACKSLASH_ESCAPES)
        return modes.isdisjoint(_OTHER_GRAMMARS) and escapes == ("NO_BACKSLASH_ESCAPES" in modes)

    @property
    def dialect(self) -> Dialect:
        """How the server splits its statements into tokens, once they are UTF-8."""
        modes = self.modes
        asked = bool(self.capabilities & Capability.IGNORE_SPACE) and "sql_mode" not in self.own
        return Dialect(
            ansi_quotes="ANSI_QUOTES" in modes,
            no_backslash_escapes="NO_BACKSLASH_ESCAPES" in modes,
            ignore_space="IGNORE_SPACE" in modes or asked,
            ascii_words=self.character_set not in charset.UTF8,
        )

    def as_utf8(self, text: bytes) -> bytes | None:
        """A statement's text as UTF-8; None where it cannot be read with certainty."""
        known = self.character_set if self.readable else None
        return None if known is None else charset.to_utf8(text, known)

    # What the cache may do for it.

    def bypass_reason(self) -> str | None:
        """Why no read of this session may use the cache now; None when it may.

        In a transaction there can be other reasons, see `proxy.transaction`.
        """
        if not self.readable or self.rights_assumed:
            return "session settings unknown"
        if self.expired:
            return "password may have expired"
        if self._is_another:
            return "user is not the one who logged in"
        if self.temporary or self.temporary_unknown:
            return "temporary table"
        if self.locked:
            return "locked tables"
        if self.next_transaction_set:
            return "settings of the next transaction"
        if self._hindrance is None:
            self._hindrance = (self._hindering_setting(),)
        return self._hindrance[0]

    def _hindering_setting(self) -> str | None:
        if self.setting("transaction_isolation").lower() in _UNCACHED_ISOLATION:
            return "isolation level"
        if self.tells_of_transactions:
            return "session_track_transaction_info"
        if self.is_traced:
            return "traced by optimizer_trace or profiling"
        if self.setting("sql_auto_is_null").lower() not in _OFF:
            return "sql_auto_is_null"  # `id IS NULL` finds the row this session inserted last
        return None

    def fingerprint(self) -> bytes:
        """A digest of everything about the session that can change an answer or its bytes."""
        if self._fingerprint is None:
            fields = [
                self.login.user,
                (self.schema or "").encode("utf-8", "surrogateescape"),
                b"schema" if self.schema is not None else b"",
                int(self.capabilities & _CHANGES_BYTES).to_bytes(8, "little"),
                self.login.collation.to_bytes(2, "little"),
                self._rights.encode(),
                self._schema_rights.encode(),
                self._server.encode(),
                self._results.encode("utf-8", "surrogateescape"),
                self._inherited_digest,
            ]
            others = {n: value for n, value in self.own.items() if self.inherited.get(n) != value}
            self._fingerprint = digest((*fields, *_fields(_that_shape_answers(others))))
        return self._fingerprint

    # What happens to it.

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
        told = _as_now_called(settings)
        if self.inherited.keys() <= told.keys():
            untold = {n: value for n, value in self.own.items() if n not in told}
            self.own = {**untold, **told, _ROLE: role}
            self._server = self._server or server
            self._results = f"collation {collation}"
            self._spelt, self._modes, self._hindrance = told, None, None
            self.settings_unknown = False
            self.use(schema)
            name = user.rpartition("@")[0].encode("utf-8", "surrogateescape")
            known = charset.of_collation(self.login.collation) or ""
            self._is_another = name != charset.to_utf8(self.login.user, known)

    def use(self, schema: str | None) -> None:
        """The session's default schema is this one from here on."""
        self.schema = schema
        self._fingerprint = None

    def read_rights(self, globals_: Settings) -> None:
        """The server read the rights on the default schema."""
        self._schema_rights = self._assume_rights(globals_)
        self._fingerprint = None

    def set_role(self, globals_: Settings) -> None:
        """The server read the rights anew, for the roles that the session has now."""
        now = self._assume_rights(globals_)
        if now != self._rights or now != self._schema_rights:
            fields = (self._rights, self._schema_rights, now)
            read = digest([field.encode() for field in fields]).hex()
            self._rights = self._schema_rights = read
            self._fingerprint = None

    def may_have_set_role(self, globals_: Settings) -> None:
        """It ran what cannot be read: the server may have read the rights anew, or not."""
        now = self._assume_rights(globals_)
        if {self._rights, self._schema_rights} != {now}:
            self._be_unlike_others()

    def _be_unlike_others(self) -> None:
        self._rights = self._schema_rights = self._rights_of_its_own()
        self._fingerprint = None

    def _rights_of_its_own(self) -> str:
        """What no other session has, nor this one before."""
        self._unlike_others += 1
        return f"{self._identity} {self._unlike_others}"

    def _assume_rights(self, globals_: Settings) -> str:
        """The rights that the server has just read, if nobody changed them before it did."""
        rights = _named(globals_).get(NEW_SESSIONS_RIGHTS, "")
        self._assumed_rights.add(rights)
        return self._rights_of_its_own() if rights == UNREADABLE_RIGHTS else rights

    @property
    def rights_assumed(self) -> bool:
        """Whether the session may have other rights than it is taken to have."""
        return bool(self._assumed_rights)

    def confirm_rights(self, globals_: Settings) -> None:
        """These globals hold, and held when the server read rights, or were read after that. If
        their rights are not those assumed, the server may have read either: no other session is
        like this one."""
        if self._assumed_rights != {_named(globals_).get(NEW_SESSIONS_RIGHTS, "")}:
            self._be_unlike_others()
        self._assumed_rights.clear()

    def use_named(self, schema: bytes) -> None:
        """The same, by its name as the client sent it."""
        known = self.character_set
        name = None if known is None else charset.to_utf8(schema, known)
        self.settings_unknown |= name is None
        self.use(None if name is None else name.decode("utf-8", "surrogateescape"))

    def answered(self, ends: Iterable[End]) -> None:
        """Takes in the server's word at the end of each answer, as it comes: of several statements
        the last may fail, and an error has none."""
        for end in ends:
            if end.status is None:
                continue
            self.status = end.status
            self.transaction_unsure = False
            if self.status & Status.DB_DROPPED:
                self.use(None)
                self.settings_unknown = True  # a USE may stand in the same text

    def ran(self, statements: Sequence[Statement], *, failed: bool) -> None:
        """Takes in what the statements changed; all but the last did not fail."""
        in_transaction = self.in_transaction
        for statement in statements:
            self._ran(statement, failed=failed, alone=len(statements) == 1)
            self.transaction_unsure |= failed and (in_transaction or statement.may_commit)

    def _ran(self, statement: Statement, *, failed: bool, alone: bool) -> None:
        had_no_effect = failed and alone and statement.sets_role
        self.settings_unknown |= statement.opaque_session and not had_no_effect
        self.merges |= statement.merges
        # What runs other statements may have created a temporary table with them.
        runs_others = statement.verb != "SET" or statement.calls_stored
        self.temporary_unknown |= statement.opaque_session and runs_others
        if failed:
            self._may_have_run(statement, alone=alone)
            return
        if statement.settings:
            self._set(statement.settings)
        elif statement.transaction in (Transaction.COMMIT, Transaction.ROLLBACK):
            # Which other statements use them up is the server's affair, and each has its own way.
            self.next_transaction_set = False
        if statement.use_schema is not None:
            self.use(statement.use_schema)
        self._change_temporary(statement)
        if statement.locks is not None:
            self.locked = statement.locks is not Locks.UNLOCK

    def _may_have_run(self, statement: Statement, *, alone: bool) -> None:
        """Some statement of these failed: a SET may have got half its way, those before all."""
        self.settings_unknown |= bool(statement.settings)
        if not alone:
            self.settings_unknown |= statement.use_schema is not None
            self.temporary_unknown |= bool(statement.temporary_created)
            self.locked |= statement.locks is not None and statement.locks is not Locks.UNLOCK

    def _change_temporary(self, statement: Statement) -> None:
        # A temporary table can be renamed like any other.
        renames = statement.verb in ("ALTER", "RENAME")
        self.temporary_unknown |= renames and bool(self.temporary)
        if not (statement.temporary_created or statement.temporary_dropped):
            return
        self.temporary |= self._in_full(statement.temporary_created)
        self.temporary -= self._in_full(statement.temporary_dropped)
        if len(self.temporary) > _MOST_TEMPORARY:
            self.temporary.clear()
            self.temporary_unknown = True

    def owns(self, ref: TableRef, schema: str | None) -> bool:
        """Whether a name, with this default schema, is that of a temporary table, written so."""
        return ref.under(schema) in self.temporary

    def _in_full(self, refs: Iterable[TableRef]) -> set[TableRef]:
        return {ref.under(self.schema) for ref in refs}

    def _set(self, told: Iterable[tuple[str, str | Computed]]) -> None:
        settings = [
            (name, self._value_of(name, value) if isinstance(value, Computed) else value)
            for name, value in told
        ]
        for name, value in settings:
            if name == WORDS:
                self.words = read_terms(value) if value else NOTHING_SAID
        known = [
            (_AS_NOW_CALLED.get(name, name), value) for name, value in settings if name != WORDS
        ]
        lasting = {name: value for name, value in known if not name.startswith(_NEXT)}
        self.next_transaction_set |= len(lasting) < len(dict(known))
        if "character_set_results" in lasting:
            names = ("character_set_results", "collation_connection")
            self._results = " ".join(lasting.get(name, "") for name in names)
        self.own |= lasting
        self._fingerprint = self._modes = self._hindrance = None
        self.settings_unknown |= not all(
            _PLAIN_VALUE.fullmatch(lasting.get(name, "")) for name in _READ_HERE
        )
        not_alone = [name for name, _ in known if name in _NOT_ALONE]
        by_names = not_alone == _BY_SET_NAMES and _CHARACTER_SET_OF_THE_CLIENT in lasting
        self.settings_unknown |= bool(not_alone) and not by_names

    def _value_of(self, name: str, computed: Computed) -> str:
        """What a variable is set to; of a value that the client wrote it is not known how the
        server spells it."""
        value = self.setting(name)
        made = computed.of(value)
        misspelt = computed.replaces and value != self._spelt.get(name)
        self.settings_unknown |= made is None or misspelt
        return value if made is None else made


@lru_cache(_GLOBALS_AT_ONCE)
def _named(globals_: Settings) -> Mapping[str, str]:
    return dict(globals_)


@lru_cache(_GLOBALS_AT_ONCE)
def _inherited(globals_: Settings, collation: int) -> tuple[Mapping[str, str], bytes]:
    """What a session that logs in with this collation has of the globals, and a digest of what of
    that can change an answer."""
    known = _as_now_called(globals_)
    for name in _NO_VARIABLES:
        known.pop(name, None)
    # Whatever the global ones are: a SET to their values is a change.
    login = f"as logged in with {collation}"
    known |= dict.fromkeys(_SET_BY_THE_LOGIN & known.keys(), login)
    return known, digest(_fields(_that_shape_answers(known)))


def _that_shape_answers(settings: Mapping[str, str]) -> dict[str, str]:
    return {n: value for n, value in settings.items() if n not in _SHAPE_NO_ANSWER}


def _fields(settings: Mapping[str, str]) -> Iterator[bytes]:
    for setting in sorted(settings.items()):
        for text in setting:
            yield text.encode("utf-8", "surrogateescape")


def _as_now_called(settings: Settings) -> dict[str, str]:
    return {_AS_NOW_CALLED.get(name, name): value for name, value in settings}
