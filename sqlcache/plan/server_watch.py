"""Whether the upstream is still the server that it was, and what its account may there."""

import logging

from sqlcache.cache.engine import Engine
from sqlcache.cache.keys import digest
from sqlcache.cache.server_notes import Origin
from sqlcache.cache.tag_logs import Steps
from sqlcache.metrics import Metrics
from sqlcache.plan.quotas import LIMITED_ACCOUNTS, told
from sqlcache.plan.variables import (
    NEW_SESSIONS_RIGHTS,
    PLACE,
    SERVER,
    SEVERAL_ACCOUNTS,
    UNREADABLE_RIGHTS,
    Settings,
)
from sqlcache.sql.catalog.server import Server

log = logging.getLogger(__name__)

REWRITES = "nothing is cached: MySQL's plugin Rewriter has rules, it may run other statements"
"""For people."""


class ServerWatch:
    """Is told of the server at each reading of the whole catalog. `data_set` names what servers
    that replace each other have in common."""

    def __init__(self, engine: Engine, metrics: Metrics, data_set: str | None) -> None:
        self._engine = engine
        self._metrics = metrics
        self._data_set = data_set
        self._rewrites = False  # see `Server.rewrites`
        self.lacks = ""
        """What the service account may not, see `Server.lacks`."""

    def inherited(self, server: Server, globals_: Settings) -> Settings:
        """What new sessions inherit: the globals, and the rest that decides what they are told."""
        # Of single tables, too: nobody may have been there to see that these changed.
        granted = str(sorted(server.rights | server.grants)).encode("utf-8", "surrogatepass")
        # Of what may be megabytes: each session's fingerprint is made of it again and again.
        rights = digest([granted]).hex() if server.rights else UNREADABLE_RIGHTS
        several = "\0".join(["", *sorted(server.several_accounts), ""])
        of = (SERVER, self._answers_of(server))
        come_as = ((PLACE, server.place), (SEVERAL_ACCOUNTS, several))
        limited = LIMITED_ACCOUNTS, told(server.limited_accounts)
        return (*globals_, (NEW_SESSIONS_RIGHTS, rights), of, *come_as, limited)

    def why_everything(self, before: Server, server: Server, *, around: bool) -> str | None:
        """Why all that is stored may be out of date; None where it is not. To be asked once at each
        reading, of the server `before`. `around`: nobody has told of a change of rights since."""
        rewrote, self._rewrites = self._rewrites, server.rewrites
        if rewrote != server.rewrites:  # a process that was there when it began may have ended
            return "the server runs other statements than those that it is sent, or did"
        regranted = (before.rights, before.grants) != (server.rights, server.grants)
        return "rights were changed around sqlcache" if around and regranted else None

    def _answers_of(self, server: Server) -> str:
        """Whose answers are shared, by name."""
        return self._data_set or server.identity

    def tell_of_grants(self, lacks: str) -> None:
        """What the service account may not, by now."""
        self._metrics.grants_missing = len(lacks.split(", ")) if lacks else 0
        if lacks != self.lacks:
            self.lacks = lacks
            if lacks:
                log.warning("the service account lacks rights reason=%s", lacking(lacks))
            else:
                log.info("the service account lacks no right now")

    async def note(self, server: Server) -> Steps:
        """Has the answers of others forgotten, which may have had more of the data, or less: also
        those of this one from before it began anew, for a crash may have lost the last commits.
        Tells other processes, and those to come, who it is. Returns the steps of definitions'
        versions that were made so."""
        origin = Origin(self._answers_of(server), server.identity, server.began)
        return await self._engine.answers_are_of(origin)


def lacking(lacks: str) -> str:
    """What follows from rights that the service account lacks, and what to do."""
    return (
        f"the account of upstream.url lacks {lacks} ON *.*: every write invalidates everything,"
        " views are not cached, and no two sessions share an answer;"
        " GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO it"
    )
