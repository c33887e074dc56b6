"""Bodies: read whole before anybody acts on them, and only from whoever may send one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from scrapy_itemgraph.web import problems
from scrapy_itemgraph.web.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_LIMIT = 16 * 1024 * 1024  # bytes
BODY_WITHIN = 60.0  # seconds in which a body has to be here
SAFE = {"GET", "HEAD", "OPTIONS"}


class Receiving:
    """Middleware: receives the body of a request that may change something, and passes it on whole.

    A body that is cut off is refused: what came of it may well be a request that nobody meant.
    """

    def __init__(self, app: ASGIApp, body_limit: int = BODY_LIMIT) -> None:
        self._app = app
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive a body, and pass it on."""
        if scope["type"] != "http" or scope["method"] in SAFE:
            await self._app(scope, receive, send)
            return
        try:
            whole = [await self._received(Headers(scope=scope), receive)]
        except Problem as problem:
            await problems.answer(problem)(scope, receive, send)
            return

        async def hand_out() -> Message:
            if not whole:
                return await receive()
            return {"type": "http.request", "body": whole.pop(), "more_body": False}

        await self._app(scope, hand_out, send)

    async def _received(self, headers: Headers, receive: Receive) -> bytes:
        """Return the whole body.

        Raises:
            Problem: it is too large, too slow, or not all of it came.

        """
        declared = _declared(headers)
        if declared is not None and declared > self._body_limit:
            raise self._too_large()
        body = bytearray()
        has_ended = False
        try:
            async with asyncio.timeout(BODY_WITHIN):
                while not has_ended and (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > self._body_limit:
                        raise self._too_large()
                    has_ended = not message.get("more_body", False)
        except TimeoutError:
            raise Problem(408, f"the body was not here in {BODY_WITHIN:.0f} seconds") from None
        if not has_ended or declared not in {None, len(body)}:
            raise Problem(400, "the body was cut off, and nothing was done; send all of it")
        return bytes(body)

    def _too_large(self) -> Problem:
        return Problem(413, f"the body has more than {self._body_limit:,} bytes; send it in parts")


def _declared(headers: Headers) -> int | None:
    """Return the length that a request says its body has; None: it says none."""
    declared = headers.get("content-length")
    if declared is None:
        return None
    if "transfer-encoding" in headers:
        raise Problem(400, "a body has a Content-Length or comes in chunks, and not both")
    if not (declared.isascii() and declared.isdecimal()):
        raise Problem(400, f"{declared!r:.30} is no Content-Length")
    return int(declared)
