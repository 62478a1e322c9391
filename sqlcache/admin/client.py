"""Asks the admin door of a sqlcache that has the same settings."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

from sqlcache.errors import ConfigError
from sqlcache.settings import HostPort, Settings

_TIMEOUT_S: Final = 10.0
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def address_of(settings: Settings) -> HostPort:
    """Where the door is to be found from here. Raises: ConfigError where there is none."""
    listen = settings.admin.listen
    if listen is None:
        raise ConfigError(
            "admin.listen: is not set; give the HOST:PORT of the running sqlcache as --admin,"
            " as SQLCACHE_ADMIN, or by its file, as --config"
        )
    return HostPort(_HERE.get(listen.host, listen.host), listen.port)


class AdminClient:
    """The API of the sqlcache with these settings. Raises: ConfigError without an address."""

    def __init__(self, settings: Settings) -> None:
        self._address = address_of(settings)
        token = settings.admin.read_token()
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> Any:
        """What a page says. Raises: ConfigError, also for what it refuses."""
        return self._ask("GET", path, None, dict)

    def post(
        self, path: str, body: dict[str, Any], *, says: type[dict[Any, Any] | list[Any]] = dict
    ) -> Any:
        """The same, of one that does something; `says` is what it answers with."""
        return self._ask("POST", path, json.dumps(body).encode(), says)

    def _ask(
        self, method: str, path: str, body: bytes | None, says: type[dict[Any, Any] | list[Any]]
    ) -> Any:
        address = self._address
        stranger = ConfigError(f"admin.listen = {address}: what answers is no sqlcache")
        connection = http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
        headers = self._headers | ({"Content-Type": "application/json"} if body else {})
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            said = json.load(answer)
        except OSError as error:
            raise ConfigError(f"admin.listen = {address}: nobody answers: {error}") from None
        except (http.client.HTTPException, ValueError):
            raise stranger from None
        finally:
            connection.close()
        refused = answer.status != http.client.OK
        if not isinstance(said, dict if refused else says):
            raise stranger
        told: Any = _Said(said, stranger) if isinstance(said, dict) else said
        if refused:
            raise ConfigError(f"the sqlcache at {address} says: {told['error']}")
        return told


class _Said(dict[str, Any]):
    """What was answered. To look for what every sqlcache says, and not find it, raises the error
    that tells of a stranger."""

    def __init__(self, said: dict[str, Any], stranger: ConfigError) -> None:
        super().__init__(said)
        self._stranger = stranger

    def __missing__(self, name: str) -> Any:
        raise self._stranger
