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
from sqlcache.admin.made_once import MadeOnce
from sqlcache.admin.node_figures import NodeFigures
from sqlcache.admin.questions import Configured, Operated, Refused
from sqlcache.metrics import CONTENT_TYPE

_log = logging.getLogger("sqlcache.admin")

Page = Callable[[Request], Awaitable[Response]]


def site(operated: Operated, configured: Configured) -> Starlette:
    """The pages about these processes. The settings have an address for the door."""
    listen = configured.settings.admin.listen
    assert listen is not None

    def access() -> Access:
        """By the token that is at work now."""
        return Access(listen, configured.settings.admin.read_token())

    async def live(request: Request) -> Response:
        """200 as long as the event loop turns: it is what answers this."""
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        """200, or 503 while something keeps clients from being served."""
        readiness = await operated.readiness()
        body = json.dumps(readiness.said()) + "\n"
        return Response(body, 503 if readiness.problems else 200, media_type="application/json")

    figures = NodeFigures(operated)

    async def rendered() -> bytes:
        counted = await operated.counted()
        await figures.add_to(counted)
        return counted.render()

    page = MadeOnce(rendered)

    async def metrics(request: Request) -> Response:
        return Response(await page.ask(), media_type=CONTENT_TYPE)

    probes = {"/live": live, "/ready": ready, "/metrics": metrics}
    api = Api(operated, configured)
    return Starlette(
        routes=[
            *(Route(path, _guarded(page)) for path, page in probes.items()),
            *(
                Route(each.path, _guarded(_restricted(each.answer, access)), methods=[each.method])
                for each in api.endpoints
            ),
            *(_open(route, access) for route in dashboard.routes()),
        ],
        exception_handlers={HTTPException: _http_error(access)},
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


def _restricted(page: Page, access: Callable[[], Access]) -> Page:
    async def answer(request: Request) -> Response:
        refused = access().refusal(request)
        return await page(request) if refused is None else _refusal(request, refused)

    return answer


def _open(route: Route, access: Callable[[], Access]) -> Route:
    """A page that is there for everyone, where anybody may have what it asks for."""

    async def answer(request: Request) -> Response:
        if access().is_closed:
            raise HTTPException(404)
        response: Response = await route.endpoint(request)
        return response

    return Route(route.path, answer, methods=["GET"])


def _http_error(access: Callable[[], Access]) -> Callable[[Request, Exception], Response]:
    """What is answered where there is no page; where nobody may have one, that is why."""

    def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        may = access()
        if may.is_closed and (refused := may.refusal(request)) is not None:
            return _refusal(request, refused)
        sentences = {404: "there is no such page", 405: "there is no such method here"}
        sentence = sentences.get(error.status_code, error.detail)
        response = _refusal(request, Refused(error.status_code, sentence))
        response.headers.update(error.headers or {})
        return response

    return answer


def _refusal(request: Request, refused: Refused) -> Response:
    if not request.url.path.startswith("/api/"):
        return PlainTextResponse(refused.sentence + "\n", refused.status)
    headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else None
    return JSONResponse({"error": refused.sentence}, refused.status, headers)
