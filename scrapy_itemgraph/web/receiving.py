"""Bodies: asked for from whoever may send one, and read whole before anybody acts on them."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.web import problems
from scrapy_itemgraph.web.access import Access, steerer
from scrapy_itemgraph.web.pages import routes
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem
from scrapy_itemgraph.web.protection import SAFE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MB = 1024 * 1024
BODY_LIMIT = 16 * MB
BODY_WITHIN = 60.0  # seconds in which a body has to be here
TOGETHER = 128 * MB  # of all bodies that are received or worked on

# What needs no token, and so has no large bodies and no slow ones.
OPEN = {"/login", "/logout"}
OPEN_LIMIT = 64 * 1024  # bytes
OPEN_WITHIN = 10.0  # seconds


class Receiving:
    """Middleware: receives the body of a request that may change something, and passes it on whole.

    Whoever may change nothing is refused before the body is read. A body that is cut off is refused
    too: what came of it may well be a request that nobody meant.
    """

    def __init__(self, app: ASGIApp, body_limit: int = BODY_LIMIT) -> None:
        self._app = app
        self._body_limit = body_limit
        self._memory = _Memory(max(TOGETHER, body_limit))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive a body, and pass it on."""
        if scope["type"] != "http" or scope["method"] in SAFE:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        with self._memory.share() as take:
            try:
                limit, within = await self._allowed(request)
                whole = [await _received(request, limit, within, take)]
            except Problem as problem:
                answer = problems.before_body(routes.refused(request, problem), scope)
                await answer(scope, receive, send)
                return

            async def hand_out() -> Message:
                if not whole:
                    return await receive()
                return {"type": "http.request", "body": whole.pop(), "more_body": False}

            await self._app(scope, hand_out, send)

    async def _allowed(self, request: Request) -> tuple[int, float]:
        """Return how many bytes the body may have, and the seconds in which it has to be here.

        Raises:
            Problem: the request is of somebody who may change nothing.

        """
        root = request.scope.get("root_path", "").rstrip("/")
        if request.scope["path"].removeprefix(root) in OPEN:
            return OPEN_LIMIT, OPEN_WITHIN
        access: Access = request.app.state.access
        try:
            steerer(await run_in_threadpool(access.visitor, request))
        except ItemGraphError as error:
            raise problems.of_error(error) from None
        return self._body_limit, BODY_WITHIN


class _Memory:
    """What all bodies take together that are received or worked on."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts bytes of one body, until the block ends."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self._taken + size > self._limit:
                said = f"bodies that are worked on have {self._limit // MB} MB together already"
                raise Problem(503, f"{said}; send this one later", RETRY_AFTER)
            mine += size
            self._taken += size

        try:
            yield take
        finally:
            self._taken -= mine


async def _received(
    request: Request, limit: int, within: float, take: Callable[[int], None]
) -> bytes:
    """Return the whole body, each part of which was taken.

    Raises:
        Problem: it is too large, too slow, or not all of it came.

    """
    declared = _declared(request)
    too_large = Problem(413, f"the body has more than {limit:,} bytes; send it in parts")
    if declared is not None and declared > limit:
        raise too_large
    body = bytearray()
    has_ended = False
    try:
        async with asyncio.timeout(within):
            while not has_ended and (message := await request.receive())["type"] == "http.request":
                part = message.get("body", b"")
                if len(body) + len(part) > limit:
                    raise too_large
                take(len(part))
                body += part
                has_ended = not message.get("more_body", False)
    except TimeoutError:
        raise Problem(408, f"the body was not here in {within:.0f} seconds") from None
    if not has_ended or declared not in {None, len(body)}:
        raise Problem(400, "the body was cut off, and nothing was done; send all of it")
    return bytes(body)


def _declared(request: Request) -> int | None:
    """Return the length that a request says its body has; None: it says none."""
    declared = request.headers.get("content-length")
    if declared is None:
        return None
    if "transfer-encoding" in request.headers:
        raise Problem(400, "a body has a Content-Length or comes in chunks, and not both")
    if not (declared.isascii() and declared.isdecimal()):
        raise Problem(400, f"{declared!r:.30} is no Content-Length")
    return int(declared)
