"""What a plain spider's pages are called wherever people read of them."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.tracebacks("HttpError: Ignoring non-200 response", "KeyError: 'price'")

# What no person wrote: a fingerprint, the hash of a name, a name that a request is stored by.
INNER = re.compile(r"\b[0-9a-f]{20,}\b|\b(?:REQ|START|LOGIN):")
LONG = "/page/long?q=" + "z" * 1_900
SPIDER = f"""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield {{"first": response.url}}
        yield response.follow("/page/2", self.parse_two)
        yield response.follow("/page/2", self.parse_other, dont_filter=True)
        yield response.follow("/page/5", self.parse_broken)
        yield response.follow("/page/5", self.parse_failing, dont_filter=True)
        yield response.follow("/page/3", self.parse_two, method="POST", body="a=1")
        yield response.follow("{LONG}", self.parse_two)
        yield response.follow("/status/404", self.parse_two)
        yield response.follow("/page/4", self.parse_broken)
        yield response.follow("/page/4", self.parse_broken, method="POST", body="a=1")
        yield response.follow("{LONG}&broken", self.parse_broken)

    def parse_two(self, response):
        yield {{"url": response.url}}

    def parse_other(self, response):
        yield {{"other": response.url}}

    def parse_failing(self, response):
        raise KeyError("price")

    def parse_broken(self, response):
        raise KeyError("price")
"""
SETTINGS = """
ITEMGRAPH_KEEP_ITEMS = True
LOG_LEVEL = "DEBUG"
FEEDS = {"feed.jsonl": {"format": "jsonlines"}}
"""
# Runs commands in one process, and writes before each what it is.
COMMANDS = """
import json, sys
from scrapy.cmdline import execute

sys.stderr = sys.stdout
for arguments in json.loads(sys.argv[1]):
    print("$", *arguments, flush=True)
    try:
        execute(["scrapy", "itemgraph", *arguments])
    except SystemExit:
        pass
"""


@pytest.mark.crawls(SPIDER, SETTINGS)
def test_commands_call_requests_by_their_urls(run, project, site):
    """No line of a command, the worker's log or a feed has a digest where a URL could stand."""
    assert run.stats["reason"] == "finished", run.log
    ids = [number for (number,) in project.rows("SELECT id FROM failures ORDER BY id")]
    pages = ["/page/1", "/page/2", "/page/3", "/page/4", LONG, "/status/404"]
    asked = [
        *(["status"], ["status", "-v"], ["runs"], ["worklist"], ["worklist", "--gone"]),
        *(["failures"], ["failures", "--groups"], *(["failures", str(one)] for one in ids)),
        *(["items"], ["done"], ["tasks"], ["slots"], ["export", "-o", "out.csv"]),
        *([command, site.url + path] for command in ("show", "explain") for path in pages),
        *([command, f"POST {site.url}/page/4"] for command in ("show", "explain")),
        *([command, f"{site.url}/page/1 parse"] for command in ("show", "explain")),
    ]
    shown = project.finish(project.start_python("-c", COMMANDS, json.dumps(asked)))
    files = [(project.directory / name).read_text() for name in ("feed.jsonl", "out.csv")]
    said = dict(zip(["$ the log", "$ the feed", "$ the export"], [run.log, *files], strict=True))
    for part in re.split(r"^(?=\$ )", shown.output, flags=re.MULTILINE)[1:]:
        asked_for, _, answer = part.partition("\n")
        said[asked_for] = answer

    found = {
        name: [line for line in text.splitlines() if INNER.search(line)]
        for name, text in said.items()
    }
    assert len(ids) == 6
    assert len(said) == len(asked) + 3, shown.log
    assert {name: lines for name, lines in found.items() if lines} == {}
    simulates = set(re.findall(r"itemgraph simulate s (.*)", shown.output))
    assert {
        *(f"'{page}'" for page in (f"POST {site.url}/page/4", f"{site.url}/page/5 parse_failing")),
        *(f"{site.url}{path}" for path in ("/page/4", "/page/5", "/status/404")),
    } <= simulates
    for name in ("failures", "items", "done"):
        assert f"POST {site.url}/page/" in said[f"$ {name}"], said[f"$ {name}"]
