"""Whether a node's silence may have hidden writes.

A writer that cannot reach a tag's node waits for it, and after `outage_s` without a sign of life it
goes on without. So whoever has heard of the node at least every half of that time knows that no
writer has gone on without it. Who has not, distrusts the node's tags: until it has been heard of
again, and for a quarantine after that, in which the writers catch up.
"""


class Health:
    """One process's knowledge of one node. All times are seconds on this process's clock.

    A node that was never heard of is not trusted; from its first answer on it is.
    """

    __slots__ = (
        "_alive_at",
        "_gap_s",
        "_heard",
        "_outage_s",
        "_quarantine_s",
        "recovered",
        "trusted_from",
    )

    def __init__(self, now: float, *, outage_s: float, quarantine_s: float) -> None:
        self._outage_s = outage_s
        self._gap_s = outage_s / 2
        self._quarantine_s = quarantine_s
        self._alive_at = now
        self._heard = False
        self.trusted_from = now
        self.recovered = False
        """The node came back from a silence, and what it remembers is not yet disowned."""

    def heard(self, asked_at: float, now: float) -> None:
        """An answer came to a request sent at `asked_at`: at that time or later the node lived."""
        if self._heard and asked_at - self._alive_at > self._gap_s:
            self.recovered = True
            self.trusted_from = now + self._quarantine_s
        self._heard = True
        self._alive_at = max(self._alive_at, asked_at)

    def trusts(self, now: float) -> bool:
        """Whether what the node said just now can be relied on."""
        if not self._heard or self.recovered or now < self.trusted_from:
            return False
        return now - self._alive_at <= self._gap_s

    def is_out(self, now: float) -> bool:
        """Whether a writer need wait no longer."""
        return now - self._alive_at > self._outage_s
