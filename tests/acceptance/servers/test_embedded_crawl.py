"""Crawls on the embedded server, in a directory as people have them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support.projects import Project, until

from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.slow
def test_thirty_first_starts_at_once_share_one_new_server(tmp_path):
    """On a directory without a server all go on: one makes it, one makes the schema."""
    project = Project(tmp_path, "").write(SPIDER, "ITEMGRAPH_DATABASE_URL = None")
    started = [project.start("crawl", "s") for _ in range(30)]
    runs = [project.finish(process, 900) for process in started]

    assert {run.code for run in runs} == {0}, "".join(run.log for run in runs)
    assert "60 results are fresh" in project.crawl().log


PAGES = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/gate", SITE + "/page/0"]

    def parse(self, response):
        number = int("0" + response.url.rpartition("/")[2].strip("gate"))
        if "/page/" in response.url and number < 60:
            yield response.follow(f"/page/{number + 1}")
"""


def kill_postmaster(data_dir: Path) -> None:
    """Kill -9 the postmaster alone; its children notice, and go."""
    postmaster_of(data_dir).kill()


def kill_all_of_postgres(data_dir: Path) -> None:
    """Kill -9 the postmaster and all its children, as the kernel does when memory runs out."""
    postmaster = postmaster_of(data_dir)
    for process in (*postmaster.children(recursive=True), postmaster):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def postmaster_of(data_dir: Path) -> psutil.Process:
    """Return the server's first process."""
    return psutil.Process(int((data_dir / "cluster" / "postmaster.pid").read_text().split()[0]))


@pytest.mark.edge
@pytest.mark.parametrize("count", [1, 2])
def test_a_crawl_starts_its_killed_server_again(tmp_path, site, count):
    """Killed twice, alone and with all its processes, it comes back, and nothing is lost.

    One of the processes starts it, and says how long recovery took; all go on where they were,
    and end by themselves with every page committed once.
    """
    data_dir = tmp_path / "graph"
    settings = f"""
        ITEMGRAPH_DATABASE_URL = None
        ITEMGRAPH_DATA_DIR = {str(data_dir)!r}
        DOWNLOAD_DELAY = 0.02
    """
    projects = []
    for number in range(count):
        directory = tmp_path / f"project-{number}"
        directory.mkdir()
        projects.append(Project(directory, "", site.url).write(PAGES, settings))
    processes = [project.start("crawl", "s") for project in projects]

    def log() -> str:
        return "".join(project.log() for project in projects)

    recoveries = r"The embedded PostgreSQL in \S+ answers again; recovery took \d+\.\d s"
    kills: list[Callable[[Path], None]] = [kill_postmaster, kill_all_of_postgres]
    for times, kill in enumerate(kills, start=1):
        for number in range(times * 20 + 1):  # each has its own time: other tests run meanwhile
            until(lambda page=f"/page/{number}": site.hits[page] > 0, log)
        kill(data_dir)
        until(lambda times=times: len(re.findall(recoveries, log())) == times, log)
    site.may_answer.set()
    runs = [
        project.finish(process, 120) for project, process in zip(projects, processes, strict=True)
    ]

    assert [run.code for run in runs] == [0] * count, log()
    assert {run.stats["finish_reason"] for run in runs} == {"finished"}
    assert log().count("is dead, and is started again") == len(kills)
    assert f"its log is {data_dir}/cluster/server.log" in log()
    assert "ITEMGRAPH_DATABASE_URL" not in log()
    server = EmbeddedServer.start(data_dir)
    outcomes = Project(tmp_path, server.url, site.url).request_outcomes()
    server.close()
    assert outcomes == {path: ["ok"] for path in ("/gate", *(f"/page/{n}" for n in range(61)))}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has PostgreSQL run as another account")
def test_in_a_directory_of_roots_own_nothing_is_opened(tmp_path):
    """A project below a private directory crawls, and no mode on the way there has changed."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    project = Project(private, "").write(SPIDER, SETTINGS)

    run = project.crawl()
    status = project.scrapy("itemgraph", "status", "--json")
    told = project.scrapy("itemgraph", "init", "--json")
    place = Path((private / ".scrapy/itemgraph/place").read_text().strip())
    owner = place.parent
    shutil.rmtree(place)
    gone = project.scrapy("itemgraph", "status")

    assert run.stats["itemgraph/committed"] == 60, run.log
    assert f"so its files are in {place}" in run.log
    assert status.code == 0, status.log
    assert f'"{place}"' in told.output
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert owner == Path("/var/lib/scrapy-itemgraph")
    assert gone.code == 1
    assert "is gone. Bring it back, or remove" in gone.log
