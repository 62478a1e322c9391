"""The names of tables: as a statement writes them, and in full.

A statement's text alone gives a `TableRef`. Which table that is depends on the session's default
schema and on the server's `lower_case_table_names`; what comes out of those is a `TableName`.
"""

from typing import NamedTuple


class TableRef(NamedTuple):
    """A table's name as a statement writes it, without quotes, its case kept.

    `schema` is None where the statement names none: then it is the session's default schema.
    """

    schema: str | None
    name: str

    def under(self, default_schema: str | None) -> "TableRef":
        """The same with the schema that it means, if it has one."""
        return self if self.schema is not None else TableRef(default_schema, self.name)


class TableName(NamedTuple):
    """A table's full name, folded as the server's `lower_case_table_names` asks."""

    schema: str
    name: str
