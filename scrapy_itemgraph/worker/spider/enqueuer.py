"""Requests that are yielded, on their way to becoming work of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy import Request

from scrapy_itemgraph.exceptions import ItemGraphError, UnstorableError
from scrapy_itemgraph.model.request_operations import WHENEVER, EnqueueRequest
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import Turns
from scrapy_itemgraph.tools.caches import KnownNames
from scrapy_itemgraph.worker.executions.execution import request_legs

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.statscollectors import StatsCollector

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.request_operations import Pattern
    from scrapy_itemgraph.model.work import Applied
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg
    from scrapy_itemgraph.worker.spider.duplicates import Duplicates
    from scrapy_itemgraph.worker.spider.link_depths import LinkDepths
    from scrapy_itemgraph.worker.spider.page_rules import PageRules
    from scrapy_itemgraph.worker.spider.redirects import Redirects
    from scrapy_itemgraph.worker.spider.request_ids import Identity
    from scrapy_itemgraph.worker.spider.request_operations import RequestOperations

logger = logs.logger(__name__)

_MOST_KNOWN = 100_000
_FREE_NAMES = {"deleted", "alias deleted"}


@dataclass(slots=True)
class Discovery:
    """A request as it was yielded: its identity, and what stores it or why that cannot be.

    `line` is where a request was yielded that cannot be stored, as a traceback has it.
    """

    identity: Identity
    is_known: bool
    operation: EnqueueRequest | None = None
    error: UnstorableError | None = None
    line: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class Enqueuer:
    """Makes requests items; what cannot be stored its parent's execution carries.

    `unstarted` has the names of the last requests of no execution, up to `most_unstarted`, that the
    engine has not got.
    """

    graph: WorkerGraph
    active: ActiveExecutions
    redirects: Redirects
    spider: Spider
    operations: RequestOperations
    duplicates: Duplicates
    page_rules: PageRules
    stats: StatsCollector
    depths: LinkDepths
    most_held: int  # requests that cannot be stored, carried at a time
    most_unstarted: int
    unstarted: dict[str, None] = field(default_factory=dict)
    _known: KnownNames = field(default_factory=lambda: KnownNames(_MOST_KNOWN))
    _freed: tuple[int, int] = (0, 0)  # `names_freed` of the graph when these were known
    _carried: set[Leg] = field(default_factory=set)
    _carried_starts: set[str] = field(default_factory=set)
    _places: set[str] = field(default_factory=set)

    def discover(
        self, request: Request, execution: Execution, identity: Identity | None = None
    ) -> Discovery | None:
        """Look at a request as it is yielded: what it is known by, and what is to be stored.

        None if it cannot be taken; that is its execution's failure.
        """
        try:
            if identity is None:
                identity = self.operations.identify(request, execution)
            if identity.is_refused:
                if execution.links is not None:
                    self.depths.note(request, identity.name, execution, is_known=True)
                return Discovery(identity, is_known=True)
            is_told = identity.again is not None or identity.changed_at is not None
            is_known = not is_told and self._is_known(identity, execution)
            if execution.links is not None:
                self.depths.note(request, identity.name, execution, is_known=is_known)
            if is_known:
                return Discovery(identity, is_known=True)
            operation = self.operations.operation(request, identity, execution)
            return Discovery(identity, is_known=False, operation=operation)
        except UnstorableError as error:
            assert identity is not None
            return Discovery(identity, is_known=False, error=error)
        except Exception as error:
            # What Scrapy would make of it is a task whose exception nobody retrieves.
            logger.exception("%s: cannot take %s", execution.where, request)
            self.active.fail(execution, error, url=request.url)
            return None

    def is_settled(
        self, request: Request, discovery: Discovery | None, execution: Execution
    ) -> bool:
        """Take or filter a request before the engine has it, where nobody would hear of it there.

        False leaves it to the engine, from which `enqueue` gets it.
        """
        if discovery is None or discovery.error is not None or not self.duplicates.are_unheard:
            return False
        if discovery.is_known:
            self.duplicates.filtered(request)
        elif not self.duplicates.is_offsite(request) and self._take(request, discovery, execution):
            self.stats.inc_value("scheduler/enqueued")
        return True

    def enqueue(self, request: Request, leg: Leg | None) -> bool:
        """Make a request part of the execution that yielded it, unless it is a duplicate.

        What the project's fingerprinter raises is raised to who has no execution, as by Scrapy.
        """
        if leg is None:
            leg = self.active.begin(url=request.url).open_leg(is_discovery=True)
            try:
                identity = self.operations.identify(request, leg.execution)
            except Exception:
                leg.close()
                raise
            leg.discovery = self.discover(request, leg.execution, identity)
            self._note_unstarted(identity.name)
        else:
            request_legs.pop(request)
        discovery: Discovery | None = leg.discovery
        execution = leg.execution
        if discovery is None:
            leg.close()
            return False
        if discovery.error is not None and not self._is_duplicate(discovery, execution):
            return self._carry(request, leg, discovery, discovery.error)
        is_taken = self._take(request, discovery, execution)
        leg.close()
        return is_taken

    def _note_unstarted(self, name: str) -> None:
        self.unstarted[name] = None
        if len(self.unstarted) > self.most_unstarted:
            del self.unstarted[next(iter(self.unstarted))]

    def started(self, execution: Execution) -> None:
        """Take note that the engine has the request of a claim."""
        if self.unstarted and execution.claim is not None:
            self.unstarted.pop(execution.claim.item.id, None)

    def _take(self, request: Request, discovery: Discovery, execution: Execution) -> bool:
        """Make a request part of an execution; False for a duplicate."""
        if self._is_duplicate(discovery, execution):
            self.duplicates.filtered(request)
            return False
        assert discovery.operation is not None
        # Not the request itself, of which a page may yield a great many.
        operation = None if request.dont_filter else discovery.operation
        if discovery.identity.again == WHENEVER:
            execution.validators = None  # it is fetched whenever the page is read
        execution.discovered[discovery.identity.name] = operation
        execution.add(discovery.operation)
        return True

    def take_alike(self, pattern: Pattern, name: str, url: str, execution: Execution) -> None:
        """Make a request part of an execution that is like another one but for its URL.

        Its name is not known, and its URL is one that `requests.has_plain_url` tells.
        """
        operation = pattern.operation(name, url)
        execution.discovered[name] = operation
        execution.add(operation)

    def _is_duplicate(self, discovery: Discovery, execution: Execution) -> bool:
        identity = discovery.identity
        is_once = identity.is_filtered and identity.changed_at is None
        return discovery.is_known or (is_once and identity.name in execution.discovered)

    def _is_known(self, identity: Identity, execution: Execution) -> bool:
        return identity.is_filtered and self.is_known(identity.name, execution)

    def is_known(self, name: str, execution: Execution) -> bool:
        """Tell whether a name is known to be committed, or is the execution's already."""
        if self._freed != self.graph.commits.names_freed:  # maybe by others
            self._freed = self.graph.commits.names_freed
            self._known.clear()
        return name in self._known or name in execution.discovered

    # Requests that cannot be stored

    def _carry(
        self, request: Request, leg: Leg, discovery: Discovery, error: UnstorableError
    ) -> bool:
        identity = discovery.identity
        self._carried = {one for one in self._carried if one.is_open}
        execution = leg.execution
        limit = self.most_held
        if len(self._carried) >= limit:
            why = ItemGraphError(
                f"{request}: {error}; and {limit:,} requests that cannot be stored are carried in "
                "memory already: give it what can be stored, or raise ITEMGRAPH_HELD_REQUESTS"
            )
            self.active.fail(execution, why, kind="too many carried requests", url=request.url)
            leg.close()
            return False
        if identity.is_filtered and execution.claim is None:
            if identity.name in self._carried_starts:
                self.duplicates.filtered(request)
                leg.close()
                return False
            self._carried_starts.add(identity.name)
        self._carried.add(leg)
        execution.validators = None  # nobody would make it if the page were unchanged
        self.stats.inc_value("itemgraph/held")
        self._say_once(execution, error, discovery.line)
        leg.is_discovery = False
        name = identity.name if identity.is_filtered else None
        if name is not None:
            execution.discovered[name] = request
        self.page_rules.prepare(request, execution)
        self.redirects.carry(request, leg, name)
        return True

    def _say_once(self, execution: Execution, error: UnstorableError, line: str | None) -> None:
        place = execution.claim.task if execution.claim else "start()"
        if place in self._places:
            return
        self._places.add(place)
        logger.warning(
            "%s: %s%s. Such requests are carried in memory by the execution that yielded "
            "them, which runs again after a crash; itemgraph/held counts them",
            execution.where,
            error,
            "" if line is None else f" ({line})",
            extra={"action": "carried"},
        )

    def _drop_known(self, found: Request | EnqueueRequest) -> None:
        """Say that a request, or what was stored of it, turned out to be a duplicate."""
        if isinstance(found, EnqueueRequest):
            data = found.data
            try:
                found = requests.load({"url": data["url"], **data["request"]}, self.spider)
            except ItemGraphError:
                self.duplicates.uncount()
                return
        self.duplicates.dropped(found)

    # Commits

    async def applied(self, execution: Execution, applied: Applied, *, has_freed: bool) -> None:
        """Take note of what a commit made known, and drop what was known before.

        `has_freed` tells that names were freed meanwhile, so that these may be free as well.
        """
        turns = Turns()
        freed = self.graph.commits.names_freed
        self.duplicates.listen()
        are_only_counted = self.duplicates.are_only_counted
        for note in applied.notes:
            if turns.is_due:
                await turns.give()
            if note.label in _FREE_NAMES:
                self._known.clear()
            if note.operation != EnqueueRequest.verb:
                continue
            found = execution.discovered.get(note.text)
            if found is None or (isinstance(found, Request) and found.dont_filter):
                continue
            if not has_freed and freed == self.graph.commits.names_freed:
                self._known.add(note.text)
            if note.label == "known":
                if are_only_counted and isinstance(found, EnqueueRequest):
                    self.duplicates.count()
                else:
                    self._drop_known(found)
