"""The world the model drives: processes with real engines, simulated nodes, a database, clients.

Every step of a schedule is one `Action`, a tuple of names and numbers, so that a schedule can be
printed, cut down and run again. An action that makes no sense at its point is skipped. Time stands
still but in `pass`, and in `tick`, in which the network does.

The law: a read brings nothing older than what the database held when it began. For another client
may have had just that through sqlcache, with a statement that is passed on: so this is the same as
to say that no read is older than a write acknowledged, or a read ended, before it began. As values
only grow, and none is there before its commit, that is linearizability of each register.

A *witness*, if the world has one, is one process more, to which the network is infinitely fast:
after every step it looks whether there is a hit, and whether that is what the database holds.

Where tags may be lost under a fence, and statements outlive it, the law is that no read is older
than a write acknowledged before it began: time may run backwards then, for who looked meanwhile. Of
rows, a read is no older than the table was for that write, if no statement outlives its fence.

Under `availability` no process alone is cut from a node for long, nor does one begin, write without
a node and end while all others stand still: the model assumes it, as docs/how-it-works.md says.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial

from sqlcache.cache.engine import Engine, Limits
from sqlcache.cache.keys import Keyspace
from sqlcache.cache.log_records import read_log
from sqlcache.cache.marks import Marks
from sqlcache.cache.outcomes import Hit, Outcome
from sqlcache.cache.placement import TagPlacement
from sqlcache.cache.reads import Read
from sqlcache.cache.slots import NEVER
from sqlcache.cache.tags import ROOT, Tag, read_tags
from sqlcache.memcache.cluster import Cluster
from sqlcache.memcache.connection import NodeConnection
from sqlcache.memcache.health import ASKS_PER_OUTAGE
from sqlcache.metrics import Metrics
from sqlcache.sql.names import TableName
from tests.coherence import model_rows, model_sessions
from tests.coherence.model_loop import VirtualLoop
from tests.coherence.model_mysql import (
    QUERIES,
    REGISTERS,
    Database,
    Statement,
    Values,
    tables_of,
)
from tests.coherence.model_network import Lameness, MemcachedNode, Wire

Action = tuple[str | int | float, ...]

KEYSPACE = "model48923"
"""By this name a and b, and r and q, are on different nodes where there are two; so are the tables
and the answers of which some cases tell that they wait for one another."""

WITNESS = "w"

DEADLINE_S = 6.0
LEASE_TTL_S = 10
OUTAGE_S = 2.0
REACH_S = 1.5
LONGEST_WAIT_S = 10.0
"""For a node that lives, and answers nothing."""
_BRIEF_CUT_S = 0.5
_TICK_S = 1e-6
_LOOK_S = OUTAGE_S / ASKS_PER_OUTAGE + _TICK_S  # until each has looked in on the nodes again
_ALL = 1_000
_KINDS = {
    b"c": "memberships",
    b"h": "mementos",
    b"l": "leases",
    b"p": "parts",
    b"q": "holds",
}
"""Items that are evicted together, by the letter in their keys."""


class Stale(AssertionError):
    """A read broke the law."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a world is made of."""

    processes: int = 2
    nodes: int = 1
    witness: bool = True
    near_bytes: int = 0
    consistency: bool = False
    max_item_bytes: int = 1_000_000
    read_lease_s: float = 0
    """Of processes that promise at once."""
    lingers: bool = False
    """Shared fences stay for a moment for the next write, however few came before."""
    rows: bool = False
    """There are tables of rows, and their queries are looked at."""
    loses_fences: bool = False
    """Tags are evicted also while they are fenced, and statements outlive the freeze of their
    process by any time."""
    outlived: bool = True
    """Whether they do where fences are lost."""


PLAIN = Shape()


