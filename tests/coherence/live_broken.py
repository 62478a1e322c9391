"""sqlcache with a bug in its protocol: a live run that does not find it proves nothing.

python -m tests.coherence.live_broken BUG sqlcache serve --listen …
python -m tests.coherence.live_broken BUG tests.coherence.live_library PORT …
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from sqlcache import cli
from sqlcache.api.collect import Collected
from sqlcache.api.flights import Flights, Run
from sqlcache.api.store import Call, ValueStore
from sqlcache.binlog.change import Change
from sqlcache.binlog.effects import Effects
from sqlcache.binlog.transactions import Transactions
from sqlcache.cache import kept_open, log_records, tag_checks, tag_logs
from sqlcache.cache.fence import Fence, Told
from sqlcache.cache.fences import Fences
from sqlcache.cache.leases import Lease
from sqlcache.cache.log_records import TagState
from sqlcache.cache.marks import NO_MARKS, Marks
from sqlcache.cache.reads import Read
from sqlcache.cache.shared_fences import SharedFences
from sqlcache.cache.tags import Tag
from sqlcache.cache.windows import Windows
from sqlcache.memcache.health import Health
from sqlcache.mysql.response import ResponseTracker
from sqlcache.plan.commands import Meaning
from sqlcache.plan.plans import Pass
from sqlcache.plan.state import SessionState
from sqlcache.proxy.login import LoginRelay
from sqlcache.proxy.longway.way import LongWay
from sqlcache.proxy.own_transaction import OwnTransaction
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.writes import Writes
from tests.coherence import live_library

_PAUSE_S = 0.02
_VERSIONS = (b"version1", b"version2")


def _mark_nothing(fence: bytes, beat: bytes) -> bytes:
    """A write goes to MySQL unannounced."""
    return log_records.undo_record(fence)


def _undo(fence: bytes, version: bytes) -> bytes:
    """The fence goes, and the version stays."""
    return log_records.undo_record(fence)


async def _bump_after_ok(self: Fences, fence: Fence) -> None:
    """The fence goes, and the client has its OK before the version is new."""
    await _right_undo(self, fence)
    self._tasks.spawn(self.bump(fence.tags))


def _bump_after_ok_soon(self: SharedFences, fence: Fence, marks: Marks, done: Told) -> None:
    """The same in callbacks."""

    async def lift() -> None:
        await _bump_after_ok(self._fences, fence)
        done(marks.confirmed)

    self._fences._tasks.spawn(lift())


@contextmanager
def _bumping_after_ok() -> Iterator[None]:
    with (
        patch.object(Fences, "lift", _bump_after_ok),
        patch.object(SharedFences, "lift_soon", _bump_after_ok_soon),
    ):
        yield


def _see_no_fences(reply: Any) -> TagState:
    """Readers believe a fenced tag."""
    return TagState(_right_state(reply).version, {})


def _lift_and_reuse(fence: bytes, version: bytes) -> bytes:
    """A version comes back."""
    return _right_record(fence, secrets.choice(_VERSIONS))


def _lift_all(log: bytes) -> TagState:
    """The end of one write lifts the marks of all."""
    state = _right_log(log)
    return state if log[-17:-16] != b"X" else TagState(state.version, {})


async def _fill_under_present_versions(self: Lease, entry: bytes) -> None:
    """The versions are read after the query, not before it; a moment makes it show."""
    read = self.read
    await asyncio.sleep(_PAUSE_S)
    replies = await self._leases._cluster.ask(read.tags.requests)
    states = [_right_state(reply) for reply in replies if reply is not None]
    present = b"".join(state.version for state in states if state.version is not None)
    if len(present) == len(self.versions):
        entry, self.versions = present + entry[len(present) :], present
    await _right_fill(self, entry)


def _fill_under_present_versions_soon(self: Lease, entry: bytes) -> None:
    """The same for who does not wait for it."""
    self._leases.tasks.spawn(_fill_under_present_versions(self, entry))


class _WritesUntold(Writes):
    """Of writes that are neither fenced nor bumped."""

    async def raise_fence(self, meaning: Meaning, state: SessionState) -> Meaning:
        return meaning

    async def publish(self, tracker: ResponseTracker, meaning: Meaning) -> None:
        pass

    def marks(self, plan: Pass, *, in_transaction: bool) -> Marks:
        return NO_MARKS


def _tell_nobody(self: LongWay, shared: SessionParts, logins: LoginRelay) -> None:
    """What an app writes is neither fenced nor bumped; what a proxy's client writes is."""
    _right_way(self, shared, logins)
    if shared.embedded:
        self._writes.__class__ = _WritesUntold


def _fail_unseen(self: OwnTransaction, meaning: Meaning, failed: bool, *next_set: Any) -> None:
    """A transaction's first read that fails is thought to have opened no snapshot."""
    _right_follow(self, meaning, failed and meaning.may_commit, *next_set)


