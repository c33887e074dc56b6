"""How deep the pages of crawls are, and may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.commands.command import Argument
from scrapy_itemgraph.commands.crawls import CRAWLS
from scrapy_itemgraph.model import counts, documents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from scrapy_itemgraph.commands.call import Call


@CRAWLS.command("recompute-depth", Argument("name", help="the crawl's name"))
def recompute_depth(call: Call) -> None:
    """Find anew how deep the pages of a crawl are, from the links that are known.

    Depths only fall by themselves: after pages were deleted those behind them keep theirs. Workers
    of the crawl do it step by step, and `status` says so meanwhile.
    """
    name = call.given.name
    with call.graph() as opened:
        graph = opened.of(name)
        graph.depths.find_anew()
        found = graph.depths.standing()
    document = documents.of(found)
    said = f"workers of the crawl {name} find anew how deep its pages are"
    call.write({"name": name, "depth": document}, [printing.clean(said)])


def said(name: str, limit: int | None) -> str:
    """Return the line that says how deep pages may be."""
    how = "as deep as they are" if limit is None else counts.many(limit, "link") + " deep"
    return printing.clean(f"pages of the crawl {name} may be {how}")


def fields(found: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield what a person reads of the depths of a crawl; nothing where they are not tracked."""
    if found is None:
        return
    limit = found["limit"]
    yield "pages by depth", ", ".join(map(_at_depth, found["by_depth"])) or "none yet"
    if limit is not None:
        yield "depth limit", f"{limit}" + (", set by a person" if found["is_set"] else "")
        yield "too deep", f"{found['too_deep']:,}"
    if found["is_at_work"]:
        yield "depths", "are still worked out"


def _at_depth(one: Mapping[str, Any]) -> str:
    depth = "none known" if one["depth"] is None else one["depth"]
    return f"{depth}: {one['pages']:,}{' or more' if one['is_more'] else ''}"
