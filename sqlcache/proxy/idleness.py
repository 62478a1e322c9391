"""How long a client has asked nothing, and what becomes of who does so for too long."""

from time import perf_counter

from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import ER_CLIENT_INTERACTION_TIMEOUT
from sqlcache.mysql.packets import HEADER_BYTES, err_packet
from sqlcache.proxy.longway.way import LongWay
from sqlcache.proxy.relay import Relay

_IDLE_TOO_LONG = (  # MySQL's words
    "The client was disconnected by the server because of inactivity. See wait_timeout and"
    " interactive_timeout for configuring this behavior."
)


class Idleness:
    """That of one session's client."""

    __slots__ = ("_client", "_relay", "_since", "_upstream", "_way")

    def __init__(self, client: Channel, upstream: Channel, relay: Relay, way: LongWay) -> None:
        self._client = client
        self._upstream = upstream
        self._relay = relay
        self._way = way
        self._since: tuple[tuple[float, ...], float] | None = None

    @property
    def waits(self) -> bool:
        """Whether its client has had all its commands answered."""
        busy = self._way.course.now is not None or self._client.buffered_bytes > HEADER_BYTES
        return self._client.intercept == self._way.straight.received and not busy

    def lasted_s(self, connected_s: float) -> float:
        """For how long it does so, of a client that is connected for so long."""
        if not self.waits:
            return 0.0
        asked_at = self._way.last.asked_at
        return min(perf_counter() - asked_at, connected_s) if asked_at else connected_s

    def end(self, now: float, longest_s: float) -> bool:
        """Ends a session whose client has had no command answered or begun for so long, nor gone on
        with one that it has begun; whether it did. To be called again and again: idle is who is so
        each time, after the same command.

        Nothing is noted for this while commands are served.
        """
        client, relay = self._client, self._relay
        if client.closed or not (self.waits or relay.awaits_client):
            self._since = None
            return False
        said = relay.said_bytes + client.buffered_bytes
        last = self._way.last.asked_at, self._upstream.ahead, said, client.unsent_bytes
        if self._since is None or self._since[0] != last:
            self._since = last, now
        if now - self._since[1] < longest_s:
            return False
        client.intercept = None
        client.write(err_packet(0, ER_CLIENT_INTERACTION_TIMEOUT, _IDLE_TOO_LONG, "HY000"))
        if client.unsent_bytes:  # it does not read either
            client.abort()
        client.close()
        return True
