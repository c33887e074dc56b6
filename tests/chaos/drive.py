"""The driver: histories of faults, what recovered how fast, and whether the graph is right.

    python tests/chaos/drive.py --faults 100 --seed 7

A history is a crawl of its own with up to 25 faults. Its pages are as many as last for all of them.
In the end the graph must be that of a crawl that nobody disturbed, its worklist be empty, no claim
be left, and no page be a failure. `make chaos` runs it; what is not possible on a machine is said.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import oracle
import servers

from chaos import spiders
from chaos.faults import FAULTS, Strike
from chaos.field import Field, open_field, until
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Sequence

PER_HISTORY = 25
PAGES_OF_FAULT = 150  # about what is crawled while one lasts
WORKERS = 2


@dataclass
class Report:
    """What histories brought: seconds to recover by fault, repeated requests, and what is wrong."""

    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    pages: int = 0
    repeats: int = 0
    wrongs: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many faults there were."""
        return sum(map(len, self.recoveries.values()))

    def lines(self) -> list[str]:
        """Return a table, and what is wrong."""
        width = max(map(len, FAULTS))
        head = f"{'fault':<{width}}  times  recovery in seconds: median  worst"
        rows = [
            f"{name:<{width}}  {len(each):>5}  {statistics.median(each):>27.2f}  {max(each):>5.2f}"
            for name, each in sorted(self.recoveries.items())
        ]
        wrong = self.wrongs or ["nothing lost, nothing twice, no false failure, no claim left"]
        done = f"{self.faults} faults, {self.pages:,} pages, {self.repeats:,} requests repeated"
        return [head, *rows, done, *wrong]


def history(
    directory: Path, names: Sequence[str], choice: random.Random, longest: float, report: Report
) -> None:
    """Crawl once, with these faults one after another, and check what became of it."""
    pages = PAGES_OF_FAULT * (len(names) + 1)
    with open_field(directory, pages, WORKERS) as one:
        for name in names:
            time.sleep(choice.uniform(0.1, 1.0))
            if one.is_over:
                break
            before = one.done()
            FAULTS[name](one, Strike(choice, longest))
            if one.is_over:
                break
            try:
                seconds = until(partial(goes_on, one, before))
            except TimeoutError as error:
                logs = "\n".join(one.project.log(worker)[-3000:] for worker in one.workers)
                report.wrongs.append(f"after {name!r} nothing went on: {error}\n{logs}")
                return
            report.recoveries[name].append(seconds)
            print(f"{name}: {seconds:.2f} s, {one.done():,} results", flush=True)
        until(lambda: one.is_over, 600)
        report.pages += pages
        report.repeats += sum(one.site.hits.values()) - pages
        report.wrongs += wrongs(one, pages)


def goes_on(one: Field, before: int) -> bool:
    """Whether there are more results than before, or all of them."""
    return one.is_over or one.done() > before


def wrongs(one: Field, pages: int) -> list[str]:
    """Return what is wrong with a crawl that has ended."""
    found = [
        f"a crawl ended with {worker.returncode}: {one.project.log(worker)[-500:]}"
        for worker in one.workers
        if worker.returncode != 0
    ]
    with ItemGraph.open(one.url, crawl="s") as graph:
        found += [f"left: {row.item} {row.task}" for row in graph.worklist()]
        found += [f"a false failure: {row.item}: {row.error}" for row in graph.failures()]
        found += spiders.faults_of(graph.items(), pages)
    if claimed := one.ask("SELECT count(*) FROM work WHERE token IS NOT NULL"):
        found.append(f"{claimed} claims are left")
    engine = engines.sync_engine(one.url)
    with engine.connect() as connection:
        crawl_id = one.ask("SELECT id FROM crawls WHERE name = 's'")
        try:
            oracle.assert_worklist_is_true(connection, crawl_id)
        except AssertionError as error:
            found.append(str(error))
    engine.dispose()
    return found


def drive(faults: int, seed: int, names: Sequence[str], longest: float) -> Report:
    """Run histories until there were so many faults, each kind as often as the others."""
    choice, report = random.Random(seed), Report()
    wanted = [names[number % len(names)] for number in range(faults)]
    choice.shuffle(wanted)
    for at in range(0, faults, PER_HISTORY):
        with servers.open_directory() as directory:
            history(directory, wanted[at : at + PER_HISTORY], choice, longest, report)
    return report


def main() -> int:
    """Read the options, drive, and print; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default=",".join(FAULTS), help="some of: " + ", ".join(FAULTS))
    parser.add_argument("--longest", type=float, default=40.0, help="seconds of what lasts")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    report = drive(given.faults, given.seed, given.only.split(","), given.longest)
    print("\n".join(report.lines()))
    return 1 if report.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
