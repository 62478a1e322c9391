"""SQLAlchemy on the cache: the same answers, hits, and writes that invalidate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, String, func, insert, select, text, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, selectinload

from sqlcache import MISSING
from sqlcache.api.cache import Cache
from sqlcache.api.sqlalchemy import Policy, create_async_engine
from sqlcache.demo.servers import PrivateSqlServer
from sqlcache.errors import UsageError
from tests.api.conftest import Open, url_of


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20))
    books: Mapped[list[Book]] = relationship(order_by="Book.id")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(primary_key=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("author.id"))
    title: Mapped[str] = mapped_column(String(20))


@pytest.fixture
async def cache(upstream: PrivateSqlServer, schema: str, open_cache: Open) -> Cache:
    opened: Cache = await open_cache(url=url_of(upstream, schema))
    return opened


async def engine_of(cache: Cache, cached: Policy = True) -> AsyncEngine:
    engine = create_async_engine(cache, cached=cached)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session:
        session.add(
            Author(id=1, name="Ada", books=[Book(id=1, title="One"), Book(id=2, title="Two")])
        )
        await session.commit()
    return engine


@pytest.fixture
async def engine(cache: Cache) -> AsyncIterator[AsyncEngine]:
    made = await engine_of(cache)
    yield made
    await made.dispose()


LOAD = select(Author).options(selectinload(Author.books))


async def load(engine: AsyncEngine, **options: Any) -> list[str]:
    async with AsyncSession(engine) as session:
        author = (await session.scalars(LOAD, execution_options=options)).one()
        return [author.name, *(book.title for book in author.books)]


async def test_orm_loading_is_answered_from_the_cache(cache: Cache, engine: AsyncEngine) -> None:
    # In a transaction only what was known before its snapshot counts: the first load learns of
    # the authors' versions, the second of the books', too.
    for _ in range(3):
        assert await load(engine) == ["Ada", "One", "Two"]
    hits = cache.metrics.hits
    assert await load(engine) == ["Ada", "One", "Two"]
    assert cache.metrics.hits == hits + 2


async def test_a_commit_invalidates_a_flush_alone_does_not(
    cache: Cache, engine: AsyncEngine
) -> None:
    await load(engine)
    async with AsyncSession(engine) as session:
        author = (await session.scalars(LOAD)).one()
        author.books[0].title = "Uno"
        await session.flush()
        assert await load(engine) == ["Ada", "One", "Two"]
        await session.commit()
    assert await load(engine) == ["Ada", "Uno", "Two"]


async def test_a_rollback_leaves_all_as_it_was(engine: AsyncEngine) -> None:
    await load(engine)
    async with AsyncSession(engine) as session:
        await session.execute(update(Author).values(name="Eve"))
        await session.rollback()
    assert await load(engine) == ["Ada", "One", "Two"]


async def test_an_update_that_changes_nothing_is_no_stale_row(engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session:
        author = (await session.scalars(LOAD)).one()
        author.name = "Bea"
        await session.execute(text("UPDATE author SET name = 'Bea'"))
        await session.commit()
    assert (await load(engine))[0] == "Bea"


async def test_an_execution_option_wins_over_the_policy(cache: Cache, engine: AsyncEngine) -> None:
    for _ in range(4):
        await load(engine)
    hits = cache.metrics.hits
    await load(engine, sqlcache=False)
    assert cache.metrics.bypasses["the client wants no hit"] == 2  # relationships follow it
    assert cache.metrics.hits == hits


@pytest.mark.parametrize("policy", [False, lambda sql: "FROM book" in sql])
async def test_only_what_the_policy_allows_is_cached(cache: Cache, policy: Policy) -> None:
    engine = await engine_of(cache, policy)
    titles, names = select(func.count(Book.title)), select(func.count(Author.name))

    async def read(**options: Any) -> int:
        """How many hits the last of some sessions has, which read the same."""
        for _ in range(4):
            before = cache.metrics.hits
            async with AsyncSession(engine) as session:
                assert await session.scalar(names, execution_options=options) == 1
                assert await session.scalar(titles) == 2
        return cache.metrics.hits - before

    assert await read() == (1 if policy else 0)
    assert await read(sqlcache=True) == (2 if policy else 1)
    await engine.dispose()


async def test_each_api_sees_what_the_other_writes(cache: Cache, engine: AsyncEngine) -> None:
    for name in ("Eve", "Flo", "Gus"):
        await cache.execute("UPDATE author SET name = %s", (name,))
        assert (await load(engine))[0] == name
        async with engine.begin() as connection:
            await connection.execute(update(Author).values(name=f"{name}!"))
        assert await cache.fetch_value("SELECT name FROM author") == f"{name}!"


async def test_a_cached_function_hangs_on_what_it_reads_by_sqlalchemy(
    cache: Cache, engine: AsyncEngine
) -> None:
    runs = 0

    @cache.cached(key=lambda: None)
    async def names() -> list[str]:
        nonlocal runs
        runs += 1
        return await load(engine)

    async with asyncio.timeout(60):  # not at once, see above
        while await names.peek() is MISSING:
            await names()
            await asyncio.sleep(0.1)
    runs = 0
    assert await names() == await names() == ["Ada", "One", "Two"]
    assert runs == 0
    async with AsyncSession(engine) as session:
        await session.execute(update(Book).where(Book.id == 2).values(title="Due"))
        await session.commit()
    assert await names() == ["Ada", "One", "Due"]
    assert runs == 1


async def test_a_value_lives_no_longer_than_what_it_reads_by_sqlalchemy(
    upstream: PrivateSqlServer, schema: str, open_cache: Open
) -> None:
    """Changes that nobody tells of are seen when that is over, and not when the next is, too."""
    ttl_s = 10
    rules = [{"table": f"{schema}.author", "ttl_s": ttl_s}]
    cache: Cache = await open_cache(url=url_of(upstream, schema), rules=rules)
    engine = await engine_of(cache)

    async def read() -> str:
        async with engine.connect() as connection:
            return str(await connection.scalar(select(Author.name)))

    @cache.cached(key=lambda: None)
    async def name() -> str:
        return await read()

    loop = asyncio.get_running_loop()
    for _ in range(3):
        await read()
    over = loop.time() + ttl_s + 1.3  # memcached counts whole seconds
    await asyncio.sleep(ttl_s / 4)  # long before that
    assert [await name(), await name.peek()] == ["Ada"] * 2
    upstream.sql("UPDATE author SET name = 'Eve'", schema)
    await asyncio.sleep(over - loop.time())
    assert await name() == "Eve"
    await engine.dispose()


async def test_a_cached_function_may_not_write_by_sqlalchemy(
    cache: Cache, engine: AsyncEngine
) -> None:
    @cache.cached(key=lambda: None)
    async def writes() -> int:
        async with engine.begin() as connection:
            await connection.execute(insert(Author).values(id=2, name="Bob"))
        return 1

    with pytest.raises(UsageError, match="may not write"):
        await writes()
    assert await writes.peek() is MISSING
    assert await cache.fetch_value("SELECT COUNT(*) FROM author") == 1


@pytest.mark.parametrize("sql", ["DELETE FROM author WHERE id > :least", "CALL clean(:least)"])
async def test_a_cached_function_may_not_write_by_a_text_of_its_own(
    cache: Cache, engine: AsyncEngine, sql: str
) -> None:
    @cache.cached(tags=["author"], key=lambda: None)
    async def writes() -> None:
        async with engine.begin() as connection:
            await connection.execute(text(sql), {"least": 0})

    with pytest.raises(UsageError, match="may not write"):
        await writes()


def names_on(connection: Connection, sql: str) -> list[str]:
    """By a cursor of the driver's, as other libraries ask for it."""
    cursor = connection.connection.cursor()
    cursor.execute(sql)
    return [name for (name,) in cursor.fetchall()]


