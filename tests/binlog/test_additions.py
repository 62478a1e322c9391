"""Which definitions take nothing away."""

import pytest

from sqlcache.binlog.additions import only_adds
from sqlcache.sql.pieces import Dialect


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE n (id INT)",
        "CREATE TABLE IF NOT EXISTS `s`.`n` LIKE t",
        "create temporary table n select * from t",
        "CREATE INDEX i ON t (a)",
        "CREATE UNIQUE INDEX i ON t (a)",
        "DROP INDEX i ON t",
        "TRUNCATE TABLE t",
        "ALTER TABLE t ADD COLUMN c INT DEFAULT 1",
        "ALTER TABLE `s`.`t` ADD (a INT, b INT), DROP KEY x, ALGORITHM=INPLACE, LOCK=NONE",
        "ALTER TABLE s.t ADD CONSTRAINT k FOREIGN KEY (p, q) REFERENCES u (id, j)",
        "ALTER ONLINE TABLE t DROP PARTITION p0",
    ],
)
def test_what_only_adds(text: str) -> None:
    assert only_adds(text.encode(), Dialect())


@pytest.mark.parametrize(
    "text",
    [
        "CREATE OR REPLACE TABLE n (id INT)",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
        "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW DELETE FROM u",
        "CREATE /*!50000 OR REPLACE */ TABLE n (id INT)",
        "CREATE TABLE n (id INT); DROP TABLE t",
        "DROP TABLE t",
        "DROP TRIGGER tr",
        "RENAME TABLE t TO u",
        "ALTER VIEW v AS SELECT 1",
        "ALTER DATABASE s CHARACTER SET utf8mb4",
        "ALTER TABLE t",
        "ALTER TABLE t RENAME u",
        "ALTER TABLE t ADD c INT, RENAME COLUMN a TO b",
        "ALTER TABLE t ADD c INT, ENGINE=MERGE UNION=(u)",
        "ALTER TABLE t ADD c INT, ALGORITHM=INPLACE ENGINE=MERGE",
        "ALTER TABLE t CHANGE a b INT",
        "ALTER TABLE t MODIFY a INT",
        "ALTER TABLE t DROP FOREIGN KEY k",
        "ALTER TABLE t DROP CONSTRAINT k",
        "ALTER TABLE t DROP COLUMN a",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
        "CREATE TABLE n (id INT) -- " + "long " * 2_000,
        "CREATE TABLE 'n",
    ],
)
def test_what_may_take_away(text: str) -> None:
    assert not only_adds(text.encode(), Dialect())
