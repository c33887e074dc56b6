"""The one door to the graph: it opens transactions and calls what the rooms below do in them.

`ItemGraph` is for people and programs: items are its own, the rest is in `parts`, by noun.
`WorkerGraph` is for a worker, `SimulationGraph` for one that simulates. It imports `contents`,
`connections`, `changesets`, `store`, `postgres`, `settings`, `model`, `tools` and `exceptions`.
`worker`, `feed_exports`, `web` and `commands` import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.connections.patience import Patience
from scrapy_itemgraph.graph.simulation_graph import SimulationGraph
from scrapy_itemgraph.graph.worker_graph import WorkerGraph

if TYPE_CHECKING:
    from scrapy_itemgraph.graph.item_graph import ItemGraph

__all__ = ["ItemGraph", "Patience", "SimulationGraph", "WorkerGraph"]


def __getattr__(name: str) -> Any:
    """Import `ItemGraph` when it is asked for: a crawl does without its fifty modules."""
    if name == "ItemGraph":
        from scrapy_itemgraph.graph.item_graph import ItemGraph  # noqa: PLC0415

        return ItemGraph
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
