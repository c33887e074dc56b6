"""Attempts: the record of each claim's life, written once, when the claim ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import attempt_logs, item_names
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.attempt_logs import LogLine
    from scrapy_itemgraph.model.work import Claim, ErrorRecord, Pair

RECORD_ATTEMPTS = text("""
    INSERT INTO attempts
        (item_id, task_id, worker_id, token, task_version, number, outcome, error, log, started_at)
    SELECT item_id, task_id, worker_id, token, task_version, number, outcome,
        CAST(error AS json), CAST(log AS json), started_at
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:workers AS int[]),
        CAST(:tokens AS uuid[]), CAST(:versions AS text[]), CAST(:numbers AS int[]),
        CAST(:outcomes AS text[]), CAST(:errors AS text[]), CAST(:logs AS text[]),
        CAST(:started AS timestamptz[]))
        AS ended(item_id, task_id, worker_id, token, task_version, number, outcome, error, log,
            started_at)
""")

# The same, of executions some of which scraped items, kept to rules, or
# tell of their pages.
RECORD_WITH_MORE = text("""
    INSERT INTO attempts
        (item_id, task_id, worker_id, token, task_version, number, outcome, error, log, started_at,
        scraped, ruleset_id, page)
    SELECT item_id, task_id, worker_id, token, task_version, number, outcome,
        CAST(error AS json), CAST(log AS json), started_at, nullif(scraped, 0), ruleset_id,
        CAST(page AS json)
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:workers AS int[]),
        CAST(:tokens AS uuid[]), CAST(:versions AS text[]), CAST(:numbers AS int[]),
        CAST(:outcomes AS text[]), CAST(:errors AS text[]), CAST(:logs AS text[]),
        CAST(:started AS timestamptz[]), CAST(:scraped AS int[]), CAST(:rulesets AS int[]),
        CAST(:pages AS text[]))
        AS ended(item_id, task_id, worker_id, token, task_version, number, outcome, error, log,
            started_at, scraped, ruleset_id, page)
""")

# Claims whose end is on record, on their own item or on the one that it went into: asked when the
# answer to a commit was lost.
RECORDED = text("""
    SELECT ended.item_id, ended.task_id, a.outcome
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]),
        CAST(:keys AS uuid[])) AS ended(item_id, task_id, token, key)
    CROSS JOIN LATERAL (
        SELECT ended.item_id AS item_id
        UNION
        SELECT n.item_id FROM aliases n WHERE n.crawl_id = :crawl AND n.key = ended.key) AS bearer
    JOIN attempts a ON a.item_id = bearer.item_id AND a.task_id = ended.task_id
        AND a.token = ended.token
""")

# Of each pair the last ten attempts are kept.
PRUNE_ATTEMPTS = text("""
    DELETE FROM attempts WHERE id = ANY (ARRAY(
        SELECT old.id
        FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS ended(item_id, task_id)
        CROSS JOIN LATERAL (
            SELECT a.id FROM attempts a
            WHERE a.item_id = ended.item_id AND a.task_id = ended.task_id
            ORDER BY a.id DESC OFFSET 10) AS old))
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is recorded of a claim's life, on the item that survived it."""

    item_id: int
    task_id: int
    worker_id: int | None
    token: UUID
    version: str
    number: int
    outcome: Outcome
    started_at: datetime
    error: ErrorRecord | None = None
    log: Sequence[LogLine] = ()
    scraped: int = 0  # items
    ruleset_id: int | None = None
    page: str | None = None  # the JSON of a `PageRecord`

    @classmethod
    def of(
        cls,
        claim: Claim,
        outcome: Outcome,
        worker_id: int | None,
        *,
        error: ErrorRecord | None = None,
        item_id: int | None = None,
        log: Sequence[LogLine] = (),
        scraped: int = 0,
        page: str | None = None,
    ) -> Attempt:
        """Return the record of a claim; `item_id` is given where the claim's own item is gone."""
        return cls(
            item_id=claim.item_id if item_id is None else item_id,
            task_id=claim.task_id,
            worker_id=worker_id,
            token=claim.token,
            version=claim.version,
            number=claim.attempt,
            outcome=outcome,
            started_at=claim.claimed_at,
            error=error,
            log=log,
            scraped=scraped,
            ruleset_id=claim.ruleset_id,
            page=page,
        )


def record(connection: Connection, ended: Sequence[Attempt]) -> None:
    """Write attempts, and forget all but the last ten of each pair."""
    if not ended:
        return
    given = columns(
        ended,
        items="item_id",
        tasks="task_id",
        workers="worker_id",
        tokens="token",
        versions="version",
        numbers="number",
        started="started_at",
    )
    given["outcomes"] = [str(one.outcome) for one in ended]
    given["errors"] = [one.error and one.error.as_json(with_snippet=False) for one in ended]
    given["logs"] = [attempt_logs.as_json(one.log) for one in ended]
    if any(_has_more(one) for one in ended):
        more = columns(ended, scraped="scraped", rulesets="ruleset_id", pages="page")
        connection.execute(RECORD_WITH_MORE, {**given, **more})
    else:
        connection.execute(RECORD_ATTEMPTS, given)
    connection.execute(PRUNE_ATTEMPTS, given)


def _has_more(attempt: Attempt) -> bool:
    """Tell whether an attempt has what most have not."""
    return bool(attempt.scraped or attempt.ruleset_id is not None or attempt.page is not None)


def recorded(connection: Connection, claims: Sequence[Claim], crawl_id: int) -> dict[Pair, Outcome]:
    """Return how claims ended whose end is on record, be it on the item that theirs went into."""
    if not claims:
        return {}
    given = columns(claims, items="item_id", tasks="task_id", tokens="token")
    given["keys"] = [item_names.name_key(one.item.id) for one in claims]
    rows = connection.execute(RECORDED, {"crawl": crawl_id, **given})
    return {(item_id, task_id): Outcome(outcome) for item_id, task_id, outcome in rows}
