"""Runs crawls of Debian's manuals of Python and PostgreSQL: the project in `projects/manuals/`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from scrapy_itemgraph.graph import ItemGraph
from support import logs, processes

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[1] / "projects" / "manuals"
STAT = re.compile(r"'([\w/]+)': ([\d.]+)")


def is_installed() -> bool:
    """Tell whether the manuals are on this machine."""
    spec = importlib.util.spec_from_file_location("manuals_site", PROJECT / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.is_installed()


MARKS = [
    pytest.mark.docs_crawl,
    pytest.mark.skipif(
        not is_installed(),
        reason="Debian's python3-doc and postgresql-doc-15 are not installed; .ci/run does it",
    ),
]


@dataclass
class Run:
    """A crawl that ended: its log, and the numbers among its stats."""

    log: str
    stats: dict[str, float]


@dataclass
class Manuals:
    """The manuals' site."""

    url: str
    directory: Path
    numbers: Iterator[int] = field(default_factory=count)

    def fetched(self) -> dict[str, int]:
        """Return how often each page was fetched so far."""
        with urlopen(self.url + "log") as response:
            return json.load(response)

    def start(self, spider: str, *settings: str, env: dict[str, str] | None = None):
        """Start `scrapy crawl`; return the process, and its log."""
        command = [sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"site={self.url}"]
        for setting in settings:
            command += ["-s", setting]
        environment = {**os.environ, **(env or {}), "PYTHONPATH": ""}
        path = self.directory / f"log-{next(self.numbers)}.txt"
        logs.watch(path)
        with path.open("w") as log:
            process = processes.Popen(
                command, cwd=PROJECT, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        return process, path

    def crawl(self, spider: str, *settings: str, env: dict[str, str] | None = None) -> Run:
        """Crawl to the end."""
        process, path = self.start(spider, *settings, env=env)
        process.wait(300)
        log = path.read_text()
        assert process.returncode == 0, log[-3000:]
        return Run(log, {name: float(number) for name, number in STAT.findall(log)})

    def crawl_until_killed(self, spider: str, *settings: str, pages: int) -> None:
        """Crawl until so many pages were fetched, then kill -9."""
        before = sum(self.fetched().values())
        process, _ = self.start(spider, *settings)
        deadline = time.monotonic() + 120
        while sum(self.fetched().values()) < before + pages and time.monotonic() < deadline:
            assert process.poll() is None, "the crawl ended before it could be killed"
            time.sleep(0.02)  # asking the site again is all the waiting there is
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def site(directory: Path) -> Iterator[Manuals]:
    """Serve the manuals; logs of crawls go to the directory."""
    process = subprocess.Popen(
        [sys.executable, PROJECT / "site.py"], stdout=subprocess.PIPE, text=True
    )
    try:
        yield Manuals(process.stdout.readline().strip(), directory)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def pages(url: str, crawl: str) -> dict[str, dict]:
    """Return every page's data, and its metadata by task, as the graph holds them."""
    with ItemGraph.open(url, crawl=crawl) as graph:
        return {
            item.id: {
                "data": item.data,
                "tags": item.tags,
                "aliases": item.aliases,
                "results": {
                    result.task: (result.version, result.is_successful, result.metadata)
                    for result in graph.results(item.id)
                },
            }
            for item in graph.items()
        }


def crawl_together(
    one: Manuals, spider: str, *settings: str, processes: int, kill_every: float | None = None
) -> int:
    """Crawl with several processes to the end; return how many were killed with -9 on the way.

    With `kill_every` a random one is killed that often, in seconds, and another one started, until
    one has ended by itself.
    """
    killed = 0
    running = [one.start(spider, *settings)[0] for _ in range(processes)]
    try:
        while kill_every is not None:
            with contextlib.suppress(StopIteration):
                first = next(process for process in running if process.poll() is not None)
                assert first.returncode == 0
                break
            time.sleep(kill_every)  # this is the interval, not a wait for something
            victim = random.choice(running)
            if victim.poll() is None:
                victim.kill()
                victim.wait()
                killed += 1
                running[running.index(victim)], _ = one.start(spider, *settings)
        for process in running:
            assert process.wait(300) == 0
    finally:
        for process in running:
            process.kill()
            process.wait()
    return killed
