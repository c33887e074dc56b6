"""Memory: how much of it a process here may have, and has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Limits of a container, by control groups of version 2 and 1; "max" and huge numbers are none.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def total() -> int:
    """Return the bytes of memory that this machine or its container has."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _LIMITS:
        with suppress(OSError, ValueError):
            known.append(int(Path(limit).read_text()))
    return min(known)


def resident() -> int | None:
    """Return the bytes of memory that this process has; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
