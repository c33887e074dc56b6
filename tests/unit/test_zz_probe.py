from __future__ import annotations
import graphs, pytest
from scrapy_itemgraph.operations import *
from scrapy_itemgraph.types import Outcome

@pytest.fixture
def crawl(connection):
    return graphs.Crawl.of(connection)

def test_alias_of_discarded(crawl):
    crawl.item("A")
    crawl.do(CreateItem("A", aliases=["B"]), CreateItem("B"))
def test_reuse(crawl):
    crawl.do(CreateItem("A", data={"n":1}), RenameItem("B", id="A"), DeleteAlias("A"), CreateItem("A", data={"n":2}))
    assert crawl.get("B").data=={"n":1}
    assert crawl.get("A").data=={"n":2}
def test_cycle(crawl):
    crawl.item("B")
    crawl.do(CreateItem("A"), MergeItem("B", id="A"), DeleteAlias("A"), CreateItem("A"), MergeItem("A", id="B"))
    assert crawl.get("A").aliases==("B",)
def test_none(crawl):
    for op in (RenameItem(None,id="A"), CreateAlias(None,to="A"), DeleteAlias(None), AddTag(None,id="A"), MergeItem(None,id="A"), StoreResult({},id="A",task=None)):
        with pytest.raises(OperationError):
            graphs.changeset(None, op)
def test_expire_all_claimed_never_run(crawl):
    c=crawl.claimed("A")
    crawl.do(Expire(id="A"))
    crawl.end(c)
    assert crawl.state("A")=="stale"
def test_expire_before_end_in_same_batch(crawl):
    crawl.work("A"); b=crawl.claimed("B"); c=crawl.claim_pair("A")
    crawl.commit(graphs.changeset(b, Expire(id="A")), graphs.changeset(c))
    assert crawl.state("A")=="stale"
def test_update_merge_delete(crawl):
    crawl.item("X"); c=crawl.claimed("A")
    a=crawl.end(c, UpdateData({"n":1}), MergeItem("X"), DeleteItem("X"))
    assert a.outcome is Outcome.FAILED
def test_allowed_failure_follows(crawl):
    crawl.item("X"); c=crawl.claimed("A"); d=crawl.claimed("B")
    crawl.commit(graphs.changeset(c, outcome=Outcome.FAILED, allow_failure=True), graphs.changeset(d, MergeItem("X", id="A")))
    assert crawl.state("X")=="held"
    assert crawl.failures()==["X"]
