"""What code a statement runs that is not in it, and what that may do: routines that it calls, what
views call, and what triggers do."""

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple, TypeGuard

from sqlcache.sql.catalog.bodies import Bodies
from sqlcache.sql.catalog.definitions import MAX_REMEMBERED, MOST_NAMES, Definitions
from sqlcache.sql.catalog.reads import Reads
from sqlcache.sql.catalog.server import SYSTEM_SCHEMAS
from sqlcache.sql.catalog.stored import NO_ROUTINE, Stored
from sqlcache.sql.catalog.writes import Writes
from sqlcache.sql.facts import StoredRoutine, Trigger, View
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.routines import FEIGNING_ERRORS, LOCKING, LOOKING_BACK, WATCHED, watched_words

_MADE_WHEN_READ = SYSTEM_SCHEMAS - {"mysql"}
"""Those of them whose rows the server makes amid a statement, and only then looks at some of the
rights on them; and whose views call functions."""

_CALLS = re.compile(r"\bCALL\b", re.IGNORECASE)

_MOST_REACHES = 512
"""Of what different calls may write, which may be every table there is."""

_MOST_FIRED = 64  # sets of tables, each as large
_MOST_SEARCHED = 32_768
_WORD = re.compile(r"[a-z_$][a-z0-9_$]*")
"""In lower case. The version of `/*!50000f()*/` is none of it."""


class CodeReach(NamedTuple):
    """What routines may write, the schemas whose definitions say so, and all names, in lower case,
    that may be tables'. Some of them `leaves` something, see `routines.leaves_something`."""

    tables: frozenset[TableName]
    schemas: frozenset[str]
    named: frozenset[str]
    leaves: bool = False


class _NamesOfCode(NamedTuple):
    """Functions and views: those whose names are words, and the others."""

    functions: frozenset[str]
    other_functions: list[str]
    views: dict[str, list[TableName]]
    other_views: list[tuple[str, TableName]]


