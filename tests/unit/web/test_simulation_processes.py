"""Processes that a server has simulate a task."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

from scrapy_itemgraph.web.simulation_processes import Simulations

LEAVES_A_DAEMON = """
import os, time
daemon = os.fork()
if daemon == 0:
    os.setsid()
    time.sleep(90)
    os._exit(0)
print(daemon, flush=True)
os._exit(3)
"""


def test_a_process_that_is_left_behind_holds_up_no_simulation(caplog):
    """A simulation is over when its process ends, also where a daemon has its output still."""

    async def simulated():
        runs = Simulations([sys.executable, "-c", LEAVES_A_DAEMON], asyncio.Event())
        return await runs.run(crawl="c", spider="s", task="t", item="i")

    done = asyncio.run(simulated())

    os.kill(int(done.lines[0]), signal.SIGKILL)  # it lives still
    assert (done.code, len(done.lines), done.complaints) == (3, 1, [])
    assert "left a process behind" in caplog.text
    gc.collect()  # pytest fails a test whose pipes are open still
