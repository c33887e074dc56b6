"""Binary data: what an item has, and what is in it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import printing, streams
from scrapy_itemgraph.commands.arguments import ID
from scrapy_itemgraph.commands.call import item_graph
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model import counts

if TYPE_CHECKING:
    from scrapy_itemgraph.commands.call import Call

COLUMNS: printing.Columns = {
    "BLOB": "name",
    "BYTES": "size",
    "TYPE": "mime",
    "ATTACHED": "attached_at",
    "SHA-256": lambda one: one["sha256"][:16],
}


@command(ID)
def blobs(call: Call) -> None:
    """List an item's binary data, by name.

    Of each hash the first 16 digits are shown; --json has all 64.
    """
    with item_graph(call) as (graph, name):
        rows = [asdict(one) for one in graph.blobs.list(name)]
    lines = printing.table(rows, COLUMNS) if rows else ["it has none"]
    call.write(rows, lines)


@command(
    ID,
    Argument("name", help="the blob's name, as `blobs` lists it"),
    Argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="where it is written; - for standard output",
    ),
)
def blob(call: Call) -> None:
    """Write an item's binary data to a file, which has its name only when it is whole."""
    given = call.given
    if call.as_json and given.output == "-":
        raise UsageError("--json says what was written; it cannot share standard output with it")
    size = 0
    with item_graph(call) as (graph, name):
        content = graph.blobs.read(name, given.name)
        with streams.written(given.output) as file:
            for part in content:
                file.write(part)
                size += len(part)
    if given.output == "-":
        return
    document = {"item": name, "name": given.name, "file": given.output, "size": size}
    call.write(document, [printing.clean(f"{size:,} bytes to {given.output}")])


@command(Argument("--now", action="store_true", help="also what was written a moment ago"))
def collect_blobs(call: Call) -> None:
    """Delete contents of binary data that no item has had for a day.

    Workers do that by themselves. Contents that a running crawl is about to commit are not lost
    with --now: they are written again.
    """
    with call.graph() as graph:
        deleted = graph.blobs.collect(now=call.given.now)
    call.write({"deleted": deleted}, [f"deleted {counts.many(deleted, 'content')}"])
