"""Cookies: of one server each, though a browser sends them to every port of a host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.responses import Response

# A browser takes such a cookie by https alone, for the whole host, and from no other host.
_SECURE = "__Host-"
_PORT = re.compile(r":([0-9]{1,5})$")


def values(request: Request, kind: str) -> list[str]:
    """Return what is in our cookies of a kind, the securest first.

    By https only those count that were set by https.
    """
    return [request.cookies[name] for name in _names(request, kind) if name in request.cookies]


def give(request: Request, answer: Response, kind: str, value: str, seconds: int) -> None:
    """Set a cookie, which no script reads and no other site's page has sent."""
    secure = is_secure(request)
    answer.set_cookie(
        _name(request, kind, secure=secure),
        value,
        max_age=seconds,
        path=_path(request, secure=secure),
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def take_back(request: Request, answer: Response, kind: str) -> None:
    """Have the browser forget our cookies of a kind, if it has any."""
    for name in _names(request, kind):
        if name in request.cookies:
            secure = name.startswith(_SECURE)
            path = _path(request, secure=secure)
            answer.delete_cookie(name, path=path, secure=secure, httponly=True, samesite="strict")


def is_secure(request: Request) -> bool:
    """Tell whether the browser asked by https.

    We know it where we are mounted in a server that speaks TLS, where a proxy says so, and where
    the page from which a form was sent has such an address. Whoever says so wrongly loses the
    cookie, and nothing else.
    """
    headers = request.headers
    if request.scope["scheme"] == "https":
        return True
    if headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https":
        return True
    origin = urlsplit(headers.get("origin", ""))
    return origin.scheme == "https" and origin.netloc.lower() == headers.get("host", "").lower()


def _names(request: Request, kind: str) -> list[str]:
    kinds = [True] if is_secure(request) else [True, False]
    return [_name(request, kind, secure=secure) for secure in kinds]


def _name(request: Request, kind: str, *, secure: bool) -> str:
    """Return the name of a cookie: with the port, and with where we are mounted."""
    port = _PORT.search(request.headers.get("host", ""))
    parts = re.findall("[A-Za-z0-9]+", (port[1] if port else "") + " " + _root(request))
    return (_SECURE if secure else "") + "_".join(["itemgraph", kind, *parts])


def _path(request: Request, *, secure: bool) -> str:
    return "/" if secure else _root(request) or "/"


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")
