"""The schema, as SQLAlchemy metadata gathered from `postgres.tables`; `migrations/` creates it.

Hot and narrow stands apart from cold and wide: `work` holds outstanding work alone, with its claim
as columns; `results`, `items` and `attempts` hold what was done. `work` and `attempts` have no
foreign keys: a cascade into them would deadlock with claims, and `refresh` keeps them true. Rows
that every commit shares (crawls, tasks, limits) are referenced without one from the large tables:
each check would take a share lock on the same row.
"""

from __future__ import annotations

from scrapy_itemgraph.postgres.tables import (
    activity,
    blobs,
    crawls,
    depths,
    feed_exports,
    frontier,
    items,
    jobs,
    limits,
    processes,
    sessions,
    tokens,
    work,
)
from scrapy_itemgraph.postgres.tables.base import metadata

__all__ = [
    "activity",
    "blobs",
    "crawls",
    "depths",
    "feed_exports",
    "frontier",
    "items",
    "jobs",
    "limits",
    "metadata",
    "processes",
    "sessions",
    "tokens",
    "work",
]
