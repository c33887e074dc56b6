"""Work: what is outstanding, and why something runs or does not."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.commands.arguments import ID, LIMIT, OF_TASK
from scrapy_itemgraph.commands.call import item_graph
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model import item_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.store.admin.outstanding import OutstandingWork
    from scrapy_itemgraph.store.admin.work_pages import WorkRow

_WORK: printing.Columns = {
    "ITEM": lambda row: item_names.label_of(row.item, row.url, row.method),
    "TASK": "task",
    "STATE": lambda row: "stale" if row.is_stale else "never run",
    "NICE": "nice",
    "TRIES": lambda row: f"{-row.tries} left" if row.tries < 0 else row.tries or None,
    "DEATHS": lambda row: row.deaths or None,
    "STALLS": lambda row: row.stalls or None,
    "NOT BEFORE": "not_before",
    "SLOT": "slot",
}


_GONE: printing.Columns = {name: _WORK[name] for name in ("ITEM", "TASK", "SLOT")}


@command(
    OF_TASK,
    LIMIT,
    Argument("--gone", action="store_true", help="pages that are gone, as their website says"),
)
def worklist(call: Call) -> None:
    """List outstanding work that nobody has claimed, in the order of its turn.

    Work of disabled tasks and work that has to wait are in it; `explain` says why. With --gone it
    lists what is not outstanding, because the page is gone.
    """
    given = call.given
    rows: Sequence[OutstandingWork | WorkRow]
    with call.graph() as graph:
        if given.gone:
            rows = graph.lookup.work(given.task, state="gone", limit=given.limit).rows
        else:
            rows = graph.worklist(given.task, given.limit)
    table = printing.table(rows, _GONE if given.gone else _WORK)
    none = "no page is gone" if given.gone else "no work is outstanding"
    lines = printing.first(rows, table, given.limit, none)
    call.write([row._asdict() for row in rows], lines)


@command(ID, Argument("task", nargs="?", help="this task alone"))
def explain(call: Call) -> None:
    """Say why an item's tasks run next, or do not."""
    with item_graph(call) as (graph, name):
        explained = graph.explain(name, call.given.task)
        item = graph.get(name)
    found = name if item is None else item.id
    url, method = item_names.page_of(None if item is None else item.data)
    call.write(
        [{"item": found, "url": url, "method": method, **asdict(one)} for one in explained],
        _explained_lines(explained, found, item_names.label_of(found, url, method)),
    )


def _explained_lines(explained: Sequence[Any], name: str, shown: str) -> Iterator[str]:
    if shown != name:
        yield printing.clean(shown)
    if not explained:
        yield "no task is called for by the item's tags, and none has a result of it"
    for one in explained:
        may = printing.coloured("may run now" if one.is_eligible else "does not run now")
        yield f"{printing.clean(one.task)}: {printing.coloured(one.state)}, {may}"
        for reason in one.reasons:
            yield from printing.sentence(reason, "  - ")
