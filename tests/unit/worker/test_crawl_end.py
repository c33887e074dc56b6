"""What ends a crawl, and how far its start is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, ItemGraphError
from scrapy_itemgraph.worker.crawl_end import CrawlEnd
from scrapy_itemgraph.worker.spider_start import SpiderStart

CRAWLER = SimpleNamespace(engine=None)


async def fail(error: Exception) -> None:
    """Raise an error, as a task beside the crawl may."""
    raise error


@pytest.mark.parametrize(
    ("error", "failure", "is_cut_off"),
    [
        (ItemGraphError("no such task"), "no such task", False),
        (DatabaseUnavailableError("gone"), "gone", True),
        (KeyError("x"), "unexpected KeyError: 'x'", False),
    ],
)
def test_an_error_of_a_task_beside_the_crawl_ends_it(error, failure, is_cut_off):
    """It is said why, and whether the database is gone."""

    async def run() -> CrawlEnd:
        end = CrawlEnd(CRAWLER)
        await end.start_task(fail(error))
        return end

    end = asyncio.run(run())

    assert end.over.is_set()
    assert (end.failure, end.is_cut_off) == (failure, is_cut_off)


def test_the_first_failure_is_the_one_that_is_told():
    """What fails because of it says nothing more."""
    end = CrawlEnd(CRAWLER)

    end.fail("first")
    end.fail("second")

    assert end.failure == "first"


def test_a_start_that_is_wanted_again_has_not_ended():
    """It may end as often as it likes before it has begun once more."""
    start = SpiderStart()
    start.end()
    assert start.has_ended

    start.want_again()
    start.end()
    assert not start.has_ended

    start.begin_again()
    start.end()
    assert start.has_ended
