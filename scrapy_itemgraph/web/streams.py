"""Streams of events: what moves, told to browsers that stay."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import StreamingResponse

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.web.documents import written
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from scrapy_itemgraph.access.visitors import Visitor
    from scrapy_itemgraph.web.access import Access

MEDIA_TYPE = "text/event-stream"
EVERY = 2.0  # seconds between two looks at least
SHARE = 0.02  # of the time is spent looking at most, for each key
SIGN_OF_LIFE = 15.0  # seconds without news after which a comment is sent
MOST = 200  # streams at a time,
MOST_OF_TOKEN = MOST // 4  # and those of one token


class Streams:
    """Keeps streams: all that ask for the same share one look at the database."""

    def __init__(self) -> None:
        self._open: Counter[str | None] = Counter()  # by the names of tokens
        self._looks: dict[Hashable, _Look] = {}

    def answer(
        self,
        request: Request,
        visitor: Visitor,
        key: Hashable,
        read: Callable[[], Any],
        *,
        event: str = "message",
        since: datetime | None = None,
    ) -> StreamingResponse:
        """Return a stream of what `read` returns, sent at first and whenever it is another.

        `read` runs in a thread; those with the same key share what one of them reads. What was read
        before `since` is not sent: who asks knows better, and it is read anew. While the database
        is away the stream says `event: problem`, and goes on when it is back.

        Raises:
            Problem: there are too many streams, in all or of this visitor's token.

        """
        if self._open.total() >= MOST:
            raise Problem(503, f"there are {MOST} streams already", RETRY_AFTER)
        name = visitor.name
        if name is not None and self._open[name] >= MOST_OF_TOKEN:
            said = f"the token {name!r} has {MOST_OF_TOKEN} streams already; close one"
            raise Problem(503, said, RETRY_AFTER)
        if since is not None:
            since = min(since, datetime.now(UTC))
        told = partial(self._told, key, read, event, since)
        return _Stream(self._events(request, told), name, self._open)

    async def _told(
        self, key: Hashable, read: Callable[[], Any], event: str, since: datetime | None
    ) -> bytes:
        """Return a message with what was read last, and not before a moment."""
        began_at, found = await self._look(key, read, since)
        if since is not None and began_at < since:  # it was under way already
            _, found = await self._look(key, read, since)
        return _message(event, found)

    async def _events(
        self, request: Request, told: Callable[[], Awaitable[bytes]]
    ) -> AsyncIterator[bytes]:
        access: Access = request.app.state.access
        last, sent_at = b"", time.monotonic()
        while True:
            try:
                await run_in_threadpool(access.visitor, request)
                said = await told()
            except Problem:
                return
            except ItemGraphError as error:
                said = _message("problem", written({"detail": str(error)}))
            if said != last:
                last, sent_at = said, time.monotonic()
                yield said
            elif time.monotonic() - sent_at >= SIGN_OF_LIFE:
                sent_at = time.monotonic()
                yield b": still here\n\n"
            await asyncio.sleep(EVERY)

    async def _look(
        self, key: Hashable, read: Callable[[], Any], since: datetime | None
    ) -> tuple[datetime, bytes]:
        """Return when was read last, and what; it is read anew where that is too long ago.

        What takes long is read the less often, and never by two at once.
        """
        now = time.monotonic()
        look = self._looks.get(key)
        if look is None or now >= look.due or look.is_over_before(since):
            kept = 10 * EVERY
            self._looks = {k: one for k, one in self._looks.items() if now < one.due + kept}
            look = self._looks[key] = _Look()
            look.task = asyncio.create_task(look.read(read))
        assert look.task is not None
        return look.began_at, await asyncio.shield(look.task)


class _Stream(StreamingResponse):
    """A stream that counts from when it is promised until it ends, however it does."""

    def __init__(
        self, events: AsyncIterator[bytes], name: str | None, counted: Counter[str | None]
    ) -> None:
        super().__init__(events, media_type=MEDIA_TYPE)
        self._name = name
        self._counted = counted
        counted[name] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._counted[self._name] -= 1
            if not self._counted[self._name]:
                del self._counted[self._name]


class _Look:
    """A look at the database, and when the next one is due: not before this one has ended."""

    def __init__(self) -> None:
        self.began_at = datetime.now(UTC)
        self.due = math.inf
        self.task: asyncio.Task[bytes] | None = None

    def is_over_before(self, moment: datetime | None) -> bool:
        """Tell whether it began before a moment, and has ended."""
        is_before = moment is not None and self.began_at < moment
        return is_before and self.task is not None and self.task.done()

    async def read(self, read: Callable[[], Any]) -> bytes:
        """Read in a thread."""
        began = time.monotonic()
        try:
            return written(await run_in_threadpool(read))
        finally:
            ended = time.monotonic()
            self.due = began + max(EVERY, (ended - began) / SHARE)


def _message(event: str, data: bytes) -> bytes:
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"


class Ending:
    """Middleware: has streams of events end when the server does, as if their readers had gone."""

    def __init__(self, app: ASGIApp, stopping: asyncio.Event) -> None:
        self._app = app
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_stream = False

        async def sent(message: Message) -> None:
            nonlocal is_stream
            if message["type"] == "http.response.start":
                declared = Headers(raw=message["headers"]).get("content-type", "")
                is_stream = declared.startswith(MEDIA_TYPE)
            await send(message)

        async def received() -> Message:
            hearing = asyncio.ensure_future(receive())
            ending = asyncio.ensure_future(self._stopping.wait())
            try:
                await asyncio.wait([hearing, ending], return_when=asyncio.FIRST_COMPLETED)
                if is_stream and not hearing.done():
                    return {"type": "http.disconnect"}
                return await hearing
            finally:
                hearing.cancel()
                ending.cancel()

        is_read = scope["type"] == "http" and scope["method"] == "GET"
        await self._app(scope, received if is_read else receive, sent if is_read else send)
