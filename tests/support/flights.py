"""Work in flight of workers that a test plays: their engines may have begun what they claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_itemgraph.model.work import Claim

ADD = sa.text("""
    INSERT INTO handed AS h (worker_id, items, tasks)
    VALUES (:worker, CAST(:items AS bigint[]), CAST(:tasks AS int[]))
    ON CONFLICT (worker_id) DO UPDATE
    SET items = h.items || excluded.items, tasks = h.tasks || excluded.tasks
""")


def begin(connection: sa.Connection, worker: int, claims: Sequence[Claim]) -> None:
    """Put claims in flight, beside what is."""
    pairs = columns(claims, items="item_id", tasks="task_id")
    connection.execute(ADD, {"worker": worker, **pairs})
