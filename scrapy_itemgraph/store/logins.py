"""Who of a crawl's workers logs in just now, and how often somebody has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

MAKE_LOGIN = text("""
    INSERT INTO logins (crawl_id, generation) VALUES (:crawl, :generation)
    ON CONFLICT (crawl_id) DO NOTHING
""")

LOCK_LOGIN = text("SELECT generation FROM logins WHERE crawl_id = :crawl FOR NO KEY UPDATE")

# After the lock and in a statement of its own: it must see who else came and who died meanwhile.
BEGIN_LOGIN = text(f"""
    UPDATE logins l SET worker_id = :worker
    WHERE l.crawl_id = :crawl AND (l.worker_id IS NULL OR l.worker_id = :worker OR NOT EXISTS (
        SELECT FROM processes p WHERE p.id = l.worker_id AND NOT {IS_DEAD}))
""")  # noqa: S608 - our own condition

END_LOGIN = text("""
    UPDATE logins
    SET worker_id = NULL,
        generation = least(generation, 1000000000) + CAST(:renewed AS int),
        renewed_at = CASE WHEN :renewed THEN clock_timestamp() ELSE renewed_at END
    WHERE crawl_id = :crawl AND worker_id = :worker
""")

FREE_LOGIN = text(
    "UPDATE logins SET worker_id = NULL WHERE worker_id = ANY (CAST(:workers AS int[]))"
)

LOGIN = text("SELECT generation, worker_id FROM logins WHERE crawl_id = :crawl")


class Turn(NamedTuple):
    """Whether it is a worker's turn to log in, and the current generation."""

    is_mine: bool
    generation: int


class LoginState(NamedTuple):
    """The current generation of a crawl's login, and the worker that logs in just now."""

    generation: int
    worker_id: int | None


def begin(connection: Connection, crawl_id: int, worker_id: int, generation: int) -> Turn:
    """Become the one that logs in, if this is the current generation and nobody alive does it."""
    connection.execute(MAKE_LOGIN, {"crawl": crawl_id, "generation": generation})
    current: int = connection.execute(LOCK_LOGIN, {"crawl": crawl_id}).scalar_one()
    if current != generation:
        return Turn(is_mine=False, generation=current)
    taken = connection.execute(BEGIN_LOGIN, {"crawl": crawl_id, "worker": worker_id}).rowcount
    return Turn(is_mine=taken > 0, generation=current)


def end(connection: Connection, crawl_id: int, worker_id: int, *, renewed: bool) -> int:
    """Let others log in again, and return the current generation: a new one when renewed.

    A worker that was given up for dead meanwhile changes nothing.
    """
    given = {"crawl": crawl_id, "worker": worker_id, "renewed": renewed}
    connection.execute(END_LOGIN, given)
    return state(connection, crawl_id).generation


def free(connection: Connection, worker_ids: Collection[int]) -> None:
    """Take the login from workers that died or stopped."""
    if worker_ids:
        connection.execute(FREE_LOGIN, {"workers": list(worker_ids)})


def state(connection: Connection, crawl_id: int) -> LoginState:
    """Return how a crawl's login stands; generation 0: nobody has logged in again yet."""
    row = connection.execute(LOGIN, {"crawl": crawl_id}).first()
    return LoginState(row.generation, row.worker_id) if row else LoginState(0, None)
