"""A session's system variables, as far as they are known, and what follows from them."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from sqlcache.cache.keys import digest
from sqlcache.plan.silence import longest_s
from sqlcache.sql import charset
from sqlcache.sql.statement import Computed

Settings = tuple[tuple[str, str], ...]
Assignments = tuple[tuple[str, str | Computed], ...]
"""What a SET sets, in its order."""

NEW_SESSIONS_RIGHTS = "@rights"
"""Among the globals, no variable: all that decides which roles and rights a session begins with.

MySQL reads a session's rights on the server at its login, and those on its default schema when that
becomes the default. A GRANT or REVOKE that comes later concerns neither: so sessions from before it
and after it, of the same user, must not share answers.

Those on tables, columns and routines it looks up for every statement. They count as well: where
they change while no sqlcache runs, nobody forgets what was stored before.
"""

UNREADABLE_RIGHTS = "unreadable"
"""Stands for rights that the service account may not see: no two sessions are known to have the
same."""

PLACE = "@place"
"""Likewise: the host from which the server sees this process come, by a connection of its own. Of
a session's the same can be said only where that goes the same way."""

SEVERAL_ACCOUNTS = "@several_accounts"
"""Likewise: the names under which there are accounts, or rights, for several hosts, or an account
without a name; in order, with zeros before, between and after them."""

SERVER = "@server"
"""Among the globals, no variable either: what tells the server's answers from those of others."""

EXPIRED_PASSWORDS = "@expired_passwords"
"""Likewise: who is let in although the password has expired with time, to do nothing but to set
another: "nobody", clients that are "aware" of it, by their capabilities, or "all"."""

CHOSEN_CHARACTER_SETS = "@chosen_character_sets"
"""Likewise: "taken" if the server goes by what a login says, and "" if it may be one that goes by
its own global, whatever that says (`skip-character-set-client-handshake`)."""

COLLATIONS = "@collations"
"""Likewise: the numbers of those that the server has, with blanks before, between and after them.
By a login that names another one it goes as by none, and takes its own global character set."""

_GLOBALS_AT_ONCE = 64
_NO_VARIABLES = (
    NEW_SESSIONS_RIGHTS,
    PLACE,
    SEVERAL_ACCOUNTS,
    EXPIRED_PASSWORDS,
    CHOSEN_CHARACTER_SETS,
    COLLATIONS,
    SERVER,
    "@limited_accounts",
)
_SETS_KEPT = 256
_LARGEST_KEPT = 8_192  # of a session's own variables, in characters
_LONGEST_KEPT = 256  # of a value
_MOST_KEPT = 64  # settings of one SET, which may name the same again and again
NEXT = "next_"
"""Begins the names of settings that hold for the next transaction only."""
_ROLE = "role"
CHARACTER_SET_OF_THE_CLIENT = "character_set_client"
_SET_BY_THE_LOGIN = {
    CHARACTER_SET_OF_THE_CLIENT,
    "character_set_connection",
    "character_set_results",
    "collation_connection",
}
_UNCACHED_ISOLATION = frozenset({"read-uncommitted", "serializable"})
_OTHER_GRAMMARS = frozenset({"ORACLE", "MSSQL", "DB2", "MAXDB", "POSTGRESQL"})
_AS_NOW_CALLED = {
    "tx_isolation": "transaction_isolation",
    "tx_read_only": "transaction_read_only",
}
OF_TRANSACTIONS = frozenset({"transaction_isolation", "transaction_read_only", *_AS_NOW_CALLED})
"""Settings that transactions take over as they begin."""
_READ_HERE = frozenset(
    {"sql_mode", CHARACTER_SET_OF_THE_CLIENT, "transaction_isolation", "old_mode"}
)
"""Settings whose values decide how the session is followed."""
# A number stands for a set of flags, a collation or a level, or for a word in hexadecimal digits,
# and 'ANSI_QUOTES ' for ANSI_QUOTES: the server is asked which.
_PLAIN_VALUE = re.compile(r"(?![0-9])[A-Za-z0-9_,-]*")
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
        # What concerns writes alone. So does not sql_safe_updates: under it MySQL warns of an index
        # that a query cannot use.
        "auto_increment_increment",
        "auto_increment_offset",
        "foreign_key_checks",
        "low_priority_updates",
        "unique_checks",
    }
)
"""Settings that are not part of the key."""
_PREPARE_NOTHING = OF_TRANSACTIONS | {_ROLE}
"""Settings that are part of the key, and by which no statement is prepared in another way."""
_PREPARE_ALIKE = _SHAPE_NO_ANSWER | _PREPARE_NOTHING
_OFF = frozenset({"", "0", "off"})
_ON = frozenset({"1", "on"})
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
        "new_mode",
        "old",
        "old_mode",
        "optimizer_switch",
    }
)
_AT_PRESENT = frozenset({"", "DEFAULT"})
_IN_THE_SCHEMA = frozenset({"", "CURRENT_SCHEMA"})
_BY_SET_NAMES = ["character_set_connection", "collation_connection"]
"""Those of them that SET NAMES sets, in this order, after `character_set_client`."""


