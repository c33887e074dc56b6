"""A crawl and its workers in short, as several pages show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.activity import WorkerState
    from scrapy_itemgraph.store.admin.overview import CrawlOverview


def of_overview(found: CrawlOverview) -> dict[str, Any]:
    """Return a crawl's numbers, estimates marked as such."""
    fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return {
        **fields,
        **{name: counts.Estimate(fields[name]) for name in found.estimated},
        "state": str(found.state),
    }


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


def notes(status: Mapping[str, Any]) -> Iterable[str]:
    """Say what goes on besides the crawl: sweeps, long work, and what hinders vacuum."""
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
