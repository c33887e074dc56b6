"""Seeds: the operations with which a spider begins, applied at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import (
    BlobStoreError,
    ForeignOutputError,
    ItemGraphError,
    OperationError,
)
from scrapy_itemgraph.model.operations import CreateItem, Operation
from scrapy_itemgraph.model.tallies import NO_TASK
from scrapy_itemgraph.model.work import NEW, Outcome
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.progress import Progress
from scrapy_itemgraph.worker.spider import callbacks, yield_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scrapy import Spider

    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.work import Note
    from scrapy_itemgraph.worker.spider.validation import Checks

logger = logs.logger(__name__)

_CHUNK = 500


async def sow(
    spider: Spider,
    seed: Callable[[Sequence[Operation]], Awaitable[Sequence[Note]]],
    checks: Checks,
    tallies: Tallies,
) -> None:
    """Apply what the spider's `seeds()` yields, a transaction for every few hundred, and count it.

    `seed` applies some in one transaction. An ItemGraphError names the spider, what is wrong with
    its seeds, and the line that yielded it where one did.
    """
    seeds = getattr(spider, "seeds", None)
    if not callable(seeds):
        return
    try:
        await _apply(spider, seed, checks, tallies, seeds())
    except BlobStoreError as error:
        raise BlobStoreError(f"spider {spider.name}, seeds: {error}") from None
    except ItemGraphError:
        raise
    except Exception as error:
        logger.exception("spider %s: seeds raised an error", spider.name)
        raise ItemGraphError(
            f"spider {spider.name}: seeds: {type(error).__name__}: {error}"
        ) from None


async def _apply(
    spider: Spider,
    seed: Callable[[Sequence[Operation]], Awaitable[Sequence[Note]]],
    checks: Checks,
    tallies: Tallies,
    seeds: Any,
) -> None:
    async def plant(chunk: list[Operation]) -> None:
        made = sum(note.label == NEW for note in await seed(chunk))
        tallies.ended(NO_TASK, Outcome.OK, items=made)

    chunk: list[Operation] = []
    count = 0
    progress = Progress("Sowing seeds", "operations", lambda line: logger.info("%s", line))
    outputs = callbacks.iterate(seeds, each=lambda given: given or ())
    async for one in outputs:
        try:
            chunk.append(_checked(spider, checks, one))
        except ItemGraphError as wrong:
            yield_lines.name(wrong, outputs)
            raise
        if len(chunk) == _CHUNK:
            await plant(chunk)
            count += len(chunk)
            progress.reach(count)
            chunk = []
    if chunk:
        await plant(chunk)


def _checked(spider: Spider, checks: Checks, seed: Any) -> Operation:
    where = f"spider {spider.name}, seeds"
    if not isinstance(seed, Operation):
        raise ForeignOutputError(
            f"{where}: yielded {type(seed).__name__} {seed!r:.80}; seeds are operations"
        )
    if isinstance(seed, CreateItem) and seed.is_id_drawn:
        raise OperationError(
            f"{where}: CreateItem without an id would be a new item at every start; give it one"
        )
    return checks.checked(seed, None, where)
