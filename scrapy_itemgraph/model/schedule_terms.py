"""What a person says of a schedule, and what is known of one that is there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.schedules import EPOCH, CatchUp, Kind, Overlap, Rule

if TYPE_CHECKING:
    from datetime import datetime

GRACE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """When a crawl is to be started, again and again.

    `catch_up` says what is done about due times that passed while no runner lived, `overlap` about
    those that come while the crawl is active still. With `catch_up` "none" a due time runs if it is
    noticed within `grace`. Each start is later by up to `jitter`. `time_limit` is that of its
    processes; None: the crawl's.
    """

    rule: Rule
    catch_up: CatchUp = CatchUp.ONE
    overlap: Overlap = Overlap.SKIP
    grace: timedelta = GRACE
    jitter: timedelta | None = None
    time_limit: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule of a crawl, by its number.

    `state` is the crawl's. `next_at` is when it is due next (None: never again), `last_at` when it
    was last; `missed` counts due times that were passed over since nobody noticed them in time.
    """

    id: int
    crawl: str
    project: str
    state: str
    kind: str
    spec: str
    time_zone: str
    catch_up: str
    overlap: str
    grace: timedelta
    jitter: timedelta | None
    time_limit: timedelta | None
    is_enabled: bool
    starts_at: datetime
    next_at: datetime | None
    last_at: datetime | None
    missed: int
    created_at: datetime
    created_by: str | None

    @property
    def rule(self) -> Rule:
        """When it is due, as it was stored."""
        return Rule(Kind(self.kind), self.spec, self.time_zone, self.starts_at)

    def read_rule(self) -> Rule:
        """Return when it is due, from which due times can be computed.

        Raises:
            OperationError: its rule cannot be read here.

        """
        try:
            return stored_rule(self.kind, self.spec, self.time_zone, self.starts_at)
        except ValueError as error:
            raise OperationError(
                f"the schedule {self.id} cannot be read: {error}; scrapy itemgraph schedules set "
                f"{self.id} --at 03:00 --time-zone UTC, say, gives it another rule"
            ) from None


def stored_rule(kind: str, spec: str, time_zone: str, starts_at: datetime) -> Rule:
    """Return a rule that was stored.

    Raises:
        ValueError: it cannot be read here: a statement wrote it that checked nothing, or this
            host's data of time zones are older than its zone.

    """
    begin = starts_at if kind == Kind.EVERY else EPOCH
    return Rule.read({kind: spec}, time_zone=time_zone, starts_at=begin)
