"""A crawl in short, as several pages show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.activity import WorkerState


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
    last_run: Mapping[str, Any] | None
    notes: tuple[str, ...]


def of_status(status: Mapping[str, Any], workers: Sequence[dict[str, Any]]) -> Summary:
    """Put what `ItemGraph.status` says into short; `workers` are as `workers_of` has them."""
    tasks = status["tasks"]
    living = [one for one in workers if one["state"] == "running"]
    numbers = {
        name: counts.total(task[name] for task in tasks)
        for name in ("fresh", "waiting", "delayed", "claimed", "held", "failures", "refusals")
    }
    left = numbers["waiting"] + numbers["delayed"] + numbers["claimed"]
    if living:
        state, why = "running", ""
    elif any(one["state"] == "died" for one in workers):
        state, why = "died", "its workers give no sign of life"
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
        last_run=_last_run(workers),
        notes=tuple(_notes(status)),
        **numbers,
    )


def of_graph(graph: ItemGraph) -> Summary:
    """Ask a crawl how it stands, in short."""
    return of_status(graph.status(), workers_of(graph, stopped=1))


def workers_of(graph: ItemGraph, *, stopped: int) -> list[dict[str, Any]]:
    """Return a crawl's workers, each with its state as a word; so many that stopped."""
    return [{**one._asdict(), "state": _state(one)} for one in graph.workers(stopped=stopped)]


def _state(worker: WorkerState) -> str:
    if worker.is_dead:
        return "died"
    if worker.stopped_at is None:
        return "running"
    if worker.reason in {"died", "stalled", "finished"}:
        return worker.reason
    return "stopped"


def _last_run(workers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the worker that stopped last, where none runs."""
    if any(one["state"] == "running" for one in workers):
        return None
    return max(
        (one for one in workers if one["stopped_at"] is not None),
        key=lambda one: one["stopped_at"],
        default=None,
    )


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
