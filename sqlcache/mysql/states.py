"""Which states of transactions MySQL has told a client with the capability SESSION_TRACK of.

Though it was not asked to, it tells of each transaction that a statement begins, and of its end,
where that is another state than it told of last. So it takes those into account that are begun for
a hit's sake, of which the client knows nothing: until the next one is told, they differ.

Source: MySQL's Transaction_state_tracker.
"""

from sqlcache.mysql.constants import Status
from sqlcache.mysql.packets import HEADER_BYTES, packet, packets_in, read_lenenc, read_text
from sqlcache.mysql.response import ResponseTracker

_TRANSACTION_STATE = 5
_STATUS_AND_WARNINGS_BYTES = 4
_LONG, _LONGER = 0xFB, 1 << 16  # bytes, whose number takes two more, or three
_NONE, _BEGUN, _WITH_SNAPSHOT = b"________", b"T_______", b"T_R_____"


class ToldStates:
    """Those of one session."""

    __slots__ = ("_client", "_server")

    def __init__(self) -> None:
        self._client = self._server = _NONE  # last told of; as far as they matter

    @property
    def differ(self) -> bool:
        """Whether the client was told of another state than the server takes it for."""
        return self._client != self._server

    def began(self, *, anew: bool, snapshot: bool) -> None:
        """The server is told to begin a transaction of which the client knows nothing; or `anew`
        one that it has begun itself. `snapshot`: with one."""
        self._client = _BEGUN if anew else _NONE
        self._server = _WITH_SNAPSHOT if snapshot else _BEGUN

    def forget(self) -> None:
        """They are alike from here on."""
        self._client = self._server

    def shown(self, ok: bytes, *, turns: bool) -> bytes:
        """A packet, header and all, that ends an answer and tells of the session, as the client is
        to see it. `turns`: its statement may begin a transaction. Raises: ProtocolError.
        """
        status_at = _status_at(ok)
        if len(ok) == status_at + _STATUS_AND_WARNINGS_BYTES:
            return ok
        status = int.from_bytes(ok[status_at : status_at + 2], "little")
        words, at = read_text(ok, status_at + 4)
        told, _ = read_text(ok, at)
        others, state = _without_state(told)
        begins = turns and not told and bool(status & Status.IN_TRANS)
        if state is None and not begins:
            return ok
        before, now = self._client, self._server if state is None else state
        self._client = self._server = now
        if now != before:
            others += bytes((_TRANSACTION_STATE, len(now) + 1, len(now))) + now
        elif not others and before == _NONE:  # nothing has happened to it
            status &= ~Status.SESSION_STATE_CHANGED
        head = ok[HEADER_BYTES:status_at] + status.to_bytes(2, "little")
        head += ok[status_at + 2 : status_at + 4]
        if not status & Status.SESSION_STATE_CHANGED:
            return packet(ok[3], head + (ok[status_at + 4 : at] if words else b""))
        return packet(ok[3], head + ok[status_at + 4 : at] + _length(others) + others)

    def in_last(self, answer: bytes, *, turns: bool) -> bytes:
        """The same of a whole answer, of which the last packet alone tells of the session."""
        *others, last = packets_in(answer)
        return b"".join([*others, self.shown(last, turns=turns)])

    def in_part(self, part: bytes, tracker: ResponseTracker, held: int, *, turns: bool) -> bytes:
        """The same of a part of an answer, which was just fed to the tracker that held so many
        bytes before. Where a packet has begun before the part, that and what comes behind it are
        told as they are."""
        parts, at = [], 0
        for offset, end in tracker.told:
            if offset < held:
                self.forget()
                continue
            begins, ends = offset - held, end - held
            parts += [part[at:begins], self.shown(part[begins:ends], turns=turns)]
            at = ends
        return b"".join([*parts, part[at:]])


def _status_at(ok: bytes) -> int:
    _, at = read_lenenc(ok, HEADER_BYTES + 1)
    return read_lenenc(ok, at)[1]


def _length(data: bytes) -> bytes:
    if len(data) < _LONG:
        return bytes((len(data),))
    if len(data) < _LONGER:
        return b"\xfc" + len(data).to_bytes(2, "little")
    return b"\xfd" + len(data).to_bytes(3, "little")


def _without_state(told: bytes) -> tuple[bytes, bytes | None]:
    """What is told of the session but the transaction's state; and that, if it is."""
    others, state, at = b"", None, 0
    while at < len(told):
        data, end = read_text(told, at + 1)
        if told[at] == _TRANSACTION_STATE:
            state = read_text(data, 0)[0]
        else:
            others += told[at:end]
        at = end
    return others, state
