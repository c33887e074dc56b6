"""Seeds: the operations with which a spider begins, applied at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import ForeignOutputError, ItemGraphError, OperationError
from scrapy_itemgraph.model.operations import CreateItem, Operation
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.progress import Progress
from scrapy_itemgraph.worker.spider import request_builder

if TYPE_CHECKING:
    from scrapy_itemgraph.worker.worker import Worker

logger = logs.logger(__name__)

_CHUNK = 500


async def sow(worker: Worker) -> None:
    """Apply what the spider's `seeds()` yields, a transaction for every few hundred.

    Raises:
        ItemGraphError: naming the spider and what is wrong with its seeds.

    """
    seeds = getattr(worker.spider, "seeds", None)
    if not callable(seeds):
        return
    try:
        await _apply(worker, seeds())
    except ItemGraphError:
        raise
    except Exception as error:
        logger.exception("spider %s: seeds raised an error", worker.spider.name)
        raise ItemGraphError(
            f"spider {worker.spider.name}: seeds: {type(error).__name__}: {error}"
        ) from None


async def _apply(worker: Worker, seeds: Any) -> None:
    chunk: list[Operation] = []
    count = 0
    progress = Progress("Sowing seeds", "operations", lambda line: logger.info("%s", line))
    async for seed in request_builder.iterate(seeds, each=lambda given: given or ()):
        chunk.append(_checked(worker, seed))
        if len(chunk) == _CHUNK:
            await worker.graph.seed(chunk)
            count += len(chunk)
            progress.reach(count)
            chunk = []
    if chunk:
        await worker.graph.seed(chunk)


def _checked(worker: Worker, seed: Any) -> Operation:
    where = f"spider {worker.spider.name}, seeds"
    if not isinstance(seed, Operation):
        raise ForeignOutputError(
            f"{where}: yielded {type(seed).__name__} {seed!r:.80}; seeds are operations"
        )
    if isinstance(seed, CreateItem) and seed.is_id_drawn:
        raise OperationError(
            f"{where}: CreateItem without an id would be a new item at every start; give it one"
        )
    return worker.checks.checked(seed, None, where)
