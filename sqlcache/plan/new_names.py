"""Names of which the catalog lacks something, as they may be new: looked for seldom."""

import asyncio
from collections.abc import Iterable
from itertools import islice

from sqlcache.sql.names import TableName

_MOST = 16  # at once
_GAP_S = 0.1  # between two readings that such names cause


class NewNames:
    """Which of them are worth a reading: not those that somebody asks for again and again, and that
    do not exist, or that nobody may see. `look_again_s`: for the same name."""

    def __init__(self, look_again_s: float) -> None:
        self._look_again_s = look_again_s
        self._looked_at = float("-inf")
        self._look_again_at: dict[TableName, float] = {}

    def forget(self) -> None:
        """Definitions were changed: any may be there now."""
        self._look_again_at.clear()
        self._looked_at = float("-inf")

    def to_look_for(self, unknown: Iterable[TableName]) -> set[TableName]:
        """Those to be looked for now."""
        now = asyncio.get_running_loop().time()
        ready = (name for name in unknown if now >= self._look_again_at.get(name, 0))
        fresh = set(islice(ready, _MOST))
        if not fresh or now - self._looked_at < _GAP_S:
            return set()
        self._looked_at = now
        self._look_again_at = {n: t for n, t in self._look_again_at.items() if t > now}
        self._look_again_at.update(dict.fromkeys(fresh, now + self._look_again_s))
        return fresh
