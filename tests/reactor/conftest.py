"""Tests on the asyncio reactor, in a process of their own: pytest-twisted runs each one in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.inner_crawls import InnerCrawl
from twisted.web.resource import Resource
from twisted.web.server import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Arrivals(Resource):
    """A site's pages; `moments` says when each request came, by the reactor's clock.

    `/moved/…` leads to `/…`.
    """

    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []
        self.connections: set[object] = set()

    def render_GET(self, request) -> bytes:  # noqa: N802 - Twisted's name
        from twisted.internet import reactor

        self.moments.append(reactor.seconds())
        self.connections.add(request.channel)
        path = request.path.decode()
        if path.startswith("/moved/"):
            request.redirect(path.removeprefix("/moved").encode())
        return b"a page"


@pytest.fixture
def site() -> Iterator[Arrivals]:
    """Serve pages on a port of localhost, which is the site's `url`."""
    from twisted.internet import reactor

    pages = Arrivals()
    port = reactor.listenTCP(0, Site(pages), interface="127.0.0.1")
    pages.url = f"http://127.0.0.1:{port.getHost().port}/"
    yield pages
    port.stopListening()


@pytest.fixture
def crawl_of(engine) -> Callable[..., InnerCrawl]:
    """Return a maker of crawls on the test's own database: of a spider, with further settings."""
    return lambda spider, **settings: InnerCrawl(spider, engine, **settings)
