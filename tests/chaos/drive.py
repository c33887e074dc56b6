"""The driver: histories of faults, what recovered how fast, and whether the graph is right.

    python tests/chaos/drive.py --faults 100 --seed 7

A history is a crawl of its own with up to 25 faults, on sites that have pages as long as it lasts.
In the end the graph must be that of a crawl that nobody disturbed, its worklist be empty, no claim
be left, and no page be a failure. `make chaos` runs it; what is not possible on a machine is said.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import statistics
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support import logs, oracle, servers

from chaos import spiders
from chaos.faults import FAULTS, NEEDS, Strike
from chaos.field import LEASE, Field, open_field, possible, until
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Collection, Iterable, Sequence

PER_HISTORY = 25
WORKERS = 2
LOCAL = 0.4  # of the histories have one worker that uses the embedded server without an address
TRACKED = 0.5  # of the histories track least depth, whose pages are merged
# Of a `digest` that was under way as its database went back: what it reads is not there any more.
# It fails, and nothing of it is kept, for its claim is not there either.
UNDER_WAY = ("TypeError: 'NoneType' object is not subscriptable",)
ENDS = 600.0  # seconds for what is left when the faults are over
# Within how many seconds work goes on: of a worker elsewhere, or of all after the database is back.
# Of one that may still be alive, its lease later. `first` may be later than `freed` for politeness:
# where downloads were seen to be slow, as those of frozen workers are, the next one waits for them.
AIMS = (
    ("kill a worker", "first", statistics.median, 1.0),
    ("freeze a worker", "first", statistics.median, LEASE + 2),
    ("freeze a worker", "freed", max, LEASE + 2),
    ("cut off a host", "first", statistics.median, LEASE + 2),
    ("cut off a host", "freed", max, LEASE + 2),
    ("kill postgres", "goes_on", max, 3.0),
)


@dataclass
class Blow:
    """What a fault brought: seconds until something was so, and requests that were repeated.

    `goes_on`: anything is committed once the fault is over. Of the claims of whoever was struck,
    from that moment: `freed`, all are taken from it; `first`, another has one; `last`, others have
    all, as their turns came. None: there were none.
    """

    fault: str
    goes_on: float
    repeats: int
    freed: float | None = None
    first: float | None = None
    last: float | None = None


COLUMNS = ("goes_on", "freed", "first", "last", "repeats")


@dataclass
class Report:
    """What histories brought, and what is wrong."""

    blows: list[Blow] = field(default_factory=list)
    pages: int = 0
    wrongs: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Take what another history brought."""
        self.blows += other.blows
        self.pages += other.pages
        self.wrongs += other.wrongs

    def of(self, fault: str, column: str) -> list[float]:
        """Return what is known of a column of a kind of fault."""
        values = (getattr(blow, column) for blow in self.blows if blow.fault == fault)
        return [value for value in values if value is not None]

    def lines(self) -> Iterable[str]:
        """Return a table, the aims, and what is wrong."""
        width = max(map(len, FAULTS))
        yield f"median and worst, in seconds but for repeats\n{'':<{width + 7}}" + "".join(
            f"{column.replace('_', ' '):>16}" for column in COLUMNS
        )
        for name in sorted({blow.fault for blow in self.blows}):
            cells = [self.of(name, column) for column in COLUMNS]
            shown = (
                f"{statistics.median(each):.2f} {max(each):6.2f}" if each else "" for each in cells
            )
            yield f"{name:<{width}} {len(cells[0]):>6}" + "".join(f"{each:>16}" for each in shown)
        for name, column, of, aim in AIMS:
            if seconds := self.of(name, column):
                met = "met" if of(seconds) <= aim else "NOT met"
                what = f"{name}: {column.replace('_', ' ')}, {of.__name__} within {aim:g} s"
                yield f"aim: {what}: {of(seconds):.2f} s, {met}"
        repeats = sum(blow.repeats for blow in self.blows)
        yield f"{len(self.blows)} faults, {self.pages:,} pages, {repeats:,} requests repeated"
        yield from self.wrongs or ["nothing lost, nothing twice, no false failure, no claim left"]


def history(
    directory: Path,
    names: Iterable[str],
    choice: random.Random,
    longest: float,
    *,
    needs: frozenset[str],
    local: float,
) -> Report:
    """Crawl once, with these faults one after another, and check what became of it."""
    is_local = choice.random() < local
    settings = spiders.TRACKED if choice.random() < TRACKED else ""
    with open_field(directory, WORKERS, needs, is_local=is_local, settings=settings) as one:
        return disturb(one, names, partial(Strike, choice, longest))


def disturb(one: Field, names: Iterable[str], how: Callable[[], Strike]) -> Report:
    """Have faults strike a crawl, let it end, and check what became of it."""
    report = Report()
    try:
        for name in names:
            strike(one, name, how(), report)
        one.site.end()
        until(lambda: one.is_over, ENDS)
    except Exception:
        ends = "\n".join(_end(one, worker) for worker in one.workers)
        last = report.blows[-1].fault if report.blows else "nothing"
        report.wrongs.append(f"after {last!r}: {traceback.format_exc()}\n{ends}")
        return report
    report.pages = one.site.promised
    went_back = any(blow.fault == "restore a backup" for blow in report.blows)
    report.wrongs += wrongs(one, UNDER_WAY if went_back else ())
    return report


