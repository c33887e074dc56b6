"""kill -9 of anything at any instant: `make chaos` does many rounds, `make test` a few."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from projects import Project

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.postgres.server_sharing import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = int(os.environ.get("ITEMGRAPH_CHAOS_ROUNDS", "2"))
PAGES = 40 * (ROUNDS + 4)

SPIDER = """
LIMIT = int(os.environ["PAGES"])


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield CreateItem("TOTAL", data={"pages": 0})
        yield seed("PAGE:0", "/page/0", number=0)

    @task(tags=["page"])
    def parse(self, response, item):
        number = item.data["number"]
        for child in (2 * number + 1, 2 * number + 2):
            if child < LIMIT:
                yield seed(f"PAGE:{child}", f"/page/{child}", number=child)
        yield UpdateData(lambda old: {"pages": old["pages"] + 1}, id="TOTAL")
        yield UpdateMetadata({"kind": response.css("title::text").get().split("/")[1]})
        yield CreateItem(f"GROUP:{number % 7}", tags=["group"])
        yield UpdateData({f"page {number}": True}, id=f"GROUP:{number % 7}")
        if number % 5 == 4:
            # Which of two comes first must not show, so that graphs can be compared.
            larger = lambda *two: max(two, key=lambda data: data["number"])
            yield RenameItem(to=f"FIVES:{number // 10}", if_taken="merge", merge=larger)

    @task(tags=["page"], depends_on=["parse"], download=False)
    async def digest(self, response, item):
        metadata = await item.get_metadata("parse")
        yield UpdateMetadata({"length": len(metadata["kind"])})
"""

SETTINGS = """
LOG_LEVEL = "INFO"
DOWNLOAD_DELAY = 0.01
CONCURRENT_REQUESTS_PER_DOMAIN = 4
ITEMGRAPH_DATABASE_URL = None
ITEMGRAPH_LEASE = 5
"""


@pytest.fixture
def project(tmp_path, site, monkeypatch) -> Project:
    """Return a project on an embedded PostgreSQL of its own, which may be killed."""
    monkeypatch.setenv("PAGES", str(PAGES))
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project", "", site.url).write(SPIDER, SETTINGS)


def graph_of(directory: Path) -> dict[str, tuple]:
    """Return what must be the same however a crawl was disturbed."""
    with ItemGraph.open(crawl="s", data_dir=directory / ".scrapy/itemgraph") as graph:
        assert not graph.worklist()
        assert not graph.failures()
        return {
            item.id: (
                sorted(item.aliases),
                item.tags,
                item.data,
                {r.task: (r.metadata, r.version, r.is_successful) for r in graph.results(item.id)},
            )
            for item in graph.items()
        }


def kill_postgres(directory: Path) -> None:
    """Kill -9 the postmaster; its children notice and go."""
    pid = int((directory / ".scrapy/itemgraph/cluster/postmaster.pid").read_text().split()[0])
    psutil.Process(pid).kill()


def test_whatever_is_killed_the_graph_is_that_of_an_undisturbed_crawl(project, site, tmp_path):
    """Two crawls, one of them or PostgreSQL killed again and again: nothing lost, nothing twice."""
    choice = random.Random(20261121)
    data_dir = project.directory / ".scrapy/itemgraph"
    keeper = EmbeddedServer.start(data_dir)
    workers = [project.start("crawl", "s") for _ in range(2)]
    for _ in range(ROUNDS):
        enough = sum(site.hits.values()) + choice.randint(15, 35)
        deadline = time.monotonic() + 60
        while sum(site.hits.values()) < enough and time.monotonic() < deadline:
            if all(worker.poll() is not None for worker in workers):
                break
            time.sleep(0.01)  # looking at the site's count again is all the waiting there is
        victim = choice.randrange(3)
        if victim == 2:
            kill_postgres(project.directory)
            EmbeddedServer.start(data_dir).close()
        else:
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = project.start("crawl", "s")
    for worker in workers:
        project.finish(worker, 120)
    last = project.crawl()
    keeper.close()

    graph = graph_of(project.directory)
    assert last.stats["finish_reason"] == "finished", last.log
    assert graph["TOTAL"][2] == {"pages": PAGES}
    assert sum(len(graph[f"GROUP:{n}"][2]) for n in range(7)) == PAGES

    other = tmp_path / "undisturbed"
    other.mkdir()
    undisturbed = Project(other, "", site.url).write(SPIDER, SETTINGS)
    assert undisturbed.crawl().stats["finish_reason"] == "finished"
    expected = graph_of(other)
    assert graph.keys() == expected.keys()
    for name, state in expected.items():
        assert graph[name] == state, name
