"""What this server makes of logins that no login tells: asked by sqlcache's own account.

They are as they are for all sessions, so they count as globals; see `plan.state`.
"""

import re
from typing import Any

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.plan.variables import (
    CHOSEN_CHARACTER_SETS,
    COLLATIONS,
    EXPIRED_PASSWORDS,
    Settings,
)

_GLOBALS = """SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'character_set_client',
'default_password_lifetime', 'disconnect_on_expired_password')"""
_OWN_CHARACTER_SET = "SHOW SESSION VARIABLES LIKE 'character_set_client'"
# MariaDB has others besides, which have no number here: who names one is asked for its settings.
_COLLATIONS = "SELECT ID FROM information_schema.COLLATIONS WHERE ID IS NOT NULL ORDER BY ID"
_CHOSEN = "utf8mb4"  # by that account, as it logged in

_MYSQLS_LIFETIMES = "SELECT COUNT(*) FROM mysql.user WHERE password_lifetime > 0"
_MARIADBS_LIFETIMES = (
    "SELECT COUNT(*) FROM mysql.global_priv WHERE JSON_VALUE(Priv, '$.password_lifetime') > 0"
)
_MAY_NOT_READ = frozenset({1044, 1142, 1143})


async def login_rules(connection: aiomysql.Connection) -> Settings:
    """Reads them, on a connection of `connect_service`. Raises: UpstreamError."""
    try:
        shown = dict(await _rows(connection, _GLOBALS))
        own = dict(await _rows(connection, _OWN_CHARACTER_SET))
        expired = await _let_in_with_expired_passwords(connection, shown)
        numbers = " ".join(str(number) for (number,) in await _rows(connection, _COLLATIONS))
    except Exception as error:  # as in `rows_of`
        raise UpstreamError(f"what becomes of logins cannot be read: {error}") from error
    name = "character_set_client"
    taken = own[name] == _CHOSEN != shown[name] or _takes_all(shown["version"])
    return (
        (CHOSEN_CHARACTER_SETS, "taken" if taken else ""),
        (COLLATIONS, f" {numbers} "),
        (EXPIRED_PASSWORDS, expired),
    )


def _takes_all(version: str) -> bool:
    """Whether it is MySQL 9.7 or later, which has no option to do otherwise."""
    number = re.match(r"(\d+)\.(\d+)\.\d+(?!.*mariadb)", version.lower())
    return number is not None and (int(number[1]), int(number[2])) >= (9, 7)


async def _let_in_with_expired_passwords(
    connection: aiomysql.Connection, shown: dict[str, str]
) -> str:
    lifetime = shown.get("default_password_lifetime")
    if lifetime is None:  # MariaDB before 10.4
        return "nobody"
    if lifetime == "0" and not await _has_lifetimes(connection, shown["version"]):
        return "nobody"
    return "aware" if shown["disconnect_on_expired_password"] == "ON" else "all"


async def _has_lifetimes(connection: aiomysql.Connection, version: str) -> bool:
    """Whether an account has one of its own. Where that may not be read, one may have."""
    mariadb = "mariadb" in version.lower()
    try:
        ((count,),) = await _rows(connection, _MARIADBS_LIFETIMES if mariadb else _MYSQLS_LIFETIMES)
    except aiomysql.MySQLError as error:
        if error.args[0] not in _MAY_NOT_READ:
            raise
        return True
    return bool(count)


async def _rows(connection: aiomysql.Connection, query: str) -> list[Any]:
    async with connection.cursor() as cursor:
        await cursor.execute(query)
        return list(await cursor.fetchall())
