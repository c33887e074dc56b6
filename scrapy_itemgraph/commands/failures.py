"""Failures: what failed, one by one or in groups, and having it run again."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import code_on_disk, failure_lines, next_starts, parsing, printing
from scrapy_itemgraph.commands.arguments import CATEGORY, LIMIT, OF_TASK
from scrapy_itemgraph.commands.call import item_graph
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import counts, documents, next_commands

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.failure_filters import FailureFilters
    from scrapy_itemgraph.store.open_failures import FailureDetails, FailurePage

_HIDDEN = {"item_id", "task_id"}
_SORTS = ("last", "first", "count", "task", "type")

_GROUP = Argument("--group", metavar="N", type=parsing.count, help="those that are like number N")
_ERROR = Argument(
    "--error", metavar="TEXT", help='whose type or message has it: "http 404", ValueError'
)
_SINCE = Argument(
    "--since",
    metavar="MOMENT",
    type=parsing.moment,
    help="from then on: 2026-11-21T10:00Z, or a period up to now such as 2h",
)
_NUMBERS = Argument("failure", nargs="*", type=parsing.count, help="their numbers")
_FAILURES = Argument(
    "failure", nargs="*", type=parsing.count_or_name, help="their numbers, or URLs of their pages"
)


@command(
    Argument(
        "failure",
        nargs="?",
        type=parsing.count_or_name,
        help="its number, or the URL of its page: show all of this one",
    ),
    OF_TASK,
    _GROUP,
    _ERROR,
    _SINCE,
    Argument("--groups", action="store_true", help="a line for those that are alike"),
    Argument(
        "--sort",
        choices=_SORTS,
        default="last",
        help="groups by their last failure, first failure, count, task or type",
    ),
    Argument("--newest", action="store_true", help="the newest first; so it is with --since"),
    LIMIT,
    Argument("--after", metavar="N", type=parsing.count, default=0, help="go on behind number N"),
    CATEGORY,
)
def failures(call: Call) -> None:
    """List the failures that nobody has handled, a line each, or show one.

    They come in the order of their numbers, the oldest first. FAILURE is a number of the list, or
    the URL or id of what failed: it is shown with its traceback, the page that it saw, what was
    logged, and the next commands. With --json each failure has all of that.
    """
    given = call.given
    chosen = (given.task, given.group, given.error, given.since) != (None,) * 4
    if given.failure is not None and (chosen or given.groups):
        raise UsageError("give a failure's number, or options that choose some; not both")
    if given.failure is not None:
        _show_one(call, given.failure)
        return
    with _graph(call, given.group) as graph:
        if given.groups:
            _list_groups(call, graph)
        else:
            _list(call, graph, otherwise="no such failure is open" if chosen else None)


def _show_one(call: Call, given: int | str) -> None:
    """Show a failure, by its number or by what failed; of an item with several the newest."""
    if isinstance(given, int):
        with _graph(call, given) as graph:
            _show(call, graph, given)
        return
    with item_graph(call, given) as (graph, item):
        *others, newest = _of_item(graph, given, item)
        if others:
            call.note(f"also open: {', '.join(map(str, others))}")
        _show(call, graph, newest)


def _of_item(graph: ItemGraph, given: str, item: str) -> list[int]:
    """Return the numbers of an item's open failures, which has some."""
    numbers = sorted(graph.failures.of_item(item).values())
    if not numbers:
        raise NotFoundError(
            f"no failure of {given!r} is open; scrapy itemgraph explain "
            f"{shlex.quote(given)} says how it is"
        )
    return numbers


def _numbers(call: Call, given: int | str) -> list[int]:
    """Return the numbers of failures: the one that is given, or those of what failed."""
    if isinstance(given, int):
        return [given]
    with item_graph(call, given) as (graph, item):
        return _of_item(graph, given, item)


def _show(call: Call, graph: ItemGraph, number: int) -> None:
    found = graph.failures.get(number)
    further = found._asdict()
    document = {**_document(call, further.pop("failure")), **further}
    simulates = _simulates(call, graph, found)
    call.write(document, failure_lines.details(found, simulates, call.given.category))
    if found.handled_at is None:
        number = found.failure.id
        _hint(
            call,
            f"scrapy itemgraph failures --group {number} shows those that are alike; "
            f"scrapy itemgraph handle --group {number} lets all of them run again",
        )


def _simulates(call: Call, graph: ItemGraph, found: FailureDetails) -> str:
    """Return what tries again what failed, in the failure's crawl."""
    failure = found.failure
    (named,) = graph.lookup.written([failure])
    of_task = None if failure.is_page else failure.task
    start = graph.crawls.next_start()
    arguments = {} if start is None else start.arguments
    if call.settings.run.crawl is None:
        return next_commands.simulate_in(graph.crawl, arguments, found.spider, of_task, named)
    is_set = call.crawl is None and call.named_crawl == graph.crawl  # by ITEMGRAPH_CRAWL
    crawl = None if is_set else graph.crawl
    return next_commands.simulate(found.spider, of_task, named, crawl=crawl, arguments=arguments)


