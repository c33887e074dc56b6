"""One run of one contestant, measured and checked."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from end_to_end.backends import Backend
    from end_to_end.contestants import Contestant
    from end_to_end.served import Site

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-bench" / "bin" / "python"
PROJECT = Path(__file__).parent / "project"
PATIENCE = 900  # seconds for a run
MORE = 64  # pages that a process may have under way when a crawl of a part is closed


class WrongRunError(Exception):
    """A run that did not fetch what it should have, or failed."""


@dataclass(frozen=True)
class Cost:
    """What a run took: seconds, seconds of CPU, bytes of memory at most."""

    pages: int
    seconds: float
    cpu: float
    server_cpu: float
    peak: int  # bytes, the most that its processes ever had
    wal: int  # bytes
    foreign_cpu: float = 0.0  # of what has no part in the crawl

    @property
    def foreign(self) -> float:
        """How many cores were busy with what has no part in the crawl."""
        return max(self.foreign_cpu, 0) / self.seconds

    @property
    def rate(self) -> float:
        """Pages a second."""
        return self.pages / self.seconds

    @property
    def cpu_of_page(self) -> float:
        """Milliseconds of the crawl's CPU for a page."""
        return 1000 * self.cpu / self.pages

    @property
    def server_cpu_of_page(self) -> float:
        """Milliseconds of its server's CPU for a page."""
        return 1000 * self.server_cpu / self.pages

    @property
    def wal_of_page(self) -> float:
        """Bytes of WAL for a page."""
        return self.wal / self.pages

    @property
    def megabytes(self) -> float:
        """The most memory that its processes ever had, in MB."""
        return self.peak / 1e6


def crawl(
    contestant: Contestant,
    site: Site,
    backend: Backend,
    variant: dict[str, str],
    directory: Path,
) -> Cost:
    """Crawl a site once; files go to an empty directory. Raise WrongRunError unless all is well."""
    for name, lines in (("seeds", site.seeds), ("pages", site.pages)):
        (directory / name).write_text("\n".join(lines))
    with backend.emptied() as where:
        settings = {**contestant.settings, **variant, **where, "COST_SERVER": str(backend.pid)}
        if not site.is_whole and contestant.spider != "fixed":
            share = -(-len(site.pages) // contestant.processes)
            settings["CLOSESPIDER_PAGECOUNT"] = str(share)
        before = backend.wal()
        seen = _run(contestant, settings, directory)
        wal = backend.wal() - before
        cost = _summed(seen, wal)
        try:
            _check(contestant, site, seen, cost)
        except WrongRunError as error:
            raise WrongRunError(f"{error}\n{_last_lines(directory)}") from None
        if site.is_whole and (left := backend.outstanding()):
            raise WrongRunError(f"{contestant.title}: {left} pieces of work are left")
    return cost


def _run(contestant: Contestant, settings: dict[str, str], directory: Path) -> list[dict]:
    """Crawl with the contestant's processes to the end; return what each of them measured."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    files = [directory / f"cost-{number}.json" for number in range(contestant.processes)]
    started: list[subprocess.Popen] = []
    try:
        for number, file in enumerate(files):
            given = {**settings, "COST_FILE": str(file), "LOG_FILE": f"{file}.log"}
            if contestant.needs_jobdir:
                given["JOBDIR"] = str(directory / f"job-{number}")
            command = [PYTHON, "-m", "scrapy", "crawl", contestant.spider]
            for name in ("seeds", "pages"):
                command += ["-a", f"{name}_file={directory / name}"]
            for name, value in given.items():
                command += ["-s", f"{name}={value}"]
            started.append(subprocess.Popen(command, cwd=PROJECT, env=environment))
        deadline = time.monotonic() + PATIENCE
        codes = [process.wait(max(deadline - time.monotonic(), 1)) for process in started]
    except subprocess.TimeoutExpired:
        codes = [-1]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(codes) or not all(file.exists() for file in files):
        raise WrongRunError(f"{contestant.title} failed:\n{_last_lines(files[0].parent)}")
    return [json.loads(file.read_text()) for file in files]


def _last_lines(directory: Path) -> str:
    """Return what is an error in the logs, and their ends."""
    logs = [path.read_text() for path in sorted(directory.glob("*.log"))]
    errors = [line for log in logs for line in log.splitlines() if "] ERROR: " in line]
    return "\n".join([*errors[:10], *(log[-2000:] for log in logs)])


def _summed(seen: list[dict], wal: int) -> Cost:
    """Make one of what the processes measured: from the first that began to the last that ended."""
    first = min((one["began"] for one in seen), key=lambda sample: sample["at"])
    last = max((one["ended"] for one in seen), key=lambda sample: sample["at"])
    took = {name: last[name] - first[name] for name in first}
    cpu = sum(one["ended"]["cpu"] - one["began"]["cpu"] for one in seen)
    return Cost(
        pages=sum(one["pages"] for one in seen),
        seconds=took["at"],
        cpu=cpu,
        server_cpu=took["server"],
        peak=sum(one["peak"] for one in seen),
        wal=wal,
        foreign_cpu=took["machine"] - took["site"] - took["server"] - cpu,
    )


def _check(contestant: Contestant, site: Site, seen: list[dict], cost: Cost) -> None:
    """Raise WrongRunError unless the run fetched and scraped the pages that it should have."""
    wanted = len(site.pages)
    more = 0 if site.is_whole or contestant.spider == "fixed" else MORE * contestant.processes
    if not wanted <= cost.pages <= wanted + more:
        raise WrongRunError(f"{contestant.title}: {cost.pages} pages instead of {wanted}")
    scraped = sum(one["scraped"] for one in seen)
    if contestant.spider != "task" and scraped != cost.pages:
        raise WrongRunError(f"{contestant.title}: {scraped} items of {cost.pages} pages")
    # A dead link is an error in the log of a task, and none in that of a callback.
    errors = sum(one["errors"] for one in seen)
    if errors > sum(one["missing"] for one in seen):
        raise WrongRunError(f"{contestant.title}: {errors} errors in its log")
