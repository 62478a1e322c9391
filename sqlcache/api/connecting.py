"""`connect`: a `Cache` from what an app says."""

from collections.abc import Iterable, Mapping, Sequence

from sqlcache.api.cache import Cache
from sqlcache.api.misuse import check_named, check_pool, check_settings, listed, split_url
from sqlcache.api.pool import Login
from sqlcache.errors import ConfigError
from sqlcache.settings.sources import from_arguments


def connect(
    url: str,
    *,
    memcached: str | Sequence[str],
    service_url: str | None = None,
    pool_size: int = 10,
    acquire_timeout_s: float = 30.0,
    connect_timeout_s: float = 5.0,
    recycle_s: float = 3600.0,
    charset: str = "utf8mb4",
    session: Mapping[str, str | int | float] | None = None,
    prefix: str = "sqlcache",
    rules: Iterable[Mapping[str, object]] = (),
    settings: Mapping[str, object] | None = None,
) -> Cache:
    """A `Cache` for `mysql://USER:PASSWORD@HOST:PORT/DATABASE[?unix_socket=PATH]`, not yet open.

    `memcached` are the nodes' HOST:PORT, the same as those of all proxies and apps that are to
    share answers, with the same `prefix`; "memory" is a store of this cache alone.
    `service_url` is the account that reads the catalog of the same server, where that of `url` may
    not see all triggers and views. `session` are variables set on each connection. `rules` are
    those of docs/settings.md, and `settings` any other settings by their path, such as
    {"cache.ttl_s": 600} or {"upstream.tls": "verify-identity"}.

    Raises: ConfigError.
    """
    check_pool(
        pool_size=pool_size,
        acquire_timeout_s=acquire_timeout_s,
        connect_timeout_s=connect_timeout_s,
        recycle_s=recycle_s,
    )
    check_settings(settings or {})
    check_named("session", session or {}, {"time_zone": "+00:00"})
    place, database = split_url(url)
    nodes = [memcached] if isinstance(memcached, str) else listed(memcached)
    given: dict[str, object] = {
        "upstream.url": service_url or place,
        "upstream.connect_timeout_s": connect_timeout_s,
        "memcached.nodes": nodes,
        "memcached.prefix": prefix,
        **({"rules": listed(rules)} if rules else {}),
    }
    checked = from_arguments({**given, **(settings or {})})
    account = from_arguments({**given, "upstream.url": place}).upstream
    if checked.upstream.url.address != account.url.address:
        raise ConfigError(
            f"service_url = {checked.upstream.url}: expected an account of the server that url"
            f" names, {account.url.address}"
        )
    login = Login(
        address=checked.upstream.url.address,
        user=account.user,
        password=account.url.password,
        database=database,
        charset=charset,
        connect_timeout_s=connect_timeout_s,
        session=dict(session or {}),
    )
    return Cache(
        checked,
        login,
        pool_size=pool_size,
        acquire_timeout_s=acquire_timeout_s,
        recycle_s=recycle_s,
    )
