"""The crawls of a database, which spider arguments make many: listed, and deleted."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import parsing, printing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.model import crawl_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_itemgraph.commands.command import Call
    from scrapy_itemgraph.store.admin.crawl_lists import CrawlLine

_COLUMNS: printing.Columns = {
    "CRAWL": "crawl",
    "ARGUMENTS": lambda one: (
        "?" if one.arguments is None else crawl_arguments.as_options(one.arguments)
    ),
    "RUN": "run",
    "USED": "used_at",
    "WORKERS": "workers",
}


@command(
    Argument("action", choices=["list", "delete"], help="list, or delete"),
    Argument("names", nargs="*", metavar="NAME", help="crawls to delete"),
    Argument("--spider", metavar="NAME", help="those of a spider"),
    Argument(
        "--older-than", type=parsing.period, metavar="PERIOD", help="not used for so long: 30d"
    ),
    Argument("--yes", action="store_true", help="do it; without it, only say what would go"),
)
def crawls(call: Call) -> int:
    """List the crawls of the database by spider, or delete some.

    Each start with other spider arguments is a crawl of its own. A crawl that is deleted goes with
    its items, results, failures and tasks; it is refused while a worker of it lives.
    """
    given = call.given
    if given.action == "list":
        if given.names or given.yes:
            raise UsageError("crawls list takes --spider and --older-than alone")
        with call.graph() as graph:
            lines = graph.crawls.list(spider=given.spider, older_than=given.older_than)
        call.write([asdict(one) for one in lines], listing(lines))
        return 0
    is_by_name = bool(given.names)
    if is_by_name == (given.spider is not None or given.older_than is not None):
        raise UsageError("crawls delete takes names, or --spider and --older-than")
    return _delete(call)


def listing(lines: Sequence[CrawlLine]) -> Iterator[str]:
    """Yield crawls as tables, one for each spider."""
    if not lines:
        yield "there is no such crawl"
    for place, (spider, some) in enumerate(groupby(lines, key=lambda one: one.spider)):
        group = list(some)
        if place:
            yield ""
        count = f"{len(group):,} crawl" + ("s" if len(group) > 1 else "")
        yield printing.clean(f"spider {spider}: {count}" if spider else f"no spider: {count}")
        yield from printing.table(group, _COLUMNS)


def _delete(call: Call) -> int:
    given = call.given
    with call.graph() as graph, call.progress("crawls delete", "items") as progress:
        known = graph.crawls.list(spider=given.spider, older_than=given.older_than)
        wanted = set(given.names)
        missing = wanted - {one.crawl for one in known}
        for name in sorted(missing):
            graph.of(name).tasks.list()  # raises with the names that are near
        lines = [one for one in known if not wanted or one.crawl in wanted]
        items = {}
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


def _said(lines: Sequence[CrawlLine], items: dict[str, int], *, yes: bool) -> Iterator[str]:
    if yes:
        for name, count in items.items():
            yield printing.clean(f"deleted the crawl {name} with {count:,} items")
        return
    yield from listing(lines)
    if lines:
        yield ""
        yield "Nothing was deleted. To delete these, add --yes."
