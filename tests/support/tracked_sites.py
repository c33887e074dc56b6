"""A random site that a crawl which tracks depth fetches, and how deep its pages are by a search."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.store.depths import relax, sweeps
from scrapy_itemgraph.store.depths.links import UNREACHED
from scrapy_itemgraph.store.registry import crawl_depths
from support import graphs, linked_sites, oracle

PAGES = 40
FAILED = ErrorRecord(type="http 503", message="not yet")
DEPTHS = """
    SELECT i.name, d.depth, v.name AS via FROM depths d JOIN items i ON i.id = d.item_id
    LEFT JOIN depths m ON m.item_id = d.via
    LEFT JOIN items v ON v.id = coalesce(m.moved_to, d.via)
    WHERE d.crawl_id = :crawl AND d.moved_to IS NULL
"""
LEFT = """
    SELECT (SELECT count(*) FROM depth_work WHERE crawl_id = :crawl)
        + (SELECT count(*) FROM depth_sweeps WHERE crawl_id = :crawl)
"""
CHAINS = """
    SELECT FROM depths d JOIN depths m ON m.item_id = d.moved_to WHERE m.moved_to IS NOT NULL
"""


class TrackedSite:
    """A random site that a crawl of tasks fetches; `fetched` are the pages that it has."""

    def __init__(self, connection, seed: int, limit: int | None) -> None:
        self.chance = random.Random(seed)
        self.links = {
            f"P{page}": [f"P{one}" for one in found]
            for page, found in linked_sites.random_links(seed, PAGES).items()
        }
        self.crawl = graphs.Crawl.of(connection)
        self.connection = connection
        self.fetched: set[str] = set()
        self.merged: dict[str, str] = {}
        crawl_depths.begin(connection, self.crawl.id, limit)
        self.crawl.do(CreateItem("P0", ["page"]))

    def moved_to(self, crawl: graphs.Crawl) -> TrackedSite:
        """Return the same site as another crawl knows it, which is as far as this one."""
        other = copy.copy(self)
        other.crawl = crawl
        other.chance = random.Random(len(self.fetched))
        other.fetched, other.merged = set(self.fetched), dict(self.merged)
        return other

    def page(self, name: str) -> str:
        """Return which page a name means by now."""
        while name in self.merged:
            name = self.merged[name]
        return name

    def known_links(self) -> dict[str, set[str]]:
        """Return the links of pages that were fetched, as merges left them."""
        known: dict[str, set[str]] = {}
        for page in self.fetched:
            known.setdefault(self.page(page), set()).update(map(self.page, self.links[page]))
        return known

    def fetch(self, most: int) -> bool:
        """Claim some pages and end each somehow; tell whether there were any."""
        claims = self.crawl.claim(most)
        ends = []
        for claim in claims:
            if self.chance.random() < 0.15:
                ends.append(graphs.changeset(claim, outcome=Outcome.RETRY, error=FAILED))
                continue
            # Either name of a merged page leads here; the site has both pages' links.
            pages = [one for one in self.links if self.page(one) == claim.item.id]
            pages = [one for one in pages if one not in self.fetched or len(pages) == 1]
            made, seen = [], []
            for page in pages:
                self.fetched.add(page)
                for link in self.links[page]:
                    is_known = self.crawl.item_id(link) is not None and self.chance.random() < 0.5
                    (seen if is_known else made).append(link)
            given = [CreateItem(one, ["page"]) for one in dict.fromkeys(made)]
            keys = {item_names.hex_key(one) for one in seen}
            ends.append(replace(graphs.changeset(claim, *given), links=keys))
        if ends:
            self.crawl.commit(*ends)
            self.crawl.age(hours=1)
        return bool(claims)

    def step(self) -> bool:
        """Do a step of what passes shorter paths on; tell whether there was one."""
        steps = [sweeps.free, sweeps.sweep, relax.relax]
        self.chance.shuffle(steps)
        with graphs.committed(self.connection):
            return sum(step(self.connection, self.crawl.id) for step in steps) > 0

    def finish(self) -> None:
        """Fetch all that is near enough, and pass all on."""
        while self.fetch(5) or self.step():
            pass
        assert self.crawl.rows(LEFT, crawl=self.crawl.id) == [(0,)]
        oracle.assert_worklist_is_true(self.connection, self.crawl.id)

    def assert_depths_are_least(self, limit: int | None = None) -> None:
        """Compare all depths with those of a search, breadth first, over what is known."""
        expected = linked_sites.depths(self.known_links(), ["P0"])
        rows = self.crawl.rows(DEPTHS, crawl=self.crawl.id)
        found = {row.name: row.depth for row in rows if row.depth != UNREACHED}
        assert {self.page(name): depth for name, depth in found.items()} == expected
        assert not self.crawl.rows(CHAINS)
        for row in rows:
            if row.via is not None:  # the path that is told is a path
                assert expected[self.page(row.via)] + 1 == expected[self.page(row.name)]
