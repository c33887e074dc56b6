"""What callbacks yield is processed with an asyncio task for each item, and none for a request.

Scrapy starts CONCURRENT_ITEMS tasks and one more for each response, whatever its callback yields:
0.7 ms of a page at its default of 100.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import aiter_errback, iter_errback
from twisted.python.failure import Failure

from scrapy_itemgraph.tools.async_tools import Turns
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from scrapy.core.engine import ExecutionEngine
    from scrapy.http import Response


def save_tasks(engine: ExecutionEngine) -> None:
    """Take the place of the scraper's processing of outputs, with the same limits and errors.

    At most CONCURRENT_ITEMS items of a response are in the item pipelines at a time.
    """
    scraper: Any = engine.scraper

    async def handle_spider_output_async(
        result: Any, request: Request, response: Response | Failure
    ) -> None:
        items: set[asyncio.Task[None]] = set()
        told = scraper.handle_spider_error
        if isinstance(result, AsyncIterator):
            outputs = aiter_errback(result, told, request, response)
        else:  # of an errback; before Scrapy 2.16 also of a plain callback
            outputs = as_async_generator(iter_errback(result, told, request, response))
        turns = Turns()
        async for output in outputs:
            if turns.is_due:
                await turns.give()
            if isinstance(output, Request):
                try:
                    engine.crawl(output)
                except Exception:  # noqa: BLE001 - logged as the callback's
                    scraper.handle_spider_error(_failure(), request, response)
            elif output is not None:
                while len(items) >= scraper.concurrent_items:
                    await asyncio.wait(items, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(scraper.start_itemproc_async(output, response=response))
                items.add(task)
                task.add_done_callback(items.discard)
        if items:
            await asyncio.wait(items)

    scrapy_internals.process_outputs_by(engine, handle_spider_output_async)


def _failure() -> Failure:
    return Failure()  # type: ignore[no-untyped-call]
