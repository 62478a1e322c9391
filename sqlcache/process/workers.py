"""Several processes on one port, each a whole proxy: the kernel deals out the connections, to the
socket that each has there.

The parent serves no client. It starts the workers, starts anew those that die, and answers the
admin door for all of them. They exchange messages: the parent asks, the worker answers; that no
more come tells a worker that its parent has gone, or the parent that the worker has.
"""

import asyncio
import itertools
import logging
import multiprocessing
import socket
from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import isawaitable
from typing import Any

from sqlcache.admin.health import DRAINING, STARTING, Readiness
from sqlcache.admin.questions import Question
from sqlcache.errors import ConfigError, NotNow
from sqlcache.metrics import Metrics, Snapshot
from sqlcache.process import logs
from sqlcache.process.asking import Asking
from sqlcache.process.messages import Messages
from sqlcache.process.ports import Port
from sqlcache.process.seats import Seats
from sqlcache.process.usage import measure
from sqlcache.settings import Settings
from sqlcache.tasks import Tasks

log = logging.getLogger(__name__)


class Told(StrEnum):
    """What a worker tells its parent unasked."""

    LISTENS = "listens"
    """It accepts clients; or the reason why it cannot."""
    READY = "ready"
    """Its reads can be hits, or MySQL is away."""
    LEAVES = "leaves"
    """It accepts no more clients."""


_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_CUT_S = 1.0
KILL_AFTER_S = 5.0
"""A worker that has not drained by so long after its time is killed."""


class Workers:
    """The parent's view of its workers. `target` is what each runs, with its settings, sockets, end
    of the messages and seats, and the certificate that all of them show where the settings have
    none."""

    def __init__(
        self,
        settings: Settings,
        port: Port,
        target: Callable[..., None],
        certificate: bytes | None = None,
    ) -> None:
        self._settings = settings
        self._port = port
        self._certificate = certificate
        self._target = target
        self._metrics = Metrics()
        self._workers: list[_Worker] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._draining = False

    async def listen(self) -> None:
        """Returns when all workers accept clients. Raises: ConfigError."""
        seats = Seats(self._settings.workers)
        for slot in range(self._settings.workers):
            given = self._port, slot, seats.of(slot), self._certificate
            self._workers.append(_Worker(self._target, self._settings, *given))
        await asyncio.gather(*(worker.start() for worker in self._workers))
        self._keepers = [asyncio.create_task(self._keep(worker)) for worker in self._workers]

    async def get_ready(self) -> None:
        """Returns when all are ready, or have ended before they were."""
        await asyncio.gather(*(worker.ready.wait() for worker in self._workers))

    async def turns(self) -> bool:
        """Whether the event loops of all that run turn."""
        running = [worker for worker in self._workers if worker.runs]
        answers = await asyncio.gather(*(worker.ask(Question.TURNS) for worker in running))
        return None not in answers

    async def use(self, settings: Settings) -> None:
        """Has all workers go by these from here on, those started later, too. Raises nothing: of a
        worker that cannot, as where a file is just being replaced, a line tells."""
        self._settings = settings
        answers = await asyncio.gather(*(worker.use(settings) for worker in self._workers))
        for number, problem in enumerate(answers):
            if problem:
                log.error("settings not reloaded worker=%d reason=%s", number, problem)

    async def stop(self) -> None:
        """Lets all workers drain, and ends those that do not."""
        self._draining = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        timeout_s = self._settings.proxy.drain_timeout_s + KILL_AFTER_S
        await asyncio.gather(*(worker.stop(timeout_s) for worker in self._workers))

    def cut(self) -> None:
        """Ends the draining at once."""
        for worker in self._workers:
            worker.cut()

    async def readiness(self) -> Readiness:
        """That of all together."""
        if self._draining:
            return Readiness({"sqlcache": DRAINING})
        answers: list[Readiness | None] = await self._ask_all(Question.READINESS)
        starting = Readiness({"sqlcache": STARTING})
        named = [(f"worker {n}", answer or starting) for n, answer in enumerate(answers)]
        together = Readiness.of_all(named)
        stuck = {  # the kernel goes on giving it clients
            f"worker {n}": "does not answer"
            for n, (worker, answer) in enumerate(zip(self._workers, answers, strict=True))
            if answer is None and worker.runs
        }
        return Readiness({**together.problems, **stuck}, together.warnings)

    async def counted(self) -> Metrics:
        """What all have counted, those that have ended as well; and what this process takes."""
        counted = await asyncio.gather(*(worker.count() for worker in self._workers))
        measure(self._metrics)
        return Metrics.merge(itertools.chain(*counted, [self._metrics.snapshot()]))

    async def ask(self, question: Question, *about: Any) -> list[Any]:
        """The answers of those that answer."""
        if question is Question.ENABLE:
            for worker in self._workers:
                worker.start_with(enabled=about[0])
        answers = await self._ask_all(question, *about)
        own = [logs.EVENTS.report()] if question is Question.EVENTS else []
        return own + [answer for answer in answers if answer is not None]

    async def ask_one(self, question: Question, *about: Any) -> list[Any]:
        """The answer of the first that answers; none where none does."""
        for worker in self._workers:
            answer = await worker.ask(question, *about)
            if answer is not None:
                return [answer]
        return []

    async def _keep(self, worker: "_Worker") -> None:
        """Starts the worker anew whenever it has ended; never returns."""
        pause_s = _FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await worker.ended.wait()
            self._metrics.workers_ended += 1
            log.error("worker ended exit_code=%s", worker.exit_code)
            if loop.time() - began > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            while worker.ended.is_set():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                try:
                    await worker.start()
                except (ConfigError, OSError) as error:  # as where there is no memory for a process
                    log.error("worker not started error=%s", error)

    async def _ask_all(self, what: Question, *about: Any) -> list[Any]:
        return await asyncio.gather(*(worker.ask(what, *about) for worker in self._workers))


