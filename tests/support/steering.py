"""Crawls that people steer, for tests: put into the queue, and told to stop or to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.crawl_states import Change, NewCrawl
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import crawl_queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

ANNA = "anna@desk"  # who steers


def new_crawl(spider: str = "s", **given: Any) -> NewCrawl:
    """Return a crawl of the test project's spider, to be queued."""
    return NewCrawl(spider=spider, project="proj", **{"arguments": {}, "settings": {}} | given)


def add(connection: Connection, spider: str = "s", **given: Any) -> str:
    """Put a crawl into the queue; return its name."""
    name, _ = crawl_queue.add(connection, new_crawl(spider, **given), by=ANNA)
    return name


def change(connection: Connection, name: str, wanted: str, **given: Any) -> None:
    """Pause, resume, abort or revive a crawl."""
    crawl_queue.change(connection, name, Change(wanted), by=ANNA, **given)


def committed(url: str, function: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """Return what a function of a connection does in a transaction of its own on a database."""
    engine = engines.sync_engine(url)
    try:
        with engine.begin() as connection:
            return function(connection, *given, **more)
    finally:
        engine.dispose()
