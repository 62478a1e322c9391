"""Ways from proxies to memcached nodes that can fail, each by itself.

A node's name is its address, and all proxies must name a node alike: so they all connect to one
forwarder per node, and whose connection it is, is found out from the kernel. A proxy's processes
carry its name in their environment, under `MARK`.

The forwarders are one process of its own, `python -m tests.coherence.live_links`, so that no load
in the test's process delays them. It takes a command a line, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import uvloop

from sqlcache.demo.servers import HOST, free_port

MARK = "COHERENCE_PROXY"
SLOW_S = 0.03
_TCP_ESTABLISHED = 1  # of the kernel's states

# What the kernel is asked about a socket, and what it tells: linux/netlink.h, linux/inet_diag.h.
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_MESSAGE = struct.Struct("=IHHII")  # length, kind, flags, number, port
_SOCKET_ID = struct.Struct("!HH16s16sI8s")  # ports, addresses, interface, cookie
_SOCKET_ASKED = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_SOCKET_TOLD = struct.Struct("=4x48x5I")  # behind the id: expires, two queues, user, inode
_EVERY_STATE = 0xFFFFFFFF
_NO_COOKIE = b"\xff" * 8

_ALIVE = b"MN\r\n"


class State(StrEnum):
    """What a way lets through."""

    OPEN = "open"
    REFUSED = "refused"
    """Connections break at once, also those that stood."""
    SILENT = "silent"
    """Nothing comes through, and nobody is told."""
    DEAF = "deaf"
    """Requests arrive and are carried out; their answers do not come back."""
    LAME = "lame"
    """The same, but for those to no-ops: connections are made, and no more is heard."""
    SLOW = "slow"
    """Requests arrive `SLOW_S` later than they were sent."""


class Links:
    """The test's side: a way from every proxy to every node, open at first."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = targets
        self._ports = [free_port() for _ in targets]
        self._process: subprocess.Popen[str] | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """What the proxies are told the nodes are, in the order of the targets."""
        return tuple(f"{HOST}:{port}" for port in self._ports)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.coherence.live_links"]
        for port, target in zip(self._ports, self._targets, strict=True):
            command.append(f"{port}={target}")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._await_answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.communicate()

    def put(
        self, state: State, proxies: Iterable[str], nodes: Iterable[int], *, cut: bool = False
    ) -> None:
        """Puts the ways between these in a state; returns when they are.

        With `cut` the connections that stand are broken off, and what was held back is lost; else
        it arrives late when the way is open again, though its sender may have given it up.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        command = {"state": state, "proxies": [*proxies], "nodes": [*nodes], "cut": cut}
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        self._await_answer()

    def _await_answer(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "done\n":
            raise ChildProcessError("the forwarders have ended")


class _Link:
    """The way of one proxy to one node."""

    def __init__(self) -> None:
        self.state = State.OPEN
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._streams: set[asyncio.StreamWriter] = set()
        self.put(State.OPEN, cut=False)

    def put(self, state: State, *, cut: bool) -> None:
        self.state = state
        for gate, is_open in (
            (self._requests, state not in (State.REFUSED, State.SILENT)),
            (self._answers, state in (State.OPEN, State.SLOW)),
        ):
            if is_open:
                gate.set()
            else:
                gate.clear()
        if cut or state is State.REFUSED:
            for stream in self._streams:
                stream.transport.abort()

    async def carry(
        self,
        proxy: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        node: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Carries one connection's bytes until both sides have ended it."""
        self._streams |= {proxy[1], node[1]}
        try:
            await asyncio.gather(
                self._pump(proxy[0], node[1], self._requests),
                self._pump(node[0], proxy[1], self._answers),
            )
        finally:
            self._streams -= {proxy[1], node[1]}
            proxy[1].transport.abort()
            node[1].transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):  # the end, like any other
            while data := await source.read(1 << 16):
                if self.state is State.SLOW and gate is self._requests:
                    await asyncio.sleep(SLOW_S)
                if not (self.state is State.LAME and data == _ALIVE):
                    await gate.wait()
                if target.transport.is_closing():
                    return
                target.write(data)
                await target.drain()
        await gate.wait()
        target.close()


