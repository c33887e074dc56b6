"""How many pages a crawl has after a kill -9 and the same command again: JOBDIR, and ours.

A start page links to 400 pages. The crawl is killed when 100 pages are parsed. What is counted are
pages whose callback ran, in either process. `bench_kills.py 5` does it five times.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from conftest import new_database
from support import servers, sites
from support.projects import Project, kill

PAGES = 401
LONGEST = 3600.0  # seconds of a run
BEFORE_THE_KILL = 100
SPIDER = f"""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        with open("parsed", "a") as file:
            print(response.url, file=file)
        if response.url.endswith("/page/0"):
            for number in range(1, {PAGES}):
                yield response.follow(f"/page/{{number}}")
"""
JOBDIR = 'ADDONS = {}\nJOBDIR = "job"\n'
SQLITE = 'SCHEDULER_DISK_QUEUE = "scrapy.squeues.PickleLifoSQLiteQueue"\n'
CONTESTANTS = {
    "JOBDIR": JOBDIR,
    "JOBDIR on SQLite queues": JOBDIR + SQLITE,
    "ours": "",
}


def parsed(project: Project) -> set[str]:
    """Return the pages whose callback ran."""
    path = project.directory / "parsed"
    return set(path.read_text().split()) if path.exists() else set()


def killed_and_again(project: Project, settings: str) -> tuple[int, int]:
    """Kill a crawl, and run it again; return how many pages it had before, and in the end."""
    project.write(SPIDER, settings)
    process = project.start("crawl", "s")
    while len(parsed(project)) < BEFORE_THE_KILL and process.poll() is None:
        time.sleep(0.005)
    kill(process)
    before = len(parsed(project))
    again = project.finish(project.start("crawl", "s"), LONGEST)
    assert again.code == 0, again.log
    return before, len(parsed(project))


def main() -> None:
    """Do it several times, each contestant in each round with a project of its own."""
    with servers.server() as server_url, servers.open_directory() as directory:
        rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
        for number in range(1, rounds + 1):
            for name, settings in CONTESTANTS.items():
                folder = directory / f"{number}-{name.replace(' ', '-')}"
                folder.mkdir()
                with sites.site() as site, new_database(server_url) as url:
                    project = Project(folder, url, site.url)
                    before, after = killed_and_again(project, settings)
                print(
                    f"round {number}: {name}: {before} of {PAGES} pages at the kill, {after} after "
                    "the same command again",
                    flush=True,
                )


if __name__ == "__main__":
    main()
