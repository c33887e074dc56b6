"""`graph.queue`: crawls that people add, watch, steer and end."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import crawl_arguments, input_checks
from scrapy_itemgraph.model.crawl_states import Change, State
from scrapy_itemgraph.model.rule_matching import CompiledRules
from scrapy_itemgraph.settings import queued
from scrapy_itemgraph.store.admin import queue_pages, queue_reports
from scrapy_itemgraph.store.registry import crawl_queue, place_locks, rulesets, schedules
from scrapy_itemgraph.tools import url_secrets
from scrapy_itemgraph.tools.hiding import FROM_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.crawl_states import CrawlEvent, ManagedCrawl, NewCrawl
    from scrapy_itemgraph.model.crawl_waits import Waits
    from scrapy_itemgraph.model.schedule_terms import NewSchedule


class Added(NamedTuple):
    """A crawl that was put into the queue: its name, and what a person should know of it."""

    name: str
    warnings: list[str]


class Queue:
    """The queue of crawls, over all projects of the database.

    Who changes it says who they are: `by`, which the history keeps. Names that are not there raise
    a NotFoundError.
    """

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def add(self, new: NewCrawl, *, by: str, schedule: NewSchedule | None = None) -> Added:
        """Put a crawl into the queue; one that was started by hand goes on as this one.

        With a `schedule` it is started by that alone, and not now.

        Raises:
            OperationError: the name, or a crawl of this spider and arguments, is in the queue; or
                a value that cannot be, such as a secret.
            InvalidIdError: it cannot be a crawl's name.

        """
        if new.name is not None:
            _check_name(new.name)
        terms = {one.name: getattr(new, one.name) for one in fields(new)}
        _check_terms({**terms, "start_settings": new.settings})
        for name in crawl_arguments.reserved(new.arguments, crawl_arguments.NEVER):
            raise OperationError(crawl_arguments.reserved_error(name, new.spider))
        if new.rules is not None:
            CompiledRules(new.rules)  # raises for a pattern that is none

        def within(connection: Connection) -> Added:
            wanted = new if schedule is None else replace(new, is_scheduled=True)
            added = Added(*crawl_queue.add(connection, wanted, by=by))
            if new.rules is not None:
                crawl_id = crawl_queue.managed(connection, added.name).id
                rulesets.begin(connection, crawl_id, new.rules, by=by)
            if schedule is not None:
                schedules.add(connection, added.name, schedule, by=by)
            return added

        return self._transactions.call(within)

    def named(self, names: Collection[str]) -> list[ManagedCrawl]:
        """Return those of some crawls that are in the queue, by name."""
        return self._transactions.call(partial(queue_reports.named, names=names))

    def list(
        self, states: Sequence[State] | None = None, *, after: str = "", limit: int = 1000
    ) -> list[ManagedCrawl]:
        """Return crawls by name from `after` on; without `states` those that are not over."""
        wanted = [State.ACTIVE, State.PAUSED] if states is None else states
        return self._transactions.call(
            partial(queue_reports.crawls, states=wanted, after=after, limit=limit)
        )

    def page(
        self,
        states: Sequence[State] = (),
        *,
        tag: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> queue_pages.QueuePage:
        """Return crawls in the order of their turns, and why each waits; without `states` all.

        Active ones come first, by project; then those that are paused, aborted and finished, the
        newest of each first. With `tag` a page may have fewer rows than `limit`, and a `next`.

        Raises:
            OperationError: `after` is not what a page before had as `next`.

        """
        asked = partial(queue_pages.page, states=states or list(State), tag=tag)
        return self._transactions.call(partial(asked, after=after, limit=limit))

    def exists(self) -> bool:
        """Tell whether the database has a crawl in the queue, or a runner."""
        return self._transactions.call(queue_pages.exists)

    def get(self, name: str) -> ManagedCrawl:
        """Return one crawl."""
        return self._transactions.call(partial(queue_reports.crawl, name=name))

    def change(
        self,
        name: str,
        change: Change | str,
        *,
        by: str,
        reason: str | None = None,
        keeps_place: bool = False,
    ) -> State:
        """Pause, resume, abort or revive a crawl; return its state from now on.

        Its processes are told in the same transaction. `keeps_place` has a revived crawl keep its
        place in the queue.

        Raises:
            OperationError: that cannot be done in its state; it says what can.

        """
        return self._transactions.call(
            partial(
                crawl_queue.change,
                name=name,
                wanted=Change(change),
                by=by,
                reason=reason,
                keeps_place=keeps_place,
            )
        )

    def set(self, name: str, *, by: str, **changes: Any) -> ManagedCrawl:
        """Change a crawl's terms while it runs or waits; return it as it is then.

        `changes` are `nice`, `concurrency` (processes at once; 0 pauses it), `tag`, `note`,
        `resource` (None: none), `time_limit` (a timedelta, None: no limit), `keeps_fresh`, and
        `start_settings` (a mapping, for processes that start from now on).

        Raises:
            OperationError: a value that cannot be.

        """
        unknown = set(changes) - crawl_queue.SETTABLE
        if unknown:
            raise OperationError(f"a crawl has no {', '.join(sorted(unknown))} to be set")
        _check_terms(changes)
        if changes:
            self._transactions.call(
                partial(crawl_queue.set_terms, name=name, changes=changes, by=by)
            )
        return self.get(name)

    def history(
        self, name: str, *, before: int | None = None, limit: int = 100
    ) -> Sequence[CrawlEvent]:
        """Return what happened to a crawl, the newest first, of events before a number."""
        return self._transactions.call(
            partial(queue_reports.history, name=name, before=before, limit=limit)
        )

    def processes(self, name: str) -> Sequence[queue_reports.RunningProcess]:
        """Return the processes that run a crawl, and where they run."""
        return self._transactions.call(partial(queue_reports.processes, name=name))

    def explain(self, name: str) -> Waits:
        """Return all that decides whether a crawl runs; `model.crawl_waits.sentences` says it."""
        return self._transactions.call(partial(queue_reports.waits, name=name))

    def lock(
        self,
        name: str,
        runner: str,
        place: int | None = None,
        *,
        by: str,
        until_finished: bool = False,
    ) -> int:
        """Lock a place of a runner to a crawl; return the place's number.

        Raises:
            OperationError: the place is locked to another crawl.

        """
        lock = place_locks.UNTIL_FINISHED if until_finished else place_locks.INDEFINITELY
        return self._transactions.call(
            partial(place_locks.lock, name=name, runner=runner, place=place, for_=lock, by=by)
        )

    def unlock(self, name: str, *, by: str) -> Sequence[tuple[str, int]]:
        """Unlock all places that are locked to a crawl; return their runners and numbers."""
        return self._transactions.call(partial(place_locks.unlock, name=name, by=by))


def _check_name(name: str) -> None:
    """Refuse what ITEMGRAPH_CRAWL would take for a placeholder."""
    input_checks.check_crawl(name)
    if any(one in name for one in "{}") or not name.isprintable():
        raise OperationError(
            f"{name!r:.80} cannot be a crawl's name: it has braces, or what cannot be printed"
        )


def _check_terms(terms: Mapping[str, Any]) -> None:
    """Refuse what the queue has no use for, or the database no room."""
    if "nice" in terms:
        if terms["nice"] is None:
            raise OperationError("nice is an integer; 0 is the usual one")
        input_checks.check_nice(terms["nice"])
    processes = terms.get("concurrency", 1)
    is_number = isinstance(processes, int) and not isinstance(processes, bool)
    if not is_number or not 0 <= processes <= _MOST_PROCESSES:
        raise OperationError(
            f"concurrency is how many processes may run at once, 0 to {_MOST_PROCESSES:,}; "
            f"not {processes!r:.40}"
        )
    limit: timedelta | None = terms.get("time_limit")
    if limit is not None and limit.total_seconds() < 1:
        raise OperationError("a time limit is a second at least")
    if str(terms.get("spider", "")).startswith("-"):
        raise OperationError(f"{terms['spider']!r:.80} is no spider's name")
    for name in ("spider", "project", "tag", "note", "resource"):
        value = terms.get(name)
        if value is not None:
            input_checks.check_text(value, name)
            if not value and name != "note":
                raise OperationError(f"{name} is empty; leave it out")
    for given, option in ((terms.get("arguments"), "-a"), (terms.get("start_settings"), "-s")):
        _check_names(given or {}, option)
        _refuse_secrets(given or {}, option)
    queued.check(terms.get("start_settings") or {})


def _check_names(given: Mapping[str, Any], option: str) -> None:
    """Refuse names that a process could not be started with, as `OPTION NAME=VALUE`."""
    for name in given:
        input_checks.check_text(name, "a name")
        if not name or "=" in name or name.startswith("-") or not name.isprintable():
            raise OperationError(f"{name!r:.80} is no name for {option} NAME=VALUE")
    if CRAWL_NAME in given:
        raise OperationError("a crawl has its name from crawls add SPIDER NAME, and keeps it")


def _refuse_secrets(given: Mapping[str, Any], option: str) -> None:
    """Refuse values that would be stored, and shown to whoever may look at the queue."""
    for name, value in given.items():
        if str(value).startswith(FROM_ENVIRONMENT):
            continue
        if crawl_arguments.is_secret(name) or name in _URLS_WITH_PASSWORDS:
            looks = "it looks like a secret"
        elif url_secrets.has_password(str(value)):
            looks = "a URL in it has a password"
        else:
            continue
        variable = name.upper() if name.isidentifier() else "NAME"
        raise OperationError(
            f"the value of {name!r} would be stored, and {looks}; write "
            f"{option} {name}={FROM_ENVIRONMENT}{variable}, and set {variable} where the "
            "runner runs"
        )


CRAWL_NAME = "ITEMGRAPH_CRAWL"
_URLS_WITH_PASSWORDS = {"ITEMGRAPH_DATABASE_URL", "ITEMGRAPH_SESSION_URL"}
_MOST_PROCESSES = 10_000
