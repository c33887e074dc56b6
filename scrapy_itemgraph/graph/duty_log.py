"""What is logged of duties: what was pruned, and what was done for crawls that nobody runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scrapy_itemgraph.graph import startup_report
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_itemgraph.store.registry.duties import Round

logger = logs.logger(__name__)


def tell(rounds: Sequence[Round]) -> None:
    """Log what transactions of a process did; nothing where they found nothing to do."""
    pruned: Counter[str] = Counter()
    for one in rounds:
        pruned += one.pruned
        if one.attended:
            _tell_attended(one)
    found = ", ".join(f"{number} {table}" for table, number in pruned.items())
    if found:
        logger.debug("Pruned %s", found, extra={"action": "pruned"})


def _tell_attended(done: Round) -> None:
    claims = 0
    if done.taken_over is not None:
        claims = done.taken_over.claims
        startup_report.tell_given_up(done.taken_over.given_up)
    logger.debug(
        "Did duties of crawl %d, which nobody runs: %d claims given back, %d timers, %d items with "
        "results that fell due",
        done.crawl_id,
        claims,
        done.timers,
        done.due,
        extra={"action": "attended"},
    )
