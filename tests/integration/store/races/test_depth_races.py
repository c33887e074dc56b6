"""Links, merges and limits beside what passes shorter paths on: none of them is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import oracle
from support.races import Crawl, ended

from scrapy_itemgraph import CreateItem, MergeItem, task
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.depths import relax, sweeps
from scrapy_itemgraph.store.registry import crawl_depths, crawls

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa

pytestmark = pytest.mark.server


class Pages:
    @task(tags=["page"])
    def parse(self, response, item): ...


class Tracked(Crawl):
    """A crawl that tracks depth, whose pages A to D are a chain of which D waits to be fetched."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine, Pages)
        with engine.begin() as connection:
            crawl_depths.begin(connection, self.id, None)
        self.settle()
        self.own = self.worker()
        self.seed(page("A"), page("X"))
        for following in ("B", "C", "D"):
            self.fetch_all(page(following))

    def fetch_all(self, link: CreateItem) -> None:
        """Fetch all there is to fetch but X, which links nowhere; the others link to a page."""
        for claim in self.claimed(self.own):
            links = () if claim.item.id == "X" else (link,)
            with self.engine.begin() as connection:
                self.apply(connection, ended(claim, *links), worker=self.own)

    def claim_last(self):
        """Claim D."""
        (claim,) = self.claimed(self.own)
        assert claim.item.id == "D"
        return claim

    def relax(self, connection: sa.Connection) -> bool:
        """Do a step in the caller's transaction."""
        return relaxed(connection, self.id)

    def settle(self) -> None:
        """Do all that is left, and look whether all is so then."""
        did = 1
        while did:
            with self.engine.begin() as connection:
                steps = (sweeps.free, sweeps.sweep)
                did = sum(step(connection, self.id) for step in steps)
            with self.engine.begin() as connection:
                did += relaxed(connection, self.id)
        with self.engine.begin() as connection:
            oracle.assert_worklist_is_true(connection, self.id)

    @property
    def depths(self) -> dict[str, int]:
        """How deep pages are, by name."""
        return dict(
            self.rows(
                "SELECT i.name, d.depth FROM depths d JOIN items i ON i.id = d.item_id "
                "WHERE d.moved_to IS NULL ORDER BY 1"
            )
        )


def relaxed(connection: sa.Connection, crawl_id: int) -> bool:
    """Do a step in the caller's transaction."""
    engines.hot_path(connection)
    crawls.share_crawl(connection, crawl_id)
    return relax.relax(connection, crawl_id)


@pytest.fixture
def crawl(engine) -> Iterator[Tracked]:
    """Yield a crawl that tracks depth."""
    return Tracked(engine)


def page(name: str) -> CreateItem:
    """Return a page with work."""
    return CreateItem(name, tags=["page"], data={"url": f"http://a.example/{name}"})


@pytest.mark.parametrize("is_link_first", [True, False])
def test_a_link_is_passed_on_that_is_committed_while_its_page_comes_nearer(
    crawl, pair, is_link_first
):
    """MNB-9: whoever is second waits for the first, and sees what it did."""
    writer, relaxer = pair
    claim = crawl.claim_last()
    crawl.seed(page("D"))  # a path begins there: an offer waits
    with crawl.engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM depth_work").scalar() == 1

    def link(connection: sa.Connection) -> None:
        crawl.apply(connection, ended(claim, page("E")), worker=crawl.own)

    first, second = (writer, relaxer) if is_link_first else (relaxer, writer)
    steps = {writer: link, relaxer: crawl.relax}
    first.run(steps[first])
    waiting = second.start(steps[second])
    second.until_blocked()
    first.commit()
    waiting.result(60)
    second.commit()
    crawl.settle()

    assert crawl.depths == {"A": 0, "B": 1, "C": 2, "D": 0, "E": 1, "X": 0}


@pytest.mark.parametrize("is_merge_first", [True, False])
def test_a_merge_beside_a_step_loses_no_path(crawl, pair, is_merge_first):
    """MNB-9: the depth that is offered to the page that goes is the other's, and passed on."""
    writer, relaxer = pair
    claim = crawl.claim_last()
    with crawl.engine.begin() as connection:
        crawl.apply(connection, ended(claim, page("E")), worker=crawl.own)
    crawl.seed(page("C"))  # an offer for C waits

    def merge(connection: sa.Connection) -> None:
        crawl.operate(connection, MergeItem(into="D", id="C"))

    first, second = (writer, relaxer) if is_merge_first else (relaxer, writer)
    steps = {writer: merge, relaxer: crawl.relax}
    first.run(steps[first])
    waiting = second.start(steps[second])
    second.until_blocked_or_done()
    first.commit()
    waiting.result(60)
    second.commit()
    crawl.settle()

    assert crawl.depths == {"A": 0, "B": 1, "D": 0, "E": 1, "X": 0}


@pytest.mark.parametrize("is_limit_first", [True, False])
def test_a_limit_beside_a_commit_counts_for_what_that_makes(crawl, pair, is_limit_first):
    """MNB-10: a page that is committed beside a new limit waits if it is too deep."""
    writer, person = pair
    claim = crawl.claim_last()

    def link(connection: sa.Connection) -> None:
        crawl.apply(connection, ended(claim, page("E")), worker=crawl.own)

    def limit(connection: sa.Connection) -> None:
        crawl_depths.set_limit(connection, crawl.id, 3, by="a person")

    first, second = (person, writer) if is_limit_first else (writer, person)
    steps = {writer: link, person: limit}
    first.run(steps[first])
    waiting = second.start(steps[second])
    second.until_blocked()
    first.commit()
    waiting.result(60)
    second.commit()
    crawl.settle()

    assert crawl.depths["E"] == 4
    assert crawl.outstanding() == []


def test_one_process_at_a_time_passes_paths_on(crawl, pair):
    """MNB-9: another finds the lock taken, and does nothing; so the least always comes first."""
    one, other = pair
    crawl.seed(page("B"))

    assert one.run(crawl.relax)
    assert not other.run(crawl.relax)
    one.commit()
    other.commit()
    crawl.settle()

    assert crawl.depths == {"A": 0, "B": 0, "C": 1, "D": 2, "X": 0}


@pytest.mark.parametrize("has_items", [True, False])
def test_a_commit_that_waits_while_depths_begin_to_be_tracked_makes_pages_with_depths(
    engine, pair, has_items
):
    """MNB-9: it does not know yet that they are; what it makes is marked before all is settled."""
    person, writer = pair
    crawl = Crawl(engine, Pages)
    own = crawl.worker()
    claims = []
    if has_items:
        crawl.seed(page("A"))
        claims = crawl.claimed(own)

    def link(connection: sa.Connection) -> None:
        if claims:
            crawl.apply(connection, ended(claims[0], page("B")), worker=own)
        else:
            crawl.operate(connection, page("A"))

    def track(connection: sa.Connection) -> None:
        crawl_depths.set_limit(connection, crawl.id, 0, by="a person")

    person.run(track)
    waiting = writer.start(link)
    writer.until_blocked()
    person.commit()
    waiting.result(60)
    with engine.begin() as connection:  # the walk waits for it
        assert not sum(sweeps.sweep(connection, crawl.id) for _ in range(3))
    writer.commit()
    Tracked.settle(crawl)

    assert Tracked.depths.fget(crawl) == ({"A": 0, "B": 1} if has_items else {"A": 0})
    assert crawl.outstanding() == ([] if has_items else [("A", "parse", False)])
