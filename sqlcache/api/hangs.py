"""On what a stored value hangs: tags, and pins of some of their tables.

Each pin is of a tag by itself, so a table stands among the tags once for each slot of it that is
pinned, and once more where the value hangs on the whole of it.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sqlcache.api.collect import Part
from sqlcache.cache.slots import MOST_BUCKETS
from sqlcache.cache.tags import ROOT, Pin, Pins, Tag


class Hang(NamedTuple):
    """The `pins` are those of the tags that come first, each a table's."""

    tags: tuple[Tag, ...]
    pins: Pins = ()

    def written(self) -> bytes:
        """As lines, of fields that hold no NUL: a schema, a table; and what is pinned of it, a slot
        and its buckets."""
        lines = [f"{tag.schema}\0{tag.table}" for tag in self.tags]
        for at, pin in enumerate(self.pins):
            assert pin is not None
            lines[at] = "\0".join(
                (lines[at], pin.slot.hex(), *(each.hex() for each in pin.buckets))
            )
        return "\n".join(lines).encode()


def hang_on(used: Iterable[Tag | Part]) -> Hang:
    """What hangs on all of these, and on the root."""
    tags = {ROOT}
    buckets: dict[tuple[Tag, bytes], set[bytes]] = {}
    for each in used:
        if isinstance(each, Tag):
            tags.add(each)
        else:
            buckets.setdefault((each.table, each.slot), set()).update(
                {each.bucket} if each.bucket else ()
            )
    pinned = sorted(buckets)
    pins = tuple(Pin(slot, tuple(sorted(buckets[table, slot]))) for table, slot in pinned)
    return Hang((*(table for table, _ in pinned), *sorted(tags)), pins)


def pins_too_much(used: Collection[Tag | Part]) -> bool:
    """Whether to look at all of it costs more than it is worth."""
    return sum(isinstance(each, Part) for each in used) > MOST_BUCKETS


def read_hang(lines: Iterable[str]) -> Hang:
    """What was `written`. Raises: ValueError."""
    tags: list[Tag] = []
    pins: list[Pin] = []
    for line in lines:
        schema, table, *pinned = line.split("\0")
        if pinned and len(pins) < len(tags):
            raise ValueError("a pin of a tag that does not come first")
        tags.append(Tag(schema, table))
        if pinned:
            slot, *buckets = map(bytes.fromhex, pinned)
            pins.append(Pin(slot, tuple(buckets)))
    return Hang(tuple(tags), tuple(pins))
