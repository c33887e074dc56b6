"""Runners as people see them: which live, what their places have, and how their hosts are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.store.registry.runners import STOPPED
from scrapy_itemgraph.store.sql_conditions import IS_DEAD
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

LIST = text(f"""
    SELECT r.name, r.project, p.id IS NOT NULL AND NOT {IS_DEAD} AS lives,
        coalesce(p.reason = '{STOPPED}', false) AS was_stopped, p.host, p.process_id,
        p.seen_at, r.places,
        (SELECT count(*) FROM places x WHERE x.runner_id = r.id AND x.job_id IS NOT NULL) AS busy,
        r.tags, r.only_tagged, r.preempts, r.drains_since, r.low, r.memory_free, r.disk_free,
        r.disk_total, r.load, r.logs, r.created_at
    FROM runners r LEFT JOIN processes p ON p.id = r.process_id
    WHERE CAST(:name AS text) IS NULL OR r.name = :name
    ORDER BY r.name
""")  # noqa: S608 - our own condition

_PLACE = """x.number, c.name AS crawl, x.job_id AS job, x.since, k.name AS kept_for,
        l.name AS locked_to, x.lock
    FROM runners r JOIN places x ON x.runner_id = r.id
    LEFT JOIN crawls c ON c.id = x.crawl_id
    LEFT JOIN crawls k ON k.id = x.kept_for
    LEFT JOIN crawls l ON l.id = x.locked_to"""

PLACES = text(f"SELECT {_PLACE} WHERE r.name = :name ORDER BY x.number")

ALL_PLACES = text(f"""
    SELECT r.name AS runner, {_PLACE}
    ORDER BY r.name, x.number
""")

NAMES = text("SELECT name FROM runners ORDER BY name")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLine:
    """A runner: its present or last process, what it takes, and how its host is.

    It `was_stopped` if its last process was told to end, and did. `busy` counts places with a
    process. `low` is why nothing is started, `drains_since` since when
    nothing is, for somebody said so. Memory and disk are bytes, `load` is over a minute.
    """

    name: str
    project: str
    lives: bool
    was_stopped: bool
    host: str | None
    process_id: int | None
    seen_at: datetime | None
    places: int
    busy: int
    tags: list[str]
    only_tagged: bool
    preempts: bool
    drains_since: datetime | None
    low: str | None
    memory_free: int | None
    disk_free: int | None
    disk_total: int | None
    load: float | None
    logs: str | None
    created_at: datetime

    @property
    def state(self) -> str:
        """Its state in a word."""
        if not self.lives:
            return "ended" if self.was_stopped else "gone"
        return "drains" if self.drains_since else "low" if self.low else "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceLine:
    """A place of a runner: the crawl and job that it has, and since when.

    `kept_for` is the better crawl for which its process ends, `locked_to` the one crawl that it
    takes, and `lock` for how long.
    """

    number: int
    crawl: str | None
    job: int | None
    since: datetime | None
    kept_for: str | None
    locked_to: str | None
    lock: str | None


def runners(connection: Connection, name: str | None = None) -> list[RunnerLine]:
    """Return all runners by name, or the one of a name."""
    return [RunnerLine(**row) for row in connection.execute(LIST, {"name": name}).mappings()]


def places(connection: Connection, name: str) -> list[PlaceLine]:
    """Return the places of a runner."""
    return [PlaceLine(**row) for row in connection.execute(PLACES, {"name": name}).mappings()]


def all_places(connection: Connection) -> dict[str, list[PlaceLine]]:
    """Return the places of all runners, by the runner's name."""
    found: dict[str, list[PlaceLine]] = defaultdict(list)
    for row in connection.execute(ALL_PLACES).mappings():
        given = dict(row)
        found[given.pop("runner")].append(PlaceLine(**given))
    return found


def not_found(connection: Connection, name: str) -> NotFoundError:
    """Return the error that there is no runner of a name."""
    known = list(connection.execute(NAMES).scalars())
    listed = ", ".join(known) or "none yet; scrapy itemgraph work starts one"
    return NotFoundError(
        f"there is no runner {name!r:.80}{closest(name, known)}; there are {listed}", known
    )


def runner(connection: Connection, name: str) -> RunnerLine:
    """Return one runner.

    Raises:
        NotFoundError: there is none of this name.

    """
    found = runners(connection, name)
    if not found:
        raise not_found(connection, name)
    return found[0]


def terms(connection: Connection, name: str) -> dict[str, Any]:
    """Return what of a runner decides which crawls it takes, for an event."""
    one = runner(connection, name)
    names = ("project", "tags", "only_tagged", "places", "preempts")
    return {"runner": name, **{each: getattr(one, each) for each in names}}
