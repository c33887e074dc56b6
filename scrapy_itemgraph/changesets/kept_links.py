"""Links of pages that may be unchanged at the next visit.

A run of a plain spider finds its pages by links. An unchanged page yields no links, so its last
links are kept. The run visits them as if the page had yielded them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.changesets.state import Handled
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.tasks import SET_ASIDE
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres.event_loop import gradually
from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.sql_conditions import IS_GONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.changesets.effects.item_operations import ChangesetRun
    from scrapy_itemgraph.changesets.state import State
    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.model.work import Pair

KEEP = text("""
    INSERT INTO page_links (item_id, task_id, keys)
    SELECT item_id, task_id, CAST(keys AS uuid[])
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:keys AS text[]))
        AS new(item_id, task_id, keys)
    ON CONFLICT (item_id, task_id) DO UPDATE SET keys = excluded.keys
    WHERE page_links.keys IS DISTINCT FROM excluded.keys
""")

# The effect of a link: results of incremental callbacks stay fresh over runs, and a link has only
# gone and left pages of theirs visited.
LINKED = text(f"""
    SELECT DISTINCT w.item_id AS page, r.item_id, r.task_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS w(item_id, task_id)
    JOIN page_links p ON p.item_id = w.item_id AND p.task_id = w.task_id
    CROSS JOIN LATERAL unnest(p.keys) AS k(key)
    CROSS JOIN LATERAL (
        SELECT item_id FROM aliases
        WHERE aliases.crawl_id = :crawl AND aliases.key = k.key OFFSET 0) AS a
    CROSS JOIN LATERAL (
        SELECT * FROM results
        WHERE results.item_id = a.item_id AND coalesce(results.run, 1) < :run OFFSET 0) AS r
    JOIN tasks t ON t.id = r.task_id AND t.is_callback
    WHERE r.hold = 'left' OR ({IS_GONE})
        OR (NOT :all AND t.name <> ALL (CAST(:incremental AS text[]))
            AND strpos((SELECT CAST(i.data AS text) FROM items i WHERE i.id = r.item_id),
                :ttl) = 0)
""")  # noqa: S608 - our own condition

_TTL = '"itemgraph_ttl"'  # in the data of a page whose request has a time to live of its own


def keep(connection: Connection, pages: Iterable[tuple[int, Changeset]]) -> None:
    """Replace the kept links of pages that were read; each page comes with its item's number."""
    read = {
        (item_id, one.claim.task_id): f"{{{','.join(sorted(_keys(connection, one)))}}}"
        for item_id, one in pages
        if one.claim is not None and one.is_of_callback and one.validators is not None
        if one.outcome is Outcome.OK
    }
    if read:
        given = columns(list(read), items=0, tasks=1)
        connection.execute(KEEP, given | {"keys": list(read.values())})


def _keys(connection: Connection, page: Changeset) -> set[str]:
    keys = set(page.links)
    for operation in gradually(connection, page.operations):
        if isinstance(operation, EnqueueRequest):
            keys.add(item_names.hex_key(operation.id))
    return keys


def find(
    connection: Connection,
    state: State,
    pages: Iterable[Changeset],
    incremental: Collection[str] | None,
) -> dict[int, list[Pair]]:
    """Return for each unchanged page the linked results that are of an earlier run.

    Results of `incremental` callbacks stay fresh over runs; None: those of all callbacks.
    """
    claims = [
        one.claim
        for one in pages
        if one.claim is not None and one.is_of_callback and one.outcome is Outcome.UNCHANGED
    ]
    if not claims:
        return {}
    names = [*(incremental or ()), *(SET_ASIDE + one for one in incremental or ())]
    given: dict[str, Any] = columns(claims, items="item_id", tasks="task_id")
    given |= {"crawl": state.crawl_id, "run": state.run, "incremental": names}
    given |= {"all": incremental is None, "ttl": _TTL}
    found: dict[int, list[Pair]] = {}
    for row in gradually(connection, connection.execute(LINKED, given).all()):
        found.setdefault(row.page, []).append((row.item_id, row.task_id))
    return found


def visit(connection: Connection, run: ChangesetRun, links: Sequence[Pair]) -> None:
    """Make linked results stale, unless they are stale already or their task is stopped."""
    state = run.draft.state
    for item_id, task_id in gradually(connection, links):
        item = run.draft.item(item_id)
        result = None if item is None else item.results.get(task_id)
        if item is None or result is None or result.run >= state.run:
            continue
        task = state.task_numbered(task_id)
        if result.is_held and task.is_stopped:
            continue
        if result.is_left or result.is_held or result.is_fresh(task.version):
            result.make_stale(state.moment)
            run.draft.effects.failures.append(Handled((item.id, task_id), by="fetched again"))
