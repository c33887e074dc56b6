"""Items and their names: creating, renaming, aliases, tags, data, deleting."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa
from support import graphs, oracle

from scrapy_itemgraph import (
    AddTag,
    CreateAlias,
    CreateItem,
    DeleteAlias,
    DeleteItem,
    RemoveTag,
    RenameItem,
    UpdateData,
    UpdateMetadata,
)
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store.registry import crawls


@pytest.fixture
def crawl(connection):
    """Yield a crawl with the task `parse` of the tag `page`, and check its names at the end."""
    crawl = graphs.Crawl.of(connection)
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


# Creating


def test_an_item_has_its_id_data_tags_and_times(crawl):
    """SRAP-1, SRAP-8: an item is its id, data in its order, tags with values, and its times."""
    crawl.do(CreateItem("SKU:1", {"page": None, "rank": 3}, {"b": 1, "a": 10**20}))

    item = crawl.get("SKU:1")
    assert (item.id, item.aliases) == ("SKU:1", ())
    assert item.data == {"b": 1, "a": 10**20}
    assert list(item.data) == ["b", "a"]
    assert item.tags == {"page": None, "rank": 3}
    assert item.created_at is not None
    assert item.created_at <= item.updated_at


@pytest.mark.parametrize("taken", ["A", "a", "gone"])
def test_creating_what_exists_changes_nothing(crawl, taken):
    """SRAP-41: a name taken by an item, an alias or a deleted item discards a creation whole."""
    crawl.item("A", tags=["old"], data={"n": 1}, aliases=["a"], nice=2)
    crawl.item("gone")
    crawl.do(DeleteItem("gone", forget=False))
    before = graphs.graph_state(crawl.connection, crawl.id)

    labels = crawl.do(
        CreateItem(taken, ["page"], {"n": 2}, aliases=["b"], nice=5, created_by="nobody")
    )

    assert labels == ["known"]
    assert graphs.graph_state(crawl.connection, crawl.id) == before
    assert crawl.get("A").created_by is None
    assert crawl.get("b") is None


@pytest.mark.parametrize("taken", ["A", "a", "gone"])
def test_fail_if_exists_makes_a_taken_name_an_error(crawl, taken):
    """SRAP-41: with fail_if_exists a taken name is an error that names it."""
    crawl.item("A", aliases=["a"])
    crawl.item("gone")
    crawl.do(DeleteItem("gone", forget=False))

    message = crawl.refused(CreateItem(taken, fail_if_exists=True))

    assert message == f"CreateItem: {taken!r} exists already"


def test_merge_tags_adds_missing_tags_and_keeps_values(crawl):
    """SRAP-41: with merge_tags a discarded creation still adds the tags that are missing."""
    crawl.item("A", tags={"rank": 1}, data={"n": 1}, aliases=["a"])

    crawl.do(CreateItem("a", {"rank": 2, "page": 5}, {"n": 2}, merge_tags=True))

    assert crawl.get("A").tags == {"rank": 1, "page": 5}
    assert crawl.get("A").data == {"n": 1}
    assert crawl.worklist() == ["A parse"]


def test_aliases_that_are_taken_are_skipped(crawl):
    """SRAP-46: of a new item's aliases those already taken stay where they are."""
    crawl.item("A", aliases=["a"])

    crawl.do(CreateItem("B", aliases=["a", "A", "b", "B", "b"]))

    assert crawl.get("B").aliases == ("b",)
    assert crawl.get("a").id == "A"


def test_fail_if_exists_makes_a_taken_alias_an_error(crawl):
    """SRAP-46: with fail_if_exists a new item whose alias is taken is not created at all."""
    crawl.item("A", aliases=["a"])

    message = crawl.refused(CreateItem("B", aliases=["b", "a"], fail_if_exists=True))

    assert "'a' exists already" in message
    assert crawl.get("B") is None
    assert crawl.get("b") is None


def test_the_aliases_of_one_batch_go_to_whoever_comes_first(crawl):
    """SRAP-3: within a batch too a name is taken once, by the first operation that asks for it."""
    crawl.do(
        CreateItem("A", aliases=["x", "B"]),
        CreateItem("B", aliases=["y"]),
        CreateItem("C", aliases=["x", "y"]),
        CreateAlias("z", to="C"),
        CreateAlias("z", to="A"),
    )

    assert crawl.get("A").aliases == ("B", "x")
    assert crawl.get("C").aliases == ("y", "z")
    assert crawl.get("B").id == "A"


