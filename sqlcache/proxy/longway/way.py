"""The long way: a coroutine that serves one command after another."""

import asyncio
import contextlib
import logging
from time import perf_counter

from sqlcache.cache.fence import IsOver
from sqlcache.errors import ConnectionLost, WriteRefused
from sqlcache.mysql.constants import ER_UNKNOWN_ERROR, Command
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import HEADER_BYTES, err_packet
from sqlcache.patience import Patience
from sqlcache.plan.commands import USE_PREPARED, ClientCommand
from sqlcache.proxy.checks import SHADOW
from sqlcache.proxy.login import LoginRelay
from sqlcache.proxy.longway.answers import Answers
from sqlcache.proxy.longway.counting import Counting
from sqlcache.proxy.longway.dispatch import Dispatch
from sqlcache.proxy.longway.init_connect import publish_init_connect
from sqlcache.proxy.longway.planning import Planning
from sqlcache.proxy.longway.reading import Reading
from sqlcache.proxy.longway.running import Running
from sqlcache.proxy.longway.standing import Standing
from sqlcache.proxy.longway.unsent import Unsent
from sqlcache.proxy.session_parts import SessionParts
from sqlcache.proxy.straight.exchange import IN_UNCACHEABLE_TRANSACTION
from sqlcache.proxy.straight.inflight import HandedOver, Stage
from sqlcache.proxy.straight.path import StraightPath

log = logging.getLogger(__name__)

_AFTER_ONE_IN_VAIN = 30  # transactions: what came in the last could not be sent with its BEGIN
_WANTED_S = 1.0  # until it is looked again whether others want what a client has left
_LONGEST_LOOK_S = 1.0  # at a memcached that does not answer, before the first command