async def names_on_driver(connection: AsyncConnection, sql: str) -> list[str]:
    raw: Any = (await connection.get_raw_connection()).driver_connection
    async with raw.cursor() as cursor:
        await cursor.execute(sql)
        return [name for (name,) in await cursor.fetchall()]


async def names_by_cursor(connection: AsyncConnection, sql: str) -> list[str]:
    return await connection.run_sync(names_on, sql)


async def names_streamed(connection: AsyncConnection, sql: str) -> list[str]:
    return [name async for (name,) in await connection.stream(text(sql))]


WAYS = [names_on_driver, names_by_cursor, names_streamed]


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "AUTOCOMMIT"])
async def test_a_cached_function_hangs_on_what_it_reads_by_cursors_of_the_driver(
    cache: Cache, engine: AsyncEngine, read: Callable[..., Any], isolation: Any
) -> None:
    engine = engine.execution_options(isolation_level=isolation)

    @cache.cached(key=lambda: None)
    async def names() -> list[str]:
        async with engine.connect() as connection:
            await connection.scalar(select(func.count(Book.id)))
            found: list[str] = await read(connection, "SELECT name FROM author")
            return found

    for name in ("Ada", "Eve"):
        await cache.execute("UPDATE author SET name = %s", (name,))
        assert [await names() for _ in range(3)] == [[name]] * 3
        assert await names.peek() == [name]


@pytest.mark.parametrize("write", WAYS)
async def test_nor_may_it_write_by_these(
    cache: Cache, engine: AsyncEngine, write: Callable[..., Any]
) -> None:
    @cache.cached(key=lambda: None)
    async def writes() -> None:
        async with engine.connect() as connection:
            await write(connection, "DELETE FROM book")

    with pytest.raises(UsageError, match="may not write"):
        await writes()


async def test_what_a_cached_function_makes_of_an_error_is_not_kept(
    cache: Cache, engine: AsyncEngine
) -> None:
    @cache.cached(key=lambda: None)
    async def only() -> str:
        async with engine.connect() as connection:
            await connection.scalar(select(func.count()).select_from(Author))
            try:
                return str(await connection.scalar(text("SELECT (SELECT title FROM book)")))
            except DBAPIError:
                return "several"

    assert [await only(), await only.peek()] == ["several", MISSING]
    await cache.execute("DELETE FROM book WHERE id = 2")
    assert [await only(), await only(), await only.peek()] == ["One"] * 3


async def test_what_a_cached_function_reads_twice_in_a_transaction_is_its_to_have(
    cache: Cache, engine: AsyncEngine
) -> None:
    @cache.cached(key=lambda: None)
    async def names() -> list[str]:
        async with AsyncSession(engine) as session:
            found = [await session.scalars(select(Author.name)) for _ in range(3)]
            return [name for each in found for name in each]

    for _ in range(3):
        assert await names() == ["Ada"] * 3
    async with AsyncSession(engine) as session:
        await session.execute(update(Author).values(name="Eve"))
        await session.commit()
    assert await names() == ["Eve"] * 3
