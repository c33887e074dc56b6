"""Duties: what is done by the second or the minute, for a crawl or for the whole database.

A worker does those of its crawl. Any process that may write does those of the database; among them
are the duties of crawls that nobody runs. A duty is a function of a connection that says whether it
did something, after which there may be more. `do` alone checks the order of locks.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import rule_matching
from scrapy_itemgraph.postgres import engine, server_clock
from scrapy_itemgraph.store import pruning, queues
from scrapy_itemgraph.store.depths import relax
from scrapy_itemgraph.store.depths import sweeps as depth_sweeps
from scrapy_itemgraph.store.registry import dead_processes, item_sweeps, runs
from scrapy_itemgraph.store.sql_conditions import IS_SURELY_DEAD
from scrapy_itemgraph.store.worklist import expired_results, timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.work import TakenOver

EVERY_SECOND, EVERY_TEN_MINUTES = 1.0, 600.0
RESTS_FOR = 60.0  # seconds that a crawl which is kept fresh has ended before its next run begins
OFTEN_ENOUGH = 5.0  # seconds between two looks for crawls that nobody runs, of one process
_FEW = 8  # processes, each of which looks as often as one alone
_MOST_CRAWLS = 20  # that are tried in one transaction

# What a process needs to do all duties. Of a standby, and of a role that only reads, this is false.
MAY = text("""
    SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
        AND (SELECT bool_and(has_table_privilege(name, privilege))
            FROM unnest(ARRAY['attempts', 'failures', 'processes', 'results', 'runs', 'work'])
                AS tables(name)
            CROSS JOIN unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) AS given(privilege))
""")

_LIVES = f"""EXISTS (
        SELECT FROM processes p
        WHERE p.crawl_id = due.crawl_id AND p.stopped_at IS NULL AND NOT {IS_SURELY_DEAD})"""

# Whether results of a crawl fall due without becoming work: it has come to its end, and nobody
# wants it kept fresh, or it ended so shortly ago that what falls due is gathered for its next run;
# or work has opened its last run again.
_RESTS = f"""EXISTS (
        SELECT FROM crawls c WHERE c.id = {{crawl}} AND c.state = 'finished'
            AND (NOT c.keeps_fresh OR EXISTS (
                SELECT FROM runs r WHERE r.crawl_id = c.id AND r.number = c.run
                    AND r.ended_at > now() - make_interval(secs => {RESTS_FOR}))))
        OR EXISTS (
            SELECT FROM crawls c JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
            WHERE c.id = {{crawl}} AND NOT r.is_finished AND r.continued_at IS NOT NULL)"""  # noqa: S608

# Crawls in which something is due and of which no worker lives; each part uses an index.
UNATTENDED = text(f"""
    SELECT due.crawl_id FROM (
        SELECT p.crawl_id FROM processes p WHERE p.crawl_id IS NOT NULL AND p.stopped_at IS NULL
        UNION
        SELECT s.crawl_id FROM sweeps s
        UNION
        SELECT s.crawl_id FROM depth_sweeps s
        UNION
        SELECT c.id FROM crawls c
        WHERE c.tracks_depth AND EXISTS (SELECT FROM depth_work w WHERE w.crawl_id = c.id)
        UNION
        SELECT t.crawl_id FROM tasks t CROSS JOIN LATERAL (
            SELECT FROM results r
            WHERE r.task_id = t.id AND r.due_at <= (SELECT now()) LIMIT 1) AS first
        WHERE NOT ({_RESTS.format(crawl="t.crawl_id")})
        UNION
        SELECT c.id FROM crawls c CROSS JOIN LATERAL (
            SELECT FROM work w
            WHERE w.crawl_id = c.id AND w.not_before <= (SELECT now()) LIMIT 1) AS first
        ) AS due
    WHERE NOT {_LIVES}
    ORDER BY due.crawl_id LIMIT :limit
""")  # noqa: S608 - our own conditions

PROCESSES = text("SELECT count(*) FROM processes p WHERE p.stopped_at IS NULL")

# One process at a time does the duties of a crawl that nobody runs. It shares the crawl's lock as
# commits do, and waits neither for others that attend nor for a start that registers tasks.
TRY_ATTEND = text("""
    SELECT pg_try_advisory_xact_lock(CAST('runs'::regclass::oid AS int), :crawl)
        AND pg_try_advisory_xact_lock_shared(CAST('crawls'::regclass::oid AS int), :crawl)
