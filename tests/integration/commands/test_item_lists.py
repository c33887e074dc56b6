"""Commands that list items: on the terminal, and as files of their data."""

from __future__ import annotations

import csv
import gzip
import json
import sys

import pytest

from scrapy_itemgraph.commands import item_files
from scrapy_itemgraph.model.operations import CreateItem, UpdateMetadata

PAGE = {
    "url": "http://a.example/list",
    "request": {"callback": "parse", "method": "GET", "headers": {}},
}


@pytest.fixture
def books(crawl):
    """Put three items with data into the crawl."""
    crawl.done(
        "BOOK:1",
        UpdateMetadata({"seen": 1}),
        data={"url": "http://a.example/1", "title": 'Tea, "black"', "price": 3},
        aliases=["EAN:1"],
    )
    crawl.work("BOOK:2", data={"price": 4.5, "title": "Rock\nand roll", "sizes": [1, {"a": None}]})
    crawl.failed("BOOK:3", data={"title": "=1+1", "id": "mine", "deep": {"a": "b"}})
    return crawl


def rows(path) -> list[dict[str, str]]:
    """Read a file of CSV."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_items_are_listed_with_columns_of_their_data(scrapy, books, monkeypatch):
    """The newest come first, with their states, and with the columns that most of them have."""
    monkeypatch.setenv("COLUMNS", "200")
    human = scrapy("items")
    listed = scrapy("items", "--json").document

    head, *lines = human.out.splitlines()
    assert head.split() == ["ITEM", "TAGS", "STATE", "COMPLETED", "title", "data.id", "price"]
    assert [line.split()[0] for line in lines] == ["BOOK:3", "BOOK:2", "BOOK:1"]
    assert "parse held, reviews never run" in lines[0]
    assert "Rock\\nand roll" in lines[1]
    assert listed[2]["data"] == {"url": "http://a.example/1", "title": 'Tea, "black"', "price": 3}
    assert listed[2]["states"] == {"parse": "fresh", "reviews": "never run"}
    assert listed[2]["metadata"] == {"parse": {"seen": 1}}
    assert human.err == ""


def test_items_are_listed_by_tag_state_and_time(scrapy, books):
    """Options restrict the list, and it says when there is more."""
    books.item("OTHER", tags=["other"])

    def listed(*given):
        return [one["id"] for one in scrapy("items", "--json", *given).document]

    assert listed("--tag", "other") == ["OTHER"]
    assert listed("--state", "held") == ["BOOK:3"]
    assert listed("--state", "never-run", "--limit", "1") == ["BOOK:3"]
    assert listed("--since", "1h", "--tag", "page") == ["BOOK:3", "BOOK:2", "BOOK:1"]
    assert listed("--since", "2100-01-01") == []
    assert scrapy("items", "--tag", "none").out == "no item is there\n"
    assert "(the newest 1; --limit shows more" in scrapy("items", "--limit", "1").err
    assert "price" not in scrapy("items", "--column", "title").out
    wrong = scrapy("items", "--state", "done")
    assert (wrong.code, wrong.out) == (1, "")
    assert "the states are never run, fresh, stale, held" in wrong.err


def test_items_are_written_as_lines_of_json(scrapy, books, tmp_path):
    """A line has what `graph.items` gives, in the order in which items were made."""
    ran = scrapy("items", "-O", "out.jsonl")
    packed = scrapy("items", "--tag", "page", "--limit", "2", "-O", "out.jsonl.gz", "--json")
    streamed = scrapy("items", "-O", "-")

    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [one["id"] for one in lines] == ["BOOK:1", "BOOK:2", "BOOK:3"]
    assert lines[0] == {
        "id": "BOOK:1",
        "url": "http://a.example/1",
        "aliases": ["EAN:1"],
        "tags": {"page": None},
        "data": {"url": "http://a.example/1", "title": 'Tea, "black"', "price": 3},
        "metadata": {"parse": {"seen": 1}},
        "states": {"parse": "fresh", "reviews": "never run"},
        **{name: lines[0][name] for name in ("created_at", "updated_at", "completed_at")},
    }
    assert ran.out == "3 items to out.jsonl (jsonl)\n"
    assert packed.document == {
        "crawl": "books",
        "items": 2,
        "file": "out.jsonl.gz",
        "format": "jsonl",
    }
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).count(b"\n") == 2
    assert streamed.out == (tmp_path / "out.jsonl").read_text()
    assert streamed.err == "3 items to - (jsonl)\n"


def test_items_are_written_as_a_table(scrapy, books, tmp_path):
    """CSV has a column for each key of any item's data, in the order in which they come."""
    scrapy("items", "-O", "out.csv")
    scrapy("items", "-O", "few:csv", "--column", "price", "--column", "id")

    first, second, third = rows(tmp_path / "out.csv")
    own = ["id", "url", "tags", "aliases", "states", "metadata"]
    own += ["created_at", "updated_at", "completed_at"]
    assert list(first) == [*own, "title", "price", "sizes", "data.id", "deep"]
    assert (first["title"], first["price"], first["aliases"]) == ('Tea, "black"', "3", '["EAN:1"]')
    assert (second["title"], second["price"], second["completed_at"]) == (
        "Rock\nand roll",
        "4.5",
        "",
    )
    assert json.loads(second["sizes"]) == [1, {"a": None}]
    assert (third["id"], third["data.id"], third["price"]) == ("BOOK:3", "mine", "")
    assert json.loads(first["states"]) == {"parse": "fresh", "reviews": "never run"}
    assert (tmp_path / "few").read_bytes() == b"price,id\r\n3,BOOK:1\r\n4.5,BOOK:2\r\n,BOOK:3\r\n"


