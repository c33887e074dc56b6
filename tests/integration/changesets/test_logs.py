"""Logs of attempts: what callbacks logged of their item."""

from __future__ import annotations

import pytest
from support import graphs

from scrapy_itemgraph import MergeItem, RenameItem
from scrapy_itemgraph.model.attempt_logs import LogLine
from scrapy_itemgraph.model.failure_filters import EVERY
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store import open_failures
from scrapy_itemgraph.store.admin import status


@pytest.fixture
def crawl(connection):
    """Return a crawl with a task."""
    return graphs.Crawl.of(connection)


@pytest.mark.parametrize(
    "outcome", [Outcome.OK, Outcome.RETRY, Outcome.FAILED, Outcome.REFUSED, Outcome.RELEASED]
)
def test_a_log_is_kept_with_the_attempt_however_it_ended(crawl, outcome):
    """SRAP-53: what callbacks logged stands with the attempt, also where nothing else is kept."""
    lines = [LogLine(0.25, "info", "a"), LogLine(1.5, "price", "b")]

    crawl.end(crawl.claimed("A"), outcome=outcome, log=lines)

    (attempt, *_) = status.attempts(crawl.connection, crawl.item_id("A"), limit=10)
    assert attempt.outcome == outcome
    assert attempt.log == [line._asdict() for line in lines]


def test_the_log_of_an_execution_whose_operation_fails_is_kept(crawl):
    """An operation that cannot be carried out discards the others, and not the log."""
    line = LogLine(0.25, "info", "a")

    crawl.end(crawl.claimed("A"), RenameItem(to="B"), MergeItem(into="nobody"), log=[line])

    (attempt, *_) = status.attempts(crawl.connection, crawl.item_id("A"), limit=10)
    assert (attempt.outcome, attempt.log) == ("failed", [line._asdict()])
    (failure,) = open_failures.page(crawl.connection, crawl.id, EVERY).rows
    assert failure.log == attempt.log


def test_attempts_that_logged_nothing_have_no_log(crawl):
    """Without a line the column is null."""
    crawl.done("A")

    assert crawl.rows("SELECT DISTINCT CAST(log AS text) FROM attempts") == [(None,)]


def test_the_log_of_a_failure_goes_with_a_merge(crawl):
    """SRAP-43: a failure that went with its item to another one still has its log."""
    crawl.item("B")
    line = LogLine(0.25, "info", "a")
    crawl.end(crawl.claimed("A"), outcome=Outcome.FAILED, log=[line])

    crawl.do(MergeItem(id="A", into="B"))

    (failure,) = open_failures.page(crawl.connection, crawl.id, EVERY).rows
    assert (failure.item, failure.log) == ("B", [line._asdict()])
