"""Jobs, processes of crawls of the queue, with their logs; and the runners that start them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import documents
from scrapy_itemgraph.store.admin.runner_reports import RunnerLine
from scrapy_itemgraph.web import bodies, models, queue_models
from scrapy_itemgraph.web.access import Operator, Reader, Steerer
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.parameters import AfterNumber, Limit

router = APIRouter()

JobNumber = Annotated[int, Path(ge=1, lt=bodies.INT64)]
WorkerNumber = Annotated[int, Path(ge=1, lt=bodies.INT32)]
RunnerName = Annotated[str, Path(min_length=1)]
OfCrawl = Annotated[str | None, Query(min_length=1, description="of this crawl alone")]
Open = Annotated[bool, Query(alias="open", description="those that are not over")]
Lines = Annotated[int, Query(ge=0, lt=bodies.INT64, description="lines that are known already")]


@router.get("/jobs", response_model=models.Page[queue_models.Job])
def list_jobs(
    graphs: AllGraphs,
    _: Reader,
    crawl: OfCrawl = None,
    is_open: Open = False,
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List jobs, the newest first."""
    found = graphs.served.jobs.list(crawl=crawl, is_open=is_open, before=after or None, limit=limit)
    return answer(page(found, limit, lambda one: one.id))


@router.get("/jobs/{job}", response_model=queue_models.Job)
def show_job(graphs: AllGraphs, _: Reader, job: JobNumber) -> Response:
    """Return a job: its process, how it ended, and where its log is."""
    return answer(graphs.served.jobs.get(job))


@router.get("/jobs/{job}/log", response_model=queue_models.JobLog)
def read_log(graphs: AllGraphs, _: Reader, job: JobNumber, after: Lines = 0) -> Response:
    """Return what a job's process wrote after so many lines, of the last 64 kB.

    To follow it, ask again with what `next` has, each second or two, until `is_over`.
    """
    return answer(graphs.served.jobs.log(job, after))


@router.post("/jobs/{job}/cancel", response_model=queue_models.CancelledJob)
def cancel_job(graphs: AllGraphs, visitor: Steerer, job: JobNumber) -> Response:
    """Cancel a job that waits, or have its process end in order; its crawl goes on."""
    return answer({"job": job, "crawl": graphs.served.jobs.cancel(job, by=visitor.by)})


@router.post("/jobs/{job}/retry", response_model=queue_models.RetriedJob)
def retry_job(graphs: AllGraphs, visitor: Steerer, job: JobNumber) -> Response:
    """Have another process do what a job did; its crawl becomes active."""
    made, crawl = graphs.served.jobs.retry(job, by=visitor.by)
    return answer({"job": made, "crawl": crawl, "instead_of": job})


@router.post("/jobs/{job}/reclaim", response_model=queue_models.Reclaimed)
def reclaim_job(
    graphs: AllGraphs, visitor: Operator, job: JobNumber, given: bodies.Reclaiming
) -> Response:
    """End a job whose process nobody sees; its claims are free, and its place as well."""
    graphs.served.jobs.reclaim(job, given.reason, by=visitor.by)
    return answer({"target": f"job:{job}", "reason": given.reason})


@router.post("/workers/{worker}/reclaim", response_model=queue_models.Reclaimed)
def reclaim_worker(
    graphs: AllGraphs, visitor: Operator, worker: WorkerNumber, given: bodies.Reclaiming
) -> Response:
    """Free the claims of a worker that nobody sees."""
    graphs.served.jobs.reclaim_worker(worker, given.reason, by=visitor.by)
    return answer({"target": f"worker:{worker}", "reason": given.reason})


@router.get("/runners", response_model=list[queue_models.Runner])
def list_runners(graphs: AllGraphs, _: Reader) -> Response:
    """List the runners, those that live and those that did."""
    return answer([_plain(one) for one in graphs.served.runners.list()])


@router.get("/runners/{runner:segment}", response_model=queue_models.ShownRunner)
def show_runner(graphs: AllGraphs, _: Reader, runner: RunnerName) -> Response:
    """Return a runner: what its places have, what it takes, and how its host is."""
    found = graphs.served.runners.get(runner)
    places = documents.of(graphs.served.runners.places(runner))
    return answer({**_plain(found), "in_places": places})


@router.patch("/runners/{runner:segment}", response_model=queue_models.Runner)
def set_runner(
    graphs: AllGraphs, visitor: Operator, runner: RunnerName, given: bodies.ChangedRunner
) -> Response:
    """Change which crawls a runner takes, until it starts again."""
    changes = given.model_dump(exclude_none=True)
    if not changes:
        raise OperationError('say what is to be changed, such as {"tags": ["big"]}')
    return answer(_plain(graphs.served.runners.set(runner, by=visitor.by, **changes)))


@router.post("/runners/{runner:segment}/drain", response_model=queue_models.DrainedRunner)
def drain_runner(graphs: AllGraphs, visitor: Operator, runner: RunnerName) -> Response:
    """Have a runner start nothing more; what runs comes to its end."""
    is_new = graphs.served.runners.drain(runner, by=visitor.by)
    return answer({"runner": runner, "drains": True, "is_changed": is_new})


@router.post("/runners/{runner:segment}/undrain", response_model=queue_models.DrainedRunner)
def undrain_runner(graphs: AllGraphs, visitor: Operator, runner: RunnerName) -> Response:
    """Have a runner that drains start something again."""
    is_new = graphs.served.runners.drain(runner, by=visitor.by, drains=False)
    return answer({"runner": runner, "drains": False, "is_changed": is_new})


@router.post("/runners/{runner:segment}/reclaim", response_model=queue_models.Reclaimed)
def reclaim_runner(
    graphs: AllGraphs, visitor: Operator, runner: RunnerName, given: bodies.Reclaiming
) -> Response:
    """Take from a runner what it has, as if it were dead: its crawls are started elsewhere."""
    graphs.served.runners.reclaim(runner, given.reason, by=visitor.by)
    return answer({"target": runner, "reason": given.reason})


def _plain(one: RunnerLine) -> dict[str, Any]:
    return {**documents.of(one), "state": one.state}
