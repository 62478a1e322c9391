"""Queries of information_schema for what hangs on the tables in a scope."""

from typing import NamedTuple

from pymysql.converters import escape_string

from sqlcache.sql.catalog.server import SYSTEM_SCHEMAS
from sqlcache.sql.facts import Scope

FEW_TABLES = 16
"""More are read with all the others of their schemas."""

USER_SCHEMA = "NOT IN ({})".format(", ".join(f"'{schema}'" for schema in sorted(SYSTEM_SCHEMAS)))
"""Of a column of schemas' names: that it is none of the server's own."""


class Selection(NamedTuple):
    """A query of what hangs on tables, to be followed by a condition on their schemas and names."""

    query: str
    schema: str = "TABLE_SCHEMA"
    table: str = "TABLE_NAME"

    def within(self, scope: Scope) -> str:
        """The query for what is in the scope.

        One of its own for each schema and table: MariaDB opens all tables there are unless a
        condition says that a column of names is one constant.
        """
        if scope.everywhere:
            return f"{self.query} {self.schema} {USER_SCHEMA}"
        schemas = [f"{self.schema} = {_quoted(name)}" for name in sorted(scope.schemas)]
        tables = [
            f"{self.schema} = {_quoted(name.schema)} AND {self.table} = {_quoted(name.name)}"
            for name in sorted(scope.tables)
        ]
        return " UNION ALL ".join(f"{self.query} {each}" for each in schemas + tables)


def _quoted(name: str) -> str:
    return f"'{escape_string(name)}'"
