"""What must not empty the whole cache: it changed nothing, or one table, whatever it looks like."""

from __future__ import annotations

import pytest

from tests.integration.scripts import Options, World

MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20)); CREATE TABLE u (a INT PRIMARY KEY, n INT);"
    " INSERT INTO t VALUES (1, 'x'), (2, 'y'); INSERT INTO u VALUES (1, 1), (2, 2)"
)
READ = "SELECT v FROM t"


def spared(steps: list[str], first: str = "") -> str:
    """After each step by another session the answer is still there; so is it for that session."""
    script = [f"a  {MAKE}", *([f"a  {first}"] if first else []), f"b  {READ}", f"b+ {READ}"]
    script += [f"w+ {READ}"]
    for step in steps:
        who = "" if step[:3] in ("w  ", "w+ ", "v  ", "n  ") else "w  "
        script += [f"{who}{step}", f"b+ {READ}"]
    return "\n".join(line.replace("\n", " ") for line in script)


# First, while no routine was ever made: that one is gone sqlcache is not told.


def test_a_very_long_select_is_no_write(world: World) -> None:
    numbers = ", ".join(map(str, range(10_000_000, 10_130_000)))
    long = f"SELECT v FROM t WHERE a IN (1, {numbers})"
    script = spared([f"v  {long}"], first="SELECT 1")
    world.compare(script, {"v": {"client_flag": 0}})


REFUSED = [
    "SELEC 1",
    "garbage",
    "'",
    "SELECT 'x",
    "UPDATE t SET",
    "UPDATE t SET v = WHERE a = 1",
    "DELETE FROM",
    "INSERT INTO",
    "CALL",
    "CREATE TABLE",
    "ALTER TABLE t ADD",
    "SET x y z",
    "/*! SELEC */",
    "SELEC 1; UPDATE t SET v = 'never'",
    ".execute nosuch",
    "EXECUTE nosuch",
    ".command 0",
    ".command 23",
    ".command 119",
    "/*! */",
]


def test_what_the_server_refuses_to_read_changes_nothing(world: World) -> None:
    world.compare(spared([step for each in REFUSED for step in (each, f"w+ {READ}")]))


DENIED = [
    "GRANT ALL ON *.* TO {user}",
    "GRANT SELECT ON mysql.* TO {user}",
    "GRANT SELECT ON {db}.t TO {user}",
    "REVOKE SELECT ON *.* FROM {user}",
    "CREATE USER {user}2",
    "CREATE ROLE {user}3",
    "DROP USER IF EXISTS {user}",
    "RENAME USER {user} TO {user}4",
    "SET GLOBAL sql_mode = ''",
    "SET PASSWORD FOR {user}5 = 'x'",
    "INSERT INTO t VALUES (9, 'z')",
    "INSERT INTO t VALUES (9, 'z')",
    "REPLACE INTO t VALUES (9, 'z')",
    "UPDATE t SET v = 'z'",
    "UPDATE u JOIN t SET v = 'z', n = 9",
    "DELETE FROM t",
    "DELETE t, u FROM t JOIN u",
    "INSERT INTO t SELECT a, n FROM u",
    "LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE t",
    "LOAD DATA INFILE '/etc/hostname' INTO TABLE t",
    "TRUNCATE t",
    "DROP TABLE t",
    "DROP TABLE {db}_own.o, t",
    "DROP DATABASE {db}",
    "ALTER DATABASE {db} CHARACTER SET latin1",
    "CREATE TABLE x (a INT)",
    "CREATE TABLE x SELECT 1",
    "ALTER TABLE t ADD z INT",
    "RENAME TABLE {db}_own.o TO {db}_own.p, t TO {db}_own.t",
    "CREATE INDEX i ON t (v)",
    "CREATE VIEW x AS SELECT 1",
    "DROP VIEW v",
    "CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET @a = 1",
    "DROP TRIGGER r",
    "CREATE PROCEDURE q() BEGIN SELECT 1; SELECT 2; END",
    "DROP PROCEDURE nosuch",
    "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    "OPTIMIZE TABLE t",
    "INSERT INTO mysql.user SELECT 1",
    "DROP TABLE mysql.user",
    "FLUSH TABLES",
    "FLUSH TABLES t",
    "FLUSH PRIVILEGES",
    "INSTALL PLUGIN p SONAME 'p.so'",
    "BINLOG 'AAAA'",
    "CREATE FUNCTION f RETURNS INT SONAME 'f.so'",
    "DROP TABLE t; SELECT 1",
    "FLUSH TABLES; DROP TABLE t",
    "XA COMMIT 'nosuch'",
    "XA ROLLBACK 'nosuch'",
    "CALL nosuch()",
    "CALL {db}_own.nosuch()",
    "SELECT {db}_own.nosuch()",
    "UPDATE {db}_own.o SET a = IF(a = 1, 9, {db}_own.nosuch())",
    ".command 7",
]