class _Forwarders:
    """The process's side."""

    def __init__(self) -> None:
        self._links: dict[tuple[str, int], _Link] = defaultdict(_Link)
        self._proxies = _Proxies()

    async def listen(self, node: int, port: int, target: str) -> None:
        host, _, target_port = target.rpartition(":")

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = writer.get_extra_info("peername")
            waits = peer is not None and _is_open(writer)
            proxy = self._proxies.owner(peer[1], port) if waits else None
            link = None if proxy is None else self._links[proxy, node]
            if link is None or link.state is State.REFUSED:
                writer.transport.abort()
                return
            try:
                away = await asyncio.open_connection(host, int(target_port))
            except OSError:
                writer.transport.abort()
                return
            await link.carry((reader, writer), away)

        await asyncio.start_server(accept, HOST, port)

    def put(self, command: dict[str, Any]) -> None:
        for proxy in command["proxies"]:
            for node in command["nodes"]:
                self._links[proxy, node].put(State(command["state"]), cut=command["cut"])


def _is_open(writer: asyncio.StreamWriter) -> bool:
    """Whether the other side still waits for an answer.

    A busy machine would never get through with those that connect, and connect again because they
    were not answered, if it found out for each of them who it was.
    """
    state = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return bool(state[0] == _TCP_ESTABLISHED)


class _Proxies:
    """The proxies' processes, by what the kernel tells of them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by the process's number
        self._sockets = _Sockets()

    def owner(self, port: int, remote_port: int) -> str | None:
        """The name of the proxy whose process has the connection between these ports."""
        inode = self._sockets.inode(port, remote_port)
        if inode is None:
            return None
        name = self._holder(f"socket:[{inode}]")
        if name is None:  # a process that is new
            self._names = _marked_processes()
            name = self._holder(f"socket:[{inode}]")
        return name

    def _holder(self, file: str) -> str | None:
        for process, name in self._names.items():
            if _has_open(process, file):
                return name
        return None


def _has_open(process: str, what: str) -> bool:
    folder = f"/proc/{process}/fd"
    with contextlib.suppress(OSError):  # it has ended
        for file in os.listdir(folder):
            with contextlib.suppress(OSError):  # it was just closed
                if os.readlink(f"{folder}/{file}") == what:
                    return True
    return False


def _marked_processes() -> dict[str, str]:
    mark = f"{MARK}=".encode()
    found = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # another user's, or it has just ended
            for variable in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                if variable.startswith(mark):
                    found[process] = variable.removeprefix(mark).decode()
    return found


class _Sockets:
    """The kernel's table of TCP sockets. It is asked for one: to list them goes through the whole
    table each time, which takes a busy machine longer than there is time to connect. See
    sock_diag(7)."""

    def __init__(self) -> None:
        self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)

    def inode(self, port: int, remote_port: int) -> int | None:
        """Of the socket between these ports of HOST; None where its process closed it."""
        host = socket.inet_aton(HOST)
        asked = _SOCKET_ASKED.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, _EVERY_STATE)
        asked += _SOCKET_ID.pack(port, remote_port, host, host, 0, _NO_COOKIE)
        length = _MESSAGE.size + len(asked)
        self._kernel.send(_MESSAGE.pack(length, _BY_FAMILY, _REQUEST, 0, 0) + asked)
        answer = self._kernel.recv(1 << 12)
        _, kind, *_ = _MESSAGE.unpack_from(answer)
        if kind != _BY_FAMILY:  # an error, which says that there is none
            return None
        inode: int = _SOCKET_TOLD.unpack_from(answer, _MESSAGE.size)[-1]
        return inode or None


async def _main(arguments: Sequence[str]) -> None:
    forwarders = _Forwarders()
    for node, argument in enumerate(arguments):
        port, _, target = argument.partition("=")
        await forwarders.listen(node, int(port), target)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("done", flush=True)
    while line := await commands.readline():
        forwarders.put(json.loads(line))
        print("done", flush=True)
    os._exit(0)  # breaks off what stands, and has no more to say about it


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1:]))
