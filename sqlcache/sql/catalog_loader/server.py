"""What the server as a whole has: its settings, engines and rights, and who it is."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

from sqlcache.driver import aiomysql
from sqlcache.service.opening import Row, rows_of
from sqlcache.sql.catalog.server import Flavour, Incarnation, Server
from sqlcache.sql.catalog_loader.rows import text_of
from sqlcache.sql.facts import LEADING_TO_NONE_BUT_THESE
from sqlcache.sql.routines import Routine
from sqlcache.sql.versioned import Opens

_WHO = ("server_uid", "server_id", "hostname", "port", "datadir")
"""What, together, tells a MariaDB from all others: its server_uid is made of its port and of a
hardware address alone, which containers on several hosts may share. Old ones have none."""

_VARIABLES = "SHOW GLOBAL VARIABLES WHERE Variable_name IN {}"

WHICH_SERVER: Final = _VARIABLES.format(("server_uuid", *_WHO))
"""What `identity_of` is told."""

_SERVER = _VARIABLES.format(
    (
        "version",
        "lower_case_table_names",
        "server_uuid",
        *_WHO,
        "session_track_gtids",
        "session_track_system_variables",
        "rewriter_enabled",
    )
)

_ENGINES = (
    "SELECT LOWER(ENGINE), TRANSACTIONS = 'YES' FROM information_schema.ENGINES"
    " WHERE SUPPORT IN ('YES', 'DEFAULT')"
)

_LOWERED = "SELECT LOWER(CONVERT(x'{}' USING utf8mb3) COLLATE {}_general_ci)"
_CALLED_UTF8MB3: Final[Mapping[Flavour, tuple[int, ...]]] = {
    "mariadb": (10, 6),
    "mysql": (8, 0, 30),
}
"""The first versions whose collations of that character set are called by its name."""

_AGE = (  # both by one reading of the server's clock
    "SELECT UNIX_TIMESTAMP(), VARIABLE_VALUE"
    " FROM /*!50700 performance_schema *//*M!100000 information_schema */.global_status"
    " WHERE VARIABLE_NAME = 'Uptime'"
)

_REWRITING_RULES = "SHOW GLOBAL STATUS LIKE 'Rewriter_number_loaded_rules'"
"""Those of MySQL's plugin Rewriter."""

_OPENS = "SELECT /*!000008 + 1 */ /*!{own} + 16 */ /*!{next} + 32 */ /*M!{own} + 64 */"
"""Asks a server what it opens, with its own version. Of six digits one that takes five leaves the 8
behind."""

_ZONES = "SELECT CONVERT_TZ('2000-01-01 12:00:00', 'UTC', 'Europe/Paris') IS NOT NULL"

_RIGHTS = {
    "mysql": (
        "CHECKSUM TABLE mysql.user, mysql.db, mysql.global_grants, mysql.proxies_priv",
        "SELECT HOST, USER, DEFAULT_ROLE_HOST, DEFAULT_ROLE_USER FROM mysql.default_roles",
        "SELECT FROM_HOST, FROM_USER, TO_HOST, TO_USER FROM mysql.role_edges",
    ),
    "mariadb": (
        "CHECKSUM TABLE mysql.global_priv, mysql.db, mysql.roles_mapping, mysql.proxies_priv",
    ),
}

_GRANTS = ("CHECKSUM TABLE mysql.tables_priv, mysql.columns_priv, mysql.procs_priv",)

_PLACE = "SELECT SUBSTRING_INDEX(USER(), '@', -1)"

