"""Callbacks whose requests wait for their end are named after a while."""

from __future__ import annotations

from support.parts import Parts, a_claim

from scrapy_itemgraph.worker.spider.waiting_requests import LONG, WaitingRequests


def test_a_callback_that_runs_for_long_is_named_once(caplog):
    """It has yielded requests and has not ended; one without requests is not."""
    parts = Parts()
    looking = WaitingRequests(parts.active)
    waits, idle = parts.claimed(1), parts.active.begin(claim=a_claim(2, task="parse_idle"))
    for one in (waits, idle):
        one.open_leg().scrapes.add(object())
    waits.discovered["REQ:1"] = None

    looking.look(0.0)
    looking.look(LONG - 1)
    assert not caplog.records
    looking.look(LONG)
    looking.look(LONG + 10)

    (record,) = caplog.records
    assert waits.where in record.message
    assert "1 requests that it has yielded wait for its end" in record.message
