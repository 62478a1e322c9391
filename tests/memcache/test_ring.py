from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.memcache.ring import Ring

KEYS = [b"key-%d" % number for number in range(4000)]
NAMES = st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=8, unique=True)


def placed(ring: Ring) -> dict[bytes, str]:
    return {key: ring.node_for(key) for key in KEYS}


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_every_node_gets_near_its_even_share(count: int) -> None:
    shares = Counter(placed(Ring(f"10.0.0.{n}:11211" for n in range(count))).values())
    assert len(shares) == count
    mean = len(KEYS) / count
    assert all(0.65 * mean < share < 1.35 * mean for share in shares.values()), shares


@given(names=NAMES, data=st.data())
def test_the_order_in_which_nodes_are_listed_does_not_matter(
    names: list[str], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(names))
    keys = data.draw(st.lists(st.binary(max_size=40), max_size=50))
    one, other = Ring(names), Ring(shuffled)
    assert [one.node_for(key) for key in keys] == [other.node_for(key) for key in keys]


@pytest.mark.parametrize("count", [2, 4, 9])
def test_a_node_that_joins_takes_its_share_and_nothing_else_moves(count: int) -> None:
    names = [f"node-{n}" for n in range(count)]
    before, after = placed(Ring(names)), placed(Ring([*names, "new"]))
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {"new"}
    assert 0.65 < len(moved) * (count + 1) / len(KEYS) < 1.35


@given(names=NAMES, keys=st.lists(st.binary(max_size=40), max_size=50))
def test_a_node_that_leaves_gives_up_only_its_own_keys(names: list[str], keys: list[bytes]) -> None:
    whole, without = Ring(names), Ring(names[1:])
    for key in keys:
        if whole.node_for(key) != names[0]:
            assert without.node_for(key) == whole.node_for(key)


def test_another_process_places_keys_alike() -> None:
    program = (
        "from sqlcache.memcache.ring import Ring\n"
        "ring = Ring(['c', 'a', 'b'])\n"
        "print(''.join(ring.node_for(b'key-%d' % n) for n in range(200)))"
    )
    ring = Ring(["a", "b", "c"])
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert printed == "".join(ring.node_for(key) for key in KEYS[:200])


def test_the_places_of_known_keys_never_change() -> None:
    ring = Ring(["a:11211", "b:11211", "c:11211"])
    places = "".join(ring.node_for(b"key-%d" % n)[0] for n in range(24))
    assert places == "abbbbcbaabcbcbaccaaaccac"


def test_an_index_names_the_same_node() -> None:
    ring = Ring(["b", "a", "c"])
    assert ring.names == ("a", "b", "c")
    assert all(ring.names[ring.index_for(key)] == ring.node_for(key) for key in KEYS[:100])


def test_one_node_holds_every_key() -> None:
    assert {Ring(["only"]).node_for(key) for key in KEYS[:100]} == {"only"}


@pytest.mark.parametrize("names", [[], ["a", "b", "a"]])
def test_a_ring_of_no_nodes_or_of_one_name_twice_is_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="node"):
        Ring(names)
