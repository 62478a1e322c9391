"""The address of `proxy.listen`: whose it is, and how a later sqlcache takes it over.

- One sqlcache has an address. Its processes have a listening socket each, and the kernel deals out
  connections among these (SO_REUSEPORT); so that no other sqlcache gets some of them unasked, it
  also has a Unix socket whose name tells the address. That is no file, it is seen where the address
  is (in the network namespace), and it ends with the process, whatever ends that.
- Who takes over is given the very sockets, by that Unix socket, and from then on both accept. When
  the earlier one closes its copies the sockets live on, with the connections that wait in them: no
  client is refused, nor reset.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import struct
from typing import Final, Self

from sqlcache.errors import ConfigError, cannot_listen
from sqlcache.settings import HostPort

log = logging.getLogger(__name__)

_GOING_S: Final = 5.0
"""Workers whose parent was killed close their sockets within this time."""
_TRY_EVERY_S: Final = 0.1
_ANSWER_TIMEOUT_S: Final = 5.0
_MOST_SOCKETS: Final = 250
"""The kernel hands over 253 at a time."""
_SHARED: Final = "--take-over shares it until that one is stopped"
_NOT_SHARED: Final = (
    "where memcached.nodes = memory, neither knows what is written through the other"
)
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


def open_sockets(listen: HostPort) -> list[socket.socket]:
    """A socket for each address that the host's name means, bound, and not listening yet.

    Raises: ConfigError when one cannot be had.
    """
    opened: list[socket.socket] = []
    host: object = ""
    number = listen.port
    try:
        for family, kind, _, _, (host, _, *rest) in _addresses(listen):
            sock = _socket(family, kind)
            opened.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind((host, number, *rest))
            number = sock.getsockname()[1]
    except OSError as error:
        _close(opened)
        raise _no_address(listen, error, host) from None
    return opened


def _addresses(listen: HostPort) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    found = socket.getaddrinfo(
        listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys(found))


def _socket(family: int, kind: int) -> socket.socket:
    sock = socket.socket(family, kind)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of before may linger
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return sock


def _no_address(listen: HostPort, error: OSError, at: object = "") -> ConfigError:
    return cannot_listen("proxy.listen", listen, error, at)


def _peer(connection: socket.socket) -> tuple[int, int]:
    """The process at the other end, and its user."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(told)
    return pid, user


