"""Traps of writes: every way in which rows and definitions can change, and what hangs on them."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pymysql.constants import CLIENT

from sqlcache.demo.servers import wait_until
from sqlcache.mysql.constants import Command
from tests.integration.scripts import World

MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20));"
    " CREATE TABLE u (a INT PRIMARY KEY, v VARCHAR(20));"
    " INSERT INTO t VALUES (1, 'x'), (2, 'y'); INSERT INTO u VALUES (1, 'one'), (2, 'two')"
)


def seen(first: str, writes: list[str], reads: list[str]) -> str:
    """After each write, made by one session, every read by the same and by another."""
    warm = [f"a  {read}" for read in reads]
    steps = [f"a  {first}", "a  .again", *warm, *(f"a+ {read}" for read in reads)]
    for write in writes:
        steps += [f"w  {write}", *warm, *(f"w  {read}" for read in reads)]
    return "\n".join(steps)


def test_trap_15_every_statement_that_changes_rows_is_a_write(world: World, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("8\teight\n9\tnine\n")
    world.compare(
        seen(
            MAKE,
            [
                "INSERT INTO t VALUES (3, 'z')",
                "INSERT t (a) VALUES (4)",
                "INSERT INTO t SET a = 5, v = 'five'",
                "INSERT INTO {db}.`t` SELECT a + 10, v FROM u",
                "INSERT INTO t VALUES (1, 'dup') ON DUPLICATE KEY UPDATE v = 'updated'",
                "INSERT IGNORE INTO t VALUES (1, 'ignored'), (6, 'six')",
                "INSERT INTO t VALUES (7, 'kept'), (1, 'fails')",
                "INSERT INTO t TABLE u",
                "REPLACE INTO t VALUES (1, 'replaced')",
                "REPLACE INTO t SELECT a, v FROM u",
                "UPDATE t SET v = 'all'",
                "UPDATE LOW_PRIORITY IGNORE t AS x SET v = 'alias' WHERE a = 1 LIMIT 1",
                "UPDATE t JOIN u USING (a) SET t.v = u.v, u.v = 'both'",
                "UPDATE u, t SET t.v = 'comma' WHERE t.a = u.a",
                "DELETE FROM t WHERE a = 3",
                "DELETE QUICK FROM t ORDER BY a DESC LIMIT 1",
                "DELETE t FROM t JOIN u USING (a) WHERE t.a = 1",
                "DELETE FROM x USING t AS x JOIN u WHERE x.a = 2",
                "DELETE t.*, u FROM t, u WHERE t.a = 4 AND u.a = 2",
                "INSERT INTO t VALUES (20, 'returned') RETURNING a",
                "WITH c AS (SELECT 20 AS a) DELETE t FROM t JOIN c USING (a)",
                f"LOAD DATA LOCAL INFILE '{rows}' INTO TABLE t",
                f"LOAD DATA LOCAL INFILE '{rows}' REPLACE INTO TABLE t SET v = 'loaded'",
                "TRUNCATE t",
                "INSERT INTO t VALUES (1, 'again')",
                "TRUNCATE TABLE {db}.t",
                "(SELECT 1); INSERT INTO t VALUES (1, 'second of two')",
                "EXPLAIN DELETE FROM t",
                "EXPLAIN ANALYZE DELETE FROM t",
                "ANALYZE DELETE FROM t",
                "SELECT a FROM t INTO @x",
                "HANDLER t OPEN; HANDLER t READ FIRST; HANDLER t CLOSE",
            ],
            ["SELECT * FROM t", "SELECT t.a, u.v FROM u LEFT JOIN t USING (a)"],
        )
    )


def test_trap_15_a_very_long_statement_is_a_write_too(world: World) -> None:
    values = ",".join(f"({n}, 'it''s number {n}')" for n in range(1000, 4000))
    world.compare(
        seen(
            MAKE,
            [
                f"INSERT INTO t VALUES {values}",
                f"INSERT INTO t VALUES {values} ON DUPLICATE KEY UPDATE v = 'again'",
                f"DELETE FROM t WHERE a IN ({','.join(map(str, range(1000, 4000)))})",
            ],
            ["SELECT COUNT(*), MAX(v) FROM t"],
        )
    )


def test_trap_15_what_stands_far_behind_in_a_very_long_statement_is_a_write_too(
    world: World,
) -> None:
    """Its head tells of an INSERT, and no more of it is read: the limit is 1 MB."""
    rows = ", ".join(f"({n}, 'some value')" for n in range(9, 60_000))
    world.compare(
        f"""
        a  {MAKE}
        a  SELECT v FROM u
        a+ SELECT v FROM u
        c  INSERT INTO t VALUES {rows}; UPDATE u SET v = 'new'
        a  SELECT v FROM u
        b  DELETE FROM t
        e  INSERT INTO t VALUES {rows}; CREATE TEMPORARY TABLE u (v INT)
        a  SELECT v FROM u
        a+ SELECT v FROM u
        e  SELECT v FROM u
        d  CREATE FUNCTION f() RETURNS INT DETERMINISTIC
            BEGIN UPDATE u SET v = 'newer'; RETURN 1; END
        b  DELETE FROM t
        a  SELECT v FROM u
        a+ SELECT v FROM u
        b  INSERT INTO t VALUES {rows}, (0, f())
        a  SELECT v FROM u
    """,
        {"b": {"client_flag": 0}},
    )


def test_trap_16_prepared_statements_and_several_at_once_are_writes(world: World) -> None:
    world.compare(
        seen(
            MAKE,
            [
                ".prepare s UPDATE t SET v = ? WHERE a = 1",
                ".execute s first",
                ".execute s second",
                ".prepare i INSERT INTO t VALUES (?, ?)",
                ".execute i 5 five",
                ".prepare c DELETE FROM t WHERE a = 5",
                ".execute c",
                "PREPARE p FROM 'UPDATE t SET v = ''text'''",
                "EXECUTE p",
                "SET @s = 'DELETE FROM t WHERE a = 1'",
                "PREPARE p FROM @s",
                "EXECUTE p",
                "EXECUTE IMMEDIATE 'UPDATE t SET v = ''immediate'''",
                "SELECT 1; UPDATE t SET v = 'third'; SELECT 2",
                "UPDATE t SET v = 'early'; SELECT no_such; UPDATE t SET v = 'never'",
                "BEGIN NOT ATOMIC UPDATE t SET v = 'in a block'; END",
                "SET STATEMENT sql_select_limit = 1 FOR UPDATE t SET v = 'set statement'",
                "UPDATE t SET v = 'a;b'; -- ;\n DELETE FROM u WHERE a = 2",
            ],
            ["SELECT * FROM t", "SELECT * FROM u"],
        )
    )


FAR = (
    "; CREATE DATABASE {db}_far; CREATE TABLE {db}_far.t (a INT, v VARCHAR(20));"
    " INSERT INTO {db}_far.t VALUES (1, 'far');"
    " CREATE TABLE {db}_far.m (a INT) ENGINE = MyISAM; INSERT INTO {db}_far.m VALUES (1)"
)
MERGE = "m (a INT) ENGINE = MERGE UNION = ({db}_far.m) INSERT_METHOD = LAST"


@pytest.mark.parametrize(
    "write",
    [
        "USE {db}_far; UPDATE t SET v = 'of the other schema'",
        "USE {db}_far; USE {db}; UPDATE t SET v = 'of this one'",
        "CREATE VIEW w AS SELECT * FROM {db}_far.t; UPDATE w SET v = 'through a new view'",
        "CREATE OR REPLACE VIEW x AS SELECT * FROM {db}_far.t; DELETE FROM x",
        f"CREATE TABLE {MERGE}; INSERT INTO m VALUES (7)",
        f"CREATE TEMPORARY TABLE {MERGE}; INSERT INTO m VALUES (7)",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES';"
        " INSERT INTO t VALUES (5, '\\'); DELETE FROM u; -- ')",
        "SET sql_mode = CONCAT('NO_BACK', 'SLASH_ESCAPES');"
        " INSERT INTO t VALUES (5, '\\'); DELETE FROM u; -- ')",
    ],
)
def test_trap_16_each_statement_of_a_text_is_read_after_the_ones_before_it(
    world: World, write: str
) -> None:
    world.compare(
        seen(
            MAKE + FAR + "; CREATE VIEW x AS SELECT * FROM t",
            [write],
            [
                *("SELECT * FROM {db}.t", "SELECT * FROM {db}.u"),
                *("SELECT * FROM {db}_far.t", "SELECT * FROM {db}_far.m"),
            ],
        )
    )


@pytest.mark.parametrize(
    "write",
    [
        f"CREATE TEMPORARY TABLE {MERGE}; CALL fill_m()",
        f"CREATE TEMPORARY TABLE {MERGE}; DO write_m()",
        f"CREATE TEMPORARY TABLE {MERGE}; SET @x = write_m()",
        f"CREATE TEMPORARY TABLE {MERGE}; SELECT write_m()",
        f"BEGIN; CREATE TEMPORARY TABLE {MERGE}; CALL fill_m()",
        f"CREATE TABLE {MERGE}; CALL fill_m()",
        "CREATE OR REPLACE VIEW x AS SELECT * FROM {db}_far.t; CALL clear_x()",
        "CREATE OR REPLACE VIEW x AS SELECT * FROM {db}_far.t; DO empty_x()",
        "CREATE OR REPLACE VIEW x AS SELECT * FROM {db}_far.t; SELECT empty_x()",
    ],
)
def test_trap_16_code_that_a_text_calls_runs_after_what_the_text_defines(
    world: World, write: str
) -> None:
    world.compare(
        seen(
            f"{MAKE}{FAR}; CREATE VIEW x AS SELECT * FROM t;"
            " CREATE PROCEDURE fill_m() INSERT INTO m VALUES (7);"
            " CREATE PROCEDURE clear_x() DELETE FROM x;"
            " CREATE FUNCTION write_m() RETURNS INT DETERMINISTIC"
            " BEGIN INSERT INTO m VALUES (8); RETURN 1; END;"
            " CREATE FUNCTION empty_x() RETURNS INT DETERMINISTIC"
            " BEGIN DELETE FROM x; RETURN 1; END",
            [write],
            ["SELECT * FROM {db}.t", "SELECT * FROM {db}_far.t", "SELECT * FROM {db}_far.m"],
        )
    )


@pytest.mark.parametrize("mode", ["ANSI_QUOTES ", "ANSI_QUOTES,", "ÀNSI_QUOTES"])
def test_trap_17_what_is_quoted_may_be_code_whatever_the_mode_is_spelt_like(
    world: World, mode: str
) -> None:
    world.compare(f"""
        a  CREATE TABLE t (v INT); INSERT INTO t VALUES (1); CREATE TABLE u (v INT)
        a  CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN UPDATE t SET v = 2; RETURN 1; END
        a  SELECT v FROM t
        a  SELECT v FROM t
        b  SET sql_mode = '{mode}'
        b  INSERT INTO u VALUES ("f"())
        a  SELECT v FROM t
    """)


def test_trap_16_what_a_prepared_statement_writes_changes_with_definitions(world: World) -> None:
    reads = "".join(f"\n        a  SELECT a FROM {table}" for table in ("t", "{db}_far.t"))
    world.compare(f"""
        a  {MAKE}{FAR}; CREATE VIEW w AS SELECT a FROM u; CREATE VIEW x AS SELECT a FROM t;
           CREATE FUNCTION f(n INT) RETURNS INT DETERMINISTIC
           BEGIN INSERT INTO {{db}}_far.t VALUES (n, 'f'); RETURN n; END
        b  .prepare r SELECT a FROM w
        b  .prepare c INSERT INTO t (a) SELECT a + 10 FROM w
        b  .prepare d DELETE FROM x
        b  .execute r{reads}
        a  CREATE OR REPLACE VIEW w AS SELECT f(a) AS a FROM u{reads}
        b  .execute r{reads}
        b  .execute c{reads}
        a  CREATE OR REPLACE VIEW x AS SELECT a FROM {{db}}_far.t{reads}
        b  .execute d{reads}
    """)


@pytest.mark.parametrize("begin", ["DO 1", "BEGIN"])
@pytest.mark.parametrize(
    "prepare",
    [
        "PREPARE p FROM 'SELECT ROUND(1.5, f())'",
        "SET STATEMENT max_statement_time = 9 FOR PREPARE p FROM 'SELECT ROUND(1.5, f())'",
        ".prepare p SELECT ROUND(1.5, f())",
    ],
)
def test_trap_16_what_is_prepared_may_write_at_once(world: World, begin: str, prepare: str) -> None:
    """MariaDB calls functions to know how many digits ROUND leaves."""
    world.compare(f"""
        a  {MAKE};
           CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN UPDATE t SET v = 'f'; RETURN 1; END
        b  SELECT v FROM t
        b+ SELECT v FROM t
        c  {begin}
        c  SELECT v FROM t
        c  {prepare}
        c  SELECT v FROM t
        b  SELECT v FROM t
        c  COMMIT
        b  SELECT v FROM t
    """)


def test_trap_16_what_is_prepared_may_be_read_in_another_mode(world: World) -> None:
    hidden = """'SELECT 1 AS "\\\\", f() AS " # "'"""
    world.compare(f"""
        a  {MAKE};
           CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN UPDATE t SET v = 'f'; RETURN 1; END
        c  SET STATEMENT sql_mode = 'ANSI_QUOTES' FOR PREPARE p FROM {hidden}
        b  SELECT v FROM t
        b+ SELECT v FROM t
        c  EXECUTE p
        b  SELECT v FROM t
    """)


def test_trap_15_a_temporary_table_may_write_to_others(world: World) -> None:
    world.compare(
        seen(
            MAKE + FAR,
            [
                ".prepare i INSERT INTO m VALUES (6)",
                f"CREATE TEMPORARY TABLE {MERGE}",
                "INSERT INTO m VALUES (7)",
                "DELETE FROM m WHERE a = 1",
                ".prepare i INSERT INTO m VALUES (8)",
                ".execute i",
                "DROP TABLE m",
                "CREATE TEMPORARY TABLE m (a INT) ENGINE = MyISAM",
                "ALTER TABLE m ENGINE = MERGE, UNION = ({db}_far.m), INSERT_METHOD = LAST",
                "INSERT INTO m VALUES (9)",
                "DROP TABLE m",
            ],
            ["SELECT * FROM {db}_far.m"],
        )
    )


def test_trap_15_a_temporary_table_that_is_like_a_merge_table_writes_to_others(
    world: World,
) -> None:
    world.compare(
        seen(
            f"{MAKE}{FAR}; CREATE TABLE {MERGE}",
            ["CREATE TEMPORARY TABLE x LIKE m", "INSERT INTO x VALUES (7)", "DELETE FROM x"],
            ["SELECT * FROM {db}_far.m"],
        )
    )


@pytest.mark.parametrize(
    "made",
    [
        ["CALL p()"],
        ["CALL through()"],
        ["SELECT f()"],
        ["INSERT INTO u VALUES (f(), 'made by the way')"],
        ["CALL alike()"],
        ["SET @made = 'CREATE TEMPORARY TABLE {MERGE}'", "PREPARE p FROM @made", "EXECUTE p"],
        ["PREPARE p FROM 'CREATE TEMPORARY TABLE {MERGE}'", "EXECUTE p"],
    ],
)
def test_trap_15_a_temporary_table_that_code_has_made_may_write_to_others(
    world: World, made: list[str]
) -> None:
    world.compare(
        seen(
            f"{MAKE}{FAR}; CREATE PROCEDURE p() CREATE TEMPORARY TABLE {MERGE};"
            " CREATE PROCEDURE through() CALL p(); CREATE FUNCTION f() RETURNS INT"
            f" DETERMINISTIC BEGIN CREATE TEMPORARY TABLE {MERGE}; RETURN 9; END;"
            f" CREATE TABLE like_{MERGE}; CREATE PROCEDURE alike()"
            " CREATE TEMPORARY TABLE m LIKE like_m",
            [
                ".prepare i INSERT INTO m VALUES (5)",
                *(each.replace("{MERGE}", MERGE) for each in made),
                "INSERT INTO m VALUES (7)",
                ".prepare i INSERT INTO m VALUES (8)",
                ".execute i",
                "UPDATE m SET a = 9",
                "DELETE FROM m WHERE a = 9",
            ],
            ["SELECT * FROM {db}_far.m"],
        )
    )


QUOTED = {
    "doubled": "INSERT INTO log VALUES ('it''s'); {write}; INSERT INTO log VALUES ('it''s')",
    "escaped": r"INSERT INTO log VALUES ('it\'s'); {write}; INSERT INTO log VALUES ('it\'s')",
    "backslash": r"INSERT INTO log VALUES ('a\\'); {write}; INSERT INTO log VALUES (' x')",
    "alone": "INSERT INTO log VALUES (CONCAT(, 1)); {write}; INSERT INTO log VALUES ()",
    "comment": "INSERT INTO log VALUES ('it''s #1'); {write}; INSERT INTO log VALUES ('it''s')",
    "name": "INSERT INTO `o``d` VALUES ('a'); {write}; INSERT INTO `o``d` VALUES ('b')",
}


@pytest.mark.parametrize("body", QUOTED.values(), ids=QUOTED)
@pytest.mark.parametrize("code", ["trigger", "procedure", "procedure that sets"])
def test_trap_17_what_a_body_does_between_strings_with_quotes_is_seen(
    world: World, body: str, code: str
) -> None:
    """MySQL shows bodies without what escapes quotes in strings."""
    sets = code == "procedure that sets"
    read = "SELECT FROM_UNIXTIME(v) FROM t" if sets else "SELECT COUNT(*) FROM hidden"
    does = "SET time_zone = '+05:00'" if sets else "INSERT INTO hidden VALUES (1)"
    head = "TRIGGER g AFTER UPDATE ON t FOR EACH ROW" if code == "trigger" else "PROCEDURE p()"
    runs = "UPDATE t SET v = v + 1" if code == "trigger" else "CALL p()"
    world.compare(f"""
        w  CREATE TABLE t (v INT); INSERT INTO t VALUES (1); CREATE TABLE hidden (v INT)
        w  CREATE TABLE log (m VARCHAR(9)); CREATE TABLE `o``d` (m VARCHAR(9))
        w  CREATE {head} BEGIN {body.format(write=does)}; END
        r  {read}
        r  {read}
        r  {read}
        r+ {read}
        w  {runs}
        w  {read}
        r  {read}
        w  DROP {head.split(" AFTER")[0].removesuffix("()")}
        w  CREATE {head} BEGIN INSERT INTO log VALUES ('it''s'); END
        w  {read}
        w  {runs}
        w  {read}
    """)


@pytest.mark.parametrize("call", ["CALL f()", "CALL f", "SET x = f(1); CALL f()"])
def test_trap_17_a_function_is_not_taken_for_the_procedure_of_its_name(
    world: World, call: str
) -> None:
    world.compare(f"""
        w  CREATE TABLE hidden (v INT); CREATE TABLE log (v INT)
        w  CREATE FUNCTION f(x INT) RETURNS INT BEGIN INSERT INTO hidden VALUES (x); RETURN 1; END
        w  CREATE PROCEDURE f() INSERT INTO log VALUES (1)
        w  CREATE PROCEDURE p() BEGIN DECLARE x INT; {call}; SET x = f(1); END
        r  SELECT COUNT(*) FROM hidden
        r  SELECT COUNT(*) FROM hidden
        r  SELECT COUNT(*) FROM hidden
        r+ SELECT COUNT(*) FROM hidden
        w  CALL p()
        r  SELECT COUNT(*) FROM hidden
    """)


def test_trap_17_what_the_server_runs_on_its_own_is_a_write(world: World, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("8\n")
    world.compare(
        seen(
            MAKE + "; CREATE PROCEDURE p(n INT) UPDATE t SET a = a + n;"
            " CREATE PROCEDURE q() CALL p(1);"
            " CREATE FUNCTION f(n INT) RETURNS INT DETERMINISTIC"
            " BEGIN INSERT INTO t VALUES (n, 'f'); RETURN n; END;"
            " CREATE TABLE log (a INT); CREATE TABLE logged (a INT);"
            " CREATE TRIGGER r1 AFTER INSERT ON log FOR EACH ROW INSERT INTO logged VALUES (NEW.a);"
            " CREATE TRIGGER r2 BEFORE INSERT ON logged FOR EACH ROW"
            " BEGIN IF NEW.a > 1 THEN DELETE FROM t WHERE a = NEW.a; END IF; END;"
            " CREATE TRIGGER r3 AFTER DELETE ON log FOR EACH ROW SET @x = f(40 + OLD.a);"
            " CREATE VIEW w AS SELECT a, f(a + 80) AS n FROM u;"
            " CREATE VIEW plain AS SELECT a FROM log",
            [
                "CALL p(10)",
                "CALL {db}.q",
                "CALL no_such()",
                "DO f(3)",
                "DO f(3)",
                "SELECT f(4)",
                "SELECT f(a + 50) FROM u",
                "SET @x = f(5)",
                "UPDATE u SET v = f(6) WHERE a = 1",
                "INSERT INTO u VALUES (f(7), 'x')",
                "DELETE FROM u WHERE f(8) = 0",
                "INSERT INTO log VALUES (1)",
                "INSERT INTO log VALUES (5), (6)",
                "INSERT INTO plain VALUES (7)",
                "REPLACE log VALUES (8)",
                "DELETE FROM log WHERE a = 1",
                "SELECT * FROM w",
                "EXPLAIN SELECT f(99)",
                "SHOW TABLES WHERE f(9)",
                "XA RECOVER",
                "CREATE TABLE made AS SELECT f(10)",
                "CREATE TABLE made_of_values AS VALUES (f(11))",
                "EXPLAIN ANALYZE FORMAT = JSON INTO @x SELECT f(12) FROM u LIMIT 1",
                "DELETE FROM t",
                "SHOW TABLES WHERE (SELECT MAX(n) FROM w)",
                "DELETE FROM t",
                "CREATE TABLE versioned (a INT) WITH SYSTEM VERSIONING",
                "INSERT INTO versioned VALUES (1)",
                "DELETE FROM t",
                "SELECT n FROM versioned FOR SYSTEM_TIME ALL, w",
                "DELETE FROM t",
                "SELECT n FROM versioned FOR SYSTEM_TIME FROM '2001-01-01' TO NOW(), w",
                "DELETE FROM t",
                f"LOAD DATA LOCAL INFILE '{rows}' INTO TABLE logged SET a = (SELECT MAX(n) FROM w)",
            ],
            ["SELECT * FROM t", "SELECT * FROM logged", "SELECT * FROM u"],
        )
    )


def test_trap_18_foreign_keys_reach_children_and_their_children(world: World) -> None:
    world.compare(
        seen(
            "CREATE TABLE p (a INT PRIMARY KEY);"
            " CREATE TABLE c (a INT PRIMARY KEY, p INT,"
            " FOREIGN KEY (p) REFERENCES p (a) ON DELETE CASCADE ON UPDATE CASCADE);"
            " CREATE TABLE g (c INT, n INT,"
            " FOREIGN KEY (c) REFERENCES c (a) ON DELETE SET NULL);"
            " CREATE DATABASE {db}_far; CREATE TABLE {db}_far.d (p INT,"
            " FOREIGN KEY (p) REFERENCES {db}.p (a) ON DELETE CASCADE);"
            " INSERT INTO p VALUES (1), (2), (3), (4);"
            " INSERT INTO c VALUES (11, 1), (12, 2), (13, 3);"
            " INSERT INTO g VALUES (11, 1), (12, 2), (13, 3);"
            " INSERT INTO {db}_far.d VALUES (1), (2)",
            [
                "UPDATE p SET a = 9 WHERE a = 3",
                "DELETE FROM p WHERE a = 1",
                "DELETE p FROM p JOIN c ON c.p = p.a WHERE p.a = 2",
                "REPLACE INTO p VALUES (9)",
                "SET foreign_key_checks = 0",
                "ALTER TABLE g ADD FOREIGN KEY (n) REFERENCES p (a) ON DELETE CASCADE",
                "INSERT INTO g VALUES (NULL, 4)",
                "SET foreign_key_checks = 1",
                "DELETE FROM p WHERE a = 4",
                "ALTER TABLE p DROP COLUMN nothing",
                "DROP TABLE {db}_far.d",
                "DELETE FROM p",
            ],
            ["SELECT * FROM c", "SELECT * FROM g", "SELECT * FROM {db}_far.d"],
        )
    )


FAMILY = (
    "CREATE TABLE p (id INT PRIMARY KEY, code INT UNIQUE, x INT, y INT);"
    " CREATE TABLE c (id INT PRIMARY KEY, p INT, q INT UNIQUE,"
    " FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL,"
    " FOREIGN KEY (q) REFERENCES p (code) ON UPDATE CASCADE);"
    " CREATE TABLE g (id INT PRIMARY KEY, q INT,"
    " FOREIGN KEY (q) REFERENCES c (q) ON UPDATE CASCADE);"
    " CREATE TABLE d (id INT PRIMARY KEY, p INT,"
    " FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE);"
    " CREATE TABLE s (id INT PRIMARY KEY, up INT, x INT,"
    " FOREIGN KEY (up) REFERENCES s (id) ON DELETE CASCADE)"
)
MEMBERS = (
    "SET foreign_key_checks = 0;"
    + "".join(f" DELETE FROM {table};" for table in "pcgds")
    + " INSERT INTO p (id, code, x) VALUES (1, 10, 1), (2, 20, 2), (3, 30, 3), (4, NULL, 4);"
    " INSERT INTO c VALUES (1, 1, 10), (2, 2, 20), (3, 4, 30);"
    " INSERT INTO g (id, q) VALUES (1, 10), (2, 20); INSERT INTO d VALUES (1, 1), (2, 2), (4, 4);"
    " INSERT INTO s VALUES (1, NULL, 0), (2, 1, 0), (3, 2, 0), (4, NULL, 0);"
    " SET foreign_key_checks = 1"
)
CHILDREN = [f"SELECT * FROM {table} ORDER BY id" for table in "cgds"]


@pytest.mark.parametrize(
    ("write", "left"),
    [
        ("INSERT INTO p (id, x) VALUES ({}, 1)", "cgds"),
        ("INSERT INTO p (id) SELECT id + {} FROM p", "cgds"),
        ("INSERT INTO p (id, x) VALUES (1, {}) ON DUPLICATE KEY UPDATE X = VALUES(x)", "cgds"),
        ("UPDATE p SET x = {} WHERE id = 1", "cgds"),
        ("UPDATE p AS q SET q.x = {}, `y` = q.x + 1 ORDER BY q.id LIMIT 3", "cgds"),
        ("UPDATE p SET id = id + {} WHERE id = 3", "cgds"),  # it follows none but DELETE
        ("UPDATE c SET p = NULL WHERE id = {}", "gds"),
        ("DELETE FROM p WHERE id = {}", "gs"),
        ("DELETE FROM c WHERE id = {}", "gds"),
        ("INSERT INTO s VALUES ({}, 1, 0)", "cgd"),
        ("BEGIN; UPDATE p SET x = {0}; INSERT INTO p (id) VALUES ({0}); COMMIT", "cgds"),
    ],
)
def test_trap_18_what_no_foreign_key_follows_leaves_the_children(
    world: World, write: str, left: str
) -> None:
    """The first time, and by its plan."""
    reads = [f"SELECT * FROM {table} ORDER BY id" for table in left]
    steps = [f"w  {FAMILY}; {MEMBERS}", *(f"a{sign} {read}" for sign in " +" for read in reads)]
    for number in (1_001, 5_001, 9_001, 4):
        steps += [f"w  {write.format(number)}", *(f"a+ {read}" for read in reads)]
        steps += [f"b  {read}" for read in CHILDREN]
    world.compare("\n".join(steps))


# name -> what is defined, and what is written then
FOLLOWED = {
    "a column": ([], ["UPDATE p SET code = {} WHERE id = 1"]),
    "in capitals": ([], ["UPDATE p SET p.`CODE` = {} WHERE id = 1"]),
    "among others": ([], ["UPDATE p SET x = (SELECT 1), y = IF(x, 1, 2), code = {} WHERE id = 1"]),
    "of several": ([], ["UPDATE p JOIN c ON c.p = p.id SET p.code = {} WHERE c.id = 1"]),
    "in place of a row": (
        [],
        ["INSERT INTO p (id) VALUES (1) ON DUPLICATE KEY UPDATE x = 0, code = {}"],
    ),
    "in place of some": (
        [],
        ["INSERT INTO p (id) SELECT 1 FROM g ON DUPLICATE KEY UPDATE code = {}"],
    ),
    "prepared": ([], ["PREPARE s FROM 'UPDATE p SET code = {} WHERE id = 1'", "EXECUTE s"]),
    "for itself": ([], ["SET STATEMENT sql_notes = 0 FOR UPDATE p SET code = {} WHERE id = 1"]),
    "in a comment": ([], ["UPDATE p SET x = 1 /*! , code = {} */ WHERE id = 1"]),
    "through a view": (
        ["CREATE VIEW v (x, k) AS SELECT code, id FROM p"],
        ["UPDATE v SET x = {} WHERE k = 1"],
    ),
    "a row that is replaced": ([], ["REPLACE INTO p (id, x) VALUES (4, {})"]),
    "a row that is replaced by another key": (
        ["ALTER TABLE p ADD UNIQUE (x)"],
        ["REPLACE INTO p (id, x) VALUES ({}, 4)"],
    ),
    "a row that is deleted": ([], ["DELETE FROM p WHERE id = 4 OR id = {}"]),
    "rows of several": ([], ["DELETE p, g FROM p JOIN g WHERE p.id = 4 OR p.id = {}"]),
    "rows of itself": ([], ["DELETE FROM s WHERE id = 1 OR id = {}"]),
    "rows of itself that are replaced": ([], ["REPLACE INTO s VALUES (1, NULL, {})"]),
    "a trigger that sets a column": (
        ["CREATE TRIGGER b BEFORE UPDATE ON p FOR EACH ROW SET NEW.code = NEW.x"],
        ["UPDATE p SET x = {} WHERE id = 1"],
    ),
    "a trigger that writes elsewhere": (
        ["CREATE TRIGGER i AFTER INSERT ON g FOR EACH ROW UPDATE p SET code = NEW.id WHERE id = 1"],
        ["INSERT INTO g (id) VALUES ({})"],
    ),
    "first others, then it": (
        [],
        [
            *("BEGIN", "UPDATE p SET x = {} WHERE id = 1", "UPDATE p SET code = {} WHERE id = 1"),
            *("UPDATE p SET y = {}", "COMMIT"),
        ],
    ),
    "first added, then deleted": (
        [],
        ["BEGIN", "INSERT INTO p (id) VALUES ({})", "DELETE FROM p WHERE id = 4", "COMMIT"],
    ),
    "in one text": ([], ["UPDATE p SET y = {0}; UPDATE p SET code = {0} WHERE id = 1; DO 1"]),
    "another key": (
        [
            "ALTER TABLE g ADD p INT DEFAULT 3, ADD FOREIGN KEY (p) REFERENCES p (id)"
            " ON UPDATE CASCADE"
        ],
        ["UPDATE p SET id = {} WHERE id = 3"],
    ),
    "another rule": (
        [
            *("ALTER TABLE c DROP FOREIGN KEY c_ibfk_1", "ALTER TABLE d DROP FOREIGN KEY d_ibfk_1"),
            "ALTER TABLE d ADD CONSTRAINT again FOREIGN KEY (p) REFERENCES p (id)"
            " ON UPDATE CASCADE",
        ],
        ["UPDATE p SET id = {} WHERE id = 1"],
    ),
    "another name of a column": (
        [
            "CREATE TABLE k (id INT, a INT UNIQUE, b INT)",
            "CREATE TABLE m (id INT, FOREIGN KEY (id) REFERENCES k (a) ON UPDATE CASCADE)",
            *("INSERT INTO k VALUES (1, 5, 6)", "INSERT INTO m VALUES (5)"),
            *("UPDATE k SET b = 7 WHERE id = 1", "ALTER TABLE k CHANGE b z INT, CHANGE a b INT"),
        ],
        ["UPDATE k SET b = {} WHERE id = 1"],
    ),
    "another name of a table": (
        ["RENAME TABLE p TO r", "CREATE VIEW p AS SELECT * FROM r"],
        ["UPDATE r SET code = {} WHERE id = 1"],
    ),
    "a column that is computed": (
        [
            "CREATE TABLE k (id INT, x INT, made INT AS (x + 1) STORED UNIQUE)",
            "CREATE TABLE m (id INT, FOREIGN KEY (id) REFERENCES k (made) ON UPDATE CASCADE)",
            *("INSERT INTO k (id, x) VALUES (1, 1)", "INSERT INTO m VALUES (2)"),
        ],
        ["UPDATE k SET x = {} WHERE id = 1"],
    ),
    "a column that the server sets along": (
        [
            "SET timestamp = 1000000000",
            "CREATE TABLE k (id INT, x INT, seen TIMESTAMP(6) NULL"
            " ON UPDATE CURRENT_TIMESTAMP(6), UNIQUE (seen))",
            "CREATE TABLE m (id TIMESTAMP(6) NULL, FOREIGN KEY (id) REFERENCES k (seen)"
            " ON UPDATE CASCADE)",
            "INSERT INTO k VALUES (1, 1, '2020-01-01')",
            "INSERT INTO m VALUES ('2020-01-01')",
        ],
        ["SET timestamp = 1000000000 + {}", "UPDATE k SET x = {} WHERE id = 1"],
    ),
    "a key that refers to one that is set to null": (
        [
            "CREATE TABLE k (id INT PRIMARY KEY)",
            "CREATE TABLE h (id INT, k INT UNIQUE, FOREIGN KEY (k) REFERENCES k (id)"
            " ON DELETE SET NULL)",
            "CREATE TABLE m (id INT, FOREIGN KEY (id) REFERENCES h (k) ON UPDATE CASCADE)",
        ],
        [
            *("INSERT INTO k VALUES ({})", "INSERT INTO h VALUES (1, {})"),
            *("INSERT INTO m VALUES ({})", "DELETE FROM k WHERE id = {}"),
        ],
    ),
    "after a while without checks": (
        ["SET foreign_key_checks = 0", "UPDATE p SET code = 11 WHERE id = 1"],
        ["UPDATE p SET code = {} WHERE id = 1"],
    ),
    "a parent that is made after its child": (
        [
            *("SET foreign_key_checks = 0", "DROP TABLE p"),
            "CREATE TABLE p (id INT PRIMARY KEY, code INT UNIQUE, x INT)",
        ],
        ["DELETE FROM p WHERE id = 4 OR id = {}"],
    ),
}


@pytest.mark.parametrize("way", FOLLOWED)
def test_trap_18_what_a_foreign_key_follows_is_seen_of_the_children(world: World, way: str) -> None:
    """However it is written, the first time and by its plan."""
    defined, written = FOLLOWED[way]
    warm = [f"a  {read}" for read in (*CHILDREN, "SELECT * FROM m")] * 2
    steps = [f"w  {FAMILY}; {MEMBERS}", *warm, *(f"w  {each}" for each in defined)]
    for number in range(1_001, 1_005):
        steps += [f"w  {MEMBERS}", *warm]
        for write in written:
            steps += [f"w  {write.format(number)}", *warm]
    world.compare("\n".join(steps))


def test_trap_18_a_file_that_replaces_rows_is_followed(world: World, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("4\t40\t0\t0\n")
    load = f"LOAD DATA LOCAL INFILE '{rows}' {{}} INTO TABLE p"
    world.compare(
        seen(
            f"{FAMILY}; {MEMBERS}",
            [load.format("IGNORE"), load.format(""), load.format("REPLACE")],
            CHILDREN,
        )
    )


def test_trap_19_views_change_with_all_that_lies_beneath(world: World) -> None:
    world.compare(
        seen(
            MAKE + "; CREATE VIEW v1 AS SELECT a, v FROM t;"
            " CREATE VIEW v2 AS SELECT v1.a, v1.v, u.v AS w FROM v1 JOIN u USING (a);"
            " CREATE VIEW v3 (x, y) AS SELECT a, w FROM v2 UNION ALL SELECT 0, MAX(v) FROM t",
            [
                "UPDATE t SET v = 'base'",
                "UPDATE v1 SET v = 'through a view' WHERE a = 1",
                "UPDATE v2 SET w = 'through two' WHERE a = 2",
                "INSERT INTO v1 VALUES (3, 'inserted')",
                "DELETE FROM v1 WHERE a = 3",
                "CREATE OR REPLACE VIEW v1 AS SELECT a, UPPER(v) AS v FROM t",
                "ALTER VIEW v1 AS SELECT a + 1 AS a, v FROM t",
                "DROP VIEW v1",
                "CREATE TABLE v1 (a INT, v VARCHAR(9))",
                "INSERT INTO v1 VALUES (1, 'table')",
                "DROP TABLE v1",
                "CREATE VIEW v1 AS SELECT a, v FROM u",
                "RENAME TABLE u TO u2, t TO u",
            ],
            ["SELECT * FROM v1", "SELECT * FROM v2", "SELECT x, y FROM v3", "SELECT * FROM t"],
        )
    )


def test_trap_19_a_view_may_write_by_the_time_a_prepared_statement_reads_it(world: World) -> None:
    world.compare(f"""
        b  {MAKE}; CREATE VIEW w AS SELECT 1 AS one
        b  CREATE FUNCTION f() RETURNS INT DETERMINISTIC
            BEGIN UPDATE u SET v = 'new'; RETURN 1; END
        a  .prepare s SELECT one FROM w
        a  .execute s
        c  CREATE OR REPLACE VIEW w AS SELECT f() AS one
        a  SELECT v FROM u
        a+ SELECT v FROM u
        a  .execute s
        a  SELECT v FROM u
    """)


def test_trap_20_definitions_change_answers_too(world: World) -> None:
    world.compare(
        seen(
            MAKE + "; CREATE TABLE parts (a INT, v INT) PARTITION BY RANGE (a)"
            " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20));"
            " INSERT INTO parts VALUES (1, 1), (11, 11);"
            " CREATE TABLE swapped (a INT, v INT); INSERT INTO swapped VALUES (2, 2);"
            " CREATE DATABASE {db}_x; CREATE TABLE {db}_x.t (a INT);"
            " INSERT INTO {db}_x.t VALUES (7)",
            [
                "ALTER TABLE t ADD COLUMN n INT DEFAULT 5",
                "ALTER TABLE t DROP COLUMN n, RENAME COLUMN v TO w",
                "ALTER TABLE t CHANGE w v VARCHAR(30) DEFAULT 'd'",
                "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
                "CREATE INDEX i ON t (v)",
                "DROP INDEX i ON t",
                "RENAME TABLE t TO _t_old, u TO t",
                "RENAME TABLE t TO u, _t_old TO t",
                "ALTER TABLE t RENAME TO gone",
                "ALTER TABLE gone RENAME t",
                "ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE swapped",
                "ALTER TABLE parts TRUNCATE PARTITION p1",
                "ALTER TABLE parts DROP PARTITION p1",
                "RENAME TABLE {db}_x.t TO {db}.moved",
                "RENAME TABLE {db}.moved TO {db}_x.t",
                "DROP DATABASE {db}_x",
                "CREATE DATABASE {db}_x",
                "CREATE TABLE {db}_x.t AS SELECT 8 AS a",
                "CREATE TABLE IF NOT EXISTS t (z INT)",
                "DROP TABLE t, u",
                "CREATE TABLE t LIKE parts",
                "CREATE OR REPLACE TABLE t (z INT)",
                "DROP TABLE IF EXISTS t, u",
                "CREATE TABLE t AS SELECT 'fresh' AS v",
                "OPTIMIZE TABLE t",
                "REPAIR TABLE t",
                "ANALYZE TABLE t",
                "FLUSH TABLES t",
                "ALTER DATABASE {db} CHARACTER SET latin1",
            ],
            [
                *("SELECT * FROM t", "SELECT * FROM u", "SELECT * FROM parts"),
                *("SELECT * FROM swapped", "SELECT * FROM {db}_x.t"),
            ],
        )
    )


def test_trap_20_a_table_that_moves_between_files_is_read_anew(world: World) -> None:
    world.compare(
        seen(
            MAKE,
            [
                "FLUSH TABLES t FOR EXPORT",
                "UNLOCK TABLES",
                "ALTER TABLE t DISCARD TABLESPACE",
                "ALTER TABLE t IMPORT TABLESPACE",
                "FLUSH TABLES",
                "TRUNCATE t",
            ],
            ["SELECT COUNT(*) FROM u", "SELECT 1 FROM u"],
        )
    )


def test_trap_20_a_trigger_made_a_moment_ago_is_known(world: World) -> None:
    world.compare(
        seen(
            MAKE,
            [
                "CREATE TRIGGER r AFTER INSERT ON t FOR EACH ROW UPDATE u SET v = 'fired'",
                "INSERT INTO t VALUES (3, 'z')",
                "DROP TRIGGER r",
                "INSERT INTO t VALUES (4, 'z')",
                "CREATE TRIGGER r AFTER UPDATE ON t FOR EACH ROW DELETE FROM u WHERE a = 2",
                "UPDATE t SET v = 'x' WHERE a = 1",
            ],
            ["SELECT * FROM t", "SELECT * FROM u"],
        )
    )


@pytest.mark.parametrize("explains", ["EXPLAIN ANALYZE FORMAT=TREE", "EXPLAIN"])
def test_trap_17_what_is_explained_in_another_schema_is_a_write(
    world: World, explains: str
) -> None:
    if world.is_mariadb:
        pytest.skip("MySQL explains so")
    far = f"far_{secrets.token_hex(3)}"
    world.upstream.sql(
        f"CREATE DATABASE {far}; CREATE TABLE {far}.t (v INT); INSERT INTO {far}.t VALUES (1);"
        f"CREATE FUNCTION {far}.f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
        f" BEGIN UPDATE {far}.t SET v = v + 1; RETURN 1; END;"
        f"CREATE VIEW {far}.w AS SELECT {far}.f() AS n"
    )
    read = f"SELECT v FROM {far}.t"
    with closing(world.proxy.connect()) as session, session.cursor() as cursor:
        for _ in range(3):
            cursor.execute(read)
        cursor.execute(f"{explains} FOR SCHEMA {far} SELECT 1 WHERE 1 = (SELECT n FROM w)")
        cursor.execute(read)
        told = cursor.fetchall()
    assert told == world.upstream.sql(read) != ((1,),)
    world.upstream.sql(f"DROP DATABASE {far}")


@pytest.mark.parametrize("verb", ["INSERT DELAYED", "REPLACE DELAYED INTO", "INSERT"])
def test_trap_15_rows_that_are_written_after_the_ok_are_seen(world: World, verb: str) -> None:
    """MariaDB writes what is DELAYED when nobody reads the table: nothing is cached until then."""
    table = f"later_{secrets.token_hex(3)}.t"  # it stays fenced for long
    schema = table.removesuffix(".t")
    world.upstream.sql(f"CREATE DATABASE {schema}; CREATE TABLE {table} (a INT) ENGINE=MyISAM")
    with closing(world.proxy.connect()) as session, session.cursor() as cursor:
        fenced = 'sqlcache_bypasses_total{reason="a write is in flight"}'
        for value in range(3):
            cursor.execute(f"{verb} {table} (a) VALUES ({value})")
            before = world.proxy.metrics().get(fenced, 0)
            cursor.execute(f"SELECT a FROM {table}")
            after = world.proxy.metrics().get(fenced, 0)
            assert (after > before) == (world.is_mariadb and "DELAYED" in verb)
    world.upstream.sql(f"DROP DATABASE {schema}")


@pytest.mark.parametrize("engine", ["MyISAM", "Aria"])
@pytest.mark.parametrize(
    "ends", ["UNLOCK TABLES", "LOCK TABLES u READ", "BEGIN", "a reset", "a quit", "another write"]
)
def test_trap_15_rows_that_are_seen_when_their_table_is_unlocked_are_seen(
    world: World, schema: str, engine: str, ends: str
) -> None:
    """Under this lock of MariaDB's others read on, what was there before."""
    if not world.is_mariadb:
        pytest.skip("MySQL has no such lock")
    tables = f"CREATE TABLE t (a INT) ENGINE={engine}; CREATE TABLE u (a INT)"
    world.upstream.sql(f"{tables}; INSERT INTO t VALUES (1)", schema)
    options: Any = {"database": schema, "autocommit": True}
    options["client_flag"] = CLIENT.MULTI_STATEMENTS
    with (
        closing(world.proxy.connect(**options)) as writer,
        closing(world.proxy.connect(**options)) as reader,
        writer.cursor() as write,
        reader.cursor() as read,
    ):
        read.execute("SELECT a FROM t")
        write.execute("LOCK TABLES t WRITE CONCURRENT")
        for value in (2, 3):
            write.execute(f"INSERT INTO t VALUES ({value})")
            for _ in range(2):
                read.execute("SELECT a FROM t")
                assert read.fetchall() == ((1,),)
        if ends == "a reset":
            writer._execute_command(Command.RESET_CONNECTION, b"")  # type: ignore[attr-defined]
            writer._read_ok_packet()  # type: ignore[attr-defined]
        elif ends == "a quit":
            writer._force_close()  # type: ignore[attr-defined]
            now = "SELECT COUNT(*) = 3 FROM t"
            wait_until(lambda: world.upstream.sql(now, schema) == ((1,),), 30, "the end")
        elif ends == "another write":
            write.execute("UNLOCK TABLES; LOCK TABLES t WRITE CONCURRENT; INSERT INTO t VALUES (4)")
            while write.nextset():
                pass
            read.execute("SELECT a FROM t")
            assert read.fetchall() == ((1,), (2,), (3,))
            write.execute("UNLOCK TABLES")
        else:
            write.execute(ends)
        read.execute("SELECT a FROM t")
        assert read.fetchall() == world.upstream.sql("SELECT a FROM t", schema)


