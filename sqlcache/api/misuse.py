"""What would have no effect, or another than it says, is refused before anything is sent."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from sqlcache.errors import ConfigError, SqlSyntaxError, UsageError
from sqlcache.mysql.constants import Status
from sqlcache.plan.planner import Planner
from sqlcache.proxy.embedded_session import EmbeddedSession
from sqlcache.settings import MySQLUrl
from sqlcache.sql.lexer import lex
from sqlcache.sql.statement import Kind, Statement, Transaction

_TTL_S_MAX: Final = 30 * 86_400
_BEFORE: Final = re.compile(
    r"(?:\s++|/[*](?![!]|M!)(?:[^*]++|[*](?!/))*+[*]/|--(?=\s)[^\n]*+(?:\n|\Z)|[#][^\n]*+(?:\n|\Z))*+"
)
"""White space and comments, of which each character is looked at once."""
_MOST_BEFORE: Final = 4_096
_MAY_BE_MISUSED: Final = re.compile(
    r"(?:BEGIN|START|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|USE|SET|PREPARE|DEALLOCATE|LOCK|UNLOCK"
    r"|CREATE|FLUSH|BACKUP|HANDLER)\b",
    re.IGNORECASE,
)
_LOCKS: Final = re.compile(r"\bGET_LOCK\b", re.IGNORECASE)
_SHORT_BYTES: Final = 512
"""As long as a text may be that is read while others wait."""
_LEVELS: Final = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
_BEGINS_OR_ENDS: Final = (Transaction.START, Transaction.COMMIT, Transaction.ROLLBACK)
_OF_A_PROXY: Final = ("admin.", "log.level", "log.format", "proxy.listen", "proxy.take_over")
"""How paths begin of settings for who listens, or has log lines of its own."""


async def refuse_on_pool(planner: Planner, session: EmbeddedSession, sql: str) -> None:
    """Raises: UsageError for what is only for the connection it runs on, which the next statement
    will hardly have again."""
    statement = await _alone(planner, session, sql)
    if statement is None or statement.transaction is Transaction.XA:
        return
    if statement.kind is Kind.TRANSACTION:
        raise UsageError(
            f"{statement.verb} has no effect here, as each statement may run on another connection:"
            " use `async with cache.transaction() as tx`"
        )
    for_session = statement.kind is Kind.SESSION and not statement.changes_globals
    by_name = "GET_LOCK" in statement.functions
    locks = by_name or statement.locks is not None or statement.verb == "HANDLER"
    if for_session or locks or statement.temporary_created:
        what = "GET_LOCK()" if by_name else statement.verb
        raise UsageError(
            f"{what} has no effect here, as each statement may run on another connection:"
            " use it in a transaction, or give `session=` or a database to `connect`"
        )


async def refuse_what_is_left_open(
    planner: Planner, session: EmbeddedSession, status: int, sql: str
) -> None:
    """Raises: UsageError where a text that has run has left its session in a transaction, by what
    MySQL says of that: the connection ends, and with it what was written."""
    if not status & Status.IN_TRANS:
        return
    statements = await _statements(planner, session, sql)
    if not statements or not statements[-1].prepares_branch:  # which outlives its connection
        raise UsageError(
            "this has begun a transaction and not ended it, so what it has written in that is lost:"
            " use `async with cache.transaction() as tx`, or end it in the same text"
        )


async def refuse_in_transaction(planner: Planner, session: EmbeddedSession, sql: str) -> None:
    """Raises: UsageError for what begins or ends a transaction."""
    statement = await _alone(planner, session, sql)
    if statement is not None and statement.transaction in _BEGINS_OR_ENDS:
        raise UsageError(
            f"{statement.verb} in a transaction that `async with` begins and ends: leave the block"
            " to commit, raise an exception to roll back"
        )


async def _alone(planner: Planner, session: EmbeddedSession, sql: str) -> Statement | None:
    """What a text of one statement does, if it may be of those that are misused."""
    if not _may_be_misused(sql):
        return None
    statements = await _statements(planner, session, sql)
    return statements[0] if len(statements) == 1 else None


async def _statements(
    planner: Planner, session: EmbeddedSession, sql: str
) -> tuple[Statement, ...]:
    """What the statements of a text do. A long one is read in a thread; of one that is longer than
    any is read, or cannot be, there are none."""
    reader, state = planner.reader, session.state
    text = sql.encode("utf-8", "surrogateescape")
    if len(text) > session.longest_bytes:
        return ()
    try:
        if len(text) <= _SHORT_BYTES:
            return reader.statements(lex(text, state.dialect), text, state, prepared=False)
        lexed = await reader.apart(lex, text, state.dialect)
        return await reader.statements_apart(lexed, text, state, prepared=False)
    except SqlSyntaxError:
        return ()


def _may_be_misused(sql: str) -> bool:
    before = _BEFORE.match(sql, 0, _MOST_BEFORE)
    begins = before.end() if before is not None else 0
    cut_short = len(sql) > _MOST_BEFORE and begins == _MOST_BEFORE
    if cut_short or sql.startswith("/*", begins):  # which goes on, or is code
        return True
    locks = _LOCKS.search(sql, begins, begins + _MOST_BEFORE)
    return bool(locks or _MAY_BE_MISUSED.match(sql, begins))


def check_pool(
    *, pool_size: int, acquire_timeout_s: float, connect_timeout_s: float, recycle_s: float
) -> None:
    """Raises: ConfigError."""
    if isinstance(pool_size, bool) or not isinstance(pool_size, int) or pool_size < 1:
        raise ConfigError(f"pool_size = {pool_size!r}: expected a whole number of at least 1")
    times = {
        "acquire_timeout_s": acquire_timeout_s,
        "connect_timeout_s": connect_timeout_s,
    }
    for name, seconds in times.items():
        if not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigError(f"{name} = {seconds!r}: expected seconds, more than 0")
    if not isinstance(recycle_s, int | float) or not recycle_s >= 0:
        raise ConfigError(f"recycle_s = {recycle_s!r}: expected seconds, at least 0")


def check_named(what: str, values: object, such_as: Mapping[str, object]) -> None:
    """Raises: ConfigError for what are no values by name."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        kind = type(values).__name__  # and not what it has: there may be passwords in it
        raise ConfigError(f"{what}, of type {kind}: expected values by name, such as {such_as}")


