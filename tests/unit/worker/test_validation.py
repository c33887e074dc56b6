"""Times to live that requests ask for by their meta."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta

import pytest

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.worker.spider.validation import TTL, check_ttl


@pytest.mark.parametrize(
    ("ttl", "is_start", "is_good"),
    [
        ("1h", False, True),
        (timedelta(days=1), True, True),
        ("never", False, True),
        (0, True, True),
        (0, False, False),
        (False, True, False),
        ("soon", True, False),
    ],
)
def test_a_ttl_of_0_is_for_start_requests_alone(ttl, is_start, is_good):
    """A period or "never" is for any request; what is neither is an error that says where."""
    with nullcontext() if is_good else pytest.raises(OperationError, match="spider s"):
        check_ttl({TTL: ttl}, "spider s", is_start=is_start)
