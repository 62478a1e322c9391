"""MySQL as the model sees it: one register a table, whose value is the number of its commits.

What is assumed of it, and no more: a statement whose process is killed, frozen, or cut from
MySQL or memcached is over within half the write deadline.
"""

import asyncio
from dataclasses import dataclass

from sqlcache.errors import ConnectionLost
from tests.coherence import model_rows
from tests.coherence.model_rows import TABLES, Probe, carry_out

QUERIES = ("a", "ab", "b")
"""A query, and a write, is of the tables its name has."""
EVERYTHING = "*"
"""A write of which nobody knows what it changes."""

REGISTERS = (*TABLES, *model_rows.REGISTERS)

Values = dict[str, int]
ROWS = "rows"
"""In the answer to a query: how many rows it has."""


@dataclass(eq=False, slots=True)
class Statement:
    """A statement MySQL has got and not yet carried out. `latest`: when it must be over."""

    name: str
    process: str
    tables: tuple[str, ...] | tuple[Probe]
    """Or, of a probe, that."""
    writes: bool
    answer: "asyncio.Future[Values]"
    latest: float = float("inf")
    orphan: bool = False
    """Nobody waits for its answer."""


class Database:
    """The registers, and the statements under way by name.

    The answer to a write of rows tells what it has changed; or, where it `tells_of_tables`, of its
    tables whatever the writes before it have.
    """

    def __init__(self, *, tells_of_tables: bool = False) -> None:
        self._tells_of_tables = tells_of_tables
        self.values = dict.fromkeys(REGISTERS, 0)
        self.rows: model_rows.Rows = {0: 0, 1: 1}
        self.statements: dict[str, Statement] = {}

    def send(self, statement: Statement) -> None:
        self.statements[statement.name] = statement

    def end(self, name: str, *, commits: bool) -> bool:
        """Carries the statement out, or rolls it back; False if there is none of this name."""
        statement = self.statements.pop(name, None)
        if statement is None:
            return False
        tables = statement.tables
        if isinstance(tables[0], Probe):
            found = dict.fromkeys(model_rows.probed(tables[0], self.rows), 1)
            statement.answer.get_loop().call_soon(_resolve, statement.answer, found)
            return True
        told: tuple[str, ...] = ()
        if tables[0] in model_rows.WRITES:
            changes = statement.writes and commits
            told = model_rows.registers_of(tables[0]) if changes and self._tells_of_tables else ()
            tables = tuple(sorted(carry_out(tables[0], self.rows))) if changes else ()
        if statement.writes and commits:
            for table in tables:
                self.values[table] += 1
        if not statement.orphan:
            loop = statement.answer.get_loop()
            answer = self.look((*told, *tables))
            if not statement.writes:
                answer[ROWS] = model_rows.count(tables[0], self.rows)
            loop.call_soon(_resolve, statement.answer, answer)
        return True

    def look(self, tables: tuple[str, ...]) -> Values:
        """What the registers hold now."""
        return {table: self.values[table] for table in tables}

    def lose(self, name: str, latest: float) -> bool:
        """The connection breaks; the statement may still be carried out."""
        statement = self.statements.get(name)
        if statement is None or statement.orphan:
            return False
        statement.orphan = True
        statement.latest = min(statement.latest, latest)
        loop = statement.answer.get_loop()
        loop.call_soon(_fail, statement.answer, ConnectionLost("lost"))
        return True

    def hasten(self, process: str, latest: float) -> None:
        """The process's statements are over by then."""
        for statement in self.statements.values():
            if statement.process == process:
                statement.latest = min(statement.latest, latest)

    def overdue(self, now: float) -> list[str]:
        """The statements that must be over."""
        return [each.name for each in self.statements.values() if each.latest <= now]

    def next_end(self) -> float:
        """When the next statement must be over."""
        return min((each.latest for each in self.statements.values()), default=float("inf"))


def tables_of(name: str) -> tuple[str, ...]:
    """The registers of a query, or the tables of a write; of one of rows its name."""
    if name in model_rows.QUERIES:
        return tuple(model_rows.parts_of(name))
    if name in model_rows.WRITES:
        return (name,)
    return TABLES if name == EVERYTHING else tuple(table for table in TABLES if table in name)


def _resolve(future: "asyncio.Future[Values]", values: Values) -> None:
    if not future.done():
        future.set_result(values)


def _fail(future: "asyncio.Future[Values]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
