"""Crawls on the embedded server, in a directory as people have them."""

from __future__ import annotations

import signal
import time

from projects import Project

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(60):
            yield CreateItem(f"ITEM:{number}", tags=["item"], data={"number": number})

    @task(tags=["item"], download=False)
    async def work(self, response, item):
        await asyncio.sleep(float(os.environ.get("PAUSE", "0")))
        yield UpdateMetadata({"number": item.data["number"]})
"""

SETTINGS = """
ITEMGRAPH_DATABASE_URL = None
ITEMGRAPH_LEASE = 3600
CONCURRENT_REQUESTS = 4
"""


def test_claims_of_the_dead_are_taken_over_also_when_a_command_stopped_the_server(
    tmp_path, monkeypatch
):
    """Kill -9, `scrapy itemgraph status`, and the next crawl does all without waiting a lease."""
    directory = tmp_path / "my projects"
    directory.mkdir()
    project = Project(directory, "").write(SPIDER, SETTINGS)
    monkeypatch.setenv("PAUSE", "0.2")
    crawl = project.start("crawl", "s")
    deadline = time.monotonic() + 60
    while "[ok]" not in project.log() and time.monotonic() < deadline:
        assert crawl.poll() is None, project.log()
        time.sleep(0.02)  # reading the log again is all the waiting there is
    crawl.send_signal(signal.SIGKILL)
    crawl.wait()
    monkeypatch.setenv("PAUSE", "0")

    status = project.scrapy("itemgraph", "status")
    rest = project.crawl()

    assert status.code == 0, status.log
    assert rest.stats["finish_reason"] == "finished", rest.log
    assert 0 < rest.stats["itemgraph/committed"] < 60
    assert "60 results are fresh" in rest.log
