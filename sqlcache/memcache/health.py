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

A *lame* node takes new connections, and answers a no-op on each, but nothing else in time. To be
reached is a sign of life, and writers wait on: it may have come for a moment. But not for longer
than they wait for a node that refuses, from the last answer on: then it is out until it answers
again. Nor is it trusted for being reached, by anybody. So whoever goes on without it does what it
would if it had not reached the node, and what others know of the node is the same.

Others can be asked if the node knows of them. A *stranger* is a process that it does not know of,
as one that has started since. That waits for twice `outage_s` before it goes on without the node:
so none has where the silence was shorter than `outage_s`, not even one that missed a moment in
which the node lived.
"""

from math import inf

ASKS_PER_OUTAGE = 8
LONG_ANSWERS_PER_OUTAGE = 4
"""A sign of life may wait behind long answers; it must come before half an outage is over."""
_SOON_S = 2.0
_PATIENCE_S = 10.0  # with the others, where this process was late itself: they may be, too


class Health:
    """One process's knowledge of one node. All times are seconds on this process's clock.

    Not trusted until `greet`.
    """

    __slots__ = ("_alive_at", "_ask_every_s", "_asked_at", "_gap_s", "_greeted", "_late",
                 "_missed_s", "_quarantine_s", "_reached", "_silent", "_unanswered", "_unheard",
                 "_unheard_s", "answers_nothing", "distrusted_at", "doubted", "enrolled", "forgot",
                 "out_at", "recovered", "trusted_from", "trusted_since", "unproven")  # fmt: skip

    def __init__(self, now: float, *, outage_s: float, quarantine_s: float) -> None:
        self._gap_s = outage_s / 2
        self._ask_every_s = outage_s / ASKS_PER_OUTAGE
        self._quarantine_s = quarantine_s
        self._alive_at = now
        self._asked_at = now
        self._unanswered = self._silent = self._unheard = 0
        self._missed_s = self._unheard_s = inf
        self._greeted = False
        self._late = False
        self._reached = False
        self.answers_nothing = False
        """It has not answered for longer than anybody waits, however often it was reached."""
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
        self.doubted = False
        """Nor will it be unless that is proven: nobody knows whether it has missed anything."""
        self.enrolled = False
        """The node is known to know of this process: who asks others asks this one, too."""

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
            self._missed_s = self._unheard_s = inf
            self.distrust(now)

    def asked(self, now: float) -> None:
        """The node is asked for a sign of life, as it is `ASKS_PER_OUTAGE` times in an outage."""
        was_out = self.is_out
        slept = now - self._asked_at > 3 * self._ask_every_s
        self._unanswered = 0 if slept else self._unanswered + 1
        self._silent = 0 if slept else self._silent + 1
        self._unheard += 1
        self._asked_at = now
        # By then a stranger has waited, too.
        self.answers_nothing = self._silent * self._ask_every_s > self.longest_wait_s
        if slept:
            self.enrolled = False
        if not was_out and self.is_out:
            self.out_at = now

    def was_suspended(self, seconds: float) -> None:
        """This process was for so long, of which its clock does not tell."""
        self._alive_at -= seconds
        self._asked_at -= seconds

    def heard(self, asked_at: float, now: float) -> None:
        """An answer came to a request sent at `asked_at`: at that time or later the node lived."""
        unknown_s = now - self._alive_at
        if unknown_s > self._gap_s:
            self._missed(unknown_s)
            self.distrust(now, late=2 * self._silent * self._ask_every_s < unknown_s)
        self._unanswered = self._silent = self._unheard = 0
        self._reached = self.answers_nothing = False
        if asked_at > self._alive_at:
            self._alive_at = asked_at

    def _missed(self, unknown_s: float) -> None:
        """Nothing is known of this time, nor of what was missed before while it was distrusted."""
        if self._greeted and not self.recovered:
            self._missed_s = self._unheard_s = 0.0
        self._missed_s += unknown_s
        self._unheard_s += self._unheard * self._ask_every_s

    def may_have_strangers(self, now: float) -> bool:
        """Whether a stranger may have gone on without the node since it was trusted last, and not
        have made itself known by now.

        Where this process was late itself, and has not seen the node be silent, one that has begun,
        gone on without the node and ended meanwhile is not reckoned with. One that lives has been
        given the time to reach the node.
        """
        if self._missed_s < 2 * self._gap_s:
            return False
        reach_s = self._quarantine_s - self._gap_s
        return self._unheard_s > self._gap_s or now < self.distrusted_at + reach_s

    def reached(self) -> None:
        """A new connection to it stands, so it lives: a writer waits on, unless it is lame."""
        self._unanswered = 0
        self._reached = True

    def distrust(self, now: float, *, forgot: bool = False, late: bool = False) -> None:
        """What the node holds is not to be relied on: the quarantine begins.

        `late`: for all that is known, only because this process was late itself.
        """
        self.recovered = True
        self.enrolled = False
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
        self.doubted = False
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

    def vouches(self, now: float) -> bool:
        """Whether this process can say to others that it has not lost sight of the node."""
        return not self.doubted and self.watches(now)

    def may_soon_be_trusted(self, now: float) -> bool:
        """Whether it is distrusted only because this process was late, and not for long yet."""
        return self.recovered and self._late and now < self.distrusted_at + _SOON_S

    @property
    def is_silent(self) -> bool:
        """Whether it has not answered for an outage."""
        return self._unanswered > ASKS_PER_OUTAGE

    @property
    def is_out(self) -> bool:
        """Whether a writer need wait no longer: a stranger waits for twice as long."""
        return self._unanswered > self._most_unanswered or self.answers_nothing

    @property
    def is_lame(self) -> bool:
        """Whether it was reached and has answered nothing else for an outage."""
        return self._reached and self._silent > ASKS_PER_OUTAGE

    @property
    def _most_unanswered(self) -> int:
        return ASKS_PER_OUTAGE if self.enrolled else 2 * ASKS_PER_OUTAGE

    @property
    def longest_wait_s(self) -> float:
        """How long a writer waits at most, also where the node lives and refuses."""
        return max(_PATIENCE_S, 5 * self._gap_s)
