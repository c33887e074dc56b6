"""A crawl in short, as several pages show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from scrapy_itemgraph.graph import ItemGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a crawl does, what it has, and what is left to do."""

    name: str
    state: str
    why: str
    workers: int
    items: int
    fresh: int
    waiting: int
    delayed: int
    claimed: int
    held: int
    failures: int
    refusals: int
    next_due: datetime | None
    last_run: str
    notes: tuple[str, ...]


def of_status(status: Mapping[str, Any]) -> Summary:
    """Put what `ItemGraph.status` says into short."""
    tasks = status["tasks"]
    workers = [worker_of(one) for one in status["workers"]]
    living = [one for one in workers if one["state"] == "running"]
    numbers = {
        name: counts.total(task[name] for task in tasks)
        for name in ("fresh", "waiting", "delayed", "claimed", "held", "failures", "refusals")
    }
    left = numbers["waiting"] + numbers["delayed"] + numbers["claimed"]
    if living:
        state, why = "running", ""
    elif workers:
        state, why = "late", "its workers give no sign of life"
    elif left:
        state, why = "idle", "no worker runs, and work is left"
    elif tasks:
        state, why = "done", "nothing is outstanding"
    else:
        state, why = "new", "no spider has started yet"
    return Summary(
        name=status["crawl"],
        state=state,
        why=why,
        workers=len(living),
        items=status["items"],
        next_due=status["next_due"],
        last_run="",
        notes=tuple(_notes(status)),
        **numbers,
    )


def of_graph(graph: ItemGraph) -> Summary:
    """Ask a crawl how it stands, in short."""
    return of_status(graph.status())


def worker_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker with its state as a word."""
    state = "late" if row.get("is_late") else "running"
    return {**row, "state": state}


def _notes(status: Mapping[str, Any]) -> Iterable[str]:
    for sweep in status["sweeps"]:
        yield f"a change of the tasks is brought to the items: {_line(sweep)}"
    for work in status["under_way"]:
        yield f"under way: {_line(work)}"
    if (old := status["old_snapshot"]) is not None:
        yield (
            f"a transaction of more than ten minutes hinders vacuum: process {old['pid']}, "
            f"{old['application_name'] or 'without a name'}"
        )


def _line(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{key} {value}" for key, value in found.items() if value is not None)
    return str(found)
