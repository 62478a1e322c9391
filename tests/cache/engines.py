"""Engines over the embedded store: several engines on one store are several proxies."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from sqlcache.boot_clock import boot_clock
from sqlcache.cache import entry
from sqlcache.cache.engine import Engine, Limits
from sqlcache.cache.fence import Fence
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.leases import Lease
from sqlcache.cache.marks import Logs, Marks
from sqlcache.cache.node_watch import Prover as AnyProver
from sqlcache.cache.node_watch import Verdict
from sqlcache.cache.outcomes import DISTRUSTED, UNREACHABLE, Bypass, Hit
from sqlcache.cache.reads import Freshness, Read
from sqlcache.cache.seals import Seal
from sqlcache.cache.tags import Tag, read_tags
from sqlcache.callbacks import told
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.connection import Done
from sqlcache.memcache.connection import Node as AnyNode
from sqlcache.memcache.health import Health
from sqlcache.memcache.memory import MemoryNode
from sqlcache.metrics import Metrics
from sqlcache.sql.names import TableName

ORDERS = Tag("shop", "orders")
LINES = Tag("shop", "lines")
SHOP = Tag("shop")
KEYSPACE = Keyspace("test")
DEADLINE_S = 60.0
SHORT_DEADLINE_S = 0.3  # of fences that are to lapse: half of it is soon over on a busy host
OUTAGE_S = 0.8
REACH_S = 0.0
_TICK_S = OUTAGE_S / 16
_UNNOTICED_S = 60.0
_SOON_S = 90.0  # many times what a process that was late gives others


class Node(MemoryNode):
    """A store that can be away, and forgets nothing meanwhile."""

    away = False
    requests = 0
    """That it was asked."""

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        self.requests += count
        if self.away:
            asyncio.get_running_loop().call_soon(done, None)
        else:
            super().submit(payload, count, done)


class Counting(Node):
    """Keeps what look-ups ask it for: what names the tag of orders."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[bytes] = []
        self.orders = 0  # requests in these

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        if KEYSPACE.tag("shop", "orders") in payload:
            self.payloads.append(payload)
            self.orders += count
        super().submit(payload, count, done)


class _Trusting(Health):
    """Is not distrusted for a silence that is short, nor given up later because this process was
    late, and differs in nothing else."""

    __slots__ = ()

    @property
    def unnoticed_s(self) -> float:
        """Who joins others gives them as long to say that they watch the node."""
        return super().unnoticed_s if self._greeted else _UNNOTICED_S

    def asked(self, now: float) -> None:
        self._asked_at = now
        super().asked(now)

    def heard(self, asked_at: float, now: float) -> None:
        if now - self._alive_at <= _UNNOTICED_S:
            # Well under the gap: what is now less the gap, rounded, is often longer ago than that.
            self._alive_at = max(self._alive_at, now - self._gap_s / 2)
        super().heard(asked_at, now)

    def watches(self, now: float) -> bool:
        distrusted = not self._greeted or self.recovered or now < self.trusted_from
        return not distrusted and now - self._alive_at <= _UNNOTICED_S


class Prover:
    """Says of each node what a test wants it to say."""

    def __init__(self, says: Verdict) -> None:
        self.says = says
        self.asked: list[bool] = []  # whether something was owed

    def about(self, node: str, *, owed: bool) -> "Prover":
        self.asked.append(owed)
        return self

    async def verdict(self) -> Verdict:
        return self.says

    async def note_unlogged(self) -> None:
        """Nothing comes of it."""


def limits(
    *,
    lease_wait_s: float = 2,
    near_bytes: int = 0,
    max_item_bytes: int = 1_000_000,
    compress_over_bytes: int = 0,
    read_lease_s: float = 0,
    row_tags: bool = True,
    refuse_writes: bool = False,
    write_deadline_s: float = DEADLINE_S,
    ttl_s: int = 60,
    skip_unhit_stores: bool = True,
) -> Limits:
    return Limits(
        ttl_s=ttl_s,
        lease_ttl_s=10,
        lease_wait_s=lease_wait_s,
        write_deadline_s=write_deadline_s,
        near_bytes=near_bytes,
        max_item_bytes=max_item_bytes,
        compress_over_bytes=compress_over_bytes,
        read_lease_s=read_lease_s,
        row_tags=row_tags,
        refuse_writes=refuse_writes,
        skip_unhit_stores=skip_unhit_stores,
    )


