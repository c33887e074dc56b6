"""Tasks: spider methods that tags call for, and what their decorator says of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from scrapy_itemgraph.exceptions import ItemGraphError, TaskDefinitionError
from scrapy_itemgraph.model import input_checks, periods, rates
from scrapy_itemgraph.model.answers import read_answers
from scrapy_itemgraph.model.due_times import Expiry
from scrapy_itemgraph.model.rates import RateLimit
from scrapy_itemgraph.model.schedules import Kind
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from uuid import UUID

MARK = "__itemgraph_task__"
_CALLBACK = "callback:"  # how the tag of a plain callback begins
SET_ASIDE = "callback."
BODY = "body"  # what counts of a response: all of it
_BESIDE_RULES = ("time_zone", "spread")
_OF_EXPIRY = (*map(str, Kind), *_BESIDE_RULES)
CALLBACK_OPTIONS = (
    "version",
    "ttl",
    *_OF_EXPIRY,
    "max_failures",
    "rate_limit",
    "concurrency",
    "exempt_global",
    "recovers",
    "answers",
    "revalidate",
    "unchanged_if",
)
_NAME = re.compile(r"\w[\w.:-]{0,99}")
_FIRST_DELAY = timedelta(seconds=10)
_LONGEST_DELAY = timedelta(minutes=10)

on_declared: Callable[[], None] | None = None
"""Called when a task is declared."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task as a spider declares it; `ttl` is None for the default and "never" for none.

    With an `expiry` its results expire by that, and there is no `ttl`.
    The keys of `rate_limit_by_tag` are sorted tags, all of which an item must have.
    """

    name: str
    method: str
    tags: tuple[str, ...] = ()
    version: str = "1"
    ttl: timedelta | Literal["never"] | None = None
    expiry: Expiry | None = None
    depends_on: tuple[str, ...] = ()
    nice: int = 0
    request: str | Callable[..., Any] | None = None
    slot: str | None = None
    download: bool = True
    max_attempts: int = 3
    backoff: tuple[timedelta, ...] = ()
    max_failures: int | None = None
    allow_failure: bool = False
    rate_limit: RateLimit | None = None
    rate_limit_by_tag: Mapping[tuple[str, ...], RateLimit] = field(default_factory=dict)
    exempt_global: bool = False
    autothrottle: bool | None = None
    concurrency: int | None = None
    exclusive: Literal["pair", "item"] = "pair"
    retry_failed_on_version_bump: bool = False
    is_callback: bool = False
    answers: Mapping[int, str] | None = None  # None: those of ITEMGRAPH_ANSWERS
    revalidate: bool = False
    unchanged_if: str | None = None  # "body", or the name of a method

    def __post_init__(self) -> None:
        _check(self)

    @property
    def keeps_validators(self) -> bool:
        """Whether it is told of a page that this is as it was, or finds out."""
        return self.revalidate or self.unchanged_if is not None

    def retry_delay(self, attempt: int) -> timedelta:
        """Return how long to wait after the given attempt (from 1), before jitter."""
        if self.backoff:
            return self.backoff[min(attempt, len(self.backoff)) - 1]
        return min(_FIRST_DELAY * (1 << min(attempt - 1, 10)), _LONGEST_DELAY)


def task(
    undecorated: None = None,
    /,
    *,
    tags: Iterable[str] = (),
    name: str | None = None,
    version: str = "1",
    ttl: timedelta | float | str | None = None,
    every: timedelta | float | str | None = None,
    at: str | Sequence[str] | None = None,
    cron: str | None = None,
    time_zone: str | None = None,
    spread: timedelta | float | str | None = None,
    depends_on: Iterable[str] = (),
    nice: int = 0,
    request: str | Callable[..., Any] | None = None,
    slot: str | None = None,
    download: bool = True,
    max_attempts: int = 3,
    backoff: float | str | timedelta | Sequence[float | str | timedelta] | None = None,
    max_failures: int | None = None,
    allow_failure: bool = False,
    rate_limit: RateLimit | str | None = None,
    rate_limit_by_tag: Mapping[str | tuple[str, ...], RateLimit | str] | None = None,
    exempt_global: bool = False,
    autothrottle: bool | None = None,
    concurrency: int | None = None,
    exclusive: Literal["pair", "item"] = "pair",
    retry_failed_on_version_bump: bool = False,
    answers: Mapping[int, str] | None = None,
    revalidate: bool = False,
    unchanged_if: str | None = None,
) -> Callable[[F], F]:
    """Make a spider method a task for items with one of `tags`, or raise a TaskDefinitionError."""
    given = dict(locals())
    if given.pop("undecorated") is not None:
        with _named(_where(undecorated)):
            raise TaskDefinitionError("write @task(tags=[…]), with its tags")

    def decorate(method: F) -> F:
        with _named(_where(method)):
            own = method.__name__
            options = Task(**{**_read(given), "method": own, "name": own if name is None else name})
        _mark(method, options)
        return method

    return decorate


def _mark(method: Callable[..., Any], options: Task) -> None:
    setattr(method, MARK, options)
    if on_declared is not None:
        on_declared()


def _where(method: Any) -> str:
    return f"@task of {getattr(method, '__qualname__', repr(method))}"


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Have an error about an option say where that was given."""
    try:
        yield
    except (ValueError, TypeError, ItemGraphError) as error:
        raise TaskDefinitionError(f"{where}: {error}") from None


