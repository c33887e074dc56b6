"""A database that goes away, a disk that is full, clocks that differ: the crawl goes on."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from support import servers
from support.projects import Project, until

if TYPE_CHECKING:
    from collections.abc import Iterator

SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        yield {"number": number}
        if number < 60:
            ballast = os.urandom(40_000).hex()
            yield response.follow(f"/page/{number + 1}", meta={"ballast": ballast})
"""


@pytest.fixture
def server() -> Iterator[servers.Server]:
    """Run a server of the test's own."""
    with servers.own_postgres() as one:
        yield one


def test_a_server_that_is_gone_for_good_ends_the_crawl_for_a_reason_of_its_own(
    server, tmp_path, site
):
    """After ITEMGRAPH_PATIENCE the spider closes; when the server is back a start goes on."""
    project = Project(tmp_path, server.url, site.url)
    project.write(SPIDER, settings='ITEMGRAPH_PATIENCE = "2s"\nITEMGRAPH_LEASE = 3')
    process = project.start("crawl", "s")
    until(lambda: site.hits["/page/5"] > 0, project.log)
    server.stop()

    run = project.finish(process)

    assert run.code == 1
    assert run.stats["reason"] == "itemgraph_database_gone", run.log
    assert run.log.count("The crawl waits for it up to 2s") == 1
    server.start()
    run = project.crawl()
    assert run.stats["reason"] == "finished", run.log
    assert project.request_outcomes().keys() == {f"/page/{n}" for n in range(61)}
    assert site.hits["/page/0"] == 1


def test_a_server_that_comes_back_finds_the_crawl_waiting(server, tmp_path, site):
    """While the server is away the spider says so once and waits; then it loses nothing."""
    project = Project(tmp_path, server.url, site.url)
    project.write(SPIDER)
    process = project.start("crawl", "s")
    until(lambda: site.hits["/page/5"] > 0, project.log)
    server.stop()
    project.wait_for("The crawl waits for it up to 15m")
    server.start()

    run = project.finish(process)

    assert run.code == 0
    assert run.stats["reason"] == "finished", run.log
    assert run.log.count("The crawl waits for it") == 1
    assert run.log.count("The database answers again") == 1
    assert project.request_outcomes().keys() == {f"/page/{n}" for n in range(61)}
    assert "failed" not in str(project.request_outcomes())


def test_a_full_disk_on_the_server_is_waited_for(tmp_path, site):
    """While the server has no disk space left the crawl waits, and loses nothing."""
    with servers.small_disk(300) as disk, servers.own_postgres(disk) as server:
        project = Project(tmp_path, server.url, site.url)
        project.write(SPIDER)
        process = project.start("crawl", "s")
        until(lambda: site.hits["/page/5"] > 0, project.log)
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1 << 16)):
                pass
        project.wait_for("has no disk space left")
        ballast.unlink()

        run = project.finish(process)

        assert run.stats["reason"] == "finished", run.log
        assert project.request_outcomes().keys() == {f"/page/{n}" for n in range(61)}
        assert "failed" not in str(project.request_outcomes())


def test_clocks_of_hosts_may_differ_by_an_hour(project, site, tmp_path):
    """Times come from the server alone: a worker whose clock is fast neither expires nor steals."""
    project.write(
        """
        class S(scrapy.Spider):
            name = "s"
            start_urls = [SITE + "/page/0"]

            def parse(self, response):
                number = int(response.url.rpartition("/")[2])
                if number < 40:
                    meta = {"itemgraph_ttl": "30m"}
                    if not number:
                        yield response.follow("/gate/99", meta=meta)
                    yield response.follow(f"/page/{number + 1}", meta=meta)
                    yield response.follow(f"/page/{number + 100}", meta=meta)
        """
    )
    fast = tmp_path / "fast"
    fast.mkdir()
    (fast / "sitecustomize.py").write_text(
        "import time\nnow = time.time\ntime.time = lambda: now() + 3600\n"
    )
    slow = project.start("crawl", "s")
    processes = [slow, project.start("crawl", "s", PYTHONPATH=f"{fast}")]
    until(lambda: len(project.rows("SELECT 1 FROM workers")) == 2, project.log)
    site.release()

    for process in processes:
        assert project.finish(process).code == 0
    run = project.start("crawl", "s", PYTHONPATH=f"{fast}")
    assert project.finish(run).code == 0

    assert {page: hits for page, hits in site.hits.items() if hits > 1} == {"/page/0": 2}
    outcomes = project.request_outcomes()
    assert outcomes.pop("/page/0") == ["ok", "ok"]
    assert set(map(tuple, outcomes.values())) == {("ok",)}
    ages = project.rows("SELECT max(abs(extract(epoch FROM now() - created_at))) FROM items")
    assert ages[0][0] < 600
