"""Writing a parser: what a task or a plain callback would do."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from itemadapter import is_item
from scrapy import signals
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import parsing, simulation_lines, spiders
from scrapy_itemgraph.commands.arguments import CATEGORY, DATA, ID_HELP, TAG, URL
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import ItemGraphError, NotFoundError
from scrapy_itemgraph.model import input_checks, item_names, operations, tasks
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.simulations import SimulationPlan
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.tools.wording import closest
from scrapy_itemgraph.worker.spider.validation import TTL

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.model.simulations import Simulation
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.worker.simulation import PlainPage, SimulationWorker

_FAILED = 1
# What is shown elsewhere.
_QUIET = {"item_log", "failed", "retry", "refused", "operation", "commit_refused"}


@command(
    Argument("spider", help="the spider's name"),
    Argument(
        "first",
        metavar="TASK|PAGE",
        help=f"a task, before an item's ID; or a page alone: {ID_HELP}",
    ),
    Argument("second", metavar="ID", nargs="?", help="the item of the task"),
    Argument("--callback", metavar="NAME", help="of a page: another callback than its own"),
    Argument(
        "--response",
        metavar="FILE",
        type=Path,
        help="a saved page, in the place of the one that is requested",
    ),
    DATA,
    URL,
    TAG,
    Argument(
        "-a",
        metavar="NAME=VALUE",
        dest="arguments",
        type=parsing.spider_argument,
        action="append",
        default=[],
        help="an argument of the spider; may be repeated",
    ),
    Argument(
        "--pipelines",
        action="store_true",
        help="send scraped items through the project's item pipelines too",
    ),
    CATEGORY,
)
def simulate(call: Call) -> int:
    """Run a plain callback on a page, or a task of an item, and show what it would change.

    The graph stays as it is. A page that nobody has seen goes to the callback that its URL leads to.
    The website is visited as in a crawl, within its limits, follow-ups included; with
    -s HTTPCACHE_ENABLED=1 a page is got once. An item that does not exist is made up by --data or --url,
    with the task's tags unless --tag says otherwise. The exit code is 1 if the execution fails.
    """  # noqa: E501 - lines as they are printed
    spider_class = spiders.spider_class(call.scrapy_settings, call.given.spider)
    wanted = _wanted(call, spider_class)
    page = call.given.response
    if page is not None:
        page.read_bytes()  # or say at once that it cannot be
    run = _Run(call, spider_class, wanted)
    run.start()
    document = run.document()
    call.write(document, simulation_lines.lines(document, run.simulation, call.given.category))
    return 0 if document["outcome"] in _GOOD else _FAILED


_GOOD = {Outcome.OK, Outcome.GONE, Outcome.SKIPPED}


def _wanted(call: Call, spider_class: type[Spider]) -> SimulationPlan | PlainPage:
    """Return what the words name: a page, or a task and an item, or a callback and a page."""
    # SQLAlchemy, which other commands need not.
    from scrapy_itemgraph.worker.simulation import PlainPage  # noqa: PLC0415

    given = call.given
    makes_up = given.data is not None or given.url is not None or bool(given.tag)
    if given.second is None:
        if given.first in tasks.discover(spider_class):
            raise UsageError(f"{given.first!r} is a task; say of which item: TASK ID")
        if makes_up:
            raise UsageError("--data, --url and --tag make up the item of a task: TASK ID")
        return PlainPage(name=input_checks.check_id(given.first), callback=given.callback)
    if given.callback is not None:
        raise UsageError("--callback is for a page alone; leave the task out")
    if makes_up or given.first in tasks.discover(spider_class):
        return _plan(call, _task(spider_class, given.first))
    callback = given.first.removeprefix(tasks.SET_ASIDE)
    return PlainPage(name=input_checks.check_id(given.second), callback=callback)


def _task(spider_class: type[Spider], name: str) -> Task:
    declared = tasks.discover(spider_class)
    if name not in declared:
        listed = ", ".join(declared) or "none"
        raise NotFoundError(
            f"the spider {spider_class.name} has no task {name!r}{closest(name, declared)}; "
            f"its tasks are {listed}"
        )
    return declared[name]


def _plan(call: Call, task: Task) -> SimulationPlan:
    given = call.given
    name = input_checks.check_id(given.second)
    if given.data is not None and given.url is not None:
        raise UsageError("give --data or --url, not both")
    data = given.data if given.url is None else {"url": given.url}
    if data is None and not given.tag:
        return SimulationPlan(task=task.name, item=name)
    tags = dict(given.tag) or dict.fromkeys(task.tags)
    made = operations.CreateItem(name, tags, data or {})
    checked = operations.checked(made, f"the item {name!r}")
    assert isinstance(checked, operations.CreateItem)
    return SimulationPlan(task=task.name, item=name, made=checked)


class _Warnings(logging.Handler):
    """Keeps what is said at WARNING and above, and is shown nowhere else."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", None) not in _QUIET:
            self.lines.append(record.getMessage())


