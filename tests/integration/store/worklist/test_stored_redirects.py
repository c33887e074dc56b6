"""Moves: redirects and retries of claims, noted by several workers at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from support.races import Crawl, ended, watched

from scrapy_itemgraph import CreateAlias, CreateItem, DeleteItem, Expire, MergeItem, task
from scrapy_itemgraph.model.work import Redirect, RedirectAnswer
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.worklist import stored_redirects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.model.work import Claim

pytestmark = pytest.mark.server

HERE = "http://here.example/"


class Pages:
    @task(tags=["page"])
    def parse(self, response, item): ...

    @task(tags=["page"])
    def digest(self, response, item): ...


@pytest.fixture
def crawl(engine) -> Iterator[Crawl]:
    """Make a crawl with two tasks, and check its worklist at the end."""
    with watched(engine, Pages) as crawl:
        yield crawl


def page(name: str) -> CreateItem:
    """Return a seed that calls for both tasks."""
    return CreateItem(name, tags=["page"], data={"url": HERE + name})


def claims(crawl: Crawl, worker: int, *names: str) -> list[Claim]:
    """Make items, and return the claims of their `parse`, in the order of the names."""
    crawl.seed(*(page(name) for name in names))
    taken = crawl.claimed(worker, tasks=crawl.only("parse"))
    by_name = {claim.item.id: claim for claim in taken}
    return [by_name[name] for name in names]


def to(claim: Claim, name: str | None, **stored: Any) -> Redirect:
    """Return the move of a claim's request to where another one would have this name."""
    return Redirect(claim=claim, name=name, request=json.dumps(stored) if stored else None)


def moved(crawl: Crawl, *gone: Redirect) -> list[RedirectAnswer]:
    """Move and commit."""
    with crawl.engine.begin() as connection:
        return redirect(connection, crawl, *gone)


def redirect(connection: Any, crawl: Crawl, *gone: Redirect) -> list[RedirectAnswer]:
    """Move in the caller's transaction, as a worker does."""
    engines.hot_path(connection)
    return stored_redirects.redirect(connection, crawl.id, gone)


def owner(crawl: Crawl, name: str) -> str | None:
    """Return the item that has a name."""
    rows = crawl.rows(
        "SELECT i.name FROM aliases a JOIN items i ON i.id = a.item_id WHERE a.name = :name",
        name=name,
    )
    return rows[0][0] if rows else None


def stored(crawl: Crawl, name: str) -> Any:
    """Return the request that is stored with the claim of an item's `parse`."""
    rows = crawl.rows(
        "SELECT w.request FROM work w JOIN items i ON i.id = w.item_id "
        "JOIN tasks t ON t.id = w.task_id WHERE i.name = :name AND t.name = 'parse'",
        name=name,
    )
    return rows[0][0]


# One worker


def test_where_a_request_goes_becomes_an_alias_and_is_stored(crawl):
    """The name is the item's from then on, and the work knows where its request is."""
    (claim,) = claims(crawl, crawl.worker(), "A")

    answers = moved(crawl, to(claim, "REQ:target", url=HERE + "target"))

    assert answers == [RedirectAnswer.ON]
    assert owner(crawl, "REQ:target") == "A"
    assert stored(crawl, "A") == {"url": HERE + "target"}


def test_the_next_claim_begins_where_the_last_one_was(crawl):
    """Who takes over from a dead worker gets the request that was stored."""
    dead = crawl.worker()
    (claim,) = claims(crawl, dead, "A")
    moved(crawl, to(claim, "REQ:target", url=HERE + "target"))
    crawl.expire_lease(dead)

    crawl.taken_over()
    (again,) = crawl.claimed(crawl.worker(), tasks=crawl.only("parse"))

    assert again.request == {"url": HERE + "target"}
    assert moved(crawl, to(again, "REQ:target")) == [RedirectAnswer.ON]


def test_a_retry_is_stored_without_a_name(crawl):
    """Nothing is taken for what is not filtered, and the request is stored all the same."""
    (claim,) = claims(crawl, crawl.worker(), "A")
    names = crawl.rows("SELECT name FROM aliases")

    answers = moved(crawl, to(claim, None, url=HERE + "A", meta={"retry_times": 1}))

    assert answers == [RedirectAnswer.ON]
    assert crawl.rows("SELECT name FROM aliases") == names
    assert stored(crawl, "A") == {"url": HERE + "A", "meta": {"retry_times": 1}}


