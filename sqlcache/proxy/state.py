"""What one client's session is: all that can change an answer, and what its transaction wrote.

Taken from the server's own word where it gives one (status flags), else from the statements the
session ran. What cannot be known makes the session's reads bypass the cache, never guess.
"""

from collections.abc import Iterable, Sequence

from sqlcache.cache.keys import digest
from sqlcache.mysql.constants import MULTIBYTE_UNSAFE_COLLATIONS, Capability, Status
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import End
from sqlcache.sql.lexer import Dialect
from sqlcache.sql.names import TableRef
from sqlcache.sql.statement import Kind, Locks, Statement

Settings = tuple[tuple[str, str], ...]

_UNSAFE_CHARACTER_SETS = frozenset({"big5", "gbk", "sjis", "cp932", "gb18030"})
_CHARACTER_SET_OF_THE_CLIENT = "character_set_client"
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


class SessionState:
    """One session, from its login on. `globals_` are what a new session inherits."""

    def __init__(self, login: Login, globals_: Settings, status: Status) -> None:
        self.multi_statements = bool(login.capabilities & Capability.MULTI_STATEMENTS)
        self.log_in(login, globals_, status)

    def log_in(self, login: Login, globals_: Settings, status: Status) -> None:
        """The session begins anew, as after COM_CHANGE_USER."""
        self.login = login
        self.status = status
        self.schema = login.schema.decode("utf-8", "replace") if login.schema else None
        self.reset(globals_)

    def reset(self, globals_: Settings) -> None:
        """The session's settings are what new sessions inherit, as after COM_RESET_CONNECTION."""
        self.inherited = dict(globals_)
        self.own: dict[str, str] = {}
        self._fingerprint: bytes | None = None
        self.settings_unknown = False
        self.temporary: set[TableRef] = set()
        self.temporary_unknown = False
        self.locked = False
        self.next_transaction_set = False

    @property
    def capabilities(self) -> Capability:
        """What client and server agreed on."""
        return self.login.capabilities

    @property
    def in_transaction(self) -> bool:
        """Whether what the session writes now is not yet for others to see."""
        return bool(self.status & Status.IN_TRANS) or not self.status & Status.AUTOCOMMIT

    def setting(self, name: str) -> str | None:
        """A session variable's value as far as it is known."""
        return self.own.get(name) or self.inherited.get(name)

    @property
    def readable(self) -> bool:
        """Whether the text of its statements can be split into tokens with certainty."""
        if self.settings_unknown:
            return False
        character_set = self.own.get(_CHARACTER_SET_OF_THE_CLIENT)
        if character_set is not None:
            return character_set.lower() not in _UNSAFE_CHARACTER_SETS
        return self.login.collation not in MULTIBYTE_UNSAFE_COLLATIONS

    @property
    def dialect(self) -> Dialect:
        """How the server splits its statements into tokens."""
        modes = (self.setting("sql_mode") or "").upper()
        return Dialect(
            ansi_quotes="ANSI" in modes,
            no_backslash_escapes=bool(self.status & Status.NO_BACKSLASH_ESCAPES)
            or "NO_BACKSLASH_ESCAPES" in modes,
        )

    def bypass_reason(self) -> str | None:
        """Why no read of this session may use the cache now; None when it may."""
        if not self.readable:
            return "session settings unknown"
        if self.in_transaction:
            return "transaction"
        if self.temporary or self.temporary_unknown:
            return "temporary table"
        if self.locked:
            return "locked tables"
        if self.next_transaction_set:
            return "settings of the next transaction"
        isolation = self.setting("transaction_isolation") or self.setting("tx_isolation") or ""
        if isolation.lower() in _UNCACHED_ISOLATION:
            return "isolation level"
        return None

    def fingerprint(self) -> bytes:
        """A digest of everything about the session that can change an answer or its bytes."""
        if self._fingerprint is None:
            fields = [
                self.login.user,
                (self.schema or "").encode(),
                b"schema" if self.schema is not None else b"",
                int(self.capabilities & _CHANGES_BYTES).to_bytes(8, "little"),
                self.login.collation.to_bytes(2, "little"),
            ]
            for name, value in sorted((self.inherited | self.own).items()):
                if name != "autocommit":  # the status flags tell, and it changes no answer
                    fields += [name.encode(), value.encode()]
            self._fingerprint = digest(fields)
        return self._fingerprint

    def know_settings(self, settings: Settings, schema: str | None, role: str) -> None:
        """The server told the session's settings, default schema and role."""
        self.own = {**dict(settings), "role": role}
        self.settings_unknown = False
        self.use(schema)

    def use(self, schema: str | None) -> None:
        """The session's default schema is this one from here on."""
        self.schema = schema
        self._fingerprint = None

    def ran(self, statements: Sequence[Statement], ends: Iterable[End]) -> None:
        """Takes in what the statements changed; `ends` are the ends of their answers."""
        failed = False
        for end in ends:
            failed = failed or end.status is None
            if end.status is not None:
                self.status = end.status
        if self.status & Status.DB_DROPPED:
            self.use(None)
        for statement in statements:
            self._ran(statement, failed=failed)

    def _ran(self, statement: Statement, *, failed: bool) -> None:
        # A failed one may have done a part, as a SET of two variables that fails at the second.
        partial = failed and bool(statement.settings)
        self.settings_unknown |= statement.opaque_session or partial
        # What runs other statements may have created a temporary table with them.
        self.temporary_unknown |= statement.opaque_session and statement.verb != "SET"
        if failed:
            return
        if statement.settings:
            self._set(statement.settings)
        elif statement.kind is not Kind.SESSION:
            self.next_transaction_set = False
        if statement.use_schema is not None:
            self.use(statement.use_schema)
        self.temporary |= statement.temporary_created
        self.temporary -= statement.temporary_dropped
        if statement.locks is not None:
            self.locked = statement.locks is not Locks.UNLOCK

    def _set(self, settings: Settings) -> None:
        lasting = {name: value for name, value in settings if not name.startswith(_NEXT)}
        self.next_transaction_set |= len(lasting) < len(dict(settings))
        self.own |= lasting
        self._fingerprint = None
