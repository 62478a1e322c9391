"""Which rights the server has read for a session."""

from collections.abc import Callable
from functools import lru_cache

from sqlcache.cache.keys import digest
from sqlcache.plan.variables import (
    NEW_SESSIONS_RIGHTS,
    PLACE,
    SEVERAL_ACCOUNTS,
    UNREADABLE_RIGHTS,
    Globals,
)

_USERS_KEPT = 64  # a name in a login may take 128 kB
LONGEST_NAME = 32
"""Of a user, for MySQL, which takes a longer one for its beginning."""
_ANONYMOUS = "\0\0"
"""The account without a name among those of several hosts: anybody may be taken for it."""


class Rights:
    """One session's, on the server and on its default schema, as far as is known: which of them it
    read is an assumption until `confirm`. `fresh` makes what no session has had, anywhere. `route`:
    which way its connection goes to the server, see `sockets.route`."""

    def __init__(self, fresh: Callable[[], str], route: str = "") -> None:
        self._fresh = fresh
        self._route = route
        self._user = b""
        self._on_server = self._on_schema = ""
        self._at_reset = ""  # what was read on the server when the session was reset last
        self._assumed: set[str] = set()

    @property
    def told(self) -> tuple[str, str]:
        """What tells them from others."""
        return self._on_server, self._on_schema

    @property
    def assumed(self) -> bool:
        """Whether the session may have other rights than it is taken to have."""
        return bool(self._assumed)

    def log_in(self, globals_: Globals, user: bytes) -> None:
        """The server read them all, as for a new session of this user."""
        self._user = user
        self._assumed = set()
        self._have(self._assume(globals_))

    def reset(self, globals_: Globals) -> None:
        """COM_RESET_CONNECTION: the rights of before, with the roles of now."""
        now = self._assume(globals_)
        if now not in (self._on_server, self._at_reset):
            self._on_server, self._at_reset = _put_together(self._on_server, now), now

    def read_on_schema(self, globals_: Globals) -> None:
        """The server read those on the default schema."""
        self._on_schema = self._assume(globals_)

    def set_role(self, globals_: Globals) -> None:
        """The server read them anew, for the roles that the session has now."""
        now = self._assume(globals_)
        if self.told != (now, now):
            self._have(_put_together(*self.told, now))

    def may_have_been_read(self, globals_: Globals) -> None:
        """It ran what cannot be read, or failed: the server may have read them anew, or not."""
        now = self._assume(globals_)
        if self.told != (now, now):
            self._be_unlike_others()

    def confirm(self, globals_: Globals) -> None:
        """These globals hold, and held when the server read rights, or were read after that. If
        their rights are not those assumed, the server may have read either: no other session is
        like this one."""
        if self._assumed != {self._of_new_sessions(globals_)}:
            self._be_unlike_others()
        self._assumed.clear()

    def _assume(self, globals_: Globals) -> str:
        """The rights that the server has just read, if nobody changed them before it did."""
        rights = self._of_new_sessions(globals_)
        self._assumed.add(rights)
        return self._fresh() if rights == UNREADABLE_RIGHTS else rights

    def _of_new_sessions(self, globals_: Globals) -> str:
        """What tells the rights of sessions that log in as this user, by these globals. Where the
        name alone does not say which account that is, it is by where they come from: that is as
        the server sees it of sqlcache's own connection, which may have gone another way."""
        rights, are_of_route = _of_user(globals_, self._user)
        return f"{rights} {self._route}" if are_of_route else rights

    def _be_unlike_others(self) -> None:
        self._have(self._fresh())

    def _have(self, rights: str) -> None:
        self._on_server = self._on_schema = rights
        self._at_reset = ""


@lru_cache(_USERS_KEPT)
def _of_user(globals_: Globals, user: bytes) -> tuple[str, bool]:
    """The same, and whether it depends on where who logs in comes from."""
    known = globals_.named
    rights, several = known.get(NEW_SESSIONS_RIGHTS, ""), known.get(SEVERAL_ACCOUNTS, "")
    name = user.decode("utf-8", "surrogateescape")
    is_known = name.isascii() and len(name) <= LONGEST_NAME
    is_one = is_known and f"\0{name}\0" not in several and not several.startswith(_ANONYMOUS)
    if rights == UNREADABLE_RIGHTS or is_one:
        return rights, False
    return f"{rights} {known.get(PLACE, '')}", True


def _put_together(*rights: str) -> str:
    return digest([each.encode() for each in rights]).hex()
