"""The ASGI application, which also mounts in a server that somebody has already."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from scrapy_itemgraph.web import pages, problems
from scrapy_itemgraph.web.raw_paths import RawPaths

if TYPE_CHECKING:
    from scrapy_itemgraph.web.graphs import Graphs

STATIC = files("scrapy_itemgraph.web") / "static"


def create_app(graphs: Graphs) -> FastAPI:
    """Make the application that serves graphs, which stay open as long as it is used."""
    app = FastAPI(
        title="scrapy-itemgraph",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.graphs = graphs
    problems.handle(app)
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=str(STATIC)), name="static")
    app.add_middleware(RawPaths)
    return app
