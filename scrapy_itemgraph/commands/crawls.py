"""Crawls as a whole: listed, deleted, begun anew, made older."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import health_lines, parsing, printing
from scrapy_itemgraph.commands.command import Argument, Group, command
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.model import counts, crawl_arguments
from scrapy_itemgraph.model.crawl_states import State
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.crawl_states import ManagedCrawl
    from scrapy_itemgraph.store.admin.crawl_lists import CrawlLine

CRAWL = Argument("crawl", help="the crawl's name")
_YES = Argument("--yes", action="store_true", help="do it; without it, only say what would go")
_SPIDER = Argument("--spider", metavar="NAME", help="those of a spider")
_OLDER = Argument(
    "--older-than", type=parsing.period, metavar="PERIOD", help="not used for so long: 30d"
)
CRAWLS = Group("crawls", "Crawls of the database, which spider arguments make many")

_COLUMNS: printing.Columns = {
    "CRAWL": "crawl",
    "ARGUMENTS": lambda one: (
        "?" if one.arguments is None else crawl_arguments.as_options(one.arguments)
    ),
    "HEALTH": lambda one: one.health.word,
    "RUN": "run",
    "USED": "used_at",
    "WORKERS": "workers",
}


@CRAWLS.command(
    "list",
    *(_SPIDER, _OLDER),
    Argument("--limit", metavar="N", type=parsing.count, default=1000, help="at most (1,000)"),
)
def list_crawls(call: Call) -> None:
    """List the crawls of the database: those of the queue, then the others by spider.

    Each start with other spider arguments is a crawl of its own. PLACE is its turn among the
    active ones of its project. Below the tables stands why crawls are not well.
    """
    given = call.given
    with call.graph() as graph:
        lines = graph.crawls.list(
            spider=given.spider, older_than=given.older_than, limit=given.limit
        )
        managed = graph.queue.named([one.crawl for one in lines if one.state is not None])
    by_name = {one.name: asdict(one) for one in managed}
    document = [{**by_name.get(one.crawl, {}), **asdict(one), "name": one.crawl} for one in lines]
    call.write(document, _listed(lines, managed, given.limit))


def _listed(
    lines: Sequence[CrawlLine], managed: Sequence[ManagedCrawl], limit: int
) -> Iterator[str]:
    others = [one for one in lines if one.state is None]
    if managed:
        words = {one.crawl: one.health.word for one in lines}
        columns = {"CRAWL": "name", "HEALTH": lambda one: words[one.name], **_QUEUE}
        yield from printing.table(sorted(managed, key=_turn), columns)
    if managed and others:
        yield ""
    if others or not managed:
        yield from listing(others)
    yield from health_lines.below((one.crawl, one.health, one.why) for one in lines)
    if len(lines) == limit:
        yield f"(of {limit:,} crawls, the active ones first; --limit shows more)"


def _turn(one: ManagedCrawl) -> tuple[int, str, int, str]:
    """Return what crawls of the queue are sorted by: state, project, turn, name."""
    return list(State).index(one.state), one.project, one.place or 0, one.name


def _state(one: ManagedCrawl) -> str:
    return f"{one.state}, drains" if one.is_draining else one.state


_QUEUE: printing.Columns = {
    "STATE": _state,
    "PLACE": "place",
    "NICE": lambda one: one.nice or None,
    "PROCESSES": lambda one: f"{one.jobs}/{one.concurrency}",
    "SPIDER": lambda one: one.spider if one.spider != one.name else "",
    "ARGUMENTS": lambda one: crawl_arguments.as_options(one.arguments) if one.arguments else "",
    "TAG": "tag",
    "NOT BEFORE": "next_at",
    "NOTE": lambda one: one.state_reason or one.note,
}


@CRAWLS.command(
    "delete",
    Argument("names", nargs="*", metavar="NAME", help="crawls to delete"),
    _SPIDER,
    _OLDER,
    _YES,
)
def delete(call: Call) -> int:
    """Delete crawls by name, or those of a spider or not used for a period.

    A crawl goes with its items, results, failures and tasks; it is refused while a worker of it
    lives.
    """
    given = call.given
    if bool(given.names) == (given.spider is not None or given.older_than is not None):
        raise UsageError("crawls delete takes names, or --spider and --older-than")
    with call.graph() as graph, call.progress("crawls delete", "items") as progress:
        lines = _meant(call, graph)
        items: dict[str, int] = {}
        for one in lines if given.yes else ():
            try:
                items[one.crawl] = graph.of(one.crawl).crawls.delete(reached=progress.reach)
            except ItemGraphError:
                for line in _said(lines, items, yes=True):
                    call.note(line)
                raise
    document = {"crawls": [one.crawl for one in lines], "is_deleted": given.yes, "items": items}
    call.write(document, _said(lines, items, yes=given.yes))
    return 0 if given.yes or not lines else 1


def _meant(call: Call, graph: ItemGraph) -> list[CrawlLine]:
    """Return the crawls that are named, or that the options find.

    Raises:
        NotFoundError: there is no crawl of a name; it names those that are near.

    """
    given = call.given
    known = graph.crawls.list(spider=given.spider, older_than=given.older_than)
    wanted = set(given.names)
    for name in sorted(wanted - {one.crawl for one in known}):
        graph.of(name).tasks.tags()  # raises
    return [one for one in known if not wanted or one.crawl in wanted]


def listing(lines: Sequence[CrawlLine]) -> Iterator[str]:
    """Yield crawls as tables, one for each spider."""
    if not lines:
        yield "there is no such crawl"
    for place, (spider, some) in enumerate(groupby(lines, key=lambda one: one.spider)):
        group = list(some)
        if place:
            yield ""
        count = counts.many(len(group), "crawl")
        yield printing.clean(f"spider {spider}: {count}" if spider else f"no spider: {count}")
        yield from printing.table(group, _COLUMNS)


def _said(lines: Sequence[CrawlLine], items: dict[str, int], *, yes: bool) -> Iterator[str]:
    if yes:
        for name, count in items.items():
            yield printing.clean(f"deleted the crawl {name} with {counts.many(count, 'item')}")
        return
    yield from listing(lines)
    if lines:
        yield ""
        yield "Nothing was deleted. To delete these, add --yes."


@command(CRAWL, _YES)
def restart(call: Call) -> int:
    """Delete all items of a crawl, so that it begins anew.

    The tasks stay known. It is refused while a worker of the crawl lives.
    """
    name, yes = call.given.crawl, call.given.yes
    with call.graph(crawl=name) as graph, call.progress("restart", "items") as progress:
        rows = graph.crawls.restart(
            dry_run=not yes, reached=lambda done, total: progress.reach(done, total=total)
        )
    document = {"crawl": name, "is_deleted": yes, "rows": rows, "estimated": counts.estimated(rows)}
    call.write(document, _restart_lines(name, rows, yes=yes))
    return 0 if yes else 1


def _restart_lines(name: str, rows: dict[str, int], *, yes: bool) -> Iterator[str]:
    shown = (f"{what} {counts.shown(number)}" for what, number in rows.items() if number)
    listed = ", ".join(shown) or "nothing"
    if yes:
        yield printing.clean(f"deleted of the crawl {name}: {listed}")
    else:
        yield printing.clean(f"This would delete, of the crawl {name}: {listed}.")
        yield "Nothing was deleted. To do it, add --yes."


@command(CRAWL, Argument("period", type=parsing.period, help="such as 90s or 1d12h"))
def age(call: Call) -> None:
    """Move every time of a crawl back, as if a period had passed.

    For demos and tests.
    """
    name, period = call.given.crawl, call.given.period
    with call.graph(crawl=name) as graph:
        graph.crawls.age(period)
    passed = wording.format_period(period.total_seconds())
    call.write(
        {"crawl": name, "seconds": period.total_seconds()},
        [printing.clean(f"the crawl {name} is {passed} older")],
    )
