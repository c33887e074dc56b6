"""The HTTP server of `scrapy itemgraph serve`."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

import uvicorn

from scrapy_itemgraph.web.connections import BACKLOG, Connection, Door
from scrapy_itemgraph.web.protection import HEAD_LIMIT

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from types import FrameType

    from fastapi import FastAPI


CLOSE_WITHIN = 3  # seconds that answers under way have after SIGTERM


def serve(
    app: FastAPI, listening: socket.socket, ready: Callable[[], None], door: Door | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; answers under way are finished.

    `ready` is called as soon as it answers, and ends well when it is told to. The door has the
    limits of connections.
    """
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",  # whose errors `Door.handle` knows
        backlog=BACKLOG,
        lifespan="off",
        h11_max_incomplete_event_size=HEAD_LIMIT,
        timeout_graceful_shutdown=CLOSE_WITHIN,
        log_config=None,
        access_log=False,
        server_header=False,
    )
    # What goes wrong in our answers, `problems` logs; all else is about what strangers send.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    _Server(config, door or Door(), app.state.stopping, ready).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Ends by returning: uvicorn's own ends by the signal, and then nothing is put away."""

    def __init__(
        self,
        config: uvicorn.Config,
        door: Door,
        stopping: asyncio.Event,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.server_state = self._door = door
        self._stopping = stopping
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        asyncio.get_running_loop().set_exception_handler(self._door.handle)
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler
        """End; at a second Ctrl-C without waiting for answers under way."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
        self._stopping.set()
