"""The ASGI application, which also mounts in a server that somebody has already."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from scrapy_itemgraph.web import api, health, login, metrics, models, pages, problems
from scrapy_itemgraph.web.access import Access, Reader
from scrapy_itemgraph.web.crawl_terms import CrawlTerms
from scrapy_itemgraph.web.has_queue import HasQueue
from scrapy_itemgraph.web.heads import Heads
from scrapy_itemgraph.web.pages import routes
from scrapy_itemgraph.web.protection import Headed, Protection
from scrapy_itemgraph.web.raw_paths import RawPaths
from scrapy_itemgraph.web.receiving import BODY_LIMIT, Receiving
from scrapy_itemgraph.web.searches import Searches
from scrapy_itemgraph.web.simulation_processes import Simulations
from scrapy_itemgraph.web.streams import Ending, Streams

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from starlette.types import ASGIApp

    from scrapy_itemgraph.channels.channel import Channels
    from scrapy_itemgraph.web.graphs import Graphs

STATIC = files("scrapy_itemgraph.web") / "static"
DESCRIPTION = "The item graph of a Scrapy project: what was crawled, what is to be, and why."


class Application(FastAPI):
    """An application whose headers are on every answer, also where an error is not foreseen."""

    def build_middleware_stack(self) -> ASGIApp:
        """Put the headers outside of all that may fail."""
        return Headed(super().build_middleware_stack())

    def openapi(self) -> dict[str, Any]:
        """Describe the API; each refusal is a problem document."""
        if self.openapi_schema is None:
            schema = super().openapi()
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = models.Problem.model_json_schema()
            self.openapi_schema = schema
        return self.openapi_schema


def create_app(
    graphs: Graphs,
    *,
    allowed_hosts: Collection[str] = (),
    any_address: bool = False,
    body_limit: int = BODY_LIMIT,
    simulate: Sequence[str] | None = None,
    without_tokens: bool = False,
    crawl_terms: CrawlTerms | None = None,
    channels: Channels | None = None,
) -> FastAPI:
    """Make the application that serves graphs, which stay open as long as it is used.

    It answers under this machine's own names, `localhost` and loopback addresses; under
    `allowed_hosts`, `"*"` being any; and with `any_address` under addresses that are numbers.
    Bodies have at most `body_limit` bytes. `simulate` is a command that simulates a task, up to its
    arguments; without one no task is. `crawl_terms` says which crawls may be added to the queue;
    without them those of other projects, whose spiders are not looked up. `channels` are those to
    which a test of notices is sent.

    Without tokens only this machine is served, and nobody where `allowed_hosts` or `any_address`
    say that others reach it. Nobody is served either once the last token is removed, unless, with
    `without_tokens`, all were removed before.
    """
    stopping = asyncio.Event()
    app = Application(
        title="scrapy-itemgraph",
        description=DESCRIPTION,
        openapi_url=None,  # FastAPI's own asks for no token
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(Protection, hosts=allowed_hosts, any_address=any_address),
            Middleware(Heads),
            Middleware(Ending, stopping=stopping),
            Middleware(RawPaths),
            Middleware(Receiving, body_limit=body_limit),
        ],
    )
    app.state.graphs = graphs
    is_public = any_address or bool(allowed_hosts)
    app.state.access = Access(graphs, is_public=is_public, without_tokens=without_tokens)
    app.state.stopping = stopping
    app.state.streams = Streams()
    app.state.simulations = None if simulate is None else Simulations(simulate, stopping)
    app.state.searches = Searches()
    app.state.has_queue = HasQueue(graphs)
    app.state.crawl_terms = crawl_terms or CrawlTerms()
    app.state.channels = channels
    app.state.numbers = metrics.Numbers(graphs)
    app.state.health = health.Health(graphs)
    problems.handle(app)
    app.add_exception_handler(HTTPException, _unknown)
    app.include_router(api.router)
    app.add_api_route("/api/v1/openapi.json", describe, include_in_schema=False)
    app.include_router(health.router)
    app.include_router(login.router)
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=str(STATIC)), name="static")
    return app


def describe(request: Request, _: Reader) -> Response:
    """Describe the API, where it is mounted."""
    app: Application = request.app
    root = request.scope.get("root_path", "").rstrip("/")
    servers = {"servers": [{"url": root}]} if root else {}
    return JSONResponse({**app.openapi(), **servers})


async def _unknown(request: Request, error: Exception) -> Response:
    """Say to a browser on a page, and to programs in a document, that nothing is there."""
    assert isinstance(error, HTTPException)
    problem = problems.of_http(request, error)
    if routes.wants_page(request):
        problem.detail = "There is no such page."
    return routes.refused(request, problem)