def test_trap_21_what_cannot_be_read_may_have_written_anything(world: World) -> None:
    world.compare(
        seen(
            MAKE,
            [
                "UPDATE t SET v = 'x' /*!50701 , a = a + 10 */",
                "/*M!100000 UPDATE t SET v = 'mariadb' */",
                "/*!80000 UPDATE t SET v = 'mysql 8' */",
                "UPDATE t SET v = $$dollars$$",
                "UPDATE t AS $a$ SET v = 'dollars'",
                "UPDATE t SET v = 'x' WHERE a = 1 BLAH",
                "UPDATE\tt\n SET v = 'layout' -- comment\n /* another */ # third",
                "UPDATE t SET v = \"it's\" WHERE v <> 'a\\'b' OR a = 1",
                "UPDATE `t` SET `v` = _utf8mb4'ü', a = a * 0x2",
                "update {db} . t set v = n'national'",
                "UPDATE .t SET v = 'dot'",
                "INSERT INTO t(a,v)VALUES(77,'tight')",
                "REPLACE t(a)VALUE(78)",
                "DELETE FROM t WHERE a=77",
                "SET sql_mode = 'ANSI_QUOTES'",
                'UPDATE "t" SET "v" = \'quoted\'',
                "SET sql_mode = 'ORACLE'",
                "BEGIN UPDATE t SET v = 'oracle'; END",
                "SET sql_mode = DEFAULT",
                "UPDATE t SET v = 'default'",
            ],
            ["SELECT * FROM t", "SELECT * FROM u"],
        )
    )


