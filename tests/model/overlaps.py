"""Two transactions at once, on both: the outcome is that of one of the orders they may have had."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model.both import assert_became
from model.overlap_acts import Act
from support import races

from scrapy_itemgraph.changesets import apply, batch_names, flush, load
from scrapy_itemgraph.contents.transfer import A_DAY
from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import blobs, failures, items, open_failures
from scrapy_itemgraph.store.registry import crawls, dead_processes, item_sweeps
from scrapy_itemgraph.store.worklist import claims, refresh, stored_redirects

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa
    from model.both import Both
    from model.crawls import Crawl

# Where the first of two transactions is held while the second runs; None: before its commit.
MOMENTS = {
    "its commit": None,
    "it ends its claims": apply.END_CLAIMS,
    "it resolves names": batch_names.RESOLVE,
    "it takes names": items.TAKE_NAMES,
    "it locks items": load.LOCK,
    "it reads results": load.RESULTS,
    "it writes items": flush.UPDATE_ITEMS,
    "it writes results": flush.SET_RESULTS,
    "it locks contents": blobs.HOLD,
    "it attaches": blobs.ATTACH,
    "it looks for what is outstanding": refresh.WANTED,
    "it looks for work that stands": refresh.STANDING,
    "it takes what it found": claims.TAKE,
    "it deletes contents": blobs.DELETE_OWN,
    "it locks what it concerns": items.LOCK_ITEMS,
    "it looks for failures": open_failures.MEANT,
    "it settles failures": failures.SUPERSEDE,
    "it lets run": failures.UNHOLD,
    "it looks for what to undo": failures.UNDOABLE,
    "it opens failures": failures.REOPEN,
    "it locks claims": stored_redirects.LOCK_CLAIMS,
    "it looks for owners": stored_redirects.OWNERS,
    "it gives back": claims.GIVE_BACK,
    "it files anew": claims.REFILE,
    "it looks for items to sweep": item_sweeps.SWEPT_ITEMS,
    "it looks for the dead": dead_processes.LOST,
    "it looks for orphans": dead_processes.ORPHANS,
    "it adds work": refresh.INSERT_WORK,
    "it withdraws work": refresh.AWAIT,
}
_APART = 100  # ticks between two transactions: one may have several executions


@dataclass
class Commit:
    """A transaction that ends executions, or acts from outside."""

    both: Both
    ends: Sequence[tuple[Any, dict[str, Any]]]

    def __post_init__(self) -> None:
        self._ours, self._model = self.both.prepared(self.ends)

    def stored(self, connection: sa.Connection) -> Any:
        """Do it in the database, but for the commit."""
        ours = self.both.ours
        while True:
            try:
                engine.hot_path(connection)
                shared = crawls.share_crawl(connection, ours.id)
                return apply.apply(
                    connection, self._ours, crawl=shared, worker_id=ours.worker, spider=ours.spider
                )
            except apply.MovedNamesError:
                connection.rollback()
            except blobs.ContentsGoneError as gone:
                connection.rollback()
                self._store_again(connection, gone.numbers)

    def _store_again(self, connection: sa.Connection, numbers: set[int]) -> None:
        """Store contents again that were collected before they were named."""
        attached = [one for given in self._ours for one in ops.attachments(given.operations)]
        for one in attached:
            if one.content.number in numbers:
                one.content.number = one.content.announced = None
        self.both.contents.store(connection, [one.content for one in attached])
        connection.commit()

    def modelled(self, model: Crawl, applied: Any) -> None:
        """Do it in a model; an AssertionError says why this cannot have become of it."""
        assert_became(self._model, model.commit(self._model), applied)


@dataclass
class Claim:
    """A transaction that claims."""

    both: Both
    limit: int

    def __post_init__(self) -> None:
        self._worker = self.both.ours.new_worker()

    def stored(self, connection: sa.Connection) -> Any:
        """Do it in the database, but for the commit."""
        engine.hot_path(connection)
        ours = self.both.ours
        return claims.claim(
            connection,
            crawl_id=ours.id,
            worker_id=self._worker,
            tasks=ours.registration.tasks,
            limit=self.limit,
        )

    def modelled(self, model: Crawl, taken: Any) -> None:
        """Do it in a model; an AssertionError says why this cannot have been claimed."""
        for one in taken:
            pair = next((pair for pair in model.claimable() if is_of(model, pair, one)), None)
            assert pair is not None, f"{one.item.id} {one.task} was claimed, but may not be"
            data = model.items[pair.item].data
            assert one.item.data == data, f"claimed with {one.item.data}, and not {data}"
            result = model.items[pair.item].results.get(pair.task)
            if result is not None and result.completed is not None:  # else it means nothing yet
                is_expired = one.invalidated_at is not None
                assert is_expired == (result.expired is not None), "claimed with another expiry"
            beside = [other for other, work in model.work.items() if work.token is not None]
            excluded = [other for other in beside if model.excludes(pair, other)]
            assert not excluded, f"{one.item.id} {one.task} was claimed beside {excluded}"
            model.claim(pair, one.token, self._worker)

    def done(self, taken: Any) -> None:
        """Keep the claims that were made."""
        for one in taken:
            self.both.keep(one, self._worker)


@dataclass
class Collect:
    """A transaction that collects contents which no item has.

    What is in the folder stays there, as if the worker had died then; the next who collects deletes
    it.
    """

    both: Both

    def stored(self, connection: sa.Connection) -> Any:
        """Do it in the database, but for the commit."""
        stores = {DATABASE, self.both.contents.folder.as_uri()}
        return blobs.collect(connection, stores, ahead=A_DAY)

    def modelled(self, model: Crawl, collected: Any) -> None:
        """Do nothing: nobody sees it."""


def is_of(model: Crawl, pair: Any, claim: Any) -> bool:
    """Tell whether a claim is one of a pair."""
    return pair.task == claim.task and model.items[pair.item].name == claim.item.id


class Overlap:
    """Runs two transactions at once, on connections of their own."""

    def __init__(self, both: Both, actors: Sequence[races.Actor]) -> None:
        self.both = both
        self.actors = actors

    def run(self, first: Any, second: Any, moment: str) -> None:
        """Run two; then find the order in which the model comes to what is stored."""
        both = self.both
        both.notice()
        both.connection.commit()
        outcomes = self._run(first, second, MOMENTS[moment])
        for one, outcome in zip((first, second), outcomes, strict=True):
            if isinstance(one, Claim):
                one.done(outcome)
            elif isinstance(one, Act):
                one.after()
        before, why = both.model, []
        for order in (0, 1), (1, 0):
            both.model = copy.deepcopy(before)
            try:
                self._follow(order, (first, second), outcomes)
            except AssertionError as error:
                why.append(str(error).splitlines()[0])
            else:
                return
        raise AssertionError("neither order comes to that:\n" + "\n".join(why))

    def _follow(self, order: Sequence[int], given: Sequence[Any], outcomes: Sequence[Any]) -> None:
        """Let the model do them in an order; what each writes has the time at which it began."""
        both, began = self.both, self.both.model.tick
        both.model.begin_sweep()
        for place in order:
            both.model.tick = began + place * _APART
            given[place].modelled(both.model, outcomes[place])
        both.model.tick = began + 2 * _APART
        both.notice()
        both.compare()

    def _run(self, first: Any, second: Any, statement: Any) -> tuple[Any, Any]:
        one, other = self.actors
        if statement is not None:
            one.pause_before(statement)
        done = one.start(first.stored)
        one.until_held_or_done()
        also = other.start(second.stored)
        if other.until_blocked_or_done():
            other.commit()
            one.resume()
            one.commit()
        else:
            one.resume()
            one.commit()
            also.result(races.PATIENCE)
            other.commit()
        return done.result(), also.result()