class Code:
    """By these definitions, and routines."""

    def __init__(
        self,
        definitions: Definitions,
        stored: Stored,
        bodies: Bodies,
        reads: Reads,
        writes: Writes,
    ) -> None:
        self._server = definitions.server
        self._definitions = definitions
        self._stored = stored
        self._bodies = bodies
        self._reads = reads
        self._writes = writes
        # A text may have a thousand statements that run the same code.
        self._reached = lru_cache(_MOST_REACHES)(self._reach)
        self._loads_any = lru_cache(MAX_REMEMBERED)(self._may_load_any)
        self._body_leads_elsewhere = lru_cache(MAX_REMEMBERED)(self._body_may_lead_elsewhere)
        self._unruly_fired = lru_cache(_MOST_FIRED)(self._fires_unruly)

    def reach(
        self,
        procedure: TableRef | None,
        functions: Iterable[tuple[str, ...]],
        default_schema: str | None,
    ) -> CodeReach | None:
        """What a procedure and functions, as a statement names them, may write; None for anything.

        They change nothing else, such as the session.
        """
        called = frozenset(functions)
        few = len(called) <= MOST_NAMES
        return (self._reached if few else self._reach)(procedure, called, default_schema)

    def _reach(
        self,
        procedure: TableRef | None,
        functions: frozenset[tuple[str, ...]],
        default_schema: str | None,
    ) -> CodeReach | None:
        if not self._server.triggers_visible:
            return None
        schema = "" if default_schema is None else self._server.fold(default_schema)
        pending: list[StoredRoutine | None] = []
        schemas = {schema} - {""}
        if procedure is not None:
            pending.append(self._procedure(procedure, schema))
        pending += [self._stored.find(path, schema, is_function=True) for path in functions]
        seen: set[StoredRoutine] = set()
        tables: set[TableName] = set()
        named: set[str] = set()
        while pending:
            routine = pending.pop()
            if routine is None:
                return None
            if routine is NO_ROUTINE or routine in seen:
                continue
            seen.add(routine)
            used = self._bodies.use_in(routine)
            if used is None:
                return None
            schemas |= {self._server.fold(routine.name.schema), *used.schemas}
            tables |= used.tables
            named |= used.named
            pending += used.routines
        leaves = any(routine.leaves for routine in seen)
        return CodeReach(frozenset(tables), frozenset(schemas), frozenset(named), leaves)

    def leaf_reach(self, procedure: TableRef, default_schema: str | None) -> CodeReach | None:
        """The same of a procedure that runs no other code, nor says what it likes in place of the
        server's errors: then it is not told from within that a routine may not be called."""
        reach = self.reach(procedure, (), default_schema)
        schema = "" if default_schema is None else self._server.fold(default_schema)
        routine = self._procedure(procedure, schema)
        used = None if routine is None else self._bodies.use_in(routine)
        if reach is None or used is None or routine is None or routine.body is None:
            return None
        # It is told of one that does not exist, too.
        tells = bool(used.routines) or not FEIGNING_ERRORS.isdisjoint(routine.words)
        if tells or self.is_run_by(reach.tables, reach.tables):
            return None
        return reach

    def _procedure(self, ref: TableRef, schema: str) -> StoredRoutine | None:
        path = tuple(part for part in ref if part is not None)
        return self._stored.find(path, schema, is_function=False)

    def is_run_by(self, reads: Iterable[TableName], writes: Iterable[TableName]) -> bool:
        """Whether a statement that reads and writes these tables may run code by that, a trigger's
        or what a view calls, or ask another server, or its own for what it knows of itself."""
        written = frozenset(writes)
        reached = self._writes.closure(written)
        read = self._reads.closure(written.union(reads))
        if reached is None or read.may_write or read.routine_schemas:
            return True
        fired = not self._definitions.triggers.keys().isdisjoint(reached)
        return fired or any(map(self._may_ask_others, read.base_tables))

    def leads_elsewhere(
        self, reads: Iterable[TableName], writes: Iterable[TableName], schema: str | None
    ) -> bool:
        """Whether the server may go to another schema than this default one for a statement that
        reads and writes these tables: for triggers of another; to load routines that a view calls,
        or a trigger, or any, where it looks at all views; and MariaDB to open views of another."""
        written = frozenset(writes)
        reached = self._writes.closure(written)
        read = self._reads.closure(written.union(reads))
        if reached is None or read.may_write or read.routine_schemas:
            return True
        here = None if schema is None else self._server.fold(schema)
        if self._goes_to_views and any(view.schema != here for view in read.views):
            return True
        triggers = [*self._definitions.triggers_on(reached)]
        if any(self._server.folded(trigger.table).schema != here for trigger in triggers):
            return True
        led = any(self._body_leads_elsewhere(trigger.body) for trigger in triggers)
        return led or any(map(self._may_ask_others, read.base_tables))

    def _may_load_any(self, body: bytes) -> bool:
        text = body.decode("utf-8", "replace")
        return _CALLS.search(text) is not None or self.may_be_called_by(text)

    def _body_may_lead_elsewhere(self, body: bytes) -> bool:
        return self._loads_any(body) or self._may_open_views(body.decode("utf-8", "replace"))

    def text_leads_elsewhere(self, text: str | None) -> bool:
        """The same of a statement with this text, which prepares it; None is one that is not
        known."""
        return self.may_be_called_by(text) or self._may_open_views(text)

    @property
    def some_leads_elsewhere(self) -> bool:
        """Whether there is anything for which the server does, as far as may be seen."""
        code = self._stored.routines or self._stored.functions or self._definitions.triggers
        return bool(code) or not self._server.triggers_visible or self._goes_to_views

    @property
    def _goes_to_views(self) -> bool:
        """Whether there are views, and the server goes to the schema of one to read its text."""
        return self._server.flavour == "mariadb" and self._definitions.has_views

    def _may_ask_others(self, name: TableName) -> bool:
        """Whether rows of a table, or what is named in place of one, may be made by others."""
        return self._definitions.merges(name) or name.schema.lower() in _MADE_WHEN_READ

    @property
    def is_run_by_events(self) -> bool:
        """Whether BINLOG, to some tables, fires any; MySQL's fires no trigger."""
        fires = self._server.flavour == "mariadb" and bool(self._definitions.triggers)
        return not self._server.triggers_visible or fires or self._some_ask_others

    @cached_property
    def _some_ask_others(self) -> bool:
        return any(map(self._may_ask_others, self._definitions.relations))

    def unruly_is_fired_by(self, names: Iterable[TableName]) -> bool:
        """Whether what a write to these tables fires may change more than rows."""
        return self._some_unruly and self._unruly_fired(frozenset(names))

    @cached_property
    def _some_unruly(self) -> bool:
        """Whether anything there is may, as far as may be seen."""
        some = any(trigger.unruly for trigger in self._definitions.triggers_on(None))
        return some or self._stored.unruly or not self._server.triggers_visible

    def _fires_unruly(self, names: frozenset[TableName]) -> bool:
        tables = self._writes.closure(names)
        if tables is None and (self._stored.unruly or not self._server.triggers_visible):
            return True
        return any(trigger.unruly for trigger in self._definitions.triggers_on(tables))

    @cached_property
    def may_feign_errors(self) -> bool:
        """Whether some code may say amid its work that a statement cannot be read."""
        unseen = not self._server.triggers_visible
        return unseen or not FEIGNING_ERRORS.isdisjoint(self._all_words)

    @cached_property
    def _all_words(self) -> frozenset[bytes]:
        """Those that matter of all routines, triggers and views."""
        definitions = self._definitions
        views = definitions.views_among(definitions.relations)
        return _words(self._stored.routines.values(), definitions.triggers_on(None), views)

    def looks_back(
        self, reads: Iterable[TableName], writes: Iterable[TableName]
    ) -> frozenset[bytes]:
        """Which of FOUND_ROWS and ROW_COUNT a statement may ask by the code it runs: by views that
        it reads, and what its writes fire."""
        if LOOKING_BACK.isdisjoint(self._all_words):
            return frozenset()
        written = frozenset(writes)
        read = self._reads.closure(written.union(reads))
        reached = self._writes.closure(written)
        calls = reached is None or read.may_write  # any, it may be
        routines = self._stored.routines.values() if calls else ()
        views = self._definitions.views_among(read.views)
        return LOOKING_BACK & _words(views, self._definitions.triggers_on(reached), routines)

    def may_leave_something(self, reads: Iterable[TableName], writes: Iterable[TableName]) -> bool:
        """Whether what a statement runs by that may leave something, see
        `routines.leaves_something`: views that it reads, and what its writes fire."""
        written = frozenset(writes)
        if not self._server.triggers_visible:
            return bool(written)
        read = self._reads.closure(written.union(reads))
        if not LOCKING.isdisjoint(_words(self._definitions.views_among(read.views))):
            return True
        if not self._some_leaves:
            return False
        reached = self._writes.closure(written)
        triggers = [*self._definitions.triggers_on(reached)]
        calls = reached is None or read.may_write or bool(read.routine_schemas)
        if calls or any(self._loads_any(trigger.body) for trigger in triggers):
            return True
        return any(trigger.leaves for trigger in triggers)

    @cached_property
    def _some_leaves(self) -> bool:
        """Whether any code but views does, as far as may be seen."""
        routines, triggers = self._stored.routines.values(), self._definitions.triggers_on(None)
        return any(each.leaves for each in routines) or any(each.leaves for each in triggers)

    def may_be_called_by(self, text: str | None) -> bool:
        """Whether a text may call a stored function, or name a view that does; None is one that is
        not known."""
        if self._server.triggers_visible and not self._stored.functions:
            return False
        if not self._server.triggers_visible or not _is_searched(text):
            return True
        plain, others = self._names.functions, self._names.other_functions
        if not all(map(str.isascii, others)):
            return True
        lower = text.lower()
        if not plain.isdisjoint(_WORD.findall(lower)) or any(name in lower for name in others):
            return True
        return any(self._reads.closure([view]).may_write for view in self._views_in(lower))

    def _may_open_views(self, text: str | None) -> bool:
        """Whether a text may name a view, for which the server goes to that one's schema."""
        if not self._goes_to_views:
            return False
        return not _is_searched(text) or bool(self._views_in(text.lower()))

    def _views_in(self, lower: str) -> list[TableName]:
        """Those that a text in lower case may name."""
        views = self._names.views
        named = [view for word in views.keys() & _WORD.findall(lower) for view in views[word]]
        others = self._names.other_views
        return named + [view for name, view in others if not name.isascii() or name in lower]

    @cached_property
    def _names(self) -> _NamesOfCode:
        """Those of stored functions, and of views, as they stand in texts. Which views call a
        function is found out of those that are named: of thousands it takes seconds."""
        functions = {_in_texts(name) for name in self._stored.functions}
        names = _NamesOfCode(frozenset(filter(_WORD.fullmatch, functions)), [], {}, [])
        names.other_functions.extend(functions - names.functions)
        for view in filter(self._definitions.is_view, self._definitions.relations):
            name = _in_texts(view.name)
            if _WORD.fullmatch(name):
                names.views.setdefault(name, []).append(view)
            else:
                names.other_views.append((name, view))
        return names


def _is_searched(text: str | None) -> TypeGuard[str]:
    """Whether names are found in it: the server compares other letters in its own way."""
    return text is not None and len(text) <= _MOST_SEARCHED and text.isascii()


def _in_texts(name: str) -> str:
    """A name as it stands between backticks, in lower case."""
    return name.replace("`", "``").lower()


def may_feign_errors(text: bytes) -> bool:
    """Whether what a text runs may say amid its work that a statement cannot be read."""
    return not FEIGNING_ERRORS.isdisjoint(watched_words(text))


def _words(*code: Iterable[View | Trigger | StoredRoutine]) -> frozenset[bytes]:
    """Which words that matter may be in some of these; one may not be seen."""
    words = (WATCHED if each.body is None else each.words for each in chain(*code))
    return frozenset[bytes]().union(*words)
