"""Interleaved rounds: each contestant once in each, and the next round in another order."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from support import servers

from end_to_end import needs, report, served
from end_to_end.backends import Backend, Postgres, start
from end_to_end.contestants import CONTESTANTS, VARIANT_TITLES, VARIANTS
from end_to_end.crawls import ROOT, Cost, WrongRunError, crawl
from end_to_end.report import Contest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from end_to_end.served import Site

ROUNDS = 5
VARIED = "deep"  # the site that other settings are tried on
DESCRIPTION = "Crawl the same pages with ours and with others, in interleaved rounds."


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line; `is_full` tells whether it leaves nothing out."""
    parser = argparse.ArgumentParser(prog="bench_end_to_end.py", description=DESCRIPTION)

    def some_of(names):
        def read(text: str) -> list[str]:
            chosen = text.split(",")
            if unknown := [name for name in chosen if name not in names]:
                raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not of {', '.join(names)}")
            return [name for name in names if name in chosen]

        return read

    def number(text: str) -> int:
        if not text.isdecimal() or not int(text):
            raise argparse.ArgumentTypeError(f"{text}: a whole number from 1")
        return int(text)

    sites, variants = list(served.SITES), list(VARIANTS)
    parser.add_argument("--site", type=some_of(sites), metavar=",".join(sites))
    parser.add_argument(
        "--only", type=some_of(CONTESTANTS), metavar=",".join(CONTESTANTS), help="contestants"
    )
    parser.add_argument(
        "--settings",
        type=some_of(variants),
        metavar=",".join(filter(None, variants)),
        help=f"instead of the usual ones; on the site {VARIED} if none is named",
    )
    parser.add_argument("--rounds", type=number, default=ROUNDS)
    parser.add_argument(
        "--pages", type=number, default=served.PAGES, help="of a site; the manuals have theirs"
    )
    parser.add_argument("--write", action="store_true", help="to docs, though it is not all")
    chosen = parser.parse_args(given)
    chosen.is_full = not (chosen.site or chosen.only or chosen.settings) and (
        chosen.pages == served.PAGES and chosen.rounds >= ROUNDS
    )
    return chosen


def contests_of(chosen: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the pairs of a site and a variant of settings that are wanted."""
    if chosen.settings:
        return [(site, one) for site in chosen.site or [VARIED] for one in chosen.settings]
    pairs = [(site, "") for site in chosen.site or served.SITES]
    return pairs if chosen.site else [*pairs, *((VARIED, one) for one in VARIANTS if one)]


def main(given: Sequence[str]) -> None:
    """Set up what is needed, run the rounds, print the tables, and write them if they are whole."""
    chosen = arguments(given)
    names = runnable(chosen.only or list(CONTESTANTS))
    pairs = contests_of(chosen)
    needed = {"nginx"} | {"manuals" for site, _ in pairs if site == "manuals"}
    here = needs.have(*sorted(needed))
    if "nginx" not in here:
        raise SystemExit("nginx is missing: `apt-get install nginx-light` as root")
    if "manuals" not in here and "manuals" in needed:
        print("skipped: manuals (`apt-get install python3-doc postgresql-doc-15` as root)")
        pairs = [pair for pair in pairs if pair[0] != "manuals"]
    if not pairs or not names:
        raise SystemExit("nothing is left to run")
    with ExitStack() as held:
        directory = held.enter_context(servers.open_directory())
        port, nginx = held.enter_context(served.serving(directory))
        root = directory / "sites"
        sites = {
            name: served.SITES[name](root, port, chosen.pages)
            for name in dict.fromkeys(site for site, _ in pairs)
        }
        backends = {"": Backend()}
        for name in {CONTESTANTS[one].server for one in names} - {""}:
            (directory / name).mkdir()
            backends[name] = held.enter_context(start(name, directory / name))
        contests = {pair: Contest(sites[pair[0]].title + VARIANT_TITLES[pair[1]]) for pair in pairs}
        problem = race(
            contests,
            rounds=chosen.rounds,
            names=names,
            sites=sites,
            backends=backends,
            nginx=nginx,
        )
        postgres = backends.get("postgresql")
        version = postgres.version() if isinstance(postgres, Postgres) else ""
        lines = needs.described(version)
    run_at_all = [contest for contest in contests.values() if contest.costs]
    if run_at_all:
        lines.append(report.foreign(run_at_all))
    print("\n".join(["", *lines, "", *map(report.section, run_at_all)]))
    if problem:
        raise SystemExit(problem)
    if chosen.is_full or chosen.write:
        report.write(ROOT / "docs", lines, run_at_all)
        print("written to docs/benchmarks.md and docs/benchmarks.svg")


def runnable(names: list[str]) -> list[str]:
    """Return the contestants that this machine has what it takes for, and say which it has not."""
    has_scrapy_redis = needs.scrapy_redis()
    if "redis" not in names:
        return names
    if not has_scrapy_redis:
        print("skipped: scrapy-redis (it is not in .venv-bench; `make bench` installs it)")
    elif not needs.have("redis"):
        print("skipped: scrapy-redis (`apt-get install redis-server` as root)")
    else:
        return names
    return [name for name in names if name != "redis"]


def race(
    contests: dict[tuple[str, str], Contest],
    *,
    rounds: int,
    names: list[str],
    sites: dict[str, Site],
    backends: dict[str, Backend],
    nginx: int,
) -> str:
    """Run the rounds of all contests; return what put an end to them, if anything did."""
    try:
        for number in range(rounds):
            turn = number % len(names)
            order = names[turn:] + names[:turn]
            for pair, contest in contests.items():
                run(order, pair, contest, sites[pair[0]], backends=backends, nginx=nginx)
    except WrongRunError as error:
        return str(error)
    except KeyboardInterrupt:
        return "interrupted"
    return ""


def run(
    names: list[str],
    pair: tuple[str, str],
    contest: Contest,
    site: Site,
    *,
    backends: dict[str, Backend],
    nginx: int,
) -> None:
    """Run a round of a contest, and print each run; raise WrongRunError at one that went wrong."""
    for name in names:
        one = CONTESTANTS[name]
        settings = {**VARIANTS[pair[1]], "COST_SITE": str(nginx)}
        with tempfile.TemporaryDirectory(prefix="itemgraph-bench-") as path:
            cost = crawl(one, site, backends[one.server], settings, Path(path))
        contest.costs.setdefault(name, []).append(cost)
        number = len(contest.costs[name])
        print(f"{'-'.join(filter(None, pair))} {number}: {line(name, cost)}", flush=True)


def line(name: str, cost: Cost) -> str:
    """Return what a run took, in a line."""
    return (
        f"{name:8} {cost.pages} pages in {cost.seconds:.2f} s, {cost.rate:.0f}/s; ms a page "
        f"{cost.cpu_of_page:.2f}, server {cost.server_cpu_of_page:.2f}; "
        f"{cost.megabytes:.0f} MB, {cost.wal_of_page:.0f} bytes of WAL a page; "
        f"others kept {cost.foreign:.2f} cores busy"
    )
