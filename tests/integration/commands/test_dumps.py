"""`scrapy itemgraph dump` and `load`: files, pipes, and what can go wrong with them."""

from __future__ import annotations

import gzip
import json
import resource
import signal
import stat
from pathlib import Path

import pytest


def ids(lines):
    """Return the ids of the items in a dump."""
    return [one["id"] for one in map(json.loads, lines) if one.get("kind") == "item"]


@pytest.mark.parametrize("name", ["books.jsonl", "books.jsonl.gz"])
def test_a_file_is_loaded_as_it_was_dumped(scrapy, crawl, tmp_path, name):
    """SS-1: a crawl goes to a file, compressed where its name says so, and another comes of it."""
    crawl.done("A")
    crawl.work("B")

    dumped = scrapy("dump", "books", "-o", name)
    loaded = scrapy("load", name, "--crawl", "moved")

    read = gzip.open if name.endswith(".gz") else open
    with read(tmp_path / name, "rt") as file:
        lines = list(file)
    assert dumped.out == f"{len(lines)} lines of the crawl 'books' to {name}\n"
    assert loaded.out == "moved: 2 items, 0 failures, 0 scraped\n"
    assert ids(lines) == ["A", "B"]
    assert scrapy("status", "--crawl", "moved", "--json").document["items"] == 2
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_crawl_goes_through_a_pipe(scrapy, crawl):
    """With - it goes to standard output, and comes from standard input; what is told goes aside."""
    crawl.work("A")

    dumped = scrapy("dump", "books", "-o", "-")
    loaded = scrapy("load", "-", "--crawl", "moved", "--json", stdin=dumped.out)

    assert ids(dumped.out.splitlines()) == ["A"]
    assert "lines of the crawl 'books' to -" in dumped.err
    assert loaded.document == {"crawl": "moved", "items": 1, "failures": 0, "scraped": 0}


def test_a_crawl_keeps_its_name(scrapy, crawl):
    """Without --crawl it has the name that it had, be it another than the project's own."""
    scrapy("dump", "books", "-o", "file")
    refused = scrapy("load", "file", ITEMGRAPH_CRAWL="shop")

    assert refused.code == 1
    assert "there is a crawl 'books' already" in refused.err


def test_a_full_disk_leaves_no_file(scrapy, crawl, tmp_path):
    """A dump that does not fit is refused in one line, and what stood there before stays."""
    for number in range(200):
        crawl.item(f"item {number}")
    (tmp_path / "file").write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        refused = scrapy("dump", "books", "-o", "file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)

    assert refused.code == 1
    assert refused.err == "scrapy itemgraph: file cannot be written: File too large\n"
    assert (tmp_path / "file").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("left", [0.3, 0.9])
def test_half_a_file_is_not_loaded(scrapy, crawl, tmp_path, left):
    """A file that was cut off, compressed or not, is named as such; nothing of it is loaded."""
    for number in range(100):
        crawl.work(f"item {number}")
    for name in ("plain", "packed.gz"):
        scrapy("dump", "books", "-o", name)
        whole = (tmp_path / name).read_bytes()
        Path(tmp_path / name).write_bytes(whole[: int(len(whole) * left)])

        refused = scrapy("load", name, "--crawl", "moved")

        assert refused.code == 1
        assert "not JSON" in refused.err or "is damaged, so nothing was loaded" in refused.err
        assert scrapy("status", "--crawl", "moved").code == 1


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "file cannot be read: No such file or directory"),
        (b"", "line 1: this is no dump of a crawl"),
        (b"\xff\xfe", "file is damaged, so nothing was loaded"),
        (b'{"itemgraph_dump": 9, "crawl": "x"}\n', "was made by a newer version than this"),
    ],
)
def test_what_is_no_dump_is_refused(scrapy, crawl, tmp_path, content, error):
    """The error is one line, and no crawl is made."""
    if content is not None:
        (tmp_path / "file").write_bytes(content)

    refused = scrapy("load", "file", "--crawl", "moved")

    assert refused.code == 1
    assert error in refused.err
    assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_dump_is_its_owners_alone(scrapy, crawl, tmp_path, name):
    """Cookies of websites may stand in it; what was left of a dump before does not widen it."""
    crawl.work("A")
    part = tmp_path / f"{name}.part"
    part.touch()
    part.chmod(0o666)
    (tmp_path / name).touch()

    assert scrapy("dump", "books", "-o", name).code == 0

    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert not part.exists()
    assert scrapy("load", name, "--crawl", "moved").code == 0


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(scrapy, crawl, tmp_path):
    """A few kilobytes may unpack to gigabytes; the error names the line."""
    crawl.work("A")
    scrapy("dump", "books", "-o", "file")
    lines = (tmp_path / "file").read_bytes().splitlines(keepends=True)
    with gzip.open(tmp_path / "bomb.gz", "wb", compresslevel=1) as file:
        file.writelines(lines[:2])
        for _ in range(300):
            file.write(b"[" * 1_000_000)

    refused = scrapy("load", "bomb.gz", "--crawl", "moved")

    assert refused.code == 1
    assert "line 3: it has more than 64,000,000 bytes" in refused.err
    assert len(refused.err.splitlines()) == 1


def test_an_unknown_crawl_is_not_dumped(scrapy, crawl, tmp_path):
    """The near miss is named, and no file is made."""
    refused = scrapy("dump", "boks", "-o", "file")

    assert refused.code == 1
    assert "books" in refused.err
    assert not list(tmp_path.iterdir())
