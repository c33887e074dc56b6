"""How many open failures are meant: looked at as far as it is quick, and then estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.store import failures, open_failures
from scrapy_itemgraph.store.admin import counting

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.model.failure_filters import FailureFilter

COUNTED = 10_000  # failures that are counted one by one, where no text is looked for in them

SAMPLED = text(f"""
    SELECT count(*) FROM failures f TABLESAMPLE SYSTEM (100 * :share) REPEATABLE (0)
    JOIN tasks t ON t.id = f.task_id
    WHERE f.handled_at IS NULL AND t.crawl_id = :crawl
        AND (CAST(:task AS text) IS NULL OR t.name = :task)
        AND (CAST(:group AS uuid) IS NULL OR f.fingerprint = :group)
        AND {failures.IS_MEANT}
""")  # noqa: S608 - our own condition


def pairs(connection: Connection, crawl_id: int, which: FailureFilter) -> int:
    """Return how many pairs of item and task open failures are of, which is what is handled.

    Where there are too many to look at each, it is an estimate: of failures, in a sample.
    """
    most = open_failures.LOOKED_AT if which.is_search else COUNTED
    found, following = open_failures.look(connection, crawl_id, which, limit=most)
    counted = len({(one.item_id, one.task_id) for one in found})
    if following is None:
        return counted
    share = counting.sampled_share(connection, "failures")
    given = {"crawl": crawl_id, "share": share, **failures.conditions(which)}
    number: int = connection.execute(SAMPLED, given).scalar_one()
    return counts.rounded(max(number / share, counted))
