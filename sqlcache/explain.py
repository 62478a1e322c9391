"""`sqlcache explain`: what becomes of a statement, and who decides it. It runs no statement."""

import asyncio
from collections.abc import Iterable, Iterator

from sqlcache.app import App
from sqlcache.errors import ConfigError, SqlSyntaxError
from sqlcache.mysql.constants import Capability, Status
from sqlcache.mysql.handshake import Login
from sqlcache.proxy.planner import Planner
from sqlcache.proxy.state import SessionState
from sqlcache.proxy.verdicts import Cacheable, Refusal, freshness
from sqlcache.settings import Settings
from sqlcache.sql.lexer import Kind, Lexed, lex, normalised
from sqlcache.sql.policy import Chosen
from sqlcache.sql.statement import Statement

Line = tuple[str, str]

_UTF8MB4 = 45


def run(settings: Settings, text: str, schema: str | None, user: str) -> int:
    """Prints the explanation; returns the process's exit code.

    Raises: UpstreamError where the catalog cannot be read, ConfigError for what is no statement.
    """
    return asyncio.run(_explain(settings, text, schema, user))


async def _explain(settings: Settings, text: str, schema: str | None, user: str) -> int:
    app = App(settings)
    try:
        await app.service.check()
        await app.planner.refresh()
        for name, value in explain(app.planner, text, schema, user):
            print(f"{name:10} {value}".rstrip())
    finally:
        await app.stop()
    return 0


def explain(planner: Planner, text: str, schema: str | None, user: str) -> Iterator[Line]:
    """What the planner makes of a text, as a user's new session would send it.

    Raises: ConfigError for what is no statement.
    """
    state = new_session(planner, schema, user)
    read = state.as_utf8(text.encode("utf-8", "surrogateescape"))
    if read is None:
        yield "cached", "no: new sessions have a sql_mode whose grammar sqlcache does not know"
        return
    try:
        lexed = lex(read, state.dialect)
    except SqlSyntaxError as error:
        raise ConfigError(f"the statement cannot be read: {error}") from None
    prepared = any(token.kind is Kind.PARAMETER for token in lexed.tokens)
    statements = planner.statements(lexed, read, state, prepared=prepared)
    if not statements:
        raise ConfigError("expected a statement, but it is empty")
    for statement in statements:
        yield "statement", normalised(lexed.pieces, lexed.dialect).decode("utf-8", "replace")
        yield from _about_read(planner, statement, lexed, state)
        yield from _about_writes(planner, statement, state)


def new_session(planner: Planner, schema: str | None, user: str) -> SessionState:
    """A session that has just begun, as most drivers begin it."""
    capabilities = Capability.PROTOCOL_41 | Capability.MULTI_STATEMENTS
    login = Login(capabilities, _UTF8MB4, user.encode(), schema.encode() if schema else None)
    state = SessionState(login, planner.globals, Status.AUTOCOMMIT)
    if "NO_BACKSLASH_ESCAPES" in state.modes:
        state.status |= Status.NO_BACKSLASH_ESCAPES
    state.settings_unknown = False  # whatever init_connect may do
    return state


def _about_read(
    planner: Planner, statement: Statement, lexed: Lexed, state: SessionState
) -> Iterator[Line]:
    if (why := state.bypass_reason()) is not None:
        yield "cached", f"no: {why}"
        return
    verdict = planner.judge(statement, state.schema)
    if isinstance(verdict, Refusal):
        yield "cached", f"no: {verdict.why}"
        return
    decision = planner.decide(verdict, lexed, statement, planner.context(state))
    allowed = freshness(decision)
    yield "cached", f"no: {allowed.why}" if isinstance(allowed, Refusal) else "yes"
    yield from _depends_on(verdict)
    if not isinstance(allowed, Refusal):
        yield "ttl", _chosen(decision.ttl_s, "s")
        yield "stale", "at most " + _chosen(decision.max_staleness_s, "s behind a write")
        yield "meanwhile", _chosen(decision.stale_while_revalidate_s, "s of the last answer")
        yield from _key(lexed, state, decision.ttl_s)


def _depends_on(verdict: Cacheable) -> Iterator[Line]:
    yield "tables", _names(".".join(name) for name in verdict.tables)
    if verdict.views:
        yield "views", _names(".".join(name) for name in verdict.views)
    yield "tags", _names(map(str, verdict.tags))


def _chosen(chosen: Chosen, unit: str) -> str:
    return f"{chosen.value:g} {unit} ({chosen.by})"


def _key(lexed: Lexed, state: SessionState, ttl_s: Chosen) -> Iterator[Line]:
    text = lexed.canonical.decode("utf-8", "replace")
    yield "key", f"text: {text}"
    yield "", f"user: {state.login.user.decode()}; default schema: {state.schema or 'none'}"
    yield "", f"session: {len(state.inherited)} settings, such as sql_mode and time_zone; the role"
    yield "", f"client: protocol and capabilities; ttl: {ttl_s.value:g} s"


def _about_writes(planner: Planner, statement: Statement, state: SessionState) -> Iterator[Line]:
    writes = planner.writes([statement], state.schema)
    if writes.everything:
        yield "writes", f"everything, as far as can be known: {statement.reason}"
    elif writes:
        yield "writes", _names([*map(".".join, writes.tables), *writes.schemas])
    if writes:
        yield "bumps", _names(map(str, planner.tags(writes)))


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
