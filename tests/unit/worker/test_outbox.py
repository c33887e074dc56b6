"""The outbox, alone: what makes a batch, by changesets and by what they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.parts import a_claim

from scrapy_itemgraph.model.operations import AddTag, Changeset
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.worker.executions import outbox as outboxes
from scrapy_itemgraph.worker.executions.outbox import Entry, Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(outboxes, "_MOST_OPERATIONS", 10)


def outbox(*sizes: int, batch: int = 4) -> Outbox:
    """Return an outbox with changesets of so many operations each."""
    one = Outbox(batch)
    for size in sizes:
        changeset = Changeset(operations=(AddTag("a"),) * size, outcome=Outcome.OK)
        one.put(Entry(changeset, f"of {size}"), is_last=False)
    return one


def test_claims_are_known_until_it_is_known_what_became_of_them():
    """Those that wait, and those that a commit under way has."""
    one = Outbox(1)
    for number in (1, 2):
        changeset = Changeset(operations=(), outcome=Outcome.OK, claim=a_claim(number))
        one.put(Entry(changeset, "of a claim"), is_last=False)
    one.take()
    under_way = sorted(claim.item_id for claim in one.claims)
    one.settle(back=[])

    assert under_way == [1, 2]
    assert [claim.item_id for claim in one.claims] == [2]


def sizes(batch: Sequence[Entry]) -> list[int]:
    """Return how many operations each changeset of a batch has."""
    return [entry.size for entry in batch]


def test_a_batch_has_so_many_changesets_or_operations_and_a_large_one_goes_alone():
    """Of changesets as many as are committed together, fewer of large ones, one of a huge one."""
    one = outbox(1, 1, 1, 1, 1, 5, 4, 3, 50, 0, 2)
    batches = []
    while one:
        batches.append(sizes(one.take()))
        one.settle(back=[])

    assert batches == [[1, 1, 1, 1], [1, 5, 4], [3], [50], [0, 2]]
    assert not one.has_batch
    assert one.excess == 0


def test_large_changesets_are_committed_without_waiting_for_others():
    """Whoever waits for a batch is told when that many operations wait."""
    few, enough = outbox(5, 4), outbox(5, 5)

    assert (few.has_batch, few.hurried.is_set()) == (False, False)
    assert (enough.has_batch, enough.hurried.is_set()) == (True, True)


def test_while_many_operations_wait_their_changesets_are_excess():
    """A crawl that makes them faster than they are committed claims less, as with many pages."""
    one = outbox(6, 6, 6, batch=100)
    assert one.excess == 3

    batch = one.take()
    assert sizes(batch) == [6]
    assert one.excess == 2

    one.settle(back=batch)
    assert one.excess == 3
