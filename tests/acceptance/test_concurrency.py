"""How many requests are under way at once."""

from __future__ import annotations

import pytest
import sites

pytestmark = pytest.mark.edge

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for n in range(30):
            yield seed(f"PAGE:{n}", f"/slow/0.03/{n}")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"done": True})
        yield scrapy.Request(response.url + "?more", self.more)

    def more(self, response, item):
        yield UpdateData({"more": True})
"""


@pytest.mark.parametrize(
    ("setting", "most"),
    [
        ("CONCURRENT_REQUESTS_PER_DOMAIN = 2", 2),
        ('DOWNLOAD_SLOTS = {"127.0.0.1": {"concurrency": 3}}', 3),
        ("CONCURRENT_REQUESTS = 1", 1),
    ],
)
def test_the_limit_of_a_slot_holds(project, site, monkeypatch, setting, most):
    """No more requests of a slot are under way than the project's settings allow."""
    under_way, peak = 0, 0
    answer = sites.Site.answer

    def counted(self, target):
        nonlocal under_way, peak
        under_way += 1
        peak = max(peak, under_way)
        try:
            return answer(self, target)
        finally:
            under_way -= 1

    monkeypatch.setattr(sites.Site, "answer", counted)
    project.write(SPIDER, settings=setting)

    run = project.crawl()

    assert set(map(tuple, project.outcomes().values())) == {("ok",)}, run.log
    assert peak == most
