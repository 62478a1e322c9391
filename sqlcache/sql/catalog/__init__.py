"""What sqlcache must know of the upstream's schema: which tables a read or a write really touches.

A statement names tables; this says what lies behind the names. Laws:

* A snapshot: it never changes, whoever follows the schema builds another one. What it remembers
  inside only saves work.
* Names go in as `Server.resolve` gives them or as information_schema spells them; what comes out is
  folded as the server compares names.
* Reads default to "not cacheable", writes to "everything": a name, an engine or a body that is not
  understood never becomes a guess.
* A write may name too many tables, never too few. A read names every table and view whose change
  can change its answer.

What is known is in `server`, `definitions` and `stored`. What follows from it is worked out in
`reads`, `writes` and `code`, which ask `bodies` what a body names.
"""

from collections.abc import Iterable

from sqlcache.sql.catalog.bodies import Bodies
from sqlcache.sql.catalog.code import Code
from sqlcache.sql.catalog.definitions import Definitions
from sqlcache.sql.catalog.reads import Reads
from sqlcache.sql.catalog.server import Server, is_of_system
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.catalog.writes import Writes
from sqlcache.sql.facts import Facts, View
from sqlcache.sql.names import TableName


class Catalog:
    """The upstream's schema at one moment, and the answers that follow from it.

    `schemas` are those that have anything in them, or once had: `had` are those of before.
    """

    def __init__(
        self, definitions: Definitions, stored: Stored, had: frozenset[str] = frozenset()
    ) -> None:
        self.server = server = definitions.server
        self.definitions = definitions
        self.stored = stored
        named = {name.schema for name in definitions.relations}
        self.schemas = had.union(server.schemas_of(server.declared), stored.schemas, named)
        bodies = Bodies(definitions, stored, self.schemas)
        self.reads = Reads(definitions, stored)
        self.writes = Writes(definitions, bodies)
        self.code = Code(definitions, stored, bodies, self.reads, self.writes)

    @classmethod
    def of(cls, server: Server, facts: Facts, stored: Stored | None = None) -> "Catalog":
        """The catalog of a server of which this is known; by default nothing is stored with it."""
        return cls(Definitions.of(server, facts), stored or Stored(server))

    def renewed(
        self, tables: Iterable[TableName], schemas: Iterable[str], facts: Facts
    ) -> "Catalog":
        """The catalog with these facts in place of all that it says of the tables, and of what is
        in the schemas. Costs little beside its size."""
        definitions = self.definitions.renewed(tables, schemas, facts)
        if definitions is self.definitions:
            return self
        return Catalog(definitions, self.stored, self.schemas)

    def with_stored(self, stored: Stored) -> "Catalog":
        """The catalog with these stored functions and routines in place of its own."""
        return Catalog(self.definitions, stored, self.schemas)

    def knows(self, name: TableName) -> bool:
        """Whether there is such a table, view or sequence, or the name is the server's own."""
        return self.server.folded(name) in self.definitions.relations or is_of_system(name)

    def hides(self, name: TableName) -> bool:
        """Whether it is a view of which no body was read: sqlcache may not see it, or it came while
        the catalog was read."""
        relation = self.definitions.relations.get(self.server.folded(name))
        return isinstance(relation, View) and relation.body is None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Catalog):
            return NotImplemented
        return (self.definitions, self.stored) == (other.definitions, other.stored)

    __hash__ = None  # type: ignore[assignment]
