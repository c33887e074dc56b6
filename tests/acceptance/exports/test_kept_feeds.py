"""Feeds that are written from the journal: each item once, whatever was killed."""

from __future__ import annotations

import gzip
import json
import random
import threading
from xml.etree import ElementTree as ET

import pytest
from support.feed_crawls import PAGES, done, kill_at_gate, names_in_csv, spider
from support.projects import kill, until

SPIDER = spider("ab")

SETTINGS = """
CONCURRENT_REQUESTS_PER_DOMAIN = 2
ITEMGRAPH_KEEP_ITEMS = True
FEEDS = {feeds!r}
"""

GZIP = "scrapy.extensions.postprocessing.GzipPlugin"
EVERY = sorted(f"{number}{part}" for number in range(PAGES) for part in "ab")
FEEDS = {
    "out.jl": {"format": "jsonlines"},
    "out.csv": {"format": "csv"},
    "out.json": {"format": "json"},
    "out.xml": {"format": "xml"},
    "out.jl.gz": {"format": "jsonlines", "postprocessing": [GZIP]},
}


def names(path) -> list[str]:
    """Return the names in a feed, sorted."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    text = raw.decode()
    if path.suffix == ".csv":
        found = names_in_csv(text)
    elif path.suffix == ".json":
        found = [row["name"] for row in json.loads(text)]
    elif path.suffix == ".xml":
        found = [item.findtext("name") for item in ET.fromstring(text)]
    else:
        found = [json.loads(line)["name"] for line in text.splitlines()]
    return sorted(found)


@pytest.mark.edge
def test_each_item_once_in_every_feed_after_a_kill(project, site):
    """Lines, whole documents and compressed files have each item once when a second run ends."""
    project.write(SPIDER, SETTINGS.format(feeds=FEEDS))
    kill_at_gate(project, site)

    run = project.crawl()

    assert run.code == 0, run.log
    for name in FEEDS:
        assert names(project.directory / name) == EVERY, name
    assert (project.directory / "out.csv").read_bytes().count(b"name,text") == 1
    assert project.rows("SELECT count(*) FROM feed_items WHERE NOT is_written") == [(0,)]
    assert "Stored jsonlines feed (120 items) in: out.jl" in run.log
    assert not list(project.directory.glob(".*.part"))


LINES = {"out.jl": {"format": "jsonlines"}, "out.csv": {"format": "csv"}}

# Kills the process between the write to a feed and the commit that marks it, the third time.
KILLER = """
import os
import signal

from scrapy_itemgraph.feed_exports import line_files

writes = []
append = line_files.append


def appended(*arguments):
    done = append(*arguments)
    writes.append(done)
    if len(writes) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return done


if not os.path.exists("killed"):
    open("killed", "w").close()
    line_files.append = appended
"""


def test_a_crash_between_the_write_and_its_mark_neither_doubles_nor_loses(project, site):
    """What stands in the file beyond the size that was marked is cut off before it goes on."""
    site.may_answer.set()
    project.write(
        "import proj.killer\n" + SPIDER,
        SETTINGS.format(feeds=LINES) + "ITEMGRAPH_COMMIT_BATCH = 5\nDOWNLOAD_DELAY = 0.02\n",
        killer=KILLER,
    )
    killed = project.crawl()
    assert killed.code == -9, killed.log
    sizes = dict(project.rows("SELECT name, size FROM feeds"))
    assert any((project.directory / name).stat().st_size > sizes[name] for name in LINES)

    run = project.crawl()

    assert run.code == 0, run.log
    for name in LINES:
        assert names(project.directory / name) == EVERY


PLAIN = f"""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        for part in "ab":
            yield {{"name": f"{{number}}{{part}}"}}
        for following in (2 * number + 1, 2 * number + 2):
            if following < {PAGES}:
                yield response.follow(f"/page/{{following}}")
