"""What the live runs break is broken as it is said to be."""

from pathlib import Path

from sqlcache.cache.keys import Keyspace
from sqlcache.cache.log_records import fence_record, version_record
from sqlcache.demo.servers import PrivateMemcached
from tests.coherence.live_faults import evict_tags

VERSION = version_record(b"version1")


def test_the_tags_of_tables_are_evicted_but_for_those_that_are_fenced(tmp_path: Path) -> None:
    keys = Keyspace("live")
    logs = {
        keys.tag("s", "free"): VERSION,
        keys.tag("s", "fenced"): VERSION + fence_record(b"fence..1", b"beat...1"),
        keys.copy("s", "node", 0): VERSION,
    }
    with PrivateMemcached(tmp_path) as node:
        for key, log in logs.items():
            node.ask(b"ms %b %d\r\n%b\r\n" % (key, len(log), log), b"\r\n")
        assert evict_tags(node) == 1
        left = [node.ask(b"mg %b s\r\n" % key, b"\r\n")[:2] for key in logs]
    assert left == [b"EN", b"HD", b"HD"]
