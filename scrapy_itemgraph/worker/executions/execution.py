"""Executions: one claim's life in a process, and the legs that keep it open. No I/O here."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import TooManyOperationsError
from scrapy_itemgraph.model.operations import (
    AllowFailure,
    AttachBlob,
    Changeset,
    CreateItem,
    Operation,
)
from scrapy_itemgraph.model.tallies import NO_TASK
from scrapy_itemgraph.model.work import MOST_TRIES, ErrorRecord, Outcome
from scrapy_itemgraph.tools.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.model.feed_exports import Scraped
    from scrapy_itemgraph.model.page_records import PageRecord
    from scrapy_itemgraph.model.rule_matching import CompiledRules
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.validators import Validators
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.throttle.limiter import Lane
    from scrapy_itemgraph.tools.async_tools import Emptied


class LegState(Enum):
    """Where a leg's request is."""

    OFFERED = auto()  # yielded or built, not yet in our queues
    QUEUED = auto()
    RUNNING = auto()  # the engine has it
    CLOSED = auto()


@dataclass(slots=True, eq=False, repr=False)
class Leg:
    """One request of an execution, through its redirects and retries, to the end of its scrape."""

    execution: Execution
    is_own: bool
    parent: Leg | None = None
    is_retryable: bool = field(init=False)
    is_discovery: bool = False  # yielded to become work of its own
    discovery: Any = None  # what is known of it then
    state: LegState = LegState.OFFERED
    children: set[Leg] = field(default_factory=set)  # those that are open
    request: Any = None  # what the engine has
    failure: tuple[Outcome, ErrorRecord] | None = None  # what its errback was told of
    making: Any = None  # the task that awaits its `request=`
    fetch: Any = None  # the task that fetches it
    scrapes: set[Any] = field(default_factory=set)
    lane: Lane = ()  # the limits that its request keeps to
    occupies: Lane = ()  # those that count it
    has_started: bool = False  # its request was let start
    login: int | None = None  # with which login it went out first
    chain: tuple[str | bytes, ...] = ()  # names or fingerprints that its redirects came past

    def __post_init__(self) -> None:
        self.is_retryable = self.is_own and self.execution.claim is not None

    def __repr__(self) -> str:
        return f"<leg of {self.execution.where}, {self.state.name.lower()}>"

    @property
    def is_open(self) -> bool:
        """Whether this leg still keeps its execution open."""
        return self.state is not LegState.CLOSED

    @property
    def is_startable(self) -> bool:
        """Whether its request is still of use: its work was not given back meanwhile."""
        return not self.execution.is_doomed

    @property
    def is_returnable(self) -> bool:
        """Whether its work can be given back: it is a claim's."""
        return self.execution.claim is not None

    @property
    def has_validators(self) -> bool:
        """Whether it is a claim's own request, and is to have the validators of its page."""
        task = self.execution.task
        return (
            self.is_own
            and task is not None
            and task.revalidate
            and (self.execution.known_validators is not None)
        )

    @property
    def is_without_response(self) -> bool:
        """Whether its callback gets None: it is that of a task that downloads nothing."""
        task = self.execution.task
        return self.is_own and task is not None and not task.download

    def handed_out(self, request: Any) -> None:
        """Take note that the engine gets its request, which occupies the limits of its lane."""
        self.state = LegState.RUNNING
        self.lets_go()
        self.request = request
        request_legs.put(request, self)
        self.fetch = None
        self.execution.handed_out(self)
        self.occupies = self.lane
        self.has_started = False
        for limiter in self.lane:
            limiter.occupied += 1
            limiter.ahead += 1

    def started(self) -> None:
        """Take note that its request was let start."""
        if not self.has_started:
            self.has_started = True
            for limiter in self.occupies:
                limiter.ahead -= 1

    def fetched(self) -> None:
        """Free what its request occupied, which is fetched or never will be; once."""
        self.execution.running.discard(self)
        if not self.occupies:  # its redirect or retry may be queued by now
            return
        self.started()
        occupied, self.occupies = self.occupies, ()
        for limiter in occupied:
            limiter.occupied -= 1

    def give_back(self, lane: Lane) -> None:
        """Give back its work, until what blocks a request of it that keeps to `lane` is over.

        Where only a later request of it is blocked, what went before would be done again at once.
        """
        execution, claim = self.execution, self.execution.claim
        assert claim is not None
        now = time.monotonic()
        seconds = max((one.blocked_until - now for one in lane), default=0.0)
        slots = [one.name for one in lane if one.is_slot]
        if execution.is_of_task and claim.slot not in slots and 0 < seconds < math.inf:
            what = f"the slot {', '.join(slots)} is blocked"
            error = ErrorRecord(type="blocked", message=what)
            execution.retry(error, timedelta(seconds=seconds))
        else:
            execution.release()

    def open_child(self, *, is_discovery: bool = False) -> Leg:
        """Open the leg of a request that this one's callback yielded."""
        child = self.execution.open_leg(is_discovery=is_discovery, parent=self)
        self.children.add(child)
        return child

    def close(self) -> None:
        """End this leg, and with it the children that never reached our queues."""
        if self.state is LegState.CLOSED:
            return
        self.state = LegState.CLOSED
        self.lets_go()
        if self.making is not None:
            self.making.cancel()
        if self.scrapes:  # so the fetch is over; both tasks' contexts lead back to here
            self.scrapes.clear()
            self.fetch = None
        if self.parent is not None:
            self.parent.children.discard(self)
        children, self.children = self.children, set()
        for child in children:
            if child.state is LegState.OFFERED:
                child.close()
        self.fetched()
        self.execution.leg_closed(self)

    def lets_go(self) -> None:
        """Leave its request to whoever yields it next."""
        if self.request is not None and request_legs.get(self.request) is self:
            request_legs.pop(self.request)