"""


@pytest.mark.parametrize("kept", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_readmes_commands_with_kills_at_any_moment(project, site, kept):
    """`-o` and any number of kill -9: each item once from the journal, at least once without it."""
    site.may_answer.set()
    keeping = f"ITEMGRAPH_KEEP_ITEMS = {kept}\n"
    project.write(PLAIN, keeping + "DOWNLOAD_DELAY = 0.02\n")
    dice = random.Random(5)
    for _ in range(4):
        least = len(done(project)) + dice.randrange(0, 12)
        process = project.start("crawl", "s", "-o", "out.jl")
        until(lambda: len(done(project)) >= least or process.poll() is not None, project.log)  # noqa: B023
        kill(process)

    run = project.crawl("-o", "out.jl")

    assert run.code == 0, run.log
    found = names(project.directory / "out.jl")
    assert (found if kept else sorted(set(found))) == EVERY


def test_a_second_process_goes_on_with_the_feeds_of_one_that_is_killed(
    project, other, site, monkeypatch
):
    """One process at a time writes; when it is killed the other takes over, and none is lost."""
    # Until both are there the last page does not answer, however long they take.
    monkeypatch.setattr(
        site.may_answer, "wait", lambda _: threading.Event.wait(site.may_answer, 170)
    )
    settings = (
        SETTINGS.format(
            feeds={str(project.directory / name): options for name, options in FEEDS.items()}
        )
        + "DOWNLOAD_DELAY = 0.05\n"
    )
    project.write(SPIDER, settings)
    other.write(SPIDER, settings)
    first = project.start("crawl", "s")
    until(lambda: bool(project.rows("SELECT 1 FROM feeds WHERE token IS NOT NULL")), project.log)
    second = other.start("crawl", "s")
    until(lambda: len(project.rows("SELECT 1 FROM workers")) == 2, other.log)
    assert site.arrived.wait(60), project.log()
    kill(first)
    site.may_answer.set()

    run = other.finish(second)

    assert run.code == 0, run.log
    for name in FEEDS:
        assert names(project.directory / name) == EVERY, name


@pytest.mark.slow
def test_who_ends_last_writes_what_others_left(project, other, site):
    """The writer that ends earlier than the rest leaves whole feeds that the last one completes."""
    feeds = {str(project.directory / name): options for name, options in FEEDS.items()}
    settings = SETTINGS.format(feeds=feeds)
    project.write(SPIDER, settings + "CLOSESPIDER_PAGECOUNT = 5\nDOWNLOAD_DELAY = 0.05\n")
    other.write(SPIDER, settings + "DOWNLOAD_DELAY = 0.05\n")
    first = project.start("crawl", "s")
    until(lambda: bool(project.rows("SELECT 1 FROM feeds WHERE token IS NOT NULL")), project.log)
    second = other.start("crawl", "s")
    early = project.finish(first)
    between = len(names(project.directory / "out.json"))
    site.may_answer.set()

    run = other.finish(second)

    assert early.code == run.code == 0, run.log
    assert 0 < between < len(EVERY)
    for name in FEEDS:
        assert names(project.directory / name) == EVERY, name


@pytest.mark.slow
def test_batches_go_on_with_their_ids(project, site):
    """After a kill the files of batches go on where they were, also those of whole documents."""
    options = {"batch_item_count": 25}
    feeds = {
        "b-%(batch_id)d.jl": {"format": "jsonlines", **options},
        "b-%(batch_id)d.json": {"format": "json", **options},
    }
    project.write(SPIDER, SETTINGS.format(feeds=feeds))
    process = project.start("crawl", "s")
    assert site.arrived.wait(60), project.log()
    until((project.directory / "b-2.json").exists, project.log)
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    assert run.code == 0, run.log
    for kind in ("jl", "json"):
        files = sorted(project.directory.glob(f"b-*.{kind}"))
        assert [path.stem for path in files] == ["b-1", "b-2", "b-3", "b-4", "b-5"]
        assert [len(names(path)) for path in files] == [25, 25, 25, 25, 20]
        assert sorted(name for path in files for name in names(path)) == EVERY


THINGS = """
from dataclasses import dataclass

import scrapy
from scrapy import signals
from scrapy.extensions.feedexport import FileFeedStorage, ItemFilter


@dataclass
class Product:
    name: str
    price: int

    def __post_init__(self):
        assert self.price > 0, "made anew"


class Review(scrapy.Item):
    name = scrapy.Field()
    stars = scrapy.Field(serializer=lambda stars: "*" * stars)


class Halve:
    def process_item(self, item):
        if isinstance(item, Product):
            item.price = 0
        return item


class Cheap(ItemFilter):
    def accepts(self, item):
        return isinstance(item, Product) and item.price == 0 and item.name != "2"


class Unsure(FileFeedStorage):
    def __init__(self, uri, *, feed_options=None):
        super().__init__(uri.removeprefix("unsure://"), feed_options=feed_options)

    def store(self, file):
        super().store(file)
        try:
            open("up").close()
        except OSError:
            raise OSError("the storage is down") from None


class Listener:
    @classmethod
    def from_crawler(cls, crawler):
        crawler.signals.connect(cls.slot_closed, signals.feed_slot_closed)
        crawler.signals.connect(cls.exporter_closed, signals.feed_exporter_closed)
        return cls()

    @staticmethod
    def slot_closed(slot):
        print("closed", slot.uri, slot.itemcount)

    @staticmethod
    def exporter_closed():
        print("all closed")
