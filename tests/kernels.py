"""Both implementations of the kernel, for tests of what each promises."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import Protocol

import pytest

from sqlcache.mysql import scan as pure_scan
from sqlcache.mysql.scan import Plain
from sqlcache.mysql.transport import SocketTransport
from sqlcache.sql import shapes


class Kernel(Protocol):
    """What `sqlcache.kernel` chooses from."""

    SocketTransport: type[SocketTransport]

    def scan(self, data: bytes, *, deprecate_eof: bool) -> Plain | None: ...
    def step_over_rows(self, data: bytes, at: int, end_bytes: int) -> tuple[int, int]: ...
    def without_literals(self, text: bytes) -> tuple[bytes, bytes] | None: ...


class Pure:
    """In Python."""

    SocketTransport = SocketTransport
    scan = staticmethod(pure_scan.scan)
    step_over_rows = staticmethod(pure_scan.step_over_rows)
    without_literals = staticmethod(shapes.without_literals)


def compiled() -> Kernel:
    """By Cython. Skips the test where that cannot be built."""
    try:
        from sqlcache import _kernel
    except ImportError:
        if find_spec("Cython") is None or shutil.which("cc") is None:
            pytest.skip("the compiled kernel cannot be built here: no Cython, or no C compiler")
        pytest.fail("the compiled kernel is not built: make dev")
    return _kernel
