"""Sessions that last: whether there is one, how it is connected, and that no fork inherits it.

A pooler in transaction mode, such as PgBouncer, gives each transaction any of its connections to
the server. There nothing may be kept from one to the next: no lock, no LISTEN, no setting.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection, Engine

# How one that holds locks is connected: a silent network is noticed after about ten seconds.
LASTING = {
    "application_name": "scrapy-itemgraph",
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "11000",
}

# Those that hold locks: a forked child must not keep them alive.
not_inherited: weakref.WeakSet[psycopg.Connection[Any] | psycopg.AsyncConnection[Any]]
not_inherited = weakref.WeakSet()

# So often two connections ask in turn whether one had a process that was the other's before, when
# a pooler that is busy lends them at random.
_ROUNDS = 5


def is_session(engine: Engine, connection: Connection) -> bool:
    """Tell whether a connection keeps its process of the server; `engine` makes another one.

    A pooler tells its clients another number than the process has. Whether it lends processes out
    shows when another connection gets the one that was this one's.
    """
    process = _process(connection)
    driver = connection.connection.driver_connection
    assert driver is not None
    if process == driver.info.backend_pid:
        return True
    other = engine.connect()
    other.detach()  # closed at the end, and not kept
    with other:
        return not any(
            _process(other) == process or _process(connection) != process for _ in range(_ROUNDS)
        )


def _process(connection: Connection) -> int:
    """Return the number of the server's process that does a transaction of this connection."""
    with connection.begin():
        return int(connection.info[engines.PROCESS])


def _abandon_all() -> None:
    """Point the sockets elsewhere, in a forked child."""
    for connection in list(not_inherited):
        if not connection.closed:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, connection.fileno())
            os.close(nowhere)


os.register_at_fork(after_in_child=_abandon_all)
