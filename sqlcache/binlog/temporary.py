"""Temporary tables of the sessions whose statements the log has; no I/O, no clock.

A write to one that has the rows of others, as a MERGE table does, changes these.
"""

from collections.abc import Iterable
from typing import Final

from sqlcache.sql.catalog import Catalog
from sqlcache.sql.names import TableName
from sqlcache.sql.statement import Statement, in_turn

_MOST: Final = 10_000

_Of = tuple[bytes, TableName]


_ALTERS: Final = ("ALTER", "RENAME")  # a table of either kind


def concerns(statement: Statement) -> bool:
    """Whether a statement may make a temporary table, change one or drop it."""
    made = statement.temporary_created or statement.temporary_dropped
    return bool(made) or statement.verb in _ALTERS


class LoggedTemporaryTables:
    """Those that one reading of the log has come upon: there may be others, from before."""

    def __init__(self) -> None:
        self._plain: dict[_Of, None] = {}  # with rows of their own, the newest last
        self._others: set[_Of] = set()
        self._any = False  # may be one of the others

    def ran(
        self, session: bytes, statements: Iterable[Statement], schema: str | None, catalog: Catalog
    ) -> None:
        """A session's statements were logged."""
        for each, default in in_turn(statements, schema):
            for name in catalog.server.named(each.temporary_dropped, default):
                self._plain.pop((session, name), None)
                self._others.discard((session, name))
            if made := catalog.server.named(each.temporary_created, default):
                reads = catalog.server.named(each.reads, default)
                merges = each.merges or any(self._may_merge(session, n, catalog) for n in reads)
                if each.keeps and not merges:
                    continue  # there may have been one before: that is what it was
                for name in made:
                    self._note((session, name), merges=merges)
            if each.verb in _ALTERS:
                named = [(session, n) for n in catalog.server.named(each.writes, default)]
                if any(of in self._others or (each.leads and of in self._plain) for of in named):
                    for of in named:
                        self._note(of, merges=True)
        while len(self._plain) > _MOST:
            del self._plain[next(iter(self._plain))]

    def _note(self, of: _Of, *, merges: bool) -> None:
        self._plain.pop(of, None)
        if not merges:
            self._others.discard(of)
            self._plain[of] = None
        elif len(self._others) < _MOST:
            self._others.add(of)
        else:
            self._any = True

    def _may_merge(self, session: bytes, name: TableName, catalog: Catalog) -> bool:
        """Whether a temporary table LIKE one of this name may have the rows of others: of those of
        the catalog that is known."""
        of = (session, name)
        return self._any or of in self._others or not (of in self._plain or catalog.knows(name))

    def may_lead(
        self, session: bytes, names: Iterable[TableName], unknown: frozenset[TableName]
    ) -> bool:
        """Whether one of these names, of which some are `unknown` to the catalog, may be that of
        one with the rows of others."""
        if self._any:
            return True
        return any(
            (session, name) in self._others
            or (name in unknown and (session, name) not in self._plain)
            for name in names
        )
