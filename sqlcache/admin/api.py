"""What operators ask and do over HTTP, in JSON: each endpoint, once, with what it takes.

Lists are `{"items", "total", "age_s"}`; what is wrong is `{"error"}`, a sentence.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from sqlcache import __version__
from sqlcache.admin import answers
from sqlcache.admin.lists import LISTS, Item, Listing, listed
from sqlcache.admin.made_once import MadeOnce
from sqlcache.admin.questions import Configured, Operated, Question, Refused
from sqlcache.errors import ConfigError
from sqlcache.implementation import IMPLEMENTATION
from sqlcache.metric_kinds import BOUNDS_S
from sqlcache.metrics import Metrics

MAX_BODY_BYTES: Final = 1_000_000
LONGEST_EXPLAINED: Final = 16_384
"""Characters."""

_BODY_S = 10.0
_FRESH_S = 1.0  # several pages that ask all the while cost no more than one
_DEFAULT_LIMIT = 100
_NUMBER = re.compile(r"[0-9]{1,6}")
_SCHEMA_AND_TABLE = re.compile(r"^[^.]{1,64}\.[^.]{1,64}$")

_EXPECTED: Final = {
    "value_error": "{error}",
    "json_invalid": "expected JSON: {error}",
    "model_type": "expected an object",
    "missing": "is not given",
    "extra_forbidden": "there is no such field",
    "string_type": "expected a text",
    "string_too_short": "expected a text that is not empty",
    "string_too_long": "expected at most {max_length} characters",
    "bool_type": "expected true or false",
}
"""By what pydantic calls what is wrong."""

_ROWS: Final = {
    "/api/statements": answers.STATEMENTS,
    "/api/tables": answers.TABLES,
    "/api/sessions": answers.SESSIONS,
    "/api/events": answers.EVENTS,
    "/api/nodes": answers.NODES,
}

Page = Callable[[Request], Awaitable[Response]]
B = TypeVar("B", bound=BaseModel)


class _Body(BaseModel):
    """Nothing."""

    model_config = ConfigDict(extra="forbid")


class Explained(_Body):
    """A statement, and the default schema and user of the session that would send it."""

    sql: str = Field(min_length=1, max_length=LONGEST_EXPLAINED)
    default_schema: str | None = Field(default=None, alias="schema")
    user: str = ""


class Flushed(_Body):
    """What is to be forgotten: a table's answers, a schema's, or all."""

    table: str | None = Field(
        default=None, json_schema_extra={"pattern": _SCHEMA_AND_TABLE.pattern}
    )
    schema_: str | None = Field(default=None, alias="schema", min_length=1, max_length=64)
    all: StrictBool = False

    @field_validator("table")
    @classmethod
    def _has_a_schema(cls, table: str | None) -> str | None:
        if table is not None and not _SCHEMA_AND_TABLE.fullmatch(table):
            raise ValueError("expected SCHEMA.TABLE, as in shop.orders")
        return table

    @model_validator(mode="after")
    def _is_one(self) -> Flushed:
        if sum(map(bool, (self.table, self.schema_, self.all))) != 1:
            raise ValueError("expected one of table, schema and all")
        return self


class Enabled(_Body):
    """Whether reads may be answered from the cache."""

    enabled: StrictBool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path and its method; `said` is the schema of its answer, `body` what it takes, `lists` what
    the items of its answer can be sorted by."""

    method: str
    path: str
    summary: str
    answer: Page
    said: answers.Schema
    body: type[BaseModel] | None = None
    lists: tuple[str, ...] = ()