def denied(steps: list[str]) -> str:
    """As `spared`, of a user who may only read the tables, and do what he likes in a schema of his
    own."""
    script = spared(steps).split("\n")
    script[1:1] = [
        "a  CREATE USER {user} IDENTIFIED BY 'p'",
        "a  GRANT SELECT ON {db}.* TO {user}",
        "a  CREATE DATABASE {db}_own",
        "a  GRANT ALL ON {db}_own.* TO {user}",
        "a  CREATE TABLE {db}_own.o (a INT)",
        "a  CREATE VIEW v AS SELECT n FROM u",
        "a  SELECT * FROM {db}_own.o",
        "a  SELECT * FROM v",
    ]
    return "\n".join(script)


POOR: Options = {
    "n": {"user": "{user}", "password": "p"},
    "v": {"user": "{user}", "password": "p", "database": None},
}


def test_what_its_user_has_no_right_to_changes_nothing(world: World) -> None:
    world.compare(denied([f"n  {each}" for each in DENIED]), POOR)


def test_a_refresh_of_nothing_changes_nothing(world: World) -> None:
    """Some servers let anyone ask for it."""
    world.compare(spared(["a  .command 7"]))


NAMELESS = ["INSERT INTO t VALUES (1, 'x')", "DROP TABLE t", "CREATE PROCEDURE p() SELECT 1"]


def test_what_names_a_table_of_no_schema_changes_nothing(world: World) -> None:
    world.compare(denied([f"v  {each}" for each in NAMELESS]), POOR)


def test_what_is_denied_in_a_transaction_is_not_written_at_its_end(world: World) -> None:
    steps = ["UPDATE t SET v = 'z'", "COMMIT", "BEGIN", "DROP TABLE t", "BEGIN", "FLUSH TABLES"]
    steps += ["BEGIN", "INSERT INTO {db}_own.o VALUES (1)", "DROP TABLE t", "ROLLBACK"]
    world.compare(denied([f"n  {each}" for each in ["BEGIN", *steps]]), POOR)


def test_what_is_denied_commits_what_came_before_it_and_no_more(world: World) -> None:
    reads = "SELECT n FROM u"
    world.compare(
        f"""
        a  {MAKE}
        a  CREATE USER {{user}} IDENTIFIED BY 'p'
        a  GRANT SELECT ON {{db}}.* TO {{user}}
        a  GRANT UPDATE ON u TO {{user}}
        b  {READ}
        b+ {READ}
        b  {reads}
        b+ {reads}
        n  BEGIN
        n  UPDATE u SET n = 7
        b+ {READ}
        n  DROP TABLE t
        b+ {READ}
        b  {reads}
        b+ {reads}
        n  {reads}
        n  ROLLBACK
        b+ {READ}
        b  {reads}
        b+ {reads}
        n  UPDATE u SET n = 8
        b  {reads}
        n  {READ}
        n+ {READ}
    """,
        POOR,
    )


def test_what_code_wrote_before_it_was_denied_is_taken_back(world: World) -> None:
    code = (
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN UPDATE t SET v = 'f';"
        " SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1142; RETURN 1; END;"
        " CREATE TRIGGER r AFTER DELETE ON u FOR EACH ROW BEGIN UPDATE t SET v = 'r';"
        " SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1142; END"
    )
    steps = ["UPDATE u SET n = f()", "DELETE FROM u"]
    world.compare(spared(steps, first=code))


