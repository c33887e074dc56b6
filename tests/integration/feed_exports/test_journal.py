"""Scraped items that are kept: what a commit appends to the journal, and how it is read."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from support.graphs import Crawl, changeset

from scrapy_itemgraph.exceptions import DatabaseError, NotFoundError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.graph.parts import journal
from scrapy_itemgraph.model.feed_exports import Scraped
from scrapy_itemgraph.model.operations import Changeset, DeleteItem, RenameItem, UpdateData
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store import scraped_items
from scrapy_itemgraph.store.admin import crawl_changes, crawl_contents
from scrapy_itemgraph.store.registry import crawls

pytestmark = pytest.mark.server


def scraped(*names: str, item_class: str = "dict") -> tuple[Scraped, ...]:
    """Return scraped items of one field."""
    return tuple(Scraped(item_class, f'{{"name": "{name}"}}') for name in names)


def keeping(claim, *given, names=("a", "b"), **fields) -> Changeset:
    """Return a changeset that has scraped items besides what `changeset` makes."""
    return replace(changeset(claim, *given, **fields), scraped=scraped(*names))


def kept(crawl: Crawl) -> list[str]:
    """Return the names of the items in the journal, in its order."""
    rows = scraped_items.read(crawl.connection, crawl.id, after_id=0, limit=1000)
    return [row.fields["name"] for row in rows]


@pytest.fixture
def crawl(connection) -> Crawl:
    """Return a crawl with one task, on a connection that is rolled back."""
    return Crawl.of(connection)


@pytest.fixture
def stored(engine):
    """Yield a crawl whose commits stay, for what opens connections of its own."""
    with engine.connect() as connection:
        crawl = Crawl.of(connection)
        connection.commit()
        yield crawl


def commit(crawl: Crawl, *names: str, item_class: str = "dict") -> None:
    """Keep items outside an execution, and commit."""
    given = Changeset(
        operations=(), outcome=Outcome.OK, scraped=scraped(*names, item_class=item_class)
    )
    crawl.commit(given)
    crawl.connection.commit()


def test_an_execution_keeps_its_items_in_their_order(crawl):
    """Items are kept with the item and the task that they were scraped for."""
    claim = crawl.claimed("A")

    crawl.commit(keeping(claim, names=("b", "a", "c")))

    rows = scraped_items.read(crawl.connection, crawl.id, after_id=0, limit=10)
    assert [row.fields["name"] for row in rows] == ["b", "a", "c"]
    assert {(row.item, row.task) for row in rows} == {("A", "parse")}


def test_items_outside_an_execution_are_kept_without_one(crawl):
    """A changeset without a claim leaves item and task empty."""
    crawl.commit(keeping(None))

    rows = scraped_items.read(crawl.connection, crawl.id, after_id=0, limit=10)
    assert [(row.fields["name"], row.item, row.task) for row in rows] == [
        ("a", None, None),
        ("b", None, None),
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED, Outcome.RETRY])
def test_what_did_not_end_well_keeps_none(crawl, outcome):
    """A failed, refused or retried execution leaves nothing in the journal."""
    delay = timedelta(seconds=1) if outcome is Outcome.RETRY else None

    crawl.commit(keeping(crawl.claimed(), outcome=outcome, delay=delay))

    assert kept(crawl) == []


def test_an_allowed_failure_keeps_its_items(crawl):
    """Where a failure's operations are carried out, its items are kept."""
    crawl.commit(keeping(crawl.claimed(), outcome=Outcome.FAILED, allow_failure=True))

    assert kept(crawl) == ["a", "b"]


@pytest.mark.parametrize("claimed", [True, False])
def test_an_operation_that_fails_takes_the_items_with_it(crawl, claimed):
    """Items and operations are kept together, or not at all, alone in their batch."""
    claim = crawl.claimed() if claimed else None
    bad = UpdateData({"x": 1}, id="nobody")

    crawl.commit(keeping(claim, bad), keeping(None, names=("other",)))

    assert kept(crawl) == ["other"]


def test_an_operation_that_fails_in_an_allowed_failure_takes_the_items_too(crawl):
    """An allowed failure whose operations cannot be carried out keeps nothing."""
    bad = UpdateData({"x": 1}, id="nobody")

    crawl.commit(keeping(crawl.claimed(), bad, outcome=Outcome.FAILED, allow_failure=True))

    assert kept(crawl) == []


def test_a_lost_claim_keeps_none(crawl):
    """Who lost the claim adds nothing; who has it now adds each item once."""
    first = crawl.claimed()
    crawl.release(first)
    second = crawl.claim_pair("A")

    crawl.commit(keeping(first))
    crawl.commit(keeping(second))
    crawl.commit(keeping(second))

    assert kept(crawl) == ["a", "b"]


def test_items_stay_when_their_page_goes(crawl):
    """An item under work that is renamed or deleted does not take along what was scraped."""
    crawl.commit(keeping(crawl.claimed("A"), RenameItem(to="B"), names=("renamed",)))
    crawl.commit(keeping(crawl.claimed("C"), DeleteItem(), names=("deleted",)))

    rows = scraped_items.read(crawl.connection, crawl.id, after_id=0, limit=10)
    assert [(row.fields["name"], row.item) for row in rows] == [("renamed", "B"), ("deleted", None)]


