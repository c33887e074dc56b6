"""What an open tab of the cockpit costs a crawl: the same crawl with one and without, in turns.

The server of the cockpit and PostgreSQL share the cores with the crawl; the tab is a reader of the
stream of events that a browser's tab would read, and browsers run elsewhere.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from end_to_end import served
from end_to_end.backends import Postgres, postgres
from end_to_end.contestants import CONTESTANTS
from end_to_end.crawls import crawl
from support import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVE = [sys.executable, "-m", "scrapy", "itemgraph", "serve", "--port", "0"]
_SECONDS = 0.3  # between two tries to find the crawl, which begins later than the server


@dataclass
class Watched(Postgres):
    """A database that somebody looks at while it is crawled into."""

    looks: int = 0  # messages that the tab was sent

    @contextmanager
    def emptied(self) -> Iterator[dict[str, str]]:
        """Serve the cockpit of the new database, with one tab open."""
        with super().emptied() as where:
            options = ["-s", f"ITEMGRAPH_DATABASE_URL={where['ITEMGRAPH_DATABASE_URL']}"]
            with subprocess.Popen(
                [*SERVE, *options], cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                found = re.search(r"http://\S+/", process.stdout.readline())
                assert found is not None
                over = threading.Event()
                tab = threading.Thread(target=self._watch, args=(found[0], over), daemon=True)
                tab.start()
                try:
                    yield where
                finally:
                    over.set()
                    process.terminate()
                    tab.join()

    def _watch(self, url: str, over: threading.Event) -> None:
        while not over.is_set():
            with suppress(OSError):
                name = self._crawl(url)
                if name:
                    self._read(f"{url}crawls/{name}/live", over)
            time.sleep(_SECONDS)

    def _crawl(self, url: str) -> str | None:
        with urllib.request.urlopen(url, timeout=10) as page:
            found = re.search(r"/crawls/([^/\"]+)/overview", page.read().decode())
        return found and found[1]

    def _read(self, url: str, over: threading.Event) -> None:
        with urllib.request.urlopen(url, timeout=60) as stream:
            for line in stream:
                self.looks += line.startswith(b"event: parts")
                if over.is_set():
                    return


def main() -> None:
    """Crawl in turns, and print both rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pages", type=int, default=served.PAGES)
    parser.add_argument("--only", default="task", help="task, or drop-in")
    given = parser.parse_args()
    contestant = CONTESTANTS[given.only]
    rates: dict[str, list[float]] = {"without": [], "with a tab": []}
    with servers.open_directory() as directory, served.serving(directory) as (port, _):
        site = served.SITES["deep"](directory / "sites", port, given.pages)
        (directory / "postgresql").mkdir()
        with postgres(directory / "postgresql") as plain:
            watched = Watched(**vars(plain))
            for number in range(given.rounds):
                order = list(zip(rates, (plain, watched), strict=True))
                for name, backend in order if number % 2 else reversed(order):
                    folder = Path(tempfile.mkdtemp(dir=directory))
                    cost = crawl(contestant, site, backend, {}, folder)
                    rates[name].append(cost.rate)
                    print(f"{name:<12}{cost.rate:>8.0f} pages/s, {cost.seconds:.1f} s", flush=True)
    ratios = [one / other for one, other in zip(rates["with a tab"], rates["without"], strict=True)]
    print(f"messages to the tab: {watched.looks}")
    for name, found in rates.items():
        print(f"{name:<12}{statistics.median(found):>8.0f} pages/s")
    print(f"ratio of a round, median: {statistics.median(ratios):.3f}, of {sorted(ratios)}")


if __name__ == "__main__":
    main()
