"""Why a task of an item runs next, or does not."""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import counts, frontier, item_names, next_commands, wall_clocks
from scrapy_itemgraph.model.due_times import stored_expiry
from scrapy_itemgraph.model.limits import LOOKAHEAD
from scrapy_itemgraph.model.run_standings import fetches_again
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.model.work import ErrorRecord
from scrapy_itemgraph.store.admin import (
    counting,
    depth_reports,
    explain_frontier,
    run_lists,
    task_counts,
)
from scrapy_itemgraph.store.admin.limit_holders import HOLDER, Holder, period
from scrapy_itemgraph.store.admin.limit_names import limit_name
from scrapy_itemgraph.store.admin.status import STATE
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.limits.sharing import STORED_TERMS, StoredTerms
from scrapy_itemgraph.store.sql_conditions import SCHEDULE, seconds_since
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

_FREES: dict[str, str] = {Hold.SKIPPED: "unskip", Hold.STASHED: "unstash", Hold.LEFT: "unleave"}
_SHOWN_STEPS = 8  # pages of a path

# Every task of a crawl, and what is so of an item: its result, its work, and the slot of that. The
# failures are the item's first (OFFSET 0): the planner might look through all of the task.
FACTS = text(f"""
    SELECT t.name AS task, t.is_callback, t.is_enabled, t.is_registered, t.max_failures,
        ARRAY(SELECT d.name FROM task_dependencies td JOIN tasks d ON d.id = td.depends_on_id
            WHERE td.task_id = t.id ORDER BY 1) AS depends_on,
        ARRAY(SELECT tt.tag_name FROM task_tags tt WHERE tt.task_id = t.id ORDER BY 1) AS tags,
        ARRAY(SELECT g.tag_name FROM tags g WHERE g.item_id = :item ORDER BY 1) AS item_tags,
        {STATE} AS state,
        t.version, CASE WHEN NOT r.ttl_overridden THEN {SCHEDULE} END AS schedule,
        r.task_version, r.is_successful, r.completed_at, r.invalidated_at, r.expires_at,
        r.due_at, coalesce(r.run, 1) AS run, r.led_to IS NOT NULL AS is_led,
        (SELECT a.name FROM aliases a
            WHERE a.crawl_id = t.crawl_id AND a.key = r.led_to AND a.item_id IS NOT NULL) AS led_to,
        CASE WHEN r.led_to IS NOT NULL THEN (
            SELECT a.error->>'url' FROM attempts a
            WHERE a.item_id = :item AND a.task_id = t.id AND a.outcome = 'known'
            ORDER BY a.id DESC LIMIT 1) END AS led_to_url,
        (SELECT d.depth FROM depths d JOIN crawls c ON c.id = d.crawl_id
            WHERE d.item_id = :item AND d.depth > c.depth_limit AND c.tracks_depth) AS too_deep,
        (SELECT c.depth_limit FROM crawls c WHERE c.id = t.crawl_id) AS depth_limit,
        w.not_before, w.tries, w.deaths, w.stalls, w.is_suspect, w.claimed_at,
        (SELECT x.name FROM work v JOIN tasks x ON x.id = v.task_id
            WHERE v.item_id = :item AND v.task_id <> t.id AND v.token IS NOT NULL
                AND (x.is_item_exclusive OR t.is_item_exclusive)
            ORDER BY x.name LIMIT 1) AS blocked_by,
        w.worker_id, o.host, o.process_id,
        s.name AS slot, s.blocked_until, s.blocked_by AS slot_blocked_by,
        f.id AS failure_id, f.error,
        w.item_id IS NULL AND EXISTS (
            SELECT FROM sweeps v JOIN tags g ON g.tag_name = ANY (v.tags)
            WHERE v.crawl_id = t.crawl_id AND g.item_id = :item AND v.left_run IS NULL
                AND v.after_item_id < :item) AS awaits_sweep,
        ARRAY(SELECT format('worker %s (process %s on %s)', x.id, x.process_id, x.host)
            FROM processes x
            WHERE x.id = ANY (t.left_by) AND x.stopped_at IS NULL ORDER BY x.id) AS left_by,
        clock_timestamp() AS now,
        CASE WHEN EXISTS (SELECT FROM crawls o WHERE o.id <> t.crawl_id)
            THEN (SELECT name FROM crawls WHERE id = t.crawl_id) END AS named
    FROM tasks t
    LEFT JOIN results r ON r.task_id = t.id AND r.item_id = :item
    LEFT JOIN work w ON w.task_id = t.id AND w.item_id = :item
    LEFT JOIN processes o ON o.id = w.worker_id
    LEFT JOIN queues q ON q.id = w.queue_id
    LEFT JOIN limits s ON s.id = q.slot_id
    LEFT JOIN LATERAL (
        SELECT f.id, f.error FROM (
            SELECT * FROM failures WHERE item_id = :item AND handled_at IS NULL OFFSET 0) AS f
        WHERE f.task_id = t.id
        ORDER BY f.id DESC LIMIT 1) AS f ON true
    WHERE t.crawl_id = :crawl
    ORDER BY t.name
""")  # noqa: S608 - our own conditions

