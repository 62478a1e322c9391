"""Whether a node's silence may have hidden writes.

A writer that cannot reach a tag's node waits for it, and after `outage_s` without a sign of life it
goes on without. So whoever has an answer to a question that is younger than half of that knows that
no writer has gone on without the node, even one that missed a moment in which it lived. Who has
not, distrusts the node's tags: until it has been heard of again, and for a quarantine after that,
in which the writers catch up.

How long a node is silent to a writer is counted in questions it left unanswered, not in time: a
process that was itself stopped, or did not get the processor, has not asked. It knows nothing of
the time in between, so it distrusts, too; but it has no reason to think that anybody went on
without the node, and gives the others time to say that they have not (`cache/node_watch.py`).
"""

ASKS_PER_OUTAGE = 8
_SOON_S = 2.0
_PATIENCE_S = 10.0  # with the others, where this process was late itself: they may be, too


class Health:
    """One process's knowledge of one node. All times are seconds on this process's clock.

    Not trusted until `greet`.
    """

    __slots__ = (
        "_alive_at",
        "_ask_every_s",
        "_asked_at",
        "_gap_s",
        "_greeted",
        "_late",
        "_quarantine_s",
        "_silent",
        "_unanswered",
        "distrusted_at",
        "forgot",
        "out_at",
        "recovered",
        "trusted_from",
        "trusted_since",
        "unproven",
    )

    def __init__(self, now: float, *, outage_s: float, quarantine_s: float) -> None:
        self._gap_s = outage_s / 2
        self._ask_every_s = outage_s / ASKS_PER_OUTAGE
        self._quarantine_s = quarantine_s
        self._alive_at = now
        self._asked_at = now
        self._unanswered = self._silent = 0
        self._greeted = False
        self._late = False
        self.out_at = now
        """Since when a writer need wait no longer, if it need not."""
        self.distrusted_at = now
        self.trusted_from = now
        self.trusted_since = now
        """When it was found to be relied on last. What was asked before that, and not after it, may
        have been answered while it was not, however late that is looked at."""
        self.recovered = False
        """The node was silent, or has lost its memory, and is heard of again."""
        self.forgot = False
        """It has lost its memory, fences too."""
        self.unproven = False
        """What it remembers is not to be relied on yet, however well it is watched."""

    @property
    def unnoticed_s(self) -> float:
        """How long the node may have been silent and be trusted all the same."""
        return self._gap_s

    @property
    def greeted(self) -> bool:
        """Whether it is known what to think of the node."""
        return self._greeted

    def greet(self, now: float, *, trusted: bool) -> None:
        """The node was heard of for the first time. `trusted`: others never lost sight of it.

        One that was silent until now is not trusted for all that: see `heard`.
        """
        self._greeted = True
        self._alive_at = self.trusted_since = now
        if not trusted:
            self.distrust(now)

    def asked(self, now: float) -> None:
        """The node is asked for a sign of life, as it is `ASKS_PER_OUTAGE` times in an outage."""
        slept = now - self._asked_at > 3 * self._ask_every_s
        self._unanswered = 0 if slept else self._unanswered + 1
        self._silent = 0 if slept else self._silent + 1
        self._asked_at = now
        if self._unanswered == ASKS_PER_OUTAGE + 1:
            self.out_at = now

    def heard(self, asked_at: float, now: float) -> None:
        """An answer came to a request sent at `asked_at`: at that time or later the node lived."""
        unknown_s = now - self._alive_at
        if unknown_s > self._gap_s:
            self.distrust(now, late=2 * self._silent * self._ask_every_s < unknown_s)
        self._unanswered = self._silent = 0
        self._alive_at = max(self._alive_at, asked_at)

    def reached(self) -> None:
        """A new connection to it stands, so it lives: a writer waits on."""
        self._unanswered = 0

    def distrust(self, now: float, *, forgot: bool = False, late: bool = False) -> None:
        """What the node holds is not to be relied on: the quarantine begins.

        `late`: for all that is known, only because this process was late itself.
        """
        self.recovered = True
        self.forgot = self.forgot or forgot
        self._late = late
        self.distrusted_at = now
        self.trusted_from = now + (
            max(self._quarantine_s, _PATIENCE_S) if late else self._quarantine_s
        )

    def trust(self, now: float) -> None:
        """What the node holds from here on can be relied on: the quarantine is over."""
        self.recovered = self.forgot = False
        self.trusted_from, self.trusted_since = self.distrusted_at, now

    def prove(self, now: float) -> None:
        """What it remembers is to be relied on from here on, or there is nothing to prove."""
        if self.unproven:
            self.unproven, self.trusted_since = False, now

    def trusts(self, now: float) -> bool:
        """Whether what the node says from here on can be relied on; and what it says in answer to
        questions put after `trusted_since`."""
        return not self.unproven and self.watches(now)

    def watches(self, now: float) -> bool:
        """Whether this process has not lost sight of the node, since it was last trusted."""
        if not self._greeted or self.recovered or now < self.trusted_from:
            return False
        return now - self._alive_at <= self._gap_s

    def may_soon_be_trusted(self, now: float) -> bool:
        """Whether it is distrusted only because this process was late, and not for long yet."""
        return self.recovered and self._late and now < self.distrusted_at + _SOON_S

    @property
    def is_out(self) -> bool:
        """Whether a writer need wait no longer."""
        return self._unanswered > ASKS_PER_OUTAGE
