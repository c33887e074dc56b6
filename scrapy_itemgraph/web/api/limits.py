"""Slots and other limits, which all crawls share: shown, blocked, set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import documents, periods
from scrapy_itemgraph.model.rates import RateLimit
from scrapy_itemgraph.web import bodies, models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer
from scrapy_itemgraph.web.graphs import AllGraphs, CrawlGraph
from scrapy_itemgraph.web.parameters import Limit

if TYPE_CHECKING:
    from scrapy_itemgraph.store.admin.limit_changes import Changed

router = APIRouter()
of_crawl = APIRouter()

SlotName = Annotated[str, Path(min_length=1, description="a slot's name, or a page's URL")]
LimitName = Annotated[str, Path(min_length=1, description="as `slots` lists it")]


@of_crawl.get("/slots", response_model=list[models.Slot])
def slots_of_crawl(graph: CrawlGraph, _: Reader, limit: Limit = 100) -> Response:
    """List the limits that a crawl's work keeps to, slots with the most work first."""
    return answer(graph.limits.list(of_crawl=True, limit=limit))


@router.get("/slots", response_model=list[models.Slot])
def list_slots(graphs: AllGraphs, _: Reader, limit: Limit = 100) -> Response:
    """List limits with names, and slots that have work or anything set or learned."""
    return answer(graphs.served.limits.list(limit=limit))


@router.put("/slots/{slot:segment}/block", response_model=models.ChangedSlot)
def block_slot(graphs: AllGraphs, _: Operator, slot: SlotName, given: bodies.Block) -> Response:
    """Let nothing start in a slot until a moment, or for a period, in any crawl."""
    if (given.until is None) == (given.for_ is None):
        raise OperationError('give one of "until" and "for"')
    try:
        period = None if given.for_ is None else periods.parse_period(given.for_, '"for"')
    except ValueError as error:
        raise OperationError(str(error)) from None
    return _changed(graphs.served.limits.block(slot, until=given.until, for_=period))


@router.delete("/slots/{slot:segment}/block", response_model=models.ChangedSlot)
def unblock_slot(graphs: AllGraphs, _: Operator, slot: SlotName) -> Response:
    """End a slot's block, be it a person's or one that the site asked for."""
    return _changed(graphs.served.limits.unblock(slot))


@router.put("/slots/{slot:segment}/delay", response_model=models.ChangedSlot)
def set_delay(graphs: AllGraphs, _: Operator, slot: SlotName, given: bodies.Delay) -> Response:
    """Set the least seconds between two starts in a slot."""
    return _changed(graphs.served.limits.set_delay(slot, given.seconds))


@router.put("/limits/{name:segment}", response_model=models.ChangedSlot)
def set_limit(graphs: AllGraphs, _: Operator, name: LimitName, given: bodies.Limit) -> Response:
    """Set the rate of a limit, and how much of it runs at once."""
    if not given.model_fields_set:
        raise OperationError(
            'give "rate" or "concurrency" or both, such as {"rate": "10/s"}; {"rate": null} takes '
            "what was set back"
        )
    try:
        rate: Any = given.rate
        if given.concurrency is not None:
            rate = RateLimit(given.rate, concurrency=given.concurrency)
    except ValueError as error:
        raise OperationError(str(error)) from None
    return _changed(graphs.served.limits.set_rate(name, rate))


def _changed(changed: Changed) -> Response:
    limit = documents.of(changed.limit)
    rest = {"is_changed": changed.is_changed, "is_new": changed.is_new, "hint": changed.hint}
    return answer({**limit, **rest})
