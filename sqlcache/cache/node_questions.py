"""Questions whether anybody has gone on without a node, and not told it of it yet.

Each proxy that has not answers each question, with its id; and one that has never lost sight of the
node *vouches* for it. What all say together tells nothing of strangers, of whom the node does not
know (`memcache.health`); that one vouches does.

Whoever reads a question has heard of the node after it was put, and who put it watches the node
from then on: so it counts for nothing when the node carries out what waited in its sockets while it
was frozen, and no clock decides.
"""

import asyncio
from enum import Enum

from sqlcache.cache.fences import Fences
from sqlcache.cache.node_items import NodeItems, Survey
from sqlcache.cache.tag_logs import fresh_id
from sqlcache.cache.tags import ID_BYTES
from sqlcache.memcache.health import Health

_VOUCHED = bytes(ID_BYTES)  # among the ids of those who answer


class Word(Enum):
    """What others say of a node."""

    NONE = "not all of them have answered"
    TOLD = "of those of whom it knows nobody has gone on without it, or all have told it since"
    VOUCHED = "one has never lost sight of it"


class _Question:
    """Whether anybody owes a node a bump; put since this process lost sight of it at a time, or
    began.

    `known` are all that the membership has named since.
    """

    __slots__ = ("about", "id", "known")

    def __init__(self, about: float) -> None:
        self.about = about
        self.id = fresh_id()
        self.known: frozenset[bytes] = frozenset()


class NodeQuestions:
    """Those that one process puts, and answers. Made inside a running event loop."""

    def __init__(self, items: NodeItems, fences: Fences) -> None:
        self._items = items
        self._fences = fences
        self._own: dict[str, _Question] = {}  # node -> the last one
        self._answered: dict[str, dict[bytes, set[bytes]]] = {}  # questions, and with what
        self._loop = asyncio.get_running_loop()

    async def word_of_others(self, name: str, about: float, seen: Survey) -> Word:
        """What those say who have never lost sight of the node, or may have gone on without it
        since then.

        Asks them, if that was not done. This process owes it nothing either.
        """
        question = self._own.get(name)
        if question is None or question.about != about:
            question = self._own[name] = _Question(about)
        question.known |= seen.others
        if not question.known:
            return Word.NONE if self._fences.owes(name) else Word.TOLD
        told = await self._items.said_to(name, question.id)
        if told is None:
            return Word.NONE
        asked, said = told
        if question.id not in asked:
            await self._items.put(name, question.id)
            return Word.NONE
        if self._fences.owes(name):
            return Word.NONE
        if _VOUCHED in said:
            return Word.VOUCHED
        return Word.TOLD if question.known <= said else Word.NONE

    async def answer(self, name: str, health: Health, asked: frozenset[bytes]) -> None:
        """Says that this process owes the node nothing, and has not lost sight of it, where that is
        so."""
        before = self._answered.get(name, {})
        self._answered[name] = answered = {each: before.get(each, set()) for each in asked}
        for question, said in answered.items():
            says = self._says(health)
            more = b"".join(sorted(says - said))
            if more and not self._fences.owes(name):
                said |= says if await self._items.answer(name, question, more) else set()

    def _says(self, health: Health) -> set[bytes]:
        """What one who owes a node nothing answers."""
        return {self._items.id, _VOUCHED} if health.vouches(self._loop.time()) else {self._items.id}
