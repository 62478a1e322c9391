"""Reads the texts of statements: what they do by themselves, and what code that they run adds.

A statement's shape is analysed once, for all texts of that shape that are read the same way.
"""

import asyncio
import gc
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, TypeVar

from sqlcache.cache.bounded import Bounded, weigh
from sqlcache.errors import SqlSyntaxError
from sqlcache.plan.cacheability import calls_stored
from sqlcache.plan.commands import QUERY_VERBS
from sqlcache.plan.keeper import Keeper
from sqlcache.plan.state import SessionState
from sqlcache.sql.analysis import analyse, literals
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import SYSTEM_SCHEMAS
from sqlcache.sql.lexer import Lexed, lex, tokenize
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.routines import NONE_DECLARED, Declared
from sqlcache.sql.shaping import GLOBALS_THAT_SHAPE_ANSWERS
from sqlcache.sql.statement import (
    FoundRows,
    Kind,
    Locks,
    Statement,
    Told,
    changed,
    in_turn_once,
    of_each,
    unknown,
)
from sqlcache.sql.versioned import Opens

T = TypeVar("T")

ON_THE_LOOP_BYTES = 8_192
"""Of a command whose text is read at once: a longer one is read in a thread."""

JUDGED_ON_THE_LOOP_BYTES = 512
"""Likewise, where what it says is not known yet: that takes 30 to 50 times as long, 1 ms for 40 to
300 bytes."""

_LOGGED_ON_THE_LOOP_BYTES = 4_096  # some 6 ms
_LONG_BYTES = 65_536  # of a text that shorter ones do not wait for
_OF_ROWS = QUERY_VERBS | {"INSERT", "REPLACE", "UPDATE", "DELETE", "DO"}
_TEXT_DECIDES = frozenset({"SET", "USE", "PREPARE", "EXECUTE"})
"""Verbs whose literals change what the statement does; their analysis is not shared."""


