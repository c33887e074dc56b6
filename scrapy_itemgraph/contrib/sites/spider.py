"""The spider `site`: it follows a site's links, and keeps each page and file as it came."""

from __future__ import annotations

import contextlib
import logging
import string
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlsplit

import ada_url
import scrapy
from scrapy import Request
from scrapy.http import HtmlResponse

from scrapy_itemgraph import AttachBlob, UpdateMetadata
from scrapy_itemgraph.contrib.sites import references, scope
from scrapy_itemgraph.contrib.sites.references import Kind, Reference
from scrapy_itemgraph.contrib.sites.scope import Extent, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from scrapy.http import Response
    from scrapy.settings import BaseSettings

logger = logging.getLogger("site")  # that of the spider

BLOB = "body"
"""The name under which a page's content is attached to it."""

_OK = range(200, 300)
_HOME, _INLINE, _FRAME, _ROOT = "home", "inline", "frame", "root"  # in a request's meta
# Of a link that leads to another site: a rule that accepts it makes it a page, and nothing else.
_OUTSIDE = "itemgraph_outside"
_MOST_INLINE = 5  # how deep files of files, frames of frames are taken
_BEHIND_REDIRECTS = 605  # RedirectMiddleware, at 600, sees a response after this one
_AFTER_RETRIES = 540  # RetryMiddleware, at 550, sees a response before this one
_MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"
_ROBOTS = "/robots.txt"
_FIRST_OF_SERVER_ERRORS = 500
_FIRST = 10  # the priority of what a page needs, so that the two are fetched close together
_SECRET = frozenset({b"Authorization", b"Cookie", b"Proxy-Authorization"})
_MIB = 1024 * 1024

# What a project's own settings say otherwise wins.
_SETTINGS: dict[str, Any] = {
    "ITEMGRAPH_LEAST_DEPTH": True,
    "ITEMGRAPH_KEEP_PAGES": True,
    "ROBOTSTXT_OBEY": True,
    "ITEMGRAPH_PUBLIC_ONLY": True,  # a page may name anything in the network of its reader
    "METAREFRESH_ENABLED": False,  # the page itself is kept, and where it leads is a link
    "DOWNLOAD_WARNSIZE": 0,
}
_LARGEST_IN_DATABASE = 16 * _MIB  # bytes of a blob there
_LARGEST = 128 * _MIB


_NO_ROOTS = (
    "it was not told where to begin; give it -a url=https://example.com/, or -a urls=FILE with one "
    "on each line"
)


class BrowserRedirects:
    """Downloader middleware: has redirects resolved as browsers do, as links are."""

    def process_response(self, request: Request, response: Response) -> Response:
        """Make the `Location` of a response absolute; leave one that is no URL as it is."""
        location = response.headers.get("Location")
        if location is not None:
            escaped = quote(location, safe=string.punctuation)  # its bytes, whatever the charset
            with contextlib.suppress(ValueError):
                response.headers["Location"] = ada_url.join_url(request.url, escaped)
        return response


class ClosedRobots:
    """Downloader middleware: a robots.txt that answers 5xx disallows all, as RFC 9309 says.

    Nobody knows then what may be fetched; Scrapy would take the body of the error for the rules.
    """

    def process_response(self, request: Request, response: Response) -> Response:
        """Put a rule in the place of an error."""
        is_robots = "dont_obey_robotstxt" in request.meta and urlsplit(request.url).path == _ROBOTS
        if not is_robots or response.status < _FIRST_OF_SERVER_ERRORS:
            return response
        logger.warning(
            "%s answered %d: nothing is fetched there. Once it answers, scrapy itemgraph handle "
            "has the refused pages fetched",
            request.url,
            response.status,
        )
        return response.replace(body=b"User-agent: *\nDisallow: /\n")


_PLACES = {BrowserRedirects: _BEHIND_REDIRECTS, ClosedRobots: _AFTER_RETRIES}


