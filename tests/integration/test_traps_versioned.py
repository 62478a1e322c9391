"""Versioned comments, which only some servers run: what is in them counts where it is run, and
costs nothing where it is not."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing

import pytest

from tests.integration.scripts import World

MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO t VALUES (1, 'x'), (2, 'y');"
    " CREATE TABLE u (a INT); INSERT INTO u VALUES (1)"
)


HARMLESS = [
    "SELECT a /*!80000 + 1 */ FROM t",
    "SELECT a /*!99999 , v */ FROM t",
    "SELECT a /*M!100100 + 1 */ FROM t",
    "INSERT INTO u VALUES (2) /*!99999 RETURNING a */",
    "/*!99999 UPDATE t SET v = 'never' */",
    "/*!99999 CREATE TEMPORARY TABLE t (a INT) */",
    "SELECT 1; /*!99999 UPDATE t SET v = 'never' */",
    # What dumps begin and end with.
    "/*!80000 SET SESSION information_schema_stats_expiry=0 */",
    "/*!40101 SET @saved_cs_client     = @@character_set_client */",
    "/*!50503 SET NAMES utf8mb4 */",
    "/*!80013 SET @old_require_primary_key=@@session.sql_require_primary_key */",
    "/*M!100101 SET LOCAL SQL_LOG_OFF=0, LOCAL LOG_SLOW_QUERY=0 */",
    "/*M!100616 SET @OLD_NOTE_VERBOSITY=@@NOTE_VERBOSITY, NOTE_VERBOSITY=0 */",
    "/*M!999999\\- enable the sandbox mode */",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_changes_nothing_costs_no_hit(world: World, text: str) -> None:
    world.compare(f"""
        a  {MAKE}
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  {text}
        b+ SELECT v FROM t
        a  SELECT v FROM t
        a  SELECT v FROM t
        a+ SELECT v FROM t
    """)


WRITES = [
    "/*!80000 UPDATE t SET v = 'by mysql' */",
    "/*M!100100 UPDATE t SET v = 'by mariadb' */",
    "/*!100100 UPDATE t SET v = 'by mariadb' */",
    "/*!080000 UPDATE t SET v = 'by mysql' */",
    "/*!99999 UPDATE u SET a = 5; */ UPDATE t SET v = 'by both'",
    "UPDATE /*!99999 u SET a = 5 */ /*!40000 t SET v = 'by both' */",
    "UPDATE u /*!80000 JOIN t SET t.v = 'joined' */ /*M!100100 JOIN t SET t.v = 'joined' */",
    "/*!99999 ' */ UPDATE t SET v = 'in no quotes' /* ' */",
    "/*!99999 /* */ UPDATE t SET v = 'inside' */",
    "/*M! ' */ UPDATE t SET v = 'mysql skips a quote' /* ' */",
    "/*!80000 -- */ \n UPDATE t SET v = 'behind a line' # */",
    "/*!80000 BEGIN; UPDATE t SET v = 'several'; COMMIT */",
    "INSERT INTO t VALUES (1, 'z') /*!80000 AS n ON DUPLICATE KEY UPDATE v = 'by mysql' */",
    "/*!80000 DROP TABLE t */",
    "RENAME TABLE t TO t2 /*!99999 , t2 TO t */; RENAME TABLE t2 TO t; UPDATE t SET v = 'back'",
]


@pytest.mark.parametrize("text", WRITES)
def test_what_a_server_runs_is_written(world: World, text: str) -> None:
    world.compare(f"""
        a  {MAKE}
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  {text}
        b  SELECT v FROM t
        a  SELECT v FROM t
        c  SELECT a FROM u
    """)


@pytest.mark.parametrize("text", [each for each in WRITES if "; " not in each])
def test_so_is_what_is_prepared(world: World, text: str) -> None:
    quoted = text.replace("'", "''")
    world.compare(f"""
        a  {MAKE}
        b  SELECT v FROM t
        b+ SELECT v FROM t
        a  .prepare s {text}
        a  .execute s
        b  SELECT v FROM t
        a  UPDATE t SET v = 'other'
        b  SELECT v FROM t
        a  PREPARE p FROM '{quoted}'
        a  EXECUTE p
        b  SELECT v FROM t
    """)


def test_reads_that_differ_in_them_are_several(world: World) -> None:
    world.compare(f"""
        a  {MAKE}
        a  SELECT /*!80000 a, */ v FROM t
        a  SELECT /*!99999 a, */ v FROM t
        a  SELECT /*M!100100 a, */ v FROM t
        a  SELECT v FROM t
        a+ SELECT /*!80000 a, */ v FROM t
        a+ SELECT /*!99999 a, */ v FROM t
        a+ SELECT /*M!100100 a, */ v FROM t
        a+ SELECT v FROM t
        a  SELECT v FROM t /*!80000 WHERE a = 1 */
        a+ SELECT v FROM t /*!80000 WHERE a = 1 */
        a  SELECT v FROM t /*!80000 WHERE a = 2 */
        a  SELECT v FROM t /*!80000 WHERE a = 1 */ /*M!100100 WHERE a = 2 */
        a+ SELECT v FROM t /*!80000 WHERE a = 1 */
        b  UPDATE t SET v = 'z'
        a  SELECT /*!80000 a, */ v FROM t
        a  SELECT v FROM t /*!80000 WHERE a = 1 */
        a  SELECT v FROM t /*!80000 , u */
        a  SELECT v FROM t /*!80000 , u */
        b  INSERT INTO u VALUES (2)
        a  SELECT v FROM t /*!80000 , u */
        a  SELECT v FROM t /*!80000 FOR UPDATE */
        a  SELECT v FROM t /*M!100100 WHERE a = RAND(1) */
        a  SELECT v, /*!80000 NOW(6) > 0, */ a FROM t
        a  .prepare s SELECT v FROM t WHERE a = ? /*!80000 OR a = ? */ /*!99999 OR a = ? */
        a  .execute s #1
        a  .execute s #1 #2
        a  .execute s #1
        b  UPDATE t SET v = 'last' WHERE a = 2
        a  .execute s #1
        a  .execute s #1 #2
    """)


@pytest.mark.parametrize(
    "text",
    [
        "/*!80000 CREATE TEMPORARY TABLE t (v INT) */",
        "/*M!100100 CREATE TEMPORARY TABLE t (v INT) */",
        "CREATE /*!40000 TEMPORARY */ TABLE /*!99999 IF NOT EXISTS u2 */ /*! t */ (v INT)",
        "/*!80000 SET sql_mode = 'ANSI_QUOTES' */",
        "/*M!100100 SET sql_mode = 'ANSI_QUOTES' */",
        "/*!80000 USE {db}_o */",
        "/*M!100100 USE {db}_o */",
        "/*!80000 LOCK TABLES t READ */",
    ],
)
def test_what_a_server_runs_changes_its_session(world: World, text: str) -> None:
    world.compare(f"""
        a  {MAKE}
        a  CREATE DATABASE {{db}}_o; CREATE TABLE {{db}}_o.t (v INT)
        a  SELECT v, "a" FROM t
        a  SELECT v, "a" FROM t
        a+ SELECT v, "a" FROM t
        a  {text}
        a  SELECT v, "a" FROM t
        a  SELECT v FROM t
        b  SELECT v FROM t
        a  SELECT DATABASE(), @@sql_mode
    """)


def test_a_dump_of_one_table_leaves_the_answers_from_others(world: World, schema: str) -> None:
    program = shutil.which("mariadb-dump") or shutil.which("mysqldump")
    if program is None:
        pytest.skip("no client that dumps")
    made = "CREATE TABLE t (v INT); CREATE TABLE u (v INT); INSERT INTO t VALUES (1)"
    world.upstream.sql(made, schema)
    login = {"user": world.upstream.user, "password": world.upstream.password}
    server = ["-h", world.proxy.host, "-P", str(world.proxy.port)]
    account = ["-u", login["user"], f"-p{login['password']}"]
    options = ["--single-transaction", "--no-tablespaces", schema, "u"]
    with closing(world.proxy.connect(**login, database=schema)) as session:
        cursor = session.cursor()
        for _ in range(3):
            cursor.execute("SELECT v FROM t")
        asked = [program, "--no-defaults", *server, *account, *options]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        before = world.hits()
        cursor.execute("SELECT v FROM t")
        assert world.hits() == before + 1