class Api:
    """The endpoints about these processes."""

    def __init__(self, operated: Operated, configured: Configured) -> None:
        self._operated = operated
        self._configured = configured
        self._counted = MadeOnce(operated.counted)
        self._began = time.monotonic()
        self._kept: dict[Question, tuple[float, asyncio.Task[list[Item]]]] = {}
        self.endpoints = self._endpoints()

    def _endpoints(self) -> tuple[Endpoint, ...]:
        lists = (
            Endpoint(
                "GET",
                each.path,
                each.summary,
                partial(self._list, listing=each),
                _ROWS[each.path],
                lists=each.sorts,
            )
            for each in LISTS
        )
        return (
            Endpoint(
                "GET",
                "/api/summary",
                "What is served, in a few figures.",
                self._summary,
                answers.SUMMARY,
            ),
            *lists,
            Endpoint(
                "GET",
                "/api/settings",
                "All settings, without secrets.",
                self._all_settings,
                answers.SETTINGS,
            ),
            Endpoint(
                "POST",
                "/api/explain",
                "What becomes of a statement. It is not run.",
                self._explain,
                answers.EXPLAINED,
                Explained,
            ),
            Endpoint(
                "POST",
                "/api/flush",
                "Forgets answers, those of all proxies.",
                self._flush,
                answers.FLUSHED,
                Flushed,
            ),
            Endpoint(
                "POST",
                "/api/cache",
                "Switches the cache off, or on again, until the restart.",
                self._enable,
                answers.ENABLED,
                Enabled,
            ),
            Endpoint(
                "POST",
                "/api/reload",
                "Reads the settings again, as SIGHUP does.",
                self._reload,
                answers.RELOADED,
                _Body,
            ),
            Endpoint(
                "GET",
                "/api/openapi.json",
                "This API, by OpenAPI 3.1.",
                self._openapi,
                answers.OPENAPI,
            ),
        )

    async def _summary(self, request: Request) -> Response:
        metrics = await self._counted.ask()
        readiness = await self._operated.readiness()
        reads = metrics.hits + metrics.misses + metrics.passed["read"]
        mode = self._configured.settings.cache.mode
        return JSONResponse(
            {
                "version": __version__,
                "kernel": IMPLEMENTATION,
                "up_s": round(time.monotonic() - self._began, 3),
                **readiness.said(),
                "workers": metrics.workers,
                "connections": metrics.connections_open,
                "reads": reads,
                "hits": metrics.hits,
                "misses": metrics.misses,
                "hit_share": metrics.hits / reads if reads else None,
                "passed": dict(metrics.passed),
                "bypasses": dict(metrics.bypasses),
                "cache_on": metrics.cache_on > 0,
                "fills": metrics.fills,
                "invalidations": metrics.invalidations.total(),
                "hit_seconds": metrics.hit_seconds.sum_s,
                "mysql_seconds": metrics.upstream_seconds.sum_s,
                "seconds_up_to": BOUNDS_S,
                "hit_seconds_counts": metrics.hit_seconds.counts,
                "mysql_seconds_counts": metrics.upstream_seconds.counts,
                "refills_same": metrics.refills_same,
                "mode": mode,
                "shadow": _projected(metrics, reads if mode == "shadow" else 0),
                "verified": dict(metrics.verified),
                "nodes_away": metrics.memcached_nodes_away,
                "binlog": _followed(metrics),
            }
        )

    async def _list(self, request: Request, *, listing: Listing) -> Response:
        sort, limit, wanted = _list_options(request, listing.sorts)
        made_at, items = await self._fresh(listing)
        found = await listing.chosen(items, sort, wanted)
        age_s = round(time.monotonic() - made_at, 3)
        body = await listed(found[:limit], total=len(found), age_s=age_s)
        return Response(body, media_type="application/json")

    async def _fresh(self, listing: Listing) -> tuple[float, list[Item]]:
        """What the processes answer, or answered a moment ago."""
        kept = self._kept.get(listing.question)
        if kept is None or time.monotonic() - kept[0] > _FRESH_S:
            kept = time.monotonic(), asyncio.create_task(self._asked(listing))
            self._kept[listing.question] = kept
            asyncio.get_running_loop().call_later(_FRESH_S, self._drop, listing.question, kept[1])
        return kept[0], await asyncio.shield(kept[1])

    async def _asked(self, listing: Listing) -> list[Item]:
        return listing.merge(await self._operated.ask(listing.question))

    def _drop(self, question: Question, asked: asyncio.Task[list[Item]]) -> None:
        """Keeps nothing for who does not come again."""
        kept = self._kept.get(question)
        if kept is not None and kept[1] is asked:
            del self._kept[question]

    async def _all_settings(self, request: Request) -> Response:
        shown = {path: _shown(value) for path, value in self._configured.settings.items()}
        return JSONResponse(shown)

    async def _explain(self, request: Request) -> Response:
        body = await _body(request, Explained)
        return await self._of_one(Question.EXPLAIN, body.sql, body.default_schema, body.user)

    async def _flush(self, request: Request) -> Response:
        body = await _body(request, Flushed)
        schema, table = body.table.split(".") if body.table else (body.schema_ or "", "")
        return await self._of_one(Question.FLUSH, schema, table)

    async def _enable(self, request: Request) -> Response:
        body = await _body(request, Enabled)
        told = await self._operated.ask(Question.ENABLE, body.enabled)
        return JSONResponse({"enabled": body.enabled, "processes": len(told)})

    async def _reload(self, request: Request) -> Response:
        await _body(request, _Body)
        try:
            differing = await self._configured.reload()
        except ConfigError as error:
            raise HTTPException(422, str(error)) from None
        applied = [path for path, at_once in differing if at_once]
        late = [path for path, at_once in differing if not at_once]
        return JSONResponse({"changed": applied, "need_restart": late})

    async def _of_one(self, question: Question, *about: Any) -> Response:
        """What the first process answers that does."""
        said = await self._operated.ask_one(question, *about)
        answer = said[0] if said else Refused(503, "no process answers")
        if isinstance(answer, Refused):
            return JSONResponse({"error": answer.sentence}, answer.status)
        return JSONResponse(answer)

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(described(self.endpoints))