_HAVE_HOSTS = ("db", "tables_priv", "columns_priv", "procs_priv")
"""Whose rows the server looks up by where somebody comes from, whatever host his account is for. A
GRANT writes the account's there, but not who writes rows himself."""
_SEVERAL_ACCOUNTS = (
    "SELECT User FROM (SELECT User, Host FROM mysql.{}"
    + "".join(
        # What is for nobody and no host in particular is everybody's, wherever he comes from.
        f" UNION SELECT User, Host FROM mysql.{each} WHERE User <> '' OR Host NOT IN ('', '%')"
        for each in _HAVE_HOSTS
    )
    + ") AS named GROUP BY User HAVING COUNT(*) > 1 OR User = ''"
    # Who may be taken for another has his rights, for the host that he himself comes from.
    " UNION SELECT User FROM mysql.proxies_priv"
)
_LIMITED = "SELECT User FROM mysql.user WHERE max_questions > 0"
_LIMITED_BY_JSON = (
    "SELECT User FROM mysql.global_priv WHERE JSON_VALUE(Priv, '$.max_questions') > 0"
)
_TAKEN_FOR = "{0} UNION SELECT User FROM mysql.proxies_priv WHERE Proxied_user IN ({0})"
"""These, and who may be taken for one."""
_HAS_ACCOUNTS_IN_A_VIEW = (10, 4)
"""The first version of MariaDB in which `mysql.user` is one, which fails without its definer."""

NEEDED_RIGHTS: Final = ("SELECT", "SHOW VIEW", "TRIGGER")
"""Those that the service account wants on `*.*`."""


class Greeting(NamedTuple):
    """What a server tells first: by that all else is asked. `lacks`: the global rights that the
    catalog needs and the account has not."""

    variables: Mapping[str, str]
    version: tuple[int, ...]
    flavour: Flavour
    lacks: tuple[str, ...]


async def greet(connection: aiomysql.Connection) -> Greeting:
    """Which server it is, and what the account may there."""
    told = _told(await rows_of(connection, _SERVER))
    return Greeting(
        told,
        _version(told["version"]),
        "mariadb" if "mariadb" in told["version"].lower() else "mysql",
        _lacking(text_of(line) for (line,) in await rows_of(connection, "SHOW GRANTS")),
    )


async def incarnation(connection: aiomysql.Connection) -> Incarnation:
    """The same of any connection as `Server.incarnation`."""
    identity = identity_of(await rows_of(connection, WHICH_SERVER))
    return Incarnation(identity, await began(connection))


def identity_of(rows: Iterable[Row]) -> str:
    """What no other server has, by these of its variables."""
    return _identity(_told(rows))


def _told(rows: Iterable[Row]) -> dict[str, str]:
    return {text_of(name): text_of(value) for name, value in rows}


async def load_server(
    connection: aiomysql.Connection,
    greeting: Greeting,
    declared: Iterable[Routine],
    *,
    columns: bool,
) -> Server:
    """What the server as a whole has. See `load.load_catalog` for what is `declared`, and for
    `columns`."""
    told, version, flavour, lacks = greeting
    readable = not lacks and version >= (8,)
    engines = {
        text_of(engine): bool(rolls_back)
        for engine, rolls_back in await rows_of(connection, _ENGINES)
    }
    ((place,),) = await rows_of(connection, _PLACE)
    views = flavour == "mariadb" and version >= _HAS_ACCOUNTS_IN_A_VIEW
    accounts = _SEVERAL_ACCOUNTS.format("global_priv" if views else "user")
    several = await rows_of(connection, accounts) if readable else []
    limits = _TAKEN_FOR.format(_LIMITED_BY_JSON if views else _LIMITED)
    limited = await rows_of(connection, limits) if readable else []
    folds = int(told["lower_case_table_names"])
    return Server(
        flavour=flavour,
        version=version,
        lower_case_table_names=folds,
        lowered=await _lowered(connection, flavour, version) if folds else None,
        identity=_identity(told),
        transactional_engines=frozenset(each for each in engines if engines[each]),
        has_leading_engines=not engines.keys() <= LEADING_TO_NONE_BUT_THESE,
        triggers_visible=not lacks,
        lacks=", ".join(lacks),
        rights=await _shown(connection, _RIGHTS[flavour]) if readable else frozenset(),
        grants=await _shown(connection, _GRANTS) if readable else frozenset(),
        place=text_of(place),
        several_accounts=frozenset(text_of(name) for (name,) in several),
        limited_accounts=frozenset(text_of(name) for (name,) in limited),
        declared=frozenset(declared),
        zones=await rows_of(connection, _ZONES) == [(1,)],
        began=await began(connection),
        tells_commits=_tells_commits(told),
        tells_columns=columns,
        rewrites=await _rewrites(connection, told),
        opens=await _opens(connection, flavour, version),
    )


