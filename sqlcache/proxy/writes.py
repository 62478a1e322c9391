"""A session's writes, so that no one is given from the cache what they make outdated.

A write's tags are fenced before it is sent, and bumped after MySQL answered and before the client
hears of it. What a transaction writes is gathered, and its COMMIT is the write.
"""

import asyncio

from sqlcache.cache.engine import Engine
from sqlcache.cache.fences import Fence
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import WriteRefused
from sqlcache.mysql.constants import Status
from sqlcache.mysql.packets import End
from sqlcache.mysql.response import ResponseTracker
from sqlcache.proxy.commands import Meaning
from sqlcache.proxy.meanings import under_the_catalog
from sqlcache.proxy.planner import NOTHING, Planner, WriteSet
from sqlcache.proxy.state import SessionState


class Writes:
    """Those of one session: the one in flight, and what its open transaction wrote."""

    def __init__(self, engine: Engine, planner: Planner) -> None:
        self._engine = engine
        self._planner = planner
        self._fence: Fence | None = None
        self._fenced = NOTHING
        self._fenced_tags: frozenset[Tag] = frozenset()
        self._held_back = NOTHING  # by the open transaction
        self.under_way = False
        """From before the fence is raised to the write's end."""

    async def raise_fence(self, meaning: Meaning, state: SessionState) -> Meaning:
        """Fences what a command may make visible. Returns what it means by the catalog of now.

        Raises: WriteRefused, and then the command is not to be sent.
        """
        visible = self._made_visible(meaning, state)
        if not visible:
            meaning = await self._held_back_for_sure(meaning, state)
            visible = self._made_visible(meaning, state)
        if not visible:
            return meaning
        self.under_way = True
        try:
            tags = self._planner.tags(visible)
            self._fence = await self._engine.fence(tags, self._planner.definitions(visible))
            if await self._planner.catch_up(self._fence.observed):
                meaning = under_the_catalog(meaning, self._planner, state)
                visible |= self._made_visible(meaning, state)
                if missed := self._planner.tags(visible) - tags:
                    await self._fence.extend(missed)
                    tags |= missed
            await self._fence.renew()
            self._fenced, self._fenced_tags = visible, tags
        except WriteRefused:
            self._end()
            raise
        return meaning

    async def _held_back_for_sure(self, meaning: Meaning, state: SessionState) -> Meaning:
        """What a command that its transaction is thought to hold back means by the catalog of now:
        through another proxy its tables may have got an engine that does not roll back, or
        triggers. Those it has written to before cannot change: the server has them locked."""
        if meaning.writes.tables <= self._held_back.tables and not meaning.writes.defined_in:
            return meaning
        definitions = self._planner.definitions(meaning.writes)
        if await self._planner.catch_up(await self._engine.versions(definitions)):
            return under_the_catalog(meaning, self._planner, state)
        return meaning

    def _made_visible(self, meaning: Meaning, state: SessionState) -> WriteSet:
        """All of its own writes unless a transaction holds them back, and the transaction's when it
        may end it."""
        if meaning.may_commit:
            return meaning.writes | self._held_back
        # What stands behind a ROLLBACK, in the same text, no transaction holds back.
        if meaning.rolls_back or state.transaction_unsure or not state.in_transaction:
            return meaning.writes
        return self._planner.untransactional(meaning.writes)

    async def publish(self, tracker: ResponseTracker, meaning: Meaning) -> None:
        """Bumps what the command's statements that have ended wrote."""
        if self._fence is not None:
            if not tracker.done:
                await self._fence.publish()
                return
            await self._lift(self._fence, meaning)
            self._end()
        elif tracker.done and not meaning.rolls_back and _ended_transaction(tracker.ends[-1]):
            # No statement we know of ended it, and yet it is over: late is better than never.
            await self._engine.bump(self._planner.tags(self._held_back | meaning.writes))
        if meaning.redefines:
            await self._planner.refresh()

    async def withdraw(self) -> None:
        """The server refused the command unread: nothing was written."""
        if self._fence is not None:
            await self._fence.undo()
            self._end()

    async def _lift(self, fence: Fence, meaning: Meaning) -> None:
        """Ends the write. While it waited for its tables others may have given them triggers or
        foreign keys: then it wrote more than was fenced."""
        if meaning.redefines or self._fenced.everything:
            await fence.lift()
            return
        definitions = self._planner.definitions(self._fenced)
        _, now = await asyncio.gather(fence.lift(), self._engine.versions(definitions))
        if any(fence.observed.get(tag) != version for tag, version in now.items()):
            await self._planner.catch_up(now)
            await self._engine.bump(self._missed())

    def _missed(self) -> frozenset[Tag]:
        """What the write may have changed that is not fenced, by the catalog of now: everything if
        routines ran, which may be others than it was known by."""
        if self._fenced.defined_in:
            return frozenset({ROOT})
        return self._planner.tags(self._fenced) - self._fenced_tags

    def took_effect(self, meaning: Meaning, tracker: ResponseTracker) -> None:
        """The command was answered: gathers what it wrote while the transaction is open."""
        if tracker.ends and _ended_transaction(tracker.ends[-1]):
            self._held_back = NOTHING
        elif meaning.commits and not tracker.failed:
            self._held_back = meaning.writes
        else:  # also where it might have committed: the transaction is open, perhaps still
            self._held_back |= meaning.writes

    def forget(self) -> None:
        """The session begins anew: the server rolled its transaction back."""
        self._held_back = NOTHING

    def abandon(self) -> None:
        """The session ends, amid a write or not."""
        if self._fence is not None:
            self._fence.abandon()

    def _end(self) -> None:
        self._fence = None
        self.under_way = False


def _ended_transaction(end: End) -> bool:
    return end.status is not None and not end.status & Status.IN_TRANS
