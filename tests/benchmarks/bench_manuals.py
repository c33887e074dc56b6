"""The rate of a task spider beside Scrapy's in-memory scheduler, on the manuals, in one run.

Both contestants fetch the same pages with the same settings; they take turns, several rounds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import manuals

ROUNDS = 3


def main() -> None:
    """Take turns and print pages, seconds, and the ratio of the medians."""
    seconds: dict[str, list[float]] = {"plain": [], "manuals": []}
    with manuals.site() as site:
        for number in range(1, ROUNDS + 1):
            with tempfile.TemporaryDirectory() as directory:
                runs = {
                    "plain": site.crawl("plain", "ADDONS={}"),
                    "manuals": site.crawl("manuals", f"ITEMGRAPH_DATA_DIR={directory}/graph"),
                }
            for name, run in runs.items():
                spent = run.stats["elapsed_time_seconds"]
                count = run.stats["response_received_count"]
                seconds[name].append(spent)
                print(f"round {number}: {name:8} {count:.0f} pages in {spent:.2f} s")
    plain, graph = (statistics.median(seconds[name]) for name in ("plain", "manuals"))
    print(f"the item graph's rate is {plain / graph:.2f} of the in-memory scheduler's")


if __name__ == "__main__":
    main()
