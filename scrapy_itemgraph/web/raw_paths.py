"""Paths as they were sent: an id may have slashes in it, as `%2F`.

Servers decode a path before it is routed, and then `/items/URL:https:%2F%2Fa%2Fb` has five parts.
So routes are matched on the path as it was sent, and `{id:segment}` decodes one part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class SegmentConvertor(Convertor[str]):
    """A part of a path between two slashes, percent-decoded."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the text that was percent-encoded."""
        return unquote(value)

    def to_string(self, value: str) -> str:
        """Percent-encode a text, its slashes too."""
        return quote(value, safe="")


def register() -> None:
    """Let routes have `{name:segment}`."""
    register_url_convertor("segment", SegmentConvertor())


class RawPaths:
    """Middleware: has requests routed by the path as it was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request."""
        if scope["type"] == "http":
            scope = {**scope, "path": sent_path(scope)}
        await self._app(scope, receive, send)


def sent_path(scope: Scope) -> str:
    """Return a request's path, percent-encoded below what it is mounted at."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        return quote(str(scope["path"]), safe="/:@")
    root = _root(scope)
    parts = raw.partition(b"?")[0].decode("latin-1").split("/")
    return root + "/" + "/".join(parts[root.count("/") + 1 :])


def path_below_root(scope: Scope) -> str:
    """Return the path by which a request is routed, without what the application is mounted at."""
    return sent_path(scope).removeprefix(_root(scope))


def _root(scope: Scope) -> str:
    root: str = scope.get("root_path", "")
    return root.rstrip("/")


def is_text(raw: bytes) -> bool:
    """Tell whether percent-encoded bytes are UTF-8 without NUL."""
    try:
        return "\0" not in unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