def _list(call: Call, graph: ItemGraph, otherwise: str | None) -> None:
    given = call.given
    is_newest = given.newest or given.since is not None
    found = graph.failures.page(
        given.limit, after=given.after, newest_first=is_newest, **_filters(call, graph)
    )
    lines = failure_lines.table(found.rows, graph.database.now())
    nothing = otherwise or "no failure is open"
    shown = printing.first(found.rows, lines, given.limit, nothing)
    call.write([_document(call, row) for row in found.rows], shown)
    _say_what_follows(call, found)


def _say_what_follows(call: Call, found: FailurePage) -> None:
    if found.is_cut:
        call.note(
            f"scrapy itemgraph: these are of the open failures up to number {found.next}; "
            f"--after {found.next} looks further"
        )
    elif found.rows:
        one = found.rows[0].id
        _hint(
            call,
            f"scrapy itemgraph failures {one} shows one, --groups those that are alike; "
            f"scrapy itemgraph handle {one} lets it run again",
        )


def _hint(call: Call, line: str) -> None:
    """Say what comes next where a person reads."""
    if sys.stdout.isatty() and not call.as_json:
        call.note(line)


def _list_groups(call: Call, graph: ItemGraph) -> None:
    given = call.given
    groups = graph.failures.groups(given.limit, sort=given.sort, **_filters(call, graph))
    document = [{**documents.of(one), "example": _document(call, one.example)} for one in groups]
    lines = failure_lines.groups(groups, graph.database.now())
    call.write(document, printing.first(groups, lines, given.limit, "no failure is open"))
    if groups:
        number = groups[0].example.id
        _hint(
            call,
            f"scrapy itemgraph failures {number} shows an example, failures --group {number} all "
            f"of a group; scrapy itemgraph handle --group {number} lets them run again",
        )


def _document(call: Call, row: Any) -> dict[str, Any]:
    found = {k: v for k, v in row._asdict().items() if k not in _HIDDEN}
    if call.given.category:
        found["log"] = printing.shown(found["log"], call.given.category)
    return found


@contextmanager
def _graph(call: Call, number: int | None) -> Iterator[ItemGraph]:
    """Open the graph of the crawl that is meant, else of the one that has a failure."""
    with call.graph() as graph:
        if call.named_crawl is None and number is not None:
            graph = graph.of(graph.failures.crawl_of(number))  # noqa: PLW2901
        yield graph


def _filters(call: Call, graph: ItemGraph) -> FailureFilters:
    """Return which failures the options choose."""
    given = call.given
    since = given.since
    if isinstance(since, timedelta):
        since = graph.database.now() - since
    return {
        "task": given.task,
        "group": None if given.group is None else graph.failures.get(given.group).group,
        "text": given.error,
        "occurred_since": since,
    }


@command(
    _FAILURES,
    _GROUP,
    Argument("--task", help="of this task or callback"),
    _ERROR,
    _SINCE,
    Argument("--all", action="store_true", help="all of the crawl"),
    Argument(
        "--led-to", metavar="URL", help="pages whose redirect led to this one, and no failures"
    ),
    Argument("--gone", action="store_true", help="pages that are gone, and no failures"),
    Argument("--item", metavar="ID", dest="id", help="with --gone: this page, by its URL"),
    Argument("--dry-run", action="store_true", help="say how many they are, and change nothing"),
    Argument("--no-retry", action="store_true", help="do not run it again: it stays held"),
    Argument("--any-code", action="store_true", help="also by workers of older code"),
)
def handle(call: Call) -> None:
    """Mark failures as handled: some numbers, those that the options choose, or all.

    What failed runs again, unless --no-retry is given. A worker that runs other code of the task
    than is here takes none of its work until it is restarted, unless --any-code is given. Pages
    whose redirect led to a page that failed run again with it. With --led-to pages are fetched
    again that are done because their redirect led to another page, such as a login. With --gone
    pages are asked again of which the website said that they are no more.
    """
    given = call.given
    if given.led_to is not None:
        _handle_led(call)
        return
    if given.gone:
        _handle_gone(call)
        return
    if given.id is not None:
        raise UsageError("--item goes with --gone")
    _check_chosen(given)
    numbers = [number for one in given.failure for number in _numbers(call, one)]
    with _graph(call, numbers[0] if numbers else given.group) as graph:
        which: FailureFilters = {"failures": numbers} if numbers else _filters(call, graph)
        if given.dry_run:
            _say_how_many(call, graph, which)
        else:
            _handle(call, graph, which)


