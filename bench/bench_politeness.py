"""What a website sees of one, two and four processes, one of which is killed on the way.

Each figure is the server's: it stamps arrivals. `--only delay,global,cap,fair,throttle` runs a
part, `--plain` shows Scrapy alone, in one process that nobody kills, for comparison.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import polite_crawls, polite_site

from scrapy_itemgraph.graph import ItemGraph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.polite_site import Arrival

PARTS = ("delay", "global", "cap", "fair", "throttle")
TOLERANCE = 0.005
PLAIN = {"ADDONS": {}}
HOSTS, LARGE, SMALL = 100, 1_000, 10
TASK = "shop:list"
THROTTLE = {
    "AUTOTHROTTLE_ENABLED": True,
    "AUTOTHROTTLE_START_DELAY": 1,
    "AUTOTHROTTLE_TARGET_CONCURRENCY": 1,
}
LAST = 10


@dataclass(frozen=True)
class Limit:
    """A limit, and the requests per second that it allows."""

    title: str
    rate: float
    settings: Mapping[str, Any]
    hosts: int = 1
    query: str = ""
    gap: float | None = None
    cap: int | None = None


LIMITS = {
    "delay": Limit("DOWNLOAD_DELAY 0.1, one host", 10, {"DOWNLOAD_DELAY": 0.1}, gap=0.1),
    "global": Limit("10/s for 20 hosts", 10, {"ITEMGRAPH_RATE_LIMIT": "10/s"}, hosts=20, gap=0.1),
    "cap": Limit(
        "2 at once, latency 0.1",
        20,
        {"CONCURRENT_REQUESTS_PER_DOMAIN": 2},
        query="latency=0.1",
        cap=2,
    ),
}


@dataclass
class Row:
    """The figures of one limit and load, over all rounds."""

    count: int = 0
    short: int = 0
    smallest: float = float("inf")
    highest: int = 0
    shares: list[float] = field(default_factory=list)
    shares_without: list[float] = field(default_factory=list)
    lag: float = 0.0

    def add(self, limit: Limit, log: list[Arrival], killed_at: float | None, lag: float) -> None:
        """Take in a round."""
        self.count += len(log)
        if limit.gap is not None:
            self.short += len(polite_site.short_gaps(log, limit.gap - TOLERANCE))
        self.smallest = min(self.smallest, polite_site.gaps(log)[0])
        self.highest = max(self.highest, polite_site.highest_concurrency(log))
        self.shares.append(polite_site.rate(log) / limit.rate)
        self.shares_without.append(polite_site.rate(log, without=killed_at) / limit.rate)
        self.lag = max(self.lag, lag)

    def text(self, limit: Limit) -> str:
        """Return the row as it is printed."""
        is_spaced = limit.gap is not None
        short = f"{self.short}" if is_spaced else "-"
        smallest = f"{1000 * self.smallest:.1f}" if is_spaced else "-"
        highest = f"{self.highest}" + (" of 2" if limit.cap else "")
        return (
            f"{self.count:>9}{short:>7}{smallest:>10}{highest:>9}"
            f"{statistics.median(self.shares):>8.0%}{statistics.median(self.shares_without):>10.0%}"
            f"{1000 * self.lag:>8.1f}"
        )


def main() -> None:
    """Run the parts that are asked for."""
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="itemgraph-polite-") as name:
        directories = (Path(name) / str(number) for number in range(10_000))
        limits = [LIMITS[part] for part in options.only if part in LIMITS]
        if limits:
            bench_limits(limits, options, directories)
        if "fair" in options.only:
            bench_fairness(options, directories)
        if "throttle" in options.only:
            bench_throttle(options, directories)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    numbers = {"type": lambda given: [int(number) for number in given.split(",")]}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", type=lambda given: given.split(","), default=PARTS, metavar=",".join(PARTS)
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--processes", **numbers, default=[1, 2, 4], metavar="1,2,4")
    parser.add_argument("--blocks", **numbers, default=[0, 15, 40], metavar="0,15,40", help="ms")
    parser.add_argument("--seconds", type=float, default=8, help="that a limit is exhausted for")
    parser.add_argument("--plain", action="store_true", help="Scrapy alone")
    options = parser.parse_args()
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    if options.plain:
        options.processes = [1]
    return options


def new_crawls(site, directories: Iterator[Path], settings: Mapping[str, Any]):
    """Return crawls on an embedded database of their own."""
    directory = next(directories)
    directory.mkdir()
    return polite_crawls.Crawls(site, directory, settings)


# Limits


def bench_limits(
    limits: list[Limit], options: argparse.Namespace, directories: Iterator[Path]
) -> None:
    """Exhaust each limit under each load, and print what came of it."""
    print(
        f"{'':30}{'processes':>9}{'block':>6}{'requests':>9}{'short':>7}{'least ms':>10}"
        f"{'at once':>9}{'share':>8}{'unkilled':>10}{'lag ms':>8}"
    )
    for limit in limits:
        for processes in options.processes:
            for block_ms in options.blocks:
                row = Row()
                for _ in range(options.rounds):
                    exhaust(
                        limit, row, options, directories, processes=processes, block_ms=block_ms
                    )
                print(f"{limit.title:30}{processes:>9}{block_ms:>6}{row.text(limit)}", flush=True)
    print(
        "short: gaps under the limit's less 5 ms; share: of the rate that the limit allows, from "
        "the first\nto the last arrival; unkilled: without the gap in which the kill lies; lag: "
        "the server's own, at worst"
    )


def exhaust(
    limit: Limit,
    row: Row,
    options: argparse.Namespace,
    directories: Iterator[Path],
    *,
    processes: int,
    block_ms: int,
) -> None:
    """Crawl as many pages as the limit allows in the time given; kill one in the first third."""
    settings = {**limit.settings, **(PLAIN if options.plain else {})}
    pages = max(round(options.seconds * limit.rate / limit.hosts), 2)
    with (
        polite_site.polite_site() as site,
        new_crawls(site, directories, settings) as crawls,
    ):
        crawls.start(
            processes=processes,
            hosts=limit.hosts,
            pages=pages,
            block_ms=block_ms,
            query=limit.query,
        )
        if not options.plain:
            crawls.kill_one(after=limit.hosts * pages // 3)
        log = crawls.finish(seconds=300)
        missing = limit.hosts * pages - len({(one.host, one.path) for one in log})
        assert not missing, f"{missing} pages were not fetched\n{crawls.logs()}"
        row.add(limit, log, crawls.killed_at, site.lag())


# Fairness


def bench_fairness(options: argparse.Namespace, directories: Iterator[Path]) -> None:
    """Crawl one large host beside many small ones, all of it waiting before the first claim."""
    print(f"\n{HOSTS} hosts: number 0 has {LARGE:,} pages, queued first, the others {SMALL} each")
    for processes in options.processes:
        with (
            polite_site.polite_site() as site,
            new_crawls(site, directories, PLAIN if options.plain else {}) as crawls,
        ):
            given = {"hosts": HOSTS, "first": LARGE, "pages": SMALL}
            if options.plain:
                crawls.start("many", **given)
            else:
                queue_all(crawls, given)
                crawls.start("shop", processes=processes, hosts=0)
            print_order(crawls.finish(seconds=300), processes)


def queue_all(crawls: polite_crawls.Crawls, given: Mapping[str, Any]) -> None:
    """Make all the work while its task is disabled, then enable it."""
    place = {"crawl": "shop", "data_dir": crawls.directory / "graph"}
    crawls.start("shop", hosts=0).finish()
    with ItemGraph.open(**place) as graph:
        graph.tasks.disable(TASK)
    crawls.start("shop", **given).finish()
    with ItemGraph.open(**place) as graph:
        graph.tasks.enable(TASK)


def print_order(log: list[Arrival], processes: int) -> None:
    """Print in which round each host had its turns; a round is as many requests as hosts."""
    numbers = {polite_site.address(host): host for host in range(HOSTS)}
    order = [numbers[one.host] for one in log]
    rounds: dict[int, list[int]] = defaultdict(list)
    turns: Counter[int] = Counter()
    late = 0
    for place, host in enumerate(order):
        turns[host] += 1
        number = place // HOSTS + 1
        if host and turns[host] <= SMALL:
            rounds[turns[host]].append(number)
            late += number > turns[host] + 1
    print(f"\n{processes} processes: {len(order):,} requests, {late} turns over a round late")
    for turn, numbers_of in sorted(rounds.items()):
        counted = ", ".join(
            f"{count} in round {n}" for n, count in sorted(Counter(numbers_of).items())
        )
        print(f"  page {turn:>2} of the small hosts: {counted}")
    shares = [order[start : start + HOSTS].count(0) for start in range(0, len(order), HOSTS)]
    print(f"  pages of host 0 in each round: {' '.join(map(str, shares))}")
    for number in (1, 2):
        taken = order[(number - 1) * HOSTS : number * HOSTS]
        print(f"  round {number}: {in_runs(taken)}")


def in_runs(numbers: list[int]) -> str:
    """Write numbers that follow each other as ranges: 0-5 7 9-12; and repeats as 0x3."""
    runs: list[tuple[int, int, int]] = []  # first, last, times
    for number in numbers:
        if runs:
            first, last, times = runs[-1]
            if times == 1 and number == last + 1:
                runs[-1] = (first, number, 1)
                continue
            if first == last == number:
                runs[-1] = (first, last, times + 1)
                continue
        runs.append((number, number, 1))
    return " ".join(
        (f"{first}x{times}" if times > 1 else f"{first}" if first == last else f"{first}-{last}")
        for first, last, times in runs
    )


# AutoThrottle


def bench_throttle(options: argparse.Namespace, directories: Iterator[Path]) -> None:
    """Let Scrapy's AutoThrottle and ours find the delay of the same slow server."""
    print(
        f"\nAutoThrottle at latency 0.3{'last delay s':>18}{'at once':>9}{'rate/s':>8}{'ratio':>7}"
    )
    contestants = [("Scrapy alone", 1, PLAIN)]
    if not options.plain:
        contestants += [(f"ours, {number}", number, {}) for number in options.processes]
    delays: dict[str, list[float]] = defaultdict(list)
    for number in range(1, options.rounds + 1):
        for title, processes, settings in contestants:
            with (
                polite_site.polite_site() as site,
                new_crawls(site, directories, {**THROTTLE, **settings}) as crawls,
            ):
                crawls.start(processes=processes, pages=50, query="latency=0.3")
                log = crawls.finish()
            delay = statistics.mean(
                later.arrival - earlier.arrival
                for earlier, later in zip(log[-LAST - 1 : -1], log[-LAST:], strict=True)
            )
            delays[title].append(delay)
            ratio = statistics.median(delays[title]) / statistics.median(delays["Scrapy alone"])
            highest = polite_site.highest_concurrency(log)
            rate = polite_site.rate(log[-LAST - 1 :])
            print(
                f"round {number}: {title:18}{delay:>18.3f}{highest:>9}{rate:>8.2f}{ratio:>7.2f}",
                flush=True,
            )
    print(f"delay and rate: of the last {LAST} gaps; ratio: medians so far, to Scrapy alone")


if __name__ == "__main__":
    main()
