"""Values of cached functions among the engine's entries: found, and kept, like answers of MySQL.

A value hangs on what its body read, which is known only after the body ran. So there are two
entries for one call:

- the *index*: on what the last run hung, and how long what it read may live. It hangs on the
  root alone, and is no more than a hint.
- the *value*, under a key that its tags and pins are a part of. So whichever value is found under
  those that an index names was stored with these very ones, and their versions are compared in
  full: an outdated index costs a run and can never bring an outdated value.

A value is stored under the versions that all of it had before the queries ran that read it. Some of
them were seen before the body began (with the lease), the others when its queries were looked up.
Where one is missing, or was seen to be two, the value is returned and not stored.

What pins more than is worth to be asked for hangs on the whole of these tables, under the versions
that these had in the very look-ups of what pinned them.

Each value hangs on one more tag, by which `invalidate` forgets it; those of one function share
a thousand of these.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from sqlcache.api.collect import ELSEWHERE, Collected, Part, parts_of, split
from sqlcache.api.hangs import Hang, hang_on, pins_too_much, read_hang
from sqlcache.cache import entry
from sqlcache.cache.bounded import Bounded
from sqlcache.cache.engine import Engine
from sqlcache.cache.keys import digest
from sqlcache.cache.leases import Lease
from sqlcache.cache.outcomes import Bypass, Hit, Miss, Outcome, Outdated
from sqlcache.cache.reads import Freshness, Read
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import UsageError
from sqlcache.metrics import Metrics
from sqlcache.plan.planner import Planner
from sqlcache.sql.names import TableName, TableRef

log = logging.getLogger(__name__)

_INDEX_TTL_S: Final = 7 * 86_400
_FORESEEN_BYTES: Final = 50_000_000
_FORESEEN_EACH_BYTES, _PART_BYTES = 800, 400
_OWN_TAGS: Final = 1_024

AN_ARGUMENT: Final = "an argument"
"""As what changed amid a run: others have theirs as it was."""


class Call(NamedTuple):
    """One call of a cached function: all that decides its value but what it reads."""

    name: str
    key: bytes
    arguments: bytes
    captured: bytes
    schema: str | None
    ttl_s: int | None
    stale_while_revalidate_s: float

    @property
    def own_tag(self) -> Tag:
        """By which this value is forgotten, and a thousandth of the function's others."""
        return own_tag(self.name, self.arguments, self.captured)


def own_tag(name: str, arguments: bytes, captured: bytes) -> Tag:
    """See `Call.own_tag`. It is the same under all accounts and settings of sessions, and is known
    where those are not."""
    number = int.from_bytes(arguments[:4], "little") ^ int.from_bytes(captured[:4], "little")
    return Tag("", f"{name}#{number % _OWN_TAGS}")


class Found:
    """A value's bytes; `read` is what it hangs on, `basis` that of one found stored."""

    __slots__ = ("_basis", "_read", "data")

    def __init__(
        self, data: bytes, read: Collected | None = None, basis: tuple[Read, Hit] | None = None
    ) -> None:
        self.data = data
        self._read = read
        self._basis = basis

    @property
    def of_caller(self) -> bool:
        """Whether nobody is to have it but who ran the function for it."""
        read = self._read
        return read is not None and (bool(read.of_callers) or read.changed == AN_ARGUMENT)

    @property
    def read(self) -> Collected:
        """What it hangs on; most callers never ask."""
        if self._read is None:
            self._read = Collected("")
            if self._basis is not None:
                read, hit = self._basis
                self._read.read_on(read.basis_of(hit), usual_ttl_s=None)
        return self._read

    @property
    def stored_as(self) -> Read | None:
        """As what it was found stored; None for one that was run."""
        return None if self._basis is None else self._basis[0]


class Unstorable(Exception):
    """Why a value was not stored; "" where it may well be the next time."""


Run = Callable[[Collected], Awaitable[bytes]]