def _followed(metrics: Metrics) -> dict[str, float]:
    """Of the binary log. The place and what is left are those of the process that follows it, and 0
    where that is none of these."""
    return {
        "following": metrics.binlog_following,
        "lagging": metrics.binlog_lagging,
        "hindered": metrics.binlog_hindered,
        "lag_s": round(metrics.binlog_lag_seconds, 3),
        "lag_bytes": metrics.binlog_lag_bytes,
        "file": metrics.binlog_file,
        "position": metrics.binlog_position_bytes,
        "events": metrics.binlog_events,
        "transactions": metrics.binlog_transactions,
        "bumps": metrics.binlog_bumps,
        "turns": metrics.binlog_turns,
        "gaps": metrics.binlog_gaps,
    }


def _projected(metrics: Metrics, reads: int) -> dict[str, Any]:
    """What would have been hits of so many reads, by shadow mode; and what would have been wrong of
    the answers that could be compared."""
    would_hit = sum(metrics.shadow_seconds.counts)
    return {
        "hits": would_hit,
        "hit_share": would_hit / reads if reads else None,
        "mysql_seconds": metrics.shadow_seconds.sum_s,
        "stale": metrics.verified["different"],
        "compared": metrics.verified["same"] + metrics.verified["different"],
    }


def described(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """These endpoints by OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "sqlcache", "version": __version__},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
        "paths": {each.path: {each.method.lower(): _operation(each)} for each in endpoints},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    wrong = _response("What is wrong with the request.", answers.WRONG)
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {
            "200": _response(endpoint.summary, endpoint.said),
            "4XX": wrong,
            "5XX": {**wrong, "description": "Why it cannot be done just now."},
        },
    }
    if endpoint.lists:
        sorts = {"type": "string", "enum": list(endpoint.lists)}
        operation["parameters"] = [
            {"name": "sort", "in": "query", "schema": sorts},
            {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 0}},
            {"name": "q", "in": "query", "schema": {"type": "string"}},
        ]
    if endpoint.body is not None:
        schema = endpoint.body.model_json_schema()
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _response(what: str, schema: answers.Schema) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _list_options(request: Request, sorts: tuple[str, ...]) -> tuple[str, int, str]:
    given = request.query_params
    if unknown := set(given) - {"sort", "limit", "q"}:
        raise HTTPException(422, f"{min(unknown)}: expected sort, limit or q")
    sort, limit = given.get("sort", sorts[0]), given.get("limit", str(_DEFAULT_LIMIT))
    if sort not in sorts:
        raise HTTPException(422, f"sort = {sort}: expected one of {', '.join(sorts)}")
    if not _NUMBER.fullmatch(limit):
        raise HTTPException(422, f"limit = {limit}: expected a whole number below 1,000,000")
    return sort, int(limit), given.get("q", "").lower()


async def _body(request: Request, kind: type[B]) -> B:
    """What a request brings. Raises: HTTPException."""
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"expected at most {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, f"expected the whole body within {_BODY_S:g} s") from None
    except ClientDisconnect:  # so nobody hears it
        raise HTTPException(400, "expected the whole body") from None
    try:
        return kind.model_validate_json(bytes(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        expected = _EXPECTED.get(first["type"])
        said = expected.format(**first.get("ctx", {})) if expected else first["msg"]
        raise HTTPException(422, f"{where}: {said}" if where else said) from None


def _shown(value: object) -> object:
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, tuple | list):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    return str(value)
