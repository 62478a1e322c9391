"""The Python door: a client and a decorator that share the proxy's cache.

It embeds the proxy rather than imitating it. The pool's connections are connections of aiomysql to
sessions of the proxy's (`proxy.session`) in this very process, over socket pairs. So there is one
planner, one reading of session state, one handling of transactions, prepared statements, fences
and leases, and a statement has the same key and tags whichever door it comes through: what one
fills the other hits. The alternative, a second path from API calls to the engine, would have to
follow sessions and transactions as exactly, twice.

What that costs, a hop through a socket pair and a task switch, is paid where MySQL is asked anyway.
A hit does without: `reads` finds what a session of the pool has planned in the context they share,
asks the engine, and has aiomysql's converters decode the stored packets.

- `connecting`, `cache`: from what an app says to a `Cache`, which puts the rest together
- `pool`, `transaction`: connections, what runs on them
- `fetches`, `rows`: how rows are asked for, what comes back
- `reads`: the quick way of reads
- `cached`, `keys`, `captures`, `code`, `values`: the decorator, the keys of calls, values as bytes
- `collect`, `hangs`, `store`, `flights`: what a body reads, on what its value hangs, where that is
  kept, who shares a run and by `own_errors` has an exception of his own
- `misuse`: what is refused before anything is sent
- `sqlalchemy`: an engine of SQLAlchemy on the same cache
"""

from sqlcache.api.cache import Cache
from sqlcache.api.cached import MISSING, CachedFunction, Missing
from sqlcache.api.connecting import connect
from sqlcache.api.transaction import Done, Transaction
from sqlcache.api.values import PickleCodec
from sqlcache.plan.explanations import Explanation

__all__ = [
    "MISSING",
    "Cache",
    "CachedFunction",
    "Done",
    "Explanation",
    "Missing",
    "PickleCodec",
    "Transaction",
    "connect",
]
