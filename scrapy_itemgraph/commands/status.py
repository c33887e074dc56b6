"""How a crawl stands, and how its runs went."""

from __future__ import annotations

from dataclasses import asdict
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.commands import depths, health_lines, printing, progress_lines, tasks
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model import counts, crawl_arguments
from scrapy_itemgraph.tools import code_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.crawl_lists import CrawlLine
    from scrapy_itemgraph.store.admin.run_lists import RunLine

_MOST_CRAWLS = 100  # that are counted together


def _number(name: str) -> Callable[[dict[str, Any]], int]:
    def of(crawl: dict[str, Any]) -> int:
        return progress_lines.number(crawl["progress"], name)

    return of


def _arguments(crawl: dict[str, Any]) -> str | None:
    """Return the arguments of a crawl, unless its name has them."""
    given, spider = crawl["arguments"], crawl["spider"]
    if not given or (spider and crawl["crawl"] == crawl_arguments.label(spider, given)):
        return None
    return crawl_arguments.as_options(given)


_CRAWLS: printing.Columns = {
    "CRAWL": "crawl",
    "ARGUMENTS": _arguments,
    "HEALTH": lambda crawl: crawl["health"].word,
    "RUN": lambda crawl: None if crawl["run"] is None else crawl["run"]["number"],
    "STATE": lambda crawl: "never run" if crawl["run"] is None else crawl["run"]["state"],
    "DONE": _number("done"),
    "WAITING": _number("waiting"),
    "RUNNING": _number("running"),
    "LATER": _number("later"),
    "FAILED": _number("failed"),
    "GONE": _number("gone"),
    "SCRAPED": lambda crawl: None if crawl["run"] is None else crawl["run"]["items"],
}
_STANDING: printing.Columns = {
    "TASK": tasks.marked,
    "DONE": "done",
    "WAITING": "waiting",
    "RUNNING": "claimed",
    "LATER": "delayed",
    "FAILED": "failed",
    "GONE": "gone",
    "SKIPPED": lambda task: task["skipped"] or None,
    "STASHED": lambda task: task["stashed"] or None,
    "LEFT": lambda task: task["left"] or None,
    "REFUSED": lambda task: task["refused"] or None,
    "GIVEN UP": lambda task: task["given_up"] or None,
    "EARLIER": lambda task: progress_lines.earlier(task) or None,
}
_COUNTS: printing.Columns = {
    "TASK": tasks.marked,
    "WAITING": "waiting",
    "LATER": "delayed",
    "RUNNING": "claimed",
    "DUE": "due",
    "COMPLETED": "completed",
    "FRESH": "fresh",
    "FAILED": "failed",
    "GONE": lambda task: task["gone"] or None,
    "SKIPPED": lambda task: task["skipped"] or None,
    "STASHED": lambda task: task["stashed"] or None,
    "LEFT": lambda task: task["left"] or None,
    "REFUSED": lambda task: task["refused"] or None,
    "GIVEN UP": lambda task: task["given_up"] or None,
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
    "CODE": lambda worker: "older than on disk" if _is_older(worker) else None,
    "LAST ERROR": "error",
}


@command(
    Argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show results by task, workers, and how many items the graph has",
    )
)
def status(call: Call) -> None:
    """Show how far a crawl is: its run, where its work stands, how fast it goes.

    What is done, waiting, running, later, failed and gone adds up to what is known. Where there are
    several crawls, and none is named, each has a line of a table.
    """
    with call.graph() as graph:
        lines = [] if call.named_crawl else graph.crawls.list()
        if len(lines) > 1:
            found_of_each = list(_of_each(graph, lines))
            call.write(found_of_each, _lines_of_each(found_of_each, len(lines)))
            return
        found = graph.status()
    call.write(found, _status_lines(found, is_verbose=call.given.verbose))


def _of_each(graph: ItemGraph, lines: Sequence[CrawlLine]) -> Iterator[dict[str, Any]]:
    """Yield how each of the crawls stands that were used last, in the order of the lines."""
    recent = [one.crawl for one in nlargest(_MOST_CRAWLS, lines, key=lambda one: one.used_at)]
    found = {one.crawl: one for one in graph.crawls.overview(*recent)}
    for line in lines:
        if (one := found.get(line.crawl)) is not None:
            named = {"spider": line.spider, "arguments": line.arguments, "used_at": line.used_at}
            yield named | asdict(one) | {"run": None if one.run is None else one.run._asdict()}


def _lines_of_each(found: list[dict[str, Any]], known: int) -> Iterator[str]:
    yield from printing.table(found, _CRAWLS)
    yield from health_lines.below((one["crawl"], one["health"], one["why"]) for one in found)
    if len(found) < known:
        yield from printing.sentence(
            f"(the {len(found):,} of {known:,} crawls that were used last; "
            "`scrapy itemgraph crawls list` has all)"
        )
    yield ""
    yield "of one of them: scrapy itemgraph status --crawl NAME"


