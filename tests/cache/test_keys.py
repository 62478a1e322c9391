import pytest

from sqlcache.cache.keys import DIGEST_BYTES, Keyspace, digest
from sqlcache.memcache.protocol import checked_key


def test_fields_do_not_run_together() -> None:
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"])
    assert digest([b"a", b""]) != digest([b"a"])
    assert len(digest([])) == DIGEST_BYTES


def test_any_identifier_makes_a_key_memcached_takes() -> None:
    keys = Keyspace("x" * 64)
    checked_key(keys.tag("my schema\n", "t" * 256))
    checked_key(keys.entry(b"\0" * 16, b"SELECT\t1", 60))
    checked_key(keys.lease(keys.entry(b"", b"", 1), b"v" * 800))


@pytest.mark.parametrize("prefix", ["my app", "a\r\nmn", "\x7f", "x" * 250])
def test_a_prefix_that_memcached_would_not_take_makes_no_keys(prefix: str) -> None:
    with pytest.raises(ValueError, match="not a memcached key"):
        Keyspace(prefix)


def test_prefixes_and_kinds_keep_keys_apart() -> None:
    keys = Keyspace("a")
    made = {
        keys.tag("s", "t"),
        keys.tag("t", "s"),
        keys.copy("s", "", 0),
        keys.copy("", "s", 0),
        keys.entry(b"s", b"t", 1),
        keys.entry(b"s", b"t", 2),
        keys.lease(b"s", b"t"),
        Keyspace("b").tag("s", "t"),
    }
    assert len(made) == 8
