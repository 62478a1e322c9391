"""All nodes as one: a key's node comes from the ring, and a batch's requests go to each node as
one pipelined write. Every answer is a sign of life, see `health`. A node that answers nothing,
though it takes connections, is asked for these alone: else all would wait for it in vain.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import CLOCK_BOOTTIME, clock_gettime

from sqlcache import boot_clock
from sqlcache.callbacks import told
from sqlcache.memcache.connection import Node, answer
from sqlcache.memcache.health import Health
from sqlcache.memcache.protocol import Reply
from sqlcache.memcache.ring import Ring

_SUSPENDED_S = 0.05  # and more: less of it is what two clocks differ by that are read in turn

Request = tuple[bytes, bytes]
"""The key whose node a request goes to, and its bytes; it has exactly one reply."""


class Cluster:
    """The nodes of one deployment. Made inside a running event loop.

    `reach_s` is how long each process may take to reach a node that is back.
    """

    def __init__(
        self, nodes: Sequence[Node], *, outage_s: float = 2.0, reach_s: float = 3.0
    ) -> None:
        quarantine_s = outage_s / 2 + reach_s
        self.nodes = {node.name: node for node in nodes}
        self.outage_s = outage_s
        self.reach_s = reach_s
        self.quarantine_s = quarantine_s
        self._ring = Ring([node.name for node in nodes])
        self._loop = asyncio.get_running_loop()
        self._suspended_s = boot_clock.suspended_s()
        self._health = {
            name: Health(self._loop.time(), outage_s=outage_s, quarantine_s=quarantine_s)
            for name in self.nodes
        }
        for name, node in self.nodes.items():
            node.on_up = self._health[name].reached
        self._only = None
        if len(nodes) == 1:
            self._only = nodes[0], self._health[nodes[0].name]

    def node_of(self, key: bytes) -> str:
        """The name of the node that holds this key."""
        return self._ring.node_for(key)

    def health_of(self, node: str) -> Health:
        """What this process knows of the node's life."""
        return self._health[node]

    def when_up(self, name: str, do: Callable[[], None]) -> None:
        """Has this done each time a node is connected with anew: what that submits is the first to
        be asked on the connection, and to be answered."""

        def up() -> None:
            self._health[name].reached()
            do()

        self.nodes[name].on_up = up

    def away(self) -> list[str]:
        """The names of the nodes that are silent, or not trusted again yet."""
        now = self._loop.time()
        return [name for name, health in self._health.items() if not health.trusts(now)]

    def submit(
        self,
        requests: Sequence[Request],
        done: Callable[[list[Reply | None]], None],
        *,
        for_life: bool = False,
    ) -> None:
        """Sends the requests; `done` gets their replies in order, None where a node is away, or
        answers nothing and is not asked `for_life`.

        Requests to one node arrive in the order given.
        """
        asked_at = self._loop.time() + self._suspended_s
        if self._only is not None:
            node, health = self._only

            def answered(answers: list[Reply] | None) -> None:
                if answers is None:
                    done([None] * len(requests))
                else:
                    self._heard(health, asked_at)
                    done([*answers])

            if health.answers_nothing and not for_life:
                self._loop.call_soon(answer, answered, None)
            else:
                node.submit(b"".join([each for _, each in requests]), len(requests), answered)
            return
        places = self._places(requests)
        replies: list[Reply | None] = [None] * len(requests)
        waiting = len(places)

        def collect(name: str, mine: Sequence[int], answers: list[Reply] | None) -> None:
            nonlocal waiting
            if answers is not None:
                self._heard(self._health[name], asked_at)
                for place, reply in zip(mine, answers, strict=True):
                    replies[place] = reply
            waiting -= 1
            if not waiting:
                done(replies)

        for name, mine in places.items():
            collecting = partial(collect, name, mine)
            if self._health[name].answers_nothing and not for_life:
                self._loop.call_soon(answer, collecting, None)
            else:
                payload = b"".join([requests[place][1] for place in mine])
                self.nodes[name].submit(payload, len(mine), collecting)

    def _heard(self, health: Health, asked_at: float) -> None:
        """`asked_at`: with the time in which the machine was suspended, as it was noted then."""
        now, suspended_s = self._loop.time(), self._suspended_s
        # The loop's time may be a turn old: then it is looked at more closely, in vain.
        if clock_gettime(CLOCK_BOOTTIME) - now - suspended_s > _SUSPENDED_S:
            self.note_suspends()
            suspended_s = self._suspended_s
        health.heard(asked_at - suspended_s, now)

    def note_suspends(self) -> None:
        """Time in which the machine was suspended was silence, though it is in no clock of the
        event loop."""
        more_s = boot_clock.suspended_s() - self._suspended_s
        if more_s > _SUSPENDED_S:
            self._suspended_s += more_s
            for health in self._health.values():
                health.was_suspended(more_s)

    def _places(self, requests: Iterable[Request]) -> Mapping[str, Sequence[int]]:
        places: dict[str, list[int]] = {}
        for place, (key, _) in enumerate(requests):
            places.setdefault(self._ring.node_for(key), []).append(place)
        return places

    async def ask(
        self, requests: Sequence[Request], *, for_life: bool = False
    ) -> list[Reply | None]:
        """Like `submit`, for a coroutine. No requests have no replies."""
        if not requests:
            return []
        return await told(partial(self.submit, requests, for_life=for_life))

    async def close(self) -> None:
        """Closes every node."""
        for node in self.nodes.values():
            await node.close()
