"""The ways to ask for rows that a cache and a transaction have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, overload

from sqlcache.api.rows import Params, Row, Rows

T = TypeVar("T")


class Fetches(ABC):
    """Fetches a query's rows, in the form its caller wants."""

    @abstractmethod
    async def _read(self, sql: str, params: Params) -> Rows:
        """All rows of a query."""

    @overload
    async def fetch_all(self, sql: str, params: Params = None) -> list[Row]: ...
    @overload
    async def fetch_all(
        self, sql: str, params: Params = None, *, into: type[dict[str, Any]]
    ) -> list[dict[str, Any]]: ...
    @overload
    async def fetch_all(
        self, sql: str, params: Params = None, *, into: Callable[..., T]
    ) -> list[T]: ...
    async def fetch_all(
        self, sql: str, params: Params = None, *, into: Callable[..., Any] | None = None
    ) -> list[Any]:
        """All rows of a query: tuples, or with `into` what that makes of them.

        `into` is called with the columns as keyword arguments: `dict`, a dataclass, a pydantic
        model. `params` replace %s or %(name)s in the text, bound by aiomysql.
        Raises: aiomysql.MySQLError; TimeoutError where no connection became free.
        """
        return (await self._read(sql, params)).each(into)

    @overload
    async def fetch_one(self, sql: str, params: Params = None) -> Row | None: ...
    @overload
    async def fetch_one(
        self, sql: str, params: Params = None, *, into: type[dict[str, Any]]
    ) -> dict[str, Any] | None: ...
    @overload
    async def fetch_one(
        self, sql: str, params: Params = None, *, into: Callable[..., T]
    ) -> T | None: ...
    async def fetch_one(
        self, sql: str, params: Params = None, *, into: Callable[..., Any] | None = None
    ) -> Any:
        """The first row, see `fetch_all`; None where there is none."""
        return (await self._read(sql, params)).first(into)

    async def fetch_value(self, sql: str, params: Params = None) -> Any:
        """The first row's first column; None where there is no row."""
        return (await self._read(sql, params)).value()
