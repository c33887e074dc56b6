"""Which crawl a start belongs to, where an earlier version or another start was there before."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model import crawl_arguments
from scrapy_itemgraph.model.crawl_arguments import CrawlStart
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.store.registry import crawl_starts

pytestmark = pytest.mark.server

MUSIC = CrawlStart("cats", {"cat": "music"})
SET_OLD = sa.text("UPDATE crawls SET given = NULL, arguments = CAST(:digests AS json)")


def start(connection, given: CrawlStart) -> crawl_starts.Started:
    """Find or make the crawl of a start."""
    return crawl_starts.find_or_make(connection, given)


def test_an_old_crawl_of_other_arguments_is_not_joined_while_its_work_waits(crawl):
    """Its stored digests tell; when nothing waits there is a warning."""
    old = {"digests": json.dumps(crawl_arguments.old_digests({"cat": "books"}))}
    with crawl.engine.begin() as connection:
        name = connection.scalar(sa.text("SELECT name FROM crawls"))
        join = CrawlStart("cats", {"cat": "music"}, name=name)
        connection.execute(SET_OLD, old)
        assert "goes on with other arguments" in start(connection, join).warnings[0]
        connection.execute(SET_OLD, old)
        crawl.operate(connection, CreateItem("A", tags=["book"], data={"url": "http://a.example"}))
        with pytest.raises(ConfigurationError, match="has work of a start with other arguments"):
            start(connection, join)


def test_a_spider_of_many_crawls_is_told_how_there_will_be_fewer(crawl, monkeypatch):
    """A start that makes one more names its arguments and the setting that ignores some."""
    monkeypatch.setattr(crawl_starts, "MANY", 2)
    with crawl.engine.begin() as connection:
        made = [start(connection, CrawlStart("cats", {"day": str(day)})) for day in range(3)]

    assert [one.warnings for one in made[:2]] == [(), ()]
    assert "3 crawls, one for each of its arguments (day)" in made[2].warnings[0]
    assert "ITEMGRAPH_IGNORED_ARGUMENTS" in made[2].warnings[0]


@pytest.mark.parametrize("is_old", [False, True])
def test_two_equal_starts_at_once_have_one_crawl(crawl, pair, is_old):
    """The second waits for the first to have made it, or to have adopted an old one."""
    one, other = pair
    if is_old:
        old = {"digests": json.dumps(crawl_arguments.old_digests(MUSIC.given))}
        with crawl.engine.begin() as connection:
            connection.execute(SET_OLD, old)
            connection.execute(sa.text("UPDATE crawls SET name = 'cats'"))

    first = one.run(start, MUSIC)
    answer = other.start(start, MUSIC)
    other.until_blocked()
    one.commit()
    second = answer.result()
    other.commit()

    assert (second.crawl_id, second.name) == (first.crawl_id, first.name)
