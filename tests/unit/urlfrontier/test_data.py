"""What is stored of a URL, and how the server's process is set up."""

from __future__ import annotations

import gc
import json
from types import SimpleNamespace

import pytest
from support import frontier
from support.frontiers import url

from scrapy_itemgraph.model.frontier import item_data
from scrapy_itemgraph.tools import gc_tuning
from scrapy_itemgraph.urlfrontier import server, v2

ODD = 'a"b\\c\n\t\x01\x7f\u2028é😀'


@pytest.mark.parametrize(
    ("one", "more"),
    [
        (url("http://a.example/é"), {}),
        (url("http://a.example/", 7), {"refetchable_from_date": 7}),
        (url("http://a.example/", key='b"'), {"download_slot": 'b"'}),
    ],
)
def test_data_is_json_whatever_is_in_its_texts(one, more):
    """UF-5: the JSON that is made piece by piece reads as what was put."""
    one = one._replace(metadata={ODD: [ODD, ""], "none": []})
    said = {"url": one.url, "metadata": {ODD: [ODD, ""], "none": []}, **more}
    assert json.loads(item_data(one)) == said


@pytest.mark.parametrize(
    ("metadata", "is_put"),
    [({"a": ["", "b"]}, True), ({"": []}, True), ({"a": ["b\0"]}, False), ({"a\0": []}, False)],
)
def test_metadata_with_a_nul_is_not_put(metadata, is_put):
    """UF-5: PostgreSQL cannot store it; a text that is empty is no such."""
    given = v2.CODEC.item(frontier.discovered("http://a.example/", metadata=metadata))
    assert (given.put is not None) == is_put
    assert not is_put or {name: [*of] for name, of in given.put.metadata.items()} == metadata


@pytest.mark.parametrize("is_tuned", [True, False])
def test_the_collector_is_tuned_while_the_server_runs(monkeypatch, is_tuned):
    """A server keeps much alive, as a crawl does; ITEMGRAPH_TUNE_GC = False leaves it alone."""
    seen = []

    async def serve(*_):
        seen.append(gc.get_threshold())

    monkeypatch.setattr(server, "_serve", serve)
    before = gc.get_threshold()
    settings = SimpleNamespace(run=SimpleNamespace(tune_gc=is_tuned))
    server.run(settings, None, print)
    during = gc_tuning.THRESHOLDS if is_tuned else before
    assert (seen, gc.get_threshold()) == ([during], before)