def listed(values: object) -> object:
    """A list of what is one in another form, such as a generator; anything else as it is."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        return list(values)
    return values


def check_settings(settings: Mapping[str, object]) -> None:
    """By their paths. Raises: ConfigError for what can have no effect."""
    check_named("settings", settings, {"cache.ttl_s": 600})
    for path in settings:
        if path.startswith(_OF_A_PROXY):
            raise ConfigError(f"{path}: is a proxy's alone, and has no effect here")


def split_url(url: str) -> tuple[str, str | None]:
    """The URL without its database, and that. Raises: ConfigError."""
    try:
        parts = urlsplit(url.strip())
    except (ValueError, AttributeError):  # which is what None and other objects lead to
        parts = urlsplit("")
    place = urlunsplit(parts._replace(path=""))
    try:
        MySQLUrl.parse(place)
    except ValueError as error:
        expected = str(error).replace("HOST:PORT", "HOST:PORT/DATABASE", 1)
        raise ConfigError(f"url: {expected}") from None
    return place, unquote(parts.path.removeprefix("/")) or None


def check_isolation(level: object) -> None:
    """Raises: UsageError for what is no isolation level."""
    if level is not None and not (isinstance(level, str) and level.upper() in _LEVELS):
        raise UsageError(f"isolation {level!r}: expected one of {', '.join(_LEVELS)}")


def check_cached(ttl_s: object, key: object, stale_s: object, codec: object) -> None:
    """What `Cache.cached` was given beside tags. Raises: UsageError."""
    if callable(ttl_s):
        raise UsageError("write @cache.cached(), with parentheses")
    if ttl_s is not None and not (
        isinstance(ttl_s, int) and not isinstance(ttl_s, bool) and 1 <= ttl_s <= _TTL_S_MAX
    ):
        raise UsageError(f"@cached: ttl_s={ttl_s!r}: expected whole seconds from 1 to {_TTL_S_MAX}")
    if key is not None and not callable(key):
        raise UsageError(f"@cached: key={key!r}: expected a function of the arguments")
    if not isinstance(stale_s, int | float) or not stale_s >= 0:
        raise UsageError(
            f"@cached: stale_while_revalidate_s={stale_s!r}: expected seconds, at least 0"
        )
    if codec is not None and (isinstance(codec, type) or not _is_codec(codec)):
        raise UsageError(
            f"@cached: codec={codec!r}: expected an object with encode, decode and a name in bytes"
        )


def _is_codec(codec: object) -> bool:
    by_name = [getattr(codec, name, None) for name in ("encode", "decode")]
    return all(map(callable, by_name)) and isinstance(getattr(codec, "name", None), bytes)


def tags_of(tags: object) -> tuple[str, ...]:
    """The tags that `Cache.cached` was given. Raises: UsageError."""
    names = listed(tags)
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return tuple(names)
    such_as = tags if isinstance(tags, str) else "product"
    raise UsageError(f"@cached: tags={tags!r}: expected several names, such as [{such_as!r}]")


def bound(cursor: Any, sql: str, params: Any) -> str:
    """The text with its parameters. Raises: UsageError where these do not fit."""
    try:
        text: str = cursor.mogrify(sql, params)
    except (TypeError, ValueError, KeyError) as error:
        given = f"{len(params)} parameters" if hasattr(params, "__len__") else repr(type(params))
        raise UsageError(
            f"the parameters do not fit the statement ({error}): it has"
            f" {len(_PLACEHOLDER.findall(sql))} placeholders, and {given} were given; write %% for"
            " a percent sign in a statement with parameters"
        ) from error
    return text


_PLACEHOLDER: Final = re.compile(r"(?<!%)(?:%%)*%(?:\([^)]*\))?s")
