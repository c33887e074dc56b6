"""What is counted of a crawl and of its tasks: work, results, failures; each by an index."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import text

from scrapy_itemgraph.store.admin.counting import Counted, Groups
from scrapy_itemgraph.store.sql_conditions import (
    IS_CALLED_FOR,
    IS_GONE,
    IS_HELD,
    IS_LAPSED,
    IS_LASTING,
    IS_READY,
    IS_READY_ALONE,
    IS_READY_BESIDE_OTHERS,
    IS_STOPPED,
    OPEN_FAILURES,
    SCHEDULE,
    STANDS,
)

ITEMS = Groups(
    columns="t.id AS crawl",
    source="crawls t",
    where="t.id = ANY (CAST(:crawls AS int[]))",
    counted={
        "items": Counted(
            table="items",
            alias="i",
            join="i.crawl_id = t.id",
            rows="SELECT FROM items i WHERE i.crawl_id = t.id",
            sampled="true",
        )
    },
)


def _work(rows: str, sampled: str) -> Counted:
    return Counted(table="work", alias="w", join="w.task_id = t.id", rows=rows, sampled=sampled)


def _results(rows: str, sampled: str, condition: str | None = None) -> Counted:
    return Counted(
        table="results",
        alias="r",
        join="r.task_id = t.id",
        rows=rows,
        sampled=sampled,
        condition=condition,
    )


def _open_failures(*, is_refusal: bool, condition: str | None = None) -> Counted:
    return Counted(
        table="failures",
        alias="f",
        join="f.task_id = t.id",
        rows=OPEN_FAILURES.format(first=is_refusal, last=is_refusal, condition=True),
        sampled=f"f.handled_at IS NULL AND f.is_refusal = {is_refusal}",
        condition=condition,
    )


def _ready(of_queues: str, is_in: str = "") -> str:
    """Return what finds a task's work that could be claimed, queue by queue."""
    return f"""
        SELECT FROM kinds k JOIN {of_queues} ON q.crawl_id = t.crawl_id
        CROSS JOIN LATERAL (
            SELECT FROM work w
            WHERE w.queue_id = q.id AND w.kind_id = k.id AND {IS_READY_BESIDE_OTHERS}
            LIMIT :most + 1) AS ready
        WHERE k.task_id = t.id
        UNION ALL
        SELECT FROM work w
        WHERE w.crawl_id = t.crawl_id AND w.task_id = t.id AND {IS_READY_ALONE} {is_in}
    """  # noqa: S608 - our own conditions


_NOW = "(SELECT clock_timestamp())"
_IS_DUE = f"r.due_at <= {_NOW}"

WORK = {
    "waiting": _work(_ready("queues q"), IS_READY),
    "delayed": _work(
        """SELECT w.tries FROM work w
        WHERE w.task_id = t.id AND w.not_before IS NOT NULL AND w.token IS NULL""",
        "w.not_before IS NOT NULL AND w.token IS NULL",
    ),
    "claimed": _work(
        # By their workers: without statistics nearly all work is thought to be claimed.
        """SELECT FROM processes o CROSS JOIN LATERAL (
            SELECT w.task_id FROM work w
            WHERE w.worker_id = o.id AND w.token IS NOT NULL OFFSET 0) AS w
        WHERE o.crawl_id = t.crawl_id AND w.task_id = t.id""",
        "w.token IS NOT NULL",
    ),
}

# A completed result has a moment at which it expires, or lasts, or has lapsed: none is in two.
_OF_TASK = "SELECT r.* FROM results r WHERE r.task_id = t.id"
RESULTS = {
    "completed": _results(
        f"""{_OF_TASK} AND r.due_at IS NOT NULL
        UNION ALL {_OF_TASK} AND {IS_LASTING}
        UNION ALL {_OF_TASK} AND {IS_LAPSED}""",
        "r.completed_at IS NOT NULL",
    ),
    "fresh": _results(
        f"""{_OF_TASK} AND r.due_at > {_NOW}
        UNION ALL {_OF_TASK} AND {IS_LASTING} AND r.task_version = t.version""",
        f"(r.expires_at IS NULL OR r.due_at > {_NOW})",
        condition=STANDS,
    ),
    "due": _results(f"{_OF_TASK} AND {_IS_DUE}", _IS_DUE, condition=STANDS),
    "held": _results(f"{_OF_TASK} AND {IS_HELD}", IS_HELD),
    "gone": _results(f"{_OF_TASK} AND {IS_GONE}", IS_GONE),
}
SET_ASIDE = {
    name: _results(f"{_OF_TASK} AND r.hold = '{name}'", f"r.hold = '{name}'")
    for name in ("skipped", "stashed", "left")
}

# Of the failures of a pair (OFFSET 0): a planner might look through all refusals of its task.
_OPEN = """EXISTS (
                SELECT FROM (
                    SELECT * FROM failures f
                    WHERE f.item_id = r.item_id AND f.task_id = r.task_id OFFSET 0) AS f
                WHERE f.handled_at IS NULL{which})"""
_HAS_FAILED = _OPEN.format(which=" AND NOT f.is_refusal")
_HAS_FAILED_IN_RUN = _OPEN.format(which=" AND NOT f.is_refusal AND f.occurred_at >= t.run_began")
_WAS_REFUSED = _OPEN.format(which=" AND f.is_refusal")


def _held(condition: str) -> Counted:
    # Each is looked up among the failures of its pair.
    found = _results(f"{_OF_TASK} AND {IS_HELD}", IS_HELD, condition=condition)
    return replace(found, weight=10)