def test_a_request_without_stored_form_leaves_what_was_stored(crawl):
    """It goes on, and after a crash the work begins where it last could be stored."""
    (claim,) = claims(crawl, crawl.worker(), "A")
    moved(crawl, to(claim, "REQ:first", url=HERE + "first"))

    answers = moved(crawl, to(claim, "REQ:second"))

    assert answers == [RedirectAnswer.ON]
    assert owner(crawl, "REQ:second") == "A"
    assert stored(crawl, "A") == {"url": HERE + "first"}


@pytest.mark.parametrize("how", ["item", "alias", "tombstone"])
def test_a_request_to_a_name_of_another_item_is_a_duplicate(crawl, how):
    """Nothing changes: neither the name's owner nor the request that is stored."""
    crawl.seed(CreateItem("OTHER"))
    name = {"item": "OTHER", "alias": "ALIAS", "tombstone": "OTHER"}[how]
    if how == "alias":
        crawl.seed(CreateAlias("ALIAS", to="OTHER"))
    elif how == "tombstone":
        crawl.seed(DeleteItem("OTHER", forget=False))
    (claim,) = claims(crawl, crawl.worker(), "A")

    answers = moved(crawl, to(claim, name, url=HERE + "other"))

    assert answers == [RedirectAnswer.TAKEN]
    assert owner(crawl, name) == (None if how == "tombstone" else "OTHER")
    assert stored(crawl, "A") is None


def test_a_claim_that_is_not_ours_moves_nothing(crawl):
    """A lost claim takes no name, while others of the batch go on."""
    worker = crawl.worker()
    mine, lost = claims(crawl, worker, "A", "B")
    lost = replace(lost, token=uuid4())

    answers = moved(
        crawl,
        to(lost, "REQ:lost", url=HERE + "lost"),
        to(mine, "REQ:mine", url=HERE + "mine"),
    )

    assert answers == [RedirectAnswer.LOST, RedirectAnswer.ON]
    assert owner(crawl, "REQ:lost") is None
    assert stored(crawl, "B") is None
    assert stored(crawl, "A") == {"url": HERE + "mine"}


def test_the_claim_of_a_deleted_item_is_lost(crawl):
    """No alias may point to an item that is gone."""
    (claim,) = claims(crawl, crawl.worker(), "A")
    crawl.seed(DeleteItem("A"))

    answers = moved(crawl, to(claim, "REQ:target", url=HERE + "target"))

    assert answers == [RedirectAnswer.LOST]
    assert crawl.rows("SELECT name FROM aliases") == []


def test_of_two_requests_of_a_batch_to_one_place_the_first_goes_on(crawl):
    """The second is a duplicate, as if it had come in a batch of its own."""
    first, second = claims(crawl, crawl.worker(), "A", "B")

    answers = moved(
        crawl,
        to(first, "REQ:target", url=HERE + "target"),
        to(second, "REQ:target", url=HERE + "target"),
    )

    assert answers == [RedirectAnswer.ON, RedirectAnswer.TAKEN]
    assert owner(crawl, "REQ:target") == "A"
    assert stored(crawl, "B") is None


def test_requests_of_one_claim_may_go_to_one_place(crawl):
    """The name is its item's already, whether by this batch or by one before."""
    (claim,) = claims(crawl, crawl.worker(), "A")

    answers = [
        *moved(crawl, to(claim, "REQ:target"), to(claim, "REQ:target")),
        *moved(crawl, to(claim, "REQ:target")),
    ]

    assert answers == [RedirectAnswer.ON] * 3


# Two workers


def test_of_two_workers_on_the_way_to_one_place_one_goes_on(crawl, pair):
    """The second waits for the first's commit, and then finds a duplicate."""
    one, other = pair
    worker = crawl.worker()
    first, second = claims(crawl, worker, "A", "B")

    assert one.run(redirect, crawl, to(first, "REQ:target", url=HERE)) == [RedirectAnswer.ON]
    answer = other.start(redirect, crawl, to(second, "REQ:target", url=HERE))
    other.until_blocked()
    one.commit()

    assert answer.result() == [RedirectAnswer.TAKEN]
    other.commit()
    assert owner(crawl, "REQ:target") == "A"
    assert stored(crawl, "B") is None