class _Worker:
    """One worker process, or its successor."""

    def __init__(
        self,
        target: Callable[..., None],
        settings: Settings,
        port: Port,
        slot: int,
        seats: Seats,
        certificate: bytes | None,
    ) -> None:
        self._target = target
        self._settings = settings
        self._port = port
        self._slot = slot
        self._seats = seats
        self._certificate = certificate
        self._loop = asyncio.get_running_loop()
        self._asking = Asking(self._told, self._hung_up)
        self._process: Any = None
        self._started: asyncio.Future[ConfigError | None] = self._loop.create_future()
        self._counts = _Counts()
        self._enabled: bool | None = None
        self._too_late: asyncio.TimerHandle | None = None
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def runs(self) -> bool:
        """Whether there is a process that accepts clients."""
        return self._asking.is_open and self._started.done()

    @property
    def exit_code(self) -> int | None:
        """Of a process that has ended; negative for a signal."""
        code: int | None = self._process.exitcode
        return code

    async def start(self) -> None:
        """Returns when it accepts clients. Raises: ConfigError when it cannot, OSError when there
        can be no process."""
        given = launched = self._settings
        if self._enabled is not None and given.cache.mode != "shadow":  # which answers nothing
            mode = "on" if self._enabled else "off"
            cache = given.cache.model_copy(update={"mode": mode})
            launched = given.model_copy(update={"cache": cache})
        await self._launch(launched)
        problem = await self._started
        if problem is not None:
            raise problem
        if self._settings is not given:  # they have changed while it started
            await self.use(self._settings)
        if self._enabled not in (None, launched.cache.mode != "off"):
            await self.ask(Question.ENABLE, self._enabled)

    async def _launch(self, settings: Settings) -> None:
        """Begins its process. Raises: ConfigError, OSError, and there is none."""
        sockets = self._port.sockets(self._slot, of=settings.workers)
        ours, theirs = socket.socketpair()
        given = settings, sockets, theirs, self._seats, self._certificate
        process = multiprocessing.get_context("spawn").Process(target=self._target, args=given)
        with theirs:
            try:
                process.start()
            except BaseException:
                ours.close()
                self._port.drop(self._slot)
                raise
        self._process = process
        self._started = self._loop.create_future()
        self.ended.clear()
        self.ready.clear()
        await self._asking.open(ours)

    def start_with(self, *, enabled: bool) -> None:
        """Its successors have the cache on, or off."""
        self._enabled = enabled

    async def use(self, settings: Settings) -> str | None:
        """Has it, and its successors, go by these. What is wrong with them, if it is known."""
        self._settings = settings
        problem: str | None = await self.ask(Question.USE, settings)
        return problem

    async def ask(self, what: Question, *about: Any) -> Any:
        """Its answer; None if it has none in time."""
        return await self._asking.ask(what, *about) if self.runs else None

    async def count(self) -> list[Snapshot]:
        """What it counts, and what its predecessors counted: a counter must never fall."""
        return self._counts.told(await self.ask(Question.METRICS))

    async def stop(self, timeout_s: float) -> None:
        """Ends it: asks first, then kills."""
        if self._process is None or self.ended.is_set():
            return
        try:
            self._asking.tell(Question.DRAIN)
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        except TimeoutError:
            self._process.kill()
            await self.ended.wait()

    def cut(self) -> None:
        """Ends at once what a `stop` under way still waits for."""
        if self._asking.is_open:
            self._asking.tell(Question.CUT)
            self._loop.call_later(_CUT_S, self._process.kill)

    def _told(self, what: str, reason: ConfigError | None) -> None:
        """See `Told`."""
        if what == Told.READY:
            self.ready.set()
        elif what == Told.LEAVES:
            self._port.drop(self._slot)
        elif not self._started.done():
            self._started.set_result(reason)

    def _hung_up(self) -> None:
        """It is about to end, and says nothing more."""
        self._loop.add_reader(self._process.sentinel, self._gone)
        self._too_late = self._loop.call_later(KILL_AFTER_S, self._process.kill)

    def _gone(self) -> None:
        """The process has ended."""
        self._loop.remove_reader(self._process.sentinel)
        if self._too_late is not None:
            self._too_late.cancel()
        self._process.join()
        self._port.drop(self._slot)
        self._seats.clear()
        self._counts.ended()
        if not self._started.done():
            how = f"a worker ended with exit code {self.exit_code} at its start"
            self._started.set_result(NotNow(how))  # as where there was no memory for it
        self.ready.set()
        self.ended.set()


