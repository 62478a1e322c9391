"""Queries of information_schema for what hangs on the tables in a scope."""

from collections.abc import Iterable
from typing import NamedTuple

from pymysql.converters import escape_string

from sqlcache.sql.catalog.server import LEADING_SCHEMAS, SYSTEM_SCHEMAS
from sqlcache.sql.facts import Scope

FEW_TABLES = 16
"""More are read with all the others of their schemas."""


def _listed(schemas: Iterable[str]) -> str:
    return "({})".format(", ".join(f"'{schema}'" for schema in sorted(schemas)))


USER_SCHEMA = f"NOT IN {_listed(SYSTEM_SCHEMAS)}"
"""Of a column of schemas' names: that it is none of the server's own."""

LEADING_SCHEMA = f"IN {_listed(LEADING_SCHEMAS)}"
"""That it is one of the server's own where people may make some things."""

OF_PEOPLE = "DEFINER NOT IN ('mysql.sys@localhost', 'mariadb.sys@localhost')"
"""Of a view or routine in such a schema: that it did not come with the server."""


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
