"""Who is let in: how many clients there may be, and what becomes known of those that are not."""

import logging
from typing import Final

from sqlcache.metrics import Metrics
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import CR_CONN_HOST_ERROR, ER_CON_COUNT_ERROR
from sqlcache.mysql.handshake import Login
from sqlcache.process.events import abridged
from sqlcache.process.seats import Seats
from sqlcache.sql import user_names

log = logging.getLogger(__name__)

BROKE_OFF: Final = "broke off"
OTHER: Final = "other"
TIMEOUT: Final = "timeout"
_LONGEST_NAME: Final = 80  # characters of a user's in the log; of an account's MySQL takes 32
_NO_LOGIN: Final = (BROKE_OFF, str(CR_CONN_HOST_ERROR))


class Admission:
    """The limits on clients of one process, which has `seats` in common with others.

    `most_here` is for this process alone; 0 for `most_per_user` means no limit.
    """

    def __init__(
        self, seats: Seats, metrics: Metrics, *, most: int, most_here: int, most_per_user: int
    ) -> None:
        self._seats = seats
        self._metrics = metrics
        self._most = most
        self._most_here = most_here
        self._most_per_user = most_per_user
        metrics.connections_limit = min(seats.share_of(most), most_here)
        self._full = False
        """Whether clients have been refused since there was last room for more."""

    def take(self) -> bool:
        """Whether there is room for one more client; `leave` ends it. A refusal is counted, and
        logged when it is the first of some."""
        if self._seats.own < self._most_here and self._seats.take(self._most):
            self._full = False
            return True
        if not self._full:
            log.warning("clients are refused, too many connections=%d", self._seats.taken)
        self._full = True
        self._metrics.limits_reached["max_connections"] += 1
        self._count(str(ER_CON_COUNT_ERROR))
        return False

    def leave(self) -> None:
        """A client has gone."""
        self._seats.leave()

    @property
    def limits_users(self) -> bool:
        """Whether there is a limit on the sessions of each."""
        return self._most_per_user > 0

    def take_as(self, user: bytes) -> bool:
        """Whether this user may have one more session; `leave_as` ends it."""
        if self._seats.take_as(user, self._most_per_user):
            return True
        self._metrics.limits_reached["max_connections_per_user"] += 1
        return False

    def leave_as(self, user: bytes) -> None:
        """One of this user's sessions has ended, or has another user."""
        self._seats.leave_as(user)

    def failed(self, code: str, client: Channel, user: bytes | None) -> None:
        """A login failed, by MySQL's error `code` or one of the words above. It is counted and
        logged. Only counted is one that ended before it named a user: as a probe's does, or any
        while MySQL is away, of which the log tells elsewhere."""
        self._count(code)
        if code == TIMEOUT:
            self._metrics.limits_reached["login_timeout_s"] += 1
        level = logging.DEBUG if user is None and code in _NO_LOGIN else logging.INFO
        if log.isEnabledFor(level):
            name = abridged((user or b"").decode("utf-8", "replace"), _LONGEST_NAME)
            log.log(level, "login failed client=%s user=%s code=%s", client.address(), name, code)

    def _count(self, code: str) -> None:
        known = code in self._metrics.logins_failed
        self._metrics.logins_failed[code if known else OTHER] += 1


class Seat:
    """The place of one client's sessions among those that its users may have. `admission` None:
    they are not limited."""

    __slots__ = ("_admission", "_client", "_user", "asks")

    def __init__(self, admission: Admission | None, client: Channel) -> None:
        self._admission = admission
        self._client = client
        self._user: bytes | None = None  # whose place it has
        self.asks: Login | None = None
        """That which is under way, if it named a user."""

    def take(self) -> bool:
        """Whether who asks may have one more session; `leave` ends it. One that changes to the user
        it is already needs no other place."""
        if self._admission is None or not self._admission.limits_users or self.asks is None:
            return True
        user = user_names.known_of(self.asks.user, self.asks.collation)
        if user == self._user:
            return True
        if not self._admission.take_as(user):
            return False
        self.leave()
        self._user = user
        return True

    def leave(self) -> None:
        """The session has ended, or goes on as another user's."""
        if self._admission is not None and self._user is not None:
            self._admission.leave_as(self._user)
        self._user = None

    def failed(self, code: str) -> None:
        """The login of who asks failed, see `Admission.failed`."""
        if self._admission is not None:
            user = None if self.asks is None else self.asks.user
            self._admission.failed(code, self._client, user)
