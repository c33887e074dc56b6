"""Why a crawl of the queue runs, or waits: sentences, out of what decides it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.crawl_states import Event, State
from scrapy_itemgraph.tools.wording import format_period

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from scrapy_itemgraph.model.crawl_states import CrawlEvent, ManagedCrawl


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerView:
    """A runner that lives, as one crawl sees it.

    `free` places may take the crawl at once, `locked` ones are kept for others; `low` is why the
    runner starts nothing.
    """

    name: str
    tags: Sequence[str]
    only_tagged: bool
    places: int
    free: int
    locked: int
    low: str | None
    drains: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What decides whether a crawl runs: itself, and the living runners of its project.

    `into_state` is what brought it into its state, `resource_user` the crawl that has its resource,
    `schedule` the number of the schedule that is due next, at `due_at`. `left` names processes
    whose runner is gone, `slots` says which websites of the crawl a worker of another crawl has.
    """

    crawl: ManagedCrawl
    now: datetime
    into_state: CrawlEvent | None
    processes: int
    runners: Sequence[RunnerView]
    resource_user: str | None
    schedule: int | None = None
    due_at: datetime | None = None
    left: Sequence[str] = ()
    slots: Sequence[str] = ()


def refusal(runner: RunnerView, tag: str | None) -> str | None:
    """Return why a runner would not take a crawl with this tag now; None: it would."""
    if tag is not None and tag not in runner.tags:
        return f"it does not have the tag {tag}"
    if tag is None and runner.only_tagged:
        return "it takes only crawls with one of its tags"
    if runner.drains:
        return "it drains"
    if runner.low is not None:
        return runner.low
    if not runner.free:
        locked = f", {runner.locked} of them locked to other crawls" if runner.locked else ""
        return f"its places are taken ({runner.places}{locked})"
    return None


def sentences(given: Waits) -> Iterator[str]:
    """Yield why a crawl runs or waits, the most telling first."""
    one = given.crawl
    if given.processes:
        several = "1 process runs" if given.processes == 1 else f"{given.processes} processes run"
        yield f"{several} it, of {one.concurrency} at most"
    for process in given.left:
        yield (
            f"the runner of {process} is gone: the next runner of that host ends it, or kill it "
            "there"
        )
    yield from given.slots
    if one.state is not State.ACTIVE:
        yield from _not_active(given)
        return
    held_up = list(_own_reasons(given))
    yield from held_up
    if held_up or given.processes >= one.concurrency:
        return
    yield f"it waits; its place in the queue of the project {one.project} is {one.place}"
    yield from _of_runners(given)


def why(given: Waits) -> str | None:
    """Return in a few words why a crawl waits, or is not active; None: it runs, or is over."""
    one = given.crawl
    if one.state is not State.ACTIVE:
        drains = "what is under way comes to its end" if given.processes else None
        return one.state_reason or drains
    if given.processes >= max(one.concurrency, 1):
        return None
    held_up = next(_own_reasons(given), None)
    if held_up is not None:
        return held_up
    return None if given.processes else _of_all_runners(given)


def _of_all_runners(given: Waits) -> str:
    """Return in a few words what keeps all living runners from a crawl."""
    one = given.crawl
    refusals = {runner.name: refusal(runner, one.tag) for runner in given.runners}
    takers = [name for name, why_not in refusals.items() if why_not is None]
    if takers:
        return f"it is about to start: runner {takers[0]} can take it"
    if not refusals:
        return f"no runner of the project {one.project} lives"
    if one.tag is not None and not any(one.tag in runner.tags for runner in given.runners):
        return f"no living runner has the tag {one.tag}"
    fitting = [
        runner
        for runner in given.runners
        if (one.tag in runner.tags if one.tag is not None else not runner.only_tagged)
    ]
    if len(fitting) > 1 and all(not (each.drains or each.low) for each in fitting):
        return f"all places of {len(fitting)} runners are taken"
    first, *others = fitting or given.runners
    more = f"; {len(others)} more cannot take it either" if others else ""
    return f"runner {first.name}: {refusals[first.name]}{more}"


def _not_active(given: Waits) -> Iterator[str]:
    one, event = given.crawl, given.into_state
    if given.due_at is not None:
        due = f"its schedule {given.schedule} is due next at {given.due_at:%Y-%m-%d %H:%M:%S}Z"
        held = "" if one.state is State.FINISHED else f", but starts nothing that is {one.state}"
        yield due + held
        if event is not None and event.what == Event.ADDED and one.state is State.FINISHED:
            revive = f"scrapy itemgraph crawls revive {shlex.quote(one.name)}"
            yield f"it was not started since it was added, and waits for that; at once: {revive}"
            return
    by = "" if event is None else f" by {event.by}, {event.at:%Y-%m-%d %H:%M:%S}Z"
    yield f"it is {one.state}{by}" + (f": {one.state_reason}" if one.state_reason else "")
    if given.processes:
        yield "it drains: what is under way comes to its end"
    verb = "resume" if one.state is State.PAUSED else "revive"
    yield f"to have it go on: scrapy itemgraph crawls {verb} {shlex.quote(one.name)}"


def _own_reasons(given: Waits) -> Iterator[str]:
    """Yield what of the crawl itself keeps it from being started."""
    one = given.crawl
    if one.concurrency == 0:
        yield (
            "it may have 0 processes; scrapy itemgraph crawls set "
            f"{shlex.quote(one.name)} --concurrency 1"
        )
    if one.next_at is not None and one.next_at > given.now:
        left = format_period((one.next_at - given.now).total_seconds())
        why = f", after {one.crashes} abnormal ends in a row" if one.crashes else ""
        yield f"it does not start before {one.next_at:%Y-%m-%d %H:%M:%S}Z, in {left}{why}"
    if given.resource_user is not None:
        yield f"its resource {one.resource} is used by the crawl {given.resource_user}"


def _of_runners(given: Waits) -> Iterator[str]:
    one = given.crawl
    if not given.runners:
        tagged = f" --tag {shlex.quote(one.tag)}" if one.tag else ""
        yield (
            f"no runner of the project {one.project} lives; start one in the project's folder: "
            f"scrapy itemgraph work{tagged}"
        )
    for runner in given.runners:
        why_not = refusal(runner, one.tag)
        yield f"runner {runner.name}: " + (
            why_not or f"it can take it ({runner.free} of {runner.places} places free)"
        )
    if given.runners and one.tag and not any(one.tag in runner.tags for runner in given.runners):
        yield (
            f"no living runner has the tag {one.tag}: scrapy itemgraph work --tag "
            f"{shlex.quote(one.tag)}"
        )
