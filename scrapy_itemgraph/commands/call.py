"""What a command is called with: its arguments, the project's settings, the graph that is meant."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import input_checks, page_names
from scrapy_itemgraph.postgres import data_directory
from scrapy_itemgraph.tools import progress

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from scrapy.settings import BaseSettings

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.tools.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command being run: its arguments, the project's settings, and where it writes.

    `options` are the settings that were given with -s, as text.
    """

    given: Namespace
    options: Mapping[str, str]
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
    def project(self) -> str:
        """The project whose runners take its crawls: ITEMGRAPH_PROJECT, else BOT_NAME."""
        return self.settings.run.project or str(self.scrapy_settings["BOT_NAME"])

    @property
    def by(self) -> str:
        """Who runs the command, for the history: user@host."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # in containers, whose user may have no name
            user = str(os.getuid())
        return f"{user}@{socket.gethostname()}"

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
        for part in printing.sentence(line) if sys.stderr.isatty() else [line]:
            printing.write(sys.stderr, part)


@contextmanager
def item_graph(call: Call, name: str | None = None) -> Iterator[tuple[ItemGraph, str]]:
    """Open the graph that has the item which is meant, and yield it with the item's id.

    It is given by `name`, or by the command's ID: an id, an alias, or the URL of a page. Where no
    crawl is named all are looked into; which one it is of is said. A NotFoundError says what is
    written alike, or lists the crawls or pages where there are several.
    """
    given = input_checks.check_id(call.given.id if name is None else name)
    with call.graph() as graph:
        if call.named_crawl is None:
            graph = _holding(call, graph, given)  # noqa: PLW2901 - the same, of the crawl
        yield graph, graph.lookup.page(given).item


def _holding(call: Call, graph: ItemGraph, given: str) -> ItemGraph:
    """Return the graph of the one crawl that has an item; where none has, of the only crawl."""
    noun = page_names.noun(given)
    found = sorted({one.crawl for one in graph.lookup.in_crawls(given)})
    if len(found) > 1:
        listed = ", ".join(found)
        raise NotFoundError(
            f"several crawls have the {noun} {given!r}: {listed}; say which with --crawl NAME",
            found,
        )
    known = [one.crawl for one in graph.crawls.list()]
    if found:
        if len(known) > 1:
            call.note(f"of the crawl {found[0]}")
        return graph.of(found[0])
    if len(known) > 1:
        raise NotFoundError(f"no crawl has the {noun} {given!r}; there are {', '.join(known)}")
    return graph


def _has_cluster(directory: Path) -> bool:
    try:
        return data_directory.has_cluster(directory.expanduser())
    except OSError:
        return True  # the server says better what is wrong
