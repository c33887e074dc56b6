"""Pages that are set aside: out of the worklist whatever their results say, until they are free."""

from __future__ import annotations

import pytest
from support import graphs, oracle

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.operations import CreateItem, Expire, MergeItem, RemoveTag, UpdateData
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import set_aside
from scrapy_itemgraph.store.admin import status
from scrapy_itemgraph.store.registry import runs, tasks
from scrapy_itemgraph.store.worklist import claims


@pytest.fixture
def crawl(connection):
    """Return a crawl with one task."""
    return graphs.Crawl.of(connection)


def hold(crawl, *names, why=Hold.SKIPPED):
    """Set items aside; return how many that changed."""
    numbers = [crawl.item_id(name) for name in names]
    changed = set_aside.hold(crawl.connection, numbers, why)
    oracle.assert_worklist_is_true(crawl.connection, crawl.id)
    return len(changed)


def free(crawl, *names, why=Hold.SKIPPED):
    """Free items; return how many were set aside so."""
    numbers = [crawl.item_id(name) for name in names]
    freed = set_aside.free(crawl.connection, numbers, why)
    oracle.assert_worklist_is_true(crawl.connection, crawl.id)
    return len(freed)


def remaining(crawl):
    """Return what is left of the crawl for a worker that may claim all that is enabled."""
    kinds = claims.open_kinds(crawl.connection, crawl.id, 0, crawl.registration.tasks)
    until = crawl.connection.scalar(engine.NOW)
    numbers = [kind.id for kind in kinds]
    return runs.remaining(crawl.connection, crawl.id, kinds=numbers, until=until)


# Pages that are left are of plain callbacks, and of an earlier run.
@pytest.mark.parametrize("why", [one for one in Hold if one is not Hold.LEFT])
def test_what_is_set_aside_is_not_outstanding_until_it_is_freed(crawl, why):
    """MNB-7: skipped or stashed, it leaves the worklist, and comes back as it was."""
    crawl.work("A")
    crawl.work("B")

    changed, again = hold(crawl, "A", why=why), hold(crawl, "A", why=why)
    aside, state = crawl.worklist(), crawl.state("A")
    freed = free(crawl, "A", "B", why=why)

    assert (changed, again, freed) == (1, 0, 1)
    assert (aside, state) == (["B parse"], str(why))
    assert sorted(crawl.worklist()) == ["A parse", "B parse"]
    assert crawl.state("A") == "never run"


def test_freeing_what_is_stashed_leaves_what_is_skipped(crawl):
    """MNB-7: of two words the later one counts, and each is taken back by its own."""
    crawl.work("A")
    hold(crawl, "A", why=Hold.STASHED)
    hold(crawl, "A", why=Hold.SKIPPED)

    assert free(crawl, "A", why=Hold.STASHED) == 0
    assert crawl.state("A") == "skipped"


def test_nothing_but_its_own_word_frees_a_page(crawl):
    """MNB-7: a handled failure, an expiry, time, new data and new code leave it where it is."""
    crawl.register(parse={"tags": ["page"], "ttl": "1d"})
    crawl.done("DONE")
    crawl.failed("FAILED")
    crawl.work("NEW")
    names = ["DONE", "FAILED", "NEW"]
    hold(crawl, *names)

    crawl.handle()
    crawl.do(*(Expire(id=name) for name in names), UpdateData({"title": "A"}, id="NEW"))
    crawl.age(days=30)
    crawl.register(parse={"tags": ["page"], "version": "2", "retry_failed_on_version_bump": True})
    aside = crawl.worklist()
    free(crawl, *names)

    assert aside == []
    assert sorted(crawl.worklist()) == ["DONE parse", "FAILED parse", "NEW parse"]


def test_a_failure_stays_open_beside_a_hold(crawl):
    """MNB-7: who frees a page that failed finds it held by its failure, as it was."""
    crawl.failed("A")

    hold(crawl, "A")
    listed = crawl.failures()
    free(crawl, "A")

    assert len(listed) == 1
    assert crawl.state("A") == "held"
    assert crawl.worklist() == []


