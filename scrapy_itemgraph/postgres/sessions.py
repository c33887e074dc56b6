"""Whether a connection is a session of the server, or a pooler lends one for each transaction.

A pooler in transaction mode, such as PgBouncer, gives each transaction any of its connections to
the server. There nothing may be kept from one to the next: no lock, no LISTEN, no setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

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