@dataclass(eq=False, slots=True)
class Process:
    """A sqlcache process: `frozen` is SIGSTOP, `dead` SIGKILL, or that it `left` in order."""

    name: str
    loop: VirtualLoop
    engine: Engine
    cluster: Cluster
    reads: dict[str, Read] = field(default_factory=dict)
    marks: dict[tuple[Tag, ...], Marks] = field(default_factory=dict)
    serves: bool = False
    frozen: bool = False
    left: bool = False
    dead: bool = False

    @property
    def runs(self) -> bool:
        return not (self.frozen or self.dead)

    def is_greeted(self) -> bool:
        """Whether it knows what to think of all nodes."""
        return all(self.cluster.health_of(node).greeted for node in self.cluster.nodes)

    async def begin(self) -> None:
        await self.engine.start()
        self.serves = True

    async def leave(self) -> None:
        self.serves = False
        await self.engine.close()
        await self.cluster.close()
        self.left = True


class World:
    """See the module. `do` takes one action; `problems` are broken promises other than `Stale`."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.now = 1000.0
        self.history: list[str] = []
        self.database = Database(tells_of_tables=not shape.outlived)
        self.queries = (*QUERIES, *model_rows.QUERIES) if shape.rows else QUERIES
        self.acknowledged = dict.fromkeys(REGISTERS, 0)
        self.hits = 0
        self.stale: Stale | None = None
        self._looked = True
        self.wires: dict[str, Wire] = {}
        self.silent: dict[tuple[str, str], float] = {}  # process and node: until when
        self.open: set[str] = set()  # operations under way
        self.nodes = {
            name: MemcachedNode(name, lambda: self.now)
            for name in [f"n{i}" for i in range(shape.nodes)]
        }
        self._wire_numbers: dict[tuple[str, str], int] = defaultdict(int)
        self._graveyard: list[Process] = []
        self._keyspace = Keyspace(KEYSPACE)
        names = [*map(str, range(shape.processes)), *([WITNESS] if shape.witness else [])]
        self.processes: dict[str, Process] = {}
        for name in names:  # one after another: a process that finds others at work trusts them
            self.processes[name] = self._start(name)
            while not self.processes[name].is_greeted():
                self.pass_time(_LOOK_S)
        while self.now % 1 > _LOOK_S:  # beats and times to live count in seconds
            self.pass_time(_LOOK_S)
        self.names = self._names()
        self._are_on_different_nodes("a", "b")
        self._are_on_different_nodes(*model_rows.ROW_TABLES)

    # Actions.

    def do(self, action: Action) -> bool:
        """Takes the action; False if it makes no sense now. Raises: Stale."""
        kind, *rest = action
        taken: bool = getattr(self, "_do_" + str(kind))(*rest)
        if taken:
            self.note(" ".join(map(str, action)))
            self.run()
            self._look()
        if self.stale is not None:
            raise self.stale
        return taken

    def _do_read(self, process: str, query: str, name: str) -> bool:
        return self._spawn(process, name, partial(model_sessions.read, self, query, name))

    def _do_write(self, process: str, write: str, style: str, name: str) -> bool:
        return self._spawn(process, name, partial(model_sessions.write, self, write, style, name))

    def _do_slot(self, process: str, letter: str) -> bool:
        """The process takes a slot into use."""
        found = self.processes[process]
        if not (found.runs and found.serves):
            return False
        with found.loop.entered():
            table = Tag("s", model_rows.table_of(letter))
            found.engine.use_slot_soon(table, model_rows.slot_of(letter))
        return True

    def _do_know(self) -> bool:
        """All processes have known for long the logs that they have seen."""
        for process in self.processes.values():
            for table in process.engine._slots._tables.values():
                table.known_log.since = NEVER
        return True

    def _do_compact(self, process: str, letter: str) -> bool:
        """The process finds the log of a table long."""
        found = self.processes[process]
        if not (found.runs and found.serves):
            return False
        with found.loop.entered():
            table = Tag("s", model_rows.table_of(letter))
            found.engine._logs.compact_soon([table], [bytes(1_000)])
        return True

    def _do_hurry(self, *action: str) -> bool:
        """A read or a write, and all it needs, while nothing else moves."""
        _, process, *_, name = action
        if not self.do(action):
            return False
        while True:
            if self.flow(process):
                continue
            own = [each for each in self.database.statements if each.startswith(name + ".")]
            if not own:
                return True
            self._do_commit(own[0])

    def _do_step(self, wire: str, count: int) -> bool:
        """The node carries out the next requests; the replies arrive when no more are to come."""
        stepped = self._do_execute(wire, count)
        if stepped and not self.wires[wire].requests:
            self._do_deliver(wire)
        return stepped

    def _do_execute(self, wire: str, count: int = _ALL) -> bool:
        found = self.wires.get(wire)
        if found is None or not found.may_execute or self._is_cut(found):
            return False
        found.execute(count)
        self._looked &= found.process == WITNESS
        return True

    def _do_deliver(self, wire: str) -> bool:
        found = self.wires.get(wire)
        if found is None or not found.may_deliver or self._is_cut(found):
            return False
        found.deliver()
        return True

    def _do_break(self, wire: str) -> bool:
        """The connection breaks; what the node has not executed of it, it may still."""
        found = self.wires.get(wire)
        if found is None or found.given_up:
            return False
        found.lose(ConnectionResetError())
        return True

    def _do_discard(self, wire: str) -> bool:
        """The node never sees the rest of a broken connection."""
        found = self.wires.get(wire)
        if found is None or not found.given_up:
            return False
        del self.wires[wire]
        return True

    def _do_commit(self, statement: str) -> bool:
        self._looked = False
        return self.database.end(statement, commits=True)

    def _do_fail(self, statement: str) -> bool:
        """MySQL rolls the statement back, if it is a write, and answers with an error."""
        return self.database.end(statement, commits=False)

    def _do_lose(self, statement: str) -> bool:
        """The process loses its connection to MySQL."""
        return self.database.lose(statement, self.now + DEADLINE_S / 2)

    def _do_kill(self, process: str) -> bool:
        killed = self.processes[process]
        if killed.dead:
            return False
        killed.dead = True
        for statement in list(self.database.statements.values()):
            if statement.process == process:
                self._do_lose(statement.name)
        killed.loop.die()
        self._graveyard.append(killed)
        for wire in self._wires_of(process):
            wire.lose(None)
        self.open = {name for name in self.open if not name.startswith(process + ":")}
        return True

    def _do_stop(self, process: str) -> bool:
        """The process leaves in order, its sessions gone."""
        found = self.processes[process]
        if not (found.runs and found.serves) or any(n.startswith(process + ":") for n in self.open):
            return False
        found.loop.create_task(found.leave())
        return True

    def _do_start(self, process: str) -> bool:
        if not self.processes[process].dead:
            return False
        self.processes[process] = self._start(process)
        return True

    def _do_freeze(self, process: str) -> bool:
        found = self.processes[process]
        if not found.runs:
            return False
        found.frozen = True
        if not (self.shape.loses_fences and self.shape.outlived):
            self.database.hasten(process, self.now + DEADLINE_S / 2)
        return True

    def _do_thaw(self, process: str) -> bool:
        found = self.processes[process]
        was, found.frozen = found.frozen, False
        return was

    def _do_stall(self, node: str) -> bool:
        found = self.nodes[node]
        was, found.stalled = found.works, found.stalled or found.works
        return was

    def _do_resume(self, node: str) -> bool:
        found = self.nodes[node]
        was, found.stalled = found.stalled, False
        return was

    def _do_lame(self, node: str, late_with: str) -> bool:
        """The node is late with everything but no-ops, for all processes alike."""
        found = self.nodes[node]
        if not found.is_well:
            return False
        found.lame = Lameness[late_with]
        return True

    def _do_well(self, node: str) -> bool:
        """It is in time again; what is no more waited for is carried out, or was."""
        found = self.nodes[node]
        was, found.lame = found.lame, None
        return was is not None

    def _do_rejoin(self, node: str) -> bool:
        """The node was cut off rather than stopped, or lame: what was on its way to it is lost."""
        if not (self._do_resume(node) or self._do_well(node)):
            return False
        self.wires = {
            name: wire
            for name, wire in self.wires.items()
            if wire.node.name != node or not wire.given_up
        }
        return True

    def _do_down(self, node: str) -> bool:
        found = self.nodes[node]
        if found.down:
            return False
        found.down, found.stalled = True, False
        found.forget()
        self._lose_wires_to(found)
        return True

    def _do_swap(self, node: str) -> bool:
        """Another memcached answers at the node's address; and the next time the first one."""
        self.nodes[node].swap()
        self._lose_wires_to(self.nodes[node])
        return True

    def _lose_wires_to(self, node: MemcachedNode) -> None:
        for name, wire in list(self.wires.items()):
            if wire.node is node:
                wire.lose(ConnectionResetError())
                del self.wires[name]

    def _do_up(self, node: str) -> bool:
        found = self.nodes[node]
        was, found.down = found.down, False
        return was

    def _do_restart(self, node: str) -> bool:
        return self._do_down(node) and self._do_up(node)

    def _do_cut(self, process: str, node: str) -> bool:
        """Nothing passes between the two; no one else sees it."""
        if (process, node) in self.silent:
            return False
        lasts_s = float("inf") if self.shape.consistency else _BRIEF_CUT_S
        self.silent[process, node] = self.now + lasts_s
        self.database.hasten(process, self.now + DEADLINE_S / 2)
        return True

    def _do_heal(self, process: str, node: str) -> bool:
        return self.silent.pop((process, node), None) is not None

    def _do_evict(self, name: str) -> bool:
        """The items with this name are forgotten; tags that are fenced where these may be lost."""
        evicted = False
        for node in self.nodes.values():
            for key in [key for key in _keys_on(node) if self._named(key) == name]:
                if self.shape.loses_fences or not self._is_fenced(node, key):
                    node.store._drop(key)
                    evicted = True
                    self._looked = False
        return evicted

    def _do_pass(self, seconds: float) -> bool:
        self.pass_time(seconds)
        return True

    def _do_tick(self, seconds: float) -> bool:
        """Time goes on, and nothing else but what processes do by themselves."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(max(self._next_event(), self.now) + _TICK_S, end)
            self._enforce()
            self.run()
        return True

    def _do_settle(self) -> bool:
        """Network and database come to rest."""
        while self.flow() or self._end_first_statement():
            pass
        return True

    # What may happen next.

    def moves(self, count: int) -> list[Action]:
        """What nodes, `count` requests at a time, and database may do next."""
        wires = [w for w in self.wires.values() if w.may_execute and not self._is_cut(w)]
        steps: list[Action] = [("step", wire.name, count) for wire in wires]
        return steps + [("commit", name) for name in self.database.statements]

    def evictable(self) -> list[str]:
        """The names of the items there are."""
        keys = [key for node in self.nodes.values() for key in _keys_on(node)]
        return sorted({name for name in map(self._named, keys) if name is not None})

    # Time and motion.

    def run(self) -> bool:
        """Every process that can, runs until it waits for something."""
        ran = False
        for process in self.processes.values():
            ran |= process.runs and process.loop.run()
            if process.left and not process.dead:
                self._do_kill(process.name)
        return ran

    def flow(self, process: str | None = None) -> bool:
        """Requests and replies move until nothing is left to move; or only those of a process."""
        for rounds in range(_ALL):
            moving = self.run()
            for name, wire in list(self.wires.items()):
                if (wire.requests or wire.replies) and process in (None, wire.process):
                    moving |= self._do_execute(name)
                    moving |= self._do_deliver(name)
            if not moving:
                self._bury_wires()
                return rounds > 0
        raise AssertionError("the network never comes to rest")

    def pass_time(self, seconds: float) -> None:
        """Time goes on, and whatever is not held up moves."""
        end = self.now + seconds
        while True:
            self.flow()
            self._look()
            if self.now == end:
                return
            at = max(self._next_event(), self.now) + _TICK_S
            self.now = min(at, end)
            self._enforce()

    def _next_event(self) -> float:
        timers = [p.loop.next_timer() for p in self.processes.values() if p.runs]
        known = [when for when in timers if when is not None]
        return min([*known, *self.silent.values(), self.database.next_end()], default=float("inf"))

    def _enforce(self) -> None:
        """What is assumed of MySQL and of cuts comes true."""
        for name in self.database.overdue(self.now):
            self.note(f"  {name} is over by now")
            self._do_commit(name)
        for pair in [pair for pair, until in self.silent.items() if until <= self.now]:
            del self.silent[pair]

    def _end_first_statement(self) -> bool:
        return any(self._do_commit(name) for name in list(self.database.statements)[:1])

    def _is_cut(self, wire: Wire) -> bool:
        return (wire.process, wire.node.name) in self.silent

    def _bury_wires(self) -> None:
        for name in [n for n, w in self.wires.items() if w.given_up and not w.requests]:
            del self.wires[name]

    def _wires_of(self, process: str) -> list[Wire]:
        return [wire for wire in self.wires.values() if wire.process == process]

    # The law.

    def acknowledge(self, name: str, values: Values) -> None:
        """The client of this write has its OK; these were the values when it was done."""
        self.note(f"  write {name} is acknowledged")
        for table, value in values.items():
            self.acknowledged[table] = max(self.acknowledged[table], value)
        self._looked = False

    def least(self, tables: tuple[str, ...]) -> Values:
        """What a read that begins now must bring, or more."""
        if self.shape.loses_fences:
            return {table: self.acknowledged[table] for table in tables}
        return self.database.look(tables)

    def assess(self, who: str, least: Values, values: Values) -> None:
        """`least` is what was there when the read began."""
        for table, value in values.items():
            if value < least[table]:
                what = f"{who} of {table} got {value}, and {least[table]} was there before"
                self.stale = self.stale or Stale(what)

    def _look(self) -> None:
        """The witness looks at everything, in no time, if anything has changed."""
        witness = self.processes.get(WITNESS)
        are_well = all(node.is_well for node in self.nodes.values())
        if witness is None or not are_well or self._looked:
            return
        for query in self.queries:
            witness.engine.lookup(self.read_of(witness, query), partial(self._saw, query))
        self.flow(WITNESS)
        self._looked = True

    def _saw(self, query: str, outcome: Outcome) -> None:
        if isinstance(outcome, Hit):
            values = model_sessions.values_of(query, outcome)
            self.assess("a look", self.least(tables_of(query)), values)

    # Processes.

    def _start(self, name: str) -> Process:
        # Addresses: to look a name up takes a thread, and real time.
        hosts = {f"10.0.0.{number}": node for number, node in enumerate(self.nodes, 1)}

        async def connect(factory: Callable[[], asyncio.Protocol], host: str) -> Wire:
            return await self._connect(name, loop, factory, hosts[host])

        loop = VirtualLoop(lambda: self.now, connect)
        limits = Limits(
            ttl_s=60,
            lease_ttl_s=LEASE_TTL_S,
            lease_wait_s=300,
            write_deadline_s=DEADLINE_S,
            near_bytes=self.shape.near_bytes,
            max_item_bytes=self.shape.max_item_bytes,
            read_lease_s=self.shape.read_lease_s,
            row_tags=True,
            refuse_writes=self.shape.consistency,
        )
        with loop.entered():
            nodes = [NodeConnection(node, host, 0, timeout_s=0.25) for host, node in hosts.items()]
            cluster = Cluster(nodes, outage_s=OUTAGE_S, reach_s=REACH_S)
            engine = Engine(cluster, self._keyspace, limits, Metrics(), clock=lambda: self.now)
            engine._windows.kept_open._quiet_s, engine._windows.kept_open._often = 0.0, 1
            engine._windows.kept_open._very_many = 0
            if self.shape.lingers:
                engine._shared_fences._many = 0
            process = Process(name, loop, engine, cluster)
            loop.create_task(process.begin())
        return process

    async def _connect(
        self, process: str, loop: VirtualLoop, factory: Callable[[], asyncio.Protocol], called: str
    ) -> Wire:
        node = self.nodes[called]
        while (process, called) in self.silent:
            await asyncio.sleep(0.1)
        if node.down:
            raise ConnectionRefusedError(called)
        self._wire_numbers[process, called] += 1
        protocol = factory()
        name = f"{process}-{called}-{self._wire_numbers[process, called]}"
        wire = self.wires[name] = Wire(name, process, node, protocol, loop)
        protocol.connection_made(wire)
        return wire

    def _spawn(
        self, process: str, name: str, work: Callable[[Process], Coroutine[None, None, None]]
    ) -> bool:
        found = self.processes[process]
        if not (found.runs and found.serves) or name in self.open:
            return False
        self.open.add(name)
        found.loop.create_task(work(found))
        return True

    async def query(
        self,
        process: Process,
        tables: tuple[str, ...] | tuple[model_rows.Probe],
        name: str,
        *,
        writes: bool,
    ) -> Values:
        """Has MySQL carry out a statement of the operation `name`. Raises: ConnectionLost."""
        number = sum(1 for other in self.database.statements if other.startswith(name + "."))
        answer: asyncio.Future[Values] = process.loop.create_future()
        statement = Statement(f"{name}.{number}", process.name, tables, writes, answer)
        if any(cut == process.name for cut, _ in self.silent):
            statement.latest = self.now + DEADLINE_S / 2
        self.database.send(statement)
        return await answer

    def read_of(self, process: Process, query: str) -> Read:
        """The read of a query by a session of the process."""
        read = process.reads.get(query)
        if read is None:
            tables = tables_of(query) if query in QUERIES else model_rows.tables_read(query)
            tags = read_tags([TableName("s", table) for table in tables])
            read = process.engine.read(
                b"session", query.encode(), tags, query.encode(), proof_rows=1
            )
            if query in model_rows.QUERIES:
                read.pinning = model_rows.pinning_of(query)
            process.reads[query] = read
        return read

    def marks_of(self, process: Process, tables: str) -> Marks:
        """What writes of this name mark, by all sessions of the process."""
        tags = tuple(model_sessions.tags_of(tables))
        marks = process.marks.get(tags)
        if marks is None:
            marks = process.marks[tags] = process.engine.marks(tags, ())
        return marks

    # Items by name.

    def _named(self, key: bytes) -> str | None:
        return _KINDS.get(key.split(b":")[1][:1]) or self.names.get(key)

    def _names(self) -> dict[bytes, str]:
        process = next(iter(self.processes.values()))
        places = TagPlacement(process.cluster, self._keyspace)
        tables = (*model_rows.TABLES, *model_rows.ROW_TABLES)
        tags = places.to_write([*(Tag("s", table) for table in tables), Tag("s"), ROOT])
        names = {places.key(tag): f"tag {tag}" for tag in tags}
        for bucket in model_rows.BUCKETS:
            rows = Tag("s", model_rows.table_of(bucket[0]))
            slot, own = model_rows.slot_of(bucket[0]), model_rows.bucket_of(bucket)
            names[places.bucket(rows, slot, own)] = f"bucket {bucket}"
        return names | {
            self.read_of(process, query).key: f"entry {query}" for query in self.queries
        }

    def _are_on_different_nodes(self, one: str, other: str) -> None:
        places = TagPlacement(next(iter(self.processes.values())).cluster, self._keyspace)
        nodes = {places.node(Tag("s", table)) for table in (one, other)}
        assert len(nodes) == min(len(self.nodes), 2), "choose another KEYSPACE"

    def _is_fenced(self, node: MemcachedNode, key: bytes) -> bool:
        tag = self.names.get(key, "").startswith("tag ")
        return tag and bool(read_log(node.store._lasting[key].value).fences)

    # The end.

    def _do_finish(self) -> bool:
        """All faults end but death, and the dead are started again; then every process reads."""
        for node in self.nodes:
            self.do(("resume", node))
            self.do(("up", node))
            self.do(("well", node))
        self.silent.clear()
        for process in self.processes:
            self.do(("thaw", process))
            self.do(("start", process))
        self.do(("settle",))
        for process in self.processes:
            for query in self.queries:
                self.do(("hurry", "read", process, query, f"{process}:last {query}"))
        return True

    def problems(self) -> list[str]:
        return [
            f"process {process.name}: {problem}"
            for process in [*self.processes.values(), *self._graveyard]
            for problem in process.loop.problems
        ]

    def close(self) -> None:
        for process in [*self.processes.values(), *self._graveyard]:
            process.loop.die()

    def note(self, what: str) -> None:
        self.history.append(f"{self.now - 1000:8.3f} {what}")


def _keys_on(node: MemcachedNode) -> list[bytes]:
    return [*node.store._fleeting, *node.store._lasting]