def test_what_was_to_be_replaced_may_be_gone_when_it_is_denied(world: World) -> None:
    """MariaDB looks at the rights on the sequence when it has dropped the table."""
    reads = "SELECT * FROM {db}_own.o"
    last = "CREATE OR REPLACE TABLE {db}_own.o (a INT DEFAULT NEXTVAL({db}.s))"
    script = f"a  CREATE SEQUENCE s\n{denied([])}" if world.is_mariadb else denied([])
    world.compare(f"{script}\nb  {reads}\nb+ {reads}\nn  {last}\nb  {reads}", POOR)


CODE_THAT_IS_DENIED = (
    "CREATE TABLE m (a INT, v INT) ENGINE = MyISAM; INSERT INTO m VALUES (1, 1), (2, 2);"
    " CREATE TABLE i (a INT) ENGINE = MyISAM; CREATE TABLE l (a INT) ENGINE = MyISAM;"
    " CREATE DEFINER = {user} TRIGGER mr AFTER INSERT ON l FOR EACH ROW"
    " UPDATE m SET v = 3;"
    " CREATE TRIGGER ir AFTER INSERT ON i FOR EACH ROW BEGIN UPDATE m SET v = NEW.a;"
    " SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1142; END;"
    " CREATE PROCEDURE inner_one() SELECT 1;"
    " CREATE DEFINER = {user} PROCEDURE lacks(x INT) BEGIN UPDATE m SET v = x; CALL inner_one();"
    " END;"
    " CREATE DEFINER = {user} PROCEDURE lacks_none(x INT) BEGIN UPDATE m SET v = x;"
    " SELECT nosuch(); END;"
    " CREATE PROCEDURE misses(x INT) BEGIN UPDATE m SET v = x; CALL nosuch(); END;"
    " CREATE PROCEDURE says(x INT) BEGIN UPDATE m SET v = x;"
    " SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1370; END;"
    " CREATE FUNCTION says_f(x INT) RETURNS INT DETERMINISTIC BEGIN"
    " IF x = 2 THEN SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1370; END IF; RETURN 9; END;"
    " CREATE VIEW of_f AS SELECT says_f(a) AS f FROM u"
)


def test_code_that_is_denied_or_says_so_may_have_written_before(world: World) -> None:
    reads = "SELECT a, v, (SELECT COUNT(*) FROM l) FROM m"
    steps = [
        "INSERT INTO l VALUES (4)",
        "INSERT INTO i VALUES (5)",
        "CALL lacks(6)",
        "CALL lacks_none(66)",
        "CALL misses(7)",
        "CALL says(8)",
        "UPDATE m SET v = says_f(a)",
        "INSERT INTO m SELECT f, 1 FROM of_f",
    ]
    script = [f"a  {MAKE}", "a  CREATE USER {user} IDENTIFIED BY 'p'"]
    script += [f"a  {CODE_THAT_IS_DENIED}", "a  GRANT SELECT, UPDATE ON m TO {user}"]
    for step in steps:
        script += [f"b  {reads}", f"b+ {reads}", f"w  {step}", f"b  {reads}"]
    world.compare("\n".join(script))


def test_what_is_denied_has_ended_its_transaction_all_the_same(world: World) -> None:
    world.compare(
        f"""
        a  {MAKE}
        a  CREATE USER {{user}} IDENTIFIED BY 'p'
        a  GRANT SELECT, UPDATE ON {{db}}.* TO {{user}}
        b  {READ}
        b+ {READ}
        n  BEGIN
        n  UPDATE t SET v = 'new'
        n  GRANT ALL ON *.* TO {{user}}
        b  {READ}
        n  SELECT v FROM t WHERE a = 1
        n  ROLLBACK
        b  {READ}
    """,
        {"n": {"user": "{user}", "password": "p"}},
    )


def test_what_ran_before_a_syntax_error_in_the_same_text_is_a_write(world: World) -> None:
    world.compare(
        f"""
        a  {MAKE}
        b  {READ}
        b+ {READ}
        w  UPDATE t SET v = 'new' WHERE a = 1; SELEC 1
        b  {READ}
        b+ {READ}
        w  SELECT 1; UPDATE t SET v = 'newer' WHERE a = 1; SELECT v FROM t; '
        b  {READ}
    """
    )


