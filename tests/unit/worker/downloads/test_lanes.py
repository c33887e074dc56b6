"""Which limits a request keeps to."""

from __future__ import annotations

from types import SimpleNamespace

from scrapy_itemgraph.model.limits import Limit, Terms
from scrapy_itemgraph.throttle.limiter_set import Limiters
from scrapy_itemgraph.worker.downloads.lanes import Lanes
from scrapy_itemgraph.worker.executions.execution import Execution

DECLARED = {
    1: Limit(kind="global", name="", gap=1.0, concurrency=None),
    2: Limit(kind="task", name="s/parse", gap=None, concurrency=3, throttles=True),
}


def test_a_claims_request_keeps_to_its_slots_and_its_tasks_limits():
    """A request of no claim keeps to what holds for all; one without a slot to its task's alone."""
    limiters = Limiters(lambda _: Terms(), lambda _: None)
    declared = SimpleNamespace(declared=DECLARED, of_strays=(1,))
    lanes = Lanes(limiters, declared, first_delay=5.0)
    execution = Execution(where="here", on_end=lambda _: None, claim=SimpleNamespace(depth=None))
    execution.limits = (2,)
    leg = execution.open_leg(is_own=True)

    claimed, stray, slotless = lanes.of("a", leg), lanes.of("a", None), lanes.of("", leg)

    assert [one.key for one in claimed] == [("slot", "a"), ("task", "s/parse")]
    assert [one.key for one in stray] == [("slot", "a"), ("global", "")]
    assert slotless == claimed[1:]
    assert claimed[1].throttle == 5.0