def _uncollected(work: Callable[..., T], *args: object) -> T:
    """Does it without collections of garbage: what is made of a long text is much, and in no cycle,
    and who walks all that again and again lets no other thread run meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return work(*args)
    finally:
        if collects:
            gc.enable()


class Way(NamedTuple):
    """How texts are read: what else than their shape decides what their statements are.

    `formats`: what the literals of their functions say is known, see `Variables.reads_formats`.
    `opens`: see `Server`.
    """

    dialect: Dialect
    several: bool
    prepared: bool
    declared: Declared
    formats: bool
    opens: Opens | None = None

    def analyse(self, text: bytes) -> tuple[Statement, ...]:
        """What the statements of a text do by themselves."""
        return analyse(
            text,
            self.dialect,
            multi_statements=self.several,
            parameters_allowed=self.prepared,
            declared=self.declared,
            opens=self.opens,
        )

    def analyse_and_weigh(self, text: bytes) -> tuple[tuple[Statement, ...], int | None]:
        """The same with what that takes to be remembered, for other texts of its shape; None where
        that may not be. Of a long text that is much to count."""
        known = self.analyse(text)
        return known, None if literals_decide(known) else weigh(known)

    def is_told(self, known: tuple[Statement, ...]) -> bool:
        """Whether the literals of a text tell more of its only statement than its shape."""
        return self.formats and len(known) == 1 and known[0].may_tell is not Told.NOTHING

    def told(self, text: bytes, known: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """What is known of texts of a shape, with what the literals of this one tell."""
        if not self.is_told(known):
            return known
        told = literals.tell(tokenize(text, self.dialect)) & known[0].may_tell
        return (changed(known[0], told=told),)


class Ahead(NamedTuple):
    """A text that was read in a thread; `lexed` is None where it cannot be split."""

    lexed: Lexed | None
    way: Way
    statements: tuple[Statement, ...]


class Reader:
    """One process's reading of texts, by the catalog of the keeper."""

    def __init__(self, keeper: Keeper, *, max_bytes: int) -> None:
        self._keeper = keeper
        self._statements: Bounded[tuple[bytes, Way], tuple[Statement, ...]] = Bounded(max_bytes)
        # One thread each: every other one that runs is one more that the event loop waits for.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlcache-reader")
        self._long_thread = ThreadPoolExecutor(1, thread_name_prefix="sqlcache-long-reader")

    def close(self) -> None:
        """Reads no long text any more."""
        for thread in (self._thread, self._long_thread):
            thread.shutdown(wait=False, cancel_futures=True)

    @property
    def size_bytes(self) -> int:
        """What is remembered of texts, roughly."""
        return self._statements.size_bytes

    def statements(
        self, lexed: Lexed, text: bytes, state: SessionState, *, prepared: bool = False
    ) -> tuple[Statement, ...]:
        """What the statements of a text in UTF-8 do by themselves, analysed once a shape."""
        way = self._way_to_read(state, prepared=prepared)
        known = self._statements.get((lexed.shape, way))
        if known is None:
            known = self._kept(lexed.shape, way, way.analyse_and_weigh(text))
        return way.told(text, known)

    async def read_ahead(
        self, text: bytes, state: SessionState, *, prepared: bool, at_once: bool = False
    ) -> Ahead:
        """Reads a text in UTF-8 in a thread: one that is long may take seconds. `at_once`: it is
        short enough to be split here."""
        way = self._way_to_read(state, prepared=prepared)
        try:
            lexed = lex(text, way.dialect) if at_once else await self.apart(lex, text, way.dialect)
        except SqlSyntaxError:
            return Ahead(None, way, ())
        return Ahead(lexed, way, await self._analysed_apart(lexed, text, way))

    async def statements_apart(
        self, lexed: Lexed, text: bytes, state: SessionState, *, prepared: bool
    ) -> tuple[Statement, ...]:
        """The same as `statements`, analysed in a thread."""
        way = self._way_to_read(state, prepared=prepared)
        return await self._analysed_apart(lexed, text, way)

    async def _analysed_apart(self, lexed: Lexed, text: bytes, way: Way) -> tuple[Statement, ...]:
        known = self._statements.get((lexed.shape, way))
        if known is None:
            known = self._kept(lexed.shape, way, await self.apart(way.analyse_and_weigh, text))
        return await self.apart(way.told, text, known) if way.is_told(known) else known

    async def logged(
        self, shape: bytes, text: bytes, schema: str | None, dialect: Dialect
    ) -> tuple[Statement, ...]:
        """What a statement that the server has logged does by itself, analysed once a shape; b"" is
        none."""
        declared = self.declared(schema)
        way = Way(dialect, several=False, prepared=False, declared=declared, formats=True)
        known = self._statements.get((shape, way)) if shape else None
        if known is None:
            long = len(text) > _LOGGED_ON_THE_LOOP_BYTES
            judge = way.analyse_and_weigh
            known = self._kept(shape, way, await self.apart(judge, text) if long else judge(text))
        return known

    def read_so(self, ahead: Ahead, state: SessionState, *, prepared: bool) -> bool:
        """Whether a text would still be read as it was ahead."""
        return ahead.way == self._way_to_read(state, prepared=prepared)

    def _way_to_read(self, state: SessionState, *, prepared: bool) -> Way:
        several = state.multi_statements and not prepared
        formats = state.variables.reads_formats
        declared = self.declared(state.schema)
        return Way(state.dialect, several, prepared, declared, formats, self._opens)

    def _kept(
        self, shape: bytes, way: Way, judged: tuple[tuple[Statement, ...], int | None]
    ) -> tuple[Statement, ...]:
        """What was found out of a text, which is remembered for others of its shape."""
        known, size = judged
        if shape and size is not None:
            self._statements.put((shape, way), known, size + len(shape))
        return known

    async def apart(self, work: Callable[..., T], text: bytes, *args: object) -> T:
        """Does in a thread what takes long for such a text: other clients need not wait for it."""
        thread = self._thread if len(text) <= _LONG_BYTES else self._long_thread
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, _uncollected, work, text, *args)

    def head(self, text: bytes, state: SessionState) -> tuple[Statement, ...]:
        """What a text does of which only the first part is at hand, if it is one statement: an
        INSERT may write anything where another may follow it, or functions be called further on.
        """
        catalog = self._keeper.catalog
        if catalog is None:
            return (unknown("", "only its head is known"),)
        known = analyse(text, state.dialect, head=True)
        known = tuple(changed(s, untold=frozenset()) for s in known)
        if state.multi_statements or catalog.stored.functions:
            opaque = catalog.stored.unruly
            known = tuple(
                replace(
                    s,
                    writes_everything=True,
                    by_code=False,
                    opaque_session=s.opaque_session or opaque,
                )
                for s in known
            )
        return known

    @property
    def _opens(self) -> Opens | None:
        """Which versioned comments the server that is there now runs."""
        catalog = self._keeper.catalog
        return catalog.server.opens if catalog is not None and self._keeper.is_met else None

    def declared(self, schema: str | None) -> Declared:
        """The declared routines, for texts with this default schema."""
        catalog = self._keeper.catalog
        return NONE_DECLARED if catalog is None else catalog.server.declared_under(schema)

    def with_code_they_run(
        self, statements: Sequence[Statement], schema: str | None
    ) -> tuple[Statement, ...]:
        """The statements of one text, with what routines and triggers may do to their session."""
        return tuple(of_each(self._with_code_it_runs, statements, schema))

    def leads_elsewhere(self, statements: Sequence[Statement], schema: str | None) -> bool:
        """Whether the server may go to another schema for statements of one text: for a trigger;
        to load a routine that they call, or a view or a trigger does, or, where views are looked
        at, whatever they call; and MariaDB to open a view."""
        catalog = self._keeper.catalog
        if catalog is None or not catalog.code.some_leads_elsewhere:
            return catalog is None
        turns = in_turn_once(statements, schema)
        return any(_leads_elsewhere(each, default, catalog) for each, default in turns)

    def _with_code_it_runs(self, statement: Statement, schema: str | None) -> Statement:
        catalog = self._keeper.catalog
        if catalog is None:
            runs_code = statement.called is not None or statement.calls_stored
            return changed(statement, code_leaves=runs_code or bool(statement.writes))
        statement = changed(statement, code_leaves=self._code_leaves(statement, schema))
        if not statement.globals_set.isdisjoint(GLOBALS_THAT_SHAPE_ANSWERS):
            return statement
        if statement.globals_set:
            return replace(statement, changes_globals=False, writes_everything=False)
        if statement.called is not None:
            name = catalog.server.resolve(statement.called, schema)
            unknown_code = name is None or name.schema.lower() in SYSTEM_SCHEMAS
            unruly = unknown_code or catalog.stored.unruly
            if self._keeper.reach_of(statement, schema) is not None:
                unruly = self._is_unruly(statement, schema)
            return changed(statement, opaque_session=unruly, changes_globals=unruly)
        likes = catalog.server.named(statement.reads, schema) if statement.temporary_created else ()
        if any(map(catalog.definitions.merges, likes)):
            return replace(statement, merges=True)
        statement = self._with_what_it_counts(statement, schema)
        statement = self._with_what_code_asks(statement, schema)
        if self._is_unruly(statement, schema):
            return changed(statement, opaque_session=True, calls_stored=True)
        return statement

    def _code_leaves(self, statement: Statement, schema: str | None) -> bool:
        """Whether code that it runs may leave something in its session. What a declared function
        does is declared."""
        catalog = self._keeper.catalog
        assert catalog is not None
        reach = self._keeper.reach_of(statement, schema)
        calls = statement.called is not None or bool(statement.code)
        calls |= bool(calls_stored(statement, catalog))
        if calls and (reach is None or reach.leaves):
            return True
        reads = catalog.server.named(statement.reads, schema)
        written = catalog.server.named(statement.writes, schema)
        if reach is not None:
            written |= reach.tables
        return catalog.code.may_leave_something(reads, written)

    def _with_what_it_counts(self, statement: Statement, schema: str | None) -> Statement:
        """With what FOUND_ROWS() is after a change of one table: MySQL counts what an UPDATE finds.

        Not where a view may hold a subquery, or a function another.
        """
        catalog = self._keeper.catalog
        if catalog is None or not statement.one_table or statement.calls_stored:
            return statement
        closure = catalog.reads.closure(catalog.server.named(statement.writes, schema))
        keeps = statement.verb == "DELETE" or self._keeper.is_mariadb
        after = FoundRows.KEPT if keeps else FoundRows.COUNTED_IF_ANY
        return changed(statement, after=FoundRows.UNSURE if closure.views else after)

    def _with_what_code_asks(self, statement: Statement, schema: str | None) -> Statement:
        """With what the code that it runs may ask of the statements before it."""
        catalog = self._keeper.catalog
        assert catalog is not None
        reads = catalog.server.named(statement.reads, schema)
        writes = catalog.server.named(statement.writes, schema)
        asked = catalog.code.looks_back(reads, writes) if reads or writes else frozenset()
        if not asked:
            return statement
        found_rows = statement.found_rows or b"FOUND_ROWS" in asked
        return replace(statement, found_rows=found_rows, code_looks_back=True)

    def _is_unruly(self, statement: Statement, schema: str | None) -> bool:
        catalog = self._keeper.catalog
        assert catalog is not None
        reach = self._keeper.reach_of(statement, schema)
        written = catalog.server.named(statement.writes, schema)
        if reach is not None:
            written |= reach.tables
        if written and catalog.code.unruly_is_fired_by(written):
            return True
        if not catalog.stored.unruly:
            return False
        if statement.verb == "PREPARE" and self._keeper.is_mariadb:  # which may call functions
            return catalog.code.may_be_called_by(statement.text)
        calls = statement.calls_stored or bool(calls_stored(statement, catalog))
        views = catalog.reads.closure(catalog.server.named(statement.reads, schema))
        return (calls and reach is None) or views.may_write


def literals_decide(statements: Iterable[Statement]) -> bool:
    """Whether other texts of the same shape may do something else."""
    return any(statement.verb in _TEXT_DECIDES for statement in statements)


def _leads_elsewhere(statement: Statement, schema: str | None, catalog: Catalog) -> bool:
    shows_none = statement.verb == "SHOW" and statement.diagnostic
    if shows_none or (statement.kind is Kind.TRANSACTION and statement.locks is not Locks.LOCK):
        return False
    if statement.code or statement.routines or calls_stored(statement, catalog):
        return True
    if statement.kind is Kind.SESSION and not statement.reads:
        return statement.verb == "PREPARE" and catalog.code.text_leads_elsewhere(statement.text)
    if statement.verb not in _OF_ROWS or statement.writes_everything:
        return True
    reads = catalog.server.named(statement.reads, schema)
    writes = catalog.server.named(statement.writes, schema)
    return catalog.code.leads_elsewhere(reads, writes, schema)
