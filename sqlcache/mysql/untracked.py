"""Takes out of a response, as it comes, what it tells of the session."""

from sqlcache.mysql.constants import Capability
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.tracking import untracked


class Untracked:
    """The response that `shown` follows, which comes with what is to be taken out of it."""

    def __init__(self, shown: ResponseTracker) -> None:
        self.shown = shown
        self._came = ResponseTracker(shown.command, shown.capabilities | Capability.SESSION_TRACK)
        self._held = b""  # a packet's beginning
        self.commits: list[bytes] = []
        """Those that OKs in what was fed last tell of."""

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """What of it there is for the client, and how many bytes belong to the response. Raises:
        ProtocolError."""
        came = self._came
        if came.wants_file and not self.shown.wants_file:
            came.file_sent()
        used = came.feed(data)
        data = self._held + data[:used]
        self._held = data[len(data) - came.held_bytes :]
        self.commits = came.commits
        parts, at = [], 0
        for offset, end in came.told:
            parts += [data[at:offset], untracked(data[offset:end])]
            at = end
        parts.append(data[at : len(data) - came.held_bytes])
        return b"".join(parts), used
