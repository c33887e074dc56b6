"""Expressions in SQL that say what a function says as well."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrapy_itemgraph.model import due_times, moments, periods
from scrapy_itemgraph.store.sql_conditions import NEXT_DUE

pytestmark = pytest.mark.server

SHORTEST = timedelta(microseconds=1)
RESULT = sa.text(f"""
    SELECT {NEXT_DUE} FROM (SELECT CAST(:completed AS timestamptz) AS completed_at) AS r,
        (SELECT CAST(:ttl AS interval) AS ttl) AS t
""")

completions = st.datetimes(
    moments.EARLIEST.replace(tzinfo=None),
    moments.LATEST.replace(tzinfo=None),
    timezones=st.just(UTC),
)


@given(completed_at=completions, ttl=st.none() | st.timedeltas(SHORTEST, periods.LONGEST))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_result_falls_due_in_sql_when_it_does_in_python(connection, completed_at, ttl):
    """Statements about all results of a task agree with what a commit writes of each."""
    found = connection.execute(RESULT, {"completed": completed_at, "ttl": ttl}).scalar_one()

    assert found == due_times.next_due(completed_at, ttl)
