"""Whether what the keeper knows of the definitions is so now, by their tags; what is not is read.

Reads mostly need not ask: the engine compares the tags' versions with the keeper's at each look-up.
Who writes asks here, for what that reaches, and who goes by rights or settings, for these.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum

from sqlcache.cache.engine import Engine
from sqlcache.cache.fence import Fence
from sqlcache.cache.log_records import TagState
from sqlcache.cache.marks import NO_MARKS, Logs, Marks
from sqlcache.cache.tag_logs import log_state
from sqlcache.cache.tags import ELSEWHERE, ROOT, Tag
from sqlcache.callbacks import told
from sqlcache.plan.keeper import Keeper
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.facts import EVERYWHERE, Scope


class Known(Enum):
    """How much the catalog at hand can be relied on."""

    CONFIRMED = "it was current"
    READ_AGAIN = "it was not, and has been read since"
    UNKNOWN = "it was not, or nobody knows, and could not be read"


class Confirmations:
    """Confirms that the catalog at hand is that of now, or has the keeper read it again."""

    def __init__(self, engine: Engine, keeper: Keeper) -> None:
        self._engine = engine
        self._keeper = keeper
        self._rights = NO_MARKS
        self._asking: list[Callable[[bool], None]] = []

    @property
    def rights(self) -> Marks:
        """Observes whether rights and globals are as they were when the catalog was read."""
        if not self._rights.any or self._rights.edition != self._keeper.edition:
            self._rights = self._engine.marks((), (ROOT,), self._keeper.edition)
        return self._rights

    def knows_rights(self) -> bool:
        """Whether they are known to be so, and nobody need be asked."""
        return self._engine.knows(self.rights)

    async def confirms_rights(self) -> bool:
        """Whether the rights and globals at hand are those of now: other proxies tell by the root
        that they change them. Reads the catalog where they are not; who then asks again may get
        another answer, or not, as where memcached is away, or that reading takes its time."""
        if await told(self._confirm_together):
            return True
        states = await self._engine.states([ROOT])
        for _ in range(2):  # the first may have begun before they changed
            if not any(self._differs(tag, state) for tag, state in states.items()):
                break
            await self._keeper.readings.for_sessions()
        return bool(states) and not any(
            self._differs(tag, state) or state.fences for tag, state in states.items()
        )

    def _confirm_together(self, done: Callable[[bool], None]) -> None:
        """Tells the same of rights, for all who ask in one turn of the event loop by one question
        after that: many log in at once."""
        self._asking.append(done)
        if len(self._asking) == 1:
            asyncio.get_running_loop().call_soon(self._confirm_for_all)

    def _confirm_for_all(self) -> None:
        asking, self._asking = self._asking, []

        def tell(current: bool) -> None:
            for done in asking:
                done(current)

        try:
            self.confirm_soon(self.rights, tell)
        except Exception:  # of which whoever waits would not hear
            tell(False)
            raise

    async def follow(self, tags: Iterable[Tag]) -> None:
        """Reads the definitions that these tags tell of, where they are other ones by now."""
        states = await self._engine.states(tag for tag in tags if tag.defines)
        if (outdated := self._outdated(states)) is not None:
            await self._keeper.readings.of(outdated, lambda: self._outdated(states) is None)

    def goes_by(self, versions: Mapping[Tag, bytes | None]) -> bool:
        """Whether the definitions that the catalog has are those that these tags tell of."""
        known = self._keeper.versions
        return all(known.get(tag) == versions[tag] for tag in versions if tag.defines)

    def _outdated(self, states: Mapping[Tag, TagState]) -> Scope | None:
        other = {tag.schema for tag, state in states.items() if self._differs(tag, state)}
        return (EVERYWHERE if "" in other else Scope(frozenset(other))) if other else None

    def _differs(self, tag: Tag, state: TagState) -> bool:
        return self._keeper.versions.get(tag) != self._keeper.led_to(tag, state.version)

    async def catch_up(
        self, writes: WriteSet, asked: Iterable[Tag], states: Mapping[Tag, TagState]
    ) -> Known:
        """Makes sure that the reach of these writes, by the catalog at hand, is theirs by the
        definitions that the tags, which were `asked`, tell of."""
        keeper = self._keeper
        if keeper.catalog is None or writes.everything:
            return Known.CONFIRMED
        answered = {tag.schema for tag in states}
        if any(tag.schema not in answered for tag in asked):
            return Known.UNKNOWN
        led = await self._led_elsewhere(states)

        def unknown() -> Scope:
            return (self._outdated(states) or Scope()) | Scope(led, keeper.unread_reach(writes))

        scope = unknown()
        if scope == Scope():
            return Known.CONFIRMED
        could = await keeper.readings.of(scope, lambda: unknown() == Scope())
        return Known.READ_AGAIN if could else Known.UNKNOWN

    async def _led_elsewhere(self, states: Mapping[Tag, TagState]) -> frozenset[str]:
        """The schemas in which somebody may just now let a write lead to tables elsewhere.

        Whatever else is defined: until his fence ends nobody is served what is in its schemas, and
        then it is forgotten. So the fence of a root is not looked for.
        """
        fenced = {tag.schema: state for tag, state in states.items() if tag.schema and state.fences}
        if not fenced:
            return frozenset()
        marks = await self._engine.states(Tag(schema, ELSEWHERE) for schema in fenced)
        clear = {
            tag.schema
            for tag, mark in marks.items()
            if mark.fences.keys().isdisjoint(fenced[tag.schema].fences)
        }
        return frozenset(fenced.keys() - clear)

    async def stood_still(
        self,
        writes: WriteSet,
        asked: Collection[Tag],
        since: Mapping[Tag, bytes | None],
        own: Fence | None,
    ) -> bool:
        """Whether the definitions that tell the reach of these writes, as the `asked` tags do, are
        those that the catalog has, and nobody has changed them or is about to, `since` its versions
        were these. `own` is the fence of who asks."""
        if self._keeper.catalog is None or self._keeper.unread_reach(writes):
            return False
        states = await self._engine.states(asked, own)
        answered = {tag.schema for tag in states}
        return all(tag.schema in answered for tag in asked) and all(
            self._keeper.versions.get(tag) == since.get(tag) == state.version
            and not (tag.schema and state.fences)
            for tag, state in states.items()
        )

    async def knows_refusals(self, own: Fence | None) -> bool:
        """Whether a statement that the server says it cannot read has run nothing: no code that
        there is now says so amid its work. `own` is the statement's fence."""
        keeper = self._keeper
        catalog, redefinitions = keeper.catalog, keeper.redefinitions
        if catalog is None or catalog.code.may_feign_errors:
            return False
        states = await self._engine.states_in_turns([ROOT, *map(Tag, catalog.schemas)], own)
        if keeper.catalog is not catalog or keeper.redefinitions != redefinitions:
            return False  # another one was read meanwhile, and it was not by that
        changing = any(state.fences for tag, state in states.items() if tag.schema)
        steady = not keeper.has_unread and not changing
        return bool(states) and steady and self._outdated(states) is None

    def confirms(self, marks: Marks, logs: Logs) -> bool:
        """Whether definitions are, by the logs of their tags, those by which the marks were worked
        out, and nobody is about to change them."""
        if marks.edition != self._keeper.edition:
            return False
        if logs == marks.confirmed:
            return True
        for tag, log in zip(marks.observed, logs, strict=True):
            state = log_state(log)
            if state.fences or state.version is None or self._differs(tag, state):
                return False
        marks.confirmed = logs
        return True

    def confirm_soon(self, marks: Marks, done: Callable[[bool], None]) -> None:
        """Tells the same of what only observes: at once where that is known."""
        self._engine.confirm_soon(
            marks, lambda current: done(current and marks.edition == self._keeper.edition)
        )
