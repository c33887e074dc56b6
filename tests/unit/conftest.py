"""A clock of ours, and examples by hypothesis: nothing may fail for how long it takes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from support.clocks import Clock

settings.register_profile(
    "untimed", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Put a clock of ours in place of that of limits in hand."""
    clock = Clock()
    for module in ("worker.downloads.send_times", "throttle.limiter_set", "throttle.limiter"):
        monkeypatch.setattr(f"scrapy_itemgraph.{module}.time", clock)
    return clock
