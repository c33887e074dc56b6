"""A worker that has no file descriptor left makes no failures of pages."""

from __future__ import annotations

import pytest

SPIDER = """
import resource


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("first")

    @task(tags=["page"])
    def t_page(self, response, item):
        if item.id == "first":
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            asyncio.get_running_loop().call_later(
                4, resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard)
            )
            for number in range(12):
                yield CreateItem(f"P{number}", ["page"], {"url": f"{SITE}/page/{number}"})
        yield UpdateData({"done": True})
"""


@pytest.mark.edge
def test_a_worker_without_descriptors_gives_its_work_back(project):
    """Its pages wait until there are some, without a try counted; it is said once, and slowly."""
    project.write(
        SPIDER,
        'CONCURRENT_REQUESTS_PER_DOMAIN = 8\nDEFAULT_REQUEST_HEADERS = {"Connection": "close"}',
    )

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    outcomes = project.outcomes()
    assert len(outcomes) == 13
    assert {each[-1] for each in outcomes.values()} == {"ok"}, outcomes
    tried = {one for each in outcomes.values() for one in each}
    assert tried == {"ok", "released"}, outcomes
    assert sum(len(each) for each in outcomes.values()) < 80
    assert run.log.count("This process has no file descriptor left") == 1
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]
