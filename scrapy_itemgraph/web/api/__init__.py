"""The API: under the paths of the notes for the served crawl, and under /api/v1 for any."""

from __future__ import annotations

from fastapi import APIRouter

from scrapy_itemgraph.web.api import crawls, items, limits, work
from scrapy_itemgraph.web.parameters import REFUSALS

router = APIRouter(responses=REFUSALS)
for one in (items.router, work.of_tags, work.of_tasks):
    router.include_router(one, tags=["served crawl"])
for one in (items.router, work.of_tags, work.of_tasks, work.router, crawls.router, limits.of_crawl):
    router.include_router(one, prefix="/api/v1/crawls/{crawl:segment}", tags=["crawls"])
router.include_router(crawls.all_crawls, prefix="/api/v1", tags=["crawls"])
router.include_router(limits.router, prefix="/api/v1", tags=["limits"])