class SiteSpider(scrapy.Spider):
    """Keeps whole websites: `scrapy crawl site -a url=https://example.com/`.

    `url` is what it begins with, several by blanks; `urls` a file of them, one a line. `extent` is
    `host` (all pages of these hosts), `path` (what is in their folders and below) or `page` (these
    alone). What pages need, pictures, style sheets, scripts, is taken from anywhere. `noise=keep`
    takes links that lead from page to page for ever, too.
    """

    name = "site"
    arguments: ClassVar[tuple[str, ...]] = ("url", "urls", "extent", "noise")
    """The names of its arguments; a subclass with more says so here, and takes them."""
    local_arguments: ClassVar[frozenset[str]] = frozenset({"urls"})
    """Those that name a file on the host; they are refused over HTTP."""

    # Answers, not failures: that a page is gone is a part of the archive.
    handle_httpstatus_list: ClassVar[list[int]] = [404, 410]

    def __init__(
        self,
        name: str | None = None,
        *,
        url: str = "",
        urls: str | None = None,
        extent: str = "host",
        noise: str = "skip",
        **kwargs: Any,
    ) -> None:
        self._check_names(kwargs)
        super().__init__(name, **kwargs)
        self.start_urls = scope.roots_of(url, urls)
        self._scope = Scope.of(self.start_urls, Extent.named(extent))
        self._skips_noise = noise != "keep"

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, str]) -> None:
        """Check what a crawl of the queue is to be started with; a file may be on another host.

        Raises:
            ValueError: it names no page, or says what the spider does not know.

        """
        cls._check_names(arguments)
        scope.roots_of(arguments.get("url", ""), None)
        Extent.named(arguments.get("extent", Extent.HOST))
        if not (arguments.get("url", "").strip() or "urls" in arguments):
            raise ValueError(_NO_ROOTS)

    @classmethod
    def _check_names(cls, arguments: Mapping[str, Any]) -> None:
        """Check that there are no other arguments; those of Scrapyd, say, begin with `_`."""
        for name in arguments:
            if name not in cls.arguments and not name.startswith("_"):
                known = ", ".join(cls.arguments)
                raise ValueError(f"it has no argument {name[:80]}; it has {known}")

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Have pages kept whole, robots.txt respected, and the network of the crawler left alone.

        What the project's own settings say stays.
        """
        super().update_settings(settings)
        is_in_database = settings.get("ITEMGRAPH_BLOBS") in {None, "database"}
        largest = _LARGEST_IN_DATABASE if is_in_database else _LARGEST
        for name, value in {**_SETTINGS, "DOWNLOAD_MAXSIZE": largest}.items():
            settings.set(name, value, "addon")
        # As a spider's: `scrapy crawl` lays the project's settings over those of a crawler again.
        settings.set(_MIDDLEWARES, settings.getdict(_MIDDLEWARES), "spider")
        for one, place in _PLACES.items():
            settings.setdefault_in_component_priority_dict(_MIDDLEWARES, one, place)

    async def start(self) -> AsyncIterator[Any]:
        """Begin with the pages that were given; each is fetched once in each run."""
        if not self.start_urls:
            raise ValueError(_NO_ROOTS)
        for url in self.start_urls:
            yield Request(url, meta={_ROOT: True})

    def parse(self, response: Response) -> Iterator[Any]:
        """Follow what a page refers to, and keep the page."""
        if response.status in _OK and self._is_read(response):
            yield from self._referred(response)
        yield UpdateMetadata(_record(response))
        yield AttachBlob(BLOB, response)

    def _is_read(self, response: Response) -> bool:
        """Tell whether references are taken: of HTML in the place of a picture, say, none are."""
        meta = response.meta
        if not isinstance(response, HtmlResponse) or not meta.get(_INLINE) or meta.get(_FRAME):
            return True
        self._count("pages_as_requisites")
        return False

    def _referred(self, response: Response) -> Iterator[Request]:
        """Yield the links of a page that are of the site, and what it needs from anywhere."""
        meta = response.meta
        inline, home = meta.get(_INLINE, 0), self._home(response)
        follows = self._is_followed(response, home) and not references.forbids_links(response)
        linked = {} if home is None else {_HOME: home}
        needed = {_INLINE: inline + 1, "depth_reset": True, "itemgraph_needed": True}
        seen = {Reference(kind, response.url) for kind in Kind}
        for one in references.of(response):
            if one in seen:
                continue
            seen.add(one)
            kind, url = one
            is_of_site = self._scope.has(url, home)
            if kind is Kind.LINK or (kind is Kind.FRAME and is_of_site):
                if follows and self._is_wanted(url):
                    if not inline:
                        outside = {} if is_of_site else {_OUTSIDE: True}
                        yield Request(url, meta=linked | outside)
                    elif is_of_site:
                        self._count("links_of_requisites")
            elif inline < _MOST_INLINE:
                mark = {_FRAME: True} if kind is Kind.FRAME else {}
                yield Request(url, meta=needed | mark, priority=_FIRST)

    def _is_followed(self, response: Response, home: str | None) -> bool:
        """Tell whether the links of a page are followed: it is of the site, or rules took it in."""
        if self._scope.has(response.url, home):
            return True
        if _OUTSIDE not in response.meta:
            return False
        begun = response.meta.get("redirect_urls", [response.url])[0]
        return scope.place_of(begun) == scope.place_of(response.url)

    def _is_wanted(self, url: str) -> bool:
        if self._skips_noise and scope.is_noise(url):
            self._count("noise")
            return False
        return True

    def _home(self, response: Response) -> str | None:
        """Return where the site moved to, if a root was redirected out of what was asked for."""
        if response.meta.get(_ROOT):
            return self._scope.home_of(response.url)
        home: str | None = response.meta.get(_HOME)
        return home

    def _count(self, what: str) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.inc_value(f"sites/{what}")


def _record(response: Response) -> dict[str, Any]:
    """Return what is known of an answer beside its content, as an archive needs it."""
    request, meta = response.request, response.meta
    assert request is not None
    urls, reasons = meta.get("redirect_urls", ()), meta.get("redirect_reasons", ())
    return {
        "status": response.status,
        "final_url": response.url,
        "redirects": [list(one) for one in zip(reasons, urls, strict=False)],
        "headers": _texts(response.headers.items()),
        "size": len(response.body),
        "ip_address": None if response.ip_address is None else str(response.ip_address),
        "protocol": response.protocol,
        "fetched_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request": {
            "method": request.method,
            "headers": _texts((k, v) for k, v in request.headers.items() if k not in _SECRET),
        },
    }


def _texts(headers: Any) -> list[list[str]]:
    return [
        [name.decode("latin-1"), value.decode("latin-1").replace("\0", "")]
        for name, values in headers
        for value in values
    ]
