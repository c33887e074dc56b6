"""How often failures happened that are alike, in all and by run, as workers tell.

As tallies are, these rows are shared, and written last in a transaction.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store.tallies import LARGEST, an_object

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

MOST_RUNS = 10  # the newest runs that are kept of a group

# Who numbers groups of a crawl is alone; the next statement sees what was numbered before.
LOCK = text("SELECT pg_advisory_xact_lock(CAST('failure_groups'::regclass::oid AS int), :crawl)")

# A new group was first seen when the oldest of its open failures was, if one is still open.
ADD = text(f"""
    INSERT INTO failure_groups AS g
        (crawl_id, fingerprint, number, first_seen, last_seen, times, runs)
    SELECT :crawl, told.fingerprint,
        coalesce(known.number, last.number + row_number() OVER (
            PARTITION BY known.number IS NULL ORDER BY told.place)),
        coalesce(known.first_seen, (
            SELECT f.occurred_at FROM failures f
            WHERE f.handled_at IS NULL
                AND (f.fingerprint, f.id) >= (told.fingerprint, 0)
                AND f.fingerprint <= told.fingerprint
            ORDER BY f.fingerprint, f.id LIMIT 1), clock_timestamp()),
        clock_timestamp(), told.times, json_build_object(CAST(:run AS text), told.times)
    FROM unnest(CAST(:fingerprints AS uuid[]), CAST(:times AS bigint[])) WITH ORDINALITY
            AS told(fingerprint, times, place)
        CROSS JOIN (
            SELECT coalesce(max(n.number), 0) AS number FROM failure_groups n
            WHERE n.crawl_id = :crawl) AS last
        LEFT JOIN failure_groups known
            ON known.crawl_id = :crawl AND known.fingerprint = told.fingerprint
    ON CONFLICT (crawl_id, fingerprint) DO UPDATE SET
        last_seen = excluded.last_seen,
        times = least(g.times, {LARGEST}) + excluded.times,
        runs = (
            SELECT json_object_agg(run, times ORDER BY run) FROM (
                SELECT CAST(key AS bigint) AS run,
                    least(sum(CAST(value AS numeric)), {LARGEST}) AS times
                FROM (SELECT * FROM json_each_text({an_object("g.runs")})
                    UNION ALL SELECT * FROM json_each_text(excluded.runs)) AS one
                WHERE key ~ '^[0-9]{{1,10}}$' AND value ~ '^[0-9]{{1,19}}$'
                GROUP BY 1 ORDER BY 1 DESC LIMIT {MOST_RUNS}) AS newest)
""")  # noqa: S608 - our own numbers

KNOWN = text("""
    SELECT fingerprint, number, first_seen, times, runs FROM failure_groups
    WHERE crawl_id = :crawl AND fingerprint = ANY (CAST(:fingerprints AS uuid[]))
""")


class TimesInRun(NamedTuple):
    """How many failures of a group a run had, by the run's number."""

    run: int
    times: int


class KnownGroup(NamedTuple):
    """What is kept of a group: its number, when it was first seen, and how often it failed.

    `runs` are the last ten that had failures of it, the oldest first.
    """

    number: int
    first_seen: datetime
    times: int
    runs: list[TimesInRun]


def add(connection: Connection, crawl_id: int, run: int, told: Iterable[Counter[UUID]]) -> None:
    """Add failures of a run, counted by their fingerprint; groups that are new get a number.

    The caller has the row of the run, if it counts anything of it.
    """
    whole = sum(told, Counter[Any]())
    if whole:
        connection.execute(LOCK, {"crawl": crawl_id})
        given = {"fingerprints": [str(one) for one in whole], "times": list(whole.values())}
        connection.execute(ADD, {"crawl": crawl_id, "run": str(run), **given})


def known(
    connection: Connection, crawl_id: int, fingerprints: Collection[UUID]
) -> dict[UUID, KnownGroup]:
    """Return what is kept of those groups that have been told of."""
    given = {"crawl": crawl_id, "fingerprints": [str(one) for one in fingerprints]}
    return {
        row.fingerprint: KnownGroup(row.number, row.first_seen, row.times, _runs(row.runs))
        for row in connection.execute(KNOWN, given)
    }


def _runs(stored: Any) -> list[TimesInRun]:
    """Read how often runs failed; what is no such number is left out."""
    told = stored.items() if isinstance(stored, dict) else ()
    return sorted(
        TimesInRun(int(run), times) for run, times in told if run.isdecimal() and type(times) is int
    )
