"""`scrapy itemgraph export`: kept items as feeds, in Scrapy's formats, by its storages."""

from __future__ import annotations

import csv
import gzip
import json
import pickle
import sys
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import ClassVar

import pytest
from scrapy import cmdline
from scrapy.extensions.feedexport import BlockingFeedStorage
from scrapy.settings import Settings
from support.graphs import Crawl

from scrapy_itemgraph.graph.parts import journal
from scrapy_itemgraph.model.feed_exports import Scraped
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.serialize import json_values

ITEMS = """
import scrapy
from dataclasses import dataclass, field


class Product(scrapy.Item):
    name = scrapy.Field()
    price = scrapy.Field(serializer=lambda price: f"{price} EUR")
    stock = scrapy.Field()


class Special(Product):
    pass


@dataclass
class Review:
    stars: int
    text: str = field(default="", metadata={"serializer": str.upper})
"""


@dataclass(frozen=True)
class Ran:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str


class Shelf(BlockingFeedStorage):
    """A feed storage that puts what it gets into a dict."""

    stored: ClassVar[dict[str, bytes]] = {}

    def __init__(self, uri, *, feed_options=None):
        self.uri = uri

    def _store_in_thread(self, file):
        file.seek(0)
        if self.uri.endswith("full"):
            raise RuntimeError("the shelf is full")
        self.stored[self.uri] = file.read()


@pytest.fixture
def crawl(engine):
    """Yield a crawl whose commits stay."""
    with engine.connect() as connection:
        crawl = Crawl.of(connection)
        connection.commit()
        yield crawl


@pytest.fixture
def keep(crawl):
    """Return a function that keeps items of a class, given as dicts of Python values."""

    def keep(*items: dict, item_class: str = "dict") -> None:
        scraped = tuple(
            Scraped(item_class, json.dumps(json_values.dump(one, "x"))) for one in items
        )
        crawl.commit(Changeset(operations=(), outcome=Outcome.OK, scraped=scraped))
        crawl.connection.commit()

    return keep