class _Counts:
    """What one worker counts, and what its predecessors counted: a counter must never fall."""

    def __init__(self) -> None:
        self._counted: Snapshot = {}
        self._past: Snapshot = {}

    def told(self, counted: Snapshot | None) -> list[Snapshot]:
        """All of it, where this is what the worker tells; None if it does not answer."""
        self._counted = Metrics.past(self._counted) if counted is None else counted
        return [self._past, self._counted]

    def ended(self) -> None:
        """The worker has ended: what it told last is what it has counted."""
        self._past = Metrics.past(Metrics.merge([self._past, self._counted]).snapshot())
        self._counted = {}


class Parent:
    """The worker's side: answers what its parent asks. `stopped` is set when that has gone.

    What an answer's function returns is awaited where it can be.
    """

    def __init__(
        self, answers: Mapping[Question, Callable[..., Any]], stopped: asyncio.Event
    ) -> None:
        self._answers = answers
        self._tasks = Tasks()
        self._messages = Messages(self._asked, stopped.set)

    async def open(self, end: socket.socket) -> None:
        """Begins, at this end of the messages."""
        await self._messages.open(end)

    def tell(self, what: Told, reason: ConfigError | None = None) -> None:
        """Tells it something unasked."""
        self._messages.send((what, reason))

    async def close(self) -> None:
        """There is no more to be said."""
        await self._messages.close()

    def _asked(self, message: tuple[Any, ...]) -> None:
        self._tasks.spawn(self._answer(*message))

    async def _answer(self, number: int, what: Question, *about: Any) -> None:
        try:
            made = self._answers[what](*about)
            answer = await made if isawaitable(made) else made
        except Exception:
            log.exception("not answered question=%s", what.value)
            answer = None
        self._messages.send((number, answer))
