"""Notices: what people are told of crawls, and whether it arrives."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from scrapy_itemgraph.channels import sending
from scrapy_itemgraph.channels.channel import Channels
from scrapy_itemgraph.commands import parsing, printing
from scrapy_itemgraph.commands.command import Argument, Group
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.notices import Arrival

if TYPE_CHECKING:
    from scrapy_itemgraph.commands.call import Call

_NOTICES = Group("notices", "What people are told of crawls, and whether it arrives")
_FAILED = 1

_COLUMNS: printing.Columns = {
    "WRITTEN": "created_at",
    "WHAT": "what",
    "CRAWL": lambda one: one.crawl or one.detail.get("runner", ""),
    "STATE": "state",
    "TRIES": "tries",
    "WHY": lambda one: one.error or one.reason or "",
}

_ANSWERS: printing.Columns = {
    "CHANNEL": "channel",
    "ARRIVAL": "arrival",
    "ANSWER": lambda one: one.said.strip().splitlines()[-1],
}


@_NOTICES.command(
    "list", Argument("--limit", type=parsing.count, metavar="N", default=50, help="of them (50)")
)
def list_notices(call: Call) -> None:
    """List notices, the newest first; with --crawl NAME those of a crawl.

    A notice waits, is sent, failed and is tried again for a day, or is given up. It is kept and not
    sent where ITEMGRAPH_NOTIFY_KINDS leaves it out.
    """
    limit = call.given.limit
    with call.graph() as graph:
        lines = graph.notices.list(crawl=call.crawl, limit=limit)
    shown = printing.table(lines, _COLUMNS)
    of = f" of the crawl {call.crawl}" if call.crawl else ""
    none = printing.clean(f"there is no notice{of} yet; those of `notices test` are not kept")
    call.write([asdict(one) for one in lines], printing.first(lines, shown, limit, none))


@_NOTICES.command("test")
def test(call: Call) -> int:
    """Send a test by each channel of the project now, and say what it answered.

    The exit code is 1 where one did not take it.
    """
    channels = Channels.of(call.settings.notices, call.project)
    if not channels:
        raise OperationError(
            "nobody is told anything yet; set ITEMGRAPH_NOTIFY_URLS or ITEMGRAPH_NOTIFY_FUNCTION "
            "in the project's settings (scrapy itemgraph docs notices)"
        )
    answers = sending.send_test(channels, call.by)
    call.write([asdict(one) for one in answers], printing.table(answers, _ANSWERS))
    return 0 if all(one.arrival is Arrival.SENT for one in answers) else _FAILED