def test_a_claim_goes_on_and_nothing_comes_after_it(crawl):
    """MNB-7: who works on a page commits; an attempt that would be repeated is not."""
    done, tried = crawl.claimed("A"), crawl.claimed("B")
    hold(crawl, "A", "B")

    crawl.end(done)
    crawl.end(tried, outcome=Outcome.RETRY, error=ErrorRecord(type="http 500", message="no"))

    assert crawl.result("A").completed_at is not None
    assert crawl.worklist() == []
    assert (crawl.state("A"), crawl.state("B")) == ("skipped", "skipped")


def test_what_depends_on_a_page_that_is_set_aside_waits(crawl):
    """SRAP-21, MNB-7: all tasks of the page wait; a task that its tags call for later does not."""
    crawl.register(
        parse={"tags": ["page"]},
        price={"tags": ["priced"], "depends_on": ["parse"]},
        look={"tags": ["seen"]},
    )
    crawl.done("A", tags=["page", "priced"])
    before = crawl.worklist()

    hold(crawl, "A")
    aside = crawl.worklist()
    crawl.do(CreateItem("A", ["seen"], merge_tags=True))

    assert (before, aside) == (["A price"], [])
    assert crawl.worklist() == ["A look"]


def test_a_merge_keeps_the_word_on_the_item_that_survives(crawl):
    """MNB-7: what was set aside and goes does not take the other page out of the worklist."""
    crawl.work("A")
    crawl.work("B")
    hold(crawl, "A")

    crawl.do(MergeItem(into="B", id="A"))

    assert crawl.worklist() == ["B parse"]
    oracle.assert_worklist_is_true(crawl.connection, crawl.id)


def test_an_item_without_tasks_cannot_be_set_aside(crawl):
    """Nothing calls for it, so nothing of it is left out."""
    crawl.item("A")
    crawl.work("B")
    crawl.do(RemoveTag("page", id="B"))

    assert hold(crawl, "A", "B") == 0


def test_what_is_set_aside_is_counted_apart(crawl):
    """MNB-7: a task's numbers, and the last line of a crawl, tell both kinds."""
    crawl.do(*(CreateItem(name, ["page"]) for name in "ABCDE"))
    hold(crawl, "A", "B")
    hold(crawl, "C", why=Hold.STASHED)

    (task,) = status.tasks(crawl.connection, crawl.id)
    lines = status.summary(crawl.connection, crawl.id).lines()

    assert (task.waiting, task.skipped, task.stashed, task.held) == (2, 2, 1, 0)
    assert "2 skipped (scrapy itemgraph pages list --skipped)" in lines[1]
    assert "1 stashed (scrapy itemgraph pages list --stashed)" in lines[1]


def test_more_attempts_are_counted_down(crawl):
    """MNB-7: the page has so many, whatever its task says, and the last is known as the last."""
    crawl.failed("A")
    given = set_aside.give_attempts(
        crawl.connection, crawl.item_id("A"), 2, task_id=None, by="a person"
    )
    left = []
    for _ in range(2):
        (claim,) = crawl.claim(1)
        left.append(claim.attempts_left)
        crawl.end(claim, outcome=Outcome.RETRY, error=ErrorRecord(type="http 500", message="no"))

    assert given == ["parse"]
    assert left == [2, 1]
    assert crawl.failures() == []
    oracle.assert_worklist_is_true(crawl.connection, crawl.id)


def test_a_stash_is_let_in_as_others_are_done(crawl):
    """MNB-7: the duty keeps so many in work, those first that are oldest; without it none come."""
    crawl.do(*(CreateItem(f"{number}", ["page"]) for number in range(5)))
    hold(crawl, *(f"{number}" for number in range(5)), why=Hold.STASHED)

    idle = crawl.sweep_step()
    set_aside.set_dripfeed(crawl.connection, crawl.id, 2)
    crawl.sweep()
    first = crawl.worklist()
    crawl.done("0")
    (claim,) = crawl.claim(1)
    crawl.sweep()

    assert not idle
    assert first == ["0 parse", "1 parse"]
    assert (claim.item.id, crawl.worklist()) == ("1", ["2 parse"])


