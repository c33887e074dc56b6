"""Limits: what settings and tasks promise to websites, and what workers have and get of it.

A delay has three names. Settings and tasks *declare* it (`Limit`, `Use.declared`). A person may
have *set* one, or robots.txt ask for one (`set_gap`). What follows from both is *in force*
(`Grant.in_force`). `Terms` are the gap and the concurrency of each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.rates import SHORTEST_GAP
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_itemgraph.model.rates import RateLimit
    from scrapy_itemgraph.model.tasks import Task

GLOBAL = "global"
TASK = "task"
GROUP = "group"
TAGS = "tags"
_WILD = re.compile(r"[*?\[]")
_JOINT = re.compile(r"[:._-]")

# Work is claimed, and a limit taken, so long before the next start is due, in seconds.
LOOKAHEAD = 0.3
# So many starts are without a limit, and no more are counted ahead.
MANY = 10_000


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit on work: `gap` seconds at least between two starts, `concurrency` at once.

    Kind and name together are its key: all work that names the same one shares it.
    Of kind "tags" it holds for items that have all of `tags`; `throttles` says of a task that its
    latencies set a delay.
    """

    kind: str
    name: str
    gap: float | None
    concurrency: int | None
    tags: tuple[str, ...] = ()
    throttles: bool = False

    @property
    def terms(self) -> Terms:
        """How it is kept; where a delay is learned, by one worker at a time."""
        gap = self.gap or 0.0
        gap = max(gap, SHORTEST_GAP) if self.throttles else gap
        is_none = not gap and self.concurrency is None  # a rate that is too high to be told from it
        return Terms(gap=gap, concurrency=MANY if is_none else self.concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a limit is kept: the least seconds between two starts, and how many run at once."""

    gap: float = 0.0
    concurrency: int | None = None
    delay: float | None = None  # seconds on average, where jitter lets some gaps be shorter

    @property
    def mean_delay(self) -> float:
        """The seconds between two starts on average: jitter makes some longer, some shorter."""
        return self.gap if self.delay is None else max(self.delay, self.gap)

    @property
    def is_exclusive(self) -> bool:
        """Whether only one worker at a time may start anything."""
        return self.gap > 0

    @property
    def binds(self) -> bool:
        """Whether there is anything to keep to."""
        return self.is_exclusive or self.concurrency is not None


@dataclass(frozen=True, slots=True)
class SlotTerms:
    """How slots are kept at a moment, by name: as `own` says, and all others as `default`."""

    default: Terms = Terms()
    own: Mapping[str, Terms] = field(default_factory=dict)

    def of(self, name: str) -> Terms:
        """Return how a slot is kept; where there is no slot nothing is to be kept to."""
        return self.own.get(name, self.default) if name else Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a worker has of a limit, and wants of it.

    `wants` is how many units it could use, 0 to give it up, `running` how many it cannot give back
    just now; `last_ago` is how long ago its last request started, in seconds. What is `spare` goes
    to whoever asks. Who is only `looking` for work has none in hand that waits for the limit.
    """

    limit_id: int
    declared: Terms
    wants: int = 1
    running: int = 0
    spare: bool = False
    looking: bool = False
    last_ago: float | None = None
    throttle: float | None = None
    latency: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a worker may do under a limit: how many at once, the first one when; in seconds.

    Without units, `again_in` is when asking again may help. `set_gap` is the gap that a person set
    or robots.txt asks for: it holds beside the declared one, or in its place if `set_replaces`.
    `others_ask` tells that somebody waits for what this worker has.
    """

    limit_id: int
    kind: str
    name: str
    in_force: Terms
    units: int
    set_gap: float = 0.0
    set_replaces: bool = False
    due_in: float = 0.0
    blocked_in: float = 0.0
    again_in: float = 0.0
    throttle: float | None = None
    others_ask: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFeedback:
    """What a site's answer taught of its slot: leave it alone for a while, or a delay to keep."""

    slot: str
    blocked_for: float | None = None
    blocked_by: str = ""
    crawl_delay: float | None = None


def of_task(
    task: Task,
    *,
    spider: str,
    rate_limit: RateLimit | None,
    rate_groups: Mapping[str, RateLimit],
) -> tuple[Limit, ...]:
    """Return the limits that apply to a task's work: global, groups, its own, and those by tag."""
    found = []
    if rate_limit is not None and not task.exempt_global:
        found.append(of_all(rate_limit))
    found += [
        _limit(GROUP, pattern, rate)
        for pattern, rate in rate_groups.items()
        if fnmatchcase(task.name, pattern)
    ]
    own = _own(task, f"{spider}/{task.name}")
    if own is not None:
        found.append(own)
    for tags, rate in task.rate_limit_by_tag.items():
        name = f"{spider}/{task.name}:{','.join(_escaped(tag) for tag in sorted(tags))}"
        found.append(_limit(TAGS, name, rate, tags=tuple(sorted(tags))))
    return tuple(found)


def of_all(rate_limit: RateLimit) -> Limit:
    """Return the limit that holds for all requests but those of exempt tasks."""
    return _limit(GLOBAL, "", rate_limit)


def strays(rate_groups: Iterable[str], task_names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the groups that match none of the tasks, each with what `closest` hints at."""
    names = sorted(set(task_names))
    return [
        (pattern, _hint(pattern, names))
        for pattern in rate_groups
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def unknown_tags(tasks: Mapping[str, Task]) -> list[tuple[str, str, str]]:
    """Return (task, tag, hint) of each limit by a tag that calls for no task of the spider.

    An item may have such a tag all the same, so it is no error.
    """
    known = sorted({tag for one in tasks.values() for tag in one.tags})
    return [
        (name, tag, closest(tag, known))
        for name, one in tasks.items()
        for tag in dict.fromkeys(tag for tags in one.rate_limit_by_tag for tag in tags)
        if tag not in known
    ]


def _limit(kind: str, name: str, rate: RateLimit, *, tags: tuple[str, ...] = ()) -> Limit:
    return Limit(kind=kind, name=name, gap=rate.gap, concurrency=rate.concurrency, tags=tags)


def _own(task: Task, name: str) -> Limit | None:
    rate = task.rate_limit
    throttles = task.autothrottle is True
    if rate is None and task.concurrency is None and not throttles:
        return None
    return Limit(
        kind=TASK,
        name=name,
        gap=None if rate is None else rate.gap,
        concurrency=task.concurrency if rate is None else rate.concurrency or task.concurrency,
        throttles=throttles,
    )


def _escaped(tag: str) -> str:
    """Return a tag in which no comma is taken for the end of it."""
    return tag.replace("\\", "\\\\").replace(",", "\\,")


def _hint(pattern: str, names: list[str]) -> str:
    groups: set[str] = set()
    if _WILD.search(pattern):
        for name in names:
            for joint in _JOINT.finditer(name):
                groups |= {f"{name[: joint.end()]}*", f"*{name[joint.start() :]}"}
    return closest(pattern, sorted(groups)) or closest(pattern, names)


def worth_holding(units: int) -> int:
    """Return how many requests are worth having in hand for so many that run at once."""
    return 3 * units + 2


def starts_within(gap: float, due_in: float) -> int:
    """Return how many starts fall within the time that is looked ahead; at most `MANY`."""
    if not gap >= SHORTEST_GAP:
        return MANY
    if not due_in <= LOOKAHEAD:
        return 0
    return min(int((LOOKAHEAD - max(due_in, 0.0)) / gap) + 1, MANY)