"""

SHOP = """
from proj.things import Product, Review

class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(4):
            yield seed(f"PAGE:{number}", f"/page/{number}", number=number)

    @task(tags=["page"])
    def parse(self, response, item):
        name = str(item.data["number"])
        yield Product(name=name, price=1)
        yield Review(name=name, stars=2)
        yield {"name": name, "who": "dict"}
"""


@pytest.mark.tracebacks("OSError: the storage is down")
def test_filters_classes_signals_stats_and_storages_are_as_before(project):
    """Feeds choose by class and by filters of the project's; what cannot be stored is kept."""
    feeds = {
        "products.jl": {"format": "jsonlines", "item_classes": ["proj.things.Product"]},
        "reviews.csv": {"format": "csv", "item_classes": ["proj.things.Review"]},
        "cheap.jl": {"format": "jsonlines", "item_filter": "proj.things.Cheap"},
        "%(name)s.json": {"format": "json", "item_classes": [dict]},
        "unsure://u-%(name)s.jl": {
            "format": "jsonlines",
            "overwrite": True,
            "item_classes": ["proj.things.Product"],
        },
    }
    settings = (
        SETTINGS.format(feeds=feeds).replace(repr(dict), "dict")
        + """
FEED_STORAGES = {"unsure": "proj.things.Unsure"}
ITEM_PIPELINES = {"proj.things.Halve": 1}
EXTENSIONS["proj.things.Listener"] = 1
"""
    )
    project.write(SHOP, settings, things=THINGS)

    run = project.crawl()

    def lines(name):
        return [json.loads(line) for line in (project.directory / name).read_text().splitlines()]

    assert run.code == 0, run.log
    products = sorted(lines("products.jl"), key=lambda row: row["name"])
    assert products == [{"name": str(number), "price": 0} for number in range(4)]
    assert sorted(row["name"] for row in lines("cheap.jl")) == ["0", "1", "3"]
    reviews = (project.directory / "reviews.csv").read_text().splitlines()
    assert [reviews[0], *sorted(reviews[1:])] == ["name,stars", "0,**", "1,**", "2,**", "3,**"]
    assert names(project.directory / "s.json") == ["0", "1", "2", "3"]
    assert "closed products.jl 4" in run.output
    assert run.output.splitlines()[-1] == "all closed"
    assert run.stats["feedexport/success_count/FileFeedStorage"] == 4
    assert run.stats["feedexport/failed_count/Unsure"] == 1
    assert "the storage is down" in run.log
    (project.directory / "up").touch()
    again = project.crawl()
    assert sorted(row["name"] for row in lines("u-s.jl")) == ["0", "1", "2", "3"], again.log


@pytest.mark.slow
def test_appending_and_overwriting(project, site):
    """`-o` adds a run to what is there, `-O` holds one run, killed or not."""
    site.may_answer.set()
    project.write(SPIDER, "ITEMGRAPH_KEEP_ITEMS = True\n")
    assert project.crawl("-o", "out.jl", "-o", "out.json").code == 0
    for number in (1, 2):
        assert project.scrapy("itemgraph", "expire", f"PAGE:{number}").code == 0

    more = project.crawl("-o", "out.jl", "-o", "out.json")

    assert "will hold only" not in more.log
    new = ["1a", "1b", "2a", "2b"]
    assert names(project.directory / "out.jl") == sorted([*EVERY, *new])
    text = (project.directory / "out.json").read_text()
    documents = [
        json.loads(one + "]") for one in text.replace("][", "]\n[").split("]") if one.strip()
    ]
    assert sorted(row["name"] for rows in documents for row in rows) == sorted([*EVERY, *new])
    for number in (1, 30):
        assert project.scrapy("itemgraph", "expire", f"PAGE:{number}").code == 0
    site.may_answer.clear()
    process = project.start("crawl", "s", "-O", "out.jl")
    until(lambda: names(project.directory / "out.jl") == ["1a", "1b"], project.log)
    kill(process)
    site.may_answer.set()

    last = project.crawl("-O", "out.jl")

    assert last.code == 0, last.log
    assert names(project.directory / "out.jl") == ["1a", "1b", "30a", "30b"]


def test_a_start_with_nothing_to_do_leaves_a_document_whole(project, site):
    """A further start with `-o` adds no empty document to one that is there."""
    site.may_answer.set()
    project.write(SPIDER, "ITEMGRAPH_KEEP_ITEMS = True\n")
    assert project.crawl("-o", "out.json").code == 0

    assert project.crawl("-o", "out.json").code == 0

    assert names(project.directory / "out.json") == EVERY