def _close(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


class Port:
    """An address that this sqlcache has, and the sockets of its processes there."""

    def __init__(self, listen: HostPort, *, shares: bool) -> None:
        self._listen = listen
        self._shares = shares
        self._loop = asyncio.get_running_loop()
        self._name: socket.socket | None = None
        self._before: socket.socket | None = None
        self._inherited: list[socket.socket] = []
        self._heirs: set[socket.socket] = set()
        self._held: list[socket.socket] = []
        self._slots: dict[int, list[socket.socket]] = {}
        self._closed = False

    @classmethod
    async def claim(cls, listen: HostPort, *, take_over: bool, shares: bool = True) -> Self:
        """The address, for this process and those that it starts. With `take_over` also one that
        another sqlcache has, of the same user; both have it then. `shares`: what is written through
        one is known to the other; else neither has it with the other.

        Raises: ConfigError when it cannot be had.
        """
        port = cls(listen, shares=shares)
        try:
            if not (take_over and shares) or not port._inherit():
                port._take_name()
                await port._see_that_it_is_free()
            port._held = open_sockets(port.address)
            if port._name is None and port._before is None:
                port._take_name()
        except BaseException:
            port.close()
            raise
        return port

    @property
    def address(self) -> HostPort:
        """Where it is: with the number that port 0 turned out to mean."""
        known = self._held or self._inherited
        number: int = known[0].getsockname()[1] if known else self._listen.port
        return HostPort(self._listen.host, number)

    def sockets(self, slot: int, of: int) -> list[socket.socket]:
        """Those that a process, number `slot` of so many, is to accept at; to be copied for it.
        They stay open here, too, to be handed over."""
        first = slot not in self._slots
        self.drop(slot)
        own = self._inherited[slot::of] if first else []
        self._slots[slot] = own or open_sockets(self.address)
        return self._slots[slot]

    def drop(self, slot: int) -> None:
        """A process has ended: clients are not to wait where nobody accepts."""
        _close(self._slots.get(slot, []))
        self._slots[slot] = []

    def close(self) -> None:
        """Gives the address up. Sockets that processes have of it are theirs to close."""
        self._closed = True
        for watched in (self._name, self._before, *self._heirs):
            if watched is not None:
                self._loop.remove_reader(watched.fileno())
                watched.close()
        self._name = self._before = None
        self._heirs.clear()
        for sockets in (self._held, self._inherited, *self._slots.values()):
            _close(sockets)

    async def _see_that_it_is_free(self) -> None:
        """Raises: ConfigError where somebody listens, and does not cease to."""
        if self._listen.port == 0:
            return
        address: tuple[object, ...] = ("",)
        until = self._loop.time() + _GOING_S
        while True:
            try:
                for family, kind, _, _, address in _addresses(self._listen):
                    with contextlib.closing(_socket(family, kind)) as alone:
                        alone.bind(address)
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or self._loop.time() > until:
                    raise _no_address(self._listen, error, address[0]) from None
            await asyncio.sleep(_TRY_EVERY_S)

    # The name.

    def _name_of(self) -> str:
        return f"\0sqlcache/{self.address}"

    def _take_name(self) -> None:
        """Raises: ConfigError where another sqlcache has it."""
        if self.address.port == 0:
            return
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            name.bind(self._name_of())
            name.listen()
        except OSError as error:
            name.close()
            if error.errno == errno.EADDRINUSE:
                hint = _SHARED if self._shares else _NOT_SHARED
                reason = f"{_no_address(self._listen, error)} by another sqlcache; {hint}"
                raise ConfigError(reason) from None
            log.warning("the address can be taken over by nobody error=%s", error)
            return
        self._name = name
        self._await_heirs()

    def _await_heirs(self) -> None:
        if self._name is not None:
            self._loop.add_reader(self._name.fileno(), self._hand_over)

    def _hand_over(self) -> None:
        assert self._name is not None
        try:
            heir, _ = self._name.accept()
        except OSError:  # as where no more files may be open: it waits on, which is told each turn
            self._loop.remove_reader(self._name.fileno())
            self._loop.call_later(_TRY_EVERY_S, self._await_heirs)
            return
        pid, user = _peer(heir)
        if user != os.geteuid() or not self._shares:
            heir.close()
            return
        sockets = [sock for each in self._slots.values() for sock in each]
        try:
            socket.send_fds(heir, [b"."], [sock.fileno() for sock in sockets[:_MOST_SOCKETS]])
        except OSError:
            heir.close()
            return
        self._heirs.add(heir)  # its end tells the heir of ours
        self._loop.add_reader(heir.fileno(), self._outlive, heir)
        log.info("another sqlcache takes over, stop this one when it is ready other_pid=%d", pid)

    def _outlive(self, heir: socket.socket) -> None:
        """It has ended, for it says nothing."""
        self._loop.remove_reader(heir.fileno())
        self._heirs.discard(heir)
        heir.close()

    def _inherit(self) -> bool:
        """Whether there was another sqlcache, which has handed its sockets over.

        Raises: ConfigError where it does not.
        """
        before = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before.settimeout(_ANSWER_TIMEOUT_S)
        try:
            before.connect(self._name_of())
            self._inherited = self._handed_over(before)
        except ConnectionRefusedError:
            before.close()
            return False
        except OSError as error:
            before.close()
            raise ConfigError(
                f"proxy.listen = {self._listen}: the sqlcache there does not let this one take"
                " over: expected one of the same user, with memcached nodes, which answers:"
                f" {error.strerror or error}"
            ) from None
        before.setblocking(False)
        self._before = before
        self._loop.add_reader(before.fileno(), self._succeed)
        return True

    def _handed_over(self, before: socket.socket) -> list[socket.socket]:
        """The sockets that another process hands over. Raises: OSError where it does not, or they
        are others than a sqlcache of this user at this address has: anybody may take its name."""
        if _peer(before)[1] != os.geteuid():
            raise PermissionError("it is another user's")
        said, files, _, _ = socket.recv_fds(before, 1, _MOST_SOCKETS)
        if not said:
            raise ConnectionError("it hands nothing over")
        given: list[socket.socket] = []
        try:
            for file in files:
                given.append(socket.socket(fileno=file))
                if (
                    given[-1].family not in _FAMILIES
                    or given[-1].getsockname()[1] != self._listen.port
                ):
                    raise OSError("what it hands over is at another address")
                given[-1].setblocking(False)  # or a copy of it would block all who have it
        except OSError:
            _close(given)
            for file in files[len(given) :]:
                os.close(file)
            raise
        return given

    def _succeed(self) -> None:
        """The one before has ended, or is about to."""
        if self._before is not None:
            self._loop.remove_reader(self._before.fileno())
            self._before.close()
            self._before = None
        if self._closed:
            return
        try:
            self._take_name()
        except ConfigError:  # another that took over as well was faster
            self._loop.call_later(1, self._succeed)
