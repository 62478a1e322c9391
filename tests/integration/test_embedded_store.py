"""The store of `memcached.nodes = ["memory"]`, with less room than what is asked for takes."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from sqlcache.app import nodes_of
from sqlcache.demo.servers import PrivateSqlServer, wait_until
from sqlcache.memcache.protocol import MAX_KEY_BYTES, STORED, meta_set
from sqlcache.settings.sources import from_arguments
from tests.coherence.sessions import Session, ask, count, run
from tests.conftest import ProxyFactory

MEMORY_BYTES = 8_000_000


def with_rows(session: Session, rows: int) -> None:
    run(session, "CREATE TABLE small (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
    run(session, "INSERT INTO small VALUES (1, 42)")
    run(session, "CREATE TABLE big (id INT PRIMARY KEY, b MEDIUMBLOB) ENGINE=InnoDB")
    for number in range(rows):
        run(session, f"INSERT INTO big VALUES ({number}, REPEAT('a', 1000000))")


def test_answers_are_stored_on_after_more_has_come_than_there_is_room_for(
    upstream: PrivateSqlServer, schema: str, proxy: ProxyFactory
) -> None:
    relay = proxy(upstream, "memory", memcached__memory_bytes=MEMORY_BYTES)
    account = {"user": upstream.user, "password": upstream.password, "database": schema}
    with closing(relay.connect(autocommit=True, **account)) as session:
        with_rows(session, 10)

        def is_hit() -> bool:
            ask(session, "SELECT v FROM small WHERE id = 1")
            before = count(relay, "hits")
            assert ask(session, "SELECT v FROM small WHERE id = 1") == 42
            return count(relay, "hits") > before

        assert is_hit()
        for _ in range(3):
            for number in range(10):
                assert len(ask(session, f"SELECT b FROM big WHERE id = {number}")) == 1_000_000
        assert is_hit()
        # More in one answer than there is room for altogether.
        run(session, "SELECT b FROM big")
        assert is_hit()
        assert relay.metrics()["sqlcache_memcached_nodes_away"] == 0
        assert count(relay, "fill_declined") == 1
        (node,) = json.loads(relay.fetch("/api/nodes"))["items"]
        assert (node["node"], node["limit_maxbytes"]) == ("memory", MEMORY_BYTES)
        assert node["evictions"] > 0
        assert 0 < node["bytes"] <= MEMORY_BYTES

        def told(figure: str) -> float:
            return relay.metrics()[f'sqlcache_memcached_node_{figure}{{node="memory"}}']

        wait_until(lambda: told("evictions_total") >= node["evictions"], 20, "fresh figures")
        assert told("limit_bytes") == MEMORY_BYTES
        assert 0 < told("bytes") <= MEMORY_BYTES
        assert told("items") > 1


@pytest.mark.parametrize("max_item_bytes", [1_024, 1_000_000, 4_000_000])
async def test_it_takes_items_as_large_as_the_setting_says(max_item_bytes: int) -> None:
    settings = from_arguments(
        {
            "upstream.url": "mysql://cat@127.0.0.1:1",
            "memcached.nodes": ["memory"],
            "memcached.max_item_bytes": max_item_bytes,
        }
    )
    (node,) = nodes_of(settings)
    key, log = b"k" * MAX_KEY_BYTES, b"l"
    stores = meta_set(key, bytes(max_item_bytes), ttl_s=60), meta_set(log, bytes(65_536), ttl_s=0)
    replies = await node.request(b"".join(stores), 2)
    assert [status for status, _, _ in replies] == [STORED, STORED]
    await node.close()
