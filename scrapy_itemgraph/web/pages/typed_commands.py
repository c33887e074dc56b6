"""Commands that pages show, for people to type in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_itemgraph.model import next_commands

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from scrapy_itemgraph.graph import ItemGraph


class Simulating(NamedTuple):
    """What commands that simulate in a crawl have in common: its name, and its arguments."""

    crawl: str
    arguments: Mapping[str, str]

    @classmethod
    def of(cls, graph: ItemGraph) -> Self:
        """Ask the graph for those of its crawl."""
        start = graph.crawls.next_start()
        return cls(graph.crawl, {} if start is None else start.arguments)

    def typed(self, spider: str | None, task: str, written: str, *, is_page: bool) -> str:
        """Return the command for what is written of an item; of a page its callback is not said."""
        of_task = None if is_page else task
        return next_commands.simulate_in(
            self.crawl, self.arguments, spider or None, of_task, written
        )
