"""Limits: what settings and tasks promise to websites, as they declare it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

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
    """Return the groups that match none of the tasks, each with a hint at what it may have meant.

    The hint is such as `; did you mean 'shop:*'?`, or nothing.
    """
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