class ValueStore:
    """The values of one cache, of which none is stored that is longer than `max_value_bytes`."""

    def __init__(
        self,
        engine: Engine,
        planner: Planner,
        metrics: Metrics,
        max_value_bytes: int,
        place: object,
    ) -> None:
        """`place`: see `Collected`."""
        self._engine = engine
        self._place = place
        self._max_value_bytes = max_value_bytes
        self._planner = planner
        self._metrics = metrics
        self._foreseen: Bounded[bytes, Read] = Bounded(_FORESEEN_BYTES)
        self._early: dict[bytes, Miss] = {}  # for whoever is to run a call again before its time
        self._complained: set[tuple[str, str]] = set()

    # Finding.

    async def find(
        self, call: Call, *, running: bool = False, to_run: bool = False
    ) -> Found | None:
        """The value, if it is stored and current. Runs nothing and waits for no one.

        `running`: someone in this process runs the function for it, so the last value will do if
        the call allows that. `to_run`: where there is none, `find_or_run` follows, and then
        `is_over`.
        """
        read = self._foreseen.get(call.key)
        if read is None:
            index = await self._engine.look(self._index_read(call))
            read = self._foresee(call, index) if isinstance(index, Hit) else None
        if read is None:
            return None
        outcome = await self._engine.look(read)
        if isinstance(outcome, Miss):
            if outcome.early and to_run:
                self._early[call.key] = outcome
            allowed_s = call.stale_while_revalidate_s
            may_be_old = running and bool(allowed_s) and outcome.age_s <= allowed_s
            previous = outcome.previous
            if (
                may_be_old
                and previous is not None
                and read.tags.may_stand_in(previous, outcome.versions)
            ):
                self._metrics.stale_serves += 1
                outcome = Hit(previous, len(outcome.versions), tags=read.tags)
        return self._found(read, outcome)

    async def include(self, outer: Collected, found: Found) -> None:
        """The value became a part of another, which lives no longer than this still does."""
        if outer.place != self._place:
            outer.cannot_follow(ELSEWHERE)
            return
        if found.stored_as is not None:
            outer.ends_within(await self._engine.left_s(found.stored_as))
        outer.include(found.read)

    def is_over(self, call: Call) -> None:
        """What was found out for a run of the call is of no more use."""
        self._early.pop(call.key, None)

    def _found(self, read: Read, outcome: Outcome | Lease) -> Found | None:
        if not isinstance(outcome, Hit):
            return None
        data = entry.packets_for(outcome.value, outcome.versions_bytes, 0)
        if data is None:
            return None
        self._metrics.function_hits += 1
        return Found(data, basis=(read, outcome))

    def _foresee(self, call: Call, index: Hit) -> Read | None:
        data = entry.packets_for(index.value, index.versions_bytes, 0)
        try:
            return None if data is None else self._remember(call, *_read_index(data))
        except ValueError:
            return None

    def _remember(self, call: Call, hang: Hang, ttl_s: int | None) -> Read:
        read = self._value_read(call, hang, ttl_s)
        parts = len(read.tags.requests) - len(read.tags.tags) if hang.pins else 0
        self._foreseen.put(call.key, read, _FORESEEN_EACH_BYTES + _PART_BYTES * parts)
        return read

    # Finding, or running.

    async def find_or_run(self, call: Call, tables: Iterable[str], run: Run) -> Found:
        """The value: stored and current, or from a run now, which is then stored if it can be.

        `tables` it hangs on whatever it reads; with some given, reads that cannot be followed are
        the app's affair.
        """
        collected = Collected(call.name, place=self._place)
        leases: list[Lease] = []
        try:
            read = await self._foreseen_read(call, leases)
            if read is not None:
                got = await self._obtain(read, self._early.pop(call.key, None))
                if (found := self._found(read, got)) is not None:
                    return found
                if isinstance(got, Lease):
                    leases.append(got)
            explicit = await self._tags_of(tables, call.schema)
            return await self._run(call, explicit, run, collected, read, leases)
        finally:
            for lease in leases:
                await asyncio.shield(lease.release())

    async def run_alone(self, call: Call, run: Run) -> Found:
        """The value of a run that is its caller's alone: it is neither looked for nor stored."""
        collected = Collected(call.name, place=self._place)
        self._metrics.function_runs += 1
        return Found(await run(collected), collected)

    async def _tags_of(self, tables: Iterable[str], schema: str | None) -> tuple[Tag, ...]:
        """Those of the tables and views that were given, by the definitions of now."""
        planner, names = self._planner, named(self._planner, tables, schema)
        if not names:
            return ()
        await planner.confirmations.follow(planner.tags_of(names))
        await planner.keeper.know(names)
        return planner.tags_of(names)

    async def _foreseen_read(self, call: Call, leases: list[Lease]) -> Read | None:
        """What the value will hang on, most likely; where no one knows, the lease of the index,
        which makes this the only run anywhere."""
        known = self._foreseen.get(call.key)
        if known is not None:
            return known
        got = await self._obtain(self._index_read(call))
        if isinstance(got, Lease):
            leases.append(got)
        return self._foresee(call, got) if isinstance(got, Hit) else None

    async def _obtain(
        self, read: Read, first: Outcome | None = None
    ) -> Hit | Lease | Bypass | Outdated:
        got = await self._engine.obtain(read, first)
        if isinstance(got, Outdated):
            await self._planner.confirmations.follow(read.tags.tags)
            got = await self._engine.obtain(read)
        return got

    async def _run(
        self,
        call: Call,
        explicit: tuple[Tag, ...],
        run: Run,
        collected: Collected,
        read: Read | None,
        leases: list[Lease],
    ) -> Found:
        lease = leases[-1] if leases else None
        if lease is not None:
            await self._capture(collected, call, explicit, read, lease)
        self._metrics.function_runs += 1
        data = await run(collected)
        read_nothing = not collected.used
        collected.hang_on({call.own_tag, *explicit}, ttl_s=call.ttl_s)
        try:
            if collected.changed:
                self._complain(call, f"{collected.changed} changed while it ran")
                raise Unstorable("")
            if lease is None:
                raise Unstorable("")
            if collected.unfollowed_now:
                raise Unstorable("")
            if collected.unfollowed and not explicit:
                why = ", ".join(sorted(collected.unfollowed))
                raise Unstorable(f"a statement in it is {why}, and no tags= are given")
            if read_nothing and not explicit:
                raise Unstorable("it read nothing through the cache, and no tags= are given")
            await self._keep(call, collected, data, read)
        except Unstorable as why:
            self._metrics.function_declines += 1
            self._complain(call, str(why))
            if str(why):  # it will be so again: no one is to wait for it
                for each in leases:
                    await each.decline(lasting=False)
                leases.clear()
        return Found(data, collected)

    async def _capture(
        self,
        collected: Collected,
        call: Call,
        explicit: tuple[Tag, ...],
        read: Read | None,
        lease: Lease,
    ) -> None:
        """The versions that can be known before the body begins."""
        if read is not None:
            parts, versions = parts_of(read.tags), split(lease.versions)
            if len(parts) == len(versions):
                collected.capture(parts, versions)
        # The copies on all nodes: which of them matter is known when the tables are.
        schemas = {Tag(call.schema)} if call.schema else set()
        known = await self._engine.versions({ROOT, call.own_tag, *explicit, *schemas})
        present = {tag: version for tag, version in known.items() if version is not None}
        collected.capture(present, present.values())
        led_by = {tag.schema for tag in explicit}
        told_by = {tag: version for tag, version in known.items() if tag.schema in led_by}
        if not self._planner.confirmations.goes_by(told_by):
            collected.torn = True  # what was given may lead elsewhere by now

    # Keeping.

    async def _keep(
        self, call: Call, collected: Collected, data: bytes, foreseen: Read | None
    ) -> None:
        """Stores the value, and what it hangs on. Raises: Unstorable."""
        if len(data) > self._max_value_bytes:
            raise Unstorable("it is longer than cache.max_entry_bytes")
        if collected.torn:
            raise Unstorable("")
        used, captured = collected.used, collected.captured
        if pins_too_much(used):
            used, captured = _by_tables(collected)
        hang = hang_on(used)
        read = self._remember(call, hang, collected.ttl_s)
        same = foreseen is not None and foreseen.key == read.key
        versions = [captured.get(part, b"") for part in parts_of(read.tags)]
        if b"" not in versions:
            stored = _entry(b"".join(versions), data)
            await self._engine.put(read, b"".join(versions), stored, ttl_s=_left_s(collected))
        if not same:
            await self._keep_index(call, hang, collected)
        if b"" in versions:
            raise Unstorable("")

    async def _keep_index(self, call: Call, hang: Hang, collected: Collected) -> None:
        index = self._index_read(call)
        versions = b"".join(collected.captured.get(tag, b"") for tag in index.tags.tags)
        await self._engine.put(
            index, versions, _entry(versions, _write_index(hang, collected.ttl_s))
        )

    def _complain(self, call: Call, why: str) -> None:
        """Says once why values of a function are never stored."""
        if why and (call.name, why) not in self._complained:
            self._complained.add((call.name, why))
            log.warning('value not stored function=%s reason="%s"', call.name, why)

    # Reads of the engine.

    def _index_read(self, call: Call) -> Read:
        return self._engine.read(
            b"index",
            call.key,
            (ROOT,),
            f"tags of {call.name}()".encode(),
            Freshness(_INDEX_TTL_S),
        )

    def _value_read(self, call: Call, hang: Hang, ttl_s: int | None) -> Read:
        limits = [each for each in (call.ttl_s, ttl_s) if each is not None]
        return self._engine.read(
            b"value",
            digest((call.key, hang.written())),
            hang.tags,
            f"{call.name}()".encode(),
            Freshness(
                min(limits, default=self._engine.limits.ttl_s),
                stale_while_revalidate_s=call.stale_while_revalidate_s,
            ),
            pins=hang.pins,
        )