def test_a_move_that_was_rolled_back_leaves_the_name_to_the_next(crawl, pair):
    """Who waited for a transaction that came to nothing goes on."""
    one, other = pair
    first, second = claims(crawl, crawl.worker(), "A", "B")

    one.run(redirect, crawl, to(first, "REQ:target", url=HERE))
    answer = other.start(redirect, crawl, to(second, "REQ:target", url=HERE))
    other.until_blocked()
    one.rollback()

    assert answer.result() == [RedirectAnswer.ON]
    other.commit()
    assert owner(crawl, "REQ:target") == "B"


def test_many_names_taken_crosswise_do_not_deadlock(crawl, pair):
    """Two batches that want the same names in another order: one waits for the other."""
    one, other = pair
    names = [f"T{n}" for n in range(6)]
    ours, theirs = claims(crawl, crawl.worker(), "A", "B")

    one.run(redirect, crawl, *(to(ours, name) for name in names))
    answer = other.start(redirect, crawl, *(to(theirs, name) for name in reversed(names)))
    other.until_blocked()
    one.commit()

    assert answer.result() == [RedirectAnswer.TAKEN] * 6
    other.commit()


def test_a_name_that_a_commit_takes_meanwhile_is_a_duplicate(crawl, pair):
    """A page that links to the target creates its item first: the redirect is dropped."""
    one, other = pair
    (claim,) = claims(crawl, crawl.worker(), "A")

    one.run(lambda connection: crawl.operate(connection, page("REQ:target")))
    answer = other.start(redirect, crawl, to(claim, "REQ:target", url=HERE))
    other.until_blocked()
    one.commit()

    assert answer.result() == [RedirectAnswer.TAKEN]
    other.commit()
    assert owner(crawl, "REQ:target") == "REQ:target"


def test_a_page_that_a_redirect_goes_to_meanwhile_is_known(crawl, pair):
    """The other way round: the commit finds the name taken, and makes no item."""
    one, other = pair
    (claim,) = claims(crawl, crawl.worker(), "A")

    one.run(redirect, crawl, to(claim, "REQ:target", url=HERE))
    applied = other.start(lambda connection: crawl.operate(connection, page("REQ:target")))
    other.until_blocked()
    one.commit()

    assert [note.label for note in applied.result().notes] == ["known"]
    other.commit()
    assert owner(crawl, "REQ:target") == "A"


@pytest.mark.parametrize("how", ["deleted", "merged"])
def test_an_item_that_goes_while_its_request_moves_takes_the_name_along(crawl, pair, how):
    """A deletion or a merge waits for the move, and leaves no alias that leads nowhere."""
    one, other = pair
    crawl.seed(CreateItem("INTO"))
    (claim,) = claims(crawl, crawl.worker(), "A")
    gone = DeleteItem("A") if how == "deleted" else MergeItem("INTO", id="A")

    assert one.run(redirect, crawl, to(claim, "REQ:target", url=HERE)) == [RedirectAnswer.ON]
    applied = other.start(lambda connection: crawl.operate(connection, gone))
    other.until_blocked()
    one.commit()
    try:
        assert applied.result().error is None
        other.commit()
    except Exception as error:  # what a worker's commit does then, too
        assert type(error).__name__ == "MovedNamesError", error  # noqa: PT017
        other.rollback()
        crawl.seed(gone)

    assert owner(crawl, "REQ:target") == (None if how == "deleted" else "INTO")


def test_a_claim_that_is_taken_over_while_it_moves_stays_whole(crawl, pair):
    """Who takes over waits for the move, and the next claim begins where it led."""
    one, other = pair
    dead = crawl.worker()
    (claim,) = claims(crawl, dead, "A")
    crawl.expire_lease(dead)

    one.run(redirect, crawl, to(claim, "REQ:target", url=HERE + "target"))
    freed = other.start(crawl.take_over)
    other.until_blocked()
    one.commit()

    assert freed.result() == 1
    other.commit()
    (again,) = crawl.claimed(crawl.worker(), tasks=crawl.only("parse"))
    assert again.request == {"url": HERE + "target"}
    assert moved(crawl, to(claim, "REQ:further", url=HERE)) == [RedirectAnswer.LOST]


def test_work_that_ended_keeps_no_request(crawl):
    """The next time its result is stale, the item's own request is what runs."""
    worker = crawl.worker()
    (claim,) = claims(crawl, worker, "A")
    moved(crawl, to(claim, "REQ:target", url=HERE + "target"))

    with crawl.engine.begin() as connection:
        crawl.apply(connection, ended(claim), worker=worker)
    crawl.seed(Expire(id="A", task="parse"))
    (again,) = crawl.claimed(worker, tasks=crawl.only("parse"))

    assert again.request is None
