"""Commands that are sent ahead of others, as their answers are known: whether what comes is as was
foretold."""

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

from sqlcache.errors import ProtocolError
from sqlcache.mysql.packets import packets_in, tells_the_same
from sqlcache.mysql.scan import definitions_behind
from sqlcache.mysql.tracking import untracked


class Foretold(Enum):
    """What a packet is that is to come."""

    AMID = "one as it is, of an answer that goes on"
    LAST = "the last of an answer"
    PREPARED = "what tells that a statement is prepared, under any number; or why it is not"
    DEFINITION = "one behind that, whatever it says"


OF_PREPARING = frozenset({Foretold.PREPARED, Foretold.DEFINITION})


class ToCome(NamedTuple):
    """A packet that is to come, and who is to be told of it."""

    packet: bytes
    what: Foretold
    came: Callable[[bytes], None] | None = None


_DEFINITION = ToCome(b"", Foretold.DEFINITION)


class SentAhead(NamedTuple):
    """A command that is to be sent with the next. `came`: it prepares a statement."""

    command: bytes
    answer: bytes
    came: Callable[[bytes], None] | None

    @property
    def is_settled(self) -> bool:
        """Whether it can have no other answer."""
        return bool(self.answer) and self.came is None

    def packets_to_come(self) -> Iterable[ToCome]:
        """Those of its answer."""
        packets = packets_in(self.answer)
        if self.came is not None:
            yield ToCome(packets[0], Foretold.PREPARED, self.came)
            yield from [_DEFINITION] * (len(packets) - 1)
        elif packets:
            yield from (ToCome(each, Foretold.AMID) for each in packets[:-1])
            yield ToCome(packets[-1], Foretold.LAST)


def is_as_foretold(answer: bytes, to_come: list[ToCome], hides_tracking: bool) -> bool:
    """Whether a packet is the first one that is to come. Takes in how many definitions come behind
    it. `hides_tracking`: see `Channel`."""
    foretold, what, _ = to_come[0]
    if what is Foretold.DEFINITION:
        return True
    if what is Foretold.PREPARED:
        behind = list(takewhile(_DEFINITION.__eq__, to_come[1:]))
        definitions = definitions_behind(answer, foretold, len(behind))
        if definitions is None:
            return False
        to_come[1 : 1 + len(behind)] = [_DEFINITION] * definitions
        return True
    if answer == foretold:
        return True
    if what is Foretold.AMID:
        return False
    try:
        answer = untracked(answer) if hides_tracking else answer
    except (ProtocolError, IndexError):
        return False
    return tells_the_same(answer, foretold)
