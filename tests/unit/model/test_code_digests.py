"""What tells a task's code from what it was before."""

from __future__ import annotations

import importlib
import sys
import uuid
import zipfile

import pytest
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider

from scrapy_itemgraph.model import code_digests
from scrapy_itemgraph.worker.spider import methods

BEFORE = '''
import functools


def other(): return 1


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


class Spider:
    def parse(self, response, *, deep=True):
        """What it does."""
        title = response.css("h1::text").get()
        yield {"title": f"{title}!", "deep": deep}
'''


@pytest.fixture
def digest_of(tmp_path, monkeypatch):
    """Return what gives the digest of `Spider.parse` in a module of the given text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def digest(text):
        name = f"written_{uuid.uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return code_digests.digest([importlib.import_module(name).Spider.parse])

    return digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def other(): return 1", "def other():\n    # now two\n    return 2\n\n\n"),
        ('"""What it does."""', '"""What it does, said otherwise."""'),
        ('        """What it does."""\n', ""),
        (
            'response.css("h1::text").get()',
            "response.css(\n            'h1::text'\n        ).get()",
        ),
        ("        title =", "        # the title\n\n        title ="),
        ("    def parse", "    @decorated\n    def parse"),
    ],
)
def test_layout_comments_and_other_functions_change_no_digest(digest_of, old, new):
    """Only what the method itself does counts, not how it is written or what stands around it."""
    assert old in BEFORE
    assert digest_of(BEFORE) == digest_of(BEFORE.replace(old, new)) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("h1::text", "h2::text"),
        ("deep=True", "deep=False"),
        ("!", "?"),
        ("    def", "    async def"),
    ],
)
def test_another_deed_is_another_digest(digest_of, old, new):
    """A selector, a default, a text or an async def is a change of the code."""
    assert digest_of(BEFORE) != digest_of(BEFORE.replace(old, new))


def test_the_digest_is_the_same_in_every_process(digest_of):
    """What is stored can be compared later: the digest is of the text alone."""
    assert str(digest_of(BEFORE)) == EXPECTED


EXPECTED = "74839c62-74ff-97ea-713d-9694ec5b08dc"


def test_source_in_a_zip_is_found_and_code_without_source_has_no_digest(tmp_path, monkeypatch):
    """An egg that carries its source has a digest; code that has none is no news."""
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("zipped_spider.py", BEFORE)
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    zipped = importlib.import_module("zipped_spider")
    scope = {}
    exec(compile(BEFORE, "nowhere", "exec"), scope)

    assert str(code_digests.digest([zipped.Spider.parse])) == EXPECTED
    assert code_digests.digest([scope["Spider"].parse]) is None
    assert code_digests.digest([]) is None
    assert code_digests.digest([len]) is None
    assert code_digests.digest([zipped.Spider.parse, sys.exit]) is None


class Rules(CrawlSpider):
    """A spider whose pages are asked for by rules."""

    name = "rules"
    rules = (Rule(LinkExtractor(), callback="parse_page"), Rule(LinkExtractor()))

    def parse_page(self, response):
        """Parse a page."""


class OtherRules(Rules):
    """The same with another callback."""

    def parse_page(self, response):
        """Parse a page, and find something."""
        yield {}


def test_the_code_of_a_rules_pages_is_that_of_its_callbacks():
    """Scrapy's own methods around them do not count, so no upgrade of Scrapy is a change."""
    spider, other = Rules(), OtherRules()

    assert methods.source_of(spider, "_callback") == code_digests.digest([Rules.parse_page])
    assert methods.source_of(other, "_callback") == code_digests.digest([OtherRules.parse_page])
    assert methods.source_of(spider, "_callback") != methods.source_of(other, "_callback")
    assert methods.source_of(spider, "parse") is None
    assert methods.source_of(SitemapSpider("maps"), "_parse_sitemap") is None
    assert methods.source_of(spider, "no_such_method") is None
