"""The API: under the paths of the notes for the served crawl, and under /api/v1 for any."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from scrapy_itemgraph.web.api import crawls, items, limits, work
from scrapy_itemgraph.web.problems import PROBLEM

_REFUSALS = {
    400: "The request is no HTTP that makes sense: text that is no UTF-8, a body that is no JSON",
    401: "No token, or one that is not known",
    403: "The token may not do that, or the request comes from another site",
    404: "There is no such crawl, item, task or failure",
    409: "A name is taken",
    413: "The body is too large",
    415: "The body is not declared as JSON",
    421: "The server is not known by this name",
    422: "A value is none, or an operation cannot be carried out",
    503: "The database is away; it is asked again with the next request",
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, description in _REFUSALS.items()
}

router = APIRouter(responses=REFUSALS)
for one in (items.router, work.of_tags, work.of_tasks):
    router.include_router(one, tags=["served crawl"])
for one in (items.router, work.of_tags, work.of_tasks, work.router, crawls.router, limits.of_crawl):
    router.include_router(one, prefix="/api/v1/crawls/{crawl:segment}", tags=["crawls"])
router.include_router(crawls.all_crawls, prefix="/api/v1", tags=["crawls"])
router.include_router(limits.router, prefix="/api/v1", tags=["limits"])
