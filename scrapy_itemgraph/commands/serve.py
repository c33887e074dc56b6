"""The HTTP door: an API, and pages to look at."""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import TYPE_CHECKING

from scrapy.settings import SETTINGS_PRIORITIES

from scrapy_itemgraph.access.no_tokens import MAKE, start_refusal
from scrapy_itemgraph.channels.channel import Channels
from scrapy_itemgraph.commands import parsing, tokens
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.commands.spiders import feeds_of
from scrapy_itemgraph.exceptions import ConfigurationError, OperationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.model.access_tokens import Keys


@command(
    Argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen (127.0.0.1)"),
    Argument("--port", metavar="N", type=parsing.port, default=8808, help="(8808); 0: a free one"),
    Argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name by which the server may be called; may be repeated; *: any",
    ),
    Argument("--connections", metavar="N", type=parsing.count, default=500, help="at a time (500)"),
    Argument(
        "--connections-by-address",
        metavar="N",
        type=parsing.count,
        default=100,
        help="at a time from one address; this machine's own have no such limit (100)",
    ),
    Argument(
        "--allow-setting",
        metavar="NAME",
        action="append",
        default=[],
        help="a setting that crawls may be given over HTTP besides harmless ones; may be repeated",
    ),
    Argument(
        "--allow-variable",
        metavar="NAME",
        action="append",
        default=[],
        help="a variable of runners that crawls may be given over HTTP; may be repeated",
    ),
    Argument(
        "--no-tokens",
        action="store_true",
        help="serve this machine without tokens again, after the last one was removed",
    ),
)
def serve(call: Call) -> None:
    """Serve the item graph over HTTP, until Ctrl-C.

    The API is under /api/v1, pages for people are at /. Without tokens only this machine is served.
    It takes the extra `web`: pip install "scrapy-itemgraph[web]".
    """
    host, port = call.given.host, call.given.port
    channels = Channels.of(call.settings.notices, call.project)
    try:
        # What only this command needs, and an extra.
        from scrapy_itemgraph.web import (  # noqa: PLC0415
            app,
            connections,
            crawl_terms,
            duties,
            graphs,
            notices,
            server,
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'serve needs {error.name}; install it with `pip install "scrapy-itemgraph[web]"`'
        ) from None
    with (
        _listening(host, port) as listening,
        call.graph(connections=graphs.CONNECTIONS, lock_wait=graphs.LOCK_WAIT) as graph,
        graphs.Graphs.over(graph) as served,
    ):
        address, port = listening.getsockname()[:2]
        is_near = ipaddress.ip_address(address).is_loopback
        keys = graph.tokens.keys()
        has_tokens = bool(keys.tokens)
        _refuse_strangers(call, host, keys, is_near=is_near)
        names = [*call.given.allow_host, *([] if is_near else [host])]
        application = app.create_app(
            served,
            allowed_hosts=names,
            any_address=not is_near,
            simulate=_simulate(call),
            without_tokens=call.given.no_tokens,
            channels=channels,
            crawl_terms=crawl_terms.CrawlTerms(
                project=call.project,
                list_spiders=_list_spiders(call),
                ignored=call.settings.run.ignored_arguments,
                settings=call.given.allow_setting,
                variables=call.given.allow_variable,
                **feeds_of(call.scrapy_settings),
            ),
        )
        url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

        def ready() -> None:
            whom = "those who have a token" if has_tokens else "this machine alone: no tokens"
            call.write(
                {"url": url, "has_tokens": has_tokens},
                [f"The item graph is served at {url} to {whom} (Ctrl-C ends it)"],
            )
            sys.stdout.flush()

        door = connections.Door(call.given.connections, call.given.connections_by_address)
        with duties.doing_duties(graph), notices.sending_notices(graph, channels):
            server.serve(application, listening, ready, door)


def _simulate(call: Call) -> Sequence[str]:
    """Return the command that simulates, with the settings that this one was given."""
    return [sys.executable, "-m", "scrapy", "itemgraph", *_options(call), "simulate"]


def _list_spiders(call: Call) -> Sequence[str] | None:
    """Return the command that lists the project's spiders; None: there is no project here."""
    if not call.scrapy_settings.getlist("SPIDER_MODULES"):
        return None
    return [sys.executable, "-m", "scrapy_itemgraph.commands.list_spiders", *_options(call)]


def _options(call: Call) -> list[str]:
    """Return the settings that this command was given, as options."""
    settings = call.scrapy_settings
    given = [
        name for name in settings if settings.getpriority(name) == SETTINGS_PRIORITIES["cmdline"]
    ]
    return [part for name in given for part in ("-s", f"{name}={settings.get(name)}")]


def _refuse_strangers(call: Call, host: str, keys: Keys, *, is_near: bool) -> None:
    if not keys.tokens:
        if not is_near:
            raise OperationError(
                f"without tokens only this machine is served, and {host} is reached by others; "
                f"make a token first: {MAKE}"
            )
        if call.given.allow_host:
            raise OperationError(f"--allow-host is for servers with tokens; make one first: {MAKE}")
    why = start_refusal(keys, no_tokens=call.given.no_tokens, without=tokens.WITHOUT)
    if why is not None:
        raise OperationError(why)


def _listening(host: str, port: int) -> socket.socket:
    """Listen, before anything is started for it."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()
        except OSError:
            listening.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OperationError(
            f"cannot listen at {host} port {port}: {reason}; --port N takes another, 0 a free one"
        ) from None
    return listening
