"""What becomes of a statement, and who decides it: for `sqlcache explain` and `Cache.explain`.

No statement is run for it.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from sqlcache.cache.worth import ONE_OF
from sqlcache.errors import ConfigError, SqlSyntaxError
from sqlcache.mysql.constants import Capability, Status
from sqlcache.mysql.handshake import Login
from sqlcache.plan.cacheability import NotCacheable, freshness
from sqlcache.plan.pins import ReadPins
from sqlcache.plan.planner import Planner
from sqlcache.plan.state import SessionState
from sqlcache.sql.forms import normalised
from sqlcache.sql.lexer import Kind, Lexed, lex
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.pins import pins as pins_of
from sqlcache.sql.pins.found import Pins
from sqlcache.sql.policy import Chosen
from sqlcache.sql.shapes import LONGEST_BYTES
from sqlcache.sql.shown import without_values
from sqlcache.sql.statement import Statement

MOST_STATEMENTS: Final = 100
"""Of a text: each is explained with all of it."""

_UTF8MB4 = 45


@dataclass(frozen=True, slots=True)
class Key:
    """What two reads must have in common to share an answer, beside the client's protocol and
    capabilities. `settings` are the session's, by name."""

    text: str
    user: str
    schema: str | None
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What becomes of one statement; `str()` is what `sqlcache explain` prints.

    `why_not` is None for what is cached. What an answer depends on is known of each query that
    could be cached, also where a rule switches that off; all else only of what is cached. Each
    `Chosen` has a value, in seconds, and `by`: the rule or whoever else decides it.
    """

    statement: str
    """With `?` for its literals, as a rule's `statement` has it; "" if it cannot be read."""
    why_not: str | None = None
    off_by: str | None = None
    """The rule or the words of the app that switch the cache off for it."""
    tables: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """As SCHEMA.TABLE, with `*` for all: any write to one of them forgets the answer."""
    pins: tuple[str, ...] = ()
    """The columns by whose values answers like it may be told apart; the first is the best. Of a
    write those by whose values it tells which rows it touches."""
    asks: tuple[str, ...] = ()
    """Of a write the columns of which MySQL is asked what rows it touches."""
    unread: tuple[str, ...] = ()
    """Columns that it does not read, and that may change by themselves. Of a write those that it
    changes, where these are such."""
    whole_by: str | None = None
    """The rule by which it is forgotten by every write to its tables, if one says so."""
    ttl: Chosen | None = None
    max_staleness: Chosen | None = None
    stale_while_revalidate: Chosen | None = None
    stored: str | None = None
    """"all", or "sample" where this process has found that answers like it are hardly ever hit."""
    key: Key | None = None
    writes: tuple[str, ...] = ()
    """Tables and schemas it changes itself; `bumps` has what triggers and foreign keys change."""
    writes_everything: str | None = None
    """Why nobody can know what it changes, if so."""
    bumps: tuple[str, ...] = ()
    """The tags that get a new version when it is run."""

    @property
    def cached(self) -> bool:
        """Whether its answer may come from the cache, and is stored."""
        return self.why_not is None

    def __str__(self) -> str:
        return "\n".join(f"{name:10} {value}".rstrip() for name, value in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        if self.statement:
            yield "statement", self.statement
        yield "cached", "yes" if self.cached else f"no: {self.why_not}"
        yield from self._lines_of_read()
        yield from self._lines_of_write()

    def _lines_of_read(self) -> Iterator[tuple[str, str]]:
        if self.tags:
            yield "tables", ", ".join(self.tables)
        if self.views:
            yield "views", ", ".join(self.views)
        if self.tags:
            yield "tags", ", ".join(self.tags)
        if self.cached and self.pins:
            yield "pins", f"{', '.join(self.pins)}: writes to other rows may leave it"
        if self.cached and self.unread:
            yield "unread", f"{', '.join(self.unread)}: an UPDATE of no others may leave it"
        if self.whole_by is not None:
            yield "pins", f"nothing: {self.whole_by} says so"
        if self.ttl and self.max_staleness and self.stale_while_revalidate:
            yield "ttl", _chosen(self.ttl, "s")
            yield "stale", "at most " + _chosen(self.max_staleness, "s behind a write")
            if self.stored == "sample":
                yield "stored", f"1 answer of {ONE_OF}: those stored before were hardly ever hit"
            yield "meanwhile", _chosen(self.stale_while_revalidate, "s of the last answer")
        if self.key and self.ttl:
            yield "key", f"text: {self.key.text}"
            yield "", f"user: {self.key.user}; default schema: {self.key.schema or 'none'}"
            number = len(self.key.settings)
            yield "", f"session: {number} settings, such as sql_mode and time_zone; the role"
            yield "", f"client: protocol and capabilities; ttl: {self.ttl.value:g} s"

    def _lines_of_write(self) -> Iterator[tuple[str, str]]:
        if self.writes_everything is not None:
            yield "writes", f"everything, as far as can be known: {self.writes_everything}"
        elif self.writes:
            yield "writes", ", ".join(self.writes)
        if self.bumps:
            yield "bumps", ", ".join(self.bumps)
        if self.bumps and self.pins:
            yield "leaves", f"answers that are told apart by {', '.join(self.pins)}, of other rows"
        if self.bumps and self.asks:
            yield "asks", f"{', '.join(self.asks)}: MySQL is asked which of these it touches"
        if self.bumps and self.unread:
            yield "leaves", f"answers that are told apart by not reading {', '.join(self.unread)}"


def _chosen(chosen: Chosen, unit: str) -> str:
    return f"{chosen.value:g} {unit} ({chosen.by})"


def new_session(planner: Planner, schema: str | None, user: str) -> SessionState:
    """A session that has just begun, as most drivers begin it."""
    capabilities = Capability.PROTOCOL_41 | Capability.MULTI_STATEMENTS
    login = Login(capabilities, _UTF8MB4, user.encode(), schema.encode() if schema else None)
    state = SessionState(login, planner.keeper.globals, Status.AUTOCOMMIT, secrets.token_hex)
    if "NO_BACKSLASH_ESCAPES" in state.variables.modes:
        state.status |= Status.NO_BACKSLASH_ESCAPES
    state.settings_unknown = False  # whatever init_connect may do
    state.rights.confirm(planner.keeper.globals)
    return state


class _Text(NamedTuple):
    """What is made of a text alone: whether it has parameters, how it is `shown`, its shape as
    statements are `counted` by it, and what it pins."""

    lexed: Lexed
    prepared: bool
    shown: str
    counted: bytes
    pins: Pins | None


async def explain(planner: Planner, text: bytes, state: SessionState) -> list[Explanation]:
    """What the planner makes of each statement of a text that a session sends. A long one takes its
    time, and nobody waits for it.

    Raises: ConfigError for what is no statement, or too many.
    """
    read = state.as_utf8(text)
    if read is None:
        why = "its session's settings, sql_mode or character set are none that sqlcache can read by"
        return [Explanation("", why)]
    try:
        known = await planner.reader.apart(_read, read, state.dialect)
    except SqlSyntaxError as error:
        raise ConfigError(f"the statement cannot be read: {error}") from None
    statements = await planner.reader.statements_apart(
        known.lexed, read, state, prepared=known.prepared
    )
    if not statements:
        raise ConfigError("expected a statement, but it is empty")
    if len(statements) > MOST_STATEMENTS:
        raise ConfigError(f"expected at most {MOST_STATEMENTS} statements in one text")
    explained = []
    for statement in statements:
        explained.append(_explained(planner, statement, known, state))
        await asyncio.sleep(0)
    return explained


def _read(text: bytes, dialect: Dialect) -> _Text:
    lexed = lex(text, dialect)
    shown = normalised(lexed.pieces, dialect).decode("utf-8", "replace")
    tokens = lexed.tokens
    prepared = any(token.kind is Kind.PARAMETER for token in tokens)
    pins = pins_of(tokens) if len(text) <= LONGEST_BYTES else None
    return _Text(lexed, prepared, shown, without_values(lexed), pins)


def _explained(
    planner: Planner, statement: Statement, text: _Text, state: SessionState
) -> Explanation:
    lexed = text.lexed
    writes = planner.tagging.writes([statement], state.schema)
    assessment = planner.assess(statement, state.schema)
    leaves = planner.pins_of_write(text.pins, writes) if writes else None
    explained = Explanation(
        text.shown,
        state.bypass_reason() or (assessment.why if isinstance(assessment, NotCacheable) else None),
        writes=_names([*map(".".join, writes.tables), *writes.schemas]),
        writes_everything=statement.reason if writes.everything else None,
        bumps=_names(map(str, planner.tagging.tags(writes))) if writes else (),
        pins=leaves.columns if leaves else (),
        asks=leaves.asks if leaves else (),
        unread=leaves.unread if leaves else (),
    )
    if isinstance(assessment, NotCacheable):
        return explained
    decision = planner.decide(assessment, lexed, statement, planner.context(state))
    allowed = freshness(decision)
    explained = replace(
        explained,
        why_not=explained.why_not or (allowed.why if isinstance(allowed, NotCacheable) else None),
        off_by=decision.off,
        tables=_names(map(".".join, assessment.tables)),
        views=_names(map(".".join, assessment.views)),
        tags=_names(map(str, assessment.tags)),
    )
    if not explained.cached:
        return explained
    row = planner.statements.find(text.counted)
    pins: tuple[ReadPins, ...] = ()
    if decision.row_tags.value:
        pins = planner.pins_of_read(lexed, statement, assessment, state.schema, sum(lexed.runs))
    of_several = len(assessment.tables) > 1
    return replace(
        explained,
        pins=_named(pins, lambda each: each.columns, of_several),
        unread=_named(pins, lambda each: each.unread, of_several),
        whole_by=None if decision.row_tags.value else decision.row_tags.by,
        ttl=decision.ttl_s,
        max_staleness=decision.max_staleness_s,
        stale_while_revalidate=decision.stale_while_revalidate_s,
        stored="sample" if row is not None and row.is_sampled else "all",
        key=_key(lexed, state),
    )


def _key(lexed: Lexed, state: SessionState) -> Key:
    return Key(
        lexed.canonical.decode("utf-8", "replace"),
        state.user,
        state.schema,
        state.variables.that_shape_answers,
    )


def _named(
    pins: Iterable[ReadPins], columns: Callable[[ReadPins], Iterable[str]], of_several: bool
) -> tuple[str, ...]:
    return tuple(
        f"{each.name.name}.{column}" if of_several else column
        for each in pins
        for column in columns(each)
    )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
