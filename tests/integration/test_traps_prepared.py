"""Traps of sessions: an execution may mean what those before it have made of its parameters."""

from __future__ import annotations

import pytest

from tests.integration.scripts import World
from tests.integration.sessions import MAKE


def test_trap_32_prepared_statements_are_known_by_their_numbers(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  .prepare r SELECT v FROM t WHERE a = ?
        a  .prepare w UPDATE t SET v = ? WHERE a = 1
        b  .prepare r INSERT INTO t (v) VALUES (?)
        a  .execute r 1
        a  .execute r 3
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  .execute w new
        b  SELECT v FROM t
        a  .execute r 1
        b  .execute r another
        b  SELECT v FROM t
        a  ALTER TABLE t ADD COLUMN z INT DEFAULT 5 FIRST
        b  SELECT * FROM t
        a  .execute r 1
    """)


def test_an_execution_of_what_was_never_prepared_leaves_the_session_as_it_is(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        b  .execute none
        b  SELECT v FROM t
        b+ SELECT v FROM t
    """)


def test_trap_32_what_a_parameter_was_taken_for_before_decides_what_it_is_now(
    world: World,
) -> None:
    """MySQL answers a 1 as 1.0 where it answered a 1.5 before, and as 1 where it did not."""
    read = "SELECT ?, v FROM t WHERE a = ?"
    world.compare(f"""
        a  {MAKE}
        a  .prepare s {read}
        a  .execute s #1 #1
        a+ .execute s #1 #1
        a  .execute s #1.5 #1
        a+ .execute s #1.5 #1
        a  .execute s #1 #1
        b  .prepare s {read}
        b+ .execute s #1 #1
        b+ .execute s #1.5 #1
        b+ .execute s #1 #1
        b  .execute s #2 #1
        c  .prepare s {read}
        c  .execute s #2.5 #1
        c  .execute s #1 #1
        c  .execute s NULL #1
        c+ .execute s #1 #1
        d  .prepare s {read}
        d+ .execute s #2.5 #1
        d  .execute s #3 #1
        d+ .execute s NULL #1
    """)


def test_trap_32_after_a_string_that_is_no_plain_integer_others_are_decimals(
    world: World,
) -> None:
    """MySQL answers a '2' as 2.000 where a '1.5' came before; a 'two' changes nothing."""
    script = f"a  {MAKE}"
    for number in ("-2", "-0", "+.5", "2.", "1e3", "9223372036854775808"):
        read = f"SELECT a + ?, '{number}' FROM t WHERE a > 0"
        script += f"""
a  .prepare s {read}
a  .execute s 2
a  .execute s two
a+ .execute s 2
b  .prepare s {read}
b  .execute s {number}
b  .execute s 2
b  .execute s two
c  .prepare s {read}
c+ .execute s 2
c  .execute s {number}
c  .execute s 2
c  .execute s #2
d  .prepare s {read}
d  .execute s two
d+ .execute s 2
d  .execute s {number}
d  .execute s 2"""
    world.compare(script)


@pytest.mark.parametrize("limit", ["LIMIT ?", "/*!40101 LIMIT ? */"])
@pytest.mark.parametrize("rows", ["two", "1.5", "2x", r"\n2"])
def test_trap_32_a_string_in_limit_counts_otherwise_from_the_second_execution_on(
    world: World, rows: str, limit: str
) -> None:
    """On MySQL, once it has taken another parameter for what it is: of a '1.5' it makes 1, then 2,
    and of a '2x' it warns only then."""
    read = f"SELECT ?, a FROM t {limit}"
    world.compare(f"""
        a  {MAKE}
        a  .prepare s {read}
        a  .execute s #1 {rows}
        a  .execute s #1 {rows}
        a  SHOW WARNINGS
        a  .execute s #1 {rows}
        b  .prepare s {read}
        b  .execute s #1 2
        b+ .execute s #1 2
        c  .prepare s {read}
        c+ .execute s #1 2
        c  .execute s #1 {rows}
        c  .execute s #1 2
    """)


def test_trap_32_after_a_number_on_a_line_of_its_own_others_are_decimals(world: World) -> None:
    """On MySQL, which takes a ' 2' for an integer all the same."""
    read = "SELECT a + ? FROM t"
    world.compare(rf"""
        a  {MAKE}
        a  .prepare s {read}
        a  .execute s 2
        a+ .execute s 2
        b  .prepare s {read}
        b  .execute s \n2
        b  .execute s 2
        c  .prepare s {read}
        c+ .execute s 2
        c  .execute s \n2
        c  .execute s 2
    """)


def test_trap_32_after_a_string_with_a_time_of_day_others_are_datetimes(world: World) -> None:
    """MySQL answers DATETIMEs from then on, where it would have answered DATEs."""
    script = "a  CREATE TABLE t (d DATE); INSERT INTO t VALUES ('2020-01-02'), (NULL)"
    moments = ["2020-01-01T10:00:00", "2020-01-01T10:00:00.5", "10:00:00", "20200101101112"]
    for moment in [*moments, "2020-01-01T10:00", "1.2.3"]:
        for read in (f"SELECT LEAST(d, ?), '{moment}' FROM t", f"SELECT ?, d, '{moment}' FROM t"):
            script += f"""
a  .prepare s {read}
a  .execute s 2020-01-01
a  .execute s two
b  .prepare s {read}
b  .execute s {moment}
b  .execute s 2020-01-01
b  .execute s two
c  .prepare s {read}
c+ .execute s 2020-01-01
c  .execute s {moment}
c  .execute s 2020-01-01"""
    world.compare(script)


