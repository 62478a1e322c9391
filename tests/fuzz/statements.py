"""Random statements over a random schema. A read has one answer, but for the order of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random

from tests.fuzz.tables import NUMBER, TEXT, Schema, Table, literal

_NUMBER = re.compile(r"(?<=[ (])[1-6](?=[ ,)]|\Z)")
_TOLD_APART_AFTER = 9
"""Answers that were forgotten in vain."""
_FUNCTIONS = [
    *("UPPER({})", "LENGTH({})", "HEX({})", "CONCAT({}, '-', {})", "IFNULL({}, 'none')"),
    *("COALESCE({}, {})", "IF({} > 1, 'y', 'n')", "CASE WHEN {} IS NULL THEN 0 ELSE 1 END"),
    *("CAST({} AS CHAR(10))", "CONVERT({} USING latin1)", "CAST({} AS SIGNED)", "MD5({})"),
    *("{} + 1", "-{}", "{} * 2.5", "{} / 3", "{} DIV 2", "{} || 'x'", "{} <=> {}", "NOT {}"),
    *("DATE_FORMAT({}, '%W %M %y')", "WEEK({})", "DAYNAME({})", "TO_DAYS({})", "{} LIKE '%a%'"),
    *("REPLACE({}, 'a', 'b')", "SUBSTRING({} FROM 1 FOR 2)", "SUBSTRING ({}, 2)", "TRIM({})"),
    *("{} COLLATE utf8mb4_bin", "{} IN (1, 'a', NULL)", "{} BETWEEN 0 AND 5", "{} REGEXP '^a'"),
    *("FROM_UNIXTIME({})", "UNIX_TIMESTAMP({})", "JSON_EXTRACT({}, '$.k')", "COLLATION({})"),
    *("CHARSET({})", "SOUNDEX({})", "FORMAT({}, 2)", "ROUND({}, 1)", "WEIGHT_STRING({})"),
    *("BIN({})", "CONV({}, 10, 16)", "OCT({})", "DATABASE()", "AES_DECRYPT({}, 'k')"),
    *("DATE_FORMAT('2020-01-01', '%Y')", "LPAD('a', 3, '.')", "HEX(AES_ENCRYPT({}, 'k'))"),
    *("{d '2020-01-01'}", "CONCAT('a', 'b', {})", "{ts '2020-01-01 10:00:00'}"),
    *("GREATEST({}, 3)", "INTERVAL({}, 1, 5)", "DATE_ADD({}, INTERVAL 1 DAY)", "BINARY {}"),
]
_AGGREGATES = [
    *("COUNT(*)", "COUNT({})", "COUNT(DISTINCT {})", "SUM({})", "AVG({})", "MIN({})", "MAX({})"),
    *("GROUP_CONCAT(id ORDER BY id)", "BIT_OR(id)", "STDDEV({})", "COUNT( {} )"),
]
_WINDOWS = [
    *("ROW_NUMBER() OVER (ORDER BY id)", "SUM(id) OVER (ORDER BY id)", "RANK() OVER w"),
    *("LAG(id) OVER (ORDER BY id)", "COUNT(*) OVER ()"),
]
SETTINGS = [
    *("sql_mode = ''", "sql_mode = 'ANSI_QUOTES'", "sql_mode = 'NO_BACKSLASH_ESCAPES'"),
    *("sql_mode = 'PIPES_AS_CONCAT'", "sql_mode = DEFAULT", "sql_mode = 'ANSI'", "sql_mode = 4"),
    *("sql_mode = 'IGNORE_SPACE'", "sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'", "NAMES utf8mb4"),
    *("sql_mode = CONCAT(@@sql_mode, ',HIGH_NOT_PRECEDENCE')", "sql_mode = 'REAL_AS_FLOAT'"),
    *("time_zone = '+05:00'", "time_zone = '-03:30'", "time_zone = SYSTEM", "time_zone = DEFAULT"),
    *("NAMES latin1", "NAMES gbk", "NAMES utf8mb4 COLLATE utf8mb4_bin", "NAMES DEFAULT"),
    *("NAMES 'utf8'", "CHARACTER SET latin1", "CHARACTER SET DEFAULT", "NAMES binary"),
    *("character_set_results = NULL", "character_set_results = latin1", "NAMES cp1251"),
    *("character_set_client = latin1", "collation_connection = utf8mb4_bin", "NAMES swe7"),
    *("character_set_connection = latin1", "collation_connection = latin1_german2_ci"),
    *("SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SESSION TRANSACTION READ WRITE"),
    *("SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "TRANSACTION READ ONLY"),
    *("SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SESSION TRANSACTION READ ONLY"),
    *("SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", "@@session.sql_mode = ''"),
    *("TRANSACTION ISOLATION LEVEL READ COMMITTED", "transaction_isolation = 'READ-COMMITTED'"),
    *("@@tx_isolation = 'REPEATABLE-READ'", "tx_isolation = 'READ-COMMITTED'", "@x = 3"),
    *("autocommit = 0", "autocommit = 1", "autocommit = ON", "@@autocommit = OFF"),
    *("sql_select_limit = 2", "sql_select_limit = DEFAULT", "div_precision_increment = 9"),
    *("div_precision_increment = DEFAULT", "group_concat_max_len = 5", "lc_time_names = 'de_DE'"),
    *("group_concat_max_len = DEFAULT", "lc_time_names = 'en_US'", "default_week_format = 3"),
    *("max_sort_length = 4", "big_tables = 1", "sql_big_selects = 1", "sql_safe_updates = 1"),
    *("sql_auto_is_null = 1", "foreign_key_checks = 0", "unique_checks = 0", "sql_buffer_result=1"),
    *("optimizer_switch = 'derived_merge=off'", "sql_warnings = 1", "timestamp = 1700000000"),
    *("insert_id = 50", "auto_increment_increment = 5", "nosuchvariable = 1", "sql_notes = 0"),
    *("max_error_count = 0", "sql_quote_show_create = 0", "character_set_results = utf8mb4"),
    *("default_collation_for_utf8mb4 = utf8mb4_general_ci", "updatable_views_with_limit = NO"),
    *("completion_type = 1", "completion_type = 0", "show_create_table_verbosity = 1"),
    *("explicit_defaults_for_timestamp = 0", "old_mode = 'NO_PROGRESS_INFO'", "old_mode = ''"),
    *("windowing_use_high_precision = 0", "eq_range_index_dive_limit = 0", "sql_mode = NO_SUCH"),
    *("sql_mode = 'TIME_TRUNCATE_FRACTIONAL'", "max_statement_time = 100", "join_cache_level = 0"),
    *(
        "session_track_schema = 1",
        "session_track_system_variables = 'time_zone,sql_mode'",
        "profiling = 0",
    ),
    *("sort_buffer_size = 65536", "NAMES utf8mb4, time_zone = '+01:00'", "SESSION sql_mode = ''"),
    *(
        "@a = 1, sql_mode = 'ANSI_QUOTES'",
        "session_track_transaction_info = 'STATE'",
        "PASSWORD = 5",
        "sql_mode = @@global.sql_mode",
    ),
    *("show_gipk_in_create_table_and_information_schema = 0", "session_track_state_change = 1"),
]
PROBES = [
    *("SELECT FOUND_ROWS()", "SELECT ROW_COUNT()", "SELECT LAST_INSERT_ID()", "SHOW WARNINGS"),
    *("SHOW COUNT(*) WARNINGS", "SELECT @@warning_count", "SELECT DATABASE()", "SHOW TABLES"),
    *("SELECT @@sql_mode, @@time_zone, @@autocommit", "SELECT @x, @seen", "SHOW ERRORS LIMIT 1"),
    *("SELECT @@character_set_client, @@collation_connection", "SELECT CURRENT_ROLE()"),
    *("GET DIAGNOSTICS @n = NUMBER, @r = ROW_COUNT", "SELECT @n, @r", "SELECT 1", "DO 0"),
    *("SELECT @@identity, @@error_count", "SELECT CURRENT_USER()", "SELECT 'a' UNION SELECT 'b'"),
    *("SELECT FOUND_ROWS() AS n", "SELECT FOUND_ROWS()"),
    *("SELECT @@in_transaction", "SHOW COUNT(*) ERRORS", "SELECT CHARSET('a'), COLLATION('a')"),
]
TRANSACTIONS = [
    *("BEGIN", "START TRANSACTION", "START TRANSACTION READ ONLY", "BEGIN", "BEGIN WORK"),
    *("START TRANSACTION WITH CONSISTENT SNAPSHOT", "COMMIT", "COMMIT", "ROLLBACK", "ROLLBACK"),
    *("COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "SAVEPOINT s1", "SAVEPOINT s2", "COMMIT WORK"),
    *("ROLLBACK TO SAVEPOINT s1", "ROLLBACK TO s2", "RELEASE SAVEPOINT s1", "COMMIT"),
    "START TRANSACTION READ WRITE",
]


class Statements:
    """Makes statements over `schema`, each a new one."""

    def __init__(self, random: Random, schema: Schema) -> None:
        self.random = random
        self.schema = schema
        self.made_tables = 0

    # Reads.

    def read(self) -> str:
        """A query that any session may run."""
        if self.schema.rows and self.random.random() < 0.6:
            return self._of_rows()
        shapes: list[Callable[[], str]] = [
            *(self._plain, self._plain, self._plain, self._join, self._grouped, self._union),
            *(self._common_table, self._window, self._subquery, self._derived, self._odd),
            self._counted,
        ]
        return self.random.choice(shapes)()

    def _named_rows(self, table: Table, alias: str = "") -> str:
        """A condition that names rows by what is indexed."""
        random, column = self.random, self.random.choice(table.keyed)
        if table.paired and random.random() < 0.4:
            return " AND ".join(
                f"{alias}{name} = {literal(random, table.columns[name])}" for name in table.paired
            )
        kind = NUMBER if column == "id" else table.columns.get(column, NUMBER)
        first, second = (literal(random, kind) for _ in range(2))
        if column == "id" and random.random() < 0.8:
            first, second = (str(random.randint(1, 6)) for _ in range(2))
        name = f"{alias}{column}"
        return random.choice(
            [
                *[f"{name} = {first}"] * 4,
                *(f"{name} IN ({first}, {second})", f"{name} <=> {first}", f"{name} IS NULL"),
                *(f"{first} = {name}", f"{name} = {first} AND {self._condition(table)}"),
            ]
        )

    def _of_rows(self) -> str:
        random, table, other = self.random, self.schema.base_table(), self.schema.base_table()
        listed = random.choice(["*", "id", "COUNT(*)", ", ".join(table.readable[:2])])
        column = random.choice(table.keyed)
        joins = random.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN"])
        joined = f"{table.name} a {joins} {other.name} b"
        return random.choice(
            [
                *[f"SELECT {listed} FROM {table.name} WHERE {self._named_rows(table)}"] * 4,
                f"SELECT a.id, b.id FROM {joined} ON a.{column} = b.id"
                f" WHERE {self._named_rows(table, 'a.')}",
                f"SELECT a.id, b.id FROM {joined} ON {column} = b.id"
                f" WHERE {self._named_rows(table)}",  # which may be of both
                f"SELECT id, b.{random.choice(other.readable)} FROM {joined} USING (id)"
                f" WHERE id = {random.randint(1, 4)}",
                f"SELECT a.id, b.{random.choice(other.readable)} FROM {joined}"
                f" ON b.id = {random.randint(1, 4)} WHERE a.id = {random.randint(1, 4)}",
                f"SELECT a.id, b.id FROM {table.name} a, {other.name} b"
                f" WHERE a.id = {random.randint(1, 4)} AND b.{random.choice(other.keyed)} ="
                f" {random.choice(['', '-', '- -', '7 - '])}a.id",
            ]
        )

    def of_other_rows(self, text: str) -> str:
        """The same with other numbers, here and there."""
        return _NUMBER.sub(lambda _: str(self.random.randint(1, 6)), text)

    def telling_apart(self, table: Table) -> Iterator[str]:
        """What has rows of a table told apart by all that is indexed."""
        other = next((name for name in table.columns if name not in table.keyed), "id")
        for column in table.keyed:
            value = "'a'" if table.columns.get(column) == TEXT else "1"
            for _ in range(_TOLD_APART_AFTER):
                yield f"UPDATE {table.name} SET {other} = {other} WHERE id = 6"
                yield f"SELECT * FROM {table.name} WHERE {column} = {value}"
        if table.paired:
            values = {NUMBER: "1", TEXT: "'a'"}
            both = [f"{name} = {values[table.columns[name]]}" for name in table.paired]
            for _ in range(_TOLD_APART_AFTER):
                yield f"UPDATE {table.name} SET {other} = {other} WHERE id = 6"
                yield f"SELECT * FROM {table.name} WHERE {' AND '.join(both)}"

    def _counted(self) -> str:
        return self._plain().replace("SELECT ", "SELECT SQL_CALC_FOUND_ROWS ", 1)

    def varied(self, text: str) -> str:
        """The same query, written another way or nearly so."""
        random = self.random
        match random.randint(0, 13):
            case 8:
                return text.replace(", ", ",")
            case 9:
                return text.replace(", ", " ,  ")
            case 10:
                return text + " ; ; "
            case 11:
                return text + "; -- end"
            case 0:
                return text.replace("SELECT ", "select ", 1)
            case 1:
                return text.replace(" FROM ", " /* note */ FROM ", 1)
            case 2:
                return text.replace(" FROM ", "\n  FROM ", 1)
            case 3:
                return f"/* begun */ {text}"
            case 4:
                return text + ";"
            case 5:
                return text.replace("SELECT ", "SELECT  ", 1)
            case 6:
                version = random.choice(["!", "!80000", "M!100100"])
                other = random.choice(["!99999", "M!999999"])
                either = f" /*{version} , 1 */ /*{other} , 2 */ FROM "
                return text.replace(" FROM ", random.choice([" /*! FROM */ ", either]), 1)
            case 7:
                return text + " -- end"
            case _:
                return text

    def unshared(self) -> str:
        """A query that is not like others: it locks, counts, assigns or calls."""
        random, table = self.random, self.schema.table()
        column = random.choice(table.readable)
        return random.choice(
            [
                f"SELECT {column} FROM {table.name} ORDER BY id FOR UPDATE",
                f"SELECT {column} FROM {table.name} ORDER BY id LOCK IN SHARE MODE",
                f"SELECT SQL_CALC_FOUND_ROWS id FROM {table.name} ORDER BY id LIMIT 1",
                f"SELECT COUNT(*) INTO @x FROM {table.name}",
                f"SELECT @x := COUNT(*) FROM {table.name}",
                f"SELECT SQL_NO_CACHE {column} FROM {table.name}",
                f"SELECT f_write(id) FROM {table.name} ORDER BY id LIMIT 1",
                f"SELECT f_read(id), soundex2('a') FROM {table.name} ORDER BY id",
                f"SELECT id FROM {table.name} WHERE id = @x",
                f"SELECT /*+ SET_VAR(sql_mode='ANSI_QUOTES') */ \"id\" FROM {table.name}",
                f"SELECT {column}, @@sql_mode FROM {table.name} ORDER BY id",
                f"SELECT id FROM {table.name} WHERE id IS NULL",
                f"EXPLAIN SELECT 1 FROM {table.name} WHERE 1 = 0",
                f"SHOW CREATE TABLE {table.name}",
                f"DESCRIBE {table.name}",
                f"SELECT * FROM {table.name} PROCEDURE ANALYSE()",
                # That of rows with computed columns takes what bytes happen to be there.
                f"CHECKSUM TABLE {table.name} QUICK",
            ]
        )

    def _expression(self, table: Table) -> str:
        random = self.random
        if random.random() < 0.55:
            return random.choice(table.readable)
        made = random.choice(_FUNCTIONS)
        return made.replace("{}", random.choice(table.readable))

    def _distinct(self, table: Table) -> str:
        """A column whose equal values are the same: of texts, any of several may be the answer."""
        numbers = [name for name, kind in table.columns.items() if kind == NUMBER]
        return self.random.choice(["id", *table.computed, *numbers])

    def _listed(self, table: Table) -> str:
        random = self.random
        if random.random() < 0.25:
            return random.choice(["*", f"{table.name}.*", "id"])
        items = [self._expression(table) for _ in range(random.randint(1, 3))]
        if random.random() < 0.3:
            items[-1] += random.choice([" AS x", " `a b`", " 'label'", " Id2"])
        return ", ".join(items)

    def _condition(self, table: Table) -> str:
        random = self.random
        column, kind = random.choice(list(table.columns.items()) or [("id", NUMBER)])
        value = literal(random, kind)
        return random.choice(
            [
                *(f"{column} = {value}", f"{column} <> {value}", f"{column} > {value}", "id > 1"),
                *(f"{column} IS NOT NULL", f"id IN (1, 2, {random.randint(1, 9)})", "id = 1"),
                f"({self._expression(table)}) = ({self._expression(table)})",
                f"id < {random.randint(1, 9)} AND {column} IS NULL",
                f"{column} LIKE {literal(random, TEXT)}",
            ]
        )

    def _where(self, table: Table) -> str:
        return f" WHERE {self._condition(table)}" if self.random.random() < 0.6 else ""

    def _plain(self) -> str:
        random, table = self.random, self.schema.table()
        order = ""
        if random.random() < 0.5:
            order = random.choice([" ORDER BY id", " ORDER BY id DESC"])
            order += random.choice(["", "", " LIMIT 2", " LIMIT 1, 2", " LIMIT 0"])
        if random.random() < 0.2:
            return f"SELECT DISTINCT {self._distinct(table)} FROM {table.name}{self._where(table)}"
        name = random.choice([table.name, f"`{table.name}`", f"{{db}}.{table.name}"])
        listed = self._listed(table)
        if "." in listed and "{db}" in name:
            listed = "*"
        return f"SELECT {listed} FROM {name}{self._where(table)}{order}"

    def _join(self) -> str:
        random = self.random
        left, right = self.schema.table(), self.schema.table()
        kind = random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "CROSS JOIN", "STRAIGHT_JOIN"])
        on = "" if kind == "CROSS JOIN" else " ON a.id = b.id"
        columns = f"a.{random.choice(left.readable)}, b.{random.choice(right.readable)}"
        joined = f"{left.name} a {kind} {right.name} AS b{on}"
        if random.random() < 0.2:
            joined = f"{left.name} a, {right.name} b"
        return f"SELECT {columns} FROM {joined} WHERE a.id < 5 OR b.id IS NULL"

    def _grouped(self) -> str:
        random, table = self.random, self.schema.table()
        aggregate = random.choice(_AGGREGATES).replace("{}", self._distinct(table))
        if random.random() < 0.4:
            return f"SELECT {aggregate} FROM {table.name}{self._where(table)}"
        column = self._distinct(table)
        tail = random.choice(["", " HAVING COUNT(*) > 1", " WITH ROLLUP", ""])
        return f"SELECT {column}, {aggregate} FROM {table.name} GROUP BY {column}{tail}"

    def _union(self) -> str:
        random = self.random
        left, right = self.schema.table(), self.schema.table()
        parts = [f"SELECT {self._distinct(table)} FROM {table.name}" for table in (left, right)]
        word = random.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
        if random.random() < 0.3:
            return f"({parts[0]}) {word} ({parts[1]})"
        return f"{parts[0]} {word} {parts[1]}"

    def _common_table(self) -> str:
        random, table = self.random, self.schema.table()
        if random.random() < 0.3:
            return (
                "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 4)"
                f" SELECT n.i, COUNT(a.id) FROM n LEFT JOIN {table.name} a ON a.id = n.i GROUP BY i"
            )
        name = random.choice(["q", table.name, self.schema.table().name])
        return (
            f"WITH {name} AS (SELECT id FROM {table.name}{self._where(table)}) SELECT * FROM {name}"
        )

    def _window(self) -> str:
        table = self.schema.table()
        call = self.random.choice(_WINDOWS)
        window = " WINDOW w AS (ORDER BY id)" if "OVER w" in call else ""
        return f"SELECT id, {call} FROM {table.name}{self._where(table)}{window}"

    def _subquery(self) -> str:
        random = self.random
        outer, inner = self.schema.table(), self.schema.table()
        return random.choice(
            [
                f"SELECT id FROM {outer.name} WHERE id IN (SELECT id FROM {inner.name})",
                f"SELECT id, (SELECT COUNT(*) FROM {inner.name} i WHERE i.id < o.id)"
                f" FROM {outer.name} o",
                f"SELECT id FROM {outer.name} o WHERE EXISTS"
                f" (SELECT 1 FROM {inner.name} i WHERE i.id = o.id AND {self._condition(inner)})",
                f"SELECT (SELECT MAX(id) FROM {inner.name}) AS m FROM {outer.name}",
                f"SELECT COUNT(*) FROM {outer.name} WHERE id > ALL (SELECT id FROM {inner.name})",
            ]
        )

    def _derived(self) -> str:
        table = self.schema.table()
        return (
            f"SELECT d.*, 'it''s' FROM (SELECT {self._listed(table)} FROM {table.name}"
            f"{self._where(table)}) AS d"
        )

    def _odd(self) -> str:
        random, table = self.random, self.schema.table()
        return random.choice(
            [
                f"TABLE {table.name}",
                f"(SELECT id FROM {table.name})",
                f"SELECT id FROM {table.name} USE INDEX (PRIMARY) WHERE id > 0",
                f"SELECT id FROM {table.name} FORCE INDEX FOR JOIN (PRIMARY)",
                f"SELECT COUNT(*),COUNT( * ) FROM {table.name}",
                f"SELECT \"id\", 'id', `id` FROM {table.name} ORDER BY id",
                f"SELECT id FROM {table.name.upper()}",
                f"SELECT t.id FROM {{db}}.{table.name} t WHERE t.id = ((1))",
                f"SELECT 'a' 'b', id FROM {table.name}",
                f"SELECT id, 1e1, .5, 0x41, b'1', N'x', _binary'b' FROM {table.name}",
                f"SELECT id FROM {table.name} UNION SELECT 'é' FROM {table.name}",
                f"SELECT 'é', '日本', id FROM {table.name}",
                "SELECT id FROM nosuchtable",
                f"SELECT nosuchcolumn FROM {table.name}",
                f"SELECT id FROM {table.name} PARTITION (p0)",
                "SELECT id FROM {db}x.other",
                f"SELECT DISTINCTROW id FROM {table.name}",
                f"SELECT id FROM {table.name} WHERE id = 1 OR id = 1",
                f"SELECT \\N, id FROM {table.name}",
                f"SELECT !id, id&&1, id||1 FROM {table.name}",
            ]
        )

    def parameterised(self) -> str:
        """A query with markers for values."""
        random, table = self.random, self.schema.table()
        return random.choice(
            [
                f"SELECT * FROM {table.name} WHERE id = ?",
                f"SELECT id, ? FROM {table.name} ORDER BY id LIMIT ?",
                f"SELECT ?, {self._expression(table)} FROM {table.name} WHERE id > ? AND id < ?",
                f"SELECT id + ?, COALESCE(?, id) FROM {table.name}",
                f"SELECT id FROM {table.name} ORDER BY id",
                f"SELECT COUNT(*) FROM {table.name} WHERE id IN (?, ?)",
                f"UPDATE {table.name} SET {self._assignment(table)} WHERE id = ?",
                f"DELETE FROM {table.name} WHERE id = ?",
                f"INSERT INTO {table.name} (id) VALUES (?)",
                "SELECT f_read(?)",
                self.write(),
                self.read(),
            ]
        )

    # Writes.

    def write(self) -> str:
        """A change of rows."""
        if self.schema.rows and self.random.random() < 0.6:
            return self._write_of_rows()
        shapes: list[Callable[[], str]] = [
            *(self._insert, self._insert, self._insert, self._update, self._update, self._update),
            *(self._delete, self._delete, self._several, self._called, self._odd_write),
        ]
        return self.random.choice(shapes)()

    def _write_of_rows(self) -> str:
        random, table = self.random, self.schema.base_table()
        change, named = self._assignment(table), self._named_rows(table)
        keyed = random.choice([name for name in table.keyed if name in table.columns] or ["id"])
        moved = literal(random, table.columns.get(keyed, NUMBER))
        names, row = ", ".join(table.columns), self.schema.row(table)
        numbered = f"(id, {names}) VALUES ({random.randint(1, 7)}, {row})"
        return random.choice(
            [
                *(f"UPDATE {table.name} SET {change} WHERE {named}",) * 2,
                *(f"UPDATE IGNORE {table.name} SET {keyed} = {moved} WHERE {named}",) * 2,
                f"DELETE FROM {table.name} WHERE {named}",
                *(f"INSERT IGNORE INTO {table.name} ({names}) VALUES ({row})",) * 2,
                *(f"{verb} INTO {table.name} {numbered}" for verb in ("INSERT IGNORE", "REPLACE")),
                f"INSERT INTO {table.name} {numbered} ON DUPLICATE KEY UPDATE {change}",
            ]
        )

    def _assignment(self, table: Table) -> str:
        column, kind = self.random.choice(list(table.columns.items()) or [("id", NUMBER)])
        return f"{column} = {literal(self.random, kind)}"

    def _insert(self) -> str:
        random, table = self.random, self.schema.table()
        names, row = ", ".join(table.columns), self.schema.row(table)
        values = f"({names}) VALUES ({row})"
        other = self.schema.table()
        numbered = f"(id, {names}) VALUES ({random.randint(1, 9)}, {row})"
        return random.choice(
            [
                f"INSERT IGNORE INTO {table.name} {values}",
                f"INSERT INTO {table.name} {values}, ({row})",
                f"INSERT {table.name} SET {self._assignment(table)}",
                f"INSERT IGNORE INTO {table.name} (id)"
                f" SELECT id + 20 FROM {other.name} ORDER BY id",
                f"REPLACE INTO {table.name} {numbered}",
                f"INSERT IGNORE INTO {table.name} {numbered}"
                f" ON DUPLICATE KEY UPDATE {self._assignment(table)}",
                f"INSERT INTO {table.name} {numbered} RETURNING id",
                f"INSERT INTO {{db}}.{table.name} () VALUES ()",
                f"REPLACE {table.name} (id) TABLE {other.name}",
                f"INSERT DELAYED INTO {table.name} {values}",
            ]
        )

    def _update(self) -> str:
        random, table, other = self.random, self.schema.table(), self.schema.table()
        change = self._assignment(table)
        return random.choice(
            [
                f"UPDATE IGNORE {table.name} SET {change} WHERE {self._condition(table)}",
                f"UPDATE {table.name} SET {change} WHERE id <= 2",
                f"UPDATE {table.name} SET {change} ORDER BY id LIMIT 1",
                f"UPDATE {table.name} SET id = id + 50 WHERE id = {random.randint(1, 4)}",
                f"UPDATE {table.name} a JOIN {other.name} b ON a.id = b.id SET a.{change}",
                f"UPDATE {table.name} a, {other.name} b SET a.{change}"
                f" WHERE a.id = b.id AND b.id = {random.randint(1, 4)}",
                f"WITH q AS (SELECT 1 AS i) UPDATE {table.name}, q SET {change} WHERE id = q.i",
                f"UPDATE {table.name} SET {change} WHERE id = (SELECT MIN(id) FROM {other.name})",
            ]
        )

    def _delete(self) -> str:
        random, table, other = self.random, self.schema.table(), self.schema.table()
        number = random.randint(1, 6)
        return random.choice(
            [
                f"DELETE FROM {table.name} WHERE id = {number}",
                f"DELETE FROM {table.name} WHERE {self._condition(table)} ORDER BY id LIMIT 1",
                f"DELETE a FROM {table.name} a JOIN {other.name} b ON a.id = b.id WHERE b.id = 2",
                f"DELETE a, b FROM {table.name} a JOIN {other.name} b ON a.id = b.id"
                f" WHERE a.id = {number}",
                f"DELETE FROM a USING {table.name} AS a, {other.name} AS b WHERE a.id = b.id"
                f" AND a.id = {number}",
                f"DELETE IGNORE FROM {table.name} WHERE id = {number} RETURNING id",
                f"TRUNCATE TABLE {table.name}",
                f"WITH q AS (SELECT 2 AS i) DELETE FROM {table.name} WHERE id IN (SELECT i FROM q)",
            ]
        )

    def _several(self) -> str:
        """Several statements in one text."""
        makers: list[Callable[[], str]] = [self._insert, self._update, self._delete, self.read]
        parts = [self.random.choice(makers)() for _ in range(self.random.randint(2, 3))]
        return "; ".join(parts)

    def _called(self) -> str:
        random, table = self.random, self.schema.table()
        number = random.randint(1, 4)
        return random.choice(
            [
                *(f"CALL p_write({number})", "CALL p_grow()", "CALL p_mode()", "CALL p_temp()"),
                *("CALL p_rows()", "CALL p_out(@x)", "CALL p_commit()"),
                *(f"DO f_write({number})", f"SELECT f_write({number})"),
                f"SET @x = f_write({number})",
                f"SELECT id FROM {table.name} WHERE f_write({number}) = id",
            ]
        )

    def _odd_write(self) -> str:
        random, table = self.random, self.schema.table()
        change, number = self._assignment(table), random.randint(1, 4)
        inner = f"UPDATE {table.name} SET {change} WHERE id = {number}"
        quoted = inner.replace("\\", "\\\\").replace("'", "''")
        return random.choice(
            [
                f"/*!40101 {inner} */",
                f"/*M! {inner} */",
                f"/*!99999 {inner} */ SELECT 1",
                f"/*!80000 {inner} */",
                f"/*M!100100 {inner} */",
                f"{inner} /*!80000 AND 1 = 0 */ /*M!100100 AND 1 = 1 */",
                f"SET STATEMENT sql_mode = '' FOR {inner}",
                f"PREPARE p FROM '{quoted}'",
                *("EXECUTE p", "EXECUTE p", "DEALLOCATE PREPARE p"),
                f"EXECUTE IMMEDIATE '{quoted}'",
                f"PREPARE p FROM 'SELECT id FROM {table.name} ORDER BY id'",
                f"BEGIN NOT ATOMIC {inner}; END",
                f"EXPLAIN {inner}",
                f"ANALYZE SELECT 1 FROM {table.name} WHERE 0 AND f_write(1)",
                f"SELECT 1; {inner}; SELECT id FROM {table.name} ORDER BY id",
            ]
        )

    # Definitions.

    def definition(self) -> str:
        """A change of the schema; it commits."""
        random = self.random
        table, other = self.schema.base_table(), self.schema.base_table()
        self.made_tables += 1
        new = f"n{self.made_tables % 4}"
        column = random.choice(table.readable[1:] or ["id"])
        made = random.choice(
            [
                f"ALTER TABLE {table.name} ADD COLUMN {new} INT DEFAULT {random.randint(1, 9)}",
                f"ALTER TABLE {table.name} DROP COLUMN {column}",
                f"ALTER TABLE {table.name} CHANGE {column} {column} VARCHAR(30)",
                f"ALTER TABLE {table.name} ENGINE={random.choice(['InnoDB', 'MyISAM'])}",
                f"ALTER TABLE {table.name} ADD INDEX ({column})",
                f"ALTER TABLE {table.name} RENAME TO {new}",
                f"RENAME TABLE {table.name} TO swap, {other.name} TO {table.name},"
                f" swap TO {other.name}",
                f"CREATE TABLE {new} LIKE {table.name}",
                f"CREATE TABLE {new} AS SELECT * FROM {table.name} ORDER BY id",
                f"CREATE OR REPLACE TABLE {new} (id INT PRIMARY KEY, c0 INT)",
                f"DROP TABLE IF EXISTS {new}",
                f"DROP TABLE {table.name}",
                f"CREATE TEMPORARY TABLE {table.name} (id INT PRIMARY KEY, c0 INT)",
                f"CREATE TEMPORARY TABLE {table.name} SELECT 99 AS id",
                # In lower case they do not spend a session: they hide nothing that it reads.
                "CREATE temporary TABLE IF NOT EXISTS of_its_own (id INT)",
                f"CREATE temporary TABLE of_its_own SELECT * FROM {table.name}",
                f"CREATE temporary TABLE of_its_own LIKE {table.name}",
                "DROP temporary TABLE of_its_own",
                f"DROP TEMPORARY TABLE {table.name}",
                f"DROP TEMPORARY TABLE IF EXISTS {table.name}",
                *("DROP VIEW v0", "DROP VIEW IF EXISTS v1, v2", "DROP TRIGGER tr0"),
                *("DROP TRIGGER IF EXISTS tr1", "DROP PROCEDURE IF EXISTS p_grow"),
                *(self.schema.trigger(), self.schema.trigger(), self.schema.view()),
                f"ALTER TABLE {table.name} CONVERT TO CHARACTER SET latin1",
                f"ALTER TABLE {table.name} PARTITION BY HASH (id) PARTITIONS 2",
                f"ALTER TABLE {table.name} TRUNCATE PARTITION p0",
                f"ALTER TABLE {table.name} ALTER {column} SET DEFAULT '1'",
                f"ANALYZE TABLE {table.name}",
                "ALTER DATABASE CHARACTER SET latin1",
                "CREATE TABLE {db}x.other (id INT)",
                "CREATE DATABASE IF NOT EXISTS {db}x",
                "DROP DATABASE IF EXISTS {db}x",
                "CREATE FUNCTION f_read(n INT) RETURNS INT NO SQL RETURN 7",
                "DROP FUNCTION IF EXISTS f_read",
            ]
        )
        if made.startswith("CREATE TABLE n"):
            columns = dict(table.columns) if "OR REPLACE" not in made else {"c0": NUMBER}
            self.schema.tables.append(Table(new, columns))
        return made

    def privilege(self) -> str:
        """A change of what the limited account may do."""
        table = self.schema.table().name
        return self.random.choice(
            [
                f"GRANT SELECT ON {{db}}.{table} TO {{user}}",
                f"REVOKE SELECT ON {{db}}.{table} FROM {{user}}",
                f"GRANT SELECT (id) ON {{db}}.{table} TO {{user}}",
                f"GRANT INSERT, UPDATE ON {{db}}.{table} TO {{user}}",
                f"GRANT SELECT ON {{db}}.{table} TO {{user}}r",
                f"REVOKE ALL ON {{db}}.{table} FROM {{user}}r",
                "GRANT SELECT ON {db}.* TO {user}",
                "REVOKE SELECT ON {db}.* FROM {user}",
                "GRANT {user}r TO {user}",
                "SET DEFAULT ROLE {user}r TO {user}",
                "SET DEFAULT ROLE {user}r FOR {user}",
                "REVOKE {user}r FROM {user}",
                "FLUSH PRIVILEGES",
            ]
        )
