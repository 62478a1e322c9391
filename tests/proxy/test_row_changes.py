"""What the writes of a transaction touch, as it is told bit by bit."""

from sqlcache.cache.tags import Cover
from sqlcache.plan.pins import buckets_of
from sqlcache.plan.probes import Asked, Probe
from sqlcache.proxy.row_changes import RowChange, RowChanges
from sqlcache.service.pipeline import Done
from sqlcache.sql.facts import IntegerColumn
from sqlcache.sql.names import TableName

ID, K = b"i" * 12, b"k" * 12


def of_ids(*values: int) -> Cover:
    return {ID: buckets_of([{b"%d" % value for value in values}]) or frozenset()}


def of_k(*values: int) -> Cover:
    return {K: buckets_of([{b"%d" % value for value in values}]) or frozenset()}


def probe(name: str = "t") -> Probe:
    column = IntegerColumn("k", 0, 100, numbers=False)
    asked = [Asked(column, (K,), (frozenset(),))]
    return Probe(TableName("s", name), asked, {}, before=False, most=64)


class Server:
    """One that has yet to answer what it is asked."""

    def __init__(self) -> None:
        self.waiting: list[Done] = []

    def ask(self, _: bytes, done: Done) -> None:
        self.waiting.append(done)


def test_what_is_told_of_each_write_is_added() -> None:
    changes, server = RowChanges(), Server()
    changes.add(RowChange(of_ids(1), probe()), server.ask)
    changes.add(RowChange(of_ids(2), probe()), server.ask)
    assert changes.cover == of_ids(1, 2), "nothing is told yet"
    server.waiting[0]([(b"7",)])
    assert changes.cover == of_ids(1, 2), "of the other write k is not known"
    server.waiting[1]([(b"8",), (b"9",)])
    assert changes.cover == {**of_ids(1, 2), **of_k(7, 8, 9)}


def test_what_is_not_told_may_be_anything() -> None:
    changes, server = RowChanges(), Server()
    changes.add(RowChange({}, probe()), server.ask)
    changes.add(RowChange(of_k(3)), server.ask)
    assert changes.cover == {}
    server.waiting[0](None)
    assert changes.cover == {}


def test_after_one_that_may_touch_anything_nobody_is_asked() -> None:
    changes, server = RowChanges(), Server()
    for change in (RowChange(of_ids(1), probe()), RowChange({}), RowChange(of_ids(2), probe())):
        changes.add(change, server.ask)
    server.waiting[0]([(b"7",)])
    assert len(server.waiting) == 1
    assert changes.cover == {}


def test_many_writes_are_remembered_as_one() -> None:
    """What is told of the first of them comes too late then."""
    changes, server = RowChanges(), Server()
    for number in range(20):
        changes.add(RowChange(of_ids(number), probe()), server.ask)
        if number % 2:
            server.waiting[-1]([(b"%d" % number,)])
    assert changes.cover == of_ids(*range(20))
    changes = RowChanges()
    for number in range(20):
        changes.add(RowChange(of_ids(number), probe()), server.ask)
        server.waiting[-1]([(b"%d" % number,)])
    assert changes.cover == {**of_ids(*range(20)), **of_k(*range(20))}
    for number in range(20, 80):
        changes.add(RowChange(of_ids(number), probe()), server.ask)
    asked = len(server.waiting)
    assert changes.cover == {}, "these are too many"
    for number in range(80, 100):
        changes.add(RowChange(of_ids(number), probe()), server.ask)
    assert len(server.waiting) == asked
    assert changes.cover == {}