""")

# In a statement of its own, for a worker may have started before the locks were taken. The moment
# is that of the transaction's start: results that fall due later are left to those who start.
STILL_UNATTENDED = text(f"""
    SELECT now() AS until, ({_RESTS.format(crawl=":crawl")}) AS rests,
        EXISTS (SELECT FROM crawls c WHERE c.id = :crawl AND c.state = 'finished') AS has_ended
    FROM (SELECT CAST(:crawl AS int) AS crawl_id) AS due WHERE NOT {_LIVES}
""")  # noqa: S608 - our own condition


class Lock(IntEnum):
    """What a transaction may lock, in the order in which it may."""

    NONE = 0
    PROCESSES = 1
    ITEMS = 2
    DEPTHS = 3
    WORK = 4  # of others, and queues
    LIMITS = 5


@dataclass(slots=True, kw_only=True)
class Round:
    """For whom duties are done, and what came of it in one transaction.

    `worker_id` is the worker that does them, 0 where it is none of the crawl; `run` is its run.
    `until` is when
    results must have fallen due that become work; None is now. `keeps` is how long scraped items
    are kept; None: for ever. `due` counts items looked at because results of theirs fell due,
    `attended` the crawls that nobody runs and that had something to do, `processes` all that live.
    """

    crawl_id: int = 0
    worker_id: int = 0
    run: int = item_sweeps.ANY_RUN
    until: datetime | None = None
    keeps: timedelta | None = None
    taken_over: TakenOver | None = None
    timers: int = 0
    due: int = 0
    is_sweeping: bool = False
    pruned: Counter[str] = field(default_factory=Counter)
    attended: int = 0
    processes: int = 1
    has_more: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Duty:
    """Something to be done again and again: every `period` seconds by each process that does it.

    In a transaction `first` is the first thing that it locks, and `last` the last.
    """

    name: str
    period: float
    do: Callable[[Connection, Round], bool]
    first: Lock = Lock.NONE
    last: Lock = Lock.LIMITS


def _take_over(connection: Connection, done: Round) -> bool:
    done.taken_over = dead_processes.take_over(connection, done.crawl_id, done.worker_id)
    return bool(done.taken_over.claims)


def _stage_timers(connection: Connection, done: Round) -> bool:
    queues.mend(connection, done.crawl_id)
    done.timers = timers.stage_timers(connection, done.crawl_id)
    return bool(done.timers)


def _stage_results(connection: Connection, done: Round) -> bool:
    until: datetime = done.until or connection.execute(engine.NOW).scalar_one()
    done.due = expired_results.stage_results(connection, done.crawl_id, until)
    return bool(done.due)


def _sweep(connection: Connection, done: Round) -> bool:
    # A worker whose crawl has rules needs what compiles them; another process may lack it.
    lacks = not done.worker_id and not rule_matching.is_available()
    done.is_sweeping = item_sweeps.sweep(
        connection, done.crawl_id, leaves_rules=lacks, run=done.run
    )
    return done.is_sweeping


def _prune_journal(connection: Connection, done: Round) -> int:
    if done.keeps is None:
        return 0
    return pruning.prune_journal(connection, done.crawl_id, done.keeps)


def _prune(table: str, delete: Callable[[Connection, Round], int]) -> Duty:
    """Return the duty of deleting what nobody needs of a table."""

    def prune(connection: Connection, done: Round) -> bool:
        count = delete(connection, done)
        done.pruned[table] += count
        return count >= pruning.STEP

    return Duty(f"prune {table}", EVERY_TEN_MINUTES, prune)


def _rule(rule: pruning.Rule) -> Duty:
    return _prune(rule.table, lambda connection, _: pruning.prune(connection, rule))


def _of_depths(name: str, step: Callable[[Connection, int], bool], first: Lock, last: Lock) -> Duty:
    """Return a duty of crawls that track depths."""
    return Duty(name, EVERY_SECOND, lambda c, done: step(c, done.crawl_id), first, last)


def attend(connection: Connection, done: Round) -> bool:
    """Do a step of the duties of a crawl that nobody runs, if there is one with something due.

    Dead workers are buried and their claims given back, and what fell due becomes work, as the next
    start of the crawl would have it.
    """
    engine.hot_path(connection)
    done.processes = connection.execute(PROCESSES).scalar_one()
    asked = {"untrusted": server_clock.untrusted(connection), "limit": _MOST_CRAWLS}
    crawls = list(connection.execute(UNATTENDED, asked).scalars())
    return any(_attend(connection, crawl_id, done) for crawl_id in crawls)


def _attend(connection: Connection, crawl_id: int, done: Round) -> bool:
    here = {"crawl": crawl_id, "untrusted": server_clock.untrusted(connection)}
    if not connection.execute(TRY_ATTEND, here).scalar_one():
        return False
    row = connection.execute(STILL_UNATTENDED, here).first()
    if row is None:
        return False
    done.crawl_id, done.until = crawl_id, row.until
    if not runs.settle(connection, crawl_id):
        do(connection, _OF_RESTING if row.rests else _OF_UNATTENDED, done)
        if done.due and row.has_ended:  # what falls due begins another run
            runs.end_continued(connection, crawl_id)
        if not done.has_more:
            return False
    done.attended += 1
    return True


OF_CRAWL = (
    Duty("take over from the dead", EVERY_SECOND, _take_over, Lock.PROCESSES, Lock.LIMITS),
    Duty("stage timers", EVERY_SECOND, _stage_timers, Lock.WORK, Lock.WORK),
    Duty("stage results", EVERY_SECOND, _stage_results, Lock.ITEMS, Lock.WORK),
    Duty("sweep", EVERY_SECOND, _sweep, Lock.ITEMS, Lock.WORK),
)
"""What is done for a crawl: every second by its workers, else by whoever attends to it."""

OF_DEPTHS = (
    _of_depths("free pages", depth_sweeps.free, Lock.ITEMS, Lock.WORK),
    _of_depths("sweep depths", depth_sweeps.sweep, Lock.ITEMS, Lock.WORK),
    _of_depths("relax depths", relax.relax, Lock.DEPTHS, Lock.DEPTHS),
)
"""What is done, besides, for a crawl that tracks depths."""

_OF_UNATTENDED = (*OF_CRAWL, *OF_DEPTHS)
_OF_RESTING = tuple(duty for duty in _OF_UNATTENDED if duty.do is not _stage_results)

OF_DATABASE = (
    *map(_rule, pruning.RULES),
    _prune("cookies", lambda connection, _: pruning.prune_surplus(connection)),
    Duty("attend to crawls that nobody runs", OFTEN_ENOUGH, attend),
)
"""What any process does that may, each in a transaction of its own."""

OF_WORKER = (
    *OF_DATABASE,
    _prune("queues", lambda c, done: pruning.prune_queues(c, done.crawl_id)),
    _prune("crawl_events", lambda c, done: pruning.prune_events(c, done.crawl_id)),
    _prune("journal", _prune_journal),
)
"""The same, and what a worker prunes of its crawl."""


def do(connection: Connection, duties: Sequence[Duty], done: Round) -> Sequence[Duty]:
    """Do duties in turn; return those that are left to another transaction.

    A duty that did something has locked up to its `last`. Another one that would lock what comes
    before that is left, so a round without anything to do is one transaction.
    """
    held = Lock.NONE
    for place, duty in enumerate(duties):
        if duty.first < held:
            return duties[place:]
        if duty.do(connection, done):
            done.has_more, held = True, max(held, duty.last)
    return ()


def may(connection: Connection) -> bool:
    """Tell whether this process may do duties: not with a role that only reads, or on a standby."""
    return bool(connection.execute(MAY).scalar_one())


class Timetable:
    """When which duty is due in a process: at first at once, then by its period."""

    def __init__(self, duties: Iterable[Duty]) -> None:
        self._due_at = dict.fromkeys(duties, -math.inf)

    def due(self, now: float) -> list[Duty]:
        """Return the duties that are due, the first first; `now` is of any clock that goes on."""
        due = [duty for duty, due_at in self._due_at.items() if due_at <= now]
        return sorted(due, key=self._due_at.__getitem__)

    def did(self, duty: Duty, done: Round, *, began: float, now: float) -> None:
        """Note what a duty did: with more to do it is due at once.

        Many processes of one database look as often as a few, and none spends more than a fiftieth
        of its time with a duty that finds nothing to do.
        """
        usual = duty.period * max(1.0, done.processes / _FEW)
        self._due_at[duty] = now + (0.0 if done.has_more else max(usual, 50 * (now - began)))
