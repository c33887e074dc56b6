"""A whole crawl as a file: to be moved, kept, or put under version control."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING

from scrapy_itemgraph.commands import printing, streams
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import counts
from scrapy_itemgraph.tools import bulk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, BinaryIO

    from scrapy_itemgraph.commands.call import Call

_NOW_AND_THEN = 1000
_FILE = "of JSON lines; compressed if it ends in .gz"


@command(
    Argument("crawl", help="the crawl's name"),
    Argument(
        "-o", "--output", metavar="FILE", required=True, help=f"{_FILE}; - for standard output"
    ),
    Argument("--blobs", action="store_true", help="with binary data, as base64"),
)
def dump(call: Call) -> None:
    """Write a whole crawl to a file, as it is at one moment, while workers go on.

    Its owner alone may read the file.
    Everything but claims, cookies and limits: items, names, tags, data, results, failures,
    attempts, work, scraped items and the spider's state. `load` makes the same crawl of it.
    """
    count = 0
    with (
        call.graph(crawl=call.given.crawl) as graph,
        streams.written(
            call.given.output,
            is_compressed=call.given.output.endswith(".gz"),
            is_private=True,
        ) as file,
        call.progress("dump", "lines") as progress,
    ):
        for line in graph.crawls.dump(blobs=call.given.blobs):
            written = file.write(line.encode() + b"\n")
            count += 1
            if written > streams.LINE_BYTES:
                call.note(
                    f"scrapy itemgraph: line {count} of the dump has {written:,} bytes; `load` "
                    f"takes lines of up to {streams.LINE_BYTES:,}"
                )
            if count % _NOW_AND_THEN == 0:
                progress.reach(count)
    told = f"{counts.many(count, 'line')} of the crawl {graph.crawl!r} to {call.given.output}"
    if call.given.output == "-":
        call.note(f"scrapy itemgraph: {printing.clean(told)}")
        return
    call.write(
        {"crawl": graph.crawl, "lines": count, "file": call.given.output}, [printing.clean(told)]
    )


@command(Argument("file", help=f"{_FILE}; - for standard input"))
def load(call: Call) -> None:
    """Make a crawl of a file that `dump` wrote.

    It has the dump's name, or that of --crawl; there must be no such crawl yet. Nobody sees it
    before it is whole, and nothing of it stays if anything is wrong.
    """
    with streams.opened(call.given.file) as file, _whole(call.given.file):
        lines = (line.decode() for line in streams.lines_of(_uncompressed(call.given.file, file)))
        first = next(lines, "")
        with (
            call.graph(crawl=call.crawl or _name(first), may_create=True) as graph,
            call.progress("load", "lines") as progress,
        ):
            size = streams.size_of(file)

            def reached(count: int) -> None:
                progress.reach(count, share=file.tell() / size if size else None)

            with bulk.bulk_work():
                counts = graph.crawls.load(chain([first], lines), reached=reached)
    told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    call.write({"crawl": graph.crawl, **counts}, [printing.clean(f"{graph.crawl}: {told}")])


def _uncompressed(name: str, file: BinaryIO) -> IO[bytes]:
    return gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file  # type: ignore[return-value]


def _name(first: str) -> str | None:
    """Return the crawl that the first line of a dump names; what is wrong with it is said later."""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(first)["crawl"])
    return None


@contextmanager
def _whole(name: str) -> Iterator[None]:
    """Say of a damaged file that it is one."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise OperationError(f"{name} is damaged, so nothing was loaded: {error}") from None
