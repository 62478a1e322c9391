"""A connection to memcached, whose attempts can be waited for."""

from __future__ import annotations

from typing import Any

from sqlcache.memcache.connection import NodeConnection


class Watched(NodeConnection):
    """Counts the attempts to connect that have `failed`."""

    failed = 0

    async def _open(self, pipeline: Any) -> bool:
        is_open = await super()._open(pipeline)
        self.failed += not is_open
        return is_open
