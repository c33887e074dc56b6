"""Single calls as transactions beside others: of people, of workers that live, and of sweeps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from model.both import NOW, People
from model.crawls import End

from scrapy_itemgraph.changesets import additions
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.model.work import Redirect
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.registry import crawls, dead_processes, item_sweeps
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import stored_redirects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import sqlalchemy as sa
    from model.both import Both
    from model.crawls import Crawl


def _nothing() -> None:
    """Do nothing."""


@dataclass
class Act:
    """What a call does in the database, but for the commit, and in a model; and what is after both.

    `modelled` is given what `stored` returned; an AssertionError says why that cannot be.
    """

    stored: Callable[[sa.Connection], Any]
    modelled: Callable[[Crawl, Any], None]
    after: Callable[[], None] = _nothing


class Within(People):
    """What people do, in a transaction that somebody else commits."""

    def _within(self, function: Callable[[sa.Connection], Any]) -> Any:
        return function(self._connection)


def handle(both: Both, task: str | None, *, retry: bool) -> Act:
    """Handle failures."""
    return Act(
        lambda connection: Within(connection, both.ours.name).failures.handle(
            task=task, retry=retry
        ),
        lambda model, _: model.handle(task, retry=retry),
    )


def unhandle(both: Both, hours: float, task: str | None) -> Act:
    """Undo what was handled in the last hours."""

    def stored(connection: sa.Connection) -> Any:
        since = connection.scalar(NOW) - timedelta(hours=hours)
        return Within(connection, both.ours.name).failures.unhandle(since, task=task)

    return Act(stored, lambda model, _: model.unhandle(model.now - hours, task))


def set_nice(both: Both, name: str, nice: int | None) -> Act:
    """Give an item a priority of its own, or none."""

    def stored(connection: sa.Connection) -> bool:
        try:
            Within(connection, both.ours.name).set_nice(name, nice)
        except NotFoundError:
            return False
        return True

    def modelled(model: Crawl, was_found: bool) -> None:
        assert was_found == (model.names.get(name) is not None), f"{name} was found: {was_found}"
        if was_found:
            model.set_nice(name, nice)

    return Act(stored, modelled)


def add(both: Both, given: Sequence[ops.CreateItem]) -> Act:
    """Create items in bulk."""
    ready = additions.of([ops.checked(one, "here") for one in given])
    assert ready is not None

    def stored(connection: sa.Connection) -> None:
        engine.hot_path(connection)
        additions.add(connection, ready, crawl=crawls.share_crawl(connection, both.ours.id))

    def modelled(model: Crawl, _: Any) -> None:
        model.commit([End(tuple(given))])

    return Act(stored, modelled)


def redirect(both: Both, claim: Any, name: str | None) -> Act:
    """Let a claim's request be redirected."""
    request = {"url": f"http://r.example/{name}"}
    move = Redirect(claim=claim, name=name, request=json.dumps(request))

    def stored(connection: sa.Connection) -> str:
        engine.hot_path(connection)
        (answer,) = stored_redirects.redirect(connection, both.ours.id, [move])
        return str(answer)

    def modelled(model: Crawl, answer: str) -> None:
        expected = model.redirect(claim.token, name, request)
        assert answer == expected, f"the redirect to {name} was {answer}, and not {expected}"

    return Act(stored, modelled)


def refile(both: Both, claim: Any, worker: int) -> Act:
    """Give a claim back that belongs to another website."""
    slot = "refiled.example"

    def stored(connection: sa.Connection) -> Any:
        engine.hot_path(connection)
        number = stored_slots.intern_slots(connection, [slot])[slot]
        queue = queues.intern(connection, both.ours.id, number)
        return stored_claims.refile(connection, claim, queue, worker)

    return Act(stored, lambda model, _: model.refile(claim.token, slot))


def release(both: Both, given: Sequence[Any]) -> Act:
    """Give claims back."""

    def stored(connection: sa.Connection) -> Any:
        engine.hot_path(connection)
        return stored_claims.release(connection, given, both.ours.worker)

    return Act(stored, lambda model, _: model.release([claim.token for claim in given]))


def take_over(both: Both) -> Act:
    """Free the claims of all workers that are taken for dead."""

    def stored(connection: sa.Connection) -> int:
        engine.hot_path(connection)
        return dead_processes.take_over(connection, both.ours.id, both.ours.worker).claims

    def modelled(model: Crawl, freed: int) -> None:
        had = [work.worker for work in model.work.values() if work.worker in both.dead]
        assert freed == len(had), f"{freed} claims were freed, and not {len(had)}"
        for worker in sorted(set(had)):
            model.bury(worker)

    return Act(stored, modelled)


def sweep_step(both: Both) -> Act:
    """Bring what changed in code to some items; the rest comes after."""

    def rest() -> None:
        while both.ours.sweep_step():
            pass

    return Act(
        lambda connection: item_sweeps.sweep(connection, both.ours.id), lambda *_: None, after=rest
    )
