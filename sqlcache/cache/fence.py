"""A write's fence, as it stands in the logs of its tags; see `fences`, which raise and lift it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlcache.cache.log_records import (
    TagState,
    beat_record,
    commit_record,
    fence_record,
    lift_record,
    narrow_fence_record,
    narrow_lift_record,
    undo_record,
    version_record,
)
from sqlcache.cache.marks import Logs
from sqlcache.cache.slots import MOST_BUCKETS, both
from sqlcache.cache.tag_logs import Steps, fresh_id
from sqlcache.cache.tags import Cover, Tag
from sqlcache.memcache.health import Health

if TYPE_CHECKING:
    from sqlcache.cache.fences import Fences
    from sqlcache.cache.marks import Marks
    from sqlcache.memcache.cluster import Request

_MOST_COMMITS = 32  # that one lift names

ANYTHING: Mapping[Tag, Cover] = MappingProxyType({})
"""What a write touches of which no more is known."""

IsOver = Callable[[], Awaitable[bool]]
Told = Callable[[Logs | None], None]


class Fence:
    """A write in flight. Ended by `lift`, `undo` or `abandon`, exactly once.

    Where it has a part in a `shared` one, that stands for it; until its end, or until it is marked,
    for then it stands by itself. Where it `touches` but some of a table's slots in use, see
    `slots`, it covers no more of them, until it is marked once more.
    """

    __slots__ = ("_commits", "_fences", "_id", "_narrow_in", "marked_at", "observed", "over_at",
                 "shared", "steps", "tags", "touches", "unheard", "wrote")  # fmt: skip

    def __init__(
        self,
        fences: "Fences",
        tags: frozenset[Tag],
        now: float,
        shared: "SharedFence | None" = None,
        touches: Mapping[Tag, Cover] = ANYTHING,
    ) -> None:
        self.touches = touches
        self._narrow_in: Set[Tag] = frozenset()
        self._fences = fences
        self._id = b""
        self._commits: list[bytes] = []
        self.tags = tags
        self.shared = shared
        self.wrote = False
        """Whether a write that it has stood for is over: it goes with new versions alone."""
        self.marked_at = now
        """When the last mark or beat that reached all tags was sent, see `Fences.now`."""
        self.over_at = 0.0
        """Until then others may serve what they saw before it stood; on the clock of `windows`."""
        self.unheard = 0
        """How many marks of it were not acknowledged: they may still come."""
        self.observed: dict[Tag, TagState] = {}
        """What the tags to observe were like when the fence went up, this fence apart; a tag whose
        node is away is left out."""
        self.steps: Steps = {}
        """Those that it made when it was lifted."""

    @property
    def id(self) -> bytes:
        """What tells it from all others in the tags' logs."""
        if not self._id:
            self._id = fresh_id()
        return self._id

    def raising(self, tag: Tag) -> bytes:
        """What puts it up in a tag's log."""
        if tag in self.touches:
            return narrow_fence_record(self.id, fresh_id(), self.touches[tag])
        return fence_record(self.id, fresh_id())

    def marking(self, tag: Tag) -> bytes:
        """What says there that it still stands. Where it does not any more, others may have written
        meanwhile, and it covers everything."""
        if tag in self.touches:
            return beat_record(self.id, fresh_id())
        return fence_record(self.id, fresh_id())

    @property
    def _in_logs(self) -> "Fence":
        """The one that stands in the tags' logs: that which it shares with others, if it does."""
        return self if self.shared is None else self.shared.fence

    def committed(self, commits: Iterable[bytes]) -> None:
        """These commits can be seen by all, and it is to be lifted later: the logs then name them,
        the last ones of many."""
        fence = self._in_logs
        fence._commits = [*fence._commits, *commits][-_MOST_COMMITS:]

    @property
    def commits(self) -> tuple[bytes, ...]:
        """Those, so far."""
        return tuple(self._commits)

    @property
    def narrow_in(self) -> Set[Tag]:
        """The tables of which it renews no more of what is told apart than it touches."""
        return self._in_logs._narrow_in

    def narrow(self, tables: Set[Tag]) -> None:
        """Renews no more than that of these tables, of which it covers no more."""
        self._in_logs._narrow_in = tables

    def cover_all(self) -> None:
        """Covers all of its tables from here on, and renews all."""
        self.touches, self._narrow_in = ANYTHING, frozenset()

    def ended(self, commits: Iterable[bytes]) -> None:
        """All its tags have got new versions after these commits, or will when it is lifted, of
        which all of them show that it stands."""
        self._fences.own_commits.end(commits, self.tags)

    def lifting(self) -> bytes:
        """What ends it there, with a new version of everything. Promises have been waited for, if
        nothing puts it up again later."""
        if self.unheard:
            return undo_record(self.id) + version_record(fresh_id()) + self._named()
        return lift_record(self.id, fresh_id()) + self._named()

    def lifting_narrowly(self, tag: Tag) -> bytes:
        """The same where the buckets that it touches are renewed just before."""
        if self.unheard or tag not in self._narrow_in:
            return self.lifting()
        return narrow_lift_record(self.id, fresh_id(), self.touches.get(tag, {})) + self._named()

    def _named(self) -> bytes:
        return b"".join(map(commit_record, self._commits))

    def replace(self, other: "Fence") -> None:
        """Stands in its place from here on."""
        self._id = other.id
        self._commits = other._commits
        self.touches, self._narrow_in = other.touches, other._narrow_in
        self.wrote = other.wrote
        self.over_at = max(self.over_at, other.over_at)
        self.unheard += other.unheard

    async def mark(self, observe: Iterable[Tag]) -> None:
        """Marks the tags, once more perhaps, and observes others in the same round trip. Raises:
        WriteRefused."""
        await self._fences.mark(self, observe)

    async def extend(self, tags: Iterable[Tag]) -> None:
        """Marks more tags."""
        await self._fences.extend(self, tags)

    async def renew(self) -> None:
        """Marks the tags again if they may have lapsed, as when this process was stopped meanwhile.

        To be awaited last before the write is sent. Raises: WriteRefused.
        """
        await self._fences.renew(self)

    async def publish(self) -> None:
        """Part of the write is done, more follows: new versions, and the fence stays.

        Raises: CacheUnavailable like `lift`.
        """
        await self._fences.bump(self.tags, self)

    async def lift(self) -> None:
        """The write is done, or failed in a way that may have written: new versions.

        Raises: CacheUnavailable where they could not be given and no OK may be sent.
        """
        await self._fences.lift(self)

    async def keep(self, tags: Iterable[Tag]) -> None:
        """No other tags than these were written: the others are as they were."""
        await self._fences.keep(self, tags)

    async def undo(self) -> None:
        """The write was never sent: the tags are as they were."""
        await self._fences.undo(self)

    def abandon(self, is_over: IsOver | None = None) -> None:
        """The write's outcome is unknown: the fence stays for its deadline, then is lifted. Or as
        soon as that `is_over`, which may have been carried out, but will not be any more."""
        self._fences.abandon(self, is_over)


