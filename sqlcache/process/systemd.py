"""What systemd, or whatever else set NOTIFY_SOCKET, is told: that we serve, still,
read settings again, or end.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class Systemd:
    """The way to the service manager; without one, nothing is sent. What cannot be told is not."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # of the abstract namespace
            self._address = "\0" + self._address[1:]
        self._socket: socket.socket | None = None
        if self._address:  # from the start on: later there may be no more files to be had
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        interval_us = environment.get("WATCHDOG_USEC", "")
        self.watchdog_s: float | None = None
        """Within how many seconds it wants to hear `alive`; None if it does not."""
        if watched and interval_us.isdecimal() and int(interval_us):
            self.watchdog_s = int(interval_us) / 1e6

    def ready(self, status: str) -> None:
        """Clients can connect."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Settings are read again, until `ready` is said once more."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def alive(self) -> None:
        """All processes that serve still do."""
        self._send("WATCHDOG=1")

    def stopping(self, within_s: float) -> None:
        """It ends, in at most so many seconds."""
        self._send(
            "STOPPING=1", "STATUS=draining", f"EXTEND_TIMEOUT_USEC={round(within_s * 1_000_000)}"
        )

    def _send(self, *lines: str) -> None:
        if self._socket is None:
            return
        # A manager that is gone or busy is no reason to stop serving.
        with suppress(OSError):
            self._socket.sendto("\n".join(lines).encode(), self._address)