def is_name(name: str) -> bool:
    """Tell whether a task can have a name."""
    return _NAME.fullmatch(name) is not None


def callback_tag(name: str) -> str:
    """Return the tag that calls for the task of a plain callback.

    Beside a `@task` of the same name the callback's own task has another one, `callback.parse`.
    """
    return f"{_CALLBACK}{name.removeprefix(SET_ASIDE)}"


def callback_of_tag(tag: str) -> str:
    """Return the name of the plain callback that a tag calls for."""
    return tag.removeprefix(_CALLBACK)


def is_callback_tag(tag: str) -> bool:
    """Tell whether a tag calls for a plain callback."""
    return tag.startswith(_CALLBACK)


def of_named_callback(name: str, callbacks: Mapping[str, Mapping[str, Any]]) -> Task:
    """Return the task of a plain callback; `callbacks` are those of `ITEMGRAPH_CALLBACKS`."""
    return of_callback(name, callbacks.get(name.removeprefix(SET_ASIDE), {}))


def of_callback(name: str, options: Mapping[str, Any]) -> Task:
    """Return the task that runs a spider's plain callback for the requests that name it.

    `options` are those of `ITEMGRAPH_CALLBACKS` for it; a TaskDefinitionError names one that cannot
    work.
    """
    with _named(f"ITEMGRAPH_CALLBACKS[{name!r}]"):
        if not isinstance(options, Mapping):
            raise TaskDefinitionError('write a dict such as {"ttl": "1d"}')
        unknown = sorted(options.keys() - set(CALLBACK_OPTIONS))
        if unknown:
            raise TaskDefinitionError(
                f"there is no {unknown[0]!r}; there are {', '.join(CALLBACK_OPTIONS)}"
            )
        if not isinstance(options.get("recovers", False), bool):
            raise TaskDefinitionError(
                f"recovers must be True or False, not {options['recovers']!r}"
            )
        given = {key: value for key, value in options.items() if key != "recovers"}
        return Task(
            name=name,
            method=name,
            tags=(callback_tag(name),),
            max_attempts=1,
            allow_failure=True,
            is_callback=True,
            **_read(given),
        )


def discover(spider_class: type) -> dict[str, Task]:
    """Return the tasks of a spider class by name, checked against each other.

    It is a TaskDefinitionError to have two tasks of one name, an undecorated override, an unknown
    dependency, or a cycle.
    """
    found: dict[str, Task] = {}
    for attribute in dict.fromkeys(a for cls in spider_class.__mro__ for a in vars(cls)):
        options = _marked(spider_class, attribute)
        if options is None:
            continue
        other = found.get(options.name)
        if other is not None:
            raise TaskDefinitionError(
                f"{spider_class.__name__}: {other.method} and {attribute} are both the task "
                f"{options.name!r}; give one of them another name="
            )
        found[options.name] = options
    _check_dependencies(spider_class.__name__, found)
    for options in found.values():
        if isinstance(options.request, str) and not hasattr(spider_class, options.request):
            raise TaskDefinitionError(
                f"{spider_class.__name__}: request={options.request!r} of the task "
                f"{options.name!r} names no method of the spider"
                f"{closest(options.request, dir(spider_class))}"
            )
        check_unchanged_if(spider_class, options)
    return found