async def engine_on(
    *nodes: AnyNode,
    metrics: Metrics | None = None,
    own: Limits | None = None,
    outage_s: float = OUTAGE_S,
    reach_s: float = REACH_S,
    secret: str | None = None,
    clock: Callable[[], float] = boot_clock,
    prover: AnyProver | None = None,
    trusting: bool = True,
) -> Engine:
    """An engine of its own on these nodes, such as another proxy's. The caller closes it.

    `trusting`: it distrusts no node because this process was late for a moment, as on a busy host;
    nor because that was silent for less than a minute.
    """
    cluster = Cluster(nodes, outage_s=outage_s, reach_s=reach_s)
    if trusting:
        for node in nodes:
            cluster.health_of(node.name).__class__ = _Trusting
    metrics = metrics or Metrics()
    seal = Seal(metrics, secret)
    keyspace = Keyspace("test", seal.name)
    engine = Engine(cluster, keyspace, own or limits(), metrics, seal=seal, clock=clock)
    if prover is not None:
        engine.prove_nodes_by(prover)
    await engine.start()
    return engine


def read_of(
    engine: Engine, *names: str, text: bytes = b"SELECT", freshness: Freshness | None = None
) -> Read:
    tags = read_tags([TableName("shop", name) for name in names])
    return engine.read(b"session", text, tags, text, freshness)


def entry_of(lease: Lease, answer: bytes) -> bytes:
    """An entry with the answer behind two bytes of status flags."""
    return entry.encode(lease.versions, 2, [0], b"\0\0" + answer)


async def filled(engine: Engine, read: Read, answer: bytes) -> None:
    """On a busy host this process may be late, and trust its nodes only after a moment; and so may
    a memcached be."""
    async with asyncio.timeout(_SOON_S):
        while (lease := await engine.obtain(read)) in (DISTRUSTED, UNREACHABLE):
            await asyncio.sleep(0.01)
    assert isinstance(lease, Lease), lease
    await lease.fill(entry_of(lease, answer))


async def answer_to(engine: Engine, read: Read) -> bytes | None:
    got = await engine.obtain(read)
    if isinstance(got, Lease):
        await got.release()
    return answer_in(got) if isinstance(got, Hit) else None


def answer_in(got: Hit) -> bytes:
    packets = entry.packets_for(got.value, got.versions_bytes, 2)
    assert packets is not None
    return packets[2:]


async def raised(engine: Engine, marks: Marks) -> tuple[Fence, Logs | None]:
    """A write's fence; None with it where it is still to be marked."""
    fence = engine.join_fence(marks)
    return fence, await told(partial(engine.fence_soon, fence, marks))


async def lifted(engine: Engine, fence: Fence, marks: Marks) -> Logs | None:
    """The write is done; None where its fence is still to be lifted."""
    return await told(partial(engine.lift_soon, fence, marks))


async def observed(engine: Engine, tags: Iterable[Tag]) -> Logs | None:
    """What the tags' logs say now."""
    marks = engine.marks((), tags)
    return marks.read(await told(partial(engine._cluster.submit, marks.asking)))


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_SOON_S):
        while not await condition():
            await asyncio.sleep(0.005)


async def until_silent(*engines: Engine) -> None:
    """Returns when their first node has left so many questions of each unanswered as an outage is
    long, however late this process was, and has for as long."""
    loop = asyncio.get_running_loop()
    over_at = loop.time() + OUTAGE_S
    healths = [engine._cluster.health_of(next(iter(engine._cluster.nodes))) for engine in engines]

    async def silent() -> bool:
        return loop.time() > over_at and all(health.is_silent for health in healths)

    await eventually(silent)


async def on_time(trial: Callable[[], Awaitable[None]]) -> None:
    """Makes it again where it fails and this process was late meanwhile: that says nothing of a
    silence that may be neither longer nor shorter."""
    loop = asyncio.get_running_loop()
    for left in reversed(range(20)):
        late = False

        async def watch() -> None:
            nonlocal late
            while True:
                before = loop.time()
                await asyncio.sleep(_TICK_S)
                late |= loop.time() - before > 3 * _TICK_S

        watching = asyncio.ensure_future(watch())
        try:
            await trial()
            return
        except (AssertionError, TimeoutError):
            await asyncio.sleep(2 * _TICK_S)
            if not (late and left):
                raise
        finally:
            watching.cancel()


async def eventually_not(engine: Engine, read: Read, *outcomes: Bypass) -> None:
    async def other() -> bool:
        got = await engine.obtain(read)
        if isinstance(got, Lease):
            await got.release()
        return got not in outcomes

    await eventually(other)