class LongWay:
    """See the package. `begin` is to be awaited first, when the client has logged in."""

    __slots__ = ("_answers", "_dispatch", "_engine", "_handles", "_looks_again", "_metrics",
                 "_planner", "_reading", "_relay", "_running", "_shadow", "_unsent", "_writes",
                 "course", "last", "meanings", "standing", "straight")  # fmt: skip

    def __init__(self, shared: SessionParts, logins: LoginRelay) -> None:
        self._relay = shared.relay
        self._engine = shared.engine
        self._planner = shared.planner
        self._metrics = shared.metrics
        self._shadow = shared.shadow
        self._writes = shared.writes
        self._handles = shared.handles
        self.last = shared.last
        self.meanings = shared.meanings
        self.course = shared.course
        self.standing = standing = Standing(shared)
        self.straight = standing.straight = StraightPath(shared, standing.turned)
        self._answers = answers = Answers(shared, standing)
        self._unsent = unsent = Unsent()
        self._running = running = Running(shared, standing, answers, unsent)
        planning = Planning(shared, standing)
        counting = Counting(shared, standing, running)
        hits = self.straight.hits
        self._reading = reading = Reading(
            shared, standing, planning, running, answers, counting, hits
        )
        self._dispatch = Dispatch(
            shared, logins, standing, planning, reading, running, answers, counting, unsent
        )
        self._looks_again: asyncio.TimerHandle | None = None

    async def begin(self, login: Login, status: int) -> None:
        """The client has logged in. Raises: ConnectionLost; CacheUnavailable."""
        self.standing.begin(login, status)
        if not self.standing.questions.knows_rights():
            with contextlib.suppress(TimeoutError), Patience(_LONGEST_LOOK_S):
                await self.standing.questions.confirm_rights()  # else before the first statement
        error = await publish_init_connect(
            self._planner,
            self._writes,
            self._relay,
            self.standing.state,
            self.standing.questions,
        )
        if error:
            await self._relay.client.read()  # some of its first command
            self._relay.client.write(error)
            raise ConnectionLost("the server has ended a session that it could not begin")
        self.standing.refresh_context()

    def close(self, is_over: IsOver) -> None:
        """The session ends, whatever is under way. `is_over` tells whether its connection to MySQL,
        which may still be at a write, is known to have ended."""
        if self._looks_again is not None:
            self._looks_again.cancel()
        self._writes.abandon(is_over)
        self.straight.close()
        if self.standing.has_begun:
            self.standing.own.leave()
        self._handles.end()
        self.meanings.forget()
        self._relay.break_off()

    @property
    def why_no_hits(self) -> str:
        """Why no read of it can be a hit now, for people; "" where one can."""
        if not self._planner.keeper.enabled or self.standing.context is None:
            return self.standing.hindrance.why
        if self._shadow:
            return SHADOW.reason
        view = self.standing.own.view
        uncacheable = view is not None and view.uncacheable
        return IN_UNCACHEABLE_TRANSACTION.why if uncacheable else ""

    @property
    def handed_over(self) -> ClientCommand | None:
        """The command that the straight path has handed over, for `serve` to go on with."""
        begun = self.course.handed_over
        if begun is None:
            return None
        now = begun.command
        return ClientCommand(
            now.packet[HEADER_BYTES],
            now.packet,
            whole=True,
            execution=now.execution,
            counts=now.plan.counts,
        )

    def client_changed(self) -> None:
        """A client that went away has its query ended, but never a write, nor before all it sent
        has been done: MySQL too would do it. Nor while others wait for its answer."""
        client = self._relay.client
        if not client.closed or client.has_some or self._unsent:
            return
        if self._writes.under_way:
            self.end_writing()
            return
        now = self.course.now
        fill = self._reading.filling if now is None else now.lease
        if fill is not None and fill.is_wanted_without_client():
            if self._looks_again is not None:
                self._looks_again.cancel()
            loop = asyncio.get_running_loop()
            self._looks_again = loop.call_later(_WANTED_S, self.client_changed)
            return
        self._relay.upstream.abort()
        self._reading.end_wait()

    def upstream_changed(self) -> None:
        """Where MySQL ends the connection of a client that waits for another's fill, or says what
        would be taken for an answer, the client's ends as well."""
        upstream = self._relay.upstream
        if upstream.closed or (upstream.has_some and not self._reading.pings):
            self._reading.end_wait()

    def ping(self) -> bool:
        """See `Reading.ping`."""
        self.upstream_changed()  # before the wait began, perhaps
        return self._reading.ping()

    def end_writing(self) -> None:
        """See `Answers.end_writing`."""
        self._answers.end_writing()

    async def serve(self, command: ClientCommand) -> bool:
        """Answers one command; False when it was the last."""
        if command.code == Command.QUIT:
            self._metrics.statements_relayed += 1
            self._relay.upstream.drop_ahead()
            self._relay.upstream.write(command.data)
            return False
        begun, self.course.handed_over = self.course.handed_over, None
        if begun is None:
            self.last.asked_at = perf_counter()
        self.last.basis = "unreadable"
        if begun is None or begun.stage is not Stage.SENT:
            self.standing.note_globals()
        if self._relay.upstream.unsettled and (begun is None or begun.stage is Stage.UNPLANNED):
            await self._settle()
        elif self._handles.awaits_some and (begun is None or begun.stage is not Stage.SENT):
            await self._await_prepared(begun)
        try:
            if command.code in USE_PREPARED:
                self._dispatch.name(command)
            if begun is None and command.code in USE_PREPARED:
                await self._dispatch.end_closed(command)
            if begun is not None:
                await self._dispatch.go_on(command, begun)
                goes_on = True
            else:
                goes_on = await self._dispatch.serve(command)
        except WriteRefused as error:
            goes_on = await self._refuse(command, error)
        self.meanings.answered()
        await self._relay.let_client_catch_up()
        standing = self.standing
        if standing.state.rights.assumed:
            standing.refresh_context()  # an embedded client may ask, now that it has its answer
            await standing.questions.confirm_rights()
        standing.refresh_context()
        return goes_on

    async def _await_prepared(self, begun: HandedOver | None) -> None:
        """Until MySQL has said what it makes of all that it was sent to prepare."""
        try:
            with self._unsent.unread():
                await self._relay.upstream.settle()
        except BaseException:
            if begun is not None and begun.command.lease is not None:
                begun.command.lease.release_soon()
            raise

    async def _settle(self) -> None:
        """Has MySQL take what waits for the next command, which may write, and what it was told
        and has not answered: else it could do so by settings that it refuses."""
        if self.standing.own.view is not None:
            self.straight.ahead.begin_at_once(_AFTER_ONE_IN_VAIN)
        with self._unsent.unread():
            await self._relay.upstream.settle()

    async def _refuse(self, command: ClientCommand, error: WriteRefused) -> bool:
        """Answers a write that is not to be made. False where that ends the session: of a long one
        MySQL has all but the last bytes, and waits for these; and by what an execution would have
        told it the client's next one may be meant."""
        self._metrics.writes_refused += 1
        if self._engine.seldom.says(str(error)):
            log.warning("write refused error=%s", error, extra={"kind": "write"})
        self._relay.client.write(err_packet(1, ER_UNKNOWN_ERROR, str(error), "HY000"))
        return await self._running.withheld(command)
