"""Health: whether a crawl is well or needs a person, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING

from scrapy_itemgraph.model import counts, moments

if TYPE_CHECKING:
    from datetime import datetime

MOST_LED = 10
"""More pages than these whose redirects led to a known page are worth a look."""

MANY = 1000
"""So many open failures are counted; of more a sentence says "1,000 or more"."""

LAST_RUNS = 10
"""So many runs are looked at for how long a crawl has been broken."""


class Health(StrEnum):
    """How a crawl is; `word` is what people read."""

    RED = "red"
    AMBER = "amber"
    GREEN = "green"

    @property
    def word(self) -> str:
        """The word for people."""
        return _WORDS[self]


_WORDS = {Health.RED: "broken", Health.AMBER: "needs a look", Health.GREEN: "well"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run did; `error` is the sentence of its last worker that ended by an error."""

    number: int
    started_at: datetime
    pages: int
    failures: int
    error: str | None

    @property
    def health(self) -> Health | None:
        """How the run went; None: it has done nothing."""
        has_trouble = self.failures > 0 or self.error is not None
        if self.pages:
            return Health.AMBER if has_trouble else Health.GREEN
        return Health.RED if has_trouble else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the health of a crawl is judged by.

    `paused_for` is why a machine paused it, None where none did. `runs` are the last ones, the
    newest first. `failures` that are open are counted up to `MANY`; `last_failure` names the type
    of the last one, and its task. `led_to_known` are pages, counted up to one more than `MOST_LED`.
    """

    paused_for: str | None
    runs: tuple[RunFacts, ...]
    failures: int
    last_failure: str | None
    led_to_known: int


def judge(facts: Facts) -> tuple[Health, str]:
    """Return the health of a crawl, and why, in a sentence without a full stop."""
    if facts.paused_for is not None:
        return Health.RED, f"it was paused, and not by a person: {facts.paused_for}"
    broken = list(takewhile(lambda run: run.health is Health.RED, facts.runs))
    if broken:
        return Health.RED, _no_page(broken, facts.last_failure)
    worth_a_look = [*_open_failures(facts), *_led(facts)]
    if worth_a_look:
        return Health.AMBER, "; ".join(worth_a_look)
    return Health.GREEN, "no failure is open" if facts.runs else "there was no run yet"


def _no_page(broken: list[RunFacts], last_failure: str | None) -> str:
    """Say that the last runs did no page, since when, and what went wrong."""
    newest, oldest = broken[0], broken[-1]
    are = f"run {newest.number}"
    if newest is not oldest:
        are = f"runs {oldest.number} to {newest.number}"
    why = newest.error or last_failure or counts.many(newest.failures, "failure")
    return f"{are} did no page, since {moments.to_second(oldest.started_at)}: {why}"


def _open_failures(facts: Facts) -> list[str]:
    if not facts.failures:
        return []
    number = f"{MANY:,} or more" if facts.failures >= MANY else f"{facts.failures:,}"
    are = "failure is" if facts.failures == 1 else "failures are"
    last = "" if facts.last_failure is None else f", the last: {facts.last_failure}"
    return [f"{number} {are} open{last}"]


def _led(facts: Facts) -> list[str]:
    if facts.led_to_known <= MOST_LED:
        return []
    return [f"redirects of more than {MOST_LED} pages led to a page that was known"]
