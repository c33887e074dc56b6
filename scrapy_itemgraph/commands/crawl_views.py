"""Crawls of the queue as people see them: one, why it waits, where it runs, what happened."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.commands import depths, parsing, printing
from scrapy_itemgraph.commands.command import Argument
from scrapy_itemgraph.commands.crawls import CRAWLS
from scrapy_itemgraph.model import crawl_arguments, crawl_waits, crawl_words, documents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.model.crawl_states import CrawlEvent, ManagedCrawl
    from scrapy_itemgraph.model.rules import StoredRuleset
    from scrapy_itemgraph.store.admin.queue_reports import RunningProcess

_NAME = Argument("name", help="the crawl's name")


@CRAWLS.command(
    "show",
    _NAME,
    Argument("--limit", metavar="N", type=parsing.count, default=5, help="events at most (5)"),
)
def show(call: Call) -> None:
    """Show a crawl of the queue: its terms, its processes, and what happened to it last."""
    name = call.given.name
    with call.graph() as graph:
        crawl, processes = graph.queue.get(name), graph.queue.processes(name)
        events = graph.queue.history(name, limit=call.given.limit)
        waits = list(crawl_waits.sentences(graph.queue.explain(name)))
        depth = documents.of(graph.of(name).depths.standing())
        rules = graph.of(name).rules.get()
    document = {
        **plain(crawl),
        "ruleset": rules.number,
        "depth": depth,
        "explained": waits,
        "processes": [one._asdict() for one in processes],
        "history": [asdict(one) for one in events],
    }
    call.write(document, _shown(crawl, depth, waits, processes, events, rules=rules))


def _shown(
    crawl: ManagedCrawl,
    depth: dict[str, Any] | None,
    waits: Sequence[str],
    processes: Sequence[RunningProcess],
    events: Sequence[CrawlEvent],
    *,
    rules: StoredRuleset,
) -> Iterator[str]:
    options = [f"-s {name}={crawl_words.said(value)}" for name, value in crawl.settings.items()]
    yield from printing.fields(
        [
            ("crawl", crawl.name),
            ("state", state(crawl)),
            ("place", crawl.place),
            ("spider", crawl.spider),
            ("project", crawl.project),
            ("arguments", crawl_arguments.as_options(crawl.arguments)),
            ("settings", " ".join(options)),
            ("nice", crawl.nice),
            ("processes", f"{crawl.jobs} of {crawl.concurrency}"),
            ("tag", crawl.tag),
            ("resource", crawl.resource),
            ("time limit", "" if crawl.time_limit is None else printing.period(crawl.time_limit)),
            ("keeps fresh", "yes" if crawl.keeps_fresh else ""),
            ("starts not before", printing.moment(crawl.next_at)),
            ("abnormal ends", crawl.crashes or ""),
            ("run", crawl.run),
            ("added by", crawl.created_by),
            ("queued at", printing.moment(crawl.queued_at)),
            ("note", crawl.note),
            ("ruleset", _ruleset(rules)),
            *depths.fields(depth),
        ]
    )
    yield ""
    for one in waits:
        yield from printing.sentence(one)
    if processes:
        yield ""
        yield from _where(processes)
    yield ""
    yield from _events(events)


def _ruleset(found: StoredRuleset) -> str:
    count = len(found.ruleset.rules)
    return f"{found.number}, of {count} rule{'s' * (count != 1)}" if found.number else ""


def state(crawl: ManagedCrawl) -> str:
    """Return a crawl's state as a person reads it: with what drains, and why it is so."""
    drains = ", drains" if crawl.is_draining else ""
    return f"{crawl.state}{drains}" + (f": {crawl.state_reason}" if crawl.state_reason else "")


def plain(crawl: ManagedCrawl) -> dict[str, Any]:
    """Return a crawl as JSON has it, secrets left out."""
    return {**asdict(crawl), "arguments": crawl_arguments.without_secrets(crawl.arguments)}


@CRAWLS.command("explain", _NAME)
def explain(call: Call) -> None:
    """Say why a crawl runs or waits: its state, its turn, runners that could take it."""
    with call.graph() as graph:
        waits = graph.queue.explain(call.given.name)
    said = list(crawl_waits.sentences(waits))
    refusals = {one.name: crawl_waits.refusal(one, waits.crawl.tag) for one in waits.runners}
    document = {
        **plain(waits.crawl),
        "sentences": said,
        "runners": [{**asdict(one), "refusal": refusals[one.name]} for one in waits.runners],
    }
    call.write(document, (line for one in said for line in printing.sentence(one)))


@CRAWLS.command("whereis", _NAME)
def whereis(call: Call) -> None:
    """Say where the processes of a crawl run: runner, place, host, process, since when."""
    name = call.given.name
    with call.graph() as graph:
        processes = graph.queue.processes(name)
    none = f"no process runs it; scrapy itemgraph crawls explain {name} says why"
    shown = _where(processes) if processes else [printing.clean(none)]
    call.write([one._asdict() for one in processes], shown)


def _where(processes: Sequence[RunningProcess]) -> Iterator[str]:
    return printing.table(
        processes,
        {
            "JOB": "job",
            "STARTED BY": lambda one: one.origin if one.runner is None else f"runner {one.runner}",
            "PLACE": "place",
            "HOST": "host",
            "PROCESS": lambda one: str(one.process_id or ""),
            "SINCE": "started_at",
            "ENDS": "stop_wanted",
        },
    )


@CRAWLS.command(
    "history",
    _NAME,
    Argument("--limit", metavar="N", type=parsing.count, default=100, help="events at most (100)"),
    Argument("--before", metavar="EVENT", type=parsing.count, help="those before this one"),
)
def history(call: Call) -> None:
    """List what happened to a crawl, the newest first: when, by whom, and why."""
    given = call.given
    with call.graph() as graph:
        events = graph.queue.history(given.name, before=given.before, limit=given.limit)
    shown = printing.first(events, _events(events), given.limit, "nothing")
    call.write([asdict(one) for one in events], shown)


def _events(events: Sequence[CrawlEvent]) -> Iterator[str]:
    columns: printing.Columns = {
        "EVENT": "id",
        "AT": "at",
        "BY": "by",
        "WHAT": "what",
        "DETAILS": lambda one: crawl_words.details(one.detail),
    }
    return printing.table(events, columns, in_lines=True)