# Tasks, and when the present or last run of their crawl began: looked up for each task (OFFSET 0),
# and not for each of its results. What crawlers do by gRPC alone is no run, and counts as one.
_WITH_RUN = """(
            SELECT t.*, (
                SELECT coalesce(o.started_at, CASE
                    WHEN c.frontier IS NOT NULL THEN CAST('-infinity' AS timestamptz) END)
                FROM crawls c LEFT JOIN runs o ON o.crawl_id = c.id AND o.number = c.run
                WHERE c.id = t.crawl_id) AS run_began
            FROM tasks t WHERE {which} OFFSET 0) AS t"""

# Where what is no work stands in a run: with `WORK`, what is gone, and the results that are fresh
# or due and of earlier runs, each piece that is known is in one of these numbers. Of what is done,
# `led_to_known` was done by a redirect to a known page. Of what comes later, a run waits for its
# `retries` alone.
PROGRESS = {
    "done": _results(
        f"""{_OF_TASK} AND r.due_at IS NOT NULL
        UNION ALL {_OF_TASK} AND {IS_LASTING} AND r.task_version = t.version""",
        "(r.expires_at IS NULL OR r.due_at IS NOT NULL)",
        condition=f"{STANDS} AND r.completed_at >= t.run_began",
    ),
    "led_to_known": _results(
        f"{_OF_TASK} AND r.led_to IS NOT NULL",
        "r.led_to IS NOT NULL",
        condition=f"{STANDS} AND r.completed_at >= t.run_began",
    ),
    "retries": replace(WORK["delayed"], condition="w.tries <> 0"),
    "failed": _held(_HAS_FAILED),
    "failed_in_run": _held(_HAS_FAILED_IN_RUN),
    "refused": _held(f"{_WAS_REFUSED} AND NOT {_HAS_FAILED}"),
    "given_up": _held(f"NOT {_WAS_REFUSED} AND NOT {_HAS_FAILED}"),
}

FAILURES = {
    "failures": _open_failures(is_refusal=False),
    "refusals": _open_failures(is_refusal=True),
}

_DECLARED = f"""t.name, t.spider, t.version, t.ttl, {SCHEDULE} AS schedule, t.nice, t.is_enabled,
        t.is_registered, t.max_failures,
        ARRAY(SELECT tt.tag_name FROM task_tags tt WHERE tt.task_id = t.id ORDER BY 1) AS tags,
        ARRAY(SELECT d.name FROM task_dependencies td JOIN tasks d ON d.id = td.depends_on_id
            WHERE td.task_id = t.id ORDER BY 1) AS depends_on"""  # noqa: S608 - our own condition
DECLARED = text(f"SELECT {_DECLARED} FROM tasks t WHERE t.crawl_id = :crawl ORDER BY t.name")  # noqa: S608 - our own columns

TASKS = Groups(
    columns=_DECLARED,
    source=_WITH_RUN.format(which="t.crawl_id = :crawl"),
    where="true",
    order="t.name",
    counted={**WORK, **RESULTS, **SET_ASIDE, **FAILURES, **PROGRESS},
)

# What is counted of crawls that are seen from above: by their tasks.
OVERVIEW = Groups(
    columns="t.crawl_id AS crawl, t.name, t.is_enabled, t.is_registered",
    source=_WITH_RUN.format(which="t.crawl_id = ANY (CAST(:crawls AS int[]))"),
    where="true",
    order="t.name",
    counted={
        **WORK,
        **{name: RESULTS[name] for name in ("fresh", "due", "held", "gone")},
        **FAILURES,
        **PROGRESS,
    },
)

FAILURES_OF_TASKS = Groups(
    columns="t.name",
    source="tasks t",
    where="t.crawl_id = :crawl",
    counted=FAILURES,
)

# Open failures of the tasks that so many of them stop, and whether they do. Of each the tags of its
# item are looked up.
COUNTED_FAILURES = Groups(
    columns=f"t.name, {IS_STOPPED} AS is_stopped",
    source="tasks t",
    where="t.crawl_id = :crawl AND t.max_failures IS NOT NULL",
    counted={
        "failures": replace(_open_failures(is_refusal=False, condition=IS_CALLED_FOR), weight=20)
    },
)

_IS_BLOCKED = "l.blocked_by = 'person' AND l.blocked_until > clock_timestamp()"
_BLOCKED = f"""EXISTS (
            SELECT FROM queues q JOIN limits l ON l.id = q.slot_id
            WHERE q.id = w.queue_id AND {_IS_BLOCKED})"""

# What a log line tells of a crawl: of its tasks, which are closed, and all numbers.
OF_SUMMARY = Groups(
    columns=f"""t.is_registered, t.is_enabled, t.is_callback,
        t.is_enabled AND CASE WHEN t.max_failures IS NULL THEN false
            ELSE {IS_STOPPED} END AS is_stopped""",
    source="tasks t",
    where="t.crawl_id = :crawl",
    counted={
        **WORK,
        **{name: RESULTS[name] for name in ("fresh", "due", "gone")},
        **SET_ASIDE,
        **FAILURES,
        "blocked": _work(
            _ready(
                f"""(
                SELECT q.* FROM queues q JOIN limits l ON l.id = q.slot_id
                WHERE {_IS_BLOCKED}) AS q""",  # noqa: S608 - our own conditions
                is_in=f"AND {_BLOCKED}",
            ),
            f"{IS_READY} AND {_BLOCKED}",
        ),
        "given_up": _held("NOT " + _OPEN.format(which="")),
        "lost": _open_failures(
            is_refusal=False, condition="f.error->>'type' IN ('worker died', 'stalled')"
        ),
    },
)
