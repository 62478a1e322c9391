"""Several processes on one port, each a whole proxy: the kernel deals out the connections.

The parent serves no client. It starts the workers, starts anew those that die, and answers the
admin door for all of them. They speak over a pipe each: the parent asks, the worker answers; the
pipe's end tells a worker that its parent has gone, or the parent that the worker has.
"""

import asyncio
import contextlib
import itertools
import logging
import multiprocessing
import socket
from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import isawaitable
from multiprocessing.connection import Connection
from typing import Any

from sqlcache.admin import health
from sqlcache.admin.health import DRAINING, STARTING, Readiness
from sqlcache.admin.http import Response, Route
from sqlcache.errors import ConfigError
from sqlcache.metrics import CONTENT_TYPE, Metrics, Snapshot
from sqlcache.settings import HostPort, Settings

log = logging.getLogger(__name__)


class Question(StrEnum):
    """What a parent asks of a worker; and, without a number, what a worker tells unasked."""

    METRICS = "metrics"
    READINESS = "readiness"
    TURNS = "turns"
    DRAIN = "drain"
    CUT = "cut"
    LISTENS = "listens"
    """Told: it accepts clients, or the reason why it cannot."""
    READY = "ready"
    """Told: its reads can be hits, or MySQL is away."""


_ANSWER_TIMEOUT_S = 2.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_CUT_S = 1.0
KILL_AFTER_S = 5.0
"""A worker that has not drained by so long after its time is killed."""


def reserve_port(listen: HostPort) -> socket.socket:
    """A socket that holds the address for the workers and takes no connections itself.

    Raises: ConfigError when the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((listen.host, listen.port))
    except OSError as error:
        held.close()
        reason = error.strerror or str(error)
        raise ConfigError(f"proxy.listen = {listen}: cannot listen: {reason}") from None
    return held


class Workers:
    """The parent's view of its workers. `target` is what each runs: (settings, port, pipe)."""

    def __init__(self, settings: Settings, target: Callable[..., None]) -> None:
        self._settings = settings
        self._target = target
        self._workers: list[_Worker] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._held: socket.socket | None = None
        self._draining = False

    async def listen(self) -> int:
        """Returns the port when all workers accept clients. Raises: ConfigError."""
        self._held = reserve_port(self._settings.proxy.listen)
        port: int = self._held.getsockname()[1]
        for _ in range(self._settings.workers):
            self._workers.append(_Worker(self._target, self._settings, port))
        await asyncio.gather(*(worker.start() for worker in self._workers))
        self._keepers = [asyncio.create_task(_keep(worker)) for worker in self._workers]
        return port

    async def get_ready(self) -> None:
        """Returns when all are ready, or have ended before they were."""
        await asyncio.gather(*(worker.ready.wait() for worker in self._workers))

    async def turns(self) -> bool:
        """Whether the event loops of all that run turn."""
        running = [worker for worker in self._workers if worker.runs]
        answers = await asyncio.gather(*(worker.ask(Question.TURNS) for worker in running))
        return None not in answers

    async def stop(self) -> None:
        """Lets all workers drain, and ends those that do not."""
        self._draining = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        timeout_s = self._settings.proxy.drain_timeout_s + KILL_AFTER_S
        await asyncio.gather(*(worker.stop(timeout_s) for worker in self._workers))
        if self._held is not None:
            self._held.close()

    def cut(self) -> None:
        """Ends the draining at once."""
        for worker in self._workers:
            worker.cut()

    def routes(self) -> dict[str, Route]:
        """The admin door's pages, for all workers together."""
        return {"/live": health.live, "/ready": self._ready, "/metrics": self._metrics}

    async def _ready(self) -> Response:
        if self._draining:
            return health.ready(Readiness({"sqlcache": DRAINING}))
        answers: list[Readiness | None] = await self._ask_all(Question.READINESS)
        starting = Readiness({"sqlcache": STARTING})
        named = [(f"worker {n}", answer or starting) for n, answer in enumerate(answers)]
        together = Readiness.of_all(named)
        stuck = {  # the kernel goes on giving it clients
            f"worker {n}": "does not answer"
            for n, (worker, answer) in enumerate(zip(self._workers, answers, strict=True))
            if answer is None and worker.runs
        }
        return health.ready(Readiness({**together.problems, **stuck}, together.warnings))

    async def _metrics(self) -> Response:
        counted = await asyncio.gather(*(worker.count() for worker in self._workers))
        return Response(200, Metrics.merge(itertools.chain(*counted)).render(), CONTENT_TYPE)

    async def _ask_all(self, what: Question) -> list[Any]:
        return await asyncio.gather(*(worker.ask(what) for worker in self._workers))


