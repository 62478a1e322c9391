"""Plans of what came the long way, by which others like it go the straight path."""

from sqlcache.cache.reads import Read
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import out_of_order
from sqlcache.plan.cacheability import SEVERAL, NotCacheable
from sqlcache.plan.commands import ClientCommand, Meaning
from sqlcache.plan.contexts import Context
from sqlcache.plan.plans import UNTRACEABLE
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.exchange import IN_UNCACHEABLE_TRANSACTION
from sqlcache.sql.statement import Statement
from sqlcache.statement_counts import UNCOUNTED

_TOO_LONG = NotCacheable("not cacheable", "too long to be read whole")
_OUT_OF_ORDER = NotCacheable("unreadable", "its packet is numbered out of order")
_UNREADABLE = NotCacheable("unreadable", "its text cannot be read")


class Planning:
    """That of one session."""

    __slots__ = ("_embedded", "_last", "_meanings", "_planner", "_standing")

    def __init__(self, shared: SessionParts, standing: Standing) -> None:
        self._planner = shared.planner
        self._standing = standing
        self._meanings = shared.meanings
        self._last = shared.last
        self._embedded = shared.embedded

    async def meaning_of(self, command: ClientCommand) -> Meaning:
        """What a command means, the tables it names being known as they are now."""
        meaning = self._meanings.of(command, self._standing.state)
        if await self._planner.keeper.learn_of(meaning.statements, self._standing.state):
            meaning = await self.meaning_now(command)
        command.counts = self._planner.counts_of(meaning, self._standing.state.schema)
        if command.counts is not UNCOUNTED:
            self._last.counts = command.counts
        return meaning

    async def meaning_now(self, command: ClientCommand) -> Meaning:
        """What a command means by the definitions of now, whatever it was read to mean before."""
        await self._meanings.read_ahead(command, self._standing.state)
        return self._meanings.of(command, self._standing.state)

    def plan_read(self, command: ClientCommand, meaning: Meaning) -> Read | NotCacheable:
        """The read a command is, or why it cannot be answered from the cache."""
        if not command.whole:
            return _TOO_LONG
        if out_of_order(command.data):
            return _OUT_OF_ORDER
        if meaning.has_attributes:
            return NotCacheable.since(UNTRACEABLE)
        if meaning.lexed is None or len(meaning.statements) != 1:
            return _UNREADABLE if meaning.lexed is None else SEVERAL
        statement = meaning.statements[0]
        if not statement.cacheable:
            return NotCacheable("not cacheable", statement.reason)
        self._standing.refresh_context()
        context, view = self._standing.context, self._standing.own.view
        if context is None and not self._embedded:  # who lends it to others lends them its tables
            context = self._standing.context_beside_temporary()
        if context is None:
            return self._standing.hindrance
        got: Read | NotCacheable
        if command.code == Command.STMT_EXECUTE:
            got = self._plan_execution(command, statement, context)
        else:
            got = context.read_for(command.data) or self._planner.plan_read(
                command.data, meaning.lexed, statement, context
            )
        if self._standing.context is None and isinstance(got, Read):
            own = self._standing.state.temporary
            if self._planner.may_mean_temporary(got, statement, meaning.schema, own):
                return self._standing.hindrance
        uncacheable = view is not None and view.uncacheable
        in_transaction = uncacheable and isinstance(got, Read)
        return IN_UNCACHEABLE_TRANSACTION if in_transaction else got

    def _plan_execution(
        self, command: ClientCommand, statement: Statement, context: Context
    ) -> Read | NotCacheable:
        prepared = self._meanings.prepared(command)
        if prepared is None:
            return NotCacheable.since(UNTRACEABLE)
        got = self._planner.plan_executions(prepared, statement, context)
        if isinstance(got, NotCacheable):
            return got
        parameters = None if command.execution is None else command.execution.parameters
        if parameters is None or not prepared.traceable:
            return NotCacheable.since(UNTRACEABLE)
        return got.read(parameters)

    def plan_to_pass(self, command: ClientCommand, meaning: Meaning, cause: NotCacheable) -> None:
        """From here on others like this command go the straight path, if they can."""
        context = self._standing.context
        may = self._standing.may_plan(command)
        if self._embedded:  # who lends it to others is to know of each such statement
            may &= not any(each.code_leaves for each in meaning.statements)
        plan = self._planner.plan_to_pass(meaning, cause) if may else None
        if plan is None or context is None:
            return
        prepared = self._meanings.prepared(command)
        if command.code == Command.QUERY:
            self._planner.remember_pass(command.data, meaning, context, plan)
        elif prepared is not None and (cause.label != UNTRACEABLE or not prepared.traceable):
            self._planner.plan_prepared(prepared, context, plan)
