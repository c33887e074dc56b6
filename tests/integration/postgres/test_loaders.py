"""What PostgreSQL can hold and Python cannot say is read as the nearest value."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.loaders import EARLIEST, LATEST
from scrapy_itemgraph.postgres.pipelining import transaction

MOMENTS = {
    "infinity": LATEST,
    "-infinity": EARLIEST,
    "294276-12-31 23:59:59+00": LATEST,
    "10000-01-01 00:00:00+00": LATEST,
    "9999-12-31 23:59:59+00": LATEST,
    "4713-01-01 00:00:00+00 BC": EARLIEST,
    "0001-01-01 00:00:00+14": EARLIEST,
    "0001-01-01 00:00:00+00": EARLIEST,
    "2026-11-25 02:00:00+02": datetime(2026, 11, 25, tzinfo=UTC),
}
PERIODS = {
    "178000000 years": timedelta.max,
    "-178000000 years": timedelta.min,
    "3 days 00:00:01": timedelta(days=3, seconds=1),
}


def read(connection, kind, texts):
    """Return what a connection reads of these texts."""
    statement = sa.text(f"SELECT CAST(x AS {kind}) FROM unnest(CAST(:texts AS text[])) AS t(x)")
    return dict(
        zip(texts, connection.execute(statement, {"texts": list(texts)}).scalars(), strict=True)
    )


@pytest.mark.parametrize(("kind", "known"), [("timestamptz", MOMENTS), ("interval", PERIODS)])
def test_what_python_cannot_say_is_read_as_the_nearest_value(database, kind, known):
    """Engines of commands, engines of crawls and pipelines clamp moments and periods alike."""

    async def awaited():
        engine = engines.async_engine(database)
        async with engine.begin() as connection:
            found = await connection.run_sync(read, kind, known)
        async with transaction(engine) as connection:
            found_in_pipeline = await connection.run_sync(read, kind, known)
        await engine.dispose()
        return found, found_in_pipeline

    engine = engines.sync_engine(database)
    with engine.begin() as connection:
        assert read(connection, kind, known) == known
    engine.dispose()
    assert asyncio.run(awaited()) == (known, known)


def test_moments_at_the_bounds_can_be_shown_in_any_time_zone():
    """A clamped moment survives each conversion between time zones."""
    for moment in (EARLIEST, LATEST):
        for hours in (-14, 14):
            zone = datetime.now(UTC).astimezone().tzinfo if not hours else None
            assert moment.astimezone(zone)
            assert moment + timedelta(hours=hours)
