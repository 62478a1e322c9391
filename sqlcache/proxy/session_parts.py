"""What the parts of one session share."""

from functools import partial
from typing import NamedTuple, Self

from sqlcache.cache.engine import Engine
from sqlcache.metrics import Metrics
from sqlcache.plan.meanings import Meanings
from sqlcache.plan.planner import Planner
from sqlcache.proxy.checks import Checks
from sqlcache.proxy.copies import Copies
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.handles import Handles
from sqlcache.proxy.last_command import LastCommand
from sqlcache.proxy.relay import Relay
from sqlcache.proxy.session_options import SessionOptions
from sqlcache.proxy.straight.course import Course
from sqlcache.proxy.writes import Writes


class SessionParts(NamedTuple):
    """One of each for a session, and what is the same for all. `embedded`: the client is of this
    very process, and may ask and tell more than others."""

    engine: Engine
    planner: Planner
    metrics: Metrics
    options: SessionOptions
    embedded: bool
    relay: Relay
    course: Course
    last: LastCommand
    diagnostics: Diagnostics
    meanings: Meanings
    writes: Writes
    handles: Handles
    copies: Copies
    """Of answers, for entries."""
    checks: Checks | None
    """None where no hit is compared with MySQL's answer."""

    @property
    def shadow(self) -> bool:
        """Whether nothing is served to it from the cache, see `Checks`."""
        return self.checks is not None and self.checks.shadow

    @classmethod
    def of(
        cls,
        relay: Relay,
        engine: Engine,
        planner: Planner,
        metrics: Metrics,
        options: SessionOptions,
        *,
        embedded: bool,
    ) -> Self:
        """That of a session that begins."""
        client, upstream = relay.client, relay.upstream
        ask = partial(options.prober.ask, peer=upstream.peer) if options.prober else None
        diagnostics, checks = Diagnostics(), None
        if (options.verify_share or options.shadow) and not embedded:
            checks = Checks(engine, metrics, share=options.verify_share, shadow=options.shadow)
        return cls(
            engine,
            planner,
            metrics,
            options,
            embedded,
            relay,
            course=Course(client, upstream),
            last=LastCommand(metrics, options.slow),
            diagnostics=diagnostics,
            meanings=Meanings(planner),
            writes=Writes(engine, planner, ask),
            handles=Handles(upstream, diagnostics),
            copies=Copies(options.for_entries, options.max_entry_bytes),
            checks=checks,
        )
