"""A real Scrapyd in a directory of its own: deploy a project, schedule, cancel and look at jobs."""

from __future__ import annotations

import configparser
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from support import logs, servers
from support.projects import IS_REACTORLESS, PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

PATIENCE = 60.0
IGNORED = shutil.ignore_patterns(".scrapy", "build", "*.egg-info", "__pycache__")

CONFIGURATION = """\
[scrapyd]
http_port = {port}
poll_interval = 0.05
max_proc = 4
jobs_to_keep = 50
"""


@dataclass
class Scrapyd:
    """A server that runs, and the one project that is deployed to it."""

    directory: Path
    url: str
    project: str = ""

    def deploy(self, source: Path) -> None:
        """Deploy a copy of a project's directory with `scrapyd-deploy`, as its scrapy.cfg says."""
        copy = self.directory / "sources" / source.name
        shutil.copytree(source, copy, ignore=IGNORED)
        config = configparser.ConfigParser()
        config.read(copy / "scrapy.cfg")
        if not config.has_section("deploy"):
            config["deploy"] = {"project": source.name}
        config["deploy"]["url"] = self.url
        with (copy / "scrapy.cfg").open("w") as file:
            config.write(file)
        done = subprocess.run(
            [sys.executable, "-m", "scrapyd_client.deploy"],
            cwd=copy,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.project = config["deploy"]["project"]

    def ask(self, endpoint: str, **parameters: str) -> dict:
        """GET an endpoint of the JSON API."""
        with urlopen(f"{self.url}{endpoint}.json?{urlencode(parameters)}", timeout=30) as response:
            return _checked(json.load(response))

    def tell(self, endpoint: str, *parameters: tuple[str, str]) -> dict:
        """POST to an endpoint of the JSON API; a parameter may come more than once."""
        body = urlencode([("project", self.project), *parameters]).encode()
        with urlopen(f"{self.url}{endpoint}.json", body, timeout=30) as response:
            return _checked(json.load(response))

    def schedule(self, spider: str, settings: Mapping[str, str], **arguments: str) -> str:
        """Schedule a job; return its id."""
        reactor = {"TWISTED_REACTOR_ENABLED": "False"} if IS_REACTORLESS else {}
        given = [("setting", f"{name}={value}") for name, value in {**settings, **reactor}.items()]
        job = self.tell("schedule", ("spider", spider), *given, *arguments.items())["jobid"]
        logs.watch(self.directory / "logs" / self.project / spider / f"{job}.log")
        return job

    def cancel(self, job: str, how: str = "INT") -> str | None:
        """Send a job a signal; return the state that it was in."""
        return self.tell("cancel", ("job", job), ("signal", how))["prevstate"]

    def state(self, job: str) -> str | None:
        """Return "pending", "running" or "finished", which says nothing of success."""
        return self.ask("status", job=job)["currstate"]

    def log(self, job: str) -> str:
        """Return a job's log so far; Scrapyd's own if it has none, which says why."""
        path = next(self.directory.glob(f"logs/{self.project}/*/{job}.log"), None)
        return (path or self.directory / "scrapyd.log").read_text()

    def until(self, holds: Callable[[], bool], *jobs: str, seconds: float = PATIENCE) -> None:
        """Return when a condition holds; if it never does, show the jobs' logs."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "\n".join(self.log(job)[-5000:] for job in jobs)
            time.sleep(0.02)  # looking again is all the waiting there is

    def until_finished(self, *jobs: str, seconds: float = PATIENCE) -> None:
        """Return when the jobs' processes have ended."""
        self.until(
            lambda: all(self.state(job) == "finished" for job in jobs), *jobs, seconds=seconds
        )

    def kill_jobs(self) -> None:
        """Kill the jobs that still run: Scrapyd's own end would leave them."""
        for job in self.ask("listjobs")["running"]:
            with suppress(ProcessLookupError):
                os.kill(job["pid"], signal.SIGKILL)


def require() -> None:
    """Skip the test where Scrapyd or its client is not installed."""
    if not all(map(importlib.util.find_spec, ("scrapyd", "scrapyd_client"))):
        pytest.skip("Scrapyd is not installed (pip install scrapyd scrapyd-client)")


@contextmanager
def server(directory: Path) -> Iterator[Scrapyd]:
    """Run a Scrapyd that keeps all it has in this directory, on a free port."""
    directory.mkdir(exist_ok=True)
    port = servers._free_port()
    (directory / "scrapyd.conf").write_text(CONFIGURATION.format(port=port))
    log = directory / "scrapyd.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "scrapyd"],
            cwd=directory,
            env=_environment() | {"HOME": str(directory)},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        _until_it_listens(process, log, port)
        running = Scrapyd(directory, f"http://127.0.0.1:{port}/")
        try:
            yield running
        finally:
            running.kill_jobs()
    finally:
        process.terminate()
        process.wait()


def _until_it_listens(process: subprocess.Popen, log: Path, port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while f"Site starting on {port}" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)  # reading the log again is all the waiting there is


def _environment() -> dict[str, str]:
    """Return this process's environment without what would point Scrapy to another project."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SCRAPY_", "SCRAPYD_"))}
    # pkg_resources, which Scrapyd imports, warns that it is to go.
    return kept | {"PYTHONPATH": str(PACKAGE), "PYTHONWARNINGS": "ignore"}


def _checked(answer: dict) -> dict:
    assert answer["status"] == "ok", answer
    return answer