class Globals:
    """What new sessions inherit. Each is equal to itself alone, so what follows from one is found
    without a look at its hundred settings."""

    __slots__ = ("named", "settings")

    def __init__(self, settings: Settings = ()) -> None:
        self.settings = settings
        self.named: Mapping[str, str] = dict(settings)
        """The same by their names."""


class _Found:
    """What was found out of some variables; None where it was not yet."""

    __slots__ = ("fingerprint", "hindrance", "modes", "preparing")

    def __init__(self) -> None:
        self.fingerprint: bytes | None = None
        self.preparing: bytes | None = None
        self.modes: frozenset[str] | None = None
        self.hindrance: tuple[str | None] | None = None


class Inherited(NamedTuple):
    """What sessions that log in with a `collation` have of the globals; a digest of what of that
    can change an answer; and whether they are known to have that, and no more. `reads_formats`: see
    `Variables`, where they set nothing else."""

    collation: int
    values: Mapping[str, str]
    digest: bytes
    are_known: bool
    reads_formats: bool


class Variables:
    """Those of a session at a time, which others may share: those it has `inherited` from the
    globals at its login, and its `own`. What changes them gives others.

    `results` is how `character_set_results` was last set: it has a collation, which answers tell,
    and which no variable does. `spelt` are values as the server spells them.
    """

    __slots__ = ("_found", "_inherited", "_is_short", "_results", "_silence_s", "_spelt", "own")

    def __init__(
        self,
        inherited: Inherited,
        own: Mapping[str, str],
        spelt: Mapping[str, str],
        results: str = "",
        found: _Found | None = None,
    ) -> None:
        self._inherited = inherited
        self.own = own
        self._spelt = spelt
        self._results = results
        self._found = found or _Found()
        self._silence_s: list[float | None] = [None, None]  # of clients, of interactive ones
        size = sum(len(name) + len(value) for name, value in own.items())
        self._is_short = size <= _LARGEST_KEPT

    @property
    def inherited(self) -> Mapping[str, str]:
        return self._inherited.values

    @property
    def are_known_at_login(self) -> bool:
        """Whether they are known of a session that has just logged in."""
        return self._inherited.are_known

    def reset(self, globals_: Globals, *, is_mariadb: bool) -> "Variables":
        """COM_RESET_CONNECTION: all but the role and the character sets are a new session's.

        Of the last MySQL takes the global ones, MariaDB those of the login.
        """
        new = at_login(globals_, self._inherited.collation)
        own = {_ROLE: self.own[_ROLE]} if _ROLE in self.own else {}
        if not is_mariadb:
            shared = _as_now_called(globals_.settings)
            own |= {name: shared[name] for name in _SET_BY_THE_LOGIN & shared.keys()}
        return Variables(new._inherited, own, new._spelt)

    def known(self, settings: Settings, role: str, collation: int) -> "Variables | None":
        """As the server told them, and the collation of what it answers. None where it told too
        little, as under a small sql_select_limit."""
        told = _as_now_called(settings)
        if not self.inherited.keys() <= told.keys():
            return None
        untold = {n: value for n, value in self.own.items() if n not in told}
        own = {**untold, **told, _ROLE: role}
        return Variables(self._inherited, own, told, f"collation {collation}")

    def set(self, told: "Assignments") -> "_AfterSet":
        """What a SET makes of them, see `Statement.settings`."""
        short = (
            self._is_short
            and len(told) <= _MOST_KEPT
            and all(isinstance(value, str) and len(value) <= _LONGEST_KEPT for _, value in told)
        )
        return _after(self, told) if short else self._set(told)

    def _set(self, told: "Assignments") -> "_AfterSet":
        values = [(_AS_NOW_CALLED.get(name, name), self.value_of(name, v)) for name, v in told]
        settings = {name: value for name, (value, _) in values}
        lasting = {name: value for name, value in settings.items() if not name.startswith(NEXT)}
        changed = {name for name, value in lasting.items() if self.own.get(name) != value}
        results = self._results
        if "character_set_results" in lasting:
            names = ("character_set_results", "collation_connection")
            results = " ".join(lasting.get(name, "") for name in names)
        not_alone = [name for name, _ in values if name in _NOT_ALONE]
        by_names = not_alone == _BY_SET_NAMES and CHARACTER_SET_OF_THE_CLIENT in lasting
        known = (
            all(certain for _, (_, certain) in values)
            and all(_PLAIN_VALUE.fullmatch(lasting.get(name, "")) for name in _READ_HERE)
            and (by_names or not not_alone)
        )
        after = self
        if changed or results != self._results:
            same = results == self._results and changed <= _SHAPE_NO_ANSWER
            own = {**self.own, **lasting}
            found = self._found if same else None
            after = Variables(self._inherited, own, self._spelt, results, found)
        return _AfterSet(after, known, len(lasting) < len(settings))

    def value_of(self, name: str, told: str | Computed) -> tuple[str, bool]:
        """What a variable is set to, and whether that is so for sure: of a value that the client
        wrote it is not known how the server spells it."""
        if isinstance(told, str):
            return told, True
        value = self.setting(name)
        made = told.of(value)
        misspelt = told.replaces and value != self._spelt.get(name)
        return value if made is None else made, made is not None and not misspelt

    def setting(self, name: str) -> str:
        """A variable's value as far as it is known, else ""."""
        return self.own.get(name, self.inherited.get(name, ""))

    @property
    def that_shape_answers(self) -> dict[str, str]:
        """All that can change an answer."""
        return _that_shape_answers({**self.inherited, **self.own})

    @property
    def fingerprint(self) -> bytes:
        """A digest of those."""
        if self._found.fingerprint is None:
            self._found.fingerprint = self._digest(frozenset())
        return self._found.fingerprint

    @property
    def preparing(self) -> bytes:
        """A digest of those that can matter when the server prepares a statement."""
        if self._found.preparing is None:
            self._found.preparing = self._digest(_PREPARE_NOTHING)
        return self._found.preparing

    def _digest(self, but: frozenset[str]) -> bytes:
        shape = _that_shape_answers(self.own)
        others = {
            name: value
            for name, value in shape.items()
            if name not in but and self.inherited.get(name) != value
        }
        results = self._results.encode("utf-8", "surrogateescape")
        return digest((results, self._inherited.digest, *_fields(others)))

    @property
    def character_set(self) -> str | None:
        """`character_set_client`, in lower case; None while it is not known."""
        own = self.own.get(CHARACTER_SET_OF_THE_CLIENT)
        return own.lower() if own is not None else charset.of_collation(self._inherited.collation)

    @property
    def keeps_literals(self) -> bool:
        """Whether literals of plain ASCII stay what they are in `character_set_connection`."""
        connection = self.setting("character_set_connection").lower()
        return connection not in charset.WITHOUT_ALL_OF_ASCII

    @property
    def reads_formats(self) -> bool:
        """Whether functions find in literals of plain ASCII the bytes that were sent."""
        own = self.own.get("character_set_connection")
        return self._inherited.reads_formats if own is None else _is_of_ascii_bytes(own)

    @property
    def modes(self) -> frozenset[str]:
        """The sql_mode's flags, in upper case, those that ANSI stands for included."""
        if self._found.modes is None:
            modes = frozenset(self.setting("sql_mode").upper().split(","))
            implied = {"ANSI_QUOTES", "IGNORE_SPACE"} if "ANSI" in modes else set()
            self._found.modes = modes | implied
        return self._found.modes

    @property
    def are_understood(self) -> bool:
        """Whether statements mean by them what the analysis takes them for: in the grammar that it
        knows, and with routines of the default schema where they name none."""
        looked_up_there = self.setting("path").upper() in _IN_THE_SCHEMA
        return looked_up_there and self.modes.isdisjoint(_OTHER_GRAMMARS)

    @property
    def tells_of_transactions(self) -> bool:
        """Whether the server's answers tell of each change in the transaction's state."""
        return self.setting("session_track_transaction_info").lower() not in _OFF

    @property
    def tells_of_own_commits(self) -> bool:
        """Whether those that the server's answers tell of, if any, are the session's own."""
        return self.setting("session_track_gtids").lower() in _OFF | {"own_gtid"}

    @property
    def time_limit_s(self) -> float:
        """After how long the server ends a query; infinity where it does not, or that is not
        known."""
        in_s, in_ms = self.setting("max_statement_time"), self.setting("max_execution_time")
        return min(_limit(in_s), _limit(in_ms) / 1000)

    def longest_silence_s(self, *, interactive: bool) -> float:
        """See `silence.longest_s`."""
        if self._silence_s[interactive] is None:
            of_login = self.inherited if interactive else {}
            self._silence_s[interactive] = longest_s(self.setting, self.own, of_login)
        return self._silence_s[interactive] or 0.0

    @property
    def are_big_selects_on(self) -> bool:
        """Whether queries are run however much they join."""
        return self.setting("sql_big_selects").lower() in _ON

    @property
    def is_traced(self) -> bool:
        """Whether the server may write down how each statement ran, for the session to read."""
        traced = self.setting("optimizer_trace").lower()
        return (bool(traced) and "enabled=off" not in traced) or (
            self.setting("profiling").lower() not in _OFF
        )

    @property
    def hindrance(self) -> str | None:
        """Which of them keeps all reads from the cache, if any does."""
        if self._found.hindrance is None:
            self._found.hindrance = (self._find_hindrance(),)
        return self._found.hindrance[0]

    def _find_hindrance(self) -> str | None:
        if self.setting("transaction_isolation").lower() in _UNCACHED_ISOLATION:
            return "isolation level"
        if self.tells_of_transactions:
            return "session_track_transaction_info"
        if self.is_traced:
            return "traced by optimizer_trace or profiling"
        if self.setting("system_versioning_asof").upper() not in _AT_PRESENT:
            return "system_versioning_asof"  # in the time zone of then
        if self.setting("sql_auto_is_null").lower() not in _OFF:
            return "sql_auto_is_null"  # `id IS NULL` finds the row this session inserted last
        return None


