"""Pages that are set aside, and more attempts for one."""

from __future__ import annotations

from fastapi import APIRouter, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import documents
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.web import bodies, models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer
from scrapy_itemgraph.web.graphs import CrawlGraph

router = APIRouter()

_WHICH = 'say which: "pages" by id, alias or URL, or a filter such as "url_part"'


@router.post("/pages/skip", response_model=models.SetAside)
def skip(graph: CrawlGraph, _: Operator, given: bodies.SettingAside) -> Response:
    """Set pages aside that nobody wants."""
    return answer({"pages": _set_aside(graph, Hold.SKIPPED, given)})


@router.post("/pages/stash", response_model=models.SetAside)
def stash(graph: CrawlGraph, _: Operator, given: bodies.SettingAside) -> Response:
    """Set pages aside for later."""
    return answer({"pages": _set_aside(graph, Hold.STASHED, given)})


@router.post("/pages/unskip", response_model=models.SetAside)
def unskip(graph: CrawlGraph, _: Operator, given: bodies.Freeing) -> Response:
    """Free pages that are skipped."""
    return answer({"pages": _free(graph, Hold.SKIPPED, given)})


@router.post("/pages/unstash", response_model=models.SetAside)
def unstash(graph: CrawlGraph, _: Operator, given: bodies.Freeing) -> Response:
    """Free pages that are stashed."""
    return answer({"pages": _free(graph, Hold.STASHED, given)})


@router.post("/pages/unleave", response_model=models.SetAside)
def unleave(graph: CrawlGraph, _: Operator, given: bodies.Freeing) -> Response:
    """Free pages that were left when the spider closed its run."""
    return answer({"pages": _free(graph, Hold.LEFT, given)})


@router.post("/pages/tries", response_model=models.Attempts)
def tries(graph: CrawlGraph, _: Operator, given: bodies.MoreAttempts) -> Response:
    """Give a page more attempts, whatever its task says; open failures of it are handled."""
    tasks = graph.pages.give_attempts(given.page, given.attempts, task=given.task)
    return answer({"attempts": given.attempts, "tasks": tasks})


@router.get("/dripfeed", response_model=models.Dripfed)
def dripfed(graph: CrawlGraph, _: Reader) -> Response:
    """Say how many pages of the stash are kept in work."""
    return answer({"pages": graph.pages.dripfed()})


@router.put("/dripfeed", response_model=models.Dripfed)
def dripfeed(graph: CrawlGraph, _: Operator, given: bodies.Dripfeed) -> Response:
    """Keep so many pages of the stash in work: they are freed as others are done."""
    graph.pages.dripfeed(given.pages)
    return answer({"pages": given.pages})


@router.get("/depth", response_model=models.Depth | None)
def depth(graph: CrawlGraph, _: Reader) -> Response:
    """Say how deep pages are, and may be; null where that is not tracked."""
    return answer(graph.depths.standing())


@router.put("/depth", response_model=models.SetDepth | None)
def set_depth(graph: CrawlGraph, visitor: Operator, given: bodies.DepthLimit) -> Response:
    """Say how many links deep pages may be; depths are tracked from now on.

    Null is answered to a dry run where depths are not tracked.
    """
    if not given.dry_run:
        graph.depths.set_limit(given.limit, by=visitor.by)
        return answer(graph.depths.standing())
    cost, standing = graph.costs.of_depth(given.limit), graph.depths.standing()
    told = {"cost": cost._asdict()}
    return answer(None if standing is None else {**documents.of(standing), **told})


def _set_aside(graph: ItemGraph, hold: Hold, given: bodies.SettingAside) -> int:
    has_filter = given.url_part is not None or given.tag is not None
    if bool(given.pages) == has_filter:
        raise OperationError(_WHICH)
    if given.pages:
        return graph.pages.set_aside(hold, given.pages)
    return graph.pages.set_aside_all(hold, part=given.url_part, tag=given.tag)


def _free(graph: ItemGraph, hold: Hold, given: bodies.Freeing) -> int:
    has_filter = given.url_part is not None or given.all
    if bool(given.pages) == has_filter:
        raise OperationError(_WHICH)
    if given.pages:
        return graph.pages.free(hold, given.pages)
    return graph.pages.free_all(hold, part=given.url_part)
