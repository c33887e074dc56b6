"""What callbacks log of their item, found again after the crawl."""

from __future__ import annotations

import pytest

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for name in ("GOOD", "BAD", "RETRIED", "QUIET"):
            yield seed(name, "/flaky/1" if name == "RETRIED" else "/page")

    def request(self, item):
        if item.id != "QUIET":
            item.log("info", f"try {item.attempt}")
        return scrapy.Request(item.data["url"])

    @task(tags=["page"], backoff=0.1, request=request)
    def parse(self, response, item):
        if item.id == "QUIET":
            return
        yield response.follow("/page?more", self.parse_more)

    def parse_more(self, response, item):
        item.log("price", "a\\0b")
        if item.id == "BAD":
            raise ValueError("no price")
        yield UpdateData({"done": True})
"""

LOGS = """
    SELECT i.name, a.outcome, a.log->0->>'message', a.log->1->>'category', a.log->1->>'message',
        json_array_length(a.log)
    FROM attempts a JOIN items i ON i.id = a.item_id ORDER BY i.name, a.id
"""


@pytest.mark.tracebacks("ValueError: no price")
def test_logs_of_executions_are_kept(project):
    """SRAP-53: each attempt has what its callbacks logged, follow-ups included."""
    project.write(SPIDER)

    assert project.crawl().code == 0

    assert project.rows(LOGS) == [
        ("BAD", "failed", "try 1", "price", "a\u2400b", 2),
        ("GOOD", "ok", "try 1", "price", "a\u2400b", 2),
        ("QUIET", "ok", None, None, None, None),
        ("RETRIED", "retry", "try 1", None, None, 1),
        ("RETRIED", "ok", "try 2", "price", "a\u2400b", 2),
    ]
    ((number,),) = project.rows("SELECT id FROM failures")
    assert "s [info] try 1" in project.scrapy("itemgraph", "failures", str(number)).output


def test_keep_logs_0_keeps_none(project):
    """With ITEMGRAPH_KEEP_LOGS = 0 lines go to Python's log alone."""
    project.write(SPIDER.replace('"BAD", "RETRIED", ', ""), "ITEMGRAPH_KEEP_LOGS = 0")

    run = project.crawl()

    assert "[info] GOOD (parse): try 1" in run.log
    assert project.rows("SELECT DISTINCT CAST(log AS text) FROM attempts") == [(None,)]
