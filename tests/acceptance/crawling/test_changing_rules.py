"""Rules that change while several processes crawl: each page keeps to those of its claim."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from urllib.parse import urlsplit

import pytest
from support import sites
from support.projects import Project, until

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.rules import PageRule, Ruleset

PAGES, LINKS, CHANGES = 500, 8, 50

# Each page links to others of all kinds, so that whatever rules leave open is found soon.
SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/start/0"]

    def parse(self, response):
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)
"""


class Woven(sites.Site):
    """A site of pages of four kinds, each of which links to some others."""

    def __init__(self) -> None:
        super().__init__()
        self.server.handle_error = lambda *_: None  # those that ask are killed in the midst of it

    def answer(self, target):
        status, headers, body = super().answer(target)
        if target == "/robots.txt":
            return status, headers, body
        anchors = "".join(f'<a href="{one}">x</a>' for one in links(target))
        return 200, headers, f"<html><body>{anchors}</body></html>".encode()


def links(path):
    """Return the paths that a page links to, always the same."""
    draw = random.Random(path)
    numbers = draw.sample(range(PAGES), LINKS)
    return [f"/{'abcd'[number % 4]}/{number}" for number in numbers]


@pytest.fixture(scope="module")
def site_kind():
    """Return a site whose pages link to each other."""
    return Woven


def drawn(draw: random.Random) -> Ruleset:
    """Draw rules: what they accept and skip is decided by kinds and by digits of a page."""
    rules = []
    for _ in range(draw.randint(0, 4)):
        match = draw.choice(["/a/", "/[bc]/", "/d/.*7", "[02468]$", "1$", "/c/..$", "(5+)+$"])
        says = draw.choice([{"accept": False}, {"accept": True}, {"skip": True}, {"skip": False}])
        rules.append(PageRule(match=match, **says))
    return Ruleset(accept=draw.random() < 0.9, rules=tuple(rules))


def decided(document, url):
    """Tell whether a link to a URL is accepted, and its page skipped, without our own code."""
    accept, skip = document["accept"], False
    for rule in document["rules"]:
        if re.search(rule["match"], url):
            accept, skip = rule.get("accept", accept), rule.get("skip", skip)
    return accept, skip


@pytest.mark.parametrize("kills", [0, pytest.param(10, marks=pytest.mark.slow)])
def test_each_attempt_keeps_to_the_rules_of_its_claim_whatever_changes_meanwhile(
    project, site, kills
):
    """MNB-12: 50 changes under three processes; links and skips recomputed from outside.

    Processes are killed meanwhile, and others go on in their place.
    """
    project.write(SPIDER, "CONCURRENT_REQUESTS = 4\nITEMGRAPH_CLAIM_BATCH = 20\n")
    others = [project]
    for number in (1, 2):
        directory = project.directory / f"other{number}"
        directory.mkdir()
        others.append(Project(directory, project.url, project.site_url))
        others[-1].write(SPIDER, "CONCURRENT_REQUESTS = 4\nITEMGRAPH_CLAIM_BATCH = 20\n")
    project.crawl("-s", "CLOSESPIDER_PAGECOUNT=1")
    running = [one.start("crawl", "s", "-s", "ITEMGRAPH_IDLE=wait") for one in others]
    draw = random.Random(7)
    with ItemGraph.open(project.url, "s") as graph:
        for change in range(CHANGES):
            if change % 5 == 0 and change < 5 * kills:
                at = draw.randrange(len(running))
                running[at].kill()
                running[at].wait()
                running[at] = others[at].start("crawl", "s", "-s", "ITEMGRAPH_IDLE=wait")
            seen = sum(site.hits.values())
            stored = graph.rules.put(drawn(draw), by="test")
            until(lambda seen=seen: sum(site.hits.values()) > seen + 3 or is_dry(project))
        assert stored.number == CHANGES
        last = graph.rules.put(Ruleset(), by="test")
        graph.rules.apply()
    until(lambda: is_dry(project) and not is_sweeping(project))
    for process in running:
        process.terminate()
    runs = [one.finish(process) for one, process in zip(others, running, strict=True)]

    check(project, site, runs, has_kills=kills > 0)
    assert last.number == CHANGES + 1
    used = {number for (number,) in project.rows("SELECT DISTINCT ruleset_id FROM attempts")}
    assert len(used) > CHANGES // 2


def is_dry(project):
    """Tell whether nothing is left to be claimed."""
    return project.rows("SELECT count(*) FROM work") == [(0,)]


def is_sweeping(project):
    """Tell whether rules are still being applied."""
    return project.rows("SELECT count(*) FROM sweeps") != [(0,)]


def check(project, site, runs, *, has_kills):
    """Compare what each attempt did with what its own rules say, read from the tables alone.

    What is counted of requests and refused links has those of killed processes, or lacks them.
    """
    rulesets = dict(project.rows("SELECT id, rules FROM rulesets"))
    everything = {"accept": True, "rules": []}
    items = dict(project.rows("SELECT name, data->>'url' FROM items"))
    found_by = dict(project.rows("SELECT name, created_by FROM items"))
    attempts = project.rows(
        "SELECT i.name, a.outcome, a.ruleset_id FROM attempts a JOIN items i ON i.id = a.item_id"
    )
    done = defaultdict(list)
    refused = 0
    for name, outcome, ruleset in attempts:
        rules = rulesets.get(ruleset, everything)
        is_skipped = decided(rules, items[name])[1]
        assert outcome in {"ok", "skipped", "released", *(["died"] if has_kills else ())}
        if outcome in {"ok", "skipped"}:
            assert is_skipped == (outcome == "skipped"), (items[name], rules)
        if outcome != "ok":
            continue
        done[name].append(rules)
        urls = {site.url + path for path in links(urlsplit(items[name]).path)} - {items[name]}
        accepted = {url for url in urls if decided(rules, url)[0]}
        refused += len(urls - accepted)
        assert accepted <= set(items.values()), items[name]
    assert all(len(some) == 1 for some in done.values())  # each page once
    for name, parent in found_by.items():
        if parent is not None:
            assert decided(done[parent][0], items[name])[0], (items[name], done[parent][0])
    asked = Counter({path: hits for path, hits in site.hits.items() if path != "/robots.txt"})
    if not has_kills:
        assert sum(run.stats.get("itemgraph/links_refused", 0) for run in runs) == refused
        assert set(asked.values()) == {1}
    assert {site.url + path for path in asked} == {items[name] for name in done}
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]
