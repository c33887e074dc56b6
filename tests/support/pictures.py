"""Take pictures of the cockpit: `cd tests && python -m support.pictures FOLDER [--delay 0.02]`.

An unmodified spider crawls a shop of 900 pages, 80 of which fail, and each page is taken at 1280
and 390 pixels, light and dark: of the overview and some others also while the crawl runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from conftest import new_database

from scrapy_itemgraph import ItemGraph
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from support import cockpits, failing_books, filled_queue, servers, sites

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
MEANWHILE = ("overview", "worklist", "slots", "workers")


def pages(url: str, site: str) -> dict[str, str]:
    """Return the paths of the pages to take, by the names of their pictures."""
    with ItemGraph.open(url, "books") as graph:
        groups = graph.failures.groups()
    largest = max(groups, key=lambda one: one.count)
    answered = next(one for one in groups if one.example.error["type"].startswith("http"))
    engine = engines.sync_engine(url)
    with engine.connect() as connection:
        names = connection.execute(
            sa.text("SELECT name FROM items WHERE data->>'url' = ANY (:urls) ORDER BY id"),
            {"urls": [f"{site}/subjects/s_7/index.html", f"{site}{failing_books.path(1)}"]},
        )
        many, fine = names.scalars()
    engine.dispose()
    tabs = ("overview", "failures", "worklist", "slots", "workers", "runs", "tasks", "items")
    return {
        "crawls": "/",
        **{tab: f"/crawls/books/{tab}" for tab in tabs},
        "failures-of-text": "/crawls/books/failures?text=http&sort=count",
        "failures-listed": "/crawls/books/failures/list",
        "failures-of-group": f"/crawls/books/failures/group?group={largest.group.hex}",
        "failure": f"/crawls/books/failures/{largest.example.id}",
        "failure-answered": f"/crawls/books/failures/{answered.example.id}",
        "item": f"/crawls/books/item?id={fine}",
        "item-of-many": f"/crawls/books/item?id={many}",
        "item-failed": f"/crawls/books/item?id={largest.example.item}",
        "find": "/crawls/books/search?q=the-book-of-number-33_&by=part",
        "done": "/crawls/books/done",
        "simulate": f"/crawls/books/simulate?id={largest.example.item}&task={largest.task}",
        "nothing": "/crawls/books/item?id=URL:nowhere",
    }


def take(browser: Browser, address: str, paths: dict[str, str], folder: Path) -> None:
    """Take pictures of pages, whole, at each width in each scheme."""
    for scheme in SCHEMES:
        for width in WIDTHS:
            context = browser.new_context(
                base_url=address,
                viewport={"width": width, "height": 800},
                color_scheme=scheme,
            )
            page = context.new_page()
            for name, path in paths.items():
                page.goto(path)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            context.close()


def main() -> None:
    """Crawl, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between two requests")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with (
        servers.server() as server,
        new_database(server) as url,
        servers.open_directory() as directory,
        sites.site(failing_books.Bookshop) as shop,
        cockpits.chromium() as browser,
    ):
        engine = engines.sync_engine(url)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        engine.dispose()
        shop.stop_at = 500
        settings = f"DOWNLOAD_DELAY = {given.delay}\nRANDOMIZE_DOWNLOAD_DELAY = False"
        project = failing_books.project(directory, url, shop, settings)
        process = failing_books.start(project)
        with cockpits.cockpit(url) as address:
            assert shop.has_stopped.wait(300)
            meanwhile = {f"{name}-running": f"/crawls/books/{name}" for name in MEANWHILE}
            take(browser, address, meanwhile, given.folder)
            shop.release()
            project.finish(process)
            take(browser, address, pages(url, shop.url), given.folder)
            filled_queue.fill(url)
            take(browser, address, filled_queue.pages(url), given.folder)


if __name__ == "__main__":
    main()
