"""Contexts: where plans are valid, and the memory of them."""

from collections.abc import Callable
from weakref import WeakSet

from sqlcache.cache.bounded import Tally
from sqlcache.cache.reads import Read, Template
from sqlcache.kernel import without_literals
from sqlcache.mysql.constants import Capability, Command
from sqlcache.mysql.packets import HEADER_BYTES, is_first_and_whole
from sqlcache.plan.plans import Pass, Plan, Preparation
from sqlcache.plan.prepared import Prepared
from sqlcache.plan.state import SessionState
from sqlcache.sql.policy import Terms

_PLAIN_QUERY = (bytes((Command.QUERY,)), bytes((Command.QUERY, 0, 1)))
_MOST_CONTEXTS = 1_000
_READ_BYTES = 1_200
"""A read takes, next to its packet."""
_SHARED_TAGS = 16
_TAG_BYTES = 350
"""Each tag of a read that has more of them than those that many share."""
_PLANS_OF_A_ROW = 2  # at least: of a text, and of its shape

Key = tuple[bytes, Terms, bool, bool]
CommandKey = bytes | tuple[bytes, ...]
"""A packet; or in a tuple, which no bytes that a client sends are equal to, a shape; or what tells
a prepared statement from others, or an execution of it, see `Prepared.told`."""


class Context:
    """What sessions alike share: the plans for their commands, by the bytes of these.

    Alike in all that can change an answer, in what they said to sqlcache (`words`, see `policy`),
    and in how a packet is read. Once it is retired it holds no plan, nor ever will: who still goes
    by it has to ask for another.
    """

    __slots__ = ("__weakref__", "_memory", "_retired", "dialect", "fingerprint", "key",
                 "older", "plans", "preparing", "schema", "sends_utf8", "several",
                 "text_at", "user", "words")  # fmt: skip

    def __init__(self, key: Key, state: SessionState, memory: "Contexts") -> None:
        self._memory = memory
        self.key = key
        """Equal for contexts of sessions alike, before and after one was retired."""
        self.fingerprint = state.fingerprint()
        self.preparing = state.preparing
        self.schema = state.schema
        self.dialect = state.dialect
        self.sends_utf8 = not state.dialect.ascii_words and state.variables.keeps_literals
        """Whether its texts and parameters are UTF-8, and the server reads what is ASCII in them as
        that. Where others' bytes may be the same text, or another, only the lexer knows; and of
        parameters nobody does."""
        self.user = state.user
        self.words = state.words
        self.several = state.multi_statements
        """Whether a text of its may hold several statements."""
        self.text_at = HEADER_BYTES + (3 if state.capabilities & Capability.QUERY_ATTRIBUTES else 1)
        self.plans: dict[CommandKey, Plan] = {}
        self.older: dict[CommandKey, Plan] = {}
        self._retired = False

    def reads_as_sent(self, prepared: Prepared) -> bool:
        """The same of a prepared statement and its parameters: what its literals are was decided by
        the settings of then."""
        return self.sends_utf8 and prepared.fingerprint == self.fingerprint

    def planned(self, command: CommandKey) -> Plan | None:
        """The plan remembered for a packet; one from the older half moves to the newer."""
        plan = self.plans.get(command)
        if plan is None and (older := self.older.pop(command, None)) is not None:
            self._memory.gave(_bytes_of(command, older))
            plan = self._memory.renew(older)
            if plan is not None:
                self.remember(command, plan)
        return plan

    def planned_for(self, prepared: Prepared) -> Template | Pass | None:
        """What the executions of a prepared statement are to be served by, if that was decided."""
        kept = None if self._retired else prepared.planned_under(self)
        if kept is None:  # but perhaps for those of another that was prepared alike
            kept = self.planned(prepared.names)
            return kept if isinstance(kept, (Template, Pass)) else None
        assert isinstance(kept, (Template, Pass))
        plan = self._memory.renew(kept)
        if plan is not kept:
            prepared.plan = self, plan
        return plan if isinstance(plan, (Template, Pass)) else None

    def read_for(self, packet: CommandKey) -> Read | None:
        """The same where it is a read."""
        plan = self.planned(packet)
        return plan if isinstance(plan, Read) else None

    def planned_by_shape(self, packet: bytes) -> tuple[Template | Pass, bytes] | None:
        """The plan for a COM_QUERY by that for others which differ in their literals alone, and
        these."""
        if packet[HEADER_BYTES : self.text_at] not in _PLAIN_QUERY:
            return None
        if not is_first_and_whole(packet):
            return None
        found = without_literals(packet[self.text_at :])
        if found is None:
            return None
        shape, literals = found
        plan = self.planned((shape,))
        return (plan, literals) if isinstance(plan, (Template, Pass)) else None

    def literals_of(self, packet: bytes) -> bytes | None:
        """The literals of a COM_QUERY, joined by commas; None where it is not plain."""
        found = without_literals(packet[self.text_at :]) if self.sends_utf8 else None
        return None if found is None else found[1]

    def remember_shape(self, packet: bytes, literals: bytes, plan: Template | Pass) -> None:
        """Keeps a plan for all that differ from a COM_QUERY in their literals alone. `literals` are
        those that the lexer finds in it."""
        if not self.sends_utf8:
            return
        found = without_literals(packet[self.text_at :])
        if found is not None and found[1] == literals:
            self.remember((found[0],), plan)

    def remember(self, command: CommandKey, plan: Plan) -> None:
        """Keeps a plan for its packet, unless it is too large, or was made too long ago."""
        size = _bytes_of(command, plan)
        room = not self._retired and self._memory.has_room_for(size)
        if not room or self._memory.renew(plan) is not plan:
            return
        if (older := self.older.pop(command, None)) is not None:
            self._memory.gave(_bytes_of(command, older))
        known = command in self.plans
        self.plans[command] = plan
        if not known:
            self._memory.took(size)

    def remember_answer(
        self, packet: bytes, plan: Preparation, answered: tuple[int, bytes]
    ) -> None:
        """The server has prepared a statement by this plan, and answered so."""
        plan.accepted = plan.answered == answered
        if not plan.accepted and self.plans.get(packet) is plan:
            before, plan.answered = plan.size_bytes, answered
            self._memory.took(plan.size_bytes - before)

    def outdate(self) -> None:
        """All its plans are older ones from here on."""
        plans, self.plans = self.plans, {}
        if self.older:
            self.older.update(plans)
        else:
            self.older = plans

    def retire(self) -> None:
        """What its plans went by is no longer so."""
        self._retired = True
        self.plans.clear()
        self.older.clear()


