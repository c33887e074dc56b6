"""Merging items: which data, metadata, tags, names and failures survive."""

from __future__ import annotations

import pytest
from support import graphs, oracle

from scrapy_itemgraph import (
    CreateAlias,
    CreateItem,
    DeleteItem,
    MergeItem,
    RenameItem,
    StoreResult,
    UpdateData,
    UpdateMetadata,
)
from scrapy_itemgraph.model.work import Outcome


@pytest.fixture
def crawl(connection):
    """Yield a crawl with `parse` and `price` of the tag `page`; check its worklist at the end."""
    crawl = graphs.Crawl.of(connection, parse={"tags": ["page"]}, price={"tags": ["page"]})
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def stored(metadata, name, task="parse"):
    """Return the operation that stores a result."""
    return StoreResult(metadata, id=name, task=task)


def merge_into_b(kind):
    """Merge A into B, as MergeItem or as the rename that finds its name taken."""
    if kind is MergeItem:
        return MergeItem("B", id="A")
    return RenameItem("B", id="A", if_taken="merge")


@pytest.mark.parametrize("kind", [MergeItem, RenameItem])
def test_a_merge_leaves_a_redirect(crawl, kind):
    """SRAP-43: all names of the merged item, its own id too, point to the one that survives."""
    crawl.item("A", aliases=["a"])
    crawl.item("B", aliases=["b"])

    crawl.do(merge_into_b(kind))

    assert {crawl.get(name).id for name in ("A", "a", "B", "b")} == {"B"}
    assert crawl.get("B").aliases == ("A", "a", "b")


@pytest.mark.parametrize("into_is_later", [True, False])
def test_without_a_merger_the_later_updated_item_wins_a_key(crawl, into_is_later):
    """SRAP-44: data is joined key by key, the item updated later wins, and no key is lost."""
    crawl.item("A", data={"a": 1, "n": "A"})
    crawl.item("B", data={"b": 2, "n": "B"})
    crawl.do(UpdateData({}, id="B" if into_is_later else "A"))

    crawl.do(MergeItem("B", id="A"))

    assert crawl.get("B").data == {"a": 1, "b": 2, "n": "B" if into_is_later else "A"}


def test_a_merger_gets_the_data_of_into_first(crawl):
    """SRAP-43: the callback gets into's data, then the data of the item that goes."""
    crawl.item("A", data={"n": "A"})
    crawl.item("B", data={"n": "B"})

    crawl.do(MergeItem("B", id="A", merge=lambda into, gone: {"order": [into["n"], gone["n"]]}))

    assert crawl.get("B").data == {"order": ["B", "A"]}


def test_tags_are_united_and_the_value_of_into_wins(crawl):
    """SRAP-43: the survivor has the tags of both, with its own values."""
    crawl.item("A", tags={"rank": 1, "page": 1})
    crawl.item("B", tags={"rank": 2})

    crawl.do(MergeItem("B", id="A"))

    assert crawl.get("B").tags == {"rank": 2, "page": 1}
    assert crawl.worklist() == ["B parse", "B price"]


@pytest.mark.parametrize("later", ["A", "B"])
def test_the_newest_metadata_of_a_task_wins_whole(crawl, later):
    """SRAP-44: per task the metadata completed later is kept whole, with its version and time."""
    first = "B" if later == "A" else "A"
    crawl.item("A", tags=["page"])
    crawl.item("B", tags=["page"])
    crawl.do(stored({"from": first, "more": 1}, first))
    crawl.do(stored({"from": later}, later))

    crawl.do(MergeItem("B", id="A"))

    assert crawl.result("B").metadata == {"from": later}
    assert crawl.state("B") == "fresh"


def test_a_result_that_only_one_has_is_kept(crawl):
    """SRAP-44: a completed result goes before one that never ran, whichever item has it."""
    crawl.item("A", tags=["page"])
    crawl.item("B", tags=["page"])
    crawl.do(
        stored({"from": "A"}, "A"),
        UpdateMetadata({"note": 1}, id="B", task="parse"),
        stored({"from": "B"}, "B", "price"),
    )

    crawl.do(MergeItem("B", id="A"))

    assert crawl.result("B").metadata == {"from": "A"}
    assert crawl.result("B", "price").metadata == {"from": "B"}


def test_merge_metadata_joins_the_metadata_of_a_task(crawl):
    """SRAP-43: a task's merger gets into's metadata first; other tasks keep the newest."""
    crawl.item("A")
    crawl.item("B")
    crawl.do(stored({"n": ["A"]}, "A"), stored({"n": "A"}, "A", "price"))
    crawl.do(stored({"n": ["B"]}, "B"), stored({"n": "B"}, "B", "price"))

    def joined(into, gone):
        return {"n": into["n"] + gone["n"]}

    crawl.do(MergeItem("B", id="A", merge_metadata={"parse": joined}))

    assert crawl.result("B").metadata == {"n": ["B", "A"]}
    assert crawl.result("B", "price").metadata == {"n": "B"}


