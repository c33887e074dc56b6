"""A crawl and its workers in short, as several pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import counts, documents
from scrapy_itemgraph.tools import code_files
from scrapy_itemgraph.tools.wording import format_period

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.activity import WorkerState
    from scrapy_itemgraph.store.admin.overview import CrawlOverview
    from scrapy_itemgraph.store.admin.run_progress import Progress

_SHORTEST = 2.0  # seconds after which a rate says something


def of_overview(found: CrawlOverview) -> dict[str, Any]:
    """Return a crawl's numbers, estimates marked as such."""
    fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return {
        **fields,
        **{name: counts.Estimate(fields[name]) for name in found.estimated},
        "progress": _marked(found.progress),
        "state": str(found.state),
    }


def _marked(found: Progress) -> dict[str, Any]:
    """Return how far a run is, estimates marked as such."""
    numbers: dict[str, Any] = documents.of(found)
    return numbers | {name: counts.Estimate(numbers[name]) for name in found.estimated}


# What a run knows, as its progress names it: the word, and the state by which the worklist has it.
# The bar shows the pages that the run has to do. Other pages are counted beside the bar.
_IN_BAR = {
    "done": ("done", ""),
    "running": ("running", "claimed"),
    "waiting": ("waiting", "ready"),
    "later": ("later", "delayed"),
    "failed": ("failed", "held"),
}
_APART = {
    "earlier": ("fresh before", ""),
    "gone": ("gone", "gone"),
    "refused": ("refused", ""),
    "given_up": ("given up", ""),
}
_OF_NEXT_RUN = {"running", "waiting", "later"}  # once a run is over
_ALWAYS = {"done", "waiting"}  # also where there are none
_WHOLE = 1000  # the width of all bars together


@dataclass(frozen=True, slots=True)
class Share:
    """A part of what a run knows: its word, how many, the worklist's state, and its bar.

    The bar's place and width are in thousandths of what the run has to do; without a width it is
    apart from that.
    """

    name: str
    word: str
    number: int
    state: str
    x: float
    width: float


def shares(progress: Mapping[str, Any], *, is_over: bool) -> list[Share]:
    """Return the parts of what a run knows, in the order of the bar; those that are none, not.

    The bar is full if nothing is left to do. The next run does what waits after the end.
    """
    whole = left = int(progress["to_do"])
    found, x = [], 0.0
    for name, (word, state) in (_IN_BAR | _APART).items():
        number = progress[name]
        is_apart = name in _APART or (is_over and name in _OF_NEXT_RUN)
        to_do = progress["retries"] if name == "later" else number
        part = 0 if is_apart else min(left, int(to_do))
        left -= part
        width = _WHOLE * part / whole if whole else 0.0
        if number or name in _ALWAYS:
            found.append(Share(name, word, number, state, round(x, 2), round(width, 2)))
        x += width
    return found


def workers_of(graph: ItemGraph, *, stopped: int) -> list[dict[str, Any]]:
    """Return a crawl's workers, each with its state as a word; so many that stopped."""
    return [
        {**one._asdict(), "state": _state(one), "is_older": _is_older(one)}
        for one in graph.activity.workers(stopped=stopped)
    ]


def _is_older(worker: WorkerState) -> bool:
    """Whether it runs, with other code than is on this machine's disk."""
    is_running = worker.stopped_at is None and not worker.is_dead
    return is_running and code_files.has_changed(worker.host, worker.code_file, worker.code)


def older(workers: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Say which workers run older code than is on disk."""
    found = [one for one in workers if one["is_older"]]
    if found:
        names = ", ".join(str(one["id"]) for one in found)
        files = ", ".join(sorted({one["code_file"] for one in found}))
        who = f"worker {names} runs" if len(found) == 1 else f"workers {names} run"
        yield f"{who} older code than is on disk: {files} has changed since; restart to run it"


def _state(worker: WorkerState) -> str:
    if worker.is_dead:
        return "died"
    if worker.stopped_at is None:
        return "running"
    if worker.reason in {"died", "stalled", "finished"}:
        return worker.reason
    return "stopped"


def notes(going_on: Mapping[str, Any], now: datetime) -> Iterable[str]:
    """Say what goes on besides the crawl: sweeps, long work, and what hinders vacuum."""
    for sweep in going_on["sweeps"]:
        if sweep["ruleset"] is not None:
            how_far = _how_far(sweep["swept"], None, sweep["opened_at"], now)
            yield (
                f"ruleset {sweep['ruleset']} is applied to what waits: {sweep['held']:,} pages set "
                f"aside, {sweep['freed']:,} taken back; looked at: {how_far}"
            )
            continue
        tags = ", ".join(sweep["tags"])
        what = f"the task {sweep['task']!r}" if sweep["task"] else f"the tags {tags}"
        total = counts.total([sweep["swept"], sweep["left"]])
        how_far = _how_far(sweep["swept"], total, sweep["opened_at"], now)
        yield f"a change of {what} is brought to the items: {how_far}"
    for work in going_on["under_way"]:
        how_far = _how_far(work["done"], work["total"], work["since"], now)
        yield f"{work['what']} is under way, in process {work['pid']}: {how_far}"
    if (old := going_on["old_snapshot"]) is not None:
        yield (
            f"a transaction of more than ten minutes hinders vacuum: process {old['pid']}, "
            f"{old['application_name'] or 'without a name'}"
        )


def _how_far(done: int, total: int | None, since: datetime, now: datetime) -> str:
    """Say how far long work is, how fast it goes, and how long that will still take."""
    of_all = "" if total is None else f" of {counts.shown(total)}"
    seconds = (now - since).total_seconds()
    if done <= 0 or seconds < _SHORTEST:
        return f"{counts.shown(done)}{of_all}"
    rate = done / seconds
    left = "" if total is None else f", {format_period(max(0, total - done) / rate)} left"
    return f"{counts.shown(done)}{of_all}, {rate:,.0f} a second{left}"
