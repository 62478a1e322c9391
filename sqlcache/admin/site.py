"""The admin door's pages, as one ASGI application: probes for everyone, `/api` for operators, and
the dashboard, which is empty without `/api`, and not there where that is for nobody."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sqlcache.admin import dashboard
from sqlcache.admin.access import Access
from sqlcache.admin.api import Api
from sqlcache.admin.node_figures import NodeFigures
from sqlcache.admin.questions import Configured, Operated, Refused
from sqlcache.metrics import CONTENT_TYPE

_log = logging.getLogger("sqlcache.admin")

Page = Callable[[Request], Awaitable[Response]]


def site(operated: Operated, configured: Configured) -> Starlette:
    """The pages about these processes. The settings have an address for the door."""
    admin = configured.settings.admin
    assert admin.listen is not None
    access = Access(admin.listen, admin.read_token())

    async def live(request: Request) -> Response:
        """200 as long as the event loop turns: it is what answers this."""
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        """200, or 503 while something keeps clients from being served."""
        readiness = await operated.readiness()
        body = json.dumps(readiness.said()) + "\n"
        return Response(body, 503 if readiness.problems else 200, media_type="application/json")

    figures = NodeFigures(operated)

    async def metrics(request: Request) -> Response:
        counted = await operated.counted()
        await figures.add_to(counted)
        return Response(counted.render(), media_type=CONTENT_TYPE)

    probes = {"/live": live, "/ready": ready, "/metrics": metrics}
    api = Api(operated, configured)
    return Starlette(
        routes=[
            *(Route(path, _guarded(page)) for path, page in probes.items()),
            *(
                Route(each.path, _guarded(_restricted(each.answer, access)), methods=[each.method])
                for each in api.endpoints
            ),
            *([_everything(access)] if access.is_closed else dashboard.routes()),
        ],
        exception_handlers={HTTPException: _http_error},
    )


def _guarded(page: Page) -> Page:
    """One whose failure is a 500 and a log line, and that nobody keeps a copy of."""

    async def answer(request: Request) -> Response:
        try:
            response = await page(request)
        except HTTPException:
            raise
        except Exception:
            _log.exception("page failed path=%s", request.url.path)
            response = _refusal(request, Refused(500, "internal error"))
        response.headers["Cache-Control"] = "no-store"
        return response

    return answer


def _restricted(page: Page, access: Access) -> Page:
    async def answer(request: Request) -> Response:
        refused = access.refusal(request)
        return await page(request) if refused is None else _refusal(request, refused)

    return answer


def _everything(access: Access) -> Route:
    """What is left, where nobody may have it."""

    async def answer(request: Request) -> Response:
        raise HTTPException(404)

    return Route("/{path:path}", _guarded(_restricted(answer, access)))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "there is no such page", 405: "there is no such method here"}
    sentence = sentences.get(error.status_code, error.detail)
    response = _refusal(request, Refused(error.status_code, sentence))
    response.headers.update(error.headers or {})
    return response


def _refusal(request: Request, refused: Refused) -> Response:
    if not request.url.path.startswith("/api/"):
        return PlainTextResponse(refused.sentence + "\n", refused.status)
    headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else None
    return JSONResponse({"error": refused.sentence}, refused.status, headers)
