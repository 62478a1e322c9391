"""What sessions do in the model: a read or a write, with the engine's verbs, as the proxy does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sqlcache.cache import entry
from sqlcache.cache.fence import Fence
from sqlcache.cache.leases import Lease
from sqlcache.cache.marks import Logs, Marks
from sqlcache.cache.outcomes import Bypass, Hit, Outdated
from sqlcache.cache.tags import ROOT, Tag
from sqlcache.errors import CacheUnavailable, ConnectionLost, WriteRefused
from tests.coherence import model_rows
from tests.coherence.model_mysql import EVERYTHING, REGISTERS, ROWS, Values, tables_of
from tests.coherence.model_rows import WRITES as ROW_WRITES
from tests.coherence.model_rows import Probe, cover_of

if TYPE_CHECKING:
    from tests.coherence.model_world import Process, World

NARROW = "narrow"
"""The straight path, where a write of rows covers no more than its text says."""
PROBED, ALL_PROBED = "probed", "all probed"
"""The same, and forgets no more than MySQL says that it touches; the other one asks for ids, too,
which is right where MySQL gives none."""

_ASKED = {PROBED: "k", ALL_PROBED: "ik"}

STYLES = ("plain", "undo", "parts", "straight", "denied")
"""A write is sent as one; or is fenced and never sent; or has two parts, and the first is
published, and has its OK, before the second is sent; or goes the straight path, in callbacks while
all goes well; or goes there, and MySQL denies it and has done nothing."""

LATE = "late"
"""A write that is known to be one only when it is over: time may run backwards by it."""


async def read(world: World, query: str, name: str, process: Process) -> None:
    """A read by the session `name`; when MySQL's connection is lost it has no answer."""
    least = world.least(tables_of(query))
    outcome = await process.engine.obtain(world.read_of(process, query))
    try:
        match outcome:
            case Hit():
                world.hits += 1
                world.assess(f"hit {name}", least, values_of(query, outcome))
            case Lease():
                await _fill(world, outcome, query, name, process)
            case Bypass():
                await world.query(process, tables_of(query), name, writes=False)
            case Outdated():
                raise AssertionError("nothing was planned under definitions")
    except ConnectionLost:
        pass
    world.open.discard(name)


async def _fill(world: World, lease: Lease, query: str, name: str, process: Process) -> None:
    try:
        values = await world.query(process, tables_of(query), name, writes=False)
    except ConnectionLost:
        await lease.release()
        return
    if not process.engine.may_keep(lease, values[ROWS]):
        await lease.decline(lasting=False)
        return
    filled = entry.encode(lease.versions, 0, (0,), packets_of(values))
    if world.hits % 2:
        lease.fill_soon(filled)
    else:
        await lease.fill(filled)


async def write(world: World, tables: str, style: str, name: str, process: Process) -> None:
    """A write by the session `name`; what breaks it off ends the session."""
    marks = world.marks_of(process, tables)
    if style == LATE:
        await _write_late(world, tables, name, process)
        return
    try:
        if style in (NARROW, *_ASKED):
            written = [Tag("s", table) for table in model_rows.tables_of(tables)]
            covers = {
                tag: cover_of(tables, tag.table, marks.slots[tag].in_use)
                for tag in written
                if tag.table in model_rows.ROW_TABLES
            }
            asked = {tag for tag in covers if style in _ASKED and tag.table == model_rows.TABLE}
            touches = {tag: cover for tag, cover in covers.items() if cover or tag in asked}
            marks = process.engine.narrowed(marks, touches) if touches else marks
        if style in ("straight", "denied", NARROW, *_ASKED):
            fence = process.engine.join_fence(marks)
            if await _soon(partial(process.engine.fence_soon, fence, marks)) is None:
                await fence.mark(())
        else:
            fence = await process.engine.fence(tags_of(tables))
    except WriteRefused:
        world.note(f"  write {name} is refused")
    else:
        try:
            await _send(world, fence, marks, tables_of(tables), style, name, process)
        except (ConnectionLost, CacheUnavailable):
            fence.abandon()
    world.open.discard(name)


async def _write_late(world: World, tables: str, name: str, process: Process) -> None:
    with contextlib.suppress(ConnectionLost):
        values = await world.query(process, tables_of(tables), name, writes=True)
        await process.engine.bump(tags_of(tables))
        world.acknowledge(name, values)
    world.open.discard(name)


async def _soon(begin: Callable[[Callable[[Logs | None], None]], None]) -> Logs | None:
    """What the callback of a verb is told."""
    told: asyncio.Future[Logs | None] = asyncio.get_running_loop().create_future()

    def tell(logs: Logs | None) -> None:
        if not told.done():  # its process may have been killed
            told.set_result(logs)

    begin(tell)
    return await told


async def _send(
    world: World,
    fence: Fence,
    marks: Marks,
    tables: tuple[str, ...],
    style: str,
    name: str,
    process: Process,
) -> None:
    if style == "undo":
        await fence.undo()
        return
    if style == "denied":
        await world.query(process, tables, name, writes=False)
        await fence.undo()
        return
    if style == "parts":
        values = await world.query(process, tables, name, writes=True)
        await fence.publish()
        world.acknowledge(name, values)
    probes = model_rows.probes_of(tables[0], _ASKED.get(style, "")) if fence.shared else []
    create = asyncio.get_running_loop().create_task
    asked = {probe: create(_ask(world, probe, name, process)) for probe in probes}
    if any(probe.before for probe in probes):
        await asyncio.wait(asked.values())
        if not process.engine.still_stands(fence):
            await fence.mark(())
    values = await world.query(process, tables, name, writes=True)
    if asked:
        await asyncio.wait(asked.values())
        told = {probe: task.result() for probe, task in asked.items()}
        known = {probe: found for probe, found in told.items() if found is not None}
        tag = Tag("s", model_rows.TABLE)
        found = cover_of(tables[0], tag.table, marks.slots[tag].in_use, known)
        process.engine.narrow_further(fence, marks, {tag: found})
    logs = None
    if style in ("straight", NARROW, *_ASKED):
        logs = await _soon(partial(process.engine.lift_soon, fence, marks))
    if logs is None:
        await fence.lift()
    world.acknowledge(name, values)


async def _ask(world: World, probe: Probe, name: str, process: Process) -> set[str] | None:
    """The buckets that a probe finds; None where it is lost."""
    with contextlib.suppress(ConnectionLost):
        return {*await world.query(process, (probe,), name, writes=False)}
    return None


def tags_of(name: str) -> list[Tag]:
    """The tags of a write of this name."""
    if name in ROW_WRITES:
        return [Tag("s", table) for table in model_rows.tables_of(name)]
    return [ROOT] if name == EVERYTHING else [Tag("s", table) for table in tables_of(name)]


def packets_of(values: Values) -> bytes:
    """An answer in which the registers have these values."""
    return b",".join(b"%040d" % values[table] for table in REGISTERS if table in values)


def values_of(query: str, hit: Hit) -> Values:
    """The values in an answer to the query."""
    packets = entry.packets_for(hit.value, hit.versions_bytes, 0)
    assert packets is not None
    return dict(zip(tables_of(query), map(int, packets.split(b",")), strict=True))
