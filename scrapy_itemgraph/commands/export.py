"""Scraped items: what ITEMGRAPH_KEEP_ITEMS kept, as feeds."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import feed_exports, parsing, printing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.commands.call import Call


_NOW_AND_THEN = 100


@command(
    Argument("-o", "--output", metavar="FILE", action="append", help="append to this feed"),
    Argument(
        "-O", "--overwrite-output", metavar="FILE", action="append", help="overwrite this feed"
    ),
    Argument(
        "--since",
        metavar="MOMENT",
        type=parsing.moment,
        help="kept from then on: 2026-11-21T10:00Z, or a period up to now such as 1d",
    ),
    Argument(
        "--item-class",
        metavar="PATH",
        action="append",
        help="items of this class alone, such as shop.items.Product, or dict; may be repeated",
    ),
)
def export(call: Call) -> None:
    """Write the scraped items that were kept to a feed, each once.

    FILE is as in `scrapy crawl -o`: a path or URI, FILE:FORMAT, or -:FORMAT for standard
    output. FEED_EXPORT_FIELDS, FEED_STORAGES and their like hold, and FEEDS of the same FILE.
    """
    given = call.given
    chosen = feed_exports.read(
        call.scrapy_settings, given.output or (), given.overwrite_output or ()
    )
    to_stdout = any(map(feed_exports.is_stdout, chosen))
    if to_stdout and call.as_json:
        raise UsageError("--json and the feed cannot both go to standard output")
    feed_exports.load_classes(call.scrapy_settings, call.settings.safety.allowed_modules)
    with call.graph() as graph, ExitStack() as left:
        until = graph.journal.settled()
        since = until - given.since if isinstance(given.since, timedelta) else given.since
        crawler = feed_exports.crawler_of(call.scrapy_settings, graph.crawl)
        outputs = [feed_exports.Feed(crawler, uri, options) for uri, options in chosen.items()]
        for feed in outputs:
            left.callback(feed.abandon)
        count = 0
        is_part = since is not None or given.item_class
        total = None if is_part else graph.journal.count()
        with call.progress("export", "items") as progress:
            for kept in graph.journal.read(since, until, item_classes=given.item_class or ()):
                count += 1
                for feed in outputs:
                    feed.write(kept)
                if count % _NOW_AND_THEN == 0:
                    progress.reach(count, total=total)
                    graph.activity.announce("export", count, total)
        if (
            not count
            and not call.settings.scraped_items.keep_items
            and next(graph.journal.read(), None) is None
        ):
            raise NotFoundError(
                f"no scraped item of the crawl {graph.crawl!r} was kept; set "
                "ITEMGRAPH_KEEP_ITEMS = True, and crawl: what is scraped from then on is kept "
                "(pages that are done scrape nothing until scrapy itemgraph expire --all)"
            )
        for feed in outputs:
            feed.close()
    document = {
        "crawl": graph.crawl,
        "items": count,
        "until": until,
        "feeds": [{"uri": one.name, "format": one.format, "items": one.count} for one in outputs],
    }
    if to_stdout:
        for line in _lines(document):
            call.note(line)
    else:
        call.write(document, _lines(document))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for one in document["feeds"]:
        yield printing.clean(
            f"{counts.many(one['items'], 'scraped item')} to {one['uri']} ({one['format']})"
        )
    yield f"What is kept later: --since {document['until'].isoformat()}"
