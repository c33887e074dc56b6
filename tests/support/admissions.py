"""Workers that claim within limits, and the slots that they get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model.limits import SlotTerms, Terms, Use
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.worklist import claims
from scrapy_itemgraph.store.worklist.admission import Admission
from support.graphs import Crawl, committed

if TYPE_CHECKING:
    from collections.abc import Mapping


BATCH = 25
SECOND = Terms(gap=1.0)
FREE = Terms()


class Worker:
    """A worker that claims as `Claimer` does, with what it has in hand given by the test."""

    def __init__(self, crawl: Crawl, terms: Terms = SECOND, number: int | None = None) -> None:
        self.crawl = crawl
        self.number = number or crawl.worker
        self.terms = terms
        self.admission = Admission()

    def claim(
        self, limit: int = BATCH, *, rooms: Mapping[int, int] | None = None, alone: bool = False
    ) -> list[str]:
        """Claim, and return the items."""
        self.admission = admission_of(self.crawl, self.terms, rooms)
        with committed(self.crawl.connection):
            engines.hot_path(self.crawl.connection)
            self.claims = claims.claim(
                self.crawl.connection,
                crawl_id=self.crawl.id,
                worker_id=self.number,
                tasks=self.crawl.registration.tasks,
                limit=limit,
                alone=alone,
                admission=self.admission,
            )
        return [one.item.id for one in self.claims]

    def release(self) -> None:
        """Give back what was claimed, and all limits."""
        self.crawl.release(*self.claims, worker=self.number)
        self.give_up()

    def give_up(self) -> None:
        """Give all limits up."""
        holdings.renew(self.crawl.connection, self.number, [])


def admission_of(crawl, terms, rooms=None) -> Admission:
    """Return what a worker's claim is decided by; all slots are kept alike."""
    known = crawl.registration.limits
    return Admission(
        rooms=dict(rooms or {}),
        limits_of=known.of_task,
        terms={
            number: Terms(gap=one.gap or 0.0, concurrency=one.concurrency)
            for number, one in known.declared.items()
        },
        slot_terms=SlotTerms(terms),
    )


def host(number: int, prefix: str = "h") -> str:
    """Return a host's name."""
    return f"{prefix}{number:03}.example"


def fill(crawl, hosts, *, each=1, tags=("page",)) -> None:
    """Make work of several hosts."""
    crawl.do(
        *(
            CreateItem(f"{one}/{n}", tags=tags, data={"url": f"http://{one}/{n}"})
            for one in hosts
            for n in range(each)
        )
    )


def number_of(crawl, name, kind="slot") -> int:
    """Return a limit's number."""
    if kind == "slot":
        return stored_slots.intern_slots(crawl.connection, [name])[name]
    (row,) = crawl.rows("SELECT id FROM limits WHERE kind = :k AND name = :n", k=kind, n=name)
    return row.id


def hold(crawl, worker, number, terms=SECOND) -> None:
    """Let a worker have a limit."""
    use = Use(limit_id=number, declared=terms)
    assert holdings.acquire(crawl.connection, worker, [use])[number].units


def hosts_of(names) -> list[str]:
    """Return the hosts of items."""
    return [name.split("/")[0] for name in names]


def held_by(crawl, worker) -> set[str]:
    """Return the names of what a worker has."""
    rows = crawl.rows(
        "SELECT l.name FROM holdings h JOIN limits l ON l.id = h.limit_id "
        "WHERE h.worker_id = :worker AND h.units > 0",
        worker=worker,
    )
    return {row.name for row in rows}
