"""`sqlcache serve`, from its start to its end.

- Clients are accepted as soon as memcached is known or known to be away; then the admin door opens,
  which says that the start goes on until MySQL, too, is known or known to be away.
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
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final, Protocol

import uvloop

from sqlcache import files, logs
from sqlcache.admin.http import AdminServer, Route
from sqlcache.errors import ConfigError
from sqlcache.settings import HostPort, Settings
from sqlcache.systemd import Systemd
from sqlcache.workers import KILL_AFTER_S, Question, Workers, answer_parent

if TYPE_CHECKING:
    from sqlcache.app import App

log = logging.getLogger(__name__)

_BEATS_A_WATCHDOG: Final = 3
_YOUNG_OBJECTS: Final = 10_000  # more than those of a turn of the event loop with many clients
_GIVES_WAY_S: Final = 0.0005
"""For how long a thread that reads a long text may keep the event loop from its next turn."""
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(settings: Settings) -> int:
    """Runs the proxy until SIGTERM or SIGINT; returns the process's exit code.

    Raises: ConfigError where an address cannot be had or a certificate cannot be used.
    """
    files.raise_limit()  # workers inherit it
    uvloop.run(_serve(settings))
    return 0


class _Serving(Protocol):
    """One process that serves, or the parent of several."""

    async def listen(self) -> int:
        """Accepts clients from here on; returns the port. Raises: ConfigError."""

    async def get_ready(self) -> None:
        """Returns when reads can be hits, or MySQL is found to be away."""

    async def turns(self) -> bool:
        """Whether every process that serves turns its event loop."""

    async def stop(self) -> None:
        """Drains, then closes everything."""

    def cut(self) -> None:
        """Ends the draining at once."""

    def routes(self) -> Mapping[str, Route]:
        """The admin door's pages."""


async def _serve(settings: Settings) -> None:
    app: _Serving = Workers(settings, run_worker) if settings.workers > 1 else _app(settings)
    address = settings.admin.listen
    admin = None if address is None else AdminServer(address, app.routes())
    systemd = Systemd(os.environ)
    stopped = _stopped_by_signals(app)
    try:
        serving = asyncio.create_task(_start(settings, app, admin, systemd))
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()  # also amid the start
        waiting.cancel()
        try:
            await serving
        except asyncio.CancelledError:
            log.info("draining timeout_s=%s", settings.proxy.drain_timeout_s)
    finally:
        systemd.stopping(settings.proxy.drain_timeout_s + KILL_AFTER_S)
        await app.stop()
        if admin is not None:
            await admin.stop()
        _ignore_signals()  # or one that comes just now would make an orderly end a death


def _app(settings: Settings) -> App:
    sys.setswitchinterval(_GIVES_WAY_S)
    from sqlcache.app import App  # only here: the parent of workers needs none of it

    _collect_seldom()
    return App(settings)


def _collect_seldom() -> None:
    """What a statement makes ends with it, by its references. That there is much of it at a time,
    for many clients, is no sign of garbage; and the modules are never any."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)


async def _start(
    settings: Settings, app: _Serving, admin: AdminServer | None, systemd: Systemd
) -> None:
    """Starts everything, and then tells systemd again and again. Raises: ConfigError."""
    port = await app.listen()
    if admin is not None:
        await admin.start()
    await app.get_ready()
    listen = HostPort(settings.proxy.listen.host, port)
    print(f"sqlcache ready: listening on {listen}", flush=True)
    systemd.ready(f"listening on {listen}")
    while systemd.watchdog_s is not None:
        if await app.turns():
            systemd.alive()
        await asyncio.sleep(systemd.watchdog_s / _BEATS_A_WATCHDOG)
    await asyncio.Event().wait()


def _stopped_by_signals(app: _Serving) -> asyncio.Event:
    stopped = asyncio.Event()

    def stop() -> None:
        if stopped.is_set():
            app.cut()
        stopped.set()

    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop)
    return stopped


def _ignore_signals() -> None:
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def run_worker(settings: Settings, port: int, pipe: Connection) -> None:
    """What a worker process runs. Its parent tells it when to stop; so does SIGTERM."""
    logs.configure(settings.log.level)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    uvloop.run(_serve_as_worker(settings, port, pipe))


async def _serve_as_worker(settings: Settings, port: int, pipe: Connection) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    app = _app(settings)
    try:
        await app.listen(shared_port=port)
        answer_parent(
            pipe,
            {
                Question.METRICS: app.snapshot,
                Question.READINESS: app.readiness,
                Question.TURNS: app.turns,
                Question.DRAIN: stopped.set,
                Question.CUT: app.cut,
            },
            stopped,
        )
        pipe.send((Question.LISTENS, None))
        await app.get_ready()
        pipe.send((Question.READY, None))
        await stopped.wait()
    except ConfigError as error:
        pipe.send((Question.LISTENS, str(error)))
    finally:
        await app.stop()
