"""Work: what is outstanding, why something runs or does not, and what failed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import code_on_disk, parsing, printing
from scrapy_itemgraph.commands.call import item_id
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.commands.items import CATEGORY, ID, OF_TASK
from scrapy_itemgraph.model import item_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_itemgraph.commands.call import Call

LIMIT = Argument("--limit", metavar="N", type=parsing.count, default=100, help="at most (100)")
_WORK: printing.Columns = {
    "ITEM": lambda row: item_names.label_of(row.item, row.url, row.method),
    "TASK": "task",
    "STATE": lambda row: "stale" if row.is_stale else "never run",
    "NICE": "nice",
    "TRIES": lambda row: row.tries or None,
    "DEATHS": lambda row: row.deaths or None,
    "STALLS": lambda row: row.stalls or None,
    "NOT BEFORE": "not_before",
    "SLOT": "slot",
}
_FAILURES: printing.Columns = {
    "FAILURE": lambda row: str(row.id),
    "TASK": "task",
    "OCCURRED": "occurred_at",
    "KIND": lambda row: "refused" if row.is_refusal else "",
    "ITEM": _WORK["ITEM"],
}
_HIDDEN = {"item_id", "task_id"}


@command(OF_TASK, LIMIT)
def worklist(call: Call) -> None:
    """List outstanding work that nobody has claimed, in the order of its turn.

    Work of disabled tasks and work that has to wait are in it; `explain` says why.
    """
    with call.graph() as graph:
        rows = graph.worklist(call.given.task, call.given.limit)
    lines = _listed(rows, printing.table(rows, _WORK), call.given.limit, "no work is outstanding")
    call.write([row._asdict() for row in rows], lines)


def _listed(rows: Sequence[Any], table: Iterator[str], limit: int, otherwise: str) -> Iterator[str]:
    yield from table if rows else [otherwise]
    if len(rows) == limit:
        yield f"(the first {limit:,}; --limit shows more)"


@command(ID, Argument("task", nargs="?", help="this task alone"))
def explain(call: Call) -> None:
    """Say why an item's tasks run next, or do not."""
    name = item_id(call)
    with call.graph() as graph:
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
            yield printing.clean(f"  - {reason}")


@command(OF_TASK, LIMIT, CATEGORY)
def failures(call: Call) -> None:
    """List the failures that nobody has handled, the oldest first, with what was logged.

    With --json each has its whole error, traceback included, and all that was logged unless
    --category is given.
    """
    categories = call.given.category
    with call.graph() as graph:
        rows = graph.failures.list(call.given.task, call.given.limit)
    shown = [{k: v for k, v in row._asdict().items() if k not in _HIDDEN} for row in rows]
    if categories:
        for one in shown:
            one["log"] = printing.shown(one["log"], categories)
    table = printing.table_of_errors(rows, _FAILURES, categories)
    call.write(shown, _listed(rows, table, call.given.limit, "no failure is open"))


@command(
    Argument("failure", nargs="?", type=parsing.count, help="its number"),
    Argument("--task", help="all of this task"),
    Argument("--all", action="store_true", help="all of the crawl"),
    Argument("--no-retry", action="store_true", help="do not run it again: it stays held"),
    Argument("--any-code", action="store_true", help="also by workers of older code"),
)
def handle(call: Call) -> None:
    """Mark failures as handled: one, a task's, or all.

    What failed runs again, unless --no-retry is given. A worker that runs other code of the task
    than is here takes none of its work until it is restarted, unless --any-code is given.
    """
    given = call.given
    if (given.failure is not None) + (given.task is not None) + given.all != 1:
        raise UsageError("give one of FAILURE, --task TASK and --all")
    retry = not given.no_retry
    source_of = None
    if not given.any_code:
        source_of = code_on_disk.sources(call.scrapy_settings, call.note)
    with call.graph() as graph:
        older = []
        if retry:
            older = graph.failures.leave_to_newer(source_of, failure=given.failure, task=given.task)
        handled = graph.failures.handle(given.failure, task=given.task, retry=retry)
    then = "they may run again" if retry else "they stay held"
    document = {"handled": handled, "retry": retry, "left_by": [one._asdict() for one in older]}
    lines = [f"{handled:,} handled{f'; {then}' if handled else ''}"]
    lines += [
        f"worker {one.worker} (process {one.process_id} on {one.host}) runs older code of "
        f"{one.task}, and takes none of its work until it is restarted (--any-code lets it)"
        for one in older
    ]
    call.write(document, map(printing.clean, lines))
