"""How many rows there are without a LIMIT: asked where an answer is stored for which that counts,
and told after a hit."""

from sqlcache.cache import entry
from sqlcache.mysql.rows import with_last_row
from sqlcache.plan.cacheability import NotCacheable
from sqlcache.plan.commands import ClientCommand, Meaning
from sqlcache.proxy.longway.running import FOUND_ROWS, Running
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.questions import digits
from sqlcache.proxy.session_parts import SessionParts

_COUNT_BYTES = 1_000  # an answer to FOUND_ROWS() is shorter
_OF_FOUND_ROWS = NotCacheable("not cacheable", "calls FOUND_ROWS()")


class Counting:
    """That of one session."""

    __slots__ = ("_client", "_copies", "_diagnostics", "_last", "_metrics", "_planner", "_running",
                 "_standing", "_tells")  # fmt: skip

    def __init__(self, shared: SessionParts, standing: Standing, running: Running) -> None:
        self._client = shared.relay.client
        self._planner = shared.planner
        self._metrics = shared.metrics
        self._last = shared.last
        self._diagnostics = shared.diagnostics
        self._copies = shared.copies
        self._standing = standing
        self._running = running
        self._tells = not (shared.embedded or shared.options.shadow)

    async def count_all(self, command: ClientCommand) -> int | None:
        """How many rows the query has without its LIMIT, which the server has just run, marked."""
        told = await self._standing.questions.ask(FOUND_ROWS)
        rows = int(digits(told[0][0])) if told else entry.COUNTED
        if rows >= entry.COUNTED:
            return None
        self._diagnostics.counted(command.data, rows | entry.COUNTED)
        return rows | entry.COUNTED

    async def answers(self, command: ClientCommand, meaning: Meaning) -> bool:
        """Answers what asks for FOUND_ROWS() only as the server once did, but with the number that
        is so for the client; False if a command is no such, or its number is not known."""
        context = self._standing.context
        rows = None if self._diagnostics.left_more else self._diagnostics.found_rows(command.data)
        tells = self._tells and self._standing.allowed
        if not tells or rows is None or context is None:
            return False
        key = context.fingerprint, command.data
        value = b"%d" % rows
        answered = self._planner.counts.get(key)
        if answered is not None:
            self._diagnostics.answered(command)
            told = with_last_row(self._stamped(answered), value)
            self._client.write(told)
            command.counts.hit(self._metrics, self._last.asked_at, len(told))
            return True
        self._last.went_past(command.counts, _OF_FOUND_ROWS.label, _OF_FOUND_ROWS.why)
        warnings = self._planner.keeper.warnings_of_counting
        kept = self._copies.begin(warnings, max_bytes=_COUNT_BYTES)
        tracker = await self._running.execute(command, meaning, kept)
        made = kept.entry(b"", tracker)
        kept.give_back()
        # Digits may be written otherwise, in UTF-16 say.
        if made is not None and with_last_row(self._stamped(made), value) == self._stamped(made):
            self._planner.counts.put(key, made, len(made) + sum(map(len, key)))
        return True

    def _stamped(self, made: bytes) -> bytes:
        """The packets of an entry without versions, for this session."""
        packets = entry.packets_for(made, 0, self._standing.state.status)
        assert packets is not None
        return packets
