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
        raise ConfigError("admin.listen: is not set, so there is nobody to ask")
    return HostPort(_HERE.get(listen.host, listen.host), listen.port)


class AdminClient:
    """The API of the sqlcache with these settings. Raises: ConfigError without an address."""

    def __init__(self, settings: Settings) -> None:
        self._address = address_of(settings)
        token = settings.admin.read_token()
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> Any:
        """What a page says. Raises: ConfigError, also for what it refuses."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The same, of one that does something."""
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        address = self._address
        connection = http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
        headers = self._headers | ({"Content-Type": "application/json"} if body else {})
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            said = json.load(answer)
        except OSError as error:
            raise ConfigError(f"admin.listen = {address}: nobody answers: {error}") from None
        except (http.client.HTTPException, ValueError):
            raise ConfigError(f"admin.listen = {address}: what answers is no sqlcache") from None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ConfigError(f"admin.listen = {address}: {said['error']}")
        return said