@pytest.mark.parametrize(
    ("operation", "what_is_wrong"),
    [
        (MergeItem("nobody", id="A"), "there is no item 'nobody'"),
        (MergeItem("B", id="nobody"), "there is no item 'nobody'"),
        (MergeItem("B", id="A", merge=lambda into, gone: 5), "merge returned 5, not a mapping"),
        (MergeItem("B", id="A", merge=lambda into: {}), "merge raised TypeError"),
        (
            MergeItem("B", id="A", merge_metadata={"prise": lambda into, gone: into}),
            "there is no task 'prise'; did you mean 'price'?",
        ),
        (
            MergeItem("B", id="A", merge_metadata={"parse": lambda into, gone: {1: 2}}),
            "what merge_metadata of parse returned has the key 1",
        ),
    ],
)
def test_a_merge_that_cannot_be_carried_out_changes_nothing(crawl, operation, what_is_wrong):
    """SRAP-43: a missing item or task, or a merger that gives nonsense, is an error."""
    for name in "AB":
        crawl.item(name)
        crawl.do(stored({"n": 1}, name))
    before = graphs.graph_state(crawl.connection, crawl.id)

    message = crawl.refused(operation)

    assert what_is_wrong in message
    assert graphs.graph_state(crawl.connection, crawl.id) == before


def test_merging_an_item_into_itself_changes_nothing(crawl):
    """SRAP-43: a merge of an item into itself, by any alias, is no operation."""
    crawl.item("A", aliases=["a"], data={"n": 1})
    before = graphs.graph_state(crawl.connection, crawl.id)

    crawl.do(MergeItem("a", id="A"), RenameItem("A", id="a", if_taken="merge"))

    assert graphs.graph_state(crawl.connection, crawl.id) == before


@pytest.mark.parametrize("later", ["A", "B"])
def test_failures_and_held_follow_the_result_that_is_kept(crawl, later):
    """SRAP-44: a pair that failed after its newer success stays held, with its open failure."""
    crawl.done("B" if later == "A" else "A")
    crawl.done(later)
    crawl.register(parse={"tags": ["page"], "version": "2"}, price={"tags": ["page"]})
    crawl.failed(later)

    crawl.do(MergeItem("B", id="A"))

    assert crawl.state("B") == "held"
    assert crawl.failures() == ["B"]


def test_the_failures_of_a_result_that_is_dropped_are_dropped(crawl):
    """SRAP-44: where the newer result is a good one, the other's open failure is gone."""
    crawl.failed("A")
    crawl.done("B")

    crawl.do(MergeItem("B", id="A"))

    assert crawl.state("B") == "fresh"
    assert crawl.failures() == []


def test_the_open_failure_of_into_is_superseded_by_a_newer_result(crawl):
    """SRAP-44: where the merged item brings the newer result, into's failure is handled."""
    crawl.failed("B")
    crawl.done("A")

    crawl.do(MergeItem("B", id="A"))

    assert crawl.state("B") == "fresh"
    assert crawl.failures() == []


def test_a_failure_moves_with_its_result(crawl):
    """SRAP-44: an open failure of the result that is kept is listed under the survivor."""
    crawl.item("B")
    crawl.failed("A")

    crawl.do(MergeItem("B", id="A"))

    assert crawl.failures() == ["B"]
    assert crawl.state("B") == "held"


def test_an_execution_whose_item_was_merged_goes_on_as_the_survivor(crawl):
    """SRAP-56: found to be another item: operations and own result then mean the survivor."""
    crawl.item("B", data={"b": 1})
    claim = crawl.claimed("A", data={"a": 1})

    applied = crawl.end(
        claim,
        RenameItem("B", if_taken="merge"),
        UpdateData({"n": 2}),
        UpdateMetadata({"m": 3}),
        CreateItem("C"),
    )

    assert applied.outcome is Outcome.OK
    assert crawl.get("A").id == "B"
    assert crawl.get("B").data == {"a": 1, "b": 1, "n": 2}
    assert crawl.state("B") == "fresh"
    assert crawl.result("B").metadata == {"m": 3}
    assert crawl.get("C").created_by == "B"
    assert crawl.worklist() == ["B price"]


def test_metadata_yielded_before_a_merge_is_the_newest(crawl):
    """SRAP-44: what the execution itself yielded for its task is newer than into's result."""
    crawl.item("B")
    claim = crawl.claimed("A")
    crawl.do(stored({"from": "B"}, "B"))

    crawl.end(claim, UpdateMetadata({"from": "A"}), MergeItem("B"))

    assert crawl.result("B").metadata == {"from": "A"}


def test_without_metadata_of_its_own_an_execution_keeps_what_into_has(crawl):
    """SRAP-44: an execution that yields no metadata keeps that of the survivor."""
    crawl.item("B")
    claim = crawl.claimed("A")
    crawl.do(stored({"from": "B"}, "B"))

    crawl.end(claim, MergeItem("B"))

    assert crawl.result("B").metadata == {"from": "B"}


