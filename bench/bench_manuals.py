"""The rate of a crawl beside Scrapy's in-memory scheduler, on the manuals, in one run.

All contestants fetch the same pages with the same settings; they take turns, several rounds:
plain Scrapy, the same spider with our line, and a task spider that does the same.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import manuals

ROUNDS = 3
CONTESTANTS = {"in memory": "plain", "with our line": "plain", "with tasks": "manuals"}


def main() -> None:
    """Take turns and print pages, seconds, and the ratios of the medians."""
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as logs, manuals.site(Path(logs)) as site:
        for number in range(1, ROUNDS + 1):
            for name, spider in CONTESTANTS.items():
                with tempfile.TemporaryDirectory() as directory:
                    graph = f"ITEMGRAPH_DATA_DIR={directory}/graph"
                    run = site.crawl(spider, "ADDONS={}" if name == "in memory" else graph)
                spent = run.stats["elapsed_time_seconds"]
                count = run.stats["response_received_count"]
                seconds[name].append(spent)
                print(f"round {number}: {name:13} {count:.0f} pages in {spent:.2f} s")
    medians = {name: statistics.median(spent) for name, spent in seconds.items()}
    for name in CONTESTANTS:
        ratio = medians["in memory"] / medians[name]
        print(f"{name:13} {ratio:.2f} of the rate of Scrapy's in-memory scheduler")


if __name__ == "__main__":
    main()
