"""Failures: what failed, and having it run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import code_on_disk, parsing, printing
from scrapy_itemgraph.commands.arguments import CATEGORY, LIMIT, OF_TASK
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model import item_names

if TYPE_CHECKING:
    from scrapy_itemgraph.commands.call import Call

_FAILURES: printing.Columns = {
    "FAILURE": lambda row: str(row.id),
    "TASK": "task",
    "OCCURRED": "occurred_at",
    "KIND": lambda row: "refused" if row.is_refusal else "",
    "ITEM": lambda row: item_names.label_of(row.item, row.url, row.method),
}
_HIDDEN = {"item_id", "task_id"}


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
    call.write(shown, printing.first(rows, table, call.given.limit, "no failure is open"))


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