# The limits that an item's unclaimed work keeps to, its slot first, and who has them.
LIMITS = text(f"""
    SELECT t.name AS task, {STORED_TERMS},
        {seconds_since("l.last_at")} AS last_ago,
        o.crawl_id = w.crawl_id AND h.until IS NULL AS is_own, {HOLDER}
    FROM work w
    JOIN queues q ON q.id = w.queue_id
    JOIN tasks t ON t.id = w.task_id
    JOIN kinds k ON k.id = w.kind_id
    JOIN limits l ON l.id = ANY (q.slot_id || t.limit_ids || k.limit_ids)
    LEFT JOIN holdings h ON h.limit_id = l.id AND h.units > 0
        AND (h.until IS NULL OR h.until > clock_timestamp())
    LEFT JOIN processes o ON o.id = h.worker_id
    LEFT JOIN crawls c ON c.id = o.crawl_id
    WHERE w.item_id = :item AND w.token IS NULL
    ORDER BY l.kind <> 'slot', l.kind, l.name, h.since, h.worker_id
""")  # noqa: S608 - our own columns


class _Facts(NamedTuple):
    """A row of FACTS; what is None of the work: there is none."""

    task: str
    is_callback: bool
    is_enabled: bool
    is_registered: bool
    max_failures: int | None
    depends_on: list[str]
    tags: list[str]
    item_tags: list[str]
    state: str
    version: str
    schedule: dict[str, Any] | None
    task_version: str | None
    is_successful: bool | None
    completed_at: datetime | None
    invalidated_at: datetime | None
    expires_at: datetime | None
    due_at: datetime | None
    run: int
    is_led: bool  # by a redirect to a known page
    led_to: str | None  # the name of this page; None: it was deleted
    led_to_url: str | None
    too_deep: int | None  # how deep it is
    depth_limit: int | None
    not_before: datetime | None
    tries: int | None
    deaths: int | None
    stalls: int | None
    is_suspect: bool | None
    claimed_at: datetime | None
    blocked_by: str | None
    worker_id: int | None
    host: str | None
    process_id: int | None
    slot: str | None
    blocked_until: datetime | None
    slot_blocked_by: str | None
    failure_id: int | None
    error: dict[str, Any] | None
    awaits_sweep: bool
    left_by: list[str]
    now: datetime
    named: str | None  # the crawl, where others are in the database

    @property
    def is_called_for(self) -> bool:
        """Whether the item's tags call for the task."""
        return self.is_registered and not set(self.tags).isdisjoint(self.item_tags)


@dataclass(frozen=True, slots=True)
class _Limit(StoredTerms):
    """A limit that work keeps to, and who has some of it."""

    last_ago: float | None
    holders: list[Holder] = field(default_factory=list)

    def __str__(self) -> str:
        name = limit_name(self.kind, self.name)
        return f"the slot {self.name!r}" if self.kind == "slot" else f"the limit {name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Whether a task of an item may be claimed now, and what decides."""

    task: str
    state: str
    is_eligible: bool
    reasons: tuple[str, ...]


