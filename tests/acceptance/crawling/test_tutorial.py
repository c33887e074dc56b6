"""The tutorial, played as a reader would: its spiders, its commands, its numbers."""

from __future__ import annotations

import re
import sys
import threading
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).parents[3]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)
SETTINGS, *SPIDERS = BLOCKS
SAID = re.findall(r"^```text\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)
# The page whose price is a sentence.
pytestmark = pytest.mark.tracebacks("could not convert string to float")

EXAMPLE_URL = "http://127.0.0.1:8765"
README_TEXT = (ROOT / "README.md").read_text()
README = re.findall(r"^```python\n(.*?)^```$", README_TEXT, re.MULTILINE | re.DOTALL)


@contextmanager
def shop():
    """Serve the example shop on a free port, from its first day on."""
    spec = util.spec_from_file_location("shop_site", ROOT / "example_project/shop/site.py")
    assert spec is not None
    module = sys.modules["shop_site"] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.Server(0, 1)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        del sys.modules["shop_site"]


@pytest.fixture
def site():
    """Serve the shop in the place of the tests' own site."""
    with shop() as url:
        yield type("Shop", (), {"url": url})


@pytest.fixture
def tutorial(project):
    """Return a project with the tutorial's settings, and the database of the test."""
    return project.write("", settings=SETTINGS)


def save(project, spider):
    """Save a spider as the reader does, for the shop where it is."""
    path = project.directory / "proj/spiders/s.py"
    path.write_text(spider.replace(EXAMPLE_URL, project.site_url))


def crawl(project):
    """Crawl, and return how much was claimed and committed, and the log."""
    run = project.scrapy("crawl", "tea")
    assert run.code == 0, run.log
    stats = [run.stats.get(f"itemgraph/{name}", 0) for name in ("claimed", "committed")]
    return *stats, run.log


def command(project, *arguments):
    """Run `scrapy itemgraph`, and return what it prints with the address of the tutorial's shop."""
    run = project.scrapy("itemgraph", *arguments)
    assert run.code == 0, run.log
    return run.output.replace(project.site_url, EXAMPLE_URL)


def test_the_tutorial_happens_as_it_says(tutorial):
    """Each run claims what the tutorial says, and each command shows what it quotes."""
    draft, first, second = SPIDERS
    tried, end, explained, renamed, names = SAID
    url = tutorial.site_url

    save(tutorial, draft)
    beans = ("BEANS", "--url", f"{url}/product/morning-beans-500-g")
    asked = f"200 GET {EXAMPLE_URL}/robots.txt\n"  # the test's project does not
    found = command(tutorial, "simulate", "tea", "parse_product", *beans)
    assert found == tried.replace(asked, "")
    assert tutorial.rows("SELECT name FROM crawls") == []

    save(tutorial, first)
    claimed, committed, log = crawl(tutorial)
    assert (claimed, committed) == (25, 24)
    assert all(line.removesuffix("6h") in log for line in end.splitlines())  # or 5h 59m
    shown = command(tutorial, "show", f"URL:{url}/product/morning-beans-500-g")
    assert "Morning beans, 500 g" in shown
    assert "parse_reviews" in command(tutorial, "status")

    assert crawl(tutorial)[:2] == (0, 0)

    assert "parse_product" in command(tutorial, "failures")
    broken = f"URL:{url}/product/harbour-beans-500-g"
    assert command(tutorial, "explain", broken).strip() == explained.strip()
    urlopen(Request(f"{url}/day/2", method="POST")).close()
    command(tutorial, "handle", "--task", "parse_product")
    assert crawl(tutorial)[:2] == (2, 2)

    save(tutorial, second)
    island = f"URL:{url}/product/island-beans-500-g"
    assert renamed in command(tutorial, "simulate", "tea", "parse_product", island)
    assert crawl(tutorial)[:2] == (12, 12)
    assert command(tutorial, "show", "SKU:T1020").startswith(names)
    assert command(tutorial, "show", "EAN:4012345010206").startswith(names)
    assert len(tutorial.data()) == 13

    command(tutorial, "age", "tea", "1d")
    claimed, committed, log = crawl(tutorial)
    assert (claimed, committed) == (13, 13)
    assert "[new]" not in log
    assert len(tutorial.data()) == 13


def test_the_shop_of_the_readme_is_crawled_as_it_says(tutorial):
    """README's spider finds each product once, by each of its names, and is due again in a day."""
    (spider,) = [block for block in README if "class ShopSpider" in block]
    save(tutorial, spider)

    tried = f"{tutorial.site_url}/product/island-beans-500-g"
    simulated = command(tutorial, "simulate", "shop", "parse_product", "TRY", "--url", tried)
    (said,) = re.findall(r"^(200 GET .*?)^    \.\.\.$", README_TEXT, re.MULTILINE | re.DOTALL)
    assert simulated.startswith(said)

    first = tutorial.scrapy("crawl", "shop", "-O", "cards.jsonl")
    shown = command(tutorial, "show", "EAN:4012345010206")
    failure = command(tutorial, "failures", "1")
    idle = tutorial.scrapy("crawl", "shop")
    command(tutorial, "age", "shop", "1d")
    again = tutorial.scrapy("crawl", "shop")

    assert first.stats["itemgraph/failed"] == 1, first.log
    assert first.stats["itemgraph/claimed"] == first.stats["itemgraph/committed"] + 1
    products = {name for name in tutorial.data() if not name.startswith("CATEGORY:")}
    assert sorted(name[:4] for name in products) == ["SKU:"] * 10 + ["URL:"]
    assert re.search(r"^item +SKU:T1020$", shown, re.MULTILINE)
    assert shown.count("alias ") == 3
    assert "ask us" in failure
    assert "itemgraph/claimed" not in idle.stats
    assert again.stats["itemgraph/claimed"] == 12, again.log  # two categories, ten products
    assert f"<GET {tutorial.site_url}/reviews" not in again.log