class _Run:
    """One crawler that simulates, and what is seen of it."""

    def __init__(
        self, call: Call, spider_class: type[Spider], wanted: SimulationPlan | PlainPage
    ) -> None:
        self._call = call
        self._spider_class = spider_class
        self._wanted = wanted
        self._warnings = _Warnings()
        self._requests: list[dict[str, Any]] = []
        self._scraped: list[str] = []
        self._reason = ""
        self._worker: SimulationWorker | None = None

    def start(self) -> None:
        """Crawl.

        Raises:
            ItemGraphError: there was nothing to run, or it could not run.
            KeyboardInterrupt: it was interrupted.

        """
        # SQLAlchemy, which other commands need not.
        from scrapy_itemgraph.worker import worker as workers  # noqa: PLC0415
        from scrapy_itemgraph.worker.simulation import SimulationWorker  # noqa: PLC0415

        call = self._call
        logging.getLogger("scrapy_itemgraph").addHandler(self._warnings)
        process = AsyncCrawlerProcess(_settings(call))  # type: ignore[arg-type]
        crawler = process.create_crawler(self._spider_class)

        def make(crawler: Crawler) -> SimulationWorker:
            crawl, page = call.crawl, call.given.response
            wanted = self._wanted
            self._worker = SimulationWorker(crawler, wanted=wanted, crawl=crawl, page=page)
            return self._worker

        workers.make_with(crawler, make)
        crawler.signals.connect(self._got, signals.response_received)
        crawler.signals.connect(self._scrape, signals.item_scraped)
        crawler.signals.connect(self._closed, signals.spider_closed)
        crawl = process.crawl(crawler, **dict(call.given.arguments))
        process.start()
        if self._reason == "shutdown":
            raise KeyboardInterrupt
        if self._worker is None or self._worker.simulation is None:
            raise ItemGraphError(self._why_not(crawl))

    def _why_not(self, crawl: asyncio.Task[None]) -> str:
        """Say why nothing was simulated."""
        error = crawl.exception() if crawl.done() and not crawl.cancelled() else None
        if self._worker is not None and self._worker.failure is not None:
            return self._worker.failure
        if self._warnings.lines:
            return self._warnings.lines[-1]
        if error is not None:
            return f"the spider does not start: {type(error).__name__}: {error}"
        if self._worker is None:
            return (
                "scrapy-itemgraph is not switched on in this project; put "
                'ADDONS = {"scrapy_itemgraph.Addon": 500} into its settings'
            )
        return "it was stopped before the execution had ended"

    @property
    def simulation(self) -> Simulation:
        """What it came to."""
        assert self._worker is not None
        assert self._worker.simulation is not None
        return self._worker.simulation

    def _got(self, response: Response, request: Request) -> None:
        source = next((one for one in ("cached", "saved") if one in response.flags), "website")
        self._requests.append(
            {
                "method": request.method,
                "url": response.url,
                "status": response.status,
                "source": source,
                "cookies": _cookies(request),
            }
        )

    def _scrape(self, item: Any) -> None:
        self._scraped.append(repr(item))
        kind = type(item).__name__
        said = f"a {kind} was yielded, which is no item: feeds and pipelines want a dict"
        if not is_item(item) and said not in self._warnings.lines:
            self._warnings.lines.append(said)

    def _closed(self, reason: str) -> None:
        self._reason = reason

    def document(self) -> dict[str, Any]:
        """Return all that is known, for JSON."""
        from scrapy_itemgraph.spidermiddlewares import given_fields  # noqa: PLC0415 - as above

        assert self._worker is not None
        simulation = self.simulation
        changeset, applied = simulation.changeset, simulation.applied
        error = applied.error or changeset.error
        dropped = changeset.operations if applied.error is not None else self._worker.dropped
        made, is_done = self._worker.made, applied.outcome is Outcome.OK
        claim = changeset.claim
        assert claim is not None
        url, method = item_names.page_of(claim.item.data)
        return {
            "spider": self._spider_class.name,
            "task": claim.task,
            "item": claim.item.id,
            "url": url,
            "method": method,
            "is_made_up": simulation.is_made_up,
            "is_fetched_again": self._is_fetched_again(claim),
            "outcome": str(applied.outcome),
            "error": None if error is None else asdict(error),
            "allow_failure": changeset.allow_failure,
            "released_because": None
            if applied.outcome is not Outcome.RELEASED
            else self._worker.released_because,
            "retry_in": None if changeset.delay is None else changeset.delay.total_seconds(),
            "requests": self._requests,
            "operations": [
                {"operation": one.operation, "label": one.label, "text": one.text}
                for one in applied.notes
            ],
            "yielded": _yielded(simulation),
            "has_yielded": made.has_yielded,
            "not_yielded": [one._asdict() for one in made.not_yielded()] if is_done else [],
            "changes": [asdict(one) for one in simulation.changes],
            "dropped": [{"op": one.spelling, **given_fields(one)} for one in dropped],
            "scraped": self._scraped,
            "log": [line._asdict() for line in changeset.log],
            "warnings": [
                *self._warnings.lines,
                *made.misfits(),
                *_uncalled(claim, self._worker.task_of(claim)),
            ],
        }

    def _is_fetched_again(self, claim: Claim) -> bool:
        """Tell whether a new run fetches a page that is done again: nothing says how long it is."""
        assert self._worker is not None
        task = self._worker.task_of(claim)
        incremental = self._call.settings.results.incremental_callbacks
        if not task.is_callback or incremental is None:
            return False
        request = claim.item.data.get("request", {})
        name = claim.task.removeprefix(tasks.SET_ASIDE)
        return name not in incremental and TTL not in (request.get("meta") or {})