def test_trap_22_a_write_that_leaves_no_trace_in_the_binlog_is_seen(world: World) -> None:
    world.compare(
        seen(
            MAKE,
            [
                "SET sql_log_bin = 0",
                "UPDATE t SET v = 'unlogged'",
                "SET SESSION binlog_format = 'STATEMENT'",
                "UPDATE u SET v = 'statement'",
            ],
            ["SELECT * FROM t", "SELECT * FROM u"],
        )
    )


def test_trap_23_another_session_may_commit_what_one_prepared(world: World) -> None:
    world.compare("""
        a  CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(9)); INSERT INTO t VALUES (1, 'x')
        a  SELECT * FROM t
        b  XA START '{db}'
        b  UPDATE t SET v = 'xa'
        b  SELECT * FROM t
        a  SELECT * FROM t
        b  XA END '{db}'
        b  XA PREPARE '{db}'
        a  SELECT * FROM t
        b  .again
        c  XA COMMIT '{db}'
        a  SELECT * FROM t
        c  XA START '{db}'
        c  UPDATE t SET v = 'one phase'
        c  XA END '{db}'
        c  XA COMMIT '{db}' ONE PHASE
        a  SELECT * FROM t
        c  XA START '{db}'
        c  UPDATE t SET v = 'undone'
        c  XA END '{db}'
        c  XA ROLLBACK '{db}'
        a  SELECT * FROM t
    """)


