"""Schedules: crawls of the queue that are started again and again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import documents
from scrapy_itemgraph.model.schedule_terms import NewSchedule, Schedule
from scrapy_itemgraph.web import bodies, models, queue_models, schedule_terms
from scrapy_itemgraph.web.access import Reader, Steerer
from scrapy_itemgraph.web.api.jobs import OfCrawl
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.parameters import AfterNumber, Limit

router = APIRouter()

Number = Annotated[int, Path(ge=1, lt=bodies.INT32)]
Count = Annotated[int, Query(ge=1, le=1000, description="times at most")]
After = Annotated[bodies.Moment | None, Query(description="and not after now")]


@router.get("/schedules", response_model=models.Page[queue_models.Schedule])
def list_schedules(
    graphs: AllGraphs,
    _: Reader,
    crawl: OfCrawl = None,
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List schedules by their numbers: all, or those of a crawl."""
    found = graphs.served.schedules.list(crawl=crawl, after=after, limit=limit)
    return answer(page(found, limit, lambda one: one.id, plain))


@router.post("/schedules", response_model=queue_models.Schedule, status_code=201)
def add_schedule(graphs: AllGraphs, visitor: Steerer, given: bodies.NewSchedule) -> Response:
    """Have a crawl of the queue started again and again; each due time is started once at most."""
    rule = schedule_terms.rule_of(given.model_dump())
    if rule is None:
        raise OperationError('say when: {"every": "6h"}, {"at": "03:00"} or a line of "cron"')
    new = NewSchedule(rule=rule, **schedule_terms.terms_of(_sent(given)))
    return answer(plain(graphs.served.schedules.add(given.crawl, new, by=visitor.by)), 201)


@router.get("/schedules/{schedule}", response_model=queue_models.Schedule)
def show_schedule(graphs: AllGraphs, _: Reader, schedule: Number) -> Response:
    """Return a schedule, and when it is due next."""
    return answer(plain(graphs.served.schedules.get(schedule)))


@router.patch("/schedules/{schedule}", response_model=queue_models.Schedule)
def set_schedule(
    graphs: AllGraphs, visitor: Steerer, schedule: Number, given: bodies.ChangedSchedule
) -> Response:
    """Change when a schedule starts its crawl, or what it does when it is late."""
    sent = _sent(given)
    changes = schedule_terms.terms_of(sent)
    if schedule_terms.rule_of(sent) is not None:
        had = graphs.served.schedules.get(schedule)
        changes["rule"] = schedule_terms.rule_of(sent, zone=had.time_zone)
    if not changes:
        raise OperationError('say what is to be changed, such as {"at": "04:00"}')
    return answer(plain(graphs.served.schedules.set(schedule, by=visitor.by, **changes)))


@router.post("/schedules/{schedule}/enable", response_model=queue_models.Schedule)
def enable_schedule(graphs: AllGraphs, visitor: Steerer, schedule: Number) -> Response:
    """Have a schedule start its crawl again, from its next due time on."""
    return answer(plain(graphs.served.schedules.enable(schedule, by=visitor.by)))


@router.post("/schedules/{schedule}/disable", response_model=queue_models.Schedule)
def disable_schedule(graphs: AllGraphs, visitor: Steerer, schedule: Number) -> Response:
    """Have a schedule start nothing until it is enabled; what has not begun is cancelled."""
    return answer(plain(graphs.served.schedules.disable(schedule, by=visitor.by)))


@router.delete("/schedules/{schedule}", response_model=queue_models.RemovedSchedule)
def remove_schedule(graphs: AllGraphs, visitor: Steerer, schedule: Number) -> Response:
    """Remove a schedule; its crawl and its jobs stay, and what has not begun is cancelled."""
    graphs.served.schedules.remove(schedule, by=visitor.by)
    return answer({"id": schedule})


@router.get("/schedules/{schedule}/next", response_model=list[queue_models.DueTime])
def next_times(
    graphs: AllGraphs, _: Reader, schedule: Number, count: Count = 10, after: After = None
) -> Response:
    """Return when a schedule is due next, in UTC and on the clock of its time zone."""
    return answer(_next(graphs.served, schedule, count, after))


def _next(graph: ItemGraph, schedule: int, count: int, after: Any) -> list[dict[str, Any]]:
    zone = graph.schedules.get(schedule).time_zone
    times = graph.schedules.next(schedule, count=count, after=after)
    return [schedule_terms.due_time(one, zone) for one in times]


def _sent(given: bodies.ScheduleTerms) -> dict[str, Any]:
    return {name: getattr(given, name) for name in given.model_fields_set if name != "crawl"}


def plain(one: Schedule) -> dict[str, Any]:
    """Return a schedule as the command line has it."""
    return {**documents.of(one), "rule": str(one.rule)}
