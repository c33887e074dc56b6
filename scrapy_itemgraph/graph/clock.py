"""Clock: time that only goes on, also while the machine sleeps."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Return seconds from some moment on, whatever becomes of the wall clock."""
    return time.clock_gettime(_CLOCK)
