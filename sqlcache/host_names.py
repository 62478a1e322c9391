"""The addresses of hosts that have names: of memcached's nodes, and of MySQL.

Each name is looked up once at a time, in a thread of its own. Where no name server answers, a
look-up takes longer than whoever reaches for the host waits, and he tries again: in the few threads
that the event loop has for all that blocks, other names and other work would wait behind all that.

What was found is kept for a second: a thread, and the files that the resolver reads, take half as
long as all else that a client's login does here.
"""

import asyncio
import os
import socket
from concurrent.futures import Future
from functools import lru_cache
from threading import Lock, Thread
from time import monotonic

_HOSTS_KEPT = 64
_KEPT_S = 1.0

_found: dict[str, tuple[list[str], float]] = {}
"""Addresses, and until when they are kept."""
_under_way: dict[str, Future[list[str]]] = {}
_lock = Lock()


async def addresses(host: str) -> list[str]:
    """Those of a host, a second ago at the most, or itself, where it is one. Who is cancelled
    leaves the look-up under way, for who asks again. Raises: OSError."""
    if is_address(host):
        return [host]
    kept, until = _found.get(host, ([], 0.0))
    if monotonic() < until:
        return kept
    with _lock:
        found = _under_way.get(host)
        if found is None:
            found = Future()
            found.set_running_or_notify_cancel()  # nobody who waits can cancel it
            _begin(host, found)
            _under_way[host] = found  # which it ends once nobody holds the lock
    return await asyncio.wrap_future(found)


def _begin_anew() -> None:
    """In a process that was forked off no thread is left that would end a look-up."""
    global _lock
    _lock = Lock()
    _under_way.clear()


os.register_at_fork(after_in_child=_begin_anew)


def _begin(host: str, found: Future[list[str]]) -> None:
    thread = Thread(target=_look_up, args=(host, found), name="sqlcache-names", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # as many run as may
        raise OSError(f"no thread can be had to look up {host}") from error


@lru_cache(_HOSTS_KEPT)
def is_address(host: str) -> bool:
    """Whether it is none that is to be looked up."""
    try:
        return bool(socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST))
    except (OSError, UnicodeError):
        return False


def _look_up(host: str, found: Future[list[str]]) -> None:
    said: list[str] | OSError
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        said = [str(address[0]) for *_, address in infos]
    except UnicodeError:
        said = OSError(f"{host} is no name")
    except OSError as error:
        said = error
    with _lock:
        del _under_way[host]
        _found.pop(host, None)
        if not isinstance(said, OSError):
            if len(_found) >= _HOSTS_KEPT:
                _found.clear()
            _found[host] = said, monotonic() + _KEPT_S
    if isinstance(said, OSError):
        found.set_exception(said)
    else:
        found.set_result(said)