def test_a_name_that_a_discarded_creation_mentions_is_still_free(crawl):
    """SRAP-41: the aliases of a discarded creation can be created as items in the same batch."""
    crawl.item("A")

    crawl.do(CreateItem("A", aliases=["B"]), CreateItem("B", data={"n": 1}))

    assert crawl.get("B").data == {"n": 1}


def test_a_random_id_can_be_named_by_later_operations(crawl):
    """SRAP-31: a drawn id is known at once, so the operations after it can use it."""
    lot = CreateItem(prefix="LOT:", data={"n": 1})

    crawl.do(lot, CreateAlias("lot", to=lot.id), UpdateData({"n": 2}, id=lot.id))

    assert crawl.get("lot").id == lot.id
    assert crawl.get("lot").data == {"n": 2}


def test_created_by_is_the_item_under_work_or_none(crawl):
    """SRAP-2, SRAP-30: what an execution creates was created by its item; a seed by none."""
    crawl.work("A", aliases=["a"])

    crawl.done("A", CreateItem("B"), UpdateData({"n": 1}, id="C", upsert=True))

    assert crawl.get("A").created_by is None
    assert crawl.get("B").created_by == "A"
    assert crawl.get("C").created_by == "A"


def test_created_by_is_the_item_under_work_also_after_its_deletion(crawl):
    """SRAP-2, SRAP-56: it does not matter whether a page goes before or after what it creates."""
    crawl.work("page-2")

    crawl.done("page-2", CreateItem("B"), DeleteItem(), CreateItem("C"))

    assert crawl.get("B").created_by == "page-2"
    assert crawl.get("C").created_by == "page-2"


def test_created_by_can_be_said_and_be_broken(crawl):
    """SRAP-2, SRAP-54: an item may credit another than the one under work, which may be gone."""
    crawl.work("page-2")
    crawl.item("category")

    crawl.done("page-2", CreateItem("C", created_by="category"), DeleteItem())
    crawl.do(DeleteItem("category"))

    assert crawl.get("C").created_by == "category"
    assert crawl.get("category") is None
    assert crawl.get("page-2") is None


def test_a_name_can_be_taken_again_after_its_item_was_renamed(crawl):
    """SRAP-47: an old name given up may be created anew in the same batch, as another item."""
    crawl.do(
        CreateItem("A", data={"n": 1}),
        RenameItem("B", id="A"),
        DeleteAlias("A"),
        CreateItem("A", data={"n": 2}),
    )

    assert crawl.get("B").data == {"n": 1}
    assert crawl.get("A").data == {"n": 2}
    assert crawl.item_id("A") != crawl.item_id("B")


# Looking up


def test_a_lookup_by_any_name_gives_the_canonical_id_and_all_aliases(crawl):
    """SRAP-5, SRAP-6: an item is found by any of its names, and tells its id and the others."""
    crawl.item("SKU:1", aliases=["URL:1", "EAN:1"])

    for name in ("SKU:1", "URL:1", "EAN:1"):
        assert crawl.get(name).id == "SKU:1"
        assert crawl.get(name).aliases == ("EAN:1", "URL:1")


def test_every_operation_takes_an_alias_for_an_item(crawl):
    """SRAP-6: whatever takes an item's id takes an alias of it."""
    crawl.item("A", aliases=["a"])

    crawl.do(
        UpdateData({"n": 1}, id="a"),
        AddTag("page", 1, id="a"),
        CreateAlias("aa", to="a"),
        UpdateMetadata({"m": 1}, id="a", task="parse"),
    )

    assert crawl.get("A").data["n"] == 1
    assert crawl.get("A").tags == {"page": 1}
    assert crawl.get("aa").id == "A"
    assert crawl.result("A").metadata == {"m": 1}


def test_an_id_is_compared_byte_by_byte(crawl):
    """Two ids that look the same are two, and an id of 8,192 bytes is one."""
    long = "x" * 8192

    crawl.do(CreateItem("\u00e9"), CreateItem("e\u0301"), CreateItem(long), CreateItem(long + ""))

    assert crawl.item_id("\u00e9") != crawl.item_id("e\u0301")
    assert crawl.get(long).id == long


