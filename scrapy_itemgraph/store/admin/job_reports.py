"""Jobs as people see them: processes that run crawls, that ran, and that are to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

_LINE = """
    SELECT j.id, c.name AS crawl, c.spider, j.origin, r.name AS runner, j.place, j.state,
        j.attempts, j.host, j.process_id, j.worker_id AS worker, j.exit_code, j.created_at,
        j.not_before, j.started_at, j.ended_at, j.stop_wanted, j.reason, j.message, j.log,
        j.memory, j.code, j.scrapyd_job, j.schedule_id AS schedule, j.due_at
    FROM jobs j JOIN crawls c ON c.id = j.crawl_id LEFT JOIN runners r ON r.id = j.runner_id"""

# The first two follow an index from its end: of all jobs, of a crawl's. No index has the order of
# the third, so it reads those that are not over, and sorts them.
NEWEST = text(f"{_LINE} WHERE j.id < :before ORDER BY j.id DESC LIMIT :limit")

OF_CRAWL = text(f"""{_LINE}
    WHERE j.crawl_id = (SELECT id FROM crawls WHERE name = :crawl) AND j.id < :before
    ORDER BY j.id DESC LIMIT :limit
""")  # noqa: S608 - our own text

OPEN = text(f"""{_LINE}
    WHERE j.ended_at IS NULL AND j.id < :before
        AND (CAST(:crawl AS text) IS NULL OR c.name = :crawl)
    ORDER BY -j.id LIMIT :limit
""")

ONE = text(f"{_LINE} WHERE j.id = :job")

OUTPUT = text("SELECT output FROM jobs WHERE id = :job")

LOG = text("""
    SELECT state, started_at IS NOT NULL AS has_begun, ended_at IS NOT NULL AS is_over,
        coalesce(output, '') AS output, output_lines AS lines
    FROM jobs WHERE id = :job
""")

_LAST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job: one process of a crawl, whoever started it (`origin`: a runner, scrapyd or a hand).

    `exit_code` is negative for a signal. `worker` is what the process is registered as, `attempts`
    1 and how many before it in a row ended abnormally, `log` a file on `host`, `memory` in bytes.
    """

    id: int
    crawl: str
    spider: str | None
    origin: str
    runner: str | None
    place: int | None
    state: str
    attempts: int
    host: str | None
    process_id: int | None
    worker: int | None
    exit_code: int | None
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    stop_wanted: str | None
    reason: str | None
    message: str | None
    log: str | None
    memory: int | None
    code: str | None
    scrapyd_job: str | None
    schedule: int | None
    due_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """What a job's process wrote after some lines, in whole lines unless it is over.

    `text` is what is still known of it: the database has the last 64 kB, and `left_out` lines
    before that are gone. `next` is what to ask for as `after` for what follows.
    """

    job: int
    state: str
    has_begun: bool
    is_over: bool
    left_out: int
    text: str
    next: int


def jobs(
    connection: Connection,
    *,
    crawl: str | None = None,
    is_open: bool = False,
    before: int | None = None,
    limit: int = 100,
) -> list[JobLine]:
    """Return jobs, the newest first, with numbers below `before`.

    Those of one crawl, and those that are not over, as far as is asked.
    """
    statement = OPEN if is_open else NEWEST if crawl is None else OF_CRAWL
    given = {"crawl": crawl, "before": before or _LAST, "limit": limit}
    return [JobLine(**row) for row in connection.execute(statement, given).mappings()]


def job(connection: Connection, number: int) -> JobLine:
    """Return one job.

    Raises:
        NotFoundError: there is none of this number.

    """
    row = connection.execute(ONE, {"job": number}).mappings().first()
    if row is None:
        raise _not_found(number)
    return JobLine(**row)


def _not_found(number: int) -> NotFoundError:
    return NotFoundError(f"there is no job {number}; scrapy itemgraph jobs list shows them")


def output(connection: Connection, number: int) -> str:
    """Return the end of a job's output as the database has it; "" where it has nothing yet."""
    found: str | None = connection.execute(OUTPUT, {"job": number}).scalar()
    return found or ""


def log(connection: Connection, number: int, after: int = 0) -> LogPart:
    """Return what a job's process wrote after so many lines, as far as the database has it.

    Raises:
        NotFoundError: there is none of this number.

    """
    row = connection.execute(LOG, {"job": number}).first()
    if row is None:
        raise _not_found(number)
    *whole, begun = row.output.split("\n")
    total = len(whole) if row.lines is None else row.lines
    first = total - len(whole)  # how many lines there were before the output
    new = whole[max(0, after - first) :]
    if row.is_over and begun and after <= total:
        new, total = [*new, begun], total + 1
    return LogPart(
        job=number,
        state=row.state,
        has_begun=row.has_begun,
        is_over=row.is_over,
        left_out=max(0, first - after),
        text="".join(f"{line}\n" for line in new),
        next=max(after, total),
    )