@pytest.fixture
def export(capfdbinary, database, monkeypatch, tmp_path):
    """Return a function that runs `scrapy itemgraph export` in this process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_items.py").write_text(textwrap.dedent(ITEMS))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_items", raising=False)

    def run(*arguments, **settings) -> Ran:
        encoding = settings.get("FEED_EXPORT_ENCODING", "utf-8")
        given = Settings({"ITEMGRAPH_DATABASE_URL": database, **settings}, priority="project")
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as exited:
            cmdline.execute(["scrapy", "itemgraph", "export", *arguments], given)
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        return Ran(exited.value.code, out.decode(encoding), err.decode())

    return run


MOMENT = datetime(2026, 11, 21, 10, tzinfo=UTC)


def test_each_format(export, keep, tmp_path):
    """Items come in their order, in each format, with the values that they had."""
    keep({"b": 1, "a": "ä"}, {"b": Decimal("1.50"), "a": MOMENT})

    run = export(*(f"-o=out.{end}" for end in ("jl", "json", "csv", "xml", "pickle")))

    assert run.code == 0, run.err
    lines = [json.loads(line) for line in (tmp_path / "out.jl").read_text().splitlines()]
    assert lines[0] == {"b": 1, "a": "ä"}
    assert lines[1]["b"] == "1.50"
    assert lines[1]["a"].startswith("2026-11-21")  # Scrapy 2.14 writes it otherwise than 2.19
    assert list(lines[0]) == ["b", "a"]
    assert json.loads((tmp_path / "out.json").read_text()) == lines
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.reader(file))[:2] == [["b", "a"], ["1", "ä"]]
    assert "<item><b>1</b><a>ä</a></item>" in (tmp_path / "out.xml").read_text()
    with (tmp_path / "out.pickle").open("rb") as file:
        assert [pickle.load(file), pickle.load(file)][1] == {"b": Decimal("1.50"), "a": MOMENT}
    assert "2 scraped items to out.jl (jl)" in run.out


def test_append_and_overwrite(export, keep, tmp_path):
    """-o appends to a file, -O begins it anew; both together are misuse, and so is neither."""
    keep({"a": 1})

    for expected in (1, 2):
        assert export("-o", "out.jl").code == 0
        assert len((tmp_path / "out.jl").read_text().splitlines()) == expected
    assert export("-O", "out.jl").code == 0
    assert len((tmp_path / "out.jl").read_text().splitlines()) == 1
    assert export("-o", "a.jl", "-O", "b.jl").code == 2
    assert export().code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.txt"], "'txt'"),
        (["-o", "-"], "FORMAT"),
        (["-o", "gopher://a/b.jl"], "FEED_STORAGES has no 'gopher'"),
        (["-o", "out-%(nobody)s.jl"], "%(nobody)s is not known; there are name, crawl, time"),
        (["-o", "out.jl", "--since", "yesterday"], "'yesterday' is no moment"),
        (["-o", "out.jl", "--since", "-1d"], "--since"),
        (["-o", "out.jl", "extra"], "unexpected argument 'extra'"),
        (["-o", "-:jl", "--json"], "cannot both go to standard output"),
    ],
)
def test_misuse(export, keep, tmp_path, arguments, message):
    """What cannot be meant is refused with code 2, and nothing is written."""
    keep({"a": 1})

    run = export(*arguments)

    assert run.code == 2
    assert message in run.err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []


def test_standard_output(export, keep):
    """With -:FORMAT the feed alone goes to standard output."""
    keep({"a": 1}, {"a": 2})

    run = export("-o", "-:jsonlines")

    assert run.code == 0, run.err
    assert run.out == '{"a": 1}\n{"a": 2}\n'
    assert "2 scraped items to stdout:" in run.err


def test_json_says_what_was_written(export, keep, crawl):
    """--json gives the feeds, the count, and the moment to go on from."""
    keep({"a": 1})

    document = json.loads(export("-o", "out.jl", "--json").out)
    keep({"a": 2})
    following = export("-o", "-:jl", "--since", document["until"])
    nothing = export("-o", "-:jl", "--since", "2126-01-01")

    assert document["items"] == 1
    assert document["crawl"] == "books"
    assert document["feeds"] == [{"uri": "out.jl", "format": "jl", "items": 1}]
    assert following.out == '{"a": 2}\n'
    assert (nothing.code, nothing.out) == (0, "")


def test_since_a_period(export, keep, crawl):
    """A period means what was kept within it."""
    keep({"a": "old"})
    crawl.age(days=2)
    keep({"a": "new"})

    run = export("-o", "-:jl", "--since", "1d12h")

    assert run.out == '{"a": "new"}\n'


def test_item_classes(export, keep):
    """--item-class takes the named classes alone; one that is not kept is refused."""
    keep({"a": 1})
    keep({"name": "tea"}, item_class="shop_items.Product")

    run = export("-o", "-:jl", "--item-class", "shop_items.Product")
    unknown = export("-o", "-:jl", "--item-class", "shop_items.Produkt")

    assert run.out == '{"name": "tea"}\n'
    assert unknown.code == 1
    assert "did you mean 'shop_items.Product'?" in unknown.err
    assert unknown.out == ""


def test_declared_fields_count_as_in_a_feed(export, keep):
    """Serializers of fields are used, and a CSV has the columns that the class declares."""
    keep({"name": "tea", "price": 3}, item_class="shop_items.Product")
    keep({"stars": 5, "text": "good"}, item_class="shop_items.Review")

    loaded = {"ITEMGRAPH_ALLOWED_MODULES": ["shop_items"]}
    products = export("-o", "-:csv", "--item-class", "shop_items.Product", **loaded)
    reviews = export("-o", "-:jl", "--item-class", "shop_items.Review", **loaded)

    assert products.out.splitlines() == ["name,price,stock", "tea,3 EUR,"]
    assert json.loads(reviews.out) == {"stars": 5, "text": "GOOD"}


def test_export_imports_nothing_that_an_item_names(export, keep):
    """The class of a kept item is looked for in loaded modules; the database imports none."""
    keep({"name": "tea", "price": 3}, item_class="shop_items.Product")

    run = export("-o", "-:csv")

    assert run.out.splitlines() == ["name,price", "tea,3"]
    assert "shop_items" not in sys.modules


def test_a_class_that_is_gone_or_has_changed(export, keep):
    """Items of a class that is not there any more are written as they are."""
    keep({"x": 1}, item_class="gone.Thing")
    keep({"was": "tea"}, item_class="shop_items.Product")

    run = export("-o", "-:jl")

    assert run.out == '{"x": 1}\n{"was": "tea"}\n'


def test_export_settings(export, keep):
    """FEED_EXPORT_FIELDS, FEED_EXPORT_ENCODING and FEED_EXPORT_INDENT hold."""
    keep({"a": "ä", "b": 1, "c": 2})
    settings = {
        "FEED_EXPORT_FIELDS": ["b", "a"],
        "FEED_EXPORT_ENCODING": "latin-1",
        "FEED_EXPORT_INDENT": 2,
    }

    run = export("-o", "-:json", **settings)

    assert run.out == '[\n{\n  "b": 1,\n  "a": "ä"\n}\n]'


def test_feeds_of_the_same_uri(export, keep, tmp_path):
    """Options that FEEDS has for the same FILE hold, its classes and batches too."""
    keep({"a": 1}, {"a": 2}, {"a": 3})
    keep({"name": "tea", "price": 3}, item_class="shop_items.Special")
    feeds = {
        "%(name)s-%(batch_id)d.txt": {"format": "jl", "batch_item_count": 2},
        "products.xml": {"item_classes": ["shop_items.Product"], "item_export_kwargs": {}},
        "all.jl.gz": {
            "format": "jl",
            "fields": ["a"],
            "postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"],
        },
        "odd.jl": {"item_filter": "shop_items.Filter"},
    }

    run = export(*(f"-o={uri}" for uri in list(feeds)[:3]), FEEDS=feeds)
    odd = export("-o=odd.jl", FEEDS=feeds)

    assert run.code == 0, run.err
    assert (tmp_path / "books-1.txt").read_text() == '{"a": 1}\n{"a": 2}\n'
    assert len((tmp_path / "books-2.txt").read_text().splitlines()) == 2
    assert not (tmp_path / "books-3.txt").exists()
    assert "<name>tea</name>" in (tmp_path / "products.xml").read_text()
    assert "<a>" not in (tmp_path / "products.xml").read_text()
    with gzip.open(tmp_path / "all.jl.gz", "rt") as file:
        assert file.read() == '{"a": 1}\n{"a": 2}\n{"a": 3}\n{}\n'
    assert "4 scraped items to" in run.out
    assert "1 scraped item to products.xml" in run.out
    assert odd.code == 2
    assert "item_filter" in odd.err


def test_a_storage_of_the_project(export, keep):
    """A feed storage that uploads in a thread gets the whole feed; its errors are a line."""
    keep({"a": 1})
    storages = {"shelf": Shelf}

    run = export("-O", "shelf://user:secret@one/feed.jl", FEED_STORAGES=storages)
    full = export("-O", "shelf://one/full:jl", FEED_STORAGES=storages)

    assert run.code == 0, run.err
    assert Shelf.stored == {"shelf://user:secret@one/feed.jl": b'{"a": 1}\n'}
    assert "secret" not in run.out
    assert full.code == 1
    assert "was not stored: RuntimeError: the shelf is full" in full.err


def test_a_value_that_the_format_has_not(export, keep):
    """An item that the exporter cannot write ends the export with an error that names it."""
    keep({"a": b"\xff"})

    run = export("-o", "out.jl")

    assert run.code == 1
    assert "dict no. 1 cannot be written as jl: TypeError" in run.err


def test_an_empty_journal(export, crawl, tmp_path):
    """Where nothing was kept and nothing is, it says how; else the feed is empty."""
    off = export("-o", "out.jl")
    on = export("-o", "out.json", ITEMGRAPH_KEEP_ITEMS=True)
    unstored = export("-o", "out.jl", ITEMGRAPH_KEEP_ITEMS=True, FEED_STORE_EMPTY=False)

    assert off.code == 1
    assert "ITEMGRAPH_KEEP_ITEMS = True" in off.err
    assert on.code == 0
    assert (tmp_path / "out.json").read_text().split() == ["[", "]"]
    assert unstored.code == 0
    assert not (tmp_path / "out.jl").exists()


def test_no_crawl(export):
    """Without a crawl there is nothing to export."""
    assert export("-o", "out.jl", "--crawl", "books").code == 1


def test_pages_do_not_show(export, keep, monkeypatch):
    """An export of several pages has each item once, in order."""
    monkeypatch.setattr(journal, "_PAGE", 7)
    keep(*({"n": n} for n in range(50)))

    run = export("-o", "-:jl")

    assert [json.loads(line)["n"] for line in run.out.splitlines()] == list(range(50))
