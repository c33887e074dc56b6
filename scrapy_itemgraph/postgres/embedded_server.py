"""The embedded PostgreSQL: started when needed, stopped by the last process that uses it.

`holders.lock` in the cluster's directory is shared by every process that uses the server; whoever
gets it alone may stop the server. As long as one has its hold, `embedded_restart` starts a server
that dies again.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from scrapy_itemgraph.postgres import file_turns
from scrapy_itemgraph.postgres.cluster import Cluster
from scrapy_itemgraph.postgres.embedded_restart import ServerRestarts
from scrapy_itemgraph.tools import locks, logs

if TYPE_CHECKING:
    from pathlib import Path

logger = logs.logger(__name__)


class EmbeddedServer:
    """This process's hold on the PostgreSQL server of a data directory.

    `alone_since` is set when nobody else had one at the start: whoever worked before is dead.
    """

    def __init__(self, cluster: Cluster, hold: int) -> None:
        self.cluster = cluster
        self._hold: int | None = hold
        self.url = ""  # where the database is, over a Unix socket
        self.alone_since: datetime | None = None
        self._restarts = ServerRestarts(cluster)
        _servers.add(self)
        atexit.register(self.close)

    @classmethod
    def start(
        cls, data_dir: Path, postgres_bin: Path | None = None, *, patience: float = 0.0
    ) -> Self:
        """Join the server of this directory, starting or even creating it when need be.

        `postgres_bin` is the folder of PostgreSQL's programs; by default they are looked for.
        One that is killed as it starts is started again, for `patience` seconds.
        """
        cluster = Cluster.at(data_dir, postgres_bin)
        # Held before we look whether the server runs, so that nobody stops it under us.
        path = cluster.directory / "holders.lock"
        hold = locks.opened(path)
        server = cls(cluster, hold)
        try:
            file_turns.wait(path, hold, fcntl.LOCK_SH)
            with suppress(BlockingIOError):
                fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
                server.alone_since = datetime.now(UTC)
            file_turns.wait(path, hold, fcntl.LOCK_SH)
            postmaster, _ = cluster.ensure_running(patience=patience)
            server.url = postmaster.url
            server._restarts.begin()
        except BaseException:
            server.close()
            raise
        return server

    def close(self) -> None:
        """Give up our hold; the last to do so stops the server."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        atexit.unregister(self.close)
        try:
            self._restarts.end()  # it may be starting what we are about to stop
            # This drops our shared lock even if it fails, so of several leaving at once the last
            # succeeds. Who starts meanwhile waits for the shared lock until we have stopped.
            fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.cluster.stop()
        except BlockingIOError:
            logger.debug("PostgreSQL is left running for others", extra={"action": "embedded_left"})
        except FileNotFoundError:  # the directory is gone; PostgreSQL notices within a minute
            logger.warning(
                "%s was removed, and its PostgreSQL ends by itself",
                self.cluster.directory,
                extra={"action": "embedded_removed"},
            )
        finally:
            locks.release(hold)

    def forget(self) -> None:
        """Have no hold any more, in a forked child; the parent's stands."""
        self._hold = None


_servers: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def serving(socket_directory: str) -> EmbeddedServer | None:
    """Return the embedded server of this process whose socket is in a directory."""
    where = quote(socket_directory)
    return next((one for one in list(_servers) if f"host={where}&" in one.url), None)


def _forget_all() -> None:
    for server in list(_servers):
        server.forget()


os.register_at_fork(after_in_child=_forget_all)
