"""A worker process of the benchmark: it works until told to stop, and says how much it did.

It knows neither the project nor the libraries it is compared with, for it runs in both venvs. The
process says `ready`, begins when it reads a line, and at the end writes a line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass
class Tally:
    """How many cycles are committed, and in how many commits where they are counted.

    `over` is set when no more are to begin.
    """

    committed: int = 0
    commits: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_over(self) -> bool:
        return self.over.is_set()


def given() -> dict:
    """Return what the parent asks for: JSON, the process's first argument."""
    return json.loads(sys.argv[1])


async def measured(work: Callable[[Tally], Awaitable[None]], warm: float, seconds: float) -> None:
    """Work when the parent says so, and write what was done in `seconds` after `warm` seconds.

    What is written: `committed`, `commits` and `cpu` (seconds) within that time, `seconds` as they
    passed, and `total`, which counts what was committed before and after as well.
    """
    gc.collect()
    gc.freeze()  # as a crawl with ITEMGRAPH_TUNE_GC does; the same for every contestant
    gc.set_threshold(10_000, 20, 50)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    tally = Tally()
    working = asyncio.ensure_future(work(tally))
    await _passed(working, warm)
    began = time.perf_counter(), time.process_time(), tally.committed, tally.commits
    await _passed(working, seconds)
    ended = time.perf_counter(), time.process_time(), tally.committed, tally.commits
    tally.over.set()
    await working
    passed, cpu, committed, commits = (one - other for one, other in zip(ended, began, strict=True))
    done = {"committed": committed, "commits": commits, "cpu": cpu, "seconds": passed}
    print(json.dumps({**done, "total": tally.committed}), flush=True)


async def _passed(working: asyncio.Future[None], seconds: float) -> None:
    """Wait so long, or raise what ended the work before that."""
    done, _ = await asyncio.wait([working], timeout=seconds)
    if done:
        working.result()
        raise RuntimeError("the work ended by itself: was there too little of it?")
