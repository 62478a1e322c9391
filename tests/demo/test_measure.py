import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlcache.demo.measure import Reader, Run, measure, on_one_cpu
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from sqlcache.errors import ConnectionLost


@pytest.fixture
def reader(mariadb: PrivateMariaDB) -> Iterator[Reader]:
    reader = Reader(mariadb, user=mariadb.user, password=mariadb.password)
    yield reader
    reader.close()


def run(*times_s: float) -> Run:
    return Run(times_s, (b"",) * len(times_s), 0, 0.0)


def test_quantiles_are_times_that_occurred() -> None:
    hundred = run(*(number / 100 for number in range(100, 0, -1)))
    assert hundred.quantile_s(0.99) == 0.99
    assert hundred.quantile_s(0.5) == 0.5
    assert hundred.quantile_s(1) == 1
    assert run(0.7).quantile_s(0.99) == 0.7


def test_mean_and_total_are_of_all_reads() -> None:
    assert run(0.1, 0.2, 0.6).total_s == pytest.approx(0.9)
    assert run(0.1, 0.2, 0.6).mean_s == pytest.approx(0.3)


def test_a_read_returns_all_packets_of_its_response(reader: Reader) -> None:
    big, seconds = reader.read(b"SELECT REPEAT('x', 300000)")
    assert seconds > 0
    assert big.count(b"x" * 300_000) == 1
    assert b"\x05after" in reader.read(b"SELECT 'after'")[0]


def test_an_error_is_a_response_too(reader: Reader) -> None:
    assert b"Unknown column" in reader.read(b"SELECT nothing_like_this")[0]
    assert b"\x05after" in reader.read(b"SELECT 'after'")[0]


def test_a_lost_connection_is_told(reader: Reader, mariadb: PrivateMariaDB) -> None:
    assert b"killed" in reader.read(b"KILL CONNECTION_ID()")[0]
    with pytest.raises((ConnectionLost, OSError)):
        reader.read(b"SELECT 1")


def test_a_measurement_counts_the_queries_of_its_reads_only(
    reader: Reader, mariadb: PrivateMariaDB
) -> None:
    reader.read(b"SELECT 'before'")
    steps: list[int] = []
    result = measure(reader, [b"SELECT 1", b"SELECT 2"], mariadb, None, lambda: steps.append(1))
    assert len(steps) == len(result.times_s) == 2
    assert result.upstream_queries == 2
    assert (result.hits, result.misses) == (None, None)
    assert all(seconds > 0 for seconds in result.times_s)
    assert b"\x011" in result.answers[0]
    assert b"\x012" in result.answers[1]


def test_processes_share_one_cpu_only_while_they_are_measured(memcached: PrivateMemcached) -> None:
    before = os.sched_getaffinity(0)
    threads = [int(task.name) for task in Path(f"/proc/{memcached.pid}/task").iterdir()]
    assert len(threads) > 1
    with on_one_cpu([memcached.pid]):
        shared = {frozenset(os.sched_getaffinity(thread)) for thread in [0, *threads]}
        assert len(shared) == 1
        assert len(next(iter(shared))) == 1
    assert {frozenset(os.sched_getaffinity(thread)) for thread in [0, *threads]} == {
        frozenset(before)
    }
