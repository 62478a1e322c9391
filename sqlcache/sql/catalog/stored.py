"""The code that is stored with the server, by the names that calls give it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlcache.sql.catalog.server import SYSTEM_SCHEMAS, Server
from sqlcache.sql.facts import StoredRoutine
from sqlcache.sql.names import TableName

NO_ROUTINE = StoredRoutine(TableName("", ""), is_function=True, body=b"")
"""Stands for a function that is built in, or does not exist."""


@dataclass(frozen=True, slots=True)
class Stored:
    """`functions` are the names, in lower case, of stored and loadable ones; `routines` the stored
    ones that no loadable one comes before: whether it is a function, its schema and name. `unruly`
    says that some routine may change more than rows. `plain`: their names are ASCII."""

    server: Server
    functions: frozenset[str] = frozenset()
    routines: dict[tuple[bool, str, str], StoredRoutine] = field(default_factory=dict)
    unruly: bool = False
    plain: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        plain = all(name.isascii() for _, _, name in self.routines)
        object.__setattr__(self, "plain", plain)

    @classmethod
    def of(
        cls,
        server: Server,
        functions: Iterable[str],
        routines: Iterable[StoredRoutine] = (),
        *,
        unruly: bool = False,
    ) -> "Stored":
        """By names as they are spelled."""
        keys = (
            ((each.is_function, server.fold(each.name.schema), each.name.name.lower()), each)
            for each in routines
        )
        return cls(server, frozenset(map(str.lower, functions)), dict(keys), unruly)

    @property
    def schemas(self) -> frozenset[str]:
        """Those that have routines in them."""
        return frozenset(schema for _, schema, _ in self.routines)

    def find(
        self, path: tuple[str, ...], schema: str, *, is_function: bool
    ) -> StoredRoutine | None:
        """The routine that a call means; None where that is not known.

        A function that nobody has is built in, or none: the catalog tells of all others.
        """
        if len(path) > 2 or not all(map(str.isascii, path)):
            return None  # the server compares other letters in its own way
        if len(path) == 2 and path[0].lower() in self.functions:
            return None  # a package of that name, it may be, which comes before the schema
        owner = self.server.fold(path[0]) if len(path) == 2 else schema
        name = path[-1].lower()
        known = self.routines.get((is_function, owner, name))
        if known is not None:
            return known
        if not self.plain:
            return None
        nobodys = is_function and len(path) == 1 and name not in self.functions
        return NO_ROUTINE if nobodys else None

    def lacks(
        self, path: tuple[str, ...], default_schema: str | None, *, is_function: bool
    ) -> bool:
        """Whether nothing of this name can be called, neither in a schema nor in a package."""
        if not self.server.triggers_visible or len(path) > 2 or not all(map(str.isascii, path)):
            return False
        schema = path[0] if len(path) == 2 else default_schema or ""
        owner, name = self.server.fold(schema), path[-1].lower()
        named = {(kind, each) for kind, _, each in self.routines}
        if owner.lower() in SYSTEM_SCHEMAS or not self.plain:
            return False
        loadable = {n for n in self.functions if (True, n) not in named}  # or a package
        if not loadable.isdisjoint((schema.lower(), name)):
            return False
        return (is_function, owner, name) not in self.routines