async def _keep(worker: "_Worker") -> None:
    """Starts the worker anew whenever it has ended; never returns."""
    pause_s = _FIRST_PAUSE_S
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await worker.ended.wait()
        log.error("worker ended exit_code=%s", worker.exit_code)
        if loop.time() - began > _LONGEST_PAUSE_S:
            pause_s = _FIRST_PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            await worker.start()
        except ConfigError as error:
            log.error("worker not started error=%s", error)


class _Worker:
    """One worker process, or its successor."""

    def __init__(self, target: Callable[..., None], settings: Settings, port: int) -> None:
        self._target = target
        self._settings = settings
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._pipe: Connection | None = None
        self._process: Any = None
        self._started: asyncio.Future[str | None] = self._loop.create_future()
        self._counted: Snapshot = {}
        self._past: Snapshot = {}
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def runs(self) -> bool:
        """Whether there is a process that accepts clients."""
        return self._pipe is not None and self._started.done()

    @property
    def exit_code(self) -> int | None:
        """Of a process that has ended; negative for a signal."""
        code: int | None = self._process.exitcode
        return code

    async def start(self) -> None:
        """Returns when it accepts clients. Raises: ConfigError when it cannot."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=self._target, args=(self._settings, self._port, theirs)
        )
        self.ended.clear()
        self.ready.clear()
        self._started = self._loop.create_future()
        self._process.start()
        theirs.close()
        self._loop.add_reader(self._pipe.fileno(), self._receive)
        problem = await self._started
        if problem is not None:
            raise ConfigError(problem)

    async def ask(self, what: Question) -> Any:
        """Its answer; None if it has none in time."""
        if not self.runs:
            return None
        number = next(self._numbers)
        answer = self._answers[number] = self._loop.create_future()
        try:
            self._tell(number, what)
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._answers.pop(number, None)

    async def count(self) -> list[Snapshot]:
        """What it counts, and what its predecessors counted: a counter must never fall."""
        answer: Snapshot | None = await self.ask(Question.METRICS)
        self._counted = Metrics.past(self._counted) if answer is None else answer
        return [self._past, self._counted]

    async def stop(self, timeout_s: float) -> None:
        """Ends it: asks first, then kills."""
        if self._process is None or self.ended.is_set():
            return
        try:
            self._tell(next(self._numbers), Question.DRAIN)
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        except TimeoutError:
            self._process.kill()
            await self.ended.wait()

    def cut(self) -> None:
        """Ends at once what a `stop` under way still waits for."""
        if self._pipe is not None:
            self._tell(next(self._numbers), Question.CUT)
            self._loop.call_later(_CUT_S, self._process.kill)

    def _tell(self, number: int, what: Question) -> None:
        """Sends a question; one that has gone hears nothing, nor need it."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.send((number, what))

    def _receive(self) -> None:
        assert self._pipe is not None
        try:
            number, answer = self._pipe.recv()
        except (EOFError, OSError):
            self._gone()
            return
        if number == Question.READY:
            self.ready.set()
            return
        waiting = self._started if number == Question.LISTENS else self._answers.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _gone(self) -> None:
        """The pipe ends when the process does."""
        assert self._pipe is not None
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        self._pipe = None
        self._process.join()
        self._past = Metrics.past(Metrics.merge([self._past, self._counted]).snapshot())
        self._counted = {}
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_result(None)
        if not self._started.done():
            self._started.set_result(f"a worker ended with exit code {self.exit_code} at its start")
        self.ready.set()
        self.ended.set()


def answer_parent(
    pipe: Connection, answers: Mapping[Question, Callable[[], Any]], stopped: asyncio.Event
) -> None:
    """The worker's side: answers what its parent asks, until the parent has gone.

    What an answer's function returns is awaited where it can be.
    """
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def answer(number: int, what: Question) -> None:
        made = answers[what]()
        pipe.send((number, await made if isawaitable(made) else made))

    def receive() -> None:
        try:
            number, what = pipe.recv()
        except (EOFError, OSError):
            loop.remove_reader(pipe.fileno())
            stopped.set()
            return
        task = loop.create_task(answer(number, what))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_reader(pipe.fileno(), receive)
