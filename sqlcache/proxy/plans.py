"""What a command is to be served by, decided once for its bytes: a `Read` or a `Pass`. Or once for
its shape: a `Template`, which makes its reads, or a `Pass`.

A plan lives in the `Context` that it was made for, and dies with it: at the next change of the
catalog, of the globals or of what is known of the session. So who finds one need not ask whether
it still holds.
"""

from dataclasses import replace

from sqlcache.cache.lookups import Read, Template
from sqlcache.proxy.commands import Meaning
from sqlcache.sql.statement import Kind

UNTRACEABLE = "cursor, long data or query attributes"
"""Why an execution is no read, and where its statement is not followed any more, none will be."""

_LASTING = frozenset({"not cacheable", "no default schema", "switched off", UNTRACEABLE})
"""Why a command is no read, as long as its context lasts."""
_TURNS = frozenset({"BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET"})
_QUERIES = frozenset({"SELECT", "WITH", "TABLE", "VALUES"})


class Pass:
    """A statement that goes to MySQL and comes back, and writes nothing itself.

    `reason` is why it is no `Read`. `turns`: its session may be another afterwards, or in another
    transaction, and COMMIT is one of these; else it changes nothing that is kept of its session but
    what it leaves behind for the next to ask about. `spoils`: no read of its transaction can be a
    hit after it.
    """

    __slots__ = ("keeps_found_rows", "meaning", "reads", "reason", "spoils", "turns")

    def __init__(self, meaning: Meaning, reason: str) -> None:
        (statement,) = meaning.statements
        self.meaning = meaning
        self.reason = reason
        self.reads = bool(statement.reads)
        self.spoils = statement.locking_read
        self.turns = statement.kind is not Kind.READ
        self.keeps_found_rows = meaning.keeps_found_rows


Plan = Read | Template | Pass


def pass_of(meaning: Meaning, reason: str) -> Pass | None:
    """The plan to pass a command through, if there is no more to it. Its tables are known."""
    whole = meaning.lexed is not None and len(meaning.statements) == 1
    if reason not in _LASTING or not whole or meaning.writes:
        return None
    (statement,) = meaning.statements
    query = statement.kind is Kind.READ and statement.verb in _QUERIES
    turn = statement.verb in _TURNS and not statement.reads
    changes_query = statement.settings or statement.may_commit
    changes_more = (
        statement.opaque_session
        or statement.merges
        or statement.sets_role
        or statement.changes_globals
        or statement.locks is not None
        or statement.use_schema is not None
    )
    runs_others = statement.calls_stored or statement.called is not None or statement.code
    if not (turn or (query and not changes_query)) or changes_more or runs_others:
        return None
    if meaning.looks_back(just_before=True):
        return None
    return Pass(replace(meaning, lexed=None), reason)
