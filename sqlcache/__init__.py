"""A caching proxy for SQL reads, and its Python API."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sqlcache.api import (
        MISSING,
        Cache,
        CachedFunction,
        Done,
        Explanation,
        Missing,
        PickleCodec,
        Transaction,
        connect,
    )

__all__ = [
    "MISSING",
    "Cache",
    "CachedFunction",
    "Done",
    "Explanation",
    "Missing",
    "PickleCodec",
    "Transaction",
    "connect",
]


def __getattr__(name: str) -> object:
    # Only when asked for: the command line starts faster without the API.
    if name in __all__:
        return getattr(import_module("sqlcache.api"), name)
    raise AttributeError(f"module 'sqlcache' has no attribute {name!r}")