@pytest.mark.parametrize(
    "read",
    [
        "SELECT CONV(a, 10, 16) FROM t",
        "SELECT BIN(a) FROM t",
        "SELECT OCT(a) FROM t",
        "SELECT ST_DISTANCE(POINT(a, 1), POINT(3, 3)) FROM t",
        "SELECT c FROM w",
    ],
)
def test_trap_32_some_functions_remember_the_execution_before(world: World, read: str) -> None:
    world.compare(f"""
        a  CREATE TABLE t (a INT); INSERT INTO t VALUES (7), (NULL);
           CREATE VIEW w AS SELECT CONV(a, 10, 16) AS c FROM t
        a  .prepare s {read}
        a  .execute s
        a  .execute s
        b  .prepare s {read}
        b  .execute s
        b  DELETE FROM t
        b  INSERT INTO t VALUES (8), (NULL)
        a  .execute s
        b  .prepare s {read}
        b  .execute s
        b  .execute s
    """)


@pytest.mark.parametrize(
    "read",
    [
        "SELECT GROUP_CONCAT(a, b ORDER BY ?) FROM t",
        "SELECT GROUP_CONCAT(a, b ORDER BY a > 9, (?)) FROM t",
        "SELECT MAX(a) FROM t GROUP BY a, ? ORDER BY 1",
        "SELECT a, b FROM t ORDER BY ?",
    ],
)
def test_trap_32_mariadb_takes_the_first_parameter_for_a_columns_place(
    world: World, read: str
) -> None:
    if not world.is_mariadb:
        pytest.skip("MySQL 9.7 dies of some of these")
    world.compare(f"""
        a  CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 9), (2, 5), (3, 7)
        a  .prepare s {read}
        a  .execute s #1
        a  .execute s #2
        b  .prepare s {read}
        b  .execute s #2
        b  .execute s #1
        a  .execute s #1
    """)


def test_trap_32_a_number_that_was_a_date_makes_others_dates(world: World) -> None:
    """MySQL takes a 0 for a date where it wants one, and a 1 that comes later for a wrong one."""
    read = "SELECT COALESCE(d, ?), a FROM t WHERE a = ?"
    plain = "SELECT a + ?, ? FROM t WHERE a = ?"
    world.compare(f"""
        a  CREATE TABLE t (a INT, d DATE, ip VARCHAR(20));
           INSERT INTO t VALUES (1, NULL, '10.0.0.1')
        a  .prepare s {read}
        a  .execute s #1 #1
        a+ .execute s #1 #1
        b  .prepare s {read}
        b  .execute s #0 #1
        b  .execute s #1 #1
        b  .execute s 2020-01-05 #1
        c  .prepare s {read}
        c+ .execute s #1 #1
        c  .execute s #20200101101112 #1
        c  .execute s #1 #1
        a  .prepare p {plain}
        a  .execute p #0 #20200101 #1
        a+ .execute p #0 #20200101 #1
        a  .prepare q SELECT a FROM t WHERE ip = ? AND a = ? AND d IS NULL
        a  .execute q 10.0.0.1 #1
        a  .execute q 10.0.0.2 #0
        a+ .execute q 10.0.0.1 #1
        a+ .execute q 10.0.0.2 #0
    """)


def test_trap_32_after_a_definition_changed_the_server_forgets_what_parameters_were(
    world: World,
) -> None:
    """MySQL prepares the statement anew, and takes a 1 for an integer again."""
    read = "SELECT a + ? FROM t"
    world.compare(f"""
        a  CREATE TABLE t (a INT); INSERT INTO t VALUES (1)
        a  .prepare s {read}
        a  .execute s #1.5
        b  .prepare s {read}
        b  .execute s #1.5
        b  ALTER TABLE t ADD COLUMN z INT
        a  .execute s #1
        a  .execute s #1
        b  .execute s #1.5
        b  .execute s #1
        c  .prepare s {read}
        c  .execute s #1.5
        c  .execute s #1
        b  .execute s #1
        a  .execute s #1
        d  .prepare s {read}
        d+ .execute s #1.5
        d+ .execute s #1
    """)


def test_trap_32_a_cursor_is_not_the_first_execution_the_server_sees_after_a_hit(
    world: World,
) -> None:
    """MySQL 9.7 never ends its answer to an execution without a cursor where the first was with."""
    world.compare(f"""
        a  {MAKE}
        a  .prepare s SELECT v FROM t WHERE a < ?
        b  .prepare s SELECT v FROM t WHERE a < ?
        a  .execute s 3
        b+ .execute s 3
        b  .cursor s 9
        b  .execute s 9
        a  ALTER TABLE t ADD COLUMN z INT
        a  .execute s 3
        b+ .execute s 3
        b  .cursor s 3
        b  .execute s 3
        b+ .execute s 3
        b  .execute s 2
    """)


def test_trap_32_only_the_execution_after_a_change_tells_of_it(world: World) -> None:
    """That the columns are others than at the last one is told by a status flag."""
    world.compare("""
        a  CREATE TABLE t (a INT); INSERT INTO t VALUES (1)
        a  .prepare s SELECT * FROM t
        a  .execute s
        a+ .execute s
        b  ALTER TABLE t ADD COLUMN b INT
        a  .execute s
        a  .execute s
        a+ .execute s
        b  .prepare s SELECT * FROM t
        b+ .execute s
    """)
