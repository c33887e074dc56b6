"""What politeness costs in claim time with ten, a thousand and a hundred thousand slots.

Three databases are claimed from in turn, by a worker that has in hand what a real one would. Run
it by `make bench`. The absolute figures are this machine's; the ratios are what matters.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.races import Crawl

from scrapy_itemgraph import task
from scrapy_itemgraph.model.limits import SlotTerms, Terms
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist.admission import Admission
from scrapy_itemgraph.throttle import limiter, limiter_set
from scrapy_itemgraph.throttle.limiter_set import Limiters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_itemgraph.model.work import Claim

SLOTS = (10, 1_000, 100_000)
PIECES = 200_000
BATCH = 25
ROUNDS, WARM = 220, 20
TICK = 1.0
TABLES = ("items", "aliases", "tags", "work")


@dataclass(frozen=True)
class Mode:
    """How slots are kept, and how many seconds a worker needs for what a claim took."""

    title: str
    terms: Terms | None
    seconds: float


MODES = (
    Mode("nothing limited", None, 0.05),
    Mode("8 at once", Terms(concurrency=8), 0.05),
    Mode("delay of 1 s", Terms(gap=1.0, concurrency=8), 1.05),
)


class Pages:
    """One task, of which each item has work."""

    @task(tags=["page"])
    def parse(self, response, item): ...


FILL = (
    "INSERT INTO limits (name) SELECT 's' || n || '.example' FROM generate_series(1, :slots) n",
    """
    INSERT INTO queues (crawl_id, slot_id, is_live, next_at)
    SELECT :crawl, id, true, now() - interval '1 hour' + id * interval '1 ms'
    FROM limits WHERE kind = 'slot' AND name <> ''
    """,
    """
    INSERT INTO items (crawl_id, slot_id, name, data)
    SELECT :crawl, s.id, 'http://' || s.name || '/' || n,
        json_build_object('url', 'http://' || s.name || '/' || n)
    FROM generate_series(1, :each) n, limits s WHERE s.kind = 'slot' AND s.name <> ''
    """,
    """
    INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT :crawl, encode(substring(sha256(convert_to(name, 'UTF8')) FOR 16), 'hex')::uuid AS key,
        name, id FROM items ORDER BY key
    """,
    "INSERT INTO tags (item_id, tag_name, crawl_id) SELECT id, 'page', :crawl FROM items",
    """
    INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice)
    SELECT i.id, k.task_id, :crawl, q.id, k.id, false, 0
    FROM kinds k CROSS JOIN items i JOIN queues q ON q.slot_id = i.slot_id ORDER BY i.id
    """,
)

# What a worker's clock says has passed, the database takes for passed as well.
PASS = """
    UPDATE limits SET last_at = last_at - make_interval(secs => :seconds)
    WHERE id = ANY (CAST(:limits AS int[]))
