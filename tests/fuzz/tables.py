"""Random schemas: the statements that make one, and what later statements may name in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

TEXT, NUMBER, TIME, OTHER = "text", "number", "time", "other"

_TYPES = [
    ("INT", NUMBER),
    ("BIGINT UNSIGNED", NUMBER),
    ("TINYINT(1)", NUMBER),
    ("DECIMAL(10,3)", NUMBER),
    ("DOUBLE", NUMBER),
    ("FLOAT", NUMBER),
    ("YEAR", NUMBER),
    ("BIT(9)", OTHER),
    ("DATE", TIME),
    ("DATETIME(3)", TIME),
    ("TIME", TIME),
    ("TIMESTAMP NULL", TIME),
    ("CHAR(8)", TEXT),
    ("VARCHAR(20)", TEXT),
    ("VARCHAR(20) CHARACTER SET latin1", TEXT),
    ("VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", TEXT),
    ("VARCHAR(20) CHARACTER SET gbk", TEXT),
    ("VARBINARY(20)", OTHER),
    ("TEXT", TEXT),
    ("BLOB", OTHER),
    ("ENUM('a','B','é')", TEXT),
    ("SET('x','y','z')", TEXT),
    ("JSON", OTHER),
]
_PINNED_TYPES = [each for each in _TYPES if each[1] in (TEXT, NUMBER)]
_ENGINES = ["InnoDB"] * 8 + ["MyISAM", "MyISAM", "MEMORY", "Aria"]
_LITERALS = {
    NUMBER: ["0", "1", "2", "-1", "7", "3.5", "NULL", "99", "1e3", "'12'", "2024"],
    TEXT: [
        *("'a'", "'A'", "'B'", "'é'", "''", "'x'", "'x,y'", "'it''s'", r"'back\\slash'", "NULL"),
        *(r"'\''", "'日本'", "'a '", '"q"', "_latin1'a'", "N'é'", "x'41'", "'%a_'", "'z' 'w'"),
    ],
    TIME: ["'2024-02-29'", "'2024-01-01 10:11:12.345'", "'10:11:12'", "NULL", "20240131", "'bad'"],
    OTHER: ["'1'", "NULL", "'[1, 2]'", """'{"k": "v"}'""", "b'101'", "x'00ff'", "'a'"],
}


def literal(random: Random, kind: str) -> str:
    """A value for a column of a kind, now and then for one of another."""
    if random.random() < 0.05:
        kind = random.choice(list(_LITERALS))
    return random.choice(_LITERALS[kind])


@dataclass(slots=True)
class Table:
    """A table, or a view of the same columns. The first column is always `id`."""

    name: str
    columns: dict[str, str]
    """Names and kinds of the columns one may write."""
    computed: list[str] = field(default_factory=list)
    engine: str = "InnoDB"
    is_view: bool = False
    keyed: list[str] = field(default_factory=lambda: ["id"])
    """Columns that an index begins with."""
    paired: list[str] = field(default_factory=list)
    """Two that a unique index begins with, or none."""

    @property
    def readable(self) -> list[str]:
        return ["id", *self.columns, *self.computed]


@dataclass(slots=True)
class Schema:
    """What a run's statements may name; that it exists is not promised. `rows`: most of them name
    rows by a column that is indexed."""

    random: Random
    rows: bool = False
    tables: list[Table] = field(default_factory=list)
    routines: list[str] = field(default_factory=list)

    def table(self) -> Table:
        return self.random.choice(self.tables)

    def base_table(self) -> Table:
        return self.random.choice([table for table in self.tables if not table.is_view])

    def creation(self) -> list[str]:
        """The statements that make it."""
        random = self.random
        statements = []
        for number in range(random.randint(2, 4)):
            statements.append(self._table(f"t{number}"))
            statements += self._rows(self.tables[-1])
        if random.random() < 0.6:
            statements.append(self._log_table())
            statements += [self.trigger() for _ in range(random.randint(1, 3))]
        statements += [self.view() for _ in range(random.randint(0, 3))]
        statements += self._routines()
        return statements

    def _table(self, name: str) -> str:
        random = self.random
        table = Table(name, {}, engine=random.choice(_ENGINES))
        parts = ["id INT NOT NULL AUTO_INCREMENT PRIMARY KEY"]
        for number in range(random.randint(2, 5)):
            definition, kind = random.choice(_PINNED_TYPES if self.rows else _TYPES)
            if table.engine == "MEMORY" and definition in ("TEXT", "BLOB", "JSON"):
                definition, kind = "INT", NUMBER
            column = random.choice(["c", "c", "C", "col "]).strip() + str(number)
            table.columns[column] = kind
            parts.append(f"{column} {definition}")
        parts += self._keys(table)
        self.tables.append(table)
        return f"CREATE TABLE {name} ({', '.join(parts)}) ENGINE={table.engine}"

    def _keys(self, table: Table) -> list[str]:
        random = self.random
        parts = []
        numbers = [name for name, kind in table.columns.items() if kind == NUMBER]
        if numbers and random.random() < 0.4:
            stored = random.choice(["STORED", "STORED" if self.rows else "VIRTUAL"])
            parts.append(f"g INT GENERATED ALWAYS AS ({numbers[0]} + 1) {stored}")
            table.computed.append("g")
        if numbers and random.random() < 0.5:
            parts.append(f"{random.choice(['KEY', 'UNIQUE KEY'])} k ({numbers[0]})")
            table.keyed.append(numbers[0])
        if self.rows:
            parts += self._more_keys(table) + self._pair(table)
        parents = [t for t in self.tables if t.engine == table.engine == "InnoDB"]
        if parents and random.random() < 0.6:
            table.columns["parent"] = NUMBER
            update, delete = (
                random.choice(["CASCADE", "SET NULL", "RESTRICT", "NO ACTION"]) for _ in range(2)
            )
            table.keyed.append("parent")
            parts.append("parent INT")
            parts.append(
                f"FOREIGN KEY (parent) REFERENCES {random.choice(parents).name} (id)"
                f" ON UPDATE {update} ON DELETE {delete}"
            )
        return parts

    def _more_keys(self, table: Table) -> list[str]:
        """Of texts, too, and of several columns, or a part of one."""
        texts = [name for name, kind in table.columns.items() if kind == TEXT]
        if not texts:
            return []
        column = self.random.choice(texts)
        table.keyed.append(column)
        many, kind = f"{column}(4), id", self.random.choice(["KEY", "KEY", "UNIQUE KEY"])
        parts = self.random.choice([f"{column}(8)", many, f"id, {column}(3)"])
        return [f"{kind} kt ({parts})"]

    def _pair(self, table: Table) -> list[str]:
        """A unique index that begins with two columns."""
        told = [name for name, kind in table.columns.items() if kind in (TEXT, NUMBER)]
        if len(told) < 2 or self.random.random() < 0.4:
            return []
        table.paired = self.random.sample(told, 2)
        names = [f"{name}(9)" if table.columns[name] == TEXT else name for name in table.paired]
        names += self.random.choice([[], ["id"], ["id"]])
        return [f"UNIQUE KEY kp ({', '.join(names)})"]

    def _rows(self, table: Table) -> list[str]:
        return [
            f"INSERT IGNORE INTO {table.name} ({', '.join(table.columns)}) VALUES ({row})"
            for row in (self.row(table) for _ in range(self.random.randint(1, 6)))
        ]

    def row(self, table: Table) -> str:
        """Values for all columns one may write."""
        return ", ".join(literal(self.random, kind) for kind in table.columns.values())

    def _log_table(self) -> str:
        self.tables.append(Table("log", {"c0": TEXT, "n": NUMBER}))
        engine = self.random.choice(["InnoDB", "InnoDB", "MyISAM"])
        return (
            "CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, c0 VARCHAR(30), n INT)"
            f" ENGINE={engine}"
        )

    def trigger(self) -> str:
        """A trigger on some table that writes another."""
        random = self.random
        table = self.base_table()
        event = random.choice(["INSERT", "UPDATE", "DELETE"])
        when = random.choice(["BEFORE", "AFTER"])
        row = "OLD" if event == "DELETE" else "NEW"
        bodies = [
            f"INSERT INTO log (c0, n) VALUES ('{event}', {row}.id)",
            f"UPDATE log SET n = n + 1 WHERE id = {row}.id",
            f"BEGIN DELETE FROM log WHERE n = {row}.id; SET @seen = {row}.id; END",
            f"IF {row}.id > 2 THEN INSERT INTO log (n) SELECT COUNT(*) FROM log; END IF",
        ]
        number = random.randint(0, 3)
        return (
            f"CREATE TRIGGER tr{number} {when} {event} ON {table.name} FOR EACH ROW"
            f" {random.choice(bodies)}"
        )

    def view(self) -> str:
        """A view on some table or view."""
        random = self.random
        under, name = self.table(), f"v{random.randint(0, 2)}"
        columns = dict(random.sample(list(under.columns.items()), min(2, len(under.columns))))
        listed = ", ".join(["id", *columns])
        tail = random.choice(["", " WHERE id > 1", " WHERE id < 5 WITH CHECK OPTION"])
        algorithm = random.choice(["", "ALGORITHM=MERGE ", "ALGORITHM=TEMPTABLE "])
        security = random.choice(["", "SQL SECURITY INVOKER ", "SQL SECURITY DEFINER "])
        self.tables = [table for table in self.tables if table.name != name or table is under]
        if under.name != name:
            self.tables.append(Table(name, columns, is_view=True))
        replace = random.choice(["OR REPLACE ", "OR REPLACE ", ""])
        return (
            f"CREATE {replace}{algorithm if 'CHECK' not in tail else ''}{security}VIEW {name} AS"
            f" SELECT {listed} FROM {under.name}{tail}"
        )

    def _routines(self) -> list[str]:
        random = self.random
        table, other = self.base_table().name, self.base_table().name
        made = {
            "p_write": f"PROCEDURE p_write(n INT) UPDATE {table} SET id = id WHERE id = n",
            "p_grow": f"PROCEDURE p_grow() BEGIN DELETE FROM {table} WHERE id > 3;"
            f" SELECT COUNT(*) FROM {other}; END",
            "p_mode": "PROCEDURE p_mode() SET SESSION sql_mode = 'ANSI_QUOTES'",
            "p_temp": f"PROCEDURE p_temp() CREATE TEMPORARY TABLE {table} (id INT, x INT)",
            "p_commit": f"PROCEDURE p_commit() BEGIN INSERT INTO {table} () VALUES (); COMMIT; END",
            "p_rows": "PROCEDURE p_rows() BEGIN DECLARE i INT; DECLARE done INT DEFAULT 0;"
            f" DECLARE c CURSOR FOR SELECT id FROM {table} ORDER BY id;"
            " DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;"
            " OPEN c; turns: LOOP FETCH c INTO i; IF done THEN LEAVE turns; END IF;"
            f" SELECT i; END LOOP; CLOSE c; SELECT COUNT(*) FROM {other}; END",
            "p_out": f"PROCEDURE p_out(OUT x INT) SELECT MAX(id) INTO x FROM {table}",
            "f_write": "FUNCTION f_write(n INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
            f" BEGIN UPDATE {table} SET id = id + 100 WHERE id = n; RETURN n; END",
            "f_read": "FUNCTION f_read(n INT) RETURNS INT READS SQL DATA"
            f" RETURN (SELECT COUNT(*) FROM {table} WHERE id < n)",
            "soundex2": "FUNCTION soundex2(s TEXT) RETURNS TEXT DETERMINISTIC NO SQL RETURN s",
        }
        chosen = random.sample(list(made), random.randint(0, 3))
        self.routines = chosen
        return [f"CREATE {made[name]}" for name in chosen]