def explain(
    connection: Connection, crawl_id: int, item_id: int, task: str | None = None
) -> list[Explanation]:
    """Explain one task of an item, or each that its tags call for or that has a result."""
    rows = typed(connection.execute(FACTS, {"crawl": crawl_id, "item": item_id}), _Facts)
    facts = {row.task: row for row in rows}
    limits = _limits(connection, item_id)
    asked = [
        row
        for row in rows
        if row.task == task
        or (task is None and (row.is_called_for or row.task_version is not None))
    ]
    stopped_by: dict[str, int] = {}
    if any(row.max_failures is not None for row in asked):
        counted = counting.count(connection, task_counts.COUNTED_FAILURES, crawl=crawl_id)
        stopped_by = {one["name"]: one["failures"] for one in counted if one["is_stopped"]}
    run = run_lists.last(connection, crawl_id)
    is_too_deep = any(row.too_deep is not None for row in asked)
    path = depth_reports.path(connection, item_id) if is_too_deep else []
    may_be_url = any(row.task == frontier.TASK for row in asked)
    served = explain_frontier.facts(connection, item_id) if may_be_url else None
    return [
        _explanation(
            row,
            [facts[name] for name in row.depends_on],
            limits[row.task].values(),
            stopped_by.get(row.task),
            run,
            path=path,
            served=served if row.task == frontier.TASK else None,
        )
        for row in asked
    ]


def _limits(connection: Connection, item_id: int) -> dict[str, dict[int, _Limit]]:
    """Return the limits that the item's unclaimed work keeps to, by task and number."""
    limits: dict[str, dict[int, _Limit]] = defaultdict(dict)
    width = len(Holder._fields)
    for task, *row in connection.execute(LIMITS, {"item": item_id}):
        limit = _Limit(*row[:-width])
        limit = limits[task].setdefault(limit.id, limit)
        holder = Holder(*row[-width:])
        if holder.worker_id is not None:
            limit.holders.append(holder)
    return limits


def _explanation(
    row: _Facts,
    dependencies: list[_Facts],
    limits: Collection[_Limit],
    stopped_by: int | None,
    run: run_lists.RunLine | None,
    *,
    path: Sequence[depth_reports.PathStep],
    served: explain_frontier.Served | None,
) -> Explanation:
    for_crawlers = [] if served is None else list(served.against())
    is_for_crawlers_alone = served is not None and served.is_of_crawlers_alone
    against = [
        *_against_outstanding(row, dependencies, run),
        *_against_depth(row, path),
        *_against_claiming(row, stopped_by, None if served is None else served.hold),
        *(reason for limit in limits for reason in _against_starting(limit)),
        *(for_crawlers if is_for_crawlers_alone else ()),
    ]
    why = row.state if row.completed_at is None else _why(row)
    reasons = against or [
        f"it is next in its queue of the slot {row.slot!r}: {why}",
        *(reason for limit in limits for reason in _for_starting(limit)),
        *_for_lack_of_workers(run),
    ]
    if not is_for_crawlers_alone:
        reasons = [*reasons, *for_crawlers]
    return Explanation(
        task=row.task, state=row.state, is_eligible=not against, reasons=tuple(reasons)
    )


def _why(row: _Facts) -> str:
    """Say what makes a result stale, fresh, or not there yet."""
    if row.completed_at is None:
        return "it has not run yet"
    if row.task_version != row.version:
        return f"its result is of version {row.task_version!r}, not {row.version!r}"
    if row.invalidated_at is not None:
        has_failed = row.is_successful is False
        return "it failed" if has_failed else "it was expired by hand or by another task"
    if row.expires_at is None:
        return "its result never expires"
    seconds = (row.expires_at - row.now).total_seconds()
    if row.due_at is None:
        return f"its result expired {wording.format_period(-seconds)} ago"
    left = f"is fresh for {wording.format_period(seconds)} more{_by_schedule(row)}"
    return (
        f"its result {left if seconds > 0 else 'has expired and becomes stale when a run starts'}"
    )


def _by_schedule(row: _Facts) -> str:
    """Say when a result expires on the clock of its task's schedule."""
    expiry = stored_expiry(row.schedule)
    if expiry is None or row.expires_at is None:
        return ""
    zone = expiry.rule.time_zone
    shown = wall_clocks.shown(row.expires_at, zone)
    return f": it expires at {shown} {zone} by its schedule ({expiry})"