class _AfterSet(NamedTuple):
    """What a SET makes of variables: whether it is `known` what that comes to, and whether some of
    it is for the next transaction only."""

    variables: Variables
    known: bool
    for_the_next: bool


def prepares_alike(name: str) -> bool:
    """Whether statements are prepared alike whatever the value of this setting is."""
    return name in _PREPARE_ALIKE or name.startswith(NEXT)


@lru_cache(_GLOBALS_AT_ONCE)
def at_login(globals_: Globals, collation: int) -> Variables:
    """Those of sessions that log in with this collation, before they set anything."""
    known = _as_now_called(globals_.settings)
    for name in _NO_VARIABLES:
        known.pop(name, None)
    # That of the login, or the global one where the server does not know it.
    connections = charset.of_collation(collation), known.get("character_set_connection")
    # Whatever the global ones are: a SET to their values is a change.
    login = f"as logged in with {collation}"
    known |= dict.fromkeys(_SET_BY_THE_LOGIN & known.keys(), login)
    shape = digest(_fields(_that_shape_answers(known)))
    # init_connect may have set anything.
    are_known = bool(known) and not known.get("init_connect")
    are_known = are_known and _takes_character_set(globals_.named, collation)
    reads_formats = all(map(_is_of_ascii_bytes, connections))
    return Variables(Inherited(collation, known, shape, are_known, reads_formats), {}, known)


