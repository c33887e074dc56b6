"""Races for the names of items."""

from __future__ import annotations

import builtins

import pytest
import sqlalchemy as sa
from support.raced_books import book
from support.races import actors

from scrapy_itemgraph.changesets import batch_names
from scrapy_itemgraph.changesets.batch_names import MovedNamesError
from scrapy_itemgraph.model.item_names import name_key
from scrapy_itemgraph.model.operations import (
    AddTag,
    CreateItem,
    DeleteAlias,
    DeleteItem,
    MergeItem,
    RenameItem,
)

pytestmark = pytest.mark.server


@pytest.mark.parametrize("cured", [True, False])
def test_writers_of_the_same_names_do_not_deadlock(crawl, engine, monkeypatch, cured):
    """Names are taken in the order of their keys, whatever the order of the operations."""
    low, middle, high = sorted(["a", "b", "c"], key=name_key)
    if not cured:

        def unsorted(names, key=None):
            ordered = builtins.sorted(names, key=key)
            is_marked = any(isinstance(one, tuple) and "downwards" in one for one in ordered)
            return ordered[::-1] if is_marked else ordered

        monkeypatch.setattr(batch_names, "sorted", unsorted, raising=False)
    with actors(engine, 3) as (holder, upwards, downwards):
        holder.run(crawl.operate, CreateItem(middle))
        one = upwards.start(crawl.operate, *map(CreateItem, (low, middle, high)))
        upwards.until_blocked()
        other = downwards.start(
            crawl.operate, *map(CreateItem, (high, middle, low)), *_marker(cured)
        )
        downwards.until_blocked()
        holder.rollback()
        if cured:
            one.result()
            upwards.commit()
            assert [note.label for note in other.result().notes] == ["known"] * 3
            downwards.commit()
            return
        errors = []
        for actor, running in ((upwards, one), (downwards, other)):
            try:
                running.result()
                actor.commit()
            except sa.exc.OperationalError as error:
                errors.append(error.orig.sqlstate)
                actor.rollback()
        assert errors == ["40P01"]


def _marker(cured: bool) -> list:
    return [] if cured else [CreateItem("downwards")]


@pytest.mark.parametrize("commits", [True, False])
def test_two_writers_of_one_name_make_one_item(crawl, pair, commits):
    """The second to create a name waits for the first, and makes it only if that gave up."""
    first, second = pair

    first.run(crawl.operate, book("A"))
    creating = second.start(crawl.operate, book("A"))
    second.until_blocked()
    first.commit() if commits else first.rollback()

    (note,) = creating.result().notes
    assert note.label == ("known" if commits else "new")
    second.commit()
    assert crawl.rows("SELECT name FROM items") == [("A",)]
    assert crawl.outstanding() == [("A", "parse", False)]


@pytest.mark.parametrize("cured", [True, False])
def test_a_name_that_moves_while_its_owner_is_waited_for_is_looked_up_anew(
    crawl, pair, monkeypatch, cured
):
    """What a name means is checked again under the lock; if it moved, the batch begins anew."""
    merger, tagger = pair
    crawl.seed(CreateItem("A"), CreateItem("B"))
    if not cured:
        monkeypatch.setattr(batch_names, "check_still", lambda *_: None)

    merger.run(crawl.operate, MergeItem(into="B", id="A"))
    tagging = tagger.start(crawl.operate, AddTag("book", id="A"))
    tagger.until_blocked()
    merger.commit()

    if not cured:
        assert "there is no item 'A'" in tagging.result().error.message
        return
    with pytest.raises(MovedNamesError):
        tagging.result()
    tagger.rollback()
    assert tagger.run(crawl.operate, AddTag("book", id="A")).error is None
    tagger.commit()
    assert crawl.outstanding() == [("B", "parse", False)]


@pytest.mark.parametrize("commits", [True, False])
def test_a_rename_merges_into_an_item_that_is_created_at_this_moment(crawl, pair, commits):
    """Whether a name is taken is decided at the commit, after waiting for who may take it."""
    creator, renamer = pair
    crawl.seed(book("A"))

    creator.run(crawl.operate, book("B"))
    renaming = renamer.start(crawl.operate, RenameItem(to="B", id="A", if_taken="merge"))
    renamer.until_blocked()
    creator.commit() if commits else creator.rollback()

    (note,) = renaming.result().notes
    assert note.label == ("merged" if commits else "renamed")
    renamer.commit()
    assert crawl.rows("SELECT name FROM items") == [("B",)]
    assert crawl.rows("SELECT name FROM aliases ORDER BY name") == [("A",), ("B",)]
    assert crawl.outstanding() == [("B", "parse", False)]


def test_a_name_freed_and_taken_again_by_two_belongs_to_one(crawl, pair):
    """A name kept taken by a deletion, freed and taken by two at once, names one item."""
    first, second = pair
    crawl.seed(CreateItem("A"))
    crawl.seed(DeleteItem("A", forget=False))
    anew = (DeleteAlias("A"), CreateItem("A", tags=["book"]))

    first.run(crawl.operate, *anew)
    freeing = second.start(crawl.operate, *anew)
    second.until_blocked()
    first.commit()

    try:
        freeing.result()
        second.commit()
    except MovedNamesError:
        second.rollback()
    named = crawl.rows("SELECT i.name FROM items i JOIN aliases a ON a.item_id = i.id")
    assert named == [("A",)]
    assert crawl.rows("SELECT name FROM items") == [("A",)]


@pytest.mark.parametrize("kind", ["rename", "creation"])
def test_an_alias_that_its_item_loses_meanwhile_is_looked_up_anew(crawl, pair, kind):
    """A name that was its owner's when it was looked up may be free under the owner's lock."""
    loser, taker = pair
    crawl.seed(CreateItem("A", aliases=["X"]))
    given = {
        "rename": [RenameItem(to="X", id="A")],
        "creation": [DeleteItem("A"), CreateItem("X")],
    }[kind]

    loser.run(crawl.operate, DeleteAlias("X"))
    taking = taker.start(crawl.operate, *given)
    taker.until_blocked()
    loser.commit()

    with pytest.raises(MovedNamesError):
        taking.result()
    taker.rollback()
    assert taker.run(crawl.operate, *given).error is None
    taker.commit()
    owned = "SELECT i.name FROM items i JOIN aliases a ON a.item_id = i.id AND a.name = i.name"
    assert crawl.rows(owned) == crawl.rows("SELECT name FROM items") == [("X",)]
