"""Restarts of the embedded PostgreSQL: a thread starts the server again whenever it has died."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy_itemgraph.postgres.cluster import Cluster

logger = logs.logger(__name__)

LOOK_EVERY = 0.5  # seconds, for whether the server lives
TRY_AGAIN_AFTER = 5  # where it did not start
SAY_AGAIN_AFTER = 600  # where it still does not


class ServerRestarts:
    """Looks between `begin` and `end` whether the server of a cluster lives, or starts it again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_closing = threading.Event()
        self._watcher = threading.Thread(
            target=self._watch, name="itemgraph-postgresql", daemon=True
        )

    def begin(self) -> None:
        """Start the thread."""
        self._watcher.start()

    def end(self) -> None:
        """End the thread, and wait for a restart that is under way."""
        self._is_closing.set()
        if self._watcher.is_alive():
            self._watcher.join()

    def _watch(self) -> None:
        """Start the server again whenever it has died, until `end`."""
        pause, quiet_until = LOOK_EVERY, 0.0
        while not self._is_closing.wait(pause):
            pause = LOOK_EVERY
            is_quiet = time.monotonic() < quiet_until
            try:
                if not self._cluster.is_dead:
                    continue
                self._recover(quietly=is_quiet)
                quiet_until = 0.0
            except BlockingIOError:
                continue  # another process is starting it
            except (exceptions.EmbeddedServerError, OSError) as error:
                pause = TRY_AGAIN_AFTER
                if not is_quiet:
                    quiet_until = time.monotonic() + SAY_AGAIN_AFTER
                    logger.error(  # noqa: TRY400 - the message says it all
                        "The embedded PostgreSQL is tried again every %d s: %s",
                        TRY_AGAIN_AFTER,
                        error,
                        extra={"action": "embedded_failed"},
                    )

    def _recover(self, *, quietly: bool) -> None:
        began = time.monotonic()
        _, is_ours = self._cluster.ensure_running(again=True, quietly=quietly)
        if is_ours:
            logger.info(
                "The embedded PostgreSQL in %s answers again; recovery took %.1f s",
                self._cluster.directory,
                time.monotonic() - began,
                extra={"action": "embedded_recovered"},
            )
