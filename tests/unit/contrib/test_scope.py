"""Which pages are of a site, and what a crawl of one begins with."""

from __future__ import annotations

import os

import pytest

from scrapy_itemgraph.contrib.sites import scope
from scrapy_itemgraph.contrib.sites.scope import Extent, Scope

ROOTS = ["https://www.a.example/~bob/index.html", "http://b.example:8080/"]


@pytest.mark.parametrize(
    ("url", "extents"),
    [
        ("http://a.example/", {"host"}),
        ("https://A.example:443/~bob/x", {"host", "path"}),
        ("https://www.a.example./~bob/", {"host", "path"}),
        ("https://user:pw@a.example/~bob/", {"host", "path"}),
        ("https://a.example/~bobby", {"host"}),
        ("https://a.example/%7Ebob/x", {"host", "path"}),
        ("https://a.example/%7ebobby", {"host"}),
        ("https://a.example:8080/~bob/", set()),
        ("https://b.example:8080", {"host", "path"}),
        ("https://b.example/", set()),
        ("https://sub.a.example/", set()),
        ("https://a.example.evil.example/", set()),
        ("http://[", set()),
    ],
)
def test_a_page_is_of_the_site_by_its_host_or_its_folder(url, extents):
    """`www.`, the scheme and the usual ports make no difference; another port is another site."""
    found = {one for one in Extent if Scope.of(ROOTS, one).has(url)}

    assert found == extents


def test_where_a_root_moved_to_is_of_the_site():
    """The place that a root was redirected to counts, for pages that come from there."""
    one = Scope.of(ROOTS, Extent.HOST)

    assert one.has("https://www.new.example/x", home="new.example")
    assert one.has("https://new.example/x", home="new.example/docs/")
    assert not one.has("https://new.example/x")
    assert not one.has("http:///x")


@pytest.mark.parametrize(
    ("extent", "url", "home"),
    [
        (Extent.HOST, "http://a.example/other/", None),
        (Extent.HOST, "http://new.example:81/docs/x", "new.example:81/docs/"),
        (Extent.PATH, "http://a.example/~bob/x", None),
        (Extent.PATH, "http://a.example/bob/x", "a.example/bob/"),
        (Extent.PATH, "http://a.example/gone", None),
        (Extent.PATH, "https://www.new.example", "new.example/"),
    ],
)
def test_a_root_that_is_redirected_brings_the_folder_it_leads_to(extent, url, home):
    """What is of the site already brings nothing, nor does a folder above the one asked for."""
    assert Scope.of(ROOTS, extent).home_of(url) == home


def test_of_where_a_root_moved_to_its_folder_counts_with_the_extent_of_a_path():
    """What a crawl stored before had the place alone, which is all of the host."""
    one = Scope.of(ROOTS, Extent.PATH)

    assert one.has("https://new.example/docs/x", home="new.example/docs/")
    assert not one.has("https://new.example/shop/x", home="new.example/docs/")
    assert one.has("https://a.example/bob/x", home="a.example/bob/")
    assert one.has("https://a.example/~bob/x", home="a.example/bob/")
    assert not one.has("https://a.example/x", home="a.example/bob/")
    assert one.has("https://new.example/shop/x", home="new.example")


def test_folders_are_compared_as_they_are_sent():
    """A folder with blanks or other letters has the pages that links write in any way."""
    one = Scope.of(scope.roots_of("https://a.example/m\u00fc/", None), Extent.PATH)

    assert one.has("https://a.example/m\u00fc/x y")
    assert one.has("https://a.example/m%C3%BC/x%20y")
    assert not one.has("https://a.example/m\u00fcnchen")


def test_hosts_are_compared_as_they_are_sent():
    """A host in other letters is the one that it is written as in a request."""
    one = Scope.of(["https://b\u00fccher.example/"], Extent.HOST)

    assert one.has("https://xn--bcher-kva.example/x")
    assert one.has("https://B\u00dcCHER.example/x")


@pytest.mark.parametrize(
    ("url", "is_noise"),
    [
        ("https://a.example/post?replytocom=12#respond", True),
        ("https://a.example/files/?C=M;O=D", True),
        ("https://a.example/x/x/x/x/", True),
        ("https://a.example/b/b/b/", False),
        ("https://a.example/x/a/b/a/b/a/b/", True),
        ("https://a.example/x/a/b/a/b/a/bc", False),
        ("https://a.example/q/www.b.example/c/d/www.b.example/c/d/www.b.example/c/d", True),
        ("https://a.example/?x=1&amp;amp;amp;y=2", True),
        ("https://a.example/?q=&p=1&q=", True),
        ("https://a.example/?q=1&q=1&q=1", True),
        ("https://a.example/?q[]=1&q[]=2&q[]=3&&&&", False),
        ("https://a.example/'+url+'", True),
        ("https://a.example/%22+url+%22", True),
        ("https://a.example/wp-login.php?redirect_to=x", True),
        ("https://a.example/shared?x=1&page=2", False),
    ],
)
def test_links_that_lead_on_for_ever_are_noise(url, is_noise):
    """Replies, orders of lists, paths that repeat themselves, and junk of scripts."""
    assert scope.is_noise(url) is is_noise


def test_a_crawl_begins_with_urls_of_its_arguments_and_of_a_file(tmp_path):
    """Blanks and lines part them, comments and repeats are left out, fragments go."""
    path = tmp_path / "urls.txt"
    path.write_text("\ufeff# ours\n\nhttps://b.example/x y\nhttps://a.example/\n", "utf-8")

    found = scope.roots_of(" https://a.example/#top https://c.example ", str(path))

    assert found == ["https://a.example/", "https://c.example/", "https://b.example/x%20y"]


@pytest.mark.parametrize("url", ["a.example", "ftp://a.example", "https://", "http://[", "file:/x"])
def test_what_is_no_url_of_a_page_is_refused(tmp_path, url):
    """The error says which, and of a file the line alone: it may be any file of the host."""
    path = tmp_path / "urls.txt"
    path.write_text(f"https://a.example/\n{url}\n")

    with pytest.raises(ValueError, match="write one such as https") as one:
        scope.roots_of(url, None)
    assert url in str(one.value)
    with pytest.raises(ValueError, match="line 2 of ") as line:
        scope.roots_of("", str(path))
    assert f"{url} " not in str(line.value)


def test_an_extent_that_is_none_is_said_with_those_that_there_are():
    """A slip of the argument does not crawl something else."""
    with pytest.raises(ValueError, match="-a extent=hots is none of host, path, page"):
        Extent.named("hots")


def test_a_file_of_urls_is_a_regular_one_and_not_too_large(tmp_path, monkeypatch):
    """SS-3: a device or a pipe is refused and never read; so are a huge file and no text."""
    monkeypatch.setattr(scope, "LARGEST_FILE", 1024**2)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").write_bytes(b"https://a.example/\n" * 60_000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    wrong = {"/dev/zero": "regular", tmp_path / "fifo": "regular", tmp_path: "directory"} | {
        tmp_path / "huge": "more than 1 MiB",
        tmp_path / "binary": "no UTF-8",
    }
    for path, said in wrong.items():
        with pytest.raises((ValueError, OSError), match=said):
            scope.roots_of("", str(path))
