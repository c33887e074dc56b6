"""What a person types next, so that what was freed or made stale runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model import next_commands
from scrapy_itemgraph.model.crawl_states import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.costs import Cost
    from scrapy_itemgraph.store.admin.next_starts import NextStart

# Crawls of the queue in other states a runner takes by itself.
_STEERED: Mapping[str, str] = {State.PAUSED: "resume", State.ABORTED: "revive"}


def say_cost(call: Call, cost: Cost) -> None:
    """Say what an act will have fetched, before it is done."""
    if cost.pages:
        call.note(f"scrapy itemgraph: {cost.words} to fetch")


def lines(call: Call, graph: ItemGraph) -> Iterator[str]:
    """Say which command runs what is outstanding, unless a worker or a runner takes it by itself.

    A new run fetches pages of plain callbacks that are done again as well, where nothing gives them
    a time to live; so the command has the setting that goes on with the last run. What that fetches
    is said before.
    """
    start = graph.crawls.next_start()
    if start is None or start.is_running:
        return
    if start.state is None:
        yield from _of_spider(call, start)
    elif start.state in _STEERED:
        yield "next"
        yield f"  {next_commands.command('crawls', _STEERED[start.state], graph.crawl)}"
    elif not start.is_new_run:
        yield f"a runner goes on with run {start.run}: {start.cost} to fetch"


def _of_spider(call: Call, start: NextStart) -> Iterator[str]:
    incremental = call.settings.results.incremental_callbacks
    others = set() if incremental is None else set(start.callbacks) - set(incremental)
    is_whole = start.is_new_run and bool(others)
    settings = [next_commands.CONTINUES] if is_whole else []
    yield "next"
    yield f"  {next_commands.crawl(start.spider, start.arguments, *settings)}"
    if is_whole:
        yield (
            f"  (run {start.run} goes on: {start.cost} to fetch; without -s it is a new crawl, "
            "which fetches again what is done as well)"
        )
