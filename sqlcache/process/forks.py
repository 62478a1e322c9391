"""What a process that is forked off leaves to the one that it comes from.

Both have the same connections then, and would take each other's answers. So in the new process
each that was told of here is at its end before anything runs there. In the old one nothing changes.
"""

import os
import socket
from asyncio import BaseTransport
from weakref import WeakSet

_ends: WeakSet[socket.socket | BaseTransport] = WeakSet()
_process = object()


def leave_at_fork(end: socket.socket | BaseTransport) -> None:
    """This connection is not taken along by processes that are forked off from here on. Of one that
    is closed nothing is to be seen to."""
    _ends.add(end)


def process() -> object:
    """Stands for this process: after a fork the new one has another."""
    return _process


def _let_go() -> None:
    global _process
    _process = object()
    ended, other = socket.socketpair()
    other.close()
    with ended:
        for end in list(_ends):
            number = _number_of(end)
            if number >= 0:
                os.dup2(ended.fileno(), number, inheritable=False)
    _ends.clear()


def _number_of(end: socket.socket | BaseTransport) -> int:
    """The file's; less than 0 where it is closed, and may be another's by now."""
    if isinstance(end, socket.socket):
        return end.fileno()
    sock = None if end.is_closing() else end.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


os.register_at_fork(after_in_child=_let_go)
