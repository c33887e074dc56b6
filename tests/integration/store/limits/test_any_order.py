"""Limits hold in any order of events: a model beside the database."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from support.limits_held import HELD, later, limit, lose_sign_of

from scrapy_itemgraph.model.limits import Grant, Terms, Use
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import workers

if TYPE_CHECKING:
    from support.graphs import Crawl

pytestmark = pytest.mark.server


@dataclass
class Hand:
    """What a worker of the model believes to have of one limit, and what it did with it."""

    terms: Terms
    units: int = 0
    due: float = 0.0
    running: int = 0
    started: float | None = None  # and not told yet

    @property
    def at_once(self) -> int:
        """How many requests the worker may run."""
        return (self.terms.concurrency or 3) if self.terms.gap and self.units else self.units


@dataclass
class Worker:
    """A worker of the model."""

    number: int
    crawl: Crawl
    hands: dict[int, Hand]


class Model:
    """Workers that take, use and lose limits in any order, and what must hold meanwhile."""

    LIMITS = (
        ("slot", "whole.example", Terms(gap=2.0)),
        ("slot", "both.example", Terms(gap=0.7, concurrency=2)),
        ("slot", "shared.example", Terms(concurrency=5)),
        ("slot", "changed.example", Terms(concurrency=3)),
        ("task", "shop/parse", Terms(concurrency=2)),
    )

    def __init__(self, crawls: list[Crawl], seed: int) -> None:
        self.random = random.Random(seed)
        self.connection = crawls[0].connection
        self.terms = {
            limit(self.connection, name, kind=kind): terms for kind, name, terms in self.LIMITS
        }
        self.started = dict.fromkeys(self.terms, float("-inf"))
        self.ahead = 0.0
        self.workers = [self.new_worker(crawl) for crawl in (*crawls, *crawls, crawls[0])]
        self.starts: Counter[int] = Counter()

    def new_worker(self, crawl: Crawl) -> Worker:
        hands = {number: Hand(terms) for number, terms in self.terms.items()}
        return Worker(crawl.new_worker(), crawl, hands)

    @property
    def now(self) -> float:
        return time.monotonic() + self.ahead

    def step(self) -> None:
        """Let one thing happen, and check."""
        kinds = {
            self.look: 8,
            self.renew: 16,
            self.start: 24,
            self.end: 8,
            self.wait: 12,
            self.die: 2,
            self.stop: 2,
            self.bury: 2,
            self.change: 1,
        }
        (event,) = self.random.choices(list(kinds), list(kinds.values()))
        event(self.random.choice(self.workers))
        self.check()

    def look(self, worker: Worker) -> None:
        """Take what a claim found work of."""
        new = [
            number
            for number, hand in worker.hands.items()
            if not hand.units and self.random.random() < 0.5
        ]
        uses = [
            Use(limit_id=one, declared=self.terms[one], wants=self.wants(one), looking=True)
            for one in new
        ]
        self.take(worker, holdings.acquire(self.connection, worker.number, uses))

    def renew(self, worker: Worker) -> None:
        """Tell and ask about all that is had, and some that is not."""
        uses = []
        for number, hand in worker.hands.items():
            if hand.units or hand.running or self.random.random() < 0.4:
                wants = self.wants(number)
                if hand.units and not hand.running and self.random.random() < 0.3:
                    wants = 0
                uses.append(
                    Use(
                        limit_id=number,
                        declared=self.terms[number],
                        wants=wants,
                        running=hand.running,
                        spare=not hand.running and self.random.random() < 0.3,
                        last_ago=self.told(hand),
                    )
                )
        self.take(worker, holdings.renew(self.connection, worker.number, uses))

    def wants(self, number: int) -> int:
        return self.random.randint(1, self.terms[number].concurrency or 1)

    def told(self, hand: Hand) -> float | None:
        """Return how long ago something started that was not told yet."""
        started, hand.started = hand.started, None
        return None if started is None else self.now - started

    def take(self, worker: Worker, grants: dict[int, Grant]) -> None:
        for number, grant in grants.items():
            hand = worker.hands[number]
            hand.terms, hand.units = grant.in_force, grant.units
            hand.due = self.now + grant.due_in

    def start(self, worker: Worker) -> None:
        """Start a request of each limit that lets one start."""
        for number, hand in worker.hands.items():
            if hand.running < hand.at_once and hand.due <= self.now:
                gap, since = hand.terms.gap, self.now - self.started[number]
                assert since >= gap - 0.05, f"{since:.2f} s after another"
                hand.due = self.now + gap
                hand.started = self.started[number] = self.now
                hand.running += 1
                self.starts[number] += 1

    def end(self, worker: Worker) -> None:
        """End a request of each limit."""
        for hand in worker.hands.values():
            hand.running = max(0, hand.running - 1)

    def wait(self, _: Worker) -> None:
        """Let time pass."""
        seconds = self.random.choice([0.2, 0.5, 1.0, 3.0])
        later(self.connection, seconds)
        self.ahead += seconds

    def die(self, worker: Worker) -> None:
        """Start what may start, give no sign of life any more, and begin anew."""
        self.start(worker)
        lose_sign_of(self.connection, worker.number)
        self.replace(worker)

    def stop(self, worker: Worker) -> None:
        """Stop, and begin anew."""
        uses = [
            Use(limit_id=number, declared=self.terms[number], wants=0, last_ago=self.told(hand))
            for number, hand in worker.hands.items()
        ]
        holdings.release_all(self.connection, worker.number, uses)
        workers.stop(self.connection, worker.number, "finished")
        self.replace(worker)

    def replace(self, worker: Worker) -> None:
        self.workers[self.workers.index(worker)] = self.new_worker(worker.crawl)

    def bury(self, worker: Worker) -> None:
        """Take over from the dead."""
        worker.crawl.take_over(worker.number)

    def change(self, _: Worker) -> None:
        """Let a person set a gap, or take it back."""
        gap = self.random.choice([None, 0.7, 1.5])
        changed = "UPDATE limits SET set_gap = :gap WHERE name = 'changed.example'"
        self.connection.execute(sa.text(changed), {"gap": gap})

    def check(self) -> None:
        """Compare what the database has with what workers believe, and with the limits."""
        rows = self.connection.execute(sa.text(HELD)).all()
        alive = {worker.number: worker for worker in self.workers}
        there = [row for row in rows if row.units and (row.free_in is None or row.free_in > 0)]
        for number, terms in self.terms.items():
            ours = [row for row in there if row.limit_id == number]
            assert len(ours) <= 1 or not any(row.is_exclusive for row in ours)
            cap = terms.concurrency or 1
            assert sum(row.units for row in ours) <= cap
            believed = [worker.hands[number] for worker in self.workers]
            having = [hand for hand in believed if hand.units]
            assert len(having) <= 1 or not any(hand.terms.gap for hand in having)
            if terms.concurrency is not None:
                assert sum(hand.running for hand in believed) <= cap
        for row in rows:
            assert row.free_in is None or row.worker_id not in alive
        had = {(row.limit_id, row.worker_id): row.units for row in there}
        for worker in self.workers:
            for number, hand in worker.hands.items():
                assert hand.units <= had.get((number, worker.number), 0)


@pytest.mark.parametrize("seed", range(8))
def test_limits_hold_in_any_order_of_events(connection, crawl, other_crawl, seed):
    """Whatever workers do in whatever order, and whenever they die, each limit is kept."""
    model = Model([crawl, other_crawl], seed)

    for _ in range(300):
        model.step()

    assert model.starts.total() > 15
