"""sqlcache without the time that Python takes to import it: as the fork of a process that has."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sqlcache.cli import main
from sqlcache.demo.servers import PrivateSqlcache
from tests.patient import be_patient

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        __name__,
        "sqlcache.process.serving",
        "sqlcache.app",
        "sqlcache.admin.http",
        "sqlcache.admin.site",
        "tests.forked_once",
        # else imported at their first use, by each
        "encodings.idna",
        "encodings.utf_8_sig",
        "setproctitle",
        "uvicorn.lifespan.off",
    ]
)
_PR_SET_PDEATHSIG = 1


class ForkedSqlcache(PrivateSqlcache):
    """`sqlcache serve` as a process of its own, which starts five times as fast; see `patient`,
    too."""

    def _run(self) -> _Fork:
        return _Fork(self.command(), self._environment(), self.output, self.log)


class _Fork:
    """A `Process` of `demo.servers`."""

    def __init__(
        self, command: list[str], environment: Mapping[str, str], output: Path, log: Path
    ) -> None:
        for path in (output, log):
            path.write_bytes(b"")
        given = command, dict(environment), output, log
        self._process = _FORKS.Process(target=_become, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("sqlcache", timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(command: list[str], environment: Mapping[str, str], output: Path, log: Path) -> None:
    """Is from here on what the command starts."""
    gc.freeze()  # a start looks once through all there is, most of which was there before the fork
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgid(0, 0)
    for path, stream in ((output, sys.stdout), (log, sys.stderr)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), stream.fileno())
    be_patient()
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv, sys.argv = command, command[2:]  # after `python -m`
    sys.exit(main())