def _bytes_of(command: CommandKey, plan: Plan) -> int:
    key = len(command) if isinstance(command, bytes) else sum(map(len, command))
    return key + bytes_of(plan)


def bytes_of(plan: Plan) -> int:
    """About how many bytes a plan takes."""
    shared = plan.counts.size_bytes // _PLANS_OF_A_ROW
    if isinstance(plan, (Pass, Preparation)):
        return plan.size_bytes + shared
    tags = (plan.like if isinstance(plan, Template) else plan).tags.tags
    return _READ_BYTES + _TAG_BYTES * max(len(tags) - _SHARED_TAGS, 0) + shared


def _as_it_is(plan: Plan) -> Plan:
    return plan


class Contexts:
    """Those of one process. Their plans together take at most twice so many bytes: in two halves,
    of which the older one is forgotten when the newer one is full.

    `renew` gives a plan as it would be made now: that one itself mostly; None where it would have
    to be found out. A plan in the older half may need that.
    """

    def __init__(self, max_bytes: int, renew: Callable[[Plan], Plan | None] = _as_it_is) -> None:
        self.renew = renew
        self._newer = Tally(max_bytes)
        self._older_bytes = 0
        self._known: dict[Key, Context] = {}
        self._all: WeakSet[Context] = WeakSet()  # those that sessions hold among them

    def __len__(self) -> int:
        """How many may be asked for again."""
        return len(self._known)

    @property
    def size_bytes(self) -> int:
        return self._older_bytes + self._newer.size_bytes

    def of(self, state: SessionState) -> Context:
        """The context of sessions like this one."""
        attributes = bool(state.capabilities & Capability.QUERY_ATTRIBUTES)
        key = state.fingerprint(), state.words, attributes, state.multi_statements
        context = self._known.pop(key, None)
        if context is None:
            context = Context(key, state, self)
            self._all.add(context)
            if len(self._known) >= _MOST_CONTEXTS:  # the one least recently asked for makes room
                del self._known[next(iter(self._known))]
        self._known[key] = context
        return context

    def has_room_for(self, size: int) -> bool:
        """Whether a plan of so many bytes is not too large."""
        return size * 10 <= self._newer.max_bytes

    def took(self, size: int) -> None:
        """A context has got a plan of so many bytes."""
        self._newer.size_bytes += size
        if self._newer.full:
            self._forget_older()
            self.outdate()

    def gave(self, size: int) -> None:
        """A context has given up an older plan of so many bytes."""
        self._older_bytes -= size

    def outdate(self) -> None:
        """What plans go by has changed: each is to be renewed, or not, when it is asked for."""
        if self.size_bytes > self._newer.max_bytes:
            self._forget_older()
        for context in self._all:
            context.outdate()
        self._older_bytes += self._newer.size_bytes
        self._newer.size_bytes = 0

    def _forget_older(self) -> None:
        for context in self._all:
            context.older.clear()
        self._older_bytes = 0

    def retire(self) -> None:
        """What all plans went by is no longer so: every session has to ask for another context."""
        for context in self._all:
            context.retire()
        self._all.clear()
        self._known.clear()
        self._older_bytes = self._newer.size_bytes = 0
