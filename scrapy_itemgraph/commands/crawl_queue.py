"""Crawls that wait for runners: added to the queue, and steered."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError
from scrapy.utils.conf import feed_process_params_from_cli

from scrapy_itemgraph.commands import (
    crawl_views,
    depths,
    next_starts,
    parsing,
    printing,
    schedules,
)
from scrapy_itemgraph.commands.command import Argument
from scrapy_itemgraph.commands.crawls import CRAWLS
from scrapy_itemgraph.commands.spiders import check_arguments, feeds_of, spider_class
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.model import crawl_waits
from scrapy_itemgraph.model.crawl_states import Change, NewCrawl, State
from scrapy_itemgraph.model.rules import Ruleset
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.settings import queued

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scrapy import Spider

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.crawl_states import ManagedCrawl

_NAME = Argument("name", help="the crawl's name")
_NAMES = Argument("names", nargs="*", metavar="NAME", help="crawls")
_WHY = Argument("--reason", metavar="TEXT", help="why, for those who look")
_WAIT = Argument("--wait", action="store_true", help="until no process of it runs any more")
_NICE = Argument("--nice", type=int, metavar="N", help="the less, the earlier; 0 where not given")
_AT_ONCE = Argument(
    "--concurrency", type=int, metavar="N", help="processes at once, 1 where not given; 0: none"
)
_TAG = Argument("--tag", help="for runners with this tag alone")
_NOTE = Argument("--note", metavar="TEXT", help="what people should know of it")
_RESOURCE = Argument(
    "--resource", metavar="NAME", help="crawls with the same one run one at a time, in one process"
)
_TIME_LIMIT = Argument(
    "--time-limit", type=parsing.period, metavar="PERIOD", help="how long a process may run"
)
_FRESH = Argument(
    "--keeps-fresh", action="store_true", default=None, help="it starts when a result falls due"
)
_DEPTH = Argument(
    "--depth",
    type=parsing.depth,
    metavar="N",
    help="pages that are more links deep are kept and not fetched; inf: no limit",
)
# Settings that say which database this command works on, or which crawl; runners know their own.
_OF_THIS_COMMAND = frozenset(
    {
        "ITEMGRAPH_DATABASE_URL",
        "ITEMGRAPH_DATA_DIR",
        "ITEMGRAPH_POSTGRES_BIN",
        "ITEMGRAPH_AUTO_MIGRATE",
        "ITEMGRAPH_PROJECT",
    }
)
_POLL = 0.2  # seconds


@CRAWLS.command(
    "add",
    Argument("spider", help="as `scrapy list` shows it, or site"),
    Argument("name", nargs="?", help="of its own; without it, of the spider and its arguments"),
    Argument(
        "-a",
        dest="arguments",
        metavar="NAME=VALUE",
        type=parsing.spider_argument,
        action="append",
        default=[],
        help="an argument of the spider; may be repeated",
    ),
    Argument("-o", "--output", metavar="FILE", action="append", default=[], help="a feed"),
    Argument(
        "-O",
        "--overwrite-output",
        metavar="FILE",
        action="append",
        default=[],
        help="likewise, begun anew; takes ITEMGRAPH_KEEP_ITEMS",
    ),
    *(_NICE, _AT_ONCE, _TAG, _NOTE, _TIME_LIMIT, _RESOURCE, _FRESH),
    Argument(
        "--accept",
        metavar="REGEX",
        action="append",
        help="take in links alone whose URL it matches, as RE2 writes it; may be repeated",
    ),
    _DEPTH,
    *schedules.RULE,
    Argument("--paused", action="store_true", help="it waits until it is resumed"),
)
def add(call: Call) -> None:
    """Put a crawl into the queue, which a runner takes when it is its turn.

    `-s NAME=VALUE` are settings of its processes. A secret is given as NAME=@env:VARIABLE, and
    stands in the environment of the runner. A crawl that was started by hand with the same spider
    and arguments goes on as this one. With --every, --at or --cron it is started by that schedule
    alone, and not now.
    """
    given = call.given
    rule = schedules.rule_of(given)
    if rule is not None and given.paused:
        raise UsageError("a crawl that waits for its schedule needs no --paused; leave it out")
    arguments = dict(given.arguments)
    spider = spider_class(call.scrapy_settings, given.spider)
    check_arguments(spider, arguments)
    terms = {name: getattr(given, name) for name in _TERMS if getattr(given, name) is not None}
    new = NewCrawl(
        spider=given.spider,
        project=call.project,
        name=given.name,
        arguments=arguments,
        settings=_settings(call, spider),
        ignored=call.settings.run.ignored_arguments,
        is_paused=given.paused,
        rules=None if given.accept is None else Ruleset.accepting(given.accept),
        **terms,
    )
    with call.graph(may_create=True) as graph:
        schedule = None if rule is None else NewSchedule(rule=rule)
        added = graph.queue.add(new, by=call.by, schedule=schedule)
        crawl = graph.queue.get(added.name)
        waits = list(crawl_waits.sentences(graph.queue.explain(added.name)))
    for warning in added.warnings:
        call.note(printing.clean(warning))
    said = f"the crawl {added.name} is in the queue of the project {crawl.project}, {crawl.state}"
    call.write({**crawl_views.plain(crawl), "warnings": added.warnings}, _lines(said, waits))


_TERMS = ("nice", "concurrency", "tag", "note", "time_limit", "resource", "keeps_fresh")


def _settings(call: Call, spider: type[Spider]) -> dict[str, Any]:
    """Return the settings that processes of a new crawl are started with, feeds among them.

    Raises:
        UsageError: they name the crawl, or standard output.
        OperationError: a feed would lie in parts on several hosts.

    """
    given: dict[str, Any] = _options(call)
    depth = call.given.depth
    if depth is not None:
        clashing = sorted({"DEPTH_LIMIT", "ITEMGRAPH_LEAST_DEPTH"} & given.keys())
        if clashing:
            raise UsageError(f"give --depth or -s {clashing[0]}, not both")
        # 0 is no limit to Scrapy, which `crawls set --depth 0` is not.
        given |= {"DEPTH_LIMIT": 0 if depth == math.inf else depth, "ITEMGRAPH_LEAST_DEPTH": True}
    output, anew = call.given.output, call.given.overwrite_output
    if output or anew:
        feeds = feed_process_params_from_cli(call.scrapy_settings, output, overwrite_output=anew)
        if "stdout:" in feeds:
            raise UsageError("standard output of a process is its job's log; name a file")
        given |= {"FEEDS": feeds}
    _check_feeds(call, spider, given)
    return given


def _check_feeds(call: Call, spider: type[Spider] | None, given: Mapping[str, Any]) -> None:
    """Refuse feeds that would lie in parts on several hosts; None: the spider is not known."""
    settings = call.scrapy_settings.copy()
    if spider is not None:
        spider.update_settings(settings)
    queued.check_feeds(given, **feeds_of(settings))


def _check_changed_feeds(call: Call, crawl: ManagedCrawl, given: Mapping[str, Any]) -> None:
    if crawl.project != call.project:
        queued.check_feeds(given)
        return
    spider = None
    with suppress(ItemGraphError):
        spider = spider_class(call.scrapy_settings, crawl.spider)
    _check_feeds(call, spider, given)


@CRAWLS.command(
    "set",
    _NAME,
    *(_NICE, _AT_ONCE, _TAG, Argument("--no-tag", action="store_true", help="for any runner")),
    *(_NOTE, _TIME_LIMIT),
    Argument("--no-time-limit", action="store_true", help="a process may run as long as it takes"),
    *(_RESOURCE, Argument("--no-resource", action="store_true", help="it needs none"), _FRESH),
    Argument("--no-keeps-fresh", action="store_true", help="it does not start by itself"),
    _DEPTH,
)
def set_terms(call: Call) -> None:
    """Change the terms of a crawl while it runs or waits.

    `-s NAME=VALUE` are settings of processes that start from now on, beside those that it has. With
    --depth alone the crawl need not be in the queue.
    """
    name, changes = call.given.name, _changes(call)
    depth = call.given.depth
    with call.graph() as graph:
        if depth is not None:
            limit = None if depth == math.inf else depth
            next_starts.say_cost(call, graph.of(name).costs.of_depth(limit))
            graph.of(name).depths.set_limit(limit, by=call.by)
            if not changes and not _options(call):
                call.write({"name": name, "depth": limit}, [depths.said(name, limit)])
                return
        if options := _options(call):
            crawl = graph.queue.get(name)
            changes["start_settings"] = {**crawl.settings, **options}
            _check_changed_feeds(call, crawl, changes["start_settings"])
        if not changes:
            raise UsageError("say what is to be changed, such as --nice -5")
        crawl = graph.queue.set(name, by=call.by, **changes)
        waits = list(crawl_waits.sentences(graph.queue.explain(name)))
    what = ", ".join(one.removeprefix("start_").replace("_", " ") for one in changes)
    call.write(crawl_views.plain(crawl), _lines(f"the crawl {name} has {what} as you say", waits))


def _options(call: Call) -> dict[str, str]:
    """Return the settings of `-s` that are a crawl's, and not this command's own."""
    if "ITEMGRAPH_CRAWL" in call.options:
        raise UsageError("a crawl has its name from crawls add SPIDER NAME, and keeps it")
    return {name: one for name, one in call.options.items() if name not in _OF_THIS_COMMAND}


def _changes(call: Call) -> dict[str, Any]:
    """Return the terms that are given; None, or False, for those that are taken away."""
    given = call.given
    changes = {name: getattr(given, name) for name in _TERMS if getattr(given, name) is not None}
    for name in ("tag", "time_limit", "resource", "keeps_fresh"):
        if getattr(given, f"no_{name}"):
            if name in changes:
                option = name.replace("_", "-")
                raise UsageError(f"give one of --{option} and --no-{option}")
            changes[name] = False if name == "keeps_fresh" else None
    return changes


@CRAWLS.command("pause", _NAMES, _WHY, _WAIT)
def pause(call: Call) -> None:
    """Have crawls rest: nothing more is requested, and their processes end.

    What is under way comes to its end and is committed. With --wait the command ends when no
    process of theirs runs any more.
    """
    _steer(call, Change.PAUSE, waits=call.given.wait)


@CRAWLS.command("drain", _NAMES, _WHY)
def drain(call: Call) -> None:
    """Pause crawls, unless they are, and wait until no process of theirs runs any more."""
    _steer(call, Change.PAUSE, waits=True, may_be=State.PAUSED)


@CRAWLS.command("resume", _NAMES)
def resume(call: Call) -> None:
    """Have paused crawls go on, at the places in the queue that they had."""
    _steer(call, Change.RESUME)


@CRAWLS.command("abort", _NAMES, _WHY, _WAIT)
def abort(call: Call) -> None:
    """End crawls where they are: nothing more is requested; what they have stays.

    Jobs that have not begun are cancelled. `crawls revive` has them go on, `crawls delete` deletes
    what they have.
    """
    _steer(call, Change.ABORT, waits=call.given.wait)


@CRAWLS.command(
    "revive",
    _NAMES,
    Argument("--keep-place", action="store_true", help="in the queue, and not the last one"),
)
def revive(call: Call) -> None:
    """Have crawls that were aborted go on, or those that are finished begin another run."""
    _steer(call, Change.REVIVE, keeps_place=call.given.keep_place)


def _steer(
    call: Call,
    change: Change,
    *,
    waits: bool = False,
    keeps_place: bool = False,
    may_be: State | None = None,
) -> None:
    """Change the states of crawls, in a transaction for each; one that `may_be` so stays so."""
    names = list(dict.fromkeys(call.given.names))
    if not names:
        raise UsageError("say which crawls, by name; scrapy itemgraph crawls list shows them")
    reason = getattr(call.given, "reason", None)
    document: list[dict[str, Any]] = []
    with call.graph() as graph:
        for name in names:
            state = graph.queue.get(name).state
            if state is not may_be:
                state = graph.queue.change(
                    name, change, by=call.by, reason=reason, keeps_place=keeps_place
                )
            document.append({"name": name, "state": str(state)})
            if not call.as_json:
                call.write(None, [printing.clean(f"the crawl {name} is {state}")])
        for name in names if waits else ():
            _wait(call, graph, name)
    if call.as_json:
        call.write(document, [])


def _wait(call: Call, graph: ItemGraph, name: str) -> None:
    """Wait until no process runs a crawl any more; say of which there are still some."""
    said = None
    while processes := graph.queue.processes(name):
        if len(processes) != said:
            said = len(processes)
            several = "1 process" if said == 1 else f"{said:,} processes"
            call.note(
                printing.clean(f"{several} of {name} still at work; Ctrl-C ends the wait alone")
            )
        time.sleep(_POLL)


@CRAWLS.command(
    "lock",
    _NAME,
    Argument("place", metavar="RUNNER[:PLACE]", help="a runner's name, and the place's number"),
    Argument("--until-finished", action="store_true", help="and no longer"),
)
def lock(call: Call) -> None:
    """Keep a place of a runner for a crawl, whatever its turn is."""
    name, (runner, place) = call.given.name, _place(call.given.place)
    with call.graph() as graph:
        number = graph.queue.lock(
            name, runner, place, by=call.by, until_finished=call.given.until_finished
        )
    until = " until it is finished" if call.given.until_finished else ""
    said = f"place {number} of the runner {runner} is kept for the crawl {name}{until}"
    document = {"name": name, "runner": runner, "place": number}
    call.write(document, [printing.clean(said)])


def _place(text: str) -> tuple[str, int | None]:
    runner, colon, place = text.rpartition(":")
    if not colon:
        return text, None
    if not (runner and place.isascii() and place.isdecimal()):
        raise UsageError(f"{text!r} is not RUNNER or RUNNER:PLACE, such as {runner or 'box'}:1")
    return runner, int(place)


@CRAWLS.command("unlock", _NAME)
def unlock(call: Call) -> None:
    """Let the places that are kept for a crawl be had by others."""
    name = call.given.name
    with call.graph() as graph:
        places = graph.queue.unlock(name, by=call.by)
    lines = [f"place {place} of the runner {runner} is free for others" for runner, place in places]
    document = [{"runner": runner, "place": place} for runner, place in places]
    call.write(document, map(printing.clean, lines or [f"no place was kept for {name}"]))


def _lines(said: str, waits: Sequence[str]) -> Iterator[str]:
    yield from printing.sentence(said)
    for one in waits:
        yield from printing.sentence(one, "  ")