def named(planner: Planner, tables: Iterable[str], schema: str | None) -> frozenset[TableName]:
    """Tables as apps name them, `product` or `shop.product`.

    Raises: UsageError where one has no schema, or the catalog is not known.
    """
    refs = []
    for table in tables:
        its_schema, _, name = table.rpartition(".")
        refs.append(TableRef(its_schema or None, name))
    try:
        return planner.names(refs, schema)
    except LookupError as error:
        raise UsageError(f"{', '.join(tables)}: {error}") from None


def _entry(versions: bytes, data: bytes) -> bytes:
    return entry.encode(versions, 0, (), data)


def _left_s(collected: Collected) -> int | None:
    """How long a value of that may still live; None where its own time alone counts. Raises:
    Unstorable."""
    if collected.ends_at is None:
        return None
    left_s = collected.ends_at - asyncio.get_running_loop().time()
    if left_s <= 0:
        raise Unstorable("")
    return math.ceil(left_s)


def _by_tables(collected: Collected) -> tuple[set[Tag | Part], dict[Tag | Part, bytes]]:
    """What was used, and captured, where the value is to hang on whole tables. Raises:
    Unstorable."""
    used, captured = set(collected.used), dict(collected.captured)
    for part in collected.used:
        if isinstance(part, Part):
            used.discard(part)
            used.add(part.table)
            version = collected.instead[part.table]
            if captured.setdefault(part.table, version) != version:
                raise Unstorable("")
    return used, captured


def _write_index(hang: Hang, ttl_s: int | None) -> bytes:
    """How long the value may live at most, and on what it hangs."""
    return b"%s\n%s" % (b"" if ttl_s is None else b"%d" % ttl_s, hang.written())


def _read_index(data: bytes) -> tuple[Hang, int | None]:
    """Raises: ValueError."""
    ttl_s, *lines = data.decode().split("\n")
    return read_hang(lines), int(ttl_s) if ttl_s else None
