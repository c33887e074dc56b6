"""What protects every request and answer, whatever asks: names, sites, headers."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from scrapy_itemgraph.access.no_tokens import is_loopback
from scrapy_itemgraph.web import problems
from scrapy_itemgraph.web.problems import Problem
from scrapy_itemgraph.web.raw_paths import is_text, path_below_root

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Bytes of a request's line and headers: an id may have 8 kB, percent-encoded three times that.
HEAD_LIMIT = 64 * 1024
ANY = "*"
SAFE = {"GET", "HEAD", "OPTIONS"}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# On every answer that does not say otherwise.
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READS = {"GET", "HEAD"}
_HEALTH = "/healthz"


class Headed:
    """Middleware: puts the headers on every answer, also on those to errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "etag" in headers:  # what does not change is asked for again, not sent again
                    headers.setdefault("Cache-Control", "no-cache")
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, headed)


class Protection:
    """Middleware: refuses what no honest program and no browser of ours sends.

    Hosts are the names by which the server may be called; without that a website could have its
    name lead here, and read what it likes. `any_address` lets numbers pass, which nobody can do
    that with.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str] = (),
        *,
        any_address: bool = False,
    ) -> None:
        self._app = app
        self._hosts = {host.lower().rstrip(".") for host in hosts}
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except Problem as problem:
            answer = problems.answer(problem)
            if scope["method"] not in SAFE:
                answer = problems.before_body(answer, scope)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        fields = sum(len(name) + len(value) for name, value in scope["headers"])
        if fields + len(scope.get("raw_path") or b"") + len(scope["query_string"]) > HEAD_LIMIT:
            raise Problem(431, f"the line and headers have more than {HEAD_LIMIT:,} bytes")
        if not is_text(scope.get("raw_path") or b"") or not is_text(scope["query_string"]):
            raise Problem(400, "the address has percent-encoded bytes that are no UTF-8, or a NUL")
        host = headers.get("host", "")
        if not _asks_for_health(scope) and not self._is_ours(host):
            raise Problem(
                421, f"this server is not called {host!r:.200}; --allow-host lets it be called so"
            )
        if scope["method"] not in SAFE and not _is_same_site(headers, host):
            raise Problem(
                403, "a page of another site may change nothing here, and neither may its scripts"
            )

    def _is_ours(self, host: str) -> bool:
        name = _hostname(host)
        if not name:
            return False
        if name in self._hosts or ANY in self._hosts or is_loopback(name):
            return True
        return self._any_address and _is_address(name)


def _asks_for_health(scope: Scope) -> bool:
    """Tell whether a request only asks for health, which anybody may, by any name.

    The whole path as it was sent is compared, which is the one that is routed: an item's id may end
    in `/healthz`, and decoded paths are equal that lead to different routes.
    """
    return scope["method"] in _READS and path_below_root(scope) == _HEALTH


def _hostname(host: str) -> str:
    """Return the name in a Host header; none where it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same_site(headers: Headers, host: str) -> bool:
    """Tell whether a request is not one that another website had a browser send."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()
