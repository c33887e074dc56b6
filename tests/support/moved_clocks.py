"""A server whose clock a test can move: in one database its functions are ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa

from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = (
    "CREATE TABLE moved_clock (seconds float8 NOT NULL)",
    "INSERT INTO moved_clock VALUES (0)",
    *(
        f"""
        CREATE FUNCTION public.{name}() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
            SELECT pg_catalog.{name}() + make_interval(secs => seconds) FROM public.moved_clock
        $$
        """
        for name in ("clock_timestamp", "now")
    ),
)


def install(url: str) -> None:
    """Make a database's clock one that can be moved, for connections that are made from now on."""
    name = sa.make_url(url).database
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        for statement in OURS:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET search_path = public, pg_catalog')
    engine.dispose()


def move(url: str, seconds: float) -> None:
    """Move the clock by so many seconds; below zero it goes back."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE moved_clock SET seconds = seconds + :seconds"), {"seconds": seconds}
        )
    engine.dispose()


@contextmanager
def process(url: str) -> Iterator[sa.Engine]:
    """Yield an engine as a process of its own has it, with what it knows of the server's clock."""
    engine = engines.sync_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()