def _of_done_page(row: _Facts, run: run_lists.RunLine | None) -> str:
    """Say of a plain page that is done, and has no time to live, which run fetches it again."""
    following = "the next run"
    done = "it is done"
    if run is not None and run.state != "finished":
        is_of_run = row.run >= run.number
        done = f"it is done in run {run.number}, which goes on" if is_of_run else done
        following = "a new run" if is_of_run else f"run {run.number}"
    return f"{done}; {fetches_again(following)}"


def _against_outstanding(
    row: _Facts, dependencies: list[_Facts], run: run_lists.RunLine | None
) -> Iterator[str]:
    """Say what keeps the pair out of the worklist."""
    if not row.is_registered:
        yield "no spider declares this task any more"
    elif not row.is_called_for:
        yield (
            f"the item has none of the tags {', '.join(row.tags)}; "
            f"it has {', '.join(row.item_tags) or 'no tags'}"
        )
    if row.state == "held":
        if row.failure_id is None:
            yield "it is held since a failure was handled without a retry; scrapy itemgraph expire"
        else:
            error = str(ErrorRecord.read(row.error or {})).strip()
            yield (
                f"it is held by failure {row.failure_id}: {error}; "
                f"scrapy itemgraph failures {row.failure_id}"
            )
    elif row.state == "gone":
        yield _of_gone(row)
    elif row.state in _FREES:
        yield f"it is {row.state}: set aside; scrapy itemgraph pages {_FREES[row.state]}"
    elif row.state == "fresh":
        if row.is_led:
            yield _of_led(row)
        has_end = row.expires_at is not None or not row.is_callback
        yield _why(row) if has_end else _of_done_page(row, run)
    yield from _against_dependencies(dependencies)


def _of_led(row: _Facts) -> str:
    """Say of a page that is done without its callback where its redirect led."""
    page = row.led_to_url or row.led_to or "a page"
    if row.led_to is None:
        return f"its callback was not called: its redirect led to {page}, which was deleted since"
    return (
        f"its callback was not called: its redirect led to {page}, which the crawl has; "
        f"scrapy itemgraph handle --led-to {shlex.quote(page)} has it fetched again"
    )


def _against_depth(row: _Facts, path: Sequence[depth_reports.PathStep]) -> Iterator[str]:
    """Say that a page is too deep, and how the shortest path leads to it."""
    if row.too_deep is None:
        return
    if not path:
        yield f"no path to it is known, and the limit is {row.depth_limit}"
        return
    steps = [item_names.label_of(one.item, one.url, one.method) for one in path]
    if len(steps) > _SHOWN_STEPS:
        steps = [*steps[:2], "…", *steps[-(_SHOWN_STEPS - 2) :]]
    yield (
        f"too deep: {row.too_deep}, the limit is {row.depth_limit}; the shortest path is "
        f"{' → '.join(steps)}; scrapy itemgraph crawls set NAME --depth N"
    )


def _against_dependencies(dependencies: list[_Facts]) -> Iterator[str]:
    for dependency in dependencies:
        if dependency.state == "held":
            yield f"it depends on {dependency.task!r}, which is held by a failure"
        elif dependency.state == "gone":
            yield f"it depends on {dependency.task!r}, whose page is gone"
        elif dependency.state in set(Hold):
            yield f"it depends on {dependency.task!r}, which is {dependency.state}"
        elif dependency.state != "fresh":
            why = _why(dependency)
            yield f"it depends on {dependency.task!r}, which is {dependency.state}: {why}"


def _of_gone(row: _Facts) -> str:
    """Say of a page that is no more since when, and until when it is left alone."""
    assert row.completed_at is not None
    since = wording.format_period((row.now - row.completed_at).total_seconds())
    if row.expires_at is None:
        until = "it is not asked again by itself"
    else:
        wait = (row.expires_at - row.now).total_seconds()
        until = f"it is asked again {'now' if wait <= 0 else f'in {wording.format_period(wait)}'}"
    return (
        f"the website said {since} ago that its page is gone; {until}; scrapy itemgraph expire "
        "has it asked at once"
    )


