"""Work in flight: what the engine of each worker has, or may have.

It is written to the table `handed` before anything is handed out: of the work of a worker that died
this alone is suspect.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.limits import MANY
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.limits import SlotTerms
    from scrapy_itemgraph.model.work import Claim, InFlight, Pair

WRITE = text("""
    INSERT INTO handed AS h (worker_id, items, tasks)
    VALUES (:worker, CAST(:items AS bigint[]), CAST(:tasks AS int[]))
    ON CONFLICT (worker_id) DO UPDATE SET items = excluded.items, tasks = excluded.tasks
""")

# A crash of PostgreSQL may forget what this transaction wrote: then it blames nobody.
HURRY = text("SELECT set_config('synchronous_commit', 'off', true)")

FORGET = text("DELETE FROM handed WHERE worker_id = ANY (CAST(:workers AS int[]))")


def write(connection: Connection, worker_id: int, pairs: Collection[Pair]) -> None:
    """Write that of a worker's work these pairs alone are in flight."""
    connection.execute(WRITE, {"worker": worker_id, **columns(pairs, items=0, tasks=1)})


def write_alone(connection: Connection, worker_id: int, pairs: Collection[Pair]) -> None:
    """Do the same in a transaction that does nothing else."""
    connection.execute(HURRY)
    write(connection, worker_id, pairs)


def forget(connection: Connection, worker_ids: Sequence[int]) -> None:
    """Forget what workers had that are no more."""
    connection.execute(FORGET, {"workers": list(worker_ids)})


def first_of(claims: Iterable[Claim], given: InFlight, terms: SlotTerms) -> set[Pair]:
    """Return which new claims may begin at once: as many as the engine and their slots take.

    A slot that was not in hand before the claim has its places whole.
    """
    taken: Counter[str] = Counter()
    first: set[Pair] = set()
    for claim in claims:
        if len(first) == given.room:
            break
        places = given.places.get(claim.slot)
        if taken[claim.slot] < (_places(terms, claim.slot) if places is None else places):
            taken[claim.slot] += 1
            first.add((claim.item_id, claim.task_id))
    return first


def _places(slot_terms: SlotTerms, slot: str) -> int:
    terms = slot_terms.of(slot)
    return 1 if terms.is_exclusive else terms.concurrency or MANY
