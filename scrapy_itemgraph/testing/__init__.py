"""For users: run a task or a plain callback on a saved page, and look at what it does.

Imports `worker.simulation` and what stands below; nothing of the package imports it, so it costs
nothing where it is not used.
"""

from __future__ import annotations

from scrapy_itemgraph.testing.ran import Ran
from scrapy_itemgraph.testing.run import run_callback, run_task

__all__ = ["Ran", "run_callback", "run_task"]
