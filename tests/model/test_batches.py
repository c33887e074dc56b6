"""A batch of changesets means the same as its changesets one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model.both import declared
from model.histories import EXAMPLES, INSIDE, OUTSIDE, PROFILE, STARTS, endings, some
from support import graphs

from scrapy_itemgraph.model.work import Outcome

pytestmark = pytest.mark.server

CONCERNS = ("names", "data", "results")


@settings(PROFILE, max_examples=EXAMPLES or 40)
@given(
    first=some(OUTSIDE, *CONCERNS, most=4),
    batch=st.lists(
        st.tuples(some(INSIDE, *CONCERNS, most=3), endings, st.booleans()), min_size=2, max_size=4
    ),
)
def test_a_batch_does_what_its_changesets_do_one_by_one(shared_engine, first, batch):
    """A batch leaves the same graph and worklist as its changesets in transactions of their own."""
    with shared_engine.connect() as connection, connection.begin() as transaction:
        crawl = graphs.Crawl.of(connection, **declared(STARTS[0]))
        for name in "ABC":
            crawl.item(name, tags=["page"])
        crawl.end(None, *first)
        claims = crawl.claim(len(batch))
        changesets = [
            graphs.changeset(claim, *given, outcome=Outcome(outcome), allow_failure=allowed)
            for claim, (given, outcome, allowed) in zip(claims, batch, strict=False)
        ]

        alone = connection.begin_nested()
        for one in changesets:
            crawl.commit(one)
        expected = _comparable(crawl)
        alone.rollback()
        crawl.commit(*changesets)

        assert _comparable(crawl) == expected
        transaction.rollback()


def _comparable(crawl: graphs.Crawl) -> Any:
    return graphs.graph_state(crawl.connection, crawl.id), sorted(crawl.worklist())
