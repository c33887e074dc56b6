"""Runs: one task or plain callback in a crawler of its own, on saved pages."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerRunner
from scrapy.utils.project import get_project_settings, inside_project
from scrapy.utils.reactor import is_reactor_installed

from scrapy_itemgraph.exceptions import (
    ConfigurationError,
    ItemGraphError,
    NotFoundError,
    OperationError,
)
from scrapy_itemgraph.model import operations, tasks
from scrapy_itemgraph.model.operations import CreateItem, StoreResult
from scrapy_itemgraph.settings import read_project
from scrapy_itemgraph.testing import components, loop, server
from scrapy_itemgraph.testing.pages import SavedPages
from scrapy_itemgraph.testing.ran import Ran
from scrapy_itemgraph.testing.worker import CallbackRun, TaskRun, TestingWorker, check_given
from scrapy_itemgraph.tools.wording import closest
from scrapy_itemgraph.worker import worker as workers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import Settings as ScrapySettings

    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.testing.pages import Page

_TO_CLOSE = 2.0  # seconds that a run has to close after its time is over
_AFTER_OURS = -99  # the order of components next to the add-on's first ones
# No website is visited, and nothing is written but to the database for tests.
_SETTINGS: Mapping[str, Any] = {
    "FEEDS": {},
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "HTTPCACHE_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_SLOTS": {},
    "AUTOTHROTTLE_ENABLED": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 100,
    "ITEMGRAPH_SESSION_URL": None,
    "ITEMGRAPH_AUTO_MIGRATE": True,
    "ITEMGRAPH_RATE_LIMIT": None,
    "ITEMGRAPH_RATE_GROUPS": None,
    "ITEMGRAPH_BLOBS": None,
    "ITEMGRAPH_PUBLIC_ONLY": False,
    "ITEMGRAPH_TUNE_GC": False,
}


@dataclass(frozen=True)
class _Options:
    """What a run takes beside what is run."""

    pages: SavedPages
    arguments: Mapping[str, Any]
    settings: Mapping[str, Any]
    pipelines: bool
    timeout: float


def run_task(
    spider: type[Spider],
    task: str,
    *,
    page: Page | None = None,
    url: str | None = None,
    item: CreateItem | None = None,
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
    given: Sequence[Operation] = (),
    pages: Mapping[str, Page] | None = None,
    arguments: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    pipelines: bool = False,
    timeout: float = 60.0,
) -> Ran:
    """Run a task of a spider on a saved page.

    `page` is a file, its content as bytes, or a Response. `item` is the item under work; without
    one it has the task's tags and `url` in its data. `metadata` are results that it has, by task,
    and `given` are operations that make what else is in the graph. `pages` answer requests that
    callbacks yield, by their URLs; those that have none are not followed. `arguments` are those of
    the spider, `settings` come on top of the project's, and `pipelines` has scraped items go
    through the project's item pipelines. After `timeout` seconds the run is stopped.

    Raises:
        ItemGraphError: it cannot be run, or it does not end in time.

    """
    declared = _task(spider, task)
    saved = SavedPages(page, pages)
    if declared.download != saved.has_own:
        raise ConfigurationError(
            f"the task {task!r} downloads a page: give one, page=…"
            if declared.download
            else f"the task {task!r} is declared with download=False: leave page= out"
        )
    made = _item(declared, item, url or saved.url)
    if declared.download and declared.request is None and "url" not in made.data:
        raise ConfigurationError("give the URL of the page: url=…, or an item that has it")
    stored = [
        StoreResult(of_task, id=made.id, task=name) for name, of_task in (metadata or {}).items()
    ]
    wanted = TaskRun(task=task, item=made.id, given=check_given([made, *stored, *given]))
    options = _Options(saved, arguments or {}, settings or {}, pipelines, timeout)
    return _run(spider, wanted, options)


def run_callback(
    spider: type[Spider],
    callback: str,
    *,
    page: Page,
    url: str | None = None,
    meta: Mapping[str, Any] | None = None,
    cb_kwargs: Mapping[str, Any] | None = None,
    request: Request | None = None,
    given: Sequence[Operation] = (),
    pages: Mapping[str, Page] | None = None,
    arguments: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    pipelines: bool = False,
    timeout: float = 60.0,
) -> Ran:
    """Run a plain callback of a spider on a saved page, which is of `url`.

    The request has `meta` and `cb_kwargs`; `request` gives all of it instead, such as a method and
    a body. The rest is as for `run_task`; requests without a page become items, as in a crawl.

    Raises:
        ItemGraphError: it cannot be run, or it does not end in time.

    """
    saved = SavedPages(page, pages)
    if request is None:
        given_url = url or saved.url
        if given_url is None:
            raise ConfigurationError("give the URL of the page: url=…")
        request = Request(given_url, meta=dict(meta or {}), cb_kwargs=dict(cb_kwargs or {}))
    elif url is not None or meta is not None or cb_kwargs is not None:
        raise ConfigurationError("give request=, or url=, meta= and cb_kwargs=, not both")
    wanted = CallbackRun(callback=callback, request=request, given=check_given(given))
    options = _Options(saved, arguments or {}, settings or {}, pipelines, timeout)
    return _run(spider, wanted, options)


def _task(spider: type[Spider], name: str) -> Task:
    declared = tasks.discover(spider)
    if name not in declared:
        other = "; a plain callback is run with run_callback" if hasattr(spider, name) else ""
        raise NotFoundError(
            f"the spider {spider.name!r} has no task {name!r}{closest(name, declared)}; its tasks "
            f"are {', '.join(declared) or 'none'}{other}"
        )
    return declared[name]


def _item(task: Task, item: CreateItem | None, url: str | None) -> CreateItem:
    """Return what makes the item under work.

    Raises:
        OperationError: none of its tags calls for the task.

    """
    data = {} if url is None else {"url": url}
    if item is None:
        return CreateItem("ITEM", task.tags, data)
    tags = operations.tag_values(item.tags) or dict.fromkeys(task.tags)
    if not tags.keys() & set(task.tags):
        raise OperationError(
            f"the item {item.id!r} has no tag that calls for the task {task.name!r} "
            f"({', '.join(task.tags)}): give it one, or leave its tags out"
        )
    return replace(item, tags=tags, data={**data, **item.data})


def _run(spider: type[Spider], wanted: TaskRun | CallbackRun, options: _Options) -> Ran:
    project = _project_settings(options)
    crawl = _Crawl(spider, wanted, options, project)
    return loop.run(crawl.run, project, options.timeout)


def _project_settings(options: _Options) -> ScrapySettings:
    """Return the project's settings, or what a project would have that has the add-on alone."""
    settings = get_project_settings()
    if not inside_project():
        settings.set("ADDONS", {"scrapy_itemgraph.Addon": 500}, "project")
    settings.setdict(dict(options.settings), "cmdline")
    return settings


