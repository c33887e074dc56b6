"""Lets long work inside a transaction yield to the event loop, a chunk of values at a time.

These functions take the connection, because it knows whether an event loop waits for its
transaction. On a synchronous connection none of them yields.
"""

from __future__ import annotations

import asyncio
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_itemgraph.tools import async_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import sqlalchemy as sa

T = TypeVar("T")
O = TypeVar("O", int, str)  # noqa: E741 - what can be put in order

CHUNK = 1000  # rows that one statement of a large batch has at most
LARGE_CHUNK = 4 * CHUNK  # values, where each is little work


def yield_to_loop(connection: sa.Connection) -> None:
    """Yield to the event loop once, if one waits for this connection's transaction.

    A pipelined transaction is kept open, however long its client is at work.
    """
    driver: Any = connection.connection.dbapi_connection
    if hasattr(driver, "run_async"):
        driver.run_async(_turn)
    if hasattr(connection, "tell_at_work"):
        connection.tell_at_work()


def yield_after(connection: sa.Connection, count: int) -> None:
    """Yield to the event loop after a step over `count` values, if they are more than a chunk."""
    if count > CHUNK:
        yield_to_loop(connection)


def chunks(connection: sa.Connection, values: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Return the values in lists of `size`; if there are several, yield to the loop after each.

    The values are not copied as a whole, so nobody may add to them or remove any meanwhile.
    """
    remaining = iter(values)
    chunk = list(islice(remaining, size))
    is_large = False
    while chunk:
        following = list(islice(remaining, size))
        is_large = is_large or bool(following)
        yield chunk
        if is_large:
            yield_to_loop(connection)
        chunk = following


def gradually(
    connection: sa.Connection, values: Iterable[T], size: int = LARGE_CHUNK
) -> Iterator[T]:
    """Return the values one by one; and yield to the loop after each `size` of them."""
    return chain.from_iterable(chunks(connection, values, size))


def sorted_chunks(
    connection: sa.Connection, values: Iterable[O], size: int = LARGE_CHUNK
) -> Iterator[list[O]]:
    """Return the values sorted, in lists of `size`, and yield to the loop meanwhile."""
    runs = [sorted(chunk) for chunk in chunks(connection, values, size)]
    ordered = runs[0] if len(runs) == 1 else merge(*runs)
    return chunks(connection, ordered, size)


def clear_gradually(connection: sa.Connection, *containers: async_tools.Emptied) -> None:
    """Empty large containers, and yield to the loop meanwhile; small ones stay as they are."""
    for container in containers:
        for _ in async_tools.emptying(container):
            yield_to_loop(connection)


async def _turn(_: Any) -> None:
    await asyncio.sleep(0)