def _against_claiming(row: _Facts, stopped_by: int | None, hold: str | None) -> Iterator[str]:
    """Say what keeps outstanding work from being claimed now; `stopped_by` counts failures.

    `hold` says which crawler has it that asked a frontier.
    """
    if row.claimed_at is not None:
        since = wording.format_period((row.now - row.claimed_at).total_seconds())
        yield (
            f"worker {row.worker_id} (process {row.process_id} on {row.host}) has it since {since}"
        )
    if not row.is_enabled:
        yield f"the task is disabled; {next_commands.command('enable', row.task, crawl=row.named)}"
    for worker in row.left_by:
        yield f"{worker} leaves it alone, for it runs older code: restart it"
    if stopped_by is not None and row.max_failures is not None:
        # A sample may have fewer of them than stop the task.
        number = max(stopped_by, counts.Estimate(row.max_failures))
        yield (
            f"the task is stopped by {counts.many(number, 'open failure')} "
            f"(max_failures={row.max_failures}); handle them"
        )
    if row.not_before is not None and row.not_before > row.now:
        yield hold or _of_delay(row.not_before - row.now, row.tries)
    if row.is_suspect:
        ends = ((row.deaths, "died"), (row.stalls, "stalled"))
        found = [f"{counts.many(number, 'worker')} {how}" for number, how in ends if number]
        what = " and ".join(found)
        yield f"{what} on it; it runs when a worker runs nothing else"
    if row.claimed_at is None and row.blocked_by is not None:
        yield f'{row.blocked_by!r} of the item is claimed, and one of the two is exclusive="item"'
    if row.slot and row.blocked_until is not None and row.blocked_until > row.now:
        by = row.slot_blocked_by
        name = limit_name("slot", row.slot)
        yield (
            f"the slot {row.slot!r} is blocked until {row.blocked_until:%Y-%m-%d %H:%M:%S %Z} by "
            f"{'a person' if by == 'person' else f'the site ({by})'}; "
            f"scrapy itemgraph unblock {shlex.quote(name)}"
        )
    if row.awaits_sweep:
        yield "a sweep after a change of the tasks has not reached the item yet"


def _of_delay(wait: timedelta, tries: int | None) -> str:
    tried = f" after {tries} tries" if tries and tries > 0 else ""
    return f"it may not start for another {wording.format_period(wait.total_seconds())}{tried}"


def _against_starting(limit: _Limit) -> Iterator[str]:
    """Say what keeps work from starting now under a limit."""
    terms = limit.in_force
    others = [holder for holder in limit.holders if not holder.is_own]
    dead = [holder for holder in others if holder.free_in is not None]
    alone = next((one for one in others if one.is_exclusive and one.free_in is None), None)
    if alone is not None:
        yield f"{alone} has {limit} for itself, {alone.until}"
    elif dead and (terms.is_exclusive or any(holder.is_exclusive for holder in dead)):
        wait = period(max(holder.free_in or 0.0 for holder in dead))
        yield f"{limit} is free in {wait}: {dead[0]} died, and its requests may still run"
    elif terms.concurrency is not None and sum(one.units for one in others) >= terms.concurrency:
        yield (
            f"{limit} is used up: {terms.concurrency} at once, by "
            + ", ".join(f"{holder}: {holder.units}" for holder in others)
        )
    due = 0.0 if limit.last_ago is None else terms.gap - limit.last_ago
    if due > LOOKAHEAD:
        every = period(terms.mean_delay)
        yield f"the next start in {limit} is due in {period(due)}: one every {every}"


def _for_lack_of_workers(run: run_lists.RunLine | None) -> Iterator[str]:
    """Say that nobody runs the crawl now, and since when; nothing of one that has never run."""
    if run is not None and not run.workers:
        yield f"no worker of the crawl runs: {run}"


def _for_starting(limit: _Limit) -> Iterator[str]:
    """Say which worker of the crawl will start it, where it has a limit for itself."""
    own = next((one for one in limit.holders if one.is_own and one.is_exclusive), None)
    if own is not None:
        yield f"{own} has {limit} for itself, and is the one to start it"
