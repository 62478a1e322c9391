"""What all that is read has: rows, whose names come as text or as bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from sqlcache.sql.names import TableName

T = TypeVar("T")

_ON_THE_LOOP_BYTES = 4_096
_AT_ONCE = 500  # rows, or what is made of them, in a turn of the event loop


async def in_turns(each: Iterable[T]) -> AsyncIterator[T]:
    """These, one after the other, while others have their turns of the event loop."""
    for place, one in enumerate(each, 1):
        yield one
        if place % _AT_ONCE == 0:
            await asyncio.sleep(0)


async def made_of(text: bytes, make: Callable[[bytes], T]) -> T:
    """What is made of a text, of a long one in a thread."""
    if len(text) <= _ON_THE_LOOP_BYTES:
        return make(text)
    return await asyncio.to_thread(make, text)


def name_of(schema: str | bytes, table: str | bytes) -> TableName:
    """The name of a table in a schema."""
    return TableName(text_of(schema), text_of(table))


def text_of(value: str | bytes) -> str:
    """Servers give some columns of information_schema as text and some as bytes, each its own."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def is_computed(extra: str) -> bool:
    """Of a column, by its EXTRA."""
    return "GENERATED" in extra.replace("DEFAULT_GENERATED", "")
