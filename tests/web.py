"""Requests to sqlcache's pages, whose answers a busy machine may delay."""

from __future__ import annotations

from typing import Any

import httpx

_WITHIN_S = 30.0


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, timeout=_WITHIN_S, **options)


def post(url: str, **options: Any) -> httpx.Response:
    return httpx.post(url, timeout=_WITHIN_S, **options)
