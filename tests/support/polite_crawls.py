"""Runs the crawls of the project `projects/polite`, several processes on one database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from support import logs, processes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.polite_site import Arrival, PoliteSite

PROJECT = Path(__file__).parents[1] / "projects" / "polite"
TESTS = Path(__file__).parents[1]
PACKAGE = Path(__file__).parents[2]


@dataclass
class Worker:
    """A crawl process; the server knows it by its user agent."""

    agent: str
    arguments: list[str]
    process: subprocess.Popen
    log: Path


@dataclass
class Crawls:
    """Crawl processes on one database: the one that `settings` name, else one in `directory`.

    `tasks` has options for the tasks of the spider `shop`, by name.
    """

    site: PoliteSite
    directory: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    killed_at: float | None = None
    _killed: list[Worker] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill whatever still runs."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()

    def start(self, spider: str = "many", *, processes: int = 1, **arguments) -> Crawls:
        """Start so many processes of a spider."""
        given = [x for name, value in arguments.items() for x in ("-a", f"{name}={value}")]
        for _ in range(processes):
            self._start([spider, *given])
        return self

    def kill_one(self, *, after: int) -> Crawls:
        """Kill -9 whoever sent the last request, once so many have arrived.

        Where it was alone, another one is started in its place.
        """
        agent = self._last_of(after)
        victim = next(worker for worker in self.workers if worker.agent == agent)
        assert victim.process.poll() is None, "it ended before it could be killed"
        victim.process.send_signal(signal.SIGKILL)
        self.killed_at = time.monotonic()
        victim.process.wait()
        self._killed.append(victim)
        if len(self.workers) == 1:
            self._start(victim.arguments)
        return self

    def interrupt(self, *, after: int) -> Crawls:
        """Send all that run a SIGINT, once so many requests have arrived."""
        self._last_of(after)
        for worker in self.workers:
            worker.process.send_signal(signal.SIGINT)
        return self

    def wait(self, requests: int) -> list[Arrival]:
        """Wait for so many requests, and return the server's log."""
        self._last_of(requests)
        return self.site.log()

    def _last_of(self, requests: int) -> str:
        """Wait for so many requests, and return who sent the last one."""
        deadline = time.monotonic() + 60
        count, agent = self.site.seen()
        while count < requests:
            assert time.monotonic() < deadline, f"{count} requests so far\n{self.logs()}"
            assert any(worker.process.poll() is None for worker in self.workers), self.logs()
            time.sleep(0.02)  # asking the server again is all the waiting there is
            count, agent = self.site.seen()
        return agent

    def finish(self, *, seconds: float = 120) -> list[Arrival]:
        """Wait until all have ended by themselves, and return the server's log."""
        deadline = time.monotonic() + seconds
        for worker in self.workers:
            if worker in self._killed:
                continue
            try:
                code = worker.process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"still running:\n{self.logs()}") from None
            assert code == 0, self.logs()
        return self.site.log()

    def logs(self) -> str:
        """Return the end of every process's log."""
        return "\n\n".join(
            f"{worker.agent}:\n{worker.log.read_text()[-3000:]}" for worker in self.workers
        )

    def _start(self, arguments: list[str]) -> None:
        agent = f"polite-{len(self.workers)}"
        given = [one.partition("=")[0] for one in arguments if "=" in one]
        settings = {
            "USER_AGENT": agent,
            "ITEMGRAPH_IGNORED_ARGUMENTS": ",".join([*given, "port"]),
            "ITEMGRAPH_DATA_DIR": self.directory / "graph",
            **self.settings,
        }
        command = [sys.executable, "-m", "scrapy", "crawl", *arguments]
        command += ["-a", f"port={self.site.port}"]
        for name, value in settings.items():
            command += ["-s", f"{name}={json.dumps(value) if isinstance(value, dict) else value}"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(PACKAGE)]),
            "POLITE_TASKS": json.dumps(self.tasks),
        }
        log = self.directory / f"{agent}.log"
        logs.watch(log)
        with log.open("w") as file:
            process = processes.Popen(
                command, cwd=PROJECT, env=environment, stdout=file, stderr=subprocess.STDOUT
            )
        self.workers.append(Worker(agent, arguments, process, log))