def test_a_host_that_goes_on_writes_the_run_whole_behind_what_it_had_before(project, other, site):
    """From one host to another and back: each file ends with all that the run had by then."""
    keeping = "ITEMGRAPH_KEEP_ITEMS = True\nDOWNLOAD_DELAY = 0.02\n"
    site.may_answer.set()
    for one in (project, other):
        one.write(PLAIN, keeping)
    (project.directory / "out.jl").write_text('{"name": "before"}\n')
    (other.directory / "out.jl").write_text('{"name": "earlier"}\n')

    for one in (project, other):
        assert one.crawl("-o", "out.jl", "-s", "CLOSESPIDER_ITEMCOUNT=10").code == 0
    between = names(other.directory / "out.jl")
    run = project.crawl("-o", "out.jl")

    assert run.code == 0, run.log
    assert "all of this run is written to" in run.log
    assert 20 < len(between) < len(EVERY)
    assert len(set(between)) == len(between)
    assert "earlier" in between
    assert names(project.directory / "out.jl") == sorted([*EVERY, "before"])
    assert names(other.directory / "out.jl") == between


def test_hosts_that_share_a_folder_go_on_with_one_file(project, other, site):
    """Another host's name for the same file: neither lines nor a document are written twice."""
    site.may_answer.set()
    feeds = [str(project.directory / name) for name in ("out.jl", "out.json")]
    options = [one for feed in feeds for one in ("-o", feed)]
    keeping = "ITEMGRAPH_KEEP_ITEMS = True\nDOWNLOAD_DELAY = 0.02\n"
    project.write(PLAIN, keeping + "CLOSESPIDER_ITEMCOUNT = 10\n")
    other.write(PLAIN, keeping + "import socket\nsocket.gethostname = lambda: 'elsewhere'\n")
    (project.directory / "out.jl").write_text('{"name": "before"}\n')

    assert project.crawl(*options).code == 0
    between = names(project.directory / "out.json")
    run = other.crawl(*options)

    assert run.code == 0, run.log
    assert 0 < len(between) < len(EVERY)
    assert "all of this run is written to" not in run.log
    assert names(project.directory / "out.jl") == sorted([*EVERY, "before"])
    assert names(project.directory / "out.json") == EVERY
    assert {file.partition(":")[0] for (file,) in project.rows("SELECT file FROM feeds")} == {
        "elsewhere"
    }


@pytest.mark.slow
def test_overwriting_warns_when_a_run_begins(project, site):
    """Where results are fresh and the file is not empty, a line says what it will lack."""
    site.may_answer.set()
    project.write(SPIDER, "ITEMGRAPH_KEEP_ITEMS = True\n")
    first = project.crawl("-O", "out.jl")
    assert "will hold only" not in first.log

    second = project.crawl("-O", "out.jl")

    assert "out.jl will hold only what is scraped from now on" in second.log
    assert (project.directory / "out.jl").read_text() == ""


@pytest.mark.slow
def test_a_file_that_somebody_else_has_put_there_is_not_cut(project, site):
    """A feed goes on at the end of a file that is not the one it was writing, and says so."""
    project.write(SPIDER, SETTINGS.format(feeds={"out.jl": {"format": "jsonlines"}}))
    process = project.start("crawl", "s")
    assert site.arrived.wait(60), project.log()
    path = project.directory / "out.jl"
    until(lambda: bool(project.rows("SELECT 1 FROM feeds WHERE size > 0")), project.log)
    kill(process)
    written = path.read_text()
    path.unlink()
    mine = json.dumps({"name": "mine" * 1000}) + "\n"
    path.write_text(mine)
    site.may_answer.set()

    run = project.crawl()

    assert "out.jl is not as it was left" in run.log
    text = path.read_text()
    assert text.startswith(mine)
    found = (written + text.removeprefix(mine)).splitlines()
    assert sorted({json.loads(line)["name"] for line in found if line.endswith("}")}) == EVERY


def test_items_are_kept_for_a_period(project, site):
    """With a period the journal loses what is older and written; without one it keeps all."""
    site.may_answer.set()
    project.write(SPIDER, SETTINGS.format(feeds=LINES))
    assert project.crawl().code == 0
    assert project.scrapy("itemgraph", "age", "s", "10d").code == 0
    assert project.crawl().code == 0
    assert project.rows("SELECT count(*) FROM journal") == [(120,)]

    process = project.start(
        "crawl", "s", "-s", "ITEMGRAPH_KEEP_ITEMS=7d", "-s", "ITEMGRAPH_IDLE=wait"
    )

    until(lambda: project.rows("SELECT count(*) FROM journal") == [(0,)], project.log)
    kill(process)