def test_an_error_that_only_looks_like_a_syntax_error_may_come_after_a_write(world: World) -> None:
    world.compare(
        f"""
        a  {MAKE}; ALTER TABLE t ENGINE = MyISAM
        a  CREATE PROCEDURE p(x VARCHAR(20)) BEGIN UPDATE t SET v = x;
            SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1064; END
        a  CREATE TRIGGER r AFTER INSERT ON u FOR EACH ROW BEGIN UPDATE t SET v = NEW.n;
            SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1064; END
        b  {READ}
        b+ {READ}
        w  CALL p('signalled')
        b  {READ}
        b+ {READ}
        w  /*!80000 INSERT INTO u VALUES (5, 5) */
        w  /*M! INSERT INTO u VALUES (6, 6) */
        b  {READ}
        b+ {READ}
        w  INSERT INTO u VALUES (7, 7)
        b  {READ}
        a  DROP PROCEDURE p
        a  CREATE PROCEDURE p(x VARCHAR(20)) BEGIN UPDATE t SET v = x;
            PREPARE s FROM 'SELEC'; END
        b  {READ}
        b+ {READ}
        w  CALL p('prepared')
        b  {READ}
    """
    )


@pytest.mark.parametrize(
    "block",
    [
        "BEGIN NOT ATOMIC UPDATE t SET v = 'block'; EXECUTE IMMEDIATE 'SELEC'; END",
        "BEGIN NOT ATOMIC UPDATE t SET v = 'block'; EXECUTE nosuch; END",
        "IF 1 THEN UPDATE t SET v = 'if'; SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1064; END IF",
    ],
)
@pytest.mark.parametrize(
    "run",
    ["{block}", "EXECUTE IMMEDIATE '{quoted}'", "PREPARE s FROM '{quoted}'\nw  EXECUTE s"],
)
def test_a_block_without_a_name_may_have_written_when_it_fails(
    world: World, block: str, run: str
) -> None:
    """Blocks are MariaDB's alone."""
    runs = run.format(block=block, quoted=block.replace("'", "''"))
    script = f"a  {MAKE}\nb  {READ}\nb+ {READ}\nw  {runs}\nb  {READ}"
    world.compare(script, {"w": {"client_flag": 0}})


@pytest.mark.parametrize(
    "run",
    [
        ".prepare s {text}\nw  .execute s",
        "PREPARE s FROM '{quoted}'\nw  EXECUTE s",
        "EXECUTE IMMEDIATE '{quoted}'",
    ],
)
def test_a_full_text_search_may_fail_amid_a_prepared_statement(world: World, run: str) -> None:
    text = (
        "UPDATE t SET v = 'searched' WHERE a = 1 OR (SELECT COUNT(*) FROM f WHERE x <> v"
        " AND MATCH (x) AGAINST ('+*' IN BOOLEAN MODE))"
    )
    runs = run.format(text=text, quoted=text.replace("'", "''"))
    make = f"{MAKE}; ALTER TABLE t ENGINE = MyISAM; CREATE TABLE f (x TEXT, FULLTEXT (x))"
    make += "; INSERT INTO f VALUES ('q')"
    world.compare(f"a  {make}\nb  {READ}\nb+ {READ}\nw  {runs}\nb  {READ}")


def test_a_full_text_search_that_cannot_be_read_may_fail_after_a_write(world: World) -> None:
    world.compare(
        f"""
        a  {MAKE}; ALTER TABLE t ENGINE = MyISAM; CREATE TABLE f (x TEXT, FULLTEXT (x))
        a  CREATE FUNCTION g() RETURNS INT DETERMINISTIC BEGIN UPDATE t SET v = 'searched';
            RETURN (SELECT COUNT(*) FROM f WHERE MATCH (x) AGAINST ('+*' IN BOOLEAN MODE)); END
        b  {READ}
        b+ {READ}
        w  SELECT g()
        b  {READ}
    """
    )


