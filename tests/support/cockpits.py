"""A cockpit on a database, served by a thread of this process, and Chromium to look at it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.graphs import Graphs
from support import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

EXAMPLE = Path(__file__).parents[2] / "example_project"
PATIENCE = 60.0  # seconds


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Start Chromium without a window, or skip and say what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium; apt-get install chromium")
    # Root has no sandbox to be in; what is looked at is our own.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=[*sandbox, *arguments])
        yield browser
        browser.close()


class _Server(uvicorn.Server):
    """Ends streams of events when it ends."""

    async def shutdown(self, sockets=None) -> None:
        self.config.app.state.stopping.set()
        await super().shutdown(sockets)


@contextmanager
def cockpit(url: str, **given: Any) -> Iterator[str]:
    """Serve the cockpit of a database, and yield its address without the last slash.

    `given` is as `create_app` takes it.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    with Graphs.open(url) as graphs, listening:
        app = create_app(graphs, **given)
        server = _Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until = time.monotonic() + PATIENCE
            while not server.started and time.monotonic() < until:
                time.sleep(0.02)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


@contextmanager
def shop_site() -> Iterator[str]:
    """Open the example's tea shop on its first day, and yield its address."""
    command = [sys.executable, "-m", "shop.site", "--port", "0", "--day", "1"]
    with subprocess.Popen(command, cwd=EXAMPLE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def crawl_shop(url: str, site: str, log: Path) -> None:
    """Crawl the shop into a database."""
    command = [sys.executable, "-m", "scrapy", "crawl", "shop", "-a", f"site={site}"]
    with log.open("w") as file:
        processes.run(
            [*command, "-s", f"ITEMGRAPH_DATABASE_URL={url}"],
            cwd=EXAMPLE,
            stdout=file,
            stderr=file,
            timeout=PATIENCE,
            check=True,
        )
