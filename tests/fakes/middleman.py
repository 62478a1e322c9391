"""A bad network between sqlcache and a real MySQL: cuts, holds and garbles at chosen moments."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from queue import SimpleQueue
from typing import Self

from sqlcache.demo.servers import HOST, PrivateSqlServer

_DEADLINE_S = 30.0
_OK = b"\x07\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"
_GARBAGE = b"\x07\x00\x00\x01\xfe\xff\xff\xff\xff\xff\xff" + bytes(50)


class Fault(Enum):
    """What befalls a command, or MySQL's answer to it."""

    CUT_BEFORE = "MySQL never sees the command"
    CUT_AFTER = "MySQL has answered, but the answer is lost"
    CUT_AMID = "half of the answer's first chunk arrives"
    GARBAGE = "what arrives is no answer"
    HOLD = "the answer waits for `release`"
    HOLD_GARBAGE = "what arrives is no answer, and it waits for `release`"
    SURPLUS = "after the answer comes more"


_GO_ON = frozenset({Fault.HOLD, Fault.HOLD_GARBAGE, Fault.SURPLUS, Fault.GARBAGE})


@dataclass(slots=True)
class _Trap:
    pattern: bytes
    fault: Fault
    sprung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


class Middleman:
    """Listens where sqlcache takes MySQL to be, and passes everything on, until a trap springs."""

    def __init__(self, server: PrivateSqlServer) -> None:
        self._server = server
        self._listener = socket.create_server((HOST, 0))
        self.host, self.port = self._listener.getsockname()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._trap: _Trap | None = None
        self._setting = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._deaf = threading.Event()
        self._greeting: bytes | None = None

    @property
    def service_url(self) -> str:
        """What `--upstream` takes."""
        return self._server.service_url.replace(str(self._server.port), str(self.port))

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._deaf.clear()
        with contextlib.suppress(OSError):  # or accept(), if stopped, goes on with another's
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(_DEADLINE_S)
        self._listener.close()
        self.cut()

    # What tests ask for.

    def set_trap(self, pattern: bytes, fault: Fault) -> _Trap:
        """The next bytes on their way to MySQL that hold `pattern` suffer `fault`, once."""
        trap = _Trap(pattern, fault)
        with self._setting:
            self._trap = trap
        return trap

    def greet_with(self, greeting: bytes | None) -> None:
        """New connections get these bytes instead of MySQL; b"" is silence."""
        self._greeting = greeting

    def stop_reading(self) -> None:
        """MySQL's side takes nothing more of what is sent to it."""
        self._deaf.set()

    def read_again(self) -> None:
        """Ends `stop_reading`."""
        self._deaf.clear()

    def say(self, data: bytes) -> None:
        """Sends bytes to sqlcache, on every connection, as if MySQL had."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                if each.getsockname()[1] == self.port:
                    each.sendall(data)

    def lead_to(self, server: PrivateSqlServer) -> None:
        """New connections come to this server, those that there are stay."""
        self._server = server

    def cut(self) -> None:
        """Ends every connection with a reset."""
        for each in self._sockets:
            _reset(each)
        self._sockets.clear()

    # How it works inside.

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                if self._greeting is not None:
                    self._spawn(_send, near, self._greeting)
                    continue
                far = socket.create_connection((self._server.host, self._server.port))
                self._sockets.append(far)
                line = _Line(self, near, far)
                self._spawn(line.pass_up)
                self._spawn(line.pass_down)

    def sprung_by(self, data: bytes) -> _Trap | None:
        """The trap, if these bytes spring it."""
        with self._setting:
            trap = self._trap
            if trap is None or trap.pattern not in data:
                return None
            self._trap = None
            return trap

    def wait_while_deaf(self) -> None:
        """Returns when MySQL's side reads again."""
        while self._deaf.is_set():
            threading.Event().wait(0.01)


class _Line:
    """One connection of sqlcache's and its own to MySQL."""

    def __init__(self, middleman: Middleman, near: socket.socket, far: socket.socket) -> None:
        self._middleman = middleman
        self._near = near
        self._far = far
        self._sprung = SimpleQueue[_Trap]()  # by what is passed up, for what is passed down

    def pass_up(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._near.recv(65536):
                self._middleman.wait_while_deaf()
                trap = self._middleman.sprung_by(data)
                if trap is not None and trap.fault is Fault.CUT_BEFORE:
                    self._cut()
                    trap.sprung.set()
                    return
                if trap is not None:
                    self._sprung.put(trap)
                self._far.sendall(data)
        _half_close(self._far)

    def pass_down(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._far.recv(65536):
                if self._sprung.empty():
                    self._near.sendall(data)
                elif not self._suffer(self._sprung.get(), data):
                    return
        _half_close(self._near)

    def _suffer(self, trap: _Trap, data: bytes) -> bool:
        match trap.fault:
            case Fault.CUT_AMID:
                self._near.sendall(data[: len(data) // 2])
                self._near.shutdown(socket.SHUT_RDWR)
                self._far.close()
            case Fault.CUT_AFTER | Fault.CUT_BEFORE:
                self._cut()
            case Fault.GARBAGE:
                self._near.sendall(_GARBAGE)
            case Fault.SURPLUS:
                self._near.sendall(data + _OK)
            case Fault.HOLD:
                trap.sprung.set()
                trap.released.wait(_DEADLINE_S)
                self._near.sendall(data)
            case Fault.HOLD_GARBAGE:
                trap.sprung.set()
                trap.released.wait(_DEADLINE_S)
                self._near.sendall(_GARBAGE)
        trap.sprung.set()
        return trap.fault in _GO_ON

    def _cut(self) -> None:
        _reset(self._near)
        _reset(self._far)


def _reset(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def _half_close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_WR)


def _send(near: socket.socket, data: bytes) -> None:
    """In a thread of its own: whoever is greeted may leave most of a long greeting unread."""
    with contextlib.suppress(OSError):
        near.sendall(data)