def _takes_character_set(globals_: Mapping[str, str], collation: int) -> bool:
    """Whether the character set of who logs in with this collation is known, and that one's."""
    number = f" {collation} "
    chosen = charset.of_collation(collation)
    taken = number in globals_.get(COLLATIONS, number)
    taken &= globals_.get(CHOSEN_CHARACTER_SETS, "taken") == "taken"
    if chosen is None or taken:
        return chosen is not None
    otherwise = globals_.get(CHARACTER_SET_OF_THE_CLIENT, "")
    return chosen == otherwise or {chosen, otherwise} <= charset.UTF8


def _is_of_ascii_bytes(character_set: str | None) -> bool:
    return character_set is not None and character_set.lower() in charset.OF_ASCII_BYTES


@lru_cache(_SETS_KEPT)
def _after(variables: Variables, told: "Assignments") -> "_AfterSet":
    return variables._set(told)


def _that_shape_answers(settings: Mapping[str, str]) -> dict[str, str]:
    return {n: value for n, value in settings.items() if n not in _SHAPE_NO_ANSWER}


def _fields(settings: Mapping[str, str]) -> Iterator[bytes]:
    for setting in sorted(settings.items()):
        for text in setting:
            yield text.encode("utf-8", "surrogateescape")


def _limit(setting: str) -> float:
    try:
        limit = float(setting)
    except ValueError:
        return math.inf
    return limit if limit > 0 else math.inf


def _as_now_called(settings: Settings) -> dict[str, str]:
    return {_AS_NOW_CALLED.get(name, name): value for name, value in settings}
