"""The dashboard: one page and its files, for a browser, that hold no data themselves.

What they show they ask `/api` for, by the same rules as everybody else.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # nobody's page lays the switch under its own buttons
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Nothing but this door's own files runs, is shown or is asked: what a client puts into its
statements cannot become a part of the page."""

_FOLDER: Final = Path(__file__).with_name("static")
_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def routes() -> list[Route]:
    """`/`, and `/static/…` for each file that the page is made of."""
    files = [path for path in sorted(_FOLDER.rglob("*")) if path.suffix in _MEDIA_TYPES]
    return [
        _route("/", _FOLDER / "index.html"),
        *(_route(f"/static/{path.relative_to(_FOLDER).as_posix()}", path) for path in files),
    ]


def _route(where: str, path: Path) -> Route:
    content = path.read_bytes()
    etag = f'"{blake2b(content, digest_size=16).hexdigest()}"'
    headers = {**HEADERS, "ETag": etag}

    async def answer(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers={**headers, "Content-Type": _MEDIA_TYPES[path.suffix]})

    return Route(where, answer, methods=["GET"])