"""


class Clock:
    """The time of the worker that claims, which its downloads do not take really."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Worker:
    """A worker of a graph with so many slots, and what its claims cost."""

    crawl: Crawl
    slots: int
    mode: Mode
    clock: Clock
    times: list[float] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)
    settled: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.number = self.crawl.worker()
        self.limiters = Limiters(lambda _: self.mode.terms or Terms(), lambda _: None)
        self.settled_at = self.clock.now

    def round(self) -> None:
        """Claim a batch, download it, give it back, and settle when it is time."""
        claims = self._claim()
        self._download(claims)
        with self.crawl.engine.begin() as connection:
            engines.hot_path(connection)
            stored_claims.release(connection, claims, self.number)
        self._wait(self.mode.seconds)
        if self.mode.terms is not None and self.clock.now - self.settled_at >= TICK:
            self._settle()

    def _claim(self) -> list[Claim]:
        admission = None
        if self.mode.terms is not None:
            admission = Admission(
                rooms=self.limiters.rooms({}),
                shared=self.limiters.shared,
                slot_terms=SlotTerms(self.mode.terms),
            )
        start = time.perf_counter()
        with self.crawl.engine.begin() as connection:
            engines.hot_path(connection)
            claims = stored_claims.claim(
                connection,
                crawl_id=self.crawl.id,
                worker_id=self.number,
                tasks=self.crawl.tasks,
                limit=BATCH,
                admission=admission,
            )
        self.times.append((time.perf_counter() - start) * 1000)
        self.claimed.append(len(claims))
        if admission is not None:
            self.limiters.take(admission.grants.values(), self.clock.now)
        return claims

    def _download(self, claims: list[Claim]) -> None:
        if self.mode.terms is None:
            return
        for one in claims:
            slot = self.limiters.slot(one.slot)
            assert slot is not None
            slot.begin(self.clock.now)
            slot.starts.sent(self.clock.now)
            slot.end(self.clock.now, 0.0)

    def _settle(self) -> None:
        uses = self.limiters.uses({})
        start = time.perf_counter()
        with self.crawl.engine.begin() as connection:
            engines.hot_path(connection)
            grants = holdings.renew(connection, self.number, uses)
        self.settled.append((time.perf_counter() - start) * 1000)
        self.limiters.take(grants.values(), self.clock.now)
        self.settled_at = self.clock.now

    def _wait(self, seconds: float) -> None:
        self.clock.now += seconds
        if self.mode.terms is not None and self.mode.terms.is_exclusive:
            used = [one.limit_id for one in self.limiters if one.limit_id is not None]
            self.crawl.execute(PASS, seconds=seconds, limits=used)

    def forget_times(self) -> None:
        """Begin to measure."""
        self.times, self.claimed, self.settled = [], [], []

    def stop(self) -> None:
        """Give all limits up."""
        with self.crawl.engine.begin() as connection:
            holdings.release_all(connection, self.number, [])


def fill(engine: sa.Engine, slots: int) -> Crawl:
    """Fill an empty graph with as much work, however many slots it has."""
    crawl = Crawl(engine, Pages)
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        # A kind is made with its first work.
        kind = "INSERT INTO kinds (task_id) SELECT id FROM tasks ON CONFLICT DO NOTHING"
        connection.exec_driver_sql(kind)
        given: Mapping[str, Any] = {"crawl": crawl.id, "slots": slots, "each": PIECES // slots}
        for statement in FILL:
            text = sa.text(statement)
            connection.execute(text, {key: given[key] for key in text._bindparams})
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    return crawl


def main() -> None:
    """Measure, and print."""
    from conftest import new_database
    from support import servers

    clock = Clock()
    limiter_set.time = limiter.time = clock  # type: ignore[attr-defined]
    with ExitStack() as stack:
        server = stack.enter_context(servers.server())
        crawls = {}
        for slots in SLOTS:
            engine = engines.sync_engine(stack.enter_context(new_database(server)))
            stack.callback(engine.dispose)
            with engine.begin() as connection:
                migrate.ensure(connection, auto=True)
            start = time.perf_counter()
            crawls[slots] = fill(engine, slots)
            print(f"{slots:>9,} slots filled in {time.perf_counter() - start:.0f} s", flush=True)
        print(
            f"\nclaims of up to {BATCH}, median ms{'slots':>11}{'claim':>8}{'work':>6}"
            f"{'to 10':>8}{'to none':>9}{'settle':>8}"
        )
        unlimited: dict[int, float] = {}
        for mode in MODES:
            _measure(
                [Worker(crawl, slots, mode, clock) for slots, crawl in crawls.items()], unlimited
            )


def _measure(workers: list[Worker], unlimited: dict[int, float]) -> None:
    for number in range(ROUNDS + WARM):
        if number == WARM:
            for one in workers:
                one.forget_times()
        for one in workers:
            one.round()
    few = statistics.median(workers[0].times)
    for one in workers:
        one.stop()
        cost = statistics.median(one.times)
        beside = unlimited.setdefault(one.slots, cost)
        ratios = f"{cost / few:>8.2f}{cost / beside:>9.2f}"
        settled = f"{statistics.median(one.settled):>8.2f}" if one.settled else ""
        print(
            f"{one.mode.title:<28}{one.slots:>10,}{cost:>8.2f}"
            f"{statistics.median(one.claimed):>6.0f}{ratios}{settled}",
            flush=True,
        )


if __name__ == "__main__":
    main()
