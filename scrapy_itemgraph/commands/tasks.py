"""The tasks that spiders declared, and stopping and resuming them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model.due_times import stored_expiry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.commands.call import Call

_TASK = Argument("task", help="the task's name")
_NO_TASK = "no task is known yet: each run registers those of its spider"


def marked(one: dict[str, Any]) -> str:
    """Return a task's name, and what keeps it from running."""
    marks = []
    if not one["is_registered"]:
        marks.append("gone")
    if not one["is_enabled"]:
        marks.append("disabled")
    if one["max_failures"] is not None and one["failures"] >= one["max_failures"]:
        marks.append("stopped by failures")
    return f"{one['name']} ({', '.join(marks)})" if marks else str(one["name"])


_DECLARED: printing.Columns = {
    "TASK": marked,
    "SPIDER": "spider",
    "VERSION": "version",
    "TTL": lambda task: stored_expiry(task["schedule"]) or printing.period(task["ttl"]),
    "NICE": "nice",
    "TAGS": lambda task: ", ".join(task["tags"]),
    "DEPENDS ON": lambda task: ", ".join(task["depends_on"]),
    "STOPS AT": "max_failures",
}


@command()
def tasks(call: Call) -> None:
    """List the tasks, with what is declared of each."""
    with call.graph() as graph:
        rows = [row._asdict() for row in graph.tasks.list()]
    call.write(rows, table(rows, _DECLARED))


def table(rows: list[dict[str, Any]], columns: printing.Columns) -> Iterator[str]:
    """Return a table of tasks, or the line that says why there is none."""
    return printing.table(rows, columns) if rows else iter([_NO_TASK])


@command(_TASK)
def enable(call: Call) -> None:
    """Let a task's work be claimed again."""
    with call.graph() as graph:
        graph.tasks.enable(call.given.task)
    document = {"task": call.given.task, "is_enabled": True}
    call.write(document, [f"{call.given.task} is enabled"])


@command(_TASK)
def disable(call: Call) -> None:
    """Leave a task's work unclaimed until it is enabled.

    What is claimed already goes on to its end.
    """
    with call.graph() as graph:
        graph.tasks.disable(call.given.task)
    document = {"task": call.given.task, "is_enabled": False}
    call.write(document, [f"{call.given.task} is disabled"])