async def _board_any(
    self: Flights[Any], key: bytes, run: Run[Any], look: Callable[[], Awaitable[Any]]
) -> Any:
    """A call takes the value of a run that began before it; a moment makes it show."""

    async def run_longer() -> Any:
        value = await run()
        await asyncio.sleep(5 * _PAUSE_S)
        return value

    return await self._board(key, self._flights.get(key) or self._begin(key, run_longer))


async def _keep_under_present_versions(
    self: ValueStore, call: Call, collected: Collected, data: bytes, foreseen: Read | None
) -> None:
    """The versions of a value are read after its function ran; a moment makes it show."""
    await asyncio.sleep(_PAUSE_S)
    tags = (part for part in collected.captured if isinstance(part, Tag))
    read = {Tag(tag.schema, tag.table) for tag in tags}
    collected.captured.update({t: v for t, v in (await self._engine.versions(read)).items() if v})
    collected.torn = False
    await _right_keep(self, call, collected, data, foreseen)


async def _publish_nothing(self: Effects, changes: Iterable[Change]) -> int:
    """The log is read, and nobody told."""
    return 0


def _say_nothing(self: Transactions, *said: Any) -> None:
    """Statements in the log are passed over."""


def _hear_no_commit(self: Transactions, said: re.Match[bytes]) -> Change | None:
    """What is said of branches is passed over."""
    return None


def _trust_always(self: Health, now: float) -> bool:
    """That a node was silent makes no difference."""
    return True


_right_undo = Fences.undo
_right_fill = Lease.fill
_right_state = tag_logs.state_of
_right_record = log_records.lift_record
_right_log = log_records.read_log
_right_way = LongWay.__init__
_right_keep = ValueStore._keep
_right_follow = OwnTransaction.follow

NO_BUG = "none"

BUGS: dict[str, Callable[[], Any]] = {
    "no-fence": lambda: patch("sqlcache.cache.fence.fence_record", _mark_nothing),
    "no-bump": lambda: patch("sqlcache.cache.fence.lift_record", _undo),
    "late-bump": _bumping_after_ok,
    "fences-unseen": lambda: patch.object(tag_checks, "state_of", _see_no_fences),
    "versions-reused": lambda: patch("sqlcache.cache.fence.lift_record", _lift_and_reuse),
    "one-lifts-all": lambda: patch.object(tag_logs, "read_log", _lift_all),
    "versions-read-late": lambda: patch.multiple(
        Lease, fill=_fill_under_present_versions, fill_soon=_fill_under_present_versions_soon
    ),
}
"""Found without any fault."""

BUGS_OF_LEASES: dict[str, Callable[[], Any]] = {
    "no-write-waits": lambda: patch.object(Windows, "all_over_at", lambda _: 0.0),
}
"""Likewise, with long read leases of doors that promise at once."""

BUGS_OF_TRANSACTIONS: dict[str, Callable[[], Any]] = {
    "failures-unseen": lambda: patch.object(OwnTransaction, "follow", _fail_unseen),
}
"""Likewise, where there are many of these."""

BUGS_OF_THE_LIBRARY: dict[str, Callable[[], Any]] = {
    "app-tells-nobody": lambda: patch.object(LongWay, "__init__", _tell_nobody),
    "any-flight-boarded": lambda: patch.object(Flights, "share", _board_any),
    "values-versions-read-late": lambda: patch.object(
        ValueStore, "_keep", _keep_under_present_versions
    ),
}
"""Likewise; a proxy is none the worse for them."""

BUGS_OF_THE_DOOR: dict[str, Callable[[], Any]] = {
    "log-not-told": lambda: patch.object(Effects, "publish", _publish_nothing),
    "statements-unread": lambda: patch.object(Transactions, "_say", _say_nothing),
    "prepared-unheard": lambda: patch.object(Transactions, "_xa", _hear_no_commit),
}
"""Likewise, where some write around sqlcache."""

BUGS_UNDER_FAULTS: dict[str, Callable[[], Any]] = {
    "trust-always": lambda: patch.object(Health, "trusts", _trust_always),
}
"""Found when nodes go silent, under `availability`."""


def main(arguments: Sequence[str]) -> int:
    """Runs a door's program with the bug that the first argument names, or NO_BUG. It gives
    promises at once, also for tables that are written all the time."""
    bug, program, *options = arguments
    known = BUGS | BUGS_OF_LEASES | BUGS_OF_TRANSACTIONS | BUGS_OF_THE_LIBRARY | BUGS_UNDER_FAULTS
    known |= BUGS_OF_THE_DOOR
    known[NO_BUG] = nullcontext
    with known[bug](), patch.multiple(kept_open, _QUIET_S=0.0, _OFTEN=1):
        return cli.main(options) if program == "sqlcache" else live_library.main(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
