"""Names that a worker knows to be taken: creating them again means the same, and asks nothing."""

from __future__ import annotations

import itertools

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import graphs, oracle

from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.changesets.taken_names import TakenNames
from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.registry import crawls

pytestmark = pytest.mark.server

PROFILE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=list(HealthCheck),
)
NUMBERS = itertools.count()
NAMES = st.sampled_from("ABC")

operations = st.one_of(
    st.builds(ops.CreateItem, NAMES, st.just(["page"])),
    st.builds(ops.CreateItem, NAMES, st.just(["page"])),
    st.builds(ops.CreateItem, NAMES, st.just(["list"]), merge_tags=st.just(True)),
    st.builds(ops.CreateItem, NAMES, aliases=st.lists(NAMES, max_size=1)),
    st.builds(ops.CreateItem, NAMES, fail_if_exists=st.just(True)),
    st.builds(ops.CreateAlias, NAMES, to=NAMES),
    st.builds(ops.RenameItem, NAMES, id=NAMES),
    st.builds(ops.DeleteItem, NAMES, forget=st.booleans()),
    st.builds(ops.DeleteAlias, NAMES),
    st.builds(ops.UpdateData, st.just({"seen": 1}), id=NAMES, upsert=st.booleans()),
)
changesets = st.lists(operations, min_size=1, max_size=3)
histories = st.lists(
    st.tuples(st.integers(0, 1), st.lists(changesets, min_size=1, max_size=3)), max_size=8
)


def commit(crawl, taken, *given):
    """Commit changesets as a worker does that knows `taken` names; return what was done."""
    batch = [ops.Changeset(operations=tuple(one), outcome=Outcome.OK) for one in given]
    with graphs.committed(crawl.connection):
        engine.hot_path(crawl.connection)
        shared = crawls.share_crawl(crawl.connection, crawl.id)
        applied = apply.apply(
            crawl.connection, batch, crawl=shared, worker_id=crawl.worker, taken=taken
        )
    if taken is not None:
        taken.learn(applied, shared.names_freed)
    return [
        (one.outcome, one.error and one.error.message, [(n.label, n.text) for n in one.notes])
        for one in applied
    ]


def new_crawl(connection):
    """Make a crawl of its own."""
    crawl = graphs.Crawl(connection, f"crawl {next(NUMBERS)}")
    crawl.register(parse={"tags": ["page"]}, index={"tags": ["list"]})
    return crawl


@PROFILE
@given(history=histories)
def test_a_worker_that_knows_names_does_what_one_does_that_asks(connection, history):
    """Two workers that create, rename, free and delete: the same notes, errors, graph and work."""
    asking, knowing = new_crawl(connection), new_crawl(connection)
    taken = TakenNames(), TakenNames()

    for who, batch in history:
        assert commit(knowing, taken[who], *batch) == commit(asking, None, *batch)

    assert graphs.graph_state(connection, knowing.id) == graphs.graph_state(connection, asking.id)
    oracle.assert_worklist_is_true(connection, knowing.id)
    oracle.assert_rows_have_items(connection)


def asked(connection, function):
    """Return how many names are looked up while a function runs."""
    keys = []

    def note(_connection, _cursor, statement, parameters, *_):
        if "unnest" in statement and "uuid[]" in statement and "aliases" in statement:
            keys.extend(str(parameters["keys"]).split(","))

    sa.event.listen(connection, "before_cursor_execute", note)
    try:
        function()
    finally:
        sa.event.remove(connection, "before_cursor_execute", note)
    return len(keys)


def test_a_name_that_was_created_is_not_looked_up_again(connection):
    """A page that links to what the crawl has already asks for what is new alone."""
    crawl, taken = new_crawl(connection), TakenNames()
    commit(crawl, taken, [ops.CreateItem(name, ["page"]) for name in "ABC"])

    links = [ops.CreateItem(name, ["page"]) for name in "ABC"]
    number = asked(connection, lambda: commit(crawl, taken, links))

    assert number == 0


def test_a_name_that_another_freed_is_created_anew(connection):
    """The count of commits that freed names tells that what was known may not be so any more."""
    crawl, taken = new_crawl(connection), TakenNames()
    commit(crawl, taken, [ops.CreateItem("A", ["page"])])
    commit(crawl, TakenNames(), [ops.DeleteItem("A", forget=True)])

    ((_, _, notes),) = commit(crawl, taken, [ops.CreateItem("A", ["page"])])

    assert notes == [("new", "A")]
