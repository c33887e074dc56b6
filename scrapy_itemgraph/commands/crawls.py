"""A crawl as a whole: its numbers and tasks, starting it anew, ageing it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.commands import crawl_lists, parsing, printing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model import counts
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.commands.command import Call

CRAWL = Argument("crawl", help="the crawl's name")
TASK = Argument("task", help="the task's name")
_NO_TASK = "no task is known yet: each run registers those of its spider"


@command()
def status(call: Call) -> None:
    """Show a crawl's numbers: items, work of each task, workers, sweeps.

    Where there are several, and none is named, it lists them by spider.
    """
    with call.graph() as graph:
        lines = [] if call.named_crawl else graph.crawls.list()
        if len(lines) > 1:
            call.write([asdict(one) for one in lines], crawl_lists.listing(lines))
            return
        found = graph.status()
    call.write(found, _status_lines(found))


def _status_lines(found: dict[str, Any]) -> Iterator[str]:
    is_past = any(one["due"] for one in found["tasks"] if one["is_registered"])
    due = "first result fell due" if is_past else "next result falls due"
    yield from printing.fields(
        [
            ("crawl", found["crawl"]),
            ("items", counts.shown(found["items"])),
            ("run", _run(found["run"])),
            (due, printing.moment(found["next_due"])),
        ]
    )
    yield ""
    yield from _of_tasks(found["tasks"], _COUNTS)
    if found["workers"]:
        yield ""
        yield from printing.table(found["workers"], _WORKERS)
    for sweep in found["sweeps"]:
        of = f"of the task {sweep['task']}" if sweep["task"] else f"of {', '.join(sweep['tags'])}"
        total = counts.total([sweep["swept"], sweep["left"]])
        far = _far(sweep["swept"], total, "items")
        yield printing.clean(
            f"a sweep after a change {of} is open: {far}; the next run goes on with it"
        )
    for work in found["under_way"]:
        far = _far(work["done"], work["total"], "")
        yield printing.clean(f"{work['what']} is under way in another process: {far}")
    if found["old_snapshot"]:
        old = found["old_snapshot"]
        yield printing.clean(
            f"the transaction of process {old['pid']} ({old['application_name']}) has been open "
            f"for {printing.period(old['age'])}; it keeps vacuum from cleaning up"
        )


def _run(run: dict[str, Any] | None) -> str | None:
    if run is None:
        return None
    done = ", ".join(f"{run[name]:,} {name}" for name in ("pages", "items", "failures"))
    ended = "" if run["ended_at"] is None else f" at {printing.moment(run['ended_at'])}"
    reason = "" if run["reason"] in {None, run["state"]} else f" ({run['reason']})"
    return f"{run['number']}, {run['state']}{ended}{reason}: {done}"


def _far(done: int, total: int | None, unit: str) -> str:
    of = "" if not total else f" of {counts.shown(total)}"
    share = "" if not total else f" ({done / total:.0%})"
    return " ".join(filter(None, (f"{done:,}{of}", unit))) + share


def _name(one: dict[str, Any]) -> str:
    marks = []
    if not one["is_registered"]:
        marks.append("gone")
    if not one["is_enabled"]:
        marks.append("disabled")
    if one["max_failures"] is not None and one["failures"] >= one["max_failures"]:
        marks.append("stopped by failures")
    return f"{one['name']} ({', '.join(marks)})" if marks else str(one["name"])


_COUNTS: printing.Columns = {
    "TASK": _name,
    "WAITING": "waiting",
    "LATER": "delayed",
    "CLAIMED": "claimed",
    "DUE": "due",
    "DONE": "completed",
    "FRESH": "fresh",
    "HELD": "held",
    "FAILURES": "failures",
    "REFUSED": "refusals",
}
_DECLARED: printing.Columns = {
    "TASK": _name,
    "SPIDER": "spider",
    "VERSION": "version",
    "TTL": lambda task: printing.period(task["ttl"]),
    "NICE": "nice",
    "TAGS": lambda task: ", ".join(task["tags"]),
    "DEPENDS ON": lambda task: ", ".join(task["depends_on"]),
    "STOPS AT": "max_failures",
}
_WORKERS: printing.Columns = {
    "WORKER": lambda worker: str(worker["id"]),
    "SPIDER": "spider",
    "HOST": "host",
    "PROCESS": lambda worker: str(worker["process_id"]),
    "STARTED": "started_at",
    "CLAIMS": "claims",
    "LATE": "is_late",
    "LEAVES": lambda worker: ", ".join(worker["leaves"]),
}


_RUNS: printing.Columns = {
    "RUN": "number",
    "STATE": "state",
    "STARTED": "started_at",
    "ENDED": "ended_at",
    "REASON": lambda run: run.reason if run.reason != run.state else None,
    "PAGES": "pages",
    "ITEMS": "items",
    "FAILURES": "failures",
    "WORKERS": lambda run: run.workers or None,
    "SPIDER": "spider",
    "JOB": "job",
    "ERROR": "error",
}


@command()
def runs(call: Call) -> None:
    """List a crawl's runs, the newest first: when, why they ended, and what they did.

    A run goes on until all work is done: it may have been stopped and started again. PAGES are
    executions that ended well, ITEMS scraped items. The last 100 are kept.
    """
    with call.graph() as graph:
        rows = graph.crawls.runs()
    lines = printing.table(rows, _RUNS) if rows else iter(["there was no run yet"])
    call.write([row._asdict() for row in rows], lines)


@command()
def tasks(call: Call) -> None:
    """List the tasks, with what is declared of each."""
    with call.graph() as graph:
        rows = [row._asdict() for row in graph.tasks.list()]
    call.write(rows, _of_tasks(rows, _DECLARED))


def _of_tasks(rows: list[dict[str, Any]], columns: printing.Columns) -> Iterator[str]:
    return printing.table(rows, columns) if rows else iter([_NO_TASK])


@command(TASK)
def enable(call: Call) -> None:
    """Let a task's work be claimed again."""
    with call.graph() as graph:
        graph.tasks.enable(call.given.task)
    document = {"task": call.given.task, "is_enabled": True}
    call.write(document, [f"{call.given.task} is enabled"])


