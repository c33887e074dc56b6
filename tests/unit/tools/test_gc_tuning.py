"""Python's collector, tuned while crawls run."""

from __future__ import annotations

import gc
import weakref

import pytest

from scrapy_itemgraph.tools import gc_tuning


@pytest.fixture(autouse=True)
def collector():
    """Have the collector as Python starts with it, and as it was at the end."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_is_as_it_was_after_the_last_crawl_of_the_process():
    """Two crawls at once tune it once, and it is restored when both have ended."""
    assert gc_tuning.tune()
    frozen = gc.get_freeze_count()
    assert not gc_tuning.tune()
    assert gc.get_threshold() == gc_tuning.THRESHOLDS
    assert frozen > 0

    gc_tuning.restore()
    assert gc.get_threshold() == gc_tuning.THRESHOLDS

    gc_tuning.restore()
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("chosen", [(0, 10, 10), (50_000, 10, 10)])
def test_what_somebody_has_chosen_stays(chosen):
    """A collector that is off, or rarer than ours, is left as it is."""
    gc.set_threshold(*chosen)

    assert not gc_tuning.tune()
    assert gc.get_threshold() == chosen

    gc_tuning.restore()
    assert gc.get_threshold() == chosen


def test_a_change_of_the_project_during_the_crawl_stays():
    """What a spider sets while it runs is not taken back at the end."""
    gc_tuning.tune()
    gc.set_threshold(1000, 5, 5)

    gc_tuning.restore()

    assert gc.get_threshold() == (1000, 5, 5)
    assert gc.get_freeze_count() == 0


def test_what_a_closed_crawl_left_is_collected():
    """Objects in a cycle do not outlive the last crawl, however rare collections were."""

    class Node:
        pass

    gc_tuning.tune()
    node = Node()
    node.itself = node
    left = weakref.ref(node)
    del node

    gc_tuning.restore()

    assert left() is None
