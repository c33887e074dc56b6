"""Arguments that several commands take."""

from __future__ import annotations

from scrapy_itemgraph.commands import parsing
from scrapy_itemgraph.commands.command import Argument

ID_HELP = "the item's id, an alias of it, or the URL of a page, as a browser has it"
ID = Argument("id", help=ID_HELP)
OF_TASK = Argument("--task", help="of this task alone")
LIMIT = Argument("--limit", metavar="N", type=parsing.count, default=100, help="at most (100)")
CATEGORY = Argument(
    "--category",
    metavar="NAME",
    action="append",
    default=[],
    help="show what was logged under this category, and not error, warn, info and debug; "
    "may be repeated; *: under all",
)
TAG = Argument(
    "--tag",
    "--tags",
    metavar="NAME[=JSON]",
    type=parsing.tag,
    action="append",
    default=[],
    help="tag it, with a value if need be; may be repeated",
)
DATA = Argument("--data", metavar="JSON", type=parsing.json_object, help="its data, an object")
URL = Argument("--url", help='the same as --data \'{"url": "URL"}\'')
