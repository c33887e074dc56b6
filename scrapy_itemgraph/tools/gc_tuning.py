"""Python's collector of garbage, tuned for a process that keeps much alive for long.

A full collection walks all that is alive, modules and settings included: 100 to 180 ms. So what
was there before a crawl is left out, and collections are rarer.
"""

from __future__ import annotations

import gc

THRESHOLDS = (10_000, 20, 50)
"""New containers before a collection; collections of one generation before one of the next."""

_crawls = 0  # that run in this process with a tuned collector
_before: tuple[int, int, int] | None = None  # the thresholds, where they were changed here


def tune() -> bool:
    """Leave out what is alive by now, and collect more rarely; tell whether that was done here.

    Nothing is done where crawls of this process have done it, or somebody has chosen rarer
    collections, or none. Each call is undone by one of `restore`.
    """
    global _before, _crawls  # noqa: PLW0603 - of the process, as the collector is
    _crawls += 1
    threshold = gc.get_threshold()
    if _crawls > 1 or not gc.isenabled() or not 0 < threshold[0] < THRESHOLDS[0]:
        return False
    _before = threshold
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    return True


def restore() -> None:
    """Have the collector as it was, once no crawl of this process needs it otherwise.

    What rarer collections left is collected then, so that no closed crawl stays in memory.
    """
    global _before, _crawls  # noqa: PLW0603
    _crawls -= 1
    if _crawls or _before is None:
        return
    if gc.get_threshold() == THRESHOLDS:  # else somebody chose others meanwhile
        gc.set_threshold(*_before)
    gc.unfreeze()
    gc.collect()
    _before = None
