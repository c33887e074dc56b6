"""Pages that are set aside: skipped for good, or stashed for later; and more attempts for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import parsing, printing, streams
from scrapy_itemgraph.commands.arguments import ID, ID_HELP, LIMIT, OF_TASK
from scrapy_itemgraph.commands.call import item_graph
from scrapy_itemgraph.commands.command import Argument, Group
from scrapy_itemgraph.commands.crawls import CRAWLS
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import counts, input_checks, item_names
from scrapy_itemgraph.model.set_aside import Hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph

_PAGES = Group("pages", "Pages of a crawl that are set aside, or get more attempts")
_IDS = Argument(
    "ids", nargs="*", metavar="ID", help=f"{ID_HELP}; -: from standard input, one a line"
)
_PART = Argument("--url-part", metavar="TEXT", help="all pages with this in their URL or id")
_TAG = Argument("--tag", metavar="NAME", help="all pages with this tag")
_STEP = 1000  # pages that are named in a transaction
_LISTED: printing.Columns = {
    "PAGE": lambda row: item_names.label_of(row.item, row.url, row.method),
    "TASK": "task",
    "STATE": "state",
    "SLOT": "slot",
}


@_PAGES.command("skip", _IDS, _PART, _TAG)
def skip(call: Call) -> None:
    """Set pages aside that nobody wants: they are not crawled, until unskip.

    What is claimed goes on to the end of its claim. Results and open failures stay as they are.
    """
    _set_aside(call, Hold.SKIPPED)


@_PAGES.command("stash", _IDS, _PART, _TAG)
def stash(call: Call) -> None:
    """Set pages aside for later, until unstash; or as many at a time as crawls dripfeed says."""
    _set_aside(call, Hold.STASHED)


@_PAGES.command(
    "unskip", _IDS, _PART, Argument("--all", action="store_true", help="all that are skipped")
)
def unskip(call: Call) -> None:
    """Free pages that are skipped: what is outstanding of them is crawled."""
    _free(call, Hold.SKIPPED)


@_PAGES.command(
    "unstash", _IDS, _PART, Argument("--all", action="store_true", help="all that are stashed")
)
def unstash(call: Call) -> None:
    """Free pages that are stashed: what is outstanding of them is crawled."""
    _free(call, Hold.STASHED)


@_PAGES.command(
    "unleave", _IDS, _PART, Argument("--all", action="store_true", help="all that are left")
)
def unleave(call: Call) -> None:
    """Free pages that were left when the spider closed its run: the next run fetches them."""
    _free(call, Hold.LEFT)


def _set_aside(call: Call, hold: Hold) -> None:
    given = call.given
    if _are_named(given.ids, has_filter=given.url_part is not None or given.tag is not None):
        _done(call, hold, _each(call, lambda graph, ids: graph.pages.set_aside(hold, ids)))
        return
    with call.graph() as graph, call.progress(str(hold), "pages") as progress:
        changed = graph.pages.set_aside_all(
            hold, part=given.url_part, tag=given.tag, reached=progress.reach
        )
    _done(call, hold, changed)


def _free(call: Call, hold: Hold) -> None:
    given = call.given
    if _are_named(given.ids, has_filter=given.all or given.url_part is not None):
        changed = _each(call, lambda graph, ids: graph.pages.free(hold, ids))
    else:
        with call.graph() as graph, call.progress("freed", "pages") as progress:
            changed = graph.pages.free_all(hold, part=given.url_part, reached=progress.reach)
    document = {"pages": changed, "freed": str(hold)}
    were = "was" if changed == 1 else "were"
    call.write(document, [f"{counts.many(changed, 'page')} {were} {hold}, and free now"])


def _are_named(ids: list[str], *, has_filter: bool) -> bool:
    """Tell whether pages are named one by one.

    Raises:
        UsageError: they are named and described, or neither.

    """
    if bool(ids) == has_filter:
        raise UsageError("say which pages: give IDs, or a filter such as --url-part TEXT")
    return bool(ids)


def _each(call: Call, do: Callable[[ItemGraph, list[str]], int]) -> int:
    """Do something to the pages that are named, some thousand in a transaction."""
    names = _names(call.given.ids)
    if not names:
        raise UsageError("standard input has no line")
    changed = 0
    with item_graph(call, names[0]) as (graph, _):
        for first in range(0, len(names), _STEP):
            changed += do(graph, names[first : first + _STEP])
    return changed


def _names(ids: list[str]) -> list[str]:
    """Return ids and URLs as they are given, or read from standard input."""
    if ids != ["-"]:
        return [input_checks.check_id(one) for one in ids]
    with streams.opened("-") as file:
        try:
            lines = [line.decode().strip() for line in streams.lines_of(file)]
        except UnicodeDecodeError as error:
            raise OperationError(f"standard input: {error}") from None
    return [input_checks.check_id(line) for line in lines if line]


def _done(call: Call, hold: Hold, changed: int) -> None:
    document = {"pages": changed, "set_aside": str(hold)}
    are = "is" if changed == 1 else "are"
    call.write(document, [f"{counts.many(changed, 'page')} {are} {hold} now"])


@_PAGES.command(
    "tries",
    ID,
    Argument(
        "attempts", nargs="?", type=parsing.count, default=1, metavar="N", help="1 if left out"
    ),
    OF_TASK,
)
def tries(call: Call) -> None:
    """Give a page N more attempts, whatever its task says; open failures of it are handled.

    A plain page gets as many, each with Scrapy's own retries. It is asked at once, and between
    attempts it waits as tasks do.
    """
    given = call.given
    with item_graph(call) as (graph, name):
        found = graph.pages.give_attempts(name, given.attempts, task=given.task)
    document = {"item": name, "attempts": given.attempts, "tasks": found}
    what = counts.many(given.attempts, "attempt")
    call.write(document, [f"{one}: {what} from now on" for one in found])


@_PAGES.command(
    "list",
    Argument("--skipped", action="store_true", help="those that are skipped alone"),
    Argument("--stashed", action="store_true", help="those that are stashed alone"),
    Argument("--left", action="store_true", help="those that the spider left, closing its run"),
    OF_TASK,
    LIMIT,
)
def list_pages(call: Call) -> None:
    """List pages that are set aside, and their tasks."""
    given = call.given
    wanted = [hold for hold in Hold if getattr(given, hold)] or list(Hold)
    with call.graph() as graph:
        rows = [
            row
            for hold in wanted
            for row in graph.lookup.work(given.task, state=hold, limit=given.limit).rows
        ][: given.limit]
    table = printing.table(rows, _LISTED)
    lines = printing.first(rows, table, given.limit, "no page is set aside")
    call.write([row._asdict() for row in rows], lines)


@CRAWLS.command(
    "dripfeed",
    Argument("name", help="the crawl's name"),
    Argument(
        "pages",
        nargs="?",
        type=parsing.natural,
        metavar="N",
        help="pages in work; 0: as --off; left out: how many",
    ),
    Argument("--off", action="store_true", help="free none of the stash any more"),
)
def dripfeed(call: Call) -> None:
    """Keep N pages of a crawl's stash in work: as many are freed as others are done.

    The crawl does not end before its stash is empty. Workers of the crawl free them.
    """
    given = call.given
    if given.off and given.pages is not None:
        raise UsageError("give N or --off, not both")
    with call.graph() as opened:
        graph = opened.of(given.name)
        if given.off or given.pages is not None:
            graph.pages.dripfeed(given.pages or None)
        pages = graph.pages.dripfed()
    said = (
        "frees none of its stash"
        if pages is None
        else f"keeps {counts.many(pages, 'page')} of its stash in work"
    )
    call.write(
        {"crawl": given.name, "pages": pages}, [f"the crawl {printing.clean(given.name)} {said}"]
    )
