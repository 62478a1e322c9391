"""A session's temporary tables, which no catalog tells of."""

from collections.abc import Iterable

from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.statement import TEMPORARY_TOLD_APART_BY, Kind, Statement

_MOST = 1_000  # of one session; of more it is not known which there are


class TemporaryTables:
    """Those of one session. `unknown`: there may be others than these."""

    def __init__(self) -> None:
        self.names: set[TableRef] = set()
        self.unknown = False
        self.merges = False
        """Whether one that is known may be a MERGE table, or one that has its rows elsewhere: a
        write to it changes other tables."""

    def __bool__(self) -> bool:
        return self.unknown or bool(self.names)

    @property
    def are_known(self) -> bool:
        """Whether it is known which there are, and what servers take for their names."""
        return not self.may_merge and all(ref.name.isascii() for ref in self.names)

    def may_hide(self, tables: Iterable[TableName]) -> bool:
        """Whether some name may mean one that `are_known`, and else one of these: in whatever
        schema, and in any case of letters."""
        named = {ref.name.lower() for ref in self.names}
        return any(table.name.lower() in named for table in tables)

    @property
    def may_merge(self) -> bool:
        """Whether any may be one."""
        return self.merges or self.unknown

    def owns(self, ref: TableRef, schema: str | None) -> bool:
        """Whether a name, with this default schema, is that of one, written so."""
        return ref.under(schema) in self.names

    def may_be_others(self, statement: Statement) -> None:
        """What runs other statements may have created some with them. By what is set those that
        there are may be hidden, and come back."""
        names = (name for name, _ in statement.settings)
        sets = statement.opaque_session or not TEMPORARY_TOLD_APART_BY.isdisjoint(names)
        runs_others = statement.opaque_session and not statement.only_sets
        self.unknown |= runs_others or (sets and bool(self.names))

    def may_be_renamed(self, statement: Statement) -> None:
        """A statement may have run: one can be renamed like any other table."""
        defines = statement.verb == "SET" and statement.kind is Kind.DDL  # SET STATEMENT ... FOR
        renames = defines or statement.verb in ("ALTER", "RENAME")
        self.unknown |= renames and bool(self.names)

    def ran(self, statement: Statement, schema: str | None) -> None:
        """A statement changed them, with this default schema."""
        self.may_be_renamed(statement)
        if not (statement.temporary_created or statement.temporary_dropped):
            return
        self.names |= _in_full(statement.temporary_created, schema)
        self.names -= _in_full(statement.temporary_dropped, schema)
        if len(self.names) > _MOST:
            self.names.clear()
            self.unknown = True


def _in_full(refs: Iterable[TableRef], schema: str | None) -> set[TableRef]:
    return {ref.under(schema) for ref in refs}
