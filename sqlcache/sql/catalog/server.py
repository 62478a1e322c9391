"""The server as a whole: what it is, how it compares names, and what may be seen of it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase
from typing import Literal, NamedTuple

from sqlcache.sql.facts import SELF_CONTAINED_ENGINES
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.routines import Declared, Routine
from sqlcache.sql.versioned import Opens

Flavour = Literal["mysql", "mariadb"]

SYSTEM_SCHEMAS = frozenset({"information_schema", "performance_schema", "mysql", "sys", "ndbinfo"})
"""Lower case; the server compares the names of its own schemas without case everywhere."""

LEADING_SCHEMAS = frozenset({"mysql", "sys", "ndbinfo"})
"""Those of them in which people may make views, triggers and routines as well: what there is, is
the server's own or very seldom changed, so a change of anything there is one of everything."""

OPEN_SCHEMAS = LEADING_SCHEMAS - {"mysql"}
"""Those of them where people may make anything; on some servers these are names like others."""

_ASCII_LOWERED = str.maketrans(ascii_uppercase, ascii_lowercase)
_TOO_LONG = 65  # characters, for a name
_BEYOND_UTF8MB3 = re.compile("[\U00010000-\U0010ffff]")


class Incarnation(NamedTuple):
    """A server from one start to the next. `began`: when, in whole seconds by the clock that it had
    then; it counts its age from there on, so that this stays the same though its clock is set."""

    identity: str
    began: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What holds for all of its tables, and for what the service account may see.

    `identity` is what tells it from all others. `transactional_engines`: in lower case.
    `has_leading_engines`: it has others in which a write to a table may change any table, but for
    MERGE tables. `zones`: it has time zones by name. `declared` are the routines of which the
    operator has said what they do.

    `triggers_visible` says that the service account sees all there is: triggers, views' bodies and
    foreign keys. Where it does not, a write's reach is unknown and views are not cacheable; `lacks`
    are the rights it would need, for people. `rights` are rows that are other ones when a new
    session may have other roles or rights, and any session others on schemas that are not its
    default one, through views of another account or by its roles; `grants` when any session may
    have others on single tables, columns and routines. `place` is the host from which it sees
    sqlcache come, and `several_accounts` are the names that are those of accounts for several
    hosts, or of one that has rights for other hosts than its own, or may be taken for another:
    what somebody may depends on that; "" where an account or rights of some hosts have no name,
    and may be anybody's. `limited_accounts` are the names of those that may ask so many questions
    an hour, and of who may be taken for one.

    `lowered` are those characters of names, but ASCII's, that it takes for others, if it tells so:
    by its own rules, which know of fewer letters than Python's.

    `began`: see `Incarnation`. `tells_commits`: it tells sessions, where they
    ask for that, what their commits are called. `tells_columns`: the columns of tables are among
    what is known. `rewrites`: it may run other statements than those that it is sent. `opens`:
    which versioned comments it runs; None where it does not do as its version says.
    """

    flavour: Flavour
    version: tuple[int, ...]
    lower_case_table_names: int
    identity: str = ""
    transactional_engines: frozenset[str] = frozenset({"innodb"})
    has_leading_engines: bool = False
    zones: bool = True
    declared: frozenset[Routine] = frozenset()
    triggers_visible: bool = True
    lacks: str = ""
    rights: frozenset[tuple[str, ...]] = frozenset()
    grants: frozenset[tuple[str, ...]] = frozenset()
    place: str = ""
    several_accounts: frozenset[str] = frozenset()
    limited_accounts: frozenset[str] = frozenset()
    lowered: Mapping[int, str] | None = field(default=None, compare=False)
    began: int = field(default=0, compare=False)
    tells_commits: bool = field(default=False, compare=False)
    tells_columns: bool = field(default=True, compare=False)
    rewrites: bool = False
    opens: Opens | None = None

    @property
    def incarnation(self) -> Incarnation:
        """Which one it is, and since when."""
        return Incarnation(self.identity, self.began)

    @property
    def has_one_snapshot(self) -> bool:
        """Whether all that a transaction reads, of what may be stored, is of one moment, which a
        statement may open for it. Of MyRocks it is of when that is read first, whatever was read of
        others before; and one begun WITH CONSISTENT SNAPSHOT may write nothing there."""
        return self.transactional_engines & SELF_CONTAINED_ENGINES <= {"innodb"}

    def fold(self, identifier: str) -> str:
        """A schema's or table's name in the form in which the server compares it: MySQL has none
        with characters of four bytes, and takes others for these.

        Source: MySQL Reference Manual, "Identifier Case Sensitivity".
        """
        if self.flavour == "mysql":
            identifier = _BEYOND_UTF8MB3.sub("?", identifier)
        if self.lower_case_table_names == 0:
            return identifier
        if identifier.isascii():
            return identifier.lower()
        if self.lowered is not None:
            return identifier.translate(_ASCII_LOWERED).translate(self.lowered)
        # One character at a time, as the server does: str.lower() knows a final sigma, and makes
        # two characters of a dotted capital I.
        return "".join(character.lower()[0] for character in identifier)

    def folded(self, name: TableName) -> TableName:
        """The same of a full name."""
        return TableName(self.fold(name.schema), self.fold(name.name))

    def resolve(self, ref: TableRef, default_schema: str | None) -> TableName | None:
        """The full name a statement means; None where it names no schema and there is none."""
        schema = default_schema if ref.schema is None else ref.schema
        if schema is None:
            return None
        # Of a longer name no more is kept than makes it one that cannot be.
        return self.folded(TableName(schema[:_TOO_LONG], ref.name[:_TOO_LONG]))

    def named(self, refs: Iterable[TableRef], default_schema: str | None) -> frozenset[TableName]:
        """The full names of those tables that have one."""
        names = (self.resolve(ref, default_schema) for ref in refs)
        return frozenset(name for name in names if name is not None)

    def declared_under(self, default_schema: str | None) -> Declared:
        """The declared routines, for a text with this default schema."""
        return Declared(self.declared, default_schema, folds=self.lower_case_table_names != 0)

    def schemas_of(self, routines: Iterable[Routine]) -> frozenset[str]:
        """The schemas whose definitions say what these routines are."""
        return frozenset(self.fold(each.schema) for each in routines if each.schema is not None)


def is_of_system(name: TableName) -> bool:
    """Whether it is in one of the server's own schemas."""
    return name.schema.lower() in SYSTEM_SCHEMAS
