"""Holders of a limit: which worker has how much of it, and until when."""

from __future__ import annotations

from typing import NamedTuple

from scrapy_itemgraph.store.sql_conditions import seconds_since, seconds_until
from scrapy_itemgraph.tools import wording

_SILENT = 10.0  # seconds without a sign of life that are told
_SHORT = 10.0  # seconds that are told with a decimal

# Of a holding `h`, the process `o` that has it, and the crawl `c` of that; `is_own` stands before.
HOLDER = f"""h.worker_id, h.units, h.is_exclusive, o.host, o.process_id, c.name AS crawl,
        {seconds_until("h.until")} AS free_in,
        {seconds_since("o.seen_at")} AS silent_for,
        {seconds_until("o.lease_until")} AS given_up_in"""


class Holder(NamedTuple):
    """A worker that has some of a limit.

    It `is_own` if it lives and is of the crawl that is explained; `free_in` seconds a dead one's
    part comes free. It was silent for `silent_for` seconds, and is taken for dead in `given_up_in`
    seconds if it stays so.
    """

    is_own: bool | None
    worker_id: int
    units: int
    is_exclusive: bool
    host: str | None
    process_id: int | None
    crawl: str | None
    free_in: float | None
    silent_for: float | None
    given_up_in: float | None

    def __str__(self) -> str:
        if self.host is None:
            return f"worker {self.worker_id}"
        process = f"process {self.process_id} on {self.host}"
        return f"worker {self.worker_id} of the crawl {self.crawl!r} ({process})"

    @property
    def until(self) -> str:
        """Say until when it has its part."""
        if self.free_in is not None:
            return f"it died, and its requests may run for another {period(self.free_in)}"
        given_up_in = self.given_up_in
        if given_up_in is None or self.silent_for is None or self.silent_for < _SILENT:
            return "until it gives way or has no work of it"
        return (
            f"and gave no sign of life for {period(self.silent_for)}; it is taken for dead in "
            f"{period(max(given_up_in, 0.0))} if it gives none"
        )


def period(seconds: float) -> str:
    """Write a period; a short one with a decimal."""
    return f"{seconds:.1f}s" if 0 <= seconds < _SHORT else wording.format_period(seconds)
