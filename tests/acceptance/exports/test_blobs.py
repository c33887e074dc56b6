"""Crawls that attach binary data: killed at any moment, with stores that are away, full or slow."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import time
from pathlib import Path

import pytest
from support.projects import kill, until

from scrapy_itemgraph.graph import ItemGraph

# In a dose for `make test`; `make chaos` gives 200.
KILLS = 200 if os.environ.get("ITEMGRAPH_TEST_SLOW") == "1" else 4

PAGES = """
import hashlib
import json
import time


def body(number, size):
    return hashlib.sha256(str(number).encode()).digest() * (size // 32)


class S(scrapy.Spider):
    name = "s"
    count = "60"
    pause = "0"

    def seeds(self):
        for number in range(int(self.count)):
            yield seed(f"PAGE:{number}", f"/page/{number}")

    @task(tags=["page"])
    async def parse(self, response, item):
        number = int(item.id.partition(":")[2])
        yield AttachBlob("page", response)
        yield AttachBlob("../x", body(number, 50_000), mime="application/octet-stream")
        yield AttachBlob("same", b"the same for all")
        yield AttachBlob("empty", b"")
        await asyncio.sleep(float(self.pause))
        yield UpdateData({"done": True})
"""


def committed(project) -> int:
    """Return how many executions were committed."""
    ((count,),) = project.rows("SELECT count(*) FROM attempts WHERE outcome = 'ok'")
    return count


def expected(number: int) -> bytes:
    """Return what the spider makes for a page."""
    return hashlib.sha256(str(number).encode()).digest() * (50_000 // 32)


def check(project, place: str, count: int) -> None:
    """Check that each item has its blobs, whole, and that after collection there is no other."""
    with ItemGraph.open(project.url, "s", blobs=place) as graph:
        graph.blobs.collect(now=True)
        for number in range(count):
            item = f"PAGE:{number}"
            found = {
                one.name: b"".join(graph.blobs.read(item, one.name))
                for one in graph.blobs.list(item)
            }
            assert found.keys() == {"page", "../x", "same", "empty"}, item
            assert found["../x"] == expected(number)
            assert (found["same"], found["empty"]) == (b"the same for all", b"")
            assert b"html" in found["page"]
    ((named, all_of_them, states),) = project.rows(
        "SELECT count(DISTINCT content_id), (SELECT count(*) FROM blob_contents), "
        "(SELECT string_agg(DISTINCT state, ',') FROM blob_contents) FROM blobs"
    )
    assert (named, states) == (all_of_them, "stored")
    if place != "database":
        assert sum(one.is_file() for one in Path(place).rglob("*")) == named


@pytest.mark.parametrize("where", ["database", "folder"])
def test_after_kills_each_attached_blob_is_whole_and_nothing_else_is_left(project, where):
    """Killed at any moment, also between content and commit, a crawl goes on where it was."""
    place = "database" if where == "database" else str(project.directory / "blobs")
    count = KILLS * 25 + 20
    project.write(PAGES, f"ITEMGRAPH_BLOBS = {place!r}\nCONCURRENT_REQUESTS_PER_DOMAIN = 4")
    chance = random.Random(where)
    kills = 0
    while kills < KILLS:
        before = committed(project)
        process = project.start("crawl", "s", "-a", f"count={count}", "-a", "pause=0.05")
        while committed(project) == before and process.poll() is None:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.1))
        if process.poll() is not None:
            break
        kill(process)
        kills += 1
    project.crawl("-a", f"count={count}")
    with ItemGraph.open(project.url, "s") as graph:
        graph.failures.handle()  # what so many kills in a row have made suspect
    run = project.crawl("-a", f"count={count}")

    assert run.code == 0, run.log
    assert run.stats["reason"] == "finished", run.log
    assert sum("done" in data for data in project.data().values()) == count
    check(project, place, count)
    assert kills == KILLS


KILLED_BETWEEN = """
from scrapy_itemgraph.graph.commits import Commits

commit = Commits.commit


async def killed(self, changesets, **given):
    if any(one.attached for one in changesets) and os.environ.get("KILL"):
        os.kill(os.getpid(), 9)
    return await commit(self, changesets, **given)


Commits.commit = killed
"""


def test_a_worker_killed_between_content_and_commit_leaves_nothing_behind(project, monkeypatch):
    """What it wrote is not visible, its pages are done again, and its contents are collected."""
    place = str(project.directory / "blobs")
    project.write(KILLED_BETWEEN + PAGES, f"ITEMGRAPH_BLOBS = {place!r}")
    monkeypatch.setenv("KILL", "1")
    assert project.crawl("-a", "count=5").code == -9
    assert project.rows("SELECT count(*) FROM blobs") == [(0,)]
    (left,) = project.rows("SELECT count(*) FROM blob_contents WHERE state = 'stored'")[0]
    assert left

    monkeypatch.delenv("KILL")
    run = project.crawl("-a", "count=5")
    assert run.code == 0, run.log
    check(project, place, 5)


BESIDE = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(40):
            yield seed(f"PAGE:{number}", f"/page/{number}")

    @task(tags=["page"])
    def parse(self, response, item):
        if int(item.id.partition(":")[2]) % 2:
            yield AttachBlob("page", response)
        yield UpdateData({"done": True})
"""


def test_a_store_that_is_away_is_waited_for_and_holds_up_nobody_else(project):
    """What attaches waits in the process, all else is committed meanwhile; then it goes on."""
    place = project.directory / "blobs"
    place.write_text("a file where the folder was")
    project.write(BESIDE, f"ITEMGRAPH_BLOBS = {str(place)!r}")
    process = project.start("crawl", "s")
    project.wait_for("cannot be written: Not a directory. What attaches blobs waits")
    until(lambda: sum("done" in one for one in project.data().values()) == 20, project.log)
    assert project.rows("SELECT count(*) FROM blobs") == [(0,)]
    place.unlink()
    run = project.finish(process)

    assert run.code == 0, run.log
    assert "The blob store is back" in run.log
    assert sum("done" in one for one in project.data().values()) == 40
    assert project.rows("SELECT count(*) FROM blobs") == [(20,)]
    assert project.errors() == []
    assert set(project.outcomes()["PAGE:1"]) == {"ok"}


def test_a_store_that_is_away_for_longer_has_work_tried_again_later(project):
    """It is no failure that waits for a person: the pair has an attempt to come."""
    place = project.directory / "blobs"
    place.write_text("a file where the folder was")
    project.write(
        BESIDE,
        f'ITEMGRAPH_BLOBS = {str(place)!r}\nITEMGRAPH_PATIENCE = 1\nITEMGRAPH_LEASE = "10s"',
    )
    process = project.start("crawl", "s")
    until(lambda: project.rows("SELECT 1 FROM work WHERE not_before IS NOT NULL"), project.log)
    process.terminate()
    run = project.finish(process)

    assert project.errors() == []
    assert any(
        (outcome, error) == ("retry", "BlobStoreError")
        for _, _, outcome, error in project.attempts()
    ), run.log


SEEDED = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE:0", "/page/0")
        yield AttachBlob("of seeds", b"a seed", id="PAGE:0")

    async def start(self):
        yield CreateItem("START")
        yield AttachBlob("of start()", b"a start", id="START")

    @task(tags=["page"])
    def parse(self, response, item):
        yield UpdateData({"done": True})
"""
SEEDS_ALONE = (
    SEEDED.partition("    async def start")[0] + "    @task" + SEEDED.partition("@task")[2]
)
START_ALONE = SEEDED.replace('        yield AttachBlob("of seeds", b"a seed", id="PAGE:0")\n', "")


def test_seeds_wait_for_a_store_that_is_away(project):
    """A start goes on when the store is back, and what it attaches is there."""
    place = project.directory / "blobs"
    place.write_text("a file where the folder was")
    project.write(SEEDED, f"ITEMGRAPH_BLOBS = {str(place)!r}")
    process = project.start("crawl", "s")
    project.wait_for("cannot be written: Not a directory. What attaches blobs waits")
    assert project.rows("SELECT 1 FROM items WHERE name = 'PAGE:0'") == []
    place.unlink()
    run = project.finish(process)

    assert run.code == 0, run.log
    assert project.rows("SELECT name FROM blobs ORDER BY 1") == [("of seeds",), ("of start()",)]
    assert project.data()["PAGE:0"]["done"]


@pytest.mark.parametrize(
    ("spider", "who", "items"),
    [(SEEDS_ALONE, "seeds", 0), (START_ALONE, "start()", 2)],
    ids=["seeds", "start"],
)
def test_a_start_whose_store_stays_away_ends_and_says_so(project, spider, who, items):
    """Beyond the patience an error names who attaches and the store; nothing of it is half made."""
    place = project.directory / "blobs"
    place.write_text("a file where the folder was")
    settings = f'ITEMGRAPH_BLOBS = {str(place)!r}\nITEMGRAPH_PATIENCE = 1\nITEMGRAPH_LEASE = "10s"'
    project.write(spider, settings)
    run = project.crawl()

    assert run.code == 1, run.log
    assert run.stats["reason"] == "itemgraph_error"
    assert f"spider s, {who}: " in run.log
    assert "cannot be written: Not a directory. It was waited for 1s (ITEMGRAPH_PATI" in run.log
    assert len(project.rows("SELECT 1 FROM items")) == items
    assert project.rows("SELECT 1 FROM blobs") == []
    assert project.claimed() == 0

    place.unlink()
    assert project.crawl().code == 0
    assert len(project.rows("SELECT 1 FROM blobs")) == 1


LARGE = """
import pathlib


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("LARGE")
        yield seed("SMALL")

    @task(tags=["page"])
    def parse(self, response, item):
        if item.id == "LARGE":
            yield AttachBlob("file", pathlib.Path("large.bin"))
        else:
            yield AttachBlob("file", pathlib.Path("nothing.bin"))
"""


def test_a_file_is_streamed_into_the_store_and_one_that_is_not_there_fails_its_page(project):
    """The content is the file's; the failure names the file."""
    place = project.directory / "blobs"
    data = os.urandom(5_000_000)
    (project.directory / "large.bin").write_bytes(data)
    project.write(LARGE, f"ITEMGRAPH_BLOBS = {str(place)!r}")
    run = project.crawl()

    assert run.code == 0, run.log
    with ItemGraph.open(project.url, "s", blobs=place) as graph:
        assert b"".join(graph.blobs.read("LARGE", "file")) == data
    ((_, message),) = project.errors()
    assert "nothing.bin cannot be read: No such file" in message


def test_a_simulation_shows_what_it_would_attach_and_writes_none_of_it(project):
    """Names, sizes, types and hashes stand in its diff; no row and no file is left of it."""
    place = project.directory / "blobs"
    project.write(PAGES, f"ITEMGRAPH_BLOBS = {str(place)!r}")
    url = f"{project.site_url}/page"
    run = project.scrapy(
        "itemgraph", "simulate", "s", "parse", "PAGE:1", "--url", url, "--tag", "page"
    )

    assert run.code == 0, run.log
    assert "+ blob page: " in run.output
    assert "bytes, text/html" in run.output
    assert "+ blob empty: 0 bytes, e3b0c442" in run.output
    assert not place.exists()
    assert project.rows("SELECT 1 FROM blob_contents UNION ALL SELECT 1 FROM blobs") == []


def test_the_commands_list_write_and_collect_binary_data(project):
    """`blobs` and `show` name them, and `blob` writes one to FILE and nowhere else."""
    project.write(PAGES)
    assert project.crawl("-a", "count=1").code == 0
    listed = project.scrapy("itemgraph", "blobs", "PAGE:0")
    assert "../x" in listed.output
    assert "application/octet-stream" in listed.output
    assert "../x: 49,984 bytes" in project.scrapy("itemgraph", "show", "PAGE:0").output
    as_json = json.loads(project.scrapy("itemgraph", "blobs", "PAGE:0", "--json").output)
    assert [one["name"] for one in as_json] == ["../x", "empty", "page", "same"]

    run = project.scrapy("itemgraph", "blob", "PAGE:0", "../x", "-o", "out/x.bin")
    assert (run.code, "out/x.bin cannot be written" in run.log) == (1, True)
    before = {one for one in project.directory.iterdir() if "put-" not in one.name}
    run = project.scrapy("itemgraph", "blob", "PAGE:0", "../x", "-o", "x.bin")
    assert run.output == "49,984 bytes to x.bin\n"
    assert (project.directory / "x.bin").read_bytes() == expected(0)
    after = {one for one in project.directory.iterdir() if "put-" not in one.name}
    assert {one.name for one in after - before if "log-" not in one.name} == {"x.bin"}
    shown = project.scrapy("itemgraph", "blob", "PAGE:0", "same", "-o", "-")
    assert shown.output == "the same for all"
    missing = project.scrapy("itemgraph", "blob", "PAGE:0", "sane", "-o", "x.bin")
    assert "did you mean 'same'" in missing.log
    assert (project.directory / "x.bin").read_bytes() == expected(0)

    project.scrapy("itemgraph", "delete", "PAGE:0")
    assert "deleted 0 contents" in project.scrapy("itemgraph", "collect-blobs").output
    assert "deleted 4 contents" in project.scrapy("itemgraph", "collect-blobs", "--now").output


FULL = """
import resource

_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
if os.environ.get("FULL"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, most))


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(20):
            yield seed(f"PAGE:{number}", f"/page/{number}")

    @task(tags=["page"])
    def parse(self, response, item):
        size = 500_000 if item.id == "PAGE:7" else 500
        yield AttachBlob("page", item.id.encode() * size)
        yield UpdateData({"done": True})
"""


def test_a_store_that_is_full_in_mid_write_is_waited_for_and_shows_no_part(project, monkeypatch):
    """What fits is committed meanwhile; when there is room again, the rest is, and whole."""
    place = project.directory / "blobs"
    project.write(FULL, f"ITEMGRAPH_BLOBS = {str(place)!r}\nLOG_LEVEL = 'INFO'")
    monkeypatch.setenv("FULL", "1")
    process = project.start("crawl", "s")
    project.wait_for("cannot be written: File too large. What attaches blobs waits")
    until(lambda: sum("done" in one for one in project.data().values()) == 19, project.log)
    assert "done" not in project.data()["PAGE:7"]
    assert not [one for one in place.rglob("*") if one.suffix == ".part"]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE))
    run = project.finish(process)

    assert run.code == 0, run.log
    assert "The blob store is back" in run.log
    with ItemGraph.open(project.url, "s", blobs=place) as graph:
        assert b"".join(graph.blobs.read("PAGE:7", "page")) == b"PAGE:7" * 500_000
        graph.blobs.collect(now=True)
    assert sum(one.is_file() for one in place.rglob("*")) == 20
