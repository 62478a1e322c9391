"""The command in flight on the straight path, and what becomes of it."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlcache.cache.outcomes import Outcome
from sqlcache.mysql.connection import Channel
from sqlcache.proxy.straight.inflight import HandedOver, InFlight, Stage


class Course:
    """See above: one at a time is in flight. It ends by being `done`, or handed over to the long
    way, or in that its session fails."""

    __slots__ = ("_client", "_upstream", "awaited", "closed", "failure", "handed_over", "now")

    def __init__(self, client: Channel, upstream: Channel) -> None:
        self._client = client
        self._upstream = upstream
        self.now: InFlight | None = None
        self.awaited = False
        """Whether its session waits for it to be over."""
        self.handed_over: HandedOver | None = None
        """A command that the long way is to go on with; it sets this to None."""
        self.failure: Exception | None = None
        """What a callback raised: the session is to end."""
        self.closed = False

    @property
    def awaits_mysql(self) -> bool:
        """Whether a command was sent to MySQL from here, and has not been answered."""
        return self._upstream.intercept is not None

    def hand_over(self, stage: Stage, now: InFlight, outcome: Outcome | None = None) -> None:
        """The long way is to go on with it."""
        self.handed_over = HandedOver(stage, now, outcome)
        self.now = None
        self._client.intercept = None  # or one that comes now would be answered first
        self._client.wake()

    def give_up(self) -> None:
        """Hands over the command in flight, which was sent: its answer takes the long way."""
        assert self.now is not None
        self._upstream.intercept = None
        self.hand_over(Stage.SENT, self.now)

    def done(self) -> None:
        """It was answered."""
        self.now = None
        if self._client.has_some or self.awaited or self._client.closed or self._upstream.closed:
            self._client.wake()

    def fail(self, error: Exception) -> None:
        """Nothing more is served here."""
        self.failure = error
        self._client.intercept = self._upstream.intercept = None
        self._client.wake()

    def close(self) -> None:
        """The session ends, whatever is in flight."""
        self.closed = True
        last = self.now if self.handed_over is None else self.handed_over.command
        if last is not None and last.lease is not None:
            last.lease.release_soon()
        if last is not None and last.copy is not None:
            last.copy.give_back()


class _OnCourse(Protocol):
    @property
    def course(self) -> Course: ...


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=_OnCourse)
_Does = Callable[Concatenate[S, P], R]


def callback(when_it_raises: R) -> Callable[[_Does[S, P, R]], _Does[S, P, R]]:
    """For what is called by those who serve other sessions, too: its trouble is its session's.
    Those that every hit takes do so themselves, which costs nothing."""

    def guarded(does: _Does[S, P, R]) -> _Does[S, P, R]:
        @wraps(does)
        def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return does(self, *args, **kwargs)
            except Exception as error:
                self.course.fail(error)
                return when_it_raises

        return called

    return guarded