def test_a_chain_of_merges_in_one_batch_ends_at_one_item(crawl):
    """SRAP-4, SRAP-43: names, results, failures and attempts go through a chain of merges."""
    crawl.failed("A")
    crawl.item("B")
    crawl.done("C", task="price")
    crawl.item("D", aliases=["d"])

    crawl.do(
        MergeItem("B", id="A"),
        MergeItem("C", id="A"),
        MergeItem("d", id="B"),
        UpdateData({"n": 1}, id="A"),
    )

    assert {crawl.get(name).id for name in "ABCDd"} == {"D"}
    assert crawl.get("D").data["n"] == 1
    assert crawl.failures() == ["D"]
    assert crawl.state("D", "price") == "fresh"
    assert {"failed", "ok"} <= set(crawl.attempts("D"))


def test_merges_in_a_circle_end_at_one_item(crawl):
    """SRAP-43: in one batch A goes into B, and B into a new A."""
    crawl.item("A", data={"a": 1})
    crawl.item("B", data={"b": 1})

    crawl.do(
        MergeItem("B", id="A"),
        MergeItem("B", id="A"),
        RenameItem("A", id="B"),
        CreateItem("C"),
        MergeItem("A", id="C"),
    )

    assert crawl.get("C").id == "A"
    assert crawl.get("A").aliases == ("B", "C")
    assert crawl.get("A").data == {"a": 1, "b": 1}


def test_found_items_are_merged_into_the_one_under_work(crawl):
    """SRAP-56: an execution finds others that are the same, and merges them into its own item."""
    crawl.item("EAN:1", data={"ean": 1})
    claim = crawl.claimed("SKU:1", data={"sku": 1})

    crawl.end(claim, MergeItem("SKU:1", id="EAN:1"), UpdateData({"n": 2}))

    assert crawl.get("EAN:1").id == "SKU:1"
    assert crawl.get("SKU:1").data == {"sku": 1, "ean": 1, "n": 2}
    assert crawl.state("SKU:1") == "fresh"


@pytest.mark.parametrize("fence", [DeleteItem("A"), MergeItem("B", id="A")], ids=lambda o: o.verb)
def test_the_claim_of_an_item_that_goes_is_lost_and_not_retried(crawl, fence):
    """SRAP-11: deleting or merging an item fences the claim on it; that commits nothing."""
    crawl.done("B")
    crawl.done("B", task="price")
    claim = crawl.claimed("A")
    crawl.do(fence)

    applied = crawl.end(claim, CreateItem("C"), UpdateData({"n": 1}))

    assert applied.outcome is None
    assert crawl.get("C") is None
    assert crawl.rows("SELECT FROM work WHERE item_id = :item", item=claim.item_id) == []


def test_what_a_fenced_claim_leaves_undone_is_made_anew(crawl):
    """SRAP-43: when a claimed item is merged, the survivor's missing work is made."""
    crawl.item("B")
    claim = crawl.claimed("A")

    crawl.do(MergeItem("B", id="A"))

    assert crawl.worklist() == ["B parse", "B price"]
    assert crawl.end(claim).outcome is None


def test_deleting_what_was_merged_of_an_updated_item_is_an_error(crawl):
    """SRAP-45: an item updated by an execution cannot be deleted by it, merged or not."""
    crawl.item("B")
    claim = crawl.claimed("A")

    applied = crawl.end(claim, UpdateData({"n": 1}), MergeItem("B"), DeleteItem("B"))

    assert applied.outcome is Outcome.FAILED
    assert "delete it or update it" in applied.error.message


def test_the_failure_of_an_allowed_execution_follows_a_merge_in_its_batch(crawl):
    """SRAP-52: a failure is recorded on the item that its result went to within the batch."""
    crawl.item("B")
    failing, merging = crawl.claimed("A"), crawl.claimed("C")

    crawl.commit(
        graphs.changeset(failing, outcome=Outcome.FAILED, allow_failure=True),
        graphs.changeset(merging, MergeItem("B", id="A")),
    )

    assert crawl.state("B") == "held"
    assert crawl.failures() == ["B"]


def test_the_alias_left_by_a_merge_can_be_given_up(crawl):
    """SRAP-43: the redirect is an alias like any other."""
    crawl.item("A")
    crawl.item("B")
    crawl.do(MergeItem("B", id="A"))

    crawl.do(CreateAlias("a", to="A"))

    assert crawl.get("a").id == "B"


@pytest.mark.parametrize("end", ["retry", "release", "death", "commit"])
def test_a_claim_of_an_item_that_went_leaves_no_attempt(connection, end):
    """However such a claim ends, nothing is kept of it: nobody could look at it or delete it."""
    crawl = graphs.Crawl.of(connection)
    crawl.work("A")
    crawl.item("B")
    worker = crawl.new_worker(-graphs.LEASE if end == "death" else graphs.LEASE)
    claim = crawl.claim_pair("A", worker=worker)
    crawl.do(MergeItem("B", id="A"))

    if end == "release":
        crawl.release(claim, worker=worker)
    elif end == "death":
        crawl.take_over()
    else:
        outcome = Outcome.RETRY if end == "retry" else Outcome.OK
        assert crawl.end(claim, outcome=outcome).outcome is None

    assert crawl.rows("SELECT outcome FROM attempts") == []
    assert crawl.worklist() == ["B parse"]
    oracle.assert_worklist_is_true(connection, crawl.id)
