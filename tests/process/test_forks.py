"""Connections that a process which is forked off does not take along."""

from __future__ import annotations

import subprocess
import sys

import pytest

IN_A_PROCESS = """
import asyncio, os, socket, sys, uvloop
from sqlcache.process.forks import leave_at_fork, process

async def main():
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    number = ours.fileno()
    transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=ours)
    closed, _ = await loop.create_unix_connection(asyncio.Protocol, sock=socket.socketpair()[0])
    plain, other = socket.socketpair()
    for end in (transport, closed, plain):
        leave_at_fork(end)
    closed.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    kept = os.pipe()  # under a number that one of them had
    before = process()
    if not os.fork():
        os.write(kept[1], b"written")
        said = plain.recv(1) or b"ended", socket.socket(fileno=number).recv(1) or b"ended"
        print(*said, process() is before, flush=True)
        os._exit(0)
    os.wait()
    print(os.read(kept[0], 7), process() is before)
    transport.write(b"a")
    plain.send(b"b")
    print(theirs.recv(1), other.recv(1))
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_they_are_at_their_end_there_and_as_they_were_here(loop: str) -> None:
    script = f"{IN_A_PROCESS}\n{loop}.run(main())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "b'ended' b'ended' False",
        "b'written' True",
        "b'a' b'b'",
    ], done.stderr
