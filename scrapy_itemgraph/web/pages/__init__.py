"""The cockpit: pages for people, rendered on the server; each works without script, too.

A module for each subject has its routes. `routes` says how pages answer, `rendering` makes HTML of
what the graph says, `live` sends what moves, and `plots` and `trees` lay things out.
"""

from __future__ import annotations

from fastapi import APIRouter

from scrapy_itemgraph.web.pages import (
    blobs,
    crawls,
    failures,
    item_lists,
    items,
    jobs,
    limits,
    live,
    notices,
    queue,
    rules,
    runners,
    runs,
    schedules,
    search,
    simulations,
    steering,
    tasks,
    workers,
    worklist,
)

router = APIRouter(include_in_schema=False)
_WORK = (worklist, failures, item_lists, items, blobs, simulations)
for subject in (
    crawls,
    *_WORK,
    tasks,
    rules,
    limits,
    runs,
    schedules,
    workers,
    search,
    live,
    notices,
    steering,
    queue,
    runners,
    jobs,
):
    router.include_router(subject.router)
