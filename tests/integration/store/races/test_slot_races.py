"""Races for items that move to another website."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import oracle
from support.raced_books import book

from scrapy_itemgraph.changesets.batch_names import MovedNamesError
from scrapy_itemgraph.model.operations import CreateItem, UpdateData
from scrapy_itemgraph.model.work import Outcome

if TYPE_CHECKING:
    from support.races import Crawl

pytestmark = pytest.mark.server


def moved(host: str) -> UpdateData:
    """Return the operation that gives the book another website."""
    return UpdateData({"url": f"http://{host}/a"}, id="A")


def data(crawl: Crawl) -> dict:
    """Return the book's data, and check the worklist."""
    with crawl.engine.begin() as connection:
        oracle.assert_worklist_is_true(connection, crawl.id)
    ((found,),) = crawl.rows("SELECT data FROM items WHERE name = 'A'")
    return found


def test_an_item_that_moves_to_another_website_is_waited_for(crawl, pair):
    """Whoever waits for its lock finds it there, and changes what the other left."""
    crawl.seed(book("A"), CreateItem("B", data={"url": "http://new.example/"}))
    mover, waiter = pair

    mover.run(crawl.operate, moved("new.example"))
    changing = waiter.start(crawl.operate, UpdateData({"title": "Sapiens"}, id="A"))
    waiter.until_blocked()
    mover.commit()

    assert changing.result().outcome is Outcome.OK
    waiter.commit()
    assert data(crawl) == {"url": "http://new.example/a", "title": "Sapiens"}


def test_a_website_that_nobody_knew_has_the_batch_begin_anew(crawl, pair):
    """It was made after the waiting statement had begun, which therefore cannot see it."""
    crawl.seed(book("A"))
    mover, waiter = pair

    mover.run(crawl.operate, moved("unknown.example"))
    changing = waiter.start(crawl.operate, UpdateData({"title": "Sapiens"}, id="A"))
    waiter.until_blocked()
    mover.commit()

    with pytest.raises(MovedNamesError):
        changing.result()
    waiter.rollback()
    waiter.run(crawl.operate, UpdateData({"title": "Sapiens"}, id="A"))
    waiter.commit()
    assert data(crawl) == {"url": "http://unknown.example/a", "title": "Sapiens"}