def check_unchanged_if(spider_class: type, options: Task) -> None:
    """Check that `unchanged_if` names a method that returns at once what counts of a response."""
    name = options.unchanged_if
    if name is None or name == BODY:
        return
    method = getattr(spider_class, name, None)
    where = f"{spider_class.__name__}: unchanged_if={name!r} of the task {options.name!r}"
    if not callable(method):
        raise TaskDefinitionError(
            f'{where} names no method of the spider{closest(name, dir(spider_class))}; "body" '
            "stands for all of the response"
        )
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise TaskDefinitionError(f"{where} is async; write a plain method that returns text")


def uncovered_dependencies(tasks: Mapping[str, Task]) -> list[tuple[Task, Task]]:
    """Return (task, dependency) pairs where an item may carry the task's tag but not the other's.

    Such an item never gets the dependency's result from this tag, so its task may wait for ever.
    """
    return [
        (one, tasks[name])
        for one in tasks.values()
        for name in one.depends_on
        if not set(one.tags) <= set(tasks[name].tags)
    ]


def _marked(spider_class: type, attribute: str) -> Task | None:
    definitions = [vars(cls)[attribute] for cls in spider_class.__mro__ if attribute in vars(cls)]
    marks = [getattr(definition, MARK, None) for definition in definitions]
    if marks[0] is None and any(marks):
        raise TaskDefinitionError(
            f"{spider_class.__name__}.{attribute} overrides a task but is not decorated; "
            "decorate it with @task too, or give it another name"
        )
    if marks[0] is not None and not inspect.isroutine(
        inspect.getattr_static(spider_class, attribute)
    ):
        raise TaskDefinitionError(f"{spider_class.__name__}.{attribute} is no method")
    return marks[0]


