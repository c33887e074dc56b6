"""The graphs that requests ask: one database, opened once, for all crawls in it."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.web import raw_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

# Connections to the database at most, however many browsers there are; others wait for one. One
# more is for health.
CONNECTIONS = 8
# Seconds that a request waits for a lock, before it is refused.
LOCK_WAIT = 10.0


class Graphs:
    """Gives each request the graph of a crawl, on connections that all share."""

    def __init__(self, graph: ItemGraph, health: ItemGraph | None = None) -> None:
        """Take an open graph: `served`, which is meant where a request names no crawl.

        `health` has a connection of its own, for requests that ask whether the database answers.
        """
        self.served = graph.from_outside()
        self.health = health or graph

    @classmethod
    @contextmanager
    def open(
        cls,
        url: str | None = None,
        crawl: str | None = None,
        *,
        data_dir: str | Path = ".scrapy/itemgraph",
        postgres_bin: Path | None = None,
        auto_migrate: bool | None = None,
        connections: int = CONNECTIONS,
        blobs: str | Path = DATABASE,
    ) -> Iterator[Graphs]:
        """Open the database at `url`, or the embedded one in `data_dir`; the rest is as there.

        Raises:
            DatabaseError: when the server or its schema cannot be used, in one clear line.

        """
        with (
            ItemGraph.open(
                url,
                crawl,
                data_dir=data_dir,
                postgres_bin=postgres_bin,
                auto_migrate=auto_migrate,
                connections=connections,
                blobs=blobs,
                lock_wait=LOCK_WAIT,
            ) as graph,
            cls.over(graph) as graphs,
        ):
            yield graphs

    @classmethod
    @contextmanager
    def over(cls, graph: ItemGraph) -> Iterator[Graphs]:
        """Take a graph that is open, with a connection more for whoever asks for health."""
        with graph.beside() as health:
            yield cls(graph, health)

    def of(self, crawl: str | None = None) -> ItemGraph:
        """Return the graph of a crawl; None: of the served one, or of the database's only one.

        A crawl that does not exist is a NotFoundError where its graph is first asked.
        """
        return self.served.of(crawl)


# These two are not worth a thread, and there may be none.
async def _all(request: Request) -> Graphs:
    graphs: Graphs = request.app.state.graphs
    return graphs


AllGraphs = Annotated[Graphs, Depends(_all)]


async def _of_request(graphs: AllGraphs, crawl: str = "") -> ItemGraph:
    return graphs.of(crawl)


raw_paths.register()  # `{crawl:segment}`

# Of the crawl that the path names; elsewhere of `?crawl=`, or the one that is served.
CrawlGraph = Annotated[ItemGraph, Depends(_of_request)]
