"""Upkeep: what a worker does for its crawl every second; one transaction if nothing is to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import queues, tallies
from scrapy_itemgraph.store.registry import item_sweeps, runs, tasks, workers
from scrapy_itemgraph.store.worklist import timers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.tasks import RegisteredTask
    from scrapy_itemgraph.model.work import TakenOver


TAKE_OVER, TIMERS, RESULTS, SWEEP, DONE = range(5)
"""The steps of a round, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What a transaction of a round did; None stands for steps that it did not come to.

    `due` counts items looked at because results of theirs fell due. `redefined` are the names of
    tasks that a later start declares otherwise than this worker. `next_step` is where the round
    goes on, in another transaction.
    """

    next_step: int
    taken_over: TakenOver | None = None
    timers: int = 0
    due: int = 0
    is_sweeping: bool | None = None
    redefined: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()


def keep_up(
    connection: Connection,
    crawl_id: int,
    worker_id: int,
    registered: Mapping[int, RegisteredTask],
    *,
    until: datetime | None,
    step: int = TAKE_OVER,
    told: Tallies | None = None,
    run: int = 0,
) -> Upkeep:
    """Do a round from a step on: take over from the dead, stage what fell due, sweep a step.

    It ends with the first step that has something to do, for what follows would lock items after
    queues; so a round without anything to do is one transaction. `until` is when results must have
    fallen due that become work; None is now. What the worker did since is `told`, at the end; it
    counts for the run of the number `run`.
    """
    taken = None
    if step <= TAKE_OVER:
        taken = workers.take_over(connection, crawl_id, worker_id)
        if taken.claims:
            return Upkeep(next_step=TIMERS, taken_over=taken)
    if step <= TIMERS:
        queues.mend(connection, crawl_id)
        if staged := timers.stage_timers(connection, crawl_id):
            return Upkeep(next_step=RESULTS, taken_over=taken, timers=staged)
    if step <= RESULTS:
        moment: datetime = until or connection.execute(engine.NOW).scalar_one()
        if due := timers.stage_results(connection, crawl_id, moment):
            return Upkeep(next_step=SWEEP, taken_over=taken, due=due)
    is_sweeping = item_sweeps.sweep(connection, crawl_id)
    redefined, left = tasks.outdated(connection, worker_id, registered)
    if told is not None and tallies.add(connection, crawl_id, told):
        runs.count(connection, crawl_id, run, [told])
    return Upkeep(
        next_step=DONE, taken_over=taken, is_sweeping=is_sweeping, redefined=redefined, left=left
    )
