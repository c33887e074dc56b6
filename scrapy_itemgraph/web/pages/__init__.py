"""The pages that people look at, rendered on the server."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.templating import Jinja2Templates

from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import AllGraphs

TEMPLATES = Jinja2Templates(str(files("scrapy_itemgraph.web") / "templates"))

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@router.get("/", name="crawls")
def crawls(request: Request, visitor: Reader, graphs: AllGraphs) -> HTMLResponse:
    """Show the crawls of the database."""
    found = {"crawls": graphs.database.crawls(), "visitor": visitor}
    return TEMPLATES.TemplateResponse(request, "crawls.html", found)