def test_settings_that_drivers_compute_are_followed(world: World) -> None:
    rails = (
        "SET NAMES utf8mb4, @@SESSION.sql_mode = CONCAT(CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'),"
        " ',NO_AUTO_VALUE_ON_ZERO'), @@SESSION.sql_auto_is_null = 0,"
        " @@SESSION.wait_timeout = 2147483"
    )
    relaxed = "SET SESSION sql_mode = (SELECT REPLACE(@@sql_mode, 'ONLY_FULL_GROUP_BY', ''))"
    first = ["SHOW VARIABLES LIKE 'sql_mode'", "SELECT a AS comment_count FROM t", READ]
    world.compare(
        spared(
            [
                f"{who}  {step}"
                for who, setting in (("w", rails), ("v", relaxed))
                for step in [setting, *first, "SELECT 'automatically' FROM t", "SELECT @@sql_mode"]
            ]
        )
    )


def test_a_value_the_client_spelt_itself_is_not_computed_with(world: World) -> None:
    quotes = 'SELECT "v" FROM t'
    world.compare(
        f"""
        a  {MAKE}
        a  {quotes}
        a+ {quotes}
        b  SET sql_mode = 'ansi'
        b  SET sql_mode = REPLACE(@@sql_mode, 'ansi', '')
        b  {quotes}
        c  SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')
        c  {quotes}
        c+ {quotes}
        c  SET sql_mode = REPLACE(@@sql_mode, 'ANSI_QUOTES', '')
        c  {quotes}
        d  SET sql_mode = CONCAT(@@sql_mode, ',nonsense')
        d  {quotes}
    """
    )


def test_after_a_set_that_cannot_be_read_the_diagnostics_are_still_the_clients(
    world: World,
) -> None:
    strange = "SET sql_mode = CONCAT_WS(',', @@sql_mode, 'ANSI_QUOTES')"
    asks = ["SHOW WARNINGS", "SELECT ROW_COUNT()", "SELECT FOUND_ROWS()", "SHOW COUNT(*) ERRORS"]
    world.compare(spared([step for ask in asks for step in (strange, ask, READ)]))


def test_globals_that_shape_no_answer_are_no_write(world: World) -> None:
    world.compare(
        spared(
            [
                "SET GLOBAL max_connections = 151",
                "SET @@GLOBAL.net_read_timeout = 30, GLOBAL net_write_timeout = 60",
            ]
        )
    )


CODE = (
    "CREATE PROCEDURE p(x VARCHAR(20)) BEGIN INSERT INTO u VALUES (10, 1);"
    " UPDATE u SET n = n + 1; CALL q(x); END;"
    " CREATE PROCEDURE q(x VARCHAR(20)) UPDATE u AS o SET o.n = g(o.n);"
    " CREATE FUNCTION g(n INT) RETURNS INT DETERMINISTIC RETURN n + ABS(-1);"
    " CREATE FUNCTION h() RETURNS INT DETERMINISTIC BEGIN UPDATE u SET n = n + 1; RETURN 1; END"
)


def test_what_a_routine_writes_is_read_from_its_body(world: World) -> None:
    reads = "SELECT a, n FROM u"
    world.compare(
        f"""
        a  {MAKE}; {CODE}
        b  {READ}
        b+ {READ}
        b  {reads}
        b+ {reads}
        w  CALL p('x')
        b+ {READ}
        b  {reads}
        b+ {reads}
        w  SELECT g(1)
        b+ {READ}
        b+ {reads}
        w  SELECT h(), g(2)
        b+ {READ}
        b  {reads}
        b+ {reads}
        w  DO h()
        b+ {READ}
        b  {reads}
        w  BEGIN
        w  SELECT h()
        b  {reads}
        w  {reads}
        w  COMMIT
        b  {reads}
        b+ {READ}
        w+ {READ}
    """
    )


