from hypothesis import given
from hypothesis import strategies as st

from sqlcache.cache.near import NearCache


def test_an_entry_is_there_until_its_time() -> None:
    near = NearCache(10_000)
    near.put(b"k", b"entry", until=5)
    assert near.has(b"k", now=4.9)
    assert near.get(b"k") == b"entry"
    assert not near.has(b"k", now=5)
    assert near.get(b"k") is None
    assert near.size_bytes == 0


def test_the_least_recently_used_makes_room() -> None:
    near = NearCache(4_000)
    keys = [b"%d" % number for number in range(30)]
    for key in keys:
        near.put(key, bytes(100), until=1)
        near.get(keys[0])
    kept = [key for key in keys if near.has(key, 0)]
    assert kept == [keys[0], *keys[-len(kept) + 1 :]]
    assert 2 < len(kept) < len(keys)


def test_what_would_take_more_than_a_tenth_is_not_kept() -> None:
    near = NearCache(10_000)
    near.put(b"k", b"small", until=1)
    near.put(b"k", bytes(1_000), until=1)
    assert not near.has(b"k", 0)
    assert len(near) == 0


def test_without_room_nothing_is_kept() -> None:
    near = NearCache(0)
    near.put(b"k", b"", until=1)
    assert not near.has(b"k", 0)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 400)), max_size=60))
def test_it_never_grows_past_its_bound(puts: list[tuple[str, int]]) -> None:
    near = NearCache(6_000)
    for key, size in puts:
        near.put(key.encode(), bytes(size), until=1)
        assert 0 <= near.size_bytes <= 6_000
    for key in "abcdefgh":
        near.drop(key.encode())
    assert (len(near), near.size_bytes) == (0, 0)


def test_what_is_current_has_its_time_and_is_then_the_last_to_make_room() -> None:
    near = NearCache(4_000)
    for name in (b"a", b"b"):
        near.put(name, b"x" * 100, until=100.0)
    assert near.current(b"a", now=99.9) == b"x" * 100
    assert list(near._entries) == [b"b", b"a"]
    assert near.current(b"a", now=100.0) is None
    assert list(near._entries) == [b"b"], "it is forgotten"
    assert near.current(b"c", now=0.0) is None
