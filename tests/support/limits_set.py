"""Limits that people see and set, and the work that keeps to them."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from scrapy_itemgraph.model import limits
from scrapy_itemgraph.model.limits import Terms, Use
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.admin import limit_reports
from scrapy_itemgraph.store.limits import declared as declared_limits
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.worklist import refresh
from support.graphs import SLOT, Crawl

HOUR = timedelta(hours=1)


def hold(crawl, slot=SLOT, terms=None, *, worker=None, wants=1):
    """Let a worker ask for a slot, and return what it got."""
    (number,) = stored_slots.intern_slots(crawl.connection, [slot]).values()
    use = Use(limit_id=number, declared=terms or Terms(gap=30.0), wants=wants)
    return holdings.acquire(crawl.connection, worker or crawl.worker, [use])[number]


def used(crawl, slot=SLOT, *, ago=0.0):
    """Note that a request of a slot started a while ago."""
    given = {"slot": slot, "ago": ago}
    crawl.connection.execute(
        sa.text(
            "UPDATE limits SET last_at = clock_timestamp() - make_interval(secs => :ago) "
            "WHERE name = :slot"
        ),
        given,
    )


def declare(crawl, *declared, task="parse"):
    """Declare limits of a task."""
    made = declared_limits.register(crawl.connection, {crawl.task_id(task): declared})
    refresh.refresh(crawl.connection, [row.id for row in crawl.rows("SELECT id FROM items")])
    return {(one.kind, one.name): number for number, one in made.declared.items()}


def a_limit(kind=limits.TASK, name="shop/parse", gap=10.0, concurrency=None, tags=()):
    """Return a limit as the code declares it."""
    return limits.Limit(kind=kind, name=name, gap=gap, concurrency=concurrency, tags=tags)


def shown(connection, name=SLOT, **given):
    """Return the limit of a name as it is listed."""
    return next(
        (one for one in limit_reports.listed(connection, **given) if one.name == name), None
    )


def film_crawl(crawl):
    """Make another crawl with work of the same slot."""
    films = Crawl(crawl.connection, "films")
    films.register(parse={"tags": ["page"]})
    films.work("F")
    return films
