"""Failures that are alike: a worker tells how many it had, and they are counted by run."""

from __future__ import annotations

from scrapy import Request
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider

from scrapy_itemgraph import RenameItem

GROUPS = """
    SELECT g.number, g.times, CAST(g.runs AS text), count(f.id)
    FROM failure_groups g LEFT JOIN failures f ON f.fingerprint = g.fingerprint
    GROUP BY 1, 2, 3 ORDER BY 1
"""


class Failing(Spider):
    """Three pages that fail alike, one whose operation cannot be carried out, and a good one."""

    async def start(self):
        for page in ("1", "2", "3", "operation", "good"):
            yield Request(f"{self.site}{page}")

    def parse(self, response):
        page = response.url.rpartition("/")[2]
        if page == "operation":
            yield RenameItem(to="x" * 9000)
        if page != "good":
            raise ValueError(f"no price on page {page}")


@deferred_f_from_coro_f
async def test_failures_are_counted_by_what_is_alike_and_by_run(crawl_of, site):
    """A group has all that is stored as failures of it; a later run adds to it, its number stays.

    A run without failures tells nothing.
    """
    first = await crawl_of(Failing).run(site.url)
    counted = first.rows(GROUPS)
    second = await crawl_of(Failing).run(site.url)

    assert sorted(row[1] for row in counted) == [1, 3]
    assert all(times == stored for _, times, _, stored in counted)
    assert {row[2].replace(" ", "") for row in counted} == {'{"1":1}', '{"1":3}'}
    again = second.rows(GROUPS)
    assert [(row[0], row[1] * 2, row[1] * 2) for row in counted] == [
        (number, times, stored) for number, times, _, stored in again
    ]
