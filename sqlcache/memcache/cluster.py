"""All nodes as one: a key's node comes from the ring, and a batch's requests go to each node as
one pipelined write."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from sqlcache.memcache.connection import Node
from sqlcache.memcache.protocol import Reply
from sqlcache.memcache.ring import Ring

Request = tuple[bytes, bytes]
"""The key a request is about, and its bytes; it has exactly one reply."""


class Cluster:
    """The nodes of one deployment."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._ring = Ring([node.name for node in nodes])

    def submit(
        self, requests: Sequence[Request], done: Callable[[list[Reply | None]], None]
    ) -> None:
        """Sends the requests; `done` gets their replies in order, None where a node is away.

        Requests about one key arrive in the order given.
        """
        replies: list[Reply | None] = [None] * len(requests)
        places: dict[str, list[int]] = {}
        if len(self.nodes) == 1:
            places[next(iter(self.nodes))] = list(range(len(requests)))
        else:
            for place, (key, _) in enumerate(requests):
                places.setdefault(self._ring.node_for(key), []).append(place)
        waiting = len(places)

        def collect(mine: list[int], answers: list[Reply] | None) -> None:
            nonlocal waiting
            if answers is not None:
                for place, answer in zip(mine, answers, strict=True):
                    replies[place] = answer
            waiting -= 1
            if not waiting:
                done(replies)

        for name, mine in places.items():
            payload = b"".join([requests[place][1] for place in mine])
            self.nodes[name].submit(payload, len(mine), partial(collect, mine))

    async def ask(self, requests: Sequence[Request]) -> list[Reply | None]:
        """Like `submit`, for a coroutine. No requests have no replies."""
        if not requests:
            return []
        future: asyncio.Future[list[Reply | None]] = asyncio.get_running_loop().create_future()

        def answer(replies: list[Reply | None]) -> None:
            if not future.done():
                future.set_result(replies)

        self.submit(requests, answer)
        return await future
