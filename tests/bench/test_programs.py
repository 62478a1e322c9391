"""The programs in C: that they compile, and that one drives the other."""

from pathlib import Path

import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from tests.bench.programs import Floor, Generator, Load, LoadFailed, Target, compiled, told

ROWS, WIDTH = 100, 119
TEXT = "--statement=SELECT {id}, {next}, {new}"


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    return Generator(compiled("load", tmp_path_factory.mktemp("load"), "-Werror"))


@pytest.fixture(scope="module")
def floor_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("floor", tmp_path_factory.mktemp("floor"), "-Werror")


def test_a_load_on_the_floor_is_answered_in_every_form(
    generator: Generator, floor_program: Path, tmp_path: Path
) -> None:
    with Floor(tmp_path, floor_program, ROWS, WIDTH) as floor:

        def load(*options: str) -> Load:
            given = ["--warm=0.05", "--connections=8", "--ids=9", *options]
            return generator.run(Target(floor.port), given, 0.2, {"floor": floor.pid})

        for options in ((TEXT,), (TEXT, TEXT), (TEXT, "--prepared"), ("--ping",), ("--connect",),
                        (TEXT, "--connect")):  # fmt: skip
            took = load(*options)
            assert took.rate > 0, options
            assert 0 < took.p50_us <= took.p95_us
            assert took.cpu_us.keys() == {"floor", "generator"}
            assert all(us > 0 for us in took.cpu_us.values())
        assert load(TEXT, "--count=50").answered == 50


def test_the_marks_of_a_statement_are_numbers_of_their_kind(
    generator: Generator, mariadb: PrivateMariaDB
) -> None:
    mariadb.sql("CREATE OR REPLACE DATABASE marks; CREATE TABLE marks.m (i INT, n INT, f INT)")
    target = Target(mariadb.port, mariadb.user, mariadb.password, "marks")
    insert = "--statement=INSERT INTO m VALUES ({id}, {next}, {new})"
    for form in ([], ["--prepared"]):
        options = [insert, *form, "--count=40", "--ids=5", "--first=1000", "--connections=2"]
        generator.run(target, options, 1, {})
        of_next = mariadb.sql("SELECT n, COUNT(*) FROM marks.m GROUP BY n ORDER BY n")
        assert of_next == tuple((n, 8) for n in range(1, 6))
        (rest,) = mariadb.sql("SELECT MIN(i) > 0, MAX(i) < 6, MIN(f), MAX(f) FROM marks.m")
        assert rest == (1, 1, 1000, 1039)
        mariadb.sql("TRUNCATE marks.m")
    mariadb.sql("DROP DATABASE marks")


def test_memcached_is_asked_for_a_key(generator: Generator, memcached: PrivateMemcached) -> None:
    get = ["--get=k", "--count=20", "--connections=2"]
    with pytest.raises(LoadFailed, match="has no k"):
        generator.run(Target(memcached.port), get, 1, {})
    value = b"x" * 300_000
    memcached.ask(b"set k 0 0 %d\r\n%b\r\n" % (len(value), value), b"STORED\r\n")
    assert generator.run(Target(memcached.port), get, 1, {}).answered == 20


def test_statements_that_fail_measure_nothing(
    generator: Generator, mariadb: PrivateMariaDB
) -> None:
    target = Target(mariadb.port, mariadb.user, mariadb.password, "mysql")
    for form in ([], ["--prepared"], ["--connect"]):
        with pytest.raises(LoadFailed, match=r"'mysql\.nothing' doesn't exist"):
            generator.run(target, ["--statement=SELECT * FROM nothing", *form], 1, {})
    with pytest.raises(LoadFailed, match="Access denied"):
        generator.run(Target(mariadb.port, mariadb.user, "wrong", "mysql"), ["--ping"], 1, {})


def test_what_the_generator_says_is_told_an_answer() -> None:
    line = (
        '{"answered": 100, "seconds": 0.5, "received": 1, "own_cpu_s": 0.001, "cpu_s": [0.002],'
        ' "p50_us": 5, "p95_us": 9}'
    )
    took = told(line, ("floor",))
    assert took.rate == 200
    assert took.cpu_us == pytest.approx({"floor": 20, "generator": 10})


def test_a_load_without_an_answer_is_an_error() -> None:
    with pytest.raises(LoadFailed, match="nothing was answered"):
        told('{"answered": 0}', ())
