"""Who may ask the admin door for more than whether it lives: see `docs/operations.md`.

- With a token, who sends it. Without one, who is on this machine: where the door listens elsewhere,
  too, nobody.
- A web page that somebody on this machine has open elsewhere asks with his address, so its requests
  are told by what a browser says of them: the host that it believes to speak to, and where the page
  is from.
"""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from sqlcache.admin.questions import Refused
from sqlcache.settings import HostPort

_JSON = "application/json"
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Access:
    """The rule for a door at this address. `token` is None where none is set."""

    def __init__(self, listen: HostPort, token: str | None) -> None:
        self._token = None if token is None else token.encode()
        self._here = _is_loopback(listen.host)

    @property
    def is_closed(self) -> bool:
        """Whether nobody at all may: there is no way to tell who asks."""
        return self._token is None and not self._here

    def refusal(self, request: Request) -> Refused | None:
        """Why a request is not to be answered; None where it is."""
        if self._token is not None:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            known = hmac.compare_digest(given.strip(" ").encode("latin-1"), self._token)
            if scheme.lower() != "bearer" or not known:  # the case of a scheme says nothing
                return Refused(401, "expected the token of admin.token, as Authorization: Bearer")
        elif self.is_closed:
            return Refused(
                403,
                "admin.listen is no address of this machine alone, and admin.token is not set:"
                " set it, and send it as Authorization: Bearer",
            )
        elif not _is_loopback(_host(request.headers.get("host", ""))):
            return Refused(403, "expected a Host of this machine, as in 127.0.0.1")
        return _strange(request)


def _strange(request: Request) -> Refused | None:
    """Why a request is not one of the door's own page, or of a program."""
    origin = request.headers.get("origin")
    if origin is not None and _authority(origin) != request.headers.get("host"):
        return Refused(403, "expected no Origin but this door's own")
    if request.method in _CHANGING:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != _JSON:
            return Refused(415, f"expected a body of Content-Type: {_JSON}")
    return None


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _host(text: str) -> str:
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
