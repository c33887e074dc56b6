"""The API: under the paths of the notes for the served crawl, and under /api/v1 for any."""

from __future__ import annotations

from fastapi import APIRouter

from scrapy_itemgraph.web.api import (
    crawls,
    failures,
    items,
    jobs,
    limits,
    notices,
    pages,
    queue,
    rules,
    schedules,
    tasks,
    work,
)
from scrapy_itemgraph.web.parameters import REFUSALS

router = APIRouter(responses=REFUSALS)
of_served = (items.router, work.of_tags, failures.of_tasks)
for one in of_served:
    router.include_router(one, tags=["served crawl"])
of_any = (
    work.router,
    pages.router,
    rules.router,
    failures.router,
    tasks.router,
    crawls.router,
    limits.of_crawl,
)
for one in (*of_served, *of_any):
    router.include_router(one, prefix="/api/v1/crawls/{crawl:segment}", tags=["crawls"])
router.include_router(crawls.all_crawls, prefix="/api/v1", tags=["crawls"])
router.include_router(limits.router, prefix="/api/v1", tags=["limits"])
router.include_router(queue.router, prefix="/api/v1", tags=["queue"])
router.include_router(jobs.router, prefix="/api/v1", tags=["queue"])
router.include_router(schedules.router, prefix="/api/v1", tags=["queue"])
router.include_router(notices.router, prefix="/api/v1", tags=["queue"])
