"""Notices sent by real processes: a runner, a crawl by hand, and one that is killed."""

from __future__ import annotations

from support import queued
from support.receivers import receiver

BOOKS = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        return
        yield
"""


def told(there):
    """Return (what, crawl) of what came."""
    return [(one["what"], one["crawl"]) for one in there.documents]


def test_a_runner_tells_of_crawls_that_end_and_a_crawl_by_hand_tells_itself(project, site):
    """The last process sends what it wrote; nobody else is there. No command shows the secret."""
    with receiver() as there:
        hook = f'"{there.url}/?token=hidden"'
        project.write(
            BOOKS,
            settings=f"ITEMGRAPH_NOTIFY_URLS = [{hook}]\n"
            'ITEMGRAPH_NOTIFY_SECRET = "sixteen letters!"',
        )
        queued.add(project, "one", "two")
        by_hand = project.crawl("-s", "ITEMGRAPH_CRAWL=one")
        assert by_hand.code == 0, by_hand.log
        assert told(there) == [("finished", "one")]
        run = project.finish(queued.work(project, "--once"))
        assert run.code == 0, run.log

    assert told(there) == [("finished", "one"), ("finished", "two")]
    assert all("webhook-signature" in headers for headers, _ in there.came)
