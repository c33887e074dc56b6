"""The tokens that let in over HTTP and gRPC, to all crawls of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.access.no_tokens import MAKE
from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.commands.command import Argument, Group
from scrapy_itemgraph.model.access_tokens import Role

if TYPE_CHECKING:
    from scrapy_itemgraph.commands.call import Call

WITHOUT = "scrapy itemgraph serve --no-tokens"
_COLUMNS: printing.Columns = {"TOKEN": "name", "ROLE": "role", "MADE": "created_at"}
_NAME = Argument("name", help="whose token it is, such as grafana")

_TOKEN = Group("token", "Tokens of the HTTP API and of URL frontiers")


@_TOKEN.command(
    "add",
    _NAME,
    Argument(
        "--role",
        choices=[str(role) for role in Role],
        metavar="ROLE",
        required=True,
        help="read; queue: and steer crawls; or operate: all of it",
    ),
)
def add(call: Call) -> None:
    """Make a token, and show it this once.

    The database has its SHA-256.
    """
    name, role = call.given.name, call.given.role
    with call.graph(may_create=True) as graph:
        secret = graph.tokens.add(name, role)
    call.write({"name": name, "role": role, "token": secret}, [secret])
    call.note(f"the token {name} may {role}; it is not shown again")


@_TOKEN.command("list")
def list_tokens(call: Call) -> None:
    """List the tokens, without their secrets, which nobody knows any more."""
    with call.graph() as graph:
        found = graph.tokens.list()
    document = [
        {"name": one.name, "role": str(one.role), "created_at": one.created_at} for one in found
    ]
    call.write(document, printing.table(found, _COLUMNS) if found else ["there are no tokens"])


@_TOKEN.command("remove", _NAME)
def remove(call: Call) -> None:
    """Remove a token; within two seconds nobody is let in with it."""
    name = call.given.name
    with call.graph() as graph:
        graph.tokens.remove(name)
        is_last = not graph.tokens.list()
    lines = [f"removed the token {name}"]
    if is_last:
        lines.append(
            "no token is left: servers let nobody in until there is one again "
            f"({MAKE}); {WITHOUT} serves this machine without any"
        )
    call.write({"removed": name}, lines)