@command(TASK)
def disable(call: Call) -> None:
    """Leave a task's work unclaimed until it is enabled.

    What is claimed already goes on to its end.
    """
    with call.graph() as graph:
        graph.tasks.disable(call.given.task)
    document = {"task": call.given.task, "is_enabled": False}
    call.write(document, [f"{call.given.task} is disabled"])


@command(
    CRAWL, Argument("--yes", action="store_true", help="do it; without it, only say what would go")
)
def restart(call: Call) -> int:
    """Delete all items of a crawl, so that it begins anew.

    The tasks stay known. It is refused while a worker of the crawl lives.
    """
    name, yes = call.given.crawl, call.given.yes
    with call.graph(crawl=name) as graph, call.progress("restart", "items") as progress:
        counts = graph.crawls.restart(
            dry_run=not yes, reached=lambda done, total: progress.reach(done, total=total)
        )
    document = {"crawl": name, "is_deleted": yes, "rows": counts}
    call.write(document, _restart_lines(name, counts, yes=yes))
    return 0 if yes else 1


def _restart_lines(name: str, counts: dict[str, int], *, yes: bool) -> Iterator[str]:
    listed = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing"
    if yes:
        yield printing.clean(f"deleted of the crawl {name}: {listed}")
    else:
        yield printing.clean(f"This would delete, of the crawl {name}: {listed}.")
        yield "Nothing was deleted. To do it, add --yes."


@command(CRAWL, Argument("period", type=parsing.period, help="such as 90s or 1d12h"))
def age(call: Call) -> None:
    """Move every time of a crawl back, as if a period had passed.

    For demos and tests.
    """
    name, period = call.given.crawl, call.given.period
    with call.graph(crawl=name) as graph:
        graph.crawls.age(period)
    passed = wording.format_period(period.total_seconds())
    call.write(
        {"crawl": name, "seconds": period.total_seconds()},
        [printing.clean(f"the crawl {name} is {passed} older")],
    )
