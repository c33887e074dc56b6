"""What a command is called with: its arguments, the project's settings, the graph that is meant."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.commands.feed_exports import crawler_of
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import input_checks, item_names
from scrapy_itemgraph.postgres import data_directory
from scrapy_itemgraph.tools import progress

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from scrapy.settings import BaseSettings

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.tools.progress import Progress

_WITH_METHOD = re.compile(r"[A-Z]+ ")


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command being run: its arguments, the project's settings, and where it writes."""

    given: Namespace
    scrapy_settings: BaseSettings
    settings: Settings
    crawl: str | None
    as_json: bool

    @contextmanager
    def graph(
        self,
        *,
        crawl: str | None = None,
        may_create: bool = False,
        connections: int | None = None,
        lock_wait: float = 0.0,
    ) -> Iterator[ItemGraph]:
        """Open the graph of the crawl that is meant; what is only looked into is not made.

        With `connections` it is for threads that share them, as `ItemGraph.open` says.
        """
        # SQLAlchemy, which runs need not.
        from scrapy_itemgraph.graph import ItemGraph, Patience  # noqa: PLC0415

        data_dir = self.settings.database.data_dir
        if not (may_create or self.settings.database.database_url or _has_cluster(data_dir)):
            raise NotFoundError(
                f"there is no item graph in {data_dir}; go to the project's directory, make "
                "one with `scrapy itemgraph init`, or set ITEMGRAPH_DATABASE_URL"
            )
        with ItemGraph.open(
            self.settings.database.database_url,
            crawl or self.named_crawl,
            data_dir=data_dir,
            postgres_bin=self.settings.database.postgres_bin,
            auto_migrate=self.settings.database.auto_migrate,
            patience=Patience(self.note) if connections is None else None,
            connections=connections,
            lock_wait=lock_wait,
            blobs=self.settings.records.blobs,
        ) as graph:
            yield graph

    @property
    def named_crawl(self) -> str | None:
        """The crawl that --crawl or ITEMGRAPH_CRAWL names; None where the only one is meant."""
        return self.crawl or self._crawl_of_settings()

    def _crawl_of_settings(self) -> str | None:
        """Return ITEMGRAPH_CRAWL unless it takes a spider or its arguments to know it."""
        if self.settings.run.crawl is None:
            return None
        try:
            parts = list(Formatter().parse(self.settings.run.crawl))
        except ValueError:
            return None
        is_fixed = all(name is None for _, name, _, _ in parts)
        return "".join(literal for literal, *_ in parts) if is_fixed else None

    def write(self, document: Any, lines: Iterable[str]) -> None:
        """Write the document with --json, else the lines."""
        if self.as_json:
            lines = [printing.dump(document, sys.stdout)]
        for line in lines:
            printing.write(sys.stdout, line)

    def progress(self, what: str, unit: str) -> Progress:
        """Return what shows people how far long work is: a bar, or lines, on standard error."""
        return progress.on(sys.stderr, f"scrapy itemgraph: {what}", unit)

    def note(self, line: str) -> None:
        """Tell people something that is no part of the answer."""
        printing.write(sys.stderr, line)


def item_id(call: Call) -> str:
    """Return the ID that was given; the URL of a page may stand for the request that got it.

    So may what tables show of a request: its URL, with its method unless that is GET. Where several
    requests have the URL, a NotFoundError names them.
    """
    given = input_checks.check_id(call.given.id)
    if "://" not in given:
        return given
    with call.graph() as graph:
        names = (given, *_request_names(call.scrapy_settings, given))
        found = next((name for name in names if graph.get(name) is not None), None)
        return found or _of_url(graph, given) or given


def _of_url(graph: ItemGraph, given: str) -> str | None:
    """Return the id of the one request that tables show so."""
    url = given.partition(" ")[2] if _WITH_METHOD.match(given) else given
    rows = graph.lookup.of_url(url)
    rows = [row for row in rows if item_names.page(row.url, row.method) == given] or rows
    if len(rows) > 1:
        listed = ", ".join(f"{row.item} ({row.method or 'no request'})" for row in rows)
        raise NotFoundError(f"several items have this URL; say which is meant by its id: {listed}")
    return rows[0].item if rows else None


def _request_names(settings: BaseSettings, url: str) -> Iterator[str]:
    """Return what plain requests to a URL are known by."""
    crawler = crawler_of(settings, "")
    fingerprinter = build_from_crawler(
        load_object(settings["REQUEST_FINGERPRINTER_CLASS"]), crawler
    )
    try:
        fingerprint = fingerprinter.fingerprint(Request(url)).hex()
    except ValueError:
        return
    yield f"REQ:{fingerprint}"
    yield f"START:{fingerprint}:parse"


def _has_cluster(directory: Path) -> bool:
    try:
        return data_directory.has_cluster(directory.expanduser())
    except OSError:
        return True  # the server says better what is wrong