@pytest.mark.parametrize(
    "operation",
    [
        UpdateData({}, id="nobody"),
        UpdateMetadata({}, id="nobody", task="parse"),
        AddTag("page", id="nobody"),
        RemoveTag("page", id="nobody"),
        RenameItem("B", id="nobody"),
        DeleteItem("nobody"),
        CreateAlias("a", to="nobody"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_an_unknown_item_is_an_error(crawl, operation):
    """SRAP-48: an operation on an item that is not there is an error that names it."""
    message = crawl.refused(operation)

    assert message == f"{type(operation).__name__}: there is no item 'nobody'"


@pytest.mark.parametrize(
    "operation",
    [UpdateData({}), AddTag("page"), DeleteItem(), RenameItem("B"), CreateAlias("a")],
    ids=lambda operation: type(operation).__name__,
)
def test_outside_an_execution_the_item_must_be_named(crawl, operation):
    """Outside an execution no item is under work, so an operation without id is an error."""
    assert "id must be given outside an execution" in crawl.refused(operation)


# Renaming


def test_a_renamed_item_keeps_its_old_name_as_an_alias(crawl):
    """SRAP-42: a rename gives the canonical id; all old names go on pointing to the item."""
    crawl.item("URL:1", aliases=["u"], data={"n": 1})

    crawl.do(RenameItem("SKU:1", id="u"))

    assert crawl.get("URL:1").id == "SKU:1"
    assert crawl.get("SKU:1").aliases == ("URL:1", "u")
    assert crawl.get("SKU:1").data == {"n": 1}


def test_an_item_can_be_renamed_to_its_own_alias_or_id(crawl):
    """SRAP-42: an alias can become the canonical id; renaming to the id itself changes nothing."""
    crawl.item("A", aliases=["a"])

    crawl.do(RenameItem("A", id="a"))
    same = crawl.get("A").id
    crawl.do(RenameItem("a", id="A"))

    assert same == "A"
    assert crawl.get("A").id == "a"
    assert crawl.get("a").aliases == ("A",)


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        ("B", "belongs to another item"),
        ("b", "belongs to another item"),
        ("gone", "is the name of a deleted item and stays taken"),
    ],
)
def test_renaming_to_a_foreign_name_is_an_error(crawl, taken, why):
    """SRAP-42: a name of another item, or of a deleted one, cannot be renamed to."""
    crawl.item("A")
    crawl.item("B", aliases=["b"])
    crawl.item("gone")
    crawl.do(DeleteItem("gone", forget=False))

    message = crawl.refused(RenameItem(taken, id="A"))

    assert f"{taken!r} {why}" in message
    assert crawl.get("A").id == "A"


def test_a_tombstone_cannot_be_merged_into(crawl):
    """SRAP-42: a rename that may merge has nothing to merge into where the owner was deleted."""
    crawl.item("A")
    crawl.item("gone")
    crawl.do(DeleteItem("gone", forget=False))

    assert "deleted item" in crawl.refused(RenameItem("gone", id="A", if_taken="merge"))


def test_an_execution_goes_on_under_the_new_name(crawl):
    """SRAP-42: after a rename of the item under work, operations and result are still its own."""
    crawl.done("A", RenameItem("B"), UpdateData({"n": 1}), CreateItem("C"))

    assert crawl.get("A").id == "B"
    assert crawl.get("B").data["n"] == 1
    assert crawl.state("B") == "fresh"
    assert crawl.get("C").created_by == "B"


# Aliases


def test_an_alias_of_an_alias_is_an_alias_of_the_item(crawl):
    """SRAP-4, SRAP-46: what an alias is given to is resolved, so aliases have a single level."""
    crawl.item("A", aliases=["a"])

    crawl.do(CreateAlias("aa", to="a"), DeleteAlias("a"))

    assert crawl.get("aa").id == "A"
    assert crawl.get("a") is None


def test_an_alias_that_exists_is_left_alone(crawl):
    """SRAP-3, SRAP-46: a taken name, an item's id too, cannot become an alias."""
    crawl.item("A")
    crawl.item("B", aliases=["b"])

    labels = crawl.do(CreateAlias("b", to="A"), CreateAlias("B", to="A"))
    message = crawl.refused(CreateAlias("b", to="A", fail_if_exists=True))

    assert labels == ["known", "known"]
    assert "'b' exists already" in message
    assert crawl.get("A").aliases == ()


def test_an_items_own_id_cannot_be_deleted_as_an_alias(crawl):
    """SRAP-47: deleting an item's own id is an error; an unknown alias is nothing."""
    crawl.item("A", aliases=["a"])

    message = crawl.refused(DeleteAlias("A"))
    labels = crawl.do(DeleteAlias("nobody"), DeleteAlias("a"))

    assert "'A' is the item's own id" in message
    assert labels == ["unknown", "alias deleted"]
    assert crawl.get("A").aliases == ()


# Tags and data


def test_a_tag_has_one_value_that_can_be_set_again(crawl):
    """SRAP-8, SRAP-9: an item has a tag once; adding it again sets its value."""
    crawl.item("A", tags={"rank": 1})

    crawl.do(AddTag("rank", 2, id="A"), AddTag("page", id="A"), AddTag("x", id="A"))
    crawl.do(RemoveTag("x", id="A"), RemoveTag("never there", id="A"))

    assert crawl.get("A").tags == {"rank": 2, "page": None}


def test_tags_make_and_withdraw_work(crawl):
    """SRAP-14: tags only say which tasks apply; the result stays with the item."""
    crawl.done("A")

    crawl.do(RemoveTag("page", id="A"))
    without = crawl.state("A")
    crawl.do(AddTag("page", id="A"))

    assert without == "fresh"
    assert crawl.worklist() == []
    assert crawl.result("A").completed_at is not None


def test_data_is_merged_shallowly_or_by_a_callable_and_no_revision_is_kept(crawl):
    """SRAP-48: a mapping is laid over the old data; a callable gets it and gives the new."""
    crawl.item("A", data={"a": {"x": 1}, "b": 1})

    crawl.do(UpdateData({"a": {"y": 2}, "c": 3}, id="A"))
    laid_over = crawl.get("A").data
    crawl.do(UpdateData(lambda old: {"n": len(old)}, id="A"))

    assert laid_over == {"a": {"y": 2}, "b": 1, "c": 3}
    assert crawl.get("A").data == {"n": 3}


def test_a_merge_gets_a_fresh_copy(crawl):
    """SRAP-48: what a callable does to its argument changes nothing but what it returns."""
    crawl.item("A", data={"list": [1]})

    def merge(old):
        old["list"].append(2)
        return {"list": [0]}

    crawl.do(UpdateData(merge, id="A"), UpdateData(lambda old: old, id="A"))

    assert crawl.get("A").data == {"list": [0]}


def test_an_upsert_begins_with_an_empty_item(crawl):
    """SRAP-48: with upsert an unknown item is made, and the merge begins with {}."""
    crawl.do(UpdateData(lambda old: {**old, "n": 1}, id="A", upsert=True))
    crawl.do(UpdateData({"m": 2}, id="A", upsert=True))

    assert crawl.get("A").data == {"n": 1, "m": 2}


@pytest.mark.parametrize(
    ("merge", "what_is_wrong"),
    [
        (lambda old: old["price"], "merge raised KeyError: 'price'"),
        (lambda old: None, "merge returned None, not a mapping"),
        (lambda old: [1], "merge returned [1], not a mapping"),
        (lambda old: {"n": float("nan")}, "what merge returned['n'] is nan"),
        (lambda old, more: {}, "merge raised TypeError"),
    ],
)
def test_a_merge_that_raises_or_returns_nonsense_fails_its_execution(crawl, merge, what_is_wrong):
    """SRAP-48: a merge that raises or gives no mapping fails the execution and changes nothing."""
    claim = crawl.claimed("A", data={"n": 1})

    applied = crawl.end(claim, CreateItem("B"), UpdateData(merge))

    assert applied.outcome is Outcome.FAILED
    assert "UpdateData: " in applied.error.message
    assert what_is_wrong in applied.error.message
    assert (applied.error.spider, applied.error.task) == ("shop", "parse")
    assert applied.error.item == "A"
    assert crawl.get("A").data == {"n": 1}
    assert crawl.get("B") is None
    assert crawl.failures() == ["A"]


# Deleting


def test_a_deleted_item_is_gone_with_all_its_names(crawl):
    """SRAP-45: a deleted item's names are free, and its work is withdrawn."""
    crawl.work("A", aliases=["a"])

    crawl.do(DeleteItem("a"))

    assert crawl.get("A") is None
    assert crawl.worklist() == []
    assert crawl.do(CreateItem("a"), CreateItem("A", ["page"])) == ["new", "new"]
    assert crawl.worklist() == ["A parse"]


def test_a_deleted_item_may_leave_its_names_taken(crawl):
    """SRAP-45: with forget=False no name of the item is created again, by a pager's back link."""
    crawl.work("A", aliases=["a"])

    crawl.do(DeleteItem("A", forget=False), CreateItem("A", ["page"]), CreateItem("a", ["page"]))

    assert crawl.get("A") is None
    assert crawl.get("a") is None
    assert crawl.worklist() == []
    assert crawl.do(DeleteAlias("A"), CreateItem("A")) == ["alias deleted", "new"]


@pytest.mark.parametrize("alias", ["A", "a"])
@pytest.mark.parametrize("is_deleted_first", [True, False])
@pytest.mark.parametrize(
    "update", [{"data": 1}, {"metadata": 1}], ids=["UpdateData", "UpdateMetadata"]
)
def test_an_item_cannot_be_deleted_and_updated_by_one_execution(
    crawl, alias, is_deleted_first, update
):
    """SRAP-45: deletion and update of one item exclude each other, by any alias, in any order."""
    crawl.item("A", data={"n": 1}, aliases=["a"])
    changed = (
        UpdateData(update, id=alias)
        if "data" in update
        else UpdateMetadata(update, id=alias, task="parse")
    )
    given = [DeleteItem("A"), changed] if is_deleted_first else [changed, DeleteItem("A")]

    message = crawl.refused(*given)

    assert "'a'" in message or "'A'" in message
    assert crawl.get("A").data == {"n": 1}


@pytest.mark.parametrize("name", ["A", "a"])
def test_a_deleted_item_is_not_upserted_by_the_same_execution(crawl, name):
    """SRAP-45: `upsert` makes no exception, by whatever name; the item stays as it was."""
    crawl.item("A", data={"n": 1}, aliases=["a"])

    message = crawl.refused(DeleteItem("A"), UpdateData({"n": 2}, id=name, upsert=True))

    assert f"{name!r} is deleted by this execution" in message
    assert crawl.get("A").data == {"n": 1}


def test_what_a_deleting_execution_creates_is_kept(crawl):
    """SRAP-45, SRAP-56: an ephemeral item creates others, deletes itself, and has no result."""
    claim = crawl.claimed("page-1")

    applied = crawl.end(claim, CreateItem("A", ["page"]), DeleteItem())

    assert applied.outcome is Outcome.OK
    assert crawl.get("page-1") is None
    assert crawl.worklist() == ["A parse"]


def test_after_its_item_is_deleted_an_operation_needs_an_id(crawl):
    """SRAP-45: after DeleteItem of the item under work, an operation without id is an error."""
    claim = crawl.claimed("A")

    applied = crawl.end(claim, DeleteItem(), AddTag("x"))

    assert "AddTag: the item under work was deleted" in applied.error.message
    assert crawl.get("A") is not None


def test_a_duplicate_deletes_itself_and_becomes_an_alias(crawl):
    """SRAP-56: self is a duplicate: update the other, delete self, alias own id to the other."""
    crawl.item("SKU:1", data={"n": 1})
    crawl.claimed("URL:1")
    claim = crawl.claimed("URL:2")

    applied = crawl.end(
        claim,
        UpdateData({"n": 2}, id="SKU:1"),
        DeleteItem(),
        CreateAlias("URL:2", to="SKU:1"),
    )

    assert applied.outcome is Outcome.OK
    assert crawl.get("URL:2").id == "SKU:1"
    assert crawl.get("SKU:1").data == {"n": 2}


def test_a_not_before_keeps_work_back(crawl):
    """An item's not_before says when its work may start, not whether it is outstanding."""
    crawl.do(
        CreateItem("A", ["page"], not_before=timedelta(hours=1)),
        CreateItem("B", ["page"], not_before=timedelta(hours=-1)),
    )

    early = [claim.item.id for claim in crawl.claim()]
    crawl.age(hours=2)
    late = [claim.item.id for claim in crawl.claim()]

    assert early == ["B"]
    assert late == ["A"]


@pytest.mark.parametrize(
    ("operations", "frees"),
    [
        ([DeleteItem("A")], True),
        ([DeleteAlias("a")], True),
        ([DeleteItem("A"), CreateItem("B")], True),
        ([DeleteItem("A", forget=False)], False),
        ([CreateItem("B"), DeleteItem("B")], False),
        ([RenameItem("B", id="A"), CreateAlias("c", to="A")], False),
        ([UpdateData({"n": 1}, id="A")], False),
    ],
)
def test_workers_can_tell_that_names_were_freed(crawl, operations, frees):
    """What frees names that others may remember as taken is counted, and nothing else is."""
    crawl.item("A", aliases=["a"])
    before = crawls.share_crawl(crawl.connection, crawl.id).names_freed

    crawl.do(*operations)

    assert crawls.share_crawl(crawl.connection, crawl.id).names_freed - before == int(frees)


def test_rows_of_an_item_go_with_it_whoever_deletes_it(crawl):
    """An item's names, tags, results and failures go with it, also where SQL alone deletes it."""
    for name in ("A", "B"):
        crawl.item(name, tags=["page"], aliases=[name.lower()])
    [a, b] = crawl.claim(2)
    crawl.commit(graphs.changeset(a, outcome=Outcome.FAILED), graphs.changeset(b))

    crawl.connection.execute(sa.text("DELETE FROM items WHERE name = 'A'"))

    left = {
        table: crawl.connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one()
        for table in ("aliases", "tags", "results", "failures")
    }
    assert left == {"aliases": 2, "tags": 1, "results": 1, "failures": 0}
    assert crawl.get("a") is None