def test_fields_keep_their_order_and_any_text(crawl):
    """Fields come back as they went in, an escaped NUL too."""
    fields = '{"b": 1, "a": {"$": "str", "v": "\\u0000"}, "ä": [1.50, null]}'

    crawl.commit(Changeset(operations=(), outcome=Outcome.OK, scraped=(Scraped("dict", fields),)))

    (row,) = scraped_items.read(crawl.connection, crawl.id, after_id=0, limit=10)
    assert list(row.fields.items()) == [
        ("b", 1),
        ("a", {"$": "str", "v": "\0"}),
        ("ä", [1.5, None]),
    ]


def test_it_is_read_by_pages(crawl):
    """A page begins after the number that it is told, and ends at the limit."""
    crawl.commit(keeping(None, names="abcde"))

    first = scraped_items.read(crawl.connection, crawl.id, after_id=0, limit=2)
    second = scraped_items.read(crawl.connection, crawl.id, after_id=first[-1].number, limit=10)

    assert [row.fields["name"] for row in [*first, *second]] == list("abcde")
    assert len(first) == 2


def test_crawls_are_apart(crawl, connection):
    """One crawl's journal has nothing of another's, in a restart neither."""
    other = Crawl(connection, name="other")
    crawl.commit(keeping(None, names="a"))
    other.commit(keeping(None, names="b"))

    held = crawl_contents.holds(connection, crawl.id)
    deleted = crawl_changes.restart(connection, crawl.id)

    assert held["journal"] == deleted["journal"] == 1
    assert kept(crawl) == []
    assert kept(other) == ["b"]


def test_the_door_reads_lazily_in_one_snapshot(stored, database, engine, monkeypatch):
    """`journal` asks for a page at a time, and shows nothing that was committed meanwhile."""
    monkeypatch.setattr(journal, "_PAGE", 10)
    commit(stored, *map(str, range(25)))
    asked = []
    read = scraped_items.read

    def counted(*args, **given):
        asked.append(given["after_id"])
        return read(*args, **given)

    monkeypatch.setattr(scraped_items, "read", counted)
    with ItemGraph.open(database, "books") as graph:
        entries = graph.journal.read()
        first = next(entries)
        assert len(asked) == 1
        commit(stored, "late")
        rest = list(entries)

    assert [one.fields["name"] for one in [first, *rest]] == [str(n) for n in range(25)]
    assert len(asked) == 4  # the last finds nothing


def test_item_classes(stored, database):
    """Items of the classes that are named come alone; an unknown class is refused."""
    commit(stored, "a")
    commit(stored, "b", item_class="shop.items.Product")
    commit(stored, "c", item_class="shop.items.Review")

    with ItemGraph.open(database, "books") as graph:
        found = graph.journal.read(item_classes=["shop.items.Product", "dict"])
        assert [one.fields["name"] for one in found] == ["a", "b"]
        with pytest.raises(NotFoundError, match=r"did you mean 'shop.items.Product'"):
            graph.journal.read(item_classes=["shop.items.Prodct"])


def test_moments_chain(stored, database):
    """What is kept before a settled moment and from it on, together, is each item once."""
    commit(stored, "a", "b")

    with ItemGraph.open(database, "books") as graph:
        moment = graph.journal.settled()
        commit(stored, "c")
        before = [one.fields["name"] for one in graph.journal.read(until=moment)]
        after = [one.fields["name"] for one in graph.journal.read(since=moment)]

    assert before == ["a", "b"]
    assert after == ["c"]


def test_a_moment_is_settled_when_the_commits_under_way_have_ended(stored, database):
    """A commit that has kept its items, and is not through, is waited for."""
    moments = []
    crawls.share_crawl(stored.connection, stored.id)
    stored.commit(keeping(None))

    def settle():
        with ItemGraph.open(database, "books") as graph:
            moments.append(graph.journal.settled())

    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    thread = threading.Thread(target=settle)
    thread.start()
    while thread.is_alive() and not stored.rows(waiting)[0][0]:
        pass
    assert thread.is_alive()
    stored.connection.commit()
    thread.join()

    with ItemGraph.open(database, "books") as graph:
        assert len(list(graph.journal.read(until=moments[0]))) == 2


def test_a_commit_that_does_not_end_is_not_waited_for_long(stored, database, monkeypatch):
    """A suspended worker's transaction makes `settled` give up, so that others go on."""
    monkeypatch.setattr(journal, "_SETTLE_MS", 1)
    crawls.share_crawl(stored.connection, stored.id)

    with ItemGraph.open(database, "books") as graph:
        with pytest.raises(DatabaseError, match="suspended worker"):
            graph.journal.settled()
        stored.connection.commit()
        assert graph.journal.settled()


def test_ageing_moves_the_journal(stored, database):
    """`age` makes what was kept older, as all else."""
    commit(stored, "a")

    with ItemGraph.open(database, "books") as graph:
        (one,) = graph.journal.read()
        graph.crawls.age(timedelta(days=1))
        (aged,) = graph.journal.read()

    assert one.kept_at - aged.kept_at == timedelta(days=1)


def test_a_restart_says_how_much_goes(stored, database):
    """The journal goes with its crawl, and is counted."""
    commit(stored, "a", "b")
    stored.connection.execute(sa.text("UPDATE processes SET stopped_at = now()"))
    stored.connection.commit()

    with ItemGraph.open(database, "books") as graph:
        assert graph.crawls.restart(dry_run=True)["journal"] == 2
        assert graph.crawls.restart()["journal"] == 2
        assert list(graph.journal.read()) == []


def test_a_crawl_that_does_not_exist(database):
    """Reading the journal of an unknown crawl is refused at once."""
    with ItemGraph.open(database, "books") as graph, pytest.raises(NotFoundError):
        graph.journal.read()
