"""The lock of a process: the server frees it as soon as the process is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Shared, so that a process can lock beside a connection of its own that was cut and that the server
# has not given up yet; whoever looks for the dead asks for it alone. The connection is ours alone:
# what is set for its session concerns nobody else.
LOCK = """
    SELECT set_config('idle_session_timeout', '0', false),
        pg_advisory_lock_shared(CAST('processes'::regclass::oid AS int), %d)
"""

WAIT_BRIEFLY = "SELECT set_config('lock_timeout', '2s', true)"


def take(session: Connection, process_id: int) -> None:
    """Lock the number of a process until the session ends."""
    wait_briefly(session)
    session.exec_driver_sql(LOCK % process_id)


def wait_briefly(connection: Connection) -> None:
    """Wait two seconds at most for any lock in this transaction."""
    connection.exec_driver_sql(WAIT_BRIEFLY)