def _cookies(request: Request) -> dict[str, str]:
    """Return the cookies that a request was sent with, or would be, by their names."""
    header = request.headers.get("Cookie") or b""
    pairs = (one.strip().partition("=") for one in header.decode(errors="replace").split(";"))
    return {name: value for name, _, value in pairs if name}


def _yielded(simulation: Simulation) -> list[dict[str, Any]]:
    """Return the requests that would become items, and which of them the graph has not seen."""
    new = {one.after.id for one in simulation.changes if one.kind == "new" and one.after}
    found = []
    for one in simulation.changeset.operations:
        if isinstance(one, EnqueueRequest):
            url, method = item_names.page_of(one.data)
            callback = next(map(tasks.callback_of_tag, one.tags), None)
            found.append(
                {
                    "item": one.id,
                    "url": url,
                    "method": method,
                    "callback": callback,
                    "is_new": one.id in new,
                }
            )
    return found


def _uncalled(claim: Claim, task: Task) -> Iterator[str]:
    """Say that a crawl would not run this."""
    if claim.item.tags.keys() & set(task.tags):
        return
    if task.is_callback:
        own = [tasks.callback_of_tag(tag) for tag in claim.item.tags if tasks.is_callback_tag(tag)]
        callbacks = ", ".join(own) or "no callback"
        yield f"in a crawl this page goes to {callbacks}, and not to {task.name}"
    else:
        tags = ", ".join(task.tags) or "none"
        yield f"the item has no tag that calls for {task.name} ({tags}); a crawl would not run it"


def _settings(call: Call) -> BaseSettings:
    """Return the project's settings, without what would write elsewhere."""
    settings = call.scrapy_settings.copy()
    changed: dict[str, Any] = {"FEEDS": {}, "TELNETCONSOLE_ENABLED": False}
    if not call.given.pipelines:
        changed["ITEM_PIPELINES"] = {}
    for name, value in changed.items():
        settings.set(name, value, "cmdline")
    return settings