def _status_lines(found: dict[str, Any], *, is_verbose: bool) -> Iterator[str]:
    is_past = any(one["due"] for one in found["tasks"] if one["is_registered"])
    due = "first result fell due" if is_past else "next result falls due"
    yield from printing.fields(
        [
            ("crawl", found["crawl"]),
            ("health", f"{found['health'].word}: {found['why']}"),
            *progress_lines.fields(found),
            ("graph items", counts.shown(found["items"]) if is_verbose else None),
            *depths.fields(found["depth"]),
            ("frontier", _frontier(found["frontier"])),
            (due, printing.moment(found["next_due"])),
        ]
    )
    yield ""
    yield from tasks.table(found["tasks"], _COUNTS if is_verbose else _STANDING)
    if found["workers"] and is_verbose:
        yield ""
        yield from printing.table(found["workers"], _WORKERS)
    for sweep in found["sweeps"]:
        if sweep["ruleset"] is not None:
            yield from printing.sentence(_of_rules(sweep))
            continue
        of = f"of the task {sweep['task']}" if sweep["task"] else f"of {', '.join(sweep['tags'])}"
        total = counts.total([sweep["swept"], sweep["left"]])
        far = _far(sweep["swept"], total, "items")
        yield from printing.sentence(
            f"a sweep after a change {of} is open: {far}; the next run goes on with it"
        )
    for work in found["under_way"]:
        far = _far(work["done"], work["total"], "")
        yield from printing.sentence(f"{work['what']} is under way in another process: {far}")
    if found["old_snapshot"]:
        old = found["old_snapshot"]
        yield from printing.sentence(
            f"the transaction of process {old['pid']} ({old['application_name']}) has been open "
            f"for {printing.period(old['age'])}; it keeps vacuum from cleaning up"
        )


def _frontier(stats: dict[str, Any] | None) -> str | None:
    """Return what crawlers have of a crawl over gRPC, and how many queues are not completed."""
    if stats is None:
        return None
    sign = "~" if stats["is_estimated"] else ""
    held = f"crawlers have {sign}{counts.many(stats['in_process'], 'URL')}, counted as later"
    return f"{held}; queues not completed: {stats['active_queues']:,} of {stats['queues']:,}"


def _of_rules(sweep: dict[str, Any]) -> str:
    return (
        f"ruleset {sweep['ruleset']} is being applied to what waits: {sweep['held']:,} pages set "
        f"aside and {sweep['freed']:,} taken back, of {sweep['swept']:,} that were looked at"
    )


def _is_older(worker: dict[str, Any]) -> bool:
    return code_files.has_changed(worker["host"], worker["code_file"], worker["code"])


def _far(done: int, total: int | None, unit: str) -> str:
    of = "" if not total else f" of {counts.shown(total)}"
    share = "" if not total else f" ({done / total:.0%})"
    return " ".join(filter(None, (f"{done:,}{of}", unit))) + share


_RUNS: printing.Columns = {
    "RUN": "number",
    "STATE": "state",
    "STARTED": "started_at",
    "ENDED": "ended_at",
    "REASON": lambda run: run.reason if run.reason != run.state else None,
    "PAGES": "pages",
    "SCRAPED": "items",
    "FAILURES": "failures",
    "AT LEAST": "at_least",
    "WORKERS": lambda run: run.workers or None,
    "SPIDER": "spider",
    "JOB": "job",
    "ERROR": "error",
}


@command()
def runs(call: Call) -> None:
    """List a crawl's runs, the newest first: when, why they ended, and what they did.

    A run goes on until all work is done: it may have been stopped and started again. PAGES are
    executions that ended well, SCRAPED the items that were scraped. The last 100 are kept. Numbers
    go on after a restart of the crawl, so that none is given twice.
    """
    with call.graph() as graph:
        rows = graph.crawls.runs()
        lines = _table_of_runs(rows) if rows else _no_run(graph)
        call.write([row._asdict() for row in rows], lines)


def _table_of_runs(rows: Sequence[RunLine]) -> Iterator[str]:
    """Write runs; whose spider they were of only where there are several."""
    are_of_one = len({row.spider for row in rows}) == 1
    left_out = {"SPIDER"} if are_of_one else set()
    return printing.table(rows, {k: v for k, v in _RUNS.items() if k not in left_out})


def _no_run(graph: ItemGraph) -> Iterator[str]:
    past = next((one.run for one in graph.crawls.list() if one.crawl == graph.crawl), 0)
    anew = f" since the crawl was restarted; the next is run {past + 1}"
    yield f"there was no run{anew if past else ' yet'}"
