"""What is told of a page is written with its attempt, by a statement that others do not send."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa
from support import graphs
from support.statements import name_of

from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.page_records import PageRecord
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.store.admin import status

pytestmark = pytest.mark.server
RECORD = PageRecord(status=200, url="https://a.example/", links=2)


def written(crawl, claim, *operations, page=None, **fields):
    """End a claim; return which statements wrote attempts, and what the attempt tells."""
    names: list[str] = []

    def note(_connection, _cursor, statement, *_):
        names.append(name_of(statement))

    sa.event.listen(crawl.connection, "before_cursor_execute", note)
    crawl.commit(replace(graphs.changeset(claim, *operations, **fields), page=page))
    sa.event.remove(crawl.connection, "before_cursor_execute", note)
    told = status.attempts(crawl.connection, claim.item_id, limit=1)[0].page
    return [name for name in names if name.startswith("attempts.RECORD")], told


def test_a_commit_that_tells_of_no_page_sends_what_it_always_sent(connection):
    """MNB-13: nothing is paid by who does not ask for it."""
    crawl = graphs.Crawl.of(connection)

    assert written(crawl, crawl.claimed("A")) == (["attempts.RECORD_ATTEMPTS"], None)


def test_new_links_are_those_that_the_commit_made(connection):
    """MNB-13: of items that an execution creates those count that were not there."""
    crawl = graphs.Crawl.of(connection)
    crawl.work("KNOWN")
    found = [CreateItem("KNOWN", ["page"]), CreateItem("NEW", ["page"])]

    names, told = written(crawl, crawl.claimed("A"), *found, page=RECORD)

    assert names == ["attempts.RECORD_WITH_MORE"]
    assert (told["status"], told["links"], told["new_links"]) == (200, 2, 1)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.RETRY, Outcome.REFUSED])
def test_an_attempt_that_came_to_nothing_tells_as_well(connection, outcome):
    """MNB-13: however it ended; nothing was made, so that no link is new."""
    crawl = graphs.Crawl.of(connection)
    error = ErrorRecord(type="http 500", message="no")

    _, told = written(crawl, crawl.claimed("A"), page=RECORD, outcome=outcome, error=error)

    assert (told["url"], told["new_links"]) == ("https://a.example/", 0)
