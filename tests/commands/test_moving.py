import pytest

from sqlcache.commands.moving import _keys_on
from sqlcache.demo.servers import HOST, free_port
from sqlcache.errors import CacheUnavailable
from sqlcache.settings import HostPort


async def test_a_node_that_does_not_listen_any_more_is_named() -> None:
    node = HostPort(HOST, free_port())
    with pytest.raises(CacheUnavailable, match=f"{node}: "):
        await anext(_keys_on(node, b"sqlcache"))
