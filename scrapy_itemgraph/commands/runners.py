"""Runners: the daemons that run the crawls of the queue."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.commands.command import Argument, Group, command
from scrapy_itemgraph.tools.wording import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.store.admin.runner_reports import RunnerLine

_NAME = Argument("runner", help="the runner's name")
_TAGS = Argument("tags", nargs="*", metavar="TAG", help="all its tags from now on; none: --none")
_RUNNERS = Group("runners", "The daemons that run the crawls of the queue")

_PLACES: printing.Columns = {
    "PLACE": "number",
    "CRAWL": "crawl",
    "JOB": "job",
    "SINCE": "since",
    "KEPT FOR": "kept_for",
    "LOCKED TO": "locked_to",
    "LOCK": "lock",
}


def _tags(one: RunnerLine) -> str:
    return " ".join([*one.tags, *(["(alone)"] if one.only_tagged else [])])


def _bytes(size: int | None) -> str:
    return "" if size is None else format_size(size)


_COLUMNS: printing.Columns = {
    "RUNNER": "name",
    "STATE": "state",
    "PROJECT": "project",
    "BUSY": lambda one: f"{one.busy}/{one.places}",
    "TAGS": _tags,
    "HOST": "host",
    "PROCESS": lambda one: str(one.process_id or ""),
    "MEMORY FREE": lambda one: _bytes(one.memory_free),
    "DISK FREE": lambda one: _bytes(one.disk_free),
}


@_RUNNERS.command("list")
def list_runners(call: Call) -> None:
    """List the runners, those that live and those that did.

    BUSY is how many of its places have a process.
    """
    with call.graph() as graph:
        lines = graph.runners.list()
    shown = printing.table(lines, _COLUMNS) if lines else iter([_NONE])
    call.write([{**asdict(one), "state": one.state} for one in lines], shown)


_NONE = "there is no runner yet; scrapy itemgraph work starts one"


@_RUNNERS.command("show", _NAME)
def show(call: Call) -> None:
    """Show a runner: what its places have, what it takes, and how its host is."""
    name = call.given.runner
    with call.graph() as graph:
        one, places = graph.runners.get(name), graph.runners.places(name)
    document = {**asdict(one), "state": one.state, "in_places": [asdict(each) for each in places]}
    call.write(document, _shown(one, printing.table(places, _PLACES)))


def _shown(one: RunnerLine, places: Iterator[str]) -> Iterator[str]:
    takes = "tagged crawls alone" if one.only_tagged else "crawls without a tag"
    if one.tags and not one.only_tagged:
        takes += ", and with its tags"
    yield from printing.fields(
        [
            ("runner", one.name),
            ("state", one.state),
            ("nothing starts", one.low),
            ("drains since", printing.moment(one.drains_since)),
            ("project", one.project),
            ("takes", takes),
            ("tags", " ".join(one.tags)),
            ("preempts", "" if one.preempts else "no"),
            ("host", one.host),
            ("process", one.process_id),
            ("seen", printing.moment(one.seen_at)),
            ("logs", one.logs),
            ("memory free", _bytes(one.memory_free)),
            ("disk free", _disk(one)),
            ("load", "" if one.load is None else f"{one.load:.2f}"),
        ]
    )
    yield ""
    yield from places


def _disk(one: RunnerLine) -> str:
    return f"{_bytes(one.disk_free)} of {_bytes(one.disk_total)}" if one.disk_free else ""


@_RUNNERS.command("drain", _NAME)
def drain(call: Call) -> None:
    """Have a runner start nothing more; what runs comes to its end."""
    _drain(call, drains=True)


@_RUNNERS.command("undrain", _NAME)
def undrain(call: Call) -> None:
    """Have a runner that drains start something again."""
    _drain(call, drains=False)


def _drain(call: Call, *, drains: bool) -> None:
    name = call.given.runner
    with call.graph() as graph:
        is_new = graph.runners.drain(name, by=call.by, drains=drains)
    what = "starts nothing more" if drains else "starts crawls again"
    already = "" if is_new else ", as before"
    document = {"runner": name, "drains": drains, "is_changed": is_new}
    call.write(document, [printing.clean(f"the runner {name} {what}{already}")])


@_RUNNERS.command("tag", _NAME, _TAGS, Argument("--none", action="store_true", help="no tags"))
def tag(call: Call) -> None:
    """Set the tags of a runner, until it starts again: it takes crawls that have one of them.

    A process whose crawl it may not have any more ends in order.
    """
    given = call.given
    if bool(given.tags) == given.none:
        raise UsageError("runners tag takes the tags that the runner has from now on, or --none")
    _set(call, tags=list(dict.fromkeys(given.tags)))


@_RUNNERS.command(
    "set",
    _NAME,
    Argument("--only-tagged", choices=("yes", "no"), help="whether it takes tagged crawls alone"),
    Argument("--preempt", choices=("yes", "no"), help="whether a better crawl gets a place"),
)
def set_runner(call: Call) -> None:
    """Change which crawls a runner takes, until it starts again."""
    given = call.given
    changes = {"only_tagged": given.only_tagged, "preempts": given.preempt}
    wanted = {name: value == "yes" for name, value in changes.items() if value is not None}
    if not wanted:
        raise UsageError("runners set takes --only-tagged or --preempt")
    _set(call, **wanted)


def _set(call: Call, **changes: object) -> None:
    with call.graph() as graph:
        one = graph.runners.set(call.given.runner, by=call.by, **changes)  # type: ignore[arg-type]  # by option
    call.write({**asdict(one), "state": one.state}, printing.table([one], _COLUMNS))


@command(
    Argument("target", help="a runner's name, job:N or worker:N"),
    Argument("--reason", metavar="TEXT", help="why; the history keeps it"),
)
def reclaim(call: Call) -> None:
    """Take from a runner, job or worker what it has, as if it were dead.

    For a host that is cut off. A process that lives in spite of it notices, and nothing that it
    does counts any more.
    """
    given = call.given
    if not given.reason:
        raise UsageError('say why: --reason "the host burned down"')
    kind, colon, number = given.target.partition(":")
    with call.graph() as graph:
        if colon and kind in {"job", "worker"} and number.isdecimal():
            take = graph.jobs.reclaim if kind == "job" else graph.jobs.reclaim_worker
            take(int(number), given.reason, by=call.by)
        else:
            graph.runners.reclaim(given.target, given.reason, by=call.by)
    document = {"target": given.target, "reason": given.reason}
    call.write(document, [printing.clean(f"reclaimed {given.target}")])