def test_no_run_waits_for_a_stash_of_which_nothing_more_comes(crawl):
    """MNB-7: where a task is disabled, what is freed of it stays; a run ends, and says so."""
    crawl.do(*(CreateItem(f"{number}", ["page"]) for number in range(3)))
    hold(crawl, *(f"{number}" for number in range(3)), why=Hold.STASHED)
    set_aside.set_dripfeed(crawl.connection, crawl.id, 2)
    (number,) = crawl.registration.tasks

    waits = remaining(crawl)
    crawl.sweep()
    has_work = remaining(crawl)
    tasks.set_enabled(crawl.connection, crawl.id, number, enabled=False)
    is_disabled = remaining(crawl)
    tasks.set_enabled(crawl.connection, crawl.id, number, enabled=True)
    crawl.done("0")
    goes_on = remaining(crawl)
    set_aside.set_dripfeed(crawl.connection, crawl.id, None)
    crawl.done("1")

    assert waits.sweeping
    assert (has_work.sweeping, has_work.claimable) == (False, True)
    assert is_disabled.is_over
    assert goes_on.sweeping
    assert remaining(crawl).is_over


@pytest.fixture
def graph(database):
    """Open the graph of a crawl with three pages and a task."""
    with ItemGraph.open(database, crawl="books") as opened:
        opened.database.ping()
        with opened._engine.begin() as connection:
            crawl = graphs.Crawl.of(connection)
            urls = [f"https://books.example/{path}" for path in ("a", "junk/b", "junk/c")]
            crawl.do(*(CreateItem(url, ["page"], {"url": url}) for url in urls))
        yield opened


def test_pages_are_set_aside_by_a_part_of_their_url(graph):
    """MNB-7: in steps that tell how far they are; and freed likewise."""
    reached = []

    skipped = graph.pages.set_aside_all("skipped", part="/junk/", reached=reached.append)
    listed = [row.item for row in graph.lookup.work(state="skipped").rows]
    freed = graph.pages.free_all("skipped", part="/junk/b")

    assert (skipped, reached, freed) == (2, [2], 1)
    assert listed == ["https://books.example/junk/b", "https://books.example/junk/c"]
    assert [row.item for row in graph.lookup.work(state="skipped").rows] == listed[1:]
    assert graph.explain(listed[1])[0].reasons == (
        "it is skipped: set aside; scrapy itemgraph pages unskip",
    )


def test_an_empty_part_of_a_url_is_none(graph):
    """MNB-7: what would have all pages set aside, or free, is refused and changes nothing."""
    for hold in ("skipped", "stashed"):
        for change in (graph.pages.set_aside_all, graph.pages.free_all):
            with pytest.raises(OperationError, match="is empty, and every page has that"):
                change(hold, part="")
    assert graph.lookup.work(state="skipped").rows == []


def test_a_page_that_is_not_there_sets_none_aside(graph):
    """MNB-7: the error names it, and nothing was changed before it."""
    with pytest.raises(NotFoundError, match=r"no page .https://books\.example/other."):
        graph.pages.set_aside("stashed", ["https://books.example/a", "https://books.example/other"])

    assert len(graph.worklist()) == 3


@pytest.mark.parametrize("attempts", [0, 1001])
def test_attempts_are_a_number_that_can_be(graph, attempts):
    """MNB-7: none or too many are refused, with what to do instead."""
    with pytest.raises(OperationError, match="1 to 1,000 attempts"):
        graph.pages.give_attempts("https://books.example/a", attempts)


def test_attempts_for_what_is_done_are_refused(graph):
    """MNB-7: nothing would be tried; the error says how it would."""
    graph.pages.set_aside("skipped", ["https://books.example/a"])

    with pytest.raises(OperationError, match="explain says why"):
        graph.pages.give_attempts("https://books.example/a", 3)


def test_a_dripfeed_is_a_number_that_can_be(graph):
    """MNB-7: none is said by taking it back."""
    with pytest.raises(OperationError, match="1 to 100,000"):
        graph.pages.dripfeed(0)
    graph.pages.dripfeed(7)

    assert graph.pages.dripfed() == 7