def test_trap_23_a_routine_may_commit_what_another_session_prepared(world: World) -> None:
    world.compare("""
        a  CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(9)); INSERT INTO t VALUES (1, 'x')
        a  CREATE PROCEDURE p() XA COMMIT '{db}'
        a  SELECT * FROM t
        a  SELECT * FROM t
        b  XA START '{db}'
        b  UPDATE t SET v = 'xa'
        b  XA END '{db}'
        b  XA PREPARE '{db}'
        b  .again
        a  SELECT * FROM t
        a+ SELECT * FROM t
        c  CALL p()
        a  SELECT * FROM t
    """)


def test_trap_23_the_outcome_of_a_write_that_was_cut_off_is_read_from_the_server(
    world: World,
) -> None:
    world.compare("""
        a  CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(9)) ENGINE = MyISAM;
           INSERT INTO t VALUES (1, 'x'), (2, 'y')
        a  SELECT * FROM t
        b  UPDATE t SET v = 'half' WHERE a = 1 OR (SELECT 1 UNION SELECT 2)
        a  SELECT * FROM t
        b  INSERT INTO t VALUES (3, 'in'), (1, 'fails'), (4, 'out')
        a  SELECT * FROM t
        b  BEGIN
        b  UPDATE t SET v = 'lasting'
        a  SELECT * FROM t
        b  ROLLBACK
        a  SELECT * FROM t
        b  BEGIN
        b  DELETE FROM t WHERE a = 1
        b  .again
        a  SELECT * FROM t
    """)


@pytest.mark.parametrize(
    "define",
    [
        "CREATE TRIGGER g AFTER INSERT ON {db}.t FOR EACH ROW INSERT INTO {db}.u VALUES (NEW.v)",
        "RENAME TABLE {db}.t TO {db}.w; CREATE VIEW {db}.t AS SELECT v FROM {db}.u",
    ],
)
def test_trap_17_what_is_prepared_writes_by_the_definitions_where_it_was(
    world: World, define: str
) -> None:
    world.compare(f"""
        m  CREATE TABLE t (v INT); CREATE TABLE u (v INT); CREATE DATABASE {{db}}_x;
           CREATE TABLE {{db}}_x.t (v INT)
        a  .prepare i INSERT INTO t VALUES (?)
        a  .use {{db}}_x
        a  .execute i #1
        b  SELECT v FROM u
        b+ SELECT v FROM u
        m  {define}
        b  SELECT v FROM u
        b  SELECT v FROM u
        b+ SELECT v FROM u
        a  .execute i #2
        b  SELECT v FROM u
    """)