def test_items_are_written_as_parquet(scrapy, books, tmp_path, monkeypatch):
    """Columns of one kind have its type, in batches that are alike; others are text."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    monkeypatch.setattr(item_files, "_BATCH", 2)
    books.item("BOOK:4", data={"price": 1, "sold": True, "large": 2**70})

    ran = scrapy("items", "-O", "out.parquet")

    table = parquet.read_table(tmp_path / "out.parquet")
    kinds = {field.name: str(field.type) for field in table.schema}
    assert ran.out == "4 items to out.parquet (parquet)\n"
    assert (kinds["price"], kinds["sold"], kinds["large"]) == ("double", "bool", "string")
    assert kinds["created_at"] == kinds["completed_at"] == "timestamp[us, tz=UTC]"
    assert table["price"].to_pylist() == [3.0, 4.5, None, 1.0]
    assert table["title"].to_pylist() == ['Tea, "black"', "Rock\nand roll", "=1+1", None]
    assert table["large"].to_pylist()[3] == str(2**70)


def test_parquet_without_its_library_says_what_to_install(scrapy, books, tmp_path, monkeypatch):
    """The file that was there stays as it is."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "out.parquet").write_bytes(b"before")

    ran = scrapy("items", "-O", "out.parquet")

    assert ran.code == 1
    assert "pip install 'scrapy-itemgraph[parquet]'" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]
    assert (tmp_path / "out.parquet").read_bytes() == b"before"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("-O", "out.xlsx"), "says no format; let it end in .jsonl, .csv, .parquet"),
        (("-O", "out.jsonl", "--column", "a"), "--column is for tables"),
        (("-O", "-", "--json"), "cannot both go to standard output"),
    ],
)
def test_a_file_that_cannot_be_meant_is_misuse(scrapy, books, tmp_path, given, says):
    """Nothing is written then."""
    ran = scrapy("items", *given)

    assert ran.code == 2
    assert says in ran.err
    assert list(tmp_path.iterdir()) == []


def test_pages_are_listed_by_url_and_say_where_their_items_are(scrapy, crawl, tmp_path):
    """How a page is requested is no data, and what was scraped of it is said to be elsewhere."""
    crawl.register(callbacks={"parse_list": {}})
    crawl.do(CreateItem("REQ:0123abcd", ["callback:parse_list"], PAGE))

    human = scrapy("items")
    written = scrapy("items", "-O", "out.csv")

    assert "http://a.example/list" in human.out
    assert "parse_list never run" in human.out
    assert "REQ:" not in human.out
    assert "callback:" not in human.out
    for ran in (human, written):
        assert "scrapy crawl SPIDER -O scraped.csv" in ran.err
    (row,) = rows(tmp_path / "out.csv")
    assert row["url"] == "http://a.example/list"
    assert "request" not in row


def test_what_was_done_last_is_listed(scrapy, books):
    """`done` says of each page when it ended, and how many items were scraped."""
    books.end(books.claimed("BOOK:2"), items_scraped=2)

    human = scrapy("done")
    listed = scrapy("done", "--since", "1h", "--task", "parse", "--json").document

    assert [line.split()[2] for line in human.out.splitlines()[1:]] == ["BOOK:2", "BOOK:1"]
    assert [(one["item"], one["scraped"]) for one in listed] == [("BOOK:2", 2), ("BOOK:1", 0)]
    assert scrapy("done", "--since", "2100-01-01").out == "nothing was done then\n"