def strike(one: Field, name: str, how: Strike, report: Report) -> None:
    """Have a fault strike, and see how work goes on."""
    time.sleep(how.choice.uniform(0.1, 1.0))
    if ended := [worker for worker in one.workers if worker.poll() is not None]:
        report.wrongs += [
            f"a crawl ended before {name!r}: {_end(one, worker)}"
            for worker in ended
            # The first has finished while nobody had what it could do.
            if not one.has_old_code(worker) and not one.was_refused(worker)
        ]
        one.replace(*ended)
    repeats = one.site.repeats
    FAULTS[name](one, how)
    one.over_at = one.progress()
    goes_on = until(lambda: one.progress() > one.over_at)
    blow = Blow(name, goes_on, one.site.repeats - repeats)
    for watch in how.watches:
        watch.join()
        if watch.seconds:
            blow.freed, blow.first, blow.last = watch.freed, min(watch.seconds), max(watch.seconds)
    report.blows.append(blow)
    print(blow, flush=True)


def _end(one: Field, worker: subprocess.Popen) -> str:
    log = one.project.log(worker)
    errors = [log[found.start() :][:3000] for found in re.finditer("ERROR|CRITICAL", log)]
    return f"{worker.returncode}: {errors or log[-500:]}"


def wrongs(one: Field, expected: Collection[str] = ()) -> list[str]:
    """Return what is wrong with a crawl that has ended; `expected` are parts of tracebacks."""
    found = [
        f"a crawl ended with {_end(one, worker)}"
        for worker in one.project.started
        if worker.pid not in one.struck and worker.returncode != 0 and not one.was_refused(worker)
    ]
    said = "\n".join(map(one.project.log, one.project.started))
    found += [f"in the log of a crawl: {complaint}" for complaint in logs.of_text(said, expected)]
    with ItemGraph.open(one.url, crawl="s") as crawl:
        found += [f"left: {row.item} {row.task}" for row in crawl.worklist()]
        found += [f"a false failure: {row.item}: {row.error}" for row in crawl.failures.list()]
    graph, pages = one.graph(), one.site.promised
    latest = {task: versions[-1] for task, versions in one.versions.items()}
    found += spiders.wrongs(graph, spiders.expected(pages, one.url_of, latest))
    found += spiders.wrong_counts(graph, pages, one.versions)
    is_tracked = one.ask("SELECT tracks_depth::int FROM crawls WHERE name = 's'")
    least = spiders.depths(one.site.links) if is_tracked else {}
    depths = one.depths()
    found += [
        f"{name} is {depths.get(name)} links deep, and should be {depth}"
        for name, depth in least.items()
        if depths.get(name) != depth
    ]
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


def run_for(driver: int, number: int, names: Sequence[str], **how: Any) -> Report:
    """Run one history for a driver in another process; none any more where that is gone."""
    return run(number, names, **how) if os.getppid() == driver else Report()


def run(number: int, names: Sequence[str], *, seed: int, longest: float, local: float) -> Report:
    """Run one history in a directory of its own."""
    needs = frozenset(NEEDS[name] for name in names if name in NEEDS)
    with servers.open_directory() as directory:
        choice = random.Random(f"{seed} {number}")
        report = history(directory, names, choice, longest, needs=needs, local=local)
    report.wrongs = [f"history {number}: {wrong}" for wrong in report.wrongs]
    print(
        f"history {number} is over: {len(report.blows)} faults",
        *report.wrongs,
        sep="\n",
        flush=True,
    )
    return report


def drive(
    faults: int,
    seed: int,
    names: Sequence[str],
    *,
    longest: float,
    at_once: int = 1,
    local: float = LOCAL,
) -> Report:
    """Run histories until there were so many faults, each kind as often as the others.

    Which faults strike which history, and what they choose, is the seed's; the instants are not.
    """
    wanted = [names[number % len(names)] for number in range(faults)]
    random.Random(seed).shuffle(wanted)
    histories = -(-faults // PER_HISTORY)
    parts = [wanted[at::histories] for at in range(histories)]
    report = Report()
    how: dict[str, Any] = {"seed": seed, "longest": longest, "local": local}
    if at_once == 1:
        for number, part in enumerate(parts):
            report.add(run(number, part, **how))
        return report
    one = partial(run_for, os.getpid(), **how)
    with ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn")) as pool:
        for each in pool.map(one, range(len(parts)), parts):
            report.add(each)
    return report


def allowed(names: Sequence[str]) -> list[str]:
    """Return the faults that this machine allows, and say of the others why not."""
    reasons = {needs: possible(needs) for needs in {NEEDS[name] for name in names if name in NEEDS}}
    for name in names:
        if reason := reasons.get(NEEDS.get(name, "")):
            print(f"LEFT OUT: {name!r}: this machine allows no {NEEDS[name][2:]}: {reason}")
    return [name for name in names if not reasons.get(NEEDS.get(name, ""))]


def main() -> int:
    """Read the options, drive, and print; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default=",".join(FAULTS), help="some of: " + ", ".join(FAULTS))
    parser.add_argument("--longest", type=float, default=40.0, help="seconds of what lasts")
    parser.add_argument("--at-once", type=int, default=1, help="histories; each has a server")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    names = allowed(given.only.split(","))
    report = drive(given.faults, given.seed, names, longest=given.longest, at_once=given.at_once)
    if len(report.blows) < given.faults and not report.wrongs:
        report.wrongs.append(f"only {len(report.blows)} of {given.faults} faults struck")
    print(*report.lines(), sep="\n")
    return 1 if report.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
