"""The queue of crawls: added, listed, steered, and why one waits."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import crawl_arguments, crawl_waits, documents, periods
from scrapy_itemgraph.model.crawl_states import Change, ManagedCrawl, State
from scrapy_itemgraph.model.rules import Ruleset
from scrapy_itemgraph.web import bodies, models, queue_models, schedule_terms
from scrapy_itemgraph.web.access import Reader, Steerer
from scrapy_itemgraph.web.crawl_terms import Terms
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.parameters import AfterNumber, Limit

router = APIRouter()

CrawlName = Annotated[str, Path(min_length=1, max_length=255)]
States = Annotated[list[State], Query(description="left out: all")]
Tag = Annotated[str | None, Query(min_length=1, description="with this tag alone")]
Turn = Annotated[str | None, Query(description="what the page before has as `next`")]


@router.get("/queue", response_model=models.Page[queue_models.ListedCrawl])
def list_queue(
    graphs: AllGraphs,
    _: Reader,
    state: States = [],  # noqa: B006 - FastAPI copies it
    tag: Tag = None,
    after: Turn = None,
    limit: Limit = 100,
) -> Response:
    """List crawls in the order of their turns, by project, and why each waits.

    After the active ones come those that are paused, aborted and finished, of each the newest
    first. By `tag` 5,000 are looked at: a page may have fewer rows than `limit`, and a `next`.
    """
    found = graphs.served.queue.page(state, tag=tag, after=after, limit=limit)
    rows = [
        {**_plain(one.crawl), **{name: getattr(one, name) for name in _WHY}} for one in found.rows
    ]
    return answer({"rows": rows, "next": found.next})


_WHY = ("why", "by", "since", "due_at")


@router.post("/queue", response_model=queue_models.AddedCrawl, status_code=201)
def add_crawl(
    graphs: AllGraphs, visitor: Steerer, terms: Terms, given: bodies.NewCrawl
) -> Response:
    """Put a crawl into the queue, which a runner of its project takes when it is its turn.

    A crawl that was started by hand with the same spider and arguments goes on as this one. With
    `every`, `at` or `cron` it is started by that schedule alone, and not now.
    """
    graph = graphs.served
    new, warnings = terms.new_crawl(
        given.spider,
        given.project,
        given.arguments,
        given.settings,
        name=given.name,
        is_paused=given.paused,
        time_limit=_period(given.time_limit),
        rules=None if given.accept is None else Ruleset.accepting(given.accept),
        **{name: getattr(given, name) for name in _PLAIN},
    )
    schedule = schedule_terms.of_new_crawl(given.model_dump(), is_paused=given.paused)
    added = graph.queue.add(new, by=visitor.by, schedule=schedule)
    document = {
        **_plain(graph.queue.get(added.name)),
        "explained": _sentences(graph, added.name),
        "warnings": [*warnings, *added.warnings],
    }
    return answer(document, 201)


_PLAIN = ("nice", "concurrency", "tag", "note", "resource", "keeps_fresh")


@router.get("/queue/{crawl:segment}", response_model=queue_models.ShownCrawl)
def show_crawl(graphs: AllGraphs, _: Reader, crawl: CrawlName) -> Response:
    """Return a crawl of the queue: its terms, why it runs or waits, and what happened last."""
    queue = graphs.served.queue
    document = {
        **_plain(queue.get(crawl)),
        "explained": _sentences(graphs.served, crawl),
        "processes": documents.of(queue.processes(crawl)),
        "history": documents.of(queue.history(crawl, limit=5)),
    }
    return answer(document)


@router.patch("/queue/{crawl:segment}", response_model=queue_models.QueuedCrawl)
def set_terms(
    graphs: AllGraphs,
    visitor: Steerer,
    terms: Terms,
    crawl: CrawlName,
    given: bodies.ChangedTerms,
) -> Response:
    """Change the terms of a crawl while it runs or waits."""
    queue = graphs.served.queue
    changes = {name: getattr(given, name) for name in given.model_fields_set}
    if not changes:
        raise OperationError('say what is to be changed, such as {"nice": -5}')
    if "time_limit" in changes:
        changes["time_limit"] = _period(given.time_limit)
    if "settings" in changes:
        settings = crawl_arguments.texts(changes.pop("settings"))
        terms.check({}, settings)
        now = queue.get(crawl)
        changes["start_settings"] = {**now.settings, **settings}
        terms.check_feeds(now.project, changes["start_settings"])
    return answer(_plain(queue.set(crawl, by=visitor.by, **changes)))


@router.post("/queue/{crawl:segment}/pause", response_model=queue_models.SteeredCrawl)
def pause(
    graphs: AllGraphs, visitor: Steerer, crawl: CrawlName, given: bodies.Reasoned | None = None
) -> Response:
    """Have a crawl rest: nothing more is requested; what is under way is committed."""
    return _steered(graphs.served, crawl, Change.PAUSE, visitor.by, _reason(given))


@router.post("/queue/{crawl:segment}/drain", response_model=queue_models.SteeredCrawl)
def drain(
    graphs: AllGraphs, visitor: Steerer, crawl: CrawlName, given: bodies.Reasoned | None = None
) -> Response:
    """Pause a crawl, unless it is; ask again until no process of it runs any more."""
    graph = graphs.served
    if graph.queue.get(crawl).state is State.PAUSED:
        return _state(graph, crawl, State.PAUSED)
    return _steered(graph, crawl, Change.PAUSE, visitor.by, _reason(given))


@router.post("/queue/{crawl:segment}/resume", response_model=queue_models.SteeredCrawl)
def resume(graphs: AllGraphs, visitor: Steerer, crawl: CrawlName) -> Response:
    """Have a paused crawl go on, at the place in the queue that it had."""
    return _steered(graphs.served, crawl, Change.RESUME, visitor.by)


@router.post("/queue/{crawl:segment}/abort", response_model=queue_models.SteeredCrawl)
def abort(
    graphs: AllGraphs, visitor: Steerer, crawl: CrawlName, given: bodies.Reasoned | None = None
) -> Response:
    """End a crawl where it is: nothing more is requested; what it has stays."""
    return _steered(graphs.served, crawl, Change.ABORT, visitor.by, _reason(given))


@router.post("/queue/{crawl:segment}/revive", response_model=queue_models.SteeredCrawl)
def revive(
    graphs: AllGraphs, visitor: Steerer, crawl: CrawlName, given: bodies.Reviving | None = None
) -> Response:
    """Have a crawl go on that was aborted, or one that is finished begin another run."""
    keeps_place = given is not None and given.keep_place
    return _steered(graphs.served, crawl, Change.REVIVE, visitor.by, keeps_place=keeps_place)


def _steered(
    graph: ItemGraph,
    crawl: str,
    change: Change,
    by: str,
    reason: str | None = None,
    *,
    keeps_place: bool = False,
) -> Response:
    state = graph.queue.change(crawl, change, by=by, reason=reason, keeps_place=keeps_place)
    return _state(graph, crawl, state)


def _state(graph: ItemGraph, crawl: str, state: State) -> Response:
    processes = len(graph.queue.processes(crawl))
    return answer({"name": crawl, "state": str(state), "processes": processes})


def _reason(given: bodies.Reasoned | None) -> str | None:
    return None if given is None else given.reason


@router.get("/queue/{crawl:segment}/explain", response_model=queue_models.ExplainedCrawl)
def explain_crawl(graphs: AllGraphs, _: Reader, crawl: CrawlName) -> Response:
    """Say why a crawl runs or waits: its state, its turn, and which runners could take it."""
    waits = graphs.served.queue.explain(crawl)
    runners = [
        {**documents.of(one), "refusal": crawl_waits.refusal(one, waits.crawl.tag)}
        for one in waits.runners
    ]
    sentences = list(crawl_waits.sentences(waits))
    return answer({**_plain(waits.crawl), "sentences": sentences, "runners": runners})


@router.get("/queue/{crawl:segment}/whereis", response_model=list[queue_models.CrawlProcess])
def find_processes(graphs: AllGraphs, _: Reader, crawl: CrawlName) -> Response:
    """Say where the processes of a crawl run: runner and place, host and process, since when."""
    return answer(graphs.served.queue.processes(crawl))


@router.get("/queue/{crawl:segment}/history", response_model=models.Page[queue_models.CrawlEvent])
def read_history(
    graphs: AllGraphs, _: Reader, crawl: CrawlName, after: AfterNumber = 0, limit: Limit = 100
) -> Response:
    """List what happened to a crawl, the newest first: when, by whom, and why."""
    found = graphs.served.queue.history(crawl, before=after or None, limit=limit)
    return answer(page(found, limit, lambda one: one.id))


@router.put("/queue/{crawl:segment}/lock", response_model=queue_models.LockedPlace)
def lock_place(
    graphs: AllGraphs, visitor: Steerer, crawl: CrawlName, given: bodies.PlaceLock
) -> Response:
    """Keep a place of a runner for a crawl, whatever its turn is."""
    place = graphs.served.queue.lock(
        crawl, given.runner, given.place, by=visitor.by, until_finished=given.until_finished
    )
    return answer({"name": crawl, "runner": given.runner, "place": place})


@router.delete("/queue/{crawl:segment}/lock", response_model=list[queue_models.UnlockedPlace])
def unlock_places(graphs: AllGraphs, visitor: Steerer, crawl: CrawlName) -> Response:
    """Let the places that are kept for a crawl be had by others."""
    places = graphs.served.queue.unlock(crawl, by=visitor.by)
    return answer([{"runner": runner, "place": place} for runner, place in places])


def _plain(crawl: ManagedCrawl) -> dict[str, Any]:
    """Return a crawl as the command line has it, secrets left out."""
    shown: dict[str, Any] = documents.of(crawl)
    return {**shown, "arguments": crawl_arguments.without_secrets(crawl.arguments)}


def _sentences(graph: ItemGraph, crawl: str) -> list[str]:
    return list(crawl_waits.sentences(graph.queue.explain(crawl)))


def _period(given: str | float | None) -> Any:
    try:
        return None if given is None else periods.parse_period(given, "time_limit")
    except ValueError as error:
        raise OperationError(str(error)) from None
