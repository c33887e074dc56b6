"""The enqueuer and the redirects, alone: what becomes work, and where a request may go on."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy import Request, signals
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from support.parts import URL, Parts, running, turns

from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.work import Applied, Note, Outcome, RedirectAnswer
from scrapy_itemgraph.tools import async_tools
from scrapy_itemgraph.worker.executions.execution import LegState
from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer
from scrapy_itemgraph.worker.spider.link_depths import LinkDepths
from scrapy_itemgraph.worker.spider.redirects import Redirects

OTHER = "http://a.example/other"


def parts_with(**settings: Any) -> Parts:
    """Return parts with redirects and an enqueuer that carries one request at most."""
    parts = Parts(**settings)
    parts.redirects = Redirects(
        parts.graph,
        parts.active,
        parts.queue,
        spider=parts.spider,
        operations=parts.operations,
        duplicates=parts.duplicates,
        sessions=parts.sessions,
    )
    parts.enqueuer = Enqueuer(
        parts.graph,
        parts.active,
        parts.redirects,
        spider=parts.spider,
        operations=parts.operations,
        duplicates=parts.duplicates,
        page_rules=parts.page_rules,
        stats=parts.crawler.stats,
        depths=LinkDepths(parts.crawler),
        most_held=1,
        most_unstarted=16,
    )
    return parts


def yielded(parts: Parts, leg: Any, request: Request) -> bool:
    """Have a request yielded by the callback of a leg, as work of its own."""
    child = leg.open_child(is_discovery=True)
    child.discovery = parts.enqueuer.discover(request, leg.execution)
    return parts.enqueuer.enqueue(request, child)


def test_a_request_becomes_an_operation_of_the_execution_that_yielded_it_once():
    """It is stored with its parent, under its fingerprint; a second one is a duplicate."""

    async def run() -> tuple[list[bool], list[type]]:
        parts = parts_with()
        leg = parts.claimed().open_leg()
        taken = [yielded(parts, leg, Request(URL)) for _ in range(2)]
        return taken, [type(one) for one in leg.execution.operations]

    assert asyncio.run(run()) == ([True, False], [EnqueueRequest])


def test_what_a_commit_made_known_is_refused_until_names_are_freed():
    """A name that was committed is a duplicate for all executions, unless names were freed."""

    async def run() -> list[bool]:
        parts = parts_with()
        first = parts.claimed(1)
        leg = first.open_leg()
        yielded(parts, leg, Request(URL))
        (operation,) = first.operations
        note = Note(operation=EnqueueRequest.verb, label="new", text=operation.id, shown=URL)
        applied = Applied(outcome=Outcome.OK, notes=(note,))
        await parts.enqueuer.applied(first, applied, has_freed=False)
        taken = [yielded(parts, parts.claimed(2).open_leg(), Request(URL))]
        parts.graph.names_freed += 1
        return [*taken, yielded(parts, parts.claimed(3).open_leg(), Request(URL))]

    assert asyncio.run(run()) == [False, True]


def test_the_loop_turns_while_a_great_many_notes_are_looked_at(monkeypatch):
    """Also where none of them is of a request, as after a task that created items."""
    monkeypatch.setattr(async_tools, "LONGEST_TURN", 0.0)
    seen = []

    async def beat() -> None:
        while True:
            seen.append(1)
            await asyncio.sleep(0)

    async def run() -> None:
        parts = parts_with()
        notes = (Note(operation="create_item", label="new", text="A", shown="A"),) * 50
        with running(beat()):
            await parts.enqueuer.applied(
                parts.claimed(), Applied(outcome=Outcome.OK, notes=notes), has_freed=False
            )

    asyncio.run(run())
    assert len(seen) >= 50


def test_a_request_goes_to_the_engine_only_where_somebody_hears_of_it():
    """It is taken, or counted as a duplicate, at once, unless a handler of the engine's is told."""

    async def run() -> tuple[list[bool], list[int], list[str]]:
        parts = parts_with()
        execution = parts.claimed()
        parts.duplicates.listen()

        def is_settled(url: str) -> bool:
            request = Request(url)
            discovery = parts.enqueuer.discover(request, execution)
            return parts.enqueuer.is_settled(request, discovery, execution)

        settled = [is_settled(URL), is_settled(URL)]
        settled.append(parts.enqueuer.is_settled(Request(URL), None, execution))

        def note_drop(request: Request) -> None: ...

        parts.crawler.signals.connect(note_drop, signals.request_dropped)
        parts.duplicates.listen()
        settled += [is_settled(URL), is_settled(OTHER)]
        counts = [parts.stat(f"{name}") for name in ("scheduler/enqueued", "dupefilter/filtered")]
        return settled, counts, [one.data["url"] for one in execution.operations]

    assert asyncio.run(run()) == ([True, True, False, False, False], [1, 1], [URL])