class _Crawl:
    """One crawler, and what is seen of it."""

    def __init__(
        self,
        spider: type[Spider],
        wanted: TaskRun | CallbackRun,
        options: _Options,
        settings: ScrapySettings,
    ) -> None:
        self._spider = spider
        self._wanted = wanted
        self._options = options
        self._settings = settings
        self._items: list[Any] = []
        self._worker: TestingWorker | None = None

    async def run(self) -> Ran:
        """Crawl, and return what came of it.

        Raises:
            ItemGraphError: there was nothing to run, or it could not run, or it did not end.

        """
        # With a reactor or without: it is the process's, whatever this project says.
        self._settings.set("TWISTED_REACTOR_ENABLED", is_reactor_installed(), "cmdline")
        self._settings.set("ASYNCIO_EVENT_LOOP", None, "cmdline")
        crawler = AsyncCrawlerRunner(self._settings).create_crawler(self._spider)
        await asyncio.to_thread(self._adapt, crawler)
        workers.make_with(crawler, self._make_worker)
        crawler.signals.connect(self._scrape, signals.item_scraped)
        crawl = asyncio.create_task(crawler.crawl_async(**self._options.arguments))
        is_ended = await self._ended(crawler, crawl)
        return self._ran(crawl, is_ended=is_ended)

    def _adapt(self, crawler: Crawler) -> None:
        """Change the settings of a run."""
        settings = crawler.settings
        given = dict(self._options.settings)
        for name, value in {**_SETTINGS, **given}.items():
            settings.set(name, value, "cmdline")
        if "ITEMGRAPH_DATABASE_URL" not in given:
            url = server.url(read_project(settings))
            settings.set("ITEMGRAPH_DATABASE_URL", url, "cmdline")
        if not self._options.pipelines:
            settings.set("ITEM_PIPELINES", {}, "cmdline")
        for name, cls in (
            ("DOWNLOADER_MIDDLEWARES", components.AnswersMiddleware),
            ("SPIDER_MIDDLEWARES", components.NotesMiddleware),
            ("EXTENSIONS", components.PagelessExtension),
        ):
            settings.setdefault_in_component_priority_dict(name, cls, _AFTER_OURS)

    def _make_worker(self, crawler: Crawler) -> TestingWorker:
        self._worker = TestingWorker(
            crawler,
            wanted=self._wanted,
            pages=self._options.pages,
            crawl=f"testing-{uuid.uuid4().hex}",
        )
        return self._worker

    def _scrape(self, item: Any) -> None:
        self._items.append(item)

    async def _ended(self, crawler: Crawler, crawl: asyncio.Task[None]) -> bool:
        """Wait for the end of a crawl, and stop it if that takes too long."""
        try:
            await asyncio.wait({crawl}, timeout=self._options.timeout)
            return crawl.done()
        finally:
            if not crawl.done():
                await self._stop(crawler, crawl)

    async def _stop(self, crawler: Crawler, crawl: asyncio.Task[None]) -> None:
        """Stop a crawl; where Scrapy cannot, at least our part of it."""
        worker = self._worker
        if worker is not None:
            worker.cancel_callbacks()
        stop = asyncio.create_task(crawler.stop_async())
        await asyncio.wait({crawl, stop}, timeout=_TO_CLOSE, return_when=asyncio.ALL_COMPLETED)
        if worker is not None and not crawl.done():
            await worker.close("shutdown")

    def _ran(self, crawl: asyncio.Task[None], *, is_ended: bool) -> Ran:
        worker = self._worker
        if not is_ended:
            raise ItemGraphError(
                f"the run did not end within {self._options.timeout:g} seconds (timeout=)"
            )
        if worker is None or worker.simulation is None:
            raise self._why_not(crawl)
        changeset, applied = worker.simulation.changeset, worker.simulation.applied
        assert changeset.claim is not None
        assert applied.outcome is not None
        return Ran(
            outcome=applied.outcome,
            error=applied.error or changeset.error,
            retry_in=changeset.delay,
            operations=worker.operations,
            requests=worker.requests,
            items=self._items,
            log=changeset.log,
            changes=worker.simulation.changes,
            item_id=changeset.claim.item.id,
        )

    def _why_not(self, crawl: asyncio.Task[None]) -> ItemGraphError:
        """Return what says why nothing was run."""
        error = crawl.exception() if crawl.done() and not crawl.cancelled() else None
        if self._worker is not None and self._worker.failure is not None:
            return ItemGraphError(self._worker.failure)
        if isinstance(error, ItemGraphError):
            return error
        if error is not None:
            why = ItemGraphError(f"the spider does not start: {type(error).__name__}: {error}")
            why.__cause__ = error
            return why
        if self._worker is None or not self._worker.is_asked:
            return ConfigurationError(
                "scrapy-itemgraph is not switched on in this project; put "
                'ADDONS = {"scrapy_itemgraph.Addon": 500} into its settings'
            )
        return ItemGraphError("the spider was closed before it had run")
