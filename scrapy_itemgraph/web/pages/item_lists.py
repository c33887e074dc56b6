"""Items page by page, with columns of their data, and what was done last."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from scrapy_itemgraph.model import item_columns, item_names, tasks
from scrapy_itemgraph.model.snapshots import ListedItem, PairState
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import periods
from scrapy_itemgraph.web.pages.rendering import json_text, page
from scrapy_itemgraph.web.pages.routes import PageRoute

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


router = APIRouter(route_class=PageRoute)

_SHOWN = 50
_COLUMNS = 4  # of data, where none is chosen
After = Annotated[int | None, Query(ge=0, lt=2**63)]
Columns = Annotated[list[str], Query()]


@dataclass(frozen=True, slots=True)
class Row:
    """An item as its row shows it: `cells` has a text for each column of data."""

    item: ListedItem
    label: str
    tags: Mapping[str, Any]
    states: Mapping[str, Sequence[str]]  # names of its tasks, by state
    cells: Sequence[str]


def _row(item: ListedItem, columns: Sequence[str]) -> Row:
    cells = item_columns.cells(item, columns)
    return Row(
        item,
        item_names.label_of(item.id, item.url, item.method),
        {tag: value for tag, value in item.tags.items() if not tasks.is_callback_tag(tag)},
        item_columns.tasks_by_state(item.states),
        [_text(value) for value in cells],
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


@router.get("/crawls/{crawl:segment}/items", name="items")
def items(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    *,
    task: str = "",
    tag: str = "",
    state: str = "",
    since: str = "",
    column: Columns = [],  # noqa: B006 - FastAPI copies it
    after: After = None,
) -> HTMLResponse:
    """Show items, the newest first, with columns of their data."""
    found = graph.lookup.items(
        task=task or None,
        tag=tag or None,
        state=state or None,
        since=periods.moment(graph, since),
        after=after,
        limit=_SHOWN,
        newest_first=True,
    )
    tags = graph.tasks.tags()
    columns = column or item_columns.usual(found.rows, _COLUMNS)
    return page(
        request,
        "items.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="items",
        task_names=list(tags),
        tag_names=sorted({name for names in tags.values() for name in names}),
        states=list(PairState),
        moments=periods.LABELS,
        filters={"task": task, "tag": tag, "state": state, "since": since},
        chosen=column,
        columns=columns,
        known_columns=list(dict.fromkeys([*columns, *item_columns.known(found.rows)])),
        rows=[_row(item, columns) for item in found.rows],
        has_pages=any(item_names.is_request(item.id) for item in found.rows),
        command=_command(graph.crawl, task=task, tag=tag, state=state, since=since, column=column),
        is_first=after is None,
        is_full=found.is_full,
        next_after=found.after,
    )


def _command(crawl: str, *, column: Iterable[str], **filters: str) -> str:
    """Return the command that writes all of what is listed to a file."""
    words = ["scrapy", "itemgraph", "items", "--crawl", crawl]
    for name, value in filters.items():
        words += (
            [f"--{name}", value.replace(" ", "-") if name == "state" else value] if value else []
        )
    for name in column:
        words += ["--column", name]
    return shlex.join([*words, "-O", "items.csv"])


@router.get("/crawls/{crawl:segment}/done", name="done")
def done(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    task: str = "",
    after: After = None,
) -> HTMLResponse:
    """Show what was done last, the latest first."""
    rows = graph.lookup.done(task or None, before=after, limit=_SHOWN)
    return page(
        request,
        "done.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="items",
        task_names=list(graph.tasks.tags()),
        task=task,
        rows=[(row, item_names.label_of(row.item, row.url, row.method)) for row in rows],
        next_after=rows[-1].number if len(rows) == _SHOWN else None,
    )