async def _lowered(
    connection: aiomysql.Connection, flavour: Flavour, version: tuple[int, ...]
) -> dict[int, str]:
    """See `Server.lowered`. The server folds names as LOWER() does in their collation."""
    prefix = "utf8mb3" if version >= _CALLED_UTF8MB3[flavour] else "utf8"
    cased = _cased()
    ((lower,),) = await rows_of(connection, _LOWERED.format(cased.encode().hex(), prefix))
    told = text_of(lower)
    return {ord(each): low for each, low in zip(cased, told, strict=True) if each != low}


@cache
def _cased() -> str:
    """All characters of names, but ASCII's, that may be others in lower case."""
    letters = map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x10000)))
    return "".join(each for each in letters if not each == each.lower() == each.upper())


def _tells_commits(server: Mapping[str, str]) -> bool:
    """By what sessions begin with: MySQL's setting, or MariaDB's. Of commits that may be anyone's
    nothing follows."""
    if (gtids := server.get("session_track_gtids")) is not None:
        return gtids.upper() == "OWN_GTID"
    tracked = server.get("session_track_system_variables", "").lower().split(",")
    return not {"last_gtid", "*"}.isdisjoint(map(str.strip, tracked))


async def _rewrites(connection: aiomysql.Connection, server: Mapping[str, str]) -> bool:
    """Whether there are rules by which it runs other statements than those that it is sent."""
    if server.get("rewriter_enabled", "OFF").upper() != "ON":
        return False
    rules = await rows_of(connection, _REWRITING_RULES)
    return not rules or int(rules[0][1]) > 0


async def _opens(
    connection: aiomysql.Connection, flavour: Flavour, version: tuple[int, ...]
) -> Opens | None:
    """See `Server.opens`. A version can be made up, as MariaDB's by its settings."""
    if len(version) < 3:
        return None
    own = version[0] * 10_000 + version[1] * 100 + version[2]
    asked = _OPENS.format(own=own, next=own + 1)
    match flavour, await rows_of(connection, asked):
        case "mariadb", [(81,)]:
            return Opens(True, own)
        case "mysql", [(17,)]:
            return Opens(False, own)
        case "mysql", [(25,)]:
            return Opens(False, own, six_digits=False)
    return None


async def began(connection: aiomysql.Connection) -> int:
    """See `Incarnation`."""
    ((now, told),) = await rows_of(connection, _AGE)
    age_s = int(told)
    if age_s >= 1 << 63:  # its clock was set to a time before its beginning
        age_s -= 1 << 64
    return int(now) - age_s


async def _shown(
    connection: aiomysql.Connection, queries: Iterable[str]
) -> frozenset[tuple[str, ...]]:
    rows = [row for query in queries for row in await rows_of(connection, query)]
    return frozenset(tuple(map(_as_text, row)) for row in rows)


def _as_text(value: object) -> str:
    return text_of(value) if isinstance(value, str | bytes) else str(value)


def _lacking(grants: Iterable[str]) -> tuple[str, ...]:
    """The global rights that the catalog needs and SHOW GRANTS does not tell of.

    Where a line takes something away (MySQL's partial revokes), that is all of them.
    """
    held: set[str] = set()
    for line in grants:
        if line.startswith("REVOKE"):
            return NEEDED_RIGHTS
        if found := re.match(r"GRANT (.+) ON \*\.\* TO ", line):
            held.update(found[1].upper().split(", "))
    if "ALL PRIVILEGES" in held:
        return ()
    return tuple(right for right in NEEDED_RIGHTS if right not in held)


def _identity(server: Mapping[str, str]) -> str:
    return server.get("server_uuid") or " ".join(server.get(name, "") for name in _WHO)


def _version(text: str) -> tuple[int, ...]:
    """`10.11.19-MariaDB-log` is (10, 11, 19)."""
    leading = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()
