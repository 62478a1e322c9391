"""Simulated memcached nodes, and the connections to them, one request at a time.

The stores are real `ItemStore`s and the clients real `NodeConnection`s: only the bytes' way is
made up. A request waits in its wire until the test has the node execute it, a reply until the test
has it delivered. A wire that its client gave up may still hold requests: the node executes them
later, or never.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum

from sqlcache.memcache.memory import ItemStore
from sqlcache.memcache.protocol import META_NOOP, Reply

_NOOP, _ALIVE = META_NOOP, b"MN\r\n"


class Fault(Enum):
    """What befalls a request."""

    SILENCE = "nothing passes on its connection from here on"
    CUT_BEFORE = "the connection breaks, and the node never sees the request"
    CUT_AFTER = "the connection breaks when the node has carried the request out"


class Lameness(Enum):
    """What a node takes longer for than anybody waits."""

    CARRYING_OUT = "requests wait until it is well again"
    ANSWERING = "requests are carried out, and their answers wait"


class MemcachedNode:
    """A memcached: `stalled` is SIGSTOP, `down` refuses connections.

    One that is `lame` answers no-ops in time, and so takes new connections, and nothing else: it is
    late with carrying out what it is asked, or with answering it.

    `fault` is asked for each request, with the name of the process it comes from.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self.stalled = False
        self.down = False
        self.lame: Lameness | None = None
        self.fault: Callable[[str], Fault | None] = lambda _: None
        self._clock = clock
        self.store = ItemStore(clock=clock)
        self._other = ItemStore(clock=clock)

    @property
    def works(self) -> bool:
        return not (self.stalled or self.down)

    @property
    def is_well(self) -> bool:
        return self.works and self.lame is None

    def forget(self) -> None:
        """It was restarted: empty, and its CAS uniques begin again."""
        self.store = ItemStore(clock=self._clock)

    def swap(self) -> None:
        """Its address leads to the other of two memories."""
        self.store, self._other = self._other, self.store


class Wire(asyncio.Transport):
    """One connection from a process to a node."""

    def __init__(
        self,
        name: str,
        process: str,
        node: MemcachedNode,
        protocol: asyncio.Protocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self.name = name
        self.process = process
        self.node = node
        self.requests: deque[bytes] = deque()
        self.replies: deque[bytes] = deque()
        self.given_up = False
        """The client closed it, or was told that it broke."""
        self._silent = False
        self._protocol = protocol
        self._loop = loop

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not (self.given_up or self._silent):
            self.requests.extend(split_requests(bytes(data)))

    def is_closing(self) -> bool:
        return self.given_up

    def abort(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """The client loses the connection; the node may still have requests from it."""
        if not self.given_up:
            self.given_up = True
            self.replies.clear()
            self._loop.call_soon(self._protocol.connection_lost, error)

    @property
    def may_execute(self) -> bool:
        """Whether the node carries out anything of it now."""
        late = self.node.lame is Lameness.CARRYING_OUT
        return self.node.works and bool(self.requests) and not (late and self.requests[0] != _NOOP)

    @property
    def may_deliver(self) -> bool:
        """Whether any replies are not late."""
        late = self.node.lame is not None
        return bool(self.replies) and not (late and self.replies[0] != _ALIVE)

    def execute(self, count: int) -> None:
        """The node carries out the next requests."""
        for _ in range(min(count, len(self.requests))):
            if not self.may_execute:
                return
            fault = self.node.fault(self.process)
            if fault in (Fault.SILENCE, Fault.CUT_BEFORE):
                self.requests.clear()
            else:
                replies = self.node.store.execute(self.requests.popleft())
                self.replies.extend(() if self.given_up else map(reply_bytes, replies))
            if fault is not None:
                self._suffer(fault)
                return

    def _suffer(self, fault: Fault) -> None:
        if fault is Fault.SILENCE:
            self._silent = True
        else:
            self.requests.clear()
            self.lose(ConnectionResetError())

    def deliver(self) -> None:
        """All replies that are not late reach the client's socket."""
        data = b""
        while self.may_deliver:
            data += self.replies.popleft()
        if data:
            self._loop.call_soon(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if not self.given_up:
            self._protocol.data_received(data)


def split_requests(data: bytes) -> list[bytes]:
    """The meta requests in `data`, each for itself."""
    requests = []
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at) + 2
        if data.startswith(b"ms ", at):
            end += int(data[at:end].split()[2]) + 2
        requests.append(data[at:end])
        at = end
    return requests


def reply_bytes(reply: Reply) -> bytes:
    """The reply as memcached sends it."""
    status, value, flags = reply
    if status == b"SE":
        return b"SERVER_ERROR %b\r\n" % flags
    if value is not None:
        return b"VA %d %b\r\n%b\r\n" % (len(value), flags, value)
    return b" ".join([status, flags] if flags else [status]) + b"\r\n"
