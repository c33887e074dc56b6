"""Calls with one request and one answer, and how errors of any call are told."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc

from scrapy_itemgraph.exceptions import (
    DatabaseUnavailableError,
    InvalidDataError,
    InvalidIdError,
    NotFoundError,
)
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.wording import one_line
from scrapy_itemgraph.urlfrontier import v2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy_itemgraph.graph.frontier_graph import FrontierGraph

logger = logs.logger(__name__)

OURS = "scrapy_itemgraph"
THEIRS = "crawlercommons"

_CODES = (
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (InvalidDataError, grpc.StatusCode.INVALID_ARGUMENT),
    (InvalidIdError, grpc.StatusCode.INVALID_ARGUMENT),
    (DatabaseUnavailableError, grpc.StatusCode.UNAVAILABLE),
)


class Calls:
    """The calls of a server that have one answer, by their names."""

    def __init__(self, graph: FrontierGraph) -> None:
        self._graph = graph

    async def set_log_level(self, asked: Any) -> Any:
        """SetLogLevel: of this process; a name of upstream's packages means ours."""
        level = v2.log_level(asked)
        name = asked.package
        if not name or name.startswith(THEIRS):
            name = OURS
        if level is not None and name in {OURS, *logging.root.manager.loggerDict}:
            logging.getLogger(name).setLevel(level)
        return v2.nothing()


def unary(call: Callable[[Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a call as gRPC has it, whose errors have codes of gRPC."""

    async def answer(asked: Any, context: Any) -> Any:
        await check(asked, context)
        try:
            return await call(asked)
        except Exception as error:  # noqa: BLE001 - each is told
            await fail(error, context)

    return answer


def outgoing(call: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any, Any], Awaitable[None]]:
    """Return a call that sends a stream, whose errors have codes of gRPC."""

    async def answer(asked: Any, context: Any) -> None:
        await check(asked, context)
        try:
            await call(asked, context)
        except Exception as error:  # noqa: BLE001 - each is told
            await fail(error, context)

    return answer


async def check(asked: Any, context: Any) -> None:
    """Refuse a request that says what cannot be stored."""
    if any("\0" in one for one in v2.texts(asked)):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a text has a NUL character")


async def fail(error: Exception, context: Any) -> None:
    """Tell a client what is wrong."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    for kind, code in _CODES:
        if isinstance(error, kind):
            await context.abort(code, one_line(error))
    logger.error("A call failed", exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, "the server failed; its log says why")
