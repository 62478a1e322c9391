"""`sqlcache serve`, from its start to its end; and `sqlcache invalidate`, which serves nobody.

- Clients are accepted as soon as memcached is known or known to be away, and the admin address is
  had; then the admin door opens, which says that the start goes on until MySQL, too, is known or
  known to be away.
- SIGHUP reads the settings again, see `reloading`.
- SIGTERM and SIGINT drain, a second one ends what is left at once. The admin door answers until the
  end.
- systemd is told by the process it started, for all that serve.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import uvloop

from sqlcache.admin.questions import Operated, Question
from sqlcache.errors import ConfigError
from sqlcache.process import logs, open_files
from sqlcache.process.ports import Port
from sqlcache.process.reloading import Reloading
from sqlcache.process.seats import Seats
from sqlcache.process.systemd import Systemd
from sqlcache.process.workers import KILL_AFTER_S, Parent, Told, Workers
from sqlcache.settings import HostPort, Settings

if TYPE_CHECKING:
    from sqlcache.admin.http import AdminServer
    from sqlcache.app import App

log = logging.getLogger(__name__)

_BEATS_A_WATCHDOG: Final = 3
_YOUNG_OBJECTS: Final = 10_000  # more than those of a turn of the event loop with many clients
_DOOR_EVERY_S: Final = 0.2
_GIVES_WAY_S: Final = 0.0005
"""For how long a thread that reads a long text may keep the event loop from its next turn."""
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(settings: Settings, read: Callable[[], Settings]) -> int:
    """Runs the proxy until SIGTERM or SIGINT; returns the process's exit code. `read` reads the
    settings again, and may raise ConfigError.

    Raises: ConfigError where an address cannot be had or a certificate cannot be used.
    """
    open_files.raise_limit()  # workers inherit it
    uvloop.run(_serve(settings, read))
    return 0


def invalidate(settings: Settings, read: Callable[[], Settings]) -> int:
    """Follows the binary log until SIGTERM or SIGINT, for others that share the memcached nodes;
    returns the process's exit code.

    Raises: ConfigError.
    """
    if settings.memcached.in_memory:
        raise ConfigError("memcached.nodes = memory: expected nodes, which others share")
    uvloop.run(_invalidate(_following(settings), lambda: _following(read())))
    return 0


def _following(settings: Settings) -> Settings:
    """The same, but that it is to follow the log, whatever those that serve beside it are to: it
    does nothing else, so that it cannot is a fault."""
    follows = settings.binlog.model_copy(update={"follow": "on"})
    return settings.model_copy(update={"binlog": follows})


_T = TypeVar("_T")
_Listen = Callable[[], Awaitable[None]]
"""Accepts clients from then on. Raises: ConfigError."""


class _Serving(Operated, Protocol):
    """One process that serves, or the parent of several."""

    async def get_ready(self) -> None:
        """Returns when reads can be hits, or MySQL is found to be away."""

    async def turns(self) -> bool:
        """Whether every process that serves turns its event loop."""

    async def use(self, settings: Settings) -> None:
        """Goes by these from here on, as far as it can. Raises: ConfigError."""

    async def stop(self) -> None:
        """Drains, then closes everything."""

    def cut(self) -> None:
        """Ends the draining at once."""


class _Signals:
    """What signals ask for, from before there is anybody to do it."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.reload = asyncio.Event()
        self.cut: Callable[[], None] = self.stopped.set  # what a second one that stops does
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop)

    def _stop(self) -> None:
        if self.stopped.is_set():
            self.cut()
        self.stopped.set()

    @staticmethod
    def ignore() -> None:
        """Or one that comes just then makes an orderly end a death."""
        for number in (*_STOP_SIGNALS, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


async def _serve(settings: Settings, read: Callable[[], Settings]) -> None:
    signals = _Signals()
    take_over, shares = settings.proxy.take_over, not settings.memcached.in_memory
    claim = Port.claim(settings.proxy.listen, take_over=take_over, shares=shares)
    port = await _until(signals.stopped, claim)
    if port is None:
        signals.ignore()
        return
    app, listen = _parts(settings, port)
    await _run(app, listen, f"listening on {port.address}", settings, read, port, signals)


async def _invalidate(settings: Settings, read: Callable[[], Settings]) -> None:
    signals = _Signals()
    app = _app(settings, None, None)
    # It may be another's turn, or the server may not let it.
    status = f"here to follow the binary log of {settings.upstream.url.address}"
    await _run(app, app.attend, status, settings, read, None, signals)


async def _run(
    app: _Serving,
    listen: _Listen,
    status: str,
    settings: Settings,
    read: Callable[[], Settings],
    port: Port | None,
    signals: _Signals,
) -> None:
    """Starts, and ends when it is told to. `status` is what it does then, for people."""
    address = settings.admin.listen
    systemd = Systemd(os.environ)
    reloading = Reloading(settings, read, app, systemd, signals.reload)
    admin = None if address is None else _admin(address, app, reloading)
    door = _Door(admin, patient=settings.proxy.take_over)
    signals.cut = app.cut
    async with AsyncExitStack() as end:  # in reverse, whatever becomes of each
        end.callback(signals.ignore)
        if admin is not None:
            end.push_async_callback(admin.stop)
        end.push_async_callback(app.stop)
        if port is not None:
            end.callback(port.close)
        end.callback(systemd.stopping, settings.proxy.drain_timeout_s + KILL_AFTER_S)
        await _until(signals.stopped, _start(app, listen, status, door, systemd, reloading))
        log.info("draining timeout_s=%s", settings.proxy.drain_timeout_s)


async def _until(stopped: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """What the work makes; None where it is not done when `stopped` is set. Raises what it
    raises."""
    if stopped.is_set():
        return work.close()
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    working.cancel()
    with suppress(asyncio.CancelledError):
        return await working
    return None


def _admin(address: HostPort, app: _Serving, reloading: Reloading) -> AdminServer:
    from sqlcache.admin.http import AdminServer  # only here: no worker needs it
    from sqlcache.admin.site import site

    return AdminServer(address, site(app, reloading))


def _parts(settings: Settings, port: Port) -> tuple[_Serving, _Listen]:
    """What serves, and how it begins to."""
    certificate = _certificate(settings)
    if settings.workers > 1:
        workers = Workers(settings, port, run_worker, certificate)
        return workers, workers.listen
    app = _app(settings, None, certificate)
    own = [each.dup() for each in port.sockets(0, of=1)]

    async def listen() -> None:
        await app.listen(own)

    return app, listen


def _certificate(settings: Settings) -> bytes | None:
    """One for all workers: a client may meet any of them."""
    if not settings.proxy.makes_certificate:
        return None
    from sqlcache import own_certificate  # only here: it takes its time

    return own_certificate.make()


def _app(settings: Settings, seats: Seats | None, certificate: bytes | None) -> App:
    sys.setswitchinterval(_GIVES_WAY_S)
    from sqlcache.app import App  # only here: the parent of workers needs none of it

    _collect_seldom()
    return App(settings, seats=seats, certificate=certificate)


def _collect_seldom() -> None:
    """What a statement makes ends with it, by its references. That there is much of it at a time,
    for many clients, is no sign of garbage; and the modules are never any."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)


async def _start(
    app: _Serving,
    listen: _Listen,
    status: str,
    door: _Door,
    systemd: Systemd,
    reloading: Reloading,
) -> None:
    """Starts everything; then tells systemd again and again, and reloads. Raises: ConfigError."""
    bound = await door.bind()  # before anybody is let in, who would lose what is under way
    await listen()
    if bound:
        await door.open()
    await app.get_ready()
    _say(f"sqlcache ready: {status}")
    systemd.ready(status)
    await asyncio.gather(
        _feed_watchdog(app, systemd), reloading.run(status), *([] if bound else [door.open_late()])
    )


def _say(line: str) -> None:
    """On standard output, if that takes it: its disk may be full, or who read it be gone."""
    try:
        print(line, flush=True)
    except OSError as error:
        log.warning("standard output takes nothing error=%s", error)
        # Else Python tries once more when the process ends, and makes that a failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Door:
    """The admin door, whose address may be that of a sqlcache which is yet to end (`patient`)."""

    def __init__(self, admin: AdminServer | None, *, patient: bool) -> None:
        self._admin = admin
        self._patient = patient

    async def bind(self) -> bool:
        """Whether it has its address now, or needs none. Raises: ConfigError where it cannot."""
        try:
            if self._admin is not None:
                await self._admin.bind()
        except ConfigError as error:
            if not self._patient:
                raise
            log.info("the admin address is taken until the other sqlcache ends reason=%s", error)
            return False
        return True

    async def open(self) -> None:
        """Answers there."""
        if self._admin is not None:
            await self._admin.start()

    async def open_late(self) -> None:
        """Opens it as soon as it can be opened."""
        while True:
            with suppress(ConfigError):
                return await self.open()
            await asyncio.sleep(_DOOR_EVERY_S)


async def _feed_watchdog(app: _Serving, systemd: Systemd) -> None:
    while systemd.watchdog_s is not None:
        if await app.turns():
            systemd.alive()
        await asyncio.sleep(systemd.watchdog_s / _BEATS_A_WATCHDOG)


def run_worker(
    settings: Settings,
    sockets: list[socket.socket],
    messages: socket.socket,
    seats: Seats,
    certificate: bytes | None,
) -> None:
    """What a worker process runs. Its parent tells it when to stop; so does SIGTERM."""
    logs.configure(settings.log.level, settings.log.format)
    for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C, or a terminal's end: for the parent
        signal.signal(number, signal.SIG_IGN)
    try:
        uvloop.run(_serve_as_worker(settings, sockets, messages, seats, certificate))
    except Exception:  # multiprocessing would print it in lines of its own
        log.exception("worker failed")
        sys.exit(1)


async def _serve_as_worker(
    settings: Settings,
    sockets: list[socket.socket],
    messages: socket.socket,
    seats: Seats,
    certificate: bytes | None,
) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        app = _app(settings, seats, certificate)
    except ConfigError as error:
        parent = Parent(dict.fromkeys((Question.DRAIN, Question.CUT), stopped.set), stopped)
        await parent.open(messages)
        parent.tell(Told.LISTENS, error)
        return await parent.close()

    async def use(given: Settings) -> str:
        """What is wrong with these settings; "" if it goes by them now."""
        try:
            await app.use(given)
        except ConfigError as error:
            return str(error)
        logs.configure(given.log.level, given.log.format)
        return ""

    steered: dict[Question, Callable[..., Any]] = {
        Question.USE: use,
        Question.DRAIN: stopped.set,
        Question.CUT: app.cut,
    }
    parent = Parent({**app.answers(), **steered}, stopped)

    async def begin() -> None:
        await app.listen(sockets)
        parent.tell(Told.LISTENS)
        await app.get_ready()
        parent.tell(Told.READY)

    await parent.open(messages)
    try:
        await _until(stopped, begin())
        await stopped.wait()
    except ConfigError as error:
        parent.tell(Told.LISTENS, error)
    finally:
        parent.tell(Told.LEAVES)
        await app.stop()
        await parent.close()