def _check_chosen(given: argparse.Namespace) -> None:
    chosen = [given.group, given.task, given.error, given.since]
    ways = bool(given.failure) + any(one is not None for one in chosen) + given.all
    if not ways:
        raise UsageError(
            "say which: FAILURE numbers, --group N, --task TASK, --error TEXT, --since MOMENT, "
            "or --all"
        )
    if ways > 1:
        raise UsageError("give FAILURE numbers, or options that choose failures, or --all")


def _handle_led(call: Call) -> None:
    given = call.given
    if _has_others(given) or given.gone or given.task is not None or given.id is not None:
        raise UsageError("--led-to goes alone")
    with item_graph(call, given.led_to) as (graph, _):
        next_starts.say_cost(call, graph.costs.of_handle_led(given.led_to))
        with call.progress("handle", "pages") as progress:
            handled = graph.failures.handle(led_to=given.led_to, reached=progress.reach)
        are = "is" if handled == 1 else "are"
        led = counts.many(handled, "page") if handled else "no page"
        then = f"; {'it' if handled == 1 else 'they'} {are} fetched again" if handled else ""
        lines = [f"{led} led there{then}"]
        if handled:
            lines += next_starts.lines(call, graph)
        document = {"handled": handled, "retry": True, "left_by": []}
        call.write(document, map(printing.clean, lines))


def _has_others(given: argparse.Namespace) -> bool:
    """Tell whether options are given that choose failures, or say what becomes of them."""
    others = [given.failure, given.group, given.error, given.since, given.all, given.dry_run]
    return any(others) or given.no_retry


def _handle_gone(call: Call) -> None:
    given = call.given
    if _has_others(given):
        raise UsageError("--gone goes with --task and --item alone")
    if given.id is None:
        with call.graph() as graph:
            _free_gone(call, graph)
    else:
        with item_graph(call) as (graph, item):
            _free_gone(call, graph, item)


def _free_gone(call: Call, graph: ItemGraph, item: str | None = None) -> None:
    next_starts.say_cost(call, graph.costs.of_handle_gone(call.given.task, item=item))
    freed = graph.failures.handle_gone(call.given.task, item=item)
    they = "it is" if freed == 1 else "they are"
    lines = [f"{freed:,} gone{f'; {they} asked again' if freed else ''}"]
    if freed:
        lines += next_starts.lines(call, graph)
    call.write({"handled": freed, "retry": True, "left_by": []}, map(printing.clean, lines))


def _say_how_many(call: Call, graph: ItemGraph, which: FailureFilters) -> None:
    count = graph.failures.count(**which)
    document = {
        "handled": 0,
        "would_handle": count.number,
        "is_estimated": count.is_estimated,
        "retry": not call.given.no_retry,
    }
    about = "~" if count.is_estimated else ""
    call.write(document, [f"would handle {about}{count.number:,}; nothing was changed"])


def _handle(call: Call, graph: ItemGraph, which: FailureFilters) -> None:
    retry = not call.given.no_retry
    older = []
    if retry:
        next_starts.say_cost(call, graph.costs.of_handle(**which))
        source_of = None
        if not call.given.any_code:
            source_of = code_on_disk.sources(call.scrapy_settings, call.note)
        older = graph.failures.leave_to_newer(source_of, **which)
    with call.progress("handle", "pairs") as progress:
        handled = graph.failures.handle(retry=retry, reached=progress.reach, **which)
    document = {"handled": handled, "retry": retry, "left_by": [one._asdict() for one in older]}
    lines = [_handled(handled, retry=retry)]
    if handled and retry:
        lines += next_starts.lines(call, graph)
    lines += [
        f"worker {one.worker} (process {one.process_id} on {one.host}) runs older code of "
        f"{one.task}, and takes none of its work until it is restarted (--any-code lets it)"
        for one in older
    ]
    call.write(document, map(printing.clean, lines))


def _handled(count: int, *, retry: bool) -> str:
    if not count:
        return "0 handled: none of these is open"
    they = "it" if count == 1 else "they"
    then = f"{they} may run again" if retry else f"{they} stay{'s' if count == 1 else ''} held"
    return f"{count:,} handled; {then}"


@command(_NUMBERS)
def unhandle(call: Call) -> None:
    """Undo `handle`: the failures are open again, and what failed is held.

    What has run since, or runs now, is left as it is.
    """
    numbers = call.given.failure
    if not numbers:
        raise UsageError("say which failures, by their numbers")
    with _graph(call, numbers[0]) as graph:
        opened = graph.failures.unhandle(failures=numbers)
    if not opened:
        raise NotFoundError(
            f"nothing was undone: {', '.join(map(str, numbers))} was not handled by a person, "
            "or has run since, or runs"
        )
    are = "is" if opened == 1 else "are"
    said = f"{counts.many(opened, 'failure')} {are} open again; what failed is held"
    call.write({"undone": opened}, [said])