@dataclass(slots=True, eq=False, repr=False)
class Execution:
    """What happens from a claim to its commit; without a claim, what one request leads to.

    `running` has the legs whose requests the engine has, of all executions.
    """

    where: str
    on_end: Callable[[Execution], None]
    claim: Claim | None = None
    task: Task | None = None
    most: int = sys.maxsize
    running: set[Leg] = field(default_factory=set)
    item: Any = None
    operations: list[Operation] = field(default_factory=list)
    scraped: list[Scraped] = field(default_factory=list)  # those that are kept
    items_scraped: int = 0
    error: ErrorRecord | None = None
    outcome: Outcome = Outcome.OK
    delay: timedelta | None = None
    attempts_left: int | None = None  # as its callback raised TryAgain
    led_to: str | None = None  # the name of a known page, where a redirect led there
    code: str = ""  # that its result is made by, where its task keeps validators
    is_conditional: bool = False  # its request asks for the page only if that has changed
    validators: Validators | None = None  # of its response, or as they were if it is unchanged
    allow_failure: bool = field(init=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_login: bool = False
    closes_spider: bool = False  # its page is done, though its requests may never be asked
    is_in_flight: bool = False  # the database knows that the engine may begin it
    seen: set[bytes] = field(default_factory=set)
    limits: tuple[int, ...] = ()  # those of its task, by number
    copies: Counter[str] = field(default_factory=Counter)  # of requests that are not filtered
    discovered: dict[str, Any] = field(default_factory=dict)  # requests that become work, by name
    given: dict[int, Any] = field(default_factory=dict)  # values of its requests, by their id
    pattern: Any = None  # how requests are stored that are like the last one
    seconds: float = 0.0  # from when the engine got its first request, to its end
    legs: set[Leg] = field(default_factory=set)
    moves: tuple[Operation, ...] = ()  # what gives its item another callback, once it is done
    attached: list[AttachBlob] = field(default_factory=list)  # those of the operations
    rules: CompiledRules | None = None  # that all of it keeps to
    links_refused: int = 0  # by these
    long_links: int = 0  # that Scrapy left out, see URLLENGTH_LIMIT
    agents: tuple[bytes | None, bytes] | None = None  # its request's user agent, and the rules'
    page: PageRecord | None = None  # what is told of its page, where that is kept
    links: set[str] | None = None  # keys of known names that its page links to; None: not tracked
    roots: set[str] = field(default_factory=set)  # keys of names whose depth begins anew
    _outputs: int = 0
    _began: float | None = None

    def __post_init__(self) -> None:
        self.allow_failure = self.claim is None or (
            self.task is not None and self.task.allow_failure
        )
        keeps_links = self.task is not None and self.task.is_callback and self.task.keeps_validators
        if self.claim is not None and (self.claim.depth is not None or keeps_links):
            self.links = set()

    @property
    def tracks_depth(self) -> bool:
        """Whether the graph knows how deep its page is."""
        return self.claim is not None and self.claim.depth is not None

    @property
    def is_of_task(self) -> bool:
        """Whether it runs a task, and not a plain callback or a request of no claim."""
        return self.task is not None and not self.task.is_callback

    @property
    def known_validators(self) -> Validators | None:
        """The validators of the response that its result was made from, by the code that is now."""
        found = None if self.claim is None else self.claim.validators
        return found if found is not None and found.code == self.code else None

    @property
    def has_changes(self) -> bool:
        """Whether there is something to commit, apart from the end of a claim."""
        return bool(self.operations or self.scraped)

    @property
    def is_doomed(self) -> bool:
        """Whether nothing that still happens in it can be kept."""
        return self.outcome is not Outcome.OK and not self._keeps_outputs

    @property
    def _keeps_outputs(self) -> bool:
        """Whether what it yielded is kept although it did not succeed."""
        if self.outcome in {Outcome.REFUSED, Outcome.GONE}:
            return self.allow_failure and not self.is_of_task
        if self.outcome is Outcome.KNOWN:
            return True
        return self.allow_failure and self.outcome is Outcome.FAILED

    @property
    def has_begun(self) -> bool:
        """Whether a request of it was let start that is not to be asked again, or is scraped."""
        return any(leg.has_started or leg.scrapes for leg in self.legs)

    @property
    def is_scraping(self) -> bool:
        """Whether something that it yielded is under way in the pipelines."""
        return any(leg.scrapes for leg in self.legs)

    def open_leg(
        self, *, is_own: bool = False, is_discovery: bool = False, parent: Leg | None = None
    ) -> Leg:
        """Open a leg; the execution does not end before it is closed."""
        if self.ended.is_set():
            raise RuntimeError(f"{self.where}: the execution has ended")
        leg = Leg(self, is_own=is_own, parent=parent, is_discovery=is_discovery)
        self.legs.add(leg)
        return leg

    def handed_out(self, leg: Leg) -> None:
        """Take note that the engine gets the request of `leg`."""
        self.running.add(leg)
        if self._began is None:
            self._began = time.monotonic()

    def leg_closed(self, leg: Leg) -> None:
        """Take note that `leg` is closed; with the last one the execution ends."""
        self.legs.discard(leg)
        if not self.legs and not self.ended.is_set():
            if self._began is not None:
                self.seconds = time.monotonic() - self._began
            self.ended.set()
            self.on_end(self)

    def count_output(self) -> None:
        """Count an operation, a request or a scraped item.

        Raises:
            TooManyOperationsError: when there are more than ITEMGRAPH_MAX_OPERATIONS; nothing of
                this execution is kept then.

        """
        self._outputs += 1
        if self._outputs > self.most:
            self.allow_failure = False
            self.operations.clear()
            self.attached.clear()
            self.scraped.clear()
            self.discovered.clear()
            if self.links is not None:
                self.links.clear()
            raise TooManyOperationsError(
                f"{self.where}: more than {self.most:,} operations, requests and items, the most "
                "that one execution may have; a callback that does not end? If it is meant, raise "
                "ITEMGRAPH_MAX_OPERATIONS"
            )

    def add(self, operation: Operation) -> None:
        """Take an operation, in the order yielded."""
        if isinstance(operation, AllowFailure):
            if self.claim is not None:
                self.allow_failure = operation.allowed
        else:
            self.operations.append(operation)
            if type(operation) is AttachBlob:
                self.attached.append(operation)

    def fail(self, error: ErrorRecord) -> None:
        """End as a failure; the first error is the one that is kept."""
        self._settle(Outcome.FAILED, error)

    def refuse(self, error: ErrorRecord) -> None:
        """End as refused: the project itself would not have the page."""
        self._settle(Outcome.REFUSED, error)

    def gone(self, error: ErrorRecord) -> None:
        """End as gone: by its answer the page is no more."""
        self._settle(Outcome.GONE, error)

    def known(self, name: str, where: ErrorRecord) -> None:
        """End as known: its redirect led to another page, which the crawl has by this name."""
        self._settle(Outcome.KNOWN, where)
        self.led_to = name

    def unchanged(self) -> None:
        """End as unchanged: by its answer the page is as it was when its result was made."""
        self._settle(Outcome.UNCHANGED, None)

    def skip(self, where: ErrorRecord | None = None) -> None:
        """End as skipped: by its rules the page is set aside, or `where` its redirect led."""
        self._settle(Outcome.SKIPPED, where)

    def retry(self, error: ErrorRecord, delay: timedelta) -> None:
        """End this attempt and have another one after `delay`."""
        if self.outcome is Outcome.OK:
            self.delay = delay
        self._settle(Outcome.RETRY, error)

    def try_again(self, error: ErrorRecord, delay: timedelta) -> None:
        """End this attempt, which does not count, and have another one after `delay`."""
        if self.outcome is Outcome.OK:
            assert self.claim is not None
            assert self.task is not None
            left = self.task.max_attempts - self.claim.attempt + 1
            self.attempts_left = self.claim.attempts_left or min(max(1, left), MOST_TRIES)
        self.retry(error, delay)

    def release(self) -> None:
        """Give the work back as if it had never been started, unless its end is known."""
        if not self.closes_spider:
            self._settle(Outcome.RELEASED, None)

    def changeset(self) -> Changeset:
        """Return what this execution wants changed."""
        if self.claim is None:
            return Changeset(
                operations=tuple(self.operations),
                outcome=Outcome.OK,
                scraped=tuple(self.scraped),
                attached=tuple(self.attached),
            )
        page = self.page
        if page is not None:
            made = sum(type(one) is CreateItem for one in self.operations)
            page = replace(page, links=page.links + made, refused=self.links_refused)
        return Changeset(
            operations=() if self.is_doomed else self._committed_operations(),
            outcome=self.outcome,
            claim=self.claim,
            error=self.error,
            delay=self.delay,
            attempts_left=self.attempts_left,
            allow_failure=self._keeps_outputs,
            led_to=self.led_to,
            validators=self.validators,
            is_of_callback=not self.is_of_task,
            scraped=() if self.is_doomed else tuple(self.scraped),
            log=() if self.item is None else self.item.kept_log(),
            items_scraped=self.items_scraped,
            attached=() if self.is_doomed else tuple(self.attached),
            page=page,
            links=() if self.is_doomed or self.links is None else self.links,
            roots=self.roots,
        )

    def _committed_operations(self) -> tuple[Operation, ...]:
        moves = self.moves if self.outcome is Outcome.OK else ()
        return (*self.operations, *moves)

    def committed(self) -> list[Emptied]:
        """Return what it has no more use for; the context of some timer may have it for minutes."""
        gone: list[Emptied] = [self.operations, self.scraped, self.discovered]
        self.operations = []
        self.attached = []
        self.scraped = []
        self.discovered = {}
        self.given = {}
        self.pattern = None
        if self.item is not None:
            self.item.forget_log()
        return gone

    def _settle(self, outcome: Outcome, error: ErrorRecord | None) -> None:
        if self.outcome is not Outcome.OK:
            return
        self.outcome = outcome
        self.error = error
        if self.is_doomed:
            for leg in [leg for leg in self.legs if leg.state is LegState.QUEUED]:
                leg.close()


current_leg: ContextVar[Leg | None] = ContextVar("itemgraph_leg", default=None)
"""The leg whose scrape this asyncio task is."""

request_legs: Notes[Leg] = Notes()
"""The leg of a request, from when it is offered until its scrape; it does not stand in its meta."""


def leg_of(request: Any) -> Leg | None:
    """Return the leg of a request that the engine has."""
    leg = request_legs.get(request)
    return leg if leg is not None and leg.request is request else None


def task_of(leg: Leg | None) -> int:
    """Return the number of the task that a request is of; `NO_TASK` where it is of none."""
    claim = None if leg is None else leg.execution.claim
    return NO_TASK if claim is None else claim.task_id