def test_a_routine_that_was_made_anew_is_another(world: World) -> None:
    made = "CREATE FUNCTION g(n INT) RETURNS INT DETERMINISTIC"
    world.compare(
        f"""
        a  {MAKE}; {CODE}
        b  {READ}
        b+ {READ}
        w  SELECT g(1)
        b+ {READ}
        a  DROP FUNCTION g
        a  {made} BEGIN UPDATE t SET v = 'g'; RETURN 1; END
        b  {READ}
        b+ {READ}
        w  SELECT g(1)
        b  {READ}
        b+ {READ}
        a  DROP PROCEDURE q
        a  CREATE PROCEDURE q(x VARCHAR(20)) BEGIN SET @s = 'DELETE FROM t'; PREPARE s FROM @s;
            EXECUTE s; END
        b  {READ}
        b+ {READ}
        w  CALL p('x')
        b  {READ}
    """
    )


@pytest.mark.parametrize("name", ["é", "É", "`e `", "E", "`E`"])
def test_a_prepared_statement_may_have_a_name_that_counts_as_another(
    world: World, name: str
) -> None:
    other = "UPDATE t SET v = 9"
    world.compare(
        f"""
        a  {MAKE}
        b  {READ}
        b+ {READ}
        w  PREPARE e FROM 'UPDATE u SET n = 5'
        w  PREPARE {name} FROM '{other}'
        w  EXECUTE e
        b  {READ}
    """
    )


def test_a_name_that_nobody_has_is_no_function_that_writes(world: World) -> None:
    world.compare(spared(["SELECT no_such_function(1)", "DO no_such_function(2)"]))


def test_a_text_that_is_prepared_by_name_is_what_it_says(world: World) -> None:
    reads = "SELECT n FROM u"
    world.compare(
        f"""
        a  {MAKE}
        b  {READ}
        b+ {READ}
        b  {reads}
        b+ {reads}
        w  PREPARE s FROM 'SELECT v FROM t WHERE a = ?'
        w  SET @a = 1
        w  EXECUTE s USING @a
        b+ {READ}
        w  PREPARE S FROM 'UPDATE u SET n = ? WHERE a = 1'
        w  EXECUTE s USING @a
        b+ {READ}
        b  {reads}
        w  SET @b = 7
        w  EXECUTE s USING @b
        b+ {READ}
        b  {reads}
        w  PREPARE s FROM 'SELEC'
        w  EXECUTE s USING @b
        b+ {READ}
        w  SET @t = 'UPDATE t SET v = 7'
        w  PREPARE s FROM 'SELECT v FROM t'
        w  PREPARE s FROM @t
        w  EXECUTE s
        b  {READ}
        w  PREPARE s FROM 'SELECT v FROM t'
        w  SET @t = 'UPDATE t SET v = 8'
        w  SELECT 1; PREPARE s FROM @t
        b  {READ}
        w  EXECUTE s
        b  {READ}
        w  DEALLOCATE PREPARE s
        w  EXECUTE s
        w  EXECUTE IMMEDIATE 'SELECT 1 FROM t'
    """
    )


MADE_WHEN_READ = [
    "UPDATE m SET v = IF(a = 1, 7, (SELECT COUNT(*) FROM information_schema.INNODB_CMP))",
    "INSERT INTO m VALUES (8, 8), (9, (SELECT COUNT(*) FROM information_schema.INNODB_METRICS))",
    "INSERT INTO m SELECT a + 2, IF(a = 1, 7, (SELECT COUNT(*) FROM made)) FROM u",
    "INSERT INTO m VALUES (6, 6), (7, (SELECT COUNT(*) FROM performance_schema.log_status))",
]


def test_what_is_denied_when_it_is_read_may_be_so_amid_a_write(world: World) -> None:
    reads = "SELECT a, v FROM m"
    script = [f"a  {MAKE}; CREATE TABLE m (a INT, v INT) ENGINE = MyISAM"]
    script += ["a  INSERT INTO m VALUES (1, 1), (2, 2)", "a  CREATE USER {user} IDENTIFIED BY 'p'"]
    view = "SELECT page_size FROM information_schema.INNODB_CMP"
    script += [f"a  CREATE SQL SECURITY INVOKER VIEW made AS {view}"]
    script += [
        f"a  GRANT {g} TO {{user}}" for g in ("ALL ON {db}.*", "SELECT ON performance_schema.*")
    ]
    for step in MADE_WHEN_READ:
        script += [f"b  {reads}", f"b+ {reads}", f"n  {step}", f"b  {reads}"]
    world.compare("\n".join(script), POOR)
