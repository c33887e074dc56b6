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

# Moments that rows have by default are by the functions that stood there when the table was made.
DEFAULTS = r"""
    SELECT format('ALTER TABLE %%s ALTER %%I SET DEFAULT %%s', d.adrelid::regclass, a.attname,
        replace(pg_get_expr(d.adbin, d.adrelid), 'pg_catalog.', ''))
    FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    WHERE pg_get_expr(d.adbin, d.adrelid) ~ '^(pg_catalog\.)?(now|clock_timestamp)\(\)$'
"""
SLOW = """
    CREATE OR REPLACE FUNCTION public.{name}() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
        SELECT to_timestamp({since} + seconds
            + (extract(epoch FROM pg_catalog.{name}()) - {since}) / {times})
        FROM public.moved_clock
    $$
"""
MOMENT = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)"
_MARGIN = 0.001  # seconds after a whole one, against what is lost by rounding


def install(url: str) -> None:
    """Make a database's clock one that can be moved, for connections that are made from now on."""
    name = sa.make_url(url).database
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        for statement in OURS:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET search_path = public, pg_catalog')
    engine.dispose()


def slow(url: str, times: int) -> None:
    """Have such a clock go so many times slower than time does: a second is until it is moved."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        since = connection.scalar(sa.text("SELECT floor(extract(epoch FROM now()))"))
        for name in ("clock_timestamp", "now"):
            connection.exec_driver_sql(SLOW.format(name=name, since=since, times=times))
        for statement in connection.exec_driver_sql(DEFAULTS).scalars().all():
            connection.exec_driver_sql(statement)
    engine.dispose()


def move(url: str, seconds: float) -> None:
    """Move the clock by so many seconds; below zero it goes back."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE moved_clock SET seconds = seconds + :seconds"), {"seconds": seconds}
        )
    engine.dispose()


def to_second(engine: sa.Engine, seconds: int) -> int:
    """Move a slow clock to the beginning of a second, so many on; return which it is."""
    with engine.begin() as connection:
        moment: float = connection.exec_driver_sql(MOMENT).scalar_one()
        by = {"seconds": seconds - moment % 1 + _MARGIN}
        connection.execute(sa.text("UPDATE moved_clock SET seconds = seconds + :seconds"), by)
    return int(moment) + seconds


@contextmanager
def process(url: str) -> Iterator[sa.Engine]:
    """Yield an engine as a process of its own has it, with what it knows of the server's clock."""
    engine = engines.sync_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()
