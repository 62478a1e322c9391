"""Requests to sqlcache's pages, whose answers a busy machine may delay."""

from __future__ import annotations

from functools import cache
from typing import Any

import httpx

_WITHIN_S = 30.0


def get(url: str, **options: Any) -> httpx.Response:
    """Its answer, whatever its status."""
    return _client().get(url, **options)


def post(url: str, **options: Any) -> httpx.Response:
    """Its answer, whatever its status."""
    return _client().post(url, **options)


@cache
def _client() -> httpx.Client:
    """One for all: each has read the machine's certificates, which takes longer than most requests.
    No connection is kept for the next, by when its server may be gone."""
    return httpx.Client(timeout=_WITHIN_S, limits=httpx.Limits(max_keepalive_connections=0))
