"""Changes of a crawl's rules over HTTP: what who steers crawls may change, and who operates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.web.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.access.visitors import Visitor
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.rules import Ruleset, StoredRuleset


def change(
    graph: ItemGraph,
    visitor: Visitor,
    changed: Callable[[Ruleset], Ruleset],
    *,
    said: str,
    only_after: int | None = None,
    note: str | None = None,
    applies: bool = False,
) -> StoredRuleset:
    """Change the rules of a crawl, and apply them to what waits if that is asked for.

    Who may steer crawls, and no more, changes those of crawls of the queue, and has no hook called
    that was not: a hook is code of the project.

    Raises:
        Problem: the visitor may not.
        NotFoundError: the crawl is not in the queue, and the visitor may steer crawls alone.
        OperationError: a rule that cannot be, or others were faster.

    """
    check_crawl(graph, visitor)

    def checked(before: Ruleset) -> Ruleset:
        after = changed(before)
        new = sorted(after.hooks - before.hooks)
        if new and not visitor.may_operate:
            raise Problem(
                403,
                f"the token {visitor.name!r} may change rules, and name no hook that they do not "
                f"call yet ({', '.join(new)}); one made with --role operate may",
            )
        return after

    stored = graph.rules.change(
        checked, by=visitor.by, said=said, only_after=only_after, note=note or None
    )
    if applies:
        graph.rules.apply()
    return stored


def check_crawl(graph: ItemGraph, visitor: Visitor) -> None:
    """Refuse who may steer crawls of the queue alone, where this is none."""
    if not visitor.may_operate:
        graph.queue.get(graph.crawl)
