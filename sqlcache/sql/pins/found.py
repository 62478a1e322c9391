"""What is found in a statement: columns, what they are compared with or set to, and its tables."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlcache.sql.names import TableRef

MOST_ROWS = 64
"""Of an INSERT that is read; and values of a list."""


class Value(NamedTuple):
    """Where a value stands: which of the literals, or of the parameters, of its text it is."""

    place: int
    is_parameter: bool
    negative: bool
    text: bytes


NULL = Value(-1, False, False, b"NULL")
"""That of a NULL that is written out."""
AS_GIVEN = Value(-2, False, False, b"VALUES")
"""That of a column which is set, behind ON DUPLICATE KEY UPDATE, to what its row has there."""

SetTo = Mapping[str, Value | None]
"""The columns that are set, and to what; None where that is computed."""
_NOTHING: SetTo = {}


class Column(NamedTuple):
    """By its name, and how its table is called there; "" where that is not said."""

    name: str
    table: str


class Condition(NamedTuple):
    """What a column is compared with; nothing where it only must not be NULL. `equal`: it has to be
    one of these."""

    column: str
    values: tuple[Value, ...]
    equal: bool
    table: str = ""


class Source(NamedTuple):
    """A table that is read, and how it is called in its query."""

    ref: TableRef
    name: str


class Equality(NamedTuple):
    """Two columns that a query compares. In an outer join's ON, to this `side`, of what stands
    before and the `last` table. Those that do not name their table are of the first `among` of the
    sources; with None it is not known of which."""

    one: Column
    other: Column
    among: int | None = None
    side: str = ""
    last: str = ""


class Pins(NamedTuple):
    """What was read. A query's rows, or those changed, meet all `conditions`; `changed` is what is
    set, `rows` the values of those inserted, by column. `replaces`: in place of these rows it may
    change those that have a key of theirs. A query of several tables is of these `sources`, which
    are `joined` by that."""

    verb: str
    conditions: tuple[Condition, ...] = ()
    changed: SetTo = _NOTHING
    rows: tuple[dict[str, Value | None], ...] = ()
    replaces: bool = False
    sources: tuple[Source, ...] = ()
    joined: tuple[Equality, ...] = ()
