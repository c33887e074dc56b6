"""Lists of items, and files of their data."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import item_files, parsing, printing, streams
from scrapy_itemgraph.commands.arguments import LIMIT, OF_TASK
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model import counts, item_columns, item_names, tasks
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.snapshots import ListedItem
    from scrapy_itemgraph.store.admin.done_lists import Done

_LISTED = 100
_NOW_AND_THEN = 1000
_EXACT = 10.0  # seconds that are told with decimals
_COLUMNS = 3  # of data, where none is asked for

_ITEMS: printing.Columns = {
    "ITEM": lambda row: item_names.label_of(row.id, row.url, row.method),
    "TAGS": lambda row: ", ".join(tag for tag in row.tags if not tasks.is_callback_tag(tag)),
    "STATE": lambda row: ", ".join(
        f"{names[0] if len(names) == 1 else len(names)} {state}"
        for state, names in item_columns.tasks_by_state(row.states).items()
    ),
    "COMPLETED": "completed_at",
}


def _took(row: Done) -> str | None:
    if row.started_at is None:
        return None
    seconds = (row.ended_at - row.started_at).total_seconds()
    return f"{seconds:.2f}s" if seconds < _EXACT else wording.format_period(seconds)


_DONE: printing.Columns = {
    "ENDED": "ended_at",
    "ITEM": lambda row: item_names.label_of(row.item, row.url, row.method),
    "TASK": "task",
    "TOOK": _took,
    "SCRAPED": lambda row: row.scraped or None,
}


@command(
    Argument("--task", metavar="TASK", help="items of this task, or pages of this callback"),
    Argument("--tag", metavar="NAME", help="items that have this tag"),
    Argument(
        "--state",
        metavar="STATE",
        type=lambda text: text.replace("-", " "),
        help="items of which that task, or any, is never-run, fresh, stale, held, gone, skipped, "
        "stashed or left",
    ),
    Argument(
        "--since",
        metavar="MOMENT",
        type=parsing.moment,
        help="items made or changed, or with a task that completed, from then on: "
        "2026-11-21T10:00Z, or a period up to now such as 1d",
    ),
    Argument(
        "--column",
        metavar="NAME",
        action="append",
        default=[],
        help="show this key of the data, and of the others none; may be repeated",
    ),
    Argument(
        "-O",
        "--output",
        metavar="FILE",
        help="write all to a file: it ends in .jsonl, .csv or .parquet, and .gz compresses it; "
        "-: to standard output, as JSON lines",
    ),
    Argument("--limit", metavar="N", type=parsing.count, help="at most (100; with -O all)"),
)
def items(call: Call) -> None:
    """List items with their data, the newest first, or write them to a file.

    The pages of a plain spider are items, too. What it scraped of them is in its feeds, and with
    ITEMGRAPH_KEEP_ITEMS in `scrapy itemgraph export`.
    FILE:FORMAT says a format that the name does not. A file stands under its name when it is whole.
    """
    with call.graph() as graph:
        since = _moment(graph, call.given.since)
        if call.given.output is None:
            _list(call, graph, since)
        else:
            _write(call, graph, since)


def _list(call: Call, graph: ItemGraph, since: datetime | None) -> None:
    given = call.given
    limit = given.limit or _LISTED
    found = graph.lookup.items(
        task=given.task,
        tag=given.tag,
        state=given.state,
        since=since,
        limit=limit,
        newest_first=True,
    )
    columns = given.column or item_columns.usual(found.rows, _COLUMNS)
    call.write([item_files.line(row) for row in found.rows], _lines(found.rows, columns))
    if found.is_full:
        call.note(f"(the newest {limit:,}; --limit shows more, -O FILE writes all)")
    elif found.after is not None:
        call.note("(there may be more among older items; -O FILE looks through all)")
    if not call.as_json and any(item_names.is_request(row.id) for row in found.rows):
        call.note(_where_data_is(graph))


def _lines(rows: Sequence[ListedItem], columns: Sequence[str]) -> Iterator[str]:
    if not rows:
        yield "no item is there"
        return
    data = {
        f"data.{name}" if name in _ITEMS else name: partial(_cell, name=name) for name in columns
    }
    yield from printing.table(rows, {**_ITEMS, **data})


def _cell(row: ListedItem, name: str) -> str:
    (value,) = item_columns.cells(row, [name])
    return item_files.text(value)


def _where_data_is(graph: ItemGraph) -> str:
    """Return where people find what was scraped of pages."""
    if graph.journal.page(limit=1):
        return (
            "(pages are items; what was scraped of them was kept: "
            "scrapy itemgraph export -O scraped.csv)"
        )
    return (
        "(pages are items; what is scraped of them goes to feeds: scrapy crawl SPIDER -O "
        "scraped.csv. With ITEMGRAPH_KEEP_ITEMS = True it is kept for `scrapy itemgraph export`)"
    )


def _write(call: Call, graph: ItemGraph, since: datetime | None) -> None:
    given = call.given
    name, kind = item_files.read_name(given.output)
    if name == "-" and call.as_json:
        raise UsageError("--json and the items cannot both go to standard output")
    count, has_pages = 0, False
    with (
        streams.written(name, is_compressed=name.endswith(".gz")) as file,
        item_files.writer(
            kind,
            file,
            columns=given.column,
            folder=None if name == "-" else Path(name).parent,
        ) as writer,
        call.progress("items", "items") as progress,
    ):
        found = graph.items(
            task=given.task, tag=given.tag, state=given.state, since=since, limit=given.limit
        )
        for item in found:
            writer.add(item)
            count += 1
            has_pages = has_pages or item_names.is_request(item.id)
            if count % _NOW_AND_THEN == 0:
                progress.reach(count)
                graph.activity.announce("items", count)
    told = printing.clean(f"{counts.many(count, 'item')} to {name} ({kind})")
    if name == "-":
        call.note(told)
    else:
        call.write({"crawl": graph.crawl, "items": count, "file": name, "format": kind}, [told])
    if has_pages and not call.as_json:
        call.note(_where_data_is(graph))


@command(
    OF_TASK,
    Argument(
        "--since",
        metavar="MOMENT",
        type=parsing.moment,
        help="from then on: 2026-11-21T10:00Z, or a period up to now such as 1h",
    ),
    LIMIT,
)
def done(call: Call) -> None:
    """List what was done last: pages and tasks of items, with how many items each scraped.

    It looks through the last 50,000 attempts of the database.
    """
    with call.graph() as graph:
        since = _moment(graph, call.given.since)
        rows = graph.lookup.done(call.given.task, since=since, limit=call.given.limit)
    lines = printing.first(
        rows, printing.table(rows, _DONE), call.given.limit, "nothing was done then"
    )
    call.write([row._asdict() for row in rows], lines)


def _moment(graph: ItemGraph, since: datetime | timedelta | None) -> datetime | None:
    return graph.database.now() - since if isinstance(since, timedelta) else since