class SharedFence:
    """The one `fence` of writes alike that this process has under way, see `shared_fences`."""

    __slots__ = ("ending", "fence", "forgetting", "given", "logs", "looked_at", "members", "nodes",
                 "over", "touched", "waiting")  # fmt: skip

    def __init__(self, fence: Fence, nodes: tuple[Health, ...]) -> None:
        self.fence = fence
        self.nodes = nodes
        """Those that hold its tags."""
        self.looked_at = fence.marked_at
        """When the tags that are observed were asked for last by a question that was answered; on
        the same clock as marks."""
        self.members = 0
        """How many writes it stands for."""
        self.waiting: list[Told] = []
        """Those that wait for it to be raised."""
        self.logs: Logs | None = None
        """What is observed, as it was seen last; None until it stands."""
        self.ending: list[tuple[Fence, Told]] = []
        """The members whose answers have come in this turn of the event loop."""
        self.over = False
        """Nobody may join any more."""
        self.touched: Mapping[Tag, Cover] | None = None
        """What the writes have touched that are over, of the tables of which all of them tell."""
        self.forgetting: tuple[Request, ...] = ()
        """What gives the buckets of that the versions `given`."""
        self.given: tuple[bytes, ...] = ()

    def touches_anything(self) -> None:
        """A write is over of which it is not known what it touched, or that was not heard of."""
        self.touched = {}

    def touches(self, marks: "Marks") -> None:
        """A write with these marks is over."""
        touched = self.touched
        self.touched = (
            marks.touches
            if touched is None
            else {tag: both(touched[tag], marks.touches.get(tag, {})) for tag in touched}
        )
        self.forgetting += marks.forgetting
        self.given += marks.given
        self.over |= len(self.forgetting) >= MOST_BUCKETS // 2
