"""What a client has sent and MySQL has not: it would do that though the client goes."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlcache.plan.commands import Meaning


class Unsent:
    """Of one session: whether a command is there that may do something, and was not sent. True
    while any of its blocks is open."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks = 0

    def __bool__(self) -> bool:
        return self._blocks > 0

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Meanwhile it is not known what the command that has come means: it may be a write."""
        with self._open():
            yield

    @contextmanager
    def of(self, meaning: Meaning) -> Iterator[None]:
        """Meanwhile this one is made ready to be sent."""
        if only_reads(meaning):
            yield
        else:
            with self._open():
                yield

    @contextmanager
    def _open(self) -> Iterator[None]:
        self._blocks += 1
        try:
            yield
        finally:
            self._blocks -= 1


def only_reads(meaning: Meaning) -> bool:
    """Whether a command's answer is all that comes of it."""
    reads = bool(meaning.statements) and all(each.cacheable for each in meaning.statements)
    return reads and not meaning.writes  # which a view may, by what it calls