def test_the_offsite_filter_is_asked_of_what_does_not_go_to_the_engine():
    """A request that Scrapy's filter does not let go is logged and counted by it, and not taken."""

    async def run() -> tuple[bool, int, list[Any]]:
        parts = parts_with()
        parts.spider.allowed_domains = ["elsewhere.example"]
        offsite = OffsiteMiddleware.from_crawler(parts.crawler)
        offsite.spider_opened(parts.spider)
        parts.duplicates.listen()
        execution = parts.claimed()
        request = Request(URL)
        discovery = parts.enqueuer.discover(request, execution)
        is_settled = parts.enqueuer.is_settled(request, discovery, execution)
        return is_settled, parts.stat("offsite/filtered"), execution.operations

    assert asyncio.run(run()) == (True, 1, [])


def test_what_others_stored_before_is_dropped_after_the_commit():
    """The commit finds the name known: the request is taken back, and its signal sent."""

    async def run() -> tuple[list[str], int]:
        parts = parts_with()
        dropped: list[str] = []

        def note_drop(request: Request) -> None:
            dropped.append(request.url)

        parts.crawler.signals.connect(note_drop, signals.request_dropped)
        execution = parts.claimed()
        yielded(parts, execution.open_leg(), Request(URL))
        (operation,) = execution.operations
        note = Note(operation=EnqueueRequest.verb, label="known", text=operation.id, shown=URL)
        applied = Applied(outcome=Outcome.OK, notes=(note,))
        await parts.enqueuer.applied(execution, applied, has_freed=False)
        return dropped, parts.stat("scheduler/enqueued")

    assert asyncio.run(run()) == ([URL], -1)


def test_what_others_stored_before_is_only_counted_where_nobody_hears_of_it():
    """After the first, which is logged, a duplicate's request is not made again to tell of it."""

    async def run() -> list[bool]:
        parts = parts_with()
        told = []
        for number in (1, 2):
            execution = parts.claimed(number)
            yielded(parts, execution.open_leg(), Request(f"{URL}/{number}"))
            (operation,) = execution.operations
            parts.duplicates.listen()
            told.append(parts.duplicates.are_only_counted)
            note = Note(operation=EnqueueRequest.verb, label="known", text=operation.id, shown=URL)
            applied = Applied(outcome=Outcome.OK, notes=(note,))
            await parts.enqueuer.applied(execution, applied, has_freed=False)
        return [*told, parts.stat("dupefilter/filtered"), parts.stat("scheduler/enqueued")]

    assert asyncio.run(run()) == [False, True, 2, -2]


def test_a_request_that_cannot_be_stored_is_carried_and_one_too_many_fails_its_execution():
    """With a lambda for its callback it stays in memory, as a part of its execution."""

    async def run() -> tuple[list[bool], int, Outcome]:
        parts = parts_with()
        parts.graph.answers = [RedirectAnswer.ON]
        leg = parts.claimed().open_leg()
        with running(parts.redirects.run()):
            first = yielded(parts, leg, Request(URL, callback=lambda _: None))
            await turns()
            waiting = len(parts.queue)
            second = yielded(parts, leg, Request(OTHER, callback=lambda _: None))
        return [first, second], waiting, leg.execution.outcome

    assert asyncio.run(run()) == ([True, False], 1, Outcome.FAILED)


def followed(answer: RedirectAnswer) -> tuple[int, LegState, Outcome, Any]:
    """Redirect a claim's request, and return what became of it."""

    async def run() -> tuple[int, LegState, Outcome, Any]:
        parts = parts_with()
        parts.graph.answers = [answer]
        leg = parts.claimed().open_leg(is_own=True)
        leg.request = Request(URL)
        with running(parts.redirects.run()):
            assert parts.redirects.follow(Request(OTHER), leg)
            await turns()
        return len(parts.queue), leg.state, leg.execution.outcome, parts.graph.redirected[0]

    return asyncio.run(run())


def test_a_redirect_goes_on_once_the_graph_has_noted_it():
    """It is queued only after the transaction that notes where the claim went."""
    count, state, outcome, noted = followed(RedirectAnswer.ON)

    assert (count, state, outcome) == (1, LegState.QUEUED, Outcome.OK)
    assert noted.name.startswith("REQ:")
    assert noted.request is not None


def test_a_redirect_to_what_is_known_ends_there():
    """Where another item has the page its leg is closed, and the page is known."""
    assert followed(RedirectAnswer.TAKEN)[:3] == (0, LegState.CLOSED, Outcome.KNOWN)


def test_a_redirect_of_a_lost_claim_gives_its_work_up():
    """Another worker has the claim by now, so this one's execution is released."""
    assert followed(RedirectAnswer.LOST)[:3] == (0, LegState.CLOSED, Outcome.RELEASED)


def test_priorities_beyond_what_a_column_holds_are_clamped_and_said_once(caplog):
    """Milliseconds as priority: such requests lose their order, and smaller ones keep theirs."""
    given = [1_764_000_000_000, 1_764_000_000_001, -(2**40), 7, -(2**31) + 1]

    async def run() -> list[int | None]:
        parts = parts_with()
        requests = [Request(f"{URL}/{one}", priority=one) for one in given]
        found = [parts.enqueuer.discover(one, parts.claimed()) for one in requests]
        return [one.operation.nice for one in found]

    limit = 2**31 - 1
    assert asyncio.run(run()) == [-limit, -limit, limit, -7, limit]
    assert caplog.text.count("has the priority") == 1
