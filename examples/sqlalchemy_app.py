"""Authors and their books with SQLAlchemy's ORM.

DATABASE_URL=mysql://app:pw@127.0.0.1:3306/shop python examples/sqlalchemy_app.py

SERVICE_URL names an account that may see all triggers and views, where that one may not.
"""

import asyncio
import os
import sys

from sqlalchemy import ForeignKey, String, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, selectinload

import sqlcache
from sqlcache.api.sqlalchemy import create_async_engine


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40))
    books: Mapped[list["Book"]] = relationship(order_by="Book.id")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(primary_key=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("author.id"))
    title: Mapped[str] = mapped_column(String(40))


async def main() -> None:
    url = os.environ.get("DATABASE_URL") or sys.exit(f"DATABASE_URL is not set\n\n{__doc__}")
    store, service = os.environ.get("MEMCACHED", "memory"), os.environ.get("SERVICE_URL")
    async with sqlcache.connect(url, memcached=store, service_url=service) as cache:
        engine = create_async_engine(cache)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        ada = Author(name="Ada", books=[Book(title="Notes"), Book(title="Letters")])
        async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
            session.add(ada)
        load = select(Author).where(Author.id == ada.id).options(selectinload(Author.books))
        for number in range(5):
            async with AsyncSession(engine) as session, session.begin():
                author = (await session.scalars(load)).one()
                print(author.name, [book.title for book in author.books])
                if number == 3:
                    author.books[0].title = "Sketches"
        async with AsyncSession(engine) as session:  # never from the cache
            fresh = {"sqlcache": False}
            title = select(Book.title).where(Book.author_id == ada.id).order_by(Book.id)
            print(await session.scalar(title.limit(1), execution_options=fresh))
        print("hits:", cache.metrics.hits)
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
