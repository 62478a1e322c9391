import gc
import tracemalloc

from sqlcache.table_counts import MOST_ROWS, TableReads, Tables, merged
from tests.turns import counted_turns

ROOM = 4_000_000


class Answers:
    """What reads hang on."""

    def __init__(self, *tables: str) -> None:
        self.reads = TableReads(tables)
        self.last_seen: tuple[bytes, float] | None = None


async def rows(tables: Tables) -> dict[str, dict[str, object]]:
    return {str(row["table"]): row for row in await tables.report()}


async def test_a_read_counts_for_each_table_that_it_hangs_on() -> None:
    tables = Tables(ROOM)
    both, one = Answers("shop.a", "shop.b"), Answers("shop.a")
    for each in (both, one):
        tables.follow(each)
    both.reads.hits, both.reads.misses, both.reads.fills, one.reads.hits = 3, 2, 1, 10
    for _ in range(2):  # asked again, nothing counts twice
        told = await rows(tables)
    figures = {name: [row[n] for n in ("hits", "misses", "fills")] for name, row in told.items()}
    assert figures == {"shop.a": [13, 2, 1], "shop.b": [3, 2, 1]}


async def test_what_is_in_use_no_more_leaves_its_figures_and_no_bytes() -> None:
    tables = Tables(ROOM)
    for number in range(1_000):
        answers = Answers("shop.a", f"shop.other{number % 10}")
        tables.follow(answers)
        answers.reads.hits += 1
    del answers
    told = await rows(tables)
    assert (told["shop.a"]["hits"], told["shop.other3"]["hits"]) == (1_000, 100)
    assert not tables._alive
    assert not tables._ended


async def test_writes_are_told_by_who_made_them() -> None:
    tables = Tables(ROOM)
    for _ in range(3):
        tables.wrote(["shop.a"], "proxy")
    tables.wrote(["shop.a", "shop.b"], "flush")
    tables.wrote(["shop.b"], "api")
    told = await rows(tables)
    assert told["shop.a"]["writes"] == {"proxy": 3, "api": 0, "flush": 1, "binlog": 0}
    assert told["shop.b"]["writes"] == {"proxy": 0, "api": 1, "flush": 1, "binlog": 0}
    assert told["shop.a"]["last_write_s_ago"] is None, "nothing was forgotten yet"
    tables.invalidated("shop.a")
    told = await rows(tables)
    assert told["shop.a"]["invalidations"] == 1
    ago = told["shop.a"]["last_write_s_ago"]
    assert isinstance(ago, float)
    assert 0 <= ago < 60


async def test_it_is_told_when_a_table_was_last_read() -> None:
    tables = Tables(ROOM)
    early, late = Answers("shop.a"), Answers("shop.a")
    for each, ago_s in ((early, 100.0), (late, 10.0)):
        tables.follow(each)
        each.reads.hits = 1
        each.last_seen = b"", tables._loop.time() - ago_s
    told = await rows(tables)
    ago = told["shop.a"]["read_s_ago"]
    assert isinstance(ago, float)
    assert 9 < ago < 60


async def test_where_there_are_too_many_those_used_least_leave() -> None:
    tables = Tables(ROOM)
    for _ in range(100):
        tables.wrote(["shop.often"], "proxy")
    for number in range(3 * MOST_ROWS):
        tables.wrote([f"shop.once{number}"], "proxy")
    told = await rows(tables)
    assert told["shop.often"]["writes"] == {"proxy": 100, "api": 0, "flush": 0, "binlog": 0}
    assert MOST_ROWS / 2 < len(told) <= MOST_ROWS


async def test_however_many_and_long_they_are_the_list_keeps_within_its_bytes() -> None:
    room = 400_000
    tables = Tables(room)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(5_000):
            name = f"{number:060}.{number:060}"
            for _ in range(300 if number % 100 == 0 else 1):
                tables.wrote([name], "proxy")
            tables.invalidated(name)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert tables.size_bytes <= room
    assert taken < room


async def test_5_000_tables_have_room_in_what_a_process_has_by_default() -> None:
    tables = Tables((96 << 20) // 8 // 4)
    for number in range(MOST_ROWS):
        tables.wrote([f"a_schema_of_some_length.a_table_of_some_length_{number}"], "proxy")
    assert len(await rows(tables)) == MOST_ROWS


async def test_who_makes_a_long_list_gives_way_to_others() -> None:
    unread, of_one = Tables(ROOM), Tables(ROOM)
    for number in range(2_000):
        unread.wrote([f"shop.table{number}"], "proxy")
    all_read = [Answers("shop.a") for _ in range(2_000)]
    for each in all_read:
        of_one.follow(each)
    for tables in (unread, of_one):
        with counted_turns() as turns:
            await tables.report()
        assert turns.count > 5


async def test_rows_of_several_processes_are_added() -> None:
    one, other = Tables(ROOM), Tables(ROOM)
    for tables, hits, ago_s in ((one, 3, 5.0), (other, 4, 50.0)):
        answers = Answers("shop.a")
        tables.follow(answers)
        answers.reads.hits = hits
        answers.last_seen = b"", tables._loop.time() - ago_s
        tables.wrote(["shop.a"], "proxy")
        tables.invalidated("shop.a")
        del answers
    one.wrote(["shop.b"], "flush")
    reports = [await one.report(), await other.report()]
    first, second = merged(reports)
    assert (first["table"], first["hits"], first["invalidations"]) == ("shop.a", 7, 2)
    assert first["writes"] == {"proxy": 2, "api": 0, "flush": 0, "binlog": 0}
    assert first["last_write_s_ago"] < 5
    assert (second["table"], second["read_s_ago"]) == ("shop.b", None)
    assert merged(reports) == [first, second], "nothing is added to the reports themselves"