def _check_dependencies(spider: str, tasks: Mapping[str, Task]) -> None:
    for one in tasks.values():
        for name in one.depends_on:
            if name not in tasks:
                raise TaskDefinitionError(
                    f"{spider}: the task {one.name!r} depends on {name!r}, which is no task of "
                    f"this spider{closest(name, tasks)}"
                )
    try:
        TopologicalSorter({t.name: t.depends_on for t in tasks.values()}).prepare()
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise TaskDefinitionError(f"{spider}: tasks depend on each other: {circle}") from None


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a Task has them, of those that were written: periods, rates, lists."""
    read = {
        key: _READ[key](value) if key in _READ else value
        for key, value in given.items()
        if key not in _OF_EXPIRY
    }
    return read | {"expiry": _expiry(given)}


def _names(given: Iterable[str], what: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TaskDefinitionError(f"{what} is a list: write {what}=[{given!r}]")
    return tuple(dict.fromkeys(input_checks.check_id(name, f"a name in {what}") for name in given))


def _ttl(given: Any) -> timedelta | Literal["never"] | None:
    return None if given is None else periods.parse_ttl(given) or "never"


def _expiry(options: Mapping[str, Any]) -> Expiry | None:
    rule = {str(kind): options.get(kind) for kind in Kind if options.get(kind) is not None}
    if not rule:
        for name in _BESIDE_RULES:
            if options.get(name) is not None:
                raise TaskDefinitionError(f"{name} goes with every, at or cron; give one of them")
        return None
    if options.get("ttl") is not None:
        raise TaskDefinitionError(
            f"ttl and {next(iter(rule))} both say when results expire; leave one of them out"
        )
    return Expiry.read(rule, **{name: options.get(name) for name in _BESIDE_RULES})


def _answers(given: Any) -> Mapping[int, str] | None:
    return None if given is None else read_answers(given, "answers")


def _backoff(given: Any) -> tuple[timedelta, ...]:
    if given is None:
        return ()
    steps = given if isinstance(given, (list, tuple)) else [given]
    return tuple(periods.parse_period(step, "backoff") for step in steps)


def _rate_limit(given: Any) -> RateLimit | None:
    return None if given is None else RateLimit.read(given, "rate_limit")


def _by_tag(given: Any) -> dict[tuple[str, ...], RateLimit]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TaskDefinitionError(
            'rate_limit_by_tag is a dict of tags to rates, such as {"slow": "1/s"}, '
            f"not {given!r:.80}"
        )
    found: dict[tuple[str, ...], RateLimit] = {}
    for key, rate in given.items():
        tags = _tags_together(key)
        if tags in found:
            raise TaskDefinitionError(
                f"rate_limit_by_tag has the tags {', '.join(tags)} twice; leave one of them out"
            )
        found[tags] = RateLimit.read(rate, f"rate_limit_by_tag[{key!r:.80}]")
    return found


def _tags_together(key: Any) -> tuple[str, ...]:
    what = "a tag in rate_limit_by_tag"
    if not isinstance(key, tuple):
        return (input_checks.check_tag(key, what),)
    if not key:
        raise TaskDefinitionError(
            "rate_limit_by_tag has a tuple without a tag; a limit for all items is rate_limit="
        )
    tags = tuple(sorted({input_checks.check_tag(tag, what) for tag in key}))
    input_checks.check_tag(",".join(tags), "a tuple of tags in rate_limit_by_tag")
    return tags


_READ: Mapping[str, Callable[[Any], Any]] = {
    "tags": partial(_names, what="tags"),
    "ttl": _ttl,
    "depends_on": partial(_names, what="depends_on"),
    "backoff": _backoff,
    "rate_limit": _rate_limit,
    "rate_limit_by_tag": _by_tag,
    "answers": _answers,
}


def _check(options: Task) -> None:
    if not _NAME.fullmatch(options.name):
        raise TaskDefinitionError(
            f"the name {options.name!r} has odd characters; use up to 100 letters, digits "
            "and _ . : -"
        )
    if not options.tags:
        raise TaskDefinitionError("tags is empty, so nothing would ever call for this task")
    if not isinstance(options.version, str) or not options.version:
        raise TaskDefinitionError(f"version must be a non-empty string, not {options.version!r}")
    input_checks.check_text(options.version, "version")
    if options.exclusive not in ("pair", "item"):
        raise TaskDefinitionError(f'exclusive is "pair" or "item", not {options.exclusive!r}')
    if options.request is not None and not (
        isinstance(options.request, str) or callable(options.request)
    ):
        raise TaskDefinitionError("request is the name of a method, or a callable of the item")
    _check_integer(options.nice, "nice", least=-(2**31))
    _check_integer(options.max_attempts, "max_attempts", least=1)
    if options.max_failures is not None:
        _check_integer(options.max_failures, "max_failures", least=1)
    if not isinstance(options.revalidate, bool):
        raise TaskDefinitionError(f"revalidate is True or False, not {options.revalidate!r:.80}")
    if not isinstance(options.unchanged_if, str | None):
        raise TaskDefinitionError(
            f'unchanged_if is "body" or the name of a method, not {options.unchanged_if!r:.80}'
        )
    if options.keeps_validators and not options.download:
        raise TaskDefinitionError(
            "revalidate and unchanged_if are for tasks that download; leave them out"
        )
    _check_limits(options)


def _check_limits(options: Task) -> None:
    if not isinstance(options.exempt_global, bool):
        raise TaskDefinitionError(
            f"exempt_global must be True or False, not {options.exempt_global!r}"
        )
    if not isinstance(options.autothrottle, bool | None):
        raise TaskDefinitionError(
            f"autothrottle must be True, False or None, not {options.autothrottle!r}"
        )
    if options.concurrency is None:
        return
    rates.check_concurrency(options.concurrency)
    if options.rate_limit is not None and options.rate_limit.concurrency is not None:
        raise TaskDefinitionError(
            f"concurrency={options.concurrency} and rate_limit="
            f"RateLimit(…, concurrency={options.rate_limit.concurrency}) both say how many run "
            "at once; leave one of them out"
        )


def _check_integer(value: Any, what: str, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise TaskDefinitionError(f"{what} must be an integer from {least}, not {value!r}")


class RegisteredTask(NamedTuple):
    """A task as a worker registered it; `definition` digests all that its code declares of it.

    If it `revalidates`, its claims ask for the validators of the result that is there. With
    `has_request` its requests are made by `request=`, which sees the item's metadata.
    """

    name: str
    version: str
    definition: UUID
    revalidates: bool = False
    has_request: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """A task whose code has changed since `made` of its fresh results were made."""

    task: str
    is_callback: bool
    made: int  # counted up to a thousand
    is_news: bool  # the code had not been seen before
