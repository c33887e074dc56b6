"""The one door to the graph: it opens transactions and delegates the rest.

`ItemGraph` is for people and programs, `WorkerGraph` for a worker, `SimulationGraph` for one that
simulates. It imports
`changesets`, `store`, `postgres`, `settings`, `model`, `tools` and `exceptions`. `worker`, `feeds`
and `commands` import it.
"""

from __future__ import annotations

from scrapy_itemgraph.connections.command_watchdog import Patience
from scrapy_itemgraph.graph.item_graph import ItemGraph
from scrapy_itemgraph.graph.simulation_graph import SimulationGraph
from scrapy_itemgraph.graph.worker_graph import WorkerGraph

__all__ = ["ItemGraph", "Patience", "SimulationGraph", "WorkerGraph"]
